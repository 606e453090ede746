"""Splitting and merging leaves of a live QT-tree, without its objects (SSTD, section 5.3).

A :class:`TreeEditor` loads a tree, splits leaves, merges groups of four sibling leaves, and builds the new tree. For
each new leaf it records the old leaves that it originates from and the shares of their objects and continuous queries
that it receives, so that counts can be carried over. Both shares are estimates from J; the actual contents of the new
leaves are measured once the new tree is in use.

Nodes keep their numbers, and textual nodes their frozen keyword lists: wherever nothing was split or merged, the new
tree routes exactly as the old one.

Cost: O(nodes) to load and to build; O(log(size of the tree) + words of the cell) per operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spatialstream.index.base import Leaves
from spatialstream.index.boxes import BoxTuple, quarter
from spatialstream.index.origins import Origins
from spatialstream.index.qt.construction import DEEPEST, KEYWORDS
from spatialstream.index.qt.coverage import Path, TreeLists, path_coverage
from spatialstream.index.qt.tree import (
    LEAF,
    SPATIAL,
    TEXTUAL,
    Nodes,
    QTTree,
    TextualNodes,
    depth_first,
)
from spatialstream.index.qt.wordlists import TextualSplit, split_words
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Codes, Flags, Floats, Words
from spatialstream.model.hashing import Table, find_all, make_table

__all__ = ["Adjusted", "TreeEditor"]

_FIRST_CONTINUOUS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Adjusted:
    """The result of an adjustment. Figures of the new leaves are carried over from the old ones by shares of objects.

    Attributes:
        tree: the new tree.
        origins: the origins of its leaves.
    """

    tree: QTTree
    origins: Origins


_Sources = dict[int, tuple[float, float]]
"""Old leaf -> shares of its objects and of its continuous queries."""


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    """A leaf: the cell of J that covers it, the keyword lists above it, and its origins."""

    cell: int
    path: Path
    sources: _Sources


def _within(inner: BoxTuple, outer: BoxTuple) -> bool:
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


class TreeEditor:
    """A QT-tree under adjustment. Nodes are identified by their numbers in the tree.

    Args:
        tree: the tree; it is not modified.
        statistics: J, of the same space.
    """

    def __init__(self, tree: QTTree, statistics: Statistics) -> None:
        self.tree = tree
        self.statistics = statistics
        self._kind: list[int] = tree.nodes.kind.tolist()
        self._first: list[int] = tree.nodes.child.tolist()
        self._box: list[BoxTuple] = [(w, s, e, n) for w, s, e, n in tree.nodes.box.tolist()]
        self._parent, self._depth = [-1] * len(self._kind), [0] * len(self._kind)
        self._row: list[int] = tree.nodes.row.tolist()
        self._made: dict[int, TextualSplit] = {}
        self.leaves: dict[int, _Leaf] = {}
        self._take_apart()

    def _take_apart(self) -> None:
        """Compute the parents, depths and gaps of nodes, and the inputs of the cost model for the leaves."""
        found = self.statistics.cells_of(self.tree.leaves.box)
        cells, self._asked = found.tolist(), self.statistics.asked(found)
        lists = TreeLists(self.tree.texts.mask, self.tree.table, self.statistics)
        paths = [lists.along(path) for path in self.tree.textual_paths()]
        gaps = set(range(1, len(self._kind), 4))
        for node in self._walk():
            if self._kind[node] == LEAF:
                leaf = int(self.tree.nodes.leaf[node])
                self.leaves[node] = _Leaf(cells[leaf], paths[leaf], {leaf: (1.0, 1.0)})
            else:
                first = self._first[node]
                gaps.discard(first)
                for each in range(first, first + 4):
                    self._parent[each], self._depth[each] = node, self._depth[node] + 1
        self._gaps = sorted(gaps, reverse=True)

    def _walk(self) -> list[int]:
        """The nodes reachable from the root, depth first."""
        return depth_first(self._kind, self._first)

    # ------------------------------------------------------------------------------------------------------- queries

    def children(self, node: int) -> range:
        """The four children of an inner node."""
        return range(self._first[node], self._first[node] + 4)

    def parent(self, node: int) -> int:
        """The parent of a node; -1 for the root."""
        return self._parent[node]

    def box(self, node: int) -> BoxTuple:
        """(west, south, east, north)."""
        return self._box[node]

    def leaf_order(self) -> list[int]:
        """The nodes of the leaves, depth first: the order in which leaves will be numbered."""
        return [node for node in self._walk() if self._kind[node] == LEAF]

    def can_split(self, node: int) -> bool:
        """Whether a leaf is above the maximum depth."""
        return self._depth[node] < DEEPEST

    def can_merge(self, node: int) -> bool:
        """Whether all four children of a node are leaves."""
        return self._kind[node] != LEAF and all(child in self.leaves for child in self.children(node))

    def mergeable(self) -> list[int]:
        """All nodes whose four children are leaves."""
        return sorted({self._parent[leaf] for leaf in self.leaves if leaf and self.can_merge(self._parent[leaf])})

    def loads(self, nodes: Sequence[int], objects: Floats, rate: Floats, asked: Floats | None = None) -> Floats:
        """Eqn 2 for leaves, and for inner nodes as if they were merged into leaves: float64[len(nodes)].

        Args:
            nodes: leaves, and nodes that :meth:`can_merge`.
            objects: float64[old leaves], abs(O) of each leaf of the old tree.
            rate: float64[old leaves], E_P, arrivals per ms.
            asked: float64[types, old leaves], queries of each old leaf, see :meth:`Statistics.asked`; None: those of J.
        """
        leaves = [self.leaves[node] if node in self.leaves else self._merged(node) for node in nodes]
        cells = np.array([leaf.cell for leaf in leaves], np.int64)
        h = np.array([path_coverage(self.statistics, leaf.cell, leaf.path) for leaf in leaves])
        origins = _origins(leaves)
        held, arriving = origins.carry_objects(objects), origins.carry_objects(rate)
        if asked is not None:
            asked = origins.carry_asked(asked, self._asked, self.statistics.asked(cells))
        return self.statistics.workloads(cells, held, arriving, h.reshape(-1, 2), asked)

    # ------------------------------------------------------------------------------------------------------ operations

    def split(self, node: int, kind: int) -> range:
        """Split a leaf.

        By space: into quarters, with J's shares of objects (equal shares if J counted none or is not that deep) and of
        the continuous queries that reached each quarter. By text: into four keyword lists, see
        :func:`spatialstream.index.qt.wordlists.split_words`; every child receives all continuous queries.

        Args:
            node: the leaf's node.
            kind: SPATIAL or TEXTUAL.

        Returns:
            The children.
        """
        leaf = self.leaves.pop(node)
        self._kind[node], first = kind, self._quad(node)
        self._first[node] = first
        parts = self._split_by_text(node, leaf) if kind == TEXTUAL else self._split_by_space(node, leaf)
        for child, part in enumerate(parts):
            self._box[first + child] = quarter(self._box[node], child) if kind == SPATIAL else self._box[node]
            self.leaves[first + child] = part
        return self.children(node)

    def merge(self, node: int) -> None:
        """Merge the four children of a node into one leaf. The node must be one that :meth:`can_merge`."""
        leaf = self._merged(node)
        for child in self.children(node):
            del self.leaves[child]
            self._kind[child] = LEAF
        self._gaps.append(self._first[node])
        self._kind[node], self._first[node] = LEAF, -1
        self._made.pop(node, None)
        self.leaves[node] = leaf

    def _quad(self, parent: int) -> int:
        """Allocate four children of ``parent``: from a gap, or as new nodes."""
        if self._gaps:
            first = self._gaps.pop()
        else:
            first = len(self._kind)
            for column, value in ((self._kind, LEAF), (self._first, -1), (self._parent, -1), (self._depth, 0)):
                column.extend([value] * 4)
            self._box.extend([self._box[parent]] * 4)
        for each in range(first, first + 4):
            self._kind[each], self._first[each] = LEAF, -1
            self._parent[each], self._depth[each] = parent, self._depth[parent] + 1
        return first

    def _split_by_space(self, node: int, leaf: _Leaf) -> list[_Leaf]:
        boxes = [quarter(self._box[node], child) for child in range(4)]
        cells = self.statistics.cells_of(np.array(boxes))
        counts = self.statistics.objects[cells]
        share = (counts / counts.sum() if counts.sum() > 0.0 else np.full(4, 0.25)).tolist()
        reached = [self._continuous(cell) for cell in cells.tolist()]
        whole = self._continuous(leaf.cell)
        asked = [min(1.0, each / whole) if whole > 0.0 else 1.0 for each in reached]
        parts: list[_Sources] = [{} for _ in range(4)]
        for source, (objects, queries) in leaf.sources.items():
            inside = self._quarter_of(source, boxes) if len(leaf.sources) > 1 else -1
            for child in range(4):
                if inside < 0:
                    parts[child][source] = (objects * share[child], queries * asked[child])
                elif inside == child:
                    parts[child][source] = (objects, queries)
        return [_Leaf(int(cells[child]), leaf.path, parts[child]) for child in range(4)]

    def _quarter_of(self, source: int, boxes: list[BoxTuple]) -> int:
        """The quarter that contains an old (merged) leaf; -1 if no quarter contains it."""
        west, south, east, north = self.tree.leaves.box[source].tolist()
        return next((i for i, box in enumerate(boxes) if _within((west, south, east, north), box)), -1)

    def _continuous(self, cell: int) -> float:
        """The number of continuous queries that reached a cell."""
        return float(self.statistics.reached[_FIRST_CONTINUOUS:, cell].sum())

    def _split_by_text(self, node: int, leaf: _Leaf) -> list[_Leaf]:
        made = self._made[node] = split_words(self.statistics, leaf.cell, leaf.path)
        return [
            replace(leaf, path=(*leaf.path, (made.lists, child)), sources=_scaled(leaf.sources, share, 1.0))
            for child, share in enumerate(made.share.tolist())
        ]

    def _merged(self, node: int) -> _Leaf:
        """The leaf that results from merging a node's children.

        Textual shares of one cell have the same queries, so a quarter of each share's queries is counted. Quarters of a
        cell have some queries in common; the factor is J's ratio of queries that reach the whole cell to the sum over
        its quarters.
        """
        parts = [self.leaves[child] for child in self.children(node)]
        cell = int(self.statistics.cells_of(np.array([self._box[node]]))[0])
        keep = 0.25
        if self._kind[node] == SPATIAL:
            reached = sum(self._continuous(part.cell) for part in parts)
            keep = min(1.0, self._continuous(cell) / reached) if reached > 0.0 else 1.0
        sources: _Sources = {}
        for part in parts:
            for source, (objects, queries) in _scaled(part.sources, 1.0, keep).items():
                before = sources.get(source, (0.0, 0.0))
                sources[source] = (before[0] + objects, min(1.0, before[1] + queries))
        path = parts[0].path
        return _Leaf(cell, path[:-1] if self._kind[node] == TEXTUAL else path, sources)

    # ---------------------------------------------------------------------------------------------------- the new tree

    def finish(self) -> Adjusted:
        """Build the new tree, with its leaves numbered depth first."""
        order = self._walk()
        numbers = [node for node in order if self._kind[node] == LEAF]
        textual = [node for node in order if self._kind[node] == TEXTUAL]
        nodes = Nodes.of(self._kind, self._first, self._box, numbers, textual)
        origins = _origins([self.leaves[node] for node in numbers])
        old = self.tree.leaves
        leaves = Leaves(
            np.ascontiguousarray(nodes.box[numbers]),
            np.array([len(self.leaves[node].path) > 0 for node in numbers], np.bool_),
            origins.carry_objects(old.objects),
            origins.carry_objects(old.load),
        )
        texts, table = _textual_nodes(self.tree, self.statistics, [self._text(node) for node in textual])
        return Adjusted(QTTree(self.tree.space, nodes, texts, table, leaves), origins)

    def _text(self, node: int) -> TextualSplit | int:
        """A textual node created by this editor, or the row of a node of the old tree."""
        made = self._made.get(node)
        return self._row[node] if made is None else made


def _origins(leaves: Sequence[_Leaf]) -> Origins:
    """The origins of several leaves."""
    pairs = [(i, source, *shares) for i, leaf in enumerate(leaves) for source, shares in sorted(leaf.sources.items())]
    leaf, source, objects, queries = np.array(pairs, np.float64).reshape(-1, 4).T
    return Origins(leaf.astype(np.int32), source.astype(np.int32), objects, queries, len(leaves))


def _scaled(sources: _Sources, objects: float, queries: float) -> _Sources:
    return {source: (objects * share[0], queries * share[1]) for source, share in sources.items()}


# ------------------------------------------------------------------------------------------------------- textual nodes


def _textual_nodes(
    tree: QTTree, statistics: Statistics, nodes: Sequence[TextualSplit | int]
) -> tuple[TextualNodes, Table]:
    """Build the rows of old and new textual nodes over a dictionary of the words that they use."""
    old_nodes = np.array([node for node in nodes if isinstance(node, int)], np.int64)
    new_nodes = [node for node in nodes if not isinstance(node, int)]
    is_new = np.array([not isinstance(node, int) for node in nodes], np.bool_)
    words, columns = _dictionary(tree, statistics, new_nodes)
    old = tree.texts
    before = old.mask.shape[1]
    cells, old_cell = np.unique(old.cell[old_nodes], return_inverse=True)
    mask = np.zeros((len(nodes), len(words)), np.uint8)
    chance = np.zeros((len(cells) + len(new_nodes), len(words), 2), np.uint32)
    mask[~is_new, :before] = old.mask[old_nodes]
    chance[: len(cells), :before] = old.chance[cells]
    for i, (row, node, (column, listed)) in enumerate(zip(np.flatnonzero(is_new), new_nodes, columns, strict=True)):
        mask[row, column] = node.lists.bits[listed]
        chance[len(cells) + i, column] = node.chance
    cell = np.empty(len(nodes), np.int32)
    cell[~is_new], cell[is_new] = old_cell, len(cells) + np.arange(len(new_nodes))
    longest = max([old.lengths.shape[2]] + [node.lengths.shape[1] for node in new_nodes])
    used = np.flatnonzero(chance.any(axis=(0, 2)))
    texts = TextualNodes(
        np.ascontiguousarray(mask[:, used]),
        cell,
        np.ascontiguousarray(chance[:, used]),
        _rows(is_new, old.objects[old_nodes], [np.ones(4)] * len(new_nodes)),
        _rows(is_new, old.mass[old_nodes], [node.mass for node in new_nodes]),
        _rows(is_new, old.weight[old_nodes], [node.weight for node in new_nodes]),
        _rows(is_new, _wide(old.lengths[old_nodes], longest), [_wide(node.lengths, longest) for node in new_nodes]),
    )
    return texts, make_table(np.ascontiguousarray(words[used]))


def _rows(is_new: Flags, old: Array, made: list[Array]) -> Array:
    """Merge rows of the old tree and new rows into one array, in the order of the nodes."""
    result = np.empty((len(is_new), *old.shape[1:]), old.dtype)
    result[~is_new] = old
    if made:
        result[is_new] = made
    return result


def _wide(lengths: Floats, width: int) -> Floats:
    """Pad distributions over 0, 1, ... with zeros to ``width`` entries."""
    return np.pad(lengths, [(0, 0)] * (lengths.ndim - 1) + [(0, width - lengths.shape[-1])])


def _dictionary(
    tree: QTTree, statistics: Statistics, made: Sequence[TextualSplit]
) -> tuple[Words, list[tuple[Codes, Flags]]]:
    """Extend the old dictionary by the words of new textual nodes; if there are too many, by those of most weight.

    Returns:
        The hashes; and for each new node the columns of its words that are in the dictionary, and for each of its g
        words whether it is in the dictionary: bool[g].
    """
    importance = np.zeros(len(statistics.terms))
    for node in made:
        importance[node.lists.term] += node.chance.sum()
    old = tree.dictionary
    unknown = np.flatnonzero((importance > 0.0) & (find_all(tree.table, statistics.terms) < 0))
    room = max(KEYWORDS - len(old), 0)
    added = unknown[np.lexsort((unknown, -importance[unknown]))[:room]]
    words = np.concatenate([old, statistics.terms[added]])
    column = find_all(make_table(words), statistics.terms)
    columns = []
    for node in made:
        found = column[node.lists.term]
        columns.append((found[found >= 0], found >= 0))
    return words, columns
