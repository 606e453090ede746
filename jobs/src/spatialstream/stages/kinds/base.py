"""What the stages do for a kind of query: two interfaces, one for snapshot kinds and one for continuous kinds.

WORK and MERGE know only these. A kind has one object of one of them, in the tables of
:mod:`spatialstream.stages.kinds`.

Invariant: the rows that MERGE makes are a function of the objects and the query, not of their distribution: over slots
and leaves, over the blocks of a slot, or over rounds. So what slots find has to be mergeable in any order, and its
merger has to break every tie by what is in the rows. ``spatialstream.oracle`` says which rows these are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.base import ContinuousMerger
from spatialstream.local.snapshot.rows import ObjectRows
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.views import ObjectsView
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Query
from spatialstream.model.space import Space
from spatialstream.stages.copies import Delivery
from spatialstream.stages.kinds.rows import RowSink
from spatialstream.stages.load import Load
from spatialstream.stages.messages import columns, numbers
from spatialstream.stages.rows import RowLimits, row_lines

__all__ = [
    "BLOCK_BYTES",
    "Arrived",
    "Columns",
    "ContinuousStage",
    "ListStage",
    "Lists",
    "Objects",
    "Partial",
    "RowsOf",
    "SnapshotStage",
    "cut",
    "first_of_each",
    "found_columns",
    "no_lists",
    "object_columns",
    "one_table",
    "stack",
    "stored_texts",
]

BLOCK_BYTES = 4 << 20
"""Approximate size of a block of partials."""

Objects = SegmentStore | ObjectsView
"""A slot's objects: the current ones, or those after a round."""

Columns = dict[str, Any]
"""Named numpy or Arrow arrays of one length: what a slot has found for a query."""

Partial = tuple[str, pa.RecordBatch]
"""A block for MERGE: its kind (:mod:`~spatialstream.stages.messages`), and its content."""

RowsOf = tuple[pa.LargeStringArray, npt.NDArray[np.int64]]
"""m lines of n rows, and int64[m], the row of each: several lines are the parts of one row."""

Lists = tuple[npt.NDArray[np.int32], pa.StringArray]
"""The lists of n rows: (offsets int32[n + 1], items as JSON)."""


# ----------------------------------------------------------------------------------------------------- snapshot queries


