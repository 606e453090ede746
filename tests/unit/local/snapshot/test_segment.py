"""A single segment: sizes at which nodes are split and have tables, bounds of distances, and serialized forms."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spatialstream.connectors.folder import Folder
from spatialstream.local import wordtable
from spatialstream.local.snapshot import segments
from spatialstream.local.snapshot.addresses import ARRAYS, Columns, columns_at, row_of
from spatialstream.local.snapshot.rows import ObjectRows
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import FAN_IN, SegmentStore
from spatialstream.local.snapshot.termtables import AGGREGATE
from spatialstream.local.snapshot.views import ObjectsView
from spatialstream.local.snapshot.zorder import grid_of
from spatialstream.local.snapshot.zranges import farthest, nearest_bound
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.model.geometry import distance
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.regions import Box, Circle, Region
from spatialstream.model.space import LARGEST, SMALLEST, WGS84, Space
from spatialstream.model.terms import TermLists
from tests.unit.flooding import Letters, colliding_words, fnv, longest_run, low_bits
from tests.unit.local.snapshot.twin import Twin
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(-2.0, -1.0, 2.0, 1.0)
FOREVER = (-(2**62), 2**62)


def crowd(space: Space, n: int, seed: int, words: int = 2000) -> list[SpatialObject]:
    """Objects in clusters, on the space's border, at one and the same place, and anywhere; ids and times repeat."""
    rng = np.random.default_rng(seed)
    low, high = np.array([space.west, space.south]), np.array([space.east, space.north])
    centres = rng.uniform(low, high, (5, 2))
    places = rng.uniform(low, high, (n, 2))
    kind = rng.integers(0, 10, n)
    places[kind < 5] = (centres[rng.integers(0, 5, n)] + rng.normal(0, 0.01, (n, 2)) * (high - low))[kind < 5]
    places[kind == 5] = centres[0]
    places[kind == 6, 0] = low[0]
    places[kind == 7, 1] = high[1]
    places = np.clip(places, low, high)
    terms = rng.zipf(1.2, (n, 5)) % words
    # the text goes with the place: some words are found in the west only
    terms[:, 4] = np.where(places[:, 0] < 0, words + 1, words + 2)
    times, names = np.sort(rng.integers(0, 1000, n)).tolist(), rng.integers(0, n, n).tolist()
    return [
        SpatialObject(str(name), t, x, y, tuple(dict.fromkeys(f"w{term}" for term in row)))
        for name, t, (x, y), row in zip(names, times, places.tolist(), terms.tolist(), strict=True)
    ]


def store_of(space: Space, *epochs: list[SpatialObject]) -> SegmentStore:
    """A store that has been given each list at once, and has merged nothing."""
    store = SegmentStore(space)
    for objects in epochs:
        store.append(ObjectBatch.of(objects))
    assert store.segments == len(epochs)
    return store


def rows(found: ObjectRows) -> list[Any]:
    return list(zip(found.t.tolist(), found.ids.to_pylist(), found.x.tolist(), found.y.tolist(), strict=True))


def answers(store: SegmentStore, *query: Any) -> list[Any]:
    return rows(store.range_query(*query))


def neighbours(store: SegmentStore, *query: Any) -> list[Any]:
    found = store.nearest(*query)
    assert found.distance is not None
    return [(distance, *row) for distance, row in zip(found.distance.tolist(), rows(found), strict=True)]


def term_counts(store: SegmentStore, *query: Any) -> dict[str, int]:
    terms, counts = store.term_counts(*query)
    names = terms.to_pylist()
    assert len(set(names)) == len(names)
    return dict(zip(names, counts.tolist(), strict=True))


@pytest.fixture(scope="module", params=[WGS84, PLANE], ids=str)
def large(request: pytest.FixtureRequest) -> tuple[Space, SegmentStore, Twin]:
    space: Space = request.param
    twin = Twin(space)
    twin.append(crowd(space, 5 * AGGREGATE, seed=1))
    return space, store_of(space, twin.objects), twin


