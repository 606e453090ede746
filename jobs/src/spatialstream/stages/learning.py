"""J from the live stream: the statistics of objects and queries, kept up to date (SSTD, sections 4.1.1 and 5.3).

With each epoch, router partition 0 leaves a sample of its objects and queries. Now and then the router's driver makes
statistics of the samples that have come since the last time, and adds them to J, of which what is old has faded by
exp(-time / memory). J is kept in the routing store, where the rebalancer reads it.

Cost: bounded samples an epoch; some 100 ms each time J is renewed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from spatialstream.index.statistics import KeywordCounts, Statistics
from spatialstream.model.errors import Unavailable
from spatialstream.model.kinds import CANCEL
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.sources.contracts import Storage
from spatialstream.stages.state import get_records, put_records
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import STATISTICS, read_statistics

__all__ = ["MEMORY", "SAMPLES", "Learner", "drop_samples", "write_sample"]

SAMPLES = "samples/"
"""What the names of samples begin with."""

MEMORY = 6 * 3_600_000
"""Default time in ms of the stream in which what J knows fades to 1/e."""

_PER_EPOCH = 2_000
_MOST_FILES = 200


def write_sample(
    storage: Storage, epoch: int, span: int, objects: ObjectBatch | None, queries: QueryBatch | None, share: int
) -> None:
    """Leave a sample of an epoch.

    Args:
        storage: where samples go.
        epoch: number of the epoch.
        span: its length in ms.
        objects: those of this router partition.
        queries: all of the epoch.
        share: number of router partitions.
    """
    for kind, batch, factor in (("objects", objects, share), ("queries", queries, 1)):
        if batch is None or not len(batch):
            continue
        stride = max(1, -(-len(batch) // _PER_EPOCH))
        chosen = batch.take(np.arange(0, len(batch), stride))
        if isinstance(chosen, ObjectBatch):
            record = replace(chosen, terms=chosen.terms.compact()).to_arrow()
        else:
            record = replace(chosen, keywords=chosen.keywords.compact()).to_arrow()
        weight = factor * len(batch) / len(chosen)
        record = record.replace_schema_metadata({"weight": repr(weight), "span": str(max(0, span))})
        put_records(storage, f"{SAMPLES}{epoch:09d}-{kind}.arrow", record)


def drop_samples(storage: Storage) -> None:
    """Go on without the samples that have come."""
    storage.delete(storage.list(SAMPLES))


class Learner:
    """Keeps J.

    Args:
        storage: where the samples are.
        store: the routing store.
        space: the stream's space.
        memory: ms of the stream in which what is known fades to 1/e.
    """

    def __init__(self, storage: Storage, store: RoutingStore, space: Space, memory: int = MEMORY) -> None:
        self._storage = storage
        self._store = store
        self._space = space
        self._memory = memory
        self._known: Statistics | None = None
        self._restored = False

    def learn(self) -> bool:
        """Add the samples that have come; whether J has changed and is in the store."""
        names = self._storage.list(SAMPLES)
        if not names or (not self._restored and not self._restore()):
            return False
        recent = self._recent(names[-_MOST_FILES:])
        if recent is not None:
            keep = math.exp(-recent.span / self._memory)
            self._known = recent if self._known is None else self._known.updated(recent, keep)
        try:
            if self._known is not None:
                self._store.save_statistics(STATISTICS, *self._known.to_arrays())
        except Unavailable:
            pass  # the next time will do
        self._storage.delete(names)
        return recent is not None

    def drop(self) -> None:
        """Go on without the samples that have come: nothing can be learnt from them."""
        drop_samples(self._storage)

    def _restore(self) -> bool:
        try:
            kept = read_statistics(self._store)
        except Unavailable:
            return False
        if kept is not None:
            self._known = kept
        self._restored = True
        return True

    def _recent(self, names: list[str]) -> Statistics | None:
        """Statistics of samples; each record counts for those that it stands for."""
        objects: list[ObjectBatch] = []
        queries: list[QueryBatch] = []
        weights = {"objects": [0.0, 0], "queries": [0.0, 0]}
        span = 0
        for name in names:
            (record,) = get_records(self._storage, name)
            kind = name.removesuffix(".arrow").split("-")[1]
            weights[kind][0] += float(record.schema.metadata[b"weight"]) * record.num_rows
            weights[kind][1] += record.num_rows
            if kind == "objects":
                span += int(record.schema.metadata[b"span"])
                objects.append(ObjectBatch.from_arrow(record))
            else:
                batch = QueryBatch.from_arrow(record)
                queries.append(batch.take(np.flatnonzero(batch.code != CANCEL)))
        if not objects and not queries:
            return None
        statistics = Statistics.of(
            self._space, ObjectBatch.concat(objects), QueryBatch.concat(queries or [QueryBatch.of([])]), max(1, span)
        )
        stands_for = {kind: total / max(1, rows) for kind, (total, rows) in weights.items()}
        return _weighted(statistics, stands_for["objects"] or 1.0, stands_for["queries"] or 1.0)


def _weighted(statistics: Statistics, objects: float, queries: float) -> Statistics:
    """Counts as if each object and query had come so many times."""

    def keywords(counts: KeywordCounts) -> KeywordCounts:
        return replace(counts, count=queries * counts.count)

    return replace(
        statistics,
        queries=queries * statistics.queries,
        reached=queries * statistics.reached,
        lengths=queries * statistics.lengths,
        durations=queries * statistics.durations,
        duration_sums=queries * statistics.duration_sums,
        srq=keywords(statistics.srq),
        skq=keywords(statistics.skq),
        objects=objects * statistics.objects,
    )
