"""DkM-SKS's tables and figures (``tests/benchmarks/paper/dkm.py``): what is counted, placements, and what is judged."""

from __future__ import annotations

import numpy as np
import pytest

from spatialstream.balance.dkm import place
from spatialstream.balance.subscriptions import EVERYWHERE, ObjectSample
from tests.benchmarks.paper import beside_settling, dkm, monitoring, page, usa
from tests.benchmarks.paper.__main__ import DOCS
from tests.benchmarks.paper.monitoring import INDEXES, SIDE, Monitored, drawn, thinned
from tests.benchmarks.paper.rivals.subscriptions import BySpace, ByTree, ByWords, costs
from tests.benchmarks.paper.usa import USA
from tests.lengths import AT_LENGTH

SMALL = 0.01


@pytest.fixture(scope="module")
def before():
    return thinned(usa.objects(1_500, 1), (1, 2, 3), 1)


@pytest.fixture(scope="module")
def coming():
    return thinned(usa.objects(120, 2), (1, 2, 3), 2)


def looking(before, n=250):
    found = drawn(before, n, 3, 4, USA)
    found.arrive(before)
    return found


def words_of(terms, i):
    return {*terms.codes[terms.offsets[i] : terms.offsets[i + 1]].tolist()}


def test_nearest_are_the_nearest(before):
    found = looking(before, 80)
    for s in range(len(found)):
        wanted = words_of(found.words, s)
        rows = [o for o in range(len(before)) if wanted & words_of(before.terms, o)]
        distance = np.sort(np.hypot(before.x[rows] - found.x[s], before.y[rows] - found.y[s]))[: found.k[s]]

        assert found.size[s] == len(distance)
        assert found.nearest[s, : found.size[s]] == pytest.approx(distance)


def naive(found: Monitored, x, y, common, group):
    """What is looked at for one object, by subscription: (all, in the subset's box, in the ball, in the ball's box)."""
    radius, ball = found.radius, found.subscriptions().ball
    width, height = (USA.east - USA.west) / SIDE, (USA.north - USA.south) / SIDE
    west = USA.west + int((x - USA.west) / width) * width
    south = USA.south + int((y - USA.south) / height) * height
    dx = np.maximum(0, np.maximum(west - found.x, found.x - west - width))
    dy = np.maximum(0, np.maximum(south - found.y, found.y - south - height))
    box = np.array(
        [[*ball[group == g, :2].min(axis=0), *ball[group == g, 2:].max(axis=0)] for g in range(group.max() + 1)]
    )
    mine = box[group]
    inside = (mine[:, 0] <= x) & (x <= mine[:, 2]) & (mine[:, 1] <= y) & (y <= mine[:, 3])
    looked = np.ones(len(found)), inside, np.hypot(dx, dy) <= radius, (dx <= radius) & (dy <= radius)
    return np.stack(looked, axis=1) * common[:, None]


def test_what_is_looked_at_is_what_each_index_finds(before, coming):
    found = looking(before)
    group = np.random.default_rng(4).integers(0, 7, len(found))
    worker = np.random.default_rng(5).integers(0, 3, len(found)).astype(np.int32)
    for o in range(60):
        one = coming.take(np.array([o]))
        common = np.array([len(words_of(found.words, s) & words_of(one.terms, 0)) for s in range(len(found))])
        expected = naive(found, one.x[0], one.y[0], common, group)
        looked = found.arrive(one, home=np.array([1], np.int32), worker=worker, group=group)

        first = looked.entries > 0  # the second word of a pair may find a smaller ball
        assert (first == (expected > 0)).all()
        assert (looked.entries <= expected).all()
        assert (looked.entries[:, :2] == expected[:, :2]).all()
        assert looked.objects.tolist() == [looked.entries[:, INDEXES.index("cells")].sum()]
        with_it = {*worker[first[:, INDEXES.index("cells")]].tolist()} - {1}
        assert {*np.flatnonzero(looked.copies).tolist()} == with_it


def test_deleted_subscriptions_are_not_looked_at(before, coming):
    found = looking(before)
    ended = np.arange(0, len(found), 2)
    looked = found.arrive(coming, ended=ended)

    assert looked.entries[ended].sum() == 0
    assert looked.entries.sum() > 0


def test_objects_have_the_first_words_of_others():
    whole = usa.objects(300, 1)
    thin = thinned(whole, (2, 3), 1)

    assert {*np.diff(thin.terms.offsets).tolist()} == {2, 3}
    assert all(words_of(thin.terms, i) <= words_of(whole.terms, i) for i in range(300))


def test_subscriptions_ask_for_words_of_an_object_at_their_place(before):
    found = drawn(before, 200, 1, 10, USA)
    at = {}
    for o in range(len(before)):
        at.setdefault((before.x[o], before.y[o]), []).append(words_of(before.terms, o))

    assert {*found.k.tolist()} == {*range(1, 11)}
    for s in range(200):
        wanted = words_of(found.words, s)
        assert wanted
        assert any(wanted <= words for words in at[found.x[s], found.y[s]])


# ----------------------------------------------------------------------------------------------------------- placements


