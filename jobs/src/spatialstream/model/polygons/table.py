"""Polygons as columns, and whether they contain points: n polygons, each kept once, for any number of queries.

A point is tested against the edges of its *band* only: each polygon's latitudes are divided into bands of equal height,
as many as its edges allow, and each band lists the edges that reach into it. A polygon of 10,000 vertices has a few
edges in a band. With a margin a band also lists the edges that reach into it by their margin.

Cost: O(vertices) to build and to keep; O(edges in a band) for a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.polygons.margin import is_near, reach, widest
from spatialstream.model.polygons.orientation import TURN, orientation
from spatialstream.model.polygons.polygon import Polygon

__all__ = ["PolygonTable", "band_of", "contain_points", "has_margin", "margins_of", "polygon_contains", "rest_of_sum"]

_ENTRIES = 4
"""How many bands list an edge, on average, at most."""

_FULL = 1.5 * TURN
"""Longitudes of a margin beyond this may be those of several turns: then it reaches around."""


class PolygonTable(NamedTuple):
    """n polygons as columns, as kernels take them.

    Attributes:
        x: float64[v], longitudes of the vertices, ring after ring, the first of a ring again at its end.
        y: float64[v], latitudes.
        ring: int32[v], the ring of each vertex, counted over all polygons.
        part: int32[rings], the part of each ring, counted over all polygons.
        bounds: float64[n, 4], west, south, east, north, of what lies within the margin.
        scale: float64[n], bands in a unit of y; if a polygon has a margin, float64[2 n], with all margins behind them.
            An array of their own would cost each call with a table, of polygons without margins too.
        first_band: int32[n + 1], where each polygon's bands begin.
        band: int64[bands + 1], where each band's edges begin.
        edges: int32[...], the first vertices of the edges of each band, ascending.
    """

    x: Floats
    y: Floats
    ring: Codes
    part: Codes
    bounds: Floats
    scale: Floats
    first_band: Codes
    band: Ints
    edges: Codes

    @classmethod
    def of(cls, polygons: Sequence[Polygon]) -> PolygonTable:
        """Build the columns of a sequence."""
        x, y = np.concatenate([np.empty((0, 2)), *(_closed(each.points, each.rings) for each in polygons)]).T.copy()
        rings = [np.diff(each.rings) + 1 for each in polygons]
        ends = np.cumsum([0, *(int(sizes.sum()) for sizes in rings)])
        ring = np.repeat(np.arange(sum(map(len, rings))), _joined(rings)).astype(np.int32)
        parts = _joined([np.diff(each.parts) for each in polygons])
        bounds, scale = np.empty((len(polygons), 4)), np.empty(len(polygons))
        sizes, edges = [], []
        for i, (first, end) in enumerate(pairwise(ends.tolist())):
            up, bounds[i] = _bounds(polygons[i], x[first:end], y[first:end])
            scale[i], counts, listed = _bands(y[first:end], ring[first:end], up)
            sizes.append(counts)
            edges.append(listed + np.int32(first))
        return cls(
            x,
            y,
            ring,
            np.repeat(np.arange(len(parts)), parts).astype(np.int32),
            bounds,
            np.append(scale, margins_of(polygons)),
            np.cumsum([0, *map(len, sizes)]).astype(np.int32),
            np.cumsum([0, *_joined(sizes)]),
            _joined(edges),
        )

    @property
    def within(self) -> Floats:
        """The margins: what lies this near to the border also belongs to a polygon; empty if there is none."""
        return self.scale[len(self.bounds) :]

    def contain(self, geographic: bool, index: int, x: float, y: float) -> bool:
        """Whether the polygon at ``index`` contains the point (x, y)."""
        return bool(polygon_contains(self, geographic, index, x, y))


def margins_of(polygons: Sequence[Polygon]) -> Floats:
    """The margins of polygons, float64[n]; empty if none has one."""
    within = [each.within for each in polygons]
    return np.array(within if any(within) else [], np.float64)


def _bounds(polygon: Polygon, x: Floats, y: Floats) -> tuple[float, tuple[float, float, float, float]]:
    """How far the margin reaches in y, and bounds of what lies in it."""
    west, south, east, north = float(x.min()), float(y.min()), float(x.max()), float(y.max())
    if not polygon.within:
        return 0.0, (west, south, east, north)
    up = float(reach(polygon.geographic, polygon.within, max(map(abs, (west, south, east, north)))))
    along = up
    if polygon.geographic:
        along = float(widest(polygon.within, max(abs(south), abs(north))))
        if along >= TURN or west - along < -_FULL or east + along > _FULL:
            west, east, along = -2 * TURN, 2 * TURN, 0.0
    return up, (west - along, south - up, east + along, north + up)


def _closed(points: Floats, rings: Codes) -> Floats:
    """The vertices with each ring's first one again at its end."""
    return np.insert(points, rings[1:], points[rings[:-1]], axis=0)


