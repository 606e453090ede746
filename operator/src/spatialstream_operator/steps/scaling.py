"""How many executors the worker should have; the worker's driver reads the number from the routing store."""

from __future__ import annotations

import asyncio

from spatialstream.model.errors import StateError, Unavailable
from spatialstream.store.reports import ask_executors, asked_executors
from spatialstream_operator.decisions.autoscaling import AutoscalingSettings, ScalingState, autoscale
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.rebalancing_state import Phase
from spatialstream_operator.look import Look
from spatialstream_operator.steps.executors import count_executors

__all__ = ["scale"]

_ADOPTING = frozenset({Phase.PUBLISHING.value, Phase.ADOPTING.value, Phase.WITHDRAWING.value})


_AGAIN = 60_000
"""ms after which the routing store is looked at once more, in case somebody has changed the number there."""


async def scale(look: Look) -> None:
    """Decide, remember, and tell the worker."""
    await count_executors(look)
    before = ScalingState.from_status(look.part("autoscaling"))
    adopting = look.part("rebalance").get("phase") in _ADOPTING
    decision = autoscale(
        before, look.now, look.figures.use, look.registered, look.spec.workers.replicas, _settings(look), adopting
    )
    look.desired = decision.desired
    use = look.figures.use
    told = {
        "reason": decision.reason,
        "message": decision.message,
        "utilisation": None if use is None else f"{use.utilisation:.0%}",
    }
    await look.remember(autoscaling=decision.state.to_status() | told)
    if before.desired not in (None, decision.desired):
        text = f"{before.desired} -> {decision.desired} executors: {decision.message}"
        await look.tell(Note("Scaled", text))
    await _ask(look, decision.desired)


def _settings(look: Look) -> AutoscalingSettings:
    workers, wanted = look.spec.workers, look.spec.autoscaling
    return AutoscalingSettings(
        wanted.enabled, workers.min, workers.max, wanted.utilisation / 100, wanted.delay, wanted.up, wanted.down
    )


async def _ask(look: Look, desired: int) -> None:
    """Tell the routing store once; it is told again if that did not succeed."""
    store, memory = look.store, look.memory
    known = memory.asked == desired and look.now - memory.asked_at < _AGAIN
    if store is None or look.routing is None or known:
        return
    try:
        if await asyncio.to_thread(asked_executors, store, "worker") != desired:
            await asyncio.to_thread(ask_executors, store, "worker", desired)
        memory.asked, memory.asked_at = desired, look.now
    except (StateError, Unavailable):
        return
