"""A stream's conditions, its phase, and the events that report their transitions.

``Ready``: the stream answers queries. ``Progressing``: the stream is changing towards its spec. ``Balanced``: see
:mod:`~spatialstream_operator.decisions.balance`. ``Degraded``: there is a problem that will not resolve itself soon.

By the conventions of Kubernetes ``lastTransitionTime`` changes only with the status, reasons are CamelCase words for
programs, messages are sentences for people. Events are created from transitions only, so they do not repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.rebalancing_state import Phase
from spatialstream_operator.decisions.restarts import Failure

__all__ = [
    "TYPES",
    "Crew",
    "Job",
    "JobState",
    "StreamPhase",
    "Summary",
    "condition",
    "conditions",
    "phase",
    "transitions",
]

TYPES = ("Ready", "Progressing", "Balanced", "Degraded")
"""The conditions of a stream, in their order."""

JobState = Literal["absent", "pending", "stuck", "starting", "running", "backoff", "terminating"]
"""State of a job. In this order: no pod; a pod that is being started; a pod that cannot start; a running driver that is
not ready yet; a ready driver; a failed pod that will be recreated later; a pod that is terminating."""

StreamPhase = Literal[
    "Pending", "Starting", "Running", "Rebalancing", "Suspending", "Suspended", "Degraded", "Deleting"
]
"""Phase of a stream: its actual state, not the desired one."""

LASTING = 30_000
"""ms after which a driver that cannot continue waits for more than a server that is restarted."""

_REBALANCING = frozenset({Phase.PUBLISHING, Phase.ADOPTING, Phase.WITHDRAWING, Phase.VERIFYING})
_COMING = frozenset({"absent", "pending", "starting", "terminating"})


@dataclass(frozen=True, slots=True)
class Job:
    """The router or the worker.

    Attributes:
        name: ``router`` or ``worker``.
        state: where it is.
        degraded: whether it has failed too often in a row.
        failures: failures in a row.
        failure: the last failure, or why its pod cannot start; for a running driver, why another container of its pod
            cannot start.
        started: since when its driver runs, in ms since 1970-01-01 UTC; None if it does not.
        trouble: why its driver, which runs, cannot continue, without a full stop; "": it can, as far as is known.
        since: when that began, in ms since 1970-01-01 UTC.
        before: whether it was the driver before this one that has said so.
    """

    name: str
    state: JobState
    degraded: bool = False
    failures: int = 0
    failure: Failure | None = None
    started: int | None = None
    trouble: str = ""
    since: int = 0
    before: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether the driver is running and ready."""
        return self.state == "running" and not self.is_troubled

    @property
    def is_troubled(self) -> bool:
        """Whether its driver runs, and has said itself why it cannot continue."""
        return bool(self.trouble) and not self.before


@dataclass(slots=True)
class Crew:
    """The executors of a job.

    Attributes:
        registered: number of ready executors; None if unknown.
        desired: desired number of executors.
        missing: the failure to report if some have been missing for longer than the grace time; None otherwise.
        beyond: a sentence if the number in the spec is outside the spec's own bounds; "" otherwise.
        shortage: why executors are not ready, without a full stop; "" if unknown, or if all are ready.
    """

    registered: int | None = None
    desired: int = 0
    missing: Failure | None = None
    shortage: str = ""
    beyond: str = ""

    @property
    def why(self) -> str:
        """The shortage, as the end of a sentence."""
        return f": {self.shortage}" if self.shortage else ""


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that the conditions depend on.

    Attributes:
        now: the time, in ms since 1970-01-01 UTC.
        generation: generation of the spec that was reconciled.
        router: the router.
        worker: the worker.
        balance: the ``Balanced`` condition.
        rebalance: phase of the rebalancing state machine.
        crews: the executors of each job that has any by its spec.
        suspended: whether the spec suspends the stream.
        deleting: whether the stream is being deleted.
        problem: why a step cannot be done for now, and whether it is expected to resolve itself (``quick``).
        rejecting: the failure to report if too many records are rejected; None otherwise.
        left: number of executor pods that still exist although the stream is being suspended.
        image: that another image is being tried, or cannot be used; None if that is not so. The running pods keep the
            one before.
    """

    now: int
    generation: int
    router: Job
    worker: Job
    balance: Verdict
    rebalance: Phase
    crews: Mapping[str, Crew]
    suspended: bool = False
    deleting: bool = False
    problem: Failure | None = None
    rejecting: Failure | None = None
    left: int = 0
    image: Failure | None = None

    @property
    def at_rest(self) -> bool:
        """Whether the stream is suspended, and all of its pods are gone."""
        return self.suspended and not self.left and all(job.state == "absent" for job in self.jobs)

    @property
    def missing(self) -> Failure | None:
        """The failure to report if executors of a job have been missing for longer than the grace time."""
        return next((crew.missing for crew in self.crews.values() if crew.missing is not None), None)

    @property
    def jobs(self) -> tuple[Job, Job]:
        """Both jobs."""
        return self.router, self.worker


# ---------------------------------------------------------------------------------------------------------- conditions


def conditions(summary: Summary, before: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The conditions, in the form of ``status.conditions``.

    Args:
        summary: the state of the stream.
        before: the previous conditions. Conditions of other types are kept.
    """
    known = {records.text(each, "type"): each for each in before}
    verdicts = (_ready(summary), _progressing(summary), _balance(summary), _degraded(summary))
    when = summary.now, summary.generation
    ours = [condition(name, each, *when, known.get(name, {})) for name, each in zip(TYPES, verdicts, strict=True)]
    return ours + [dict(each) for name, each in known.items() if name not in TYPES]