def _joined(columns: Sequence[Codes] | Sequence[Ints]) -> Codes:
    return np.concatenate([np.empty(0, np.int32), *columns])


@lean_kernel
def band_of(y: float, south: float, scale: float, count: int) -> int:
    """The band of a latitude, which never falls as the latitude rises, whatever is rounded."""
    return min(int((y - south) * scale), count - 1)


@kernel
def _bands(y: Floats, ring: Codes, up: float) -> tuple[float, Ints, Codes]:
    """Bands of a polygon of closed rings: their number in a unit of y, edges in each int64[bands], edges int32[...].

    An edge reaches ``up`` beyond its ends.
    """
    south, north = y.min() - up, y.max() + up
    edges = len(y) - (ring[-1] - ring[0] + 1)
    count = max(edges, 1)
    scale = 0.0
    while count > 1:
        scale = count / (north - south)
        total = 0
        if scale < 1e300:
            for i in range(len(y) - 1):
                if ring[i] == ring[i + 1]:
                    low, high = min(y[i], y[i + 1]) - up, max(y[i], y[i + 1]) + up
                    total += band_of(high, south, scale, count) - band_of(low, south, scale, count) + 1
            if total <= _ENTRIES * edges:
                break
        count //= 2
    if count == 1:
        scale = 0.0
    sizes = np.zeros(count, np.int64)
    for i in range(len(y) - 1):
        if ring[i] == ring[i + 1]:
            low, high = min(y[i], y[i + 1]) - up, max(y[i], y[i + 1]) + up
            for band in range(band_of(low, south, scale, count), band_of(high, south, scale, count) + 1):
                sizes[band] += 1
    ends = np.cumsum(sizes) - sizes
    listed = np.empty(sizes.sum(), np.int32)
    for i in range(len(y) - 1):
        if ring[i] == ring[i + 1]:
            low, high = min(y[i], y[i + 1]) - up, max(y[i], y[i + 1]) + up
            for band in range(band_of(low, south, scale, count), band_of(high, south, scale, count) + 1):
                listed[ends[band]] = i
                ends[band] += 1
    return scale, sizes, listed


@lean_kernel
def rest_of_sum(a: float, b: float, total: float) -> float:
    """What the rounded sum ``total`` of a and b lacks, exactly (Knuth's two-sum)."""
    virtual = total - a
    return (a - (total - virtual)) + (b - virtual)


@lean_kernel
def _meets(
    ax: float, ay: float, bx: float, by: float, px: float, turn: float, qx: float, rest: float, py: float
) -> int:
    """What an edge from a to b is to the ray from (px + turn, py) to the east: 2 through the point, 1 met, 0 not.

    ``qx + rest`` is px + turn, exactly. An edge includes its lower and not its upper end.
    """
    a_above, b_above = ay > py, by > py
    if (a_above and b_above) or (ay < py and by < py):
        return 0
    if (ax < qx or (ax == qx and rest > 0.0)) and (bx < qx or (bx == qx and rest > 0.0)):
        return 0
    if (ax > qx or (ax == qx and rest < 0.0)) and (bx > qx or (bx == qx and rest < 0.0)):
        return 1 if a_above != b_above else 0
    side = orientation(ax, ay, bx, by, px, py, turn)
    if side == 0:
        return 2
    return 1 if a_above != b_above and (side > 0) == b_above else 0


