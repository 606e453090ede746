"""Sender of a stream's records at a given rate.

There are three modes:

- *Replay*: records keep their timestamps and are sent in the order of time, with watermarks between them, so the
  answers are those of a run over the files.
- *Relive*: objects are sent at their original pace times a speed, with timestamps shifted to start now.
- *Live*: objects and queries are stamped with the current time when they are sent.

Each message holds many objects, and messages go round-robin to the partitions; each tick ends with a watermark in every
partition, so that none of them holds the others back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException, Producer

from spatialstream.client.results import answering
from spatialstream.connectors.kafka import LARGEST_MESSAGE, Connection
from spatialstream.model.arrays import Bytes, Ints
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.model.kinds import IS_CONTINUOUS
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.records.encode import object_lines, query_lines
from spatialstream.stages.ingest import CLOCK, watermark

__all__ = ["Sender", "messages_of", "with_own_ids"]

_AFTER = 60_000
"""ms by which continuous queries outlive the sending, even if the sender is behind its rate."""

_ANY_TIME = 10**12
MESSAGE_BYTES = 512 << 10
_QUERIES_PER_MESSAGE = 1000


def now_ms() -> int:
    """The current time, ms."""
    return time.time_ns() // 1_000_000


class Sender:
    """Sends records to a stream.

    Args:
        connection: how to reach the broker.
        stream: the stream's name.
        space: the stream's space.
        rate: objects a second; 0 sends as fast as the broker accepts them.
        objects_per_message: most objects in a message.
        tick: seconds between two sends.
        watermarks: whether to send watermarks; without them the router waits for silent partitions.
        now: a clock, ms since 1970, for the times of records.
        wait: waits until a time of the monotonic clock; None: deliveries are acknowledged meanwhile.

    Attributes:
        space: as passed in.
        rate: may be changed during a replay.
        sent: number of objects sent.
        queries_sent: number of queries sent.
        behind: largest delay behind the rate, in seconds.

    Raises:
        Unavailable: the broker does not answer.
        SettingError: it has no such stream.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        space: Space,
        rate: float = 0.0,
        objects_per_message: int = 100,
        *,
        tick: float = 0.05,
        watermarks: bool = True,
        now: Callable[[], int] = now_ms,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._now, self._wait = now, wait or self._await
        self.rate = rate
        self.sent = 0
        self.queries_sent = 0
        self.behind = 0.0
        self.space, self._objects_per_message, self._tick, self._watermarks = (
            space,
            objects_per_message,
            tick,
            watermarks,
        )
        self._topics = connection.topics(stream)
        self._producer: Producer = connection.producer(
            **{"queue.buffering.max.messages": 500_000, "queue.buffering.max.kbytes": 512 << 10, "linger.ms": 2}
        )
        with answering(connection):
            topics = self._producer.list_topics(timeout=30.0).topics
        if self._topics.objects not in topics:
            raise SettingError("stream", f"the broker has no topic {self._topics.objects}; start the router first")
        self._partitions = len(topics[self._topics.objects].partitions)
        self._turn = 0
        self._failed: list[str] = []
        self._known: set[tuple[str, int]] = set()

    def _produce(self, topic: str, partition: int, value: bytes, key: bytes | None = None) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
                continue
            except KafkaException as error:
                if len(value) < LARGEST_MESSAGE - 1024:
                    raise Unavailable(f"{topic} accepts no message: {error.args[0].str()}") from None
                name = "objects" if topic == self._topics.objects else "queries"
                problem = f"a record of {len(value)} bytes exceeds the largest message of {LARGEST_MESSAGE} bytes"
                raise SettingError(name, problem) from None
            self._producer.poll(0)
            # see spatialstream.connectors.kafka_clients: the first message goes alone
            if (topic, partition) not in self._known:
                self._producer.flush(120.0)
                self._known.add((topic, partition))
            return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def send_objects(self, objects: ObjectBatch) -> None:
        """Send objects, in their order."""
        self._send_objects(np.frombuffer(object_lines(objects, self.space), np.uint8), len(objects))

    def _send_objects(self, lines: Bytes, count: int) -> None:
        for message in messages_of(lines, self._objects_per_message):
            self._produce(self._topics.objects, self._turn % self._partitions, message)
            self._turn += 1
        self.sent += count

    def send_queries(self, queries: QueryBatch) -> None:
        """Send queries, in their order, with many in a message."""
        for message in messages_of(np.frombuffer(query_lines(queries), np.uint8), _QUERIES_PER_MESSAGE):
            self._produce(self._topics.queries, 0, message)
        self.queries_sent += len(queries)

    def send_watermarks(self, t: int, *, objects: bool = True) -> None:
        """Send watermarks: no record earlier than ``t`` follows.

        Without ``objects`` only to the topic of queries, for other producers may send objects.
        """
        if not self._watermarks:
            return
        for partition in range(self._partitions if objects else 0):
            self._produce(self._topics.objects, partition, watermark(t), CLOCK)
        self._produce(self._topics.queries, 0, watermark(t), CLOCK)

    def flush(self, timeout: float = 120.0) -> None:
        """Wait until the broker has acknowledged all messages.

        Raises:
            Unavailable: it has not, within ``timeout`` seconds.
        """
        left = self._producer.flush(timeout)
        if left or self._failed:
            raise Unavailable(f"the broker has not acknowledged {left + len(self._failed)} messages")

    def replay(self, objects: ObjectBatch, queries: QueryBatch, stop: Callable[[], bool]) -> None:
        """Send all records unchanged, merged by time.

        Args:
            objects: in the order of time.
            queries: in the order of time.
            stop: says whether to end; called between sends.
        """
        due_at = time.monotonic()
        slice_ = max(1, int(self.rate * self._tick)) if self.rate else 20_000
        sent = 0
        for first in range(0, len(objects), slice_):
            if stop():
                break
            part = objects.take(np.arange(first, min(first + slice_, len(objects))))
            upto = int(part.t[-1])
            due = int(np.searchsorted(queries.t, upto, side="right"))
            self.send_queries(queries.take(np.arange(sent, due)))
            sent = max(sent, due)
            self.send_objects(part)
            self.send_watermarks(upto)
            if self.rate:
                due_at += len(part) / self.rate
                self._wait(due_at)
        else:
            self.send_queries(queries.take(np.arange(sent, len(queries))))
            last = max([int(each[-1]) for each in (objects.t, queries.t) if len(each)], default=0)
            self.send_watermarks(last + 1, objects=len(objects) > 0)
        self.flush()

    def _await(self, until: float) -> None:
        remaining = until - time.monotonic()
        if remaining > 0:
            self._producer.poll(remaining)
            time.sleep(max(0.0, until - time.monotonic()))
        else:
            self.behind = max(self.behind, -remaining)

    def relive(self, batches: Iterable[ObjectBatch], speed: float, stop: Callable[[], bool]) -> None:
        """Send objects as if they happened from now on, ``speed`` times as fast, with timestamps to match.

        Args:
            batches: objects in the order of time.
            speed: above 0.
            stop: says whether to end; called between sends.
        """
        first = began = 0
        for number, batch in enumerate(each for each in batches if len(each)):
            if number == 0:
                first, began = int(batch.t[0]), self._now()
            t, place = began + ((batch.t - first) / speed).astype(np.int64), 0
            while place < len(batch):
                if stop():
                    return
                now, due_at = self._now(), time.monotonic() + self._tick
                due = int(np.searchsorted(t, now, side="right"))
                if due > place:
                    self.send_objects(replace(batch.take(np.arange(place, due)), t=t[place:due]))
                    place = due
                # the next batch may begin before now; after this batch nothing else has its last ms
                self.send_watermarks(now + 1 if place < len(batch) else int(t[-1]))
                self._wait(due_at)

    def register(self, queries: QueryBatch, duration: int) -> None:
        """Send continuous queries that start now and last ``duration`` ms."""
        n, now = len(queries), self._now()
        self.send_queries(replace(queries, t=np.full(n, now, np.int64), duration=np.full(n, duration, np.int64)))
        self.send_watermarks(now)
        self.flush()

    def live(
        self,
        objects: ObjectBatch,
        queries: QueryBatch,
        queries_per_second: float,
        seconds: float,
        stop: Callable[[], bool],
        count: int | None = None,
    ) -> None:
        """Send objects at the rate, stamped with the current time, and snapshot queries at a rate of their own.

        Args:
            objects: sent in their order; objects of one tick have the same timestamp.
            queries: continuous queries are registered first, for as long as objects are sent. Snapshot queries are
                sent one after the other, and from the start again (under new ids) when they are used up.
            queries_per_second: rate of the snapshot queries.
            seconds: how long to send.
            stop: says whether to end; called between sends.
            count: number of objects to send, from the start again when they are used up; None: each once.
        """
        tick, rate = self._tick, self.rate
        continuous = IS_CONTINUOUS[queries.code]
        if continuous.any():
            self.register(queries.take(np.flatnonzero(continuous)), int(seconds * 1000) + _AFTER)
        queries = queries.take(np.flatnonzero(~continuous))
        lines = StampedLines(objects, self.space)  # takes seconds if there are many
        began = time.monotonic()
        most = len(lines) if count is None else count
        place, sent, number, now = 0, 0, 0, 0
        while not stop() and time.monotonic() - began < seconds and place < most:
            number += 1
            due = min(most, int(rate * number * tick))
            now = max(self._now(), now + 1)  # not before the last watermark
            wanted = int(queries_per_second * number * tick)
            if wanted > sent and len(queries):
                self.send_queries(_stamped(queries, np.arange(sent, wanted), now))
                sent = wanted
            while place < due:
                first = place % len(lines)
                last = min(first + due - place, len(lines))
                self._send_objects(lines.stamped(first, last, now), last - first)
                place += last - first
            self.send_watermarks(now + 1)  # nothing else has this ms, so the router need not wait for the next tick
            self._wait(began + number * tick)
        self.send_watermarks(max(self._now(), now) + 1)
        self.flush()


