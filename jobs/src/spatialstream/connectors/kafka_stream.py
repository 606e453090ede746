"""Source, channel and sink of a live stream: the topics of a broker.

Each is a value with the address of the broker and the name of the stream, so that it can be sent to where it is used.
It holds the credentials of clients, and does not show them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka.admin import AdminClient

from spatialstream.connectors.announcements import announcements_within
from spatialstream.connectors.contracts import MESSAGE, Ranges
from spatialstream.connectors.delivery import result_messages
from spatialstream.connectors.kafka import CONTINUED, Connection, Topics
from spatialstream.connectors.kafka_clients import cut, follow, offsets, read, send
from spatialstream.connectors.keys import key_of_incarnation, key_within
from spatialstream.model.errors import StateError, Unavailable

__all__ = ["KafkaChannel", "KafkaSink", "KafkaSource", "TopicWatch"]


def _recreated(topic: str) -> StateError:
    return StateError(f"{topic} was deleted, and is there again, perhaps without its messages")


class TopicWatch:
    """Notices that topics of a running stream are deleted, and that others are created under their names.

    Args:
        connection: to the broker.
        stream: its name.
    """

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection, self._topics = connection, connection.topics(stream)
        self._absent, self._gone = set[str](), set[str]()
        self._ids = dict[str, str]()
        self._admin: AdminClient | None = None

    def missing(self) -> str:
        """Say which topics the broker does not have; "" if it has all.

        To be called every few seconds. A topic is missing if two calls in a row have not found it: one broker learns
        later than others that a topic has been created.

        Raises:
            StateError: a topic from whose offsets the stream continues was missing and is there again, or is another
                one than it was.
            Unavailable: the broker did not answer.
        """
        names = self._topics.names
        self._compare_ids()
        absent = set(names.values()) - offsets(self._connection).partitions(names.values()).keys()
        removed = absent & (self._absent | self._gone)
        self._absent, self._gone = absent, self._gone | removed
        for kind in CONTINUED:
            if names[kind] in self._gone - absent:
                raise _recreated(names[kind])
        if not absent:
            self._gone.clear()
        return f"the broker has no topic {' and no '.join(sorted(removed))}" if removed else ""

    def _compare_ids(self) -> None:
        """Make sure that no topic has been deleted and created again between two calls: its offsets begin anew."""
        self._admin = self._admin or self._connection.admin()
        try:
            found = self._topics.ids(self._connection, CONTINUED, self._admin)
        except Unavailable:
            self._admin = None  # it may keep stale metadata of a broker that has restarted
            raise
        for name, topic_id in found.items():
            if self._ids.setdefault(name, topic_id) != topic_id:
                raise _recreated(name)


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The topics of objects and queries; see :class:`~spatialstream.connectors.contracts.Source`.

    Partitions that are added to a topic are read within seconds.

    Attributes:
        connection: to the broker.
        stream: its name.
    """

    connection: Connection
    stream: str

    def bounds(self) -> Ranges:
        """See :class:`~spatialstream.connectors.contracts.Source`."""
        topics, where = self.connection.topics(self.stream), offsets(self.connection)
        kinds = {topics.objects: "objects", topics.queries: "queries"}
        counts = where.partitions(kinds)
        if missing := sorted(kinds.keys() - counts.keys()):
            raise Unavailable(f"the broker has no topic {missing[0]}")
        begins, ends = where.bounds(counts)
        return {
            f"{kind}/{i}": bounds
            for topic, kind in kinds.items()
            for i, bounds in enumerate(zip(begins[topic], ends[topic], strict=True))
        }

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """See :class:`~spatialstream.connectors.contracts.Source`."""
        kind, _, number = partition.partition("/")
        topics = self.connection.topics(self.stream)
        topic = topics.objects if kind == "objects" else topics.queries
        for messages in read(self.connection, topic, int(number), start, end):
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([message.offset() for message in messages], pa.int64()),
                    pa.array([message.key() for message in messages], pa.binary()),
                    pa.array([message.value() for message in messages], pa.binary()),
                ],
                schema=MESSAGE,
            )


@dataclass(frozen=True, slots=True)
class KafkaChannel:
    """The topics of blocks and of announcements; see :class:`~spatialstream.connectors.contracts.Channel`.

    Attributes:
        connection: to the broker.
        stream: its name.
        slots: number of slots.
        incarnation: id of the stream's incarnation.
    """

    connection: Connection
    stream: str
    slots: int
    incarnation: str = ""

    @property
    def _topics(self) -> Topics:
        return self.connection.topics(self.stream)

    def send(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> dict[int, int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        topic = self._topics.blocks
        messages = ((topic, slot, key_of_incarnation(key, self.incarnation), content) for slot, key, content in blocks)
        ends = dict[int, int]()
        for (_, slot), end in send(self.connection, messages).items():
            if end is None:
                raise Unavailable(f"the broker did not return the offsets of blocks in partition {slot} of {topic}")
            ends[slot] = end
        return ends

    def ends(self) -> list[int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        topic = self._topics.blocks
        return offsets(self.connection).latest({topic: self.slots})[topic]

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        value = json.dumps({**announcement, "incarnation": self.incarnation}).encode()
        send(self.connection, [(self._topics.epochs, 0, None, value)])

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        topic = self._topics.epochs
        start = offsets(self.connection).earliest({topic: 1})[topic][0] if after is None else after
        messages, end = follow(self.connection, topic, start, most, patience)
        return announcements_within((message.value() for message in messages), self.incarnation), end

    def cut(self, before: int) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        cut(self.connection, self._topics.epochs, before)

    def begins(self) -> list[int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        topic = self._topics.blocks
        return offsets(self.connection).earliest({topic: self.slots})[topic]

    def blocks(self, slot: int, start: int, end: int) -> Iterator[tuple[bytes, pa.Buffer | None]]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        for messages in read(self.connection, self._topics.blocks, slot, start, end):
            for message in messages:
                name, value = key_within(message.key(), self.incarnation), message.value()
                if name is not None:
                    yield name, None if value is None else pa.py_buffer(value)

    def release(self, ends: Sequence[int]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`. The topic's retention removes them after a day."""


@dataclass(frozen=True, slots=True)
class KafkaSink:
    """The topics of results and of dead letters; see :class:`~spatialstream.connectors.contracts.Sink`.

    Attributes:
        connection: to the broker.
        stream: its name.
        rows_per_message: maximum rows of a message.
        incarnation: id of the stream's incarnation.
    """

    connection: Connection
    stream: str
    rows_per_message: int = 500
    incarnation: str = ""

    def rows(self, turn: int, phase: int, lines: Iterable[pa.LargeStringArray], part: int = 0) -> int:
        """See :class:`~spatialstream.connectors.contracts.Sink`."""
        topic, count = self.connection.topics(self.stream).results, 0

        def messages() -> Iterator[tuple[str, int, bytes, bytes]]:
            nonlocal count
            for key, value in result_messages(lines, turn, phase, self.rows_per_message, self.incarnation):
                content = value.to_pybytes()
                count += content.count(b"\n") + 1
                yield topic, part, key, content

        send(self.connection, messages())
        return count

    def rejected(self, turn: int, stage: str, letters: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Sink`."""
        topic = self.connection.topics(self.stream).rejected
        send(self.connection, ((topic, None, None, letter.encode()) for letter in letters))
