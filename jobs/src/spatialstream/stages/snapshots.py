"""Snapshot queries (SRQ, SKQ, STQ): the search of one slot, and the rows made from what all slots find.

WORK and MERGE do both within a round; between rounds, views (:mod:`~spatialstream.stages.views`) and their clients
(:mod:`~spatialstream.stages.snapshot_queries`) do. It is the same code, so a query has the same row either way.

Cost: a slot's part is that of its searches (:mod:`spatialstream.local.snapshot.views`); a row is a sort of what is
found. Lists and counts may be many times the available memory; they are processed in blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.snapshot.rows import ObjectRows
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.views import ObjectsView
from spatialstream.model.hashing import distinct
from spatialstream.model.kinds import CODE, KINDS, Kind, QueryType, Route, Selects, having
from spatialstream.model.progress import made
from spatialstream.model.queries import Everything, Nearest, Query, QueryBatch, TopTerms, coded, named
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.messages import Block, columns, numbers
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.rows import RowLimits, object_texts, row_lines, term_texts

__all__ = [
    "BLOCK_BYTES",
    "Answers",
    "Columns",
    "Objects",
    "answer",
    "answers",
    "found_columns",
    "nbytes",
    "reach",
    "reach_of",
    "rows_of",
    "search",
    "stack",
]

BLOCK_BYTES = 4 << 20
"""Approximate size of a block of partials."""

_NEAREST = having(lambda kind: kind.route is Route.NEAREST)

Objects = SegmentStore | ObjectsView
"""A slot's objects: the current ones, or those after a round."""

Columns = dict[str, Any]
"""Named numpy or Arrow arrays of one length: what a slot has found for a query."""

_PARTIALS: Mapping[type, str] = {
    Everything: messages.SNAPSHOT_LISTS,
    Nearest: messages.SNAPSHOT_OBJECTS,
    TopTerms: messages.SNAPSHOT_TERMS,
}

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
    asked: npt.NDArray[np.int64] = queries.t - queries.duration
    if retention is None:
        return asked, np.ones(len(queries), np.bool_)
    floor = queries.t if watermark is None else np.maximum(queries.t, watermark)
    since = np.maximum(asked, floor - retention)
    return since, since == asked


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
    alone: npt.NDArray[np.bool_] | None = None,
) -> Iterator[Block]:
    """A slot's partials of snapshot queries; a slot without a match still reports that it was asked.

    Args:
        slot: number of the slot.
        objects: its objects.
        queries: n queries.
        number: int64[n], distinct.
        looked_at: see :func:`reach`.
        two_phase: whether complete SKQs are included, for a second phase.
        alone: bool[n], the queries for which no other slot is asked: for such an STQ, the terms that cannot be among
            the first k are omitted; None: not known.
    """
    if not len(queries):
        return
    since, whole = looked_at
    heads = columns(
        number=number, id=queries.ids, type=named(queries.code), t=queries.t, k=queries.k, since=since, whole=whole
    )
    yield slot, messages.SNAPSHOT_QUERIES, heads
    nearest = np.flatnonzero(_NEAREST[queries.code])
    if len(nearest) and two_phase:
        content = queries_with_numbers(queries.take(nearest), number[nearest])
        yield slot, messages.ASKED, content.append_column("since", pa.array(since[nearest]))
    gathered: dict[str, list[Columns]] = {}
    sizes: dict[str, int] = {}
    for i in range(len(queries)):
        query = queries[i]
        assert isinstance(query, Query)
        kind = _PARTIALS[type(query.selection)]
        part = search(objects, query, int(number[i]), int(since[i]), alone=alone is not None and bool(alone[i]))
        made()
        gathered.setdefault(kind, []).append(part)
        sizes[kind] = sizes.get(kind, 0) + nbytes(part)
        if sizes[kind] >= BLOCK_BYTES:
            yield from ((slot, kind, piece) for piece in _pieces(stack(gathered.pop(kind))))
            sizes[kind] = 0
    for kind, parts in gathered.items():
        yield from ((slot, kind, piece) for piece in _pieces(stack(parts)))


