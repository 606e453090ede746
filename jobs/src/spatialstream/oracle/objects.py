"""All objects of a stream, looked through one by one, and what the answers of all kinds are made of.

Distances are evaluated in the order of the expressions in :mod:`spatialstream.model.geometry`, so that they agree with
the engine's to the bit.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from spatialstream.model.objects import SpatialObject
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.queries import Nearest, Predicate, Query
from spatialstream.model.regions import Box, Circle, Polygon, Region
from spatialstream.model.space import Space
from spatialstream.oracle.conditions import satisfies
from spatialstream.oracle.polygons import polygon_containment

__all__ = [
    "EXPIRY",
    "OBJECT",
    "SNAPSHOT",
    "STEP",
    "Accepted",
    "AllObjects",
    "Key",
    "Ranked",
    "Row",
    "in_reach",
    "reach",
    "row",
    "shown",
]

Row = dict[str, Any]
"""One result row, as JSON values."""

EXPIRY, OBJECT, SNAPSHOT, STEP = range(4)
"""The phases of one instant, in order."""

Key = tuple[int, int, str, float, float, str]
"""Canonical order of rows: (t, phase, object id, object x, object y, query id)."""

Ranked = tuple[float, int, str, float, float, str]
"""An object among the nearest: (distance, -t, id, x, y, fields), which is the order of nearness and its ties."""

Fields = tuple[str, ...] | None
"""The fields that rows show, of those that the stream keeps; None: all of them."""

_EARTH_RADIUS_M = 6_371_008.8
_RADIANS = math.pi / 180.0


@dataclass(slots=True)
class Accepted:
    """An accepted query and when it was cancelled, if it was."""

    query: Query
    cancelled: int | None = None

    @property
    def until(self) -> int:
        """When the lifetime ends by itself: exclusive for objects, inclusive for the steps of a CTQ."""
        return self.query.t + (self.query.lifetime.duration if self.query.lifetime.continuous else 0)

    @property
    def end(self) -> int:
        """The first instant whose objects do not count for a CRQ or CKQ."""
        return self.until if self.cancelled is None else min(self.until, self.cancelled)

    def uses_its_id(self, now: int) -> bool:
        """Whether the id is in use at ``now``, which is not before the query's own time."""
        if self.cancelled is not None:
            return False
        if self.query.lifetime.continuous and not self.query.kind.steps:
            return now < self.until
        return now <= self.until


