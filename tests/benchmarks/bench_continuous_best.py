"""Speed of continuous best queries on one core: ``python -m tests.benchmarks.bench_continuous_best [n] [queries]``.

Objects are those of the other benchmarks: clusters in the unit square, 8 words each of 100,000 by Zipf's law. A query
is about three words of one object, with or without the most frequent 150, near it, with k = 10; they have the weights
that the words have among these objects. Figures are CPU times.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.local.best import cbq
from spatialstream.local.best.cbq import ContinuousBestIndex
from spatialstream.local.best.merger import BestMerger, ScoredArrivals
from spatialstream.local.nearest import skyband
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Best, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.weights import weights
from spatialstream.model.regions import Circle
from tests.benchmarks.workload import SPACE, objects, vocabulary

Row = dict[str, Any]

STOP_WORDS = 150
RADIUS = 0.01
"""As 50 km are of the United States, whose tweets the paper has: about a hundredth of the side."""

EPOCH = 50_000
K = 10
WORDS = 3


def run(n: int = 1_000_000, count: int = 100_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    cbq.prepare()
    skyband.prepare()
    return figures(n, count, STOP_WORDS) + figures(n, count, 0)


def figures(n: int, count: int, stop_words: int) -> list[Row]:
    """The figures of queries without the most frequent words."""
    result: list[Row] = []
    name = f"CBQ {count:,}" + ("" if stop_words else ", frequent words too")

    def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        result.append({"name": name, "value": round(value, 3), "unit": unit, "floor": floor, "note": note})

    stream = objects(n, seed=3)
    queries, numbers = asked(objects(100_000, seed=1), count, stop_words), np.arange(count)
    index, merger = ContinuousBestIndex(SPACE), BestMerger(SPACE)
    begun = time.process_time()
    index.register(numbers, queries)
    row(f"{name}: register", count / (time.process_time() - begun), "queries/s", None, "slot")
    merger.register(numbers, queries)
    spent, passed, rows, merged = list[float](), 0, 0, 0.0
    for first in range(0, n, EPOCH):
        part = stream.take(np.arange(first, min(n, first + EPOCH)))
        begun = time.process_time()
        found = list(index.match(part))
        spent.append(time.process_time() - begun)
        arrivals = ScoredArrivals.concat([arrivals_of(part, each) for each in found])
        begun = time.process_time()
        rows += sum(map(len, merger.changes(arrivals, int(part.t[-1]))))
        merged += time.process_time() - begun
        passed += len(arrivals)
    floor = 300_000.0 if count == 100_000 and stop_words else None
    row(f"{name}: slot, first epoch", EPOCH / spent[0], "objects/s")
    row(f"{name}: slot, then", EPOCH * (len(spent) - 1) / sum(spent[1:]), "objects/s", floor, f"{passed:,} pairs")
    row(f"{name}: slot, last epoch", EPOCH / spent[-1], "objects/s")
    row(f"{name}: merger", passed / max(1e-9, merged), "pairs/s", None, f"{rows:,} changes")
    row(f"{name}: memory", index.nbytes / count, "bytes/query", None, "slot, with heaps")
    return result


def asked(source: ObjectBatch, count: int, stop_words: int) -> QueryBatch:
    """Queries around some objects."""
    rng, common = np.random.default_rng(7), {*vocabulary()[:stop_words].to_pylist()}
    frequencies = np.bincount(source.terms.codes, minlength=len(source.terms.vocabulary))
    weighed = dict(
        zip(
            source.terms.vocabulary.to_pylist(),
            weights(len(source), np.maximum(frequencies, 1)).tolist(),
            strict=True,
        )
    )
    found: list[Query] = []
    while len(found) < count:
        i = int(rng.integers(len(source)))
        terms = [word for word in source.terms[i] if word not in common]
        if len(terms) < WORDS:
            continue
        words = tuple(sorted(rng.choice(terms, WORDS, replace=False).tolist()))
        known = tuple(weighed[word] for word in words)
        by = Ranking(words, RADIUS, 1, 6 * 3_600_000, static=True, weights=known)
        x, y = float(source.x[i]), float(source.y[i])
        lifetime = Lifetime(10**9, continuous=True)
        found.append(Query(f"q{len(found)}", 0, Predicate(Circle(x, y, RADIUS)), Best(x, y, K, by), lifetime))
    return QueryBatch.of(found)


def arrivals_of(part: ObjectBatch, found: cbq.Scored) -> ScoredArrivals:
    """What a slot passes on."""
    at = found.position
    places = part.ids.take(pa.array(at)), part.t[at], part.x[at], part.y[at]
    return ScoredArrivals(found.number, *places, found.distance, found.score, found.key)


if __name__ == "__main__":
    for each in run(*map(int, sys.argv[1:])):
        print(each)
