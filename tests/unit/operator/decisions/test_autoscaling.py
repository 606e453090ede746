"""Autoscaling: examples, and hours of simulated load."""

import itertools
import json
import math
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream_operator.decisions.autoscaling import AutoscalingSettings, ScalingState, Use, autoscale, clamp
from tests.unit.operator.decisions.trace import synthesise
from tests.unit.operator.resource import parse

T = 1_800_000_000_000
LOOK = 15_000
MINUTE = 60_000
SETTINGS = AutoscalingSettings(True, 1, 8, 0.7)
ONE = 1000.0  # objects a second that one executor does at most


@dataclass
class Workers:
    """A worker whose executors take 25 s to come, and what they have not done yet."""

    load: object
    noise: float = 0.0
    seed: int = 0
    settings: AutoscalingSettings = SETTINGS
    restart: float = 0.0
    now: int = T
    state: ScalingState = field(default_factory=ScalingState)
    backlog: float = 0.0
    coming: list = field(default_factory=list)  # (when, how many)
    registered: int = 0
    history: list = field(default_factory=list)  # (time, desired)
    delays: list = field(default_factory=list)

    def __post_init__(self):
        self.random = random.Random(self.seed)

    def tick(self, use="measured", adopting=False):
        self.now += LOOK
        arrivals = self.load(self.now - T)
        able = max(self.registered, 0) * ONE
        done = min(able, arrivals + self.backlog / (LOOK / 1000))
        self.backlog = max(0.0, self.backlog + (arrivals - done) * LOOK / 1000)
        if use == "measured":
            busy = done / able if able else 0.0
            wave = 1.0 + self.noise * (2.0 * self.random.random() - 1.0)
            delay = round(1000 + 1000 * self.backlog / max(able, 1.0))
            self.delays.append((self.now, delay))
            use = Use(self.now, min(1.0, busy * wave), delay, arrivals - done, done)
        if self.random.random() < self.restart:
            before = self.state
            self.state = ScalingState.from_status(json.loads(json.dumps(self.state.to_status())))
            assert self.state == before
        decision = autoscale(self.state, self.now, use, self.registered, None, self.settings, adopting)
        self.state = decision.state
        assert self.settings.minimum <= decision.desired <= self.settings.maximum
        self.history.append((self.now, decision.desired))
        wanted = self.registered + sum(each for _, each in self.coming)
        if decision.desired > wanted:
            self.coming.append((self.now + 25_000, decision.desired - wanted))
        if decision.desired < self.registered:
            self.registered = decision.desired
        self.registered += sum(each for when, each in self.coming if when <= self.now)
        self.coming = [(when, each) for when, each in self.coming if when > self.now]
        return decision

    def run(self, minutes, **more):
        while self.now - T < minutes * MINUTE:
            self.tick(**more)
        return self

    def changes(self, after=0):
        desired = [each for at, each in self.history if at - T >= after * MINUTE]
        return sum(one != other for one, other in itertools.pairwise(desired))


@pytest.mark.parametrize("executors", [2.0, 3.5, 5.0])
def test_after_a_step_there_is_enough_within_five_minutes(executors):
    workers = Workers(lambda at: (0.5 if at < 20 * MINUTE else executors) * ONE).run(25)

    assert workers.registered >= math.ceil(executors / 0.7) - 1
    assert workers.registered * 1.1 >= executors / 0.7
    assert workers.run(35).delays[-1][1] < 2000


def test_after_the_load_has_gone_it_goes_down_slowly():
    workers = Workers(lambda at: (4.5 if at < 30 * MINUTE else 0.3) * ONE).run(30)
    assert workers.history[-1][1] == 7

    workers.run(39)
    assert workers.history[-1][1] == 7
    workers.run(30 + 10 + 7 * 2 + 1)
    assert workers.history[-1][1] == 1
    steps = [one[1] - other[1] for one, other in zip(workers.history, workers.history[1:], strict=False)]
    assert max(steps) == 1


@settings(max_examples=25)
@given(st.floats(0.1, 5.0), st.integers(0, 999))
def test_noise_of_a_tenth_does_not_make_it_flap(executors, seed):
    workers = Workers(lambda at: executors * ONE, 0.1, seed).run(2 * 60)

    assert workers.changes(after=60) <= 1


@settings(max_examples=25)
@given(st.floats(0.1, 5.0), st.integers(0, 999))
def test_much_noise_changes_little(executors, seed):
    workers = Workers(lambda at: executors * ONE, 0.3, seed).run(3 * 60)

    assert workers.changes(after=60) <= 6