def test_kop_spreads_costs_by_words(before):
    sample, those = ObjectSample(before), looking(before).subscriptions()
    placed = ByWords.of(those, sample, 5)
    cost = costs(those, EVERYWHERE, sample)

    assert placed.load == pytest.approx(np.bincount(placed.slot, cost, 5))
    assert np.ptp(placed.load) <= cost.max()
    after = placed.with_new(those.take(np.arange(3)), sample)
    assert after.load.sum() == pytest.approx(placed.load.sum() + cost[:3].sum())
    assert after.slot[-3] == placed.load.argmin()


def test_sop_keeps_neighbours_together_and_a_new_one_is_alone(before):
    sample, found = ObjectSample(before), looking(before)
    those = found.subscriptions()
    placed = BySpace.of(those, sample, USA, 2)

    for group in np.unique(placed.group):
        assert len({*placed.slot[placed.group == group].tolist()}) == 1
    assert len(np.unique(placed.group)) >= 40
    after = placed.with_new(those.take(np.arange(2)), sample)
    assert after.group[-2:].tolist() == [placed.group.max() + 1, placed.group.max() + 2]


def test_ps2stream_places_by_place_and_rarest_word(before):
    sample, those = ObjectSample(before), looking(before).subscriptions()
    placed = ByTree.of(those, before, sample, USA, 4)

    assert len(placed.slot) == len(those)
    assert {*placed.slot.tolist()} <= {*range(4)}
    again = placed.with_new(those, sample)
    assert again.slot[len(those) :].tolist() == placed.slot.tolist()


def test_estimates_tell_which_worker_has_most(before):
    """DkM-SKS's cost of a subscription is what it comes to, so its workers have like loads."""
    sample, found = ObjectSample(before), looking(before, 2_000)
    placed = place(found.subscriptions(), sample, USA, 4)
    coming = thinned(usa.objects(4_000, 7), (1, 2, 3), 7)
    looked = np.bincount(placed.slot, found.arrive(coming).entries[:, INDEXES.index("cells")], 4)

    assert looked.max() < 1.3 * looked.min()


# --------------------------------------------------------------------------------------------------------- what is said


@pytest.fixture
def short(monkeypatch):
    """Few and small time-stamps."""
    for name, value in (("STAMPS", 2), ("COMING", 100), ("CHANGED", 10)):
        monkeypatch.setattr(dkm, name, value)
    for each in (dkm.world, dkm.run):
        each.cache_clear()
    yield
    for each in (dkm.world, dkm.run):
        each.cache_clear()


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("figure", [*dkm.FIGURES] if AT_LENGTH else ["9"])
def test_a_figure_is_counted_and_judged(figure):
    for panel, found in dkm.FIGURES[figure](SMALL).items():
        counts = [each for points in found.values() for each in points.values()]
        assert all(value >= 0 for each in counts for value in each.values())
        assert len(dkm.table(panel, found).splitlines()) > 2
        dkm.judged(panel, found)


@pytest.mark.usefixtures("short")
def test_all_methods_have_the_same_answers():
    counts = [dkm.run("Place", SMALL, method) for method in dkm.ITS_INDEX]

    assert len({each["changed"] for each in counts}) == 1
    assert counts[0]["changed"] > 0


def test_a_fifth_of_the_difference_and_linear_growth_are_wanted():
    def found(**difference):
        return {name: {20.0: {"difference": value}} for name, value in difference.items()}

    wide = {dkm.DKM: 30.0, dkm.KOP: 100.0, dkm.SOP: 200.0, dkm.PS2: 300.0}
    assert dkm.judged("2-Place", found(**wide)) == ["DkM-SKS has 0.3 of KOP's difference, at most 0.2 is wanted"]
    assert dkm.judged("2-Place", found(**(wide | {dkm.DKM: 20.0}))) == []
    growth = {dkm.DKM: {1.0: 1.0, 2.0: 2.0}, dkm.KOP: {1.0: 2.0, 2.0: 6.0}, dkm.SOP: {1.0: 9.0, 2.0: 18.0}}
    points = {name: {x: {"update": each} for x, each in of.items()} for name, of in growth.items()}
    assert dkm.judged("9", points) == ["KOP costs up to 1.50 times as much for each subscription"]


def test_settling_and_placing_look_at_the_same_entries(before, coming):
    found = looking(before, 300)
    ways = beside_settling.both_ways(found, before, coming)

    entries = {round(each["entries"], 9) for each in ways.values()}
    assert len(entries) == 1
    assert ways["settle"]["copies"] == 0.0
    assert 0.0 < ways["dkm"]["copies"] <= ways["dkm, sent to all"]["copies"] == beside_settling.SLOTS - 1
    assert 1.0 <= ways["settle"]["held"] <= beside_settling.SLOTS
    assert monitoring.MOST >= beside_settling.K


def test_the_page_has_a_line_for_each_figure():
    text = page.DKM.read_text()

    assert text in DOCS.joinpath("paper.md").read_text()
    assert all(f"\n| {figure}" in text for figure in ("2", "3", "8", "9", "10"))