def large_regions(space: Space) -> list[Region | None]:
    wide, high = space.east - space.west, space.north - space.south
    unit = 111_000.0 * wide / 4 if space.geographic else wide / 4
    regions: list[Region | None] = [
        None,
        Box(space.west, space.south, space.east, space.north),
        Box(space.west, space.south, 0.0, space.north),
        Box(space.west + 0.1 * wide, space.south + 0.1 * high, space.west + 0.6 * wide, space.north),
        Box(space.west, space.south, space.west, space.north),
        Circle(0.0, 0.0, 1.1 * unit),
        Circle(0.1, space.north, 0.8 * unit),
        Circle(space.east, 0.01, 0.5 * unit),
        Circle(0.0, 0.0, 9.0 * unit),
    ]
    if space.geographic:
        regions += [Box(100.0, -80.0, -20.0, 85.0), Circle(-179.0, -20.0, 3e6), Circle(60.0, -90.0, 4e6)]
    return regions


def test_regions_of_many_objects(large: tuple[Space, SegmentStore, Twin]) -> None:
    space, store, twin = large
    for region in large_regions(space):
        everything = twin.range_query(region, (), *FOREVER)
        assert answers(store, region, (), *FOREVER) == everything
        assert term_counts(store, region, (), *FOREVER) == twin.term_counts(region, (), *FOREVER)
    assert len(Segment.build(space, ObjectBatch.of(twin.objects)).columns.table_keys) > 4


def test_keywords_and_times_of_many_objects(large: tuple[Space, SegmentStore, Twin]) -> None:
    space, store, twin = large
    for region in large_regions(space)[3:6]:
        for keywords in [("w1",), ("w3", "w1"), ("w2001", "w1"), ("w2001", "w2002"), ("w777",)]:
            for after, last in [FOREVER, (100, 500)]:
                expected = twin.range_query(region, keywords, after, last)
                assert answers(store, region, keywords, after, last) == expected
        assert term_counts(store, region, ("w1",), *FOREVER) == twin.term_counts(region, ("w1",), *FOREVER)
        assert term_counts(store, region, (), 500, 600) == twin.term_counts(region, (), 500, 600)


def test_nearest_of_many_objects(large: tuple[Space, SegmentStore, Twin]) -> None:
    space, store, twin = large
    some = twin.objects[17]
    asked = [(1, ()), (300, ()), (10, ("w1",)), (10, ("w9", "w1")), (10, ("w2001", "w2002")), (9, ("w1999",))]
    for x, y in [(some.x, some.y), (space.west, space.north), (space.east, 0.0), (0.0, space.south)]:
        for k, keywords in asked:
            expected = twin.nearest(x, y, k, keywords, *FOREVER)
            assert neighbours(store, x, y, k, keywords, *FOREVER) == expected
    for bound in (expected[3][0], 0.0):
        assert neighbours(store, x, y, 9, keywords, *FOREVER, bound) == [row for row in expected if row[0] <= bound]
    assert neighbours(store, x, y, 5, ("w1",), 300, 301) == twin.nearest(x, y, 5, ("w1",), 300, 301)


def checked(store: SegmentStore, ask: Callable[[ObjectsView], Sized]) -> tuple[int, int]:
    """How many objects a query gives, and how many it checks for that."""
    view = store.view()
    found = len(ask(view))
    return found, view.checked


def test_a_search_does_not_look_at_everything() -> None:
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.of(crowd(PLANE, 20_000, seed=2)))
    box = Box(-0.1, -0.1, 0.1, 0.1)
    found, looked_at = checked(store, lambda each: each.range_query(box, ("w1",), *FOREVER))
    assert looked_at <= 2 * found + 100
    found, looked_at = checked(store, lambda each: each.nearest(0.0, 0.0, 10, ("w1",), *FOREVER))
    assert found == 10
    assert looked_at < 400
    assert checked(store, lambda each: each.term_counts(None, (), *FOREVER)[0])[1] == 0


