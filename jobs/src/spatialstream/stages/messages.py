"""The blocks between stages: rows of (slot, kind, data), where data is an Arrow IPC stream of one record batch.

One row is one block with any number of objects, so that the cost of crossing a process boundary is per block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.arrays import numpy_view
from spatialstream.model.progress import made

__all__ = [
    "ARRIVALS",
    "ASKED",
    "BEST_ARRIVALS",
    "BLOCK_TYPE",
    "COUNTED",
    "ENDED",
    "FOREIGN",
    "LINES",
    "LOAD",
    "MARKER",
    "OBJECTS",
    "REGISTERED",
    "REJECTED",
    "REPEATED",
    "SNAPSHOT_BEST",
    "SNAPSHOT_LISTS",
    "SNAPSHOT_OBJECTS",
    "SNAPSHOT_QUERIES",
    "SNAPSHOT_TERMS",
    "STEPS",
    "Block",
    "blocks",
    "columns",
    "messages",
    "numbers",
    "pack",
    "unpack",
]

Block = tuple[int, str, pa.RecordBatch]
"""One block: (slot, kind, content)."""

LARGEST_VALUE = 64 << 20
"""Bytes beyond which a block is split on its way between Spark's tasks, whose values are limited to 2 GiB."""

BLOCK_TYPE = "slot int, kind string, data binary"
"""The Spark schema of all three stages' rows."""

# ROUTE -> WORK
OBJECTS = "objects"
"""Objects of one router partition for one slot, in (t, id, x, y) order, with their numbers (``seq``) and leaves
(``leaf``: the home, or ``~leaf`` of another leaf that a copy is for). The schema's metadata has the version under which
they were routed, if its index replicates (:mod:`~spatialstream.stages.copies`)."""
REGISTERED = "registered"
"""Admitted queries of one router partition with their numbers, in stream order, which is ascending by number."""
ENDED = "ended"
"""Cancellations: numbers of queries and the times at which they end."""
MARKER = "marker"
"""End of the epoch from one router partition: (epoch, watermark, router partitions), and the corpus tables that the
epoch has written, if any."""

# WORK -> MERGE (besides MARKER, and REGISTERED and ENDED of continuous queries)
LINES = "lines"
"""Finished result lines (CRQ): (t, seq, line)."""
COUNTED = "counted"
"""Number of result lines (CRQ) of each query, written now or before: (number, rows, last), with the last line's t."""
ARRIVALS = "arrivals"
"""Objects that entered a slot's answer to a CKQ."""
BEST_ARRIVALS = "best_arrivals"
"""Objects that entered a slot's answer to a CBQ, with their scores."""
SNAPSHOT_QUERIES, SNAPSHOT_OBJECTS, SNAPSHOT_TERMS = "snapshot_queries", "snapshot_objects", "snapshot_terms"
"""A slot's partials of snapshot queries: heads, nearest objects of SKQs, term counts of STQs."""
SNAPSHOT_BEST = "snapshot_best"
"""A slot's partials of SBQs: a row that says what was asked, and objects (:mod:`~spatialstream.stages.kinds.best`)."""
SNAPSHOT_LISTS = "snapshot_lists"
"""A slot's partials of SRQs: objects."""
ASKED = "asked"
"""The complete SKQs that a slot has answered."""
LOAD = "load"
"""Load statistics of a slot."""
FOREIGN = "foreign"
"""Number of messages among a slot's blocks that are no blocks."""
STEPS = "steps"
"""A slot's partial term counts of CTQ steps."""

# ROUTE -> MERGE
REJECTED = "rejected"
"""Dead letters of queries, and the order in which they are written: (order, line)."""
REPEATED = "repeated"
"""Number of queries that were repetitions of admitted ones."""


def pack(batch: pa.RecordBatch, compression: str | None = None) -> pa.Buffer:
    """A record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    made()
    return sink.getvalue()


def unpack(data: Any) -> pa.RecordBatch:
    """Unpack the record batch of :func:`pack`."""
    made()
    return pa.ipc.open_stream(data).read_next_batch()


def columns(**arrays: Any) -> pa.RecordBatch:
    """A record batch of named numpy or Arrow arrays."""
    return pa.RecordBatch.from_arrays(
        [array if isinstance(array, pa.Array) else pa.array(array) for array in arrays.values()], names=list(arrays)
    )


def numbers(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """A numeric column as a numpy view."""
    return numpy_view(batch.column(name))


def messages(slot: int, kind: str, batch: pa.RecordBatch, largest: int = LARGEST_VALUE) -> Iterator[pa.RecordBatch]:
    """A block as rows of a stage's output: one, or several if it is too large to travel as one value.

    Receivers of blocks accept several of one kind from a slot. ``largest``: maximum bytes of a value.
    """
    return (_message(slot, kind, pack(piece)) for piece in _pieces(batch, largest))


def _pieces(batch: pa.RecordBatch, largest: int) -> Iterator[pa.RecordBatch]:
    if batch.nbytes > largest and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half), largest)
        yield from _pieces(batch.slice(half), largest)
    else:
        yield batch


def _message(slot: int, kind: str, content: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, content.size], np.int32))
    data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
    return pa.RecordBatch.from_arrays([pa.array([slot], pa.int32()), pa.array([kind]), data], ["slot", "kind", "data"])


def blocks(rows: pa.RecordBatch) -> list[tuple[int, str, pa.RecordBatch]]:
    """The rows of a stage's input as (slot, kind, batch)."""
    slot, kind, data = rows.columns
    return [(slot[i].as_py(), kind[i].as_py(), unpack(data[i].as_buffer())) for i in range(rows.num_rows)]


def marker(epoch: int, watermark: int, partitions: int, tables: Sequence[int] = ()) -> pa.RecordBatch:
    """The content of a :data:`MARKER`; ``tables``: those that the epoch has written for ranked queries."""
    written = {"tables": pa.array([tables], pa.list_(pa.int64()))} if tables else {}
    return columns(
        epoch=np.array([epoch], np.int64),
        watermark=np.array([watermark], np.int64),
        partitions=np.array([partitions], np.int64),
        **written,
    )
