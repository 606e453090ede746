"""The pods of router and worker: made, made anew when the spec asks for another one, made again after a failure."""

from __future__ import annotations

from typing import Literal

from spatialstream_operator import manifests
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import PARTS, ReconcileContext
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.conditions import Job, JobState
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.restarts import (
    Failure,
    PodReport,
    RestartDecision,
    RestartSettings,
    RestartState,
    decide,
    is_degraded,
    may_run,
    ran,
    report,
)
from spatialstream_operator.steps.ownership import hindrance
from spatialstream_operator.steps.starting import events_of

__all__ = ["keep_drivers"]


async def keep_drivers(look: ReconcileContext) -> None:
    """Router first: it makes the topics and the first routing version, which the worker waits for."""
    await _keep(look, "router")
    await _keep(look, "worker")


async def _keep(look: ReconcileContext, job: Literal["router", "worker"]) -> None:
    names, cluster = look.names, look.environment.cluster
    name = getattr(names, job)
    restart = look.spec.restart
    settings = RestartSettings(restart.backoff, restart.max_backoff, restart.max_failures, restart.healthy_after)
    known = look.part(PARTS[job])
    before = RestartState.from_status(known)
    pod = await cluster.get("Pod", name, names.namespace)
    if problem := hindrance(look.body, pod, "Pod", name):
        look.problem = look.problem or problem
        look.jobs[job] = Job(job, "absent")
        return
    seen = None if pod is None else report(pod, look.now, events=await events_of(look, pod))
    wanted = _wanted(look, job, before, seen)
    decision = decide(before, seen, wanted, look.now, settings)
    state = _state(seen, decision, wanted)
    remembered = {"pod": name, "state": state, **decision.state.to_status()}
    if job == "router":  # it is the one that makes what has to be removed one day
        has_run = ran(known, seen)
        making = decision.action == "create" and look.problem is None
        remembered["ran"] = may_run(has_run, look.memory.refused) if making else has_run
    await look.remember(**{PARTS[job]: remembered})
    if decision.action == "create":
        state = await _create(look, job)
    elif decision.action == "delete":
        await cluster.delete("Pod", name, names.namespace)
        state = "terminating"
    elif decision.action == "strike" and pod is not None:
        await cluster.strike(pod)
    await _tell(look, job, decision)
    failure = None  # that of a pod which is removed on purpose does not matter any more
    if state == "backoff":
        failure = decision.state.last
    elif seen is not None and decision.action == "keep":
        failure = seen.failure
    degraded = is_degraded(decision.state, settings)
    started = None if seen is None else seen.started
    look.jobs[job] = Job(job, state, degraded, decision.state.failures, failure, started)


async def _create(look: ReconcileContext, job: Literal["router", "worker"]) -> JobState:
    """Make the pod, if what it needs is there. What is said against it is told; it is tried again at each look."""
    if look.problem is not None:
        return "absent"
    if job == "router":
        look.memory.refused = False
    try:
        await look.environment.cluster.create(_manifest(look, job))
    except ApiError as error:
        if not error.is_hindered:
            raise
        if job == "router":
            look.memory.refused = True
        look.problem = Failure("PodRefused", f"The {job}'s pod is refused: {error}", "slow")
        return "absent"
    return "pending"


def _wanted(
    look: ReconcileContext, job: Literal["router", "worker"], before: RestartState, seen: PodReport | None
) -> str | None:
    """Hash of the pod that there should be; None if there should be none, or not yet."""
    if look.spec.suspend:
        return None
    router = look.jobs.get("router")
    begun = bool(before.template) or seen is not None
    if job == "worker" and not begun and (router is None or not router.is_ready):
        return None
    return manifests.template_hash(job, look.spec, look.names)


def _state(seen: PodReport | None, decision: RestartDecision, wanted: str | None) -> JobState:
    if seen is None:
        return "backoff" if decision.state.attempt is not None and wanted is not None else "absent"
    if seen.state == "running":
        return "running" if seen.ready else "starting"
    return "backoff" if seen.state == "failed" else seen.state


def _manifest(look: ReconcileContext, job: Literal["router", "worker"]) -> Object:
    uid, executors = look.body["metadata"]["uid"], look.spec.job(job).executors
    known = records.whole(look.scaling(job), "desired")
    number = 0 if executors is None else executors.clamp(known or executors.wanted)
    return manifests.driver_pod(job, look.spec, look.names, uid, number)


async def _tell(look: ReconcileContext, job: str, decision: RestartDecision) -> None:
    labels = look.names.namespace, look.names.name, job
    metrics = look.environment.metrics
    metrics.failures.labels(*labels).set(decision.state.failures)
    if decision.restarted:
        metrics.restarts.labels(*labels).inc()
    if decision.failure is not None:
        text = f"the {job} has failed: {decision.failure.reason}: {decision.failure.message}"
        await look.tell(Note("DriverFailed", text, warning=True))
