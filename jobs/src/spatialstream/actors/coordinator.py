"""Answers small batches of queries completely in one actor: it receives the queries as JSON, and returns their rows.

For a single query, shipping blocks between processes costs more than the search. So a client with few queries sends
them to the actor that is likely to hold most of the answer. That actor knows the newest round
(:mod:`~spatialstream.actors.read_point`), searches its own slots directly, asks other actors where more slots are
concerned, and builds the rows. Requests that wait in an actor at the same moment are answered together by one of the
waiting threads: as of one round, with one look-up of the newest read point.

Some answers are left to the client, see :mod:`~spatialstream.stages.snapshot_queries`: large ones, which would take
the actor's memory, and those that need slots that are moving or actors that do not respond.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from spatialstream.actors.read_point import LocatedReadPoint
from spatialstream.model.queries import Query, parse_query
from spatialstream.stages.snapshot_queries import ReadPoint
from spatialstream.stages.tasks import World

__all__ = ["LARGEST", "CoordinatedAnswer", "QueryCoordinator"]

LARGEST = 16 << 20
"""Maximum bytes of what slots find for queries that are answered together."""

_PATIENCE = 0.02
"""Seconds for which queries wait for those being answered; after that they are answered concurrently."""

CoordinatedAnswer = tuple[dict[str, int], list[str]]
"""The round and the watermark as of which queries are answered, and the row of each query as JSON."""


class ReadPointSource(Protocol):
    """Provides the newest read point, see :class:`~spatialstream.actors.read_point.ReadPoints`."""

    def __call__(self, seconds: float) -> LocatedReadPoint | None:
        """The newest read point; None: no round is done."""

    def doubt(self) -> None:
        """Something was not where the read point said: fetch it anew next time."""


class SlotSearch(Protocol):
    """Searches slots."""

    def lines(
        self, queries: Sequence[Query], read_point: ReadPoint, actors: Mapping[int, str], seconds: float
    ) -> dict[int, str]:
        """The rows of queries by position; queries that cannot be answered this way are missing.

        See :func:`~spatialstream.stages.snapshot_queries.lines_here`.

        Args:
            queries: with their times.
            read_point: of the stream.
            actors: the address of the actor of each slot, without slots that are moving.
            seconds: timeout.
        """


@dataclass(eq=False, slots=True)
class _Waiting:
    """Queries of one call.

    Attributes:
        queries: the queries, whose times are not known yet.
        until: when the caller stops waiting, s of the monotonic clock.
        most: bytes of their rows that whoever asks takes; None: any number.
        leads: whether the caller's thread is to answer all waiting requests.
        woken: gets an item when that becomes so, and when the answer is there.
        found: the answer; None if there is none here; or the exception that was raised.
        done: whether the answer is there.
    """

    queries: list[Query]
    until: float
    most: int | None = None
    leads: bool = False
    woken: SimpleQueue[None] = field(default_factory=SimpleQueue)
    found: CoordinatedAnswer | Exception | None = None
    done: bool = False


class QueryCoordinator:
    """Answers queries; thread-safe.

    Args:
        world: of the actor.
        newest: provides the newest read point.
        slots: searches slots.
    """

    def __init__(self, world: World, newest: ReadPointSource, slots: SlotSearch) -> None:
        self._world, self._newest, self._slots = world, newest, slots
        self._lock, self._busy = threading.Lock(), False
        self._waiting: list[_Waiting] = []

    def ask(
        self, records: Sequence[Mapping[str, Any]], seconds: float, most: int | None = None
    ) -> CoordinatedAnswer | None:
        """Answer queries as of the newest round, at its watermark; None: the client has to find the answers itself.

        Args:
            records: the queries, without times.
            seconds: timeout of the answers.
            most: bytes of their rows; with more there is no answer here; None: any number.

        Raises:
            Exception: there is no answer at present; the client may try again, or another way.
        """
        space, rule = self._world.settings.space, self._world.rule
        queries = [parse_query({**record, "t": 0}, space, rule) for record in records]
        asked = [query for query in queries if isinstance(query, Query) and not query.lifetime.continuous]
        if len(asked) != len(queries):
            raise ValueError("each record must be a valid snapshot query")
        mine = _Waiting(asked, time.monotonic() + seconds, most)
        with self._lock:
            self._waiting.append(mine)
            mine.leads, self._busy = not self._busy, True
        if not mine.leads:
            with suppress(Empty):
                mine.woken.get(timeout=_PATIENCE)
        some = list[_Waiting]()
        with self._lock:
            if mine in self._waiting:
                some, self._waiting = self._waiting, some
        try:
            if some:
                self._answer(some)
        finally:
            for each in some:
                each.done = True
                each.woken.put(None)
            self._hand_on(mine)
        while not mine.done:
            mine.woken.get()
        return _result(mine)

    def _hand_on(self, mine: _Waiting) -> None:
        """Pass leadership to the first waiting request, if any: only that one is woken, and it takes all of them."""
        with self._lock:
            if mine.leads:
                mine.leads, self._busy = False, bool(self._waiting)
                if self._busy:
                    self._waiting[0].leads = True
                    self._waiting[0].woken.put(None)

    def _answer(self, some: Sequence[_Waiting]) -> None:
        """Answer several requests together; if that fails, each one by itself."""
        try:
            found = self._found([query for each in some for query in each.queries], max(each.until for each in some))
        except Exception as error:  # noqa: BLE001 - raised by the waiting thread
            if len(some) == 1:
                some[0].found = error
            else:
                for each in some:
                    self._answer([each])
            return
        if found is not None:
            as_of, lines = found
            first = 0
            for each in some:
                mine = range(first, first + len(each.queries))
                first = mine.stop
                if lines.keys() >= set(mine) and (each.most is None or _size(lines, mine) <= each.most):
                    each.found = as_of, [lines[i] for i in mine]

    def _found(self, queries: Sequence[Query], until: float) -> tuple[dict[str, int], dict[int, str]] | None:
        """The rows that can be found here, by position, and what they are as of."""

        def left() -> float:
            return max(0.001, until - time.monotonic())

        known = self._newest(left())
        if known is None or not known.read_point.begun:
            return None
        read_point, timed = known.read_point, [replace(query, t=known.read_point.clock) for query in queries]
        lines = self._slots.lines(timed, read_point, known.actors, left())
        if len(lines) < len(queries):
            self._newest.doubt()  # an actor may have gone, or a slot moved
        return {"round": read_point.round[0], "clock": read_point.clock}, lines


def _size(lines: Mapping[int, str], mine: Iterable[int]) -> int:
    """Bytes of some rows."""
    return sum(len(lines[i].encode()) for i in mine)


def _result(waited: _Waiting) -> CoordinatedAnswer | None:
    if isinstance(waited.found, Exception):
        raise waited.found
    return waited.found
