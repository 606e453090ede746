"""A spec that the API server has let through and that cannot be carried out: it is told, and nothing is changed."""

from __future__ import annotations

from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.environment import Environment
from spatialstream_operator.look import emit
from spatialstream_operator.names import KIND

__all__ = ["refuse"]

_REASON = "SpecRefused"


async def refuse(environment: Environment, body: Object, error: SettingError) -> None:
    """Say in the status what is wrong; once in an event."""
    metadata, status = body["metadata"], body.get("status") or {}
    known = {each["type"]: each for each in status.get("conditions", [])}
    before = known.get("Degraded", {})
    if before.get("reason") == _REASON and before.get("message") == str(error):
        return
    now = records.moment_text(environment.now() // 1000 * 1000)
    conditions = {**known}
    for name, truth in (("Degraded", "True"), ("Progressing", "False")):
        conditions[name] = {
            "type": name,
            "status": truth,
            "reason": _REASON,
            "message": str(error),
            "lastTransitionTime": now,
            "observedGeneration": metadata.get("generation", 0),
        }
    change = {"status": {"phase": "Degraded", "conditions": list(conditions.values())}}
    await environment.cluster.patch(KIND, metadata["name"], metadata["namespace"], change, "status")
    await emit(environment, body, Note(_REASON, str(error), warning=True))
