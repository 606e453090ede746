"""Past rows of a query: the rows of a time range, and their number in each part of it.

The topic of results is ordered by arrival, not by query. So to find the rows of one query, all messages of a time range
are read; the broker finds its start. The reading for one answer is bounded: rows are returned in pages, and if a part
of the range has more messages than may be read for a count, the first ones are read and the rest is estimated.

The time of a row is its time of arrival; for a row that spans several messages, that of the first. Repeated rows are
skipped if the earlier copy is among the messages read.
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

__all__ = ["Counted", "History", "HistoryLimits", "Log", "Page", "ResultsLog"]

_MOST_PARTS = 240
"""Most parts of a time range, summed over all partitions: at least one message of each is read."""
_STEP = 8
"""Most messages to read at once."""


class Log(Protocol):
    """The retained messages of a topic of results."""

    def bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return for each partition the offset of the first message, and the offset after the last."""

    def at(self, t: int) -> Sequence[int]:
        """Return for each partition the offset of the first message of time ``t`` (ms) or later; -1: there is none."""

    def read(self, partition: int, start: int, end: int) -> Sequence[Message]:
        """Return the messages of a partition from offset ``start`` to before ``end``."""


@dataclass(frozen=True, slots=True)
class ResultsLog:
    """The topic on the broker.

    Every method raises Unavailable if the broker does not answer, or has no such topic; :meth:`read` raises Gone if the
    messages have been deleted.

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
        """The topic's name and its number of partitions, as a dictionary of one item."""
        name = self.connection.topics(self.stream).results
        if topic := offsets(self.connection).partitions([name]):
            return topic
        raise Unavailable(f"the broker has no topic {name}")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the rows of a time range.

    Attributes:
        rows: in their order, each with its time of arrival in ms.
        next: the position after them; None: there are no more.
    """

    rows: list[tuple[int, Row]]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Number of rows in the parts of a time range.

    Attributes:
        counts: for each part the number of rows, and whether it is exact; otherwise it is an estimate.
        kept: time of the oldest message kept, in ms; None: there are none.
    """

    counts: list[tuple[int, bool]]
    kept: int | None


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """Limits of the reading for one answer.

    Attributes:
        read: approximate limit of the bytes of messages that are read.
        seconds: time limit.
        rows: limit of the bytes of a page's rows; a single row may be longer.
    """

    read: int = 32 << 20
    seconds: float = 2.0
    rows: int = 4 << 20


