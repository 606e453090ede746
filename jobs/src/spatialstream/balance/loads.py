"""The loads of leaves and slots, by the cost model from live counts (SSTD, Eqn 2 and definition 4).

How many objects a leaf holds and gets, and how many queries concern it, is counted where they are. J says what these
queries ask, which keywords a leaf may be spared by. The two together give the load of each leaf under today's objects
and queries, and sums of those the loads of slots.

Queries that stand are counted as they are now; snapshot queries as they came lately, and where few came, J says where
they might have (:func:`asked_of`). What nobody counts by leaf is how far CKQs reach, so that is said by J for the
smallest cell that covers the leaf; and all of it is, until any query has been counted.

Cost: O(leaves + words of the cells' queries).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.index.base import GlobalIndex
from spatialstream.index.coverage import leaf_coverage
from spatialstream.index.partition import imbalance
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.errors import StateError
from spatialstream.model.kinds import CODE, STANDING, TYPES, QueryType

__all__ = ["LeafCounts", "asked_of", "imbalance", "leaf_loads", "model_error", "slot_loads"]

_FEW = 64.0
"""As many snapshot queries of a type as this say, before any is counted, that they go where J says."""

_CKQ = CODE[QueryType.CKQ]


@dataclass(frozen=True, slots=True, eq=False)
class LeafCounts:
    """What was counted in each of the n leaves of a version.

    Attributes:
        objects: float64[n], abs(O), objects that the leaf holds.
        arrivals: float64[n], objects that came to it lately.
        continuous: float64[n], continuous queries that concern it, abs(P.Q).
        span: the time in ms in which the arrivals came; more than 0.
        queries: float64[6, n], queries of each type that concern the leaf: snapshot queries that came in the span, an
            SKQ to the leaf that is asked first, and continuous ones that stand; a CKQ concerns every leaf. None: not
            counted.

    Raises:
        StateError: the columns are not of one length, or hold what is no count.
    """

    objects: Floats
    arrivals: Floats
    continuous: Floats
    span: float
    queries: Floats | None = None

    def __post_init__(self) -> None:
        """Refuse what is no count."""
        columns = [self.objects, self.arrivals, self.continuous]
        if self.queries is not None:
            if len(self.queries) != len(TYPES):
                raise StateError(f"queries are counted by {len(TYPES)} types, not {len(self.queries)}")
            columns += list(self.queries)
        if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
            raise StateError("counts of leaves come as columns of one length")
        if not all(np.isfinite(column).all() and (column >= 0.0).all() for column in columns):
            raise StateError("counts of leaves are finite and at least 0")
        if not (np.isfinite(self.span) and self.span > 0.0):
            raise StateError(f"arrivals are counted in a span of more than 0 ms, not {self.span}")

    def __len__(self) -> int:
        """Number of leaves."""
        return len(self.objects)

    @property
    def rate(self) -> Floats:
        """E_P of each leaf, arrivals in a ms: float64[n]."""
        return self.arrivals / self.span

    def check(self, version: RoutingVersion) -> None:
        """Raise StateError if these are not the counts of a version's leaves."""
        if len(self) != len(version.index.leaves):
            raise StateError(
                f"counts of {len(self)} leaves are not those of version {version.number}, "
                f"which has {len(version.index.leaves)}"
            )


def leaf_loads(version: RoutingVersion, counts: LeafCounts, statistics: Statistics) -> Floats:
    """Eqn 2 of each leaf, float64[n]: objects that one random query makes it visit.

    The keyword coverage (Eqn 1) of a textual leaf is that of its frozen keyword list under today's J, see
    :mod:`spatialstream.index.coverage`. If J knows no query at all, leaves count by the objects they hold.

    Args:
        version: the version that the counts are of.
        counts: what was counted.
        statistics: J.

    Raises:
        StateError: the counts are not of as many leaves as the version has.
    """
    counts.check(version)
    cells = statistics.cells_of(version.index.leaves.box)
    h = leaf_coverage(version.index, statistics, cells)
    asked = asked_of(version.index, counts, statistics)
    return statistics.workloads(cells, counts.objects, counts.rate, h, asked)


def asked_of(index: GlobalIndex, counts: LeafCounts, statistics: Statistics) -> Floats | None:
    """How much each leaf was asked, by the counts: float64[6, n] in the units of :meth:`Statistics.asked`.

    The queries of a type that came are as many as were counted. They are spread over the leaves as they were counted
    and as if :data:`_FEW` more had come that J spreads, so that few queries say little and many all.

    Returns:
        None if no query was counted.
    """
    if counts.queries is None or not counts.queries.any():
        return None
    cells = statistics.cells_of(index.leaves.box)
    expected = statistics.asked(cells)
    spread = expected / np.maximum(expected.sum(axis=1, keepdims=True), 1e-300)
    total = counts.queries.sum(axis=1, keepdims=True)
    few = _FEW * expected.any(axis=1, keepdims=True)
    came = (counts.queries + few * spread) * total / np.maximum(total + few, 1e-300)
    continuous = counts.queries.copy()
    if statistics.queries[_CKQ]:
        continuous[_CKQ] *= statistics.reach(cells)[_CKQ]
    a_ms = float(statistics.queries.sum()) / max(statistics.span, 1.0) or 1.0  # queries that come, of all types
    result: Floats = np.where(STANDING[: len(TYPES), np.newaxis], continuous, came / counts.span) / a_ms
    return result


def slot_loads(loads: Floats, mapping: Codes, slots: int) -> Floats:
    """The load of each slot, float64[slots]: the sum over its leaves, 0 for a slot without one."""
    return np.bincount(mapping, loads, slots).astype(np.float64)


def model_error(estimated: Floats, measured: Floats) -> float:
    """How far estimated loads of leaves are from a measured cost, both float64[n] and at least 0, by their shares.

    The mean over the leaves of the absolute difference between the estimated and the measured share of the whole: 0 if
    they agree, at most 2 / n. The units may differ: Eqn 2 counts visited objects a query, a measurement may count
    candidates checked, or ms. If one of the two is 0 everywhere, so are its shares.
    """
    return float(np.abs(_shares(estimated) - _shares(measured)).mean()) if len(estimated) else 0.0


def _shares(loads: Floats) -> Floats:
    total = float(loads.sum())
    return loads / total if total > 0.0 else np.zeros(len(loads))
