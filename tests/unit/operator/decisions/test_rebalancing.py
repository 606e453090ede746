"""The rebalancing machine, step by step."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.kinds import KINDS
from spatialstream.store.state import RoutingState
from spatialstream_operator.decisions.balance import verdict
from spatialstream_operator.decisions.rebalancing import ACCEPTS, Grade, advance, grade
from spatialstream_operator.decisions.rebalancing_inputs import (
    STRATEGIES,
    Finish,
    Load,
    Note,
    Observation,
    ProposalView,
    Propose,
    Proposed,
    Publish,
    Published,
    RebalanceSettings,
    Refused,
    Withdraw,
    Withdrawn,
)
from spatialstream_operator.decisions.rebalancing_state import Ending, Phase, State

T = 1_800_000_000_000
AUTO = RebalanceSettings()
ROUTING = RoutingState.created(0, 2, "origin")
PM = ProposalView("p1", 0, "PM", 9.0, 2.0, 3, 100, 1, "text")
PENDING = ROUTING.published(1, 2, 0, "p1", {})
ACTIVE = PENDING.activated(1, 5)
OTHER_PENDING = ROUTING.published(1, 2, 0, "by hand", {})


def load(now, ratio=9.0, version=0, arrivals=100.0):
    return Load(now - 10_000, now - 10_000, version, ratio, arrivals)


def observation(now=T, ratio=9.0, routing=ROUTING, **more):
    measured = load(now, ratio, routing.active.number if routing else 0)
    return Observation(now, routing, **({"load": measured} | more))


def others(step):
    return [each for each in step.commands if not isinstance(each, Note)]


def in_phase(phase, **more):
    state = State(Phase.WATCHING, T - 1_000_000, balanced=False, version=0, over=T - 200_000, seen=T - 10_000)
    return replace(state, phase=phase, since=T - 5_000, **more)


AWAITING = in_phase(Phase.AWAITING_APPROVAL, proposal=PM)
PUBLISHING = in_phase(Phase.PUBLISHING, proposal=PM)
ADOPTING = in_phase(Phase.ADOPTING, proposal=PM, rested=T - 5_000)
ADOPTING = replace(ADOPTING, version=1, running=T - 5_000, until=T + 595_000)
WITHDRAWING = replace(ADOPTING, phase=Phase.WITHDRAWING)
VERIFYING = replace(ADOPTING, phase=Phase.VERIFYING, over=T - 300_000, watched=T - 300_000, seen=T - 10_000)
APPROVE = replace(AUTO, mode="approve")
OFF = replace(AUTO, mode="off")


# -------------------------------------------------------------------------------------------------------------- load


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (None, Grade.MISSING),
        (load(T, math.nan), Grade.MISSING),
        (load(T, arrivals=math.nan), Grade.MISSING),
        (load(T - 81_000), Grade.STALE),
        (load(T - 80_000), Grade.USABLE),
        (replace(load(T), worked=T - 90_001), Grade.STALE),
        (replace(load(T, arrivals=0.0), worked=T - 90_001), Grade.IDLE),
        (replace(load(T, arrivals=0.0), at=T - 90_001), Grade.STALE),
        (load(T, version=1), Grade.OTHER),
        (load(T, math.inf), Grade.USABLE),
    ],
)
def test_what_load_metrics_are_good_for(measured, expected):
    assert grade(measured, ROUTING, T, AUTO) is expected


# ---------------------------------------------------------------------------------------------------- the way it goes


def test_from_imbalance_to_a_verified_version():
    state, now, steps = State(), T, []
    for answer in (
        lambda now: observation(now),
        lambda now: observation(now),
        lambda now: observation(now),
        lambda now: Proposed(now, PM, 9.0),
        lambda now: Published(now, 1),
        lambda now: observation(now, routing=PENDING),
        lambda now: observation(now, routing=ACTIVE, ratio=2.0),
        lambda now: observation(now, routing=ACTIVE, ratio=2.0),
        lambda now: observation(now, routing=ACTIVE, ratio=2.0),
        lambda now: observation(now, routing=ACTIVE, ratio=2.0),
    ):
        step = advance(state, answer(now), AUTO)
        state, now = step.state, now + 60_000
        steps.append((state.phase, others(step)))

    assert steps == [
        (Phase.STABILISING, []),
        (Phase.STABILISING, []),
        (Phase.PROPOSING, [Propose(STRATEGIES, 0)]),
        (Phase.PUBLISHING, [Publish("p1")]),
        (Phase.ADOPTING, []),
        (Phase.ADOPTING, []),
        (Phase.VERIFYING, []),
        (Phase.VERIFYING, []),
        (Phase.VERIFYING, []),
        (Phase.COOLDOWN, [Finish("PM", "balanced")]),
    ]
    assert state.until == T + 9 * 60_000 + AUTO.cooldown
    assert state.last == Ending("balanced", "PM", "p1", 1, T + 9 * 60_000, "version 1 has restored balance")


def test_below_the_threshold_stabilising_begins_anew():
    state = in_phase(Phase.STABILISING)
    state = advance(state, observation(T, 6.0), AUTO).state
    assert state.phase is Phase.WATCHING
    assert state.over is None

    state = advance(state, observation(T + 1, 6.1), AUTO).state
    assert state.phase is Phase.STABILISING
    assert state.over == T + 1


def test_out_of_balance_is_over_only_clearly_below_the_threshold():
    state = in_phase(Phase.COOLDOWN, rested=T)
    assert advance(state, observation(T, 5.9), AUTO).state.balanced is False
    assert advance(state, observation(T, 5.5), AUTO).state.balanced is True
    assert advance(replace(state, balanced=None), observation(T, 5.9), AUTO).state.balanced is True


def test_a_slot_without_load_is_imbalance():
    step = advance(in_phase(Phase.STABILISING), observation(T, math.inf), AUTO)
    assert others(step) == [Propose(STRATEGIES, 0)]


@pytest.mark.parametrize(
    ("rebuild", "known", "first"),
    [
        (10_000, 9_999.0, False),
        (10_000, 10_000.0, True),
        (1, 999.0, False),  # from so few no tree is built: to propose that would keep the strategies waiting
        (1, 1_000.0, True),
        (999, 999.0, False),
        (0, 1e9, False),
    ],
)
def test_a_first_tree_is_proposed_once_it_can_be_built_and_until_then_the_others_are(rebuild, known, first):
    settings, seen = replace(AUTO, rebuild=rebuild), observation(known=known)
    expected = [Propose(("rebuild",), 0, first=True) if first else Propose(STRATEGIES, 0)]

    assert others(advance(in_phase(Phase.STABILISING), seen, settings)) == expected
    assert others(advance(in_phase(Phase.PROPOSING, first=True), seen, settings)) == expected


@pytest.mark.parametrize(
    "seen",
    [
        observation(load=None),
        observation(load=load(T - 100_000)),
        observation(load=load(T, version=7)),
        observation(load=load(T, arrivals=0.5)),
        observation(jobs=False),
        observation(routing=None),
    ],
)
@pytest.mark.parametrize("settings", [AUTO, APPROVE])
@pytest.mark.parametrize("phase", [Phase.STABILISING, Phase.PROPOSING, Phase.AWAITING_APPROVAL, Phase.PUBLISHING])
def test_without_good_figures_nothing_is_proposed_or_published(phase, seen, settings):
    seen = replace(seen, approval="p1", kept="p1")
    step = advance(in_phase(phase, proposal=PM), seen, settings)
    assert [each for each in others(step) if isinstance(each, Propose | Publish)] == []


def test_another_active_version_begins_anew():
    for state in (in_phase(Phase.STABILISING), in_phase(Phase.PROPOSING), AWAITING, PUBLISHING):
        moved = replace(ACTIVE, adopted="by hand")
        step = advance(state, observation(T, routing=moved), AUTO)
        assert step.state.phase is Phase.STABILISING
        assert step.state.over == T
        assert step.state.proposal is None
        assert others(step) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_after_a_strategy_that_did_not_help_come_those_behind_it(strategy):
    state = replace(VERIFYING, proposal=replace(PM, strategy=strategy), over=T - 200_000)
    step = advance(state, observation(T, routing=ACTIVE), AUTO)

    assert others(step)[0] == Finish(strategy, "unbalanced")
    left = STRATEGIES[STRATEGIES.index(strategy) + 1 :]
    assert others(step)[1:] == ([Propose(left, 1)] if left else [])
    assert step.state.phase is (Phase.PROPOSING if left else Phase.COOLDOWN)
    assert step.state.setbacks == (0 if left else 1)


def test_verification_takes_its_time_and_a_hole_begins_it_anew():
    fresh = replace(VERIFYING, over=None, seen=None, watched=None)
    state = advance(fresh, observation(T, 2.0, ACTIVE), AUTO).state
    early = advance(state, observation(T + 119_999, 2.0, ACTIVE), AUTO).state
    assert early.phase is Phase.VERIFYING

    holed = advance(replace(VERIFYING, seen=T - 100_000, over=None), observation(T, 2.0, ACTIVE), AUTO).state
    assert holed.phase is Phase.VERIFYING
    assert holed.watched == T


def test_one_bad_reading_does_not_fail_a_verification():
    state = advance(replace(VERIFYING, over=None), observation(T, 9.0, ACTIVE), AUTO).state
    assert state.phase is Phase.VERIFYING
    assert advance(state, observation(T + 10_000, 2.0, ACTIVE), AUTO).state.last.result == "balanced"


def test_figures_of_the_version_before_verify_nothing():
    seen = Observation(T, ACTIVE, load(T, 2.0, version=0))
    assert advance(VERIFYING, seen, AUTO).state == VERIFYING


def test_nothing_to_propose():
    proposing = in_phase(Phase.PROPOSING)
    assert advance(proposing, Proposed(T, None, 4.0), AUTO).state.phase is Phase.WATCHING

    helpless = advance(proposing, Proposed(T, None, 9.0), AUTO)
    assert helpless.state.phase is Phase.COOLDOWN
    assert helpless.state.problem == "NothingBetter"
    again = advance(replace(proposing, setbacks=2), Proposed(T, None, 9.0), AUTO)
    assert again.state.until == T + 4 * AUTO.cooldown


@pytest.mark.parametrize("setbacks", range(8))
def test_rests_grow_to_a_bound(setbacks):
    assert AUTO.rest(setbacks) / AUTO.cooldown == [1, 1, 2, 4, 8, 8, 8, 8][setbacks]


def test_a_shorter_cooldown_counts_at_once():
    state = in_phase(Phase.COOLDOWN, rested=T - 60_000, until=T + 540_000)
    assert others(advance(state, observation(T), AUTO)) == []
    assert others(advance(state, observation(T), replace(AUTO, cooldown=60_000))) == [Propose(STRATEGIES, 0)]


# -------------------------------------------------------------------------------------------------- pending versions


def test_adoption_that_takes_too_long_is_withdrawn():
    step = advance(ADOPTING, observation(T + 294_999, routing=PENDING), AUTO)
    assert others(step) == []
    step = advance(ADOPTING, observation(T + 295_000, routing=PENDING), AUTO)
    assert others(step) == [Withdraw(1, "p1")]
    assert step.state.phase is Phase.WITHDRAWING

    done = advance(step.state, Withdrawn(T + 296_000), AUTO)
    assert others(done) == [Finish("PM", "withdrawn")]
    assert done.state.phase is Phase.COOLDOWN
    assert done.state.setbacks == 1


def test_while_jobs_are_down_the_timeout_does_not_run():
    state = advance(ADOPTING, observation(T, routing=PENDING, jobs=False), AUTO).state
    state = advance(state, observation(T + 10**8, routing=PENDING, jobs=False), AUTO).state
    assert state.phase is Phase.ADOPTING
    state = advance(state, observation(T + 10**8 + 1, routing=PENDING), AUTO).state
    assert state.phase is Phase.ADOPTING
    assert state.running == T + 10**8 + 1


def test_a_withdrawal_that_comes_too_late_is_an_activation():
    step = advance(WITHDRAWING, observation(T, routing=ACTIVE), AUTO)
    assert step.state.phase is Phase.VERIFYING
    assert advance(WITHDRAWING, Refused(T, "conflict"), AUTO).state == WITHDRAWING


def test_a_withdrawal_is_asked_for_until_it_is_done():
    assert others(advance(WITHDRAWING, observation(T, routing=PENDING), AUTO)) == [Withdraw(1, "p1")]


def test_a_version_that_a_person_withdraws_is_let_go():
    step = advance(ADOPTING, observation(T, routing=PENDING.withdrawn(1, "p1")), AUTO)
    assert others(step) == [Finish("PM", "withdrawn")]
    assert step.state.phase is Phase.COOLDOWN


@pytest.mark.parametrize("state", [State(Phase.WATCHING), in_phase(Phase.STABILISING), AWAITING, PUBLISHING])
def test_a_version_that_nobody_here_knows_is_waited_for(state):
    step = advance(state, observation(T, routing=OTHER_PENDING), AUTO)
    assert step.state.phase is Phase.ADOPTING
    assert step.state.external
    assert others(step) == []

    for later in (T + 10**6, T + 10**7):
        assert others(advance(step.state, observation(later, routing=OTHER_PENDING), AUTO)) == []
    followed = advance(step.state, observation(T + 1, routing=OTHER_PENDING.activated(1, 3)), AUTO)
    assert followed.state.phase is Phase.VERIFYING
    assert followed.state.external


@pytest.mark.parametrize(
    "lost", [Published(T, 1), observation(T, routing=PENDING), observation(T, routing=PENDING, kept=None)]
)
def test_whether_publishing_has_succeeded_is_found_out_after_a_restart(lost):
    step = advance(PUBLISHING, lost, AUTO)
    assert step.state.phase is Phase.ADOPTING
    assert not step.state.external
    assert step.state.version == 1
    assert step.state.until == T + AUTO.cooldown


def test_publishing_that_was_over_before_anybody_looked():
    step = advance(PUBLISHING, observation(T, routing=ACTIVE), AUTO)
    assert step.state.phase is Phase.VERIFYING
    assert step.state.version == 1
    assert not step.state.external


def test_publishing_is_repeated_or_begun_anew():
    assert others(advance(PUBLISHING, observation(T, kept="p1"), AUTO)) == [Publish("p1")]
    assert others(advance(PUBLISHING, observation(T, kept=None), AUTO)) == [Propose(STRATEGIES, 0)]
    assert advance(PUBLISHING, observation(T, 2.0, kept="p1"), AUTO).state.phase is Phase.WATCHING
    assert advance(PUBLISHING, Refused(T, "conflict", "no"), AUTO).state.phase is Phase.WATCHING
    assert advance(PUBLISHING, Refused(T, "forgotten"), AUTO).state.phase is Phase.PROPOSING


@pytest.mark.parametrize("state", [PUBLISHING, ADOPTING, WITHDRAWING, VERIFYING, AWAITING, in_phase(Phase.COOLDOWN)])
def test_the_store_out_of_reach_changes_nothing(state):
    step = advance(state, observation(T, routing=None), AUTO)
    assert step.commands == ()
    assert replace(step.state, until=state.until) == state


# ----------------------------------------------------------------------------------------------------- modes, approval


def test_switched_off_what_is_pending_is_finished_first():
    assert advance(ADOPTING, observation(T, routing=PENDING), OFF).state.phase is Phase.ADOPTING
    assert others(advance(ADOPTING, observation(T + 295_000, routing=PENDING), OFF)) == [Withdraw(1, "p1")]
    assert advance(ADOPTING, observation(T, routing=ACTIVE), OFF).state.phase is Phase.OFF
    assert advance(PUBLISHING, observation(T, routing=PENDING), OFF).state.phase is Phase.ADOPTING


@pytest.mark.parametrize(
    "state", [AWAITING, PUBLISHING, VERIFYING, in_phase(Phase.STABILISING), in_phase(Phase.PROPOSING)]
)
def test_switched_off_nothing_new_begins(state):
    step = advance(state, observation(T, routing=ACTIVE if state is VERIFYING else ROUTING), OFF)
    assert step.state.phase is Phase.OFF
    assert [each for each in others(step) if not isinstance(each, Finish)] == []


def test_off_and_on_again_keeps_the_cooldown():
    state = advance(in_phase(Phase.COOLDOWN, rested=T - 60_000), observation(T), OFF).state
    assert state.phase is Phase.OFF
    assert advance(state, observation(T + 1), AUTO).state.phase is Phase.COOLDOWN


def test_an_approval_is_for_one_proposal():
    step = advance(AWAITING, observation(T, kept="p1", approval="p1"), APPROVE)
    assert others(step) == [Publish("p1")]

    wrong = advance(AWAITING, observation(T, kept="p1", approval="p0"), APPROVE)
    assert [each.reason for each in wrong.commands] == ["ApprovalIgnored"]
    again = advance(wrong.state, observation(T + 1, kept="p1", approval="p0"), APPROVE)
    assert again.commands == ()
    assert again.state.phase is Phase.AWAITING_APPROVAL


def test_an_approval_that_was_used_is_no_wrong_one_for_the_next_proposal():
    used = advance(AWAITING, observation(T, kept="p1", approval="p1"), APPROVE).state
    following = replace(used, phase=Phase.AWAITING_APPROVAL, proposal=replace(AWAITING.proposal, id="p2"))

    step = advance(State.from_status(following.to_status()), observation(T + 1, kept="p2", approval="p1"), APPROVE)

    assert step.commands == ()
    assert step.state.phase is Phase.AWAITING_APPROVAL


def test_a_proposal_that_is_not_needed_any_more_is_dropped():
    between = advance(AWAITING, observation(T, 5.9, kept="p1"), APPROVE)
    assert between.state.phase is Phase.AWAITING_APPROVAL
    assert advance(AWAITING, observation(T, 5.0, kept="p1"), APPROVE).state.phase is Phase.WATCHING


def test_an_old_proposal_is_made_anew_if_the_load_is_another():
    old = replace(AWAITING, since=T - 600_000)
    assert others(advance(old, observation(T, 10.0, kept="p1"), APPROVE)) == []
    assert others(advance(old, observation(T, 20.0, kept="p1"), APPROVE)) == [Propose(STRATEGIES, 0)]
    assert others(advance(old, observation(T, math.inf, kept="p1"), APPROVE)) == [Propose(STRATEGIES, 0)]
    elsewhere = replace(load(T), slots=(5.0, 1.0))
    assert others(advance(old, observation(T, kept="p1", load=elsewhere), APPROVE)) == [Propose(STRATEGIES, 0)]
    same = advance(replace(old, phase=Phase.PROPOSING), Proposed(T, PM, 9.0), APPROVE)
    assert same.state.phase is Phase.AWAITING_APPROVAL
    assert same.commands == ()


# --------------------------------------------------------------------------------------------------------- the machine


def test_each_phase_says_what_it_takes():
    assert set(ACCEPTS) == set(Phase)
    outcomes = [Proposed(T, PM), Published(T, 1), Withdrawn(T), Refused(T, "conflict")]
    for state in (State(), AWAITING, PUBLISHING, ADOPTING, WITHDRAWING, VERIFYING, in_phase(Phase.PROPOSING)):
        for outcome in outcomes:
            if type(outcome) not in ACCEPTS[state.phase]:
                step = advance(state, outcome, AUTO)
                assert step.state is state
                assert step.commands == ()


times = st.none() | st.integers(0, 4_000_000_000_000)
proposals = st.builds(
    ProposalView,
    st.text(min_size=1),
    st.integers(0, 99),
    st.sampled_from(STRATEGIES),
    st.just(math.inf) | st.integers(100, 9999).map(lambda each: each / 100),
    st.just(math.inf) | st.integers(100, 9999).map(lambda each: each / 100),
    st.integers(0, 999),
    st.integers(0, 999),
    st.none() | st.integers(0, 64),
    st.text(),
)
endings = st.builds(
    Ending,
    st.sampled_from(["balanced", "unbalanced", "withdrawn", "failed"]),
    st.sampled_from(STRATEGIES),
    st.text(),
    st.none() | st.integers(0, 99),
    st.integers(0, 4_000_000_000_000),
    st.text(),
)
states = st.builds(
    State,
    phase=st.sampled_from(Phase),
    since=st.integers(0, 4_000_000_000_000),
    balanced=st.none() | st.booleans(),
    version=st.integers(0, 99),
    over=times,
    seen=times,
    watched=times,
    proposal=proposals,
    external=st.booleans(),
    running=times,
    breaks=st.integers(0, 9),
    tried=st.sampled_from([(), ("PM",), ("PM", "FM")]),
    setbacks=st.integers(0, 9),
    rested=times,
    until=times,
    ignored=st.text(),
    last=st.none() | endings,
    problem=st.sampled_from(["", "NothingBetter"]),
)


@given(states)
def test_a_state_survives_the_status(state):
    status = json.loads(json.dumps(state.to_status()))
    assert State.from_status(status) == state
    assert State.from_status({key: value for key, value in status.items() if value is not None}) == state


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    states, st.dictionaries(st.sampled_from(sorted(State().to_status())), junk), st.sampled_from([AUTO, APPROVE, OFF])
)
def test_a_status_that_was_tampered_with_is_survived(state, changes, settings):
    status = state.to_status() | changes
    read = State.from_status(status)
    for routing in (None, ROUTING, PENDING, ACTIVE):
        step = advance(read, observation(T, routing=routing, kept="p1", approval="p1"), settings)
        assert State.from_status(step.state.to_status()) == step.state
        assert verdict(step.state, observation(T, routing=routing), settings).message.endswith(".")


def test_what_is_said_about_balance():
    def said(state, seen, settings=AUTO):
        found = verdict(state, seen, settings)
        return found.status, found.reason

    assert said(State(), observation(routing=None)) == ("Unknown", "RoutingUnknown")
    assert said(State(), observation(load=None)) == ("Unknown", "MetricsMissing")
    assert said(State(), observation(load=load(T - 10**6))) == ("Unknown", "MetricsStale")
    assert said(State(), observation(load=load(T, version=3))) == ("Unknown", "MetricsOfOtherVersion")
    assert said(State(), observation(load=load(T, arrivals=0.0))) == ("True", "TooLittleLoad")
    assert said(State(balanced=True), observation(ratio=2.0)) == ("True", "Balanced")
    assert said(State(balanced=True, over=T), observation()) == ("True", "Stabilising")
    assert said(State(balanced=None, over=T), observation()) == ("Unknown", "Stabilising")
    assert said(AWAITING, observation(), APPROVE) == ("False", "AwaitingApproval")
    assert said(ADOPTING, observation(routing=PENDING)) == ("False", "Rebalancing")
    assert said(in_phase(Phase.OFF), observation(), OFF) == ("False", "RebalancingOff")
    assert said(in_phase(Phase.COOLDOWN, problem="StrategiesExhausted"), observation()) == (
        "False",
        "StrategiesExhausted",
    )


def test_of_an_index_that_only_moves_leaves_nothing_else_is_asked_for():
    grid = replace(AUTO, strategies=("PM", "FM"))

    def after(strategy):
        state = replace(VERIFYING, proposal=replace(PM, strategy=strategy), over=T - 200_000)
        return advance(state, observation(T, routing=ACTIVE), grid)

    assert others(after("PM"))[1:] == [Propose(("FM",), 1)]
    assert (others(after("FM"))[1:], after("FM").state.problem) == ([], "StrategiesExhausted")
    watching = in_phase(Phase.WATCHING)
    assert others(advance(watching, observation(T, 2.0, known=1e9), AUTO)) == [Propose(("rebuild",), 0, first=True)]
    assert others(advance(watching, observation(T, 2.0, known=1e9), grid)) == []


def test_an_a_grid_is_adjusted_by_its_own_strategies_in_their_order():
    a_grid = replace(AUTO, strategies=KINDS["a-grid"].strategies)

    def next_after(strategy):
        state = replace(VERIFYING, proposal=replace(PM, strategy=strategy), over=T - 200_000)
        return others(advance(state, observation(T, routing=ACTIVE), a_grid))[1:]

    assert next_after("FM") == [Propose(("SM", "SH", "rebuild"), 1)]
    assert next_after("SM") == [Propose(("SH", "rebuild"), 1)]
    assert next_after("SH") == [Propose(("rebuild",), 1)]
    assert next_after("rebuild") == []


def test_cells_of_a_kd_t_migrate_before_it_is_rebuilt():
    kd_t = replace(AUTO, strategies=KINDS["kd-t"].strategies)
    after = {
        strategy: others(
            advance(
                replace(VERIFYING, proposal=replace(PM, strategy=strategy), over=T - 200_000),
                observation(T, routing=ACTIVE),
                kd_t,
            )
        )[1:]
        for strategy in ("FM", "CM")
    }
    assert after == {"FM": [Propose(("CM", "rebuild"), 1)], "CM": [Propose(("rebuild",), 1)]}
