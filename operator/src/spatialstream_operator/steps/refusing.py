"""Reports a stream that cannot be reconciled, because its spec is invalid or the operator lacks permissions."""

from __future__ import annotations

from collections.abc import Mapping

from spatialstream_operator.cluster import Object
from spatialstream_operator.context import PARTS, emit
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import condition
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.restarts import report
from spatialstream_operator.environment import Environment
from spatialstream_operator.names import KIND, StreamNames

__all__ = ["refuse", "unready"]

Verdicts = Mapping[str, Verdict]
"""Conditions by type."""


async def unready(environment: Environment, body: Object) -> Verdicts:
    """The ``Ready`` condition if a job is not running, as it is not restarted while the spec is refused; else empty."""
    names = StreamNames(body["metadata"]["namespace"], body["metadata"]["name"])
    for job in PARTS:
        pod = await environment.cluster.get("Pod", names.driver(job), names.namespace)
        if pod is None or not report(pod, environment.now()).ready:
            text = f"The {job} is not ready, and is not started while the spec is refused."
            return {"Ready": Verdict("False", f"{job.capitalize()}NotReady", text)}
    return {}


async def refuse(
    environment: Environment, body: Object, reason: str, message: str, besides: Verdicts | None = None
) -> None:
    """Report the problem in the status, and once in an event.

    Args:
        environment: shared clients and settings.
        body: the resource.
        reason: a CamelCase word.
        message: a sentence.
        besides: other known conditions.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    previous = {each["type"]: each for each in status.get("conditions", [])}
    verdicts = {"Degraded": Verdict("True", reason, message), "Progressing": Verdict("False", reason, message)}
    verdicts |= besides or {}
    reported = {name: (each.get("status"), each.get("reason"), each.get("message")) for name, each in previous.items()}
    if all(reported.get(name) == (each.status, each.reason, each.message) for name, each in verdicts.items()):
        return
    when = environment.now(), int(metadata.get("generation", 0))
    conditions = {
        **previous,
        **{name: condition(name, each, *when, previous.get(name, {})) for name, each in verdicts.items()},
    }
    change = {"phase": "Degraded", "conditions": list(conditions.values())}
    await environment.cluster.patch_status(KIND, metadata["name"], metadata["namespace"], change)
    if reported.get("Degraded") != ("True", reason, message):
        await emit(environment, body, Note(reason, message, warning=True))
