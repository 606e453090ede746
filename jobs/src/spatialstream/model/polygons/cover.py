"""What boxes and cells are to a polygon: wholly inside, wholly outside, or on its border; exact, and never too certain.

A *cover* is the cells of a quadtree over the space that together contain a polygon. In cells inside no point needs a
test. Cells are those of :func:`cell_code`: 2^16 by 2^16 of the space's bounds, in Z-order.

Cost: O(edges whose latitudes meet the box's) for a box; as many boxes as the cover has cells, and a third more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spatialstream.model.arrays import Bytes, Flags, Floats, Ints
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.polygons.margin import reach, widest
from spatialstream.model.polygons.orientation import TURN, orientation
from spatialstream.model.polygons.table import PolygonTable, band_of, has_margin, polygon_contains, rest_of_sum
from spatialstream.model.space import Space

__all__ = ["BORDER", "INSIDE", "LEVELS", "MOST_CELLS", "OUTSIDE", "Cover", "cell_code", "classify", "relate"]

OUTSIDE, BORDER, INSIDE = 0, 1, 2
"""What a box is to a polygon: no point of it is inside, some may be, or all are."""

LEVELS = 16
"""Depth of the quadtree."""

MOST_CELLS = 256
"""Cells of a cover, by default."""

_SLACK = 2.0**-48
"""Share of the space by which cells are widened: more than rounding moves a point in :func:`cell_code`."""


@lean_kernel
def _reaches(
    edge: tuple[float, float, float, float],
    box: tuple[float, float, float, float],
    turn: float,
    rests: tuple[float, float],
) -> bool:
    """Whether an edge (ax, ay, bx, by) has a point in common with a closed box that is moved to the east by ``turn``.

    Two convex sets are apart if an axis separates them; here x, y and the normal of the edge are all that can.
    """
    ax, ay, bx, by = edge
    west, south, east, north = box
    if (ay < south and by < south) or (ay > north and by > north):
        return False
    at, rest = west + turn, rests[0]
    if (ax < at or (ax == at and rest > 0.0)) and (bx < at or (bx == at and rest > 0.0)):
        return False
    at, rest = east + turn, rests[1]
    if (ax > at or (ax == at and rest < 0.0)) and (bx > at or (bx == at and rest < 0.0)):
        return False
    side = orientation(ax, ay, bx, by, west, south, turn)
    if side == 0:
        return True
    return (
        orientation(ax, ay, bx, by, east, south, turn) != side
        or orientation(ax, ay, bx, by, west, north, turn) != side
        or orientation(ax, ay, bx, by, east, north, turn) != side
    )


@lean_kernel
def _is_crossed(t: PolygonTable, row: int, west: float, south: float, east: float, north: float, turn: float) -> bool:
    """Whether an edge of the polygon has a point in common with a closed box moved to the east by ``turn``."""
    if west + turn > t.bounds[row, 2] or east + turn < t.bounds[row, 0]:
        return False
    if south > t.bounds[row, 3] or north < t.bounds[row, 1]:
        return False
    rests = rest_of_sum(west, turn, west + turn), rest_of_sum(east, turn, east + turn)
    first, count = t.first_band[row], t.first_band[row + 1] - t.first_band[row]
    low = band_of(max(south, t.bounds[row, 1]), t.bounds[row, 1], t.scale[row], count)
    high = band_of(min(north, t.bounds[row, 3]), t.bounds[row, 1], t.scale[row], count)
    for at in range(t.band[first + low], t.band[first + high + 1]):
        a = t.edges[at]
        if _reaches((t.x[a], t.y[a], t.x[a + 1], t.y[a + 1]), (west, south, east, north), turn, rests):
            return True
    return False


@lean_kernel
def _with_margin(
    t: PolygonTable, geographic: bool, row: int, west: float, south: float, east: float, north: float
) -> tuple[float, float, float, float]:
    """A box that contains all points within the polygon's margin of a box."""
    within = t.scale[len(t.bounds) + row]
    if not geographic:
        largest = max(max(abs(west), abs(east)), max(abs(south), abs(north)))
        up = reach(False, within, largest)
        return west - up, south - up, east + up, north + up
    up = reach(True, within, 0.0)
    along = widest(within, max(abs(south), abs(north)))
    if along >= TURN or west - along < -180.0 or east + along > 180.0:
        west, east, along = -180.0, 180.0, 0.0
    return west - along, south - up, east + along, north + up


@lean_kernel
def relate(t: PolygonTable, geographic: bool, row: int, west: float, south: float, east: float, north: float) -> int:
    """What a closed box (west <= east) is to a polygon: ``INSIDE``, ``OUTSIDE`` or, if an edge meets it, ``BORDER``.

    With a margin it is ``BORDER`` if an edge may be that near.

    If ``geographic``, longitudes of the box are in [-180, 180].
    """
    w, s, e, n = west, south, east, north
    if has_margin(t, row):
        w, s, e, n = _with_margin(t, geographic, row, west, south, east, north)
    if _is_crossed(t, row, w, s, e, n, 0.0):
        return BORDER
    if geographic and (_is_crossed(t, row, w, s, e, n, TURN) or _is_crossed(t, row, w, s, e, n, -TURN)):
        return BORDER
    return INSIDE if polygon_contains(t, geographic, row, west, south) else OUTSIDE


