"""What the cells of an A-Grid cost, and the sums of it over rows, columns and rectangles (Tornado, section 4).

Eqn 1 counts, for each object that a cell receives, the queries there that share a word with it. Here the cost of an
object is the load (Eqn 2 of SSTD) that the finest cell of J predicts for it: the queries of all types that concern its
place, a snapshot query for each object that is held, a continuous one for each that arrives. Words are left out, as
they are in the load by which balance is judged. The cost of a cell is the sum over its sampled objects, and that of a
rectangle the sum over its cells (Eqn 2). The largest one is α of Eqn 3.

Costs are whole numbers, so that sums are exact and equal ones are found equal.

Cost: O(objects + cells) once, O(1) per rectangle, O(rows + columns) for the best cut of one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from spatialstream.index.cost import workloads
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.objects import ObjectBatch

__all__ = ["Costs", "Cut", "Rectangle", "object_costs"]

Rectangle = tuple[int, int, int, int]
"""First column, first row, and the column and the row after the last ones; of at least one cell."""

_BITS = 50
"""The sum of all costs has as many bits: sums are exact as int64 and as float64."""


class Cut(NamedTuple):
    """A cut of a rectangle into two."""

    axis: int
    """0: between two columns; 1: between two rows."""
    at: int
    """The first column or row of the second part."""
    larger: int
    """The cost of the costlier part."""

    def of(self, rectangle: Rectangle) -> tuple[Rectangle, Rectangle]:
        """The parts: west and east, or south and north."""
        west, south, east, north = rectangle
        if self.axis == 0:
            return (west, south, self.at, north), (self.at, south, east, north)
        return (west, south, east, self.at), (west, self.at, east, north)


def object_costs(objects: ObjectBatch, statistics: Statistics, held: Floats | None = None) -> Floats:
    """The cost of each of n sampled objects, float64[n]; if there are no queries at all, ``held``.

    Args:
        objects: the objects.
        statistics: J.
        held: float64[n], how many objects each stands for; 1 by default.
    """
    held = np.ones(len(objects)) if held is None else held.copy()
    if not statistics.queries.any():
        return held
    asked = statistics.asked(statistics.cells.of_points(objects.x, objects.y))
    return workloads(asked, held, statistics.rates(objects.x, objects.y), np.ones((2, len(objects))))


class Costs:
    """The costs of the cells of a grid.

    Args:
        side: number of its columns and of its rows.
        column: int32[n], the column of each of n costs.
        row: int32[n], its row.
        cost: float64[n], at least 0.

    Attributes:
        unit: what a cost of 1 is in the unit of ``cost``: a power of 2, so that simple numbers stay exact.
    """

    def __init__(self, side: int, column: Codes, row: Codes, cost: Floats) -> None:
        total = float(cost.sum())
        self.unit = 2.0 ** (math.frexp(total)[1] - _BITS)
        cells = np.zeros((side, side), np.int64)
        np.add.at(cells, (row, column), np.rint(cost / self.unit).astype(np.int64))
        self._sums = np.zeros((side + 1, side + 1), np.int64)  # of all cells south-west of each corner
        np.cumsum(cells, axis=0, out=self._sums[1:, 1:])
        np.cumsum(self._sums[1:, 1:], axis=1, out=self._sums[1:, 1:])

    def of(self, rectangle: Rectangle) -> int:
        """The cost of a rectangle (Eqn 2)."""
        west, south, east, north = rectangle
        sums = self._sums
        return int(sums[north, east] - sums[north, west] - sums[south, east] + sums[south, west])

    def before(self, rectangle: Rectangle, axis: int) -> Ints:
        """The cost of the part west (or south) of each line within a rectangle, int64[columns - 1] (or rows - 1)."""
        west, south, east, north = rectangle
        if axis == 0:
            sums = self._sums[north, west:east] - self._sums[south, west:east]
        else:
            sums = self._sums[south:north, east] - self._sums[south:north, west]
        result: Ints = sums[1:] - sums[0]
        return result

    def best_cut(self, rectangle: Rectangle) -> Cut | None:
        """The cut whose costlier part costs least; None for a single cell.

        Of equal ones the most central, then that across the longer side. (The paper does not say which.)
        """
        whole, best, result = self.of(rectangle), (0, 0.0, 0), None
        for axis in (0, 1):
            start, end = rectangle[axis], rectangle[axis + 2]
            if end - start < 2:
                continue
            before = self.before(rectangle, axis)
            larger = np.maximum(before, whole - before)
            least = np.flatnonzero(larger == larger.min())
            off = np.abs(least + 1 - (end - start) / 2) / (end - start)
            first = int(np.argmin(off))
            rank = int(larger[least[first]]), float(off[first]), start - end
            if result is None or rank < best:
                best, result = rank, Cut(axis, start + 1 + int(least[first]), rank[0])
        return result
