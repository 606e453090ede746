"""Snapshot queries that are asked between rounds: which slots are asked, and the rows made from their answers.

A query goes to the slots to which the router would send it; SKQs in two phases, first to the slot nearest to them, and
then to those within the radius that it gives. All slots answer as of one round, so the rows are those that the stream
itself gives for the same queries with their times, if they come with the next round.

This module does not know how slots are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.index.version import RoutingVersion
from spatialstream.model.answer_bounds import UNBOUNDED, AnswerBounds, Counted
from spatialstream.model.arrays import numpy_view
from spatialstream.model.errors import Gone, Missing
from spatialstream.model.kinds import CODE, KINDS, Kind, QueryType
from spatialstream.model.queries import Nearest, Query, QueryBatch, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.stages import messages
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.messages import Block
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.short_rows import SHORT, items_of, short_row
from spatialstream.stages.snapshots import Answers, Columns, answers, nbytes, reach_of, rows_of, search, stack
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stages.two_phase import others_of, requests, still_to_ask
from spatialstream.stages.views import RoundId, views_here

__all__ = [
    "Begin",
    "Call",
    "Found",
    "ReadPoint",
    "Wanted",
    "answers_of",
    "blocks_of",
    "found_in",
    "found_of",
    "lines_here",
    "lines_of",
    "whole_rows",
]

Call = Callable[[Sequence[int], RoundId, pa.RecordBatch, float], Iterable[Block]]
"""Asks slots, as of a round, the queries that name them (see :func:`~spatialstream.stages.views.answer_at`), with a
timeout in seconds; returns the partials of all of them, interleaved, but in order for each slot."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadPoint:
    """What is needed to query a stream: the newest round that is done.

    Attributes:
        round: its number and revision.
        clock: the watermark: all records with this timestamp or an earlier one have arrived.
        routing: where objects are.
    """

    round: RoundId
    clock: int
    routing: Routing

    @property
    def begun(self) -> bool:
        """Whether the watermark has a value: before, nothing is known of any time."""
        return self.clock > NEVER

    @staticmethod
    def record(turn: Round) -> dict[str, Any]:
        """A round that is done, as JSON, for :meth:`of`."""
        return {
            "round": [turn.number, turn.revision],
            "clock": turn.watermark,
            "version": turn.version,
            "past": [list(each) for each in turn.past],
        }

    @classmethod
    def of(cls, record: Mapping[str, Any], load: Callable[[int], RoutingVersion]) -> ReadPoint:
        """From :meth:`record`, and a function that loads a version by its number."""
        past = tuple(PastVersion(load(number), first, last) for number, first, last in record["past"])
        number, revision = record["round"]
        return cls((number, revision), record["clock"], Routing(load(record["version"]), past=past, two_phase=True))


def answers_of(
    queries: QueryBatch,
    read_point: ReadPoint,
    space: Space,
    call: Call,
    left: Callable[[], float],
    longest: int | None = None,
    counted: Counted | None = None,
) -> Iterator[Answers]:
    """The rows of snapshot queries as of a round: numbers are positions in the batch.

    Args:
        queries: with their times, which are not after the read point's watermark.
        read_point: of the stream.
        space: of the stream.
        call: asks slots.
        left: returns the remaining seconds.
        longest: bytes of a row; a longer one says so in place of its list; None: any length.
        counted: counts what is found, as it comes.

    Raises:
        Gone: a slot has not answered as of this round.
        TooLarge: the rows would be larger than they may be.
    """
    counted = Counted(UNBOUNDED) if counted is None else counted
    routing, number = read_point.routing, np.arange(len(queries))
    row, slot = routing.route_queries(queries)
    query_block = requests(queries_with_numbers(queries, number), row, slot)
    spools = {kind: Spool("number") for kind in (messages.SNAPSHOT_LISTS, messages.SNAPSHOT_TERMS)}
    kept: list[Block] = []
    with ExitStack() as opened:
        for spool in spools.values():
            opened.callback(spool.close)

        def answered(slots: set[int], asked: pa.RecordBatch) -> None:
            with closing(_answered(call, slots, read_point.round, asked, left())) as rows:
                for found in rows:
                    counted.found(found[2].nbytes, listed=found[1] == messages.SNAPSHOT_LISTS)
                    if found[1] in spools:
                        spools[found[1]].add(found[2])
                    else:
                        kept.append(found)

        answered(set(slot.tolist()), query_block)
        again = still_to_ask(kept, routing, space)
        if again is not None:
            answered(set(again.column("slots").flatten().to_pylist()), again)
        by_kind: dict[str, list[pa.RecordBatch]] = {}
        for _, kind, content in kept:
            by_kind.setdefault(kind, []).append(content)
        lists, terms = spools.values()
        rows = answers(by_kind, lists, terms, space, None, whole_rows(longest))
        while True:
            with counted.making() as much:
                some = next(rows, None)
                if much:
                    pa.default_memory_pool().release_unused()
            if some is None:
                return
            yield some


