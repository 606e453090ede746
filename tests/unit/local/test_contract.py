"""Contract tests of local indexes: exact answers, deterministic files, and correct sizes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.base import ContinuousIndex, MovableIndex
from spatialstream.local.indexes import INDEXES
from spatialstream.local.range.crq import ContinuousRangeIndex, Tiering
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Best, Everything, Lifetime, Nearest, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.space import WGS84, Space
from tests.unit.local import test_moves
from tests.unit.local.best import test_cbq
from tests.unit.local.continuous import PLACES, PLANE, WORDS, Digests, Epoch, Run, Stream, streams
from tests.unit.local.nearest import test_ckq
from tests.unit.local.snapshot.twin import Twin
from tests.unit.local.terms import test_ctq
from tests.unit.memory_files import MemoryFiles

RETENTION = 5


class SnapshotRun(Run):
    """Slots that store objects; after each epoch, every query of the stream is run in each way."""

    index = SegmentStore
    options: ClassVar = {"interval": 3, "capacity": 8}

    def __init__(self, stream: Stream, files: MemoryFiles) -> None:
        super().__init__(stream, files)
        self.dropped = -RETENTION

    def continuous(self) -> list[Any]:
        return []

    def rows(self, epoch: Epoch, batches: list[ObjectBatch]) -> list[Any]:
        for store, batch in zip(self.slots, batches, strict=True):
            store.append(batch)
        return [self.asked(query, self.dropped - 1, epoch.horizon) for query in self.stream.queries]

    def asked(self, query: Query, after: int, last: int) -> tuple[Any, ...]:
        (x, y), predicate = PLACES[self.stream.space][query.k % 8], query.predicate
        where = (predicate.region, predicate.expression.literals, after, last)
        near = (x, y, query.k, predicate.expression.literals, after, last)
        found = [store.range_query(*where) for store in self.slots]
        nearest = [store.nearest(*near) for store in self.slots]
        counts = Counter[str]()
        for store in self.slots:
            terms, numbers = store.term_counts(*where)
            counts.update(dict(zip(terms.to_pylist(), numbers.tolist(), strict=True)))
        ranked = sorted(
            (d, -t, *row)
            for rows in nearest
            for d, (t, *row) in zip(rows.distance.tolist(), columns(rows), strict=True)
        )
        return (
            sorted(row for rows in found for row in columns(rows)),
            [(d, -t, *row) for d, t, *row in ranked[: query.k]],
            dict(counts),
        )

    def expire(self, index: Any, now: int) -> None:
        self.dropped = max(self.dropped, now - RETENTION)
        index.drop_before(self.dropped)


def columns(rows: Any) -> list[tuple[Any, ...]]:
    return list(zip(rows.t.tolist(), rows.ids.to_pylist(), rows.x.tolist(), rows.y.tolist(), strict=True))


def snapshots(stream: Stream) -> list[Any]:
    """The reference answers after each epoch."""
    twin, rows, dropped = Twin(stream.space), [], -RETENTION
    for epoch in stream.epochs:
        twin.append(epoch.objects)
        for query in stream.queries:
            (x, y), predicate = PLACES[stream.space][query.k % 8], query.predicate
            where = (predicate.region, predicate.expression.literals, dropped - 1, epoch.horizon)
            near = twin.nearest(x, y, query.k, predicate.expression.literals, dropped - 1, epoch.horizon)
            rows.append((twin.range_query(*where), near, twin.term_counts(*where)))
        dropped = max(dropped, epoch.before - 1 - RETENTION)
        twin.drop_before(dropped)
    return rows


class RangeRun(Run):
    """Slots with tiers of a few queries."""

    index = ContinuousRangeIndex
    options: ClassVar = {"tiering": Tiering(tail=2, ratio=2, full=6, large=4)}
    kept = options

    def rows(self, epoch: Epoch, batches: list[ObjectBatch]) -> list[Any]:
        return [row for index, batch in zip(self.slots, batches, strict=True) for row in test_moves.pairs(index, batch)]

    def whole(self) -> list[Any]:
        return sorted(super().whole())


RUNS = {
    "objects": (SnapshotRun, test_ctq.queries_in, snapshots),
    "range": (RangeRun, test_moves.range_queries, test_moves.expected_pairs),
    "nearest": (test_ckq.NearestRun, test_ckq.queries_in, test_ckq.expected),
    "terms": (test_ctq.TermsRun, test_ctq.queries_in, test_ctq.expected),
    "best": (test_cbq.BestRun, test_cbq.queries_in, test_cbq.expected),
}
"""For each index: its driver, queries for it, and the expected rows."""

every_index = pytest.mark.parametrize("name", INDEXES)
continuous_index = pytest.mark.parametrize(
    "name", [n for n, kind in INDEXES.items() if issubclass(kind, ContinuousIndex)]
)
movable_index = pytest.mark.parametrize("name", [n for n, kind in INDEXES.items() if issubclass(kind, MovableIndex)])


def test_every_index_is_driven() -> None:
    assert {name: run.index for name, (run, _, _) in RUNS.items()} == INDEXES


@every_index
@pytest.mark.parametrize("space", [PLANE, WGS84], ids=str)
@given(data=st.data())
def test_answers_are_exact_however_the_stream_is_cut(name: str, space: Space, data: st.DataObject) -> None:
    run, queries, expected = RUNS[name]
    stream = data.draw(streams(queries(space), space))

    assert run(stream, MemoryFiles()).whole() == expected(stream)


@every_index
@given(data=st.data())
def test_a_restored_index_writes_the_same_files(name: str, data: st.DataObject) -> None:
    run, queries, _ = RUNS[name]
    stream = data.draw(streams(queries(PLANE), PLANE))
    one, other = run(stream, Digests()), run(stream, Digests())
    for epoch in stream.epochs:
        one.epoch(epoch)
        other.epoch(epoch)
        manifests = one.checkpoint()
        assert other.checkpoint() == manifests == json.loads(json.dumps(manifests))
        if epoch.restart:
            other.restart()


PARTS = {
    "range": (Everything(), lambda duration: Lifetime(duration, True)),
    "nearest": (Nearest(1.0, 1.0, 3), lambda duration: Lifetime(duration, True)),
    "terms": (TopTerms(3), lambda duration: Lifetime(duration, True, 6, 2)),
    "best": (
        Best(1.0, 1.0, 3, Ranking(("x", "zebra-crossing"), 3.0, 1, 10, static=True, weights=(5, 9))),
        lambda duration: Lifetime(duration, True),
    ),
}
"""Selection and lifetime of each kind of continuous query."""

NUMBERS = np.arange(20)


def continuous(name: str, duration: int = 100) -> QueryBatch:
    """Twenty queries from time 0 on, some with a keyword."""
    selection, lifetime = PARTS[name]
    return QueryBatch.of(
        [Query(f"q{i}", 0, Predicate(None, tuple(WORDS[: i % 2])), selection, lifetime(duration)) for i in NUMBERS]
    )


def some_objects(seed: int = 1, first: int = 0) -> ObjectBatch:
    rng = np.random.default_rng(seed)
    places = (rng.random((40, 2)) * 4.0).tolist()
    return ObjectBatch.of(
        [SpatialObject(f"o{i:02}", first + i // 8, x, y, tuple(WORDS[: i % 4])) for i, (x, y) in enumerate(places)]
    )


def take(index: Any, objects: ObjectBatch, upto: int) -> list[Any]:
    """Pass objects to an index, and return its results up to some time."""
    if isinstance(index, SegmentStore):
        index.append(objects)
        return columns(index.range_query(None, (), -1, upto))
    given = list(index.match(objects))
    if isinstance(index, ContinuousTermsIndex):
        return test_ctq.rows_of(list(index.steps(upto)))
    if isinstance(index, ContinuousRangeIndex):
        return [(first + o, n) for first, each in given for o, n in zip(each.object, each.number, strict=True)]
    return [(n, p, d) for each in given for n, p, d in zip(each.number, each.position, each.distance, strict=True)]


def filled(name: str, duration: int = 100) -> Any:
    """An index with queries, if it is one for queries, and objects up to time 4."""
    index: Any = INDEXES[name](PLANE)
    if isinstance(index, ContinuousIndex):
        index.register(NUMBERS, continuous(name, duration))
    assert take(index, some_objects(), 4)
    return index


@every_index
def test_what_it_holds_is_told(name: str) -> None:
    empty, index = INDEXES[name](PLANE), filled(name)

    assert len(empty) == 0
    assert len(index) == (40 if name == "objects" else 20)
    assert index.nbytes > empty.nbytes


@every_index
def test_an_epoch_that_changes_nothing_writes_nothing(name: str) -> None:
    index, files = filled(name), MemoryFiles()
    manifest = index.checkpoint(files.write)
    written = len(files.files)
    again = INDEXES[name].restore(PLANE, manifest, files.read)

    assert written > 0
    assert index.checkpoint(files.write) == again.checkpoint(files.write) == manifest
    assert len(files.files) == written
    assert (len(again), again.nbytes > 0) == (len(index), True)


@every_index
def test_a_restored_index_goes_on_as_the_one_that_wrote_it(name: str) -> None:
    index, files = filled(name), MemoryFiles()
    again = INDEXES[name].restore(PLANE, index.checkpoint(files.write), files.read)

    for epoch in range(1, 4):
        more = some_objects(epoch, 5 * epoch)
        assert take(again, more, 5 * epoch + 4) == take(index, more, 5 * epoch + 4)


@continuous_index
def test_no_queries_and_no_objects_are_no_change(name: str) -> None:
    index = filled(name)
    index.register(NUMBERS[:0], QueryBatch.of([]))
    index.end_at(NUMBERS[:0], NUMBERS[:0])

    assert take(index, ObjectBatch.of([]), 4) == []
    assert len(index) == 20


@continuous_index
def test_cancelled_queries_are_forgotten_and_unknown_ones_ignored(name: str) -> None:
    index, other = filled(name), filled(name)
    index.end_at(np.array([77, *NUMBERS[1:]]), np.full(20, 5))
    other.end_at(np.array([77]), np.array([5]))
    more = some_objects(2, 5)
    left, all_of_them = take(index, more, 9), take(other, more, 9)

    assert 0 < len(left) < len(all_of_them)
    assert set(left) < set(all_of_them) if name != "terms" else all(row in all_of_them for row in left)
    index.expire(9)
    assert len(index) == 1


@continuous_index
def test_queries_that_have_ended_are_forgotten(name: str) -> None:
    index = filled(name, duration=8)
    index.expire(9)

    assert len(index) == 0
    assert take(index, some_objects(2, 10), 14) == []


@movable_index
def test_registered_queries_can_move_and_come_back(name: str) -> None:
    index, there = filled(name), INDEXES[name](PLANE)
    numbers, queries = index.continuous(4)
    assert numbers.tolist() == NUMBERS.tolist()
    there.register(numbers, queries)
    index.drop(np.array([77, *numbers]))

    assert there.known(numbers).all()
    assert not index.known(numbers).any()
    assert len(index.continuous(4)[0]) == 0
    index.register(*there.continuous(4))
    assert index.known(np.array([3, 77])).tolist() == [True, False]
