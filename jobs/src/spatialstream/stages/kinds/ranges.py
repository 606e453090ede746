"""SRQ and CRQ: all objects that match, in one row, or each as it arrives.

A CRQ's rows are made by the slots, because there are as many as matches; MERGE only puts them in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.range.crq import ContinuousRangeIndex, Matches
from spatialstream.local.row_counts import Counts
from spatialstream.model.arrays import Codes
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Query
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import chosen
from spatialstream.stages import messages
from spatialstream.stages.copies import Delivery
from spatialstream.stages.division import parts_of
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
from spatialstream.stages.kinds.rows import MATCH, RowSink
from spatialstream.stages.messages import columns, numbers
from spatialstream.stages.rows import match_lines, object_texts

__all__ = ["ContinuousRange", "SnapshotRange"]

_LINE_BYTES = 80
"""Of a line of a CRQ, in addition to the object's and the query's own."""


class SnapshotRange(ListStage):
    """SRQ: the objects by (t, id, x, y)."""

    type, field = "SRQ", "objects"
    partial, listed = messages.SNAPSHOT_LISTS, True

    def search(self, objects: Objects, query: Query, since: int, *, alone: bool, within: float) -> Columns:
        """See :class:`~spatialstream.stages.kinds.base.SnapshotStage`."""
        predicate = query.predicate
        keywords = predicate.expression.literals
        return object_columns(objects.range_query(predicate.region, keywords, since, query.t, query.fields))

    def lists(self, asked: pa.RecordBatch, parts: Sequence[pa.RecordBatch], space: Space) -> Lists:
        """See :class:`~spatialstream.stages.kinds.base.ListStage`."""
        return object_lists(asked, parts, space, nearest=False)

    def texts(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> list[str]:
        """See :class:`~spatialstream.stages.kinds.base.ListStage`."""
        return short_objects(parts, None, space)


class ContinuousRange(ContinuousStage):
    """CRQ: each match when it arrives. Matches are counted even when their rows have been published.

    Of a match that several slots find, one keeps it (:mod:`~spatialstream.stages.copies`).
    """

    taken = (messages.COUNTED, messages.LINES)
    copied = True

    def match(self, index: ContinuousRangeIndex, arrived: Arrived) -> Iterator[Partial]:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`."""
        objects, load = arrived.objects, arrived.load
        with load.spending("objects"):
            index.observe(objects)
        load.checked, load.matched = np.zeros(len(objects), np.int32), np.zeros(len(objects), np.int64)
        for first, matches in load.each("match", index.match(objects)):
            part = slice(first, first + len(matches.checked))
            load.checked[part] = matches.checked
            if arrived.delivery is not None and len(matches):
                with load.spending("match"):
                    matches = _reported(index, arrived, arrived.delivery, part, matches)
            if not len(matches):
                continue
            load.matched[part] = np.bincount(matches.object, minlength=len(matches.checked))
            with load.spending("results"):
                counts = Counts.of(matches.number, objects.t[part][matches.object])
            yield messages.COUNTED, columns(number=counts.numbers, rows=counts.rows, last=counts.last)
            if not arrived.state_only:
                for content in load.each("results", _lines(index, arrived, part, matches)):
                    yield messages.LINES, content

    def take(self, block: Partial, sink: RowSink) -> None:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`."""
        kind, content = block
        if kind == messages.COUNTED:
            sink.counted.add(Counts(numbers(content, "number"), numbers(content, "rows"), numbers(content, "last")))
        else:
            tie = numbers(content, "number") if "number" in content.schema.names else None
            sink.lines.add(
                "CRQ", numbers(content, "t"), MATCH, numbers(content, "seq"), content.column("line"), tie=tie
            )

    def merge(self, spools: Mapping[str, Iterable[pa.Table]], merger: None, watermark: int, sink: RowSink) -> None:
        """See :class:`~spatialstream.stages.kinds.base.ContinuousStage`: all has been taken."""


def _reported(
    index: ContinuousRangeIndex, arrived: Arrived, delivery: Delivery, part: slice, matches: Matches
) -> Matches:
    """The matches that this slot reports."""
    objects, here = arrived.objects.slice(part.start, part.stop), delivery.slice(part.start, part.stop)
    mine = here.reported(objects, matches.object, *index.keywords_of(matches))
    return matches if mine.all() else matches.take(np.flatnonzero(mine))


def _lines(index: ContinuousRangeIndex, arrived: Arrived, part: slice, matches: Matches) -> Iterator[pa.RecordBatch]:
    """The rows of matches in blocks; if MERGE is divided, each block is for one part, and has the queries' numbers."""
    objects, seq = arrived.objects.slice(part.start, part.stop), arrived.seq[part]
    stored = objects.stored.column
    texts = object_texts(arrived.space, objects.ids, objects.t, objects.x, objects.y, stored=stored)
    sizes = pc.binary_length(texts).to_numpy()[matches.object] + index.id_sizes(matches) + _LINE_BYTES
    for first, last in cut(sizes):
        for block in _of_parts(matches.slice(first, last), arrived.mergers):
            shown = None if stored is None else index.shown_of(block)
            if shown is None:
                lines = match_lines(index.ids_of(block), objects.t, texts, block.object)
            else:
                lines = _chosen_lines(index, arrived.space, objects, block, *shown)
            several = arrived.mergers > 1 or arrived.delivery is not None  # parts, or slots that match one object
            numbered = {"number": block.number} if several else {}
            yield columns(t=objects.t[block.object], seq=seq[block.object], line=lines, **numbered)


def _chosen_lines(
    index: ContinuousRangeIndex,
    space: Space,
    objects: ObjectBatch,
    matches: Matches,
    choice: Codes,
    choices: Sequence[tuple[str, ...]],
) -> pa.StringArray | pa.LargeStringArray:
    """The lines of matches of which some show not all fields: each object is written once for each choice."""
    pairs, which = np.unique(np.stack([choice, matches.object]), axis=1, return_inverse=True)
    matched = objects.take(pairs[1].astype(np.int64))
    stored: pa.LargeStringArray = matched.stored.kept(True).column
    for number in np.unique(pairs[0][pairs[0] >= 0]).tolist():
        here = pa.array(pairs[0] == number)
        stored = pc.replace_with_mask(stored, here, chosen(stored.filter(here), choices[number]))
    texts = object_texts(space, matched.ids, matched.t, matched.x, matched.y, stored=stored)
    return match_lines(index.ids_of(matches), matched.t, texts, which.reshape(-1).astype(np.int32))


def _of_parts(matches: Matches, parts: int) -> Iterator[Matches]:
    """The matches of each part of MERGE, in order."""
    if parts == 1:
        yield matches
        return
    part = parts_of(matches.number, parts)
    yield from (matches.take(np.flatnonzero(part == each)) for each in np.unique(part).tolist())
