"""Speed of ranked queries on one core, and of the corpus tables: ``python -m tests.benchmarks.bench_best [objects]``.

Objects are those of the other benchmarks: clusters in the unit square, 8 words each of 100,000 by Zipf's law, without
stop words the most frequent 150. A query is about the most frequent other words of one object, near it. Figures are CPU
times. Continuous ones are in :mod:`tests.benchmarks.bench_continuous_best`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.local.snapshot import segments
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.arrays import pack_arrays
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.ranking.asked import Ranking
from spatialstream.stages.corpus import CorpusCounts, Tally, load_table, write_parts, write_tables
from spatialstream.stages.turns import Counted, Epoch
from tests.benchmarks import bench_continuous_best
from tests.benchmarks.workload import SPACE, objects, vocabulary

Row = dict[str, Any]

STOP_WORDS = 150
RADIUS = 0.02
"""As 100 km are of the United States, whose tweets the paper has: about a fiftieth of the side."""

QUERIES = 300
EPOCH = 100_000


def run(n: int = 1_000_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    segments.prepare()
    batch = objects(n, seed=1)
    result: list[Row] = []

    def row(name: str, value: float, unit: str, floor: str = "", note: str = "") -> None:
        bound = float(floor.lstrip("<> ").replace(",", "")) if floor else None
        result.append({"name": name, "value": round(value, 3), "unit": unit, "floor": bound, "note": note})

    spent, counts = 0.0, CorpusCounts(300_000, 0)
    for start in range(0, n, EPOCH):
        part = batch.take(np.arange(start, min(start + EPOCH, n)))
        begun = time.process_time()
        counts.add(part)
        spent += time.process_time() - begun
    row("count words", n / spent, "objects/s", "", f"epochs of {EPOCH:,}")
    at = -(-int(batch.t.max()) // 300_000) * 300_000
    storage = MemoryStorage()
    begun = time.process_time()
    tally = counts.table(at)
    epoch = Epoch(0, 1, at - 1, at, 0, None, (), (), (), counted=Counted(300_000, 0))
    write_parts(epoch, 0, [(at, tally)], storage)
    write_tables(epoch, storage)
    row("table: write", time.process_time() - begun, "s", "", f"{len(tally.sum()[0]):,} words")
    begun = time.process_time()
    corpus = load_table(storage, at)
    row("table: load", time.process_time() - begun, "s")
    million(row)

    store = SegmentStore(SPACE)
    store.append(batch)
    for words, k, shares in ((5, 5, 0.2), (1, 5, 0.2), (5, 5, 0.8), (5, 50, 0.2)):
        figures(store, batch, corpus, (words, k, shares), row)
    figures(store, batch, corpus, (5, 5, 0.2), row, between=True)
    figures(store, batch, corpus, (5, 5, 0.2), row, stop_words=0)
    return result + bench_continuous_best.run(n)


def million(row: Any) -> None:
    """A table of a million words."""
    words = pa.array([f"word{i:07d}" for i in range(1_000_000)])
    tally = Tally(10_000_000, [(words, np.arange(2, 1_000_002))])
    storage, epoch = MemoryStorage(), Epoch(0, 1, 9, 10, 0, None, (), (), (), counted=Counted(10, 0))
    begun = time.process_time()
    write_parts(epoch, 0, [(10, tally)], storage)
    write_tables(epoch, storage)
    row("table of a million words: write", time.process_time() - begun, "s", "< 1")
    table = load_table(storage, 10)
    size = sum(len(part) for part in pack_arrays(*table.to_arrays()))
    row("table of a million words: size", size, "bytes", "< 30,000,000")


def figures(
    store: SegmentStore,
    batch: ObjectBatch,
    corpus: CorpusTable,
    asked: tuple[int, int, float],
    row: Any,
    *,
    between: bool = False,
    stop_words: int = STOP_WORDS,
) -> None:
    """The times of some queries, after all have been asked once."""
    count, k, space = asked
    rng, now, common = np.random.default_rng(7), int(batch.t.max()), set(vocabulary()[:stop_words].to_pylist())
    queries: list[tuple[tuple[float, float], Ranking]] = []
    while len(queries) < QUERIES:
        i = int(rng.integers(len(batch)))
        codes = np.sort(
            batch.terms.codes[batch.terms.offsets[i] : batch.terms.offsets[i + 1]]
        )  # the most frequent first
        found = batch.terms.vocabulary.take(pa.array(codes)).to_pylist()
        words: Sequence[str] = [word for word in found if word not in common][:count]
        if len(words) == count:
            by = Ranking(tuple(sorted(words)), RADIUS, 1, 7 * 86_400_000, None, (space, 0.0, 1.0 - space))
            if between:
                by = replace(by, half_life=None, between=(0, now), shares=(1 / 3, 1 / 3, 1 / 3))
            queries.append(((float(batch.x[i]), float(batch.y[i])), by))
    spent, checked = list[float](), 0
    for again in range(2):
        for at, by in queries:
            begun = time.process_time()
            answer = store.best(at, k, by, (), (-1, now), now, corpus)
            if again:
                spent.append(time.process_time() - begun)
                checked += answer.checked
    ms = np.sort(spent) * 1e3
    what = f"{count} {'words' if stop_words else 'most frequent words'}"
    name = f"{'interval' if between else 'half-life'}, {what}, k {k}" + ("" if between else f", α {space}")
    note = f"{checked / QUERIES:,.0f} objects looked at"
    is_paper = (count, k, space, between, stop_words) == (5, 5, 0.2, False, STOP_WORDS)
    row(f"{name}: p50", float(ms[len(ms) // 2]), "ms", "< 5" if is_paper else "", note)
    row(f"{name}: p95", float(ms[math.ceil(0.95 * len(ms)) - 1]), "ms", "< 25" if is_paper else "")


if __name__ == "__main__":
    for each in run(*map(int, sys.argv[1:])):
        print(each)
