"""A bounded, time-decayed sample of a live stream: the input of J and Algorithm 1 (SSTD, 4.1).

Records are drawn by priority sampling (N. Duffield, C. Lund, M. Thorup: Priority sampling for estimation of arbitrary
subset sums, JACM 54(6), 2007): a record of weight w gets the priority w / u with u uniform in (0, 1]; the records with
the highest priorities are kept, and each of them represents max(w, τ) records, where τ is the highest priority that was
not kept. This gives unbiased estimates of sums over any part of the stream.

A record's weight decays by exp(-age / memory). Decay divides all weights by the same factor, so the order of priorities
does not change: logarithms of priorities are stored as of time 0 (forward decay; G. Cormode, V. Shkapenyuk,
D. Srivastava, B. Xu, ICDE 2009), and only the requested values are computed for the current time. A continuous query
decays only once it has ended, because active queries cause load regardless of their age.

u is a hash of the record's id, so a cancellation selects the same query in every sample.

The sample is stored in ZooKeeper, so its text is bounded too (:data:`TEXT`): if long records exceed this bound, fewer
records are kept, and long ones are slightly underrepresented.

Cost: O(new records + kept records) per update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Floats, Ints, Words, numpy_view
from spatialstream.model.hashing import hash_strings
from spatialstream.model.kinds import CANCEL, IS_CONTINUOUS, Route, having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import StoredFields
from spatialstream.model.terms import TermLists

__all__ = ["MEMORY", "OBJECTS", "QUERIES", "TEXT", "Sample"]

MEMORY = 6 * 3_600_000
"""Default decay time: the stream time in ms in which weights decay to 1/e."""

OBJECTS, QUERIES = 16_384, 16_384
"""Maximum number of records of each kind in the sample."""

TEXT = 4 << 20
"""Maximum total size in bytes of the ids and terms of the records of each kind."""

_REGIONAL = having(lambda kind: kind.continuous and kind.route is Route.REGION)

_Records = TypeVar("_Records", ObjectBatch, QueryBatch)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Sampled objects and queries, each of which represents several.

    Attributes:
        space: the stream's space.
        objects: n objects. If the stream's records are all in memory, these are all of its objects.
        queries: m queries, without cancellations. A cancelled query has the duration that it had in the end.
        weights: float64[n] and float64[m], number of records that each record represented when it arrived.
        least: the logarithms of the highest priorities of objects and of queries that were not kept, as of time 0.
        now: the time of the sample, in ms.
        span: the time in ms in which the records arrived; older time decays like the records.
        seen: total number of objects that have arrived.
        memory: time in ms in which a record's weight decays to 1/e.
    """

    space: Space
    objects: ObjectBatch
    queries: QueryBatch
    weights: tuple[Floats, Floats]
    least: tuple[float, float]
    now: int
    span: float
    seen: float
    memory: float

    @classmethod
    def of(
        cls,
        space: Space,
        objects: ObjectBatch,
        queries: QueryBatch,
        span: float,
        weights: tuple[Floats, Floats] | None = None,
        memory: float = MEMORY,
    ) -> Sample:
        """Create a sample of the records of a period.

        Args:
            space: the stream's space.
            objects: the objects.
            queries: the queries and cancellations; a cancelled query ends with its cancellation.
            span: the period's length in ms.
            weights: number of objects that each object, and of queries that each query represents; 1 by default.
            memory: time in ms in which a record's weight decays to 1/e.
        """
        weight, query_weights = (np.ones(len(objects)), np.ones(len(queries))) if weights is None else weights
        objects = replace(
            objects,
            terms=objects.terms.counted(False),
            properties=PropertyColumns.none(len(objects)),
            stored=StoredFields.none(len(objects)),
        )
        ends = queries.take(np.flatnonzero(queries.code == CANCEL))
        rows = np.flatnonzero(queries.code != CANCEL)
        queries, query_weights = _ended(queries.take(rows), ends), query_weights[rows]
        now = max(int(objects.t.max(initial=0)), int(queries.t.max(initial=0)))
        sample = cls(
            space,
            objects,
            queries,
            (weight, query_weights),
            (-math.inf, -math.inf),
            now,
            float(span),
            float(weight.sum()),
            memory,
        )
        return sample._bounded()

    def updated(self, recent: Sample, ends: QueryBatch) -> Sample:
        """Merge this sample with that of a later period.

        Args:
            recent: the sample of the later period.
            ends: the cancellations that arrived in it.
        """
        now = max(self.now, recent.now)
        parts = (
            ObjectBatch.concat([self.objects, recent.objects]),
            QueryBatch.concat([_ended(self.queries, ends), recent.queries]),
        )
        weights = [np.concatenate(pair) for pair in zip(self.weights, recent.weights, strict=True)]
        least = [max(pair) for pair in zip(self.least, recent.least, strict=True)]
        keep = math.exp(-(now - self.now) / self.memory)
        merged = replace(
            self,
            objects=parts[0],
            queries=parts[1],
            weights=(weights[0], weights[1]),
            least=(least[0], least[1]),
            now=now,
            span=keep * self.span + recent.span,
            seen=self.seen + recent.seen,
        )
        return merged._bounded()

    def _bounded(self) -> Sample:
        sizes = _sizes(self.objects.ids, self.objects.terms), _sizes(self.queries.ids, self.queries.keywords)
        objects, weight, least = _highest(
            self.objects, sizes[0], self._logs(0), self.weights[0], self.least[0], OBJECTS
        )
        queries, asked, lowest = _highest(
            self.queries, sizes[1], self._logs(1), self.weights[1], self.least[1], QUERIES
        )
        objects = replace(objects, terms=objects.terms.compact())
        queries = replace(queries, keywords=queries.keywords.compact())
        return replace(self, objects=objects, queries=queries, weights=(weight, asked), least=(least, lowest))

    def _logs(self, which: int) -> Floats:
        """Logarithms of the weights of objects (0) or queries (1), as of time 0."""
        t = self.objects.t if which == 0 else self._fresh_at()
        result: Floats = np.log(self.weights[which]) + t / self.memory
        return result

    def _fresh_at(self) -> Ints:
        """When the decay of each query starts: for a snapshot query its arrival, for a continuous one its end."""
        queries = self.queries
        lasts = np.where(IS_CONTINUOUS[queries.code], queries.duration, 0)
        return np.where(lasts < self.now - queries.t, queries.t + lasts, np.maximum(self.now, queries.t))

    def counts(self) -> tuple[Floats, Floats]:
        """The number of objects and of queries that each record represents now."""
        both = (np.exp(np.maximum(self._logs(i), self.least[i]) - self.now / self.memory) for i in (0, 1))
        objects, queries = both
        return objects, queries

    def continuous(self) -> QueryBatch:
        """The continuous queries that are routed by region and have not ended."""
        queries = self.queries
        stands = _REGIONAL[queries.code] & (queries.duration > self.now - queries.t)
        return queries.take(np.flatnonzero(stands))

    def statistics(self, levels: int | None = None) -> Statistics:
        """Compute J of the sample.

        A continuous query that lasts longer than ``memory`` counts as one that arrives once per ``memory`` and lasts
        that long.
        """
        stand = IS_CONTINUOUS[self.queries.code]
        lasts = np.where(stand, np.minimum(self.queries.duration, int(self.memory)), self.queries.duration)
        queries = replace(self.queries, duration=lasts)
        return Statistics.of(self.space, self.objects, queries, self.span, levels, self.counts())

    # ------------------------------------------------------------------------------------------------------- as bytes

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Serialize the sample as flat arrays and a JSON-serializable ``meta``."""
        arrays: dict[str, Array] = {"weight": self.weights[0], "asked": self.weights[1]}
        for name, batch in (("objects", self.objects), ("queries", self.queries)):
            sink = pa.BufferOutputStream()
            record = batch.to_arrow()
            with pa.ipc.new_stream(sink, record.schema) as writer:
                writer.write(record)
            arrays[name] = np.frombuffer(sink.getvalue(), np.uint8)
        meta = {
            "space": str(self.space),
            "least": [None if math.isinf(each) else each for each in self.least],
            **{name: getattr(self, name) for name in ("now", "span", "seen", "memory")},
        }
        return arrays, meta

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Deserialize the result of :meth:`to_arrays`."""
        objects, queries = (
            pa.ipc.open_stream(pa.py_buffer(arrays[name])).read_next_batch() for name in ("objects", "queries")
        )
        one, other = (-math.inf if each is None else float(each) for each in meta["least"])
        return cls(
            Space.parse(meta["space"]),
            ObjectBatch.from_arrow(objects),
            QueryBatch.from_arrow(queries),
            (arrays["weight"], arrays["asked"]),
            (one, other),
            int(meta["now"]),
            float(meta["span"]),
            float(meta["seen"]),
            float(meta["memory"]),
        )


