"""Runs: the input, which comes in any order, as files sorted by time, of which each epoch reads its share.

Every block of the input is decoded once, in parallel, into a *run*: an Arrow file sorted by time. An epoch reads its
share of every run that reaches into it, memory-mapped, and sorts just that. So ordering costs one pass, and memory is
bounded by the size of an epoch, whatever the size of the input.

An epoch is a range of time (previous watermark, watermark]: records of one timestamp are never divided between epochs.
The driver sees a run's name, size, range and a sample of its timestamps, never its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.connectors.contracts import Storage
from spatialstream.model.arrays import numpy_view
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, coded
from spatialstream.stages.division import buckets_of, numbers_of, parts_of
from spatialstream.stages.state import get_records, records_file
from spatialstream.stages.turns import Epoch, Run

__all__ = [
    "INPUT",
    "ObjectShare",
    "QueryShare",
    "pack_place",
    "queries_of_all",
    "queries_of_epoch",
    "records_of_share",
    "route_share",
    "sample",
    "times_of_queries",
    "unpack_place",
    "write_run",
]

INPUT = "input/"
"""Prefix of the names of run files, and of files of dead letters that are published with the epoch."""

_TIMES_PER_RUN = 128
"""Size of the sample of a run's timestamps that the driver sees."""


_LINE_BITS = 24


def pack_place(offset: npt.NDArray[np.int64], line: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Offset of a message in its topic partition and line within the message (from 1), as one number."""
    packed: npt.NDArray[np.int64] = (offset << _LINE_BITS) | np.minimum(line, (1 << _LINE_BITS) - 1)
    return packed


def unpack_place(place: int) -> tuple[int, int]:
    """(offset, line) of :func:`pack_place`."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


def write_run(
    put: Callable[[str, pa.Buffer], None], name: str, batch: ObjectBatch | QueryBatch, line: npt.NDArray[np.int64]
) -> tuple[int, ...]:
    """Put a run, sorted by time (stable), or begin to; returns the sample of its timestamps.

    A run of queries keeps each query's line in its file, because it may still be rejected at admission.
    """
    if np.any(batch.t[1:] < batch.t[:-1]):
        order = np.argsort(batch.t, kind="stable")
        batch, line = batch.take(order), line[order]
    record = batch.to_arrow()
    if isinstance(batch, QueryBatch):
        record = record.append_column("line", pa.array(line))
    put(INPUT + name, records_file(record))
    picks = np.unique(np.linspace(0, len(batch) - 1, _TIMES_PER_RUN).astype(np.int64))
    return tuple(batch.t[picks].tolist())


def _read_run(storage: Storage, name: str) -> pa.RecordBatch:
    (record,) = get_records(storage, INPUT + name)
    return record


_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)
_KINDS: dict[type, str] = {ObjectBatch: "objects", QueryBatch: "queries"}


