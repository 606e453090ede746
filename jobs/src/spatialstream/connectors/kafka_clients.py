"""Reading and sending with clients of the broker that stay connected: what Spark's tasks, and whoever else, do with it.

A process makes its clients when it first needs them, and keeps them: to connect takes longer than most tasks. Whoever
uses one has it alone, so there are as many as threads use them at a time, and one that has failed is thrown away. A
process that is forked makes its own; librdkafka's threads are not forked with it. When passwords or certificates have
been renewed, others are made too, and what waits for an answer with the old ones fails, to be done again with the new.

Reading is between exact offsets. A stream is read range after range, so who has read one reads on, and mostly has the
next one in memory when it is asked for; of a few partitions, for that takes a client of its own. Not every offset has a
message: markers of transactions, what transactions have sent that were aborted, and what compaction has removed leave
gaps, also where a range ends. The broker says where it stands (``enable.partition.eof``), so that nobody waits for a
message that will not come.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from spatialstream.connectors.kafka import NEAR, Connection, Offsets
from spatialstream.model.errors import StateError, Unavailable

__all__ = ["cut", "follow", "offsets", "read", "send"]

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds within which a broker that does not answer has to do so again."""

_LOOK = 1.0
"""Seconds after which who waits looks whether it still shows the broker what it should."""

_END_PATIENCE = 5.0
"""Seconds within which a partition has to be as long as it was: after a failure a broker may not know at once."""

_CUT_SECONDS = 5.0
"""Within which a broker has to have removed messages."""

_MOST = 10_000
"""Messages that are taken at a time; what librdkafka has read ahead (64 MB) limits them, too."""

_READING = NEAR | {
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    # a fetch beyond the end of a range is answered soon, so that the next range need not wait for it
    "fetch.wait.max.ms": 2,
    # what is read ahead beyond the end of a range is read for nothing; a larger message comes all the same, by itself
    "fetch.message.max.bytes": 1 << 20,
}
_AHEAD = _READING | {"fetch.wait.max.ms": 100, "queued.max.messages.kbytes": 16 << 10}
_FOLLOWING = NEAR | {"auto.offset.reset": "error", "enable.partition.eof": False, "isolation.level": "read_committed"}

_AHEAD_MOST = 8
"""Partitions of which a process reads ahead; each is a connection, and as much memory as is said above."""
_AHEAD_SECONDS = 60.0
"""Seconds after which what nobody goes on with is let go of, for a slot may have moved."""

_idle: dict[tuple[Any, ...], list[Any]] = {}
_shown: dict[tuple[str, Path | None], Mapping[str, str]] = {}
"""By brokers and files of properties, what the clients of this process show."""
_lock = threading.Lock()
"""Of both, and of the lists of clients."""


def _unused(connection: Connection, use: str) -> list[Any]:
    """The clients of this process for a use that nobody uses."""
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
    """A client that fits, the one that was used last; taken out of the list."""
    with _lock:
        for client in reversed(clients):
            if fits(client):
                clients.remove(client)
                return client
    return None


def _kept(
    connection: Connection, use: str, make: Callable[[], T], fits: Callable[[T], bool] = lambda client: True
) -> tuple[list[T], T]:
    """A client that nobody uses and that fits, and the list to put it back into."""
    clients = _unused(connection, use)
    return clients, _taken_from(clients, fits) or make()


# ------------------------------------------------------------------------------------------------------------- reading


def offsets(connection: Connection) -> Offsets:
    """Where partitions begin and end."""
    clients, found = _kept(connection, "offsets", lambda: Offsets(connection))
    clients.append(found)  # it is for any number of threads
    return found


