"""SKQ and CKQ: the k nearest objects, once, or at each change.

A slot sends its own k nearest, and of the arriving objects those that are among its k nearest when they arrive: what is
not among the nearest of a slot is not among those of all. MERGE keeps the answers of CKQs
(:mod:`spatialstream.local.nearest.skyband`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.index.query_partition import keys_at
from spatialstream.local.base import ContinuousMerger
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.nearest.heap_index import Candidates, HeapIndex
from spatialstream.local.nearest.skyband import Arrivals, Changes, NearestMerger
from spatialstream.model.arrays import string_view
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Nearest, Query
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import StoredFields
from spatialstream.stages import messages
from spatialstream.stages.copies import Delivery
from spatialstream.stages.kinds.base import (
    Arrived,
    Columns,
    ContinuousStage,
    Lists,
    ListStage,
    Objects,
    Partial,
    cut,
    object_columns,
)
from spatialstream.stages.kinds.objects import object_lists, short_objects
from spatialstream.stages.kinds.rows import CHANGE, RowSink
from spatialstream.stages.messages import columns, numbers
from spatialstream.stages.rows import object_texts, row_lines

__all__ = ["ContinuousNearest", "SnapshotNearest"]

_OBJECT_BYTES = 80
"""Of an object that is sent to MERGE, in addition to its id."""


class SnapshotNearest(ListStage):
    """SKQ: the first k by (distance, t descending, id, x, y).

    MERGE holds what is found, at most k objects of each slot: it decides from these which slots are asked in the second
    phase (:mod:`~spatialstream.stages.two_phase`).
    """

    type, field = "SKQ", "objects"
    partial, waits = messages.SNAPSHOT_OBJECTS, False

    def search(self, objects: Objects, query: Query, since: int, *, alone: bool, within: float) -> Columns:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`."""
        at, keywords = query.selection, query.predicate.expression.literals
        assert isinstance(at, Nearest)
        return object_columns(objects.nearest(at.x, at.y, at.k, keywords, since, query.t, within, query.fields))

    def lists(self, asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space) -> Lists:
        """See :class:`~spatialstream.stages.kinds.base.ListStage`."""
        return object_lists(asked, parts, space, nearest=True)

    def texts(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> list[str]:
        """See :class:`~spatialstream.stages.kinds.base.ListStage`."""
        return short_objects(parts, query.k, space)


class ContinuousNearest(ContinuousStage):
    """CKQ: the nearest k at each of their changes.

    Attributes:
        kind: the kind's name.
        block: the kind of the blocks with what slots find.
        values: the columns of these beside number and object, as :class:`Candidates` has them.
        arrivals: what they are read as.
        order: the class of its rows among those of one timestamp.
    """

    kind: ClassVar[str] = "CKQ"
    block: ClassVar[str] = messages.ARRIVALS
    values: ClassVar[tuple[str, ...]] = ("distance",)
    arrivals: ClassVar[type[Arrivals]] = Arrivals
    order: ClassVar[int] = CHANGE
    spooled: ClassVar[Mapping[str, str]] = {messages.ARRIVALS: "t"}
    merger: ClassVar[type[ContinuousMerger]] = NearestMerger

    def match(self, index: HeapIndex, arrived: Arrived) -> Iterator[Partial]:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`."""
        objects, load = arrived.objects, arrived.load
        for arrivals in load.each("objects", index.match(objects)):
            arrivals = self._reported(index, arrivals, arrived.delivery)
            for content in load.each("objects", self._arrivals(objects, arrivals)):
                yield self.block, content

    def merge(
        self, spools: Mapping[str, Iterable[pa.Table]], merger: NearestMerger, watermark: int, sink: RowSink
    ) -> None:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`."""
        rank = 0
        for changes in self._changes(spools[self.block], merger, watermark):
            sink.count(changes.number, changes.t)
            if sink.state_only:
                continue
            places = changes.ids, changes.object_t, changes.x, changes.y
            items = object_texts(sink.space, *places, changes.distance, changes.score, changes.shown())
            lines = row_lines(
                self.kind, changes.query, changes.t, "objects", changes.offsets, items, limits=sink.limits
            )
            sink.lines.add(self.kind, changes.t, self.order, np.arange(rank, rank + len(changes)), *lines)
            rank += len(changes)

    @staticmethod
    def _reported(index: HeapIndex, arrivals: Candidates, delivery: Delivery | None) -> Candidates:
        """Those that this slot reports, if each CKQ is on one slot."""
        if delivery is None or not delivery.for_nearest or not isinstance(index, ContinuousNearestIndex):
            return arrivals
        at, t, k = index.placed(arrivals.number)
        mine = delivery.nearest_reported(arrivals.position, at, keys_at(at, t, k))
        return arrivals.take(np.flatnonzero(mine))

    def _arrivals(self, objects: ObjectBatch, arrivals: Candidates) -> Iterator[pa.RecordBatch]:
        """Objects that may be in answers, in blocks."""
        sizes = np.diff(string_view(objects.ids)[0])[arrivals.position] + _OBJECT_BYTES
        stored = objects.stored.column
        if stored is not None:
            sizes = sizes + pc.binary_length(stored).to_numpy()[arrivals.position]
        for first, last in cut(sizes):
            rows = arrivals.position[first:last]
            fields = {} if stored is None else {"stored": stored.take(pa.array(rows))}
            yield columns(
                number=arrivals.number[first:last],
                id=objects.ids.take(pa.array(rows)),
                t=objects.t[rows],
                x=objects.x[rows],
                y=objects.y[rows],
                **{name: getattr(arrivals, name)[first:last] for name in self.values},
                **fields,
            )

    def _changes(self, arrivals: Iterable[pa.Table], nearest: NearestMerger, watermark: int) -> Iterator[Changes]:
        """The changes up to ``watermark``, in order."""
        waiting = self.arrivals.concat([])
        for table in arrivals:
            if len(waiting):
                yield from nearest.changes(waiting, int(waiting.t.max()))
            waiting = self.arrivals.concat([self._unpacked(content) for content in table.to_batches()])
        yield from nearest.changes(waiting, watermark)

    def _unpacked(self, content: pa.RecordBatch) -> Arrivals:
        places = (numbers(content, name) for name in ("t", "x", "y", *self.values))
        there = "stored" in content.schema.names
        stored = StoredFields(content.num_rows, content.column("stored") if there else None)
        return self.arrivals(numbers(content, "number"), content.column("id"), *places, stored=stored)