def test_nodes_without_one_of_the_keywords_are_not_searched() -> None:
    rng = np.random.default_rng(3)
    west = [SpatialObject(f"w{i}", i, x, 0.5, ("a",)) for i, x in enumerate(rng.uniform(-2, -1, 3000).tolist())]
    east = [SpatialObject(f"e{i}", i, x, 0.5, ("b",)) for i, x in enumerate(rng.uniform(1, 2, 3000).tolist())]
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.of([*west, *east, SpatialObject("both", 1, 1.9, -0.9, ("a", "b"))]))
    found, looked_at = checked(store, lambda each: each.nearest(-1.5, 0.5, 3, ("a", "b"), *FOREVER))
    assert found == 1
    assert looked_at < 100


@pytest.mark.parametrize("n", [1, 3, 9000])
def test_objects_of_one_place(n: int) -> None:
    store = store_of(WGS84, [SpatialObject("same", i, 7.0, -7.0, ("a",) if i % 3 else ()) for i in range(n)])
    assert len(store.range_query(Box(7.0, -7.0, 7.0, -7.0), (), *FOREVER)) == n
    assert len(store.range_query(Circle(7.0, -7.0, 0.0), ("a",), *FOREVER)) == n - (n + 2) // 3
    assert term_counts(store, None, (), *FOREVER) == ({"a": n - (n + 2) // 3} if n > 1 else {})
    latest = [t for _, t, *_ in neighbours(store, 7.0, -7.0, 3, (), *FOREVER)]
    assert latest == sorted(range(n), reverse=True)[:3]


def test_no_objects() -> None:
    assert len(Segment.build(WGS84, ObjectBatch.of([]))) == 0
    store = SegmentStore(WGS84)
    store.append(ObjectBatch.of([]))
    assert len(store) == 0
    assert answers(store, None, (), *FOREVER) == []
    assert neighbours(store, 0.0, 0.0, 5, (), *FOREVER) == []
    assert term_counts(store, None, (), *FOREVER) == {}


@pytest.mark.parametrize("extent", [SMALLEST, 1e-12, LARGEST])
def test_extents_at_the_limits_of_planes(extent: float) -> None:
    space = Space.planar(-extent, -extent, extent, extent)
    twin = Twin(space)
    places = [-extent, -extent / 3, 0.0, extent / 2, extent]
    twin.append(
        [SpatialObject(f"{i}{j}", i, x, y, ("a",)) for i, x in enumerate(places) for j, y in enumerate(places)] * 20
    )
    store = store_of(space, twin.objects)
    for box in [Box(-extent / 3, -extent, extent / 2, 0.0), Box(0.0, 0.0, 0.0, 0.0)]:
        assert answers(store, box, ("a",), *FOREVER) == twin.range_query(box, ("a",), *FOREVER)
    assert neighbours(store, 0.0, extent, 30, (), *FOREVER) == twin.nearest(0.0, extent, 30, (), *FOREVER)


def test_sets_of_many_terms_and_of_a_large_vocabulary() -> None:
    words = [f"t{i}" for i in range(70_000)]
    objects = [
        SpatialObject("all", 0, 0.0, 0.0, tuple(words)),
        SpatialObject("last", 1, 0.0, 0.0, tuple(words[::-7000])),
    ]
    several = SegmentStore(PLANE)
    for _ in range(FAN_IN):
        several.append(ObjectBatch.of(objects))
    assert several.segments == 1
    for each, times in ((store_of(PLANE, objects), 1), (store_of(PLANE, objects, objects), 2), (several, FAN_IN)):
        counts = term_counts(each, None, (), *FOREVER)
        assert counts == dict.fromkeys(words, times) | dict.fromkeys(words[::-7000], 2 * times)
        assert len(each.range_query(None, (words[-1], words[-7001]), *FOREVER)) == 2 * times
        assert len(each.range_query(None, (words[0], words[69_998]), *FOREVER)) == times


def test_what_was_merged_answers_as_its_objects() -> None:
    objects = crowd(PLANE, 300, seed=4, words=30)
    store, twin = SegmentStore(PLANE), Twin(PLANE)
    for start in range(0, 300, 30):
        store.append(ObjectBatch.of(objects[start : start + 30]))
        twin.append(objects[start : start + 30])
    assert store.segments == 10 - FAN_IN + 1
    assert answers(store, None, ("w1",), *FOREVER) == twin.range_query(None, ("w1",), *FOREVER)
    assert term_counts(store, None, (), *FOREVER) == twin.term_counts(None, (), *FOREVER)


def test_kernels_see_every_column_of_a_table_as_it_is() -> None:
    segment = Segment.build(PLANE, ObjectBatch.of(crowd(PLANE, 50, seed=9))).columns
    table = np.concatenate([row_of(Columns.times_only(3, 7)), row_of(segment)])
    assert columns_at(table, 0)[-3:] == (0, 3, 7)
    for seen, column in zip(columns_at(table, 1), segment, strict=True):
        assert np.array_equal(seen, column)
        assert not isinstance(column, np.ndarray) or seen.dtype == column.dtype


def test_views_of_larger_arrow_arrays() -> None:
    objects = crowd(PLANE, 50, seed=5, words=9)
    wire = ObjectBatch.of(objects).to_arrow()
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.from_arrow(wire.slice(20, 10)))
    twin = Twin(PLANE)
    twin.append(objects[20:30])
    assert answers(store, None, (), *FOREVER) == twin.range_query(None, (), *FOREVER)
    assert term_counts(store, None, (), *FOREVER) == twin.term_counts(None, (), *FOREVER)


def test_a_mapped_file_is_the_same_segment(tmp_path: Path) -> None:
    segment = Segment.build(WGS84, ObjectBatch.of(crowd(WGS84, 2000, seed=6)))
    storage = Folder(tmp_path)
    storage.put("segment", *pack_arrays(segment.to_arrays()))
    mapped = Segment.from_arrays(WGS84, unpack_arrays(storage.get("segment"), "segment")[0])
    assert (len(mapped), mapped.t_min, mapped.t_max) == (2000, segment.t_min, segment.t_max)
    assert mapped.nbytes == segment.nbytes
    for name in ARRAYS:
        assert np.array_equal(getattr(mapped.columns, name), getattr(segment.columns, name))


def test_offsets_beyond_31_bits_are_refused() -> None:
    huge = (np.array([0, 2**30 + 1], np.int32), np.broadcast_to(np.uint8(0), 2**30 + 1))
    with pytest.raises(OverflowError):
        wordtable.concatenate([huge, huge])


def folded_fnv(letters: Letters) -> npt.NDArray[np.uint64]:
    """Where words lie in a table of 2^13 places, if only their bytes decide."""
    state = fnv(letters)
    return low_bits((state ^ state >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD) >> np.uint64(33), 13)


def test_no_choice_of_words_fills_one_part_of_the_vocabulary_s_table() -> None:
    words = colliding_words(4000, 9, folded_fnv)
    objects = [SpatialObject(f"o{i}", i, 0.0, 0.0, (word,)) for i, word in enumerate(words)]
    segment = Segment.build(PLANE, ObjectBatch.of(objects))
    table = segment.columns.slots[-wordtable.room_of(segment.columns.slots) :]
    assert longest_run(table >= 0) < 200
    store = store_of(PLANE, objects)
    assert answers(store, None, (words[7],), *FOREVER) == answers(store, None, (), 6, 7)


longitudes = st.sampled_from([-180.0, -90.0, 0.0, 90.0, 179.9999, 180.0]) | st.floats(-180, 180)
latitudes = st.sampled_from([-90.0, -89.9999, 0.0, 45.0, 90.0]) | st.floats(-90, 90)
shares = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1)