class SnapshotStage(ABC):
    """A kind of snapshot queries: the search of one slot, and the rows made of what all slots find.

    Attributes:
        partial: the kind of the blocks with what slots find; each kind of query has its own.
        waits: whether these blocks, which may be many, wait in a spool until those of all slots are in, and are merged
            some queries at a time. Otherwise MERGE holds them.
        listed: whether all that is found is in the row.
    """

    partial: ClassVar[str]
    waits: ClassVar[bool] = True
    listed: ClassVar[bool] = False

    @abstractmethod
    def search(self, objects: Objects, query: Query, since: int, *, alone: bool, within: float) -> Columns:
        """A slot's result for a query; the columns are those of its blocks, without ``number``.

        Args:
            objects: of the slot.
            query: the query.
            since: it looks at objects of (since, t].
            alone: whether no other slot is asked.
            within: objects that are farther than this need not be found, if the query is about a point.
        """

    @abstractmethod
    def lines(
        self,
        asked: pa.RecordBatch,
        parts: Sequence[pa.RecordBatch],
        space: Space,
        after: pa.Int64Array | None,
        limits: RowLimits | None,
    ) -> RowsOf:
        """The rows of queries, one each, made column by column.

        Args:
            asked: n queries: ``number`` (ascending), ``id``, ``t``, ``k``.
            parts: what slots have found for them, none of it empty.
            space: of the stream.
            after: objects with this timestamp or an earlier one are not kept any more, if not null.
            limits: maximum length of rows; None: unlimited.
        """

    @abstractmethod
    def answer(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> str:
        """The field with the answer of one query, ``"name": value``, with the same bytes as in :meth:`lines`.

        For a single short row, starting the kernels of :meth:`lines` takes ten times as long as making the row.
        """

    def items(self, query: Query, parts: Sequence[Mapping[str, Any]]) -> int:
        """Upper bound of the items that :meth:`answer` goes through."""
        return sum(len(part["number"]) for part in parts)


class ListStage(SnapshotStage):
    """A kind whose answer is a list.

    Attributes:
        type: the kind's name.
        field: the field of the rows that has the list.
    """

    type: ClassVar[str]
    field: ClassVar[str]

    @abstractmethod
    def lists(self, asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space) -> Lists:
        """The list of each query; see :meth:`lines`, but there is at least one part."""

    @abstractmethod
    def texts(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> list[str]:
        """The items of one query's list, as JSON."""

    def lines(
        self,
        asked: pa.RecordBatch,
        parts: Sequence[pa.RecordBatch],
        space: Space,
        after: pa.Int64Array | None,
        limits: RowLimits | None,
    ) -> RowsOf:
        """See :class:`SnapshotStage`."""
        offsets, items = self.lists(asked, parts, space) if parts else no_lists(asked)
        t = numbers(asked, "t")
        return row_lines(self.type, asked.column("id"), t, self.field, offsets, items, after, limits)

    def answer(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> str:
        """See :class:`SnapshotStage`."""
        return f'"{self.field}": [{", ".join(self.texts(query, parts, space))}]'


def no_lists(asked: pa.RecordBatch) -> Lists:
    """An empty list for each query."""
    return np.zeros(asked.num_rows + 1, np.int32), pa.array([], pa.string())


def first_of_each(
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


def found_columns(number: int, rows: ObjectRows) -> Columns:
    """Objects that a query has found, as the columns of a :data:`~spatialstream.stages.messages.SNAPSHOT_OBJECTS`."""
    return {"number": np.full(len(rows), number), **object_columns(rows)}


def object_columns(rows: ObjectRows) -> Columns:
    """Objects that a query has found, without its number."""
    return {
        "id": rows.ids,
        "t": rows.t,
        "x": rows.x,
        "y": rows.y,
        "distance": np.zeros(len(rows)) if rows.distance is None else rows.distance,
        **({} if rows.stored is None else {"stored": rows.stored}),
    }


def _stored_of(part: Mapping[str, Any]) -> pa.LargeStringArray:
    """The column ``stored`` of what a slot has found; one that has found nothing does not know of it."""
    if "stored" in part:
        return part["stored"]
    return pa.array([""] * len(part["t"]), pa.large_string())


def stored_texts(part: Mapping[str, Any]) -> list[str]:
    """As :func:`_stored_of`, as texts: no column is made for what has none."""
    texts: list[str] = part["stored"].to_pylist() if "stored" in part else [""] * len(part["t"])
    return texts


def one_table(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """What slots have found in one batch; the fields that the stream keeps are there if one of them has any."""
    if any("stored" in part.schema.names for part in parts):
        parts = [
            part
            if "stored" in part.schema.names
            else part.append_column("stored", pa.array([""] * part.num_rows, pa.large_string()))
            for part in parts
        ]
        order = parts[0].schema.names
        parts = [part.select(order) for part in parts]
    return pa.concat_batches(parts)


def stack(parts: Sequence[Columns]) -> pa.RecordBatch:
    """Parts with the same columns, one below the other."""
    if any("stored" in part for part in parts):
        parts = [{**part, "stored": _stored_of(part)} for part in parts]
    stacked = {}
    for name in parts[0]:
        pieces = [part[name] for part in parts]
        is_arrow = isinstance(pieces[0], pa.Array)
        stacked[name] = pa.concat_arrays(pieces) if is_arrow else np.concatenate(pieces)
    return columns(**stacked)


# --------------------------------------------------------------------------------------------------- continuous queries


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """The objects that have come to a slot in a round.

    Attributes:
        objects: in order of time.
        seq: int64[n], their numbers in the stream.
        space: of the stream.
        mergers: number of parts of MERGE.
        state_only: the rows of this round have been published, so only what changes MERGE's state is needed.
        load: takes the time that the work takes.
        delivery: how they came, if there may be copies among them, see :mod:`~spatialstream.stages.copies`.
    """

    objects: ObjectBatch
    seq: npt.NDArray[np.int64]
    space: Space
    mergers: int
    state_only: bool
    load: Load
    delivery: Delivery | None = None

    def at_home(self) -> Arrived:
        """Without the objects that are copies."""
        if self.delivery is None or self.delivery.home.all():
            return self
        rows = np.flatnonzero(self.delivery.home)
        return replace(self, objects=self.objects.take(rows), seq=self.seq[rows], delivery=self.delivery.take(rows))


class ContinuousStage(ABC):
    """A kind of continuous queries: what a slot finds in a round, and the rows that MERGE makes of it.

    Attributes:
        taken: kinds of blocks that MERGE takes as they come, in the order in which a slot made them.
        spooled: kinds of blocks that wait in a spool until all are in -> the column by which these are then read.
        merger: what MERGE keeps of the queries from round to round; None: nothing.
        copied: whether copies of objects concern them; otherwise they are matched with objects at home alone.
    """

    taken: ClassVar[tuple[str, ...]] = ()
    spooled: ClassVar[Mapping[str, str]] = {}
    merger: ClassVar[type[ContinuousMerger] | None] = None
    copied: ClassVar[bool] = False

    @abstractmethod
    def match(self, index: Any, arrived: Arrived) -> Iterator[Partial]:
        """Add the objects to the slot's index of these queries; yields blocks with a column ``number`` for MERGE."""

    def steps(self, index: Any, watermark: int) -> Iterator[Partial]:
        """What is due up to the watermark after all objects; by default nothing."""
        return iter(())

    def take(self, block: Partial, sink: RowSink) -> None:
        """MERGE: a block of the kinds ``taken``."""
        raise NotImplementedError(block[0])

    @abstractmethod
    def merge(self, spools: Mapping[str, Iterable[pa.Table]], merger: Any, watermark: int, sink: RowSink) -> None:
        """MERGE: the rows of the round, of the blocks in the spools, and the state after it.

        Args:
            spools: by kind of block; a table has all rows of one or several values of the column.
            merger: the state, or None.
            watermark: of the round.
            sink: takes the rows, in the order of (t, rank), and counts them.
        """


def cut(sizes: npt.NDArray[np.integer], most: int | None = None) -> Iterator[tuple[int, int]]:
    """Cuts (first, last, exclusive) of rows of these sizes: as many rows as fit into ``most`` each, at least one."""
    most = BLOCK_BYTES if most is None else most
    ends = np.cumsum(sizes, dtype=np.int64)
    first, given = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, given + most, "right")))
        yield first, last
        first, given = last, int(ends[last - 1])
