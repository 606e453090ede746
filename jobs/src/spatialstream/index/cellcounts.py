"""Counts of what queries have, by cell of J: keywords (M_srq, M_skq of SSTD, section 4.1.1), how long they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.index.cells import Cells
from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.kernels import kernel

__all__ = ["CellCounts"]


@kernel
def _add_up(
    held: Codes, owners: Ints, visits: Ints, rows: Ints, weights: Floats, ends: Ints, value: Codes, count: Floats
) -> None:
    """Moves ``ends`` from where each row begins to where it ends; with ``value`` and ``count``, zeros, fills them too.

    What queries have comes in the order of values, so what a row has of a value is its last entry.
    """
    filling = len(value) > 0
    last = np.full(len(ends), -1, np.int32)
    for i in range(len(held)):
        v, q = held[i], owners[i]
        for row in rows[visits[q] : visits[q + 1]]:
            if last[row] != v:
                last[row] = v
                ends[row] += 1
                if filling:
                    value[ends[row] - 1] = v
            if filling:
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
        counted: Flags,
        visits: tuple[Ints, Ints],
        held: tuple[Codes, Codes],
        weights: Floats,
        cells: Cells,
        least: float,
    ) -> CellCounts:
        """From what each of n queries reaches and has; a value that it has twice counts twice.

        It is the product of two sparse matrices, which takes ``scipy.sparse`` two to three times as long.

        Args:
            counted: bool[n], whether it counts at all.
            visits: the rows that each reaches: int64[n + 1], and int64 from one to the next.
            held: the values that each has, likewise, int32.
            weights: float64[n], how many each stands for.
            cells: of J.
            least: a cell of which less is counted gets its counts from the cells above.
        """
        owners = np.repeat(np.arange(len(counted)), np.diff(held[0]))
        order = np.flatnonzero(counted[owners])
        order = order[np.argsort(held[1][order], kind="stable")]
        given = held[1][order], owners[order], *visits, weights
        offsets = np.zeros(2 * len(cells) + 1, np.int64)
        _add_up(*given, offsets[1:], np.empty(0, np.int32), np.empty(0))
        np.cumsum(offsets, out=offsets)
        value, count = np.empty(offsets[-1], np.int32), np.zeros(offsets[-1])
        _add_up(*given, offsets[:-1].copy(), value, count)
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
