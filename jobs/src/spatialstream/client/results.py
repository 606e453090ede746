"""A consumer of results: complete rows in the order of arrival, without repeated ones.

Each partition of the topic holds the rows of its queries in their order; copies of a row, and parts of a row, are in
the same partition.

A consumer resumes after the last row that it has processed, see :mod:`~spatialstream.client.position` and
:meth:`Results.written`.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition

from spatialstream.client.position import Position
from spatialstream.connectors.delivery import Assembler, Deduplicator, Place
from spatialstream.connectors.kafka import Connection
from spatialstream.model.errors import Gone, Unavailable

__all__ = ["Results", "Row", "answering", "bounds"]

_FATAL = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
_SAVE_SECONDS = 1.0
_QUERY = re.compile(rb'\{"query": "([^"\\]*)"')
_IN_PARTS = b', "part": '  # quotes within strings are escaped, so this is nothing else
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """A row, and the position after it.

    Attributes:
        line: the row, as JSON.
        place: incarnation, round and phase of the row.
        upto: number of rows of that phase up to and including this one.
        partition: partition of the topic.
        next: offset of the first message that contains rows after it.
        held: for each partition and incarnation the offset at which an incomplete row begins.
    """

    line: bytes
    place: Place
    upto: int
    partition: int
    next: int
    held: Mapping[tuple[int, str], int]

    @property
    def query(self) -> str:
        """The id of the row's query."""
        match = _QUERY.match(self.line)
        return match[1].decode() if match is not None else str(json.loads(self.line)["query"])

    @property
    def whole(self) -> bool:
        """False for a part of a row that began before the first message read, and so cannot be completed."""
        return _IN_PARTS not in self.line

    @property
    def resume(self) -> int:
        """Offset from which all rows after it can be read completely."""
        return min(self.next, self.held.get((self.partition, self.place.incarnation), self.next))


