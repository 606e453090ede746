"""Counts of the queries that actors answer between rounds, by outcome and latency.

An actor counts its own queries, and reports the counts with each heartbeat; the driver adds up the increments, so the
queries of an actor that has gone stay counted. The counts are a matrix of fixed size, whatever is asked.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from spatialstream.model.kinds import KINDS

__all__ = ["ASKED", "LIMITS", "OUTCOMES", "Counts", "QueryMetrics", "none_asked"]

ASKED: tuple[str, ...] = tuple(kind.type for kind in KINDS if not kind.continuous)
"""The query types that are asked between rounds: a count has a row for each."""

OUTCOMES = ("answered", "again", "failed", "abandoned")
"""Outcomes of an attempt to answer a query: an answer; a view or an actor has gone, so another attempt is made; an
error; or nobody waits for the answer any more."""

LIMITS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, float("inf"))
"""Upper bounds of the latency buckets, s."""

Counts = npt.NDArray[np.float64]
"""float64[type, column]: queries by :data:`OUTCOMES`; actors' answers by :data:`LIMITS`; and their seconds."""


def none_asked() -> Counts:
    """The counts before the first query."""
    return np.zeros((len(ASKED), len(OUTCOMES) + len(LIMITS) + 1))


class QueryMetrics:
    """Counts the queries that clients send to an actor; thread-safe.

    Attributes:
        counts: see :data:`Counts`. A query counts in the actor that answers it for the client: once for each attempt.
    """

    def __init__(self) -> None:
        self.counts = none_asked()
        self._lock = threading.Lock()

    def count(self, types: Iterable[str], outcome: str, seconds: float) -> None:
        """Count queries that were asked together, by type; each took as long as all of them.

        Args:
            types: of the queries.
            outcome: one of :data:`OUTCOMES`.
            seconds: latency, which counts for answers alone.
        """
        column, bucket = OUTCOMES.index(outcome), len(OUTCOMES) + bisect_left(LIMITS, seconds)
        with self._lock:
            for kind in types:
                row = self.counts[ASKED.index(kind)]
                row[column] += 1
                if outcome == "answered":
                    row[bucket] += 1
                    row[-1] += seconds
