"""The leaves that polygons intersect, of those that their boxes do.

A polygon may have a large box and little of it: an island far away, a coast along a diagonal. Its queries need not be
where its box is. Cost: O(edges whose latitudes meet the leaf's) for each distinct pair of polygon and leaf.
"""

from __future__ import annotations

import numpy as np

from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.kernels import kernel
from spatialstream.model.polygons.cover import OUTSIDE, relate
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.regions import Regions

__all__ = ["without_outside"]


@kernel
def _meet(geographic: bool, packed: Floats, polygon: Ints, boxes: Floats, out: Flags) -> None:
    """Whether each polygon has a point in common with its box float64[m, 4]."""
    table = table_of(packed)
    for i in range(len(polygon)):
        west, south, east, north = boxes[i]
        out[i] = relate(table, geographic, polygon[i], west, south, east, north) != OUTSIDE


def without_outside(geographic: bool, regions: Regions, row: Codes, leaf: Codes, boxes: Floats) -> tuple[Codes, Codes]:
    """Drop the pairs of a polygon and a leaf that have no point in common; each region keeps at least one leaf.

    Args:
        geographic: of the space.
        regions: the regions.
        row: int32[m], ascending: a region, of which
        leaf: int32[m]: this leaf is met by its box.
        boxes: float64[leaves, 4], closed boxes that contain the leaves' objects.
    """
    if not regions.polygons.distinct:
        return row, leaf
    polygon = regions.polygons.codes[row].astype(np.int64)
    several = np.bincount(row, minlength=len(regions))[row] > 1
    pairs = np.flatnonzero((polygon >= 0) & several)
    if not len(pairs):
        return row, leaf
    distinct, which = np.unique(polygon[pairs] * len(boxes) + leaf[pairs], return_inverse=True)
    of, to = np.divmod(distinct, len(boxes))
    meets = np.empty(len(distinct), np.bool_)
    _meet(geographic, regions.polygons.packed, of, boxes[to], meets)
    kept = np.ones(len(row), np.bool_)
    kept[pairs] = meets[which]
    lost = np.bincount(row[kept], minlength=len(regions))[row] == 0
    first = np.append(True, row[1:] != row[:-1])
    kept |= lost & first
    return row[kept], leaf[kept]
