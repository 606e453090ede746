"""FG: adjust the tree by splits and merges until its leaves can be balanced, then FM (SSTD, section 5.3).

Each iteration splits the most loaded leaf, by space or by text as Eqn 3 says, which lowers Lmax, the largest load of a
leaf. Then, of the nodes whose four children are leaves (in a min-heap H), the one with the smallest load is merged,
unless its load is larger than Lmax, which ends the adjustment: merging can even out nothing more. The parent of the
merged node may become a candidate for H. The adjustment is complete when the differencing method finds subsets that
satisfy the load balance constraint.

What the paper leaves open: if H is empty there is nothing to merge and the adjustment goes on splitting. It also ends
where the most loaded leaf cannot be split, or the tree would get more leaves than is set. It always ends: a node that
was split is never merged again, so there are at most as many merges as the tree had nodes, and the other iterations
each add three leaves.

Cost: an iteration takes O(log n + words of a cell), and O(n (k log k + log n)) to check the balance of n leaves on k
slots, which is left out while one leaf alone is too large for it.
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
        tree: the new tree, its leaves with the counts and loads that are expected of them.
        mapping: int32[n], the slot of each of its leaves.
        origins: from which old leaves they come.
        spatial, textual: leaves that were split by space and by text.
        merges: nodes that were merged.
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
    """The tree in the making, the loads of its leaves, and H."""

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
        """The leaf with the largest load; of equal ones the node with the smallest number."""
        while self.loads.get(self._by_load[0][1]) != -self._by_load[0][0]:
            heapq.heappop(self._by_load)
        return self._by_load[0][1]

    def highest(self) -> float:
        """Lmax."""
        return self.loads[self.most_loaded()]

    def candidate(self) -> tuple[float, int] | None:
        """The top of H, without the nodes that a split has made unfit."""
        while self.h and not self.editor.can_merge(self.h[0][1]):
            heapq.heappop(self.h)
        return self.h[0] if self.h else None

    def split(self, node: int) -> int:
        """Split a leaf by Eqn 3; returns SPATIAL or TEXTUAL."""
        h = self.editor.statistics.similarity(self.editor.box(node), weighted=not self.settings.printed)
        kind = SPATIAL if h <= self.settings.similarity else TEXTUAL
        del self.loads[node]
        self._add(list(self.editor.split(node, kind)))
        self.splits[kind] += 1
        return kind

    def merge(self, node: int) -> None:
        """Merge a node, and put its parent into H if that can be merged now."""
        self._replace_children(node)
        self.merges += 1
        parent = self.editor.parent(node)
        if parent >= 0 and self.editor.can_merge(parent):
            heapq.heappush(self.h, (self._loads_of([parent])[0], parent))

    def undo_split(self, node: int, kind: int) -> None:
        """Take back the last split."""
        self._replace_children(node)
        self.splits[kind] -= 1

    def _replace_children(self, node: int) -> None:
        for child in self.editor.children(node):
            del self.loads[child]
        self.editor.merge(node)
        self._add([node])

    def iterate(self) -> str | None:
        """One split and one merge; why the adjustment ends, if it does."""
        node = self.most_loaded()
        if not self.editor.can_split(node):
            return "the most loaded leaf is as small as leaves get"
        kind = self.split(node)
        candidate = self.candidate()
        can_merge = candidate is not None and candidate[0] <= self.highest()
        if not can_merge and len(self.loads) > self.limit:
            self.undo_split(node, kind)
            return f"the tree would get more than {self.limit:,} leaves"
        if candidate is not None:
            if not can_merge:
                return "no merge evens out the leaves any further"
            heapq.heappop(self.h)
            self.merge(candidate[1])
        return "its leaves can be balanced" if self.balanced() else None

    def in_order(self) -> Floats:
        """The loads in the order of the leaves."""
        return np.array([self.loads[node] for node in self.editor.leaf_order()])

    def balanced(self) -> bool:
        """Whether the differencing method satisfies the load balance constraint."""
        most = self.settings.imbalance
        total, highest = sum(self.loads.values()), self.highest()
        # the slot of the largest leaf has at least its load, and one of the others at most their mean
        if self.slots > 1 and highest > most * (total - highest) / (self.slots - 1) * (1.0 + 1e-9):
            return False
        loads = self.in_order()
        return imbalance(slot_loads(loads, karmarkar_karp(loads, self.slots), self.slots)) <= most


def adjust(
    tree: QTTree, mapping: Codes, slots: int, counts: LeafCounts, statistics: Statistics, settings: BalanceSettings
) -> Adjustment:
    """FG: at least one iteration if the tree allows one, then FM on the new tree.

    Args:
        tree: the tree; it stays as it is.
        mapping: int32[leaves], the slot of each leaf.
        slots: number of slots.
        counts: what was counted in the leaves.
        statistics: J.
        settings: λ, ε and the largest number of leaves.
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
