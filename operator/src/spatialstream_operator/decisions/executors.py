"""Executors that are wanted and do not come: noticed at once, told when that has lasted.

A stream goes on with the executors that it gets, so one whose executors find no room is only slower, and nothing else
says so. Executors count as missing from the first look at which fewer are ready than wanted. They are told of after a
grace time, in which a start or a scale-out usually ends; sooner if no time will remove their cause: an image that is
not there, a volume that cannot be mounted, a quota. Only a node with room may still come. One executor more than there
ever were since then is progress, and the time begins anew; one that comes and goes is none.

Only a driver that is at work can be expected to have executors: nothing begins before it is ready for the first time,
and what was remembered is forgotten with its pod, so a start, a restart or a suspension is never a shortage.
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
"""ms after which a shortage is more than the moment in which Spark makes a pod: its cause is looked for, and told."""

_NO_PODS = "there are no pods for them; a quota or a policy may refuse them, and the log of their driver says so"
_ON_THEIR_WAY = "their pods are on their way"
_ENDED = "executors end, and are made anew; the log of their driver says why"
_SCHEDULING = frozenset({"Unschedulable", "SchedulingGated"})
_LONGEST = 300
"""Characters of a cause: what the scheduler says has a part for each kind of node."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is remembered while executors are missing, in ``missing`` of ``status.workers`` or ``status.router``.

    Attributes:
        since: when they began to be, or an executor more came, in ms since 1970-01-01 UTC.
        most: executors that were ready at the same time, at most, since they began to be missing.
    """

    since: int
    most: int

    def to_status(self) -> dict[str, Any]:
        """As it stands in the status."""
        return {"since": records.moment_text(self.since), "most": self.most}

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> Shortage | None:
        """From the status; None if there is none, or it is not understood."""
        since, most = records.moment(status, "since"), records.whole(status, "most")
        return None if since is None or most is None else cls(since, most)


def shortage(before: Shortage | None, now: int, ready: int | None, wanted: int, driver: JobState) -> Shortage | None:
    """What to remember about missing executors; None if none is missing.

    Args:
        before: what was remembered.
        now: the time, in ms since 1970-01-01 UTC.
        ready: executors that are ready; None if that is not known.
        wanted: executors that there should be.
        driver: where the job's driver is.
    """
    if ready is None or ready >= wanted or driver not in ("starting", "running"):
        return None
    if before is None or before.since > now:  # a clock that was set back says nothing about how long it has lasted
        return Shortage(now, ready) if driver == "running" else None
    return Shortage(now, ready) if ready > before.most else before


@dataclass(frozen=True, slots=True)
class Cause:
    """Why executors are not ready.

    Attributes:
        text: in words, without a full stop.
        lasting: whether no time will remove it, only somebody.
        known: whether anything more is known than that they are not there.
    """

    text: str
    lasting: bool = False
    known: bool = True


def problem(
    job: str, found: Shortage | None, now: int, ready: int, wanted: int, grace: int, why: Cause
) -> Failure | None:
    """What is to be told of a shortage; None if there is none, or it has not lasted.

    Args:
        job: ``router`` or ``worker``.
        found: the shortage.
        now: the time, in ms since 1970-01-01 UTC.
        ready: executors that are ready.
        wanted: executors that there should be.
        grace: how long executors may be missing, in ms.
        why: see :func:`cause`.
    """
    if found is None or now - found.since < (min(grace, SOON) if why.lasting else grace):
        return None
    since = records.moment_text(found.since // 1000 * 1000)
    text = f"Executors of the {job} missing since {since}: {wanted - ready} of {wanted}: {why.text}."
    return Failure(REASON, text, "slow")


def refused(message: str) -> Cause:
    """The API server would refuse the pod of an executor; in its words."""
    return Cause(_line(f"their pods are refused: {message}"), lasting=True)


def cause(
    pods: Sequence[Mapping[str, Any]],
    now: int,
    container: str,
    events: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> Cause:
    """Why executors are not ready: what Kubernetes says of most of their pods.

    No pod is named: Spark makes them anew now and then, under other names, and the sentence is to stay.

    Args:
        pods: of the executors, as the API server gives them.
        now: the time, in ms since 1970-01-01 UTC.
        container: name of the executors' container.
        events: about pods that do not start, by their uid.
    """
    said = events or {}
    missing = [
        report(pod, now, container, said.get(records.text(records.part(pod, "metadata"), "uid"), ()))
        for pod in pods
        if not is_ready(pod)
    ]
    stuck = Counter(each.failure for each in missing if each.state == "stuck" and each.failure is not None)
    if stuck:
        most = max(stuck, key=lambda failure: (stuck[failure], _text(failure)))
        return Cause(_text(most), most.reason not in _SCHEDULING)
    if any(each.state == "failed" for each in missing):
        return Cause(_ENDED)
    waits = sorted(_text(each.failure) for each in missing if each.state == "pending" and each.failure is not None)
    if waits:
        return Cause(waits[0])
    return Cause(_ON_THEIR_WAY, known=False) if missing else Cause(_NO_PODS, known=False)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is ready, and stays."""
    conditions = records.part(pod, "status").get("conditions") or []
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in records.part(pod, "metadata")


def _text(failure: Failure) -> str:
    """A failure in one line that is not too long."""
    return _line(f"{failure.reason}: {failure.message}")


def _line(text: str) -> str:
    said = " ".join(text.split()).rstrip(".")
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"
