"""A continuous query and its rows as they come, for programs: an iterator, with or without ``await``.

Rows are read in a thread of their own, and wait in this process until they are taken. So nothing is lost when the loop
over them is interrupted, or when the task that waits for one is cancelled: the next loop goes on after the last row
that was taken. :attr:`Subscription.position` says where that is, for another process or another day.
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
from typing import TYPE_CHECKING, Any, Self

from spatialstream.client.answer import Answer
from spatialstream.client.cursor import Cursor
from spatialstream.client.query_session import checked_query
from spatialstream.client.record_writer import RecordWriter, probe_of
from spatialstream.client.results import Results, Row
from spatialstream.connectors.kafka import Connection
from spatialstream.model.errors import RecordError, SettingError, Unavailable
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.times import check_time

if TYPE_CHECKING:
    from spatialstream.client.stream import Stream

__all__ = ["OLDEST", "Subscription"]

OLDEST = "oldest"
"""The position before all rows that the broker keeps."""

_ALL = 10**18
_LOOK_SECONDS = 1.0
_PAUSE = 0.01
_SHOWN = 500
"""Rows that are kept to be shown."""


class Subscription(Iterator[Answer], AsyncIterator[Answer]):
    """A query that stands, and its rows; made by :meth:`Stream.watch <spatialstream.client.stream.Stream.watch>`.

    It ends when the query does not stand any more and all of its rows have been taken, and after :meth:`close`.
    At the end of a ``with`` or ``async with`` block it is closed. One at a time takes rows.

    Attributes:
        query: the record of the query, as it stands; of one that had ended before, only its id.
        position: the place after the last row that was taken, as a word.
    """

    def __init__(
        self,
        stream: Stream,
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
            self.query = self._stands(query, after is not None, time.monotonic() + timeout)
        except BaseException:
            self._cancels = False
            self.close()
            raise

    @property
    def position(self) -> str:
        """See the class."""
        return str(self._had)

    # ---------------------------------------------------------------------------------------------------- registering

    def _stands(self, given: Mapping[str, Any] | str, resumed: bool, until: float) -> dict[str, Any]:
        """The query as it stands; it is registered, if it is given as a record and does not stand."""
        if isinstance(given, str):
            found = self._look_for(given)
            if found is None and not resumed:
                raise SettingError("query", f"none with the id {given!r} stands; give its record to have it registered")
            return found or {"id": given}
        if resumed and given.get("id") is None:
            raise SettingError("query", "give the id too: a position is one among the rows of a query that has one")
        record, query = checked_query("query", dict(given), self._stream.space, self._stream.rule)
        if not isinstance(query, Query) or not query.lifetime.continuous:
            raise SettingError("query", f"type: {record['type']} does not stand, as CRQ, CKQ and CTQ do; ask it")
        found, reason = self._look_for(query.id) if given.get("id") is not None else None, None
        if found is None:
            if "t" not in record:  # the stream's own clock: a later time would move that of a stream of another day
                query = replace(query, t=self._now())
            else:
                self._check_time(record["t"])
            reason = self._send(query.to_record(), until)
            if reason is None:
                return query.to_record()
            found = self._look_for(query.id)  # somebody else may have been first
        if found is None:
            raise SettingError("query", str(reason))
        wanted = query if "t" in record else replace(query, t=found["t"])
        if parse_query(found, self._stream.space, self._stream.rule) != wanted:
            raise SettingError("query", f"id: {query.id!r} is that of another query, which stands; give another id")
        return found

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
        if self._stream.as_of() is None:  # it has only begun
            return None
        standing = self._stream.continuous_query(name)
        self._round = max(self._round, standing.as_of["round"])
        return standing.queries[0] if standing.queries else None

    def _send(self, record: dict[str, Any], until: float) -> str | None:
        """Send a query, and wait until it stands; the reason, if it is rejected."""
        self.query, probe = record, probe_of(record["t"], self._stream.space)
        sent, number = self._record_writer.queries(record, probe), None
        while number is None or (as_of := self._stream.as_of()) is None or as_of["round"] < number:
            if time.monotonic() > until:
                raise Unavailable(f"the stream has not taken in the query {record['id']!r} in time")
            if number is None:
                self._read(probe["id"])
                number = next((row.place.round for _, row in self._waiting if row.query == probe["id"]), None)
            else:
                time.sleep(_PAUSE)
        self._round = as_of["round"]
        self._waiting = deque(each for each in self._waiting if each[1].query != probe["id"])
        self._record_writer.look(sent)
        return sent.refused.get(1)

    def cancel(self) -> None:
        """Cancel the query. The rows up to then still come, and then it ends.

        Raises:
            Unavailable: the broker, or the stream, does not answer.
        """
        now = self._now()
        self._record_writer.queries({"id": self.query["id"], "type": "CANCEL", "t": max(now, self.query.get("t", now))})

    # -------------------------------------------------------------------------------------------------------- reading

    def _read(self, *more: str) -> bool:
        """Wait for a message for a moment, and keep its rows of the query, and of others; whether there was one."""
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
        """Wait for rows for a moment, in the thread; False: none come any more."""
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
        """If the query does not stand any more, all of its rows are in the results by now."""
        with suppress(Unavailable):  # then it is asked again
            standing = self._stream.continuous_query(self.query["id"])
            if not standing.queries and standing.as_of["round"] >= self._round:
                self._ends = self._results.ends()
            self._round = max(self._round, standing.as_of["round"])

    def _fetching(self) -> Future[bool] | None:
        """What tells whether rows may come; None: it is closed."""
        with suppress(RuntimeError):
            return self._thread.submit(self._fetch)
        return None

    def _taken(self) -> Answer | None:
        """The next row that waits."""
        while self._waiting:
            self._had, row = self._waiting.popleft()
            answer = Answer(json.loads(row.line), self.query, self._stream.space)
            if answer["t"] >= self.query.get("t", answer["t"]):  # others are of a query that had the id before
                self._heard = time.monotonic()
                self._shown.append(answer)
                return answer
        return None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Answer:
        while (row := self._taken()) is None:
            # an interrupt ends the waiting, and not the reading, which a row could be lost by
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
        """Take no more rows. The query stands on, unless it was to be cancelled at the end.

        Raises:
            Unavailable: it was, and the broker, or the stream, does not answer.
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
        """For notebooks: the query, and the latest of the rows that have been taken."""
        from spatialstream.report import answer_html

        return answer_html(list(self._shown), self.query, self._stream.space)