@given(longitudes, latitudes, longitudes, longitudes, latitudes, latitudes, shares, shares)
@example(10.0, 20.0, -170.0, -170.0, -20.0, -20.0, 0.0, 0.0)
@example(180.0, 0.0, -180.0, -179.0, 0.0, 0.0, 0.0, 0.0)
def test_bounds_of_distance_to_a_box_in_degrees(
    x: float, y: float, a: float, b: float, c: float, d: float, right: float, up: float
) -> None:
    check_bounds(True, x, y, a, b, c, d, right, up)


@given(longitudes, latitudes, st.floats(0, 1e-3), shares, shares)
def test_bounds_of_distance_near_the_antipode(x: float, y: float, size: float, right: float, up: float) -> None:
    opposite = x - 180.0 if x > 0 else x + 180.0
    west, south = max(-180.0, opposite - size), max(-90.0, -y - size)
    check_bounds(True, x, y, west, min(180.0, opposite + size), south, min(90.0, -y + size), right, up)


@given(*[st.floats(-1e6, 1e6)] * 6, shares, shares)
def test_bounds_of_distance_to_a_box_in_the_plane(
    x: float, y: float, a: float, b: float, c: float, d: float, right: float, up: float
) -> None:
    check_bounds(False, x, y, a, b, c, d, right, up)


