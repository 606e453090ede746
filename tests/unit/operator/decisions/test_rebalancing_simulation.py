"""Hours of simulated load: no thrash, nothing on old metrics, and balance comes back."""

import csv
import itertools
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spatialstream_operator.decisions.rebalancing_inputs import STRATEGIES, RebalanceSettings
from spatialstream_operator.decisions.rebalancing_state import Phase
from tests.unit.operator.decisions.trace import COLUMNS, synthesise
from tests.unit.operator.decisions.world import MINUTE, START, Plan, World, first_layout, ratio_of, strategy_of

TRACE = Path(__file__).parent / "load_trace.csv"

SCATTERED = (0, 3, 6, 9)  # all leaves of one slot: sharing leaves out is enough
ONE_LEAF = (0, 1, 2)  # a leaf that is too hot for any slot: it has to be cut up
WARM, HOT = 22.0, 60.0


def lasting(places, heat=WARM, start=0):
    return lambda at: (places, heat if at >= start else 0.0)


def growing(at):
    """Some 100 objects a second are seen: 10,000 in less than two minutes."""
    return at / 10


def slow_rounds(settings: RebalanceSettings) -> int:
    """From imbalance to a verified version, without faults: two reconciliations and a scrape of slack."""
    return settings.stabilisation + 60_000 + 40_000 + settings.observation


def test_the_model_of_the_strategies_does_what_theirs_do():
    def after(places, heat, strategy):
        weights = [1.0 + heat * (place in places) for place in range(48)]
        return ratio_of(strategy_of(first_layout(), weights, strategy).loads(weights))

    assert after(SCATTERED, WARM, "PM") < 6
    assert after(SCATTERED, HOT, "PM") > 6
    assert after(SCATTERED, HOT, "FM") < 6
    assert after(ONE_LEAF, HOT, "PM") > 6
    assert after(ONE_LEAF, HOT, "FM") > 6
    assert after(ONE_LEAF, HOT, "FG") < 6


@pytest.mark.parametrize(
    ("places", "heat", "strategy"), [(SCATTERED, WARM, "PM"), (SCATTERED, HOT, "FM"), (ONE_LEAF, HOT, "FG")]
)
def test_lasting_skew_is_put_right_by_the_first_strategy_that_is_enough(places, heat, strategy):
    world = World(Plan(hot=lasting(places, heat))).run(30)

    assert [each[1] for each in world.publications] == [strategy]
    assert [each.result for _, each in world.finished] == ["balanced"]
    assert world.balanced_since() <= slow_rounds(world.settings)
    assert world.state.phase is Phase.WATCHING
    assert world.state.balanced is True
    world.check()


def test_the_tree_of_a_stream_without_history_is_built_anew_once_although_load_is_in_balance():
    world = World(Plan(known=growing)).run(60)

    assert [each[1] for each in world.publications] == ["rebuild"]
    assert 100_000 <= world.publications[0][0] - START <= 130_000
    assert [each.result for _, each in world.finished] == ["balanced"]
    assert world.state.phase is Phase.WATCHING
    world.check()


@pytest.mark.parametrize("restart", [0.0, 0.3])
def test_a_tree_that_was_adjusted_before_enough_was_seen_is_built_anew_once(restart):
    def late(at):
        return max(0, at - 40 * MINUTE)

    world = World(Plan(hot=lasting(ONE_LEAF, HOT), known=late, restart=restart)).run(4 * 60)

    assert [each[1] for each in world.publications] == ["FG", "rebuild"]
    assert world.publications[1][0] - START >= 40 * MINUTE
    assert world.routing.rebuilt == world.routing.active.number == 2
    world.check()


def test_a_tree_that_was_built_anew_by_hand_is_left_alone():
    world = World(Plan(known=growing, external=((0, "rebuild"), (30 * MINUTE, "FM")))).run(2 * 60)

    assert world.publications == []
    assert (world.routing.rebuilt, world.routing.active.number) == (1, 2)


