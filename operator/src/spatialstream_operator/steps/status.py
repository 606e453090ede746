"""What people and machines are told in the end: status, conditions, events, metrics."""

from __future__ import annotations

import math
from typing import Any

from spatialstream_operator.cluster import Object
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.balance import Verdict, verdict
from spatialstream_operator.decisions.conditions import Crew, Summary, conditions, phase, transitions
from spatialstream_operator.decisions.rebalancing_state import Phase, State
from spatialstream_operator.metrics import CONDITIONS
from spatialstream_operator.steps.beating import heartbeat
from spatialstream_operator.steps.rebalancing import observe, settings

__all__ = ["tell"]


async def tell(look: ReconcileContext) -> None:
    """Write the status, make events of what has changed, and set the metrics."""
    state = State.from_status(look.part("rebalance"))
    summary = Summary(
        look.now,
        look.generation,
        look.jobs["router"],
        look.jobs["worker"],
        _balance(look, state),
        state.phase,
        look.crews,
        look.spec.suspend,
        problem=look.problem,
        rejecting=look.rejecting,
        left=look.left,
        image=look.image,
    )
    before: list[Object] = list(look.status.get("conditions") or [])
    after = conditions(summary, before)
    word = phase(summary)
    await look.remember(
        observedGeneration=look.generation,
        phase=word,
        conditions=after,
        workers=_crew(look.crews["worker"]) | {"selector": look.names.selector("executor")},
        **({"router": _crew(look.crews["router"])} if "router" in look.crews else {}),
        routing=_routing(look),
        lag=_lag(look),
        console=_console(look),
        **heartbeat(look.status, look.now),
    )
    for note in transitions(before, after):
        await look.tell(note)
    _measure(look, after, state)


def _balance(look: ReconcileContext, state: State) -> Verdict:
    if look.uncreated:
        return Verdict("Unknown", "RoutingUnknown", "There is no routing version yet: the router has not run.")
    if look.figures.problem:
        return Verdict("Unknown", "MetricsMissing", f"{look.figures.problem[0].upper()}{look.figures.problem[1:]}.")
    return verdict(state, observe(look), settings(look))


def _crew(crew: Crew) -> dict[str, Any]:
    ready = crew.registered or 0
    return {"replicas": ready, "desired": crew.desired, "ready": f"{ready}/{crew.desired}"}


def _routing(look: ReconcileContext) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if look.routing is not None:
        pending = look.routing.pending
        told = {
            "version": look.routing.active.number,
            "pendingVersion": None if pending is None else pending.number,
            "rebuiltVersion": look.routing.rebuilt,
            "proposal": look.routing.adopted or None,
        }
    load = look.figures.load
    told["imbalance"] = None if load is None else _ratio(load.ratio)  # what is not known any more is taken out
    told["slotLoads"] = None if load is None else [float(f"{each:.4g}") for each in load.slots]
    told["leaves"] = look.figures.leaves
    return told


def _ratio(ratio: float) -> str:
    return "inf" if math.isinf(ratio) else f"{ratio:.2f}"


def _lag(look: ReconcileContext) -> dict[str, Any]:
    figures = look.figures
    return {
        "messages": None if figures.lag is None else max(0, figures.lag),
        "delay": None if figures.delay is None else f"{figures.delay / 1000:.1f}s",
    }


def _console(look: ReconcileContext) -> str | None:
    url = look.environment.config.gateway_url
    return f"{url}/console/#stream={look.names.stream}" if url else None


def _measure(look: ReconcileContext, after: list[dict[str, Any]], state: State) -> None:
    metrics, labels = look.environment.metrics, (look.names.namespace, look.names.name)
    for condition in after:
        if condition["type"] in CONDITIONS:
            metrics.condition.labels(*labels, condition["type"]).set(condition["status"] == "True")
    for each in Phase:
        metrics.phase.labels(*labels, each.value).set(each is state.phase)
    metrics.phase_since.labels(*labels).set(state.since / 1000)
    for job, desired in metrics.desired.items():
        desired.labels(*labels).set(look.crews[job].desired if job in look.crews and not look.spec.suspend else 0)
    metrics.imbalance_limit.labels(*labels).set(look.spec.index.balance.imbalance)
