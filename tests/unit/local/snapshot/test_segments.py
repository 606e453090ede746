"""The store of segments compared with a brute-force reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.local.snapshot.rows import ObjectRows
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples
from tests.unit.local.grid.test_grid import polygons
from tests.unit.local.snapshot.twin import Twin
from tests.unit.memory_files import MemoryFiles
from tests.unit.model.polygons import shapes

PLANE = Space.planar(-2.0, -1.0, 2.0, 1.0)

PLACES = {
    WGS84: (
        [-180.0, -179.9, -179.0, -90.0, -1e-9, 0.0, 0.3, 90.0, 179.5, 179.99, 180.0],
        [-90.0, -89.9, -60.0, 0.0, 1e-7, 0.5, 60.0, 89.9, 90.0],
    ),
    PLANE: ([-2.0, -1.5, -1e-9, 0.0, 0.1, 0.3, 2.0], [-1.0, -0.2, 0.0, 0.1, 0.3, 1.0]),
}
RADII = {WGS84: [0.0, 1.0, 2e4, 1.2e5, 3e6, 1.1e7, 2.1e7], PLANE: [0.0, 1e-9, 0.1, 0.3, 1.0, 9.0]}
TERMS = ["a", "b", "c", "ä", "überlänge", "abcdefghijkl"]


@st.composite
def points(draw: st.DrawFn, space: Space) -> tuple[float, float]:
    xs, ys = PLACES[space]
    if draw(st.integers(0, 4)):
        return draw(st.sampled_from(xs)), draw(st.sampled_from(ys))
    return draw(st.floats(space.west, space.east)), draw(st.floats(space.south, space.north))


@st.composite
def regions(draw: st.DrawFn, space: Space) -> Region | None:
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return None
    if kind > 4:
        return draw(polygons(space))
    x, y = draw(points(space))
    if kind < 3:
        other_x, other_y = draw(points(space))
        if not space.geographic:
            x, other_x = sorted((x, other_x))
        return Box(x, min(y, other_y), other_x, max(y, other_y))
    return Circle(x, y, draw(st.sampled_from(RADII[space])))


@st.composite
def batches(draw: st.DrawFn, space: Space, largest: int = 12) -> list[SpatialObject]:
    result = []
    for _ in range(draw(st.integers(0, largest))):
        x, y = draw(points(space))
        terms = draw(st.lists(st.sampled_from(TERMS), unique=True, max_size=4))
        result.append(
            SpatialObject(draw(st.sampled_from(["1", "2", "10", "ø", ""])), draw(st.integers(0, 9)), x, y, tuple(terms))
        )
    return sorted(result, key=lambda o: o.t)


keyword_lists = st.lists(st.sampled_from([*TERMS, "never"]), unique=True, max_size=3)
times = st.tuples(st.integers(-2, 9), st.integers(0, 11))


def rows(found: ObjectRows) -> list[tuple[Any, ...]]:
    columns = [found.t.tolist(), found.ids.to_pylist(), found.x.tolist(), found.y.tolist()]
    if found.distance is not None:
        columns.insert(0, found.distance.tolist())
    return list(zip(*columns, strict=True))


def counted(store: SegmentStore, *query: Any) -> dict[str, int]:
    terms, counts = store.term_counts(*query)
    names = terms.to_pylist()
    assert len(set(names)) == len(names)
    return dict(zip(names, counts.tolist(), strict=True))


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
@settings(max_examples=examples(60, 400))
@given(data=st.data())
def test_a_store_answers_as_its_twin(space: Space, data: st.DataObject) -> None:
    files = MemoryFiles()
    store = SegmentStore(
        space,
        data.draw(st.sampled_from([None, 1, 4])),
        capacity=data.draw(st.sampled_from([8, 64, 1 << 20])),
        phase=data.draw(st.sampled_from([0.0, phase_of(1), phase_of(2), 0.999])),
    )
    twin = Twin(space)
    for _ in range(data.draw(st.integers(1, 12))):
        batch = data.draw(batches(space))
        store.append(ObjectBatch.of(batch))
        twin.append(batch)
        match data.draw(st.integers(0, 5)):
            case 0:
                t = data.draw(st.integers(0, 6))
                store.drop_before(t)
                twin.drop_before(max(t, store.floor))
            case 1:
                store = SegmentStore.restore(space, store.checkpoint(files.write), files.read)
        twin.drop_before(store.floor)
    for _ in range(4):
        region, keywords, (after, last) = data.draw(regions(space)), data.draw(keyword_lists), data.draw(times)
        assert rows(store.range_query(region, keywords, after, last)) == twin.range_query(region, keywords, after, last)
        assert counted(store, region, keywords, after, last) == twin.term_counts(region, keywords, after, last)
        x, y = data.draw(points(space))
        k = data.draw(st.sampled_from([1, 2, 5, 2**31 - 1]))
        bound = data.draw(st.sampled_from([math.inf, *RADII[space]]))
        assert rows(store.nearest(x, y, k, keywords, after, last, bound)) == twin.nearest(
            x, y, k, keywords, after, last, bound
        )


def columns_of(objects: list[SpatialObject]) -> list[tuple[Any, ...]]:
    return sorted((o.t, o.id, o.x, o.y, sorted(o.terms)) for o in objects)


@pytest.mark.parametrize("interval", [None, 3])
@settings(max_examples=40)
@given(data=st.data())
def test_every_object_leaves_once_late_ones_too(interval: int | None, data: st.DataObject) -> None:
    phase = data.draw(st.sampled_from([0.0, 0.4, 0.8]))
    files, store, appended, left = MemoryFiles(), SegmentStore(PLANE, interval, capacity=40, phase=phase), [], []
    for _ in range(data.draw(st.integers(1, 12))):
        batch = data.draw(batches(PLANE))
        store.append(ObjectBatch.of(batch))
        appended += batch
        floor = data.draw(st.integers(0, 11))
        leaving = [part[i] for part in store.leaving(floor) for i in range(len(part))]
        assert all(o.t < max(floor, store.floor) for o in leaving)
        if data.draw(st.booleans()):
            before = len(store)
            store.drop_before(floor)
            left += leaving
            assert len(store) == before - len(leaving)
            assert not rows(store.range_query(None, [], -3, store.floor - 1))
        if data.draw(st.booleans()):
            store = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
    rest = [part[i] for part in store.leaving(99) for i in range(len(part))]
    assert columns_of(left + rest) == columns_of(appended)


def test_what_leaves_is_loaded_one_segment_at_a_time() -> None:
    files, names = MemoryFiles(), []
    store = SegmentStore(PLANE, interval=100)
    for seed in range(4):
        store.append(epoch(4, seed))
    manifest = store.checkpoint(files.write)

    def read(name: str) -> Any:
        names.append(name)
        return files.read(name)

    store = SegmentStore.restore(PLANE, manifest, read)
    leaving = store.leaving(300)
    for seen in range(1, 4):
        assert len(next(leaving)) == 4
        assert len(names) == seen
    assert next(leaving, None) is None
    assert all(part.segment is None for part in store._parts)


def epoch(n: int, seed: int) -> ObjectBatch:
    rng = np.random.default_rng(seed)
    return ObjectBatch.of(
        [
            SpatialObject(f"{seed}-{i}", seed * 100 + i * 100 // n, x, y, (TERMS[i % 5], TERMS[(i // 2) % 5]))
            for i, (x, y) in enumerate(rng.uniform(-1, 1, (n, 2)).tolist())
        ]
    )


def test_merging_keeps_few_segments() -> None:
    store = SegmentStore(PLANE)
    most = 0
    for seed in range(200):
        store.append(epoch(40, seed))
        most = max(most, store.segments)
    assert len(store) == 8000
    assert most <= 3 * 8


def test_segments_beyond_half_the_capacity_are_left_alone() -> None:
    store = SegmentStore(PLANE, capacity=100)
    files = MemoryFiles()
    store.append(epoch(90, 0))
    first = store.checkpoint(files.write)["segments"][0]["file"]
    for seed in range(1, 30):
        store.append(epoch(30, seed))
        manifest = store.checkpoint(files.write)
        assert manifest["segments"][0]["file"] == first
        assert all(segment["objects"] <= 100 for segment in manifest["segments"])


def test_merging_keeps_to_the_interval() -> None:
    store = SegmentStore(PLANE, interval=1000)
    files = MemoryFiles()
    for seed in range(35):  # an epoch is 100 ms, an interval ten epochs
        store.append(epoch(5, seed))
    segments = store.checkpoint(files.write)["segments"]
    assert [(segment["t_min"], segment["t_max"]) for segment in segments[:3]] == [(0, 980), (1000, 1980), (2000, 2980)]
    store.drop_before(1990)
    assert len(store) == 75
    assert not rows(store.range_query(None, [], -1, 1989))


def test_a_later_phase_moves_the_ends_of_intervals_and_does_not_lengthen_them() -> None:
    store = SegmentStore(PLANE, interval=1000, phase=0.4)
    for seed in range(35):
        store.append(epoch(5, seed))
    segments = store.checkpoint(MemoryFiles().write)["segments"]
    assert [(segment["t_min"], segment["t_max"]) for segment in segments[:3]] == [(0, 580), (600, 1580), (1600, 2580)]


def largest_epoch(monkeypatch: pytest.MonkeyPatch, phases: list[float], interval: int | None) -> tuple[int, int]:
    """Objects merged in the epoch that merges most of them, and in all epochs, of stores with the same load."""
    merged = [0]
    merge = Segment.merge

    def counting(parts: Any, keyed: Any) -> Segment:
        merged[-1] += sum(len(part) for part in parts)
        return merge(parts, keyed)

    monkeypatch.setattr("spatialstream.local.snapshot.segments._SMALLEST", 16)
    monkeypatch.setattr(Segment, "merge", counting)
    files, stores = MemoryFiles(), [SegmentStore(PLANE, interval, 4096, phase) for phase in phases]
    for seed in range(300):
        batch = epoch(20, seed)
        for i, store in enumerate(stores):
            store.append(batch)
            if seed % 50 == 0:  # the phase outlives the process
                stores[i] = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
        merged.append(0)
    return max(merged), sum(merged)


@pytest.mark.parametrize("interval", [None, 10_000])
def test_stores_with_the_same_load_do_not_all_merge_at_once(
    monkeypatch: pytest.MonkeyPatch, interval: int | None
) -> None:
    with monkeypatch.context() as patch:
        together, in_all = largest_epoch(patch, [0.0] * 4, interval)
    with monkeypatch.context() as patch:
        apart, in_all_apart = largest_epoch(patch, [phase_of(slot) for slot in range(4)], interval)
    assert apart <= together / 2
    assert in_all_apart <= 1.2 * in_all


def test_dropping_hides_at_once_what_is_still_stored() -> None:
    store = SegmentStore(PLANE)
    store.append(epoch(10, 0))
    store.drop_before(50)
    store.drop_before(20)
    assert len(store) == 10
    assert [t for t, *_ in rows(store.range_query(None, [], -1, 99))] == [50, 60, 70, 80, 90]
    assert len(store.nearest(0.0, 0.0, 99, [], -1, 99)) == 5
    assert sum(counted(store, None, [], -1, 99).values()) <= 10


def test_a_checkpoint_writes_each_segment_once_and_a_replay_in_another_process_writes_the_same(
    become_process: Callable[[int], None],
) -> None:
    written = []

    def recorder(files: MemoryFiles) -> Any:
        def write(kind: str, arrays: Any, meta: Any = None) -> str:
            written.append({name: array.tobytes() for name, array in arrays.items()})
            return files.write(kind, arrays, meta)

        return write

    def run(files: MemoryFiles) -> list[Any]:
        written.clear()
        store = SegmentStore(PLANE)
        for seed in range(20):
            store.append(epoch(20, seed))
            store = SegmentStore.restore(PLANE, store.checkpoint(recorder(files)), files.read)
        return list(written)

    first = run(MemoryFiles())
    assert len(first) == 20
    become_process(1)
    assert first == run(MemoryFiles())


def test_a_segment_out_of_the_time_asked_for_is_not_read() -> None:
    files = MemoryFiles()
    store = SegmentStore(PLANE, interval=100)
    for seed in range(3):
        store.append(epoch(4, seed))
    manifest = store.checkpoint(files.write)
    names = []

    def read(name: str) -> Any:
        names.append(name)
        return files.read(name)

    restored = SegmentStore.restore(PLANE, manifest, read)
    assert len(restored) == 12
    assert names == []
    assert len(restored.range_query(None, [], 99, 199)) == 4
    assert names == [manifest["segments"][1]["file"]]


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_nodes_inside_and_outside_of_polygons_are_told_without_a_test_of_their_objects(space: Space) -> None:
    rng = np.random.default_rng(4)
    for geometry, polygon in islice(shapes.polygons(space, 9), 4):
        near = shapes.points(space, geometry, rng, 1500)
        low, high = near.min(axis=0), near.max(axis=0)
        places = np.concatenate([near, low + rng.random((4500, 2)) * (high - low)]).tolist()
        objects = [SpatialObject(str(i), i % 7, x, y, (TERMS[i % 3],)) for i, (x, y) in enumerate(places)]
        store, twin = SegmentStore(space), Twin(space)
        store.append(ObjectBatch.of(objects))
        twin.append(objects)
        for keywords, after in (([], -1), ([], 2), (["a"], -1)):
            found = twin.range_query(polygon, keywords, after, 9)
            assert sorted(row[:4] for row in rows(store.range_query(polygon, keywords, after, 9))) == found
            assert counted(store, polygon, keywords, after, 9) == twin.term_counts(polygon, keywords, after, 9)
