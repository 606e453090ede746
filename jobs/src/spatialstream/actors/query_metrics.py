"""Counts of the queries that actors answer between rounds, by outcome and latency.

An actor counts its own queries, and reports the counts with each heartbeat; the driver adds up the increments, so the
queries of an actor that has gone stay counted. The counts are a matrix of fixed size, whatever is asked.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import Gone
from spatialstream.model.kinds import CODE, KINDS, NAMES, QueryType
from spatialstream.model.queries import coded

__all__ = ["ASKED", "LIMITS", "OUTCOMES", "Counts", "QueryMetrics", "none_asked"]

ASKED: tuple[QueryType, ...] = tuple(kind.type for kind in KINDS if not kind.continuous)
"""The query types that are asked between rounds: a count has a row for each."""
_CODES = [CODE[kind] for kind in ASKED]

OUTCOMES = ("answered", "again", "failed", "abandoned")
"""Outcomes of a query: an answer; its view has gone, so it is asked again; an error; or nobody waits for the answer
any more."""

LIMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, float("inf"))
"""Upper bounds of the latency buckets, s."""

Counts = npt.NDArray[np.float64]
"""float64[type, column]: queries by :data:`OUTCOMES`; actors' answers by :data:`LIMITS`; and their seconds."""


def none_asked() -> Counts:
    """The counts before the first query."""
    return np.zeros((len(ASKED), len(OUTCOMES) + len(LIMITS) + 1))


class QueryMetrics:
    """Counts the queries sent to an actor; thread-safe.

    Attributes:
        counts: see :data:`Counts`. An answered query counts in the actor of its first slot, so once; one that is not
            answered counts in each actor that reports so. The second phase of an SKQ counts as no further query, but
            its latency counts separately.
    """

    def __init__(self) -> None:
        self.counts = none_asked()
        self._lock = threading.Lock()

    @contextmanager
    def counting(self, slots: Sequence[int], query_block: pa.RecordBatch) -> Iterator[None]:
        """Count queries that are answered within this context, for some slots; each takes as long as all of them."""
        began, outcome = time.perf_counter(), "failed"
        try:
            yield
            outcome = "answered"
        except Gone:
            outcome = "again"
            raise
        except GeneratorExit:
            outcome = "abandoned"
            raise
        finally:
            self._count(slots, query_block, outcome, time.perf_counter() - began)

    def answered(self, types: Iterable[QueryType], seconds: float) -> None:
        """Count queries that were answered completely and together, by type; each took as long as all of them."""
        rows, bucket = [ASKED.index(each) for each in types], bisect_left(LIMITS, seconds)
        with self._lock:
            for row in rows:
                self.counts[row, OUTCOMES.index("answered")] += 1
                self.counts[row, len(OUTCOMES) + bucket] += 1
                self.counts[row, -1] += seconds

    def _count(self, slots: Sequence[int], query_block: pa.RecordBatch, outcome: str, seconds: float) -> None:
        codes, asked = coded(query_block.column("type")), query_block.column("slots")
        starts, ends = asked.offsets.to_numpy()[:-1], asked.offsets.to_numpy()[1:]
        answered = outcome == "answered"
        if answered:
            here = np.flatnonzero(starts < ends)
            codes = codes[here[np.isin(asked.flatten().to_numpy()[starts[here]], slots)]]
        each = np.bincount(codes, minlength=len(NAMES))[_CODES]
        with self._lock:
            if not answered or "since" not in query_block.schema.names:
                self.counts[:, OUTCOMES.index(outcome)] += each
            if answered:
                self.counts[:, len(OUTCOMES) + bisect_left(LIMITS, seconds)] += each
                self.counts[:, -1] += each * seconds
