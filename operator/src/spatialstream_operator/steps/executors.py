"""The executors, which Spark creates: how many are ready, why others are not, and which have long been missing."""

from __future__ import annotations

from collections.abc import Sequence

from spatialstream_operator.cluster import Object
from spatialstream_operator.commands import EXECUTOR_CONTAINER
from spatialstream_operator.context import PARTS, ReconcileContext
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.conditions import Crew
from spatialstream_operator.decisions.executors import (
    SOON,
    Cause,
    Shortage,
    cause,
    is_ready,
    problem,
    refused,
    shortage,
)
from spatialstream_operator.decisions.lost import is_lost
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.names import COMPONENT_LABEL, STREAM_LABEL
from spatialstream_operator.steps.starting import events_of, refusal_of_executors

__all__ = ["count_executors", "miss_executors"]

_ASKED = 3
"""Maximum number of pods whose events are read: the pods of a stream usually have one cause, or a few."""


async def count_executors(context: ReconcileContext) -> None:
    """Count the executors of each job whose driver is running; otherwise the number is unknown.

    Executors terminate a little later than their driver; until then the stream is not suspended yet.
    """
    names = context.names
    for job, crew in context.crews.items():
        if context.jobs[job].state in ("starting", "running"):
            pods = await context.environment.cluster.list("Pod", names.namespace, names.selected(names.executor(job)))
            await _force_delete_lost(context, job, pods)
            context.executors[job], crew.registered = pods, sum(is_ready(pod) for pod in pods)
    if context.spec.suspend and context.status.get("phase") != "Suspended":
        pods = await context.environment.cluster.list("Pod", names.namespace, {STREAM_LABEL: names.name})
        executors = {names.executor(job) for job in PARTS}
        context.left = sum(pod["metadata"]["labels"].get(COMPONENT_LABEL) in executors for pod in pods)


async def _force_delete_lost(context: ReconcileContext, job: str, pods: Sequence[Object]) -> None:
    """Force-delete executors of a lost node: as long as their pods exist, Spark does not replace them."""
    for pod in pods:
        if is_lost(pod, context.now) and await context.environment.cluster.force_delete(pod):
            name = pod["metadata"]["name"]
            text = f"the {job}'s executor {name} is force-deleted: its node is lost or unreachable"
            await context.emit(Note("ExecutorLost", text, warning=True))


async def miss_executors(context: ReconcileContext) -> None:
    """Track since when executors are missing, determine why, and report a shortage that lasts."""
    for job, crew in context.crews.items():
        await _miss(context, job, crew)


async def _miss(context: ReconcileContext, job: str, crew: Crew) -> None:
    before = Shortage.from_status(records.part(context.part(PARTS[job]), "missing"))
    current = shortage(before, context.now, crew.registered, crew.desired, context.jobs[job].state)
    await context.remember(**{PARTS[job]: {"missing": None if current is None else current.to_status()}})
    grace = round(context.environment.config.executor_grace * 1000)
    if context.jobs[job].state == "starting" and crew.registered == 0:
        # a driver without a first executor is not ready, so its shortage has not begun
        why = await _cause(context, job)
        crew.shortage = why.text if why.known else ""
    if current is None or context.now - current.since < min(SOON, grace):
        return
    why = await _cause(context, job)
    crew.shortage = why.text if why.known else ""
    crew.missing = problem(job, current, context.now, crew.registered or 0, crew.desired, grace, why)


async def _cause(context: ReconcileContext, job: str) -> Cause:
    missing = [pod for pod in context.executors.get(job, ()) if not is_ready(pod)]
    if not missing and (said := await refusal_of_executors(context, job)):
        return refused(said)
    events = {pod["metadata"]["uid"]: await events_of(context, pod) for pod in missing[:_ASKED]}
    return cause(missing, context.now, EXECUTOR_CONTAINER, events)
