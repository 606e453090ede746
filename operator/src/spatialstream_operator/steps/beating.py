"""The heartbeat in the status: when the stream was looked at last. While it grows old, nothing of the status is news.

It is written once in :data:`EVERY`, with whatever else there is to write: a thousand streams are 17 small writes a
second.
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
    """The part of the status that says when it was looked at, if it is time to write it; else nothing.

    Args:
        status: as it is.
        now: the time, in ms since 1970-01-01 UTC.
    """
    last = records.moment(status, _FIELD)
    # a time to come is another operator's, whose clock was wrong
    return {} if last is not None and 0 <= now - last < EVERY else {_FIELD: records.moment_text(now // 1000 * 1000)}


async def beat(environment: Environment, body: Object) -> None:
    """Write it alone, for a stream of which nothing else is done."""
    metadata = body["metadata"]
    if due := heartbeat(body.get("status") or {}, environment.now()):
        await environment.cluster.patch_status(KIND, metadata["name"], metadata["namespace"], due)
