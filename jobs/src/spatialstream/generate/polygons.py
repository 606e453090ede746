"""Polygons of synthetic queries: stars of 16 corners around objects, every other one with a hole, some with margins.

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
_METRES = 111_195.0
"""Of a degree of latitude, about."""

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
    margins = _margins(settings, random, half[rows])
    kind, shape, made = regions.kind.copy(), regions.shape.copy(), list[Polygon | None]([None] * len(objects))
    for i, row in enumerate(rows.tolist()):
        parts = [rings[i], holes[i]] if i % 2 else [rings[i]]
        if (polygon := _polygon(settings, parts, margins[i], i % 4 >= 2)) is not None:
            made[row], kind[row], shape[row] = polygon, POLYGON, polygon.box
    return Regions(kind, shape, PolygonColumn.of(made))


def _margins(settings: GenerateSettings, random: np.random.Generator, half: Floats) -> list[float]:
    """A margin for each of n polygons, up to half of its height; 0 for those that have none."""
    if not settings.margins:
        return [0.0] * len(half)
    chosen, size = random.random(len(half)) < settings.margins, random.random(len(half))
    most = half[:, 1] * (_METRES if settings.space.geographic else 1.0)
    margins: list[float] = np.where(chosen, np.round(size * most, settings.decimals), 0.0).tolist()
    return margins


def _polygon(settings: GenerateSettings, parts: list[Floats], within: float, line: bool) -> Polygon | None:
    rings = [np.round(part, settings.decimals).tolist() for part in parts]
    value = {"type": "Polygon", "coordinates": [[*ring, ring[0]] for ring in rings]}
    if within and line:
        value = {"type": "LineString", "coordinates": rings[0][: len(rings[0]) // 2]}
    try:
        return parse_polygon(value, settings.space, within=within)
    except RecordError:
        return None