def messages_of(lines: Bytes, most: int, largest: int = MESSAGE_BYTES) -> Iterator[bytes]:
    """Split lines into messages of ``most`` lines each, or fewer of ``largest`` bytes, but at least one."""
    ends = np.flatnonzero(lines == ord("\n"))
    number, start = 0, 0
    while number < len(ends):
        fitting = int(np.searchsorted(ends, start + largest, side="right"))
        number = max(number + 1, min(number + most, fitting))
        end = int(ends[number - 1])
        yield lines[start:end].tobytes()
        start = end + 1


class StampedLines:
    """Objects as JSON Lines that are encoded once and stamped with a new time at each use.

    Args:
        objects: at least one.
        space: the stream's space.
    """

    def __init__(self, objects: ObjectBatch, space: Space) -> None:
        text = bytearray(object_lines(replace(objects, t=np.full(len(objects), _ANY_TIME, np.int64)), space))
        self._text = np.frombuffer(text, np.uint8)
        self._starts = np.concatenate([[0], np.flatnonzero(self._text == ord("\n")) + 1])
        # quotes within a text are escaped, so only the field matches
        times = [match.start(1) for match in re.finditer(rb'"t": (%d)' % _ANY_TIME, text)]
        self._times = np.array(times, np.int64)
        assert len(self._times) == len(self) == len(objects)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def stamped(self, first: int, last: int, now: int) -> Bytes:
        """Return the lines of some objects with this timestamp; valid until the next call.

        Args:
            first: index of the first object.
            last: index after the last object.
            now: ms since 1970, between 2001 and 2286.
        """
        digits = np.frombuffer(str(now).encode(), np.uint8)
        self._text[self._times[first:last, None] + np.arange(len(digits))] = digits
        return self._text[self._starts[first] : self._starts[last]]


def with_own_ids(queries: QueryBatch, token: str) -> QueryBatch:
    """Return the queries with ids ``ID@TOKEN``, which are unique if the token is unique to the call."""
    return replace(queries, ids=pc.binary_join_element_wise(queries.ids, pa.scalar(token), "@"))


def _stamped(queries: QueryBatch, numbers: Ints, now: int) -> QueryBatch:
    """Return the queries of these numbers (modulo their count), with unique ids and the time ``now``."""
    chosen = queries.take(numbers % len(queries))
    ids = pc.binary_join_element_wise(chosen.ids, pc.cast(pa.array(numbers), pa.string()), "#")
    return replace(chosen, ids=ids, t=np.full(len(numbers), now, np.int64))
