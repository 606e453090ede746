"""Whether a point lies within some distance of an edge as it is drawn: straight in longitude and latitude.

Such an edge is no great circle, so the distance to it has no closed form. With s from 0 to 1 along the edge, the
haversine ``h(s)`` of the distance to the point is smooth, and ``|h''| <= C`` for a C that the ends give. So on an
interval of half width w around a middle m, ``h >= h(m) - |h'(m)| w - C w^2 / 2``: an interval that cannot come near is
dropped, one whose middle is near decides, and any other is halved (branch and bound, Land and Doig 1960). A pair takes
one to some dozens of evaluations.

The answer is exact to :data:`EXACT` metres: what is nearer than the distance less that is near, what is farther is not,
but for the rounding of the haversine formula itself. It is a function of the edge, the point and the distance alone, so
it depends on no route. In a plane the distance to a segment has a closed form.
"""

from __future__ import annotations

import math

from spatialstream.model.geometry import EARTH_RADIUS_M, distance
from spatialstream.model.kernels import lean_kernel

__all__ = ["EXACT", "FARTHEST", "is_near", "reach", "widest"]

EXACT = 1e-3
"""Metres by which the distance to an edge may be taken to be larger than it is."""

FARTHEST = 1e7
"""Metres that a margin has at most, just below a quarter of the Earth's circumference."""

_RADIANS = math.pi / 180.0
_DEEPEST = 40
"""How often an edge is halved at most; a part of the longest one then is less than 0.1 mm."""

_ROUNDED = 4e-15
"""More than the rounding of the bound of h, relative to its terms."""

_SLACK = 1e-9


@lean_kernel
def reach(geographic: bool, within: float, largest: float) -> float:
    """How far a margin reaches in y, at most: degrees, or units of the plane, in which ``largest`` is a coordinate."""
    if geographic:
        return within / EARTH_RADIUS_M / _RADIANS * (1.0 + _SLACK) + _SLACK
    return within * (1.0 + _SLACK) + 1e-12 * abs(largest) + 1e-150


@lean_kernel
def widest(within: float, latitude: float) -> float:
    """Degrees of longitude that a margin reaches, at most, from points up to a latitude; 360 if it has a pole."""
    angle = within / EARTH_RADIUS_M * (1.0 + _SLACK) + 1e-12
    if abs(latitude) + reach(True, within, 0.0) >= 90.0 - _SLACK:
        return 360.0
    ratio = math.sin(angle) / math.cos(abs(latitude) * _RADIANS) * (1.0 + _SLACK)
    return math.asin(ratio) / _RADIANS * (1.0 + _SLACK) + _SLACK if ratio < 1.0 else 360.0


@lean_kernel
def _near_in_plane(ax: float, ay: float, bx: float, by: float, x: float, y: float, within: float) -> bool:
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    if length == 0.0:
        return False
    s = min(max(((x - ax) * dx + (y - ay) * dy) / length, 0.0), 1.0)
    return distance(False, ax + s * dx, ay + s * dy, x, y) <= within


@lean_kernel
def _haversine(within: float) -> float:
    half = math.sin(0.5 * within / EARTH_RADIUS_M)
    return half * half


@lean_kernel
def _near_on_earth(ax: float, ay: float, bx: float, by: float, x: float, y: float, within: float) -> bool:
    """Whether a point between the ends is near; the ends are not."""
    up, along = (by - ay) * _RADIANS, (bx - ax) * _RADIANS
    p, cos_p = y * _RADIANS, math.cos(y * _RADIANS)
    cos_most = 1.0 if (ay < 0.0) != (by < 0.0) else max(math.cos(ay * _RADIANS), math.cos(by * _RADIANS))
    curve = 0.5 * (up * up + 2.0 * cos_p * abs(up * along) + cos_p * cos_most * along * along)
    least = _haversine(max(within - EXACT, 0.0))
    level, part = 0, 0
    while True:
        half = 0.5 / (1 << level)
        s = (2 * part + 1) * half
        at_x, at_y = ax + s * (bx - ax), ay + s * (by - ay)
        if distance(True, at_x, at_y, x, y) <= within:
            return True
        q = at_y * _RADIANS
        turned = (at_x - x) * _RADIANS
        sine, side = math.sin(0.5 * (q - p)), math.sin(0.5 * turned)
        h = sine * sine + cos_p * math.cos(q) * side * side
        slope = 0.5 * up * math.sin(q - p) + cos_p * (
            0.5 * along * math.cos(q) * math.sin(turned) - up * math.sin(q) * side * side
        )
        loss = abs(slope) * half + 0.5 * curve * half * half
        if h - loss > least + _ROUNDED * (h + loss) or level == _DEEPEST:
            part += 1
            while level > 0 and part & 1 == 0:
                part >>= 1
                level -= 1
            if level == 0:
                return False
        else:
            part *= 2
            level += 1


@lean_kernel
def is_near(
    geographic: bool, ax: float, ay: float, bx: float, by: float, x: float, y: float, within: float, up: float
) -> bool:
    """Whether the point (x, y) lies within a distance of the edge from a to b.

    Args:
        geographic: degrees, and metres by great circle; otherwise a plane.
        ax: of the edge, whose longitudes may be beyond 180; ``ay``, ``bx`` and ``by`` follow.
        ay: see ``ax``.
        bx: see ``ax``.
        by: see ``ax``.
        x: of the point; ``y`` follows.
        y: see ``x``.
        within: the distance.
        up: how far it reaches in y, see :func:`reach`.
    """
    if y < min(ay, by) - up or y > max(ay, by) + up:
        return False
    if distance(geographic, ax, ay, x, y) <= within or distance(geographic, bx, by, x, y) <= within:
        return True
    if not geographic:
        return _near_in_plane(ax, ay, bx, by, x, y, within)
    return (ax != bx or ay != by) and _near_on_earth(ax, ay, bx, by, x, y, within)
