"""Sends a stream to the broker at a given rate.

Three ways to send:

- *As written*: records keep their timestamps and go out in the order of time, with watermarks between them, so the
  answers are those of the files.
- *Relived*: objects are sent at their own pace, or so many times as fast, from now on.
- *Now*: objects and queries are stamped with the day's clock when they are sent.

Objects go out many to a message, and round-robin over the partitions; each tick ends with a watermark in every
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
from spatialstream.model.kinds import STANDING
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.records.encode import object_lines, query_lines
from spatialstream.stages.ingest import CLOCK, watermark

__all__ = ["Sender", "messages_of", "with_own_ids"]

_AFTER = 60_000
"""ms for which continuous queries outlive the sending, even if the sender has fallen behind."""

_ANY_TIME = 10**12
_MESSAGE_BYTES = 512 << 10
_QUERIES_PER_MESSAGE = 1000


class Sender:
    """Sends a stream.

    Args:
        connection: how to reach the broker.
        stream: its name.
        space: of the stream.
        rate: objects a second; 0 sends as fast as the broker takes them.
        objects_per_message: at most.
        tick: seconds between two sendings.
        watermarks: send watermarks; without them the router waits for silent partitions.

    Attributes:
        rate: may be changed while a stream is replayed.
        sent: objects sent.
        queries_sent: queries sent.
        behind: seconds by which sending was behind its rate, at most.

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
    ) -> None:
        self.rate = rate
        self.sent = 0
        self.queries_sent = 0
        self.behind = 0.0
        self._space, self._objects_per_message, self._tick, self._watermarks = (
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
                    raise Unavailable(f"{topic} takes no message: {error.args[0].str()}") from None
                name = "objects" if topic == self._topics.objects else "queries"
                problem = f"a record of {len(value)} bytes is longer than a message may be ({LARGEST_MESSAGE} bytes)"
                raise SettingError(name, problem) from None
            self._producer.poll(0)
            if (
                topic,
                partition,
            ) not in self._known:  # see spatialstream.connectors.kafka_clients: the first goes alone
                self._producer.flush(120.0)
                self._known.add((topic, partition))
            return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def send_objects(self, objects: ObjectBatch) -> None:
        """Send objects, in their order."""
        self._send_objects(np.frombuffer(object_lines(objects, self._space), np.uint8), len(objects))

    def _send_objects(self, lines: Bytes, count: int) -> None:
        for message in messages_of(lines, self._objects_per_message):
            self._produce(self._topics.objects, self._turn % self._partitions, message)
            self._turn += 1
        self.sent += count

    def send_queries(self, queries: QueryBatch) -> None:
        """Send queries, in their order; many to a message where there are many."""
        for message in messages_of(np.frombuffer(query_lines(queries), np.uint8), _QUERIES_PER_MESSAGE):
            self._produce(self._topics.queries, 0, message)
        self.queries_sent += len(queries)

    def send_watermarks(self, t: int, *, objects: bool = True) -> None:
        """Say that nothing earlier than t follows; of objects only where some are sent, for they may be others'."""
        if not self._watermarks:
            return
        for partition in range(self._partitions if objects else 0):
            self._produce(self._topics.objects, partition, watermark(t), CLOCK)
        self._produce(self._topics.queries, 0, watermark(t), CLOCK)

    def flush(self, timeout: float = 120.0) -> None:
        """Wait until the broker has everything.

        Raises:
            Unavailable: it has not.
        """
        left = self._producer.flush(timeout)
        if left or self._failed:
            raise Unavailable(f"the broker has not taken {left + len(self._failed)} messages")

    def replay(self, objects: ObjectBatch, queries: QueryBatch, stop: Callable[[], bool]) -> None:
        """Send everything as written, merged by time.

        Args:
            objects: in the order of time.
            queries: in the order of time.
            stop: is asked between sendings.
        """
        due_at = time.monotonic()
        slice_ = max(1, int(self.rate * self._tick)) if self.rate else 20_000
        asked = 0
        for first in range(0, len(objects), slice_):
            if stop():
                break
            part = objects.take(np.arange(first, min(first + slice_, len(objects))))
            upto = int(part.t[-1])
            due = int(np.searchsorted(queries.t, upto, side="right"))
            self.send_queries(queries.take(np.arange(asked, due)))
            asked = max(asked, due)
            self.send_objects(part)
            self.send_watermarks(upto)
            if self.rate:
                due_at += len(part) / self.rate
                self._wait(due_at)
        else:
            self.send_queries(queries.take(np.arange(asked, len(queries))))
            last = max([int(each[-1]) for each in (objects.t, queries.t) if len(each)], default=0)
            self.send_watermarks(last + 1, objects=len(objects) > 0)
        self.flush()

    def _wait(self, until: float) -> None:
        left = until - time.monotonic()
        if left > 0:
            self._producer.poll(left)
            time.sleep(max(0.0, until - time.monotonic()))
        else:
            self.behind = max(self.behind, -left)

    def relive(self, batches: Iterable[ObjectBatch], speed: float, stop: Callable[[], bool]) -> None:
        """Send objects as if all of it were happening now, ``speed`` times as fast, stamped with the day's clock.

        Args:
            batches: all in the order of time.
            speed: above 0.
            stop: is asked between sendings.
        """
        first = began = 0
        for number, batch in enumerate(each for each in batches if len(each)):
            if number == 0:
                first, began = int(batch.t[0]), _now()
            t, place = began + ((batch.t - first) / speed).astype(np.int64), 0
            while place < len(batch):
                if stop():
                    return
                now, due_at = _now(), time.monotonic() + self._tick
                due = int(np.searchsorted(t, now, side="right"))
                if due > place:
                    self.send_objects(replace(batch.take(np.arange(place, due)), t=t[place:due]))
                    place = due
                # the next batch may begin before now; of this one nothing follows of this ms either
                self.send_watermarks(now + 1 if place < len(batch) else int(t[-1]))
                self._wait(due_at)

    def register(self, queries: QueryBatch, duration: int) -> None:
        """Send continuous queries that stand from now on, for ``duration`` ms."""
        n, now = len(queries), _now()
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
        """Send objects at the rate, stamped with the day's clock, and queries now and then.

        Args:
            objects: are sent in their order, all that are sent at one time with the same timestamp.
            queries: continuous ones are registered first, for as long as objects come. The others are asked one after
                the other, again from the start when they are used up (under new ids).
            queries_per_second: how many of those.
            seconds: how long.
            stop: is asked between sendings.
            count: send so many objects, again from the start when they are used up; None: each once.
        """
        tick, rate = self._tick, self.rate
        standing = STANDING[queries.code]
        if standing.any():
            self.register(queries.take(np.flatnonzero(standing)), int(seconds * 1000) + _AFTER)
        queries = queries.take(np.flatnonzero(~standing))
        lines = _Lines(objects, self._space)  # takes seconds if there are many
        began = time.monotonic()
        most = len(lines) if count is None else count
        place, asked, number, now = 0, 0, 0, 0
        while not stop() and time.monotonic() - began < seconds and place < most:
            number += 1
            due = min(most, int(rate * number * tick))
            now = max(_now(), now + 1)  # later than what the last watermark has said is over
            wanted = int(queries_per_second * number * tick)
            if wanted > asked and len(queries):
                self.send_queries(_stamped(queries, np.arange(asked, wanted), now))
                asked = wanted
            while place < due:
                first = place % len(lines)
                last = min(first + due - place, len(lines))
                self._send_objects(lines.stamped(first, last, now), last - first)
                place += last - first
            self.send_watermarks(now + 1)  # of this ms nothing follows, so the router need not wait for the next tick
            self._wait(began + number * tick)
        self.send_watermarks(max(_now(), now) + 1)
        self.flush()


def messages_of(lines: Bytes, most: int) -> Iterator[bytes]:
    """Lines as messages of so many lines each, fewer where they are long, and one at least."""
    ends = np.flatnonzero(lines == ord("\n"))
    number, start = 0, 0
    while number < len(ends):
        fitting = int(np.searchsorted(ends, start + _MESSAGE_BYTES, side="right"))
        number = max(number + 1, min(number + most, fitting))
        end = int(ends[number - 1])
        yield lines[start:end].tobytes()
        start = end + 1


class _Lines:
    """Objects as JSON Lines that are written once and stamped again and again.

    Args:
        objects: at least one.
        space: of the stream.
    """

    def __init__(self, objects: ObjectBatch, space: Space) -> None:
        text = bytearray(object_lines(replace(objects, t=np.full(len(objects), _ANY_TIME, np.int64)), space))
        self._text = np.frombuffer(text, np.uint8)
        self._starts = np.concatenate([[0], np.flatnonzero(self._text == ord("\n")) + 1])
        # quotes within a text are escaped, so what looks like this is nothing else
        times = [match.start(1) for match in re.finditer(rb'"t": (%d)' % _ANY_TIME, text)]
        self._times = np.array(times, np.int64)
        assert len(self._times) == len(self) == len(objects)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def stamped(self, first: int, last: int, now: int) -> Bytes:
        """The lines of some objects with this timestamp, until the next call.

        Args:
            first: number of the first object.
            last: of the one after the last.
            now: ms since 1970, between 2001 and 2286.
        """
        digits = np.frombuffer(str(now).encode(), np.uint8)
        self._text[self._times[first:last, None] + np.arange(len(digits))] = digits
        return self._text[self._starts[first] : self._starts[last]]


def _now() -> int:
    """The day's clock, ms."""
    return time.time_ns() // 1_000_000


def with_own_ids(queries: QueryBatch, token: str) -> QueryBatch:
    """The queries under ids that no other call has given: ``ID@TOKEN``, with a token of this call's own."""
    return replace(queries, ids=pc.binary_join_element_wise(queries.ids, pa.scalar(token), "@"))


def _stamped(queries: QueryBatch, numbers: Ints, now: int) -> QueryBatch:
    """Queries of these numbers, counted round and round, asked now."""
    chosen = queries.take(numbers % len(queries))
    ids = pc.binary_join_element_wise(chosen.ids, pc.cast(pa.array(numbers), pa.string()), "#")
    return replace(chosen, ids=ids, t=np.full(len(numbers), now, np.int64))
