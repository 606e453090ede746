"""The heartbeat in the status: time of the last reconciliation. If it is old, the rest of the status may be outdated.

It is written once per :data:`EVERY`, together with other changes of the status: a thousand streams cause 17 small
writes per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions import records
from spatialstream_operator.environment import Environment
from spatialstream_operator.names import KIND

__all__ = ["EVERY", "beat", "heartbeat"]

EVERY = 60_000
"""ms between two heartbeats."""

_FIELD = "lastSeen"


def heartbeat(status: Mapping[str, Any], now: int) -> dict[str, str | None]:
    """The heartbeat as part of the status, if it is due; else an empty mapping.

    Args:
        status: the current status.
        now: the time, in ms since 1970-01-01 UTC.
    """
    last = records.moment(status, _FIELD)
    # a time in the future was written by an operator with a wrong clock
    return {} if last is not None and 0 <= now - last < EVERY else {_FIELD: records.moment_text(now // 1000 * 1000)}


async def beat(environment: Environment, body: Object) -> None:
    """Write only the heartbeat, for a stream that is not reconciled otherwise."""
    metadata = body["metadata"]
    if due := heartbeat(body.get("status") or {}, environment.now()):
        await environment.cluster.patch_status(KIND, metadata["name"], metadata["namespace"], due)
