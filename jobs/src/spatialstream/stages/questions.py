"""Snapshot queries that are asked between rounds: which slots are asked what, and the rows that their answers make.

A question goes to the slots that the router would send it to; SKQs in two phases, to the slot nearest to them first,
and then to those within the radius that it gives. All slots answer as of one round, so the rows are those that the
stream itself gives for the same queries with their times, if they come with the next round.

How slots are reached is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import Gone, Missing
from spatialstream.model.kinds import CODE, KINDS, Kind
from spatialstream.model.queries import Nearest, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.messages import Row
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.snapshots import Answers, Columns, answers, nbytes, reach, rows_of, search, stack
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stages.two_phase import others_within, requests, still_to_ask
from spatialstream.stages.views import RoundId, views_here

__all__ = ["Call", "Directory", "answers_of", "lines_here", "lines_of"]

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


def lines_here(queries: Sequence[Query], directory: Directory, space: Space, place: str, most: int) -> dict[int, str]:
    """The rows of those questions that concern views of this process alone, by position; no others are looked at.

    They are what :func:`lines_of` gives, by the same searches and merges. Blocks between who asks and who answers are
    left out, which for a question by itself cost more than its answer.

    Args:
        queries: with their times, which are not after the directory's clock.
        directory: of the stream.
        space: of the stream.
        place: of the storage that the slots' state is in.
        most: bytes of what is found, all questions together; those with which it would be more are left out.
    """
    batch = QueryBatch.of(queries)
    row, slot = directory.routing.route_queries(batch)
    concerned = np.split(slot, np.searchsorted(row, np.arange(1, len(queries))))
    views = views_here(place, np.unique(slot).tolist(), directory.round)
    if not views:
        return {}
    some = next(iter(views.values()))  # all are of one round, and so look back alike
    since, whole = reach(batch, some.retention, some.upto)

    def found_in(i: int, slots: Iterable[int], *, alone: bool = False) -> list[Columns]:
        return [search(views[each].objects, queries[i], i, int(since[i]), alone=alone) for each in slots]

    found: dict[int, list[Columns]] = {}
    for i, slots in enumerate(each.tolist() for each in concerned):
        if slots and views.keys() >= set(slots):
            with suppress(Missing):  # a segment that was never read, and has been dropped since
                found[i] = found_in(i, slots, alone=len(slots) == 1)
    nearest = [i for i in found if isinstance(queries[i].selection, Nearest)]
    if nearest:
        radius = np.array([_radius(found[i][0]["distance"], int(batch.k[i])) for i in nearest])
        first = np.array([concerned[i][0] for i in nearest])
        given = batch.at[nearest], radius, since[nearest], batch.t[nearest], first, directory.routing, space
        row, slot = others_within(*given)
        views |= views_here(place, np.unique(slot).tolist(), directory.round)
        for i, others in zip(nearest, np.split(slot, np.searchsorted(row, np.arange(1, len(nearest)))), strict=True):
            first_found = found.pop(i)
            if views.keys() >= set(others.tolist()):
                with suppress(Missing):
                    found[i] = first_found + found_in(i, others.tolist())
    lines = dict[int, str]()
    for kind in KINDS:
        rows = [i for i in sorted(found) if batch.code[i] == CODE[kind.type]]
        size = np.cumsum([sum(map(nbytes, found[i])) for i in rows], dtype=np.int64)
        if rows := rows[: int(np.searchsorted(size, most, "right"))]:
            most -= int(size[len(rows) - 1])
            lines |= zip(rows, _lines(kind, rows, found, batch, since, whole, space), strict=True)
    return lines


def _lines(
    kind: Kind,
    rows: Sequence[int],
    found: Mapping[int, Sequence[Columns]],
    batch: QueryBatch,
    since: npt.NDArray[np.int64],
    whole: npt.NDArray[np.bool_],
    space: Space,
) -> list[str]:
    """The rows of questions of one type, from what was found for them."""
    ids, t, k = batch.ids.take(pa.array(rows)), batch.t[rows], batch.k[rows]
    asked = messages.columns(number=np.array(rows), id=ids, t=t, k=k, since=since[rows], whole=whole[rows])
    parts = stack([part for i in rows for part in found[i]])
    lines: list[str] = rows_of(kind, asked, [parts] if parts.num_rows else [], space, None).lines.to_pylist()
    return lines


def _radius(distance: npt.NDArray[np.float64], k: int) -> float:
    return float(distance[k - 1]) if len(distance) >= k else np.inf


def _answered(
    call: Call, slots: set[int], round_id: RoundId, questions: pa.RecordBatch, seconds: float
) -> Iterator[Row]:
    silent = set(slots)
    for row in call(sorted(slots), round_id, questions, seconds):
        silent.discard(row[0])
        yield row
    if silent:
        raise Gone(f"slots {sorted(silent)} have not answered as of round {round_id[0]}")
