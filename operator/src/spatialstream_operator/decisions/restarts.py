"""When a driver's pod is made, removed and made again.

The operator makes bare pods that are never restarted in place, so what ends has to be made again: at once if it was
planned, after a pause that doubles with each failure in a row if it was not. A driver that has run for long enough
counts as healthy, and its failures are forgotten. After too many of them the stream is degraded, and a new pod is tried
only at the longest pause: never given up, because most causes end by themselves or by somebody's hand.

A pod that cannot start (no such image, no room) is not made again, because Kubernetes itself keeps trying; its cause is
told (:mod:`~spatialstream_operator.decisions.starting`).
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
"""Where a pod is; *stuck* is pending for a cause that somebody has to remove."""

Action = Literal["create", "delete", "strike", "keep", "wait"]
"""Make the pod; remove it; take it off the list without its node; leave it alone; there is none, and none is to be
made now."""

_SLOW = 3
_LONGEST = 16
_DRIVER = "driver"
_LOST = Failure("NodeLost", "The node of the driver's pod is lost, or out of reach; another one is made elsewhere.")


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """``spec.restart``; durations in ms.

    Attributes:
        backoff: pause after the first failure.
        longest: the longest pause (``maxBackoff``).
        failures: failures in a row from which the stream is degraded (``maxFailures``).
        healthy: how long a driver has to run for its failures to be forgotten (``healthyAfter``).
    """

    backoff: int = 5_000
    longest: int = 300_000
    failures: int = 10
    healthy: int = 120_000


@dataclass(frozen=True, slots=True)
class PodReport:
    """What a pod's own status says.

    Attributes:
        uid: tells it from its predecessors of the same name.
        state: where it is.
        template: its ``spatialstream.dev/template-hash``.
        started: since when its driver runs, in ms; None if it does not.
        ended: when its driver ended, in ms; None if it has not, or if that is not known.
        ready: whether it is ready.
        failure: why it failed or is stuck, what it waits for, or why a container beside the driver cannot start.
        ran: whether its driver runs, has run, or may have: only of one that still waits to be started it is known.
        lost: whether it is to end, and nobody will say that it has.
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
    """What is remembered about a job, in ``status.router`` and ``status.workers``.

    Attributes:
        uid: of the pod that was last seen; "" if it is gone and accounted for.
        template: hash of the template that was last tried.
        restarts: pods that were made again after a failure, in all.
        failures: failures in a row.
        last: the last failure.
        failed: when that was, in ms.
        attempt: when the next pod may be made, in ms; None: at once.
    """

    uid: str = ""
    template: str = ""
    restarts: int = 0
    failures: int = 0
    last: Failure | None = None
    failed: int | None = None
    attempt: int | None = None

    def to_status(self) -> dict[str, Any]:
        """As it stands in the status; every key is there."""
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
        """From the status; what is not there, or not understood, begins anew."""
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
"""Whether a job has ever run. *No* is said only where it is known: of no pod, or of one that was seen to wait."""


def ran(before: Mapping[str, Any], pod: PodReport | None) -> Ran:
    """Whether a job has ever run, as far as is known.

    Args:
        before: what was remembered of the job, as in the status.
        pod: its pod, if there is one.
    """
    known = before.get("ran")
    if known not in ("no", "unknown"):
        first = known is None and not before.get("templateHash") and pod is None
        return "no" if first else "yes"
    if pod is not None:
        return "yes" if pod.ran else "no"
    # a pod that was there and has not been seen ending may have done anything in between
    return "yes" if before.get("podUid") else known


def may_run(known: Ran, refused: bool) -> Ran:
    """The same when a pod is about to be made; written down before, for the operator may never see what becomes of it.

    Args:
        known: before.
        refused: whether the last pod that was to be made was refused.
    """
    return "unknown" if known == "no" or (known == "unknown" and refused) else "yes"


