"""Corpus tables count what all objects have, for any partitions and epochs, with late objects and leaving ones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.model.errors import Missing, StateError
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.ranking.weights import weight
from spatialstream.stages.corpus import (
    CORPUS,
    KEPT,
    CorpusCounts,
    CorpusTables,
    Tally,
    drop_tables,
    kept_tables,
    load_table,
    write_parts,
    write_tables,
)
from spatialstream.stages.turns import Counted, Epoch

WORDS = ("a", "b", "c", "水")


class Files:
    """Files of a checkpoint."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[Any, Any]] = {}

    def write(self, kind: str, arrays: Any, meta: Any = None) -> str:
        name = f"{len(self.known)}-{kind}"
        self.known[name] = {each: array.copy() for each, array in arrays.items()}, meta
        return name

    def read(self, name: str) -> tuple[Any, Any]:
        return self.known[name]


def words_of(tally: Tally) -> Counter[str]:
    words, counts = tally.sum()
    return Counter(dict(zip(words.to_pylist(), counts.tolist(), strict=True)))


def expected(objects: list[SpatialObject], at: int, interval: int, intervals: int) -> tuple[int, Counter[str]]:
    there = [o for o in objects if o.t <= at and (not intervals or o.t > at - intervals * interval)]
    return len(there), Counter(word for o in there for word in o.terms)


objects_at = st.builds(
    lambda t, terms: SpatialObject("o", t, 0.0, 0.0, tuple(terms)),
    st.integers(-30, 60),
    st.lists(st.sampled_from(WORDS), max_size=3, unique=True),
)
steps = st.lists(st.tuples(st.lists(objects_at, max_size=6), st.integers(0, 4), st.booleans()), max_size=8)


@given(steps, st.sampled_from([1, 3, 10]), st.sampled_from([0, 1, 2, 5]), st.sampled_from([1, 2, 3]))
def test_a_table_counts_what_has_come_until_it_is_written(
    given_: list[tuple[list[SpatialObject], int, bool]], interval: int, intervals: int, partitions: int
) -> None:
    parts = [CorpusCounts(interval, intervals) for _ in range(partitions)]
    come, at, files = list[SpatialObject](), -20 // interval * interval, Files()
    for objects, further, again in given_:
        for part, counts in enumerate(parts):
            if mine := objects[part::partitions]:
                counts.add(ObjectBatch.of(mine))
        come += objects
        if again:
            manifests = [counts.checkpoint(files.write) for counts in parts]
            parts = [CorpusCounts.restore(interval, intervals, each, files.read) for each in manifests]
        if further:
            at += further * interval
            whole = Tally()
            for counts in parts:
                whole.merge(counts.table(at))
            assert (whole.objects, words_of(whole)) == expected(come, at, interval, intervals)


def test_an_object_at_a_multiple_of_the_interval_counts_in_its_table() -> None:
    counts = CorpusCounts(10, 0)
    counts.add(ObjectBatch.of([SpatialObject("o", t, 0.0, 0.0, ("a",)) for t in (0, 1, 10, 11)]))
    assert [counts.table(at).objects for at in (0, 10, 20)] == [1, 3, 4]


def test_a_checkpoint_writes_only_what_has_changed() -> None:
    counts, files = CorpusCounts(10, 5), Files()
    counts.add(ObjectBatch.of([SpatialObject("o", t, 0.0, 0.0, ("a",)) for t in (1, 11, 21)]))
    counts.checkpoint(files.write)
    before = len(files.known)
    counts.add(ObjectBatch.of([SpatialObject("o", 22, 0.0, 0.0, ("b",))]))
    counts.checkpoint(files.write)
    assert (before, len(files.known)) == (4, 5)


def epoch_of(number: int, after: int, watermark: int, partitions: int = 2) -> Epoch:
    return Epoch(number, partitions, after, watermark, 0, None, (), (), (), counted=Counted(10, 0))


