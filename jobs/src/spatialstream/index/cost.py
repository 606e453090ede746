"""The cost model of SSTD (section 4.1.1): the workload of a partition under a query of each type, and a random one.

A partition P is a leaf, or a candidate for one. Its workload is the expected number of objects that one random query
makes it visit: for a snapshot query the objects it holds, for a continuous query those that arrive during the query's
lifetime. This module only computes with figures that :mod:`spatialstream.index.statistics` provides. Cost: O(keywords
of the longest query).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.model.arrays import Floats, Ints
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CODE, IS_CONTINUOUS, QueryType

__all__ = ["CellStatistics", "expression_coverage", "keyword_coverage", "workloads"]


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistics:
    """Inputs of the cost model for one cell; types are in the order of :data:`spatialstream.model.kinds.TYPES`.

    Attributes:
        arrival: float64[types], Pr(srq), ..., Pr(ctq): the probability that a query is of the type.
        reach: float64[types], p_srq, ..., p_ctq: the probability that a query of the type concerns the cell.
        lengths: float64[2, l], Pr(abs(q.φ) = l) of SRQ and of SKQ.
        lifetime: float64[types], the expected duration, sum over T of Pr(q.τ = T) T, in ms.
    """

    arrival: Floats
    reach: Floats
    lengths: Floats
    lifetime: Floats


@kernel
def keyword_coverage(lengths: Floats, h: float) -> float:
    """Eqn 1: Pr(q.φ ⊆ P.φ) = sum over l of Pr(abs(q.φ) = l) h^l.

    Args:
        lengths: Pr(abs(q.φ) = l) for l = 0, 1, ...
        h: H_srq or H_skq, the probability that a keyword of a query is one of the partition's.
    """
    result = 0.0
    for i in range(len(lengths) - 1, -1, -1):
        result = result * h + lengths[i]
    return result


def expression_coverage(groups: Ints, length: Ints, chance: Floats, h: Floats) -> Floats:
    """Eqn 1 for expressions of groups: the probability that one of a random query's groups is in P.φ, float64[n].

    A group of l keywords is in P.φ with probability h^l, so at least one of g groups is with probability 1 - prod over
    the groups of (1 - h^l). The lengths of the groups of an expression are assumed to be independent.

    Args:
        groups: int[m], number of groups of a query.
        length: int[m], number of keywords of one of its groups.
        chance: float64[m], Pr(groups, length).
        h: float64[n], H_srq or H_skq of each of n partitions.
    """
    result = np.zeros(len(h))
    for count in np.unique(groups).tolist():
        here = groups == count
        part = float(chance[here].sum())
        one = h[:, np.newaxis] ** length[here] @ (chance[here] / max(part, 1e-300))
        result += part * (one if count == 1 else 1.0 - (1.0 - np.minimum(one, 1.0)) ** count)
    return result


def workloads(asked: Floats, objects: Floats, rate: Floats, coverage: Floats) -> Floats:
    """Eqn 2: the workloads W(P) of n partitions under a random query, float64[n].

    W(P) is the sum over the types of query of Pr(type) W_type(P), where W_type(P) = p_type v_type: the probability that
    a query of the type concerns P, times the number of objects that it then visits. This number is

    - abs(O) for STQ, and Pr(q.φ ⊆ P.φ) abs(O) for SRQ and SKQ (Eqn 1);
    - E_{P,O}, the arrivals during the query's lifetime, for CRQ, CKQ and CTQ: its expected duration times E_P.

    Args:
        asked: float64[types, n], Pr(type) p_type of each partition; for continuous types, times the expected duration
            in ms.
        objects: float64[n], abs(O), the objects in P.
        rate: float64[n], E_P, arrivals in P per ms.
        coverage: float64[2, n], Pr(q.φ ⊆ P.φ) of SRQ and of SKQ.
    """
    continuous = IS_CONTINUOUS[:-1]
    visits = np.where(continuous[:, np.newaxis], rate, objects)
    visits[[CODE[QueryType.SRQ], CODE[QueryType.SKQ]]] *= coverage
    result: Floats = (asked * visits).sum(axis=0)
    return result
