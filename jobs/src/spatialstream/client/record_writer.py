"""Records into a stream's topics, and what becomes of them: for whoever sends for others.

A call returns when the broker has what it sends. Whether a query was taken in, the stream says nowhere by itself. A
*probe* goes with it: a snapshot query in the same message and of the same time, so that the stream comes to it after
the query. Once its row is there, and the round of that row is over, the query stands, or a dead letter says why not.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from confluent_kafka import KafkaException, Producer

from spatialstream.client.sending import messages_of
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_clients import offsets, read, send
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.model.space import Space

__all__ = ["RecordWriter", "Sent", "probe_of"]

_OBJECTS_PER_MESSAGE = 1000
_PATIENCE = 30.0


def probe_of(t: int, space: Space) -> dict[str, Any]:
    """A snapshot query of a time that asks for nothing, under an id of its own."""
    west, south, _, _ = space.bounds
    region = {"box": [west, south, west, south]}
    return {"id": f"probe-{uuid.uuid4().hex}", "type": "SRQ", "t": t, "region": region, "duration": 0}


@dataclass(slots=True)
class Sent:
    """A message of queries that the broker has.

    Attributes:
        source, offset: where it lies, as dead letters say it.
        unread: for each partition of the dead letters the offset of the first that may be about it.
        refused: reasons of its records that were rejected, by line from 1.
    """

    source: str
    offset: int
    unread: dict[int, int]
    refused: dict[int, str]


class RecordWriter:
    """Sends records to a stream; any number of threads may.

    Args:
        connection: how to reach the broker.
        stream: its name.
    """

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection, self._topics = connection, connection.topics(stream)
        self._turns = count()
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._shown: Mapping[str, str] | None = None

    def objects(self, lines: bytes) -> None:
        """Send objects as they are written, in their order in one partition, and wait until the broker has them.

        Args:
            lines: JSON Lines, each of an object.

        Raises:
            Unavailable: the broker may not have all of them.
        """
        partition = next(self._turns) % self._partitions(self._topics.objects)
        whole = np.frombuffer(lines if lines.endswith(b"\n") else lines + b"\n", np.uint8)
        messages = messages_of(whole, _OBJECTS_PER_MESSAGE)
        send(self._connection, ((self._topics.objects, partition, None, value) for value in messages))

    def queries(self, *records: Mapping[str, Any]) -> Sent:
        """Send queries and cancellations in one message, and wait until the broker has it.

        Raises:
            Unavailable: it may not have it.
            SettingError: the message is too long.
        """
        value = b"\n".join(json.dumps(record, ensure_ascii=False).encode() for record in records)
        unread = dict(enumerate(self._ends()))
        with self._lock:  # one at a time, see spatialstream.connectors.kafka_clients: what is first sent goes alone
            if self._producer is None or self._connection.shown is not self._shown:
                self._shown = self._connection.shown
                self._producer = self._connection.producer(**{"message.timeout.ms": int(_PATIENCE * 1000)})
            outcome: list[tuple[Any, Any]] = []
            try:
                self._producer.produce(self._topics.queries, value, on_delivery=lambda *told: outcome.append(told))
            except (KafkaException, BufferError) as error:
                raise SettingError("query", f"{len(value)} bytes cannot be sent: {error}") from None
            self._producer.flush(_PATIENCE)
        if not outcome or outcome[0][0] is not None:
            raise Unavailable(f"the broker did not take the query: {outcome[0][0].str() if outcome else 'no answer'}")
        message = outcome[0][1]
        return Sent(f"queries/{message.partition()}", message.offset(), unread, {})

    def look(self, sent: Sent) -> None:
        """Read the dead letters that have come since, and note those about a message.

        Raises:
            Unavailable: the broker does not give them.
        """
        for partition, end in enumerate(self._ends()):
            start = sent.unread.get(partition, 0)
            for messages in read(self._connection, self._topics.rejected, partition, start, end):
                for message in messages:
                    letter = json.loads(message.value() or b"{}")
                    if (letter.get("source"), letter.get("offset")) == (sent.source, sent.offset):
                        sent.refused[letter["line"]] = letter["reason"]
            sent.unread[partition] = max(start, end)

    def _ends(self) -> list[int]:
        topic = self._topics.rejected
        return offsets(self._connection).latest({topic: self._partitions(topic)})[topic]

    def _partitions(self, topic: str) -> int:
        found = offsets(self._connection).partitions([topic])
        if topic not in found:
            raise Unavailable(f"the broker has no topic {topic}")
        return found[topic]
