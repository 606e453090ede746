"""Answers of object indexes, as columns of objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Codes, Floats, Ints, wide
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.wordtable import compare, gather, to_arrow
from spatialstream.model.kernels import kernel

__all__ = ["ObjectRows", "rows_at"]

_RUN = 8
"""Length of the runs that are sorted by insertion before they are merged."""


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRows:
    """n objects of an answer, in the answer's order.

    Attributes:
        ids: Arrow utf8[n].
        t: int64[n], ms.
        x: float64[n].
        y: float64[n].
        distance: float64[n] for a nearest-neighbour search, otherwise None.
    """

    ids: pa.StringArray
    t: Ints
    x: Floats
    y: Floats
    distance: Floats | None = None

    def __len__(self) -> int:
        return len(self.t)


@kernel
def _before(a: int, b: int, t: Array, offsets: Array, ids: Array, x: Array, y: Array) -> bool:
    if t[a] != t[b]:
        return bool(t[a] < t[b])
    order = compare(ids, offsets[a], offsets[a + 1], ids, offsets[b], offsets[b + 1])
    if order != 0:
        return order < 0
    if x[a] != x[b]:
        return bool(x[a] < x[b])
    return bool(y[a] < y[b])


@kernel
def _order(t: Array, offsets: Array, ids: Array, x: Array, y: Array) -> Array:
    """The order by (t, id, x, y), by a merge sort."""
    n = len(t)
    order = np.arange(n)
    for start in range(0, n, _RUN):
        for i in range(start + 1, min(start + _RUN, n)):
            row = order[i]
            j = i - 1
            while j >= start and _before(row, order[j], t, offsets, ids, x, y):
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = row
    other = np.empty(n, np.int64)
    width = _RUN
    while width < n:
        for start in range(0, n, 2 * width):
            i, middle = start, min(start + width, n)
            j, end = middle, min(start + 2 * width, n)
            for at in range(start, end):
                if j < end and (i == middle or _before(order[j], order[i], t, offsets, ids, x, y)):
                    other[at] = order[j]
                    j += 1
                else:
                    other[at] = order[i]
                    i += 1
        order, other = other, order
        width *= 2
    return order


@kernel
def _rows(table: Array, owners: Array, positions: Array, ordered: bool) -> tuple[Array, Array, Array, Array, Array]:
    n = len(positions)
    offsets = np.zeros(n + 1, np.int32)
    t, x, y = np.empty(n, np.int64), np.empty(n), np.empty(n)
    for i in range(n):
        s, p = columns_at(table, wide(owners[i])), wide(positions[i])
        t[i], x[i], y[i] = s.t[p], s.x[p], s.y[p]
        offsets[i + 1] = offsets[i] + s.id_offsets[p + 1] - s.id_offsets[p]
    ids = np.empty(offsets[n], np.uint8)
    for i in range(n):
        s, p = columns_at(table, wide(owners[i])), wide(positions[i])
        start = s.id_offsets[p]
        for at in range(offsets[i], offsets[i + 1]):
            ids[at] = s.ids[start]
            start += 1
    if not ordered:
        order = _order(t, offsets, ids, x, y)
        t, x, y = t[order], x[order], y[order]
        offsets, ids = gather(offsets, ids, order)
    return t, offsets, ids, x, y


def rows_at(table: Array, owners: Codes, positions: Codes, distances: Floats | None = None) -> ObjectRows:
    """The objects at positions of the table's rows: in the given order if with distances, else by (t, id, x, y)."""
    t, offsets, ids, x, y = _rows(table, owners, positions, distances is not None)
    return ObjectRows(to_arrow(offsets, ids), t, x, y, distances)
