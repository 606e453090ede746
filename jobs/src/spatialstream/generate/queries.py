"""The queries of a synthetic stream: each is centred on one of its objects, with terms of the object as keywords.

So no query is hopeless, and there are most queries where there are most objects, as in the papers' workloads (SSTD,
section 7.1). Cost: O(1) a query, and the objects are made once more to look some of them up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.generate.objects import object_batches, object_times
from spatialstream.generate.places import rounded
from spatialstream.generate.polygons import with_polygons
from spatialstream.generate.properties import Asked, asked_of, with_asked
from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Flags, Ints
from spatialstream.model.expressions import Expression, absorbed
from spatialstream.model.geometry import BOX, CIRCLE, EARTH_RADIUS_M, EVERYWHERE
from spatialstream.model.kinds import IS_CONTINUOUS, TYPES, having
from spatialstream.model.lifetimes import ENDLESS_HALF_LIFE, endless
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Best, Lifetime, Predicate, Query, QueryBatch, nobody
from spatialstream.model.ranking.asked import EXPANSIONS, MOST_WORDS, Ranking
from spatialstream.model.regions import Circle, Regions
from spatialstream.model.terms import TermLists

__all__ = ["focuses", "query_batch", "query_batch_around"]

_NEAREST = having(lambda kind: kind.has_point)
_TOP_TERMS = having(lambda kind: kind.rows == "terms")
_WITH_K = having(lambda kind: "k" in kind.required)
_WINDOWED = having(lambda kind: "window" in kind.required)
_MAYBE_WINDOWED = having(lambda kind: "window" in kind.optional)
_STEPS = having(lambda kind: kind.steps)
_RANKED = having(lambda kind: kind.is_ranked)

_HALVES = 4
"""Half-lives in the duration of a query that ranks."""

_ANY_WORD = "w0"
"""Word of a query that ranks around an object without a term."""


def query_batch(settings: GenerateSettings) -> QueryBatch:
    """All queries, in order of time: ``srq0``, ``srq1``, ..., ``skq0``, ..."""
    return query_batch_around(settings, chosen(object_batches(settings), focuses(settings)))


def focuses(settings: GenerateSettings) -> Ints:
    """The number of the object that each query is centred on, type after type."""
    return settings.random("queries").integers(0, max(settings.objects, 1), len(_codes(settings)))


def chosen(batches: Iterable[ObjectBatch], numbers: Ints) -> ObjectBatch:
    """Pick the objects with these numbers, in their order, in a single pass over a stream."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    parts, first = [], 0
    for batch in batches:
        low, high = np.searchsorted(ascending, (first, first + len(batch)))
        parts.append(batch.take(ascending[low:high] - first))
        first += len(batch)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return ObjectBatch.concat(parts).take(places)


def query_batch_around(settings: GenerateSettings, objects: ObjectBatch) -> QueryBatch:
    """The queries around ``objects``, which are the :func:`focuses`, in order of time."""
    code, random = _codes(settings), settings.random("queries", 1)
    n, continuous = len(code), IS_CONTINUOUS[code]
    nearest = _NEAREST[code]
    number = np.concatenate([np.arange(count) for count in _counts(settings)])
    window, step = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    window[_WINDOWED[code] | (_MAYBE_WINDOWED[code] & (number % 2 == 1))] = settings.window
    step[_STEPS[code]] = settings.step
    duration = np.full(n, settings.duration, np.int64)
    if settings.endless:
        duration[continuous] = endless(None)
        duration[_STEPS[code]] = endless(settings.step)
    regions = _regions(settings, random, objects, ~nearest)
    keywords = _keywords(settings, random, objects.terms, ~_TOP_TERMS[code])
    ranking = asked_of(settings, objects, code)
    queries = QueryBatch(
        pc.binary_join_element_wise(
            pa.array([kind.lower() for kind in TYPES]).take(pa.array(code)),
            pa.array(number).cast(pa.string()),
            "",
        ),
        code,
        _times(settings, random, continuous),
        duration,
        window,
        step,
        np.where(_WITH_K[code], settings.k, 0).astype(np.int32),
        np.where(nearest[:, None], np.stack([objects.x, objects.y], axis=1), 0.0),
        regions,
        with_asked(_alternatives(keywords) if settings.alternatives else keywords, ranking),
        nobody(n),
        nobody(n),
    )
    if (ranked := _RANKED[code]).any():
        best = [_ranked(settings, objects, keywords, int(i), queries, ranking[i]) for i in np.flatnonzero(ranked)]
        queries = QueryBatch.concat([queries.take(np.flatnonzero(~ranked)), QueryBatch.of(best)])
    return queries.take(np.argsort(queries.t, kind="stable"))