class AllObjects:
    """All objects by (t, id, x, y), to be looked through one by one."""

    def __init__(
        self, objects: Iterable[SpatialObject], space: Space, retention: int | None, interval: int = 300_000
    ) -> None:
        self.space, self.interval = space, interval
        self.retention = math.inf if retention is None else retention
        self.objects = sorted(objects, key=lambda o: (o.t, o.id, o.x, o.y, o.stored or ""))
        self.times = [o.t for o in self.objects]
        self._terms = [frozenset(o.terms) for o in self.objects]

    def matching(self, first: float, last: int, predicate: Predicate) -> list[SpatialObject]:
        """The objects with ``first <= o.t <= last`` that satisfy the predicate, by (t, id, x, y)."""
        here = slice(bisect_left(self.times, first), bisect_right(self.times, last))
        candidates = self.objects[here]
        if predicate.keywords or predicate.any or predicate.none:
            candidates = [
                o for o, terms in zip(candidates, self._terms[here], strict=True) if _is_said(predicate, terms)
            ]
        if predicate.where is not None:
            where = cql2_of(predicate.where)
            candidates = [o for o in candidates if satisfies(where, dict(o.properties))]
        inside = _containment(predicate.region, self.space)
        return candidates if inside is None else [o for o in candidates if inside(o.x, o.y)]

    def distance(self, x: float, y: float, o: SpatialObject) -> float:
        """How far an object is from a point."""
        return _distance(self.space, x, y, o.x, o.y)

    def counted(self, at: int) -> list[SpatialObject]:
        """The objects of the corpus table at a multiple of the interval: of as many intervals as the retention has."""
        back = math.inf if self.retention == math.inf else -(-self.retention // self.interval) * self.interval
        return [o for o in self.objects if at - back < o.t <= at]

    def placed(self, o: SpatialObject, fields: Fields) -> Row:
        """An object in a result."""
        x, y = self.space.axes
        return {"id": o.id, "t": o.t, x: o.x, y: o.y} | said(o.stored, fields)

    def ranked(self, entry: Ranked, fields: Fields = None) -> Row:
        """One of the nearest in a result."""
        distance, minus_t, name, x, y, stored = entry
        place = self.placed(SpatialObject(name, -minus_t, x, y, ()), None)
        return place | {self.space.distance_field: distance} | said(stored, fields)

    def rank(self, o: SpatialObject, nearest: Nearest, fields: Fields = None) -> Ranked:
        """Where an object stands among the nearest."""
        distance = _distance(self.space, nearest.x, nearest.y, o.x, o.y)
        return distance, -o.t, o.id, o.x, o.y, shown(o, fields)


def said(stored: str | None, fields: Fields) -> Row:
    """The fields of an object that a row shows, as JSON values."""
    members = json.loads(f"{{{stored or ''}}}")
    return {name: value for name, value in members.items() if fields is None or name in fields}


def shown(o: SpatialObject, fields: Fields) -> str:
    """The same as text, by which objects that are alike otherwise are ordered."""
    return json.dumps(said(o.stored, fields), ensure_ascii=False)[1:-1]


def _is_said(predicate: Predicate, terms: frozenset[str]) -> bool:
    """Whether an object with these terms has what the predicate says of the text."""
    if any(term in terms for term in predicate.none):
        return False
    if predicate.any and not any(all(term in terms for term in group) for group in predicate.any):
        return False
    return all(term in terms for term in predicate.keywords)


def _containment(region: Region | None, space: Space) -> Callable[[float, float], bool] | None:
    """Whether a point lies in the region, borders included; None if every point does."""
    if isinstance(region, Box):
        west, south, east, north = region.west, region.south, region.east, region.north
        if west <= east:
            return lambda x, y: south <= y <= north and west <= x <= east
        return lambda x, y: south <= y <= north and (x >= west or x <= east)
    if isinstance(region, Circle):
        circle = region
        return lambda x, y: _distance(space, circle.x, circle.y, x, y) <= circle.radius
    if isinstance(region, Polygon):
        return polygon_containment(region.to_geojson(), space.geographic)
    assert region is None, region
    return None


def _distance(space: Space, x1: float, y1: float, x2: float, y2: float) -> float:
    """Metres by the haversine formula, or the Euclidean distance in a planar space."""
    if not space.geographic:
        dx = x2 - x1
        dy = y2 - y1
        return math.sqrt(dx * dx + dy * dy)
    # one place, one distance: 180 and -180 are one meridian, and no longitude matters at a pole
    x1, x2 = (180.0 if x == -180.0 else x for x in (x1, x2))
    if 90.0 in (abs(y1), abs(y2)):
        x1 = x2
    latitude1 = y1 * _RADIANS
    latitude2 = y2 * _RADIANS
    half_up = math.sin((latitude2 - latitude1) * 0.5)
    half_along = math.sin((x2 - x1) * _RADIANS * 0.5)
    a = half_up * half_up + math.cos(latitude1) * math.cos(latitude2) * (half_along * half_along)
    return 2.0 * _EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, a)))


def in_reach(stream: AllObjects, query: Query) -> list[SpatialObject]:
    """The objects of (t-τ, t] that satisfy the predicate, unless they are too old to be retained."""
    back = min(query.lifetime.duration, stream.retention)
    return stream.matching(query.t - back + 1, query.t, query.predicate)


def reach(stream: AllObjects, query: Query) -> Row:
    """What a snapshot row says of how far back it reaches: nothing, if that is as far as was asked."""
    if query.lifetime.duration <= stream.retention:
        return {}
    return {"complete_after": query.t - int(stream.retention)}


def row(query: Query, t: int, phase: int, found: Row, cause: SpatialObject | None = None) -> tuple[Key, Row]:
    """A result row behind its place in the canonical order; ``cause`` is the object that brought it about."""
    name, x, y = ("", 0.0, 0.0) if cause is None else (cause.id, cause.x, cause.y)
    return (t, phase, name, x, y, query.id), {"query": query.id, "type": query.type, "t": t, **found}