def test_without_a_sample_or_if_nobody_wants_it_no_tree_is_built():
    assert World(Plan()).run(30).publications == []
    assert World(Plan(known=growing), settings=RebalanceSettings(rebuild=0)).run(30).publications == []
    assert World(Plan(known=growing, modes=((0, "off"),))).run(30).publications == []


def test_a_first_tree_waits_for_approval_too():
    world = World(Plan(known=growing, modes=((0, "approve"),), approve=5 * MINUTE)).run(60)

    assert [(each[1], each[3]) for each in world.publications] == [("rebuild", "approve")]
    assert world.publications[0][0] - START >= 6 * MINUTE
    world.check()


def test_a_first_tree_that_does_not_balance_is_followed_by_the_others():
    world = World(Plan(hot=lasting(SCATTERED), known=growing, useless=frozenset({"rebuild"}))).run(60)

    assert [each[1] for each in world.publications] == ["rebuild", "PM"]
    assert [each.result for _, each in world.finished] == ["unbalanced", "balanced"]
    world.check()


def test_a_rebuild_comes_after_all_others():
    world = World(Plan(hot=lasting(SCATTERED), useless=frozenset(STRATEGIES) - {"rebuild"})).run(90)

    assert [each[1] for each in world.publications] == list(STRATEGIES)
    assert STRATEGIES[-1] == "rebuild"
    assert [each.result for _, each in world.finished][-1] == "balanced"
    world.check()


def test_a_strategy_that_does_not_help_is_followed_by_the_next_at_once():
    world = World(Plan(hot=lasting(SCATTERED), useless=frozenset({"PM"}))).run(30)

    assert [each[1] for each in world.publications] == ["PM", "FM"]
    assert [each.result for _, each in world.finished] == ["unbalanced", "balanced"]
    assert world.publications[1][0] - world.publications[0][0] < world.settings.cooldown
    world.check()


def test_when_nothing_helps_it_rests_longer_and_longer_and_says_so():
    world = World(Plan(hot=lasting(SCATTERED), useless=frozenset(STRATEGIES))).run(8 * 60)

    rounds = [at for at, note in world.notes if note.reason == "StrategiesExhausted"]
    pauses = [other - one for one, other in itertools.pairwise(rounds)]
    assert pauses[0] >= world.settings.cooldown
    assert all(other > one for one, other in itertools.pairwise(pauses[:4]))
    assert max(pauses) < 8 * world.settings.cooldown + len(STRATEGIES) * slow_rounds(world.settings)
    assert len(world.publications) <= len(STRATEGIES) * (len(rounds) + 1)
    assert world.state.balanced is False
    world.check()


