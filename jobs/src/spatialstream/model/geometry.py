"""Distance and containment, each defined once, as kernels of scalars.

A *region* is a kind and four numbers: unbounded (``EVERYWHERE``, numbers unused), a closed box (west, south, east,
north; west > east crosses the antimeridian), or a closed circle (x, y, radius, unused). ``geographic`` says whether
coordinates are WGS84 degrees with distances in metres by the haversine formula, or planar coordinates with Euclidean
distances.

Floating point: every implementation (kernels and the oracle) evaluates the same expression in the same order with the
platform's libm, so results are bit-identical.
"""

from __future__ import annotations

import math

from spatialstream.model.kernels import kernel

__all__ = ["BOX", "CIRCLE", "EARTH_RADIUS_M", "EVERYWHERE", "POLYGON", "contains", "distance", "distance_to_box"]

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius of the Earth in metres."""

EVERYWHERE, BOX, CIRCLE, POLYGON = 0, 1, 2, 3
"""Kinds of region."""

_RADIANS = math.pi / 180.0
_ANTIPODAL_M = 1.99e7


@kernel
def distance(geographic: bool, x1: float, y1: float, x2: float, y2: float) -> float:
    """Distance of two points: metres by haversine if ``geographic`` (degrees in), else Euclidean.

    Different coordinates of the same place (longitude -180 and 180; every longitude at a pole) give bit-identical
    distances to any other place, and 0 to each other.
    """
    if not geographic:
        dx = x2 - x1
        dy = y2 - y1
        return math.sqrt(dx * dx + dy * dy)
    along = (180.0 if x2 == -180.0 else x2) - (180.0 if x1 == -180.0 else x1)
    if abs(y1) == 90.0 or abs(y2) == 90.0:
        along = 0.0
    p1 = y1 * _RADIANS
    p2 = y2 * _RADIANS
    sp = math.sin((p2 - p1) * 0.5)
    sl = math.sin(along * _RADIANS * 0.5)
    a = sp * sp + math.cos(p1) * math.cos(p2) * (sl * sl)
    return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, a)))


@kernel
def contains(geographic: bool, kind: int, a: float, b: float, c: float, d: float, x: float, y: float) -> bool:
    """Whether the region (kind, a, b, c, d) contains the point (x, y); borders belong to the region.

    Of a polygon the numbers are those of its box: what is not in it is not in the polygon, all else needs its own test.
    """
    if kind in (BOX, POLYGON):
        if y < b or y > d:
            return False
        if a <= c:
            return a <= x and x <= c
        return x >= a or x <= c
    if kind == CIRCLE:
        return distance(geographic, a, b, x, y) <= c
    return True


@kernel
def distance_to_box(
    geographic: bool, x: float, y: float, west: float, south: float, east: float, north: float
) -> float:
    """A lower bound of the distance from (x, y) to any point of a box with west <= east.

    Planar: exact. Geographic: the latitude gap if the box spans the point's meridian; otherwise the nearest point lies
    on one of the two bounding meridians (great-circle distance to a meridian arc is unimodal in latitude). The bound is
    lowered by a relative 1e-9 and a millimetre (0.9 m near the antipode, where the haversine loses digits), so that
    rounding never makes it exceed the distance that :func:`distance` computes.
    """
    if not geographic:
        dx = max(0.0, max(west - x, x - east))
        dy = max(0.0, max(south - y, y - north))
        return math.sqrt(dx * dx + dy * dy)
    if west <= x and x <= east:
        gap = max(0.0, max(south - y, y - north)) * _RADIANS * EARTH_RADIUS_M
        return max(0.0, gap * (1.0 - 1e-9) - (0.9 if gap > _ANTIPODAL_M else 1e-3))
    best = math.inf
    for edge in (west, east):
        p = y * _RADIANS
        dl = (edge - x) * _RADIANS
        # latitude of the point of the whole meridian circle nearest to (x, y): tan = tan(p) / cos(dl)
        foot = math.atan2(math.sin(p), math.cos(p) * math.cos(dl)) / _RADIANS
        if foot > 90.0 or foot < -90.0:
            # the foot lies on the far half of the circle: along this half the nearer end is the nearest
            foot = north if foot > 90.0 else south
        foot = min(max(foot, south), north)
        best = min(best, distance(geographic, x, y, edge, foot))
        best = min(best, distance(geographic, x, y, edge, south))
        best = min(best, distance(geographic, x, y, edge, north))
    return max(0.0, best * (1.0 - 1e-9) - (0.9 if best > _ANTIPODAL_M else 1e-3))