def _ranked(
    settings: GenerateSettings, objects: ObjectBatch, keywords: TermLists, row: int, queries: QueryBatch, asked: Asked
) -> Query:
    """A query that ranks: by the keywords, within a disk of the size of a region."""
    space, x, y = settings.space, float(objects.x[row]), float(objects.y[row])
    share = math.sqrt(settings.region[0] * settings.region[1]) / 100.0
    if space.geographic:
        reach = EARTH_RADIUS_M * math.acos(1.0 - 2.0 * share)
    else:
        reach = math.sqrt(share * (space.east - space.west) * (space.north - space.south) / math.pi)
    words = keywords[row] or objects.terms[row][:1] or [_ANY_WORD]
    continuous, window = bool(IS_CONTINUOUS[queries.code[row]]), int(queries.window[row])
    half_life, duration = max(1, settings.duration // _HALVES), int(queries.duration[row])
    if continuous and settings.endless:
        half_life = max(half_life, ENDLESS_HALF_LIFE)
        duration = endless(None, half_life)
    expansions = 1 if continuous else EXPANSIONS
    radius = round(reach / expansions, max(1, settings.decimals))
    by = Ranking(tuple(sorted(words[:MOST_WORDS])), radius, expansions, half_life, static=continuous)
    name, t = queries.ids[row].as_py(), int(queries.t[row])
    lifetime = Lifetime(duration, continuous, None if window < 0 else window)
    predicate = Predicate(Circle(x, y, by.reach), where=asked.where)
    return Query(name, t, predicate, Best(x, y, settings.k, by), lifetime, fields=asked.fields)


def _counts(settings: GenerateSettings) -> list[int]:
    return [settings.queries.get(kind, 0) for kind in TYPES]


def _codes(settings: GenerateSettings) -> npt.NDArray[np.int8]:
    return np.repeat(np.arange(len(TYPES), dtype=np.int8), _counts(settings))


def _times(settings: GenerateSettings, random: np.random.Generator, continuous: Flags) -> Ints:
    first, last = object_times(settings, np.array([0, max(settings.objects - 1, 0)]))
    low, high = (np.where(continuous, *ends) for ends in zip(settings.registered, settings.asked, strict=True))
    share = low + (high - low) * random.random(len(continuous))
    times: Ints = first + np.floor(share * (last - first)).astype(np.int64)
    return times


def _regions(settings: GenerateSettings, random: np.random.Generator, objects: ObjectBatch, wanted: Flags) -> Regions:
    """A box, circle or polygon of the chosen size around each object; the whole space if no region is wanted."""
    space, n = settings.space, len(objects)
    low, high = np.log(settings.region)
    share = np.exp(low + (high - low) * random.random(n)) / 100.0
    circle = wanted & (random.random(n) < settings.circles)
    width, height = space.east - space.west, space.north - space.south
    half_x, half_y = np.sqrt(share) * width / 2, np.sqrt(share) * height / 2
    if space.geographic:
        radius = np.round(EARTH_RADIUS_M * np.arccos(1.0 - 2.0 * share), 1)
    else:
        radius = np.round(np.sqrt(share * width * height / np.pi), settings.decimals)
    west, east = objects.x - half_x, objects.x + half_x
    if space.geographic:  # round the Earth, unless the box is as wide as it
        west, east = np.where(west < -180.0, west + 360.0, west), np.where(east > 180.0, east - 360.0, east)
        west, east = np.where(half_x >= 180.0, -180.0, west), np.where(half_x >= 180.0, 180.0, east)
    decimals = settings.decimals
    boxes = np.stack(
        [
            rounded(space, west, decimals, 0),
            rounded(space, objects.y - half_y, decimals, 1),
            rounded(space, east, decimals, 0),
            rounded(space, objects.y + half_y, decimals, 1),
        ],
        axis=1,
    )
    circles = np.stack([objects.x, objects.y, radius, np.zeros(n)], axis=1)
    kind = np.where(wanted, np.where(circle, CIRCLE, BOX), EVERYWHERE).astype(np.uint8)
    shape = np.where(wanted[:, None], np.where(circle[:, None], circles, boxes), 0.0)
    regions = Regions.plain(kind, shape)
    if not settings.polygons:
        return regions
    return with_polygons(settings, random, objects, np.stack([half_x, half_y], axis=1), regions)


def _keywords(settings: GenerateSettings, random: np.random.Generator, terms: TermLists, wanted: Flags) -> TermLists:
    """A few terms of each object: the most frequent, or any."""
    count = random.integers(settings.keywords[0], settings.keywords[1], len(terms), endpoint=True)
    lengths = np.diff(terms.offsets)
    count = np.where(wanted, np.minimum(count, lengths), 0)
    owner = np.repeat(np.arange(len(terms)), lengths)
    # The code of a term is its rank; the names of cities, which are rare, come after all words.
    preference = terms.codes if settings.frequent else random.random(len(owner))
    order = np.lexsort((preference, owner))
    place = np.arange(len(owner)) - np.repeat(terms.offsets[:-1], lengths)
    offsets = np.zeros(len(terms) + 1, np.int32)
    np.cumsum(count, out=offsets[1:])
    return TermLists(offsets, terms.codes[order][place < np.repeat(count, lengths)], terms.vocabulary)


def _alternatives(lists: TermLists) -> TermLists:
    """Each keyword as a group of its own; of a single one, itself."""
    rows = [lists[row] for row in range(len(lists))]
    return TermLists.of(
        [Expression(any=absorbed([term] for term in row)).literals if len(row) > 1 else row for row in rows]
    )
