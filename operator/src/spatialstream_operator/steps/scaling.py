"""Decides how many executors each job should have; its driver reads the number from the routing store."""

from __future__ import annotations

import asyncio

from spatialstream.model.errors import StateError, Unavailable
from spatialstream.store.reports import ask_executors, asked_executors
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.autoscaling import AutoscalingSettings, ScalingState, autoscale, out_of_bounds
from spatialstream_operator.decisions.conditions import Crew
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.rebalancing_state import Phase
from spatialstream_operator.spec import Executors
from spatialstream_operator.steps.executors import count_executors

__all__ = ["scale"]

_ADOPTING = frozenset({Phase.PUBLISHING.value, Phase.ADOPTING.value, Phase.WITHDRAWING.value})


_AGAIN = 60_000
"""ms after which the number in the routing store is checked again, in case somebody has changed it."""


async def scale(context: ReconcileContext) -> None:
    """Decide, store the state, and write the number to the routing store, for each job with executors."""
    await count_executors(context)
    for job, crew in context.crews.items():
        await _scale(context, job, crew)
    if "router" not in context.crews:
        await context.remember(router=dict.fromkeys(("autoscaling", "replicas", "desired", "ready", "missing")))


async def _scale(context: ReconcileContext, job: str, crew: Crew) -> None:
    before, executors = ScalingState.from_status(context.scaling(job)), context.spec.job(job).executors
    assert executors is not None
    adopting = context.part("rebalance").get("phase") in _ADOPTING
    use, settings = (
        context.load_metrics.use if job == "worker" else context.load_metrics.router,
        _settings(context, job, executors),
    )
    decision = autoscale(before, context.now, use, crew.registered, executors.replicas, settings, adopting)
    beyond = out_of_bounds(executors.replicas, settings)
    crew.desired, crew.beyond = decision.desired, "" if settings.enabled else beyond
    status = decision.state.to_status() | {
        "reason": decision.reason,
        "message": decision.message,
        "utilisation": None if use is None else f"{use.utilisation:.0%}",
    }
    await context.remember(**({"autoscaling": status} if job == "worker" else {"router": {"autoscaling": status}}))
    if beyond and before.replicas != executors.replicas:
        await context.emit(Note("ReplicasOutOfBounds", beyond, warning=True))
    if before.desired not in (None, decision.desired):
        whose = "" if job == "worker" else f" of the {job}"
        text = f"{before.desired} -> {decision.desired} executors{whose}: {decision.message}"
        await context.emit(Note("Scaled", text))
    await _ask(context, job, decision.desired)


def _settings(context: ReconcileContext, job: str, executors: Executors) -> AutoscalingSettings:
    wanted = context.spec.autoscaling
    bounds = wanted.enabled, executors.min, executors.max
    return AutoscalingSettings(*bounds, wanted.utilisation / 100, wanted.delay, wanted.up, wanted.down, job=job)


async def _ask(context: ReconcileContext, job: str, desired: int) -> None:
    """Write the number to the routing store, until that succeeds."""
    store, memory = context.store, context.memory
    known, at = memory.asked.get(job, (None, 0))
    if store is None or context.routing is None or (known == desired and context.now - at < _AGAIN):
        return
    try:
        if await asyncio.to_thread(asked_executors, store, job) != desired:
            await asyncio.to_thread(ask_executors, store, job, desired)
        memory.asked[job] = desired, context.now
    except (StateError, Unavailable):
        return
