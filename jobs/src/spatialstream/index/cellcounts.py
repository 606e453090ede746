"""Counts of what queries have, by cell of J: keywords (M_srq, M_skq of SSTD, section 4.1.1), how long they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.index.cells import Cells
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.kernels import kernel

__all__ = ["CellCounts"]


@kernel
def _owners(queries: Ints, offsets: Codes, values: Codes, starts: Ints, owners: Ints) -> None:
    """The queries that have each value, those of value v from ``starts[v]`` on; ``starts`` is zeros before."""
    for q in queries:
        for i in range(offsets[q], offsets[q + 1]):
            starts[values[i] + 1] += 1
    for v in range(1, len(starts)):
        starts[v] += starts[v - 1]
    ends = starts[:-1].copy()
    for q in queries:
        for i in range(offsets[q], offsets[q + 1]):
            owners[ends[values[i]]] = q
            ends[values[i]] += 1


@kernel
def _add_up(
    starts: Ints,
    owners: Ints,
    visits: Ints,
    rows: Ints,
    weights: Floats,
    offsets: Ints,
    value: Codes,
    count: Floats,
) -> None:
    """The entries of each row. With empty ``value`` only counts them into ``offsets[1:]``.

    Values come one after the other, so what a row has of a value is its last entry, and nothing needs to be sorted.
    """
    counting = len(value) == 0
    last = np.full(len(offsets) - 1, -1, np.int32)
    ends = offsets[:-1].copy()
    for v in range(len(starts) - 1):
        for i in range(starts[v], starts[v + 1]):
            q = owners[i]
            for k in range(visits[q], visits[q + 1]):
                row = rows[k]
                if last[row] != v:
                    last[row] = v
                    if counting:
                        offsets[row + 1] += 1
                        continue
                    value[ends[row]], count[ends[row]] = v, 0.0
                    ends[row] += 1
                if not counting:
                    count[ends[row] - 1] += weights[q]


@dataclass(frozen=True, slots=True, eq=False)
class CellCounts:
    """How often the queries of a type that reach a cell have each of some values, as a keyword, sparse.

    Row 2 c counts queries that reach cell c and not all of it, row 2 c + 1 those that cover c: they concern every cell
    below it too, and are written down once.

    Attributes:
        offsets: int64[2 cells + 1]; row r is the entries from ``offsets[r]`` to ``offsets[r + 1]``.
        value: int32[m], numbers from 0, ascending in a row.
        count: float64[m].
        parent: int32[cells], the cell that each is a quarter of.
        basis: int32[cells], the cell whose counts stand for each: itself, or the nearest above with enough of them.
    """

    offsets: Ints
    value: Codes
    count: Floats
    parent: Codes
    basis: Codes

    @classmethod
    def of(
        cls,
        queries: Ints,
        visits: tuple[Ints, Ints],
        held: tuple[Codes, Codes],
        weights: Floats,
        cells: Cells,
        values: int,
        least: float,
    ) -> CellCounts:
        """From what each query reaches and has; a value that a query has twice counts twice.

        Args:
            queries: int64[q], the numbers of those that are counted.
            visits: the rows that each query reaches: int64[n + 1], and int64 from one to the next.
            held: the values that each has, likewise, int32.
            weights: float64[n], how many each stands for.
            cells: of J.
            values: how many values there are.
            least: a cell of which less is counted gets its counts from the cells above.
        """
        starts, owners = np.zeros(values + 1, np.int64), np.empty(int(np.diff(held[0])[queries].sum()), np.int64)
        _owners(queries, *held, starts, owners)
        offsets = np.zeros(2 * len(cells) + 1, np.int64)
        given = starts, owners, *visits, weights, offsets
        _add_up(*given, np.empty(0, np.int32), np.empty(0))
        np.cumsum(offsets, out=offsets)
        value, count = np.empty(offsets[-1], np.int32), np.empty(offsets[-1])
        if len(value):
            _add_up(*given, value, count)
        sums = np.zeros(len(count) + 1)
        np.cumsum(count, out=sums[1:])
        partly, wholly = (sums[offsets[1:]] - sums[offsets[:-1]]).reshape(-1, 2).T.copy()
        cells.hand_down(wholly[np.newaxis])
        basis = cells.nearest(partly + wholly >= least)
        return cls(offsets, value, count, cells.parent, basis)

    def entries(self, cell: int) -> tuple[Codes, Floats]:
        """What queries that reach the cell have: (value int32[m], count float64[m]); counts of a value add up."""
        cell = int(self.basis[cell])
        rows = [2 * cell, 2 * cell + 1]
        while cell:
            cell = int(self.parent[cell])
            rows.append(2 * cell + 1)
        parts = [slice(self.offsets[row], self.offsets[row + 1]) for row in rows]
        value, count = (np.concatenate([column[part] for part in parts]) for column in (self.value, self.count))
        return value, count

    def of_cell(self, cell: int, values: int) -> Floats:
        """How often each of ``values`` values is one of a query that reaches the cell: float64[values]."""
        value, count = self.entries(cell)
        return np.bincount(value, count, minlength=values).astype(np.float64)
