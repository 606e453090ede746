"""FM: partition all leaves into balanced subsets, and assign these to slots so that few queries move (SSTD, 5.2).

Karmarkar and Karp's differencing method forms as many subsets as there are slots, with sums as equal as it achieves.
Which slot gets which subset is an assignment problem: the cost of a pair is the number of continuous queries abs(P.Q)
of the subset's leaves that are on other slots now. It is solved by the algorithm of Jonker and Volgenant (1987), the
paper's [9].

Cost: O(n (k log k + log n)) for n leaves and k slots, and O(k^3).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from spatialstream.index.origins import Origins
from spatialstream.index.partition import karmarkar_karp
from spatialstream.model.arrays import Codes, Floats

__all__ = ["assign", "full_mapping", "moved_queries"]


def full_mapping(loads: Floats, slots: int, origins: Origins, old: Codes, continuous: Floats) -> Codes:
    """The slot of each leaf after FM, int32[n].

    Args:
        loads: float64[n], the loads of the leaves.
        slots: number of slots; if there are fewer leaves, some slots get none.
        origins: the origins of the leaves, if the tree has been adjusted.
        old: int32[m], the slot of each old leaf.
        continuous: float64[m], continuous queries of each old leaf.
    """
    subsets = karmarkar_karp(loads, slots)
    return assign(subsets, np.arange(slots, dtype=np.int32), origins, old, continuous)


def assign(subsets: Codes, slots: Codes, origins: Origins, old: Codes, continuous: Floats) -> Codes:
    """Assign each subset to a different slot so that the fewest continuous queries move; in case of ties, few leaves.

    Args:
        subsets: int32[n], the subset of each leaf, less than the number of slots.
        slots: int32[k], the slots to assign.
        origins: the origins of the leaves.
        old: int32[m], the slot of each old leaf.
        continuous: float64[m], continuous queries of each old leaf.

    Returns:
        The slot of each leaf, int32[n].
    """
    place = np.full(int(max(old.max(initial=0), slots.max())) + 1, -1, np.int64)
    place[slots] = np.arange(len(slots))
    column = place[old[origins.source]]
    stays = column >= 0
    kept = np.zeros((2, len(slots), len(slots)))
    at = (subsets[origins.leaf[stays]], column[stays])
    np.add.at(kept[0], at, (origins.queries * continuous[origins.source])[stays])
    np.add.at(kept[1], at, origins.objects[stays])
    # one query weighs more than all leaves together: leaves only break ties between assignments moving equally many
    row, chosen = linear_sum_assignment(kept[0] * (origins.leaves + len(old) + 1.0) + kept[1], maximize=True)
    given = np.empty(len(slots), np.int32)
    given[row] = slots[chosen]
    return given[subsets]


def moved_queries(mapping: Codes, origins: Origins, old: Codes, continuous: Floats) -> Floats:
    """The transfer cost of each pair of :class:`Origins`, float64[m]: its continuous queries; 0 if its slot is kept."""
    moves = mapping[origins.leaf] != old[origins.source]
    return np.where(moves, origins.queries * continuous[origins.source], 0.0)
