"""The rows of a query that have come already: those of a time, and how many there were in each part of it.

The topic of results is ordered by when rows came, and not by query. So whoever wants those of one query has to read all
of a time; from where, the broker knows. What is read for one answer is bounded: rows come a page at a time, and where a
part of a time has more messages than can be read for a count, the first of them are, and the rest is estimated by them.

A row is of the time at which it came, and one that is in several messages of that at which the first of them did. Rows
that came again are passed over, if they are within what is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from confluent_kafka import Message

from spatialstream.client.cursor import Cursor, Reached
from spatialstream.client.results import Row
from spatialstream.connectors.delivery import Assembler, Place
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_clients import offsets, read
from spatialstream.model.errors import Gone, StateError, Unavailable

__all__ = ["Counted", "History", "Log", "Page", "ResultsLog"]

_MOST_BYTES = 32 << 20
"""Bytes of messages that are read for an answer, about."""
_MOST_SECONDS = 2.0
_MOST_ROWS_BYTES = 4 << 20
"""Bytes of the rows of a page; a single row may be longer."""
_MOST_PARTS = 240
"""Of a time, in all partitions: of each at least a message is read."""
_STEP = 8
"""Messages that are read together, at most."""


class Log(Protocol):
    """A topic of results, as far as it is kept."""

    def bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """For each partition the offset of the first message, and that after the last."""

    def at(self, t: int) -> Sequence[int]:
        """For each partition the offset of the first message of a time, ms, or later; -1: there is none."""

    def read(self, partition: int, start: int, end: int) -> Sequence[Message]:
        """The messages between two offsets."""


@dataclass(frozen=True, slots=True)
class ResultsLog:
    """The topic on the broker.

    Every method raises Unavailable if the broker does not answer, or has no such topic; :meth:`read` Gone if it does
    not have the messages any more.

    Attributes:
        connection: how to reach the broker.
        stream: name of the stream.
    """

    connection: Connection
    stream: str

    def bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """See :class:`Log`."""
        topic, known = self._topic(), offsets(self.connection)
        first, end = known.bounds(topic)
        (name,) = topic
        return first[name], end[name]

    def at(self, t: int) -> Sequence[int]:
        """See :class:`Log`."""
        topic = self._topic()
        (found,) = offsets(self.connection).at(topic, t).values()
        return found

    def read(self, partition: int, start: int, end: int) -> Sequence[Message]:
        """See :class:`Log`."""
        (name,) = self._topic()
        try:
            return [each for some in read(self.connection, name, partition, start, end) for each in some]
        except StateError as error:
            raise Gone(str(error)) from None

    def _topic(self) -> dict[str, int]:
        """Its name, and how many partitions it has."""
        name = self.connection.topics(self.stream).results
        if topic := offsets(self.connection).partitions([name]):
            return topic
        raise Unavailable(f"the broker has no topic {name}")


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of a time.

    Attributes:
        rows: in their order, each with when it came, ms.
        next: the place after them; None: there are no more.
    """

    rows: list[tuple[int, Row]]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows came.

    Attributes:
        counts: for each part of the time how many rows, and whether all have been counted; else it is an estimate.
        kept: ms; from when on messages are kept. None: there are none.
    """

    counts: list[tuple[int, bool]]
    kept: int | None


class History:
    """Reads what a topic of results holds of one query.

    Args:
        log: the topic.
        query: its id.
    """

    def __init__(self, log: Log, query: str) -> None:
        self._log = log
        self._head = b'{"query": ' + json.dumps(query, ensure_ascii=False).encode(errors="replace") + b","

    def rows(self, since: int, until: int, limit: int, place: Cursor | None = None) -> Page:
        """The rows that came between two times, a page at a time.

        Args:
            since: ms, the first.
            until: ms, after the last.
            limit: how many rows, at most. There may be fewer, or none, though there are more: what is read is bounded.
            place: where the page before has ended.

        Raises:
            Gone: the broker does not have what is after the place any more.
            Unavailable: it does not answer.
        """
        first, ends = self._log.bounds()
        cursor, upto = place or Cursor.of(self._at(since, ends)), self._at(until, ends)
        if len(cursor.parts) != len(ends) or not all(
            low <= at <= end for low, at, end in zip(first, cursor.offsets, ends, strict=True)
        ):
            raise Gone("the rows after this position are not kept any more; begin without it")
        rows, size, budget = list[tuple[int, Row]](), 0, _Budget(_MOST_BYTES)
        for partition, end in enumerate(ends):
            finder = _Finder(self._head, partition)
            for message in self._messages(finder, cursor.parts[partition].offset, upto[partition], end):
                for row in finder.rows(message, upto[partition]):
                    if cursor.has(row):
                        continue
                    if len(rows) >= limit or (rows and size + len(row.line) > _MOST_ROWS_BYTES):
                        return Page(rows, cursor)
                    cursor, size = cursor.after(row), size + len(row.line)
                    rows.append((_time_of(message), row))
                cursor = cursor.at(partition, finder.resume)
                if budget.spent(message) and not finder.waits:
                    return Page(rows, cursor)
        return Page(rows, None)

    def counts(self, since: int, until: int, parts: int) -> Counted:
        """How many rows came in each of some equal parts of a time; of fewer where the topic has many partitions.

        Raises:
            Unavailable: the broker does not answer.
        """
        first, ends = self._log.bounds()
        parts = max(1, min(parts, _MOST_PARTS // len(ends)))
        edges = [self._at(since + (until - since) * each // parts, ends) for each in range(parts + 1)]
        finders = [_Finder(self._head, partition) for partition in range(len(ends))]
        had = [Reached(each) for each in edges[0]]
        left, counts = _Budget(_MOST_BYTES), list[tuple[int, bool]]()
        for part, (starts, stops) in enumerate(pairwise(edges)):
            count, exact = 0.0, True
            for partition, finder in enumerate(finders):
                # what the parts before have left is for those after them
                budget = left.share((parts - part) * len(ends) - partition)
                start, stop, found, more = starts[partition], stops[partition], 0, 1.0
                for message in self._messages(finder, start, stop, stop):
                    for row in finder.rows(message, stop):
                        if not had[partition].has(row):
                            had[partition], found = had[partition].after(row), found + 1
                    left.spent(message)
                    if budget.spent(message):
                        more = (stop - start) / ((message.offset() or 0) + 1 - start)
                        break
                exact, count = exact and more == 1.0, count + found * more
            counts.append((round(count), exact))
        return Counted(counts, self._kept(first, ends))

    def _at(self, t: int, ends: Sequence[int]) -> list[int]:
        """Where a time begins in each partition."""
        return [end if at < 0 else min(at, end) for at, end in zip(self._log.at(max(0, t)), ends, strict=True)]

    def _messages(self, finder: _Finder, start: int, upto: int, end: int) -> Iterator[Message]:
        """Messages from an offset up to another one, and those beyond it that end a row."""
        at, step = start, 1
        while at < upto or (finder.waits and at < end):
            stop = min(at + step, upto if at < upto else end)
            yield from self._log.read(finder.partition, at, stop)
            at, step = stop, min(2 * step, _STEP)

    def _kept(self, first: Sequence[int], ends: Sequence[int]) -> int | None:
        there = [(each, low) for each, (low, end) in enumerate(zip(first, ends, strict=True)) if low < end]
        oldest = [message for each, low in there for message in self._log.read(each, low, low + 1)]
        return min(map(_time_of, oldest), default=None)


class _Budget:
    """How much may still be read."""

    def __init__(self, nbytes: float, until: float | None = None) -> None:
        self._left, self._until = nbytes, time.monotonic() + _MOST_SECONDS if until is None else until

    def share(self, parts: int) -> _Budget:
        """One of so many equal parts of it."""
        now = time.monotonic()
        return _Budget(self._left / parts, now + max(0.0, self._until - now) / parts)

    def spent(self, message: Message) -> bool:
        """A message has been read; whether that is all."""
        self._left -= len(message.value() or b"")
        return self._left <= 0 or time.monotonic() >= self._until


class _Finder:
    """Finds the rows of a query in the messages of a partition.

    Attributes:
        partition: which.
        resume: offset from which on the rows after those that were given can be had.
        waits: whether parts of a row have come, and more are to come.
    """

    def __init__(self, head: bytes, partition: int) -> None:
        self.partition, self.resume, self.waits = partition, 0, False
        self._head, self._whole = head, Assembler()

    def rows(self, message: Message, upto: int) -> list[Row]:
        """The rows that a message has or ends; of one that is not before an offset, only what it ends."""
        place, value, offset, rows = Place.of(message.key()), message.value() or b"", message.offset() or 0, list[Row]()
        for number, line in enumerate(value.split(b"\n") if place is not None and self._head in value else (), 1):
            if not line.startswith(self._head):
                continue
            if offset >= upto and not self.waits:
                break
            given, waited = self._whole.add(line), self.waits
            self.waits = self._whole.waiting
            if self.waits and (given or not waited):  # it begins another one
                self.resume, self.waits = offset, offset < upto
            elif not self.waits and (offset < upto or len(given) == 1):
                assert place is not None
                rows.append(Row(given[-1], place, place.first + number, self.partition, offset, {}))
        if not self.waits:
            self.resume = offset + 1
        return [row for row in rows if row.whole]


def _time_of(message: Message) -> int:
    return int(message.timestamp()[1])
