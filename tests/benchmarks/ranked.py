"""What ranked queries of the benchmarks ask for: the best objects near one, about some of its words.

In the unit square the disk has a radius as 100 km are of the United States, whose tweets the paper has: about a
fiftieth of the side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.model.objects import ObjectBatch
from tests.benchmarks.workload import vocabulary

__all__ = ["RADIUS", "STOP_WORDS", "OneTable", "asked", "corpus_of", "records"]

STOP_WORDS = 150
"""The most frequent words, about which nobody asks."""

RADIUS = 0.02

Asked = list[tuple[tuple[float, float], tuple[str, ...]]]
"""Points and words."""


def asked(batch: ObjectBatch, queries: int, words: int, stop_words: int = STOP_WORDS) -> Asked:
    """The places of random objects, and their most frequent words but for stop words."""
    rng, common = np.random.default_rng(7), {*vocabulary()[:stop_words].to_pylist()}
    offsets, made = batch.terms.offsets, Asked()
    while len(made) < queries:
        i = int(rng.integers(len(batch)))
        codes = np.sort(batch.terms.codes[offsets[i] : offsets[i + 1]])  # the most frequent first
        found = [word for word in batch.terms.vocabulary.take(pa.array(codes)).to_pylist() if word not in common]
        if len(found) >= words:
            made.append(((float(batch.x[i]), float(batch.y[i])), tuple(sorted(found[:words]))))
    return made


def records(batch: ObjectBatch, queries: int, words: int = 5, k: int = 5) -> list[dict[str, Any]]:
    """Records of SBQs without a time."""
    by = {"type": "SBQ", "k": k, "radius": RADIUS, "expansions": 1, "halfLife": "7d", "weights": {"space": 0.2}}
    return [{**by, "at": [*at], "words": [*said]} for at, said in asked(batch, queries, words)]


def corpus_of(batch: ObjectBatch) -> CorpusTable:
    """The table of all objects."""
    frequencies = np.bincount(batch.terms.codes, minlength=len(batch.terms.vocabulary))
    order = pc.array_sort_indices(batch.terms.vocabulary)
    words = batch.terms.vocabulary.take(order)
    return CorpusTable.of(int(batch.t.max()), len(batch), words, frequencies[order.to_numpy()])


class OneTable:
    """The only table that some slots have."""

    def __init__(self, table: CorpusTable) -> None:
        self.table = table

    def of(self, t: int) -> CorpusTable:
        """That table, for any time."""
        return self.table
