"""Continuous k-nearest queries: slots and merger together against brute force over the whole stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local import wordtable
from spatialstream.local.nearest import ckq, heap_index, heaps, skyband
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.nearest.skyband import Arrivals, NearestMerger
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.space import Space
from tests.streams import expressions
from tests.unit.local.continuous import (
    LAST,
    PLACES,
    PLANE,
    WORDS,
    Candidates,
    Epoch,
    MergedRun,
    Stream,
    compiled,
    first_of,
    order,
    queries_of,
)
from tests.unit.memory_files import MemoryFiles

Row = tuple[int, str, list[tuple[str, int, float, float, float]]]


def expected(stream: Stream) -> list[Row]:
    """Every change of every answer, from its definition."""

    def candidates(query: Query, objects: list[SpatialObject]) -> Candidates:
        at, found = query.selection, []
        for o in objects:
            if query.predicate.expression.holds(o.terms):
                d = stream.space.distance(at.x, at.y, o.x, o.y)
                found.append((o, (d, -o.t, o.id, o.x, o.y), (o.id, o.t, o.x, o.y, d)))
        return found

    return first_of(stream, candidates)


class NearestRun(MergedRun):
    """Slots and merger."""

    index, merging, arrivals = ContinuousNearestIndex, NearestMerger, Arrivals
    found = columns = ("distance",)

    def __init__(self, stream: Stream, files: MemoryFiles) -> None:
        super().__init__(stream, files)
        self.radii = self.merger.radii()

    def continuous(self) -> list:
        return [self.merger, *self.slots]

    def rows(self, epoch: Epoch, batches: list[ObjectBatch]) -> list[Row]:
        for index in self.slots[: len(self.stream.queries) % (len(self.slots) + 1)]:  # they may take them, or not
            index.shrink(*self.radii, await_others=False)
        shown = [1, 3, 1 << 20][len(self.stream.queries) % 3]
        rows = changes_of(self.merger, self.merged(batches), epoch.horizon, shown)
        self.radii = self.merger.radii()
        return rows


arrivals_of, changes_of, rows_of = NearestRun.arrivals_of, NearestRun.changes_of, NearestRun.rows_of


def queries_in(space: Space) -> st.SearchStrategy[list[Query]]:
    parts = st.builds(
        lambda place, k, text: (Predicate(None, *text), Nearest(*place, k)),
        st.sampled_from(PLACES[space]),
        st.sampled_from([1, 2, 3, 2**31 - 1]),
        expressions(WORDS),
    )
    return queries_of(parts)


class LateTwin:
    """The definition for objects in any order of time: a late one arrives at the time up to which rows are out."""

    def __init__(self) -> None:
        self.reported = -(10**9)
        self.queries: dict[int, tuple[Query, int]] = {}  # and when it ends
        self.seen: dict[int, list[SpatialObject]] = {}

    def register(self, number: int, query: Query) -> None:
        self.queries[number], self.seen[number] = (query, query.t + query.lifetime.duration), []

    def end_at(self, number: int, t: int) -> None:
        if number in self.queries:
            query, end = self.queries[number]
            self.queries[number] = query, min(end, t)

    def apply(self, objects: list[SpatialObject], horizon: int) -> list[Row]:
        horizon = max(horizon, self.reported)
        rows = [row for number in self.queries for row in self._rows(number, sorted(objects, key=order), horizon)]
        self.reported = horizon
        return [row for _, row in sorted(rows, key=lambda row: row[0])]

    def _rows(self, number: int, objects: list[SpatialObject], horizon: int) -> list[tuple[tuple, Row]]:
        (query, end), seen = self.queries[number], self.seen[number]
        window = query.lifetime.window
        wanted = [o for o in objects if query.t <= o.t < end and query.predicate.expression.holds(o.terms)]
        events: list[tuple] = [(max(o.t, self.reported), 1, order(o), i) for i, o in enumerate(wanted)]
        if window is not None:
            leaving = {o.t + window for o in seen + wanted}
            events += [(t, 0, (), -1) for t in leaving if self.reported < t <= horizon]
        rows, answer = [], self._answer(seen, query, self.reported)
        for now, phase, place, i in sorted(events):
            if phase:
                seen.append(wanted[i])
            new = self._answer(seen, query, now)
            if new != answer and now < end:
                found = [(i, -t, x, y, d) for d, t, i, x, y in new]
                rows.append(((now, phase, place, query.id), (now, query.id, found)))
            answer = new
        return rows

    @staticmethod
    def _answer(seen: list[SpatialObject], query: Query, now: int) -> list[tuple]:
        window, at = query.lifetime.window, query.selection
        inside = [o for o in seen if window is None or now - window < o.t <= now]
        return sorted((PLANE.distance(at.x, at.y, o.x, o.y), -o.t, o.id, o.x, o.y) for o in inside)[: query.k]


@given(data=st.data())
def test_late_objects_and_queries_change_answers_from_when_they_come(data):
    index, merger, twin, files = ContinuousNearestIndex(PLANE), NearestMerger(PLANE), LateTwin(), MemoryFiles()
    times = st.integers(0, LAST)
    things = st.lists(
        st.builds(
            lambda i, t, place, terms: SpatialObject(i, t, *place, tuple(sorted(terms))),
            st.sampled_from(["a", "b", "é"]),
            times,
            st.sampled_from(PLACES[PLANE]),
            st.sets(st.sampled_from(WORDS)),
        ),
        max_size=8,
    )
    last: dict[str, int] = {}
    for round_ in range(data.draw(st.integers(1, 6))):
        for i, query in enumerate(data.draw(queries_in(PLANE)) if round_ < 3 else []):
            number, named = 10 * round_ + i, replace(query, id=f"{round_}-{query.id}")
            batch = QueryBatch.of([named])
            one = np.array([number])
            index.register(one, batch)
            merger.register(one, batch)
            twin.register(number, named)
        for number in data.draw(st.sets(st.integers(0, 25), max_size=4)):
            t = data.draw(times)
            for each in (index, merger):
                each.end_at(np.array([number]), np.array([t]))
            twin.end_at(number, t)
        objects = sorted(data.draw(things), key=order)
        horizon = max([data.draw(times), *(o.t for o in objects)])
        rows = changes_of(merger, arrivals_of(index, objects), horizon, [1, 4, 1 << 20][horizon % 3])
        assert rows == twin.apply(objects, horizon)
        for t, name, _ in rows:
            assert last.get(name, 0) <= t
            last[name] = t
        index.expire(twin.reported)
        if data.draw(st.booleans()):
            manifests = index.checkpoint(files.write), merger.checkpoint(files.write)
            if data.draw(st.booleans()):  # otherwise both go on, and their next files follow these
                index = ContinuousNearestIndex.restore(PLANE, manifests[0], files.read)
                merger = NearestMerger.restore(PLANE, manifests[1], files.read)


def crowd(n: int, seed: int, first: int = 0) -> list[SpatialObject]:
    rng = np.random.default_rng(seed)
    return [
        SpatialObject(
            f"{rng.integers(0, 9)}", first + i // 10, *rng.integers(0, 40, 2) / 10.0, tuple(WORDS[: rng.integers(0, 4)])
        )
        for i in range(n)
    ]


def continuous(n: int, seed: int, k: int = 3, window: int | None = None) -> list[Query]:
    rng = np.random.default_rng(seed)
    return [
        Query(
            f"q{i}",
            0,
            Predicate(None, tuple(WORDS[: rng.integers(0, 3)])),
            Nearest(*rng.random(2) * 4.0, k),
            Lifetime(10**6, True, window),
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("window", [None, 7])
def test_grids_are_rebuilt_and_merged_without_a_trace(monkeypatch, window):
    monkeypatch.setattr(heap_index, "_WASTE", 1)
    monkeypatch.setattr(heap_index, "_PAIRS", 64)
    monkeypatch.setattr(skyband, "_LEAST_SWEEP", 8)
    queries = continuous(60, 1, window=window)
    objects = sorted(crowd(400, 2), key=order)
    end = [10**9] * 20 + [25] * 40
    epochs = []
    for i in range(20):
        part = objects[20 * i : 20 * i + 20]
        cancelled = [(number, 25) for number in range(20, 60)] if i == 10 else []
        numbers = [*range(30 * i, 30 * i + 30)] if i < 2 else []
        epochs.append(Epoch(numbers, cancelled, part, [0] * 20, part[-1].t, part[-1].t, i % 3 == 0))
    for number in range(30, 60):
        object.__setattr__(queries[number], "t", epochs[1].objects[0].t)
    stream = Stream(PLANE, queries, end, objects, 1, epochs)
    run = NearestRun(stream, MemoryFiles())

    assert run.whole() == expected(stream)
    assert len(run.slots[0]) == 20
    assert len(run.merger) == 20


def test_an_arrival_beyond_the_radius_is_not_passed_on():
    index = ContinuousNearestIndex(PLANE)
    queries = QueryBatch.of(continuous(1, 0, k=2))
    zero = np.zeros(1, np.int64)
    index.register(zero, queries)
    x, y = queries.at[0]
    near = [SpatialObject("a", t, x, y, tuple(WORDS)) for t in (1, 2)]
    arrivals_of(index, near)

    assert len(arrivals_of(index, [SpatialObject("far", 3, 0.0, 4.0, tuple(WORDS))])) == 0
    assert len(arrivals_of(index, [SpatialObject("newer", 3, x, y, tuple(WORDS))])) == 1


def test_what_is_kept_is_measured():
    index, merger = ContinuousNearestIndex(PLANE), NearestMerger(PLANE)
    queries = QueryBatch.of(continuous(30, 0, k=2))
    numbers = np.arange(30)
    sizes = [(index.nbytes, merger.nbytes)]
    index.register(numbers, queries)
    merger.register(numbers, queries)
    sizes.append((index.nbytes, merger.nbytes))
    changes_of(merger, arrivals_of(index, crowd(50, 3)), 4)
    sizes.append((index.nbytes, merger.nbytes))

    kept = [int(part._queries["size"].sum()) for part in (index, merger)]
    assert all(before < after for before, after in zip(sizes[0], sizes[1], strict=True))
    assert sizes[2][0] - sizes[1][0] >= 16 * kept[0] > 0
    assert sizes[2][1] - sizes[1][1] >= 16 * kept[1] > 0


def test_an_epoch_that_changes_nothing_writes_nothing():
    index, merger, files = ContinuousNearestIndex(PLANE), NearestMerger(PLANE), MemoryFiles()
    queries = QueryBatch.of(continuous(3, 0, k=1))
    numbers = np.arange(3)
    index.register(numbers, queries)
    merger.register(numbers, queries)
    index.checkpoint(files.write)
    before = merger.checkpoint(files.write)["journal"]
    written = len(files.files)
    late = arrivals_of(index, [SpatialObject("late", 10**6, 0.0, 0.0, tuple(WORDS))])
    changes_of(merger, late, 99)
    index.checkpoint(files.write)

    assert merger.checkpoint(files.write)["journal"] == before
    assert len(files.files) == written


def test_objects_that_came_before_a_checkpoint_without_changes_are_in_the_next_one():
    merger, files = NearestMerger(PLANE), MemoryFiles()
    merger.register(np.arange(30), QueryBatch.of(continuous(30, 0, k=2)))  # so that what follows is less than half

    def come(t, **distances):
        for name, distance in distances.items():
            there = np.full(1, distance)
            found = Arrivals(np.arange(1), pa.array([name]), np.full(1, t), there, there, there)
            rows = changes_of(merger, found, t)
        return rows

    come(1, b=5.0, a=6.0)
    merger.checkpoint(files.write)
    assert come(2, late=9.0) == []  # its slot has not known that others have two that are nearer
    merger.checkpoint(files.write)
    come(3, c=4.0)
    again = NearestMerger.restore(PLANE, merger.checkpoint(files.write), files.read)
    expected = come(4, d=3.0)
    merger = again
    assert come(4, d=3.0) == expected != []


def test_the_state_of_a_window_is_its_skyband():
    merger = NearestMerger(PLANE)
    queries = QueryBatch.of(continuous(1, 0, k=3, window=10**5))
    zero = np.zeros(1, np.int64)
    merger.register(zero, queries)
    rng = np.random.default_rng(5)
    n = 5000
    t = np.arange(n, dtype=np.int64)
    ids = pa.array([str(i) for i in range(n)], pa.string())
    changes_of(merger, Arrivals(np.zeros(n, np.int64), ids, t, rng.random(n), rng.random(n), rng.random(n)), n)

    assert int(merger._queries["size"][0]) < 60  # about 3 ln(5000 / 3) = 22


def test_kernels_are_compiled_by_prepare():
    ckq.prepare()
    skyband.prepare()
    before = compiled(ckq, heaps, skyband, wordtable)
    test_an_arrival_beyond_the_radius_is_not_passed_on()
    test_an_epoch_that_changes_nothing_writes_nothing()
    test_the_state_of_a_window_is_its_skyband()

    assert compiled(ckq, heaps, skyband, wordtable) == before
    assert all(before[f"{kernel.__module__}.{kernel.__name__}"] == 1 for kernel in (ckq._offer, skyband._replay))
