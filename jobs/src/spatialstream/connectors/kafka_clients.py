"""Reading and sending with persistent clients of the broker, for Spark's tasks and others.

A process creates its clients when it first needs them, and keeps them: connecting takes longer than most tasks. Each
user has a client exclusively, so there are as many as threads use them at a time, and one that has failed is discarded.
A forked process creates its own; librdkafka's threads do not survive a fork. When passwords or certificates have been
renewed, new clients are created too, and requests that wait for an answer with the old ones fail, to be retried with
the new ones.

Reading is between exact offsets. A stream is read range after range, so a reader continues where it was, and usually
has the next range in memory when it is asked for; only for a few partitions, because each takes a client of its own.
Not every offset has a message: markers of transactions, messages of aborted transactions, and compaction leave gaps,
also at the end of a range. The broker reports the end of a partition (``enable.partition.eof``), so that nobody waits
for a message that will not come.

So a reader always hears something soon, and one that does not may be stuck: librdkafka has lost partitions when their
leader changed. It is replaced long before the broker is given up, and closed by another thread, since that may wait
for the same thing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from spatialstream.connectors.calls import called
from spatialstream.connectors.kafka import NEAR, Connection, Offsets
from spatialstream.model.errors import StateError, Unavailable

__all__ = ["cut", "follow", "offsets", "read", "send"]

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds within which a broker that does not answer has to do so again."""

_LOOK = 1.0
"""Interval, s, at which a waiting client checks whether its credentials are still current."""

SILENCE = 15.0
"""Seconds without a message or the end of the partition after which another client reads on; twice as long for each
further one, since a large message over a slow network takes its time."""

_END_PATIENCE = 5.0
"""Seconds within which a partition has to be as long as it was: after a failure a broker may not know at once."""

_CUT_SECONDS = 5.0
"""Timeout of the removal of messages by a broker."""

_MOST = 10_000
"""Maximum messages taken at a time; what librdkafka has read ahead (64 MB) is a limit, too."""

_READING = NEAR | {
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # a fetch beyond the end of a range is answered soon, so that the next range need not wait for it
    "fetch.wait.max.ms": 2,
    # data read ahead beyond the end of a range is wasted; a larger message is delivered all the same, by itself
    "fetch.message.max.bytes": 1 << 20,
}
_AHEAD = _READING | {"fetch.wait.max.ms": 100, "queued.max.messages.kbytes": 16 << 10}
_FOLLOWING = NEAR | {"auto.offset.reset": "error", "enable.partition.eof": False, "isolation.level": "read_committed"}

_AHEAD_MOST = 8
"""Maximum partitions of which a process reads ahead; each takes a connection, and the memory configured above."""
_AHEAD_SECONDS = 60.0
"""Seconds after which an unused reader is closed, because a slot may have moved."""

_idle: dict[tuple[Any, ...], list[Any]] = {}
_shown: dict[tuple[str, Path | None], Mapping[str, str]] = {}
"""The current credentials of this process's clients, by brokers and file of properties."""
_lock = threading.Lock()
"""Guards both, and the lists of clients."""


def _unused(connection: Connection, use: str) -> list[Any]:
    """The idle clients of this process for a use."""
    shown, place = connection.shown, (connection.bootstrap, connection.file)
    security = tuple(sorted(shown.items()))
    with _lock:
        before, _shown[place] = _shown.get(place), shown
        if before is not None and before is not shown and connection.file is not None:
            old = connection.bootstrap, tuple(sorted(before.items()))
            for key in [key for key in _idle if key[0] == os.getpid() and key[2:] == old]:
                _idle.pop(key, None)  # nobody needs them any more
        return _idle.setdefault((os.getpid(), use, connection.bootstrap, security), [])


def _taken_from(clients: list[T], fits: Callable[[T], bool]) -> T | None:
    """The most recently used client that fits; taken out of the list."""
    with _lock:
        for client in reversed(clients):
            if fits(client):
                clients.remove(client)
                return client
    return None


