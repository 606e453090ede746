"""How many continuous queries a part of an A-Grid's leaf has: queryCount of Tornado, sections 4.2 and 4.3.

The slots count them by leaf. A part of a leaf is assumed to have the share of them that it has of the leaf's sampled
ones. Of a circle, the box around it counts.

Cost: O(sampled queries) per rectangle.
"""

from __future__ import annotations

import numpy as np

from spatialstream.index.a_grid.a_grid import cells_of
from spatialstream.index.a_grid.costs import Rectangle
from spatialstream.index.sample import Sample
from spatialstream.model.arrays import Ints
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.geometry import EVERYWHERE

__all__ = ["ContinuousQueries"]

_MOST = 2_000
"""Maximum number of sampled queries that are looked at."""


class ContinuousQueries:
    """The continuous queries of a sample, as ranges of cells.

    Args:
        sample: the sample.
        side: number of columns and of rows of the grid.
    """

    def __init__(self, sample: Sample, side: int) -> None:
        queries = sample.continuous()
        queries = queries.take(np.arange(0, len(queries), max(1, -(-len(queries) // _MOST))))
        parts = region_parts(sample.space, queries.regions)
        parts[queries.regions.kind == EVERYWHERE] = sample.space.bounds, NOWHERE
        flat = np.nan_to_num(parts.reshape(-1, 4), posinf=0.0, neginf=0.0)
        low, high = (cells_of(sample.space, side, flat[:, i], flat[:, i + 1]) for i in (0, 2))
        self._ranges: Ints = np.stack([*low, *high], axis=1).astype(np.int64)
        self._ranges[parts.reshape(-1, 4)[:, 0] > parts.reshape(-1, 4)[:, 2]] = (side, side, -1, -1)

    def within(self, rectangle: Rectangle) -> int:
        """The number of sampled queries that concern a rectangle."""
        west, south, east, north = rectangle
        first_x, first_y, last_x, last_y = self._ranges.T
        meets = (first_x < east) & (last_x >= west) & (first_y < north) & (last_y >= south)
        return int(np.count_nonzero(meets.reshape(-1, 2).any(axis=1)))

    def share(self, part: Rectangle, *whole: Rectangle) -> float:
        """The share of the queries of some rectangles, added up, that concern another one; 1 if none is sampled."""
        sampled = sum(map(self.within, whole))
        return self.within(part) / sampled if sampled else 1.0
