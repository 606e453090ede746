"""Continuous top-k terms queries: slots and merge together against brute force over the whole stream."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local import wordtable
from spatialstream.local.journal import Journal
from spatialstream.local.terms import ctq, groups, steps, termlogs
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.local.terms.steps import StepPartials, merge_steps
from spatialstream.local.terms.termlogs import TermLogs
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.packing import unpacked_polygons
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.queries import Lifetime, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists
from tests.streams import expressions
from tests.unit.local.continuous import LAST, PLANE, WORDS, Epoch, Run, Stream, compiled
from tests.unit.local.grid.test_grid import in_region
from tests.unit.memory_files import MemoryFiles

Row = tuple[int, str, list[tuple[str, int]]]


def ring(space: Space, *corners: list[float]) -> Polygon:
    return parse_polygon({"type": "Polygon", "coordinates": [[*map(list, corners), list(corners[0])]]}, space)


REGIONS = {
    PLANE: [
        None,
        Box(0.0, 0.0, 1.0, 1.0),
        Box(0.0, 0.0, 2.0, 1.0),
        Box(0.0, 0.0, 2.0, 1.5),
        Box(0.0, 0.0, 3.5, 4.0),
        Box(0.0, 0.0, 3.0, 4.0),
        Box(0.5, 0.0, 3.5, 4.0),
        Box(1.0, 1.0, 1.0, 1.0),
        Circle(1.0, 1.0, 1.0),
        Circle(0.0, 0.0, 0.0),
        # two triangles and a notched rectangle with the box of Box(0.0, 0.0, 2.0, 1.0)
        ring(PLANE, [0.0, 0.0], [2.0, 0.0], [0.0, 1.0]),
        ring(PLANE, [2.0, 1.0], [2.0, 0.0], [0.0, 1.0]),
        ring(PLANE, [0.0, 0.0], [2.0, 0.0], [1.0, 0.5], [2.0, 1.0], [0.0, 1.0]),
        ring(PLANE, [0.5, 0.5], [3.5, 0.0], [2.0, 4.0]),
    ],
    WGS84: [
        None,
        Box(170.0, -1.0, -170.0, 1.0),
        Box(175.0, -1.0, -170.0, 1.0),
        Circle(0.0, 90.0, 10.0),
        Circle(180.0, 0.0, 80_000.0),
        Box(10.0, 50.0, 11.0, 51.0),
        Box(10.0, 50.0, 10.6, 51.0),
        Box(10.0, 50.0, 10.25, 51.0),
        ring(WGS84, [170.0, -1.0], [190.0, -1.0], [170.0, 1.0]),
        ring(WGS84, [190.0, 1.0], [190.0, -1.0], [170.0, 1.0]),
        ring(WGS84, [10.0, 50.0], [11.0, 50.0], [10.0, 51.0]),
    ],
}


def expected(stream: Stream) -> list[Row]:
    """Every step of every query, from its definition."""
    rows = []
    last = stream.epochs[-1].before - 1 if stream.epochs else -1
    for number, query in enumerate(stream.queries):
        window, step = query.lifetime.window, query.lifetime.step
        now = query.t + step
        while now <= min(query.t + query.lifetime.duration, last) and now < stream.end[number]:
            counts = Counter(
                term
                for o in stream.objects
                if max(query.t, now - window + 1) <= o.t <= now
                and query.predicate.expression.holds(o.terms)
                and in_region(stream.space, query.predicate.region, o.x, o.y)
                for term in o.terms
            )
            best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: query.k]
            rows.append((now, query.id, best))
            now += step
    return sorted(rows, key=lambda row: row[:2])


def rows_of(partials: list[StepPartials]) -> list[Row]:
    rows = merge_steps(partials)
    answers = list(zip(rows.terms.to_pylist(), rows.counts.tolist(), strict=True))
    return [
        (int(rows.t[i]), rows.query[i].as_py(), answers[rows.offsets[i] : rows.offsets[i + 1]])
        for i in range(len(rows))
    ]


class TermsRun(Run):
    """Slots whose steps are added."""

    index = ContinuousTermsIndex

    def rows(self, epoch: Epoch, batches: list[ObjectBatch]) -> list[Row]:
        partials = []
        for slot, (index, batch) in enumerate(zip(self.slots, batches, strict=True)):
            assert list(index.match(batch)) == []
            parts = list(index.steps(epoch.before - 1, *[(1 << 16, 1 << 20), (2, 3)][slot % 2]))
            assert all(map(len, parts))
            partials += parts
        return rows_of(partials)


def queries_in(space: Space) -> st.SearchStrategy[list[Query]]:
    lifetime = st.builds(
        lambda duration, window, step: Lifetime(duration, True, window, step),
        st.sampled_from([0, 1, 6, 7, 100]),
        st.sampled_from([0, 1, 2, 3, 5, 8, 100]),
        st.sampled_from([1, 2, 3, 5]),
    )
    query = st.builds(
        lambda t, region, text, k, lifetime: (t, Predicate(region, *text), TopTerms(k), lifetime),
        st.integers(0, LAST // 2),
        st.sampled_from(REGIONS[space]),
        st.one_of(st.just(()), expressions(WORDS)),
        st.sampled_from([1, 2, 3, 100]),
        st.one_of(lifetime, st.just(Lifetime(100, True, 5, 2))),
    )
    return st.lists(query, max_size=8).map(
        lambda parts: [Query(f"q{(7 * i) % 10}", *part) for i, part in enumerate(parts)]
    )


def objects_of(n: int, seed: int, t: int, words: int = 5) -> list[SpatialObject]:
    rng = np.random.default_rng(seed)
    objects = []
    for i in range(n):
        x, y = rng.random(2) * 4.0
        chosen = rng.choice(words, rng.integers(0, min(words, 4)), replace=False)
        objects.append(SpatialObject(f"{seed}-{i}", t + i // 10, float(x), float(y), tuple(f"w{w}" for w in chosen)))
    return objects


def boxes(n: int, seed: int, lifetimes: list[Lifetime], t: int = 0) -> list[Query]:
    rng = np.random.default_rng(seed)
    queries = []
    for i in range(n):
        (x, y), (w, h) = rng.random(2) * 3.0, rng.random(2) + 0.2
        box = Box(float(x), float(y), float(x + w), float(y + h))
        queries.append(Query(f"{seed}-{i}", t, Predicate(box), TopTerms(3), lifetimes[i % len(lifetimes)]))
    return queries


def checked(stream: Stream, files: MemoryFiles) -> TermsRun:
    """A run that gives what it should."""
    run = TermsRun(stream, files)
    assert run.whole() == expected(stream)
    return run


def test_checkpoints_are_deltas_and_state_is_bounded(monkeypatch):
    monkeypatch.setattr(termlogs, "_LEAST_GARBAGE", 16)
    queries = boxes(60, 1, [Lifetime(30, True, 7, 2), Lifetime(40, True, 9, 2), Lifetime(500, True, 3, 5)])
    epochs = [Epoch(list(range(60)), before=0, restart=True)]
    objects = []
    for i in range(40):
        part = objects_of(20, i, 2 * i)
        objects += part
        epochs.append(Epoch([], [], part, [0] * 20, 2 * i + 2, restart=i % 4 != 3))
    files = MemoryFiles()
    run = checked(Stream(PLANE, queries, [10**9] * 60, objects, 1, epochs), files)

    assert 1_000 < run.slots[0].nbytes < 100_000
    assert sum(name.startswith("ctq-delta") for name in files.files) > 10
    assert len(run.slots[0]) == 20
    assert run.slots[0]._logs.sizes[0] < 200  # of 800 objects, 90 of them in the last 9 ms


def test_words_that_no_object_has_any_more_are_forgotten(monkeypatch):
    monkeypatch.setattr(termlogs, "_LEAST_GARBAGE", 16)
    queries = boxes(5, 3, [Lifetime(10**6, True, 4, 2)])
    epochs, objects = [Epoch(list(range(5)), before=0)], []
    for i in range(30):
        part = [
            SpatialObject(o.id, o.t, o.x, o.y, tuple(f"{term}-{i}" for term in o.terms))
            for o in objects_of(40, i, 4 * i)
        ]
        objects += part
        epochs.append(Epoch([], [], part, [0] * 40, 4 * i + 4))
    run = checked(Stream(PLANE, queries, [10**9] * 5, objects, 1, epochs), MemoryFiles())

    assert run.slots[0]._logs.sizes[2] < 30  # of 150


def test_members_of_a_group_share_the_entries_of_the_common_region():
    west, wide = Box(0.0, 0.0, 2.0, 4.0), Box(0.0, 0.0, 2.5, 4.0)
    lifetime = Lifetime(100, True, 20, 5)
    queries = [Query(f"{i}", 0, Predicate(west if i % 2 else wide), TopTerms(3), lifetime) for i in range(10)]
    late = [Query(f"late {i}", 15, Predicate(wide), TopTerms(3), lifetime) for i in range(10)]
    objects = sorted(objects_of(300, 7, 0), key=lambda o: (o.t, o.id))
    epochs = [
        Epoch(list(range(10)), [], [o for o in objects if o.t < 12], [0] * 120, 12),
        Epoch(list(range(10, 20)), [], [o for o in objects if o.t >= 12], [0] * 180, 30, restart=True),
        Epoch([], [], [], [], 60),
    ]
    run = checked(Stream(PLANE, queries + late, [10**9] * 20, objects, 1, epochs), MemoryFiles())

    inside = sum(o.x <= 2.0 for o in objects if o.terms)
    index = run.slots[0]
    assert len(set(index._queries["common"].tolist())) == 1
    assert int((index._queries["own"] >= 0).sum()) == 15
    assert inside > 100


def test_overlapping_queries_that_come_one_after_the_other_are_counted_right():
    rng = np.random.default_rng(11)
    queries, epochs, objects = [], [], []
    for i in range(12):
        for _ in range(6):
            x, y = (rng.integers(0, 8, 2) / 20.0).tolist()
            w, h = (rng.integers(30, 40, 2) / 20.0).tolist()
            predicate = Predicate(Box(x, y, x + w, y + h))
            queries.append(Query(f"{len(queries)}", 5 * i, predicate, TopTerms(4), Lifetime(40, True, 13, 5)))
        part = [o for o in objects_of(50, i, 5 * i) if o.x < 3.0]
        objects += part
        epochs.append(Epoch([*range(6 * i, 6 * i + 6)], [], part, [0] * len(part), 5 * i + 5, restart=i % 2 == 0))
    run = checked(Stream(PLANE, queries, [10**9] * len(queries), objects, 1, epochs), MemoryFiles())

    index = run.slots[0]
    assert len(np.unique(index._queries["common"])) < len(index) // 2


def test_a_group_is_the_intersection_of_its_members_as_in_figure_6():
    regions = Regions.of(
        [Box(0.0, 0.0, 2.0, 2.0), Box(0.2, 0.1, 2.2, 2.1), Box(0.1, 0.0, 2.1, 2.2), Box(3.0, 3.0, 3.5, 3.5)]
    )
    keys = groups.join_keywords(TermLists.of([["b", "a"], ["a", "b"], ["a", "b"], ["a", "b"]]))
    same = np.ones(4, np.int64)
    nothing = np.full(len(same), -1, np.int32)
    members = groups.Members.of(same, same, same, keys, regions, nothing)
    none = groups.Members.of(same[:0], same[:0], same[:0], keys[:0], regions.take(same[:0]), nothing[:0])
    founder, common = groups.assign(none, members, same[:0], np.zeros(4, np.int64))

    assert founder[:3].tolist() == [founder[0]] * 3
    assert founder[3] == 3
    assert common[founder[0]].tolist() == [0.2, 0.1, 2.0, 2.0]


def test_polygons_with_one_box_are_not_one_group():
    triangles = REGIONS[PLANE][-4:-2]
    assert triangles[0].box == triangles[1].box
    index = ContinuousTermsIndex(PLANE)
    queries = [Query(f"q{i}", 0, Predicate(triangles[i % 2]), TopTerms(3), Lifetime(50, True, 20, 5)) for i in range(6)]
    index.register(np.arange(6), QueryBatch.of(queries))
    files = MemoryFiles()
    manifest = index.checkpoint(files.write)
    index = ContinuousTermsIndex.restore(PLANE, manifest, files.read)

    (saved,) = Journal.open("ctq", manifest["journal"], files.read)[1]
    common = saved["query_common"]
    assert (common[::2] == common[0]).all()
    assert (common[1::2] == common[1]).all()
    assert common[0] != common[1]
    moved = QueryBatch.from_arrow(index.continuous(0)[1].to_arrow())
    assert [moved[i].predicate.region for i in range(6)] == [triangles[i % 2] for i in range(6)]
    assert unpacked_polygons(saved["polygons"], False) == tuple(triangles)
    index.match(ObjectBatch.of([SpatialObject("o", 1, 0.25, 0.25, ("a",))]))
    rows = rows_of(list(index.steps(5)))
    assert [(name, counts) for _, name, counts in rows] == [
        (f"q{i}", [("a", 1)] if i % 2 == 0 else []) for i in range(6)
    ]

    index.drop(np.arange(0, 6, 2))
    index.drop(np.arange(1, 4, 2))
    index.expire(5)
    left = MemoryFiles()
    (saved,) = Journal.open("ctq", index.checkpoint(left.write)["journal"], {**files.files, **left.files}.__getitem__)[
        1
    ]
    assert unpacked_polygons(saved["polygons"], False) == (triangles[1],), "the other one is used by no query"


def test_more_keywords_or_other_steps_make_another_group():
    box = Regions.of([Box(0.0, 0.0, 2.0, 2.0)] * 4)
    keys = groups.join_keywords(TermLists.of([["a"], ["a", "b"], ["a"], ["a"]]))
    window, step, phase = np.array([[5, 5, 6, 5], [2, 2, 2, 2], [0, 0, 0, 1]])
    nothing = np.full(len(window), -1, np.int32)
    members = groups.Members.of(window, step, phase, keys, box, nothing)
    none = groups.Members.of(window[:0], window[:0], window[:0], keys[:0], box.take(window[:0]), nothing[:0])
    founder, _ = groups.assign(none, members, window[:0], np.zeros(4, np.int64))

    assert sorted(founder.tolist()) == [0, 1, 2, 3]


def test_a_query_does_not_join_a_group_that_began_after_it():
    index = ContinuousTermsIndex(PLANE)
    for number, t in enumerate((8, 0)):
        queries = QueryBatch.of([Query(f"q{t}", t, Predicate(), TopTerms(5), Lifetime(12, True, 10, 4))])
        index.register(np.full(1, number), queries)
    index.match(ObjectBatch.of([SpatialObject("a", 5, 0.0, 0.0, ("x",))]))

    assert rows_of(list(index.steps(12))) == [
        (4, "q0", []),
        (8, "q0", [("x", 1)]),
        (12, "q0", [("x", 1)]),
        (12, "q8", []),
    ]


def test_steps_are_listed_some_at_a_time():
    index = ContinuousTermsIndex(PLANE)
    lifetimes = [Lifetime(10**7, True, 5, 1), Lifetime(10**7, True, 5, 10)]
    queries = QueryBatch.of([Query(f"q{i}", 0, Predicate(), TopTerms(5), each) for i, each in enumerate(lifetimes)])
    index.register(np.arange(2), queries)
    parts = index.steps(10**7, rows=1_000)
    sizes, last = [], 0
    for _ in range(50):
        part = next(parts)
        assert last <= part.now[0]
        assert part.now[-1] <= last + 1_000
        sizes.append(len(part))
        last = int(part.now[-1])
    assert max(sizes) <= 1_000
    assert sum(sizes) == last + last // 10


def test_late_arrivals_count_in_the_windows_that_are_still_to_come():
    index = ContinuousTermsIndex(PLANE)
    query = Query("q", 0, Predicate(), TopTerms(5), Lifetime(100, True, 10, 4))
    queries = QueryBatch.of([query])
    index.register(np.zeros(1, np.int64), queries)
    index.match(ObjectBatch.of([SpatialObject("a", 3, 0.0, 0.0, ("x",)), SpatialObject("b", 4, 0.0, 0.0, ("y",))]))
    first = rows_of(list(index.steps(4)))
    index.match(ObjectBatch.of([SpatialObject("late", 2, 0.0, 0.0, ("x",))]))

    assert first == [(4, "q", [("x", 1), ("y", 1)])]
    assert rows_of(list(index.steps(12))) == [(8, "q", [("x", 2), ("y", 1)]), (12, "q", [("x", 1), ("y", 1)])]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=12), max_size=6))
def test_logs_are_in_time_order_however_late_entries_come(batches):
    logs, right, stored = TermLogs(), [list[tuple[int, int]]() for _ in range(3)], 0
    logs.add(3)
    for batch in batches:
        logs.store(ObjectBatch.of([SpatialObject("o", t, 0.0, 0.0, ("x",)) for _, t in batch]))
        entries = np.arange(stored, stored + len(batch), dtype=np.int32)
        stored += len(batch)
        logs.append(np.array([area for area, _ in batch], np.int32), entries)
        for (area, t), entry in zip(batch, entries.tolist(), strict=True):
            right[area].append((t, entry))
        for area, known in enumerate(right):
            known.sort()  # those of one time as they came
            found, times = logs.log(area)
            assert list(zip(times.tolist(), found.tolist(), strict=True)) == known


def test_many_late_entries_are_merged_at_once():
    logs, n = TermLogs(), 400_000
    logs.add(1)
    one = ObjectBatch.of([SpatialObject("o", 0, 0.0, 0.0, ("x",))])
    for first in (n, 0):  # one by one they would move the log 400,000 times
        logs.store(replace(one.take(np.zeros(n, np.int64)), t=np.arange(first, first + n)))
        logs.append(np.zeros(n, np.int32), np.arange(n - first, 2 * n - first, dtype=np.int32))
    assert logs.log(0)[1].tolist() == list(range(2 * n))


def test_steps_are_added_over_slots_and_ties_go_by_term():
    number, now = np.zeros(1, np.int64), np.full(1, 5, np.int64)
    parts = [
        StepPartials(
            number, pa.array(["q"]), now, np.full(1, 2, np.int32), TermLists.of([terms]), np.array(counts, np.int32)
        )
        for terms, counts in ((["b", "c"], [2, 3]), ([], []), (["a", "c", "b"], [3, 1, 1]))
    ]

    assert rows_of(parts) == [(5, "q", [("c", 4), ("a", 3)])]
    assert rows_of(parts[1:2]) == [(5, "q", [])]
    assert rows_of([]) == []


def test_kernels_are_compiled_by_prepare():
    ctq.prepare()
    before = compiled(ctq, groups, steps, termlogs, wordtable)
    test_late_arrivals_count_in_the_windows_that_are_still_to_come()
    test_steps_are_added_over_slots_and_ties_go_by_term()
    test_members_of_a_group_share_the_entries_of_the_common_region()

    assert compiled(ctq, groups, steps, termlogs, wordtable) == before
    assert all(before[f"{kernel.__module__}.{kernel.__name__}"] == 1 for kernel in (ctq._signs, termlogs._count))
