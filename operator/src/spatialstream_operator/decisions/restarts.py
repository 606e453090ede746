"""When a driver's pod is created, deleted and recreated.

The operator creates bare pods that are never restarted in place, so a pod that terminates must be recreated: at once if
the termination was planned, otherwise after a backoff that doubles with each consecutive failure. A driver that has run
for long enough counts as healthy, and its failure count is reset. After too many consecutive failures the stream is
Degraded, and new pods are created only at the maximum backoff. The operator never stops retrying, because most causes
disappear by themselves or are removed by somebody.

A pod that cannot start (missing image, no room) is not recreated, because Kubernetes itself keeps trying; its cause is
reported (:mod:`~spatialstream_operator.decisions.starting`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.failures import Failure
from spatialstream_operator.decisions.lost import OVERDUE, is_lost, is_out_of_reach
from spatialstream_operator.decisions.starting import beside, hindrance, named

__all__ = [
    "Action",
    "Failure",
    "PodReport",
    "PodState",
    "Ran",
    "RestartDecision",
    "RestartSettings",
    "RestartState",
    "decide",
    "is_degraded",
    "may_run",
    "ran",
    "report",
]

PodState = Literal["pending", "stuck", "running", "failed", "terminating"]
"""State of a pod; *stuck* is pending for a cause that somebody has to remove."""

Action = Literal["create", "delete", "force_delete", "keep", "wait"]
"""Create the pod; delete it; delete it without waiting for its node; leave it alone; wait: there is no pod, and none is
to be created now."""

_SLOW = 3
_LONGEST = 16
_DRIVER = "driver"
_LOST = Failure(
    "NodeLost", "The node of the driver's pod is lost or unreachable; the pod is recreated on another node."
)


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """``spec.restart``; durations in ms.

    Attributes:
        backoff: backoff after the first failure.
        longest: maximum backoff (``maxBackoff``).
        failures: number of consecutive failures from which the stream is Degraded (``maxFailures``).
        healthy: how long a driver has to run until its failure count is reset (``healthyAfter``).
    """

    backoff: int = 5_000
    longest: int = 300_000
    failures: int = 10
    healthy: int = 120_000


@dataclass(frozen=True, slots=True)
class PodReport:
    """A pod's state, from its own status.

    Attributes:
        uid: distinguishes it from earlier pods of the same name.
        state: its state.
        template: its ``spatialstream.dev/template-hash``.
        started: when its driver started, in ms; None if it has not.
        ended: when its driver terminated, in ms; None if it has not, or if unknown.
        ready: whether it is ready.
        failure: why it failed or is stuck, what it waits for, or why another container of the pod cannot start.
        ran: whether its driver is running, has run, or may have; False only if its container still waits to be started.
        lost: whether it is being deleted, but its node will not confirm that.
    """

    uid: str
    state: PodState
    template: str = ""
    started: int | None = None
    ended: int | None = None
    ready: bool = False
    failure: Failure | None = None
    ran: bool = True
    lost: bool = False


@dataclass(frozen=True, slots=True)
class RestartState:
    """The restart state of a job, in ``status.router`` and ``status.workers``.

    Attributes:
        uid: uid of the last observed pod; "" if its end has been processed.
        template: hash of the last template.
        restarts: total number of pods that were recreated after a failure.
        failures: number of consecutive failures.
        last: the last failure.
        failed: time of the last failure, in ms.
        attempt: when the next pod may be created, in ms; None: at once.
    """

    uid: str = ""
    template: str = ""
    restarts: int = 0
    failures: int = 0
    last: Failure | None = None
    failed: int | None = None
    attempt: int | None = None

    def to_status(self) -> dict[str, Any]:
        """Convert to the form in the status; every key is present."""
        last = None
        if self.last is not None:
            last = {
                "time": records.moment_text(self.failed),
                "reason": self.last.reason,
                "message": self.last.message,
                "retry": self.last.retry,
            }
        return {
            "podUid": self.uid,
            "templateHash": self.template,
            "restarts": self.restarts,
            "failures": self.failures,
            "lastFailure": last,
            "nextAttempt": records.moment_text(self.attempt),
        }

    @classmethod
    def from_status(cls, status: Mapping[str, Any] | None) -> RestartState:
        """Read from the status; absent or invalid parts get their defaults."""
        record: Mapping[str, Any] = status if isinstance(status, Mapping) else {}
        last = records.part(record, "lastFailure")
        reason, message = records.text(last, "reason"), records.text(last, "message")
        retry: Literal["quick", "slow"] = "slow" if last.get("retry") == "slow" else "quick"
        return cls(
            records.text(record, "podUid"),
            records.text(record, "templateHash"),
            records.whole(record, "restarts") or 0,
            records.whole(record, "failures") or 0,
            Failure(reason, message, retry) if reason else None,
            records.moment(last, "time"),
            records.moment(record, "nextAttempt"),
        )


Ran = Literal["no", "unknown", "yes"]
"""Whether a job has ever run. *No* only if that is certain: it never had a pod, or only one that was seen waiting."""


def ran(before: Mapping[str, Any], pod: PodReport | None) -> Ran:
    """Whether a job has ever run, as far as is known.

    Args:
        before: the job's state in the status.
        pod: its pod, if there is one.
    """
    recorded = before.get("ran")
    if recorded not in ("no", "unknown"):
        first = recorded is None and not before.get("templateHash") and pod is None
        return "no" if first else "yes"
    if pod is not None:
        return "yes" if pod.ran else "no"
    # a pod that existed, and whose end was not observed, may have run in between
    return "yes" if before.get("podUid") else recorded


def may_run(known: Ran, refused: bool) -> Ran:
    """The same when a pod is about to be created. Stored before, because the operator may never observe the outcome.

    Args:
        known: the value before.
        refused: whether the API server rejected the last attempt to create the pod.
    """
    return "unknown" if known == "no" or (known == "unknown" and refused) else "yes"


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What to do about a pod.

    Attributes:
        state: the next state, to be stored before the action is carried out.
        action: the action.
        failure: a newly detected failure, to be reported once.
        restarted: whether the action recreates a failed pod, to be counted.
    """

    state: RestartState
    action: Action
    failure: Failure | None = None
    restarted: bool = False


