"""A sample of a stream's objects as they are sent, and its dead letters: for display to users.

Of the objects that arrive in an interval some are drawn at random, and all are counted. If more arrive than is worth
reading for a sample, the rest is skipped, and its number is estimated from the number of messages.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from spatialstream.client.results import answering, bounds
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_clients import offsets, read
from spatialstream.model.errors import RecordError
from spatialstream.model.objects import SpatialObject, parse_object
from spatialstream.model.space import Space
from spatialstream.stages.ingest import CLOCK

__all__ = ["DeadLetters", "LiveSample", "Seen", "dead_letters"]

_LONGEST_TEXT = 280
_LONGEST_RECORD = 2_000


@dataclass(frozen=True, slots=True)
class Seen:
    """The sample of an interval.

    Attributes:
        objects: some of the objects, each with its text as it was sent.
        count: number of objects that arrived.
        exact: whether ``count`` is exact; otherwise the objects of skipped messages are estimated.
    """

    objects: list[tuple[SpatialObject, str]]
    count: int
    exact: bool


class LiveSample:
    """Samples the objects of a stream that arrive from now on; for one thread.

    Args:
        connection: how to reach the broker.
        stream: the stream's name.
        space: the stream's space.
        most_bytes: bytes of messages that are read for a sample; what comes beyond is skipped, and estimated.

    Raises:
        Unavailable: the broker does not answer, or has no such topic.
    """

    def __init__(self, connection: Connection, stream: str, space: Space, most_bytes: int = 2 << 20) -> None:
        self._most_bytes = most_bytes
        self._connection, self._stream = connection, stream
        self._topic, self._space = connection.topics(stream).objects, space
        self._of_message = 1.0  # objects in a message, on average
        self._next: dict[int, int] = {}
        with answering(connection):
            self._connect()

    def _connect(self) -> None:
        self._shown = self._connection.shown
        self._consumer: Consumer = self._connection.consumer(f"{self._stream}-live_sample")
        self._begin()

    def _begin(self) -> int:
        """Skip to the ends of the partitions; return the number of messages skipped."""
        ends = {partition: end for partition, (_, end) in bounds(self._consumer, self._topic).items()}
        passed = sum(end - self._next.get(partition, end) for partition, end in ends.items())
        self._next = ends
        self._consumer.assign([TopicPartition(self._topic, *each) for each in ends.items()])
        return passed

    def take(self, seconds: float, most: int) -> Seen:
        """Sample the objects that arrive within this time, with at most ``most`` objects."""
        if self._connection.shown is not self._shown:  # passwords or certificates have been renewed
            self._consumer.close()
            with answering(self._connection):
                self._connect()
        until, lines, size, messages = time.monotonic() + seconds, list[bytes](), 0, 0
        while size < self._most_bytes and (left := until - time.monotonic()) > 0.0:
            message = self._consumer.poll(left)
            if message is None or message.error() is not None:
                continue
            self._next[message.partition() or 0] = (message.offset() or 0) + 1
            value = message.value() or b""
            if message.key() == CLOCK:
                continue
            found = [line for line in value.split(b"\n") if line]
            messages, size = messages + 1, size + len(value)
            lines += found
        count, exact = len(lines), True
        if messages:
            self._of_message = 0.5 * self._of_message + 0.5 * count / messages
        if size >= self._most_bytes:
            count += round(self._begin() * self._of_message)
            exact = False
            time.sleep(max(0.0, until - time.monotonic()))
        chosen = lines if len(lines) <= most else random.sample(lines, most)
        return Seen([each for each in map(self._object, chosen) if each is not None], count, exact)

    def _object(self, line: bytes) -> tuple[SpatialObject, str] | None:
        """Parse an object and its text; None if the stream will reject it."""
        try:
            record = json.loads(line)
            text = record.get("text") or " ".join(record.get("terms") or ())
            return parse_object(record, self._space), str(text)[:_LONGEST_TEXT]
        except (ValueError, RecursionError, AttributeError, TypeError, RecordError):
            return None

    def close(self) -> None:
        """Close the connection to the broker."""
        self._consumer.close()


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Records that the stream rejected.

    Attributes:
        count: how many there are.
        newest: the newest of them, the latest first: ``source``, ``offset``, ``line``, ``reason``, ``record`` as text
            (truncated), and ``at``, the time of the rejection in ms.
    """

    count: int
    newest: Sequence[dict[str, Any]] = field(default_factory=tuple)


def dead_letters(connection: Connection, stream: str, most: int) -> DeadLetters:
    """Read the newest dead letters of a stream, at most this many.

    Raises:
        Unavailable: the broker does not answer, or denies reading.
        StateError: the messages have been deleted meanwhile.
    """
    topic, known = connection.topics(stream).rejected, offsets(connection)
    partitions = known.partitions([topic]).get(topic, 0)
    first, end = (each[topic] for each in known.bounds({topic: partitions}))
    letters = list[dict[str, Any]]()
    for partition in range(partitions):
        start = max(first[partition], end[partition] - most)
        for messages in read(connection, topic, partition, start, end[partition]):
            letters += [_letter(message) for message in messages]
    letters.sort(key=lambda each: -int(each["at"]))
    return DeadLetters(sum(end) - sum(first), letters[:most])


def _letter(message: Message) -> dict[str, Any]:
    letter = json.loads(message.value() or b"{}")
    record = letter.get("record", "")
    text = record if isinstance(record, str) else json.dumps(record, ensure_ascii=False)
    said = {name: letter.get(name) for name in ("source", "offset", "line", "reason")}
    return said | {"record": text[:_LONGEST_RECORD], "at": message.timestamp()[1]}