def _kept(
    connection: Connection, use: str, make: Callable[[], T], fits: Callable[[T], bool] = lambda client: True
) -> tuple[list[T], T]:
    """An idle client that fits, or a new one, and the list to return it to."""
    clients = _unused(connection, use)
    return clients, _taken_from(clients, fits) or make()


# ------------------------------------------------------------------------------------------------------------- reading


def offsets(connection: Connection) -> Offsets:
    """The client that gets the bounds of partitions."""
    clients, found = _kept(connection, "offsets", lambda: Offsets(connection))
    clients.append(found)  # any number of threads may use it
    return found


class _Renewal:
    """Tells a waiting client whether its credentials have been replaced."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._shown = connection, connection.shown

    def check(self) -> None:
        """Raise Unavailable if passwords or certificates have been renewed since the client was created."""
        if self._connection.shown is not self._shown:
            raise Unavailable("the credentials for the broker have been renewed while it did not answer")


class _Reader:
    """A consumer, and its read position.

    Attributes:
        consumer: the client.
        place: topic and partition that it reads ahead; None: it reads any partition, and then stops.
        next: offset of the next message that it returns, if it continues; else -1.
        used: when it was last used, s of the monotonic clock.
        until: when the broker is given up, unless something is heard.
    """

    def __init__(self, connection: Connection, place: tuple[str, int] | None, until: float = 0.0) -> None:
        self.until = until
        self.renewal = _Renewal(connection)
        self.consumer = connection.consumer("spatialstream", **(_READING if place is None else _AHEAD))
        self.place, self.next, self.used = place, -1, 0.0

    def begin(self, topic: str, partition: int, start: int) -> None:
        """Seek to an offset, unless the consumer is there already."""
        if self.next != start:
            self.consumer.assign([TopicPartition(topic, partition, start)])

    def end(self, offset: int, *, complete: bool) -> None:
        """End a range at an offset; ``complete`` if nothing after it has been consumed."""
        self.next, self.used = -1, time.monotonic()
        if self.place is not None and complete:
            self.next = offset
        else:
            self.consumer.unassign()


def _reader(connection: Connection, place: tuple[str, int]) -> tuple[list[_Reader], _Reader]:
    """A client to read a partition with, and the list to return it to."""
    ahead: list[_Reader] = _unused(connection, "read ahead")
    if (reader := _taken_from(ahead, lambda each: each.place == place)) is not None:
        return ahead, reader
    while (left := _taken_from(ahead, lambda each: each.used < time.monotonic() - _AHEAD_SECONDS)) is not None:
        called(left.consumer.close)
    if len(ahead) < _AHEAD_MOST:
        return ahead, _Reader(connection, place)
    return _kept(connection, "read", lambda: _Reader(connection, None))


def read(connection: Connection, topic: str, partition: int, start: int, end: int) -> Iterator[Sequence[Message]]:
    """The messages of a partition between two offsets, many at a time, in order.

    Raises:
        StateError: the broker has removed a part of the range, or the partition is shorter than it was.
        Unavailable: the broker cannot be reached, or denies reading.
    """
    if start >= end:
        return
    clients, reader = _reader(connection, (topic, partition))
    reader.until, silence = time.monotonic() + PATIENCE, SILENCE
    try:
        reader.begin(topic, partition, start)
        while True:
            try:
                yield from _between(reader, topic, partition, start, end, silence)
                break
            except _Silent as silent:
                called(reader.consumer.close)
                clients, reader = _unused(connection, "read"), _Reader(connection, None, reader.until)
                start, silence = silent.at, 2.0 * silence
                reader.begin(topic, partition, start)
    except BaseException as error:
        called(reader.consumer.close)
        if isinstance(error, KafkaException):
            raise Unavailable(f"{topic} cannot be read: {error}") from None
        if isinstance(error, Unavailable):
            raise Unavailable(connection.why(str(error))) from None
        raise
    clients.append(reader)


class _Silent(Exception):  # noqa: N818 - it is no error yet
    """A reader has heard nothing for some time.

    Attributes:
        at: offset of the next message.
    """

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def _between(
    reader: _Reader, topic: str, partition: int, start: int, end: int, silence: float
) -> Iterator[Sequence[Message]]:
    at, shortest = start, None  # the next offset, and the offset at which the partition was reported to end
    complete, silent = True, time.monotonic() + silence
    while at < end:
        messages = _taken(reader.consumer, min(_MOST, end - at), min(_LOOK, reader.until - time.monotonic()))
        if any(message.error() is not None for message in messages):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            for event in events:
                _check(event, topic, partition, at)  # otherwise it is the end
                at = max(at, int(event.offset() or 0))
                if shortest is None:
                    shortest, reader.until = at, min(reader.until, time.monotonic() + _END_PATIENCE)
        elif messages:
            shortest, reader.until = None, time.monotonic() + PATIENCE
        elif time.monotonic() >= reader.until:
            if shortest is not None:
                raise StateError(
                    f"{topic} ends at offset {shortest} in partition {partition}, but ended at {end} before"
                )
            raise Unavailable(f"{topic} cannot be read: no answer within {PATIENCE:.0f} s")
        else:
            reader.renewal.check()
            if shortest is None and time.monotonic() >= silent:
                raise _Silent(at)
        if messages:
            at = max(at, int(messages[-1].offset() or 0) + 1)
            while messages and int(messages[-1].offset() or 0) >= end:
                messages.pop()
                complete = False
            if messages:
                yield messages
            silent = time.monotonic() + silence
    reader.end(at, complete=complete)


def _taken(consumer: Consumer, most: int, patience: float) -> list[Message]:
    """The messages that have arrived, as soon as there are any."""
    first = consumer.poll(max(0.0, patience))
    if first is None:
        return []
    return [first, *consumer.consume(most - 1, 0.0)] if most > 1 else [first]


def _check(event: Message, topic: str, partition: int, at: int) -> None:
    """Raise the error of a consumer's event, unless it reports the end of the partition."""
    error = event.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise StateError(f"{topic} has no offset {at} of partition {partition} any more: {error.str()}")
    raise Unavailable(f"{topic} cannot be read: {error.str()}")


