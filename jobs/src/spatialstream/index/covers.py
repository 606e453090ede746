"""Covering boxes of many regions at once, in the fixed shape that kernels take: two boxes a region.

The formulas, and the slack that keeps rounding from making a cover too small, are those of
:func:`spatialstream.model.regions.cover`. Cost: O(n), vectorised.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spatialstream.model.geometry import BOX, CIRCLE, EARTH_RADIUS_M
from spatialstream.model.regions import UNDERFLOW, Regions
from spatialstream.model.space import Space

__all__ = ["NOWHERE", "cap_parts", "region_parts"]

NOWHERE = (np.inf, np.inf, -np.inf, -np.inf)
"""The second box of a region that one box covers: nothing meets it."""

_SLACK = 1e-9


def region_parts(space: Space, regions: Regions) -> npt.NDArray[np.float64]:
    """Two boxes for each region, float64[n, 2, 4] (west, south, east, north), that together contain it.

    The second is :data:`NOWHERE` unless the region crosses the antimeridian. A region without bounds gets the bounds of
    the space.
    """
    parts = np.empty((len(regions), 2, 4))
    parts[:, 0] = space.bounds
    parts[:, 1] = NOWHERE
    boxes = np.flatnonzero(regions.kind == BOX)
    parts[boxes, 0] = regions.shape[boxes]
    crossing = boxes[regions.shape[boxes, 0] > regions.shape[boxes, 2]]
    parts[crossing, 1] = parts[crossing, 0]
    parts[crossing, 0, 2] = 180.0
    parts[crossing, 1, 0] = -180.0
    circles = np.flatnonzero(regions.kind == CIRCLE)
    x, y, radius, _ = regions.shape[circles].T
    if space.geographic:
        parts[circles] = cap_parts(x, y, radius)
    else:
        reach = radius * (1.0 + 1e-12) + 1e-12 * (np.abs(x) + np.abs(y)) + UNDERFLOW
        parts[circles, 0] = np.stack([x - reach, y - reach, x + reach, y + reach], axis=1)
    return parts


def cap_parts(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], radius: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The parts, as of :func:`region_parts`, of spherical caps with centres (x, y) in degrees and radii in metres."""
    angle = np.minimum(radius / EARTH_RADIUS_M * (1.0 + 1e-9) + 1e-12, np.pi)
    tall = np.degrees(angle) + _SLACK
    south, north = y - tall, y + tall
    # Widest longitude of a cap that holds no pole: sin(dlon) = sin(angle) / cos(latitude). Where the arcsine is
    # steep, or the cosine has few correct digits, the factor covers the rounding.
    ratio = np.sin(angle) / np.maximum(np.cos(np.radians(y)), 1e-300) * (1.0 + 1e-9)
    around = (south <= -90.0) | (north >= 90.0) | (ratio >= 1.0)
    wide = np.where(around, 180.0, np.degrees(np.arcsin(np.minimum(ratio, 1.0))) + _SLACK)
    west, east = x - wide, x + wide
    west[around], east[around] = -180.0, 180.0
    parts = np.empty((len(x), 2, 4))
    parts[:, 0] = np.stack([west, np.maximum(south, -90.0), east, np.minimum(north, 90.0)], axis=1)
    parts[:, 1] = NOWHERE
    low, high = np.flatnonzero(west < -180.0), np.flatnonzero(east > 180.0)
    for crossing in low, high:
        parts[crossing, 1] = parts[crossing, 0]
    parts[low, 0, 0], parts[low, 1, 0], parts[low, 1, 2] = -180.0, west[low] + 360.0, 180.0
    parts[high, 0, 2], parts[high, 1, 0], parts[high, 1, 2] = 180.0, -180.0, east[high] - 360.0
    return parts
