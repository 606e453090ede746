"""WORK: what one slot does with the blocks of one epoch.

Timestamps alone decide what counts for which query, so within an epoch there is no need to interleave: all
registrations and cancellations take effect first, then all objects are matched (each continuous query knows its
lifetime), inserted, and then snapshot queries are answered (each looks no further than its own t), and at last the
steps of CTQs up to the epoch's end. The order of the design, control records, query changes, objects, snapshots, ticks,
is thus kept by construction.

A slot's state is restored from the manifest of the epoch before, unless this very process did that epoch: then the
structures are still in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.ckq import ContinuousNearestIndex
from spatialstream.local.crq import ContinuousRangeIndex
from spatialstream.local.ctq import ContinuousTermsIndex, StepPartials
from spatialstream.local.segments import SegmentStore
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.arrays import numpy_view
from spatialstream.model.errors import StateError
from spatialstream.model.objects import ObjectBatch, terms_from_arrow
from spatialstream.model.queries import TYPES, Nearest, Query, QueryBatch, QueryType, TopTerms
from spatialstream.model.space import Space
from spatialstream.pipeline import messages
from spatialstream.pipeline.files import StateFolder
from spatialstream.pipeline.messages import columns, numbers
from spatialstream.pipeline.results import match_lines, object_texts
from spatialstream.pipeline.route import Row

__all__ = ["SlotIndexes", "WorkSettings", "forget", "steps_from_arrow", "steps_to_arrow", "work"]

_LINES_PER_BLOCK = 500_000
"""Bounds a block of result lines to some 100 MB, far below the 2 GiB of an Arrow string array."""

_CODE = {kind: TYPES.index(kind) for kind in QueryType}


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """What a slot has to know.

    Attributes:
        space: of the stream.
        interval: Δ in ms: objects are dropped in units of it.
        retention: ms that snapshot queries can look back; None: for ever.
    """

    space: Space
    interval: int
    retention: int | None


class SlotIndexes:
    """All structures of one slot."""

    def __init__(self, settings: WorkSettings) -> None:
        space = settings.space
        self.settings = settings
        self.objects = SegmentStore(space, None if settings.retention is None else settings.interval)
        self.range = ContinuousRangeIndex(space)
        self.nearest = ContinuousNearestIndex(space)
        self.terms = ContinuousTermsIndex(space)

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        return {
            "objects": self.objects.checkpoint(write),
            "range": self.range.checkpoint(write),
            "nearest": self.nearest.checkpoint(write),
            "terms": self.terms.checkpoint(write),
        }

    @classmethod
    def restore(cls, settings: WorkSettings, manifest: Manifest, read: ReadFile) -> SlotIndexes:
        """See :mod:`spatialstream.local.state`."""
        self = cls.__new__(cls)
        self.settings = settings
        self.objects = SegmentStore.restore(settings.space, manifest["objects"], read)
        self.range = ContinuousRangeIndex.restore(settings.space, manifest["range"], read)
        self.nearest = ContinuousNearestIndex.restore(settings.space, manifest["nearest"], read)
        self.terms = ContinuousTermsIndex.restore(settings.space, manifest["terms"], read)
        return self


_kept: dict[tuple[str, int], tuple[int, SlotIndexes]] = {}
"""Structures that this process has in memory: (checkpoint, slot) -> (epoch that they are the state after,
structures)."""


def work(slot: int, rows: Sequence[Row], settings: WorkSettings, checkpoint: Path) -> Iterator[Row]:
    """Apply one epoch's blocks to one slot and give its partials; the slot's state is then that of the epoch.

    Raises:
        StateError: a router partition's marker is missing, or the state of the epoch before is.
    """
    epoch, upto = _end_of_epoch(slot, rows)
    state = StateFolder(checkpoint, f"slot-{slot:04d}", epoch)
    known_epoch, indexes = _kept.pop((str(checkpoint), slot), (None, None))
    if indexes is None or known_epoch != epoch - 1:
        manifest = state.previous()
        indexes = SlotIndexes(settings) if manifest is None else SlotIndexes.restore(settings, manifest, state.read)
    yield from _apply(slot, rows, indexes, upto)
    state.commit(indexes.checkpoint(state.write))
    _kept[str(checkpoint), slot] = epoch, indexes
    yield slot, messages.MARKER, messages.marker(epoch, upto, 1)


def forget() -> None:
    """Drop what this process has in memory, as if it had died: the next epoch restores from disk."""
    _kept.clear()


def _end_of_epoch(slot: int, rows: Sequence[Row]) -> tuple[int, int]:
    markers = [content for _, kind, content in rows if kind == messages.MARKER]
    if not markers or len(markers) != markers[0].column("partitions")[0].as_py():
        raise StateError(f"slot {slot} has {len(markers)} end-of-epoch markers: blocks of the epoch are missing")
    ends = {(marker.column("epoch")[0].as_py(), marker.column("upto")[0].as_py()) for marker in markers}
    if len(ends) != 1:
        raise StateError(f"slot {slot} has blocks of several epochs at once: {sorted(ends)}")
    return ends.pop()


def _apply(slot: int, rows: Sequence[Row], indexes: SlotIndexes, upto: int) -> Iterator[Row]:
    by_kind: dict[str, list[pa.RecordBatch]] = {}
    for _, kind, content in rows:
        by_kind.setdefault(kind, []).append(content)
    for content in by_kind.get(messages.REJECTED, []):
        yield slot, messages.REJECTED, content
    snapshots: list[tuple[QueryBatch, npt.NDArray[np.int64]]] = []
    for content in by_kind.get(messages.REGISTERED, []):
        number = numbers(content, "number")
        queries = QueryBatch.from_arrow(content.drop_columns(["number"]))
        _register(indexes, queries, number)
        snapshots.append(_of_types(queries, number, QueryType.SRQ, QueryType.SKQ, QueryType.STQ))
        if slot == 0:  # every slot knows every CKQ; one of them tells the merger
            yield from _forward(slot, queries, number)
    for content in by_kind.get(messages.ENDED, []):
        number, t = numbers(content, "number"), numbers(content, "t")
        for index in (indexes.range, indexes.nearest, indexes.terms):
            index.end_at(number, t)
        if slot == 0:
            yield slot, messages.ENDED, content
    parts = sorted(by_kind.get(messages.OBJECTS, []), key=lambda content: content.column("seq")[0].as_py())
    if parts:
        seq = np.concatenate([numbers(part, "seq") for part in parts])
        objects = ObjectBatch.concat([ObjectBatch.from_arrow(part.drop_columns(["seq"])) for part in parts])
        yield from _match(slot, indexes, objects, seq)
    for queries, number in snapshots:
        yield from _answer(slot, indexes, queries, number)
    yield from _step(slot, indexes, upto)
    _expire(indexes, upto)


def _of_types(
    queries: QueryBatch, number: npt.NDArray[np.int64], *types: QueryType
) -> tuple[QueryBatch, npt.NDArray[np.int64]]:
    rows = np.flatnonzero(np.isin(queries.code, [_CODE[kind] for kind in types]))
    return queries.take(rows), number[rows]


def _register(indexes: SlotIndexes, queries: QueryBatch, number: npt.NDArray[np.int64]) -> None:
    crq, crq_number = _of_types(queries, number, QueryType.CRQ)
    if len(crq):
        end = crq.t + crq.duration
        indexes.range.register(crq_number, crq.ids, crq.regions, crq.keywords.compact(), crq.t, end)
    ckq, ckq_number = _of_types(queries, number, QueryType.CKQ)
    if len(ckq):
        indexes.nearest.register(ckq_number, ckq, ckq.t, ckq.t + ckq.duration)
    ctq, ctq_number = _of_types(queries, number, QueryType.CTQ)
    if len(ctq):
        indexes.terms.register(ctq_number, ctq.ids, ctq, ctq.t, ctq.t + ctq.duration)


def _forward(slot: int, queries: QueryBatch, number: npt.NDArray[np.int64]) -> Iterator[Row]:
    ckq, ckq_number = _of_types(queries, number, QueryType.CKQ)
    if len(ckq):
        yield slot, messages.REGISTERED, ckq.to_arrow().append_column("number", pa.array(ckq_number))


def _match(slot: int, indexes: SlotIndexes, objects: ObjectBatch, seq: npt.NDArray[np.int64]) -> Iterator[Row]:
    indexes.range.observe(objects)
    matches = indexes.range.match(objects)
    if len(matches):
        texts = object_texts(indexes.settings.space, objects.ids, objects.t, objects.x, objects.y)
        ids = indexes.range.ids_of(matches)
        for first in range(0, len(matches), _LINES_PER_BLOCK):
            which = matches.object[first : first + _LINES_PER_BLOCK]
            lines = match_lines(ids.slice(first, len(which)), objects.t, texts, which)
            yield slot, messages.LINES, columns(t=objects.t[which], seq=seq[which], line=lines)
    arrivals = indexes.nearest.update(objects)
    if len(arrivals):
        rows = arrivals.position
        content = columns(
            number=arrivals.number,
            id=objects.ids.take(pa.array(rows)),
            t=objects.t[rows],
            x=objects.x[rows],
            y=objects.y[rows],
            distance=arrivals.distance,
        )
        yield slot, messages.ARRIVALS, content
    indexes.terms.update(objects)
    indexes.objects.append(objects)


def _answer(slot: int, indexes: SlotIndexes, queries: QueryBatch, number: npt.NDArray[np.int64]) -> Iterator[Row]:
    """This slot's partials of snapshot queries; a slot without a match still says that it was asked."""
    if not len(queries):
        return
    heads = columns(number=number, id=queries.ids, code=queries.code, t=queries.t, k=queries.k)
    yield slot, messages.SNAPSHOT_QUERIES, heads
    object_parts: list[dict[str, Any]] = []
    term_parts: list[dict[str, Any]] = []
    for i in range(len(queries)):
        query = queries[i]
        assert isinstance(query, Query)
        since = query.t - query.lifetime.duration
        if indexes.settings.retention is not None:
            since = max(since, query.t - indexes.settings.retention)
        region, keywords = query.predicate.region, list(query.predicate.keywords)
        match query.selection:
            case TopTerms():
                terms, counts = indexes.objects.term_counts(region, keywords, since, query.t)
                term_parts.append({"number": np.full(len(counts), number[i]), "term": terms, "count": counts})
                continue
            case Nearest(x, y, k):
                found = indexes.objects.nearest(x, y, k, keywords, since, query.t)
            case _:
                found = indexes.objects.range_query(region, keywords, since, query.t)
        object_parts.append(
            {
                "number": np.full(len(found), number[i]),
                "id": found.ids,
                "t": found.t,
                "x": found.x,
                "y": found.y,
                "distance": np.zeros(len(found)) if found.distance is None else found.distance,
            }
        )
    if object_parts:
        yield slot, messages.SNAPSHOT_OBJECTS, _stack(object_parts)
    if term_parts:
        yield slot, messages.SNAPSHOT_TERMS, _stack(term_parts)


