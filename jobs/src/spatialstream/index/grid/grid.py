"""A uniform grid: the space in equal cells, a leaf each, numbered row by row from the south-west.

It is the plainest partition of space, and the yardstick for the others. It ignores the sample but for the load of its
cells, which decides on their slots. It never changes, so only PM and FM balance it: a cell with more load than a slot's
share stays as it is, and more leaves from the start are the remedy. A cell includes its west and south borders.

Cost: O(log n) per object, O(log n + leaves that it concerns) per query, for n leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from spatialstream.index.base import GlobalIndex, Leaves
from spatialstream.index.polygons import without_outside
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Codes, Flags, Floats, Ints
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance_to_box
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space

__all__ = ["Grid", "build_grid"]


@kernel
def _reached(geographic: bool, circle: Floats, box: Floats, out: Flags) -> None:
    """Whether each circle float64[m, 3] may contain a point of its box float64[m, 4]."""
    for i in range(len(out)):
        gap = distance_to_box(geographic, circle[i, 0], circle[i, 1], box[i, 0], box[i, 1], box[i, 2], box[i, 3])
        out[i] = gap <= circle[i, 2]


class Grid(GlobalIndex):
    """A uniform grid.

    Args:
        space: the space that it covers.
        x: float64[columns + 1], the borders of the columns, from west to east.
        y: float64[rows + 1], the borders of the rows, from south to north.
        objects: float64[leaves], see :class:`Leaves`.
        load: float64[leaves], likewise.
    """

    kind: ClassVar[str] = "grid"

    def __init__(self, space: Space, x: Floats, y: Floats, objects: Floats, load: Floats) -> None:
        self.space = space
        self.x, self.y = x, y
        self.leaves = Leaves(_boxes(x, y), np.zeros(len(load), np.bool_), objects, load)

    def route_objects(self, objects: ObjectBatch) -> Codes:
        """See :class:`GlobalIndex`."""
        return self._leaf(objects.x, objects.y)

    def route_regions(self, regions: Regions) -> tuple[Codes, Codes]:
        """The leaves that each region intersects: (row int32[m], leaf int32[m]), ascending by (row, leaf)."""
        parts = region_parts(self.space, regions)
        parts[regions.kind == EVERYWHERE] = self.space.bounds, NOWHERE
        row, part = np.nonzero(parts[:, :, 0] <= parts[:, :, 2])
        entry, leaf = self._covering(parts[row, part])
        pairs = np.unique(row[entry] * len(self.leaves) + leaf)  # two parts may meet one leaf
        row, leaf = np.divmod(pairs, len(self.leaves))
        met = np.ones(len(pairs), np.bool_)
        round_ = np.flatnonzero(regions.kind[row] == CIRCLE)
        reached = np.empty(len(round_), np.bool_)
        _reached(self.space.geographic, regions.shape[row[round_]], self.leaves.box[leaf[round_]], reached)
        met[round_] = reached
        rows: Codes = row[met].astype(np.int32)
        leaves: Codes = leaf[met].astype(np.int32)
        return without_outside(self.space.geographic, regions, rows, leaves, self.leaves.box)

    def nearest_leaves(self, at: Floats) -> Codes:
        """See :class:`GlobalIndex`."""
        return self._leaf(at[:, 0], at[:, 1])

    def weighed(self, objects: Floats, load: Floats) -> Self:
        """See :class:`GlobalIndex`."""
        return type(self)(self.space, self.x, self.y, objects, load)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """See :class:`GlobalIndex`."""
        figures = {"leaves.objects": self.leaves.objects, "leaves.load": self.leaves.load}
        return {"x": self.x, "y": self.y} | figures, {"space": str(self.space)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """See :class:`GlobalIndex`."""
        columns = (arrays[name] for name in ("x", "y", "leaves.objects", "leaves.load"))
        return cls(Space.parse(meta["space"]), *columns)

    def _leaf(self, x: Floats, y: Floats) -> Codes:
        leaf = _cell(self.y, y) * (len(self.x) - 1) + _cell(self.x, x)
        return leaf.astype(np.int32)

    def _covering(self, boxes: Floats) -> tuple[Ints, Ints]:
        """The leaves that each box float64[n, 4] intersects: (row of ``boxes``, leaf), int64[m] each."""
        west, south, east, north = boxes.T
        left, bottom = _cell(self.x, west), _cell(self.y, south)
        columns, rows = _cell(self.x, east) - left + 1, _cell(self.y, north) - bottom + 1
        count = columns * rows
        entry = np.repeat(np.arange(len(boxes)), count)
        down, across = np.divmod(np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count), columns[entry])
        return entry, (bottom[entry] + down) * (len(self.x) - 1) + left[entry] + across


def _cell(borders: Floats, at: Floats) -> Ints:
    """The column or row of coordinates, int64[n]; outside of the space, the nearest one."""
    return np.searchsorted(borders[1:-1], at, side="right")


def _boxes(x: Floats, y: Floats) -> Floats:
    """The boxes of the leaves, float64[n, 4]."""
    south, west = np.meshgrid(y[:-1], x[:-1], indexing="ij")
    north, east = np.meshgrid(y[1:], x[1:], indexing="ij")
    return np.stack([each.reshape(-1) for each in (west, south, east, north)], axis=1)


def build_grid(objects: ObjectBatch, leaves: int, statistics: Statistics) -> Grid:
    """Build a grid of at least ``leaves`` cells that are as square as possible in the space's coordinates.

    Args:
        objects: a sample of the stream, from which the load of the cells is estimated.
        leaves: θ.
        statistics: J; its space is the grid's.
    """
    west, south, east, north = statistics.space.bounds
    rows = max(1, min(leaves, round(math.sqrt(leaves * (north - south) / (east - west)))))
    columns = -(-leaves // rows)
    x, y = np.linspace(west, east, columns + 1), np.linspace(south, north, rows + 1)
    n = rows * columns
    empty = Grid(statistics.space, x, y, np.zeros(n), np.zeros(n))
    leaf = empty.route_objects(objects)
    held = np.bincount(leaf, minlength=n).astype(np.float64)
    rate = np.bincount(leaf, statistics.rates(objects.x, objects.y), n).astype(np.float64)
    cells = statistics.cells_of(empty.leaves.box)
    return empty.weighed(held, statistics.workloads(cells, held, rate, empty.coverage(statistics, cells)))
