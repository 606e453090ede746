"""The Augmented Grid (A-Grid) of Tornado (Mahmood et al., SIGSPATIAL 2018, section 3.1).

A fine grid of equal cells covers the space; each leaf is a rectangle of cells, an evaluator's partition in the paper's
words. A table has the leaf of every cell, so an object's leaf is one lookup, however many leaves there are. Files
contain the rectangles alone; the table is made when one is read.

A region's leaves are found by *neighbour-based routing* (Algorithm 1), see :func:`neighbour_search`: from leaf to leaf,
in a time that depends on the number of leaves found and not on how fine the grid is. A region across the antimeridian
is two boxes. Of the leaves of a circle's box, those farther away than its radius are left out, and of a polygon's
those that it does not meet.

Rows are numbered from the south here, and a cell includes its west and south borders, as in the other kinds of index.
So what is top-left in the paper is south-west here, and "bottom" is north.

Cost: O(1) per object, O(found) per region, O(cells) to make the table (about 1 ms), 4 bytes of memory per cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from spatialstream.index.base import GlobalIndex, Leaves
from spatialstream.index.polygons import without_outside
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Bytes, Codes, Floats, Ints
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.errors import StateError
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance_to_box
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space

__all__ = ["SIDE", "AGrid", "cells_of", "lines"]

SIDE = 1 << 10
"""Columns and rows of the fine grid; the paper has 1,000 (section 6)."""

_LARGEST = 1 << 12
"""Maximum number of columns and of rows that is read from a file: the table has the square of it."""

_FIGURES = ("leaves.objects", "leaves.load")


# ------------------------------------------------------------------------------------------------------------ kernels


@lean_kernel
def cell_of(borders: Floats, at: float) -> int:
    """The column or row of a coordinate; outside of the space, the nearest one."""
    last = len(borders) - 2
    scaled = (at - borders[0]) * ((last + 1) / (borders[last + 1] - borders[0]))
    cell = int(min(max(scaled, 0.0), float(last)))
    while cell > 0 and at < borders[cell]:  # rounding: at most one step
        cell -= 1
    while cell < last and at >= borders[cell + 1]:
        cell += 1
    return cell


@kernel
def _route_objects(table: Codes, x: Floats, y: Floats, at_x: Floats, at_y: Floats) -> Codes:
    """The leaf of each point, int32[n]."""
    out = np.empty(len(at_x), np.int32)
    for i in range(len(out)):
        out[i] = table[cell_of(y, at_y[i]), cell_of(x, at_x[i])]
    return out


@kernel
def _cells_of(borders: Floats, at: Floats) -> Codes:
    """The column or row of each coordinate, int32[n]."""
    out = np.empty(len(at), np.int32)
    for i in range(len(at)):
        out[i] = cell_of(borders, at[i])
    return out


@lean_kernel
def neighbour_search(
    table: Codes, rectangles: Codes, west: int, south: int, east: int, north: int, seen: Ints, stamp: int, stack: Ints
) -> int:
    """Algorithm 1: the leaves that a range of cells meets, west to east and south to north, both inclusive.

    The *dominant cell* of a leaf is the south-west cell of its part of the range. The search starts at the leaf of the
    range's own south-west cell. From each leaf it goes on to the leaf right of its dominant cell, in the same row, and
    to the leaf above it, in the same column. A leaf passes on to two others at most, once: O(found).

    It finds all of them. Let d = (x, y) be the dominant cell of a leaf B, not the start of the range, and let all
    leaves with a dominant cell of a smaller sum of column and row be found.

    - If x is not the first column of the range, x is the first column of B, and the cell (x - 1, y) is of a leaf A
      that ends there, with a dominant cell (., a), a <= y. If a = y, then right of it is d: B is found.
    - If y is not the first row of the range, likewise, (x, y - 1) is of a leaf C that ends there, with a dominant cell
      (c, .), c <= x. If c = x, then above it is d: B is found.
    - One of the two holds. If d is in the first row or in the first column of the range, then a = y or c = x.
      Otherwise, from a < y and c < x follows that (x - 1, y - 1) is in A and in C: they are one rectangle, which has
      (x - 1, y) and (x, y - 1), and therefore (x, y), too, but that is in B.

    Args:
        table: int32[rows, columns], the leaf of each cell.
        rectangles: int32[n, 4], see :class:`AGrid`.
        west: first column of the range.
        south: first row.
        east: last column.
        north: last row.
        seen: int64[n]; receives ``stamp`` for each leaf found, which it does not contain before.
        stamp: a number for this search.
        stack: int64[3 n + 1], for working.

    Returns:
        How many leaves were found: they are the first elements of ``stack``, in the order of discovery.
    """
    found, waiting = 0, len(stack) - 1  # what is found grows from the start, what is waiting from the end
    stack[waiting] = table[south, west]
    while waiting < len(stack):
        leaf = stack[waiting]
        waiting += 1
        if seen[leaf] == stamp:
            continue
        seen[leaf] = stamp
        right, above = rectangles[leaf, 2], rectangles[leaf, 3]
        column, row = max(rectangles[leaf, 0], west), max(rectangles[leaf, 1], south)
        stack[found] = leaf
        found += 1
        if above <= north:
            waiting -= 1
            stack[waiting] = table[above, column]
        if right <= east:
            waiting -= 1
            stack[waiting] = table[row, right]
    return found


@kernel
def _route_regions(
    geographic: bool,
    table: Codes,
    rectangles: Codes,
    x: Floats,
    y: Floats,
    box: Floats,
    kind: Bytes,
    shape: Floats,
    parts: Floats,
    offsets: Ints,
) -> Codes:
    """The leaves that each region intersects, in the order of discovery; fills ``offsets``, initially zeros."""
    n = len(rectangles)
    seen, listed = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    stack = np.empty(3 * n + 1, np.int64)
    out = np.empty(4 * len(kind) + n, np.int32)
    for q in range(len(kind)):
        end = offsets[q]
        if end + n > len(out):
            more = np.empty(2 * len(out) + n, np.int32)
            more[:end] = out[:end]
            out = more
        for part in range(2):
            if parts[q, part, 0] > parts[q, part, 2]:
                continue
            west, south = cell_of(x, parts[q, part, 0]), cell_of(y, parts[q, part, 1])
            east, north = cell_of(x, parts[q, part, 2]), cell_of(y, parts[q, part, 3])
            found = neighbour_search(table, rectangles, west, south, east, north, seen, 2 * q + part, stack)
            for i in range(found):
                leaf = stack[i]
                if listed[leaf] == q:  # the other part meets it too
                    continue
                if kind[q] == CIRCLE:
                    w, s, e, t = box[leaf, 0], box[leaf, 1], box[leaf, 2], box[leaf, 3]
                    if distance_to_box(geographic, shape[q, 0], shape[q, 1], w, s, e, t) > shape[q, 2]:
                        continue
                listed[leaf] = q
                out[end] = leaf
                end += 1
        offsets[q + 1] = end
    return out[: offsets[-1]]


# ---------------------------------------------------------------------------------------------------------- the index


def cells_of(space: Space, side: int, x: Floats, y: Floats) -> tuple[Codes, Codes]:
    """Column and row of the cell of each of n points in a grid of ``side`` columns and rows: int32[n] each."""
    of_x, of_y = lines(space, side)
    return _cells_of(of_x, np.ascontiguousarray(x)), _cells_of(of_y, np.ascontiguousarray(y))


def lines(space: Space, side: int) -> tuple[Floats, Floats]:
    """The borders of the columns, from west to east, and of the rows, from south to north: float64[side + 1] each."""
    west, south, east, north = space.bounds
    return np.linspace(west, east, side + 1), np.linspace(south, north, side + 1)


class AGrid(GlobalIndex):
    """An Augmented Grid of n leaves.

    Args:
        space: the space that it covers.
        rectangles: int32[n, 4], for each leaf its first column, its first row, and the column and the row after its
            last ones. Each cell is in exactly one.
        objects: float64[n], see :class:`Leaves`.
        load: float64[n], likewise.
        side: number of columns and of rows of the fine grid.

    Raises:
        StateError: the rectangles do not divide the grid, or the columns have different lengths.
    """

    kind: ClassVar[str] = "a-grid"

    def __init__(self, space: Space, rectangles: Codes, objects: Floats, load: Floats, side: int = SIDE) -> None:
        self.space, self.side = space, side
        self.rectangles = np.array(rectangles, np.int32)  # of one memory layout, for which the kernels are compiled
        self.table = _table(self.rectangles, side)
        if not objects.shape == load.shape == (len(self.rectangles),):
            raise StateError("an A-Grid has one number of objects and one load for each of its rectangles")
        self.x, self.y = lines(space, side)
        west, south, east, north = self.rectangles.T
        box = np.stack([self.x[west], self.y[south], self.x[east], self.y[north]], axis=1)
        self.leaves = Leaves(box, np.zeros(len(box), np.bool_), objects, load)

    def route_objects(self, objects: ObjectBatch) -> Codes:
        """See :class:`GlobalIndex`."""
        return _route_objects(self.table, self.x, self.y, objects.x, objects.y)

    def route_regions(self, regions: Regions) -> tuple[Codes, Codes]:
        """The leaves that each region intersects: (row int32[m], leaf int32[m]), ascending by (row, leaf)."""
        parts = region_parts(self.space, regions)
        parts[regions.kind == EVERYWHERE] = self.space.bounds, NOWHERE
        offsets = np.zeros(len(regions) + 1, np.int64)
        grid = self.table, self.rectangles, self.x, self.y, self.leaves.box
        leaf = _route_regions(self.space.geographic, *grid, regions.kind, regions.shape, parts, offsets)
        pairs = np.repeat(np.arange(len(regions)), np.diff(offsets)) * len(self.leaves) + leaf
        row, leaf = np.divmod(np.sort(pairs), len(self.leaves))
        rows: Codes = row.astype(np.int32)
        leaves: Codes = leaf.astype(np.int32)
        return without_outside(self.space.geographic, regions, rows, leaves, self.leaves.box)

    def nearest_leaves(self, at: Floats) -> Codes:
        """See :class:`GlobalIndex`."""
        x, y = np.ascontiguousarray(at.T)
        return _route_objects(self.table, self.x, self.y, x, y)

    def by_leaf(self, statistics: Statistics, figures: Floats) -> Floats:
        """See :class:`GlobalIndex`.

        A rectangle has no cell of J of its own. What reaches it does not exceed what reaches the smallest cell that
        covers it, nor what reaches the smallest cells that together cover it, added up: it is the lesser of the two.
        (The first alone, for a rectangle in the middle of the space, would be all queries there are.)
        """
        x, y = lines(self.space, 8 * self.side)  # an eighth of a cell inside, so that it meets no cell beyond
        west, south, east, north = 8 * self.rectangles.T.astype(np.int64)
        parts = np.empty((len(west), 2, 4))
        parts[:, 0] = np.stack([x[west + 1], y[south + 1], x[east - 1], y[north - 1]], axis=1)
        parts[:, 1] = NOWHERE
        offsets, rows = statistics.cells.visits(parts)
        leaf = np.repeat(np.arange(len(parts)), np.diff(offsets))
        whole = (rows & 1).astype(np.bool_)  # cells without children here: they do not overlap
        leaf, cell = leaf[whole], rows[whole] >> 1
        together = np.stack([np.bincount(leaf, each[cell], len(parts)) for each in figures])
        result: Floats = np.minimum(together, super().by_leaf(statistics, figures))
        return result

    def weighed(self, objects: Floats, load: Floats) -> Self:
        """See :class:`GlobalIndex`."""
        other = copy(self)
        other.leaves = Leaves(self.leaves.box, self.leaves.textual, objects, load)
        return other

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """See :class:`GlobalIndex`."""
        figures = dict(zip(_FIGURES, (self.leaves.objects, self.leaves.load), strict=True))
        return {"rectangles": self.rectangles} | figures, {"space": str(self.space), "side": self.side}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """See :class:`GlobalIndex`.

        Raises:
            StateError: the arrays are not those of an A-Grid.
        """
        side = meta["side"]
        if not isinstance(side, int) or not 1 <= side <= _LARGEST:
            raise StateError(f"an A-Grid has 1 to {_LARGEST:,} columns and rows, not {side!r}")
        objects, load = (arrays[name] for name in _FIGURES)
        return cls(Space.parse(meta["space"]), arrays["rectangles"], objects, load, side)


def _table(rectangles: Codes, side: int) -> Codes:
    """The leaf of each cell, int32[rows, columns].

    Raises:
        StateError: the rectangles do not divide the grid.
    """
    if rectangles.ndim != 2 or rectangles.shape[1] != 4 or not len(rectangles):
        raise StateError(f"an A-Grid has n rectangles of 4 numbers, not an array of shape {rectangles.shape}")
    west, south, east, north = rectangles.T.astype(np.int64)
    inside = (west >= 0) & (south >= 0) & (west < east) & (south < north) & (east <= side) & (north <= side)
    if not inside.all():
        leaf = int(np.argmin(inside))
        raise StateError(f"rectangle {leaf} of the A-Grid, {rectangles[leaf].tolist()}, is not one of its cells")
    table = np.full((side, side), -1, np.int32)
    for leaf, (left, low, right, high) in enumerate(rectangles.tolist()):
        table[low:high, left:right] = leaf
    area = (east - west) * (north - south)
    if area.sum() != side * side or (table < 0).any():  # of the right total, a second cover leaves a cell uncovered
        raise StateError("the rectangles of the A-Grid overlap, or do not cover all of its cells")
    return table
