"""Missing executors: detected at once, reported when the shortage lasts.

A stream continues with the executors that it gets, so one whose executors cannot be scheduled is only slower, and
nothing else reports it. Executors count as missing from the first reconciliation with fewer ready than desired. They
are reported after a grace time, in which a start or a scale-out usually completes; earlier if the cause will not
resolve itself: a missing image, a volume that cannot be mounted, a quota. (A node with room may still be added, so lack
of room is no such cause.) If more executors become ready than at any time since then, that is progress, and the grace
time restarts; an executor that only comes and goes is none.

Only a driver that is running can be expected to have executors: a shortage does not begin before the driver is ready
for the first time, and is forgotten with its pod. So a start, a restart or a suspension is never a shortage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.conditions import JobState
from spatialstream_operator.decisions.restarts import Failure, report

__all__ = ["REASON", "SOON", "Cause", "Shortage", "cause", "is_ready", "problem", "refused", "shortage"]

REASON = "ExecutorsMissing"

SOON = 10_000
"""ms after which a shortage is more than the time in which Spark creates a pod, so that its cause is determined."""

_NO_PODS = "they have no pods; a quota or a policy may reject them: see the log of their driver"
_ON_THEIR_WAY = "their pods are being started"
_ENDED = "executors exit and are recreated: see the log of their driver"
_SCHEDULING = frozenset({"Unschedulable", "SchedulingGated"})
_LONGEST = 300
"""Maximum length of a cause in characters: the scheduler's message has a part for each group of nodes."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """State while executors are missing, in ``missing`` of ``status.workers`` or ``status.router``.

    Attributes:
        since: when the shortage began or last made progress, in ms since 1970-01-01 UTC.
        most: maximum number of executors ready at the same time since the shortage began.
    """

    since: int
    most: int

    def to_status(self) -> dict[str, Any]:
        """Convert to the form in the status."""
        return {"since": records.moment_text(self.since), "most": self.most}

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Shortage | None:
        """Read from the status; None if absent or invalid."""
        since, most = records.moment(status, "since"), records.whole(status, "most")
        return None if since is None or most is None else cls(since, most)


def shortage(before: Shortage | None, now: int, ready: int | None, wanted: int, driver: JobState) -> Shortage | None:
    """The next state of a shortage; None if no executors are missing.

    Args:
        before: the previous state.
        now: the time, in ms since 1970-01-01 UTC.
        ready: number of ready executors; None if unknown.
        wanted: desired number of executors.
        driver: state of the job's driver.
    """
    if ready is None or ready >= wanted or driver not in ("starting", "running"):
        return None
    if before is None or before.since > now:  # after the clock was set back the duration is unknown
        return Shortage(now, ready) if driver == "running" else None
    return Shortage(now, ready) if ready > before.most else before


@dataclass(frozen=True, slots=True)
class Cause:
    """Why executors are not ready.

    Attributes:
        text: a description, without a full stop.
        lasting: whether it needs somebody's action, because it does not resolve itself.
        known: whether a cause is known at all.
    """

    text: str
    lasting: bool = False
    known: bool = True


def problem(
    job: str, lasting: Shortage | None, now: int, ready: int, wanted: int, grace: int, why: Cause
) -> Failure | None:
    """The failure to report for a shortage; None if there is none, or it has not lasted for the grace time.

    Args:
        job: ``router`` or ``worker``.
        lasting: the shortage.
        now: the time, in ms since 1970-01-01 UTC.
        ready: number of ready executors.
        wanted: desired number of executors.
        grace: how long executors may be missing, in ms.
        why: the cause, see :func:`cause`.
    """
    if lasting is None or now - lasting.since < (min(grace, SOON) if why.lasting else grace):
        return None
    since = records.moment_text(lasting.since // 1000 * 1000)
    text = f"Executors of the {job} missing since {since}: {wanted - ready} of {wanted}: {why.text}."
    return Failure(REASON, text, "slow")


def refused(message: str) -> Cause:
    """The cause if the API server rejects executor pods, with its message."""
    return Cause(_line(f"their pods are rejected: {message}"), lasting=True)


def cause(
    pods: Sequence[Mapping[str, Any]],
    now: int,
    container: str,
    events: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> Cause:
    """Why executors are not ready: the cause that Kubernetes reports for most of their pods.

    The text names no pod: Spark recreates pods under other names, and the text should not change with that.

    Args:
        pods: the executor pods, as the API server returns them.
        now: the time, in ms since 1970-01-01 UTC.
        container: name of the executors' container.
        events: events about pods that do not start, by uid of the pod.
    """
    said = events or {}
    not_ready = [
        report(pod, now, container, said.get(records.text(records.part(pod, "metadata"), "uid"), ()))
        for pod in pods
        if not is_ready(pod)
    ]
    stuck = Counter(each.failure for each in not_ready if each.state == "stuck" and each.failure is not None)
    if stuck:
        most = max(stuck, key=lambda failure: (stuck[failure], _text(failure)))
        return Cause(_text(most), most.reason not in _SCHEDULING)
    if any(each.state == "failed" for each in not_ready):
        return Cause(_ENDED)
    waits = sorted(_text(each.failure) for each in not_ready if each.state == "pending" and each.failure is not None)
    if waits:
        return Cause(waits[0])
    return Cause(_ON_THEIR_WAY, known=False) if not_ready else Cause(_NO_PODS, known=False)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is ready, and not being deleted."""
    conditions = records.part(pod, "status").get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in records.part(pod, "metadata")


def _text(failure: Failure) -> str:
    """A failure on one line of limited length."""
    return _line(f"{failure.reason}: {failure.message}")


def _line(text: str) -> str:
    said = " ".join(text.split()).rstrip(".")
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