def check_bounds(
    geographic: bool, x: float, y: float, a: float, b: float, c: float, d: float, right: float, up: float
) -> None:
    (west, east), (south, north) = sorted((a, b)), sorted((c, d))
    px = min(max(west + right * (east - west), west), east)
    py = min(max(south + up * (north - south), south), north)
    true = distance(geographic, x, y, px, py)
    box = (west, south, east, north)
    assert nearest_bound(geographic, x, y, box) <= true <= farthest(geographic, x, y, box)


def test_the_bounds_are_close_to_the_distance() -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        x, y, px, py = rng.uniform([-180, -90] * 2, [180, 90] * 2)
        true = distance(True, x, y, px, py)
        box = (px, py, px, py)
        assert nearest_bound(True, x, y, box) == pytest.approx(true, abs=2.0)
        assert farthest(True, x, y, box) == pytest.approx(true, abs=2.0)


def test_the_grid_is_that_of_the_bounding_box() -> None:
    grid = grid_of(np.array([1.0, 3.0, 2.0]), np.array([5.0, 5.0, 5.0]))
    assert grid.tolist() == [1.0, 5.0, 3.0, 5.0, 32768.0, 0.0]


SEARCHES = "addresses zorder termlists zranges nearest termtables rows segment segments signatures views"
KERNELS = ["arrays", "wordtable", *(f"snapshot.{name}" for name in SEARCHES.split())]


def test_every_kernel_is_compiled_before_use() -> None:
    segments.prepare()
    kernels = {
        f"{name}.{value.__name__}": value
        for name in KERNELS
        for value in vars(importlib.import_module(f"spatialstream.local.{name}")).values()
        if hasattr(value, "nopython_signatures")
    }
    before = {name: len(kernel.signatures) for name, kernel in kernels.items()}
    files = MemoryFiles()
    store = SegmentStore(WGS84, 100)
    for start in range(0, 400, 40):
        store.append(ObjectBatch.from_arrow(ObjectBatch.of(crowd(WGS84, 400, seed=8)[start : start + 40]).to_arrow()))
        store = SegmentStore.restore(WGS84, store.checkpoint(files.write), files.read)
    for region in (None, Box(0.0, 0.0, 90.0, 90.0), Box(170.0, -10.0, -170.0, 10.0), Circle(179.0, 0.0, 1e6)):
        for keywords in ((), ("w1",), ("w1", "w2", "w3")):
            store.range_query(region, keywords, *FOREVER)
            store.nearest(0.0, 0.0, 3, keywords, *FOREVER)
            store.nearest(0.0, 0.0, 3, keywords, 0, 3, 5.0)
            store.term_counts(region, keywords, *FOREVER)
    assert {name: len(kernel.signatures) for name, kernel in kernels.items()} == before


def test_an_empty_vocabulary() -> None:
    store = SegmentStore(PLANE)
    store.append(
        ObjectBatch(pa.array(["1", ""]), np.array([1, 2], np.int64), np.zeros(2), np.ones(2), TermLists.empty(2))
    )
    assert len(store.range_query(None, (), *FOREVER)) == 2
    assert len(store.range_query(None, ("a",), *FOREVER)) == 0
    assert term_counts(store, None, (), *FOREVER) == {}
