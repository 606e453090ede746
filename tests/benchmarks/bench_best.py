"""Speed of ranked queries on one core, and of the corpus tables: ``python -m tests.benchmarks.bench_best [objects]``.

Objects are those of the other benchmarks: clusters in the unit square, 8 words each of 100,000 by Zipf's law. A query
is about the most frequent words of one object, without the 150 most frequent of all, near it. Figures are CPU times;
those of queries that are asked, without transport, are wall-clock times. Continuous queries are in
:mod:`tests.benchmarks.bench_continuous_best`, tables in :mod:`tests.benchmarks.bench_corpus`, and queries to a live
stream in ``bench_live ranked``.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from spatialstream.client import SnapshotClient
from spatialstream.local.snapshot import segments
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.terms import TermRule
from tests.benchmarks import bench_continuous_best, bench_corpus, ranked
from tests.benchmarks.bench_asked import EPOCH, Slots, one_by_one
from tests.benchmarks.ranked import RADIUS, STOP_WORDS
from tests.benchmarks.workload import SPACE, objects

Row = dict[str, Any]

QUERIES = 300
CONTINUOUS = 1_000_000
"""Objects that come to continuous queries, and of which words are counted."""


def run(n: int = 5_000_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    segments.prepare()
    batch = objects(n, seed=1)
    result: list[Row] = []

    def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        result.append({"name": name, "value": round(value, 3), "unit": unit, "floor": floor, "note": note})

    corpus = ranked.corpus_of(batch)
    store = SegmentStore(SPACE)
    for start in range(0, n, EPOCH):
        store.append(batch.take(np.arange(start, min(start + EPOCH, n))))
    for words, k, shares in ((5, 5, 0.2), (1, 5, 0.2), (5, 5, 0.8), (5, 50, 0.2)):
        figures(store, batch, corpus, (words, k, shares), row)
    for words in (1, 5):
        figures(store, batch, corpus, (words, 5, 0.2), row, between=True)
    figures(store, batch, corpus, (5, 5, 0.2), row, stop_words=0)
    asked_slots(batch, corpus, row)
    return result + bench_corpus.run(min(n, 2 * CONTINUOUS)) + bench_continuous_best.run(min(n, CONTINUOUS))


def asked_slots(batch: ObjectBatch, corpus: CorpusTable, row: Any) -> None:
    """Queries to the views of four slots, from JSON to JSON, without transport."""
    slots = Slots(batch.take(np.arange(0, len(batch), max(1, len(batch) // 50_000))))
    for store in slots.stores:
        store.corpora = ranked.OneTable(corpus)
    for start in range(0, len(batch), EPOCH):
        slots.round(batch.take(np.arange(start, min(start + EPOCH, len(batch)))))
    session = SnapshotClient(lambda seconds: slots.directory, slots.ask, SPACE, TermRule(ranking=True))
    one_by_one("asked SBQ, 5 words, k 5", session, ranked.records(batch, 1_000), row, (None, 30.0))


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
    now, queries = int(batch.t.max()), list[tuple[tuple[float, float], Ranking]]()
    for at, words in ranked.asked(batch, QUERIES, count, stop_words):
        by = Ranking(words, RADIUS, 1, 7 * 86_400_000, None, (space, 0.0, 1.0 - space))
        if between:
            by = replace(by, half_life=None, between=(0, now), shares=(1 / 3, 1 / 3, 1 / 3))
        queries.append((at, by))
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
    is_paper = (k, space, stop_words) == (5, 0.2, STOP_WORDS)
    floors = {(5, False): (None, 5.0, 25.0), (1, True): (1.5, None, None), (5, True): (9.0, None, None)}
    mean, p50, p95 = floors.get((count, between), (None,) * 3) if is_paper else (None,) * 3
    row(f"{name}: mean", float(np.mean(ms)), "ms", mean, note)
    row(f"{name}: p50", float(ms[len(ms) // 2]), "ms", p50)
    row(f"{name}: p95", float(ms[math.ceil(0.95 * len(ms)) - 1]), "ms", p95)


if __name__ == "__main__":
    for each in run(*map(int, sys.argv[1:])):
        print(each)