def _stack(parts: list[dict[str, Any]]) -> pa.RecordBatch:
    """Parts with the same columns, one below the other."""
    stacked = {}
    for name in parts[0]:
        pieces = [part[name] for part in parts]
        is_arrow = isinstance(pieces[0], pa.Array)
        stacked[name] = pa.concat_arrays(pieces) if is_arrow else np.concatenate(pieces)
    return columns(**stacked)


def _step(slot: int, indexes: SlotIndexes, upto: int) -> Iterator[Row]:
    partials = indexes.terms.step(upto)
    if len(partials):
        yield slot, messages.STEPS, steps_to_arrow(partials)


def steps_to_arrow(partials: StepPartials) -> pa.RecordBatch:
    """The content of a :data:`~spatialstream.pipeline.messages.STEPS` block."""
    terms = partials.terms.compact()
    coded = pa.DictionaryArray.from_arrays(pa.array(terms.codes), terms.vocabulary)
    offsets = pa.array(terms.offsets)
    return columns(
        number=partials.number,
        query=partials.query,
        now=partials.now,
        k=partials.k,
        terms=pa.ListArray.from_arrays(offsets, coded),
        counts=pa.ListArray.from_arrays(offsets, pa.array(partials.counts)),
    )


def steps_from_arrow(content: pa.RecordBatch) -> StepPartials:
    """What :func:`steps_to_arrow` packed."""
    return StepPartials(
        numbers(content, "number"),
        content.column("query"),
        numbers(content, "now"),
        numbers(content, "k"),
        terms_from_arrow(content.column("terms")),
        numpy_view(content.column("counts").values),
    )


def _expire(indexes: SlotIndexes, upto: int) -> None:
    indexes.range.expire(upto)
    indexes.nearest.expire(upto)
    indexes.terms.expire(upto)
    if indexes.settings.retention is not None:
        indexes.objects.drop_before(upto - indexes.settings.retention + 1)
