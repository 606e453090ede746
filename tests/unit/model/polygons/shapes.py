"""Random polygons, and points where answers are hard to get right: on vertices, on edges, and hardly beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from spatialstream.model.arrays import Floats
from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.space import Space

Ring = list[list[float]]


def polygons(space: Space, seed: int) -> Iterator[tuple[dict[str, Any], Polygon]]:
    """Valid polygons without end, as GeoJSON and as read: stars, combs, on grids, with holes, in several parts."""
    rng = np.random.default_rng(seed)
    while True:
        parts = [_part(space, rng) for _ in range(rng.choice([1, 1, 2]))]
        geometry = {"type": "MultiPolygon", "coordinates": parts}
        if len(parts) == 1:
            geometry = {"type": "Polygon", "coordinates": parts[0]}
        try:
            yield geometry, parse_polygon(geometry, space)
        except RecordError:  # coarse grids make rings that touch themselves
            continue


def points(space: Space, geometry: dict[str, Any], rng: np.random.Generator, count: int) -> Floats:
    """Points in the space around a polygon, float64[count, 2], most of them on its border or very near it."""
    parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
    edges = np.concatenate([np.stack([ring[:-1], ring[1:]], axis=1) for part in parts for ring in map(np.array, part)])
    found = np.empty((count, 2))
    for i in range(count):
        a, b = edges[rng.integers(len(edges))]
        match rng.integers(7):
            case 0:
                point = a
            case 1:
                point = (a + b) / 2
            case 2:
                point = a + rng.random() * (b - a)
            case 3:
                point = a + rng.integers(0, 9) / 8 * (b - a)
            case 4:  # on the level of a vertex
                point = np.array([edges[:, 0, 0].min() + rng.random() * np.ptp(edges[:, 0, 0]), a[1]])
            case 5:
                point = np.array([a[0], b[1]])
            case _:
                low, high = edges.min(axis=(0, 1)), edges.max(axis=(0, 1))
                point = low + rng.random(2) * (high - low)
        if rng.random() < 0.5:
            point = point + rng.choice([-1, 0, 1], 2) * 2.0**-50 * rng.choice([1, abs(point[0]), 2.0**-20])
        if rng.random() < 0.3:
            point = np.nextafter(point, point + rng.choice([-1, 0, 1], 2))
        found[i] = point
    if space.geographic:
        found[:, 0] = np.where(found[:, 0] > 180, found[:, 0] - 360, found[:, 0])
        found[:, 0] = np.where(found[:, 0] < -180, found[:, 0] + 360, found[:, 0])
    return np.clip(found, space.bounds[:2], space.bounds[2:])


def _part(space: Space, rng: np.random.Generator) -> list[Ring]:
    west, south, east, north = space.bounds
    size = (north - south) * 2.0 ** -rng.integers(3, 30)
    x, y = rng.uniform(west, east), rng.uniform(south + 2 * size, north - 2 * size)
    if space.geographic and rng.random() < 0.3:
        x = rng.choice([180.0, -180.0, 179.9999])
    grid = size / rng.choice([4, 16]) if rng.random() < 0.4 else 0.0
    if grid:
        grid = 2.0 ** np.round(np.log2(grid))
    shell = _comb(rng, x, y, size) if rng.random() < 0.2 else _star(rng, x, y, size, 0.5 * size, grid)
    rings = [shell]
    if rng.random() < 0.5 and len(shell) and not _is_comb(shell):
        rings.append(_star(rng, x, y, 0.45 * size, 0.1 * size, grid / 4))
    return [ring if rng.random() < 0.5 else ring[::-1] for ring in rings]


def _star(rng: np.random.Generator, x: float, y: float, large: float, small: float, grid: float) -> Ring:
    """A ring around (x, y) with radii between ``small`` and ``large``; on a grid, if it is not 0."""
    count = rng.integers(3, 12)
    angles = (np.arange(count) + 0.8 * rng.random(count)) / count * 2 * np.pi
    radii = rng.uniform(small, large, count)
    ring = np.stack([x + radii * np.cos(angles), y + radii * np.sin(angles)], axis=1)
    if grid:
        ring = np.round(ring / grid) * grid
    return [*ring.tolist(), ring[0].tolist()]


def _comb(rng: np.random.Generator, x: float, y: float, size: float) -> Ring:
    """A ring with teeth, of edges along the axes."""
    teeth = int(rng.integers(1, 4))
    steps = x + size / 4 * np.arange(2 * teeth + 2)
    heights = [y + size * rng.choice([0.25, 0.5, 1.0]) for _ in range(2 * teeth + 1)]
    ring = [[steps[0], y]]
    for i, height in enumerate(heights):
        ring += [[steps[i], height], [steps[i + 1], height]]
    ring = [[float(a), float(b)] for a, b in [*ring, [steps[-1], y]]]
    return [*ring, ring[0]]


def _is_comb(ring: Ring) -> bool:
    return all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(ring))
