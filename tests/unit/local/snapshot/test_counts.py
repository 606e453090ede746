"""Occurrences of terms in segments: what is kept is what came, through merges, files and the archive."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import FAN_IN, SegmentStore
from spatialstream.local.snapshot.termlists import decode_counts
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.space import Space
from tests.streams import repeated
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)


def objects_of(seed: int, n: int, words: int, most: int) -> list[SpatialObject]:
    chance = random.Random(seed)
    found = []
    for i in range(n):
        terms = tuple(f"w{number}" for number in chance.sample(range(words), chance.randrange(most + 1)))
        found.append(repeated(SpatialObject(f"o{i}", i, chance.random(), chance.random(), terms), chance))
    return found


def said(objects: Any) -> dict[str, dict[str, int]]:
    """By object, how often it has each term."""
    return {o.id: dict(zip(o.terms, o.counts, strict=True)) for o in objects}


def left(store: SegmentStore) -> dict[str, dict[str, int]]:
    return said(batch[i] for batch in store.leaving(10**6) for i in range(len(batch)))


@given(st.integers(0, 10**9), st.integers(1, 60), st.integers(0, 6))
def test_a_store_keeps_them_through_merges_and_files(seed: int, n: int, most: int) -> None:
    objects = objects_of(seed, n, 12, most)
    store, files = SegmentStore(PLANE, capacity=16), MemoryFiles()
    for first in range(0, n, 5):
        store.append(ObjectBatch.of(objects[first : first + 5]))
    assert store.segments < -(-n // 5) or n <= 5 * (FAN_IN - 1)
    again = SegmentStore.restore(PLANE, store.checkpoint(files.write), files.read)
    assert left(store) == left(again) == said(objects)


def test_rare_terms_take_three_units_and_have_their_occurrences() -> None:
    chance = random.Random(1)
    common = [SpatialObject(f"c{i}", i, 0.5, 0.5, (f"often{i}",)) for i in range(70_000)]
    objects = [repeated(o, chance) for o in [*common, *common]]
    objects = [SpatialObject(f"{i}", i, o.x, o.y, o.terms, counts=o.counts) for i, o in enumerate(objects)]
    objects += objects_of(2, 300, 20_000, 6)
    one = Segment.build(PLANE, ObjectBatch.of(objects[:100_000]))
    both = Segment.merge([one, Segment.build(PLANE, ObjectBatch.of(objects[100_000:]))])
    assert len(both.columns.units) > len(both.columns.postings), "some codes are escaped"
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.of(objects))
    assert left(store) == said(objects)
    counts = decode_counts(both.columns.units, both.columns.counts)
    assert len(counts) == len(both.columns.postings)
    assert counts.sum() == sum(sum(o.counts) for o in objects)


@pytest.mark.parametrize("counted", [False, True])
def test_they_take_a_byte_a_term_and_nothing_where_they_are_not_counted(counted: bool) -> None:
    objects = objects_of(3, 500, 40, 6)
    plain = [SpatialObject(o.id, o.t, o.x, o.y, o.terms) for o in objects]
    bare = Segment.build(PLANE, ObjectBatch.of(plain))
    segment = Segment.build(PLANE, ObjectBatch.of(objects)) if counted else bare
    arrays, others = segment.to_arrays(), bare.to_arrays()
    assert segment.nbytes == bare.nbytes + counted * sum(len(o.terms) for o in objects)
    assert ("counts" in others, arrays.keys() - others.keys()) == (False, {"counts"} if counted else set())
    assert all(np.array_equal(arrays[name], others[name]) for name in others)
    assert Segment.from_arrays(PLANE, arrays).nbytes == segment.nbytes
