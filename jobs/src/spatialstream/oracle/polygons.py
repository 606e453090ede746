"""Whether a polygon contains a point, in fractions: what the kernels have to answer, as plain as it can be.

With a margin, whether the point lies near to it, by distances to points of its edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

__all__ = ["polygon_containment", "region_containment"]

_Ring = Sequence[tuple[float, float]]

_Distance = Callable[[float, float, float, float], float]

_EARTH = 6_371_008.8
_FINEST = 1e-3
"""Metres: the length of the parts of an edge that are not divided further."""


def region_containment(
    geometry: dict[str, Any], geographic: bool, within: float, distance: _Distance
) -> Callable[[float, float], bool]:
    """Whether points lie in a geometry or up to ``within`` from its border; lines and points have nothing else.

    Args:
        geometry: GeoJSON: Polygon, MultiPolygon, LineString, MultiLineString, Point or MultiPoint.
        geographic: degrees, and metres; otherwise a plane.
        within: the distance.
        distance: of two points.
    """
    lines = list(_lines_of(geometry))
    if "Polygon" not in geometry["type"]:
        return lambda x, y: any(_is_near(line, x, y, geographic, within, distance) for line in lines)
    inside = polygon_containment(geometry, geographic)
    if not within:
        return inside
    return lambda x, y: inside(x, y) or any(_is_near(line, x, y, geographic, within, distance) for line in lines)


def _lines_of(geometry: dict[str, Any]) -> Iterator[_Ring]:
    """The lines that are drawn; of a point a line from it to it."""
    given = geometry["coordinates"]
    match geometry["type"]:
        case "Point":
            yield [given, given]
        case "MultiPoint":
            yield from ([each, each] for each in given)
        case "LineString":
            yield given
        case "MultiLineString" | "Polygon":
            yield from given
        case "MultiPolygon":
            yield from (ring for part in given for ring in part)


def _is_near(line: _Ring, x: float, y: float, geographic: bool, within: float, distance: _Distance) -> bool:
    near = _is_near_on_earth if geographic else _is_near_in_plane
    return any(near(a, b, (x, y), within, distance) for a, b in pairwise(line))


def _is_near_in_plane(a: Any, b: Any, at: Any, within: float, distance: _Distance) -> bool:
    """By the ends and the foot of the perpendicular."""
    (ax, ay), (bx, by), (x, y) = a[:2], b[:2], at
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    s = min(max(((x - ax) * dx + (y - ay) * dy) / length, 0.0), 1.0) if length else 0.0
    return any(distance(*place, x, y) <= within for place in ((ax, ay), (bx, by), (ax + s * dx, ay + s * dy)))


def _is_near_on_earth(a: Any, b: Any, at: Any, within: float, distance: _Distance) -> bool:
    """By halving: a part of an edge comes no nearer than half of what its ends and its length leave."""
    (ax, ay), (bx, by), (x, y) = a[:2], b[:2], at
    if _EARTH * math.radians(max(min(ay, by) - y, y - max(ay, by), 0.0)) > within + 1.0:
        return False  # a parallel that far is nowhere nearer
    length = _EARTH * math.radians(math.hypot(bx - ax, by - ay))

    def far(s: float) -> float:
        return distance(ax + s * (bx - ax), ay + s * (by - ay), x, y)

    parts = [(0.0, far(0.0), 1.0, far(1.0))]
    while parts:
        s, d, end, other = parts.pop()
        if min(d, other) <= within:
            return True
        size = length * (end - s)
        if (d + other - size) / 2 <= within and size > _FINEST:
            middle = (s + end) / 2
            between = far(middle)
            parts += [(s, d, middle, between), (middle, between, end, other)]
    return False


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
