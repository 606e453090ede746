"""The sample of the live stream from which J is made, kept up to date (SSTD, sections 4.1.1 and 5.3).

With each epoch, each router partition writes a sample of its queries, and partition 0 one of its objects. Periodically
the router's driver adds the new samples to the overall sample (:mod:`spatialstream.index.sample`), which is kept in the
routing store, where the rebalancer reads it: it makes J, and the objects from which a tree is rebuilt, from it.

Cost: bounded samples per epoch; some 100 ms for each update of the sample. ZooKeeper, which keeps its last 500 changes
in memory, gets a sample of megabytes once every minute or two, and a small one each time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from spatialstream.connectors.contracts import Storage
from spatialstream.index.sample import MEMORY, Sample
from spatialstream.model.arrays import Ints
from spatialstream.model.errors import Unavailable
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import CANCEL
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.queries import QueryBatch, nobody
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import StoredFields
from spatialstream.stages.state import get_records, records_file
from spatialstream.stages.turns import Epoch
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import read_sample, save_sample

__all__ = ["SAMPLES", "Learner", "drop_samples", "write_sample"]

SAMPLES = "samples/"
"""Prefix of the names of sample files."""

_PER_EPOCH = 2_000
_ENDS_PER_EPOCH = 20_000
_MOST_EPOCHS = 100
_RATE = 64 << 10
"""Maximum bytes per second of samples saved to the routing store."""


def write_sample(
    storage: Storage, epoch: Epoch, partition: int, objects: ObjectBatch | None, queries: QueryBatch | None
) -> None:
    """Write a sample of a router partition's records in an epoch.

    Queries are selected by the smallest hashes of their ids, and cancellations likewise: so the cancellations of the
    queries in the sample are in it too, because all records with one id belong to one partition.

    Args:
        storage: of the samples.
        epoch: the epoch.
        partition: of the router.
        objects: those that represent all of the epoch; passed by one partition.
        queries: those of this partition.
    """
    metadata = {"span": str(max(0, epoch.span))}
    if objects is not None and len(objects):
        chosen = objects.take(np.arange(0, len(objects), max(1, -(-len(objects) // _PER_EPOCH))))
        # the tree need not know properties, nor what is kept to be shown
        chosen = replace(chosen, properties=PropertyColumns.none(len(chosen)), stored=StoredFields.none(len(chosen)))
        record = replace(chosen, terms=chosen.terms.compact()).to_arrow()
        metadata["weight"] = repr(epoch.partitions * len(objects) / len(chosen))
        name = f"{SAMPLES}{epoch.number:09d}-objects.arrow"
        storage.put_later(name, records_file(record.replace_schema_metadata(metadata)))
    if queries is not None and len(queries):
        is_end = queries.code == CANCEL
        asked = _smallest(queries, np.flatnonzero(~is_end), -(-_PER_EPOCH // epoch.partitions))
        ends = _smallest(queries, np.flatnonzero(is_end), -(-_ENDS_PER_EPOCH // epoch.partitions))
        rows = np.sort(np.append(asked, ends))
        some = replace(queries, by=nobody(len(queries))).take(rows)  # the tree does not need the callers' names
        metadata["weight"] = repr(float(np.count_nonzero(~is_end)) / max(1, len(asked)))
        record = replace(some, keywords=some.keywords.compact()).to_arrow()
        name = f"{SAMPLES}{epoch.number:09d}-queries-{partition:04d}.arrow"
        storage.put_later(name, records_file(record.replace_schema_metadata(metadata)))


def _smallest(queries: QueryBatch, rows: Ints, most: int) -> Ints:
    """At most ``most`` of these rows: those with the smallest hashes of their ids."""
    if len(rows) <= most:
        return rows
    hashes = hash_strings(queries.ids)[rows]
    return rows[np.argpartition(hashes, most)[:most]]


def _epoch_of(name: str) -> int:
    return int(name.removeprefix(SAMPLES)[:9])


def drop_samples(storage: Storage) -> None:
    """Discard the samples that have come."""
    storage.delete(storage.list(SAMPLES))


class Learner:
    """Keeps the sample.

    Args:
        storage: of the samples of epochs.
        store: the routing store.
        space: the stream's space.
        memory: ms of the stream in which old records decay to 1/e.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        storage: Storage,
        store: RoutingStore,
        space: Space,
        memory: float = MEMORY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._store = store
        self._space = space
        self._memory = memory
        self._clock = clock
        self._known: Sample | None = None
        self._restored = False
        self._unsaved = False
        self._save_at = clock()

    def learn(self) -> bool:
        """Add the new samples, and save the overall sample if that is due; returns whether there were new ones."""
        learned = self._add()
        if self._unsaved and self._known is not None and self._clock() >= self._save_at:
            with contextlib.suppress(Unavailable):  # retried next time
                size = save_sample(self._store, self._known)
                self._unsaved, self._save_at = False, self._clock() + size / _RATE
        return learned

    def _add(self) -> bool:
        names = self._storage.list(SAMPLES)
        if not names or (not self._restored and not self._restore()):
            return False
        epochs = sorted({_epoch_of(name) for name in names})[-_MOST_EPOCHS:]
        recent, ends = self._recent([name for name in names if _epoch_of(name) >= epochs[0]])
        self._known = recent if self._known is None else self._known.updated(recent, ends)
        self._unsaved = True
        self._storage.delete(names)
        return True

    def drop(self) -> None:
        """Discard the new samples: nothing can be learnt from them."""
        drop_samples(self._storage)

    def _restore(self) -> bool:
        try:
            self._known = read_sample(self._store)
        except Unavailable:
            return False
        self._restored = True
        return True

    def _recent(self, names: list[str]) -> tuple[Sample, QueryBatch]:
        """The new records, each with its weight, and the cancellations among them."""
        objects, queries = [ObjectBatch.of([])], [QueryBatch.of([])]
        weights = [np.empty(0)], [np.empty(0)]
        span = 0
        for name in names:
            (record,) = get_records(self._storage, name)
            is_objects = name.endswith("-objects.arrow")
            each = np.full(record.num_rows, float(record.schema.metadata[b"weight"]))
            weights[0 if is_objects else 1].append(each)
            if is_objects:
                span += int(record.schema.metadata[b"span"])
                objects.append(ObjectBatch.from_arrow(record))
            else:
                queries.append(QueryBatch.from_arrow(record))
        asked = QueryBatch.concat(queries)
        counted = np.concatenate(weights[0]), np.concatenate(weights[1])
        recent = Sample.of(self._space, ObjectBatch.concat(objects), asked, max(1, span), counted, self._memory)
        return recent, asked.take(np.flatnonzero(asked.code == CANCEL))