def search(objects: Objects, query: Query, number: int, since: int, *, alone: bool, within: float = np.inf) -> Columns:
    """A slot's result for a snapshot query.

    Args:
        objects: of the slot.
        query: the query.
        number: identifies it.
        since: it looks at objects of (since, t].
        alone: see :func:`answer`.
        within: an SKQ does not need farther objects than this, in the unit of distances.
    """
    region, keywords = query.predicate.region, query.predicate.expression.literals
    match query.selection:
        case TopTerms(k):
            terms, counts = objects.term_counts(region, keywords, since, query.t, k if alone else None)
            return {"number": np.full(len(counts), number), "term": terms, "count": counts}
        case Nearest(x, y, k):
            return found_columns(number, objects.nearest(x, y, k, keywords, since, query.t, within))
        case _:
            return found_columns(number, objects.range_query(region, keywords, since, query.t))


def nbytes(part: Columns) -> int:
    """Bytes of what a slot has found."""
    return sum(column.nbytes for column in part.values())


def _pieces(content: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A block cut into pieces of about :data:`BLOCK_BYTES`."""
    rows = max(1, content.num_rows * BLOCK_BYTES // max(1, content.nbytes))
    for first in range(0, max(1, content.num_rows), rows):
        yield content.slice(first, rows)


def found_columns(number: int, rows: ObjectRows) -> Columns:
    """Objects that a query has found, as the columns of a :data:`~spatialstream.stages.messages.SNAPSHOT_OBJECTS`."""
    return {
        "number": np.full(len(rows), number),
        "id": rows.ids,
        "t": rows.t,
        "x": rows.x,
        "y": rows.y,
        "distance": np.zeros(len(rows)) if rows.distance is None else rows.distance,
    }


def stack(parts: Sequence[Columns]) -> pa.RecordBatch:
    """Parts with the same columns, one below the other."""
    stacked = {}
    for name in parts[0]:
        pieces = [part[name] for part in parts]
        is_arrow = isinstance(pieces[0], pa.Array)
        stacked[name] = pa.concat_arrays(pieces) if is_arrow else np.concatenate(pieces)
    return columns(**stacked)


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

    kind: QueryType
    number: npt.NDArray[np.int64]
    t: npt.NDArray[np.int64]
    lines: pa.LargeStringArray
    row: npt.NDArray[np.int64]


def answers(
    by_kind: Mapping[str, Sequence[pa.RecordBatch]],
    lists: Iterable[pa.Table],
    terms: Iterable[pa.Table],
    space: Space,
    later: npt.NDArray[np.int64] | None,
    limits: RowLimits | None,
) -> Iterator[Answers]:
    """Rows of snapshot queries, by type and number, some at a time.

    Args:
        by_kind: heads, and nearest objects, of all slots.
        lists: objects of SRQs, ascending by number; those of one number are in one table.
        terms: counts of STQs, likewise.
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
        asked = head.take(pa.array(rows))
        if kind.selects is Selects.NEAREST:
            groups = iter([(asked, by_kind.get(messages.SNAPSHOT_OBJECTS, ()))])
        else:
            groups = _answered(asked, terms if kind.selects is Selects.TERMS else lists)
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
        parts: what slots have found; for STQs and SRQs all parts of these queries.
        space: of the stream.
        limits: maximum length of rows; None: unlimited.
    """
    made()
    is_terms = kind.selects is Selects.TERMS
    offsets, items = _no_lists(asked)
    if parts and is_terms:
        offsets, items = _top_terms(asked, parts)
    elif parts:
        offsets, items = _objects(asked, parts, space, nearest=kind.selects is Selects.NEAREST)
    t = numbers(asked, "t")
    whole, after = asked.column("whole"), None
    if whole.false_count:
        after = pc.if_else(whole, pa.scalar(None, pa.int64()), asked.column("since"))
    field = "terms" if is_terms else "objects"
    lines, row = row_lines(kind.type.value, asked.column("id"), t, field, offsets, items, after, limits)
    return Answers(kind.type, numbers(asked, "number"), t, lines, row)


_Lists = tuple[npt.NDArray[np.int32], pa.StringArray]
"""The lists of n rows: (offsets int32[n + 1], items)."""


def _no_lists(asked: pa.RecordBatch) -> _Lists:
    return np.zeros(asked.num_rows + 1, np.int32), pa.array([], pa.string())


def _first_of_each(
    asked: pa.RecordBatch, owners: npt.NDArray[np.int64], limit: npt.NDArray[np.int64] | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The lists of queries in rows sorted by query: (offsets, rows), at most ``limit`` rows per query."""
    number = numbers(asked, "number")
    low, high = np.searchsorted(owners, number, "left"), np.searchsorted(owners, number, "right")
    length = high - low if limit is None else np.minimum(high - low, limit)
    offsets = np.zeros(len(number) + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    rows = np.repeat(low - offsets[:-1], length) + np.arange(offsets[-1])
    return offsets, rows


def _objects(asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space, *, nearest: bool) -> _Lists:
    """Objects of all slots: of an SRQ by (t, id, x, y), of an SKQ the first k by (distance, t descending, id, x, y)."""
    objects = pa.concat_batches(parts)
    number, t = numbers(objects, "number"), numbers(objects, "t")
    order = _sorted_by(number, numbers(objects, "distance") if nearest else t)
    if order is None:
        rank = pa.array(-t if nearest else t)
        names = ["number", "distance", "rank", "id", "x", "y"] if nearest else ["number", "rank", "id", "x", "y"]
        keys = pa.table(objects.append_column("rank", rank)).select(names)
        order = pc.sort_indices(keys, [(name, "ascending") for name in names]).to_numpy()
    offsets, rows = _first_of_each(asked, number[order], numbers(asked, "k").astype(np.int64) if nearest else None)
    if not len(rows):
        return offsets, pa.array([], pa.string())
    rows = order[rows]
    x, y = numbers(objects, "x")[rows], numbers(objects, "y")[rows]
    distance = numbers(objects, "distance")[rows] if nearest else None
    return offsets, object_texts(space, objects.column("id").take(pa.array(rows)), t[rows], x, y, distance)


def _sorted_by(major: npt.NDArray[np.int64], minor: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """The order by two keys; None if rows are equal in both, and more keys are needed."""
    order = np.lexsort((minor, major))
    major, minor = major[order], minor[order]
    return None if ((major[1:] == major[:-1]) & (minor[1:] == minor[:-1])).any() else order


def _top_terms(asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch]) -> _Lists:
    """Counts of a term summed over slots, then the first k by (count descending, term)."""
    counted = pa.concat_batches(parts)
    # by codes, because Arrow's hash of strings is not keyed
    codes, firsts = distinct(counted.column("term"))
    place = np.searchsorted(numbers(asked, "number"), numbers(counted, "number"))
    keys, inverse = np.unique(place * len(firsts) + codes, return_inverse=True)
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, numbers(counted, "count"))
    place, codes = np.divmod(keys, len(firsts))
    # only terms whose count is among the first k have to be sorted by term
    order = np.lexsort((-counts, place))
    place, codes, counts = place[order], codes[order], counts[order]
    starts = np.searchsorted(place, np.arange(asked.num_rows))
    k = numbers(asked, "k").astype(np.int64)
    last = np.minimum(starts + k, np.append(starts[1:], len(place))) - 1
    kept = np.flatnonzero(counts >= counts[last[place]])
    place, counts = place[kept], counts[kept]
    terms = counted.column("term").take(pa.array(firsts[codes[kept]]))
    ranked = pa.table([pa.array(place), pa.array(-counts), terms], ["place", "rank", "term"])
    order = pc.sort_indices(ranked, [(name, "ascending") for name in ranked.column_names]).to_numpy()
    offsets, rows = _first_of_each(asked, numbers(asked, "number")[place[order]], k)
    if not len(rows):
        return offsets, pa.array([], pa.string())
    rows = order[rows]
    return offsets, term_texts(terms.take(pa.array(rows)), counts[rows])
