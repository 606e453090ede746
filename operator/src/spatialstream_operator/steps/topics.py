"""Before anything is made: whether the topics that a stream names are another stream's."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spatialstream.model.addresses import servers_from_outside
from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.restarts import RestartState
from spatialstream_operator.decisions.topics import Claim, conflict
from spatialstream_operator.look import Look
from spatialstream_operator.names import KIND, TOPIC_KINDS, StreamNames

__all__ = ["check_topics"]

_log = logging.getLogger(__name__)

_AGAIN = 30_000
"""ms after which all streams are listed anew, as long as this one may not begin."""


async def check_topics(look: Look) -> None:
    """Refuse topics of others. A stream that has begun has its topics, and is not asked any more.

    Raises:
        SettingError: a topic is another stream's; names both.
    """
    ours, memory = _claim(look.body), look.memory
    if ours is None or ours.begun:
        return
    if memory.others is None or look.now - memory.others[0] >= _AGAIN:
        claims = [_claim(body) for body in await _streams(look)]
        memory.others = look.now, [each for each in claims if each is not None]
    problem = conflict(ours, memory.others[1])
    if problem is not None:
        kind, what = problem
        if kind in TOPIC_KINDS:
            raise SettingError(f"spec.kafka.topics.{kind}", f"{what}; name another one")
        raise SettingError("metadata.name", f"{what}; give this stream another name")


async def _streams(look: Look) -> list[Object]:
    """All streams that are looked after. A namespace to which there is no right any more keeps no other waiting."""
    found: list[Object] = []
    for namespace in look.environment.config.namespaces or (None,):
        try:
            found += await look.environment.cluster.list(KIND, namespace)
        except ApiError as error:
            if not error.is_refusal:
                raise
            _log.warning("%s: the streams of %s cannot be listed: %s", look.names.stream, namespace, error)
    return found


def _claim(body: Object) -> Claim | None:
    """What a SpatialStream claims; None if it is refused for its own topics' sake."""
    metadata, kafka = body["metadata"], records.part(records.part(body, "spec"), "kafka")
    try:
        names = StreamNames(metadata["namespace"], metadata["name"])
        topics = names.topics(_texts(records.part(kafka, "topics")))
    except SettingError:
        return None
    servers = servers_from_outside(records.text(kafka, "bootstrapServers"), names.namespace)
    made = records.text(metadata, "creationTimestamp"), metadata["uid"]
    begun = RestartState.from_status(records.part(records.part(body, "status"), "router")).template != ""
    return Claim(names.stream, made, frozenset(filter(None, servers.split(","))), topics, begun)


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {kind: records.text(given, kind) for kind in given}
