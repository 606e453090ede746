"""A subscription to a continuous query: an iterator over its rows as they arrive, with or without ``await``.

Rows are read in a thread and queued in this process until they are taken. So no row is lost when the loop over them is
interrupted, or when a task waiting for one is cancelled: the next loop continues after the last row taken.
:attr:`Subscription.position` is that position, with which another process can resume.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, Self

from spatialstream.client.answer import Answer
from spatialstream.client.cursor import Cursor
from spatialstream.client.query_session import checked_query
from spatialstream.client.record_writer import RecordWriter, probe_of
from spatialstream.client.registered import RegisteredQueries
from spatialstream.client.results import Results, Row
from spatialstream.connectors.kafka import Connection
from spatialstream.model.errors import RecordError, SettingError, Unavailable
from spatialstream.model.kinds import listed
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import check_time

__all__ = ["OLDEST", "Subscription"]

OLDEST = "oldest"
"""The position before all rows kept by the broker."""

_ALL = 10**18
_LOOK_SECONDS = 1.0
_PAUSE = 0.01
_SHOWN = 500
"""Latest rows kept for display in notebooks."""


class Queryable(Protocol):
    """The part of a :class:`~spatialstream.client.stream.Stream` that a subscription needs.

    Attributes:
        space: the stream's space.
        rule: how it splits texts into terms.
    """

    space: Space
    rule: TermRule

    def as_of(self) -> dict[str, int] | None:
        """Return the newest round and its clock; None before the clock has started."""
        ...

    def query(self, id: str) -> RegisteredQueries:
        """Return the continuous query of an id, if it is registered."""
        ...


class Subscription(Iterator[Answer], AsyncIterator[Answer]):
    """A registered query and its rows; made by :meth:`Stream.watch <spatialstream.client.stream.Stream.watch>`.

    The iteration ends when the query is no longer registered and all of its rows have been taken, or after
    :meth:`close`. A ``with`` or ``async with`` block closes it at its end. Only one consumer may take rows at a time.

    Attributes:
        query: the record of the query, as registered; for a query that had already ended, only its id.
        position: the position after the last row taken, as a string.
    """

    def __init__(
        self,
        stream: Queryable,
        broker: Connection,
        name: str,
        query: Mapping[str, Any] | str,
        after: str | None,
        cancel: bool,
        patience: float | None,
        timeout: float,
    ) -> None:
        self._stream, self._record_writer, self._name = stream, RecordWriter(broker, name), name
        self._broker, self._cancels, self._patience = broker, cancel, patience
        self._waiting, self._shown = deque[tuple[Cursor, Row]](), deque[Answer](maxlen=_SHOWN)
        self._round, self._looked, self._heard = -1, 0.0, time.monotonic()
        self._ends: dict[int, int] | None = None
        self._closed, self.query = False, dict[str, Any]()
        place = None if after in (None, OLDEST) else Cursor.parse(str(after))
        start = -_ALL if after == OLDEST else 0 if place is None else place.offsets
        self._results = Results(broker, name, start=start)
        self._thread = ThreadPoolExecutor(1, f"watch-{name}")
        try:
            begin = Cursor.of(self._results.start, self._results.mark)
            if place is not None:
                begin.check(place)
            self._cursor = self._had = place or begin
            self.query = self._registered(query, after is not None, time.monotonic() + timeout)
        except BaseException:
            self._cancels = False
            self.close()
            raise

    @property
    def position(self) -> str:
        """See the class."""
        return str(self._had)

    # ---------------------------------------------------------------------------------------------------- registering

    def _registered(self, record_or_id: Mapping[str, Any] | str, resumed: bool, until: float) -> dict[str, Any]:
        """Return the query's record as registered; register it first if it is given as a record and is not yet."""
        if isinstance(record_or_id, str):
            registered = self._look_for(record_or_id)
            if registered is None and not resumed:
                problem = f"no query with the id {record_or_id!r} is registered; give its record to register it"
                raise SettingError("query", problem)
            return registered or {"id": record_or_id}
        if resumed and record_or_id.get("id") is None:
            raise SettingError("query", "give the id too: a position refers to the rows of a query with a known id")
        record, query = checked_query("query", dict(record_or_id), self._stream.space, self._stream.rule)
        if not isinstance(query, Query) or not query.lifetime.continuous:
            continuous = listed(lambda kind: kind.continuous)
            problem = f"type: {record['type']} is not a continuous query ({continuous}); use ask()"
            raise SettingError("query", problem)
        registered, reason = self._look_for(query.id) if record_or_id.get("id") is not None else None, None
        if registered is None:
            if "t" not in record:  # use the stream's own clock: the current time may be far ahead of it, and move it
                query = replace(query, t=self._now())
            else:
                self._check_time(record["t"])
            reason = self._send(query.to_record(), until)
            if reason is None:
                return query.to_record()
            registered = self._look_for(query.id)  # another client may have registered it first
        if registered is None:
            raise SettingError("query", str(reason))
        wanted = query if "t" in record else replace(query, t=registered["t"])
        if parse_query(registered, self._stream.space, self._stream.rule) != wanted:
            raise SettingError("query", f"id: {query.id!r} is the id of another registered query; give another id")
        return registered

    def _check_time(self, given: object) -> None:
        """Refuse a time that looks as if it were not in ms."""
        try:
            check_time(given, self._now())
        except RecordError as error:
            raise SettingError("query", str(error)) from None

    def _now(self) -> int:
        as_of = self._stream.as_of()
        return time.time_ns() // 1_000_000 if as_of is None else as_of["clock"]

    def _look_for(self, name: str) -> dict[str, Any] | None:
        if self._stream.as_of() is None:  # the stream has just started
            return None
        registered = self._stream.query(name)
        self._round = max(self._round, registered.as_of["round"])
        return registered.queries[0] if registered.queries else None

    def _send(self, record: dict[str, Any], until: float) -> str | None:
        """Send a query, and wait until it is registered; return the reason if it is rejected."""
        self.query, probe = record, probe_of(record["t"], self._stream.space)
        sent, number = self._record_writer.queries(record, probe), None
        while number is None or (as_of := self._stream.as_of()) is None or as_of["round"] < number:
            if time.monotonic() > until:
                raise Unavailable(f"the stream has not registered the query {record['id']!r} in time")
            if number is None:
                self._read(probe["id"])
                number = next((row.place.round for _, row in self._waiting if row.query == probe["id"]), None)
            else:
                time.sleep(_PAUSE)
        self._round = as_of["round"]
        self._waiting = deque(each for each in self._waiting if each[1].query != probe["id"])
        self._record_writer.poll(sent)
        return sent.refused.get(1)

    def cancel(self) -> None:
        """Cancel the query. Its rows up to now still arrive, and then the iteration ends.

        Raises:
            Unavailable: the broker or the stream does not answer.
        """
        now = self._now()
        self._record_writer.queries({"id": self.query["id"], "type": "CANCEL", "t": max(now, self.query.get("t", now))})

    # -------------------------------------------------------------------------------------------------------- reading

    def _read(self, *more: str) -> bool:
        """Poll for a message, and queue its rows of the query and of those in ``more``; return whether one arrived."""
        for partition, _, resume, rows in self._results.messages_with_rows(lambda: False, 0.0):
            for row in rows:
                if not self._cursor.has(row):
                    self._cursor = self._cursor.after(row)
                    if row.whole and row.query in (self.query["id"], *more):
                        self._waiting.append((self._cursor, row))
            self._cursor = self._cursor.at(partition, resume)
            return True
        return False

    def _fetch(self) -> bool:
        """Poll for rows, in the thread; return False when no more will arrive."""
        if self._closed:
            return False
        came, now = self._read(), time.monotonic()
        if came or self._waiting:
            return True
        if self._patience is not None and now - self._heard > self._patience:
            return False
        if self._ends is None and now - self._looked > _LOOK_SECONDS:
            self._look()
            self._looked = now
        return self._ends is None or not self._results.has_read(self._ends)

    def _look(self) -> None:
        """If the query is no longer registered, record the ends of the results: all of its rows are before them."""
        with suppress(Unavailable):  # the next call tries again
            registered = self._stream.query(self.query["id"])
            if not registered.queries and registered.as_of["round"] >= self._round:
                self._ends = self._results.ends()
            self._round = max(self._round, registered.as_of["round"])

    def _fetching(self) -> Future[bool] | None:
        """Start :meth:`_fetch` in the thread; None if the subscription is closed."""
        with suppress(RuntimeError):
            return self._thread.submit(self._fetch)
        return None

    def _taken(self) -> Answer | None:
        """Take the next queued row; None if there is none."""
        while self._waiting:
            self._had, row = self._waiting.popleft()
            answer = Answer(json.loads(row.line), self.query, self._stream.space)
            if answer["t"] >= self.query.get("t", answer["t"]):  # earlier rows belong to a query that had the id before
                self._heard = time.monotonic()
                self._shown.append(answer)
                return answer
        return None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        while (row := self._taken()) is None:
            # an interrupt ends the wait, but not the read in the thread, so that no row is lost
            if (fetching := self._fetching()) is None or not fetching.result():
                raise StopIteration
        return row

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Answer:
        while (row := self._taken()) is None:
            if (fetching := self._fetching()) is None or not await asyncio.wrap_future(fetching):
                raise StopAsyncIteration
        return row

    # --------------------------------------------------------------------------------------------------------- ending

    def close(self) -> None:
        """End the subscription. The query stays registered, unless it is to be cancelled at the end.

        Raises:
            Unavailable: it is to be cancelled, and the broker or the stream does not answer.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._cancels and self._ends is None:
                self.cancel()
        finally:
            self._thread.submit(self._results.close)
            self._thread.shutdown()
            self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.close)

    def _repr_html_(self) -> str:
        """HTML for notebooks: the query, and the latest rows taken."""
        from spatialstream.report import answer_html

        return answer_html(list(self._shown), self.query, self._stream.space)
