"""Polygons of synthetic queries: stars of 16 corners around objects, every other one with a hole.

Corners are a table of rounded numbers, so that each machine makes the same ones. Cost: a tenth of a millisecond each.
"""

from __future__ import annotations

import numpy as np

from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Flags, Floats
from spatialstream.model.errors import RecordError
from spatialstream.model.geometry import POLYGON
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.regions import Regions

__all__ = ["with_polygons"]

_ANGLES = np.arange(16) / 16 * 2 * np.pi
_CORNERS = np.round(np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1), 3)
_HOLE = 0.3
"""Size of a hole; corners are farther out than twice as much."""


def with_polygons(
    settings: GenerateSettings, random: np.random.Generator, objects: ObjectBatch, half: Floats, regions: Regions
) -> Regions:
    """Replace a share of the regions by polygons in boxes of the chosen size.

    A polygon that would reach beyond a pole, or has too few decimals to be one, is left a box.

    Args:
        settings: of the stream.
        random: of the regions.
        objects: n objects, in the middle.
        half: float64[n, 2], half of the boxes' sides.
        regions: n boxes and circles.
    """
    wanted: Flags = (random.random(len(objects)) < settings.polygons) & (regions.kind > 0)
    rows = np.flatnonzero(wanted)
    reach = random.uniform(2.1 * _HOLE, 1.0, (len(rows), len(_CORNERS)))
    middle = np.stack([objects.x, objects.y], axis=1)[rows]
    rings = middle[:, None] + reach[:, :, None] * _CORNERS * half[rows, None]
    holes = middle[:, None] + _HOLE * _CORNERS[::4] * half[rows, None]
    kind, shape, made = regions.kind.copy(), regions.shape.copy(), list[Polygon | None]([None] * len(objects))
    for i, row in enumerate(rows.tolist()):
        parts = [rings[i], holes[i]] if i % 2 else [rings[i]]
        if (polygon := _polygon(settings, parts)) is not None:
            made[row], kind[row], shape[row] = polygon, POLYGON, polygon.box
    return Regions(kind, shape, PolygonColumn.of(made))


def _polygon(settings: GenerateSettings, parts: list[Floats]) -> Polygon | None:
    rings = [np.round(part, settings.decimals).tolist() for part in parts]
    try:
        return parse_polygon({"type": "Polygon", "coordinates": [[*ring, ring[0]] for ring in rings]}, settings.space)
    except RecordError:
        return None
