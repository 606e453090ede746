"""The default workload of the benchmarks, after the papers' synthetic sets: clustered places, Zipf words.

Objects: 70 % around 40 Gaussian clusters (sigma 2 % of the side), 30 % uniform; 8 distinct terms each from a Zipf(1.0)
vocabulary of 100,000 words. Queries: a square centred on an object and some of that object's keywords. All in the unit
square, all a function of the seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.geometry import BOX
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

SPACE = Space.planar(0.0, 0.0, 1.0, 1.0)
WORDS = 100_000
TERMS = 8
SIDE = 0.01
"""Side of a region of 0.01 % of the space."""

_CLUSTERS, _SIGMA, _CLUSTERED = 40, 0.02, 0.7


@cache
def vocabulary() -> pa.StringArray:
    """Words by rank, the most frequent first: 2 to 11 letters, one in four longer than 8 bytes."""
    syllables = [c + v for c in "bcdfghjklmnpqrstvwxyz" for v in "aeiou"]
    words = []
    for rank in range(WORDS):
        word, rest = syllables[rank % len(syllables)], rank // len(syllables)
        while rest:
            word, rest = word + syllables[rest % len(syllables)], rest // len(syllables)
        words.append(word + "ation" if rank % 4 == 3 else word)
    return pa.array(words, pa.string())


def zipf_sets(n: int, size: int, rng: np.random.Generator, exponent: float = 1.0) -> npt.NDArray[np.int32]:
    """n sets of ``size`` distinct ranks below WORDS, drawn with probability proportional to 1 / rank^exponent."""
    cumulated = np.cumsum(1.0 / np.arange(1, WORDS + 1) ** exponent)
    cumulated /= cumulated[-1]

    def draw(shape: tuple[int, ...]) -> npt.NDArray[Any]:
        return np.minimum(np.searchsorted(cumulated, rng.random(shape)), WORDS - 1)

    sets = draw((n, size))
    while True:
        order = np.argsort(sets, axis=1, kind="stable")
        ordered = np.take_along_axis(sets, order, axis=1)
        repeated = np.zeros(sets.shape, np.bool_)
        np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
        if not repeated.any():
            return sets.astype(np.int32)
        sets[repeated] = draw((int(repeated.sum()),))


def places(n: int, rng: np.random.Generator, centres: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """n points of the unit square, float64[n, 2]: 70 % around the centres (redrawn until inside), 30 % uniform."""
    points = rng.random((n, 2))
    open_ = np.flatnonzero(rng.random(n) < _CLUSTERED)
    while len(open_):
        points[open_] = centres[rng.integers(0, len(centres), len(open_))] + rng.normal(0.0, _SIGMA, (len(open_), 2))
        open_ = open_[((points[open_] < 0.0) | (points[open_] > 1.0)).any(axis=1)]
    return points


def _offsets(n: int) -> npt.NDArray[np.int32]:
    return np.arange(n + 1, dtype=np.int32) * np.int32(TERMS)


def objects(n: int, seed: int, start: int = 0, rate: float = 1000.0, clusters: int = 0) -> ObjectBatch:
    """n objects in time order.

    Args:
        n: how many.
        seed: of places, terms; other seeds give other objects of the same distribution.
        start: timestamp of the first, ms.
        rate: objects per second of event time.
        clusters: seed of the clusters' centres.
    """
    centres = np.random.default_rng((0, clusters)).random((_CLUSTERS, 2))
    rng = np.random.default_rng((1, seed))
    points = places(n, rng, centres)
    return ObjectBatch(
        pa.array([f"o{seed}-{i}" for i in range(n)], pa.string()),
        start + (np.arange(n) * (1000.0 / rate)).astype(np.int64),
        points[:, 0].copy(),
        points[:, 1].copy(),
        TermLists(_offsets(n), zipf_sets(n, TERMS, rng).reshape(-1), vocabulary()),
    )


@dataclass(frozen=True, slots=True)
class QueryColumns:
    """n continuous range-keyword queries as columns: regions, keywords, and their centres float64[n, 2]."""

    regions: Regions
    keywords: TermLists
    centres: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.regions)


def queries(
    source: ObjectBatch,
    n: int,
    seed: int,
    side: float | tuple[float, float] = SIDE,
    keywords: tuple[int, int] = (1, 3),
    frequent: int | None = None,
) -> QueryColumns:
    """n squares, each centred on a random object of ``source``, with some of that object's keywords.

    Args:
        source: objects of :func:`objects`.
        n: how many; objects are drawn with replacement.
        seed: of the choice.
        side: of the squares; two numbers draw it log-uniformly between them.
        keywords: least and largest number of keywords, drawn uniformly.
        frequent: take only keywords among this many most frequent words (from objects that have one; at most as many
            keywords as the object has of them).
    """
    rng = np.random.default_rng((2, seed))
    width = int(source.terms.offsets[1]) if len(source) else 0
    terms = source.terms.codes.reshape(len(source), width)
    usable = np.ones(terms.shape, np.bool_) if frequent is None else terms < frequent
    owners = rng.choice(np.flatnonzero(usable.any(axis=1)), n)
    wanted = rng.integers(keywords[0], keywords[1] + 1, n)
    counts = np.minimum(wanted, usable[owners].sum(axis=1))
    order = np.argsort(np.where(usable[owners], rng.random((n, width)), 2.0), axis=1)
    chosen = np.take_along_axis(terms[owners], order, axis=1)
    kept = np.arange(width) < counts[:, None]
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    low, high = side if isinstance(side, tuple) else (side, side)
    half = np.exp(rng.uniform(np.log(low), np.log(high), n)) / 2 if low < high else np.full(n, low / 2)
    centres = np.column_stack([source.x[owners], source.y[owners]])
    shape = np.column_stack([centres - half[:, None], centres + half[:, None]])
    return QueryColumns(
        Regions.plain(np.full(n, BOX, np.uint8), np.ascontiguousarray(shape)),
        TermLists(offsets, chosen[kept].astype(np.int32), source.terms.vocabulary),
        centres,
    )