def is_degraded(state: RestartState, settings: RestartSettings) -> bool:
    """Whether a job has failed too often in a row."""
    return state.failures >= settings.failures


# ------------------------------------------------------------------------------------------------------------ deciding


def decide(
    state: RestartState, pod: PodReport | None, wanted: str | None, now: int, settings: RestartSettings
) -> RestartDecision:
    """Decide what to do about a job's pod.

    Args:
        state: the state from the status.
        pod: the existing pod; None if there is none.
        wanted: hash of the desired template; None if there should be no pod.
        now: the time, in ms since 1970-01-01 UTC.
        settings: the current settings.
    """
    if wanted is not None and wanted != state.template:
        state = replace(state, template=wanted, failures=0, attempt=None)  # the change may have fixed the failure
    if pod is None:
        return _absent(state, wanted, now, settings)
    if pod.state == "terminating":
        if pod.lost and wanted is not None:  # its name is needed
            return RestartDecision(replace(state, uid="", last=_LOST, failed=now, attempt=now), "force_delete", _LOST)
        return RestartDecision(replace(state, uid=""), "keep")
    if wanted is None or pod.template != wanted:
        return RestartDecision(replace(state, uid=""), "delete")
    if pod.state == "failed":
        return _failed(state, pod, now, settings)
    if pod.started is not None and now - pod.started >= settings.healthy:
        state = replace(state, failures=0)
    return RestartDecision(replace(state, uid=pod.uid, attempt=None), "keep")


def _absent(state: RestartState, wanted: str | None, now: int, settings: RestartSettings) -> RestartDecision:
    if wanted is None:
        return RestartDecision(replace(state, uid=""), "wait")
    failure = None
    if state.uid:  # it existed, and this operator has not deleted it
        failure = Failure("PodDeleted", "The driver's pod was deleted by somebody else, or with its node.")
        state = replace(state, uid="", last=failure, failed=now, attempt=now + settings.backoff)
    if state.attempt is not None and now < state.attempt:
        return RestartDecision(state, "wait", failure)
    again = state.attempt is not None
    state = replace(state, attempt=None, restarts=state.restarts + again)
    return RestartDecision(state, "create", failure, again)


def _failed(state: RestartState, pod: PodReport, now: int, settings: RestartSettings) -> RestartDecision:
    """A failed pod is kept, with its log, until the next one is created."""
    failure = None
    if state.uid != pod.uid or state.attempt is None:
        failure = pod.failure or Failure("Error", "The driver has terminated.")
        ran = 0 if pod.started is None or pod.ended is None else pod.ended - pod.started
        failures = 1 if ran >= settings.healthy else state.failures + 1
        pause = _pause(failures, failure, settings)
        state = replace(state, uid=pod.uid, failures=failures, last=failure, failed=now, attempt=now + pause)
    if state.attempt is not None and now < state.attempt:
        return RestartDecision(state, "keep", failure)
    return RestartDecision(replace(state, uid=""), "delete", failure)


