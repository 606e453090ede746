"""The cells of J: a quadtree over the space that is deeper where there are more records.

Cell 0 is the space. A cell that is split has four consecutive children, numbered (east half) + 2 (north half). Cells of
a level are numbered after those of the level above, so one pass through the numbers, ascending or descending, traverses
the tree level by level. Positions are given as columns and rows of cells of the deepest level (*finest cells*).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.space import Space

__all__ = ["Cells", "Visits"]

_SLACK = 1e-6
"""Tolerance, as a share of a finest cell, for rounding of a border that a box has in common with a cell."""


@lean_kernel
def _visit_from(first: Codes, stack: Ints, depth: int, one: Ints, other: Ints, rows: Codes, found: int) -> int:
    """Write the rows of a pair of ranges from ``rows[found]`` on, which must have room; return their end."""
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 1 << depth, 0, 0
    top = 1
    while top > 0:
        top -= 1
        cell, width, x, y = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        meets = False
        covered = first[cell] < 0
        for part in (one, other):
            w, s, e, n = part[0], part[1], part[2], part[3]
            if w < x + width and e >= x and s < y + width and n >= y:
                meets = True
                covered |= w <= x and e >= x + width - 1 and s <= y and n >= y + width - 1
        if not meets:
            continue
        rows[found] = 2 * cell + (1 if covered else 0)
        found += 1
        if covered:
            continue
        half = width // 2
        for child in range(4):
            stack[top, 0], stack[top, 1] = first[cell] + child, half
            stack[top, 2], stack[top, 3] = x + half * (child & 1), y + half * (child >> 1)
            top += 1
    return found


@kernel
def _visit(first: Codes, depth: int, one: Ints, other: Ints, offsets: Ints) -> Codes:
    """The rows of :class:`Visits` for each pair of ranges of finest cells; fills ``offsets``, initially zeros."""
    stack = np.empty((4 * depth + 4, 4), np.int64)  # cell, width, column and row of its south-west finest cell
    rows = np.empty(16 * len(one) + len(first), np.int32)
    for q in range(len(one)):
        found = offsets[q]
        if found + len(first) > len(rows):
            more = np.empty(2 * len(rows), np.int32)
            more[:found] = rows[:found]
            rows = more
        offsets[q + 1] = _visit_from(first, stack, depth, one[q], other[q], rows, found)
    return rows[: offsets[-1]]


class Visits(NamedTuple):
    """The cells of J that each of n queries reaches, found from the root down.

    Row 2 c means that the query reaches a part of cell c; row 2 c + 1 that it covers the cell. Cells below a covered
    cell are omitted, and a cell that is not split counts as covered.
    """

    offsets: Ints
    """int64[n + 1]; query q reaches ``rows[offsets[q] : offsets[q + 1]]``."""
    rows: Codes
    """int32[m]."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """A quadtree of n cells.

    Attributes:
        space: the space, which is cell 0.
        depth: the deepest possible level.
        first: int32[n], the first child; -1 if the cell is not split.
        parent: int32[n], the parent; 0 for cell 0.
        level: int32[n], the level; 0 for cell 0.
    """

    space: Space
    depth: int
    first: Codes
    parent: Codes
    level: Codes

    @classmethod
    def complete(cls, space: Space, levels: int) -> Cells:
        """Create a complete quadtree down to level ``levels``."""
        return cls._grown(space, levels, np.arange(4**levels, dtype=np.int64), 0)

    @classmethod
    def adaptive(cls, space: Space, x: Floats, y: Floats, *, least: int, most: int, depth: int) -> Cells:
        """Create cells that are split where there are many points.

        Args:
            space: the space to divide.
            x: x coordinates (longitudes) of the points, which are those of objects and of queries.
            y: their y coordinates (latitudes).
            least: minimum number of points of a cell that is split.
            most: maximum number of cells; ``least`` is doubled until it is met.
            depth: the deepest level.
        """
        column, row = _grid(space, x, y, depth)
        keys = np.sort(_interleaved(column, row, depth))
        while True:
            made = cls._grown(space, depth, keys, least)
            if len(made.first) <= most:
                return made
            least *= 2

    @classmethod
    def _grown(cls, space: Space, depth: int, keys: Ints, least: int) -> Cells:
        """Split every cell that contains at least ``least`` of these ascending keys."""
        first, parent, level = [np.full(1, -1, np.int32)], [np.zeros(1, np.int32)], [np.zeros(1, np.int32)]
        numbers, at, count = (
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
            1,
        )  # prefixes of the level's cells; their places
        for deep in range(depth):
            width = 2 * (depth - deep)
            inside = np.searchsorted(keys, (numbers + 1) << width) - np.searchsorted(keys, numbers << width)
            split = np.flatnonzero(inside >= max(least, 1))
            if not len(split):
                break
            first[deep][split] = count + 4 * np.arange(len(split), dtype=np.int32)
            parent.append(np.repeat(at[split], 4).astype(np.int32))
            numbers = (4 * numbers[split, np.newaxis] + np.arange(4)).reshape(-1)
            at = count + np.arange(len(numbers))
            count += len(numbers)
            first.append(np.full(len(numbers), -1, np.int32))
            level.append(np.full(len(numbers), deep + 1, np.int32))
        return cls(space, depth, np.concatenate(first), np.concatenate(parent), np.concatenate(level))

    def __len__(self) -> int:
        """Number of cells."""
        return len(self.first)

    def levels(self) -> list[slice]:
        """The cells of each level, from the root down."""
        ends = np.searchsorted(self.level, np.arange(int(self.level[-1]) + 2))
        return [slice(int(start), int(end)) for start, end in pairwise(ends)]

    def boxes(self) -> Floats:
        """The box of each cell, float64[n, 4]: (west, south, east, north)."""
        boxes = np.empty((len(self), 4))
        boxes[0] = self.space.bounds
        for cells in self.levels()[1:]:
            number = np.arange(cells.start, cells.stop)
            child = number - self.first[self.parent[cells]]
            above = boxes[self.parent[cells]]
            middle = 0.5 * (above[:, :2] + above[:, 2:])
            for axis in (0, 1):
                upper = (child >> axis) & 1 == 1
                boxes[cells, axis] = np.where(upper, middle[:, axis], above[:, axis])
                boxes[cells, 2 + axis] = np.where(upper, above[:, 2 + axis], middle[:, axis])
        return boxes

    def visits(self, parts: Floats) -> Visits:
        """The cells that n regions reach, each given as a pair of boxes: float64[n, 2, 4]."""
        offsets = np.zeros(len(parts) + 1, np.int64)
        rows = _visit(self.first, self.depth, self._ranges(parts[:, 0]), self._ranges(parts[:, 1]), offsets)
        return Visits(offsets, rows)

    def _ranges(self, parts: Floats) -> Ints:
        """Convert boxes float64[n, 4] to closed ranges int64[n, 4] of columns and rows of finest cells."""
        side = 1 << self.depth
        result: Ints = np.clip(np.floor(self._scaled(parts)), 0, side - 1).astype(np.int64)
        result[parts[:, 0] > parts[:, 2]] = (side, side, -1, -1)
        return result

    def of_points(self, x: Floats, y: Floats) -> Ints:
        """The smallest cell that contains each point, int64[n]."""
        column, row = _grid(self.space, x, y, self.depth)
        return self._descend(column, row, np.full(len(x), self.depth))

    def of_boxes(self, boxes: Floats) -> Ints:
        """The smallest cell that covers each box float64[n, 4] (west, south, east, north), int64[n].

        A box that ends at the border of the next cell does not reach into that cell. A box smaller than the cells at
        its position gets the cell that contains it, unless it straddles two.
        """
        side = 1 << self.depth
        scaled = self._scaled(boxes)
        low = np.clip(np.floor(scaled[:, :2] + _SLACK), 0, side - 1).astype(np.int64)
        high = np.clip(np.ceil(scaled[:, 2:] - _SLACK) - 1, low, side - 1).astype(np.int64)
        apart = np.bitwise_or.reduce(low ^ high, axis=1)
        return self._descend(low[:, 0], low[:, 1], self.depth - np.frexp(apart.astype(np.float64))[1])

    def _scaled(self, boxes: Floats) -> Floats:
        west, south, east, north = self.space.bounds
        size = np.array([east - west, north - south] * 2)
        result: Floats = (boxes - np.array([west, south] * 2)) * ((1 << self.depth) / size)
        return result

    def _descend(self, column: Ints, row: Ints, lowest: Ints) -> Ints:
        """The deepest cell at each position, no deeper than ``lowest``."""
        cell = np.zeros(len(column), np.int64)
        for deep in range(self.depth):
            bit = self.depth - 1 - deep
            below = self.first[cell] + ((column >> bit) & 1) + 2 * ((row >> bit) & 1)
            cell = np.where((self.first[cell] >= 0) & (self.level[cell] == deep) & (lowest > deep), below, cell)
        return cell

    def nearest(self, own: Flags) -> Codes:
        """The cell whose figures are used for each cell: itself if ``own``, else its nearest such ancestor; int32[n].

        The root always uses its own.
        """
        result = np.where(own, np.arange(len(self)), 0).astype(np.int32)
        for cells in self.levels()[1:]:
            result[cells] = np.where(own[cells], result[cells], result[self.parent[cells]])
        return result

    def add_up(self, counts: Floats) -> None:
        """Add to the counts of every cell those of its children, from the deepest level up."""
        for cells in reversed(self.levels()[1:]):
            np.add.at(counts, self.parent[cells], counts[cells])

    def hand_down(self, counts: Floats) -> None:
        """Add to the counts of every cell those of its parent, from the root down, in each row of float64[m, n]."""
        for cells in self.levels()[1:]:
            counts[:, cells] += counts[:, self.parent[cells]]


def _grid(space: Space, x: Floats, y: Floats, depth: int) -> tuple[Ints, Ints]:
    """Column and row of each point among the cells of level ``depth``."""
    side = 1 << depth
    west, south, east, north = space.bounds
    column = np.clip((x - west) * (side / (east - west)), 0, side - 1).astype(np.int64)
    row = np.clip((y - south) * (side / (north - south)), 0, side - 1).astype(np.int64)
    return column, row


def _interleaved(column: Ints, row: Ints, depth: int) -> Ints:
    """Z-order keys: two bits per level, the root's children in the highest bits."""
    keys = np.zeros(len(column), np.int64)
    for bit in range(depth - 1, -1, -1):
        keys = 4 * keys + ((column >> bit) & 1) + 2 * ((row >> bit) & 1)
    return keys
