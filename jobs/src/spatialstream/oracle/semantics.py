"""The right answers: each of the six query types by brute force, directly from its definition.

Meaning follows the paper (SSTD, section 3.1) and, where the paper is silent, the documentation of query semantics.
Rows come in canonical order: by time; at one instant the expiries of CKQ windows, then the objects, then snapshot
queries, then CTQ steps. Cost: O(queries x objects), less what a query's time range excludes.

Distances are evaluated in the order of the expressions in :mod:`spatialstream.model.geometry`, so that they agree with
the engine's to the bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Cancellation, Nearest, Predicate, Query
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.space import Space

__all__ = ["Row", "answers"]

Row = dict[str, Any]
"""One result row, as JSON values."""

_EXPIRY, _OBJECT, _SNAPSHOT, _STEP = range(4)
"""The phases of one instant, in order."""

_Key = tuple[int, int, str, float, float, str]
"""Canonical order of rows: (t, phase, object id, object x, object y, query id)."""

_Ranked = tuple[float, int, str, float, float]
"""An object among the nearest: (distance, -t, id, x, y), which is the order of nearness and its ties."""

_EARTH_RADIUS_M = 6_371_008.8
_RADIANS = math.pi / 180.0


def answers(
    objects: Iterable[SpatialObject],
    queries: Iterable[Query | Cancellation],
    space: Space,
    retention: int | None = None,
) -> tuple[list[Row], list[tuple[int, str]]]:
    """Compute every result row of a stream, and the queries that are rejected.

    Args:
        objects: the objects, in any order.
        queries: queries and cancellations in input order; they take effect in order of ``t``, ties in input order.
        space: the stream's space.
        retention: how far back snapshot queries can look, in ms; None: without limit.

    Returns:
        The rows in canonical order, and (position in ``queries``, reason) of each query whose id is in use and of each
        cancellation that finds no active continuous query, by position.
    """
    queries = list(queries)
    stream = _Stream(objects, space, retention)
    last = max([*stream.times[-1:], *(query.t for query in queries)], default=0)
    lives, refused = _lifetimes(queries)
    rows = [row for life in lives for row in _ANSWER[life.query.type](stream, life, last)]
    rows.sort(key=lambda keyed: keyed[0])
    return [row for _, row in rows], sorted(refused)


# ------------------------------------------------------------------------------------------------------------ lifetimes


@dataclass(slots=True)
class _Life:
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
        if self.query.type in (QueryType.CRQ, QueryType.CKQ):
            return now < self.until
        return now <= self.until


def _lifetimes(queries: Sequence[Query | Cancellation]) -> tuple[list[_Life], list[tuple[int, str]]]:
    """The accepted queries with their cancellations, and the rejected ones with their reasons."""
    lives: list[_Life] = []
    refused: list[tuple[int, str]] = []
    latest: dict[str, _Life] = {}
    for position, query in sorted(enumerate(queries), key=lambda pair: pair[1].t):
        holder = latest.get(query.id)
        if holder is not None and not holder.uses_its_id(query.t):
            holder = None
        if isinstance(query, Cancellation):
            if holder is None or not holder.query.lifetime.continuous:
                refused.append((position, f"id: no continuous query {query.id!r} is active"))
            else:
                holder.cancelled = query.t
        elif holder is not None and _is_repeated(holder.query, query):
            continue
        elif holder is not None:
            refused.append((position, f"id: {query.id!r} is in use by a query that lives until {holder.until}"))
        else:
            life = latest[query.id] = _Life(query)
            lives.append(life)
    return lives, refused


def _is_repeated(first: Query, again: Query) -> bool:
    """Whether two queries of one id are the same one, however their keywords are spelled."""
    plain = [replace(each, predicate=replace(each.predicate, keywords=(), none=())) for each in (first, again)]
    texts = [({*each.predicate.keywords}, {*each.predicate.none}) for each in (first, again)]
    return plain[0] == plain[1] and texts[0] == texts[1]


# -------------------------------------------------------------------------------------------------------------- objects


class _Stream:
    """All objects by (t, id, x, y), to be looked through one by one."""

    def __init__(self, objects: Iterable[SpatialObject], space: Space, retention: int | None) -> None:
        self.space = space
        self.retention = math.inf if retention is None else retention
        self.objects = sorted(objects, key=lambda o: (o.t, o.id, o.x, o.y))
        self.times = [o.t for o in self.objects]
        self._terms = [frozenset(o.terms) for o in self.objects]

    def matching(self, first: float, last: int, predicate: Predicate) -> list[SpatialObject]:
        """The objects with ``first <= o.t <= last`` that satisfy the predicate, by (t, id, x, y)."""
        here = slice(bisect_left(self.times, first), bisect_right(self.times, last))
        found = self.objects[here]
        if predicate.keywords or predicate.any or predicate.none:
            found = [o for o, terms in zip(found, self._terms[here], strict=True) if _is_said(predicate, terms)]
        inside = _containment(predicate.region, self.space)
        return found if inside is None else [o for o in found if inside(o.x, o.y)]

    def placed(self, o: SpatialObject) -> Row:
        """An object in a result."""
        x, y = self.space.axes
        return {"id": o.id, "t": o.t, x: o.x, y: o.y}

    def ranked(self, entry: _Ranked) -> Row:
        """One of the nearest in a result."""
        distance, minus_t, name, x, y = entry
        return self.placed(SpatialObject(name, -minus_t, x, y, ())) | {self.space.distance_field: distance}

    def rank(self, o: SpatialObject, nearest: Nearest) -> _Ranked:
        """Where an object stands among the nearest."""
        return _distance(self.space, nearest.x, nearest.y, o.x, o.y), -o.t, o.id, o.x, o.y


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


# ------------------------------------------------------------------------------------------------------ the six answers


def _snapshot(stream: _Stream, query: Query) -> list[SpatialObject]:
    """The objects of (t-τ, t] that satisfy the predicate, unless they are too old to be retained."""
    back = min(query.lifetime.duration, stream.retention)
    return stream.matching(query.t - back + 1, query.t, query.predicate)


def _reach(stream: _Stream, query: Query) -> Row:
    """What a snapshot row says of how far back it reaches: nothing, if that is as far as was asked."""
    if query.lifetime.duration <= stream.retention:
        return {}
    return {"complete_after": query.t - int(stream.retention)}


def _srq(stream: _Stream, life: _Life, _last: int) -> Iterator[tuple[_Key, Row]]:
    query = life.query
    found = [stream.placed(o) for o in _snapshot(stream, query)]
    yield _row(query, query.t, _SNAPSHOT, _reach(stream, query) | {"objects": found})


def _skq(stream: _Stream, life: _Life, _last: int) -> Iterator[tuple[_Key, Row]]:
    query, nearest = life.query, life.query.selection
    assert isinstance(nearest, Nearest)
    ranking = sorted(stream.rank(o, nearest) for o in _snapshot(stream, query))
    found = [stream.ranked(entry) for entry in ranking[: nearest.k]]
    yield _row(query, query.t, _SNAPSHOT, _reach(stream, query) | {"objects": found})


def _stq(stream: _Stream, life: _Life, _last: int) -> Iterator[tuple[_Key, Row]]:
    query = life.query
    found = _top_terms(_snapshot(stream, query), query.k)
    yield _row(query, query.t, _SNAPSHOT, _reach(stream, query) | {"terms": found})


def _crq(stream: _Stream, life: _Life, _last: int) -> Iterator[tuple[_Key, Row]]:
    query = life.query
    for o in stream.matching(query.t, life.end - 1, query.predicate):
        yield _row(query, o.t, _OBJECT, {"object": stream.placed(o)}, o)


def _ckq(stream: _Stream, life: _Life, last: int) -> Iterator[tuple[_Key, Row]]:
    """The nearest k at each of their changes.

    An object is a member from its arrival on, until its window has passed. Members that leave at one instant leave
    together, before those that arrive at it, which arrive one by one.
    """
    query, nearest, window = life.query, life.query.selection, life.query.lifetime.window
    assert isinstance(nearest, Nearest)
    if window == 0:
        return  # (now, now] holds no object
    members: list[_Ranked] = []
    leaving: deque[tuple[int, _Ranked]] = deque()  # (when, member), in order of arrival, which is that of leaving
    answer: list[_Ranked] = []

    def expire(until: int) -> Iterator[tuple[_Key, Row]]:
        nonlocal answer
        while leaving and leaving[0][0] <= until:
            instant = leaving[0][0]
            while leaving and leaving[0][0] == instant:
                del members[bisect_left(members, leaving.popleft()[1])]
            if members[: nearest.k] != answer:
                answer = members[: nearest.k]
                yield _row(query, instant, _EXPIRY, {"objects": [stream.ranked(entry) for entry in answer]})

    for o in stream.matching(query.t, life.end - 1, query.predicate):
        yield from expire(o.t)
        entry = stream.rank(o, nearest)
        insort(members, entry)
        if window is not None:
            leaving.append((o.t + window, entry))
        if members[: nearest.k] != answer:
            answer = members[: nearest.k]
            yield _row(query, o.t, _OBJECT, {"objects": [stream.ranked(entry) for entry in answer]}, o)
    yield from expire(min(last, life.end - 1))


def _ctq(stream: _Stream, life: _Life, last: int) -> Iterator[tuple[_Key, Row]]:
    """The top-k terms at t+δ, t+2δ, ... ≤ t+τ, over the last T, of objects that came after the query."""
    query, window, step = life.query, life.query.lifetime.window, life.query.lifetime.step
    assert window is not None
    assert step is not None
    final = min(last, life.until) if life.cancelled is None else min(last, life.until, life.cancelled - 1)
    found = stream.matching(query.t, final, query.predicate)
    times = [o.t for o in found]
    for now in range(query.t + step, final + 1, step):
        recent = found[bisect_right(times, now - window) : bisect_right(times, now)]
        yield _row(query, now, _STEP, {"terms": _top_terms(recent, query.k)})


_ANSWER = {
    QueryType.SRQ: _srq,
    QueryType.SKQ: _skq,
    QueryType.STQ: _stq,
    QueryType.CRQ: _crq,
    QueryType.CKQ: _ckq,
    QueryType.CTQ: _ctq,
}


def _top_terms(objects: Iterable[SpatialObject], k: int) -> list[Row]:
    """The k terms found in most objects, ties by term; an object counts a term once."""
    counts = Counter(term for o in objects for term in frozenset(o.terms))
    ranking = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [{"term": term, "count": count} for term, count in ranking[:k]]


def _row(query: Query, t: int, phase: int, found: Row, cause: SpatialObject | None = None) -> tuple[_Key, Row]:
    """A result row behind its place in the canonical order; ``cause`` is the object that brought it about."""
    name, x, y = ("", 0.0, 0.0) if cause is None else (cause.id, cause.x, cause.y)
    return (t, phase, name, x, y, query.id), {"query": query.id, "type": query.type.value, "t": t, **found}
