"""Snapshot queries: the search of one slot, and the rows made from what all slots find.

WORK and MERGE do both within a round; between rounds, actors do, with views of their slots
(:mod:`~spatialstream.stages.snapshot_queries`). It is the same code, so a query has the same row either way.

Cost: a slot's part is that of its searches (:mod:`spatialstream.local.snapshot.views`); a row is a sort of what is
found. Lists and counts may be many times the available memory; they are processed in blocks. A single short row is made
by itself (:func:`short_row`), because starting the kernels of :func:`rows_of` takes ten times as long as building it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.kinds import CODE, KINDS, Kind, having
from spatialstream.model.progress import made
from spatialstream.model.queries import Query, QueryBatch, coded, named
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.kinds import SNAPSHOT
from spatialstream.stages.kinds.base import BLOCK_BYTES, Columns, Objects, stack
from spatialstream.stages.messages import Block, columns, numbers
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.rows import RowLimits

__all__ = [
    "BLOCK_BYTES",
    "SHORT",
    "Answers",
    "answer",
    "answers",
    "items_of",
    "nbytes",
    "reach",
    "reach_of",
    "rows_of",
    "search",
    "short_row",
]

SHORT = 200
"""Maximum items of rows that :func:`short_row` builds: with some 300 both ways cost the same."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode

_TWO_PHASE = having(lambda kind: kind.has_second_phase)

Reach = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""The start of each query's range of objects, (since, t], and whether the range is all that the query asks for."""


# ------------------------------------------------------------------------------------------------------------- one slot


def reach(queries: QueryBatch, retention: int | None, watermark: int | None) -> Reach:
    """How far back snapshot queries look.

    Args:
        queries: the queries.
        retention: ms that they can look back; None: for ever.
        watermark: the watermark when they came; None: nothing had arrived. A query that comes late finds what is kept
            now, not what was kept at its time.
    """
    start: npt.NDArray[np.int64] = queries.t - queries.duration
    if retention is None:
        return start, np.ones(len(queries), np.bool_)
    floor = queries.t if watermark is None else np.maximum(queries.t, watermark)
    since = np.maximum(start, floor - retention)
    return since, since == start


def reach_of(query: Query, retention: int | None, watermark: int) -> tuple[int, bool]:
    """The result of :func:`reach` for one query."""
    asked = query.t - query.lifetime.duration
    since = asked if retention is None else max(asked, max(query.t, watermark) - retention)
    return since, since == asked


def answer(
    slot: int,
    objects: Objects,
    queries: QueryBatch,
    number: npt.NDArray[np.int64],
    looked_at: Reach,
    *,
    two_phase: bool,
) -> Iterator[Block]:
    """A slot's partials of snapshot queries; a slot without a match still reports that it was asked.

    Args:
        slot: number of the slot.
        objects: its objects.
        queries: n queries.
        number: int64[n], distinct.
        looked_at: see :func:`reach`.
        two_phase: whether complete queries are included that have a second phase.
    """
    if not len(queries):
        return
    since, whole = looked_at
    heads = columns(
        number=number, id=queries.ids, type=named(queries.code), t=queries.t, k=queries.k, since=since, whole=whole
    )
    yield slot, messages.SNAPSHOT_QUERIES, heads
    first = np.flatnonzero(_TWO_PHASE[queries.code])
    if len(first) and two_phase:
        content = queries_with_numbers(queries.take(first), number[first])
        yield slot, messages.ASKED, content.append_column("since", pa.array(since[first]))
    gathered: dict[str, list[Columns]] = {}
    sizes: dict[str, int] = {}
    for i in range(len(queries)):
        query = queries[i]
        assert isinstance(query, Query)
        kind = SNAPSHOT[query.type].partial
        part = search(objects, query, int(number[i]), int(since[i]))
        made()
        gathered.setdefault(kind, []).append(part)
        sizes[kind] = sizes.get(kind, 0) + nbytes(part)
        if sizes[kind] >= BLOCK_BYTES:
            yield from ((slot, kind, piece) for piece in _pieces(stack(gathered.pop(kind))))
            sizes[kind] = 0
    for kind, parts in gathered.items():
        yield from ((slot, kind, piece) for piece in _pieces(stack(parts)))


def search(
    objects: Objects, query: Query, number: int, since: int, *, alone: bool = False, within: float = np.inf
) -> Columns:
    """A slot's result for a snapshot query.

    Args:
        objects: of the slot.
        query: the query.
        number: identifies it.
        since: it looks at objects of (since, t].
        alone: whether no other slot is asked: of an STQ, the terms that cannot be among the first k are omitted then.
        within: an SKQ does not need farther objects than this, in the unit of distances.
    """
    found = SNAPSHOT[query.type].search(objects, query, since, alone=alone, within=within)
    return {"number": np.full(len(next(iter(found.values()))), number), **found}