def test_load_that_swings_faster_than_stabilisation_changes_nothing():
    world = World(Plan(hot=lambda at: (SCATTERED, HOT * (at // MINUTE % 2)))).run(6 * 60)

    assert world.publications == []


@settings(max_examples=40)
@given(st.integers(3, 40), st.integers(0, 99))
def test_load_that_swings_slowly_does_not_make_versions_without_end(minutes, seed):
    hot = [tuple(range(first, first + 12, 3)) for first in (0, 12, 24, 36)]
    world = World(Plan(hot=lambda at: (hot[at // (minutes * MINUTE) % 4], HOT)), seed).run(4 * 60)

    assert len(world.publications) <= 3 * (4 * 60 * MINUTE / world.settings.cooldown + 1)
    world.check()


def test_a_ratio_that_hovers_around_the_threshold_does_not_thrash():
    def around(at):  # 12 + 4 x 15 over 12 is 6, and scrapes are off by 5 %
        return SCATTERED, 15.5 if at // (4 * MINUTE) % 2 else 14.5

    world = World(Plan(hot=around)).run(6 * 60)

    assert len(world.publications) <= 3
    world.check()


def test_no_figures_no_change():
    gone = World(Plan(hot=lasting(SCATTERED, start=MINUTE), gaps=((MINUTE, 10**9),))).run(60)
    assert gone.publications == []

    silent = World(Plan(hot=lasting(SCATTERED), arrivals=lambda at: 0.2)).run(60)
    assert silent.publications == []
    assert silent.state.balanced is True


def test_after_a_gap_imbalance_has_to_last_anew():
    gap = (30_000, 400_000)
    world = World(Plan(hot=lasting(SCATTERED), gaps=(gap,))).run(20)

    assert world.publications[0][0] - START >= gap[1] + world.settings.stabilisation


def test_a_version_that_is_not_adopted_is_withdrawn_and_tried_again_after_the_cooldown():
    world = World(Plan(hot=lasting(SCATTERED), adoption=10**9)).run(60)

    assert {each.result for _, each in world.finished} == {"withdrawn"}
    assert world.routing.active.number == 0
    assert 2 <= len(world.publications) <= 4
    world.check()


def test_jobs_that_are_down_are_waited_for():
    world = World(Plan(hot=lasting(SCATTERED), down=((150_000, 40 * MINUTE),), adoption=60_000)).run(60)

    assert [each.result for _, each in world.finished] == ["balanced"]
    assert world.activations[0][0] - START >= 40 * MINUTE


def test_jobs_that_stop_again_and_again_under_a_pending_version_get_rid_of_it():
    down = tuple((at * MINUTE, at * MINUTE + 40_000) for at in range(3, 40))
    world = World(Plan(hot=lasting(SCATTERED), down=down, adoption=10**9)).run(12)

    assert [each.result for _, each in world.finished] == ["withdrawn"]


def test_a_version_of_somebody_else_is_waited_for_and_left_alone():
    plan = Plan(hot=lasting(SCATTERED), external=((130_000, "FM"),), adoption=15 * MINUTE)
    world = World(plan).run(60)

    assert next(note.reason for _, note in world.notes) == "ExternalVersion"
    assert world.publications == []
    assert world.finished == []
    assert world.routing.adopted == "hand130000"
    assert world.state.balanced is True


def test_off_publishes_nothing_and_still_says_what_is():
    world = World(Plan(hot=lasting(SCATTERED), modes=((0, "off"),))).run(30)

    assert world.publications == []
    assert world.state.balanced is False


def test_off_lets_a_pending_version_finish():
    world = World(Plan(hot=lasting(SCATTERED), adoption=4 * MINUTE, modes=((0, "auto"), (200_000, "off")))).run(30)

    assert len(world.publications) == 1
    assert world.routing.active.number == 1
    assert world.state.phase is Phase.OFF


def test_approval_is_waited_for():
    never = World(Plan(hot=lasting(SCATTERED), modes=((0, "approve"),))).run(60)
    assert never.publications == []
    assert never.state.phase is Phase.AWAITING_APPROVAL

    later = World(Plan(hot=lasting(SCATTERED), modes=((0, "approve"),), approve=5 * MINUTE)).run(60)
    assert len(later.publications) == 1
    assert later.state.balanced is True
    later.check()


def test_a_proposal_that_waits_follows_the_load():
    def moving(at):
        return (SCATTERED, WARM) if at < 20 * MINUTE else ((36, 39, 42, 45), WARM)

    world = World(Plan(hot=moving, modes=((0, "approve"),)))
    world.run(15)
    first = world.state.proposal
    world.run(40)

    assert first.heaviest == 0
    assert world.state.proposal.heaviest == 3
    assert world.state.proposal.id != first.id


def test_after_a_restart_the_proposal_that_is_shown_is_one_that_can_be_published():
    world = World(Plan(hot=lasting(SCATTERED), modes=((0, "approve"),))).run(10)
    world.restart()
    world.run(11)

    assert world.state.phase is Phase.AWAITING_APPROVAL
    assert world.kept is not None
    assert world.kept.id == world.state.proposal.id


spans = st.lists(
    st.tuples(st.integers(0, 110), st.integers(1, 12)).map(lambda each: (each[0] * MINUTE, sum(each) * MINUTE)),
    max_size=3,
).map(tuple)
hot_spots = st.lists(
    st.tuples(
        st.sampled_from([SCATTERED, ONE_LEAF, (12, 15, 18, 21), (45, 46, 47)]), st.sampled_from([0.0, WARM, HOT])
    ),
    min_size=1,
    max_size=6,
)


by_hand = st.tuples(st.integers(0, 110 * MINUTE), st.sampled_from(["FM", "rebuild"]))


@st.composite
def plans(draw):
    heats, period = draw(hot_spots), draw(st.integers(2, 60)) * MINUTE
    times = sorted({0, *draw(st.lists(st.integers(0, 110 * MINUTE), max_size=3))})
    modes = tuple((at, draw(st.sampled_from(["auto", "auto", "approve", "off"]))) for at in times)
    return Plan(
        hot=lambda at: heats[at // period % len(heats)],
        useless=frozenset(draw(st.sets(st.sampled_from(STRATEGIES)))),
        scrape=draw(st.sampled_from([15_000, 30_000])),
        gaps=draw(spans),
        down=draw(spans),
        unreachable=draw(spans),
        adoption=draw(st.sampled_from([0, 20_000, 4 * MINUTE, 20 * MINUTE])),
        restart=draw(st.sampled_from([0.0, 0.02, 0.3])),
        flaky=draw(st.sampled_from([0.0, 0.3])),
        modes=modes,
        approve=draw(st.sampled_from([None, 0, 3 * MINUTE])),
        external=tuple(sorted(draw(st.lists(by_hand, max_size=2)))),
        known=draw(st.sampled_from([None, growing])),
    )


@given(plans(), st.integers(0, 2**32))
def test_whatever_happens_the_rules_hold(plan, seed):
    world = World(plan, seed).run(120)

    world.check()
    assert len(world.publications) <= 4 * (120 * MINUTE / world.settings.cooldown + 1)
    pending = world.routing.pending
    if pending is not None and not world.within(plan.unreachable):
        assert world.state.phase in (Phase.ADOPTING, Phase.WITHDRAWING, Phase.PUBLISHING, Phase.OFF)


@settings(max_examples=60)
@given(plans(), st.integers(0, 2**32))
@example(Plan(hot=lasting(SCATTERED, WARM), useless=frozenset({"PM", "FM", "rebuild"})), 0)  # 6.0 is what PM leaves
def test_when_faults_end_and_skew_lasts_balance_comes_back(plan, seed):
    """However the two hours before went: at most one rest of the longest kind, and one rebalance.

    Between where balance is lost and where it is back, what is said of it is what was said before.
    """
    world = World(plan, seed).run(120)
    world.plan = Plan(hot=lasting(ONE_LEAF, HOT))
    world.run(120 + 8 * 10 + 10 + 30)

    ratio = world.ratios[-1][1]
    assert ratio <= world.settings.threshold
    assert world.state.balanced is True or ratio > world.settings.release
    world.check()


def test_the_trace_is_what_it_says():
    with TRACE.open(newline="") as file:
        rows = list(csv.reader(file))

    assert tuple(rows[0]) == COLUMNS
    assert [tuple(row) for row in rows[1:]] == synthesise()


def test_a_day_of_the_trace_is_kept_in_balance_with_few_versions():
    rows = synthesise()

    def row(at):
        return rows[min(at // (5 * MINUTE), len(rows) - 1)]

    def hot(at):
        place, heat = int(row(at)[2]), float(row(at)[3])
        return tuple((place + step) % 48 for step in (0, 3, 6, 9)), heat

    world = World(Plan(hot=hot, arrivals=lambda at: float(row(at)[1])), seed=3).run(24 * 60)

    out = sum(ratio > world.settings.threshold for _, ratio in world.ratios) / len(world.ratios)
    changes = len({tuple(row[2:]) for row in rows})
    assert 1 <= len(world.publications) <= 12
    assert changes > 12
    assert out < 0.15
    world.check()
