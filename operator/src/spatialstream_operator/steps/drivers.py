"""The pods of router and worker: created, recreated when the spec changes them, restarted after a failure."""

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


async def keep_drivers(context: ReconcileContext) -> None:
    """Router first: it creates the topics and the first routing version, which the worker waits for."""
    await _keep(context, "router")
    await _keep(context, "worker")


async def _keep(context: ReconcileContext, job: Literal["router", "worker"]) -> None:
    names, cluster = context.names, context.environment.cluster
    name = getattr(names, job)
    restart = context.spec.restart
    settings = RestartSettings(restart.backoff, restart.max_backoff, restart.max_failures, restart.healthy_after)
    status = context.part(PARTS[job])
    before = RestartState.from_status(status)
    pod = await cluster.get("Pod", name, names.namespace)
    if problem := hindrance(context.body, pod, "Pod", name):
        context.problem = context.problem or problem
        context.jobs[job] = Job(job, "absent")
        return
    pod_report = None if pod is None else report(pod, context.now, events=await events_of(context, pod))
    wanted = _wanted(context, job, before, pod_report)
    decision = decide(before, pod_report, wanted, context.now, settings)
    state = _state(pod_report, decision, wanted)
    remembered = {"pod": name, "state": state, **decision.state.to_status()}
    if job == "router":  # the router creates the external state that has to be removed with the stream
        has_run = ran(status, pod_report)
        making = decision.action == "create" and context.problem is None
        remembered["ran"] = may_run(has_run, context.memory.refused) if making else has_run
    await context.remember(**{PARTS[job]: remembered})
    if decision.action == "create":
        state = await _create(context, job)
    elif decision.action == "delete":
        await cluster.delete("Pod", name, names.namespace)
        state = "terminating"
    elif decision.action == "force_delete" and pod is not None:
        await cluster.force_delete(pod)
    await _tell(context, job, decision)
    failure = None  # the failure of a pod that is deleted on purpose is irrelevant
    if state == "backoff":
        failure = decision.state.last
    elif pod_report is not None and decision.action == "keep":
        failure = pod_report.failure
    degraded = is_degraded(decision.state, settings)
    started = None if pod_report is None else pod_report.started
    context.jobs[job] = Job(job, state, degraded, decision.state.failures, failure, started)


async def _create(context: ReconcileContext, job: Literal["router", "worker"]) -> JobState:
    """Create the pod, if no problem prevents it. A rejection is reported, and retried at each reconciliation."""
    if context.problem is not None:
        return "absent"
    if job == "router":
        context.memory.refused = False
    try:
        await context.environment.cluster.create(_manifest(context, job))
    except ApiError as error:
        if not error.is_hindered:
            raise
        if job == "router":
            context.memory.refused = True
        context.problem = Failure("PodRefused", f"The {job}'s pod is rejected: {error}", "slow")
        return "absent"
    return "pending"


def _wanted(
    context: ReconcileContext, job: Literal["router", "worker"], before: RestartState, seen: PodReport | None
) -> str | None:
    """Template hash of the desired pod; None if there should be none, or not yet."""
    if context.spec.suspend:
        return None
    router = context.jobs.get("router")
    begun = bool(before.template) or seen is not None
    if job == "worker" and not begun and (router is None or not router.is_ready):
        return None
    return manifests.template_hash(job, context.spec, context.names)


def _state(seen: PodReport | None, decision: RestartDecision, wanted: str | None) -> JobState:
    if seen is None:
        return "backoff" if decision.state.attempt is not None and wanted is not None else "absent"
    if seen.state == "running":
        return "running" if seen.ready else "starting"
    return "backoff" if seen.state == "failed" else seen.state


def _manifest(context: ReconcileContext, job: Literal["router", "worker"]) -> Object:
    uid, executors = context.body["metadata"]["uid"], context.spec.job(job).executors
    known = records.whole(context.scaling(job), "desired")
    number = 0 if executors is None else executors.clamp(known or executors.wanted)
    return manifests.driver_pod(job, context.spec, context.names, uid, number)


async def _tell(context: ReconcileContext, job: str, decision: RestartDecision) -> None:
    labels = context.names.namespace, context.names.name, job
    metrics = context.environment.metrics
    metrics.failures.labels(*labels).set(decision.state.failures)
    if decision.restarted:
        metrics.restarts.labels(*labels).inc()
    if decision.failure is not None:
        text = f"the {job} has failed: {decision.failure.reason}: {decision.failure.message}"
        await context.emit(Note("DriverFailed", text, warning=True))
