"""Objects around the cities of the USA, queries as Pastri's paper draws them, and how this project answers them.

Objects are those of :mod:`tests.benchmarks.paper.tornado` with metres as distances, without the most frequent words. A
query has its words and its place from an object with the probability of its *selectivity*; otherwise the place is
anywhere, and the words are any of the dictionary (section 7.1.2). One corpus table of all objects is what all systems
score by.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Best, Lifetime, Predicate, Query
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Circle
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermLists
from spatialstream.stages.kinds.best import SnapshotBest
from tests.benchmarks.paper import tornado
from tests.benchmarks.ranked import OneTable, corpus_of

__all__ = ["EPOCH", "World", "answers", "asked", "objects", "query_rows"]

STOP_WORDS = 150
HALF_LIFE = 7 * 86_400_000
SPACE_SHARE = 0.2
K, WORDS, RADIUS, SELECTIVITY = 5, 5, 100_000.0, 0.2
"""The defaults of Table 6; the weight of space is that of the example, for the paper does not say another."""

EPOCH = 50_000

_DRAWN = 64
"""Words of the dictionary that are drawn for a query, of which the first distinct ones are its words."""


def objects(n: int, seed: int = 1) -> ObjectBatch:
    """n objects of 72 hours, whose ids are in the order of their rows."""
    batch = tornado.objects(n, seed)
    ids = pa.array([f"{i:09d}" for i in range(n)], pa.string())
    return replace(batch, ids=ids, terms=_without_stop_words(batch.terms))


def _without_stop_words(terms: TermLists) -> TermLists:
    frequencies = np.bincount(terms.codes, minlength=len(terms.vocabulary))
    stopped = np.zeros(len(frequencies), np.bool_)
    stopped[np.argsort(-frequencies)[:STOP_WORDS]] = True
    kept = ~stopped[terms.codes]
    before = np.concatenate([[0], np.cumsum(kept)])
    return TermLists(before[terms.offsets].astype(np.int32), terms.codes[kept], terms.vocabulary)


@dataclass(frozen=True, eq=False)
class World:
    """Objects, and what follows from them."""

    batch: ObjectBatch

    @cached_property
    def corpus(self) -> Any:
        """The table of all objects."""
        return corpus_of(self.batch)

    @cached_property
    def weights(self) -> np.ndarray:
        """int64[vocabulary], of each word."""
        known = dict(zip(self.corpus.words.to_pylist(), self.corpus.weights.tolist(), strict=True))
        words = self.batch.terms.vocabulary.to_pylist()
        return np.array([known.get(word, self.corpus.unknown) for word in words], np.int64)

    @cached_property
    def squares(self) -> np.ndarray:
        """int64[n], the sum of the squares of the weights of each object's words."""
        terms = self.batch.terms
        sums = np.concatenate([[0], np.cumsum(self.weights[terms.codes] ** 2)])
        return np.asarray(sums[terms.offsets[1:]] - sums[terms.offsets[:-1]])

    @cached_property
    def store(self) -> SegmentStore:
        """All objects in a slot."""
        store = SegmentStore(WGS84)
        for first in range(0, len(self.batch), EPOCH):
            store.append(self.batch.take(np.arange(first, min(first + EPOCH, len(self.batch)))))
        store.corpora = OneTable(self.corpus)
        return store


def asked(
    batch: ObjectBatch,
    count: int,
    *,
    words: int = WORDS,
    radius: float = RADIUS,
    selectivity: float = SELECTIVITY,
    between: bool = False,
    seed: int = 1,
) -> list[Query]:
    """Queries at the time of the last object, of which one with more words, or a wider disk, is otherwise the same.

    Args:
        batch: the objects.
        count: how many queries.
        words: of each.
        radius: of the disk, m.
        selectivity: the probability that a query is about an object, where it is.
        between: whether they are TkSTTQs, about all of the time, and not TkSKQs.
        seed: of all.
    """
    t = int(batch.t[-1])
    offsets, vocabulary = batch.terms.offsets, batch.terms.vocabulary
    used = np.unique(batch.terms.codes)
    made: list[Query] = []
    for number in range(count):
        rng = np.random.default_rng((9, seed, number))
        is_about, i = rng.random() < selectivity, int(rng.integers(len(batch)))
        codes = rng.permutation(batch.terms.codes[offsets[i] : offsets[i + 1]])
        at = float(batch.x[i]), float(batch.y[i])
        if not is_about or not len(codes):
            codes = used[rng.integers(len(used), size=_DRAWN)]
            west, south, east, north = tornado.USA.bounds
            at = float(rng.uniform(west, east)), float(rng.uniform(south, north))
        distinct = [*dict.fromkeys(codes.tolist())][:words]
        said = tuple(sorted(vocabulary.take(pa.array(distinct)).to_pylist()))
        if between:
            by = Ranking(said, radius, 1, None, (int(batch.t[0]) - 1, t), (1 / 3, 1 / 3, 1 / 3))
        else:
            by = Ranking(said, radius, 1, HALF_LIFE, None, (SPACE_SHARE, 0.0, 1.0 - SPACE_SHARE))
        lifetime = Lifetime(t - int(batch.t[0]) + 1)
        made.append(Query(f"q{number}", t, Predicate(Circle(*at, radius)), Best(*at, K, by), lifetime))
    return made


def query_rows(query: Query) -> tuple[Best, Ranking]:
    """What a query selects, and by what."""
    best = query.selection
    assert isinstance(best, Best)
    return best, best.ranking


def answers(store: SegmentStore, queries: Sequence[Query], times: int = 3) -> tuple[float, list[list[str]], float]:
    """Answer queries, from a parsed query to the JSON of its row.

    Returns:
        CPU ms of a query in the fastest of some passes; the ids of each answer; objects looked at by a query.
    """
    stage, found, least, looked = SnapshotBest(), list[str](), np.inf, 0
    for _ in range(times):
        view = store.view()
        begun = time.process_time()
        found = []
        for query in queries:
            part = stage.search(view, query, query.t - query.lifetime.duration, alone=True, within=np.inf)
            found.append(stage.answer(query, [part], WGS84))
        least, looked = min(least, time.process_time() - begun), view.checked
    ids = [[each["id"] for each in json.loads(f"{{{text}}}")["objects"]] for text in found]
    return 1e3 * least / len(queries), ids, looked / len(queries)
