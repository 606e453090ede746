"""Which leaves of a kd^t-tree share a slot: MergeNodesIntoPartitions of PS2Stream (section IV-B).

Leaves go by falling load to the partition whose load grows least, because objects and queries that come to both come
once: so the shares of a cell tend to be together, which saves copies. If that would make the loads less even, the leaf
goes to the partition with the least load instead.

"Less even" is Lmax/Lmin in the paper, which is infinite as long as a partition is empty, and then any choice is as
good: one partition would take all. Here a partition may take a leaf up to the largest load there is, or to its part of
what all leaves would be together.

Cost: O(leaves x partitions x objects of a leaf).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spatialstream.index.kd_t.dealing import Part
from spatialstream.index.kd_t.workload import ENTRY, OBJECT, Workload
from spatialstream.model.arrays import Codes, Floats

__all__ = ["merged"]


def merged(workload: Workload, leaves: Sequence[Part], partitions: int) -> tuple[Codes, Floats]:
    """Assign leaves to partitions.

    Args:
        workload: the sample.
        leaves: what comes to each of n leaves.
        partitions: how many partitions, m.

    Returns:
        The partition of each leaf, int32[n], and the load of each partition, float64[m].
    """
    objects = np.zeros((partitions, len(workload.rate)), np.bool_)
    entries = np.zeros((partitions, len(workload.entry)), np.bool_)
    loads, result = np.zeros(partitions), np.zeros(len(leaves), np.int32)
    each = np.array([leaf.load for leaf in leaves])
    mean = _together(workload, leaves) / partitions
    for i in np.argsort(-each, kind="stable").tolist():
        leaf = leaves[i]
        growth = (
            leaf.load
            - OBJECT * (objects[:, leaf.objects] @ workload.rate[leaf.objects])
            - ENTRY * (entries[:, leaf.entries] @ workload.coming[leaf.entries])
        )
        taken = int(np.lexsort((loads, growth))[0])
        if loads[taken] + growth[taken] > max(float(loads.max()), mean):
            taken = int(loads.argmin())
        result[i] = taken
        loads[taken] += growth[taken]
        objects[taken, leaf.objects] = True
        entries[taken, leaf.entries] = True
    return result, loads


def _together(workload: Workload, leaves: Sequence[Part]) -> float:
    """The load of all leaves in one partition."""
    objects, entries = np.zeros(len(workload.rate), np.bool_), np.zeros(len(workload.entry), np.bool_)
    checking = 0.0
    for leaf in leaves:
        objects[leaf.objects] = True
        entries[leaf.entries] = True
        rate, coming = float(workload.rate[leaf.objects].sum()), float(workload.coming[leaf.entries].sum())
        checking += leaf.load - OBJECT * rate - ENTRY * coming
    return checking + OBJECT * float(workload.rate[objects].sum()) + ENTRY * float(workload.coming[entries].sum())
