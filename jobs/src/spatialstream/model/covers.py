"""Bounding boxes of regions, at most two per region: an index searches them for the objects in a region.

Cost: O(1) per region.
"""

from __future__ import annotations

import math

import numpy as np

from spatialstream.model.arrays import Bytes, Floats
from spatialstream.model.geometry import CIRCLE, EARTH_RADIUS_M, EVERYWHERE
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space

__all__ = ["NOWHERE", "cover_boxes", "region_parts", "shape_parts"]

NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)
"""The second box of a region that one box covers: an empty box, which intersects nothing."""

_UNDERFLOW = 1e-150
"""Planar differences below this underflow to 0 when squared, so their distance is 0."""

_SLACK = 1e-9
"""Degrees by which the cover of a spherical cap is widened, so that rounding never makes it too small."""

_DEGREES = 180.0 / math.pi

Bounds = Floats | tuple[float, float, float, float]


@lean_kernel
def cover_boxes(
    bounds: Bounds, geographic: bool, kind: int, a: float, b: float, c: float, d: float, boxes: Floats
) -> int:
    """Write the boxes (west <= east) that together contain a region into the first rows of ``boxes``.

    Args:
        bounds: west, south, east and north of the space (further elements are ignored).
        geographic: whether the space is WGS84.
        kind: kind of the region.
        a: first number of its shape, see :class:`spatialstream.model.regions.Regions`; ``b``, ``c``, ``d`` follow.
        b: see ``a``.
        c: see ``a``.
        d: see ``a``.
        boxes: float64[2, 4], the output.

    Returns:
        The number of boxes: 2 if the region crosses the antimeridian, else 1.
    """
    west, south, east, north = a, b, c, d
    if kind == CIRCLE and geographic:
        angle = min(c / EARTH_RADIUS_M * (1.0 + 1e-9) + 1e-12, math.pi)
        south, north = max(b - angle * _DEGREES - _SLACK, -90.0), min(b + angle * _DEGREES + _SLACK, 90.0)
        west, east = bounds[0], bounds[2]
        if south > -90.0 and north < 90.0:  # the cap contains no pole
            # widest longitude of a cap: sin(dlon) = sin(angle) / cos(latitude); near 1 the arcsine is steep
            ratio = math.sin(angle) / math.cos(b / _DEGREES) * (1.0 + 1e-9)
            wide = math.asin(ratio) * _DEGREES + _SLACK if ratio < 1.0 else 180.0
            if wide < 180.0:
                west, east = a - wide, a + wide
                if west < -180.0:
                    west += 360.0
                elif east > 180.0:
                    east -= 360.0
    elif kind == CIRCLE:
        reach = c * (1.0 + 1e-12) + 1e-12 * (abs(a) + abs(b)) + _UNDERFLOW
        west, south, east, north = a - reach, b - reach, a + reach, b + reach
    elif kind == EVERYWHERE:
        west, south, east, north = bounds[0], bounds[1], bounds[2], bounds[3]
    boxes[0, 0], boxes[0, 1], boxes[0, 2], boxes[0, 3] = west, south, east, north
    if west <= east:
        return 1
    boxes[0, 2] = bounds[2]
    boxes[1, 0], boxes[1, 1], boxes[1, 2], boxes[1, 3] = bounds[0], south, east, north
    return 2


@kernel
def _parts(bounds: Bounds, geographic: bool, kind: Bytes, shape: Floats) -> Floats:
    parts = np.empty((len(kind), 2, 4))
    for i in range(len(kind)):
        a, b, c, d = shape[i]
        parts[i, 1, 0], parts[i, 1, 1], parts[i, 1, 2], parts[i, 1, 3] = NOWHERE
        cover_boxes(bounds, geographic, kind[i], a, b, c, d, parts[i])
    return parts


def region_parts(space: Space, regions: Regions) -> Floats:
    """Compute two boxes for each region, float64[n, 2, 4] (west, south, east, north), that together contain it.

    The second is :data:`NOWHERE` unless the region crosses the antimeridian. A region without bounds gets the bounds of
    the space.
    """
    return shape_parts(space, regions.kind, regions.shape)


def shape_parts(space: Space, kind: Bytes, shape: Floats) -> Floats:
    """As :func:`region_parts`, of the columns of regions."""
    # converted to float: integer bounds of a plane would make numba compile the kernel again
    bounds = float(space.west), float(space.south), float(space.east), float(space.north)
    parts: Floats = _parts(bounds, space.geographic, kind, shape)
    return parts
