"""The executors, which Spark makes: how many are ready, and whether some are missing for long."""

from __future__ import annotations

from spatialstream_operator.commands import EXECUTOR_CONTAINER
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.executors import Shortage, cause, is_ready, problem, shortage
from spatialstream_operator.look import Look

__all__ = ["count_executors", "miss_executors"]


async def count_executors(look: Look) -> None:
    """See which executors there are; none are known if there is no driver that could have any."""
    if look.jobs["worker"].state not in ("starting", "running"):
        return
    look.executors = await look.environment.cluster.list("Pod", look.names.namespace, look.names.selected("executor"))
    look.registered = sum(is_ready(pod) for pod in look.executors)


async def miss_executors(look: Look) -> None:
    """Remember since when executors are missing, and tell of it when that has lasted."""
    before = Shortage.from_status(records.part(look.part("workers"), "missing"))
    found = shortage(before, look.now, look.registered, look.desired, look.jobs["worker"].state)
    await look.remember(workers={"missing": None if found is None else found.to_status()})
    grace = round(look.environment.config.executor_grace * 1000)
    why = cause(look.executors, look.now, EXECUTOR_CONTAINER)
    look.missing = problem(found, look.now, look.registered or 0, look.desired, grace, why)
