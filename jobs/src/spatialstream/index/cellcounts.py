"""What the queries that reach a cell of J have: their keywords (M_srq, M_skq of SSTD, section 4.1.1), their shapes."""

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
    """Writes each query down at the ends of its rows, which move on; without ``query`` they only move.

    Row r of query q is ``which[q] width + r`` of ``ends``; where ``which[q]`` is -1 the query is left out.
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
    """Which queries of a type reach each row of J (:class:`~spatialstream.index.cells.Visits`).

    Attributes:
        cells: of J.
        offsets: int64[2 cells + 1]; row r is ``query[offsets[r] : offsets[r + 1]]``.
        query: int32[m], numbers of queries, ascending in a row.
    """

    cells: Cells
    offsets: Ints
    query: Codes

    @classmethod
    def of(cls, cells: Cells, visits: Visits, code: Ints, kinds: Sequence[int]) -> list[Reaching]:
        """Those of some types.

        Args:
            cells: of J.
            visits: what each query reaches.
            code: int64[n], their types.
            kinds: the types asked for.
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
        """Those that reach a cell: int32[m]. A query is written down once on the way from the space to it."""
        rows = [2 * cell, 2 * cell + 1]
        while cell:
            cell = int(self.cells.parent[cell])
            rows.append(2 * cell + 1)
        found: Codes = np.concatenate([self.query[self.offsets[row] : self.offsets[row + 1]] for row in rows])
        return found

    def sums(self, of_each: Floats) -> Floats:
        """What those that reach each cell have together, float64[cells], of float64[queries]."""
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
    """How often the queries of a type that reach a cell have each of some values, as a keyword; counted when asked for.

    Few cells are ever asked for, those that a tree's leaves are or were, so nothing is kept by cell but who reaches it.

    Attributes:
        reaching: the queries.
        offsets: int32[n + 1]; query q has ``value[offsets[q] : offsets[q + 1]]``, one twice if that counts twice.
        value: int32[m], numbers from 0.
        values: how many there are.
        weights: float64[n], how many each query stands for.
        basis: int32[cells], the cell whose counts stand for each: itself, or the nearest above with enough of them.
    """

    reaching: Reaching
    offsets: Codes
    value: Codes
    values: int
    weights: Floats
    basis: Codes

    def of_cell(self, cell: int) -> Floats:
        """How often each value is one of a query that reaches the cell: float64[values]."""
        counts = np.zeros(self.values)
        _count(self.reaching.of_cell(int(self.basis[cell])), self.offsets, self.value, self.weights, counts)
        return counts

    def entries(self, cell: int) -> tuple[Codes, Floats]:
        """Which values the queries that reach the cell have: (value int32[m] ascending, count float64[m])."""
        counts = self.of_cell(cell)
        value = np.flatnonzero(counts)
        return value.astype(np.int32), counts[value]

    def averages(self, of_value: Floats) -> Floats:
        """The average over what the queries that reach each cell have, float64[cells], of float64[values]; else 0."""
        ends = np.append(0.0, np.cumsum(of_value[self.value]))[self.offsets]
        sums = self.reaching.sums(self.weights * np.diff(ends))
        counts = self.reaching.sums(self.weights * np.diff(self.offsets))
        found: Floats = (sums / np.maximum(counts, 1e-300))[self.basis]
        return found
