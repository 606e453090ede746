"""The results of a stream for all listeners of this process: read once, distributed by the query's id.

One consumer reads the newest messages in a thread, and a buffer keeps the latest of them. A listener names queries and
a :class:`~spatialstream.client.cursor.Cursor`, and receives every row of the queries after it once. Rows older than the
buffer are read from the broker by one of a few past consumers, which is closed when it has caught up with the buffer;
then rows are taken from the buffer, and finally as they arrive. No listener delays others for long: rows for a slow
listener are queued up to a limit, and a listener that has used a past consumer for long yields it if others wait. In
both cases the listener is ended, and the client reconnects with its cursor.

Everything except reading happens in the event loop, so a listener that joins misses no row.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from operator import ge, le

from spatialstream.client.cursor import Cursor
from spatialstream.client.results import Results, Row
from spatialstream.gateway import logs
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import Turns
from spatialstream.model.errors import SpatialStreamError, Unavailable

__all__ = ["OLDEST", "Feed", "FeedLimits", "Listener", "Rows"]

OLDEST = "oldest"
"""The position before all rows kept by the broker."""

_ALL = 10**18
_AHEAD = 8
"""Most messages that may wait for the event loop."""
_PAST = 8
"""Most past consumers at a time."""
_SHARE = 4
"""Most past consumers of one client."""
_TURN = 10.0
"""Seconds for which a listener need not yield its past consumer."""
_PIECE = 256 << 10
"""Approximate bytes of rows returned at once."""
_OF_ROW, _OF_MESSAGE = 500, 500
"""Overhead in bytes of a row and of a message in memory."""
_PATIENCE = 30.0

Rows = list[tuple[Cursor, Row]]
"""Rows, each with the position after it."""
Opener = Callable[[Sequence[int] | int], Results]


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Limits of a feed.

    Attributes:
        kept: bytes of rows in the buffer, for clients that reconnect.
        waiting: bytes of rows queued for one listener; a single row may be longer.
        listeners: number of listeners at a time, besides the gateway's own.
        back: number of messages before the end of each partition with which reading starts, for clients that reconnect
            from another process.
    """

    kept: int = 32 << 20
    waiting: int = 1 << 20
    listeners: int = 2_000
    back: int = 200