def condition(name: str, verdict: Verdict, now: int, generation: int, before: Mapping[str, Any]) -> dict[str, Any]:
    """One condition, in the form of ``status.conditions``.

    Args:
        name: its type.
        verdict: its status, reason and message.
        now: the time, in ms since 1970-01-01 UTC.
        generation: generation of the spec that it is about.
        before: the previous condition; empty if there was none.
    """
    since = before.get("lastTransitionTime") if before.get("status") == verdict.status else None
    return {
        "type": name,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
        "lastTransitionTime": since or records.moment_text(now // 1000 * 1000),
        "observedGeneration": generation,
    }


def _ready(summary: Summary) -> Verdict:
    if summary.deleting:
        return Verdict("False", "Deleting", "The stream is being deleted.")
    if summary.suspended:
        if summary.at_rest:
            return Verdict("False", "Suspended", "The stream is suspended.")
        return Verdict("False", "Suspending", "The stream is being suspended.")
    for job in summary.jobs:
        if not job.is_ready:
            reason = f"{job.name.capitalize()}NotReady"
            return Verdict("False", reason, f"The {job.name} is not ready: {_state(job, summary)}")
    for name, crew in summary.crews.items():
        if crew.registered == 0:
            return Verdict("False", "NoExecutors", f"The {name} has no executor{crew.why}.")
    return Verdict("True", "Running", "The stream answers queries.")


def _state(job: Job, summary: Summary) -> str:
    crew = summary.crews.get(job.name)
    if job.is_troubled:
        return f"it cannot continue, and retries: {job.trouble}."
    if job.state == "starting" and crew is not None and crew.registered == 0 and crew.shortage:
        return f"its driver is running, and waits for an executor: {crew.shortage}."
    if job.failure is not None and job.state in ("pending", "stuck", "backoff", "terminating"):
        return f"{job.failure.reason}: {job.failure.message}"
    if job.trouble and job.state == "starting":
        return f"its driver is starting; the previous one could not continue: {job.trouble}."
    return _STATES[job.state]


_STATES: Mapping[JobState, str] = {
    "absent": "it has no pod yet.",
    "pending": "its pod is being started.",
    "stuck": "its pod cannot start.",
    "starting": "its driver is starting.",
    "running": "it is running.",
    "backoff": "it has failed, and will be restarted soon.",
    "terminating": "its pod is terminating.",
}


def _progressing(summary: Summary) -> Verdict:
    if summary.deleting:
        return Verdict("True", "Deleting", "The stream is being deleted.")
    if summary.problem is not None:
        return Verdict("False", summary.problem.reason, summary.problem.message)
    if summary.suspended:
        if summary.at_rest:
            return Verdict("False", "Suspended", "No pods are running.")
        leaving = [f"the {job.name}" for job in summary.jobs if job.state != "absent"]
        if summary.left:
            leaving.append(f"{summary.left} executor{'' if summary.left == 1 else 's'}")
        text = f"{' and '.join(leaving)} {'is' if len(leaving) == 1 and summary.left < 2 else 'are'} terminating."
        return Verdict("True", "Suspending", text[0].upper() + text[1:])
    if summary.image is not None:
        return Verdict(
            "False" if summary.image.retry == "slow" else "True", summary.image.reason, summary.image.message
        )
    for job in summary.jobs:
        if job.state in _COMING and not job.is_troubled:
            return Verdict("True", "Starting", f"The {job.name}: {_state(job, summary)}")
        if not job.is_ready:
            return Verdict("False", "Waiting", f"The {job.name}: {_state(job, summary)}")
    if summary.missing is not None:
        return Verdict("False", "Waiting", summary.missing.message)
    for name, crew in summary.crews.items():
        if crew.registered is not None and crew.registered != crew.desired:
            text = f"Ready executors of the {name}: {crew.registered}; desired: {crew.desired}{crew.why}."
            return Verdict("True", "Scaling", text)
    if summary.rebalance in _REBALANCING:
        return Verdict("True", "Rebalancing", "A new routing version is being adopted.")
    beyond = next((crew.beyond for crew in summary.crews.values() if crew.beyond), "")
    if beyond:
        return Verdict("False", "ReplicasOutOfBounds", beyond)
    return Verdict("False", "AsWanted", "The stream matches its spec.")


def _balance(summary: Summary) -> Verdict:
    if summary.deleting or summary.suspended:
        word = "deleted" if summary.deleting else "suspended"
        return Verdict("Unknown", "NotRunning", f"The stream is {word}, and has no load.")
    return summary.balance


def _degraded(summary: Summary) -> Verdict:
    if summary.problem is not None and summary.problem.retry == "slow":
        return Verdict("True", summary.problem.reason, summary.problem.message)
    if summary.image is not None and summary.image.retry == "slow":
        return Verdict("True", summary.image.reason, summary.image.message)
    for job in () if summary.deleting else summary.jobs:
        name = job.name.capitalize()
        if summary.suspended and job.state == "absent":  # an earlier failure is irrelevant now
            continue
        if job.degraded:
            why = "" if job.failure is None else f" Last failure: {job.failure.reason}: {job.failure.message}"
            return Verdict("True", f"{name}Failing", f"The {job.name} has failed {job.failures} times in a row.{why}")
        if job.failure is not None and (
            job.state in ("stuck", "terminating") or (job.state == "backoff" and job.failure.retry == "slow")
        ):
            return Verdict("True", f"{name}Blocked", f"The {job.name} cannot run: {_state(job, summary)}")
        if job.is_troubled and summary.now - job.since >= LASTING:
            return Verdict("True", f"{name}Hindered", f"The {job.name} is not ready: {_state(job, summary)}")
        if job.failure is not None and job.state in ("starting", "running"):
            text = f"A container of the {job.name}'s pod is not running: {job.failure.reason}: {job.failure.message}"
            return Verdict("True", f"{name}PodIncomplete", text)
    if summary.missing is not None and not summary.deleting:
        return Verdict("True", summary.missing.reason, summary.missing.message)
    if summary.rejecting is not None and not (summary.deleting or summary.suspended):
        return Verdict("True", summary.rejecting.reason, summary.rejecting.message)
    return Verdict("False", "AsExpected", "There is no known lasting problem.")


# --------------------------------------------------------------------------------------------------------------- phase


def phase(summary: Summary) -> StreamPhase:
    """The phase of the stream."""
    if summary.deleting:
        return "Deleting"
    if _degraded(summary).status == "True":
        return "Degraded"
    if summary.suspended:
        return "Suspended" if summary.at_rest else "Suspending"
    if _ready(summary).status == "True":
        return "Rebalancing" if summary.rebalance in _REBALANCING else "Running"
    return "Pending" if all(job.state == "absent" for job in summary.jobs) else "Starting"


# -------------------------------------------------------------------------------------------------------------- events


def transitions(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[Note]:
    """The events for the transitions of conditions: one for each condition whose status has changed.

    The first status of a condition gets an event only if it is a warning. ``Progressing`` gets none, because other
    events report its cause. Unknown gets none, nor does the status that follows it.
    """
    known = {records.text(each, "type"): each for each in before}
    notes = []
    for condition in after:
        name, status = records.text(condition, "type"), records.text(condition, "status")
        last = records.text(known.get(name, {}), "status")
        if name in _NEWS and status != last and status in _NEWS[name]:
            event, warning = _NEWS[name][status]
            warning = warning and condition["reason"] not in _WISHED
            if last in ("True", "False") or (warning and name == "Degraded"):
                notes.append(Note(event, f"{condition['reason']}: {condition['message']}", warning))
    return notes


_WISHED = frozenset({"Suspending", "Suspended", "Deleting"})
"""Reasons that a user has asked for: their events are no warnings."""

_NEWS: Mapping[str, Mapping[str, tuple[str, bool]]] = {
    "Ready": {"True": ("Ready", False), "False": ("NotReady", True)},
    "Balanced": {"True": ("Balanced", False), "False": ("Imbalanced", True)},
    "Degraded": {"True": ("Degraded", True), "False": ("Recovered", False)},
}