@lean_kernel
def _is_within(
    x: Floats,
    y: Floats,
    ring: Codes,
    part: Codes,
    edges: Codes,
    first: int,
    last: int,
    px: float,
    turn: float,
    py: float,
) -> bool:
    """Whether (px + turn, py) is in one of the parts whose edges on its level are ``edges[first:last]``.

    They are in the order of rings, and the rings of a part follow one another, the shell first. A part has the point if
    its shell has it inside or on the border, and no hole has it inside.
    """
    qx = px + turn
    rest = rest_of_sum(px, turn, qx)
    current = -1
    has = False
    i = first
    while i < last:
        own = ring[edges[i]]
        met = 0
        border = False
        while i < last and ring[edges[i]] == own:
            a = edges[i]
            how = _meets(x[a], y[a], x[a + 1], y[a + 1], px, turn, qx, rest, py)
            border = border or how == 2
            met += how & 1
            i += 1
        if part[own] != current:
            if has:
                return True
            current = part[own]
            has = False
        if own == 0 or part[own - 1] != current:
            has = border or met & 1 == 1
        elif not border and met & 1 == 1:
            has = False
    return has


@lean_kernel
def has_margin(t: PolygonTable, row: int) -> bool:
    """Whether a polygon has a margin, which is ``t.scale[len(t.bounds) + row]``."""
    n = len(t.bounds)
    return len(t.scale) > n and t.scale[n + row] > 0.0


@lean_kernel
def _is_near_border(t: PolygonTable, geographic: bool, row: int, first: int, last: int, x: float, y: float) -> bool:
    """Whether a point lies within the margin of one of the edges ``edges[first:last]``."""
    within = t.scale[len(t.bounds) + row]
    up = reach(geographic, within, max(abs(t.bounds[row, 1]), abs(t.bounds[row, 3])))
    if not geographic:
        up = max(up, reach(geographic, within, max(abs(t.bounds[row, 0]), abs(t.bounds[row, 2]))))
    for i in range(first, last):
        a = t.edges[i]
        if is_near(geographic, t.x[a], t.y[a], t.x[a + 1], t.y[a + 1], x, y, within, up):
            return True
    return False


@lean_kernel
def polygon_contains(t: PolygonTable, geographic: bool, row: int, x: float, y: float) -> bool:
    """Whether a polygon contains the point (x, y), borders included; exact. With a margin, whether it is near.

    If ``geographic``, x is in [-180, 180], and the point also is where its longitude is 360 more or less.
    """
    bounds = t.bounds
    west, south, east, north = bounds[row, 0], bounds[row, 1], bounds[row, 2], bounds[row, 3]
    if y < south or y > north:
        return False
    here = west <= x and x <= east
    ahead = geographic and west <= x + TURN and x + TURN <= east
    behind = geographic and west <= x - TURN and x - TURN <= east
    if not (here or ahead or behind):
        return False
    begin, end = t.first_band[row], t.first_band[row + 1]
    band = begin + band_of(y, south, t.scale[row], end - begin)
    first, last = t.band[band], t.band[band + 1]
    if here and _is_within(t.x, t.y, t.ring, t.part, t.edges, first, last, x, 0.0, y):
        return True
    if ahead and _is_within(t.x, t.y, t.ring, t.part, t.edges, first, last, x, TURN, y):
        return True
    if behind and _is_within(t.x, t.y, t.ring, t.part, t.edges, first, last, x, -TURN, y):
        return True
    return has_margin(t, row) and _is_near_border(t, geographic, row, first, last, x, y)


@kernel
def contain_points(t: PolygonTable, geographic: bool, rows: Codes, x: Floats, y: Floats) -> Flags:
    """Whether each polygon ``rows[i]`` (int32[m]) contains the point (x[i], y[i]): bool[m]."""
    found = np.empty(len(rows), np.bool_)
    for i in range(len(rows)):
        found[i] = polygon_contains(t, geographic, rows[i], x[i], y[i])
    return found
