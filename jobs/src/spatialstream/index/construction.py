"""Algorithm 1 of SSTD (section 4.1.2): build a QT-tree from a sample of objects and the query statistics J.

The leaf with the largest workload is split, by space or by text, whichever leaves the smaller total workload (by text
if that is clearly smaller), until there are θ leaves; each split makes four of one, so there may be up to two more. A
leaf is not split if that can tell no two of its objects apart, or at depth 20.

What a split leaves is estimated for the leaves of the stream, not counted in the sample. A leaf with some 30 sampled
objects has hardly any of the words of its future ones; and four shares that were made so as to have few words in common
have few in common for just the objects that they were made of. H by counting is so far too small for both, that text
nearly always seems to win, and the tree visits more than one that splits by space alone. So:

- A leaf has a word with probability 1 - exp(-n f), where n objects are expected in it, and f is the part of them that
  have the word: counted, with :data:`_USUAL` more objects that have it as often as those of the node above.
- How well lists tell words apart is seen by objects that they were not made of. Each half of a node's objects makes
  lists, and the other half is sent by them; *lift* is by how much more often than by chance a word comes to a child
  that lists it. Only this part of a word's objects is taken to go to the lists that have it, the rest goes anywhere.

Cost: O(objects x terms x depth) for the sample, as each level of the tree visits each object for both kinds of split,
and O(words of the dictionary) for each node.
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

_USUAL = 64.0
"""As many objects, which have words as often as those of the node above, are added to those that a leaf has."""

_UNSURE = 100.0
"""As many words, which come to children by chance, are added to those by which lift is measured."""

_MORE = 4.0
"""A leaf is expected to get at least so many objects for each sampled one: the sample is of what is yet to come."""

_ALL = 0b1111

_GAIN = 0.1
"""By which part of what space leaves text has to leave less: of two estimates the smaller one is the more wrong."""


@dataclass(slots=True, eq=False)
class _Lists:
    """The keyword lists of four children as they are made: g words.

    Attributes:
        objects: float64[4], abs(O).
        mass: int64[4, 2], H_srq and H_skq of the listed words, in fixed point.
        mask: uint8[g], the children that have each term.
    """

    objects: Floats
    mass: Ints
    mask: Bytes

    @classmethod
    def empty(cls, words: int) -> _Lists:
        """Without any word."""
        return cls(np.zeros(4), np.zeros((4, 2), np.int64), np.zeros(words, np.uint8))


@dataclass(slots=True, eq=False)
class _Split:
    """A way to split a node, and what its four children get.

    Attributes:
        cells: the cell of J of each child.
        child: int8[n], the child of each of the node's objects.
        lists: the keyword lists; None for a split by space.
        lift: how well these tell words apart, from 0 to 1.
        objects: float64[4], abs(O).
        loads: the workloads, by Eqn 2.
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

    ``words`` is which part of the objects has each word, float32[g], once that has been asked for.
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
    """Send each object to the child whose workload grows least by it; ``chance`` uint32[g, 2] is the node's.

    ``lists`` are (abs(O), H, masks) of the children; if it ``learns``, they take up what is sent.
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
    """The sample, the dictionary and the nodes so far."""

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
        """A quarter of a cell of J, or the cell itself where J is not that deep."""
        first = int(self.statistics.cells.first[cell])
        return cell if first < 0 else first + child

    def weight(self, cell: int) -> Floats:
        """Pr(srq) p_srq and Pr(skq) p_skq of a cell."""
        statistics = self.cell(cell)
        return np.ascontiguousarray((statistics.arrival * statistics.reach)[[SRQ, SKQ]])

    def _members(self, node: _Node) -> Ints:
        return self.order[node.start : node.end]

    def _terms_of(self, members: Ints) -> tuple[Ints, Codes]:
        """The terms of some objects: whose each is, as a position among them, and which."""
        lengths = self.offsets[members + 1] - self.offsets[members]
        owner = np.repeat(np.arange(len(members)), lengths)
        first = np.cumsum(lengths) - lengths
        return owner, self.terms[np.arange(len(owner)) - first[owner] + self.offsets[members][owner]]

    def _words(self, number: int) -> Floats:
        """Which part of a node's objects, of all that come to it, has each word: float64[g]."""
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
        """As :meth:`_words`, of each child that a node would get, float64[4, g]; of children without members nothing.

        Args:
            number: the node.
            split: how it is split.
            members: objects of the node.
            child: the child of each of them.
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
        """Eqn 2 of partitions whose objects have words so often, float64[n, g]."""
        there = -np.expm1(-self.more * objects[:, np.newaxis] * words)
        h = np.array([there[i] @ self.chance(cell) for i, cell in enumerate(cells)]) / UNIT
        asked, coverage = self.statistics.asked(at := np.array(cells)), self.statistics.coverage(at, h.reshape(-1, 2))
        loads: list[float] = workloads(asked, objects, rate, coverage).tolist()
        return loads

    def _weighed(self, number: int, split: _Split) -> _Split:
        """The split, with the loads of its children."""
        members = self._members(self.nodes[number])
        rate = np.bincount(split.child, self.rates[members], 4).astype(np.float64)
        split.loads = self._loads(split.cells, split.objects, rate, self._below(number, split, members, split.child))
        return split

    def _by_space(self, number: int) -> _Split | None:
        """Spatial partitioning; None if it can never tell two of the objects apart."""
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
        """Textual partitioning; None if it tells no two of the objects apart."""
        members = self._members(self.nodes[number])
        lists = _Lists.empty(len(self.dictionary))
        child = self._sent(number, members, lists, learns=True)
        if np.count_nonzero(lists.objects) < 2:
            return None
        cells = [self.nodes[number].cell] * 4
        return self._weighed(number, _Split(cells, child, lists, self._lift(number, members), lists.objects))

    def _sent(self, number: int, members: Ints, lists: _Lists, *, learns: bool) -> npt.NDArray[np.int8]:
        """The child of each of some objects of a node, int8[n]."""
        cell, child = self.nodes[number].cell, np.empty(len(members), np.int8)
        _share_out(
            members, number, self.hashes, self.offsets, self.terms, self.chance(cell), self.weight(cell),
            self.cell(cell).lengths, learns, (lists.objects, lists.mass, lists.mask), child,
        )  # fmt: skip
        return child

    def _lift(self, number: int, members: Ints) -> float:
        """By how much more often than by chance words come to children that list them, from 0 to 1.

        Words of no list and words of all say nothing.
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
        """Make children of a leaf (lines 9 to 13 of Algorithm 1)."""
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
        made = [lists for number in numbers if (split := self.nodes[number].split) and (lists := split.lists)]
        cells = [self.nodes[number].cell for number in numbers]
        distinct, rows = np.unique(np.array(cells, np.int64), return_inverse=True)
        g = len(self.dictionary)
        chance = np.array([self.chance(int(cell)) for cell in distinct], np.uint32).reshape(len(distinct), g, 2)
        mask = np.array([lists.mask for lists in made], np.uint8).reshape(len(numbers), g)
        used = np.flatnonzero(chance.any(axis=(0, 2)))
        texts = TextualNodes(
            np.ascontiguousarray(mask[:, used]),
            rows.astype(np.int32),
            np.ascontiguousarray(chance[:, used]),
            np.array([lists.objects for lists in made]).reshape(len(numbers), 4),
            np.array([lists.mass for lists in made], np.int64).reshape(len(numbers), 4, 2),
            np.array([self.weight(cell) for cell in cells]).reshape(len(numbers), 2),
            np.tile(self.cell(0).lengths, (len(numbers), 1, 1)),
        )
        return texts, make_table(self.statistics.terms[self.dictionary[used]])


def _bits(mask: Bytes) -> Floats:
    """Which of four children have each of g words, as 0.0 and 1.0: float64[4, g]."""
    bits: Floats = ((mask >> np.arange(4, dtype=np.uint8)[:, np.newaxis]) & 1).astype(np.float64)
    return bits


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
