"""How many executors a job should have; its driver reads the number from the routing store."""

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
"""ms after which the routing store is looked at once more, in case somebody has changed the number there."""


async def scale(look: ReconcileContext) -> None:
    """Decide, remember, and tell the jobs that have executors."""
    await count_executors(look)
    for job, crew in look.crews.items():
        await _scale(look, job, crew)
    if "router" not in look.crews:
        await look.remember(router=dict.fromkeys(("autoscaling", "replicas", "desired", "ready", "missing")))


async def _scale(look: ReconcileContext, job: str, crew: Crew) -> None:
    before, executors = ScalingState.from_status(look.scaling(job)), look.spec.job(job).executors
    assert executors is not None
    adopting = look.part("rebalance").get("phase") in _ADOPTING
    use, settings = look.figures.use if job == "worker" else look.figures.router, _settings(look, job, executors)
    decision = autoscale(before, look.now, use, crew.registered, executors.replicas, settings, adopting)
    beyond = out_of_bounds(executors.replicas, settings)
    crew.desired, crew.beyond = decision.desired, "" if settings.enabled else beyond
    told = decision.state.to_status() | {
        "reason": decision.reason,
        "message": decision.message,
        "utilisation": None if use is None else f"{use.utilisation:.0%}",
    }
    await look.remember(**({"autoscaling": told} if job == "worker" else {"router": {"autoscaling": told}}))
    if beyond and before.replicas != executors.replicas:
        await look.tell(Note("ReplicasOutOfBounds", beyond, warning=True))
    if before.desired not in (None, decision.desired):
        whose = "" if job == "worker" else f" of the {job}"
        text = f"{before.desired} -> {decision.desired} executors{whose}: {decision.message}"
        await look.tell(Note("Scaled", text))
    await _ask(look, job, decision.desired)


def _settings(look: ReconcileContext, job: str, executors: Executors) -> AutoscalingSettings:
    wanted = look.spec.autoscaling
    bounds = wanted.enabled, executors.min, executors.max
    return AutoscalingSettings(*bounds, wanted.utilisation / 100, wanted.delay, wanted.up, wanted.down, job=job)


async def _ask(look: ReconcileContext, job: str, desired: int) -> None:
    """Tell the routing store once; it is told again if that did not succeed."""
    store, memory = look.store, look.memory
    known, at = memory.asked.get(job, (None, 0))
    if store is None or look.routing is None or (known == desired and look.now - at < _AGAIN):
        return
    try:
        if await asyncio.to_thread(asked_executors, store, job) != desired:
            await asyncio.to_thread(ask_executors, store, job, desired)
        memory.asked[job] = desired, look.now
    except (StateError, Unavailable):
        return
