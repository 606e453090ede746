"""The cost model of SSTD (section 4.1.1): the workload of a partition under a query of each type, and a random one.

A partition P is a leaf, or a candidate for one. Its workload is the expected number of objects that it visits because
of one random query: for a snapshot query those it holds, for a continuous query those that arrive while the query
lives. Everything here is arithmetic on numbers that :mod:`spatialstream.index.statistics` provides. Cost: O(keywords of
the longest query).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spatialstream.model.kernels import kernel

__all__ = [
    "CellStatistics",
    "expected_arrivals",
    "keyword_coverage",
    "prepare",
    "w_ckq",
    "w_crq",
    "w_ctq",
    "w_skq",
    "w_srq",
    "w_stq",
    "workload",
    "workloads",
]


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistics:
    """What the cost model wants to know of one cell; types in the order of :data:`spatialstream.model.queries.TYPES`.

    Attributes:
        arrival: float64[6], Pr(srq), ..., Pr(ctq): the probability that a query is of the type.
        reach: float64[6], p_srq, ..., p_ctq: the probability that a query of the type concerns the cell.
        lengths: float64[2, l], Pr(abs(q.φ) = l) of SRQ and of SKQ.
        lifetime: float64[6], the expected duration, sum over T of Pr(q.τ = T) T, in ms.
    """

    arrival: npt.NDArray[np.float64]
    reach: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]
    lifetime: npt.NDArray[np.float64]


@kernel
def keyword_coverage(lengths: npt.NDArray[np.float64], h: float) -> float:
    """Eqn 1: Pr(q.φ ⊆ P.φ) = sum over l of Pr(abs(q.φ) = l) h^l.

    Args:
        lengths: Pr(abs(q.φ) = l) for l = 0, 1, ...
        h: H_srq or H_skq, the probability that a keyword of a query is one of the partition's.
    """
    result = 0.0
    for i in range(len(lengths) - 1, -1, -1):
        result = result * h + lengths[i]
    return result


def expected_arrivals(lifetime: float, rate: float) -> float:
    """E_{P,O}: objects that arrive in P while a query lives: its expected duration times E_P, the objects a ms."""
    return lifetime * rate


def w_srq(reach: float, coverage: float, objects: float) -> float:
    """W_srq(P) = Pr(q.r ∩ P.r) Pr(q.φ ⊆ P.φ | q.r ∩ P.r) abs(O)."""
    return reach * coverage * objects


def w_skq(reach: float, coverage: float, objects: float) -> float:
    """W_skq(P) = Pr(d(q, P) < d(q, q.R_k)) Pr(q.φ ⊆ P.φ | d(q, P) < d(q, q.R_k)) abs(O)."""
    return reach * coverage * objects


def w_stq(reach: float, objects: float) -> float:
    """W_stq(P) = Pr(q.r ∩ P.r) abs(O)."""
    return reach * objects


def w_crq(reach: float, arrivals: float) -> float:
    """W_crq(P) = Pr(q.r ∩ P.r) E_{P,O}."""
    return reach * arrivals


def w_ckq(reach: float, arrivals: float) -> float:
    """W_ckq(P) = Pr(d(q, P) < d(q, q.R_k)) E_{P,O}."""
    return reach * arrivals


def w_ctq(reach: float, arrivals: float) -> float:
    """W_ctq(P) = Pr(q.r ∩ P.r) E_{P,O}."""
    return reach * arrivals


def workload(cell: CellStatistics, objects: float, rate: float, h_srq: float, h_skq: float) -> float:
    """Eqn 2: the workload W(P) of a partition under a random query.

    Args:
        cell: statistics of the cell that P is, or is a share of.
        objects: abs(O), the objects in P.
        rate: E_P, objects that arrive in P in a ms.
        h_srq: H_srq, the probability that a keyword of an SRQ is among P's keywords.
        h_skq: H_skq.
    """
    reach, lifetime = cell.reach.tolist(), cell.lifetime.tolist()
    costs = (
        w_srq(reach[0], keyword_coverage(cell.lengths[0], h_srq), objects),
        w_skq(reach[1], keyword_coverage(cell.lengths[1], h_skq), objects),
        w_stq(reach[2], objects),
        w_crq(reach[3], expected_arrivals(lifetime[3], rate)),
        w_ckq(reach[4], expected_arrivals(lifetime[4], rate)),
        w_ctq(reach[5], expected_arrivals(lifetime[5], rate)),
    )
    return float(sum(chance * cost for chance, cost in zip(cell.arrival.tolist(), costs, strict=True)))


def workloads(
    cell: CellStatistics,
    reach: npt.NDArray[np.float64],
    objects: npt.NDArray[np.float64],
    rate: npt.NDArray[np.float64],
    h: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Eqn 2 of n partitions at once, as :func:`workload` has it: float64[n].

    Args:
        cell: statistics of any cell; all have the same distributions of types, lengths and durations.
        reach: float64[6, n], the reach of each partition's own cell.
        objects: float64[n], abs(O).
        rate: float64[n], E_P in objects a ms.
        h: float64[n, 2], H_srq and H_skq.
    """
    visited = np.empty((6, len(objects)))
    visited[:3] = objects
    visited[3:] = cell.lifetime[3:, np.newaxis] * rate
    for kind in range(2):
        coverage = np.zeros(len(objects))
        for chance in cell.lengths[kind, ::-1].tolist():
            coverage = coverage * h[:, kind] + chance
        visited[kind] *= coverage
    result: npt.NDArray[np.float64] = (cell.arrival[:, np.newaxis] * reach * visited).sum(axis=0)
    return result


def prepare() -> None:
    """Compile all kernels of this module."""
    keyword_coverage(np.ones(1), 0.5)
