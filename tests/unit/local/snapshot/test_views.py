"""Views of a store of segments: their answers do not change with the store, nor with concurrent queries."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.local.snapshot import views
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.views import ObjectsView, _Table
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples
from tests.unit.local.snapshot.test_segments import (
    PLANE,
    batches,
    counted,
    epoch,
    keyword_lists,
    points,
    regions,
    rows,
    times,
)
from tests.unit.local.snapshot.twin import Twin
from tests.unit.memory_files import MemoryFiles

FOREVER = (-(2**62), 2**62)


def copy(twin: Twin) -> Twin:
    other = Twin(twin.space)
    other.append(twin.objects)
    return other


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
@settings(max_examples=examples(40, 400))
@given(data=st.data())
def test_a_view_answers_as_the_store_did(space: Space, data: st.DataObject) -> None:
    files, twin = MemoryFiles(), Twin(space)
    interval, capacity = data.draw(st.sampled_from([None, 1, 4])), data.draw(st.sampled_from([8, 64, 1 << 20]))
    store, taken = SegmentStore(space, interval, capacity), list[tuple[ObjectsView, Twin]]()
    for _ in range(data.draw(st.integers(1, 12))):
        batch = data.draw(batches(space))
        store.append(ObjectBatch.of(batch))
        twin.append(batch)
        match data.draw(st.integers(0, 4)):
            case 0:
                store.drop_before(data.draw(st.integers(0, 6)))
                twin.drop_before(store.floor)
            case 1:
                store = SegmentStore.restore(space, store.checkpoint(files.write), files.read)
        twin.drop_before(store.floor)
        if data.draw(st.booleans()):
            taken.append((store.view(), copy(twin)))
    for view, then in taken:
        region, keywords, (after, last) = data.draw(regions(space)), data.draw(keyword_lists), data.draw(times)
        x, y = data.draw(points(space))
        for _ in range(2):  # what a query leaves behind does not change the next one
            assert rows(view.range_query(region, keywords, after, last)) == then.range_query(
                region, keywords, after, last
            )
            assert counted(view, region, keywords, after, last) == then.term_counts(region, keywords, after, last)
            assert rows(view.nearest(x, y, 3, keywords, after, last)) == then.nearest(x, y, 3, keywords, after, last)


def test_views_are_asked_while_the_store_goes_on() -> None:
    """Readers keep asking views, some of which are not loaded, while segments come, are merged and leave."""
    store, twin, files = SegmentStore(PLANE, interval=1000, capacity=400), Twin(PLANE), MemoryFiles()
    taken: list[tuple[ObjectsView, Twin]] = []
    wrong: list[Any] = []
    over = threading.Event()

    def read(seed: int) -> None:
        rng, asked = random.Random(seed), 0
        try:
            while not over.is_set() or asked < 50:
                if not taken:
                    continue
                view, then = rng.choice(taken[-6:])
                after = rng.randrange(-1, 4000)
                window = (after, after + rng.choice([50, 500, 5000]))
                match rng.randrange(3):
                    case 0:
                        found, right = rows(view.range_query(None, ["a"], *window)), then.range_query
                        assert found == right(None, ["a"], *window)
                    case 1:
                        assert counted(view, None, [], *window) == then.term_counts(None, [], *window)
                    case 2:
                        found = rows(view.nearest(0.1, 0.1, 5, ["b"], *window))
                        assert found == then.nearest(0.1, 0.1, 5, ["b"], *window)
                asked += 1
        except (AssertionError, ValueError, IndexError, TypeError) as error:
            wrong.append(error)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for reader in readers:
        reader.start()
    for seed in range(120):
        batch = epoch(12, seed % 40)
        store.append(batch)
        twin.append([batch[i] for i in range(len(batch))])
        if seed % 10 == 9:
            store = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
        if seed % 25 == 24:
            store.drop_before(seed * 20)
        twin.drop_before(store.floor)
        store.term_counts(None, [], *FOREVER)
        taken.append((store.view(), copy(twin)))
    over.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_a_view_reads_what_it_needs_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    files, names = MemoryFiles(), []
    store = SegmentStore(PLANE, interval=100)
    for seed in range(3):
        store.append(epoch(4, seed))
    manifest = store.checkpoint(files.write)

    def read(name: str) -> Any:
        names.append(name)
        return files.read(name)

    restored = SegmentStore.restore(PLANE, manifest, read)
    view = restored.view()
    assert names == []
    assert len(view.range_query(None, [], 99, 199)) == 4
    assert len(restored.range_query(None, [], 99, 199)) == 4
    assert names == [manifest["segments"][1]["file"]]


def restored_of(epochs: int) -> tuple[SegmentStore, MemoryFiles]:
    """A store whose segments are in files, one of each epoch."""
    files = MemoryFiles()
    store = SegmentStore(PLANE, interval=100)
    for seed in range(epochs):
        store.append(epoch(4, seed))
    manifest = store.checkpoint(files.write)
    return SegmentStore.restore(PLANE, manifest, files.read), files


def test_threads_that_need_a_segment_at_once_get_the_same() -> None:
    """Kernels read it by address: a second one in its place would free the first under whoever reads that."""
    store, files = restored_of(1)
    (part,) = store._parts
    both, found = threading.Barrier(2), list[Segment]()

    def read(name: str) -> Segment:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # as far as two can be here
        return Segment.from_arrays(PLANE, files.read(name)[0])

    part.load = read
    threads = [threading.Thread(target=lambda: found.append(part.loaded())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is part.segment


@pytest.mark.parametrize("kind", ["range", "nearest", "terms"])
def test_what_a_kernel_reads_is_held_though_another_thread_needs_more(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = restored_of(2)
    view = store.view()
    held = []

    def meanwhile(kernel: Any) -> Any:
        def search(rows: Any, *arguments: Any) -> Any:
            if not held:
                held.append(False)
                assert len(view.range_query(None, [], 99, 199)) == 4  # which reads another segment
                held[0] = any(isinstance(each, _Table) and each.rows is rows for each in gc.get_objects())
            return kernel(rows, *arguments)

        return search

    monkeypatch.setattr(views, "search", meanwhile(views.search))
    monkeypatch.setattr(views, "search_nearest", meanwhile(views.search_nearest))
    if kind == "range":
        assert len(view.range_query(None, [], -1, 99)) == 4
    elif kind == "nearest":
        assert len(view.nearest(0.0, 0.0, 9, [], -1, 99)) == 4
    else:
        assert counted(view, None, ["!nowhere"], -1, 99)
    assert held == [True]


def test_a_segment_is_held_by_views_alone_and_goes_with_the_last() -> None:
    store = SegmentStore(PLANE)
    store.append(epoch(10, 0))
    (segment,) = [part.segment for part in store._parts]
    view = store.view()
    assert counted(view, None, [], *FOREVER)
    store.drop_before(10**6)
    assert counted(store, None, [], *FOREVER) == {}
    assert len(rows(view.range_query(None, [], *FOREVER))) == 10
    gc.collect()
    assert any(each is segment for each in gc.get_objects() if isinstance(each, Segment))
    name = id(segment)
    del view, segment
    gc.collect()
    assert not any(id(each) == name for each in gc.get_objects() if isinstance(each, Segment))


def test_a_count_that_fails_leaves_nothing_wrong_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    store, twin = SegmentStore(PLANE), Twin(PLANE)
    for seed in range(3):
        batch = epoch(10, seed)
        store.append(batch)
        twin.append([batch[i] for i in range(len(batch))])
    view = store.view()

    def failing(rows: Any, asked: Any, *state: Any) -> Any:
        rows_counted(rows, asked, *state)  # it has given numbers, and does not say which
        raise MemoryError

    from spatialstream.local.snapshot import views

    rows_counted = views.count_words
    with monkeypatch.context() as patch:
        patch.setattr(views, "count_words", failing)
        with pytest.raises(MemoryError):
            view.term_counts(None, [], *FOREVER)
    assert counted(view, None, [], *FOREVER) == twin.term_counts(None, [], *FOREVER)
