"""Who does what for a query where that is divided by hash of its id: admission, and MERGE.

Queries are dealt out to :data:`BUCKETS` by the stable hash of their ids. The number that a query gets bears its bucket,
so whatever bears the number can be divided without the id: partials, rows, cancellations. Numbers go by the order of
the stream first, so nothing else is ordered by buckets.

Which bucket is whose is a remainder: part p of n has those of which bucket % n is p. So an id is always of the same
part, also when it is used again; and whoever knows an id knows the part of its rows. Whoever chooses ids can choose
ones that are all of one part, and make that one slow, as one could by asking much of one place.
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
"""How many there are; no more parts than these have anything to do."""

PER_EPOCH = 2**32
"""Numbers of an epoch's queries and objects start at the epoch's times this: it has fewer objects, and fewer queries by
:data:`BUCKETS`."""

PartBlock = tuple[int, Block]
"""A row, and the part that it is for."""


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
    """The part, of so many, of each query by its number, or by its bucket."""
    return number % BUCKETS % parts


def divided(rows: Iterable[Block], parts: int) -> Iterator[PartBlock]:
    """Partials by the part of MERGE that they are for.

    What bears numbers of queries goes to theirs; ends of queries go to all, for a part passes over those that it does
    not know; what is of no query goes to the first.
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
