"""Algorithm 1 of SSTD (section 4.1.2): build a QT-tree from a sample of objects and the query statistics J.

The leaf with the largest workload is split, by space or by text, whichever leaves the smaller total workload (ties to
space), until there are θ leaves; each split makes four of one, so there may be up to two more. A leaf is not split if
that can tell no two of its objects apart, or at depth 20.

Cost: O(objects x terms x depth) for the sample, as each level of the tree visits each object for both kinds of split.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spatialstream.index.base import Leaves
from spatialstream.index.cost import CellStatistics, workloads
from spatialstream.index.qttree import (
    LEAF,
    SPATIAL,
    TEXTUAL,
    UNIT,
    BoxTuple,
    Nodes,
    QTTree,
    TextualNodes,
    add_missing,
    choose,
    depth_first,
    growth,
    quarter,
    tie_seed,
)
from spatialstream.index.statistics import SKQ, SRQ, Statistics
from spatialstream.model.arrays import Bytes, Codes, Floats, Ints, Words
from spatialstream.model.hashing import Table, find_all, hash_strings, make_table
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch

__all__ = ["DEEPEST", "KEYWORDS", "SPLITS", "build_tree"]

SPLITS = frozenset({"spatial", "textual"})
"""Kinds of split. With only one of them the tree is the paper's baseline "Quadtree" or "Text" (section 7.1)."""

KEYWORDS = 16_384
"""Default size of the dictionary: the most used query keywords. Others count as never asked for."""

DEEPEST = 20
"""Depth at which no node is split any more."""

_ROUNDING = 1e-9
"""Total workloads that differ by less than this share count as equal."""


@dataclass(slots=True, eq=False)
class _Split:
    """A way to split a node, and what its four children get.

    Attributes:
        kind: SPATIAL or TEXTUAL.
        cells: the cell of J of each child.
        child: int8[n], the child of each of the node's objects.
        objects: float64[4], abs(O).
        rate: float64[4], arrivals in a ms.
        mass: int64[4, 2], H_srq and H_skq in fixed point.
        mask: uint8[g], the children that have each term.
        loads: the workloads, by Eqn 2.
    """

    kind: int
    cells: list[int]
    child: npt.NDArray[np.int8]
    objects: Floats
    rate: Floats
    mass: Ints
    mask: Bytes
    loads: list[float] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Node:
    """A node under construction; its objects are ``order[start:end]``, and a leaf has no ``split``."""

    box: BoxTuple
    cell: int
    depth: int
    textual: bool
    start: int
    end: int
    load: float
    child: int = -1
    split: _Split | None = None


# ------------------------------------------------------------------------------------------------------------ kernels


@kernel
def _split_by_space(
    order: Ints,
    start: int,
    end: int,
    x: Floats,
    y: Floats,
    middle: Floats,
    rates: Floats,
    offsets: Ints,
    terms: Codes,
    chance: npt.NDArray[np.uint32],
    child: npt.NDArray[np.int8],
    objects: Floats,
    rate: Floats,
    mass: Ints,
    mask: Bytes,
) -> bool:
    """Assign objects to quarters, and sum up each; ``chance`` uint32[4, g, 2] is that of the quarters' own cells.

    Returns whether the objects stand in more than one place.
    """
    apart = False
    for i in range(start, end):
        o = order[i]
        c = (1 if x[o] >= middle[0] else 0) + (2 if y[o] >= middle[1] else 0)
        child[i - start] = c
        objects[c] += 1.0
        rate[c] += rates[o]
        apart |= x[o] != x[order[start]] or y[o] != y[order[start]]
        for k in range(offsets[o], offsets[o + 1]):
            term = terms[k]
            if mask[term] & (1 << c) == 0:
                mask[term] |= 1 << c
                mass[c, 0] += np.int64(chance[c, term, 0])
                mass[c, 1] += np.int64(chance[c, term, 1])
    return apart


@kernel
def _split_by_text(
    order: Ints,
    start: int,
    end: int,
    node: int,
    hashes: Words,
    rates: Floats,
    offsets: Ints,
    terms: Codes,
    chance: npt.NDArray[np.uint32],
    weight: Floats,
    lengths: Floats,
    child: npt.NDArray[np.int8],
    objects: Floats,
    rate: Floats,
    mass: Ints,
    mask: Bytes,
) -> None:
    """Assign each object to the child with the smallest workload increment; ``chance`` uint32[g, 2] is the node's."""
    cost = np.empty(4)
    new = np.empty((4, 2), np.int64)
    for i in range(start, end):
        o = order[i]
        new[:] = 0
        for k in range(offsets[o], offsets[o + 1]):
            term = terms[k]
            add_missing(mask[term], np.int64(chance[term, 0]), np.int64(chance[term, 1]), new)
        cost[:] = 0.0
        for kind in range(2):
            if weight[kind] > 0.0:
                for c in range(4):
                    cost[c] += weight[kind] * growth(objects[c], mass[c, kind], new[c, kind], lengths[kind])
        c = choose(cost, tie_seed(hashes[o], node))
        child[i - start] = c
        objects[c] += 1.0
        rate[c] += rates[o]
        mass[c, 0] += new[c, 0]
        mass[c, 1] += new[c, 1]
        for k in range(offsets[o], offsets[o + 1]):
            mask[terms[k]] |= 1 << c


