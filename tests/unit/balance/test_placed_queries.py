"""What CKQs bring to slots if each is on one, against a look at each pair."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.placed_queries import PlacedQueries
from spatialstream.balance.planner import plan, whole
from spatialstream.balance.query_partition import dealt_evenly
from spatialstream.balance.settings import DKM, SETTLE, BalanceSettings
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from tests.unit.index.samples import PLANE, query

SLOTS = 3


def asked(keywords: list[str]) -> QueryBatch:
    """CKQs with these words, each at a place of its own."""
    made = [query("CKQ", None, each, at=(i % 40 / 10.0, i // 40 / 10.0), k=3) for i, each in enumerate(keywords)]
    return QueryBatch.of([replace(each, id=f"q{i}", t=i) for i, each in enumerate(made)])


def said(words: list[str]) -> ObjectBatch:
    """Objects with these words."""
    return ObjectBatch.of([SpatialObject(f"o{i}", i, i % 4, 1.0, tuple(each)) for i, each in enumerate(words)])


@given(
    st.lists(st.sampled_from(["", "a", "b", "c", "ab", "ac", "z"]), max_size=12),
    st.lists(st.sampled_from(["", "a", "b", "ab", "abc", "bc"]), min_size=1, max_size=20),
)
def test_of_ckqs_that_are_all_known_a_slot_gets_the_objects_with_a_word_of_theirs(keywords, words):
    queries, objects, partition = asked(keywords), said(words), dealt_evenly(PLANE, SLOTS)
    found = PlacedQueries.of(partition, queries, np.ones(len(queries)), objects, SLOTS)

    often = {word: sum(word in each for each in words) for word in "abcz"}
    slot = partition.slots_of(queries)
    assert (found.slot == slot).all()
    for i, has in enumerate(words):
        for each in range(SLOTS):
            here = [keywords[j] for j in range(len(keywords)) if slot[j] == each]
            rarest = [min(mine, key=lambda word: (often[word], word), default="") for mine in here]
            ties = any(len({often[word] for word in mine}) < len(mine) for mine in here)
            if not ties:
                assert found.copied[i, each] == (any(word in has for word in rarest if word) or "" in here)


def test_the_ckqs_that_a_sampled_one_stands_for_may_be_anywhere():
    """Of 2,000 CKQs half are known: how many slots have a word is estimated."""
    random, partition = np.random.default_rng(3), dealt_evenly(PLANE, 16)
    letters = [chr(ord("A") + int(each)) for each in random.zipf(1.3, 2_000).clip(max=50)]
    queries, objects = asked(letters), said([chr(ord("A") + i) for i in range(1, 51)])
    true = PlacedQueries.of(partition, queries, np.ones(2_000), objects, 16).copied.sum()
    half = queries.take(np.arange(0, 2_000, 2))
    some = PlacedQueries.of(partition, half, np.ones(1_000), objects, 16).copied.sum()
    estimated = PlacedQueries.of(partition, half, np.full(1_000, 2.0), objects, 16).copied.sum()
    assert some < 0.9 * true
    assert estimated == pytest.approx(true, rel=0.05)


def workload(rare: bool, registered: int):
    """1,200 objects with a word of ten and one of their own; CKQs ask for one or the other."""
    random = np.random.default_rng(5)
    at = 4.0 * random.random((1_200, 2))
    common = random.integers(0, 10, 1_200)
    objects = [
        SpatialObject(f"o{i}", i, *place, (f"w{word}", f"r{i}"))
        for i, (place, word) in enumerate(zip(at.tolist(), common.tolist(), strict=True))
    ]
    made = []
    for i, row in enumerate(random.integers(0, 1_200, registered).tolist()):
        ckq = query("CKQ", None, "", at=tuple(at[row].tolist()), k=3, duration=10**9)
        word = f"r{row}" if rare else f"w{common[row]}"
        made.append(replace(ckq, id=f"q{i}", t=i, predicate=replace(ckq.predicate, keywords=(word,))))
    return whole(PLANE, ObjectBatch.of(objects), QueryBatch.of(made))


@pytest.mark.parametrize(("rare", "registered", "better"), [(False, 600, SETTLE), (True, 6_000, DKM)])
def test_ckqs_are_on_one_slot_where_registering_costs_more_than_copies(rare, registered, better):
    found = plan(workload(rare, registered), 4, BalanceSettings(leaves=64), nearest=(SETTLE, DKM))

    assert {each.nearest for each in found.table} == {SETTLE, DKM}
    assert found.nearest == better
    least = min(found.table, key=lambda each: each.seconds)
    assert least.nearest == better
    assert f"and {SETTLE}" in found.reason
    assert f"and {DKM}" in found.reason
    settle, dkm = ([each for each in found.table if each.nearest == name] for name in (SETTLE, DKM))
    for one, other in zip(settle, dkm, strict=True):
        assert (one.kind, one.wanted, one.leaves) == (other.kind, other.wanted, other.leaves)
        assert one.copies == 0.0 < other.copies
        assert one.entries == pytest.approx(registered, rel=0.1)
        assert other.entries == pytest.approx(registered / 4, rel=0.2)


def test_both_are_tried_only_with_enough_ckqs_and_one_alone_always():
    sample = workload(False, 100)
    both, alone = (plan(sample, 4, BalanceSettings(leaves=16), nearest=each) for each in ((SETTLE, DKM), (DKM,)))
    assert {each.nearest for each in both.table} == {both.nearest} == {SETTLE}
    assert SETTLE not in both.reason
    assert {each.nearest for each in alone.table} == {alone.nearest} == {DKM}
    assert all(each.copies for each in alone.table)
