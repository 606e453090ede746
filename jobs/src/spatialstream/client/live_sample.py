"""A look at the objects of a stream as they are sent, and at its dead letters: for people, who cannot read all of them.

Of what comes in a moment some objects are drawn at random, and all are counted. Where more comes than is worth reading
for a look, the rest is passed over, and counted by the messages that it was in.
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

_MOST_BYTES = 2 << 20
"""Bytes of messages that are read in a moment; what is more is passed over."""
_LONGEST_TEXT = 280
_LONGEST_RECORD = 2_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What has come in a moment.

    Attributes:
        objects: some of them, each with its text as it was sent.
        count: how many there were.
        exact: whether all were counted; else those in messages that were passed over are estimated.
    """

    objects: list[tuple[SpatialObject, str]]
    count: int
    exact: bool


class LiveSample:
    """Reads the newest objects of a stream, from now on; for one thread.

    Args:
        connection: how to reach the broker.
        stream: its name.
        space: of the stream.

    Raises:
        Unavailable: the broker does not answer, or has no such topic.
    """

    def __init__(self, connection: Connection, stream: str, space: Space) -> None:
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
        """Go on with what comes from now on; how many messages are passed over by that."""
        ends = {partition: end for partition, (_, end) in bounds(self._consumer, self._topic).items()}
        passed = sum(end - self._next.get(partition, end) for partition, end in ends.items())
        self._next = ends
        self._consumer.assign([TopicPartition(self._topic, *each) for each in ends.items()])
        return passed

    def take(self, seconds: float, most: int) -> Seen:
        """What comes within so many seconds, and of it so many objects at most."""
        if self._connection.shown is not self._shown:  # passwords or certificates have been renewed
            self._consumer.close()
            with answering(self._connection):
                self._connect()
        until, lines, size, messages = time.monotonic() + seconds, list[bytes](), 0, 0
        while size < _MOST_BYTES and (left := until - time.monotonic()) > 0.0:
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
        if size >= _MOST_BYTES:
            count += round(self._begin() * self._of_message)
            exact = False
            time.sleep(max(0.0, until - time.monotonic()))
        chosen = lines if len(lines) <= most else random.sample(lines, most)
        return Seen([each for each in map(self._object, chosen) if each is not None], count, exact)

    def _object(self, line: bytes) -> tuple[SpatialObject, str] | None:
        """An object and its text; None if the stream will not take it."""
        try:
            record = json.loads(line)
            text = record.get("text") or " ".join(record.get("terms") or ())
            return parse_object(record, self._space), str(text)[:_LONGEST_TEXT]
        except (ValueError, RecursionError, AttributeError, TypeError, RecordError):
            return None

    def close(self) -> None:
        """Let go of the broker."""
        self._consumer.close()


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What the stream could not use.

    Attributes:
        count: how many there are.
        newest: the last of them, the newest first: ``source``, ``offset``, ``line``, ``reason``, ``record`` as text
            (cut), and ``at``, when it was said, in ms.
    """

    count: int
    newest: Sequence[dict[str, Any]] = field(default_factory=tuple)


def dead_letters(connection: Connection, stream: str, most: int) -> DeadLetters:
    """The newest dead letters of a stream, so many of each partition at most.

    Raises:
        Unavailable: the broker does not give them.
        StateError: it has not got them any more.
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
