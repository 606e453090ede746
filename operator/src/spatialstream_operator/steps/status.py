"""Publishes the result of a reconciliation: status, conditions, events, metrics."""

from __future__ import annotations

import math
from typing import Any

from spatialstream_operator.cluster import Object
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.balance import Verdict, verdict
from spatialstream_operator.decisions.conditions import Crew, Summary, conditions, phase, transitions
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.rebalancing_state import Phase, State
from spatialstream_operator.metrics import CONDITIONS
from spatialstream_operator.steps.beating import heartbeat
from spatialstream_operator.steps.rebalancing import observe, settings

__all__ = ["write_status"]


async def write_status(context: ReconcileContext) -> None:
    """Write the status, create events for transitions, and set the metrics."""
    state = State.from_status(context.part("rebalance"))
    summary = Summary(
        context.now,
        context.generation,
        context.jobs["router"],
        context.jobs["worker"],
        _balance(context, state),
        state.phase,
        context.crews,
        context.spec.suspend,
        problem=context.problem,
        rejecting=context.rejecting,
        left=context.left,
        image=context.image,
    )
    before: list[Object] = list(context.status.get("conditions") or [])
    planned = context.part("routing").get("reason")
    after = conditions(summary, before)
    word = phase(summary)
    await context.remember(
        observedGeneration=context.generation,
        phase=word,
        conditions=after,
        workers=_crew(context.crews["worker"]) | {"selector": context.names.selector("executor")},
        **({"router": _crew(context.crews["router"])} if "router" in context.crews else {}),
        routing=_routing(context),
        lag=_lag(context),
        console=_console(context),
        **heartbeat(context.status, context.now),
    )
    for note in transitions(before, after):
        await context.emit(note)
    if context.routing is not None and context.routing.reason not in ("", planned):
        await context.emit(Note("IndexPlanned", context.routing.reason))
    _measure(context, after, state)


def _balance(context: ReconcileContext, state: State) -> Verdict:
    if context.uncreated:
        return Verdict("Unknown", "RoutingUnknown", "There is no routing version yet: the router has not run.")
    if context.load_metrics.problem:
        return Verdict(
            "Unknown", "MetricsMissing", f"{context.load_metrics.problem[0].upper()}{context.load_metrics.problem[1:]}."
        )
    return verdict(state, observe(context), settings(context))


def _crew(crew: Crew) -> dict[str, Any]:
    ready = crew.registered or 0
    return {"replicas": ready, "desired": crew.desired, "ready": f"{ready}/{crew.desired}"}


def _routing(context: ReconcileContext) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if context.routing is not None:
        pending = context.routing.pending
        fields = {
            "kind": context.routing.kind or None,
            "reason": context.routing.reason or None,
            "version": context.routing.active.number,
            "pendingVersion": None if pending is None else pending.number,
            "rebuiltVersion": context.routing.rebuilt,
            "proposal": context.routing.adopted or None,
        }
    load = context.load_metrics.load
    fields["imbalance"] = None if load is None else _ratio(load.ratio)  # unknown values are removed
    fields["slotLoads"] = None if load is None else [float(f"{each:.4g}") for each in load.slots]
    fields["leaves"] = context.load_metrics.leaves
    return fields


def _ratio(ratio: float) -> str:
    return "inf" if math.isinf(ratio) else f"{ratio:.2f}"


def _lag(context: ReconcileContext) -> dict[str, Any]:
    metrics = context.load_metrics
    return {
        "messages": None if metrics.lag is None else max(0, metrics.lag),
        "delay": None if metrics.delay is None else f"{metrics.delay / 1000:.1f}s",
    }


def _console(context: ReconcileContext) -> str | None:
    url = context.environment.config.gateway_url
    return f"{url}/console/#stream={context.names.stream}" if url else None


def _measure(context: ReconcileContext, after: list[dict[str, Any]], state: State) -> None:
    metrics, labels = context.environment.metrics, (context.names.namespace, context.names.name)
    for condition in after:
        if condition["type"] in CONDITIONS:
            metrics.condition.labels(*labels, condition["type"]).set(condition["status"] == "True")
    for each in Phase:
        metrics.phase.labels(*labels, each.value).set(each is state.phase)
    metrics.phase_since.labels(*labels).set(state.since / 1000)
    for job, desired in metrics.desired.items():
        desired.labels(*labels).set(
            context.crews[job].desired if job in context.crews and not context.spec.suspend else 0
        )
    metrics.imbalance_limit.labels(*labels).set(context.spec.index.balance.imbalance)