@dataclass(frozen=True, slots=True)
class _Line:
    query: str
    row: Row

    @classmethod
    def of(cls, row: Row) -> _Line:
        return cls(row.query, row)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The rows of a message in the buffer."""

    partition: int
    offset: int
    lines: list[_Line]
    nbytes: int


class Feed:
    """Distributes the results of a stream; see the module.

    Args:
        name: name of the stream.
        opener: opens a consumer of the results that starts at offsets, or (negative) this number of messages before the
            end of each partition.
        limits: limits of the feed.

    Attributes:
        cursor: the position after everything read.
        first: for each partition the offset from which on the buffer has all rows that the messages complete.
        limits: as passed in.
    """

    def __init__(self, name: str, opener: Opener, limits: FeedLimits | None = None) -> None:
        self.limits, self._name, self._opener = limits or FeedLimits(), name, opener
        self._threads = ThreadPoolExecutor(_PAST, f"past-{name}")
        self._turns = Turns(_PAST, _SHARE, _TURN)
        self._listeners: set[Listener] = set()
        self._counted = 0
        self._joined: dict[str, set[Listener]] = {}
        self._kept: deque[_Kept] = deque()
        self._nbytes = 0
        self._reading: _Reading | None = None
        self._over: str | None = None
        self.cursor, self.first = Cursor(()), list[int]()

    @property
    def listeners(self) -> int:
        """Number of listeners."""
        return len(self._listeners)

    @property
    def clients(self) -> list[str]:
        """The client of each listener."""
        return [each.client for each in self._listeners]

    @asynccontextmanager
    async def listen(
        self, queries: Iterable[str], place: Cursor | str | None = None, client: str = "", *, counted: bool = True
    ) -> AsyncIterator[Listener]:
        """Follow queries.

        Args:
            queries: their ids.
            place: the position after which rows are wanted; None: now.
            client: name of the client.
            counted: whether the listener counts towards the limit; the gateway's own are bounded otherwise.

        Raises:
            Gone: the broker does not have, or never had, the messages after the position.
            Unavailable: the results cannot be read now.
            Problem: there are too many listeners.
        """
        if counted and self._counted >= self.limits.listeners:
            problem = f"{self._counted} connections follow the stream's results, which is the limit"
            raise Problem("try-again", problem, retry=5)
        self._counted += counted
        try:
            await self._started()
            listener = Listener(self, frozenset(queries), self.cursor, client)
            self._listeners.add(listener)
            try:
                if place is not None:
                    await listener.go(place)
                yield listener
            finally:
                self._listeners.discard(listener)
                self._leave(listener)
                listener.close()
        finally:
            self._counted -= counted

    def end(self, why: str) -> None:
        """End all listeners, and stop reading."""
        self._over = why
        self._stop(why)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------------------------------------ for listeners

    async def past(self, start: Sequence[int] | int, listener: Listener) -> _Past:
        """Open a past consumer that starts at a position, see :class:`Feed`.

        Raises:
            Gone, Unavailable, Problem: as :meth:`listen`.
        """
        past = _Past(self._threads)

        def leave() -> None:
            listener.end("other connections wait to read past results")
            past.close()

        try:
            async with asyncio.timeout(_PATIENCE):
                turn = await self._turns.take(listener.client, leave)
        except TimeoutError:
            raise Problem("try-again", "too many connections read past results", retry=5) from None
        past.held.callback(self._turns.give, turn)
        try:
            await past.open(lambda: self._opener(start))
            if listener.over is not None:  # the listener ended meanwhile, so nothing may stay open
                raise Unavailable(listener.over)
        except BaseException:
            past.close()
            raise
        return past

    def join(self, listener: Listener) -> tuple[Rows, bool]:
        """Return a listener's rows in the buffer, and whether these are all; if so, later rows are queued for it."""
        rows, size = Rows(), 0
        for piece in self._kept:
            if piece.offset < listener.cursor.parts[piece.partition].offset:
                continue
            if size > _PIECE:
                return rows, False
            found = listener.had(piece.lines)
            size += sum(len(row.line) for _, row in found)
            rows += found
        for query in listener.queries:
            self._joined.setdefault(query, set()).add(listener)
        return rows, True

    def _leave(self, listener: Listener) -> None:
        for query in listener.queries:
            joined = self._joined.get(query, set())
            joined.discard(listener)
            if not joined:
                self._joined.pop(query, None)

    # ------------------------------------------------------------------------------------------------------- reading

    async def _started(self) -> None:
        """Start reading if necessary, and wait until the newest rows are being read.

        Raises:
            Unavailable: they cannot be read in time.
        """
        if self._over is not None:
            raise Unavailable(self._over)
        if self._reading is None:
            self._reading = _Reading(self, self._opener, self._name)
        reading = self._reading
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await reading.ready.wait()
        if reading is not self._reading or not reading.ready.is_set():
            raise Unavailable(reading.failed or f"the results of {self._name} could not be read in time")

    def begin(self, place: Cursor) -> None:
        """Reset the buffer: reading starts at a position."""
        self._kept.clear()
        self._nbytes, self.cursor, self.first = 0, place, list(place.offsets)

    def has(self, place: Cursor) -> bool:
        """Whether all rows after a position are in the buffer, or will be."""
        return all(map(le, self.first, place.offsets)) and all(map(le, place.offsets, self.cursor.offsets))

    def publish(self, partition: int, offset: int, lines: list[_Line] | None, cursor: Cursor) -> None:
        """Add the rows of a message; None: it has parts of rows that began before the first message read."""
        self.cursor = cursor
        if lines is None:  # no complete row of this partition has been read before
            self._kept = deque(kept for kept in self._kept if kept.partition != partition)
            self._nbytes, self.first[partition] = sum(kept.nbytes for kept in self._kept), offset + 1
            return
        nbytes = _OF_MESSAGE + sum(_OF_ROW + len(line.row.line) for line in lines)
        self._kept.append(_Kept(partition, offset, lines, nbytes))
        self._nbytes += nbytes
        while self._nbytes > self.limits.kept:
            gone = self._kept.popleft()
            self._nbytes -= gone.nbytes
            self.first[gone.partition] = gone.offset + 1
        for line in lines:
            for listener in list(self._joined.get(line.query, ())):
                listener.offer(line)

    def fail(self, reading: _Reading) -> None:
        """Handle a failure of reading: end all listeners. The next one to connect starts reading again."""
        if self._reading is reading:
            self._stop(reading.failed or "over")

    def _stop(self, why: str) -> None:
        if self._reading is not None:
            self._reading.stop.set()
            self._reading = None
        for listener in list(self._listeners):
            listener.end(why)


