"""Proposals: which strategy is taken, what a proposal says, and that it never makes things worse."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.attribution import UnitTimes
from spatialstream.balance.explanation import explanation
from spatialstream.balance.loads import imbalance, slot_loads
from spatialstream.balance.planner import plan
from spatialstream.balance.proposal import propose
from spatialstream.balance.query_partition import dealt_evenly
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.grid.grid import build_grid
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.kinds import AUTO
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import SettingError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from tests.unit.balance.cases import cases, count_of
from tests.unit.balance.test_strategies import hot_corner
from tests.unit.index.samples import PLANE, obj, objects, query, spaces

STRATEGIES = "PM", "FM", "FG"  # rebuild takes a sample, and has tests of its own
LAX = BalanceSettings(imbalance=6.0)


def skewed(counts, mapping, slots):
    """A version of as many leaves with equal queries, its counts, and J."""
    version, _, statistics = hot_corner(4, 10.0, slots)
    assert len(counts) == len(mapping) == 16
    version = RoutingVersion(3, version.index, np.array(mapping, np.int32), slots)
    return version, count_of(counts, [float(i) for i in range(16)]), statistics


def test_a_balanced_version_is_left_alone():
    assert propose(*skewed([10.0] * 16, [0, 1] * 8, 2), LAX) is None


def test_pm_is_enough_if_it_restores_balance():
    proposal = propose(*skewed([10.0] * 16, [0] * 10 + [1] * 5 + [2], 3), LAX)

    assert proposal.strategy == "PM"
    assert proposal.balanced
    assert set(proposal.moves.old_slot.tolist()) == {0}
    assert set(proposal.moves.new_slot.tolist()) == {2}
    assert proposal.before.tolist() == [100.0, 50.0, 10.0]
    assert sorted(proposal.after.tolist()) == [50.0, 50.0, 60.0]


def test_fm_comes_next():
    proposal = propose(*skewed([10.0] * 16, [0] * 14 + [1, 1], 4), LAX)

    assert proposal.strategy == "FM"
    assert proposal.imbalance_before == np.inf
    assert proposal.imbalance_after == 1.0
    assert proposal.loads_after.tolist() == proposal.loads_before.tolist()


def test_fg_comes_last():
    proposal = propose(*skewed([10_000.0] + [1.0] * 15, [0] * 8 + [1] * 8, 2), LAX)

    assert proposal.strategy == "FG"
    assert proposal.balanced
    assert proposal.changes.counts["textual_splits"] + proposal.changes.counts["spatial_splits"] > 0


def test_the_best_is_taken_if_none_restores_balance():
    version, counts, statistics = skewed([100.0] * 4 + [10.0] * 12, [0] * 16, 100)

    proposal = propose(version, counts, statistics, BalanceSettings(leaves=20))

    assert not proposal.balanced
    assert proposal.note.startswith("no strategy restores balance, and this one comes closest")
    assert proposal.after.max() < proposal.before.max()
    again = RoutingVersion(4, proposal.version.index, proposal.version.mapping, 100)
    carried = count_of(proposal.origins.carry_objects(counts.objects).tolist())
    assert propose(again, carried, statistics, BalanceSettings(leaves=20)) is None  # nothing better is left


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_asked_for_by_name_is_proposed(strategy):
    proposal = propose(*skewed([10.0] * 16, [0, 1] * 8, 2), LAX, strategy, number=9)

    assert proposal.strategy == strategy
    assert (proposal.base, proposal.version.number) == (3, 9)
    assert (len(proposal.loads_after) == 16) == (strategy != "FG" or proposal.changes.counts["merges"] == 1)


def test_ids_tell_decisions_apart():
    case = skewed([10.0] * 16, [0] * 14 + [1, 1], 4)
    version, counts, statistics = case
    renumbered = RoutingVersion(4, version.index, version.mapping, version.slots)
    more = count_of((2 * counts.objects).tolist(), counts.continuous.tolist())

    ids = [propose(*case, LAX, strategy).id for strategy in STRATEGIES]

    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"[0-9a-f]{12}", each) for each in ids)
    assert [propose(*case, LAX, strategy).id for strategy in STRATEGIES] == ids
    assert propose(version, more, statistics, LAX, "FM").id == ids[1]  # other figures, the same decision
    assert propose(renumbered, counts, statistics, LAX, "FM").id != ids[1]


@given(st.data(), spaces)
def test_auto_never_makes_it_worse(data, space):
    case = data.draw(cases(space))
    settings = BalanceSettings(imbalance=data.draw(st.sampled_from([1.01, 2.0, 6.0])), leaves=40)

    proposal = propose(case.version, case.counts, case.statistics, settings)

    if proposal is None:
        return
    before, after = proposal.before, proposal.after
    assert imbalance(before) > settings.imbalance
    assert imbalance(after) < imbalance(before) or (np.isinf(imbalance(before)) and after.max() < before.max())
    assert proposal.balanced == (imbalance(after) <= settings.imbalance)


@given(st.data(), spaces, st.sampled_from(STRATEGIES))
def test_a_proposal_is_consistent(data, space, strategy):
    case = data.draw(cases(space))
    batch = data.draw(objects(space, 20))

    proposal = propose(case.version, case.counts, case.statistics, BalanceSettings(leaves=40), strategy)

    version = proposal.version
    assert version.mapping.dtype == np.int32
    assert version.mapping.shape == version.index.leaves.load.shape == proposal.loads_after.shape
    assert ((version.mapping >= 0) & (version.mapping < version.slots)).all()
    assert slot_loads(version.index.leaves.load, version.mapping, version.slots) == pytest.approx(proposal.after)
    assert proposal.before.sum() == pytest.approx(proposal.loads_before.sum())
    if strategy != "FG":
        assert version.index.route_objects(batch).tolist() == case.version.index.route_objects(batch).tolist()
    expected = {
        (int(leaf), int(source))
        for leaf, source in zip(proposal.origins.leaf, proposal.origins.source, strict=True)
        if version.mapping[leaf] != case.version.mapping[source]
    }
    moves = proposal.moves
    assert set(zip(moves.leaf.tolist(), moves.source.tolist(), strict=True)) == expected
    assert moves.new_slot.tolist() == version.mapping[moves.leaf].tolist()
    assert moves.old_slot.tolist() == case.version.mapping[moves.source].tolist()
    assert proposal.queries_moved <= case.counts.continuous.sum() * (1 if strategy != "FG" else 4**9)
    assert json.loads(json.dumps(proposal.to_record(), allow_nan=False))["id"] == proposal.id
    assert proposal.id in explanation(proposal)


def test_the_explanation_is_a_table():
    proposal = propose(*skewed([10.0] * 16, [0] * 10 + [1] * 5 + [2], 3), LAX, number=4)

    lines = explanation(proposal).splitlines()

    assert lines[0] == f"proposal {proposal.id}: PM, from version 3 to 4"
    assert lines[1] == "Lmax/Lmin 10.00 -> 1.20 expected (within the threshold of 6)"
    assert lines[2].startswith("5 leaves change slot, with about ")
    assert lines[4].split() == ["slot", "before", "leaves", "after", "leaves"]
    assert re.fullmatch(r" +0 +62\.5 % +█{16} +10 +3\d\.\d % +█+ +\d", lines[5])
    assert lines[9].split() == ["leaf", "from", "to", "queries"]
    assert len(lines) == 15


def test_the_explanation_of_an_adjustment_names_splits_and_merges():
    proposal = propose(*skewed([10_000.0] + [1.0] * 15, [0] * 8 + [1] * 8, 2), LAX)

    text = explanation(proposal)

    assert "0 leaves split by space, 1 leaf by text, 1 node merged: 16 -> 16 leaves\n" in text
    assert "the adjustment ended because its leaves can be balanced" in text
    assert proposal.to_record()["changes"] == {"spatial_splits": 0, "textual_splits": 1, "merges": 1}


def test_a_grid_is_reallocated_but_neither_adjusted_nor_rebuilt():
    version, counts, statistics = skewed([10_000.0] + [1.0] * 15, [0] * 8 + [1] * 8, 2)
    grid = build_grid(ObjectBatch.of([]), 16, statistics)
    version = RoutingVersion(3, grid, version.mapping, 2)

    found = propose(version, counts, statistics, LAX, "FM")

    assert [found.version.index.x.tolist(), found.version.index.y.tolist()] == [grid.x.tolist(), grid.y.tolist()]
    assert found.version.index.leaves.objects.tolist() == counts.objects.tolist()
    assert found.to_record()["changes"] == {}
    assert propose(version, counts, statistics, LAX).strategy in ("PM", "FM")
    for strategy in ("FG", "rebuild"):
        with pytest.raises(SettingError, match=f"strategy: '{strategy}' is not one of kind grid: auto, PM, FM"):
            propose(version, counts, statistics, LAX, strategy)


def test_a_rebuild_may_make_another_kind_of_index():
    version, counts, statistics = skewed([10.0] * 16, [0, 1] * 8, 2)
    sample = Sample.of(
        PLANE, ObjectBatch.of([obj(f"o{i}", i % 40 / 10, i // 40 / 10, t=i) for i in range(1_600)]),
        QueryBatch.of([]), 1_600.0,
    )  # fmt: skip
    given_ = version, counts, statistics, LAX, "rebuild", 9, sample

    assert propose(*given_).version.index.kind == "qt-tree"
    other = propose(*given_, "a-grid")
    assert (other.version.index.kind, other.version.number, other.reason) == ("a-grid", 9, "")
    assert other.origins.carry_objects(counts.objects).sum() == pytest.approx(counts.objects.sum())
    record = other.to_record()
    assert (record["kind"], record["reason"], record["strategy"]) == ("a-grid", "", "rebuild")
    planned, chosen = propose(*given_, AUTO), plan(sample, 2, LAX)
    assert (planned.version.index.kind, planned.reason) == (chosen.kind, chosen.reason)
    assert planned.reason in explanation(planned)
    assert abs(len(planned.version.index.leaves) - chosen.leaves) <= 3
    with pytest.raises(
        SettingError, match="index: a rebuild makes no index of kind grid: qt-tree, a-grid, kd-t, or auto"
    ):
        propose(*given_, "grid")

    grid = RoutingVersion(3, build_grid(ObjectBatch.of([]), 16, statistics), version.mapping, 2)
    assert propose(grid, *given_[1:], "qt-tree").version.index.kind == "qt-tree"


def test_pm_and_fm_move_ckqs_of_one_slot_each_and_a_rebuild_cuts_them_anew():
    version, counts, statistics = skewed([10.0] * 16, [0] * 14 + [1, 1], 2)
    placed = replace(version, nearest=dealt_evenly(PLANE, 2))
    there = [obj(f"o{i}", i % 40 / 10, i // 40 / 10, t=i) for i in range(1_600)]
    lasting = Lifetime(10**9, True)
    asked = [Query(f"q{i}", i, Predicate(), Nearest(i % 10 / 50, i // 10 / 50, 1 + i % 3), lasting) for i in range(100)]
    sample = Sample.of(PLANE, ObjectBatch.of(there), QueryBatch.of(asked), 1_600.0)

    for strategy in STRATEGIES:
        assert propose(placed, counts, statistics, LAX, strategy).version.nearest is placed.nearest
    crowded = replace(placed, nearest=placed.nearest.moved(np.zeros_like(placed.nearest.slot)))
    for strategy in STRATEGIES:
        after = propose(crowded, counts, statistics, LAX, strategy, 9, sample)
        there_after = after.version.nearest
        if strategy in ("PM", "FM"):
            assert 0.3 < (there_after.slots_of(QueryBatch.of(asked)) == 1).mean() < 0.7
            assert re.fullmatch(r"\d+% of the CKQs move", after.note)
        elif strategy != "rebuild":
            assert there_after is crowded.nearest
    rebuilt = propose(placed, counts, statistics, LAX, "rebuild", 9, sample)
    nearest = rebuilt.version.nearest
    slots = nearest.slots_of(QueryBatch.of(asked))
    moved = (slots != placed.nearest.slots_of(QueryBatch.of(asked))).mean()
    assert not nearest.dealt.all()
    assert f"{moved:.0%} of the CKQs move" in rebuilt.note
    load = np.bincount(nearest.slot, nearest.cost, 2)
    assert load.max() < 1.3 * load.min()
    few = Sample.of(PLANE, ObjectBatch.of(there), QueryBatch.of(asked[:39]), 1_600.0)
    kept = propose(placed, counts, statistics, LAX, "rebuild", 9, few)
    assert kept.version.nearest is placed.nearest
    assert "0% of the CKQs move" in kept.note
    other = propose(
        replace(placed, nearest=dealt_evenly(PLANE, 2).moved(1 - placed.nearest.slot)), counts, statistics, LAX, "FM"
    )
    same = propose(placed, counts, statistics, LAX, "FM")
    assert other.id != same.id != propose(version, counts, statistics, LAX, "FM").id
    assert propose(version, counts, statistics, LAX, "rebuild", 9, sample).version.nearest is None


def test_what_slots_measured_decides_a_plan():
    """Where a snapshot query takes all the time, fewer leaves are asked; else more leaves share the objects."""
    version, counts, statistics = skewed([10.0] * 16, [0, 1] * 8, 2)
    rng = np.random.default_rng(6)
    places = np.clip(rng.normal(1.2, 0.5, (3_000, 2)), 0.0, 4.0).tolist()
    wide = [query("SRQ", Box(x, 0.0, min(x + 1.0, 4.0), 4.0)) for x, _ in places[:300]]
    asked = QueryBatch.of([replace(each, id=f"q{i}") for i, each in enumerate(wide)])
    sample = Sample.of(
        PLANE, ObjectBatch.of([obj(f"o{i}", x, y, t=i) for i, (x, y) in enumerate(places)]), asked, 3_000.0
    )

    def leaves(times):
        found = propose(version, replace(counts, times=times), statistics, LAX, "rebuild", 9, sample, AUTO)
        return len(found.version.index.leaves)

    assert leaves(UnitTimes(ask=1.0)) < leaves(UnitTimes(object=1.0))


def hot_a_grid():
    """Four stripes on a slot each, of which the west one has nearly all; with a sample."""
    rng = np.random.default_rng(5)
    places = np.concatenate([rng.uniform((0, 0), (1, 4), (900, 2)), rng.uniform((1, 0), (4, 4), (100, 2))])
    found = ObjectBatch.of([obj(f"o{i}", x, y, t=i) for i, (x, y) in enumerate(places.tolist())])
    sample = Sample.of(PLANE, found, QueryBatch.of([query("STQ", Box(0.0, 0.0, 4.0, 4.0))]), 1000.0)
    stripes = np.array([[256 * i, 0, 256 * (i + 1), 1024] for i in range(4)], np.int32)
    index = AGrid(PLANE, stripes, np.zeros(4), np.zeros(4))
    held = np.bincount(index.route_objects(found), minlength=4).tolist()
    version = RoutingVersion(3, index, np.arange(4, dtype=np.int32), 4)
    return version, count_of(held, [40.0] * 4), sample.statistics(), sample


@pytest.mark.parametrize("strategy", ["SM", "SH"])
def test_an_a_grid_is_adjusted_by_its_own_strategies(strategy):
    *case, sample = hot_a_grid()

    found = propose(*case, LAX, strategy, sample=sample)

    assert found.strategy == strategy
    assert found.imbalance_after < found.imbalance_before / 2
    assert found.version.mapping.tolist() == [0, 1, 2, 3]
    assert found.version.index.rectangles.tolist() != case[0].index.rectangles.tolist()
    assert found.changes_index
    assert len(found.moves) > 0
    np.testing.assert_allclose(np.bincount(found.origins.source, found.origins.objects), 1.0)
    assert sum(found.to_record()["changes"].values()) > 0
    assert found.changes.text + ": 4 -> 4 leaves" in explanation(found)


def test_with_one_leaf_a_slot_pm_and_fm_do_nothing_and_sm_is_proposed():
    *case, sample = hot_a_grid()

    found = propose(*case, LAX, sample=sample)

    assert found.strategy == "SM"
    assert found.imbalance_before > 20
    assert found.balanced


def test_without_a_sample_an_a_grid_is_reallocated_alone():
    *case, _ = hot_a_grid()

    assert propose(*case, LAX) is None
    for strategy in ("SM", "SH"):
        with pytest.raises(SettingError, match=f"strategy: {strategy} needs sampled objects"):
            propose(*case, LAX, strategy)


def hot_kd_t():
    """Two stripes on a slot each, of which the west one has nearly all; with a sample."""
    rng = np.random.default_rng(5)
    places = np.concatenate([rng.uniform((0, 0), (2, 4), (1_900, 2)), rng.uniform((2, 0), (4, 4), (100, 2))])
    found = ObjectBatch.of([obj(f"o{i}", x, y, "ab"[i % 2], t=i) for i, (x, y) in enumerate(places.tolist())])
    asked = [
        replace(query("CRQ", Box(x, y, min(x + 0.1, 4.0), min(y + 0.1, 4.0)), "ab"[i % 2]), id=f"{i}")
        for i, (x, y) in enumerate(places[::40].tolist())
    ]
    sample = Sample.of(PLANE, found, QueryBatch.of(asked), 1000.0)
    stripes = AGrid(PLANE, np.array([[0, 0, 512, 1024], [512, 0, 1024, 1024]], np.int32), np.zeros(2), np.zeros(2))
    table = np.array([0, 1, 2], np.int32), np.zeros(3, np.int64), np.empty(0, np.uint64), np.empty(0, np.int32)
    index = KdT(stripes, *table, Frequencies.of(found.terms), np.zeros(2), np.zeros(2))
    held = np.bincount(index.route_objects(found), minlength=2).tolist()
    return RoutingVersion(3, index, np.arange(2, dtype=np.int32), 2), count_of(held, [40.0, 2.0]), sample


def test_cells_of_a_kd_t_migrate_where_pm_and_fm_do_nothing():
    version, counts, sample = hot_kd_t()

    found = propose(version, counts, sample.statistics(), LAX, sample=sample)

    assert found.strategy == "CM"
    assert found.balanced
    assert found.imbalance_before > 10
    assert found.changes_index
    assert found.version.index.route_objects(sample.objects).max() >= 2
    assert found.queries_moved > 0
    np.testing.assert_allclose(np.bincount(found.origins.source, found.origins.objects), 1.0)
    assert f"{found.changes.text}: 2 -> {len(found.loads_after)} leaves" in explanation(found)


def test_without_a_sample_no_cells_migrate():
    version, counts, sample = hot_kd_t()

    assert propose(version, counts, sample.statistics(), LAX) is None
    with pytest.raises(SettingError, match="strategy: CM needs sampled objects"):
        propose(version, counts, sample.statistics(), LAX, "CM")
    with pytest.raises(SettingError, match="'SM' is not one of kind kd-t: auto, PM, FM, CM, rebuild"):
        propose(version, counts, sample.statistics(), LAX, "SM", sample=sample)


def test_an_a_grid_refuses_fg_and_lists_its_own():
    *case, sample = hot_a_grid()

    with pytest.raises(SettingError, match="'FG' is not one of kind a-grid: auto, PM, FM, SM, SH, rebuild"):
        propose(*case, LAX, "FG", sample=sample)


def test_what_makes_no_sense_is_refused():
    case = skewed([10.0] * 16, [0, 1] * 8, 2)

    with pytest.raises(SettingError, match="strategy: 'XX' is not one of kind qt-tree: auto, PM, FM, FG, rebuild"):
        propose(*case, LAX, "XX")
    with pytest.raises(StateError, match="counts of 2 leaves"):
        propose(case[0], count_of([1.0, 2.0]), case[2], LAX)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("imbalance", 1.0),
        ("imbalance", np.inf),
        ("imbalance", np.nan),
        ("similarity", -0.1),
        ("similarity", 1.1),
        ("similarity", np.nan),
        ("leaves", 0),
    ],
)
def test_settings_without_sense_are_refused(setting, value):
    with pytest.raises(SettingError, match=f"^{setting}: .*give"):
        BalanceSettings(**{setting: value})
