"""Exactness at length: a million pairs of a point and a real country, each compared with the oracle in fractions.

``python -m tests.benchmarks.bench_pairs [COUNT]``. Most points are on vertices and edges, or within 2^-50 of them
(:func:`tests.unit.model.polygons.shapes.points`). Random polygons, as many, are in
``tests/unit/model/polygons/test_table.py`` at length (``HYPOTHESIS_PROFILE=explore``).
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.table import PolygonTable, contain_points
from spatialstream.model.space import WGS84
from spatialstream.oracle.polygons import polygon_containment
from tests.benchmarks.bench_crq import Row
from tests.benchmarks.countries import countries
from tests.unit.model.polygons.shapes import points

PAIRS = 1_000_000
MOST_VERTICES = 20_000
"""Canada has 10,432."""


def valid(geometry: dict[str, Any]) -> dict[str, Any]:
    """The geometry without the parts that cross themselves, which whole numbers make of some at the antimeridian."""
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    return {"type": "MultiPolygon", "coordinates": [part for part in parts if _is_valid(part)]}


def _is_valid(part: list[Any]) -> bool:
    try:
        parse_polygon({"type": "Polygon", "coordinates": part}, WGS84, most_vertices=MOST_VERTICES)
    except RecordError:
        return False
    return True


def check(geometry: dict[str, Any], rng: np.random.Generator, count: int) -> tuple[int, float]:
    """How many of so many points it contains, and the seconds that the kernel took.

    Raises:
        AssertionError: the kernel and the oracle differ.
    """
    table = PolygonTable.of([parse_polygon(geometry, WGS84, most_vertices=MOST_VERTICES)])
    at = points(WGS84, geometry, rng, count)
    columns, rows = at.T.copy(), np.zeros(count, np.int32)
    start = time.perf_counter()
    found = contain_points(table, True, rows, *columns)
    seconds = time.perf_counter() - start
    exact = polygon_containment(geometry, True)
    expected = np.array([exact(x, y) for x, y in at.tolist()])
    assert (found == expected).all(), at[found != expected][:5].tolist()
    return int(expected.sum()), seconds


def run(pairs: int = PAIRS) -> list[Row]:
    """The rows of the table: how many pairs were compared, and the rate of the kernel, compiled."""
    rng = np.random.default_rng(50)
    shapes = [valid(geometry) for _, geometry in countries()]
    parts = [part for shape in shapes for part in shape["coordinates"]]
    check(shapes[0], rng, 10)
    each = -(-pairs // len(shapes))
    found = [check(shape, rng, each) for shape in shapes]
    inside, seconds = sum(count for count, _ in found), sum(took for _, took in found)
    total, holes = each * len(shapes), sum(len(part) - 1 for part in parts)
    note = f"{len(shapes)} countries in {len(parts):,} parts with {holes} holes; {inside / total:.0%} of points inside"
    return [
        {
            "name": "pairs of points and countries, as in fractions",
            "value": total,
            "unit": "pairs",
            "floor": pairs,
            "note": note,
        },
        {"name": "the kernel alone", "value": total / seconds, "unit": "pairs/s", "floor": None, "note": ""},
    ]


def main() -> None:
    """Print the rows as a table."""
    for row in run(*map(int, sys.argv[1:2])):
        sys.stdout.write(f"{row['name']:60} {row['value']:>14,.1f} {row['unit']:10} {row['note']}\n")


if __name__ == "__main__":
    main()
