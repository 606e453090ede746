"""FG: adjust the tree by splits and merges until its leaves can be balanced, then FM (SSTD, section 5.3).

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
from dataclasses import dataclass

import numpy as np

from spatialstream.balance.fm import full_mapping
from spatialstream.balance.loads import LeafCounts, asked_of, imbalance, slot_loads
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.adjustment import Origins, TreeEditor
from spatialstream.index.partition import karmarkar_karp
from spatialstream.index.qttree import SPATIAL, TEXTUAL, QTTree
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats

__all__ = ["Adjustment", "adjust"]


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """The outcome of FG.

    Attributes:
        tree: the new tree, with the expected counts and loads of its leaves.
        mapping: int32[n], the slot of each of its leaves.
        origins: the old leaves that they originate from.
        spatial, textual: number of leaves that were split by space and by text.
        merges: number of nodes that were merged.
        ended: why the adjustment of the tree ended, as a clause.
    """

    tree: QTTree
    mapping: Codes
    origins: Origins
    spatial: int
    textual: int
    merges: int
    ended: str


class _Adjuster:
    """State of the adjustment: the tree, the loads of its leaves, and H."""

    def __init__(
        self, tree: QTTree, counts: LeafCounts, statistics: Statistics, slots: int, settings: BalanceSettings
    ) -> None:
        self.editor = TreeEditor(tree, statistics)
        self.counts, self.slots, self.settings = counts, slots, settings
        self.asked = asked_of(tree, counts, statistics)
        self.limit = max(settings.leaves, len(tree.leaves))
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
        result: list[float] = self.editor.loads(nodes, self.counts.objects, self.counts.rate, self.asked).tolist()
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
        h = self.editor.statistics.similarity(self.editor.box(node), weighted=not self.settings.printed)
        kind = SPATIAL if h <= self.settings.similarity else TEXTUAL
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
        most = self.settings.imbalance
        total, highest = sum(self.loads.values()), self.highest()
        # the slot of the largest leaf has at least its load, and some other slot at most the mean of the others
        if self.slots > 1 and highest > most * (total - highest) / (self.slots - 1) * (1.0 + 1e-9):
            return False
        loads = self.in_order()
        return imbalance(slot_loads(loads, karmarkar_karp(loads, self.slots), self.slots)) <= most


def adjust(
    tree: QTTree, mapping: Codes, slots: int, counts: LeafCounts, statistics: Statistics, settings: BalanceSettings
) -> Adjustment:
    """FG: at least one iteration if the tree allows one, then FM on the new tree.

    Args:
        tree: the tree; it is not modified.
        mapping: int32[leaves], the slot of each leaf.
        slots: number of slots.
        counts: the counts of the leaves.
        statistics: J.
        settings: λ, ε and the maximum number of leaves.
    """
    work = _Adjuster(tree, counts, statistics, slots, settings)
    ended = None
    while ended is None:
        ended = work.iterate()
    loads = work.in_order()
    done = work.editor.finish()
    found = done.tree.weighed(done.origins.carry_objects(counts.objects), loads)
    new = full_mapping(loads, slots, done.origins, mapping, counts.continuous)
    splits = work.splits
    return Adjustment(found, new, done.origins, splits[SPATIAL], splits[TEXTUAL], work.merges, ended)
