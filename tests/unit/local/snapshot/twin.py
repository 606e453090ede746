"""Brute-force reference of the snapshot index: plain Python over a list of objects."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

from spatialstream.model.expressions import Expression
from spatialstream.model.objects import SpatialObject
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.regions import Box, Region
from spatialstream.model.space import Space
from spatialstream.oracle.polygons import region_containment

RADIUS_M = 6_371_008.8


def distance(space: Space, x1: float, y1: float, x2: float, y2: float) -> float:
    if not space.geographic:
        return math.sqrt((x2 - x1) * (x2 - x1) + (y2 - y1) * (y2 - y1))
    if 90.0 in (abs(y1), abs(y2)):  # a pole is one place, whatever its longitude, and so are the two ends of a parallel
        x1 = x2 = 0.0
    x1, x2 = (180.0 if x == -180.0 else x for x in (x1, x2))
    degree = math.pi / 180.0
    p1, p2 = y1 * degree, y2 * degree
    sp, sl = math.sin((p2 - p1) * 0.5), math.sin((x2 - x1) * degree * 0.5)
    a = sp * sp + math.cos(p1) * math.cos(p2) * (sl * sl)
    return 2.0 * RADIUS_M * math.asin(math.sqrt(min(1.0, a)))


def inside(space: Space, region: Region | None, x: float, y: float) -> bool:
    if region is None:
        return True
    if isinstance(region, Box):
        if not region.south <= y <= region.north:
            return False
        if region.west <= region.east:
            return region.west <= x <= region.east
        return x >= region.west or x <= region.east
    if isinstance(region, Polygon):
        return region_containment(region.to_geojson(), space.geographic, region.within, partial(distance, space))(x, y)
    return distance(space, region.x, region.y, x, y) <= region.radius


class Twin:
    """Computes the store's answers from a list."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.objects: list[SpatialObject] = []

    def append(self, objects: Sequence[SpatialObject]) -> None:
        self.objects.extend(objects)

    def drop_before(self, t: int) -> None:
        self.objects = [o for o in self.objects if o.t >= t]

    def _matching(self, region: Region | None, keywords: Sequence[str], after: int, last: int) -> list[SpatialObject]:
        return [
            o
            for o in self.objects
            if after < o.t <= last and Expression.of(keywords).holds(o.terms) and inside(self.space, region, o.x, o.y)
        ]

    def range_query(
        self, region: Region | None, keywords: Sequence[str], after: int, last: int
    ) -> list[tuple[int, str, float, float]]:
        return sorted((o.t, o.id, o.x, o.y) for o in self._matching(region, keywords, after, last))

    def nearest(
        self, x: float, y: float, k: int, keywords: Sequence[str], after: int, last: int, bound: float = math.inf
    ) -> list[tuple[float, int, str, float, float]]:
        found = sorted(
            (distance(self.space, x, y, o.x, o.y), -o.t, o.id, o.x, o.y)
            for o in self._matching(None, keywords, after, last)
        )
        return [(d, -t, name, *place) for d, t, name, *place in found if d <= bound][:k]

    def term_counts(self, region: Region | None, keywords: Sequence[str], after: int, last: int) -> dict[str, int]:
        return dict(Counter(term for o in self._matching(region, keywords, after, last) for term in set(o.terms)))
