"""Why a pod does not start, with the messages of Kubernetes.

A pod's status reports problems with images, containers that cannot be created, and lack of room on the nodes. Volumes
that cannot be mounted (missing Secret or key, a disk that is attached to another node) and sandboxes that cannot be
created are reported only in events. A cause that somebody has to remove makes the pod *stuck* (``slow``); what a pod
merely waits for is reported too, so that no pod stays pending without a reason (``quick``).

Only the latest event counts: a failure that was overcome is followed by other events. Events are read only after a pod
has been pending for :data:`PATIENCE`, because a mount that needs a second try is not worth reporting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.failures import Failure

__all__ = ["PATIENCE", "beside", "hindrance", "named"]

PATIENCE = 10_000
"""ms for which a pod may be pending before its events are read."""

_COMING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting reasons of containers that are being started. All others need somebody's action: image, reference, limit."""

_FAILURES = ("Failed", "NetworkNotReady")
"""Prefixes of the reasons of events that report a failure."""

_HINTS = frozenset({"FailedToRetrieveImagePullSecret"})
"""Reasons with such a prefix that do not prevent a start: the image may be pullable without that secret."""


def hindrance(pod: Mapping[str, Any], container: str, now: int, events: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Why a pod has not started; None if it is still within its patience, or nothing is known.

    Args:
        pod: the Pod, as the API server returns it.
        container: name of the main container.
        now: the time, in ms since 1970-01-01 UTC.
        events: events of ``events.k8s.io/v1`` about this pod.
    """
    status = records.part(pod, "status")
    scheduled = named(status.get("conditions"), "type", "PodScheduled")
    if problem := _waiting(status, container):
        return problem
    if scheduled.get("status") == "False":
        said = records.text(scheduled, "message") or "No node has room for the pod."
        return Failure(records.text(scheduled, "reason") or "Unschedulable", said, "slow")
    made = records.moment(records.part(pod, "metadata"), "creationTimestamp")
    if made is None or now - made < PATIENCE:
        return None
    last = max(events, key=_order, default={})
    if _is_failure(last):
        return Failure(records.text(last, "reason"), _line(records.text(last, "note")), "slow")
    if problem := _initialising(pod):
        return problem
    if not records.text(records.part(pod, "spec"), "nodeName"):
        return Failure("NotScheduled", "No scheduler has assigned the pod to a node yet.")
    if last:
        return Failure(records.text(last, "reason") or "Waiting", _line(records.text(last, "note")))
    return Failure("NodeSilent", "The pod's node has not reported anything about it yet.")


def beside(pod: Mapping[str, Any], container: str) -> Failure | None:
    """Why a container other than the main one cannot start; None if all can."""
    return _waiting(records.part(pod, "status"), container, others=True)


def named(items: object, key: str, name: str) -> Mapping[str, Any]:
    """The record with a name in a list; an empty one if there is none."""
    return next((each for each in _mappings(items) if each.get(key) == name), {})


def _waiting(status: Mapping[str, Any], container: str, others: bool = False) -> Failure | None:
    """Why a container waits: the main one first, then init containers, then the others."""
    found = [*_mappings(status.get("initContainerStatuses")), *_mappings(status.get("containerStatuses"))]
    for each in sorted(found, key=lambda each: each.get("name") != container):
        name, waiting = records.text(each, "name"), records.part(records.part(each, "state"), "waiting")
        reason, message = records.text(waiting, "reason"), records.text(waiting, "message")
        if reason in _COMING or (others and name == container):
            continue
        said = _line(message) or f"The container cannot start: {reason}."
        return Failure(reason, said if name == container else f"Container {name}: {said}", "slow")
    return None


def _initialising(pod: Mapping[str, Any]) -> Failure | None:
    """What a pod's own containers wait for: the first running init container."""
    sidecars = {
        each.get("name")
        for each in _mappings(records.part(pod, "spec").get("initContainers"))
        if each.get("restartPolicy") == "Always"
    }
    for each in _mappings(records.part(pod, "status").get("initContainerStatuses")):
        name = records.text(each, "name")
        if "running" in records.part(each, "state") and not (name in sidecars and each.get("started") is True):
            what = "started" if name in sidecars else "terminated"
            return Failure("Initialising", f"The pod waits until its init container {name} has {what}.")
    return None


def _is_failure(event: Mapping[str, Any]) -> bool:
    reason = records.text(event, "reason")
    return event.get("type") == "Warning" and reason.startswith(_FAILURES) and reason not in _HINTS


def _order(event: Mapping[str, Any]) -> tuple[int, bool]:
    """Sort key: time of the last occurrence, in whole seconds as in legacy fields; of equal times a failure is last."""
    series = records.part(event, "series")
    times = (
        records.moment(series, "lastObservedTime"),
        records.moment(event, "deprecatedLastTimestamp"),
        records.moment(event, "eventTime"),
    )
    return max((each // 1000 for each in times if each is not None), default=0), _is_failure(event)


def _line(text: str) -> str:
    return " ".join(text.split())


def _mappings(items: object) -> list[Mapping[str, Any]]:
    return [each for each in items if isinstance(each, Mapping)] if isinstance(items, Sequence) else []
