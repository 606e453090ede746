"""The load that the test on a cluster sends (tests/e2e), with figures as Prometheus makes them: it has to suffice."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from spatialstream_operator.decisions.autoscaling import AutoscalingSettings, ScalingState, Use, autoscale
from tests.e2e.test_platform import AUTOSCALING
from tests.unit.operator.resource import parse

T = 1_800_000_000
SCRAPE, LOOK = 3, 5
WINDOW = 120
COMES = 25  # seconds until an executor that is asked for is registered
PART, BETWEEN = 20, 6  # seconds for which a part is sent, and until the next one begins


def settings():
    spec = parse({"autoscaling": AUTOSCALING, "workers": {"min": 1, "max": 2}})
    wanted = spec.autoscaling
    return AutoscalingSettings(
        wanted.enabled, spec.workers.min, spec.workers.max, wanted.utilisation / 100, wanted.lag, wanted.up, wanted.down
    )


@dataclass
class Stream:
    """A stream of which each second of load keeps the slots busy for a part of it.

    Attributes:
        share: that part, of one core.
        late: ms that results take while there is load.
    """

    share: float
    late: int = 1_500
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
        if self.now % LOOK == 0:
            self.look()
        if self.desired > self.registered and self.coming is None:
            self.coming = self.now + COMES
        if self.coming is not None and self.now >= self.coming:
            self.registered, self.coming = self.desired, None
        self.registered = min(self.registered, self.desired)

    def look(self):
        while self.samples[0][0] < self.now - WINDOW:
            self.samples.popleft()
        while self.rounds and self.rounds[0] < self.now - WINDOW:
            self.rounds.popleft()
        (_, first), (at, last) = self.samples[0], self.samples[-1]
        use = Use(at * 1000, (last - first) / WINDOW / self.registered, self.late if self.rounds else None)
        decision = autoscale(self.state, self.now * 1000, use, self.registered, None, settings())
        self.state, self.reason = decision.state, decision.reason

    def until(self, condition, load, within):
        """Seconds until something holds."""
        began = self.now
        while not condition():
            assert self.now - began < within, f"not within {within} s; {self}"
            self.second(load(self.now - began))
        return self.now - began


def parts(passed):
    return passed % (PART + BETWEEN) < PART


def silence(passed):
    return False


@pytest.mark.parametrize("share", [0.02, 0.03, 0.05, 0.08, 0.15, 0.4])
@pytest.mark.parametrize("late", [1_500, 20_000])
def test_it_goes_out_under_load_and_in_after_it(share, late):
    stream = Stream(share, late)
    assert stream.until(lambda: stream.reason == "Idle", silence, 20) <= 2 * LOOK

    out = stream.until(lambda: stream.desired == 2, parts, 8 * (PART + BETWEEN))
    for _ in range(PART):  # the part under way is sent to its end
        stream.second(True)
    stream.until(lambda: stream.registered == 2, silence, COMES)
    for _ in range(4):  # a small part, which both executors answer
        stream.second(True)
    back = stream.until(lambda: stream.desired == 1, silence, 240)

    assert out <= 100
    assert back <= WINDOW + 4 * LOOK
    assert stream.registered == 1


def test_what_the_test_before_it_has_sent_starts_no_executor():
    stream = Stream(0.08)
    for _ in range(12):
        stream.second(True)
    for _ in range(WINDOW):
        stream.second(False)
        assert stream.desired == 1
