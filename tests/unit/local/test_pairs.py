"""Every index of a slot beside brute force, on a million pairs of an object and a query.

Each test is run in the plane and on the globe, and has 2,000 objects and 250 queries a space, which is half a million
pairs; five times as many with ``make test-all``. Brute force is here: a table of which object has which word, times,
and for what is left of the objects the geometry of the snapshot index's twin, in plain Python.

=============================== ============================================== =====================
index (``local.indexes``)       compared                                       pairs
=============================== ============================================== =====================
``objects``                     SRQ, SKQ and STQ: three answers a query        1,000,000 each
``range``                       CRQ: every match                               1,000,000
``nearest``                     CKQ: every change of every answer              1,000,000
``terms``                       CTQ: every step of every query                 1,000,000
=============================== ============================================== =====================

Half of the places lie on a grid, with which borders and corners of regions have places in common and distances are
equal. Queries have keywords, groups, and words that must be absent; continuous ones come, end and are cancelled on the
way, and indexes are written down and read again. Smaller streams, cut in every way, are in ``test_contract``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.expressions import Expression
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Nearest, Predicate, Query, TopTerms
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples
from tests.unit.local import test_contract
from tests.unit.local.continuous import Epoch, Stream, order
from tests.unit.local.grid.test_expressions import WEIGHTS, WORDS, drawn_expression
from tests.unit.local.nearest import test_ckq
from tests.unit.local.snapshot.twin import distance, inside
from tests.unit.local.terms import test_ctq
from tests.unit.memory_files import MemoryFiles

OBJECTS, QUERIES = 2_000, 250
SPAN, EPOCHS = 400, 20
"""Times of objects are from 0 to SPAN, in ms; as much time is in each epoch."""
NEVER = 10**9

PLANE = Space.planar(0.0, 0.0, 8.0, 8.0)
every_world = pytest.mark.parametrize(
    ("space", "seed"),
    [(space, seed) for space in (PLANE, WGS84) for seed in range(examples(1, 5))],
    ids=lambda value: str(value),
)


@dataclass
class Crowd:
    """Objects in the order in which they come, as columns: n of them."""

    space: Space
    objects: list[SpatialObject]

    def __post_init__(self) -> None:
        self.t = np.array([o.t for o in self.objects])
        self.has = np.array([[word in o.terms for word in WORDS] for o in self.objects])

    @classmethod
    def drawn(cls, space: Space, rng: np.random.Generator) -> Crowd:
        grid, anywhere = places(space, rng, OBJECTS, 9), places(space, rng, OBJECTS)
        at = np.where(rng.random((OBJECTS, 1)) < 0.5, grid, anywhere).tolist()
        terms = [rng.choice(WORDS, rng.integers(0, 6), replace=False, p=WEIGHTS).tolist() for _ in at]
        times = rng.integers(0, SPAN, OBJECTS).tolist()
        found = [SpatialObject(f"o{i}", times[i], *at[i], tuple(terms[i])) for i in range(OBJECTS)]
        return cls(space, sorted(found, key=order))

    def matching(self, predicate: Predicate, first: int, end: int) -> list[int]:
        """The objects from one time to before another that a query is about."""
        column, text = WORDS.index, predicate.expression
        found = (first <= self.t) & (self.t < end) & ~self.has[:, [column(word) for word in text.none]].any(axis=1)
        found &= np.any([self.has[:, [column(word) for word in group]].all(axis=1) for group in text.groups], axis=0)
        near = partial(inside, self.space, predicate.region)
        return [i for i in np.flatnonzero(found).tolist() if near(self.objects[i].x, self.objects[i].y)]

    def key(self, at: Nearest, i: int) -> tuple[float, int, str, float, float]:
        """By which the neighbours of a place are in order."""
        o = self.objects[i]
        return distance(self.space, at.x, at.y, o.x, o.y), -o.t, o.id, o.x, o.y


def places(space: Space, rng: np.random.Generator, n: int, lines: int | None = None) -> np.ndarray:
    """Places anywhere, or where so many lines of each direction cross; float64[n, 2]."""
    share = rng.random((n, 2)) if lines is None else rng.integers(0, lines, (n, 2)) / (lines - 1)
    west, south, east, north = space.bounds
    return np.array([west, south]) + share * np.array([east - west, north - south])


def drawn_regions(space: Space, rng: np.random.Generator) -> list[Region | None]:
    """Boxes with corners on the grid and off it, some over the antimeridian; circles, and none."""
    unit = 111_000.0 * 45.0 if space.geographic else 1.0
    found: list[Region | None] = []
    for i in range(QUERIES):
        (a, b), (c, d) = places(space, rng, 2, 9 if i % 2 else None).tolist()
        west, east = (a, c) if space.geographic and i % 3 == 0 else sorted((a, c))
        radius = float(rng.choice([0.0, 1.0, 2.0, rng.random()])) * unit
        shapes = [Box(west, min(b, d), east, max(b, d)), Box(west, min(b, d), east, max(b, d)), Circle(a, b, radius)]
        found.append(None if i % 10 == 0 else shapes[i % 3])
    return found


def drawn_texts(rng: np.random.Generator) -> list[Expression]:
    return [drawn_expression(rng) if i % 4 else Expression() for i in range(QUERIES)]


# ----------------------------------------------------------------------------------------------------------- snapshots


@every_world
def test_snapshots(space: Space, seed: int) -> None:
    rng, files = np.random.default_rng(seed), MemoryFiles()
    crowd, store = Crowd.drawn(space, rng), SegmentStore(space, capacity=512)
    for at in range(0, OBJECTS, 100):
        store.append(ObjectBatch.of(crowd.objects[at : at + 100]))
        if at == OBJECTS // 2:
            store = SegmentStore.restore(space, store.checkpoint(files.write), files.read)
    assert store.segments > 1
    ks = rng.choice([1, 3, 10, 5_000], QUERIES).tolist()
    for region, text, k, place in zip(
        drawn_regions(space, rng), drawn_texts(rng), ks, places(space, rng, QUERIES, 17).tolist(), strict=True
    ):
        after, last = sorted(rng.integers(-1, SPAN, 2).tolist())
        within = Predicate(region, text.keywords, text.any, text.none)
        anywhere, near = Predicate(None, text.keywords, text.any, text.none), Nearest(*place, k)
        here = crowd.matching(within, after + 1, last + 1)

        rows = store.range_query(region, text.literals, after, last)
        assert test_contract.columns(rows) == sorted(order(crowd.objects[i]) for i in here)

        terms, counts = store.term_counts(region, text.literals, after, last)
        sums = zip(WORDS, crowd.has[here].sum(axis=0).tolist(), strict=True)
        assert dict(zip(terms.to_pylist(), counts.tolist(), strict=True)) == {term: n for term, n in sums if n}

        found = store.nearest(*place, k, text.literals, after, last)
        assert found.distance is not None
        expected = sorted(crowd.key(near, i) for i in crowd.matching(anywhere, after + 1, last + 1))[:k]
        neighbours = zip(
            found.distance.tolist(), (-found.t).tolist(), found.ids.to_pylist(), found.x, found.y, strict=True
        )
        assert list(neighbours) == expected


# --------------------------------------------------------------------------------------------------------- continuous


def drawn_stream(crowd: Crowd, queries: list[Query], rng: np.random.Generator) -> Stream:
    """All objects in epochs; queries begin with the first half of these, and a third of them is cancelled later."""
    each = SPAN // EPOCHS
    end = [NEVER if rng.integers(0, 3) else int(rng.integers(query.t // each, EPOCHS)) * each for query in queries]
    epochs = []
    for number in range(EPOCHS):
        first, last = number * each, (number + 1) * each
        objects = [o for o in crowd.objects if first <= o.t < last]
        came = [i for i, query in enumerate(queries) if query.t == first]
        cancelled = [(i, t) for i, t in enumerate(end) if t == first]
        slots = rng.integers(0, 2, len(objects)).tolist()
        epochs.append(Epoch(came, cancelled, objects, slots, last, last - 1, restart=number % 6 == 3))
    return Stream(crowd.space, queries, end, crowd.objects, 2, epochs)


def drawn_queries(
    space: Space, rng: np.random.Generator, selections: list[Any], lifetimes: list[Lifetime], regional: bool = True
) -> list[Query]:
    regions = drawn_regions(space, rng) if regional else [None] * QUERIES
    begin = (rng.integers(0, EPOCHS // 2, QUERIES) * (SPAN // EPOCHS)).tolist()
    return [
        Query(f"q{i}", begin[i], Predicate(region, text.keywords, text.any, text.none), selections[i], lifetimes[i])
        for i, (region, text) in enumerate(zip(regions, drawn_texts(rng), strict=True))
    ]


class RangeRun(test_contract.RangeRun):
    """Slots with tiers of the usual sizes."""

    options: ClassVar = {}
    kept = options


@every_world
def test_continuous_range_queries(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    crowd = Crowd.drawn(space, rng)
    lifetimes = [Lifetime(int(each), True) for each in rng.choice([50, 200, 10**6], QUERIES)]
    stream = drawn_stream(crowd, drawn_queries(space, rng, [Everything()] * QUERIES, lifetimes), rng)

    expected = [
        (order(crowd.objects[i]), query.id)
        for query, end in zip(stream.queries, stream.end, strict=True)
        for i in crowd.matching(query.predicate, query.t, min(query.t + query.lifetime.duration, end))
    ]
    assert RangeRun(stream, MemoryFiles()).whole() == sorted(expected)
    assert len(expected) > 5_000


@every_world
def test_continuous_nearest_queries(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    crowd, ks = Crowd.drawn(space, rng), rng.choice([1, 3, 10], QUERIES).tolist()
    at = places(space, rng, QUERIES, 17).tolist()
    nearest = [Nearest(*place, k) for place, k in zip(at, ks, strict=True)]
    windows = [[None, 20, 90][each] for each in rng.integers(0, 3, QUERIES)]
    lifetimes = [Lifetime(int(rng.choice([50, 200, 10**6])), True, window) for window in windows]
    stream = drawn_stream(crowd, drawn_queries(space, rng, nearest, lifetimes, regional=False), rng)

    rows = [row for query, end in zip(stream.queries, stream.end, strict=True) for row in changes(crowd, query, end)]
    expected = [row for _, row in sorted(rows, key=lambda row: row[0])]
    assert test_ckq.NearestRun(stream, MemoryFiles()).whole() == expected
    assert len(expected) > 2_000


def changes(crowd: Crowd, query: Query, end: int) -> list[tuple[Any, test_ckq.Row]]:
    """The changes of the answer of a CKQ, with what orders them: objects leave its window before others come."""
    assert isinstance(query.selection, Nearest)
    end = min(query.t + query.lifetime.duration, end)
    found = {i: crowd.key(query.selection, i) for i in crowd.matching(query.predicate, query.t, end)}
    events: dict[Any, list[int]] = {(crowd.objects[i].t, 1, order(crowd.objects[i])): [i] for i in found}
    if query.lifetime.window is not None:
        leaving = defaultdict(list)
        for i in found:
            leaving[crowd.objects[i].t + query.lifetime.window, 0, ()].append(i)
        events |= {event: gone for event, gone in leaving.items() if event[0] < min(end, SPAN)}
    rows: list[tuple[Any, test_ckq.Row]] = []
    there: list[Any] = []
    answer: list[Any] = []
    for event in sorted(events):
        for i in events[event]:
            if event[1]:
                insort(there, found[i])
            else:
                del there[bisect_left(there, found[i])]
        if there[: query.k] != answer:
            answer = there[: query.k]
            row = event[0], query.id, [(name, -t, x, y, d) for d, t, name, x, y in answer]
            rows.append(((*event, query.id), row))
    return rows


@every_world
def test_continuous_terms_queries(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    crowd = Crowd.drawn(space, rng)
    top = [TopTerms(int(k)) for k in rng.choice([1, 3, 100], QUERIES)]
    steps = [[(20, 20), (90, 30), (50, 70), (200, 50)][each] for each in rng.integers(0, 4, QUERIES)]
    lifetimes = [Lifetime(int(rng.choice([100, 10**6])), True, window, step) for window, step in steps]
    stream = drawn_stream(crowd, drawn_queries(space, rng, top, lifetimes), rng)

    rows = [row for query, end in zip(stream.queries, stream.end, strict=True) for row in steps_of(crowd, query, end)]
    assert test_ctq.TermsRun(stream, MemoryFiles()).whole() == sorted(rows, key=lambda row: row[:2])
    assert len(rows) > 500


def steps_of(crowd: Crowd, query: Query, end: int) -> list[test_ctq.Row]:
    """The steps of a CTQ."""
    window, step = query.lifetime.window, query.lifetime.step
    assert window is not None
    assert step is not None
    last = min(query.t + query.lifetime.duration, SPAN - 1, end - 1)
    found = np.array(crowd.matching(query.predicate, query.t, NEVER), np.int64)
    rows = []
    for now in range(query.t + step, last + 1, step):
        counted = found[(crowd.t[found] > now - window) & (crowd.t[found] <= now)]
        sums = zip(WORDS, crowd.has[counted].sum(axis=0).tolist(), strict=True)
        best = sorted(((term, n) for term, n in sums if n), key=lambda each: (-each[1], each[0]))
        rows.append((now, query.id, best[: query.k]))
    return rows
