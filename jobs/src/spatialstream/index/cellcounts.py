"""Counts of keywords (M_srq, M_skq of SSTD, section 4.1.1) and shapes of the queries that reach a cell of J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spatialstream.index.cells import Cells, Visits
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import TYPES

__all__ = ["CellCounts", "Reaching"]


@kernel
def _turn(which: Ints, offsets: Ints, rows: Codes, width: int, ends: Ints, query: Codes) -> None:
    """Append each query to its rows and advance their ends; if ``query`` is empty, only advance the ends.

    Row r of query q has its end in ``ends[which[q] * width + r]``; queries with ``which[q]`` = -1 are skipped.
    """
    filling = len(query) > 0
    for q in range(len(which)):
        if which[q] < 0:
            continue
        first = which[q] * width
        for row in rows[offsets[q] : offsets[q + 1]]:
            if filling:
                query[ends[first + row]] = q
            ends[first + row] += 1


@dataclass(frozen=True, slots=True, eq=False)
class Reaching:
    """The queries of one type that reach each row of J (:class:`~spatialstream.index.cells.Visits`).

    Attributes:
        cells: the cells of J.
        offsets: int64[2 cells + 1]; row r is ``query[offsets[r] : offsets[r + 1]]``.
        query: int32[m], numbers of queries, ascending in a row.
    """

    cells: Cells
    offsets: Ints
    query: Codes

    @classmethod
    def of(cls, cells: Cells, visits: Visits, code: Ints, kinds: Sequence[int]) -> list[Reaching]:
        """Group the queries of some types by the rows that they reach.

        Args:
            cells: the cells of J.
            visits: the rows that each query reaches.
            code: int64[n], the type of each query.
            kinds: the types to select.

        Returns:
            One instance for each of ``kinds``.
        """
        width = 2 * len(cells)
        which = np.full(len(TYPES), -1, np.int64)
        which[list(kinds)] = np.arange(len(kinds))
        offsets = np.zeros(len(kinds) * width + 1, np.int64)
        given = which[code], visits.offsets, visits.rows, width
        _turn(*given, offsets[1:], np.empty(0, np.int32))
        np.cumsum(offsets, out=offsets)
        query = np.empty(offsets[-1], np.int32)
        if len(query):
            _turn(*given, offsets[:-1].copy(), query)
        return [cls(cells, offsets[kind * width : (kind + 1) * width + 1], query) for kind in range(len(kinds))]

    def of_cell(self, cell: int) -> Codes:
        """The queries that reach a cell: int32[m]. Each is stored once on the path from the root to the cell."""
        rows = [2 * cell, 2 * cell + 1]
        while cell:
            cell = int(self.cells.parent[cell])
            rows.append(2 * cell + 1)
        found: Codes = np.concatenate([self.query[self.offsets[row] : self.offsets[row + 1]] for row in rows])
        return found

    def sums(self, of_each: Floats) -> Floats:
        """Sum ``of_each`` float64[queries] over the queries that reach each cell: float64[cells]."""
        flat = np.zeros(int(self.offsets[-1] - self.offsets[0]) + 1)
        np.cumsum(of_each[self.query[self.offsets[0] : self.offsets[-1]]], out=flat[1:])
        at = self.offsets - self.offsets[0]
        partly, wholly = (flat[at[1:]] - flat[at[:-1]]).reshape(-1, 2).T.copy()
        self.cells.hand_down(wholly[np.newaxis])
        found: Floats = partly + wholly
        return found


@kernel
def _count(query: Codes, offsets: Codes, value: Codes, weights: Floats, counts: Floats) -> None:
    for q in query:
        for v in value[offsets[q] : offsets[q + 1]]:
            counts[v] += weights[q]


@dataclass(frozen=True, slots=True, eq=False)
class CellCounts:
    """Counts of values (such as keywords) of the queries of one type that reach a cell, computed on request.

    Only a few cells are ever requested, those of present and former leaves of a tree, so the only data stored by cell
    are the queries that reach it.

    Attributes:
        reaching: the queries that reach each cell.
        offsets: int32[n + 1]; query q has ``value[offsets[q] : offsets[q + 1]]``; a repeated value counts repeatedly.
        value: int32[m], values, numbered from 0.
        values: number of distinct values.
        weights: float64[n], number of queries that each query represents.
        basis: int32[cells], the cell whose counts are used for each cell: itself, or its nearest ancestor with enough
            of them.
    """

    reaching: Reaching
    offsets: Codes
    value: Codes
    values: int
    weights: Floats
    basis: Codes

    def of_cell(self, cell: int) -> Floats:
        """The count of each value over the queries that reach the cell: float64[values]."""
        counts = np.zeros(self.values)
        _count(self.reaching.of_cell(int(self.basis[cell])), self.offsets, self.value, self.weights, counts)
        return counts

    def entries(self, cell: int) -> tuple[Codes, Floats]:
        """The values of the queries that reach the cell: (value int32[m] ascending, count float64[m])."""
        counts = self.of_cell(cell)
        value = np.flatnonzero(counts)
        return value.astype(np.int32), counts[value]

    def averages(self, of_value: Floats) -> Floats:
        """Average ``of_value`` float64[values] over the values of each cell's queries: float64[cells]; 0 if none."""
        ends = np.append(0.0, np.cumsum(of_value[self.value]))[self.offsets]
        sums = self.reaching.sums(self.weights * np.diff(ends))
        counts = self.reaching.sums(self.weights * np.diff(self.offsets))
        found: Floats = (sums / np.maximum(counts, 1e-300))[self.basis]
        return found
