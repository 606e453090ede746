"""Regions as rings on an equirectangular map (longitude as x, latitude as y), ready to be filled by the even-odd rule.

A circle on the sphere is no circle on such a map. Its border is followed by bearing (the destination formula of
spherical trigonometry), in longitudes that run on beyond 180 degrees; the ring is then cut at the antimeridian and the
parts are moved back into [-180, 180], as are the rings of polygons. A circle over a pole is closed along the map's
edge, one over both poles is the map less the circle around the antipode. Cost: O(``STEPS``) a circle.
"""

from __future__ import annotations

import math
from itertools import pairwise

from spatialstream.model.geometry import EARTH_RADIUS_M
from spatialstream.model.regions import Box, Polygon, Region
from spatialstream.model.space import Space

__all__ = ["Ring", "clip", "fold", "outline"]

Ring = list[tuple[float, float]]

STEPS = 180
"""Points on a circle's border."""

_WORLD: Ring = [(-180.0, -90.0), (180.0, -90.0), (180.0, 90.0), (-180.0, 90.0)]


def outline(space: Space, region: Region) -> list[Ring]:
    """The rings (without closing points) whose even-odd interior is the region; more than one at the antimeridian."""
    if isinstance(region, Box):
        if region.west <= region.east:
            return [_box(region.west, region.south, region.east, region.north)]
        return [
            _box(region.west, region.south, 180.0, region.north),
            _box(-180.0, region.south, region.east, region.north),
        ]
    if isinstance(region, Polygon) and region.within:
        rings = _around(space, region)
        return [part for ring in rings for part in fold(ring)] if space.geographic else rings
    if isinstance(region, Polygon):
        rings = [list(map(tuple, region.points[a:b].tolist())) for a, b in pairwise(region.rings.tolist())]
        return [part for ring in rings for part in fold(ring)] if space.geographic else rings
    if not space.geographic:
        turns = (math.tau * i / STEPS for i in range(STEPS))
        return [[(region.x + region.radius * math.cos(a), region.y + region.radius * math.sin(a)) for a in turns]]
    return _cap(region.x, region.y, region.radius / EARTH_RADIUS_M)


def _around(space: Space, region: Polygon) -> list[Ring]:
    """The outline of a polygon or lines with a margin, about: as a degree of longitude is wide in the middle of it."""
    import shapely  # which not every reader has

    latitudes = region.points[:, 1]
    middle = math.radians(float(latitudes.min() + latitudes.max()) / 2)
    narrow = max(math.cos(middle), 0.01) if space.geographic else 1.0
    unit = EARTH_RADIUS_M * math.radians(1.0) if space.geographic else 1.0
    flat = shapely.transform(shapely.geometry.shape(region.to_geojson()), lambda each: each * [narrow, 1.0])
    wide = shapely.transform(flat.buffer(region.within / unit), lambda each: each / [narrow, 1.0])
    rings = [ring for part in shapely.get_parts(wide) for ring in (part.exterior, *part.interiors)]
    return [[(x, min(max(y, -90.0), 90.0) if space.geographic else y) for x, y in ring.coords[:-1]] for ring in rings]


def _box(west: float, south: float, east: float, north: float) -> Ring:
    return [(west, south), (east, south), (east, north), (west, north)]


def _cap(x: float, y: float, angle: float) -> list[Ring]:
    """A spherical cap around (x, y) of an angular radius in radians."""
    if angle >= math.pi:
        return [_WORLD]
    reach = math.degrees(angle)
    north, south = y + reach >= 90.0, y - reach <= -90.0
    if north and south:
        antipode = x - 180.0 if x > 0.0 else x + 180.0
        return [_WORLD, *_cap(antipode, -y, math.pi - angle)]
    border = _border(x, y, angle)
    if north or south:
        return [_close_at_pole(border, 90.0 if north else -90.0)]
    return fold(border)


def _close_at_pole(border: Ring, pole: float) -> Ring:
    """The border of a cap that holds one pole, from the map's west edge to its east edge, and back along the pole.

    Each meridian crosses such a border once, so its latitude is a function of longitude.
    """
    points = sorted(((x + 180.0) % 360.0 - 180.0, y) for x, y in border)
    (first_x, first_y), (last_x, last_y) = points[0], points[-1]
    gap = first_x + 360.0 - last_x
    at_edge = last_y + (first_y - last_y) * ((180.0 - last_x) / gap if gap else 0.0)
    return [(-180.0, at_edge), *points, (180.0, at_edge), (180.0, pole), (-180.0, pole)]


def _border(x: float, y: float, angle: float) -> Ring:
    """The border by bearing, with longitudes that never jump."""
    if abs(y) == 90.0:  # around a pole the bearing says nothing: the border is a parallel
        parallel = math.copysign(1.0, y) * (90.0 - math.degrees(angle))
        return [(360.0 * (i + 0.5) / STEPS - 180.0, parallel) for i in range(STEPS)]
    sin_y, cos_y = math.sin(math.radians(y)), math.cos(math.radians(y))
    ring: Ring = []
    previous = x
    for i in range(STEPS):
        bearing = math.tau * (i + 0.5) / STEPS  # never due north or south, where a pole may lie
        sine = sin_y * math.cos(angle) + cos_y * math.sin(angle) * math.cos(bearing)
        sine = min(1.0, max(-1.0, sine))
        longitude = x + math.degrees(
            math.atan2(math.sin(bearing) * math.sin(angle) * cos_y, math.cos(angle) - sin_y * sine)
        )
        previous = longitude - 360.0 * round((longitude - previous) / 360.0)
        ring.append((previous, math.degrees(math.asin(sine))))
    return ring


def fold(ring: Ring) -> list[Ring]:
    """The parts of a ring in [-180, 180] after cutting it at each antimeridian and moving the parts by whole turns."""
    parts = []
    first = math.floor((min(x for x, _ in ring) + 180.0) / 360.0)
    last = math.ceil((max(x for x, _ in ring) + 180.0) / 360.0)
    for turn in range(first, last):
        middle = 360.0 * turn
        part = _clip(_clip(ring, middle - 180.0, 1.0), middle + 180.0, -1.0)
        if len(part) >= 3:
            parts.append([(x - middle, y) for x, y in part])
    return parts


def clip(ring: Ring, west: float, south: float, east: float, north: float) -> Ring:
    """The part of a ring in a box, by Sutherland-Hodgman: what is outside is drawn along the box's border."""
    inside = _clip(_clip(ring, west, 1.0), east, -1.0)
    turned = _clip(_clip([(y, x) for x, y in inside], south, 1.0), north, -1.0)
    return [(x, y) for y, x in turned]


def _clip(ring: Ring, at: float, side: float) -> Ring:
    """Sutherland-Hodgman against one meridian: what lies east (``side`` 1) or west (-1) of ``at``."""
    result: Ring = []
    for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True):
        a_in, b_in = side * (ax - at) >= 0.0, side * (bx - at) >= 0.0
        if a_in:
            result.append((ax, ay))
        if a_in != b_in:
            result.append((at, ay + (by - ay) * (at - ax) / (bx - ax)))
    return result
