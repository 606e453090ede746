"""A stream that nothing can be done for: its spec cannot be carried out, or rights are missing. It is told, no more."""

from __future__ import annotations

from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.environment import Environment
from spatialstream_operator.look import emit
from spatialstream_operator.names import KIND

__all__ = ["refuse"]


async def refuse(environment: Environment, body: Object, reason: str, message: str) -> None:
    """Say in the status what is wrong; once in an event.

    Args:
        environment: what the operator works with.
        body: the resource.
        reason: in a word.
        message: in a sentence.
    """
    metadata, status = body["metadata"], body.get("status") or {}
    known = {each["type"]: each for each in status.get("conditions", [])}
    before = known.get("Degraded", {})
    if before.get("reason") == reason and before.get("message") == message:
        return
    now = records.moment_text(environment.now() // 1000 * 1000)
    conditions = {**known}
    for name, truth in (("Degraded", "True"), ("Progressing", "False")):
        conditions[name] = {
            "type": name,
            "status": truth,
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
            "observedGeneration": metadata.get("generation", 0),
        }
    change = {"phase": "Degraded", "conditions": list(conditions.values())}
    await environment.cluster.patch_status(KIND, metadata["name"], metadata["namespace"], change)
    await emit(environment, body, Note(reason, message, warning=True))
