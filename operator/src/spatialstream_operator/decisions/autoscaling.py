"""How many executors a stream's worker, or router, should have: quick up, slow down, and nothing without figures.

Each look gives a *recommendation*, the highest of three:

- *utilisation*: the number that would bring it to its target, ``ceil(registered x utilisation / target)``. Within 10 %
  of the target nothing changes;
- *delay*: results that are later than allowed, or records that wait longer for the router, ask for more in
  proportion, ``ceil(registered x delay / target)``, one at least and twice as many at most;
- *backlog*: where more comes than is done, and results are on their way to be late for it, ``ceil(registered x comes /
  done)``; executors that are busy besides need that many times more than their utilisation says.

What is desired goes up to the *lowest* recommendation of the short window: what all of it asked for, so that a spike
alone starts no executor; at most to twice as many at once, and not while those asked for before are still starting. It
goes down by one when the *highest* recommendation of the long window is lower, with a pause in between.

Delay and backlog count whatever utilisation says, because a round has costs that are no core's work. But they may have
a cause that executors do not cure: the driver, Kafka, one hot slot. That is found out by trying. LoadMetrics are of the
last two minutes, so more executors have that time to show an effect; if then results are as late, no more is done, and
the cores are idle besides, none are added until results have been in time again.

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
        enabled: whether the operator decides; if not, ``replicas`` is what is wanted.
        minimum, maximum: bounds of the number of executors.
        target: utilisation to aim at, from 0 to 1.
        late: delay in ms above which there are too few executors (``targetDelay``).
        up: how long more have to be needed, in ms.
        down: how long fewer have to be needed, in ms.
        fresh: age in ms to which figures count.
        job: ``worker`` or ``router``; a matter of words alone.
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
        """Time in ms between two steps down."""
        return max(_SETTLE, self.down // 5)


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a job is used.

    Attributes:
        at: when the figures were scraped, in ms since 1970-01-01 UTC.
        utilisation: time that cores worked on tasks over the time of all cores, 0 to about 1.
        delay: ms from the decision about an epoch to its results, or that records wait for the router; None if there
            are none.
        growth: messages or records a second that come in excess of those that are done; None if it is not known.
        done: messages or records a second that are done, of the same kind; None if it is not known.
    """

    at: int
    utilisation: float
    delay: int | None = None
    growth: float | None = None
    done: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """How things were when executors were last added because of delay or backlog; ``trial`` in the status.

    Attributes:
        delay: in ms.
        done: records a second that were done; None if that was not known.
        failed: whether it has been seen that those executors change nothing.
    """

    delay: int
    done: float | None = None
    failed: bool = False

    def to_status(self) -> dict[str, Any]:
        """As it stands in the status; every key is there."""
        return {"delay": self.delay, "done": records.ratio_text(self.done), "failed": self.failed}

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Trial | None:
        """From the status; None if there is none, or it is not understood."""
        delay = records.whole(status, "delay")
        return (
            None if delay is None else cls(delay, records.ratio(status, "done"), bool(records.flag(status, "failed")))
        )

    def helped(self, use: Use) -> bool:
        """Whether results have come earlier since, or more is done."""
        earlier = use.delay is not None and use.delay <= self.delay * (1.0 - _BETTER)
        return earlier or (
            self.done is not None and use.done is not None and use.done >= self.done * (1.0 + _BETTER) > 0.0
        )


@dataclass(frozen=True, slots=True)
class ScalingState:
    """What is remembered, in ``status.autoscaling`` or ``status.router.autoscaling``.

    Attributes:
        desired: number of executors; None before the first decision.
        replicas: ``spec.workers.replicas`` as it was last seen; a change of it is followed at once.
        changed: when ``desired`` was last changed by recommendation, in ms.
        short, long: recommendations over the two windows.
        trial: what executors that were added because of delay are to make better; None if results were in time since.
    """

    desired: int | None = None
    replicas: int | None = None
    changed: int | None = None
    short: Window = EMPTY
    long: Window = EMPTY
    trial: Trial | None = None

    def to_status(self) -> dict[str, Any]:
        """As it stands in the status; every key is there."""
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
        """From the status; what is not there, or not understood, begins anew."""
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
    """How many executors there should be.

    Attributes:
        desired: the number, within the bounds.
        state: what to remember.
        reason: why, CamelCase.
        message: why, in a sentence.
    """

    desired: int
    state: ScalingState
    reason: str
    message: str


def clamp(replicas: int | None, minimum: int, maximum: int) -> int:
    """A wish within bounds; without a wish the minimum."""
    return minimum if replicas is None else max(minimum, min(maximum, replicas))


