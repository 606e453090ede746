"""Checks topics: before a stream starts, whether they belong to another stream; on deletion, which ones are kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spatialstream.model.addresses import servers_from_outside
from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.restarts import RestartState
from spatialstream_operator.decisions.topics import Claim, conflict, foreign, spared
from spatialstream_operator.environment import Environment
from spatialstream_operator.names import KIND, TOPIC_KINDS, StreamNames

__all__ = ["check_topics", "topics_of_others"]

_log = logging.getLogger(__name__)

_AGAIN = 30_000
"""ms after which all streams are listed again, as long as this one must not start."""


async def check_topics(context: ReconcileContext) -> None:
    """Reject topics of other streams.

    A stream that has started owns its topics. It is checked only once more, when its Kafka cluster becomes known.

    Raises:
        SettingError: a topic belongs to another stream; the error names both.
    """
    ours, memory = _claim(context.body), context.memory
    if ours is None or (ours.begun and ours.cluster in ("", memory.cluster)):
        return
    if memory.others is None or context.now - memory.others[0] >= _AGAIN:
        memory.others = context.now, await _claims(context.environment, context.names.stream)
    others = memory.others[1]
    problem = conflict(ours, [each for each in others if each.cluster or not ours.begun])
    if not ours.begun:
        watched = context.environment.config.namespaces or [each.namespace for each in others]
        problem = foreign(ours, watched) or problem
    if problem is not None:
        kind, what = problem
        if kind in TOPIC_KINDS:
            raise SettingError(f"spec.kafka.topics.{kind}", f"{what}; name another one")
        raise SettingError("metadata.name", f"{what}; give this stream another name")
    if ours.begun:
        memory.cluster = ours.cluster


async def topics_of_others(environment: Environment, body: Object) -> list[str]:
    """Topics of a stream that other streams name too, so that they are not deleted with it."""
    ours = _claim(body)
    return [] if ours is None else spared(ours, await _claims(environment, ours.stream))


async def _claims(environment: Environment, stream: str) -> list[Claim]:
    """The claims of all managed streams. A namespace that can no longer be listed does not block the others."""
    bodies: list[Object] = []
    for namespace in environment.config.namespaces or (None,):
        try:
            bodies += await environment.cluster.list(KIND, namespace)
        except ApiError as error:
            if not error.is_refusal:
                raise
            _log.warning("%s: the streams of %s cannot be listed: %s", stream, namespace, error)
    claims = [_claim(body) for body in bodies]
    return [each for each in claims if each is not None]


def _claim(body: Object) -> Claim | None:
    """The topics that a SpatialStream claims; None if they are invalid in themselves."""
    metadata, kafka = body["metadata"], records.part(records.part(body, "spec"), "kafka")
    try:
        names = StreamNames(metadata["namespace"], metadata["name"])
        topics = names.topics(_texts(records.part(kafka, "topics")))
    except SettingError:
        return None
    servers = servers_from_outside(records.text(kafka, "bootstrapServers"), names.namespace)
    created, status = (records.text(metadata, "creationTimestamp"), metadata["uid"]), records.part(body, "status")
    begun = RestartState.from_status(records.part(status, "router")).template != ""
    cluster = records.text(records.part(status, "kafka"), "cluster")
    deletion = records.part(records.part(body, "spec"), "deletion")
    kept = records.text(deletion, "state") == "Keep" or records.text(deletion, "topics") != "Delete"
    going = "deletionTimestamp" in metadata and not kept
    addresses = frozenset(_plain(each) for each in servers.split(",") if each)
    return Claim(names.stream, created, addresses, topics, begun, cluster, going)


def _plain(server: str) -> str:
    """An address in its shortest form, because a service of the cluster may be addressed by longer names."""
    host, colon, port = server.lower().rpartition(":")
    return host.rstrip(".").removesuffix(".cluster.local") + colon + port


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {kind: records.text(given, kind) for kind in given}
