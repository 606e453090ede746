"""How many executors a stream's worker or router should have: up fast, down slowly, no change without metrics.

Each reconciliation gives a *recommendation*, the maximum of three:

- *utilisation*: the number that would bring utilisation to its target, ``ceil(registered x utilisation / target)``.
  Within 10 % of the target nothing changes;
- *delay*: if results are later than allowed, or records wait too long for the router, proportionally more,
  ``ceil(registered x delay / target)``: at least one more, at most twice as many;
- *backlog*: if the input rate exceeds the processing rate and results are about to be late, ``ceil(registered x input
  rate / processing rate)``; if the executors are also busy, the number by utilisation is multiplied by the same factor.

The desired number goes up to the *lowest* recommendation in the short window, so that a single spike starts no
executor; at most to twice as many at once, and not while executors requested before are still starting. It goes down by
one when the *highest* recommendation in the long window is lower, with a pause between two steps.

Delay and backlog count regardless of utilisation, because a round has costs that use no executor core. But their cause
may be one that executors cannot cure: the driver, Kafka, one hot slot. This is found out by a trial. Metrics cover the
last two minutes, so added executors get that time to show an effect; if results are then as late as before, the
processing rate has not risen, and the cores are idle, no more executors are added until results are in time again.

Source of the two windows: the stabilisation windows of the Kubernetes HorizontalPodAutoscaler. Cost: O(1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.windows import EMPTY, Window

__all__ = ["AutoscalingSettings", "Decision", "ScalingState", "Trial", "Use", "autoscale", "clamp", "out_of_bounds"]

_TOLERANCE = 0.1
_IDLE = 0.5
_SETTLE = 60_000
_FRESH = 90_000
_GROWTH = 4.0
_EFFECT = 120_000
_EARLY = 0.5
_BETTER = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class AutoscalingSettings:
    """``spec.autoscaling``, and the bounds of ``spec.workers`` or ``spec.router``.

    Attributes:
        enabled: whether the operator decides; if not, ``replicas`` is the desired number.
        minimum, maximum: bounds of the number of executors.
        target: target utilisation, from 0 to 1.
        late: delay in ms above which there are too few executors (``targetDelay``).
        up: how long more executors must be needed before scaling up (short window), in ms.
        down: how long fewer executors must suffice before scaling down (long window), in ms.
        fresh: maximum age of usable metrics, in ms.
        job: ``worker`` or ``router``; affects messages only.
    """

    enabled: bool
    minimum: int
    maximum: int
    target: float
    late: int = 5_000
    up: int = 30_000
    down: int = 600_000
    fresh: int = _FRESH
    job: str = "worker"

    @property
    def settle(self) -> int:
        """Minimum time in ms between two steps down."""
        return max(_SETTLE, self.down // 5)


@dataclass(frozen=True, slots=True)
class Use:
    """Resource use of a job.

    Attributes:
        at: when the metrics were scraped, in ms since 1970-01-01 UTC.
        utilisation: time that cores spent on tasks divided by the time of all cores, 0 to about 1.
        delay: ms from the decision about an epoch to its results (worker), or that records wait for the router; None
            if there are none.
        growth: input rate minus processing rate, in messages or records per second; None if unknown.
        done: processing rate, in the same unit; None if unknown.
    """

    at: int
    utilisation: float
    delay: int | None = None
    growth: float | None = None
    done: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """The state when executors were last added because of delay or backlog; ``trial`` in the status.

    Attributes:
        delay: the delay then, in ms.
        done: the processing rate then, in records per second; None if unknown.
        failed: whether the added executors have turned out to have no effect.
    """

    delay: int
    done: float | None = None
    failed: bool = False

    def to_status(self) -> dict[str, Any]:
        """Convert to the form in the status; every key is present."""
        return {"delay": self.delay, "done": records.ratio_text(self.done), "failed": self.failed}

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Trial | None:
        """Read from the status; None if absent or invalid."""
        delay = records.whole(status, "delay")
        return (
            None if delay is None else cls(delay, records.ratio(status, "done"), bool(records.flag(status, "failed")))
        )

    def helped(self, use: Use) -> bool:
        """Whether the delay has decreased since, or the processing rate increased."""
        earlier = use.delay is not None and use.delay <= self.delay * (1.0 - _BETTER)
        return earlier or (
            self.done is not None and use.done is not None and use.done >= self.done * (1.0 + _BETTER) > 0.0
        )


@dataclass(frozen=True, slots=True)
class ScalingState:
    """The autoscaling state, in ``status.autoscaling`` or ``status.router.autoscaling``.

    Attributes:
        desired: desired number of executors; None before the first decision.
        replicas: last observed value of ``spec.workers.replicas``; a change of it takes effect at once.
        changed: when ``desired`` was last changed by a recommendation, in ms.
        short, long: recommendations in the two windows.
        trial: the trial in progress after executors were added because of delay; None once results are in time.
    """

    desired: int | None = None
    replicas: int | None = None
    changed: int | None = None
    short: Window = EMPTY
    long: Window = EMPTY
    trial: Trial | None = None

    def to_status(self) -> dict[str, Any]:
        """Convert to the form in the status; every key is present."""
        return {
            "desired": self.desired,
            "replicas": self.replicas,
            "since": records.moment_text(self.changed),
            "shortWindow": self.short.to_status(),
            "longWindow": self.long.to_status(),
            "trial": None if self.trial is None else self.trial.to_status(),
        }

    @classmethod
    def from_status(cls, status: Mapping[str, Any] | None) -> ScalingState:
        """Read from the status; absent or invalid parts get their defaults."""
        record: Mapping[str, Any] = status if isinstance(status, Mapping) else {}
        return cls(
            records.whole(record, "desired"),
            records.whole(record, "replicas"),
            records.moment(record, "since"),
            Window.from_status(records.part(record, "shortWindow")),
            Window.from_status(records.part(record, "longWindow")),
            Trial.from_status(records.part(record, "trial")),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The desired number of executors.

    Attributes:
        desired: the number, within the bounds.
        state: the state to store.
        reason: why, in CamelCase.
        message: why, as a sentence.
    """

    desired: int
    state: ScalingState
    reason: str
    message: str


