"""Algorithm 1 of SSTD (section 4.1.2): build a QT-tree from a sample of objects and the query statistics J.

The leaf with the largest workload is split, by space or by text, whichever results in the smaller total workload (by
text only if that is clearly smaller), until there are θ leaves. Each split turns one leaf into four, so there may be up
to two leaves more. A leaf is not split if the split cannot separate any two of its objects, or at depth 20.

Workloads after a split are estimated for the leaves of the stream, not counted in the sample. A leaf with about 30
sampled objects has hardly any of the words of its future objects; and four shares that were formed to have few words in
common have few in common only for the objects that they were formed from. H by counting is far too small in both cases:
splits by text would nearly always seem better, and the resulting tree visits more objects than one that splits by space
alone. Therefore:

- A leaf has a word with probability 1 - exp(-n f), where n is the number of objects expected in it, and f the fraction
  of them that have the word: the count in the sample, smoothed with :data:`_USUAL` additional objects that have the
  word as often as those of the parent node.
- How well keyword lists separate words is measured on objects that they were not formed from. Each half of a node's
  objects forms lists, and the other half is routed by them; *lift* is how much more often than by chance a word goes to
  a child that lists it. Only this fraction of a word's objects is assumed to go to the lists with the word; the rest is
  distributed over all children.

Cost: O(objects x terms x depth) for the sample, because each level of the tree visits each object for both kinds of
split, and O(words of the dictionary) per node.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spatialstream.index.base import Leaves
from spatialstream.index.boxes import BoxTuple, quarter
from spatialstream.index.cost import CellStatistics, workloads
from spatialstream.index.qt.tree import (
    LEAF,
    SPATIAL,
    TEXTUAL,
    UNIT,
    Nodes,
    QTTree,
    TextualNodes,
    add_missing,
    choose,
    depth_first,
    growth,
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
"""Default size of the dictionary of the most used query keywords. Other words count as never used in queries."""

DEEPEST = 20
"""Maximum depth: nodes at this depth are not split."""

_USUAL = 64.0
"""Weight of the prior in the word frequencies of a leaf, in objects with the word frequencies of the parent node."""

_UNSURE = 100.0
"""Weight of the prior in the measurement of lift, in words that go to children by chance."""

_MORE = 4.0
"""Minimum number of future objects that each sampled object represents: the sample stands for the coming stream."""

_ALL = 0b1111

_GAIN = 0.1
"""Fraction by which a split by text must beat one by space: the smaller of two estimates tends to be too small."""


@dataclass(slots=True, eq=False)
class _Lists:
    """The keyword lists of four children under construction: g words.

    Attributes:
        objects: float64[4], abs(O).
        mass: int64[4, 2], H_srq and H_skq of the listed words, in fixed point.
        mask: uint8[g], the children whose list has each term, as bits.
    """

    objects: Floats
    mass: Ints
    mask: Bytes

    @classmethod
    def empty(cls, words: int) -> _Lists:
        """Four empty lists."""
        return cls(np.zeros(4), np.zeros((4, 2), np.int64), np.zeros(words, np.uint8))


@dataclass(slots=True, eq=False)
class _Split:
    """A candidate split of a node, and the resulting four children.

    Attributes:
        cells: the cell of J of each child.
        child: int8[n], the child of each of the node's objects.
        lists: the keyword lists; None for a split by space.
        lift: how well these separate words, from 0 to 1.
        objects: float64[4], abs(O).
        loads: the workloads of the children (Eqn 2).
    """

    cells: list[int]
    child: npt.NDArray[np.int8]
    lists: _Lists | None
    lift: float
    objects: Floats
    loads: list[float] = field(default_factory=list)

    @property
    def kind(self) -> int:
        """SPATIAL or TEXTUAL."""
        return SPATIAL if self.lists is None else TEXTUAL


@dataclass(slots=True, eq=False)
class _Node:
    """A node under construction; its objects are ``order[start:end]``, and a leaf has no ``split``.

    ``words`` is the fraction of the objects that have each word, float32[g], computed on first use.
    """

    box: BoxTuple
    cell: int
    depth: int
    textual: bool
    start: int
    end: int
    load: float
    parent: int = -1
    child: int = -1
    split: _Split | None = None
    words: npt.NDArray[np.float32] | None = None


# ------------------------------------------------------------------------------------------------------------ kernels


@kernel
def _share_out(
    members: Ints,
    node: int,
    hashes: Words,
    offsets: Ints,
    terms: Codes,
    chance: npt.NDArray[np.uint32],
    weight: Floats,
    lengths: Floats,
    learns: bool,
    lists: tuple[Floats, Ints, Bytes],
    child: npt.NDArray[np.int8],
) -> None:
    """Route each object to the child whose workload grows least by it; ``chance`` uint32[g, 2] is that of the node.

    ``lists`` are (abs(O), H, masks) of the children; if ``learns``, they are updated with each routed object.
    """
    objects, mass, mask = lists
    cost = np.empty(4)
    new = np.empty((4, 2), np.int64)
    for i in range(len(members)):
        o = members[i]
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
        child[i] = c
        if learns:
            objects[c] += 1.0
            mass[c, 0] += new[c, 0]
            mass[c, 1] += new[c, 1]
            for k in range(offsets[o], offsets[o + 1]):
                mask[terms[k]] |= 1 << c


# ----------------------------------------------------------------------------------------------------------- building


class _Builder:
    """State of the construction: the sample, the dictionary and the nodes so far."""

    def __init__(self, objects: ObjectBatch, statistics: Statistics, keywords: int) -> None:
        self.statistics = statistics
        self.x, self.y = np.ascontiguousarray(objects.x), np.ascontiguousarray(objects.y)
        self.rates = statistics.rates(self.x, self.y)
        self.hashes = hash_strings(objects.ids)
        self.order = np.arange(len(objects))

        use = statistics.srq.of_cell(0) + statistics.skq.of_cell(0)
        self.dictionary = np.lexsort((statistics.terms, -use))[:keywords]
        self.table = make_table(statistics.terms[self.dictionary])
        known = find_all(self.table, hash_strings(objects.terms.vocabulary))[objects.terms.codes]
        self.terms = known[known >= 0]
        self.offsets = np.append(0, np.cumsum(known >= 0))[objects.terms.offsets]

        self.cells: dict[int, CellStatistics] = {}
        self.chances: dict[int, npt.NDArray[np.uint32]] = {}
        stand_for = float(statistics.objects[0]) / max(len(objects), 1)
        self.more = max(_MORE, stand_for)
        self.nodes = [_Node(statistics.space.bounds, 0, 0, False, 0, len(objects), 0.0)]
        whole, words = np.array([float(len(objects))]), self._words(0)[np.newaxis]
        self.nodes[0].load = self._loads([0], whole, np.array([self.rates.sum()]), words)[0]

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
        """A quarter of a cell of J, or the cell itself if J is not that deep."""
        first = int(self.statistics.cells.first[cell])
        return cell if first < 0 else first + child

    def weight(self, cell: int) -> Floats:
        """Pr(srq) p_srq and Pr(skq) p_skq of a cell."""
        statistics = self.cell(cell)
        return np.ascontiguousarray((statistics.arrival * statistics.reach)[[SRQ, SKQ]])

    def _members(self, node: _Node) -> Ints:
        return self.order[node.start : node.end]

    def _terms_of(self, members: Ints) -> tuple[Ints, Codes]:
        """The terms of some objects: for each term its object, as a position in ``members``, and its number."""
        lengths = self.offsets[members + 1] - self.offsets[members]
        owner = np.repeat(np.arange(len(members)), lengths)
        first = np.cumsum(lengths) - lengths
        return owner, self.terms[np.arange(len(owner)) - first[owner] + self.offsets[members][owner]]

    def _words(self, number: int) -> Floats:
        """The estimated fraction of all objects of a node that have each word: float64[g]."""
        node = self.nodes[number]
        if node.words is None:
            members = self._members(node)
            if node.parent < 0:
                words = np.bincount(self._terms_of(members)[1], minlength=len(self.dictionary)) / max(len(members), 1)
            else:
                parent = self.nodes[node.parent]
                assert parent.split is not None
                which = number - parent.child
                words = self._below(node.parent, parent.split, members, np.full(len(members), which, np.int8))[which]
            node.words = words.astype(np.float32)
        return node.words.astype(np.float64)

    def _below(self, number: int, split: _Split, members: Ints, child: npt.NDArray[np.int8]) -> Floats:
        """As :meth:`_words`, for each child that a split would create: float64[4, g].

        Rows of children without members are meaningless.

        Args:
            number: the node.
            split: the split.
            members: objects of the node.
            child: int8[n], the child of each of them.
        """
        words, g = self._words(number), len(self.dictionary)
        if split.lists is None:
            owner, terms = self._terms_of(members)
            counts = np.bincount(child[owner].astype(np.int64) * g + terms, minlength=4 * g).reshape(4, g)
            result: Floats = (counts + _USUAL * words) / (split.objects[:, np.newaxis] + _USUAL)
            return result
        share = split.objects / split.objects.sum()
        listed = _bits(split.lists.mask) * share[:, np.newaxis]
        among = listed.sum(axis=0)
        sent = np.where(among > 0.0, listed / np.maximum(among, 1e-300), share[:, np.newaxis])
        part = split.lift * sent / np.maximum(share, 1e-300)[:, np.newaxis] + (1.0 - split.lift)
        below: Floats = np.minimum(words * part, 1.0)
        return below

    def _loads(self, cells: list[int], objects: Floats, rate: Floats, words: Floats) -> list[float]:
        """Eqn 2 for partitions whose objects have words with frequencies ``words`` float64[n, g]."""
        there = -np.expm1(-self.more * objects[:, np.newaxis] * words)
        h = np.array([there[i] @ self.chance(cell) for i, cell in enumerate(cells)]) / UNIT
        asked, coverage = self.statistics.asked(at := np.array(cells)), self.statistics.coverage(at, h.reshape(-1, 2))
        loads: list[float] = workloads(asked, objects, rate, coverage).tolist()
        return loads

    def _weighed(self, number: int, split: _Split) -> _Split:
        """Set the loads of a split's children."""
        members = self._members(self.nodes[number])
        rate = np.bincount(split.child, self.rates[members], 4).astype(np.float64)
        split.loads = self._loads(split.cells, split.objects, rate, self._below(number, split, members, split.child))
        return split

    def _by_space(self, number: int) -> _Split | None:
        """Spatial partitioning; None if all objects are at the same place."""
        node = self.nodes[number]
        x, y = (each[self._members(node)] for each in (self.x, self.y))
        if not ((x != x[:1]) | (y != y[:1])).any():
            return None
        east, north = quarter(node.box, 3)[:2]
        child = ((x >= east) + 2 * (y >= north)).astype(np.int8)
        cells = [self.child_cell(node.cell, each) for each in range(4)]
        counts = np.bincount(child, minlength=4).astype(np.float64)
        return self._weighed(number, _Split(cells, child, None, 0.0, counts))

    def _by_text(self, number: int) -> _Split | None:
        """Textual partitioning; None if it sends all objects to the same child."""
        members = self._members(self.nodes[number])
        lists = _Lists.empty(len(self.dictionary))
        child = self._sent(number, members, lists, learns=True)
        if np.count_nonzero(lists.objects) < 2:
            return None
        cells = [self.nodes[number].cell] * 4
        return self._weighed(number, _Split(cells, child, lists, self._lift(number, members), lists.objects))

    def _sent(self, number: int, members: Ints, lists: _Lists, *, learns: bool) -> npt.NDArray[np.int8]:
        """Route some objects of a node by keyword lists: the child of each, int8[n]."""
        cell, child = self.nodes[number].cell, np.empty(len(members), np.int8)
        _share_out(
            members, number, self.hashes, self.offsets, self.terms, self.chance(cell), self.weight(cell),
            self.cell(cell).lengths, learns, (lists.objects, lists.mass, lists.mask), child,
        )  # fmt: skip
        return child

    def _lift(self, number: int, members: Ints) -> float:
        """How much more often than by chance words go to children that list them, from 0 to 1.

        Words in no list and words in all lists are ignored.
        """
        first = (self.hashes[members] >> np.uint64(32)) % np.uint64(2) == 0
        came = expected = said = 0.0
        for half in (first, ~first):
            lists = _Lists.empty(len(self.dictionary))
            self._sent(number, members[half], lists, learns=True)
            fresh = members[~half]
            child = self._sent(number, fresh, lists, learns=False)
            owner, terms = self._terms_of(fresh)
            telling = (lists.mask[terms] > 0) & (lists.mask[terms] < _ALL)
            listed = _bits(lists.mask[terms[telling]])
            share = np.bincount(child, minlength=4) / max(len(fresh), 1)
            came += float(listed[child[owner[telling]], np.arange(listed.shape[1])].sum())
            expected += float((share @ listed).sum())
            said += listed.shape[1]
        return max(0.0, came - expected) / (said - expected + _UNSURE)

    def _better_split(self, number: int, splits: Collection[str]) -> _Split | None:
        """The split with the smaller total workload (lines 6 to 8 of Algorithm 1); None if there is none."""
        if self.nodes[number].depth == DEEPEST:
            return None
        best = self._by_space(number) if "spatial" in splits else None
        by_text = self._by_text(number) if "textual" in splits else None
        if best is None or (by_text is not None and sum(by_text.loads) < sum(best.loads) * (1.0 - _GAIN)):
            return by_text
        return best

    def _split(self, number: int, split: _Split) -> None:
        """Create the children of a leaf (lines 9 to 13 of Algorithm 1)."""
        node = self.nodes[number]
        self._words(number)
        node.split, node.child = split, len(self.nodes)
        self.order[node.start : node.end] = self._members(node)[np.argsort(split.child, kind="stable")]
        end = node.start
        for child in range(4):
            start, end = end, end + int(split.objects[child])
            box = quarter(node.box, child) if split.kind == SPATIAL else node.box
            textual = node.textual or split.kind == TEXTUAL
            self.nodes.append(
                _Node(box, split.cells[child], node.depth + 1, textual, start, end, split.loads[child], number)
            )

    def grow(self, leaves: int, splits: Collection[str]) -> None:
        """Split leaves in the order of descending workload, until there are ``leaves`` or none can be split."""
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
        """Build the tree as flat arrays, with leaves numbered depth first."""
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
        """The textual nodes, and the part of the dictionary that they use."""
        word_lists = [lists for number in numbers if (split := self.nodes[number].split) and (lists := split.lists)]
        cells = [self.nodes[number].cell for number in numbers]
        distinct, rows = np.unique(np.array(cells, np.int64), return_inverse=True)
        g = len(self.dictionary)
        chance = np.array([self.chance(int(cell)) for cell in distinct], np.uint32).reshape(len(distinct), g, 2)
        mask = np.array([lists.mask for lists in word_lists], np.uint8).reshape(len(numbers), g)
        used = np.flatnonzero(chance.any(axis=(0, 2)))
        texts = TextualNodes(
            np.ascontiguousarray(mask[:, used]),
            rows.astype(np.int32),
            np.ascontiguousarray(chance[:, used]),
            np.array([lists.objects for lists in word_lists]).reshape(len(numbers), 4),
            np.array([lists.mass for lists in word_lists], np.int64).reshape(len(numbers), 4, 2),
            np.array([self.weight(cell) for cell in cells]).reshape(len(numbers), 2),
            np.tile(self.cell(0).lengths, (len(numbers), 1, 1)),
        )
        return texts, make_table(self.statistics.terms[self.dictionary[used]])


def _bits(mask: Bytes) -> Floats:
    """Expand masks of g words to 0.0 and 1.0 for each of four children: float64[4, g]."""
    bits: Floats = ((mask >> np.arange(4, dtype=np.uint8)[:, np.newaxis]) & 1).astype(np.float64)
    return bits


def build_tree(
    objects: ObjectBatch,
    leaves: int,
    statistics: Statistics,
    splits: Collection[str] = SPLITS,
    keywords: int = KEYWORDS,
) -> QTTree:
    """Build a QT-tree with ``leaves`` (θ) leaves, or up to two more; fewer if the sample cannot be split further.

    Args:
        objects: a sample of the stream.
        leaves: θ.
        statistics: J; its space is the tree's.
        splits: the kinds of split to try, of :data:`SPLITS`.
        keywords: maximum size of the dictionary.
    """
    builder = _Builder(objects, statistics, keywords)
    builder.grow(leaves, splits)
    return builder.finish()
