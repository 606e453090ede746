"""Few questions at a time, answered whole by one seat: it is sent them as they are, and gives their rows.

A question that comes by itself costs more on its way, as blocks between processes, than where it is answered. So who
has few sends them to the seat that is likely to hold most of their answer. That seat asks the driver for the newest
round, its own slots without any transport, other seats where more is concerned, and makes the rows. What waits at a
seat at the same moment is answered together, by one of the threads that wait: as of one round, with one look at what is
newest.

Answers that are large would take the seat's memory: they are left to who asks, see
:mod:`~spatialstream.stages.questions`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from spatialstream.model.errors import Gone
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.sources.calls import called
from spatialstream.stages.messages import Row
from spatialstream.stages.questions import Directory, lines_of
from spatialstream.stages.tasks import World
from spatialstream.stages.versions import load_version
from spatialstream.stages.views import RoundId

__all__ = ["LARGEST", "TooLarge", "Whole", "Wholes", "kept"]

LARGEST = 16 << 20
"""Bytes of what the slots of a seat find for questions that are answered together, at most."""

_PATIENCE = 0.02
"""Seconds for which questions wait for others that are being answered; then they are answered beside them."""

Whole = tuple[dict[str, int], list[str]]
"""The round and the clock that questions are answered as of, and the row of each as JSON."""


class Slots(Protocol):
    """How slots are asked."""

    def here(self, queries: Sequence[Query], directory: Directory) -> dict[int, str]:
        """The rows of the questions that this seat's slots answer alone, by position: some of them, or none.

        See :func:`~spatialstream.stages.questions.lines_here`.
        """

    def of_seat(
        self, address: str, slots: Sequence[int], round_id: RoundId, questions: pa.RecordBatch, seconds: float
    ) -> Iterator[Row]:
        """What slots of a seat answer, see :func:`~spatialstream.stages.views.answer_at`.

        Raises:
            TooLarge: it is too much to be kept.
            Unavailable: it does not answer, or does not have that round.
        """


class TooLarge(Gone):
    """What slots have found is too much to be kept in a seat; it is to be asked another way."""

    def __init__(self) -> None:
        super().__init__("what is found is too large to be answered by one seat")


@dataclass(eq=False, slots=True)
class _Waiting:
    """Questions of one call.

    Attributes:
        queries: the questions; their times are not known yet.
        until: when nobody waits for them any more, by the monotonic clock.
        found: their answer, None if there is none here, or what was raised.
        done: whether it is there.
    """

    queries: list[Query]
    until: float
    found: Whole | Exception | None = None
    done: bool = False


class Wholes:
    """Answers questions; any number of threads may ask.

    Args:
        world: of the seat.
        newest: what the driver tells of the newest round, within so many seconds; None: none is done.
        slots: how slots are asked.
    """

    def __init__(self, world: World, newest: Callable[[float], Mapping[str, Any] | None], slots: Slots) -> None:
        self._world, self._newest, self._slots = world, newest, slots
        self._changed, self._busy = threading.Condition(), False
        self._waiting: list[_Waiting] = []

    def ask(self, records: Sequence[Mapping[str, Any]], seconds: float) -> Whole | None:
        """The answers to questions as of the newest round, at its clock; None: who asks has to find them.

        Args:
            records: the questions, without times.
            seconds: within which the answers have to be there.

        Raises:
            Exception: there is none now; who asks may try again, or another way.
        """
        space, rule = self._world.settings.space, self._world.rule
        queries = [parse_query({**record, "t": 0}, space, rule) for record in records]
        mine = _Waiting(
            [query for query in queries if isinstance(query, Query) and not query.lifetime.continuous],
            time.monotonic() + seconds,
        )
        if len(mine.queries) != len(queries):
            raise ValueError("these are no questions")
        with self._changed:
            self._waiting.append(mine)
            self._changed.wait_for(lambda: mine.done or not self._busy, _PATIENCE)
            if mine not in self._waiting:
                self._changed.wait_for(lambda: mine.done)
                return _result(mine)
            leads, self._busy = not self._busy, True
            some, self._waiting = self._waiting, []
        try:
            self._answer(some)
        finally:
            with self._changed:
                if leads:
                    self._busy = False
                for each in some:
                    each.done = True
                self._changed.notify_all()
        return _result(mine)

    def _answer(self, some: Sequence[_Waiting]) -> None:
        """Find what several wait for; what fails for all together is tried for each by itself."""
        try:
            found = self._found([query for each in some for query in each.queries], max(each.until for each in some))
        except Exception as error:  # noqa: BLE001 - who waits raises it
            if len(some) == 1:
                some[0].found = None if isinstance(error, TooLarge) else error
            else:
                for each in some:
                    self._answer([each])
            return
        if found is not None:
            as_of, lines = found
            first = 0
            for each in some:
                each.found = as_of, lines[first : first + len(each.queries)]
                first += len(each.queries)

    def _found(self, queries: Sequence[Query], until: float) -> Whole | None:
        def left() -> float:
            return max(0.001, until - time.monotonic())

        known = self._newest(left())
        if known is None:
            return None
        directory = Directory.of(known, partial(load_version, self._world.storage))
        if not directory.begun:
            return None
        seats = {int(slot): address for slot, address in known["seats"].items() if address}
        asked = [replace(query, t=directory.clock) for query in queries]
        lines = self._slots.here(asked, directory)
        others = [i for i in range(len(asked)) if i not in lines]
        if others:
            given = QueryBatch.of([asked[i] for i in others]), directory, self._world.settings.space
            lines |= zip(others, lines_of(*given, partial(self._call, seats), left), strict=True)
        as_of = {"round": directory.round[0], "clock": directory.clock}
        return as_of, [lines[i] for i in range(len(asked))]

    def _call(
        self,
        seats: Mapping[int, str],
        slots: Sequence[int],
        round_id: RoundId,
        questions: pa.RecordBatch,
        seconds: float,
    ) -> Iterator[Row]:
        """Ask slots, see :data:`~spatialstream.stages.questions.Call`: those of several seats at once."""
        groups: dict[str, list[int]] = {}
        for slot in slots:
            if slot not in seats:
                raise Gone(f"slot {slot} is moving: ask again")
            groups.setdefault(seats[slot], []).append(slot)
        (address, mine), *others = groups.items()
        calls = [called(partial(self._list, *each, round_id, questions, seconds)) for each in others]
        yield from self._slots.of_seat(address, mine, round_id, questions, seconds)
        for call in calls:
            yield from call.result()

    def _list(self, *given: Any) -> list[Row]:
        return list(self._slots.of_seat(*given))


def kept(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows that are to be kept in memory.

    Raises:
        TooLarge: they are too much for that.
    """
    size = 0
    for row in rows:
        size += row[2].nbytes
        if size > LARGEST:
            raise TooLarge
        yield row


def _result(waited: _Waiting) -> Whole | None:
    if isinstance(waited.found, Exception):
        raise waited.found
    return waited.found
