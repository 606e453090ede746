"""Partitions of space that PS2Stream (ICDE 2017, section VI) compares with: a grid, a k-d tree, an R-tree's leaves.

The last two are rectangles of cells of the A-Grid's fine grid, so they are routed alike. The nodes of an R-tree need
not cover the space, but then an object between them has no leaf; so its leaves reach up to their neighbours' borders.
"""

from __future__ import annotations

import heapq
import itertools
import math

import numpy as np
import numpy.typing as npt

from spatialstream.index.a_grid.a_grid import SIDE, AGrid, cells_of, lines
from spatialstream.index.a_grid.costs import object_costs
from spatialstream.index.base import GlobalIndex
from spatialstream.index.grid.grid import Grid
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch

Rectangle = tuple[int, int, int, int]
Places = npt.NDArray[np.int32]


def grid(objects: ObjectBatch, leaves: int, statistics: Statistics) -> GlobalIndex:
    """2^6 times 2^6 equal cells, whatever ``leaves`` are."""
    zeros = np.zeros(1 << 12)
    equal = Grid(statistics.space, *lines(statistics.space, 1 << 6), zeros, zeros)
    return _weighed(equal, objects, statistics)


def kd_tree(objects: ObjectBatch, leaves: int, statistics: Statistics) -> GlobalIndex:
    """Cut the rectangle with most objects at their median, across x and y in turn, until there are ``leaves``."""
    at = np.stack(cells_of(statistics.space, SIDE, objects.x, objects.y))
    number, done = itertools.count(), list[Rectangle]()
    queue = [(-len(objects), next(number), 0, (0, 0, SIDE, SIDE), np.arange(len(objects)))]
    while queue and len(queue) + len(done) < leaves:
        _, _, wanted, rectangle, rows = heapq.heappop(queue)
        for way in (wanted, 1 - wanted):
            if (cut := median(at[way, rows], rectangle[way], rectangle[way + 2])) is not None:
                break
        else:
            done.append(rectangle)
            continue
        before = at[way, rows] < cut
        for part, mine in zip(halves(rectangle, way, cut), (rows[before], rows[~before]), strict=True):
            heapq.heappush(queue, (-len(mine), next(number), 1 - way, part, mine))
    return _grid(objects, statistics, [*done, *(each[3] for each in queue)])


def median(at: Places, first: int, end: int) -> int | None:
    """The line between cells that divides objects most evenly; None if no line has some on either side.

    Args:
        at: columns, or rows, of the objects.
        first: the first one of the rectangle.
        end: the one after its last.
    """
    middle = int(np.median(at)) if len(at) else 0
    before = {line: int((at < line).sum()) for line in (middle, middle + 1) if first < line < end}
    useful = [line for line, n in before.items() if 0 < n < len(at)]
    return min(useful, key=lambda line: abs(2 * before[line] - len(at)), default=None)


def halves(rectangle: Rectangle, way: int, line: int) -> tuple[Rectangle, Rectangle]:
    """The parts of a rectangle before and after a line."""
    before, after = list(rectangle), list(rectangle)
    before[way + 2] = after[way] = line
    return (before[0], before[1], before[2], before[3]), (after[0], after[1], after[2], after[3])


def r_tree(objects: ObjectBatch, leaves: int, statistics: Statistics) -> GlobalIndex:
    """Leaves packed by Sort-Tile-Recursive: slabs of equal numbers of objects, cut into tiles of equal numbers."""
    column, row = cells_of(statistics.space, SIDE, objects.x, objects.y)
    slabs = math.isqrt(leaves - 1) + 1
    tiles = np.bincount(np.arange(leaves) % slabs, minlength=slabs)
    found = list[Rectangle]()
    for (west, east), n in zip(itertools.pairwise(divisions(column, tiles)), tiles.tolist(), strict=True):
        borders = divisions(row[(column >= west) & (column < east)], np.ones(n))
        found += [(west, south, east, north) for south, north in itertools.pairwise(borders)]
    return _grid(objects, statistics, found)


def divisions(at: Places, share: npt.NDArray[np.generic]) -> list[int]:
    """Lines between cells such that objects between them are in proportion to shares; at least a cell lies between.

    Args:
        at: columns, or rows, of the objects.
        share: of each part.
    """
    n, ends = len(share), np.cumsum(share)[:-1] / np.sum(share)
    wanted = np.quantile(at, ends) if len(at) else ends * SIDE
    each = np.arange(1, n)
    inner = np.maximum.accumulate(np.rint(wanted).astype(np.int64) - each) + each
    return [0, *np.clip(inner, each, SIDE - n + each).tolist(), SIDE]


def _grid(objects: ObjectBatch, statistics: Statistics, rectangles: list[Rectangle]) -> GlobalIndex:
    zeros = np.zeros(len(rectangles))
    return _weighed(AGrid(statistics.space, np.array(sorted(rectangles), np.int32), zeros, zeros), objects, statistics)


def _weighed(index: GlobalIndex, objects: ObjectBatch, statistics: Statistics) -> GlobalIndex:
    """An index with the objects of each leaf, and their costs, as an A-Grid has them."""
    leaf, cost, n = index.route_objects(objects), object_costs(objects, statistics), len(index.leaves)
    return index.weighed(*(np.bincount(leaf, each, n).astype(np.float64) for each in (np.ones(len(leaf)), cost)))
