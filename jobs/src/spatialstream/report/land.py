"""Outlines of land, for orientation on maps: Natural Earth at 1:50 million, simplified to about 5 km, 94 KB.

``web/static/land.json`` is made by ``scripts/coastline.py`` and states its source.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import accumulate

from spatialstream.web import FOLDER

__all__ = ["land_rings", "packed_land"]

_UNIT = 20
"""Units of the file in one degree."""


@cache
def packed_land() -> list[list[int]]:
    """The rings as stored: in 1/20 degree, x0, y0, then differences. Cost: one read of the file in a process."""
    rings: list[list[int]] = json.loads((FOLDER / "land.json").read_text("utf-8"))["rings"]
    return rings


def land_rings() -> list[list[tuple[float, float]]]:
    """The rings as points (longitude, latitude) in degrees. None crosses the antimeridian; some run along it."""
    return [
        [(x / _UNIT, y / _UNIT) for x, y in zip(accumulate(ring[0::2]), accumulate(ring[1::2]), strict=True)]
        for ring in packed_land()
    ]