@dataclass(frozen=True, slots=True)
class RestartDecision:
    """What to do about a pod.

    Attributes:
        state: what to remember; it is written down before anything is done.
        action: what to do.
        failure: a failure that was found just now, to be told once.
        restarted: whether the pod to be made follows one that failed, to be counted.
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
    """What to do about a job's pod.

    Args:
        state: what was remembered.
        pod: the pod there is.
        wanted: hash of the template that it should have; None if there should be none.
        now: the time, in ms since 1970-01-01 UTC.
        settings: as they are now.
    """
    if wanted is not None and wanted != state.template:
        state = replace(state, template=wanted, failures=0, attempt=None)  # what failed before may be put right
    if pod is None:
        return _absent(state, wanted, now, settings)
    if pod.state == "terminating":
        if pod.lost and wanted is not None:  # its name is needed
            return RestartDecision(replace(state, uid="", last=_LOST, failed=now, attempt=now), "strike", _LOST)
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
    found = None
    if state.uid:  # it was there, and nobody here has removed it
        found = Failure("PodDeleted", "The driver's pod was removed by somebody else, or with its node.")
        state = replace(state, uid="", last=found, failed=now, attempt=now + settings.backoff)
    if state.attempt is not None and now < state.attempt:
        return RestartDecision(state, "wait", found)
    again = state.attempt is not None
    state = replace(state, attempt=None, restarts=state.restarts + again)
    return RestartDecision(state, "create", found, again)


def _failed(state: RestartState, pod: PodReport, now: int, settings: RestartSettings) -> RestartDecision:
    """A failed pod is kept, with its log, until the next one is made."""
    found = None
    if state.uid != pod.uid or state.attempt is None:
        found = pod.failure or Failure("Error", "The driver has ended.")
        ran = 0 if pod.started is None or pod.ended is None else pod.ended - pod.started
        failures = 1 if ran >= settings.healthy else state.failures + 1
        pause = _pause(failures, found, settings)
        state = replace(state, uid=pod.uid, failures=failures, last=found, failed=now, attempt=now + pause)
    if state.attempt is not None and now < state.attempt:
        return RestartDecision(state, "keep", found)
    return RestartDecision(replace(state, uid=""), "delete", found)


def _pause(failures: int, failure: Failure, settings: RestartSettings) -> int:
    """How long to wait after so many failures in a row."""
    if failures >= settings.failures:
        return settings.longest
    doublings = failures - 1 + (_SLOW if failure.retry == "slow" else 0)
    return min(settings.longest, settings.backoff << min(doublings, _LONGEST))


# ------------------------------------------------------------------------------------------------------ reading a pod

_EXITS: Mapping[int, Failure] = {
    0: Failure("Ended", "The driver ended without being told to."),
    2: Failure("SettingsRefused", "The driver refused a setting, or a server was out of reach at its start.", "slow"),
    3: Failure("RunFailed", "The streaming query failed."),
    137: Failure("Killed", "The driver was killed."),
    143: Failure("Terminated", "The driver was asked to end by somebody else."),
}
"""What the exit statuses of ``spatialstream router`` and ``worker`` mean."""


def report(
    pod: Mapping[str, Any], now: int, container: str = _DRIVER, events: Sequence[Mapping[str, Any]] = ()
) -> PodReport:
    """What a pod's own status says, and the events about it if it does not start.

    Args:
        pod: the Pod, as the API server gives it.
        now: the time, in ms since 1970-01-01 UTC.
        container: name of the container that matters.
        events: about this pod.
    """
    meta, status = records.part(pod, "metadata"), records.part(pod, "status")
    uid = records.text(meta, "uid")
    template = records.text(records.part(meta, "annotations"), "spatialstream.dev/template-hash")
    driver = named(status.get("containerStatuses"), "name", container)
    phase, state = records.text(status, "phase"), records.part(driver, "state")
    leaving = records.moment(meta, "deletionTimestamp")
    if leaving is not None:
        late = Failure("TerminationStuck", "The pod does not end; its node may be lost.", "slow")
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
    """Whether a driver's container has not been started yet, and was not before."""
    if not driver:
        return phase in ("", "Pending")
    return "waiting" in records.part(driver, "state") and not driver.get("restartCount") and not driver.get("lastState")


def _ended(status: Mapping[str, Any], terminated: Mapping[str, Any]) -> Failure:
    """Why a pod has ended: what happened to the pod, before what happened to its driver."""
    reason, message = records.text(status, "reason"), records.text(status, "message")
    disrupted = named(status.get("conditions"), "type", "DisruptionTarget")
    if disrupted.get("status") == "True":
        reason = reason or records.text(disrupted, "reason") or "Disrupted"
        message = message or records.text(disrupted, "message")
    if reason:
        return Failure(reason, message or f"The driver's pod has ended: {reason}.")
    said = records.text(terminated, "message").strip()
    if terminated.get("reason") == "OOMKilled":
        return Failure("OOMKilled", "The driver used more memory than its limit.")
    code = terminated.get("exitCode")
    if not isinstance(code, int):
        return Failure("Error", said or "The driver has ended.")
    known = _EXITS.get(code, Failure("Error", f"The driver ended with exit status {code}."))
    return replace(known, message=said[-1000:] or known.message)
