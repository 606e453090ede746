"""Z-order (Morton, 1966): a quadtree in the form of a sort order.

Objects are sorted by the interleaved bits of their cell in a grid of 2^16 x 2^16 cells over their bounding box. Every
node of the quadtree over that grid (level l, prefix of 2 l bits) is then a contiguous range of positions, so the tree
itself is never stored: a *directory* gives the first position of each node of one level in O(1), deeper nodes are
found by binary search over cells computed from the coordinates.

The cell is a monotone function of the coordinate, rounding included: a node whose cells lie strictly between those of
two edges lies strictly between the edges.

Cost: sorting is three passes of a radix sort; the directory holds about one int32 for four objects.
"""

from __future__ import annotations

import numpy as np

from spatialstream.local.arrays import Array, wide
from spatialstream.local.snapshot.addresses import Columns
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = ["LEVELS", "cell", "column", "directory_of", "grid_of", "node_box", "node_start", "z_sort"]

LEVELS = 16
"""Levels of the quadtree below its root."""

_CELLS = 1 << LEVELS
_DIGIT = 11


@kernel
def cell(value: float, origin: float, scale: float) -> int:
    """The grid column (or row) of a coordinate; clamped, also for values outside the grid."""
    offset = (value - origin) * scale
    if not offset > 0.0:
        return 0
    if offset >= 65535.0:
        return 65535
    return int(offset)


@kernel
def _spread(bits: int) -> int:
    bits = (bits | (bits << 8)) & 0x00FF00FF
    bits = (bits | (bits << 4)) & 0x0F0F0F0F
    bits = (bits | (bits << 2)) & 0x33333333
    return (bits | (bits << 1)) & 0x55555555


@kernel
def column(prefix: int) -> int:
    """The even bits of a prefix: the column among the nodes of its level (``column(prefix >> 1)`` is its row)."""
    bits = prefix & 0x55555555
    bits = (bits | (bits >> 1)) & 0x33333333
    bits = (bits | (bits >> 2)) & 0x0F0F0F0F
    bits = (bits | (bits >> 4)) & 0x00FF00FF
    return (bits | (bits >> 8)) & 0x0000FFFF


@lean_kernel
def _code(grid: Array, x: float, y: float) -> int:
    return _spread(cell(x, grid[0], grid[4])) | (_spread(cell(y, grid[1], grid[5])) << 1)


@kernel
def grid_of(x: Array, y: Array) -> Array:
    """The grid over the bounding box of points: (x0, y0, x1, y1, columns per unit of x, rows per unit of y).

    The scale is 0 if the box has no usable extent: then everything is in column (row) 0.
    """
    grid = np.zeros(6)
    if len(x) == 0:
        return grid
    grid[0], grid[1], grid[2], grid[3] = x[0], y[0], x[0], y[0]
    for i in range(len(x)):
        grid[0] = min(grid[0], x[i])
        grid[1] = min(grid[1], y[i])
        grid[2] = max(grid[2], x[i])
        grid[3] = max(grid[3], y[i])
    for axis in range(2):
        extent = grid[axis + 2] - grid[axis]
        if extent > 0.0 and np.isfinite(_CELLS / extent):
            grid[axis + 4] = _CELLS / extent
    return grid


@kernel
def z_sort(grid: Array, x: Array, y: Array) -> Array:
    """The stable order (int64[n]) of points by Z-order: sorts words of the code and, in the lower half, the index."""
    n = len(x)
    source = np.empty(n, np.uint64)
    target = np.empty(n, np.uint64)
    for i in range(n):
        source[i] = np.uint64((_code(grid, x[i], y[i]) << 32) | i)
    for shift in (32, 32 + _DIGIT, 32 + 2 * _DIGIT):
        starts = np.zeros((1 << _DIGIT) + 1, np.int64)
        for i in range(n):
            starts[(np.int64(source[i] >> np.uint64(shift)) & ((1 << _DIGIT) - 1)) + 1] += 1
        for digit in range(1 << _DIGIT):
            starts[digit + 1] += starts[digit]
        for i in range(n):
            place = np.int64(source[i] >> np.uint64(shift)) & ((1 << _DIGIT) - 1)
            target[starts[place]] = source[i]
            starts[place] += 1
        source, target = target, source
    order = np.empty(n, np.int64)
    for i in range(n):
        order[i] = np.int64(source[i] & np.uint64(0xFFFFFFFF))
    return order


@kernel
def directory_of(grid: Array, x: Array, y: Array) -> Array:
    """First positions (int32[4^depth + 1]) of one level's nodes, for sorted points; about 4 to 16 points per node."""
    n = len(x)
    depth = 0
    while depth < LEVELS - 1 and (4 << (2 * depth)) * 4 <= n:
        depth += 1
    directory = np.empty((1 << (2 * depth)) + 1, np.int32)
    shift = 2 * (LEVELS - depth)
    filled = 0
    for i in range(n):
        node = _code(grid, x[i], y[i]) >> shift
        while filled <= node:
            directory[filled] = i
            filled += 1
    directory[filled:] = n
    return directory


@lean_kernel
def node_start(s: Columns, level: int, prefix: int, lo: int, hi: int) -> int:
    """First position in [lo, hi) that belongs to the node (level, prefix) or to a later one.

    Args:
        s: columns of a segment (``grid``, ``x``, ``y``, ``directory``, ``depth``).
        level: of the node.
        prefix: of the node; 4^level is allowed and gives the end.
        lo: a position not after the answer.
        hi: a position not before it.
    """
    if level <= s.depth:
        return wide(s.directory[prefix << (2 * (s.depth - level))])
    shift = 2 * (LEVELS - level)
    while lo < hi:
        middle = (lo + hi) >> 1
        if (_code(s.grid, s.x[middle], s.y[middle]) >> shift) < prefix:
            lo = middle + 1
        else:
            hi = middle
    return lo


@kernel
def _interval(first: int, size: int, low: float, high: float, scale: float) -> tuple[float, float]:
    if scale == 0.0:
        return low, high
    unit = 1.0 / scale
    slack = unit * 1e-3 + 1e-15 * max(abs(low), abs(high))
    return max(low, low + first * unit - slack), min(high, low + (first + size) * unit + slack)


@lean_kernel
def node_box(grid: Array, level: int, prefix: int) -> tuple[float, float, float, float]:
    """(west, south, east, north) that contains every point of the node; a thousandth of a cell wider, for rounding."""
    size = 1 << (LEVELS - level)
    west, east = _interval(column(prefix) * size, size, grid[0], grid[2], grid[4])
    south, north = _interval(column(prefix >> 1) * size, size, grid[1], grid[3], grid[5])
    return west, south, east, north