_LEADERLESS = (
    *(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.REPLICA_NOT_AVAILABLE),
    *(KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
)
_PAUSE = 0.1


@contextmanager
def answering(connection: Connection) -> Iterator[None]:
    """Translate errors of Kafka clients.

    Raises:
        Unavailable: the broker does not answer.
    """
    try:
        yield
    except KafkaException as error:
        reason = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
        raise Unavailable(connection.why(f"the broker at {connection.bootstrap} does not answer: {reason}")) from None


def bounds(consumer: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return for each partition of a topic the offset of the first message, and the offset after the last.

    Raises:
        Unavailable: the broker has no such topic.
    """
    metadata = consumer.list_topics(topic, timeout=_TIMEOUT).topics.get(topic)
    if metadata is None or metadata.error is not None:
        raise Unavailable(f"the broker has no topic {topic}")
    return {i: _bounds(consumer, TopicPartition(topic, i)) for i in metadata.partitions}


def _bounds(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Bounds of one partition; waits while it has no leader, as after its creation or a move."""
    until = time.monotonic() + _TIMEOUT
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT)
            return found
        except KafkaException as error:
            if error.args[0].code() not in _LEADERLESS or time.monotonic() > until:
                raise
        time.sleep(_PAUSE)


class Results:
    """Reads the results of a stream from a position on.

    With a ``position`` file, reading resumes where the last use of that file ended. The file holds the offsets, and the
    number of processed rows of the latest rounds, by which repeated rows are recognized. It is written periodically and
    at the end.

    Args:
        connection: how to reach the broker.
        stream: the stream's name.
        newest: start with messages that arrive from now on, not with the oldest kept.
        position: see above.
        start: start with the messages of these offsets, one for each partition; a negative number: that many messages
            before the end of each partition.
        report: called with messages for the user.

    Attributes:
        start: the first offset to read, in each partition.
        end: the offset after the last message at the start, in each partition.
        mark: short fingerprint of the topic's id, which differs from that of a deleted topic of its name; empty: not
            known, or not needed.

    Raises:
        Unavailable: the broker does not answer, or has no such topic.
        Gone: the broker does not have the messages of ``start``.
        SettingError: the position file is invalid, of another topic, or cannot be written.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        newest: bool = False,
        position: Path | None = None,
        start: Sequence[int] | int | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._connection, self._topic = connection, connection.topics(stream).results
        self._report = report
        self._assemblers: dict[tuple[int, str], Assembler] = defaultdict(Assembler)
        self._begun: dict[tuple[int, str], int] = {}
        self._last: Row | None = None
        with answering(connection), ExitStack() as opened:
            self._stream, self._shown = stream, connection.shown
            self._consumer: Consumer = opened.enter_context(closing(connection.consumer(f"{stream}-results")))
            topic_id = None if position is None and start is None else self._id_of_topic(connection)
            self.mark = "" if topic_id is None else hashlib.sha256(topic_id.encode()).hexdigest()[:8]
            self._position = Position(self._topic, topic_id, position)
            if not self._position.load():
                report(f"{self._topic} has been recreated since the position was saved; reading it from the start")
            written = self._position.written.items()
            self._read = {partition: Deduplicator.from_record(each.to_record()) for partition, each in written}
            self._incarnations = {each.incarnation for each in self._read.values() if each.incarnation is not None}
            self._assign(newest, start)
            self._position.save()
            opened.pop_all()

    @property
    def repeated(self) -> int:
        """Number of repeated rows dropped."""
        return sum(each.repeated for each in self._read.values())

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether all messages before these offsets of the partitions have been returned."""
        return all(self._position.next.get(partition, 0) >= end for partition, end in ends.items())

    def ends(self) -> dict[int, int]:
        """Return for each partition the offset after its current last message.

        Raises:
            Unavailable: the broker does not answer.
        """
        with answering(self._connection):
            return {partition: end for partition, (_, end) in bounds(self._consumer, self._topic).items()}

    # ----------------------------------------------------------------------------------------------------- beginning

    def _id_of_topic(self, connection: Connection) -> str | None:
        """The topic's id, which differs from that of a deleted topic of its name; None if the broker does not tell."""
        try:
            asked = connection.admin().describe_topics(TopicCollection([self._topic]), request_timeout=_TIMEOUT)
            return str(asked[self._topic].result(_TIMEOUT).topic_id)
        except (KafkaException, TimeoutError, ValueError):
            return None

    def _assign(self, newest: bool, offsets: Sequence[int] | int | None) -> None:
        partitions, next_ = bounds(self._consumer, self._topic), self._position.next
        self.end = tuple(partitions[each][1] for each in sorted(partitions))
        if isinstance(offsets, int):
            next_ |= {each: max(low, high + offsets) for each, (low, high) in partitions.items()}
        elif offsets is not None:
            if len(offsets) != len(partitions):
                raise Gone(f"{self._topic} has {len(partitions)} partitions, not {len(offsets)}")
            next_ |= enumerate(offsets)
            for each, (low, high) in partitions.items():
                if not low <= next_[each] <= high:
                    there = f"partition {each} of {self._topic} holds offsets {low} to {high}"
                    raise Gone(f"{there}, not {next_[each]}: rows would be missing")
        for partition, (low, high) in partitions.items():
            start = next_.get(partition, high if newest else low)
            if start > high:
                self._report(
                    f"{self._topic} ends before the position: it has been recreated; reading it from the start"
                )
                start = low
            elif start < low:
                self._report(f"the broker has deleted {low - start} unread messages of {self._topic}")
                start = low
            next_[partition] = start
        self.start = tuple(next_[each] for each in sorted(partitions))
        self._consumer.assign([TopicPartition(self._topic, i, next_[i]) for i in partitions])

    # ------------------------------------------------------------------------------------------------------- reading

    def messages(self, stop: Callable[[], bool], patience: float | None = None) -> Iterator[bytes]:
        """Yield the new rows of each message, as JSON Lines; they count as processed when the next are requested.

        Args:
            stop: says whether to end; called between messages.
            patience: seconds without a message after which the iteration ends; None: never.

        Raises:
            Unavailable: the topic has been deleted.
        """
        for message in self._messages(stop, patience):
            if rows := list(self._rows(message)):
                self._last = rows[-1]
                yield b"\n".join(row.line for row in rows)
                self.written()
            self._passed(message)

    def rows(self, stop: Callable[[], bool], patience: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield single rows; see :meth:`messages`. A row counts as processed when the next one is requested."""
        for message in self._messages(stop, patience):
            for row in self._rows(message):
                self._last = row
                yield json.loads(row.line)
                self.written()
                if stop():
                    return
            self._passed(message)

    def messages_with_rows(
        self, stop: Callable[[], bool], patience: float | None = None
    ) -> Iterator[tuple[int, int, int, list[Row]]]:
        """Yield for each message its partition, its offset, the offset from which to resume, and its complete rows.

        Later rows can be read completely from the offset to resume. For consumers that keep their own positions; errors
        are those of :meth:`messages`.
        """
        for message in self._messages(stop, patience):
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if offset < self._position.next[partition]:
                raise Unavailable(f"{self._topic} has been recreated")
            rows = list(self._rows(message))
            self._passed(message)
            read = self._read.get(partition)
            # only the latest incarnation counts: a row that an earlier one has begun is never completed
            incarnation = "" if read is None or read.incarnation is None else read.incarnation
            yield partition, offset, min(offset + 1, self._begun.get((partition, incarnation), offset + 1)), rows

    def written(self) -> None:
        """Record that the last row returned has been processed: the position moves after it."""
        row, self._last = self._last, None
        if row is None:
            return
        position = self._position
        position.written.setdefault(row.partition, Deduplicator()).note(row.place, row.upto)
        position.next[row.partition], position.held = row.next, row.held
        position.save(_SAVE_SECONDS)

    def _renew(self) -> None:
        """Replace the Kafka client if passwords or certificates have been renewed since it was created."""
        shown = self._connection.shown
        if shown is not self._shown:
            places = self._consumer.position(self._consumer.assignment())
            fresh = self._connection.consumer(f"{self._stream}-results")
            for each in places:
                if each.offset < 0:  # nothing of the partition has been read
                    each.offset = self._position.next[each.partition]
            fresh.assign(places)
            self._consumer.close()
            self._consumer, self._shown = fresh, shown

    def _messages(self, stop: Callable[[], bool], patience: float | None) -> Iterator[Message]:
        """Yield messages without an error."""
        heard = time.monotonic()
        while not stop():
            self._renew()
            message = self._consumer.poll(0.2)
            error = None if message is None else message.error()
            if error is not None and error.code() in _FATAL:
                raise Unavailable(f"the broker has no topic {self._topic}")
            if message is None or error is not None:
                if patience is not None and time.monotonic() - heard > patience:
                    return
                continue
            heard = time.monotonic()
            yield message

    def _rows(self, message: Message) -> Iterator[Row]:
        """Yield the rows that a message contains or completes; all rows before have been processed, but held parts."""
        partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
        assert partition is not None
        assert offset is not None
        if key is not None and value is not None and (place := Place.of(key)) is not None:
            count = value.count(b"\n") + 1
            new = self._read.setdefault(partition, Deduplicator()).new_rows(key, value)
            if self._incarnations and place.incarnation not in self._incarnations:
                self._report(
                    f"the stream was recreated as incarnation {place.incarnation}: its rounds count from 0 again"
                )
            self._incarnations.add(place.incarnation)
            of = partition, place.incarnation
            assembler = self._assemblers[of]
            for number, line in enumerate(new, count - len(new) + 1):
                waited, lines = assembler.waiting, assembler.add(line)
                if assembler.waiting and (lines or not waited):
                    self._begun[of] = offset
                elif not assembler.waiting:
                    self._begun.pop(of, None)
                begun = dict(self._begun)
                # parts of a row that is never completed: the position passes them with the row after them
                left = lines if assembler.waiting else lines[:-1]
                yield from (Row(each, place, 0, partition, offset, self._position.held) for each in left)
                if not assembler.waiting:
                    end = offset + 1 if number == count else offset
                    yield Row(lines[-1], place, place.first + number, partition, end, begun)

    def _passed(self, message: Message) -> None:
        """Record that all rows that this message contains or completes have been processed."""
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._position.next[partition], self._position.held = offset + 1, dict(self._begun)

    # -------------------------------------------------------------------------------------------------------- ending

    def close(self) -> None:
        """Close the connection to the broker, and store the position.

        Raises:
            SettingError: it cannot be written.
        """
        self._consumer.close()
        self._position.save()
