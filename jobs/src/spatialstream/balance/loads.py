"""The loads of leaves and slots, by the cost model from live counts (SSTD, Eqn 2 and definition 4).

The slots count, for each leaf, the objects it holds and receives and the queries that concern it. J provides what is
not counted, such as the keywords of queries, which determine how many queries skip a leaf. Together they give the load
of each leaf under the current objects and queries; the load of a slot is the sum over its leaves.

Continuous queries are counted as they are now, snapshot queries as they arrived recently; if few arrived, J's
distribution is used too (:func:`asked_of`). The reach of CKQs is not counted by leaf, so it is that of J
(:meth:`~spatialstream.index.base.GlobalIndex.by_leaf`). Until any query has been counted, all figures about queries
come from J.

Cost: O(leaves + words of the cells' queries).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.balance.attribution import UnitTimes
from spatialstream.index.base import GlobalIndex
from spatialstream.index.partition import imbalance
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.errors import StateError
from spatialstream.model.kinds import IS_CONTINUOUS, TYPES, Route, having

__all__ = ["TRANSFER", "LeafCounts", "asked_of", "expected", "imbalance", "leaf_loads", "model_error", "slot_loads"]

_FEW = 64.0
"""Weight of J's distribution of a type's snapshot queries over leaves, in queries."""

_UNKNOWN = UnitTimes()

TRANSFER = 30e-6
"""Time of moving a continuous query to another slot, in seconds, until it is measured: some 140,000 moved in 4 s
(docs/performance.md)."""

_EVERYWHERE = np.flatnonzero(having(lambda kind: kind.route is Route.EVERYWHERE))


@dataclass(frozen=True, slots=True, eq=False)
class LeafCounts:
    """The counts of the n leaves of a version.

    Attributes:
        objects: float64[n], abs(O), objects that the leaf holds.
        arrivals: float64[n], objects that arrived in the leaf during ``span``.
        continuous: float64[n], continuous queries that concern the leaf, abs(P.Q).
        span: the time in ms over which arrivals were counted; more than 0.
        queries: float64[types, n], queries of each type that concern the leaf: snapshot queries that arrived during
            ``span`` (an SKQ only at the leaf that receives it first), and active continuous queries (a CKQ concerns
            every leaf). None: not counted.
        seconds: time of the slots that this load took, see :mod:`~spatialstream.balance.attribution`; 0: not known.
        transfer: β of Tornado, the time of moving a continuous query to another slot, in seconds.
        times: what the slots took for each object, match and snapshot query.

    Raises:
        StateError: the columns have different lengths, or contain an invalid count.
    """

    objects: Floats
    arrivals: Floats
    continuous: Floats
    span: float
    queries: Floats | None = None
    seconds: float = 0.0
    transfer: float = TRANSFER
    times: UnitTimes = _UNKNOWN

    def __post_init__(self) -> None:
        """Validate the counts."""
        columns = [self.objects, self.arrivals, self.continuous]
        if self.queries is not None:
            if len(self.queries) != len(TYPES):
                raise StateError(f"queries must be counted for {len(TYPES)} types, not {len(self.queries)}")
            columns += list(self.queries)
        if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
            raise StateError("counts of leaves must be columns of equal length")
        if not all(np.isfinite(column).all() and (column >= 0.0).all() for column in columns):
            raise StateError("counts of leaves must be finite and at least 0")
        if not (np.isfinite(self.span) and self.span > 0.0):
            raise StateError(f"arrivals must be counted over a span of more than 0 ms, not {self.span}")
        if not all(np.isfinite(each) and each >= 0.0 for each in (self.seconds, self.transfer)):
            raise StateError(f"times must be finite and at least 0, not {self.seconds} and {self.transfer}")

    def __len__(self) -> int:
        """Number of leaves."""
        return len(self.objects)

    @property
    def rate(self) -> Floats:
        """E_P of each leaf, arrivals per ms: float64[n]."""
        return self.arrivals / self.span

    def check(self, version: RoutingVersion) -> None:
        """Raise StateError if the number of leaves differs from that of a version."""
        if len(self) != len(version.index.leaves):
            raise StateError(
                f"counts of {len(self)} leaves are not those of version {version.number}, "
                f"which has {len(version.index.leaves)}"
            )


def leaf_loads(version: RoutingVersion, counts: LeafCounts, statistics: Statistics) -> Floats:
    """Eqn 2 for each leaf, float64[n]: the number of objects that one random query makes it visit.

    The keyword coverage (Eqn 1) of a leaf is that of the index under the current J
    (:meth:`~spatialstream.index.base.GlobalIndex.coverage`). If J has no queries at all, the load of a leaf is its
    number of objects.

    Args:
        version: the version of the counts.
        counts: the counts of its leaves.
        statistics: J.

    Raises:
        StateError: the number of leaves differs from that of the version.
    """
    counts.check(version)
    cells = statistics.cells_of(version.index.leaves.box)
    h = version.index.coverage(statistics, cells)
    asked = asked_of(version.index, counts, statistics)
    if asked is None and statistics.queries.any():
        asked = expected(version.index, statistics)
    return statistics.workloads(cells, counts.objects, counts.rate, h, asked)


def expected(index: GlobalIndex, statistics: Statistics) -> Floats:
    """The queries of each leaf that J expects: float64[types, n], in the units of :meth:`Statistics.asked`."""
    return index.by_leaf(statistics, statistics.asked(np.arange(len(statistics.cells))))


def asked_of(index: GlobalIndex, counts: LeafCounts, statistics: Statistics) -> Floats | None:
    """The queries of each leaf from the counts: float64[types, n], in the units of :meth:`Statistics.asked`.

    The total number of queries of a type is the counted one. Their distribution over the leaves is the counted one with
    :data:`_FEW` additional queries distributed by J, so that J dominates if there are few queries and its influence
    vanishes if there are many.

    Returns:
        The queries; None if no query was counted.
    """
    if counts.queries is None or not counts.queries.any():
        return None
    likely = expected(index, statistics)
    spread = likely / np.maximum(likely.sum(axis=1, keepdims=True), 1e-300)
    total = counts.queries.sum(axis=1, keepdims=True)
    few = _FEW * likely.any(axis=1, keepdims=True)
    arrivals = (counts.queries + few * spread) * total / np.maximum(total + few, 1e-300)
    continuous = counts.queries.copy()
    here = _EVERYWHERE[statistics.queries[_EVERYWHERE] > 0]
    if len(here):
        continuous[here] *= index.by_leaf(statistics, statistics.shares)[here]
    a_ms = float(statistics.queries.sum()) / max(statistics.span, 1.0) or 1.0  # arrivals of queries of all types per ms
    result: Floats = np.where(IS_CONTINUOUS[: len(TYPES), np.newaxis], continuous, arrivals / counts.span) / a_ms
    return result


def slot_loads(loads: Floats, mapping: Codes, slots: int) -> Floats:
    """The load of each slot, float64[slots]: the sum over its leaves; 0 for a slot without leaves."""
    return np.bincount(mapping, loads, slots).astype(np.float64)


def model_error(estimated: Floats, measured: Floats) -> float:
    """The difference between estimated loads of leaves and a measured cost, both float64[n] and at least 0.

    It is the mean over the leaves of the absolute difference between the estimated and the measured share of the total:
    0 if they agree, at most 2 / n. The units may differ: Eqn 2 counts visited objects per query, a measurement may
    count candidates checked, or ms. If one of the two is 0 everywhere, its shares are 0.
    """
    return float(np.abs(_shares(estimated) - _shares(measured)).mean()) if len(estimated) else 0.0


def _shares(loads: Floats) -> Floats:
    total = float(loads.sum())
    return loads / total if total > 0.0 else np.zeros(len(loads))