def _uniform(hashes: Words) -> Floats:
    """U of each hash, in (0, 1]."""
    result: Floats = ((hashes >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    return result


def _sizes(ids: pa.StringArray, terms: TermLists) -> Ints:
    """Size in bytes of each record's id and terms, int64[n]."""
    words = numpy_view(pc.binary_length(terms.vocabulary))[terms.codes]
    text = np.concatenate([np.zeros(1, np.int64), np.cumsum(words, dtype=np.int64)])[terms.offsets]
    result: Ints = numpy_view(pc.binary_length(ids)) + np.diff(text)
    return result


def _highest(
    batch: _Records, sizes: Ints, logs: Floats, weights: Floats, least: float, most: int
) -> tuple[_Records, Floats, float]:
    """Keep the records with the highest priorities: (records, weights, highest priority that is not kept)."""
    if len(batch) <= most and sizes.sum() <= TEXT:
        return batch, weights, least
    priority = logs - np.log(_uniform(hash_strings(batch.ids)))
    order = np.argsort(-priority, kind="stable")
    most = min(most, int(np.searchsorted(np.cumsum(sizes[order]), TEXT, "right")))
    kept = np.sort(order[:most])
    return batch.take(kept), weights[kept], max(least, float(priority[order[most]]))


def _ended(queries: QueryBatch, ends: QueryBatch) -> QueryBatch:
    """Apply cancellations: each query ends with the first one of its id that is not earlier than the query."""
    if not len(ends) or not len(queries):
        return queries
    ids = pc.unique(ends.ids)
    which, cancels = (numpy_view(pc.fill_null(pc.index_in(each.ids, ids), -1)) for each in (queries, ends))
    order = np.lexsort((ends.t, cancels))
    times, ranks = np.unique(np.concatenate([ends.t, queries.t]), return_inverse=True)
    keys = np.concatenate([cancels, which]).astype(np.int64) * len(times) + ranks  # by id, and by time within it
    first = np.searchsorted(keys[order], keys[len(ends) :])
    first = order[np.minimum(first, len(ends) - 1)]
    lasted = ends.t[first] - queries.t
    ended = (cancels[first] == which) & (lasted >= 0)
    return replace(queries, duration=np.where(ended, np.minimum(lasted, queries.duration), queries.duration))