class History:
    """Reads the rows of one query from a topic of results.

    Args:
        log: the topic.
        query: the query's id.
        limits: of the reading for one answer.
    """

    def __init__(self, log: Log, query: str, limits: HistoryLimits | None = None) -> None:
        self._log, self._limits = log, limits or HistoryLimits()
        self._head = b'{"query": ' + json.dumps(query, ensure_ascii=False).encode(errors="replace") + b","

    def _budget(self) -> _Budget:
        return _Budget(self._limits.read, time.monotonic() + self._limits.seconds)

    def rows(self, since: int, until: int, limit: int, place: Cursor | None = None) -> Page:
        """Return a page of the rows that arrived in ``[since, until)``.

        Args:
            since: start of the range, ms.
            until: end of the range, ms, exclusive.
            limit: most rows of the page. A page may have fewer rows, or none, though more follow, since reading is
                bounded.
            place: where the previous page ended.

        Raises:
            Gone: the broker has deleted the messages after ``place``.
            Unavailable: the broker does not answer.
        """
        first, ends = self._log.bounds()
        cursor, upto = place or Cursor.of(self._at(since, ends)), self._at(until, ends)
        if len(cursor.parts) != len(ends) or not all(
            low <= at <= end for low, at, end in zip(first, cursor.offsets, ends, strict=True)
        ):
            raise Gone("the rows after this position have been deleted by retention; start without it")
        rows, size, budget = list[tuple[int, Row]](), 0, self._budget()
        for partition, end in enumerate(ends):
            finder = _Finder(self._head, partition)
            for message in self._messages(finder, cursor.parts[partition].offset, upto[partition], end):
                for row in finder.rows(message, upto[partition]):
                    if cursor.has(row):
                        continue
                    if len(rows) >= limit or (rows and size + len(row.line) > self._limits.rows):
                        return Page(rows, cursor)
                    cursor, size = cursor.after(row), size + len(row.line)
                    rows.append((_time_of(message), row))
                cursor = cursor.at(partition, finder.resume)
                if budget.spent(message) and not finder.waits:
                    return Page(rows, cursor)
        return Page(rows, None)

    def counts(self, since: int, until: int, parts: int) -> Counted:
        """Count the rows that arrived in each of some equal parts of ``[since, until)``.

        There are ``parts`` of them, or fewer if the topic has many partitions.

        Raises:
            Unavailable: the broker does not answer.
        """
        first, ends = self._log.bounds()
        parts = max(1, min(parts, _MOST_PARTS // len(ends)))
        edges = [self._at(since + (until - since) * each // parts, ends) for each in range(parts + 1)]
        finders = [_Finder(self._head, partition) for partition in range(len(ends))]
        had = [Reached(each) for each in edges[0]]
        whole_budget, counts = self._budget(), list[tuple[int, bool]]()
        for part, (starts, stops) in enumerate(pairwise(edges)):
            count, exact = 0.0, True
            for partition, finder in enumerate(finders):
                # budget not used by earlier parts is left for later ones
                budget = whole_budget.share((parts - part) * len(ends) - partition)
                start, stop, rows_counted, factor = starts[partition], stops[partition], 0, 1.0
                for message in self._messages(finder, start, stop, stop):
                    for row in finder.rows(message, stop):
                        if not had[partition].has(row):
                            had[partition], rows_counted = had[partition].after(row), rows_counted + 1
                    whole_budget.spent(message)
                    if budget.spent(message):
                        factor = (stop - start) / ((message.offset() or 0) + 1 - start)
                        break
                exact, count = exact and factor == 1.0, count + rows_counted * factor
            counts.append((round(count), exact))
        return Counted(counts, self._kept(first, ends))

    def _at(self, t: int, ends: Sequence[int]) -> list[int]:
        """The offset of a time in each partition, at most that of the end."""
        return [end if at < 0 else min(at, end) for at, end in zip(self._log.at(max(0, t)), ends, strict=True)]

    def _messages(self, finder: _Finder, start: int, upto: int, end: int) -> Iterator[Message]:
        """Read messages from ``start`` to before ``upto``, and those beyond that complete a row."""
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
    """The remaining budget of bytes and time for reading."""

    def __init__(self, nbytes: float, until: float) -> None:
        self._left, self._until = nbytes, until

    def share(self, parts: int) -> _Budget:
        """Return one of this number of equal shares."""
        now = time.monotonic()
        return _Budget(self._left / parts, now + max(0.0, self._until - now) / parts)

    def spent(self, message: Message) -> bool:
        """Charge a message that was read; return whether the budget is used up."""
        self._left -= len(message.value() or b"")
        return self._left <= 0 or time.monotonic() >= self._until


class _Finder:
    """Finds the rows of a query in the messages of a partition.

    Attributes:
        partition: number of the partition.
        resume: offset from which the rows after those returned so far can be read.
        waits: whether some but not all parts of a row have been read.
    """

    def __init__(self, head: bytes, partition: int) -> None:
        self.partition, self.resume, self.waits = partition, 0, False
        self._head, self._whole = head, Assembler()

    def rows(self, message: Message, upto: int) -> list[Row]:
        """Return the rows that a message contains or completes; at ``upto`` or later, only those it completes."""
        place, value, offset, rows = Place.of(message.key()), message.value() or b"", message.offset() or 0, list[Row]()
        for number, line in enumerate(value.split(b"\n") if place is not None and self._head in value else (), 1):
            if not line.startswith(self._head):
                continue
            if offset >= upto and not self.waits:
                break
            lines, waited = self._whole.add(line), self.waits
            self.waits = self._whole.waiting
            if self.waits and (lines or not waited):  # the line begins another row
                self.resume, self.waits = offset, offset < upto
            elif not self.waits and (offset < upto or len(lines) == 1):
                assert place is not None
                rows.append(Row(lines[-1], place, place.first + number, self.partition, offset, {}))
        if not self.waits:
            self.resume = offset + 1
        return [row for row in rows if row.whole]


def _time_of(message: Message) -> int:
    return int(message.timestamp()[1])
