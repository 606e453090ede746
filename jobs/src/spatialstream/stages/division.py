"""Division of the work for queries by hash of their ids: of admission, and of MERGE.

Queries are assigned to :data:`BUCKETS` by the stable hash of their ids. The number of a query contains its bucket, so
whatever contains the number can be divided without the id: partials, rows, cancellations. Numbers ascend in stream
order first, so nothing else is ordered by buckets.

Part p of n has the buckets for which bucket % n is p. So an id always belongs to the same part, also when it is used
again; and a client that knows an id knows the part of its rows. A client can choose ids that all belong to one
part, and make that one slow, just as by asking many queries about one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import StateError
from spatialstream.model.hashing import hash_strings
from spatialstream.stages import messages
from spatialstream.stages.messages import Block, numbers

__all__ = ["BUCKETS", "PER_EPOCH", "PartBlock", "buckets_of", "divided", "numbers_of", "parts_of"]

BUCKETS = 64
"""Number of buckets; more parts than these have nothing to do."""

PER_EPOCH = 2**32
"""Numbers of an epoch's queries and objects start at the epoch's number times this: an epoch has fewer objects, and,
divided by :data:`BUCKETS`, fewer queries."""

PartBlock = tuple[int, Block]
"""A row, and its part."""


def buckets_of(ids: pa.StringArray) -> npt.NDArray[np.int64]:
    """The bucket of each of n ids."""
    return (hash_strings(ids) % np.uint64(BUCKETS)).astype(np.int64)


def numbers_of(epoch: int, row: npt.NDArray[np.int64], bucket: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers of queries.

    Args:
        epoch: in which they come.
        row: int64[n], the row of each among the queries of the epoch, ascending.
        bucket: of each.

    Raises:
        StateError: the epoch has too many.
    """
    if len(row) and row[-1] >= PER_EPOCH // BUCKETS:
        raise StateError(f"epoch {epoch} has more than {PER_EPOCH // BUCKETS} queries")
    found: npt.NDArray[np.int64] = epoch * PER_EPOCH + row * BUCKETS + bucket
    return found


def parts_of(number: npt.NDArray[np.int64], parts: int) -> npt.NDArray[np.int64]:
    """The part of each query, out of ``parts``, by its number or its bucket."""
    return number % BUCKETS % parts


def divided(rows: Iterable[Block], parts: int) -> Iterator[PartBlock]:
    """Partials by their part of MERGE.

    Rows with numbers of queries go to the parts of these; ends of queries go to all parts, which ignore queries that
    they do not know; rows that belong to no query go to the first part.
    """
    for slot, kind, content in rows:
        if parts > 1 and kind == messages.ENDED:
            yield from ((part, (slot, kind, content)) for part in range(parts))
        elif parts > 1 and "number" in content.schema.names:
            for part, mine in _pieces(content, parts_of(numbers(content, "number"), parts)):
                yield part, (slot, kind, mine)
        else:
            yield 0, (slot, kind, content)


def _pieces(content: pa.RecordBatch, part: npt.NDArray[Any]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for each in np.unique(part).tolist():
        rows = np.flatnonzero(part == each)
        yield each, content if len(rows) == len(part) else content.take(pa.array(rows))