def whole_rows(longest: int | None) -> RowLimits | None:
    """Limits of rows that are given whole, or not at all."""
    return None if longest is None else RowLimits(longest, longest)


def lines_of(
    queries: QueryBatch,
    read_point: ReadPoint,
    space: Space,
    call: Call,
    left: Callable[[], float],
    longest: int | None = None,
    bounds: AnswerBounds = UNBOUNDED,
) -> list[bytes]:
    """The rows of :func:`answers_of` in the order of the queries; what they revision is held for whoever gets them."""
    lines, counted, made = [b""] * len(queries), Counted(bounds), False
    try:
        for found in answers_of(queries, read_point, space, call, left, longest, counted):
            for number, line in zip(
                found.number.tolist(), found.lines.cast(pa.large_binary()).to_pylist(), strict=True
            ):
                counted.made(len(line))
                lines[number] = line
        made = True
    finally:
        counted.end(kept=made)
    return lines


# ---------------------------------------------------------------------------------------- small batches, without blocks


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query, and slots that it concerns.

    Attributes:
        number: identifies the query.
        query: with its time.
        since: it looks at objects of (since, t].
        slots: numbers of the slots.
        alone: whether no other slot is asked, see :func:`~spatialstream.stages.snapshots.answer`.
        within: an SKQ does not need farther objects than this: the distance of the k-th object that is known.
    """

    number: int
    query: Query
    since: int
    slots: tuple[int, ...]
    alone: bool
    within: float = np.inf

    def to_record(self) -> list[Any]:
        """As JSON, for :meth:`of`."""
        return [self.number, self.query.to_record(), self.since, self.slots, self.alone, self.within]

    @classmethod
    def of(cls, record: Sequence[Any], space: Space, rule: TermRule) -> Self:
        """From :meth:`to_record`."""
        number, query, since, slots, alone, within = record
        parsed = parse_query(query, space, rule)
        assert isinstance(parsed, Query)
        return cls(number, parsed, since, tuple(slots), alone, within)


Found = dict[int, list[Columns]]
"""What slots have found for queries, by number: one part for each local slot, and one for each remote actor. Queries
are missing for which a slot has no view of the round, or no answer."""

Begin = Callable[[Sequence[Wanted]], Callable[[], Found]]
"""Begins to ask remote slots, as of a round; the function that it returns waits for their answers."""


def found_in(place: str, round_id: RoundId, wanted: Iterable[Wanted], most: int) -> Found:
    """What slots of this process have found for queries.

    Args:
        place: of the storage of the slots' state.
        round_id: of a round that is done.
        wanted: the queries.
        most: bytes; when more has been found, the remaining queries are skipped.
    """
    found, size = Found(), 0
    for each in wanted:
        if size > most:
            break
        views = views_here(place, each.slots, round_id)
        if len(views) == len(each.slots):
            with suppress(Missing):  # a segment that was never read, and has been dropped since
                found[each.number] = [
                    search(
                        views[slot].objects, each.query, each.number, each.since, alone=each.alone, within=each.within
                    )
                    for slot in each.slots
                ]
                size += sum(map(nbytes, found[each.number]))
    return found


def blocks_of(wanted: Iterable[Wanted], found: Mapping[int, Sequence[Columns]]) -> dict[str, pa.RecordBatch]:
    """What was found, one block per query type, for :func:`found_of`."""
    gathered: dict[str, list[Columns]] = {}
    for each in wanted:
        gathered.setdefault(each.query.type.value, []).extend(found.get(each.number, ()))
    return {kind: stack(parts) for kind, parts in gathered.items() if parts}


def found_of(wanted: Iterable[Wanted], blocks: Mapping[str, pa.RecordBatch], numbers: Iterable[int]) -> Found:
    """The inverse of :func:`blocks_of`, with one part per query for all slots.

    Args:
        wanted: the queries.
        blocks: by type.
        numbers: of the queries that have been answered.
    """
    answered = set(numbers)
    return {
        each.number: [_columns_of(blocks[each.query.type.value], each.number)]
        for each in wanted
        if each.number in answered
    }


def _columns_of(block: pa.RecordBatch, number: int) -> Columns:
    first, last = np.searchsorted(messages.numbers(block, "number"), [number, number + 1]).tolist()
    part = block.slice(first, last - first)
    return {
        name: column if pa.types.is_string(column.type) else numpy_view(column)
        for name, column in zip(part.schema.names, part.columns, strict=True)
    }


def lines_here(
    queries: Sequence[Query],
    read_point: ReadPoint,
    space: Space,
    retention: int | None,
    place: str,
    most: int,
    begin: Begin = lambda wanted: dict,
    longest: int | None = None,
) -> dict[int, str]:
    """The rows of few queries, by position: slots of this process are searched, and others asked by ``begin``.

    They are those of :func:`lines_of`, by the same searches and merges, but without blocks between client and slots,
    which for few queries cost more than their answers.

    Args:
        queries: with their times, which are not after the read point's watermark.
        read_point: of the stream.
        space: of the stream.
        retention: ms that snapshot queries can look back; None: for ever.
        place: of the storage of the slots' state.
        most: maximum bytes of what is found, for all queries together; queries that would exceed it are skipped.
        begin: asks remote slots. By default it finds nothing, so that queries which concern them are skipped.
        longest: bytes of a row, see :func:`answers_of`.
    """
    routing = read_point.routing
    concerned = [routing.slots_of(query) for query in queries]
    looked_at = [reach_of(query, retention, read_point.clock) for query in queries]
    since = [each for each, _ in looked_at]

    def find(asked: Mapping[int, Sequence[int]], within: Mapping[int, float] | None = None) -> Found:
        here = views_here(place, {each for slots in asked.values() for each in slots}, read_point.round)
        mine, others = list[Wanted](), list[Wanted]()
        for i, slots in asked.items():
            alone, radius = (len(slots) == 1, np.inf) if within is None else (False, within[i])
            for wanted, some in (
                (mine, [s for s in slots if s in here]),
                (others, [s for s in slots if s not in here]),
            ):
                if some:
                    wanted.append(Wanted(i, queries[i], since[i], tuple(some), alone, radius))
        answer = begin(others) if others else dict
        parts = [(mine, found_in(place, read_point.round, mine, most)), (others, answer())]
        lost = {each.number for wanted, found in parts for each in wanted if each.number not in found}
        return {i: [part for _, found in parts for part in found.get(i, ())] for i in asked if i not in lost}

    found = find({i: slots for i, slots in enumerate(concerned) if slots})
    second, within = dict[int, list[int]](), dict[int, float]()
    for i, parts in found.items():
        match queries[i].selection:
            case Nearest(k=k) as at:
                (first,), within[i] = concerned[i], _radius(parts[0]["distance"], k)
                second[i] = others_of(queries[i], at, within[i], since[i], first, routing, space)
    second = {i: slots for i, slots in second.items() if slots}
    if second:
        more = find(second, within)
        found = {i: parts + more.get(i, []) for i, parts in found.items() if i not in second or i in more}
    lines, by_type = dict[int, str](), dict[QueryType, list[int]]()
    for i in sorted(found):
        by_type.setdefault(queries[i].type, []).append(i)
    for kind, rows in by_type.items():
        size = np.cumsum([sum(map(nbytes, found[i])) for i in rows], dtype=np.int64)
        if rows := rows[: int(np.searchsorted(size, most, "right"))]:
            most -= int(size[len(rows) - 1])
            after = {i: None if looked_at[i][1] else since[i] for i in rows}
            if sum(items_of(queries[i], found[i]) for i in rows) <= SHORT:
                short = {i: short_row(queries[i], found[i], after[i], space) for i in rows}
                lines |= short
                rows = [i for i, line in short.items() if longest is not None and _is_longer(line, longest)]
            if rows:
                made = _lines(KINDS[CODE[kind]], rows, queries, found, after, space, whole_rows(longest))
                lines |= zip(rows, made, strict=True)
    return lines


def _lines(
    kind: Kind,
    rows: Sequence[int],
    queries: Sequence[Query],
    found: Mapping[int, Sequence[Columns]],
    after: Mapping[int, int | None],
    space: Space,
    limits: RowLimits | None,
) -> list[str]:
    """The rows of queries of one type, from what was found for them."""
    some = [queries[i] for i in rows]
    asked = messages.columns(
        number=np.array(rows),
        id=pa.array([each.id for each in some], pa.string()),
        t=np.array([each.t for each in some]),
        k=np.array([each.k for each in some]),
        since=np.array([after[i] or 0 for i in rows]),
        whole=np.array([after[i] is None for i in rows]),
    )
    parts = stack([part for i in rows for part in found[i]])
    lines: list[str] = rows_of(kind, asked, [parts] if parts.num_rows else [], space, limits).lines.to_pylist()
    return lines


def _is_longer(line: str, most: int) -> bool:
    return 4 * len(line) > most and len(line.encode()) > most


def _radius(distance: npt.NDArray[np.float64], k: int) -> float:
    return float(distance[k - 1]) if len(distance) >= k else np.inf


def _answered(
    call: Call, slots: set[int], round_id: RoundId, query_block: pa.RecordBatch, seconds: float
) -> Generator[Block]:
    silent = set(slots)
    rows = iter(call(sorted(slots), round_id, query_block, seconds))
    with closing(rows) if isinstance(rows, Generator) else nullcontext():  # nobody finds what nobody takes
        for row in rows:
            silent.discard(row[0])
            yield row
    if silent:
        raise Gone(f"slots {sorted(silent)} have not answered as of round {round_id[0]}")
