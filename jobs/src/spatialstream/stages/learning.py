"""J from the live stream: the statistics of objects and queries, kept up to date (SSTD, sections 4.1.1 and 5.3).

With each epoch, router partition 0 leaves a sample of its objects and queries. Now and then the router's driver makes
statistics of the samples that have come since the last time, and adds them to J, of which what is old has faded by
exp(-time / memory). J is kept in the routing store, where the rebalancer reads it.

Cost: bounded samples an epoch; some 100 ms each time J is renewed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from spatialstream.index.statistics import KeywordCounts, Statistics
from spatialstream.model.errors import Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import CANCEL, QueryBatch
from spatialstream.model.space import Space
from spatialstream.sources.storage import write_whole
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import STATISTICS, read_statistics

__all__ = ["MEMORY", "Learner", "write_sample"]

MEMORY = 6 * 3_600_000
"""Default time in ms of the stream in which what J knows fades to 1/e."""

_PER_EPOCH = 2_000
_MOST_FILES = 200


def write_sample(
    folder: Path, epoch: int, span: int, objects: ObjectBatch | None, queries: QueryBatch | None, share: int
) -> None:
    """Leave a sample of an epoch.

    Args:
        folder: where samples go.
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
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, record.schema) as writer:
            writer.write_batch(record)
        write_whole(folder / f"{epoch:09d}-{kind}.arrow", sink.getvalue())


class Learner:
    """Keeps J.

    Args:
        folder: where the samples are.
        store: the routing store.
        space: the stream's space.
        memory: ms of the stream in which what is known fades to 1/e.
    """

    def __init__(self, folder: Path, store: RoutingStore, space: Space, memory: int = MEMORY) -> None:
        self._folder = folder
        self._store = store
        self._space = space
        self._memory = memory
        self._known: Statistics | None = None
        self._restored = False

    def learn(self) -> bool:
        """Add the samples that have come; whether J has changed and is in the store."""
        paths = sorted(self._folder.glob("*.arrow"))
        for path in paths[:-_MOST_FILES]:
            path.unlink(missing_ok=True)
        if not paths or (not self._restored and not self._restore()):
            return False
        recent = self._recent(paths[-_MOST_FILES:])
        if recent is not None:
            keep = math.exp(-recent.span / self._memory)
            self._known = recent if self._known is None else self._known.updated(recent, keep)
        try:
            if self._known is not None:
                self._store.save_statistics(STATISTICS, *self._known.to_arrays())
        except Unavailable:
            pass  # the next time will do
        for path in paths:
            path.unlink(missing_ok=True)
        return recent is not None

    def drop(self) -> None:
        """Go on without the samples that have come: nothing can be learnt from them."""
        for path in self._folder.glob("*.arrow"):
            path.unlink(missing_ok=True)

    def _restore(self) -> bool:
        try:
            kept = read_statistics(self._store)
        except Unavailable:
            return False
        if kept is not None:
            self._known = kept
        self._restored = True
        return True

    def _recent(self, paths: list[Path]) -> Statistics | None:
        """Statistics of samples; each record counts for those that it stands for."""
        objects: list[ObjectBatch] = []
        queries: list[QueryBatch] = []
        weights = {"objects": [0.0, 0], "queries": [0.0, 0]}
        span = 0
        for path in paths:
            with pa.ipc.open_file(pa.OSFile(str(path))) as reader:
                record = reader.get_batch(0)
            kind = path.stem.split("-")[1]
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
