"""Why a pod does not start, in Kubernetes' own words.

The status of a pod tells of images, of containers that cannot be made and of nodes without room. Volumes that cannot
be mounted (no such Secret, no such key, a disk that hangs at another node) and sandboxes that cannot be made stand in
its events alone. A cause that somebody has to remove makes the pod *stuck* (``slow``); what a pod merely waits for is
told as well, so that nothing stays on its way without a word (``quick``).

Events count only if they are the last word: what failed once and went on is followed by events that say so. They are
looked for once a pod has had :data:`PATIENCE`, because a mount that needs a second try is no news.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.failures import Failure

__all__ = ["PATIENCE", "beside", "hindrance", "named"]

PATIENCE = 10_000
"""ms for which a pod may be on its way before Kubernetes is asked what it says about it."""

_COMING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Why containers wait that are on their way. All else is for somebody to see to: an image, a reference, a limit."""

_FAILURES = ("Failed", "NetworkNotReady")
"""How reasons of events begin that tell of something that does not work."""

_HINTS = frozenset({"FailedToRetrieveImagePullSecret"})
"""Reasons that begin so and keep nothing from starting: without that secret an image may be had all the same."""


def hindrance(pod: Mapping[str, Any], container: str, now: int, events: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Why a pod has not started; None if it has only begun to, or nothing is known.

    Args:
        pod: the Pod, as the API server gives it.
        container: name of the container that matters.
        now: the time, in ms since 1970-01-01 UTC.
        events: of ``events.k8s.io/v1``, about this pod.
    """
    status = records.part(pod, "status")
    scheduled = named(status.get("conditions"), "type", "PodScheduled")
    if found := _waiting(status, container):
        return found
    if scheduled.get("status") == "False":
        said = records.text(scheduled, "message") or "No node has room for the pod."
        return Failure(records.text(scheduled, "reason") or "Unschedulable", said, "slow")
    made = records.moment(records.part(pod, "metadata"), "creationTimestamp")
    if made is None or now - made < PATIENCE:
        return None
    last = max(events, key=_order, default={})
    if _is_failure(last):
        return Failure(records.text(last, "reason"), _line(records.text(last, "note")), "slow")
    if found := _initialising(pod):
        return found
    if not records.text(records.part(pod, "spec"), "nodeName"):
        return Failure("NotScheduled", "No scheduler has given the pod a node yet.")
    if last:
        return Failure(records.text(last, "reason") or "Waiting", _line(records.text(last, "note")))
    return Failure("NodeSilent", "The pod's node has not said anything about it yet.")


def beside(pod: Mapping[str, Any], container: str) -> Failure | None:
    """Why a container beside the one that matters cannot start; None if all can."""
    return _waiting(records.part(pod, "status"), container, others=True)


def named(items: object, key: str, name: str) -> Mapping[str, Any]:
    """The record of a list that has a name; an empty one if there is none."""
    return next((each for each in _mappings(items) if each.get(key) == name), {})


def _waiting(status: Mapping[str, Any], container: str, others: bool = False) -> Failure | None:
    """Why a container waits: the one that matters first, init containers before those beside it."""
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
    """What a pod's own containers wait for: the first init container that is at work."""
    sidecars = {
        each.get("name")
        for each in _mappings(records.part(pod, "spec").get("initContainers"))
        if each.get("restartPolicy") == "Always"
    }
    for each in _mappings(records.part(pod, "status").get("initContainerStatuses")):
        name = records.text(each, "name")
        if "running" in records.part(each, "state") and not (name in sidecars and each.get("started") is True):
            what = "begun" if name in sidecars else "ended"
            return Failure("Initialising", f"The pod waits until its init container {name} has {what}.")
    return None


def _is_failure(event: Mapping[str, Any]) -> bool:
    reason = records.text(event, "reason")
    return event.get("type") == "Warning" and reason.startswith(_FAILURES) and reason not in _HINTS


def _order(event: Mapping[str, Any]) -> tuple[int, bool]:
    """By when an event was last seen. Times of the old form are whole seconds: what fails then counts as the later."""
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
