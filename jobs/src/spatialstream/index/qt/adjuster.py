"""Adjust a tree by splits and merges until its leaves can be balanced: the first step of FG (SSTD, section 5.3).

Each iteration splits the most loaded leaf, by space or by text according to Eqn 3, which lowers Lmax, the largest load
of a leaf. Then, of the nodes whose four children are leaves (in a min-heap H), the one with the smallest load is
merged. If its load is larger than Lmax, the adjustment ends instead, because merging can no longer improve balance. The
parent of the merged node may become a candidate for H. The adjustment is complete when the differencing method finds
subsets that satisfy the load balance constraint.

Not specified in the paper: if H is empty, there is nothing to merge, and the adjustment continues with splits. It also
ends if the most loaded leaf cannot be split, or if the tree would exceed the maximum number of leaves. It always ends:
a node that was split is never merged again, so there are at most as many merges as the tree had nodes, and every other
iteration adds three leaves.

Cost: O(log n + words of a cell) per iteration, plus O(n (k log k + log n)) to check the balance of n leaves on k slots,
which is skipped while a single leaf is too large for balance.
"""

from __future__ import annotations

import heapq

import numpy as np

from spatialstream.index.adjustment import Adjustment, LeafLoads, Limits
from spatialstream.index.base import Changes
from spatialstream.index.partition import imbalance, karmarkar_karp
from spatialstream.index.qt.editor import TreeEditor
from spatialstream.index.qt.tree import SPATIAL, TEXTUAL, QTTree
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Floats
from spatialstream.model.tables import counted

__all__ = ["adjust_tree"]


class _Adjuster:
    """State of the adjustment: the tree, the loads of its leaves, and H."""

    def __init__(self, tree: QTTree, known: LeafLoads, statistics: Statistics, slots: int, limits: Limits) -> None:
        self.editor = TreeEditor(tree, statistics)
        self.known, self.slots, self.limits = known, slots, limits
        self.limit = max(limits.leaves, len(tree.leaves))
        self.loads: dict[int, float] = {}
        self._by_load: list[tuple[float, int]] = []
        self._add(list(self.editor.leaves))
        highest = self.highest()
        candidates = self.editor.mergeable()
        self.h = [each for each in zip(self._loads_of(candidates), candidates, strict=True) if each[0] < highest]
        heapq.heapify(self.h)
        self.splits = {SPATIAL: 0, TEXTUAL: 0}
        self.merges = 0

    def _loads_of(self, nodes: list[int]) -> list[float]:
        known = self.known
        result: list[float] = self.editor.loads(nodes, known.objects, known.rate, known.asked).tolist()
        return result

    def _add(self, leaves: list[int]) -> None:
        for node, load in zip(leaves, self._loads_of(leaves), strict=True):
            self.loads[node] = load
            heapq.heappush(self._by_load, (-load, node))

    def most_loaded(self) -> int:
        """The leaf with the largest load; ties are broken by the smallest node number."""
        while self.loads.get(self._by_load[0][1]) != -self._by_load[0][0]:
            heapq.heappop(self._by_load)
        return self._by_load[0][1]

    def highest(self) -> float:
        """Lmax."""
        return self.loads[self.most_loaded()]

    def candidate(self) -> tuple[float, int] | None:
        """The top of H, after removing nodes that can no longer be merged because of a split."""
        while self.h and not self.editor.can_merge(self.h[0][1]):
            heapq.heappop(self.h)
        return self.h[0] if self.h else None

    def split(self, node: int) -> int:
        """Split a leaf according to Eqn 3; return SPATIAL or TEXTUAL."""
        h = self.editor.statistics.similarity(self.editor.box(node), weighted=not self.limits.printed)
        kind = SPATIAL if h <= self.limits.similarity else TEXTUAL
        del self.loads[node]
        self._add(list(self.editor.split(node, kind)))
        self.splits[kind] += 1
        return kind

    def merge(self, node: int) -> None:
        """Merge a node, and add its parent to H if it can be merged now."""
        self._replace_children(node)
        self.merges += 1
        parent = self.editor.parent(node)
        if parent >= 0 and self.editor.can_merge(parent):
            heapq.heappush(self.h, (self._loads_of([parent])[0], parent))

    def undo_split(self, node: int, kind: int) -> None:
        """Undo the last split."""
        self._replace_children(node)
        self.splits[kind] -= 1

    def _replace_children(self, node: int) -> None:
        for child in self.editor.children(node):
            del self.loads[child]
        self.editor.merge(node)
        self._add([node])

    def iterate(self) -> str | None:
        """Do one split and one merge; return why the adjustment ends, or None if it continues."""
        node = self.most_loaded()
        if not self.editor.can_split(node):
            return "the most loaded leaf cannot be split further"
        kind = self.split(node)
        candidate = self.candidate()
        can_merge = candidate is not None and candidate[0] <= self.highest()
        if not can_merge and len(self.loads) > self.limit:
            self.undo_split(node, kind)
            return f"the tree would exceed {self.limit:,} leaves"
        if candidate is not None:
            if not can_merge:
                return "no merge would improve the balance of its leaves"
            heapq.heappop(self.h)
            self.merge(candidate[1])
        return "its leaves can be balanced" if self.balanced() else None

    def in_order(self) -> Floats:
        """The loads, in the order of the leaves."""
        return np.array([self.loads[node] for node in self.editor.leaf_order()])

    def balanced(self) -> bool:
        """Whether the differencing method satisfies the load balance constraint."""
        most = self.limits.imbalance
        total, highest = sum(self.loads.values()), self.highest()
        # the slot of the largest leaf has at least its load, and some other slot at most the mean of the others
        if self.slots > 1 and highest > most * (total - highest) / (self.slots - 1) * (1.0 + 1e-9):
            return False
        loads = self.in_order()
        return imbalance(np.bincount(karmarkar_karp(loads, self.slots), loads, self.slots).astype(np.float64)) <= most

    def changes(self) -> Changes:
        """What was split and merged."""
        spatial, textual, merges = self.splits[SPATIAL], self.splits[TEXTUAL], self.merges
        text = (
            f"{counted(spatial, 'leaf', 'leaves')} split by space, {counted(textual, 'leaf', 'leaves')} by text, "
            f"{counted(merges, 'node', 'nodes')} merged"
        )
        return Changes({"spatial_splits": spatial, "textual_splits": textual, "merges": merges}, text)


def adjust_tree(tree: QTTree, known: LeafLoads, statistics: Statistics, slots: int, limits: Limits) -> Adjustment:
    """Adjust a tree: at least one iteration, if the tree allows one.

    Args:
        tree: the tree; it is not modified.
        known: what is known of the load of its leaves.
        statistics: J.
        slots: number of slots.
        limits: λ, ε and the maximum number of leaves.
    """
    work = _Adjuster(tree, known, statistics, slots, limits)
    ended = None
    while ended is None:
        ended = work.iterate()
    loads = work.in_order()
    done = work.editor.finish()
    found = done.tree.weighed(done.origins.carry_objects(known.objects), loads)
    return Adjustment(found, done.origins, work.changes(), ended)