def test_a_day_of_the_trace():
    rows = [float(row[1]) for row in synthesise()]
    workers = Workers(lambda at: rows[min(at // (5 * MINUTE), len(rows) - 1)] * 2.0, 0.05, 1, restart=0.05)
    workers.run(24 * 60)

    desired = [each for _, each in workers.history]
    assert min(desired) == 1
    assert max(desired) >= 6
    assert workers.changes() <= 80
    late = sum(delay > 10_000 for _, delay in workers.delays) / len(workers.delays)
    assert late < 0.02
    mean = sum(desired) / len(desired)
    assert mean < 5


def test_a_backlog_that_grows_asks_for_more_than_utilisation_does():
    def wanted(growth):
        state = ScalingState(2, None, T)
        for step in range(4):
            now = T + step * LOOK
            decision = autoscale(state, now, Use(now, 0.75, 1000, growth, 1000.0), 2, None, SETTINGS)
            state = decision.state
        return decision.desired

    assert wanted(0.0) == 2
    assert wanted(500.0) == 4


def decided(use, count, state=None, registered=None, settings=SETTINGS):
    """Looks that all find the same; the last decision, and when it was taken."""
    state = state or ScalingState(2, None, T)
    for step in range(count):
        now = T + step * LOOK
        decision = autoscale(state, now, replace(use, at=now), registered or state.desired, None, settings)
        state = decision.state
    return decision


@pytest.mark.parametrize("utilisation", [0.0, 0.02, 0.2, 0.6])
def test_results_that_are_late_ask_for_more_whatever_utilisation_says(utilisation):
    assert decided(Use(T, utilisation, 14_000), 3).reason == "ScaledUpLate"
    assert decided(Use(T, utilisation, 14_000), 3).desired == 4
    assert decided(Use(T, utilisation, 5_100), 3).desired == 3
    assert decided(Use(T, utilisation, 4_900), 3).desired == 2


def test_with_the_defaults_fourteen_seconds_are_late():
    """So it was found: utilisation 2 %, results after 14 s, and nothing was done for half an hour."""
    wanted = parse({"autoscaling": {"enabled": True}, "workers": {"min": 1, "max": 4}}).autoscaling
    defaults = AutoscalingSettings(True, 1, 4, wanted.utilisation / 100, wanted.delay, wanted.up, wanted.down)
    decision = decided(Use(T, 0.02, 14_000), 3, ScalingState(1, None, T), settings=defaults)
    assert (decision.desired, decision.reason) == (2, "ScaledUpLate")


def test_a_backlog_that_makes_results_later_asks_for_more_though_the_cores_are_idle():
    assert decided(Use(T, 0.1, 3_000, 500.0, 1000.0), 3).desired == 3
    assert decided(Use(T, 0.1, 1_000, 500.0, 1000.0), 3).desired == 2, "it waits somewhere else"
    assert decided(Use(T, 0.1, 3_000, 50.0, 1000.0), 3).desired == 2, "a backlog that hardly grows"


def test_results_that_are_nearly_late_keep_the_executors_that_there_are():
    state = ScalingState(4, None, T - 10**9)
    assert decided(Use(T, 0.05, 3_000), 60, state).desired == 4
    assert decided(Use(T, 0.05, 2_000), 60, state).desired < 4


@dataclass
class Overhead(Workers):
    """Rounds have costs that are no core's work: at their limit the cores are idle for two thirds of the time."""

    measured: float = 0.3

    def tick(self, use="measured", adopting=False):
        target = self.settings
        self.settings = replace(target, target=target.target / self.measured)
        try:
            return super().tick(use, adopting)
        finally:
            self.settings = target


@pytest.mark.parametrize("executors", [2.0, 3.5, 6.0])
def test_executors_at_their_limit_that_do_not_look_busy_get_help_all_the_same(executors):
    workers = Overhead(lambda at: (0.5 if at < 20 * MINUTE else executors) * ONE).run(60)

    assert workers.registered >= executors
    assert workers.delays[-1][1] <= SETTINGS.late
    assert workers.history[79][1] == 1, "before the step one is enough"


def test_what_executors_do_not_cure_is_tried_once():
    state, seen = ScalingState(1, None, T), []
    for now in range(T, T + 120 * MINUTE, LOOK):
        decision = autoscale(state, now, Use(now, 0.05, 14_000, 0.0, 100.0), state.desired, None, SETTINGS)
        state = decision.state
        seen.append((decision.desired, decision.reason))
    assert max(desired for desired, _ in seen) == 2
    assert seen[-1] == (2, "NotExecutors")
    assert "Waiting" in {reason for _, reason in seen}
    assert state.trial.failed
    later = T + 121 * MINUTE
    state = autoscale(state, later, Use(later, 0.05, 1_000, 0.0, 100.0), 2, None, SETTINGS).state
    assert state.trial is None, "results were in time: the next time it is tried again"


def test_the_router_is_decided_alike_in_its_own_words():
    states = {job: ScalingState(1, None, T) for job in ("worker", "router")}
    for now in range(T, T + 30 * MINUTE, LOOK):
        use = Use(now, 0.3 + 0.5 * (now // MINUTE % 7 == 0), 200 * (now // MINUTE % 40), 10.0, 100.0)
        made = {
            job: autoscale(state, now, use, state.desired, None, replace(SETTINGS, job=job))
            for job, state in states.items()
        }
        states = {job: decision.state for job, decision in made.items()}
        assert made["router"].state == made["worker"].state
        assert made["router"].reason == made["worker"].reason
        assert "esults" not in made["router"].message
    assert states["router"].desired > 1


def test_what_executors_cure_goes_on():
    """Each executor does a hundred a second, and more come than four do."""
    state, delay, seen = ScalingState(1, None, T), 1_000.0, set()
    for now in range(T, T + 30 * MINUTE, LOOK):
        done = 100.0 * state.desired
        delay = min(60_000.0, max(500.0, delay + LOOK * (450.0 - done) / 450.0))
        use = Use(now, 0.05, round(delay), 450.0 - done, done)
        decision = autoscale(state, now, use, state.desired, None, SETTINGS)
        state = decision.state
        seen.add(decision.desired)
    assert max(seen) >= 5
    assert delay <= SETTINGS.late


def test_busy_cores_are_never_taken_for_useless():
    use = Use(T, 0.9, 14_000, 0.0, 100.0)
    state = ScalingState(2, None, T)
    for now in range(T, T + 30 * MINUTE, LOOK):
        state = autoscale(state, now, replace(use, at=now), state.desired, None, SETTINGS).state
    assert state.desired == SETTINGS.maximum


def test_at_most_twice_as_many_at_once_and_none_while_some_are_coming():
    workers = Workers(lambda at: 6.0 * ONE).run(10)
    steps = [(one[1], other[1]) for one, other in zip(workers.history, workers.history[1:], strict=False)]
    assert all(other <= 2 * one for one, other in steps)

    state = ScalingState(4, None, T)
    for step in range(40):
        now = T + step * LOOK
        decision = autoscale(state, now, Use(now, 1.0, None, 3000.0, 1000.0), 2, None, SETTINGS)
        state = decision.state
    assert decision.desired == 4
    assert decision.reason == "WaitingForExecutors"


@pytest.mark.parametrize(
    ("use", "registered", "reason"),
    [
        (None, 2, "MetricsMissing"),
        (Use(T, math.nan), 2, "MetricsMissing"),
        (Use(T, 1.0), None, "MetricsMissing"),
        (Use(T - 90_001, 1.0), 2, "MetricsStale"),
        (Use(T, 0.0), 0, "NoExecutors"),
    ],
)
def test_without_figures_nothing_changes(use, registered, reason):
    state = ScalingState(3, None, T - MINUTE)
    decision = autoscale(state, T, use, registered, None, SETTINGS)
    assert (decision.desired, decision.reason, decision.state) == (3, reason, state)


def test_not_while_a_version_is_being_adopted():
    workers = Workers(lambda at: 0.5 * ONE, registered=1).run(5)
    workers.load = lambda at: 5.0 * ONE
    workers.run(15, adopting=True)
    assert workers.history[-1][1] == 1
    assert workers.tick().desired == 2


def test_bounds_count_at_once_also_without_figures():
    state = ScalingState(6, None, T)
    assert autoscale(state, T, None, 6, None, replace(SETTINGS, maximum=4)).desired == 4
    assert autoscale(state, T, None, 6, None, replace(SETTINGS, minimum=7)).desired == 7


@given(st.none() | st.integers(0, 99), st.integers(1, 5), st.integers(0, 5), st.none() | st.integers(0, 99))
def test_without_autoscaling_whoever_scales_is_followed_within_bounds(replicas, minimum, more, before):
    settings = AutoscalingSettings(False, minimum, minimum + more, 0.7)
    decision = autoscale(ScalingState(before), T, Use(T, 1.0), 1, replicas, settings)
    expected = sorted([minimum, minimum if replicas is None else replicas, minimum + more])[1]
    assert decision.desired == expected == clamp(replicas, minimum, minimum + more)


def test_a_number_that_a_person_sets_is_where_it_goes_on_from():
    state = ScalingState(2, 2, T)
    decision = autoscale(state, T, Use(T, 0.7), 2, 5, SETTINGS)
    assert decision.desired == 5
    assert autoscale(decision.state, T + LOOK, Use(T, 0.7), 5, 5, SETTINGS).desired == 5


@given(st.lists(st.tuples(st.integers(0, 200_000), st.floats(0, 1), st.integers(0, 9)), max_size=80), st.integers(0, 9))
def test_whatever_comes_the_bounds_hold(observations, maximum):
    settings = AutoscalingSettings(True, min(2, maximum), maximum, 0.7)
    state, now = ScalingState(), T
    for passed, utilisation, registered in observations:
        now += passed
        use = Use(now - passed, utilisation, passed, float(registered), utilisation)
        before = state.desired
        decision = autoscale(state, now, use, registered, None, settings)
        state = decision.state
        assert settings.minimum <= decision.desired <= maximum
        assert before is None or decision.desired >= before - 1
        assert len(json.dumps(state.to_status())) < 4000


def test_nothing_goes_down_before_the_long_window_has_been_seen():
    state = ScalingState(5, None, T - 10**9)
    numbers = []
    for now in range(T, T + 11 * MINUTE, LOOK):
        decision = autoscale(state, now, Use(now, 0.1), 5, None, SETTINGS)
        state = decision.state
        numbers.append((now - T, decision.desired))
    assert next(at for at, desired in numbers if desired == 4) == SETTINGS.down