def nbytes(part: Columns) -> int:
    """Bytes of what a slot has found."""
    return sum(column.nbytes for column in part.values())


def _pieces(content: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A block cut into pieces of about :data:`BLOCK_BYTES`."""
    rows = max(1, content.num_rows * BLOCK_BYTES // max(1, content.nbytes))
    for first in range(0, max(1, content.num_rows), rows):
        yield content.slice(first, rows)


# ----------------------------------------------------------------------------------------------------------- all slots


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Rows of n snapshot queries of one type.

    Attributes:
        kind: the type.
        number: int64[n], ascending.
        t: int64[n], their times.
        lines: m lines of JSON.
        row: int64[m], the query of each line: several lines are the parts of one row.
    """

    kind: str
    number: npt.NDArray[np.int64]
    t: npt.NDArray[np.int64]
    lines: pa.LargeStringArray
    row: npt.NDArray[np.int64]


def answers(
    by_kind: Mapping[str, Sequence[pa.RecordBatch]],
    spools: Mapping[str, Iterable[pa.Table]],
    space: Space,
    later: npt.NDArray[np.int64] | None,
    limits: RowLimits | None,
) -> Iterator[Answers]:
    """Rows of snapshot queries, by type and number, some at a time.

    Args:
        by_kind: heads, and the partials that do not wait, of all slots.
        spools: the partials that do, by kind, ascending by number; those of one number are in one table.
        space: of the stream.
        later: numbers of queries to skip; None: of none.
        limits: maximum length of rows; None: unlimited.
    """
    heads = by_kind.get(messages.SNAPSHOT_QUERIES, ())
    if not heads:
        return
    head = pa.concat_batches(heads)
    number, first = np.unique(numbers(head, "number"), return_index=True)
    if later is not None:
        first = first[~np.isin(number, later)]
    code = coded(head.column("type"))[first]
    for kind in KINDS:
        rows = first[code == CODE[kind.type]]
        if not len(rows):
            continue
        selected = head.take(pa.array(rows))
        stage = SNAPSHOT[kind.type]
        if stage.waits:
            groups = _answered(selected, spools[stage.partial])
        else:
            groups = iter([(selected, by_kind.get(stage.partial, ()))])
        for some, parts in groups:
            yield rows_of(kind, some, parts, space, limits)


def _answered(
    asked: pa.RecordBatch, tables: Iterable[pa.Table]
) -> Iterator[tuple[pa.RecordBatch, Sequence[pa.RecordBatch]]]:
    """Queries in the order of their numbers, some at a time, with what the slots have found for them."""
    number, first = numbers(asked, "number"), 0
    for table in tables:
        end = int(np.searchsorted(number, pc.max(table.column("number")).as_py(), "right"))
        yield asked.slice(first, end - first), table.to_batches()
        first = end
    if first < len(number):
        yield asked.slice(first), []


def rows_of(
    kind: Kind, asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space, limits: RowLimits | None
) -> Answers:
    """One row per query of one type, made from the slots' parts.

    Args:
        kind: the type.
        asked: the queries: ``number`` (ascending), ``id``, ``t``, ``k``, and :func:`reach` as ``since`` and ``whole``.
        parts: what slots have found; of a kind whose partials wait, all parts of these queries.
        space: of the stream.
        limits: maximum length of rows; None: unlimited.
    """
    made()
    whole, after = asked.column("whole"), None
    if whole.false_count:
        after = pc.if_else(whole, pa.scalar(None, pa.int64()), asked.column("since"))
    lines, row = SNAPSHOT[kind.type].lines(asked, parts, space, after, limits)
    return Answers(kind.type, numbers(asked, "number"), numbers(asked, "t"), lines, row)


def items_of(query: Query, parts: Sequence[Mapping[str, Any]]) -> int:
    """Upper bound of the items that :func:`short_row` goes through."""
    return SNAPSHOT[query.type].items(query, parts)


def short_row(query: Query, parts: Sequence[Mapping[str, Any]], after: int | None, space: Space) -> str:
    """The row of one query, with the same bytes as :func:`rows_of` gives it.

    Args:
        query: a snapshot query, with its time.
        parts: what slots have found, see :func:`search`.
        after: objects with this timestamp, ms, or an earlier one are not kept any more, and the row says so; None: all
            are kept.
        space: of the stream.
    """
    note = "" if after is None else f', "complete_after": {after}'
    head = f'{{"query": {_quoted(query.id)}, "type": "{query.type}", "t": {query.t}{note}'
    return f"{head}, {SNAPSHOT[query.type].answer(query, parts, space)}}}"
