"""PM: reassign only the leaves of the most and the least loaded slot (SSTD, section 5.2).

Like FM, restricted to these two slots: it moves fewer continuous queries and does not affect other slots.

Cost: O(n log n) for the n leaves of the two slots.
"""

from __future__ import annotations

import numpy as np

from spatialstream.balance.fm import assign
from spatialstream.balance.loads import slot_loads
from spatialstream.index.origins import Origins
from spatialstream.index.partition import karmarkar_karp
from spatialstream.model.arrays import Codes, Floats

__all__ = ["partial_mapping"]


def partial_mapping(loads: Floats, slots: int, old: Codes, continuous: Floats) -> Codes:
    """The slot of each leaf after PM, int32[n]; unchanged if all slots have the same load or there is only one slot.

    Nothing changes either if the differencing method, a heuristic, does not lower the larger of the two loads.

    Args:
        loads: float64[n], the loads of the leaves.
        slots: number of slots.
        old: int32[n], the current slot of each leaf.
        continuous: float64[n], continuous queries of each leaf.
    """
    by_slot = slot_loads(loads, old, slots)
    pair = np.array([by_slot.argmax(), by_slot.argmin()], np.int32)
    if by_slot[pair[0]] == by_slot[pair[1]]:
        return old.copy()
    chosen = np.flatnonzero((old == pair[0]) | (old == pair[1]))
    subsets = karmarkar_karp(loads[chosen], 2)
    if np.bincount(subsets, loads[chosen], 2).max() >= by_slot[pair[0]]:
        return old.copy()
    mapping = old.copy()
    mapping[chosen] = assign(subsets, pair, Origins.same(len(chosen)), old[chosen], continuous[chosen])
    return mapping