def out_of_bounds(replicas: int | None, settings: AutoscalingSettings) -> str:
    """A sentence that says which bound counts in place of a wish; "" if the wish is within the bounds."""
    bound = clamp(replicas, settings.minimum, settings.maximum)
    if replicas is None or replicas == bound:
        return ""
    which = f"workers.max allows {bound}" if replicas > bound else f"workers.min is {bound}"
    return f"There are to be {bound} executors: workers.replicas asks for {replicas}, and {which}."


def autoscale(
    state: ScalingState,
    now: int,
    use: Use | None,
    registered: int | None,
    replicas: int | None,
    settings: AutoscalingSettings,
    adopting: bool = False,
) -> Decision:
    """How many executors there should be now.

    Args:
        state: what was remembered.
        now: the time, in ms since 1970-01-01 UTC.
        use: the latest figures; None if there are none.
        registered: executors that are registered with the job's driver; None if that is not known.
        replicas: ``spec.workers.replicas``, which a person, an HPA or KEDA may have set; None if nobody has.
        settings: what is wanted.
        adopting: whether a routing version is being adopted; nothing is changed then.
    """
    if not settings.enabled:
        desired = clamp(replicas, settings.minimum, settings.maximum)
        whose = {"worker": "workers", "router": "router"}[settings.job]
        who = f"{whose}.{'min' if replicas is None else 'replicas'}"
        if beyond := out_of_bounds(replicas, settings):
            return Decision(desired, ScalingState(desired, replicas), "OutOfBounds", beyond)
        return Decision(desired, ScalingState(desired, replicas), "Fixed", f"Autoscaling is off; {who} counts.")
    if state.desired is None or (replicas != state.replicas and replicas is not None):
        desired = clamp(replicas, settings.minimum, settings.maximum)
        fresh = ScalingState(desired, replicas, now)
        return Decision(desired, fresh, "Set", f"Autoscaling goes on from {desired}.")
    current = clamp(state.desired, settings.minimum, settings.maximum)
    state = replace(state, desired=current, replicas=replicas)
    if use is None or registered is None or not math.isfinite(use.utilisation) or use.utilisation < 0.0:
        return _same(state, "MetricsMissing", f"There are no figures of the {settings.job}'s use.")
    if now - use.at > settings.fresh:
        return _same(state, "MetricsStale", f"The figures of the {settings.job}'s use are too old to act on.")
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
    """What has become of executors that were added because of delay."""
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
    """Whether figures are of the number as it is now alone."""
    return state.changed is None or now - state.changed >= _EFFECT


def _recommendation(
    use: Use, registered: int, current: int, settings: AutoscalingSettings, state: ScalingState, now: int
) -> tuple[int, str]:
    """How many executors the figures of one look ask for, and why."""
    growth = _growth(use)
    pressure = use.utilisation / settings.target
    delay = 0.0 if use.delay is None else use.delay / settings.late
    # what waits before it is routed is no work for executors: a backlog of theirs keeps them busy, or results late
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
        needed = max(needed, current)  # one fewer, and results would be late
    return needed, "Busy" if needed > current else "Idle"


def _times(executors: int, factor: float) -> int:
    """So many times the executors, rounded up."""
    return math.ceil(executors * factor - _ROUNDING)


def _growth(use: Use) -> float:
    """What comes over what is done: 1 while a backlog does not grow, at most 4."""
    if use.growth is None or use.done is None or not use.growth > 0.0 or not use.done > 0.0:
        return 1.0
    return min(1.0 + use.growth / use.done, _GROWTH)


def _moved(
    state: ScalingState, now: int, use: Use, registered: int, settings: AutoscalingSettings, why: str
) -> Decision:
    """What the two windows make of the recommendations."""
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


_LATE: Mapping[str, str] = {"worker": "Results are late", "router": "Records wait for long"}
_WHY: Mapping[str, str] = {
    "NotExecutors": "{} or a backlog grows, and the executors that were added for that changed nothing.",
    "Waiting": "{} or a backlog grows; whether the executors that were added help is not known yet.",
    "Late": "{}.",
    "Backlog": "A backlog grows.",
    "OnTarget": "Utilisation is near its target.",
    "Busy": "Utilisation is above its target.",
    "Idle": "Utilisation is below its target.",
}


def _same(state: ScalingState, reason: str, message: str) -> Decision:
    return Decision(state.desired or 0, state, reason, message)


def _changed(state: ScalingState, now: int, desired: int, reason: str) -> Decision:
    """The number changes; what was needed just now is measured anew with the new number."""
    message = f"From {state.desired} to {desired} executors."
    return Decision(desired, replace(state, desired=desired, changed=now, short=EMPTY), reason, message)
