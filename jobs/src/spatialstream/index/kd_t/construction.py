"""Construction of a kd^t-tree from a sample: Algorithm 1 of PS2Stream (section IV-B).

1. *Undecided* nodes are taken, largest first. If the words of a node's objects and queries are similar (cosine at least
   :data:`SIMILAR`), text would not separate them: the node is decided. Otherwise it is cut as in a kd-tree, in the
   direction that makes one half least similar. If that is about the similarity of the node (:data:`NEAR`), space does
   not separate words either, and the node is decided; otherwise its halves are undecided.
2. If there are fewer nodes than slots, a dynamic program finds into how many parts each is to be partitioned, so that
   the total load is least (ComputeNumberPartitions), and they are.
3. Leaves are assigned to slots (:mod:`~spatialstream.index.kd_t.merging`). As long as the slots' loads are not even
   (:data:`EVEN`) and there are not too many leaves, the heaviest leaves are partitioned, and it is tried again.

To partition a node is to deal its words to shares (:mod:`~spatialstream.index.kd_t.dealing`) or to cut it in space,
whichever makes the total load less.

What the paper leaves open, and what differs: undecided nodes with fewer than :data:`LEAST` sampled objects are decided,
because their words say nothing. The paper deals the words of nodes where space does not separate words (N_t) in any
case, and compares loads for the others (N_s) alone; but that words are alike on both sides of a cut does not tell that
text costs less, which copies objects, so here loads decide about all. The number of leaves bounds the first step too. A
share that is partitioned is not divided by itself: the words of its cell are dealt anew, to one share more for each
share that was to be. In the third step an eighth of the leaves are partitioned at once. In the second, loads are
computed for few numbers of parts and interpolated between them. Loads are even at :data:`EVEN`: the paper's σ is λ
here, but an index that begins at λ would be rebuilt soon.

Cost: O(words of the sample log leaves), and that of dealing and merging.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from spatialstream.index.a_grid.a_grid import SIDE, AGrid
from spatialstream.index.a_grid.costs import Costs, Cut, Rectangle
from spatialstream.index.kd_t.dealing import Dealt, Part, deal
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.kd_t.merging import merged
from spatialstream.index.kd_t.workload import Workload
from spatialstream.index.partition import imbalance
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.expressions import searched
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch

__all__ = ["ENOUGH", "EVEN", "LEAST", "NEAR", "SIMILAR", "build_kd_t", "lacking", "place_kd_t"]

SIMILAR = 0.5
"""δ of Algorithm 1."""

NEAR = 0.05
"""Difference of two similarities that counts as none."""

LEAST = 64
"""Minimum number of sampled objects of a node whose words are looked at."""

EVEN = 1.25
"""σ of Algorithm 1: Lmax/Lmin of the slots at which the construction ends."""

ENOUGH = 1_000
"""Minimum number of sampled objects."""

_TRIED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
"""Numbers of parts of which loads are computed, beside the largest; others are interpolated."""

_AT_ONCE = 8
"""One in so many leaves is partitioned before leaves are assigned again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A leaf node of the kd-tree: a cell.

    Attributes:
        rectangle: of fine cells.
        objects, entries: what comes to it.
        dealt: its shares; None: it is one leaf.
    """

    rectangle: Rectangle
    objects: Ints
    entries: Ints
    dealt: Dealt | None = None

    def parts(self, workload: Workload) -> tuple[Part, ...]:
        """What comes to each of its leaves."""
        if self.dealt is not None:
            return self.dealt.parts
        return (Part(self.objects, self.entries, workload.load(self.objects, self.entries)),)


def lacking(objects: ObjectBatch, queries: QueryBatch) -> str:
    """What a sample lacks for a kd^t-tree, as the rest of "needs ..."; "" if nothing."""
    if len(objects) < ENOUGH:
        return f"at least {ENOUGH:,} objects, and there are {len(objects):,}"
    crqs = queries.take(np.flatnonzero(queries.code == CODE[QueryType.CRQ]))
    if not len(searched(crqs.keywords).codes):
        return "CRQs with keywords, by which it divides words, and there are none"
    return ""


def build_kd_t(objects: ObjectBatch, leaves: int, statistics: Statistics) -> KdT:
    """Build a kd^t-tree of about ``leaves`` leaves, as for a slot each; see :func:`place_kd_t`."""
    return place_kd_t(objects, leaves, statistics, leaves)[0]


def place_kd_t(
    objects: ObjectBatch, leaves: int, statistics: Statistics, slots: int, side: int = SIDE, least: int = LEAST
) -> tuple[KdT, Codes]:
    """Build a kd^t-tree and assign its leaves to slots.

    Args:
        objects: a sample of the stream.
        leaves: θ, maximum number of leaves.
        statistics: J, with the sampled CRQs.
        slots: m, number of slots.
        side: number of columns and of rows of the fine grid.
        least: minimum number of objects of a node whose words are looked at.

    Returns:
        The index, and the slot of each leaf, int32[n].
    """
    frequencies = Frequencies.of(objects.terms)
    workload = Workload.of(objects, statistics, frequencies, side)
    growing = _Growing(workload, Costs(side, workload.column, workload.row, workload.rate), leaves, least)
    nodes = growing.decided(side)
    if len(nodes) < min(slots, leaves):
        counts = growing.numbers(nodes, min(slots, leaves))
        nodes = [part for node, count in zip(nodes, counts, strict=True) for part in growing.partitioned(node, count)]
    nodes, mapping = growing.balanced(nodes, slots)
    return _finished(objects, statistics, frequencies, workload, nodes, side), mapping


@dataclass(slots=True)
class _Growing:
    """The steps of Algorithm 1; see the module."""

    workload: Workload
    costs: Costs
    leaves: int
    least: int
    _tried: dict[tuple[int, int], list[_Node]] = field(default_factory=dict)

    def decided(self, side: int) -> list[_Node]:
        """The nodes that are not cut because of their words."""
        everything = np.arange(len(self.workload.rate)), np.arange(len(self.workload.entry))
        undecided = [(-len(everything[0]), 0, _Node((0, 0, side, side), *everything))]
        done, number = list[_Node](), 0
        while undecided and len(undecided) + len(done) < self.leaves:
            *_, node = heapq.heappop(undecided)
            halves = self._halves(node)
            if len(halves) == 1:
                done += halves
            for half in halves if len(halves) > 1 else ():
                number += 1
                heapq.heappush(undecided, (-len(half.objects), number, half))
        return done + [node for *_, node in undecided]

    def _halves(self, node: _Node) -> list[_Node]:
        """A node's halves, or the node if it is decided."""
        of_node = self._similarity(node)
        if len(node.objects) < self.least or of_node >= SIMILAR:
            return [node]
        best, found = np.inf, [node]
        for cut in self._cuts(node.rectangle):
            halves = self._cut(node, cut)
            alpha = min(map(self._similarity, halves))
            if alpha < best:
                best, found = alpha, halves
        return [node] if abs(of_node - best) <= NEAR else found

    def _similarity(self, node: _Node) -> float:
        return self.workload.similarity(node.objects, node.entries)

    def _cut(self, node: _Node, cut: Cut) -> list[_Node]:
        work, parts = self.workload, cut.of(node.rectangle)
        return [
            _Node(part, work.objects_within(part, node.objects), work.entries_within(part, node.entries))
            for part in parts
        ]

    def _cuts(self, rectangle: Rectangle) -> list[Cut]:
        """The cut of a rectangle across each axis whose larger half is least; of equal ones the most central."""
        found, whole = [], self.costs.of(rectangle)
        for axis in (0, 1):
            start, end = rectangle[axis], rectangle[axis + 2]
            if end - start > 1:
                before = self.costs.before(rectangle, axis)
                larger = np.maximum(before, whole - before)
                off = np.abs(np.arange(1, end - start) - (end - start) / 2)
                best = int(np.lexsort((off, larger))[0])
                found.append(Cut(axis, start + 1 + best, int(larger[best])))
        return found

    # ---------------------------------------------------------------------------------------------- partitioning nodes

    def partitioned(self, node: _Node, parts: int) -> list[_Node]:
        """PartitionNode: a node as ``parts`` leaves, if possible."""
        if parts == 1:
            return [node]
        known = self._tried.get((id(node), parts))
        if known is not None:
            return known
        by_text, cells = self._by_text(node, parts), self._in_space(node, parts)
        return cells if len(cells) == parts and self._load(cells) <= self._load(by_text) else by_text

    def _by_text(self, node: _Node, parts: int) -> list[_Node]:
        return [replace(node, dealt=deal(self.workload, node.objects, node.entries, parts))]

    def _in_space(self, node: _Node, parts: int) -> list[_Node]:
        """A node cut into cells, the heaviest again and again."""
        cells = [node]
        while len(cells) < parts:
            heaviest = max(range(len(cells)), key=lambda i: self.workload.load(cells[i].objects, cells[i].entries))
            cuts = self._cuts(cells[heaviest].rectangle)
            if not cuts:
                break
            ways = [self._cut(cells[heaviest], cut) for cut in cuts]
            loads = [self._load(way) for way in ways]
            cells[heaviest : heaviest + 1] = ways[loads.index(min(loads))]
        return cells

    def _load(self, nodes: list[_Node]) -> float:
        return sum(part.load for node in nodes for part in node.parts(self.workload))

    def numbers(self, nodes: list[_Node], total: int) -> list[int]:
        """ComputeNumberPartitions: into how many parts each node is to be partitioned, so that there are ``total``.

        L[i, j] = min over k of L[i - 1, j - k] + C[i, k], with C the total load of node i in k parts.
        """
        most = total - len(nodes) + 1
        best = np.full(total + 1, np.inf)
        best[0] = 0.0
        chosen = []
        for node in nodes:
            costs = self._costs(node, most)
            after, taken = np.full(total + 1, np.inf), np.ones(total + 1, np.int64)
            for k in range(1, most + 1):
                with_k = best[: total + 1 - k] + costs[k - 1]
                better = with_k < after[k:]
                after[k:][better] = with_k[better]
                taken[k:][better] = k
            best = after
            chosen.append(taken)
        counts, left = list[int](), total
        for taken in reversed(chosen):
            counts.append(int(taken[left]))
            left -= counts[-1]
        return counts[::-1]

    def _costs(self, node: _Node, most: int) -> Floats:
        """C: the total load of a node in 1 to ``most`` parts, float64[most]."""
        tried = sorted({each for each in (*_TRIED, most) if each <= most})
        loads = []
        for parts in tried:
            made = self._tried[id(node), parts] = self.partitioned(node, parts)
            loads.append(self._load(made))
        return np.interp(np.arange(1, most + 1), tried, loads)

    # ---------------------------------------------------------------------------------------------------- even loads

    def balanced(self, nodes: list[_Node], slots: int) -> tuple[list[_Node], Codes]:
        """Partition nodes until the slots' loads are even: the nodes, and the slot of each of their leaves."""
        self._tried.clear()
        while True:
            parts = [node.parts(self.workload) for node in nodes]
            owner = np.repeat(np.arange(len(nodes)), [len(each) for each in parts])
            leaves = [part for each in parts for part in each]
            mapping, loads = merged(self.workload, leaves, slots)
            if imbalance(loads) <= EVEN or len(leaves) >= self.leaves:
                return nodes, mapping
            heaviest = np.argsort([-part.load for part in leaves], kind="stable")
            more = np.bincount(owner[heaviest[: self._at_once(len(leaves))]], minlength=len(nodes)).tolist()
            nodes = [made for node, count in zip(nodes, more, strict=True) for made in self._with_more(node, count)]

    def _at_once(self, leaves: int) -> int:
        return min(-(-leaves // _AT_ONCE), self.leaves - leaves)

    def _with_more(self, node: _Node, count: int) -> list[_Node]:
        """A node as some leaves more than it is now."""
        if not count:
            return [node]
        if node.dealt is None:
            return self.partitioned(node, 1 + count)
        return self._by_text(node, len(node.dealt.parts) + count)


def _finished(
    objects: ObjectBatch,
    statistics: Statistics,
    frequencies: Frequencies,
    workload: Workload,
    nodes: list[_Node],
    side: int,
) -> KdT:
    """The index of the leaf nodes."""
    parts = [node.parts(workload) for node in nodes]
    first, offsets = (np.zeros(len(nodes) + 1, np.int64) for _ in range(2))
    np.cumsum([len(each) for each in parts], out=first[1:])
    np.cumsum([0 if node.dealt is None else len(node.dealt.words) for node in nodes], out=offsets[1:])
    dealt = [node.dealt for node in nodes if node.dealt is not None]
    words = np.concatenate([np.empty(0, np.int64), *(each.words for each in dealt)])
    shares = np.concatenate([np.empty(0, np.int64), *(each.shares for each in dealt)])
    rectangles = np.array([node.rectangle for node in nodes], np.int32)
    nothing = np.zeros(len(nodes))
    cells = AGrid(statistics.space, rectangles, nothing, nothing, side)
    table = first.astype(np.int32), offsets, workload.hashes[words], shares.astype(np.int32)
    load = np.array([part.load for each in parts for part in each])
    index = KdT(cells, *table, frequencies, np.zeros(len(load)), load)
    counts = np.bincount(index.route_objects(objects), minlength=len(load)).astype(np.float64)
    return index.weighed(counts, load)
