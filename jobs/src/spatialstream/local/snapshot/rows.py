"""Answers of object indexes, as columns of objects."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.arrays import Array, Codes, Floats, Ints, wide
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.wordtable import compare, gather, to_arrow
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = ["ObjectRows", "alike", "rows_at"]

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
        stored: Arrow large_utf8[n], the fields that the stream keeps; None if it keeps none.
    """

    ids: pa.StringArray
    t: Ints
    x: Floats
    y: Floats
    distance: Floats | None = None
    stored: pa.LargeStringArray | None = None

    def __len__(self) -> int:
        return len(self.t)

    def take(self, rows: Ints) -> ObjectRows:
        """Select the objects at these positions."""
        places = pa.array(rows)
        return ObjectRows(
            self.ids.take(places),
            self.t[rows],
            self.x[rows],
            self.y[rows],
            None if self.distance is None else self.distance[rows],
            None if self.stored is None else self.stored.take(places),
        )

    def order(self) -> Ints:
        """Their order: by (t, id, x, y) or, with distances, by (distance, t descending, id, x, y); then by fields."""
        keys = {"t": pa.array(self.t)} if self.distance is None else {"d": self.distance, "t": pa.array(-self.t)}
        keys |= {"id": self.ids, "x": pa.array(self.x), "y": pa.array(self.y)}
        keys |= {} if self.stored is None else {"stored": self.stored}
        order: Ints = pc.sort_indices(pa.table(keys), [(name, "ascending") for name in keys]).to_numpy()
        return order


def alike(rows: ObjectRows, a: int, b: int) -> bool:
    """Whether two objects are alike in all by which answers are ordered, apart from their fields."""
    numbers = [rows.t, rows.x, rows.y] + ([] if rows.distance is None else [rows.distance])
    return all(each[a] == each[b] for each in numbers) and rows.ids[a] == rows.ids[b]


@lean_kernel
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


def rows_at(
    table: Array, owners: Codes, positions: Codes, distances: Floats | None = None, *, ordered: bool = False
) -> ObjectRows:
    """The objects at positions of the table's rows.

    They are in the given order if with distances, or if that is the right one (``ordered``), else by (t, id, x, y).
    """
    t, offsets, ids, x, y = _rows(table, owners, positions, ordered or distances is not None)
    return ObjectRows(to_arrow(offsets, ids), t, x, y, distances)