def sample(storage: Storage, runs: Iterable[Run], batch: type[_Batch], most: int) -> _Batch:
    """A sample of the records of the runs of objects, or of queries, at regular intervals, of at most ``most``."""
    mine = [run for run in runs if run.kind == _KINDS[batch]]
    stride = max(1, -(-sum(run.rows for run in mine) // most))
    records = [_read_run(storage, run.name).take(pa.array(np.arange(0, run.rows, stride))) for run in mine]
    return batch.concat([batch.from_arrow(_without_line(each)) for each in records] or [batch.of([])])


def _without_line(record: pa.RecordBatch) -> pa.RecordBatch:
    return record.drop_columns(["line"]) if "line" in record.schema.names else record


_Slice = tuple[Run, int, pa.RecordBatch]
"""A part of a run: the run, its first row, its rows."""


def _slices(epoch: Epoch, kind: str, storage: Storage) -> list[_Slice]:
    """The part of every run that belongs to an epoch, in input order, without a copy."""
    slices = []
    for run in epoch.runs_of(kind):
        record = _read_run(storage, run.name)
        bounds = epoch.bounds_of(run)
        low, high = np.searchsorted(numpy_view(record.column("t")), bounds, side="right")
        if high > low:
            slices.append((run, int(low), record.slice(int(low), int(high - low))))
    return slices


def _used(epoch: Epoch, part: _Slice) -> pa.RecordBatch:
    """The rows of a part of a run without those that the epoch quarantines."""
    run, first, record = part
    left = np.array(epoch.left_of(run), np.int64) - first
    return record.take(pa.array(np.setdiff1d(np.arange(record.num_rows), left))) if len(left) else record


def times_of_queries(epoch: Epoch, storage: Storage, codes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The timestamps of all queries of an epoch that have certain codes, quarantined ones included."""
    found = [np.empty(0, np.int64)]
    for _, _, part in _slices(epoch, "queries", storage):
        found.append(numpy_view(part.column("t"))[codes[coded(part.column("type"))]])
    return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class QueryShare:
    """The share of one router partition in an epoch's queries, in stream order (by t, ties in input order).

    Attributes:
        queries: n queries and cancellations, at least one.
        number: int64[n], the number of each if it is admitted, ascending: its position among all of the epoch's.
        source: int64[n]: position in ``sources``.
        line: int64[n].
        sources: names of the input files or topic partitions.
        packed: whether ``line`` is a place in a topic partition, see :func:`unpack_place`.
    """

    queries: QueryBatch
    number: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    sources: tuple[str, ...]
    packed: bool = False


def queries_of_epoch(epoch: Epoch, partition: int, storage: Storage) -> QueryShare | None:
    """The share of one router partition in an epoch's queries; None when empty.

    Partitions divide them by hash of their ids (:mod:`~spatialstream.stages.division`). The others' queries matter only
    for the order.
    """
    slices = [(part[0], _used(epoch, part)) for part in _slices(epoch, "queries", storage)]
    slices = [(run, part) for run, part in slices if part.num_rows]
    if not slices:
        return None
    t = np.concatenate([numpy_view(part.column("t")) for _, part in slices])
    buckets = [buckets_of(part.column("id")) for _, part in slices]
    bucket = np.concatenate(buckets)
    order = np.argsort(t, kind="stable")
    row = np.flatnonzero(parts_of(bucket[order], epoch.partitions) == partition)
    if not len(row):
        return None
    number = numbers_of(epoch.number, row, bucket[order[row]])
    taken = [np.flatnonzero(parts_of(each, epoch.partitions) == partition) for each in buckets]
    mine = [part.take(pa.array(rows)) for (_, part), rows in zip(slices, taken, strict=True)]
    queries = QueryBatch.concat([QueryBatch.from_arrow(_without_line(part)) for part in mine])
    if epoch.partitions > 1:  # further processing costs by the size of the vocabulary
        queries = replace(queries, keywords=queries.keywords.compact())
    source = np.repeat(np.arange(len(slices)), [part.num_rows for part in mine])
    line = np.concatenate([numpy_view(part.column("line")) for part in mine])
    order = np.argsort(queries.t, kind="stable")
    sources = tuple(run.source for run, _ in slices)
    return QueryShare(queries.take(order), number, source[order], line[order], sources, slices[0][0].packed)


def queries_of_all(epoch: Epoch, storage: Storage) -> QueryBatch | None:
    """The queries of an epoch of all router partitions, in no particular order; None if there are none."""
    parts = [_used(epoch, part) for part in _slices(epoch, "queries", storage)]
    parts = [part for part in parts if part.num_rows]
    return QueryBatch.concat([QueryBatch.from_arrow(_without_line(part)) for part in parts]) if parts else None


@dataclass(frozen=True, slots=True)
class ObjectShare:
    """The share of one router partition in an epoch's objects.

    Attributes:
        objects: in (t, id, x, y) order, at least one.
        first: number of the epoch's objects that come before it, including quarantined ones.
    """

    objects: ObjectBatch
    first: int


def route_share(epoch: Epoch, partition: int, storage: Storage) -> ObjectShare | None:
    """The share of one router partition in an epoch's objects; None when empty.

    Partitions divide the epoch by time, so the partitions' shares follow one another in order.
    """
    first, slices = _share_slices(epoch, partition, storage)
    pieces = [_used(epoch, part) for part in slices]
    parts = [ObjectBatch.from_arrow(piece) for piece in pieces if piece.num_rows]
    return ObjectShare(in_order(ObjectBatch.concat(parts)), first) if parts else None


def records_of_share(epoch: Epoch, partition: int, storage: Storage) -> Iterator[_Slice]:
    """A router partition's share in an epoch, with quarantined records, one by one: (run, its row, the record)."""
    for run, first, part in _slices(epoch, "queries", storage):
        mine = parts_of(buckets_of(part.column("id")), epoch.partitions) == partition
        yield from ((run, first + row, part.slice(row, 1)) for row in np.flatnonzero(mine).tolist())
    for run, first, part in _share_slices(epoch, partition, storage)[1]:
        yield from ((run, first + row, part.slice(row, 1)) for row in range(part.num_rows))


def _share_slices(epoch: Epoch, partition: int, storage: Storage) -> tuple[int, list[_Slice]]:
    """The objects of a router partition, and how many come before; neither depends on which are quarantined."""
    slices, partitions = _slices(epoch, "objects", storage), epoch.partitions
    if not slices:
        return 0, []
    times = np.sort(np.concatenate([numpy_view(part.column("t")) for _, _, part in slices]))
    edges = [times[len(times) * p // partitions] for p in range(1, partitions)]
    low = edges[partition - 1] if partition else None
    high = edges[partition] if partition < partitions - 1 else None
    parts = []
    for run, first, part in slices:
        t = numpy_view(part.column("t"))
        start = 0 if low is None else int(np.searchsorted(t, low))
        stop = len(t) if high is None else int(np.searchsorted(t, high))
        if stop > start:
            parts.append((run, first + start, part.slice(start, stop - start)))
    return 0 if low is None else int(np.searchsorted(times, low)), parts


def in_order(objects: ObjectBatch) -> ObjectBatch:
    """Objects in (t, id, x, y) order, ties by their fields: by time first; ids are compared for equal timestamps."""
    t = objects.t
    order: npt.NDArray[np.int64] | None = None
    if np.any(t[1:] < t[:-1]):
        order = np.argsort(t, kind="stable")
        t = t[order]
    equal = t[1:] == t[:-1]
    if equal.any():
        tied = np.append(equal, False) | np.append(False, equal)
        places = np.flatnonzero(tied)
        rows = places if order is None else order[places]
        keys = {
            "t": pa.array(t[places]),
            "id": objects.ids.take(pa.array(rows)),
            "x": pa.array(objects.x[rows]),
            "y": pa.array(objects.y[rows]),
        }
        if objects.stored.column is not None:
            keys["stored"] = objects.stored.column.take(pa.array(rows))
        ranks = pa.compute.sort_indices(pa.table(keys), [(name, "ascending") for name in keys])
        order = np.arange(len(t)) if order is None else order
        order[places] = rows[ranks.to_numpy()]
    return objects if order is None else objects.take(order)