@lean_kernel
def _cell(value: float, low: float, high: float) -> int:
    """The column or row of a coordinate, which never falls as the coordinate rises."""
    return min(int((value - low) / (high - low) * (1 << LEVELS)), (1 << LEVELS) - 1)


@lean_kernel
def cell_code(bounds: Floats, x: float, y: float) -> int:
    """The cell of a point within ``bounds``: bits of its column and row in turn, in Z-order."""
    column, row = _cell(x, bounds[0], bounds[2]), _cell(y, bounds[1], bounds[3])
    code = 0
    for bit in range(LEVELS):
        code |= ((column >> bit & 1) << (2 * bit)) | ((row >> bit & 1) << (2 * bit + 1))
    return code


@lean_kernel
def _relate_cell(t: PolygonTable, geographic: bool, row: int, bounds: Floats, level: int, code: int) -> int:
    """What a node of the quadtree is to a polygon; nodes are a little wider than their points."""
    column, line = 0, 0
    for bit in range(level):
        column |= (code >> (2 * bit) & 1) << bit
        line |= (code >> (2 * bit + 1) & 1) << bit
    wide, high = bounds[2] - bounds[0], bounds[3] - bounds[1]
    count = float(1 << level)
    west = max(bounds[0] + wide * (column / count) - wide * _SLACK, bounds[0])
    east = min(bounds[0] + wide * ((column + 1) / count) + wide * _SLACK, bounds[2])
    south = max(bounds[1] + high * (line / count) - high * _SLACK, bounds[1])
    north = min(bounds[1] + high * ((line + 1) / count) + high * _SLACK, bounds[3])
    return relate(t, geographic, row, west, south, east, north)


@kernel
def _cells(t: PolygonTable, geographic: bool, row: int, bounds: Floats, most: int) -> tuple[Ints, Ints, Bytes]:
    """Nodes that together contain a polygon: first cells int64[m], numbers of cells int64[m], what they are uint8[m].

    All nodes on the border are split, level by level, while the nodes then are no more than ``most``.
    """
    first, sizes, what = np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros(most, np.uint8)
    border, children = np.zeros(most, np.int64), np.zeros(most, np.int64)
    found, count, level = 0, 0, 0
    if _relate_cell(t, geographic, row, bounds, 0, 0) == INSIDE:
        sizes[0], what[0], found = 1 << (2 * LEVELS), INSIDE, 1
    else:
        count = 1
    while count > 0 and level < LEVELS and found + 4 * count <= most:
        level += 1
        size = 1 << (2 * (LEVELS - level))
        next_count = 0
        for i in range(count):
            for child in range(4):
                code = 4 * border[i] + child
                state = _relate_cell(t, geographic, row, bounds, level, code)
                if state == BORDER:
                    children[next_count] = code
                    next_count += 1
                elif state == INSIDE:
                    first[found], sizes[found], what[found] = code * size, size, INSIDE
                    found += 1
        border, children, count = children, border, next_count
    for i in range(count):
        size = 1 << (2 * (LEVELS - level))
        first[found], sizes[found], what[found] = border[i] * size, size, BORDER
        found += 1
    return first[:found], sizes[:found], what[:found]


class Cover(NamedTuple):
    """The cells that together contain a polygon, as disjoint ranges in Z-order, ascending.

    Attributes:
        bounds: float64[4], of the space.
        first: int64[m], the first cell of each range.
        end: int64[m], the cell after its last one.
        inside: bool[m], whether the polygon contains every point of these cells.
    """

    bounds: Floats
    first: Ints
    end: Ints
    inside: Flags

    @classmethod
    def of(cls, space: Space, table: PolygonTable, index: int, most_cells: int = MOST_CELLS) -> Cover:
        """Cover the polygon at ``index`` by at most ``most_cells`` nodes of the quadtree (at least 4)."""
        bounds = np.array(space.bounds, np.float64)
        first, sizes, what = _cells(table, space.geographic, index, bounds, max(most_cells, 4))
        order = np.argsort(first)
        first, end, inside = first[order], (first + sizes)[order], what[order] == INSIDE
        joins = np.zeros(len(first), np.bool_)
        joins[1:] = (first[1:] == end[:-1]) & (inside[1:] == inside[:-1])
        starts = np.flatnonzero(~joins)
        ends = np.append(starts[1:], len(first)) - 1 if len(first) else starts
        return cls(bounds, first[starts], end[ends], inside[starts])


@kernel
def classify(cover: Cover, x: float, y: float) -> int:
    """What the cell of a point within the space is to the polygon: only in ``BORDER`` the point needs a test."""
    code = cell_code(cover.bounds, x, y)
    at = np.searchsorted(cover.first, code, "right") - 1
    if at < 0 or code >= cover.end[at]:
        return OUTSIDE
    return INSIDE if cover.inside[at] else BORDER
