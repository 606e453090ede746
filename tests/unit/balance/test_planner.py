"""The planner: what it counts, what it chooses and why, and that its choice follows from the sample alone."""

import json
import re
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.attribution import UnitTimes
from spatialstream.balance.planner import ENOUGH, MEASURED, TIE, Costs, Option, first_plan, plan, whole
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.kinds import AUTO, DEFAULT, KINDS
from spatialstream.index.sample import Sample
from spatialstream.model.errors import SettingError
from spatialstream.model.kinds import CODE
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.samples import PLANE, query

SETTINGS = BalanceSettings(leaves=64)


def skewed(n: int = 3_000, seed: int = 4, types: str = "CRQ SRQ SKQ CKQ") -> Sample:
    """Objects and queries, most of them around one place."""
    random = np.random.default_rng(seed)
    places = np.where(random.random((n, 1)) < 0.9, random.normal(1.3, 0.2, (n, 2)), 4.0 * random.random((n, 2)))
    places = np.clip(places, 0.0, 4.0)
    words = random.zipf(1.5, (n, 3)).clip(max=30)
    objects = [
        SpatialObject(f"o{i}", i, *place, tuple({f"w{word}" for word in of}))
        for i, (place, of) in enumerate(zip(places.tolist(), words.tolist(), strict=True))
    ]
    asked = []
    for i, row in enumerate(random.integers(0, n, n // 4).tolist()):
        x, y = places[row].tolist()
        region = Box(max(x - 0.05, 0.0), max(y - 0.05, 0.0), min(x + 0.05, 4.0), min(y + 0.05, 4.0))
        kind = types.split()[i % len(types.split())]
        made = query(kind, None if kind[1] == "K" else region, "", at=(x, y), k=3, duration=10**9)
        predicate = replace(made.predicate, keywords=(f"w{words[row, 0]}",))
        asked.append(replace(made, id=f"q{i}", t=i, predicate=predicate))
    return whole(PLANE, ObjectBatch.of(objects), QueryBatch.of(asked))


def counted(option: Option) -> list[float]:
    """What comes to the slowest slot, in the order of the costs."""
    names = ("objects", "copies", "entries", "matches", "candidates", "asks", "found")
    return [getattr(option, name) for name in names]


def test_all_kinds_that_adapt_are_tried_with_up_to_the_most_leaves_that_may_be():
    found = plan(skewed(), 4, SETTINGS)

    adapting = [kind.name for kind in KINDS.values() if kind.adapts]
    assert [(each.kind, each.wanted) for each in found.table] == [(k, n) for k in adapting for n in (4, 16, 64)]
    assert {each.wanted for each in plan(skewed(), 4, BalanceSettings(leaves=15)).table} == {4}
    assert {each.wanted for each in plan(skewed(), 4, BalanceSettings(leaves=3)).table} == {3}


def test_the_choice_is_the_least_or_as_good_and_the_reason_has_the_figures():
    for seed, slots in ((1, 2), (2, 4), (3, 8), (4, 16)):
        found = plan(skewed(seed=seed), slots, BalanceSettings(leaves=1024))
        taken = next(each for each in found.table if (each.kind, each.wanted) == (found.kind, found.leaves))
        least = min(each.seconds for each in found.table)
        equal = [each for each in found.table if each.seconds <= (1 + TIE) * least]
        assert taken in equal
        if any(each.kind == DEFAULT for each in equal):
            assert found.kind == DEFAULT
        assert taken.leaves == min(each.leaves for each in equal if each.kind == found.kind)
        other = min((each for each in found.table if each.kind != found.kind), key=lambda each: each.seconds)
        for each in (taken, other):
            assert f"{each.kind} with {each.leaves:,} leaves" in found.reason
            assert f"{each.seconds:.3g} s" in found.reason
        assert ("within 10%" in found.reason) == (taken.seconds > least)
        assert len(found.reason) < 400
        assert "\n" not in found.reason


def test_a_rectangle_fits_better_than_a_quarter_where_each_slot_has_one_leaf():
    found = plan(skewed(6_000, types="CRQ"), 4, BalanceSettings(leaves=4))

    seconds = {each.kind: each.seconds for each in found.table if each.leaves == 4}
    assert seconds["a-grid"] < seconds[DEFAULT]
    assert found.kind != DEFAULT


def test_a_town_in_the_world_is_no_a_grid():
    """All of it is one cell of the A-Grid, and so on one slot."""
    sample = skewed(6_000, types="CRQ")
    town = replace(sample.objects, x=sample.objects.x / 2_000, y=sample.objects.y / 2_000)
    shape = sample.queries.regions.shape / 2_000
    asked = replace(sample.queries, regions=replace(sample.queries.regions, shape=shape))

    found = plan(whole(PLANE, town, asked), 4, BalanceSettings(leaves=256))

    assert found.kind == DEFAULT
    assert min(each.seconds for each in found.table if each.kind == "a-grid") > 2 * min(
        each.seconds for each in found.table if each.kind == DEFAULT
    )


@given(seed=st.integers(0, 2**32 - 1), slots=st.integers(1, 9))
def test_the_same_records_in_any_order_give_the_same_plan(seed: int, slots: int) -> None:
    sample, random = skewed(1_200, seed=seed % 5), np.random.default_rng(seed)
    rows, asked = random.permutation(len(sample.objects)), random.permutation(len(sample.queries))
    words = random.permutation(len(sample.objects.terms.vocabulary))
    objects = ObjectBatch.of([sample.objects[int(i)] for i in rows])
    shuffled = replace(
        sample,
        objects=objects,
        queries=QueryBatch.of([sample.queries[int(i)] for i in asked]),
        weights=(sample.weights[0][rows], sample.weights[1][asked]),
    )

    assert len(words)
    assert plan(shuffled, slots, SETTINGS).to_record() == plan(sample, slots, SETTINGS).to_record()


def test_the_slowest_slot_has_what_is_counted():
    sample = skewed(types="CRQ SRQ")
    table = plan(sample, 1, BalanceSettings(leaves=1)).table  # one slot, which has everything

    n, asked = float(len(sample.objects)), len(sample.queries) / 2
    for each in table:
        assert each.objects == pytest.approx(n)
        assert each.asks == pytest.approx(asked, rel=0.1)  # of either half of the ids
        assert each.seconds == each.mean
        assert each.copies == 0.0
        assert each.seconds == pytest.approx(1e-6 * np.dot(counted(each), astuple(MEASURED)))


def test_a_nearest_neighbour_query_is_asked_where_its_circle_reaches():
    one, many = (
        plan(skewed(4_000, types="SKQ"), slots, BalanceSettings(leaves=slots)).table[0].asks for slots in (1, 16)
    )
    assert one == pytest.approx(1_000, rel=0.1)
    assert many < 0.9 * one


def test_times_of_a_live_stream_count_more_than_those_of_a_benchmark():
    assert MEASURED.of(UnitTimes()) == MEASURED
    live = MEASURED.of(UnitTimes(object=5e-6, match=2 * 1e-6 * MEASURED.match, ask=1e-3))
    copy = MEASURED.copy * 5.0 / MEASURED.object
    expected = Costs(5.0, copy, MEASURED.entry, 2 * MEASURED.match, 2 * MEASURED.candidate, 1_000.0, 0.0)
    assert astuple(live) == pytest.approx(astuple(expected))

    dear = plan(skewed(), 4, SETTINGS, MEASURED.of(UnitTimes(object=1.0)))
    most = {each.wanted: each for each in dear.table if each.kind == DEFAULT}
    assert most[64].seconds == pytest.approx(most[64].objects, rel=0.01), "nothing but objects matters"


def test_a_small_sample_is_refused_and_says_what_is_missing():
    with pytest.raises(SettingError, match=r"sample: a plan needs at least 1,000 objects, and there are 12$"):
        plan(skewed(12), 4, SETTINGS)


def test_the_first_index_is_planned_if_it_is_to_be():
    sample = skewed()
    given_ = PLANE, sample.objects, sample.queries

    assert (first_plan("grid", 7, 4, *given_).kind, first_plan("grid", 7, 4, *given_).leaves) == ("grid", 7)
    planned = first_plan(AUTO, 7, 4, *given_)
    assert planned == plan(sample, 4, BalanceSettings())
    few = first_plan(AUTO, 7, 4, PLANE, sample.objects.take(np.arange(ENOUGH - 1)), sample.queries)
    assert (few.kind, few.leaves) == (DEFAULT, 7)
    assert re.search(r"at least 1,000 objects, and there are 999", few.reason)


def test_an_index_that_needs_what_is_not_there_is_refused_or_not_planned_and_without_any_history_waits():
    sample, nothing = skewed(), (ObjectBatch.of([]), QueryBatch.of([]))
    asked = sample.queries.take(np.flatnonzero(sample.queries.code != CODE["CRQ"]))

    assert first_plan("kd-t", 7, 4, PLANE, sample.objects, sample.queries).kind == "kd-t"
    with pytest.raises(SettingError, match=r"^index: kd-t needs CRQs with keywords, by which it divides words, and"):
        first_plan("kd-t", 7, 4, PLANE, sample.objects, asked)
    with pytest.raises(SettingError, match=r"^index: kd-t needs at least 1,000 objects, and there are 999$"):
        first_plan("kd-t", 7, 4, PLANE, sample.objects.take(np.arange(999)), sample.queries)
    waiting = first_plan("kd-t", 7, 4, PLANE, *nothing)
    assert (waiting.kind, waiting.leaves) == (DEFAULT, 7)
    assert waiting.reason == "kd-t needs at least 1,000 objects, and there are 0: qt-tree until a rebuild"
    assert {each.kind for each in plan(sample, 4, SETTINGS).table} == {"qt-tree", "a-grid", "kd-t"}
    assert {each.kind for each in plan(whole(PLANE, sample.objects, asked), 4, SETTINGS).table} == {"qt-tree", "a-grid"}


def test_copies_count():
    found = plan(skewed(types="CRQ"), 8, BalanceSettings(leaves=512)).table
    copied = [each for each in found if each.copies]

    assert {each.kind for each in copied} <= {"kd-t"}
    for each in copied:
        # a mean of two tries, of which each has a slowest slot of its own
        assert each.seconds == pytest.approx(1e-6 * np.dot(counted(each), astuple(MEASURED)))


def test_what_records_stand_for_is_what_counts():
    """Ten times as many queries as were read; of ten times as many objects, ten times the time."""
    sample = skewed(types="CRQ")
    alone, queries, both = (
        plan(whole(PLANE, sample.objects, sample.queries, each), 4, SETTINGS).table
        for each in ((1.0, 1.0), (1.0, 10.0), (10.0, 1.0))
    )
    for one, more, large in zip(alone, queries, both, strict=True):
        assert more.objects < 2 * one.objects
        assert more.entries > 5 * one.entries
        assert large.objects > 5 * one.objects


def test_a_plan_is_json():
    found = plan(skewed(), 2, SETTINGS)
    record = json.loads(json.dumps(found.to_record()))
    assert (record["kind"], record["leaves"], record["reason"]) == (found.kind, found.leaves, found.reason)
    assert [row["kind"] for row in record["table"]] == [each.kind for each in found.table]