_FOLLOWERS = 2
"""Idle followers per topic: a job reads what others write, and whether its own messages count."""


class _Follower:
    """A consumer that reads ahead, and the offset of the next message that it returns."""

    def __init__(self, connection: Connection) -> None:
        self.consumer, self.next = connection.consumer("spatialstream", **_FOLLOWING), -1


def follow(connection: Connection, topic: str, start: int, most: int, patience: float) -> tuple[list[Message], int]:
    """The messages of a topic's partition 0 from an offset on; the next call finds them read ahead.

    Args:
        connection: to the broker.
        topic: its name.
        start: offset of the first message.
        most: maximum number of messages.
        patience: seconds to wait for the first.

    Returns:
        The messages, and the offset after the last of them.

    Raises:
        StateError: the broker has removed the first one.
        Unavailable: the broker denies reading.
    """
    clients, follower = _kept(connection, topic, lambda: _Follower(connection), lambda each: each.next == start)
    try:
        if follower.next != start:
            follower.consumer.assign([TopicPartition(topic, 0, start)])
            follower.next = start
        messages = _taken(follower.consumer, most, patience)
        for message in messages:
            _check(message, topic, 0, follower.next)
            follower.next = int(message.offset() or 0) + 1
    except BaseException as error:
        called(follower.consumer.close)
        if isinstance(error, KafkaException):
            raise Unavailable(f"{topic} cannot be read: {error}") from None
        raise
    clients.append(follower)
    with _lock:
        more = [clients.pop(0) for _ in range(len(clients) - _FOLLOWERS)]
    for each in more:
        called(each.consumer.close)
    return messages, follower.next