class Listener:
    """A connection that follows some queries; made by :meth:`Feed.listen`.

    Attributes:
        queries: their ids.
        cursor: the position after the last row returned.
        client: name of the client.
        over: why the listener has ended; None: it has not.
    """

    def __init__(self, feed: Feed, queries: frozenset[str], cursor: Cursor, client: str) -> None:
        self.queries, self.cursor, self.client = queries, cursor, client
        self.over: str | None = None
        self._feed, self._is_joined = feed, False
        self._waiting: deque[_Line] = deque()
        self._size = 0
        self._wake = asyncio.Event()
        self._past: _Past | None = None

    async def go(self, place: Cursor | str) -> None:
        """Start at a position; errors as in :meth:`Feed.listen`."""
        if isinstance(place, Cursor):
            place.check(self._feed.cursor)
            self.cursor = place
            if self._feed.has(place):
                return
        # the broker knows whether the position exists; another process may have read further than this one
        self._past = await self._feed.past(place.offsets if isinstance(place, Cursor) else -_ALL, self)
        if isinstance(place, Cursor):
            self._past.start.check(place)
        else:
            self.cursor = self._past.start

    @property
    def behind(self) -> bool:
        """Whether it reads past results, so that its position moves even without rows."""
        return self._past is not None and self.over is None

    async def rows(self, patience: float) -> Rows:
        """Return the next rows as soon as there are any; none after ``patience`` seconds, or if the listener has ended.

        Raises:
            Unavailable: past results cannot be read.
        """
        until = time.monotonic() + patience
        while self._past is not None:
            if all(map(ge, self.cursor.offsets, self._feed.first)):
                self.close()
                break
            rows, self.cursor = await self._past.rows(self.cursor, self.queries, tuple(self._feed.first), until)
            if rows or self.over is not None or time.monotonic() >= until:
                return rows
        if not self._is_joined:
            rows, self._is_joined = self._feed.join(self)
            if rows:
                return rows
        with suppress(TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                await self._wake.wait()
        lines, self._waiting, self._size = self._waiting, deque(), 0
        if self.over is None:
            self._wake.clear()
        rows = self.had(lines)
        if self.over is None:
            self.cursor = self.cursor.joined(self._feed.cursor)  # it has had all its rows up to there
        return rows

    def had(self, lines: Iterable[_Line]) -> Rows:
        """Filter rows: return those of its queries that it has not had, and move the cursor after them."""
        rows = Rows()
        for line in lines:
            if line.query in self.queries and not self.cursor.has(line.row):
                self.cursor = self.cursor.after(line.row)
                rows.append((self.cursor, line.row))
        return rows

    def offer(self, line: _Line) -> None:
        """Queue a row; if the queue is full, end the listener."""
        size = len(line.row.line)
        if self._waiting and self._size + size > self._feed.limits.waiting:
            self.end("rows arrive faster than they are read")
        if self.over is None:
            self._waiting.append(line)
            self._size += size
            self._wake.set()

    def end(self, why: str) -> None:
        """End the listener: it gets only the rows queued so far."""
        self.over = self.over or why
        self._wake.set()

    def close(self) -> None:
        """Close its past consumer."""
        if self._past is not None:
            self._past.close()
            self._past = None


def _beginning(results: Results) -> Cursor:
    return Cursor.of(results.start, results.mark)


class _Past:
    """A past consumer, used in threads by one listener.

    Attributes:
        held: closed with it.
        start: the position at which it started.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads, self.held = threads, ExitStack()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._results: Results | None = None
        self._heard = 0.0
        self.start = Cursor(())

    async def open(self, opener: Callable[[], Results]) -> None:
        """Connect; errors are the opener's."""

        def opened() -> None:
            with self._lock:
                if not self._stop.is_set():
                    self._results = opener()
                    self.start, self._heard = _beginning(self._results), time.monotonic()

        await asyncio.get_running_loop().run_in_executor(self._threads, opened)

    async def rows(
        self, cursor: Cursor, queries: frozenset[str], upto: Sequence[int], until: float
    ) -> tuple[Rows, Cursor]:
        """Read some rows of queries after a cursor, not far beyond the offsets ``upto``.

        Returns the rows and the new cursor. It ends at ``until`` (monotonic clock), however little it has read.

        Raises:
            Unavailable: the broker does not answer.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: self._rows(cursor, queries, upto, until))

    def _rows(self, cursor: Cursor, queries: frozenset[str], upto: Sequence[int], until: float) -> tuple[Rows, Cursor]:
        rows, size = Rows(), 0
        with self._lock:
            if self._results is None:
                return rows, cursor
            for partition, _, resume, whole in self._results.messages_with_rows(
                lambda: self._stop.is_set() or time.monotonic() >= until
            ):
                self._heard = time.monotonic()
                for row in whole:
                    if not cursor.has(row):
                        cursor = cursor.after(row)
                        if row.query in queries and row.whole:
                            rows.append((cursor, row))
                            size += len(row.line)
                cursor = cursor.at(partition, resume)
                if size >= _PIECE or all(map(ge, cursor.offsets, upto)):
                    return rows, cursor
            if not self._stop.is_set() and time.monotonic() > self._heard + _PATIENCE:
                raise Unavailable("the broker does not deliver the rows that it has")
        return rows, cursor

    def close(self) -> None:
        """Close it as soon as no thread uses it."""
        if self._stop.is_set():
            return
        self._stop.set()
        self.held.close()

        def closed() -> None:
            with self._lock:
                if self._results is not None:
                    self._results.close()

        threading.Thread(target=closed, name="past-close", daemon=True).start()


class _Reading:
    """The thread that reads the newest messages, until it is stopped or fails.

    Attributes:
        ready: set when all messages that existed at the start have been read, or reading has failed.
        failed: why reading has failed; None: it has not.
        stop: set when it is to end.
    """

    def __init__(self, feed: Feed, opener: Opener, name: str) -> None:
        self.ready, self.stop = asyncio.Event(), threading.Event()
        self.failed: str | None = None
        self._feed, self._opener, self._loop = feed, opener, asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        threading.Thread(target=self._run, name=f"results-{name}", daemon=True).start()

    def _run(self) -> None:
        try:
            with closing(self._opener(-self._feed.limits.back)) as results:
                self._read(results)
        except SpatialStreamError as error:
            self.failed = str(error)
        except Exception as error:  # noqa: BLE001 -- a defect; listeners must learn that no more rows arrive
            logs.LOGGER.exception("failed", extra={"fields": {"reading": self._feed}})
            self.failed = repr(error)
        self._tell(self._ended)

    def _read(self, results: Results) -> None:
        cursor = begun = _beginning(results)
        clean, unread = set[int](), {each for each, end in enumerate(results.end) if results.start[each] < end}
        self._tell(lambda: self._feed.begin(begun))
        if not unread:
            self._tell(self.ready.set)
        for partition, offset, resume, rows in results.messages_with_rows(self.stop.is_set):
            broken = partition not in clean and not all(row.whole for row in rows)
            if rows and not broken:
                clean.add(partition)
            lines, upto = list[_Line](), -1
            for row in rows:  # all are of one round and phase, so the cursor is made once
                if row.upto > upto and not cursor.has(row):
                    upto = row.upto
                    lines.append(_Line.of(row))
            if lines:
                cursor = cursor.after(lines[-1].row)
            cursor = cursor.at(partition, resume)
            while not self._room.acquire(timeout=1.0):
                if self.stop.is_set():
                    return
            self._publish(partition, offset, None if broken else lines, cursor)
            if partition in unread and offset + 1 >= results.end[partition]:
                unread.discard(partition)
                if not unread:
                    self._tell(self.ready.set)

    def _publish(self, partition: int, offset: int, lines: list[_Line] | None, cursor: Cursor) -> None:
        def published() -> None:
            self._room.release()
            if not self.stop.is_set():
                self._feed.publish(partition, offset, lines, cursor)

        self._tell(published)

    def _ended(self) -> None:
        self._feed.fail(self)
        self.ready.set()

    def _tell(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(what)
