"""Why pods do not start: their events, and whether the API server would admit another executor."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spatialstream_operator import manifests
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.starting import PATIENCE

__all__ = ["events_of", "refusal_of_executors"]

_log = logging.getLogger(__name__)

_AGAIN = 10_000
"""ms after which the events of a pod are read again: each time the API server scans those of the whole namespace."""

_FORGET = 600_000


async def events_of(context: ReconcileContext, pod: Object) -> list[Object]:
    """The events about a pod that has been pending for a while, cached for a few seconds; none about other pods."""
    metadata, reported = pod["metadata"], context.memory.said
    uid, created = metadata["uid"], records.moment(metadata, "creationTimestamp")
    leaving = "deletionTimestamp" in metadata
    if (
        leaving
        or created is None
        or context.now - created < PATIENCE
        or records.part(pod, "status").get("phase") != "Pending"
    ):
        return []
    at, events = reported.get(uid, (None, []))
    if at is None or context.now - at >= _AGAIN:
        for each in [each for each, (then, _) in reported.items() if context.now - then >= _FORGET]:
            del reported[each]
        events = await _read(context, uid)
        reported[uid] = context.now, events
    return events


async def _read(context: ReconcileContext, uid: str) -> list[Object]:
    namespace = context.names.namespace
    try:
        return await context.environment.cluster.list("Event", namespace, fields={"regarding.uid": uid})
    except ApiError as error:  # without this permission only the messages are less specific
        _log.warning("%s/%s: cannot read the events of a pod: %s", namespace, context.names.name, error)
        return []


async def refusal_of_executors(context: ReconcileContext, job: str) -> str:
    """Why the API server would reject another executor pod of a job now; "" if it would not, or if that is unknown.

    Spark creates these pods, and reports a rejection only in the driver's log.
    """
    trials = context.memory.trials
    if job not in trials or context.now - trials[job][0] >= _AGAIN:
        trials[job] = context.now, await _try(context, manifests.executor_trial(context.spec, context.names, job))
    return trials[job][1]


async def _try(context: ReconcileContext, pod: Mapping[str, object]) -> str:
    try:
        await context.environment.cluster.create(dict(pod), trial=True)
    except ApiError as error:
        return str(error) if error.is_hindered else ""
    return ""
