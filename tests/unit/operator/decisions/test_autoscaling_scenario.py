"""The load that the test on a cluster sends (tests/e2e), with figures as Prometheus makes them: it has to suffice."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from spatialstream_operator.decisions.autoscaling import AutoscalingSettings, ScalingState, Use, autoscale
from tests.e2e.test_platform import LENIENT, STRICT
from tests.unit.operator.resource import parse

T = 1_800_000_000
SCRAPE, INTERVAL = 3, 5
WINDOW = 120
COMES = 25  # seconds until an executor that is asked for is registered
PART = 20  # seconds for which the part is sent


def settings(given):
    spec = parse({"autoscaling": given, "workers": {"min": 1, "max": 2}})
    wanted = spec.autoscaling
    bounds = spec.workers.executors.min, spec.workers.executors.max
    return AutoscalingSettings(wanted.enabled, *bounds, wanted.utilisation / 100, wanted.delay, wanted.up, wanted.down)


@dataclass
class Stream:
    """A stream of which each second of load keeps the cores busy for a part of it.

    Attributes:
        share: that part, of one core.
        late: ms that results take while there is load.
    """

    share: float
    late: int
    wanted: dict = field(default_factory=lambda: LENIENT)
    now: int = T
    busy: float = 0.0
    samples: deque = field(default_factory=lambda: deque([(T, 0.0)]))
    rounds: deque = field(default_factory=deque)
    state: ScalingState = field(default_factory=lambda: ScalingState(1))
    registered: int = 1
    coming: int | None = None
    reason: str = ""

    @property
    def desired(self):
        return self.state.desired

    def second(self, load):
        self.now += 1
        if load:
            self.busy += self.share
            self.rounds.append(self.now)
        if self.now % SCRAPE == 0:
            self.samples.append((self.now, self.busy))
        if self.now % INTERVAL == 0:
            self.reconcile()
        if self.desired > self.registered and self.coming is None:
            self.coming = self.now + COMES
        if self.coming is not None and self.now >= self.coming:
            self.registered, self.coming = self.desired, None
        self.registered = min(self.registered, self.desired)

    def reconcile(self):
        while self.samples[0][0] < self.now - WINDOW:
            self.samples.popleft()
        while self.rounds and self.rounds[0] < self.now - WINDOW:
            self.rounds.popleft()
        (_, first), (at, last) = self.samples[0], self.samples[-1]
        use = Use(at * 1000, (last - first) / WINDOW / self.registered, self.late if self.rounds else None)
        decision = autoscale(self.state, self.now * 1000, use, self.registered, None, settings(self.wanted))
        self.state, self.reason = decision.state, decision.reason

    def until(self, condition, load, within):
        """Seconds until something holds."""
        began = self.now
        while not condition():
            assert self.now - began < within, f"not within {within} s; {self}"
            self.second(load and self.now - began < PART)
        return self.now - began


@pytest.mark.parametrize("before", [0, 20])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.15, 0.4, 0.9])
@pytest.mark.parametrize("late", [150, 1_500, 20_000])
def test_it_goes_out_under_load_and_in_when_that_is_early_enough(share, late, before):
    stream = Stream(share, late)
    for _ in range(before):  # what the test before it has sent
        stream.second(True)
    for _ in range(10):
        stream.second(False)
        assert stream.desired == 1
    assert stream.reason == "Idle"

    stream.wanted = STRICT
    out = stream.until(lambda: stream.desired == 2, True, 60)
    for _ in range(PART):  # the part under way is sent to its end
        stream.second(True)
    stream.until(lambda: stream.registered == 2, False, COMES)
    stream.wanted = LENIENT
    back = stream.until(lambda: stream.registered == 1, False, 120)

    assert out <= 20
    assert out + PART + COMES + back <= 120


def test_without_load_a_strict_target_starts_no_executor():
    stream = Stream(0.4, 1_500, STRICT)
    for _ in range(WINDOW):
        stream.second(False)
        assert stream.desired == 1


@pytest.mark.parametrize("late", [1_500, 14_000])
def test_the_defaults_follow_what_a_person_would_guess(late):
    stream = Stream(0.02, late, {"enabled": True})
    for _ in range(300):
        stream.second(True)
    assert stream.desired == (2 if late > 5_000 else 1)
