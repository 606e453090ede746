"""What objects said in answers of CKQs: ties, choices of fields, and both after a checkpoint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.local.nearest.skyband import Arrivals, NearestMerger
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import StoredFields
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(0.0, 0.0, 9.0, 9.0)


def merger_of(*choices: tuple[str, ...] | None, k: int = 1) -> NearestMerger:
    """Queries 0, 1, ... about the origin, each with a choice of fields."""
    queries = [
        Query(f"q{i}", 0, Predicate(), Nearest(0.0, 0.0, k), Lifetime(100, True), fields=fields)
        for i, fields in enumerate(choices)
    ]
    merger = NearestMerger(PLANE)
    merger.register(np.arange(len(queries)), QueryBatch.of(queries))
    return merger


def arrivals(*texts: str, t: int = 5, number: int = 0) -> Arrivals:
    """Objects that differ in their text alone."""
    n = len(texts)
    stored = StoredFields.of([f'"text": "{text}", "n": {len(text)}' for text in texts])
    ids, ones = pa.array(["o"] * n, pa.string()), np.ones(n)
    return Arrivals(np.full(n, number), ids, np.full(n, t), ones, ones, ones, stored=stored)


def rows(merger: NearestMerger, given: Arrivals, horizon: int = 9) -> list[tuple[int, list[str]]]:
    found = []
    for changes in merger.changes(given, horizon):
        shown = changes.shown()
        assert shown is not None
        for i, number in enumerate(changes.number.tolist()):
            found.append((number, shown.to_pylist()[changes.offsets[i] : changes.offsets[i + 1]]))
    return found


def again(merger: NearestMerger) -> NearestMerger:
    files = MemoryFiles()
    return NearestMerger.restore(PLANE, merger.checkpoint(files.write), files.read)


def test_objects_that_are_alike_arrive_in_the_order_of_their_fields() -> None:
    a, b = '"text": "a", "n": 1', '"text": "b", "n": 1'
    assert rows(merger_of(None, k=2), arrivals("b", "a")) == [(0, [a]), (0, [a, b])]


@pytest.mark.parametrize("restored", [False, True])
def test_a_late_one_takes_the_place_that_its_fields_give_it(restored: bool) -> None:
    merger = merger_of(None)
    assert rows(merger, arrivals("m")) == [(0, ['"text": "m", "n": 1'])]
    merger = again(merger) if restored else merger
    assert rows(merger, arrivals("z"), 10) == []
    assert rows(merger, arrivals("b"), 11) == [(0, ['"text": "b", "n": 1'])]


def test_each_query_shows_what_it_chose_also_after_checkpoints() -> None:
    every = Arrivals.concat([arrivals("a", number=number) for number in range(3)])
    for merger in (merger_of(None, ("n",), ()), again(merger_of(None, ("n",), ()))):
        assert sorted(rows(merger, every)) == [(0, ['"text": "a", "n": 1']), (1, ['"n": 1']), (2, [""])]


def test_fields_outlive_the_objects_that_are_dropped_and_deltas_have_them() -> None:
    files, merger = MemoryFiles(), merger_of(None, k=2)
    rows(merger, arrivals("y", "x"))
    merger.checkpoint(files.write)
    rows(merger, arrivals("c", t=12), 20)
    merger = NearestMerger.restore(PLANE, merger.checkpoint(files.write), files.read)
    assert rows(merger, arrivals("d", t=21), 30) == [(0, ['"text": "d", "n": 1', '"text": "c", "n": 1'])]
    merger.checkpoint(files.write)


def test_a_stream_without_fields_shows_none() -> None:
    merger = merger_of(None)
    ones, ids = np.ones(1), pa.array(["o"])
    plain = Arrivals(np.zeros(1, np.int64), ids, np.full(1, 5), ones, ones, ones)
    (changes,) = merger.changes(plain, 9)
    assert changes.shown() is None
    files = MemoryFiles()
    merger.checkpoint(files.write)
    assert not any("stored" in name for arrays, _ in files.files.values() for name in arrays)
