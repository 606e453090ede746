"""The rows of each kind of query, directly from its definition: a function for each, in one table."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spatialstream.model.objects import SpatialObject
from spatialstream.model.plugins import plugged
from spatialstream.model.queries import Best, Nearest
from spatialstream.oracle.objects import (
    EXPIRY,
    OBJECT,
    SNAPSHOT,
    STEP,
    Accepted,
    AllObjects,
    Key,
    Ranked,
    Row,
    in_reach,
    reach,
    row,
    shown,
)
from spatialstream.oracle.ranking import (
    Corpus,
    decay,
    decayed,
    forward,
    forward_order,
    over_interval,
    reached,
    space_score,
    text_score,
)

__all__ = ["ORACLES", "Oracle"]


def _srq(stream: AllObjects, life: Accepted, _last: int) -> Iterator[tuple[Key, Row]]:
    query = life.query
    found = sorted(in_reach(stream, query), key=lambda o: (o.t, o.id, o.x, o.y, shown(o, query.fields)))
    yield row(
        query, query.t, SNAPSHOT, reach(stream, query) | {"objects": [stream.placed(o, query.fields) for o in found]}
    )


def _skq(stream: AllObjects, life: Accepted, _last: int) -> Iterator[tuple[Key, Row]]:
    query, nearest = life.query, life.query.selection
    assert isinstance(nearest, Nearest)
    ranking = sorted(stream.rank(o, nearest, query.fields) for o in in_reach(stream, query))
    found = [stream.ranked(entry) for entry in ranking[: nearest.k]]
    yield row(query, query.t, SNAPSHOT, reach(stream, query) | {"objects": found})


def _stq(stream: AllObjects, life: Accepted, _last: int) -> Iterator[tuple[Key, Row]]:
    query = life.query
    found = _top_terms(in_reach(stream, query), query.k)
    yield row(query, query.t, SNAPSHOT, reach(stream, query) | {"terms": found})


def _sbq(stream: AllObjects, life: Accepted, _last: int) -> Iterator[tuple[Key, Row]]:
    """The k with the least scores within the disk, by the words of the last multiple of Δ."""
    query, best = life.query, life.query.selection
    assert isinstance(best, Best)
    by, at = best.ranking, query.t // stream.interval * stream.interval
    corpus = Corpus.of(o.terms for o in stream.counted(at))
    last = query.t if by.between is None else by.between[1]
    candidates = [
        (stream.distance(best.x, best.y, o), o)
        for o in in_reach(stream, query)
        if o.t <= last and not frozenset(o.terms).isdisjoint(by.words)
    ]
    radius = reached((d for d, _ in candidates), best.k, by.radius, by.expansions)

    def score(d: float, o: SpatialObject) -> float:
        s, t = space_score(d, radius), text_score(o.said, by.asked, corpus, by.static)
        if by.half_life is not None:
            return decayed(by.shares[0], s, t, decay(query.t - o.t, by.half_life))
        assert by.between is not None
        first, last = by.between
        return over_interval(by.shares, s, 1.0 - (o.t - first) / (last - first), t)

    ranking = sorted(
        (score(d, o), -o.t, o.id, o.x, o.y, shown(o, query.fields), d) for d, o in candidates if d <= radius
    )
    found = [
        stream.ranked((d, minus_t, name, x, y, said)) | {"score": rank}
        for rank, minus_t, name, x, y, said, d in ranking[: best.k]
    ]
    yield row(query, query.t, SNAPSHOT, reach(stream, query) | {"radius": radius, "corpus": at, "objects": found})


def _crq(stream: AllObjects, life: Accepted, _last: int) -> Iterator[tuple[Key, Row]]:
    query = life.query
    for o in stream.matching(query.t, life.end - 1, query.predicate):
        yield row(query, o.t, OBJECT, {"object": stream.placed(o, query.fields)}, o)


def _ckq(stream: AllObjects, life: Accepted, last: int) -> Iterator[tuple[Key, Row]]:
    """The nearest k at each of their changes.

    An object is a member from its arrival on, until its window has passed. Members that leave at one instant leave
    together, before those that arrive at it, which arrive one by one.
    """
    query, nearest, window = life.query, life.query.selection, life.query.lifetime.window
    assert isinstance(nearest, Nearest)
    if window == 0:
        return  # (now, now] holds no object
    members: list[Ranked] = []
    leaving: deque[tuple[int, Ranked]] = deque()  # (when, member), in order of arrival, which is that of leaving
    answer: list[Ranked] = []

    def expire(until: int) -> Iterator[tuple[Key, Row]]:
        nonlocal answer
        while leaving and leaving[0][0] <= until:
            instant = leaving[0][0]
            while leaving and leaving[0][0] == instant:
                del members[bisect_left(members, leaving.popleft()[1])]
            if members[: nearest.k] != answer:
                answer = members[: nearest.k]
                yield row(query, instant, EXPIRY, {"objects": [stream.ranked(entry, query.fields) for entry in answer]})

    for o in stream.matching(query.t, life.end - 1, query.predicate):
        yield from expire(o.t)
        entry = stream.rank(o, nearest)
        insort(members, entry)
        if window is not None:
            leaving.append((o.t + window, entry))
        if members[: nearest.k] != answer:
            answer = members[: nearest.k]
            yield row(query, o.t, OBJECT, {"objects": [stream.ranked(entry, query.fields) for entry in answer]}, o)
    yield from expire(min(last, life.end - 1))


def _cbq(stream: AllObjects, life: Accepted, last: int) -> Iterator[tuple[Key, Row]]:
    """The best k at each of their changes: at each instant at which an object comes or leaves, they are sorted anew."""
    query, best, window = life.query, life.query.selection, life.query.lifetime.window
    assert isinstance(best, Best)
    by, half_life = best.ranking, best.ranking.half_life
    assert half_life is not None
    corpus = Corpus.of(o.terms for o in stream.counted(query.t // stream.interval * stream.interval))
    matches = list[tuple[SpatialObject, Row, tuple[Any, ...]]]()
    for o in stream.matching(query.t, life.end - 1, query.predicate):
        if frozenset(o.terms).isdisjoint(by.words):
            continue
        d = stream.distance(best.x, best.y, o)
        score = forward(by.shares[0], space_score(d, by.radius), text_score(o.said, by.asked, corpus, static=True))
        exponent, mantissa = forward_order(score, o.t - query.t, half_life)
        stored = shown(o, None)
        told = stream.ranked((d, -o.t, o.id, o.x, o.y, stored), query.fields) | {"score": score}
        matches.append((o, told, (-exponent, -mantissa, -o.t, o.id, o.x, o.y, stored)))
    matches.sort(key=lambda each: (each[0].t, each[0].id, each[0].x, each[0].y, each[2][-1], each[2]))
    events = [(o.t, OBJECT, i) for i, (o, _, _) in enumerate(matches)]
    if window is not None:
        events += [(o.t + window, EXPIRY, -1) for o, _, _ in matches]
    answer: list[Row] = []
    for now, phase, i in sorted({each for each in events if each[0] <= min(last, life.end - 1)}):
        come = [
            (rank, shown)
            for j, (o, shown, rank) in enumerate(matches)
            if (o.t < now or (o.t == now and phase == OBJECT and j <= i)) and (window is None or o.t > now - window)
        ]
        new = [shown for _, shown in sorted(come, key=lambda each: each[0])[: best.k]]
        if new != answer:
            answer = new
            yield row(query, now, phase, {"objects": new}, matches[i][0] if phase == OBJECT else None)


def _ctq(stream: AllObjects, life: Accepted, last: int) -> Iterator[tuple[Key, Row]]:
    """The top-k terms at t+δ, t+2δ, ... ≤ t+τ, over the last T, of objects that came after the query."""
    query, window, step = life.query, life.query.lifetime.window, life.query.lifetime.step
    assert window is not None
    assert step is not None
    final = min(last, life.until) if life.cancelled is None else min(last, life.until, life.cancelled - 1)
    found = stream.matching(query.t, final, query.predicate)
    times = [o.t for o in found]
    for now in range(query.t + step, final + 1, step):
        recent = found[bisect_right(times, now - window) : bisect_right(times, now)]
        yield row(query, now, STEP, {"terms": _top_terms(recent, query.k)})


Oracle = Callable[[AllObjects, Accepted, int], Iterable[tuple[Key, Row]]]
"""The rows of a query: of all objects, the query, and the time up to which the stream goes."""

ORACLES: dict[str, Oracle] = {
    "SRQ": _srq,
    "SKQ": _skq,
    "STQ": _stq,
    "SBQ": _sbq,
    "CRQ": _crq,
    "CKQ": _ckq,
    "CTQ": _ctq,
    "CBQ": _cbq,
} | {kind: oracle for module in plugged("oracle") for kind, oracle in module.ORACLES.items()}
"""The table of kinds."""


def _top_terms(objects: Iterable[SpatialObject], k: int) -> list[Row]:
    """The k terms found in most objects, ties by term; an object counts a term once."""
    counts = Counter(term for o in objects for term in frozenset(o.terms))
    ranking = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [{"term": term, "count": count} for term, count in ranking[:k]]
