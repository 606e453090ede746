"""Few queries at a time, answered whole by one actor: it is sent them as they are, and gives their rows.

A query that comes by itself costs more on its way, as blocks between processes, than where it is answered. So who
has few sends them to the actor that is likely to hold most of their answer. That actor knows the newest round
(:mod:`~spatialstream.actors.read_point`), asks its own slots without any transport, other actors where more is
concerned, and makes the rows. What waits at an actor at the same moment is answered together, by one of the threads
that wait: as of one round, with one look at what is newest.

What an actor does not find so is left to who asks, see :mod:`~spatialstream.stages.snapshot_queries`: answers that are
large, which would take its memory, and what concerns slots that are moving, or actors that do not answer.
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
"""Bytes of what slots find for queries that are answered together, at most."""

_PATIENCE = 0.02
"""Seconds for which queries wait for others that are being answered; then they are answered beside them."""

CoordinatedAnswer = tuple[dict[str, int], list[str]]
"""The round and the clock that queries are answered as of, and the row of each as JSON."""


class ReadPointSource(Protocol):
    """How the newest round is known, see :class:`~spatialstream.actors.read_point.ReadPoints`."""

    def __call__(self, seconds: float) -> LocatedReadPoint | None:
        """What is newest; None: no round is done."""

    def doubt(self) -> None:
        """Something was not where it should have been."""


class SlotSearch(Protocol):
    """How slots are asked."""

    def lines(
        self, queries: Sequence[Query], read_point: ReadPoint, actors: Mapping[int, str], seconds: float
    ) -> dict[int, str]:
        """The rows of queries by position, without those that are not to be had so.

        See :func:`~spatialstream.stages.snapshot_queries.lines_here`.

        Args:
            queries: with their times.
            read_point: of the stream.
            actors: the address of the actor of each slot; not of those that are moving.
            seconds: within which it has to be done.
        """


@dataclass(eq=False, slots=True)
class _Waiting:
    """Queries of one call.

    Attributes:
        queries: the queries; their times are not known yet.
        until: when nobody waits for them any more, by the monotonic clock.
        most: bytes of their rows that whoever asks takes; None: any number.
        leads: whether who waits for them is to answer all that wait.
        woken: has something in it when that is so, and when the answer is there.
        found: their answer, None if there is none here, or what was raised.
        done: whether it is there.
    """

    queries: list[Query]
    until: float
    most: int | None = None
    leads: bool = False
    woken: SimpleQueue[None] = field(default_factory=SimpleQueue)
    found: CoordinatedAnswer | Exception | None = None
    done: bool = False


class QueryCoordinator:
    """Answers queries; any number of threads may ask.

    Args:
        world: of the actor.
        newest: how the newest round is known.
        slots: how slots are asked.
    """

    def __init__(self, world: World, newest: ReadPointSource, slots: SlotSearch) -> None:
        self._world, self._newest, self._slots = world, newest, slots
        self._lock, self._busy = threading.Lock(), False
        self._waiting: list[_Waiting] = []

    def ask(
        self, records: Sequence[Mapping[str, Any]], seconds: float, most: int | None = None
    ) -> CoordinatedAnswer | None:
        """The answers to queries as of the newest round, at its clock; None: who asks has to find them.

        Args:
            records: the queries, without times.
            seconds: within which the answers have to be there.
            most: bytes of their rows; with more there is no answer here; None: any number.

        Raises:
            Exception: there is none now; who asks may try again, or another way.
        """
        space, rule = self._world.settings.space, self._world.rule
        queries = [parse_query({**record, "t": 0}, space, rule) for record in records]
        asked = [query for query in queries if isinstance(query, Query) and not query.lifetime.continuous]
        if len(asked) != len(queries):
            raise ValueError("these are no queries")
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
        """Who has led has the next one lead, if one waits: that one alone is woken, and takes all with it."""
        with self._lock:
            if mine.leads:
                mine.leads, self._busy = False, bool(self._waiting)
                if self._busy:
                    self._waiting[0].leads = True
                    self._waiting[0].woken.put(None)

    def _answer(self, some: Sequence[_Waiting]) -> None:
        """Find what several wait for; what fails for all together is tried for each by itself."""
        try:
            found = self._found([query for each in some for query in each.queries], max(each.until for each in some))
        except Exception as error:  # noqa: BLE001 - who waits raises it
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
        """The rows that are to be had, by position, and what they are as of."""

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
