"""Checks the share of rejected records; a stream that rejects too many is Degraded."""

from __future__ import annotations

from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.rejects import Rejecting, judge, problem

__all__ = ["watch_rejects"]


async def watch_rejects(context: ReconcileContext) -> None:
    """Track since when too many records are rejected, and report it when that lasts; reset without a router."""
    before = Rejecting.from_status(context.part("rejected"))
    runs = context.jobs["router"].state in ("starting", "running")
    found = judge(before, context.now, context.load_metrics.inflows, context.spec.rejects_share / 100) if runs else None
    await context.remember(rejected=None if found is None else found.to_status())
    context.rejecting = problem(found, context.now, context.names.topics(context.spec.kafka.topics)["rejected"])