def cut(connection: Connection, topic: str, before: int) -> None:
    """Have the broker remove the messages of a topic's partition 0 before an offset.

    Raises:
        Unavailable: it does not.
    """
    clients, admin = _kept(connection, "administration", connection.admin)
    try:
        place = TopicPartition(topic, 0, before)
        for removed in admin.delete_records([place], request_timeout=_CUT_SECONDS).values():
            removed.result(_CUT_SECONDS)
    except (KafkaException, TimeoutError) as error:
        raise Unavailable(f"{topic} cannot be cut before offset {before}: {str(error) or 'no answer'}") from None
    clients.append(admin)


# ------------------------------------------------------------------------------------------------------------- sending


class _Sender:
    """A producer, its delivery failures in words, the offsets of delivered messages, and the partitions that have any.

    A broker accepts a producer's first batch for a partition with any sequence number, and a producer takes an
    acknowledged batch as a sign that those before it have arrived. So of two first batches in flight the first one is
    lost if it fails and the second does not, for example if the topic is new. Once the broker has one, it rejects gaps:
    so the first message to a partition is sent alone.
    """

    def __init__(self, connection: Connection) -> None:
        self.failed: list[str] = []
        self.ends: dict[tuple[str, int], int | None] = {}
        self._renewal = _Renewal(connection)
        self._known: set[tuple[str, int]] = set()
        self.producer: Producer = connection.producer(
            **NEAR,
            **{
                "message.timeout.ms": int(PATIENCE * 1000),
                "queue.buffering.max.kbytes": 128 << 10,
                "on_delivery": self._note,
            },
        )

    def _note(self, error: KafkaError | None, message: Message) -> None:
        """Called for each message, in order for each partition."""
        if error is not None:
            self.failed.append(f"messages to {message.topic()} were not delivered: {error.str()}")
        else:
            offset = message.offset()
            self.ends[str(message.topic()), int(message.partition() or 0)] = None if offset is None else offset + 1

    def send(self, topic: str, partition: int, key: bytes | None, value: Any) -> None:
        """Send a message; failures are raised by :meth:`arrived`."""
        while not self.failed:
            try:
                self.producer.produce(topic, value, key, partition)
                self.producer.poll(0)
            except BufferError:  # the queue is full, until messages are delivered or have waited too long
                self.producer.poll(0.1)
                self._renewal.check()
            else:
                break
        if (topic, partition) not in self._known:
            self.arrived()
            self._known.add((topic, partition))

    def arrived(self) -> None:
        """Wait until the broker has everything.

        Raises:
            Unavailable: it may not have.
        """
        until = time.monotonic() + PATIENCE
        while left := self.producer.flush(_LOOK):
            if self.failed or time.monotonic() > until:
                break
            self._renewal.check()
        if left or self.failed:
            raise Unavailable(self.failed[0] if self.failed else "messages were not delivered: no answer")


def send(
    connection: Connection, messages: Iterable[tuple[str, int | None, bytes | None, Any]]
) -> dict[tuple[str, int], int | None]:
    """Send messages, in order; when this returns, the broker has them.

    Args:
        connection: to the broker.
        messages: topic, partition (None: any), key, and value (bytes or a buffer).

    Returns:
        The offset after the last message of each topic and partition; None if the broker has not told it, as for
        messages that it took for duplicates.

    Raises:
        Unavailable: it may not have all of them.
    """
    clients, sender = _kept(connection, "send", lambda: _Sender(connection))
    sender.ends = {}
    try:
        for topic, partition, key, value in messages:
            sender.send(topic, -1 if partition is None else partition, key, value)
        sender.arrived()
    except BaseException as error:
        # nothing of this may arrive after others have begun to send it again
        sender.producer.purge(in_queue=True, in_flight=False)
        sender.producer.flush(_END_PATIENCE)
        if isinstance(error, KafkaException):
            raise Unavailable(f"{topic} does not accept messages: {error}") from None
        if isinstance(error, Unavailable):
            raise Unavailable(connection.why(str(error))) from None
        raise
    ends = sender.ends  # before another thread has the sender
    clients.append(sender)
    return ends