def _pause(failures: int, failure: Failure, settings: RestartSettings) -> int:
    """The backoff after a number of consecutive failures."""
    if failures >= settings.failures:
        return settings.longest
    doublings = failures - 1 + (_SLOW if failure.retry == "slow" else 0)
    return min(settings.longest, settings.backoff << min(doublings, _LONGEST))


# ------------------------------------------------------------------------------------------------------ reading a pod

_EXITS: Mapping[int, Failure] = {
    0: Failure("Ended", "The driver exited without being asked to."),
    2: Failure("SettingsRefused", "The driver rejected a setting, or a server was unreachable at its start.", "slow"),
    3: Failure("RunFailed", "The streaming query failed."),
    137: Failure("Killed", "The driver was killed."),
    143: Failure("Terminated", "The driver was asked to terminate by somebody else."),
}
"""Meaning of the exit statuses of ``spatialstream router`` and ``worker``."""


def report(
    pod: Mapping[str, Any], now: int, container: str = _DRIVER, events: Sequence[Mapping[str, Any]] = ()
) -> PodReport:
    """A pod's state, from its own status and, if it does not start, from the events about it.

    Args:
        pod: the Pod, as the API server returns it.
        now: the time, in ms since 1970-01-01 UTC.
        container: name of the main container.
        events: events about this pod.
    """
    meta, status = records.part(pod, "metadata"), records.part(pod, "status")
    uid = records.text(meta, "uid")
    template = records.text(records.part(meta, "annotations"), "spatialstream.dev/template-hash")
    driver = named(status.get("containerStatuses"), "name", container)
    phase, state = records.text(status, "phase"), records.part(driver, "state")
    leaving = records.moment(meta, "deletionTimestamp")
    if leaving is not None:
        late = Failure("TerminationStuck", "The pod does not terminate; its node may be lost.", "slow")
        failure, lost = late if now - leaving > OVERDUE else None, is_lost(pod, now)
        return PodReport(uid, "terminating", template, failure=failure, ran=not _waits(phase, driver), lost=lost)
    over = records.part(state, "terminated")
    if phase in ("Failed", "Succeeded") or over:
        times = records.moment(over, "startedAt"), records.moment(over, "finishedAt")
        return PodReport(uid, "failed", template, *times, failure=_ended(status, over))
    if "running" in state:
        started = records.moment(records.part(state, "running"), "startedAt")
        ready = driver.get("ready") is True and not is_out_of_reach(pod)
        return PodReport(uid, "running", template, started, ready=ready, failure=beside(pod, container))
    cause = hindrance(pod, container, now, events)
    blocked = cause is not None and cause.retry == "slow"
    return PodReport(uid, "stuck" if blocked else "pending", template, failure=cause, ran=not _waits(phase, driver))


def _waits(phase: str, driver: Mapping[str, Any]) -> bool:
    """Whether a driver's container has never been started."""
    if not driver:
        return phase in ("", "Pending")
    return "waiting" in records.part(driver, "state") and not driver.get("restartCount") and not driver.get("lastState")


def _ended(status: Mapping[str, Any], terminated: Mapping[str, Any]) -> Failure:
    """Why a pod has terminated; what happened to the pod takes precedence over what happened to its driver."""
    reason, message = records.text(status, "reason"), records.text(status, "message")
    disrupted = named(status.get("conditions"), "type", "DisruptionTarget")
    if disrupted.get("status") == "True":
        reason = reason or records.text(disrupted, "reason") or "Disrupted"
        message = message or records.text(disrupted, "message")
    if reason:
        return Failure(reason, message or f"The driver's pod has terminated: {reason}.")
    termination = records.text(terminated, "message").strip()
    if terminated.get("reason") == "OOMKilled":
        return Failure("OOMKilled", "The driver used more memory than its limit.")
    code = terminated.get("exitCode")
    if not isinstance(code, int):
        return Failure("Error", termination or "The driver has terminated.")
    known = _EXITS.get(code, Failure("Error", f"The driver exited with status {code}."))
    return replace(known, message=termination[-1000:] or known.message)
