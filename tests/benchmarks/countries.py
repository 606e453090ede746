"""The countries of Natural Earth at 1:50 million, with their holes, as polygons.

They are in the npm package ``world-atlas``, which ``scripts/console.sh`` fetches for the console's map, in TopoJSON:
borders are arcs that neighbours share, in whole numbers, each point as the difference to the one before it
(https://github.com/topojson/topojson-specification, sections 2.1.2 to 2.1.4).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import spatialstream.gateway.console

__all__ = ["FILE", "countries", "geometries"]

FILE = Path(spatialstream.gateway.console.__file__).parent / "vendor" / "countries-50m.json"

Ring = list[list[float]]


def countries(file: Path = FILE) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and GeoJSON of each country of a file."""
    return geometries(json.loads(file.read_text()), "countries")


def geometries(topology: Mapping[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and geometries of a collection of polygons of a topology."""
    arcs = [_decoded(arc, topology["transform"]) for arc in topology["arcs"]]
    for each in topology["objects"][name]["geometries"]:
        if each["type"] not in ("Polygon", "MultiPolygon"):
            continue
        given = each["arcs"] if each["type"] == "MultiPolygon" else [each["arcs"]]
        parts = [[_ring(numbers, arcs) for numbers in part] for part in given]
        form = {"type": "MultiPolygon", "coordinates": parts}
        yield each["properties"]["name"], form if len(parts) > 1 else {"type": "Polygon", "coordinates": parts[0]}


def _decoded(arc: Sequence[Sequence[int]], transform: Mapping[str, Sequence[float]]) -> Ring:
    """The positions of an arc, in degrees."""
    (scale_x, scale_y), (move_x, move_y) = transform["scale"], transform["translate"]
    xs, ys = (accumulate(steps) for steps in zip(*arc, strict=True))
    return [[x * scale_x + move_x, y * scale_y + move_y] for x, y in zip(xs, ys, strict=True)]


def _ring(numbers: Sequence[int], arcs: Sequence[Ring]) -> Ring:
    """The ring of arcs one after the other, of which each begins where the one before ends; ~i is arc i backwards."""
    ring: Ring = []
    for number in numbers:
        arc = arcs[number] if number >= 0 else arcs[~number][::-1]
        ring += arc[1:] if ring else arc
    return ring
