"""The most frequent terms, counted over segments without summing all others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.local.snapshot import views
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.topterms import _kth
from spatialstream.local.snapshot.views import ObjectsView
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.regions import Box
from spatialstream.model.space import Space
from tests.lengths import examples
from tests.unit.local.snapshot.twin import Twin

SPACE = Space.planar(0.0, 0.0, 1.0, 1.0)
WEST = Box(0.0, 0.0, 0.5, 1.0)


def first(store: SegmentStore | ObjectsView, most: int | None, *query: Any) -> dict[str, int]:
    terms, counts = store.term_counts(*query, most)
    names = terms.to_pylist()
    assert len(set(names)) == len(names)
    return dict(zip(names, counts.tolist(), strict=True))


def expected(counts: dict[str, int], most: int) -> dict[str, int]:
    """What is not below the count at that place."""
    ranked = sorted(counts.values(), reverse=True)
    return {term: n for term, n in counts.items() if len(ranked) <= most or n >= ranked[most - 1]}


@st.composite
def streams(draw: st.DrawFn) -> list[list[SpatialObject]]:
    """Batches whose terms are as unequal as those of texts; some segments have words that no other has."""
    seed, words = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([3, 30, 300]))
    random, skew = np.random.default_rng(seed), draw(st.sampled_from([0.5, 1.0, 2.0]))
    weights = 1.0 / np.arange(1, words + 1) ** skew
    batches = []
    for i in range(draw(st.integers(1, 6))):
        batch = []
        for j in range(draw(st.sampled_from([1, 8, 60, 200]))):
            own = f"only{i}-" if draw(st.sampled_from([False] * 5 + [True])) and j % 2 else "w"
            ranks = random.choice(words, 5, p=weights / weights.sum())
            terms = tuple({f"{own}{rank}" for rank in ranks.tolist()})
            x, y = random.random(2).tolist()
            batch.append(SpatialObject(f"{i}-{j}", i, x, y, terms))
        batches.append(batch)
    return batches


@settings(max_examples=examples(60, 600))
@given(batches=streams(), most=st.sampled_from([1, 2, 3, 5, 20, 1000]), where=st.sampled_from([None, WEST]))
def test_they_are_the_first_of_all(batches: list[list[SpatialObject]], most: int, where: Box | None) -> None:
    store, twin = SegmentStore(SPACE, capacity=16), Twin(SPACE)
    for batch in batches:
        store.append(ObjectBatch.of(batch))
        twin.append(batch)
    for after, last in ((-1, 10), (0, 3)):
        for keywords in ((), ("w0",), ("!w1",)):
            counts = twin.term_counts(where, keywords, after, last)
            assert first(store, most, where, keywords, after, last) == expected(counts, most)
            assert first(store, None, where, keywords, after, last) == counts


@pytest.fixture
def skewed() -> tuple[SegmentStore, Twin]:
    """Three segments of which each has a hundred words that occur once, and ten that all have."""
    store, twin = SegmentStore(SPACE, capacity=1), Twin(SPACE)
    for i in range(3):
        batch = [
            SpatialObject(f"{i}-{j}", i, 0.1, 0.1, (*(f"often{n}" for n in range(10) if j % (n + 1) == 0), f"{i}.{j}"))
            for j in range(100)
        ]
        store.append(ObjectBatch.of(batch))
        twin.append(batch)
    assert store.segments == 3
    return store, twin


def test_few_terms_are_found_without_adding_up_all(skewed: tuple[SegmentStore, Twin]) -> None:
    store, twin = skewed
    view = store.view()
    assert first(view, 3, None, (), -1, 9) == {"often0": 300, "often1": 150, "often2": 102}
    assert not len(view._numbers)
    assert first(view, 11, None, (), -1, 9) == twin.term_counts(None, (), -1, 9)  # the eleventh occurs once, as 300 do
    assert len(view._numbers) == 310


def test_a_term_that_is_first_in_no_segment_is_among_the_first() -> None:
    """Each segment has two words that are more frequent there than the one that all have."""
    store = SegmentStore(SPACE, capacity=1)
    for i in range(3):
        batch = [
            SpatialObject(f"{i}-{j}", i, 0.1, 0.1, (f"{i}a", f"{i}b") if j < 60 else ("all", f"{i}.{j}"))
            for j in range(100)
        ]
        store.append(ObjectBatch.of(batch))
    assert first(store.view(), 1, None, (), -1, 9) == {"all": 120}


def test_zeros_are_left_as_they_were(skewed: tuple[SegmentStore, Twin]) -> None:
    store, twin = skewed
    for most in (1, 3, 11, 500):
        for where in (None, WEST, Box(0.9, 0.9, 1.0, 1.0)):
            assert first(store, most, where, (), -1, 9) == expected(twin.term_counts(where, (), -1, 9), most)
            assert views._spare
            assert not any(zeros.any() for zeros in views._spare)


def test_where_there_is_nothing_nothing_is_first(skewed: tuple[SegmentStore, Twin]) -> None:
    store, _ = skewed
    assert first(SegmentStore(SPACE), 3, None, (), -1, 9) == {}
    assert first(store, 3, None, (), 9, 20) == {}
    assert first(store, 3, Box(0.9, 0.9, 1.0, 1.0), (), -1, 9) == {}


@given(values=st.lists(st.integers(0, 600), min_size=1, max_size=50), data=st.data())
def test_the_kth_largest(values: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    assert _kth(np.array(values, np.int64), k) == sorted(values, reverse=True)[k - 1]
