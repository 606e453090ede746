"""Whether a polygon contains a point, in fractions: what the kernels have to answer, as plain as it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

__all__ = ["polygon_containment"]

_Ring = Sequence[tuple[Fraction, Fraction]]


def polygon_containment(geometry: dict[str, Any], geographic: bool) -> Callable[[float, float], bool]:
    """Whether points lie in a GeoJSON Polygon or MultiPolygon; borders of shells and of holes belong to it.

    If ``geographic``, longitudes that differ by 360 are the same. Cost: O(vertices) a point, microseconds each.
    """
    given = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    parts = [[[(Fraction(x), Fraction(y)) for x, y, *_ in ring] for ring in part] for part in given]
    turns = (-360, 0, 360) if geographic else (0,)
    levels = [y for part in given for ring in part for _, y, *_ in ring]
    south, north = min(levels), max(levels)

    def contains(x: float, y: float) -> bool:
        return south <= y <= north and any(
            _in_part(part, Fraction(x) + turn, Fraction(y)) for turn in turns for part in parts
        )

    return contains


def _in_part(rings: Sequence[_Ring], x: Fraction, y: Fraction) -> bool:
    shell, *holes = rings
    return _place(shell, x, y) != "outside" and all(_place(hole, x, y) != "inside" for hole in holes)


def _place(ring: _Ring, x: Fraction, y: Fraction) -> str:
    """Where a point is to a closed ring: outside, inside or on its border."""
    inside = False
    for (ax, ay), (bx, by) in pairwise(ring):
        if not min(ay, by) <= y <= max(ay, by):
            continue
        if ay == by:
            if min(ax, bx) <= x <= max(ax, bx):
                return "border"
            continue
        crossing = ax + (bx - ax) * (y - ay) / (by - ay)
        if crossing == x:
            return "border"
        if crossing > x and y < max(ay, by):
            inside = not inside
    return "inside" if inside else "outside"
