"""The executors, which Spark makes: how many are ready, why others are not, and whether some are missing for long."""

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
"""Pods of which the events are read: those of a stream have one cause, or a few."""


async def count_executors(look: ReconcileContext) -> None:
    """See which executors there are; none are known if there is no driver that could have any.

    Those of a driver that is gone go a little later: until then a stream is not suspended yet.
    """
    names = look.names
    for job, crew in look.crews.items():
        if look.jobs[job].state in ("starting", "running"):
            pods = await look.environment.cluster.list("Pod", names.namespace, names.selected(names.executor(job)))
            await _strike_lost(look, job, pods)
            look.executors[job], crew.registered = pods, sum(is_ready(pod) for pod in pods)
    if look.spec.suspend and look.status.get("phase") != "Suspended":
        pods = await look.environment.cluster.list("Pod", names.namespace, {STREAM_LABEL: names.name})
        executors = {names.executor(job) for job in PARTS}
        look.left = sum(pod["metadata"]["labels"].get(COMPONENT_LABEL) in executors for pod in pods)


async def _strike_lost(look: ReconcileContext, job: str, pods: Sequence[Object]) -> None:
    """Take executors of a lost node off the list: as long as they are there, Spark has no others made."""
    for pod in pods:
        if is_lost(pod, look.now) and await look.environment.cluster.strike(pod):
            name = pod["metadata"]["name"]
            text = f"the {job}'s executor {name} is given up: its node is lost, or out of reach"
            await look.tell(Note("ExecutorLost", text, warning=True))


async def miss_executors(look: ReconcileContext) -> None:
    """Remember since when executors are missing, see why, and tell of it when that has lasted."""
    for job, crew in look.crews.items():
        await _miss(look, job, crew)


async def _miss(look: ReconcileContext, job: str, crew: Crew) -> None:
    before = Shortage.from_status(records.part(look.part(PARTS[job]), "missing"))
    found = shortage(before, look.now, crew.registered, crew.desired, look.jobs[job].state)
    await look.remember(**{PARTS[job]: {"missing": None if found is None else found.to_status()}})
    grace = round(look.environment.config.executor_grace * 1000)
    if look.jobs[job].state == "starting" and crew.registered == 0:
        # a driver whose first executor does not come is not ready, so there is no shortage yet that could last
        why = await _cause(look, job)
        crew.shortage = why.text if why.known else ""
    if found is None or look.now - found.since < min(SOON, grace):
        return
    why = await _cause(look, job)
    crew.shortage = why.text if why.known else ""
    crew.missing = problem(job, found, look.now, crew.registered or 0, crew.desired, grace, why)


async def _cause(look: ReconcileContext, job: str) -> Cause:
    missing = [pod for pod in look.executors.get(job, ()) if not is_ready(pod)]
    if not missing and (said := await refusal_of_executors(look, job)):
        return refused(said)
    events = {pod["metadata"]["uid"]: await events_of(look, pod) for pod in missing[:_ASKED]}
    return cause(missing, look.now, EXECUTOR_CONTAINER, events)
