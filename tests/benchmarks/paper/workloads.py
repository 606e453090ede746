"""Data sets and queries after SSTD, section 7.1: TW-like, Uni and Gau.

*TW-like*: places around real cities by population (:mod:`spatialstream.generate`), and 5 to 15 words each. An object is
about a topic; :data:`TOPICAL` of its words are the topic's, the others anybody's, both by Zipf's law. The word of rank
r of topic z is word ``r TOPICS + z`` of the vocabulary, so that frequencies over all objects follow such a law too.
*Uni* and *Gau* are the same words elsewhere, as in the paper. Two variants of TW-like have other words: *no-stop* none
of the :data:`STOP` most frequent ones; *languages* those of :data:`LANGUAGES` languages without a word in common.
Queries are drawn from objects: a region around one, or its place, and some of its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.generate.objects import object_times
from spatialstream.generate.places import spread, spread_by_city
from spatialstream.generate.queries import query_batch_around
from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermLists

SPACE = WGS84
HOUR = 3_600_000
REACH = 72 * HOUR
"""The default duration of the paper's queries, ms."""

VOCABULARY, TOPICS, TOPICAL = 200_000, 500, 0.6
SIGMA = 20.0
"""Of Gau, in degrees. The paper's 1 has no unit; as degrees, one region of 0.01 % would hold most objects."""

PLACES = {
    "TW": "social", "TW'": "social", "TW-no-stop": "social", "TW-languages": "social", "Uni": "uniform",
    "Gau": "gaussian",
}  # fmt: skip
"""How the objects of a data set are spread. TW' is another sample like TW, as TW15 beside TW14."""

STOP = 100
"""Of TW-no-stop: the most frequent words, which it has not."""

LANGUAGES, SPOKEN = 8, (0.6, 0.25, 0.15)
"""Of TW-languages: so many strips of longitude, each with a language of its own; what part of the objects of a strip is
in its language, in that of the next one, and in that of the one after it."""

_START = 1_735_689_600_000
_CHUNK = 1 << 18


@cache
def _vocabulary() -> pa.StringArray:
    return pa.array([f"w{rank}" for rank in range(VOCABULARY)], pa.string())


def _zipf(ranks: int) -> npt.NDArray[np.float64]:
    """Probability of this rank or a lower one."""
    cumulated = np.cumsum(1.0 / np.arange(1, ranks + 1))
    return cumulated / cumulated[-1]


def words(
    n: int, random: np.random.Generator, stop: int = 0, language: npt.NDArray[np.int64] | None = None
) -> TermLists:
    """The words of n objects, distinct within each.

    Args:
        n: how many objects.
        random: of all.
        stop: so many of the most frequent words are not drawn.
        language: int64[n], of each object one of :data:`LANGUAGES`, which share the vocabulary; None: there is one.
    """
    known = VOCABULARY if language is None else VOCABULARY // LANGUAGES
    lengths = random.integers(5, 15, n, endpoint=True)
    owner = np.repeat(np.arange(n), lengths)
    topic = np.searchsorted(_zipf(TOPICS), random.random(n))
    anybody, of_topic = _zipf(known), _zipf(known // TOPICS)
    codes = np.empty(len(owner), np.int64)
    pending = np.arange(len(owner))
    while len(pending):
        topical = random.random(len(pending)) < TOPICAL
        draw = random.random(len(pending))
        said = np.searchsorted(of_topic, draw) * TOPICS + topic[owner[pending]]
        codes[pending] = np.where(topical, said, np.searchsorted(anybody, draw))
        changed = np.zeros(n, np.bool_)
        changed[owner[pending]] = True
        pending = np.flatnonzero(changed[owner])
        keys = owner[pending] * VOCABULARY + codes[pending]
        order = np.argsort(keys, kind="stable")
        stopped = pending[codes[pending] < stop]
        pending = pending[order[1:][keys[order[1:]] == keys[order[:-1]]]]
        if stop:
            pending = np.union1d(pending, stopped)
    if language is not None:
        codes = codes * LANGUAGES + language[owner]
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return TermLists(offsets, codes.astype(np.int32), _vocabulary())


def languages(x: npt.NDArray[np.float64], random: np.random.Generator) -> npt.NDArray[np.int64]:
    """The language of objects at longitudes, int64[n]."""
    strip = ((x - SPACE.west) / (SPACE.east - SPACE.west) * LANGUAGES).astype(np.int64)
    return (strip + random.choice(len(SPOKEN), len(x), p=SPOKEN)) % LANGUAGES


@lru_cache(maxsize=4)
def objects(data: str, n: int, seed: int, hours: float = 72.0, start: int = _START) -> ObjectBatch:
    """n objects of a data set in order of time, evenly over some hours.

    Args:
        data: of :data:`PLACES`.
        n: how many.
        seed: other seeds give other objects of the same distribution.
        hours: from the first to the last.
        start: time of the first, ms.
    """
    seed = 2 * seed + (data == "TW'")
    rate = n / (hours * 3600.0)
    settings = GenerateSettings(PLACES[data], n, SPACE, seed, start, rate, sigma=SIGMA)
    parts = []
    for chunk, first in enumerate(range(0, n, _CHUNK)):
        numbers = np.arange(first, min(n, first + _CHUNK))
        t = object_times(settings, numbers)
        x, y = spread_by_city(settings, chunk, t)[0] if data.startswith("TW") else spread(settings, chunk, len(t))
        ids = pc.binary_join_element_wise(f"{seed}-", pa.array(numbers).cast(pa.string()), "")
        random = np.random.default_rng((5, seed, chunk))
        language = languages(x, random) if data == "TW-languages" else None
        made = words(len(t), random, STOP if data == "TW-no-stop" else 0, language)
        parts.append(ObjectBatch(ids, t, x, y, made))
    return ObjectBatch.concat(parts)


def queries(
    around: ObjectBatch,
    counts: Mapping[QueryType, int],
    seed: int,
    *,
    region: tuple[float, float] = (0.01, 0.01),
    keywords: tuple[int, int] = (1, 1),
    k: int = 10,
    duration: int = REACH,
    window: int = 10_000,
    step: int = 5_000,
) -> QueryBatch:
    """Queries around random objects, all at the time of the last object; continuous ones at that of the first.

    Args:
        around: objects to draw from.
        counts: how many of each type.
        seed: of the choice.
        region: percent of the space, from and to; spread evenly over its logarithm.
        keywords: from and to.
        k: k.
        duration: of each, ms.
        window, step: T and δ of CTQs, ms.
    """
    first, last = int(around.t[0]), int(around.t[-1])
    settings = GenerateSettings(
        "uniform", 2, SPACE, seed, first, 1000.0 / max(last - first, 1), region=region, keywords=keywords, k=k,
        queries=dict(counts), duration=duration, window=window, step=step, asked=(1.0, 1.0), registered=(0.0, 0.0),
    )  # fmt: skip
    chosen = np.random.default_rng((6, seed)).integers(0, len(around), sum(counts.values()))
    found = query_batch_around(settings, around.take(chosen))
    # the paper's CKQs have no window
    return replace(found, window=np.where(found.step < 0, -1, found.window))