def tally_of(*texts: str) -> Tally:
    tally = Tally()
    for text in texts:
        terms = text.split()
        tally.add(1, pa.array(terms, pa.string()), np.ones(len(terms), np.int64))
    return tally


def test_a_table_adds_up_its_parts_and_keeps_words_of_two_objects() -> None:
    storage, epoch = MemoryStorage(), epoch_of(4, 5, 17)
    write_parts(epoch, 0, [(10, tally_of("a b", "a"))], storage)
    write_parts(epoch, 1, [(10, tally_of("b c", "d"))], storage)
    write_tables(epoch, storage)
    table = load_table(storage, 10)
    assert (table.at, table.objects, table.words.to_pylist()) == (10, 4, ["a", "b"])
    assert table.weights_of(["b", "c", "nobody's"]).tolist() == [weight(4, 2), weight(4, 1), weight(4, 1)]
    assert storage.list(CORPUS) == [f"{CORPUS}10.arrays"]


def test_a_try_that_comes_late_changes_nothing() -> None:
    storage, epoch = MemoryStorage(), epoch_of(4, 5, 17, 1)
    for _ in range(2):  # the second time, as after a crash
        write_parts(epoch, 0, [(10, tally_of("a", "a"))], storage)
        write_tables(epoch, storage)
        before = storage.get(f"{CORPUS}10.arrays").to_pybytes()
        write_tables(epoch, storage)
        assert storage.list(CORPUS) == [f"{CORPUS}10.arrays"]
        assert storage.get(f"{CORPUS}10.arrays").to_pybytes() == before


def test_without_its_parts_a_table_cannot_be_written() -> None:
    with pytest.raises(Missing):
        write_tables(epoch_of(4, 5, 17), MemoryStorage())


def test_an_epoch_that_passes_no_multiple_writes_no_table() -> None:
    storage = MemoryStorage()
    write_tables(epoch_of(4, 11, 19), storage)
    assert storage.list(CORPUS) == []


def test_a_query_reads_the_last_table_that_is_not_after_it_or_the_oldest() -> None:
    storage = MemoryStorage()
    for number, at in enumerate((-10, 0, 20)):
        epoch = epoch_of(number, at - 1, at, 1)
        write_parts(epoch, 0, [(at, tally_of("a", "a"))], storage)
        write_tables(epoch, storage)
    tables = CorpusTables.among(storage, [-10, 0, 20])
    assert tables is not None
    assert [tables.of(t).at for t in (-20, -10, -1, 0, 19, 20, 99)] == [-10, -10, -10, 0, 0, 20, 20]
    assert CorpusTables.among(storage, []) is None


def test_the_last_tables_up_to_a_watermark_are_kept_and_all_later_ones() -> None:
    storage = MemoryStorage()
    for at in (-10, 0, 10, 20, 30, 40, 50):
        write_parts(epoch_of(at, at - 1, at, 1), 0, [(at, tally_of("a"))], storage)
        write_tables(epoch_of(at, at - 1, at, 1), storage)
    drop_tables(storage, 35)
    assert sorted(int(name[len(CORPUS) : -len(".arrays")]) for name in storage.list(CORPUS)) == [10, 20, 30, 40, 50]
    with pytest.raises(Missing):
        load_table(storage, 0)
    assert kept_tables((10, 20, 30), [40, 50]) == ((10, 20, 30, 40, 50), (30, 40, 50)[-KEPT:])


def test_a_damaged_table_is_an_error() -> None:
    storage = MemoryStorage()
    storage.put(f"{CORPUS}10.arrays", b"something else")
    with pytest.raises(StateError, match="is not an array file"):
        load_table(storage, 10)


def test_a_table_is_the_same_after_it_was_stored() -> None:
    table = CorpusTable.of(7, 9, pa.array(["a", "b", "水"]), np.array([1, 9, 3]))
    again = CorpusTable.from_arrays(*table.to_arrays())
    assert (again.at, again.objects, again.words.to_pylist()) == (7, 9, ["b", "水"])
    assert again.weights.tolist() == table.weights.tolist() == [0, weight(9, 3)]
