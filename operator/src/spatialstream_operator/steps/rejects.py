"""How much of what comes is rejected; a stream of which too much is, is Degraded."""

from __future__ import annotations

from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.rejects import Rejecting, judge, problem

__all__ = ["watch_rejects"]


async def watch_rejects(look: ReconcileContext) -> None:
    """Remember since when too much is rejected, and tell of it when that has lasted. Nothing is, without a router."""
    before = Rejecting.from_status(look.part("rejected"))
    runs = look.jobs["router"].state in ("starting", "running")
    found = judge(before, look.now, look.figures.inflows, look.spec.rejects_share / 100) if runs else None
    await look.remember(rejected=None if found is None else found.to_status())
    look.rejecting = problem(found, look.now, look.names.topics(look.spec.kafka.topics)["rejected"])