def clamp(replicas: int | None, minimum: int, maximum: int) -> int:
    """The requested number limited to the bounds; the minimum if none is requested."""
    return minimum if replicas is None else max(minimum, min(maximum, replicas))


def out_of_bounds(replicas: int | None, settings: AutoscalingSettings) -> str:
    """A sentence that names the bound that overrides the requested number; "" if it is within the bounds."""
    bound = clamp(replicas, settings.minimum, settings.maximum)
    if replicas is None or replicas == bound:
        return ""
    which = f"workers.max allows {bound}" if replicas > bound else f"workers.min is {bound}"
    return f"The desired number of executors is {bound}: workers.replicas is {replicas}, but {which}."


def autoscale(
    state: ScalingState,
    now: int,
    use: Use | None,
    registered: int | None,
    replicas: int | None,
    settings: AutoscalingSettings,
    adopting: bool = False,
) -> Decision:
    """Decide how many executors there should be now.

    Args:
        state: the state from the status.
        now: the time, in ms since 1970-01-01 UTC.
        use: the latest metrics; None if there are none.
        registered: executors that are registered with the job's driver; None if unknown.
        replicas: ``spec.workers.replicas``, set by a person, an HPA or KEDA; None if unset.
        settings: the settings.
        adopting: whether a routing version is being adopted; nothing is changed then.
    """
    if not settings.enabled:
        desired = clamp(replicas, settings.minimum, settings.maximum)
        whose = {"worker": "workers", "router": "router"}[settings.job]
        who = f"{whose}.{'min' if replicas is None else 'replicas'}"
        if beyond := out_of_bounds(replicas, settings):
            return Decision(desired, ScalingState(desired, replicas), "OutOfBounds", beyond)
        return Decision(desired, ScalingState(desired, replicas), "Fixed", f"Autoscaling is off; {who} applies.")
    if state.desired is None or (replicas != state.replicas and replicas is not None):
        desired = clamp(replicas, settings.minimum, settings.maximum)
        fresh = ScalingState(desired, replicas, now)
        return Decision(desired, fresh, "Set", f"Autoscaling starts from {desired}.")
    current = clamp(state.desired, settings.minimum, settings.maximum)
    state = replace(state, desired=current, replicas=replicas)
    if use is None or registered is None or not math.isfinite(use.utilisation) or use.utilisation < 0.0:
        return _same(state, "MetricsMissing", f"There are no metrics of the {settings.job}'s utilisation.")
    if now - use.at > settings.fresh:
        return _same(state, "MetricsStale", f"The metrics of the {settings.job}'s utilisation are too old to act on.")
    if registered == 0:
        return _same(state, "NoExecutors", "No executor is registered yet.")
    state = _judged(state, now, use, registered, settings)
    wanted, why = _recommendation(use, registered, current, settings, state, now)
    bounded = clamp(wanted, settings.minimum, settings.maximum)
    state = replace(
        state,
        short=state.short.add(now, bounded, settings.up, settings.fresh),
        long=state.long.add(now, bounded, settings.down, settings.fresh),
    )
    if adopting:
        return _same(state, "Rebalancing", "A routing version is being adopted.")
    return _moved(state, now, use, registered, settings, why)