# ----------------------------------------------------------------------------------------------------------- building


class _Builder:
    """The sample, the dictionary and the nodes so far."""

    def __init__(self, objects: ObjectBatch, statistics: Statistics, keywords: int) -> None:
        self.statistics = statistics
        self.x, self.y = np.ascontiguousarray(objects.x), np.ascontiguousarray(objects.y)
        self.rates = statistics.rates(self.x, self.y)
        self.hashes = hash_strings(objects.ids)
        self.order = np.arange(len(objects))

        use = statistics.srq.of_cell(0, len(statistics.terms)) + statistics.skq.of_cell(0, len(statistics.terms))
        self.dictionary = np.lexsort((statistics.terms, -use))[:keywords]
        self.table = make_table(statistics.terms[self.dictionary])
        known = find_all(self.table, hash_strings(objects.terms.vocabulary))[objects.terms.codes]
        self.terms = known[known >= 0]
        self.offsets = np.append(0, np.cumsum(known >= 0))[objects.terms.offsets]

        self.cells: dict[int, CellStatistics] = {}
        self.chances: dict[int, npt.NDArray[np.uint32]] = {}
        self.nodes = [_Node(statistics.space.bounds, 0, 0, False, 0, len(objects), 0.0)]
        whole, _ = self._by_space(self.nodes[0], [0] * 4, (np.inf, np.inf))
        self.nodes[0].load = whole.loads[0]

    def cell(self, cell: int) -> CellStatistics:
        """Statistics of a cell of J."""
        if cell not in self.cells:
            self.cells[cell] = self.statistics.cell(cell)
        return self.cells[cell]

    def chance(self, cell: int) -> npt.NDArray[np.uint32]:
        """p_w of the dictionary's terms in a cell's M_srq and M_skq, in fixed point: uint32[g, 2]."""
        if cell not in self.chances:
            columns = [self.statistics.keyword_distribution(cell, kind)[self.dictionary] for kind in (SRQ, SKQ)]
            self.chances[cell] = np.ascontiguousarray(np.rint(np.stack(columns, axis=1) * UNIT).astype(np.uint32))
        return self.chances[cell]

    def child_cell(self, cell: int, child: int) -> int:
        """A quarter of a cell of J, or the cell itself where J is not that deep."""
        first = int(self.statistics.cells.first[cell])
        return cell if first < 0 else first + child

    def weight(self, cell: int) -> Floats:
        """Pr(srq) p_srq and Pr(skq) p_skq of a cell."""
        statistics = self.cell(cell)
        return np.ascontiguousarray((statistics.arrival * statistics.reach)[[SRQ, SKQ]])

    def _empty_split(self, node: _Node, kind: int, cells: list[int]) -> _Split:
        child, mask = np.empty(node.end - node.start, np.int8), np.zeros(len(self.dictionary), np.uint8)
        return _Split(kind, cells, child, np.zeros(4), np.zeros(4), np.zeros((4, 2), np.int64), mask)

    def _set_loads(self, split: _Split) -> None:
        reach = self.statistics.reach(np.array(split.cells))
        split.loads = workloads(self.cell(0), reach, split.objects, split.rate, split.mass / UNIT).tolist()

    def _by_space(self, node: _Node, cells: list[int], middle: tuple[float, float]) -> tuple[_Split, bool]:
        """Spatial partitioning, and whether it can ever tell two of the objects apart."""
        split = self._empty_split(node, SPATIAL, cells)
        chance = np.stack([self.chance(cell) for cell in cells])
        apart = _split_by_space(
            self.order, node.start, node.end, self.x, self.y, np.array(middle), self.rates, self.offsets, self.terms,
            chance, split.child, split.objects, split.rate, split.mass, split.mask,
        )  # fmt: skip
        self._set_loads(split)
        return split, apart

    def _by_text(self, number: int) -> _Split:
        """Textual partitioning."""
        node = self.nodes[number]
        split = self._empty_split(node, TEXTUAL, [node.cell] * 4)
        _split_by_text(
            self.order, node.start, node.end, number, self.hashes, self.rates, self.offsets, self.terms,
            self.chance(node.cell), self.weight(node.cell), self.cell(node.cell).lengths,
            split.child, split.objects, split.rate, split.mass, split.mask,
        )  # fmt: skip
        self._set_loads(split)
        return split

    def _better_split(self, number: int, splits: Collection[str]) -> _Split | None:
        """The split with the smaller total workload (lines 6 to 8 of Algorithm 1); None if there is none."""
        node = self.nodes[number]
        if node.depth == DEEPEST:
            return None
        quarters = [self.child_cell(node.cell, child) for child in range(4)]
        by_space, apart = self._by_space(node, quarters, quarter(node.box, 3)[:2])
        best = by_space if apart and "spatial" in splits else None
        if "textual" in splits:
            by_text = self._by_text(number)
            useful = np.count_nonzero(by_text.objects) > 1
            if useful and (best is None or sum(by_text.loads) < sum(best.loads) * (1.0 - _ROUNDING)):
                best = by_text
        return best

    def _split(self, number: int, split: _Split) -> None:
        """Make children of a leaf (lines 9 to 13 of Algorithm 1)."""
        node = self.nodes[number]
        node.split, node.child = split, len(self.nodes)
        members = self.order[node.start : node.end]
        self.order[node.start : node.end] = members[np.argsort(split.child, kind="stable")]
        end = node.start
        for child in range(4):
            start, end = end, end + int(split.objects[child])
            box = quarter(node.box, child) if split.kind == SPATIAL else node.box
            textual = node.textual or split.kind == TEXTUAL
            self.nodes.append(_Node(box, split.cells[child], node.depth + 1, textual, start, end, split.loads[child]))

    def grow(self, leaves: int, splits: Collection[str]) -> None:
        """Split leaves, the one with the largest workload first, until there are ``leaves`` or none can be split."""
        heap = [(-self.nodes[0].load, self.nodes[0].start - self.nodes[0].end, 0)]
        count = 1
        while heap and count < leaves:
            number = heapq.heappop(heap)[-1]
            split = self._better_split(number, splits)
            if split is None:
                continue
            self._split(number, split)
            count += 3
            for child in range(len(self.nodes) - 4, len(self.nodes)):
                node = self.nodes[child]
                if node.end > node.start + 1:
                    heapq.heappush(heap, (-node.load, node.start - node.end, child))

    def finish(self) -> QTTree:
        """The nodes as flat arrays, leaves numbered depth first."""
        kind = [LEAF if node.split is None else node.split.kind for node in self.nodes]
        child, box = [node.child for node in self.nodes], [node.box for node in self.nodes]
        numbers = [number for number in depth_first(kind, child) if kind[number] == LEAF]
        textual = [number for number, each in enumerate(kind) if each == TEXTUAL]
        in_order = [self.nodes[number] for number in numbers]
        leaves = Leaves(
            np.array([node.box for node in in_order]),
            np.array([node.textual for node in in_order]),
            np.array([node.end - node.start for node in in_order], np.float64),
            np.array([node.load for node in in_order]),
        )
        nodes = Nodes.of(kind, child, box, numbers, textual)
        return QTTree(self.statistics.space, nodes, *self._textual_nodes(textual), leaves)

    def _textual_nodes(self, numbers: list[int]) -> tuple[TextualNodes, Table]:
        """The textual nodes, and the dictionary as far as they use it."""
        splits = [split for number in numbers if (split := self.nodes[number].split) is not None]
        cells = [self.nodes[number].cell for number in numbers]
        distinct, rows = np.unique(np.array(cells, np.int64), return_inverse=True)
        g = len(self.dictionary)
        chance = np.array([self.chance(int(cell)) for cell in distinct], np.uint32).reshape(len(distinct), g, 2)
        mask = np.array([split.mask for split in splits], np.uint8).reshape(len(numbers), g)
        used = np.flatnonzero(chance.any(axis=(0, 2)))
        texts = TextualNodes(
            np.ascontiguousarray(mask[:, used]),
            rows.astype(np.int32),
            np.ascontiguousarray(chance[:, used]),
            np.array([split.objects for split in splits]).reshape(len(numbers), 4),
            np.array([split.mass for split in splits], np.int64).reshape(len(numbers), 4, 2),
            np.array([self.weight(cell) for cell in cells]).reshape(len(numbers), 2),
            np.tile(self.cell(0).lengths, (len(numbers), 1, 1)),
        )
        return texts, make_table(self.statistics.terms[self.dictionary[used]])


def build_tree(
    objects: ObjectBatch,
    leaves: int,
    statistics: Statistics,
    splits: Collection[str] = SPLITS,
    keywords: int = KEYWORDS,
) -> QTTree:
    """A QT-tree with ``leaves`` (θ) leaves, or up to two more; fewer if the sample has nothing more to split.

    Args:
        objects: a sample of the stream.
        leaves: θ.
        statistics: J; its space is the tree's.
        splits: the kinds of split to try, of :data:`SPLITS`.
        keywords: size of the dictionary at most.
    """
    builder = _Builder(objects, statistics, keywords)
    builder.grow(leaves, splits)
    return builder.finish()
