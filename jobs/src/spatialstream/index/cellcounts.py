"""Counts of what queries have, by cell of J: keywords (M_srq, M_skq of SSTD, section 4.1.1), how long they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.index.cells import Cells
from spatialstream.model.arrays import Codes, Floats, Ints

__all__ = ["CellCounts"]


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
    def of(cls, keys: Ints, weights: Floats, cells: Cells, values: int, least: float) -> CellCounts:
        """From keys row * values + value and their weights; equal keys are added up.

        A cell of which less than ``least`` is counted gets its counts from the cells above.
        """
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.empty(0, np.int64)
        distinct = keys[starts]
        count = np.add.reduceat(weights, starts) if len(keys) else np.empty(0)
        offsets = np.searchsorted(distinct, np.arange(2 * len(cells) + 1) * max(values, 1))
        sums = np.append(0.0, np.cumsum(count))
        partly, wholly = (sums[offsets[1:]] - sums[offsets[:-1]]).reshape(-1, 2).T.copy()
        cells.hand_down(wholly[np.newaxis])
        basis = cells.nearest(partly + wholly >= least)
        return cls(offsets, (distinct % max(values, 1)).astype(np.int32), count, cells.parent, basis)

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