_CURABLE = frozenset({"Late", "Backlog"})


def _judged(state: ScalingState, now: int, use: Use, registered: int, settings: AutoscalingSettings) -> ScalingState:
    """Update the trial: whether executors that were added because of delay had an effect."""
    trial = state.trial
    if trial is None or use.delay is None:
        return state
    if use.delay <= settings.late and _growth(use) <= 1.0 + _TOLERANCE:
        return replace(state, trial=None)
    if registered < (state.desired or 0) or not _seen(state, now):
        return state
    idle = use.utilisation < _IDLE * settings.target
    return replace(state, trial=replace(trial, failed=trial.failed or (idle and not trial.helped(use))))


def _seen(state: ScalingState, now: int) -> bool:
    """Whether the metrics' window contains only the current number of executors."""
    return state.changed is None or now - state.changed >= _EFFECT


def _recommendation(
    use: Use, registered: int, current: int, settings: AutoscalingSettings, state: ScalingState, now: int
) -> tuple[int, str]:
    """The recommendation from one set of metrics: the number of executors, and the reason."""
    growth = _growth(use)
    pressure = use.utilisation / settings.target
    delay = 0.0 if use.delay is None else use.delay / settings.late
    # records that wait to be routed are no work for executors yet; a backlog of theirs shows as utilisation or delay
    grows = growth > 1.0 + _TOLERANCE and (delay > _EARLY or pressure >= _IDLE)
    needed = _times(registered, pressure * (growth if grows else 1.0))
    if delay > 1.0 or grows:
        why = "Late" if delay > 1.0 else "Backlog"
        if state.trial is not None and state.trial.failed:
            return max(current, needed), "NotExecutors"
        if state.trial is not None and not _seen(state, now):
            return max(current, needed), "Busy" if needed > current else "Waiting"
        more = max(_times(registered, min(delay, 2.0)), current + 1) if delay > 1.0 else current
        return max(needed, more, _times(registered, growth) if grows else 0), why
    if registered == current and abs(pressure - 1.0) <= _TOLERANCE:
        return current, "OnTarget"
    if delay > _EARLY:
        needed = max(needed, current)  # with one fewer, results would be late
    return needed, "Busy" if needed > current else "Idle"


def _times(executors: int, factor: float) -> int:
    """The number of executors times a factor, rounded up."""
    return math.ceil(executors * factor - _ROUNDING)


def _growth(use: Use) -> float:
    """Input rate divided by processing rate: 1 while the backlog does not grow, at most 4."""
    if use.growth is None or use.done is None or not use.growth > 0.0 or not use.done > 0.0:
        return 1.0
    return min(1.0 + use.growth / use.done, _GROWTH)


def _moved(
    state: ScalingState, now: int, use: Use, registered: int, settings: AutoscalingSettings, why: str
) -> Decision:
    """Apply the two windows to the recommendations."""
    current = state.desired or settings.minimum
    if state.short.covers(now, settings.up) and state.short.lowest > current:
        if registered < current:
            return _same(state, "WaitingForExecutors", f"{registered} of {current} executors are registered.")
        if why in _CURABLE and use.delay is not None:
            state = replace(state, trial=Trial(use.delay, None if use.done is None else round(use.done, 2)))
        return _changed(state, now, min(state.short.lowest, 2 * current), f"ScaledUp{why}")
    settled = state.changed is None or now - state.changed >= settings.settle
    if settled and state.long.covers(now, settings.down) and state.long.highest < current:
        return _changed(state, now, current - 1, "ScaledDown")
    return _same(state, why, _WHY[why].format(_LATE[settings.job]))


_LATE: Mapping[str, str] = {"worker": "Results are late", "router": "Records wait too long"}
_WHY: Mapping[str, str] = {
    "NotExecutors": "{} or the backlog grows, and adding executors had no effect.",
    "Waiting": "{} or the backlog grows; the effect of the added executors is not known yet.",
    "Late": "{}.",
    "Backlog": "The backlog grows.",
    "OnTarget": "Utilisation is near its target.",
    "Busy": "Utilisation is above its target.",
    "Idle": "Utilisation is below its target.",
}


def _same(state: ScalingState, reason: str, message: str) -> Decision:
    return Decision(state.desired or 0, state, reason, message)


def _changed(state: ScalingState, now: int, desired: int, reason: str) -> Decision:
    """Change the number; the short window starts again with the new number."""
    message = f"From {state.desired} to {desired} executors."
    return Decision(desired, replace(state, desired=desired, changed=now, short=EMPTY), reason, message)
