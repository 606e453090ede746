"""Writer of records to a stream's topics that reports rejections, for services that send on behalf of others.

A call returns when the broker has acknowledged the records. The stream sends no confirmation that it admitted a query.
So a *probe* goes with the query: a snapshot query in the same message and of the same time, which the stream processes
after it. Once the probe's row has arrived and the round of that row is over, the query is registered, or a dead letter
says why not.
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
    """Make a snapshot query at time ``t`` with an empty result, under an id of its own."""
    west, south, _, _ = space.bounds
    region = {"box": [west, south, west, south]}
    return {"id": f"probe-{uuid.uuid4().hex}", "type": "SRQ", "t": t, "region": region, "duration": 0}


@dataclass(slots=True)
class Sent:
    """A message of queries that the broker has acknowledged.

    Attributes:
        source, offset: its position, as given in dead letters.
        unread: for each partition of the dead letters the offset of the first one not read yet that may concern it.
        refused: reasons of its rejected records, by line number from 1.
    """

    source: str
    offset: int
    unread: dict[int, int]
    refused: dict[int, str]


class RecordWriter:
    """Sends records to a stream; safe for any number of threads.

    Args:
        connection: how to reach the broker.
        stream: the stream's name.
    """

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection, self._topics = connection, connection.topics(stream)
        self._turns = count()
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._shown: Mapping[str, str] | None = None

    def objects(self, lines: bytes) -> None:
        """Send objects unchanged, in their order to one partition, and wait until the broker has acknowledged them.

        Args:
            lines: JSON Lines, one object a line.

        Raises:
            Unavailable: the broker may not have all of them.
        """
        partition = next(self._turns) % self._partitions(self._topics.objects)
        whole = np.frombuffer(lines if lines.endswith(b"\n") else lines + b"\n", np.uint8)
        messages = messages_of(whole, _OBJECTS_PER_MESSAGE)
        send(self._connection, ((self._topics.objects, partition, None, value) for value in messages))

    def queries(self, *records: Mapping[str, Any]) -> Sent:
        """Send queries and cancellations in one message, and wait until the broker has acknowledged it.

        Raises:
            Unavailable: it may not have it.
            SettingError: the message is too long.
        """
        value = b"\n".join(json.dumps(record, ensure_ascii=False).encode() for record in records)
        unread = dict(enumerate(self._ends()))
        with self._lock:  # one at a time, see spatialstream.connectors.kafka_clients: the first message goes alone
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

    def poll(self, sent: Sent) -> None:
        """Read the dead letters that have arrived since the last call, and record those about a message.

        Raises:
            Unavailable: the broker does not answer, or denies reading.
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