class _Renewal:
    """Tells a client that waits whether it shows what it should not any more."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._shown = connection, connection.shown

    def check(self) -> None:
        """Raise Unavailable if passwords or certificates have been renewed since the client was made."""
        if self._connection.shown is not self._shown:
            raise Unavailable("what is shown to the broker has been renewed while it did not answer")


class _Reader:
    """A consumer, and where it goes on to read.

    Attributes:
        consumer: the client.
        place: topic and partition that it reads ahead; None: it reads any, and then stops.
        next: offset of the next message that it gives, if it reads on; else -1.
        used: when it was used last, s of the monotonic clock.
    """

    def __init__(self, connection: Connection, place: tuple[str, int] | None) -> None:
        self.renewal = _Renewal(connection)
        self.consumer = connection.consumer("spatialstream", **(_READING if place is None else _AHEAD))
        self.place, self.next, self.used = place, -1, 0.0

    def begin(self, topic: str, partition: int, start: int) -> None:
        """Have the message at an offset come next."""
        if self.next != start:
            self.consumer.assign([TopicPartition(topic, partition, start)])

    def end(self, offset: int, *, complete: bool) -> None:
        """A range has been read up to an offset; ``complete`` if nothing after it has been taken."""
        self.next, self.used = -1, time.monotonic()
        if self.place is not None and complete:
            self.next = offset
        else:
            self.consumer.unassign()


def _reader(connection: Connection, place: tuple[str, int]) -> tuple[list[_Reader], _Reader]:
    """A client to read a partition with, and the list to put it back into."""
    ahead: list[_Reader] = _unused(connection, "read ahead")
    if (reader := _taken_from(ahead, lambda each: each.place == place)) is not None:
        return ahead, reader
    while (left := _taken_from(ahead, lambda each: each.used < time.monotonic() - _AHEAD_SECONDS)) is not None:
        left.consumer.close()
    if len(ahead) < _AHEAD_MOST:
        return ahead, _Reader(connection, place)
    return _kept(connection, "read", lambda: _Reader(connection, None))


def read(connection: Connection, topic: str, partition: int, start: int, end: int) -> Iterator[Sequence[Message]]:
    """The messages of a partition between two offsets, many at a time, in their order.

    Raises:
        StateError: the broker has not got all of the range any more, or has less than there was.
        Unavailable: the broker cannot be reached, or does not let anybody read.
    """
    if start >= end:
        return
    clients, reader = _reader(connection, (topic, partition))
    try:
        reader.begin(topic, partition, start)
        yield from _between(reader, topic, partition, start, end)
    except BaseException as error:
        reader.consumer.close()
        if isinstance(error, KafkaException):
            raise Unavailable(f"{topic} cannot be read: {error}") from None
        if isinstance(error, Unavailable):
            raise Unavailable(connection.why(str(error))) from None
        raise
    clients.append(reader)


def _between(reader: _Reader, topic: str, partition: int, start: int, end: int) -> Iterator[Sequence[Message]]:
    at, shortest = start, None  # the next offset, and that at which the partition was said to end
    until, complete = time.monotonic() + PATIENCE, True
    while at < end:
        messages = _taken(reader.consumer, min(_MOST, end - at), min(_LOOK, until - time.monotonic()))
        if any(message.error() is not None for message in messages):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
            for event in events:
                _check(event, topic, partition, at)  # it is the end, then
                at = max(at, int(event.offset() or 0))
                if shortest is None:
                    shortest, until = at, min(until, time.monotonic() + _END_PATIENCE)
        elif messages:
            shortest, until = None, time.monotonic() + PATIENCE
        elif time.monotonic() >= until:
            if shortest is not None:
                raise StateError(f"{topic} ends at offset {shortest} in partition {partition}, but {end} were there")
            raise Unavailable(f"{topic} cannot be read: no answer within {PATIENCE:.0f} s")
        else:
            reader.renewal.check()
        if messages:
            at = max(at, int(messages[-1].offset() or 0) + 1)
            while messages and int(messages[-1].offset() or 0) >= end:
                messages.pop()
                complete = False
            if messages:
                yield messages
    reader.end(at, complete=complete)


def _taken(consumer: Consumer, most: int, patience: float) -> list[Message]:
    """What has come, as soon as anything has."""
    first = consumer.poll(max(0.0, patience))
    if first is None:
        return []
    return [first, *consumer.consume(most - 1, 0.0)] if most > 1 else [first]


def _check(event: Message, topic: str, partition: int, at: int) -> None:
    """Raise what an event of a consumer says, if it is not that the partition ends."""
    error = event.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise StateError(f"{topic} has not got offset {at} of partition {partition} any more: {error.str()}")
    raise Unavailable(f"{topic} cannot be read: {error.str()}")


_FOLLOWERS = 2
"""Of a topic: a job reads what others say, and whether what it has said itself counts."""


class _Follower:
    """A consumer that reads ahead, and the offset of what it gives next."""

    def __init__(self, connection: Connection) -> None:
        self.consumer, self.next = connection.consumer("spatialstream", **_FOLLOWING), -1


def follow(connection: Connection, topic: str, start: int, most: int, patience: float) -> tuple[list[Message], int]:
    """The messages of a topic's partition 0 from an offset on; whoever goes on has them read ahead.

    Args:
        connection: how to reach the broker.
        topic: its name.
        start: offset of the first one.
        most: of them, at most.
        patience: seconds to wait for the first.

    Returns:
        The messages, and the offset after the last of them.

    Raises:
        StateError: the broker has not got the first one any more.
        Unavailable: the broker does not let anybody read.
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
        follower.consumer.close()
        if isinstance(error, KafkaException):
            raise Unavailable(f"{topic} cannot be read: {error}") from None
        raise
    clients.append(follower)
    with _lock:
        more = [clients.pop(0) for _ in range(len(clients) - _FOLLOWERS)]
    for each in more:
        each.consumer.close()
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
    """A producer, what it could not deliver, where the rest is, and the partitions to which it has delivered anything.

    A broker takes a producer's first batch for a partition whatever its number in the sequence is, and a producer takes
    an acknowledged batch for a sign that those before it have arrived. So of two first batches under way the first is
    lost if it fails and the second does not, as where the topic is new. Once the broker has one, it refuses gaps: so
    what is first sent to a partition goes alone.
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
        """Is told of each message, of those of a partition in their order."""
        if error is not None:
            self.failed.append(error.str())
        else:
            offset = message.offset()
            self.ends[str(message.topic()), int(message.partition() or 0)] = None if offset is None else offset + 1

    def send(self, topic: str, partition: int, key: bytes | None, value: Any) -> None:
        """Send a message, or leave it to :meth:`arrived` to tell why not."""
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
            raise Unavailable(f"messages were not taken: {self.failed[0] if self.failed else 'no answer'}")


def send(
    connection: Connection, messages: Iterable[tuple[str, int | None, bytes | None, Any]]
) -> dict[tuple[str, int], int | None]:
    """Send messages, in their order; once this returns, the broker has them.

    Args:
        connection: how to reach the broker.
        messages: topic, partition (None: any), key, and value (bytes or a buffer).

    Returns:
        The offset after the last one of each topic and partition; None where the broker has not told it, as of what it
        took for sent twice.

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
        # nothing of it is to come when others have begun to send it again
        sender.producer.purge(in_queue=True, in_flight=False)
        sender.producer.flush(_END_PATIENCE)
        if isinstance(error, KafkaException):
            raise Unavailable(f"{topic} takes no message: {error}") from None
        if isinstance(error, Unavailable):
            raise Unavailable(connection.why(str(error))) from None
        raise
    ends = sender.ends  # before another thread has the sender
    clients.append(sender)
    return ends
