"""Snapshot queries that are asked between rounds: which slots are asked what, and the rows that their answers make.

A question goes to the slots that the router would send it to; SKQs in two phases, to the slot nearest to them first,
and then to those within the radius that it gives. All slots answer as of one round, so the rows are those that the
stream itself gives for the same queries with their times, if they come with the next round.

How slots are reached is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import Gone
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.messages import Row
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.snapshots import Answers, answers
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stages.two_phase import requests, still_to_ask
from spatialstream.stages.views import RoundId

__all__ = ["Call", "Directory", "answers_of", "lines_of"]

Call = Callable[[Sequence[int], RoundId, pa.RecordBatch, float], Iterable[Row]]
"""Asks slots, as of a round, the questions that name them (see :func:`~spatialstream.stages.views.answer_at`); gives
the partials of all of them, in any order but that of each slot, within so many seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """What has to be known of a stream to ask it: the newest round that is done.

    Attributes:
        round: which one.
        clock: everything with a timestamp up to here has come.
        routing: where objects are.
    """

    round: RoundId
    clock: int
    routing: Routing

    @property
    def begun(self) -> bool:
        """Whether the clock has begun: before, nothing is known of any time."""
        return self.clock > NEVER

    @staticmethod
    def record(turn: Round) -> dict[str, Any]:
        """A round that is done, as JSON, for :meth:`of`."""
        return {
            "round": [turn.number, turn.take],
            "clock": turn.upto,
            "version": turn.version,
            "past": [list(each) for each in turn.past],
        }

    @classmethod
    def of(cls, record: Mapping[str, Any], load: Callable[[int], RoutingVersion]) -> Directory:
        """From :meth:`record`, and what gives a version by its number."""
        past = tuple(PastVersion(load(number), first, last) for number, first, last in record["past"])
        number, take = record["round"]
        return cls((number, take), record["clock"], Routing(load(record["version"]), past=past, two_phase=True))


def answers_of(
    queries: QueryBatch, directory: Directory, space: Space, call: Call, left: Callable[[], float]
) -> Iterator[Answers]:
    """The rows of snapshot queries as of a round: numbers are positions in the batch.

    Args:
        queries: with their times, which are not after the directory's clock.
        directory: of the stream.
        space: of the stream.
        call: asks slots.
        left: the seconds that are left.

    Raises:
        Gone: a slot has not answered as of this round.
    """
    routing, number = directory.routing, np.arange(len(queries))
    row, slot = routing.route_queries(queries)
    questions = requests(queries_with_numbers(queries, number), row, slot)
    spools = {kind: Spool("number") for kind in (messages.SNAPSHOT_LISTS, messages.SNAPSHOT_TERMS)}
    kept: list[Row] = []
    slots = set(slot.tolist())
    for found in _answered(call, slots, directory.round, questions, left()):
        if found[1] in spools:
            spools[found[1]].add(found[2])
        else:
            kept.append(found)
    again = still_to_ask(kept, routing, space)
    if again is not None:
        slots = set(again.column("slots").flatten().to_pylist())
        kept += _answered(call, slots, directory.round, again, left())
    by_kind: dict[str, list[pa.RecordBatch]] = {}
    for _, kind, content in kept:
        by_kind.setdefault(kind, []).append(content)
    lists, terms = spools.values()
    yield from answers(by_kind, lists, terms, space, None, None)


def lines_of(
    queries: QueryBatch, directory: Directory, space: Space, call: Call, left: Callable[[], float]
) -> list[str]:
    """The rows of :func:`answers_of` in the order of the queries."""
    lines = [""] * len(queries)
    for found in answers_of(queries, directory, space, call, left):
        for number, line in zip(found.number.tolist(), found.lines.to_pylist(), strict=True):
            lines[number] = line
    return lines


def _answered(
    call: Call, slots: set[int], round_id: RoundId, questions: pa.RecordBatch, seconds: float
) -> Iterator[Row]:
    silent = set(slots)
    for row in call(sorted(slots), round_id, questions, seconds):
        silent.discard(row[0])
        yield row
    if silent:
        raise Gone(f"slots {sorted(silent)} have not answered as of round {round_id[0]}")
