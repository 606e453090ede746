"""H, the part of the query keywords that a leaf may hold, by its frozen keyword list and by J as it is today (Eqn 1).

SSTD, sections 4.1.1 and 4.2. When a tree is built, H counts the words that the sample's objects have in each leaf. A
live leaf holds many more objects, which are not looked at again. What is known for certain of a leaf's words is only
how the textual nodes above it route: so H is the probability, in today's M_srq or M_skq of the leaf's cell, that each
of them has a keyword in the list that leads to the leaf, or in none of its four lists, as nothing keeps such words
apart. A leaf that no textual node is above may hold every word: its H is 1.

Cost: O(keywords of the cell's queries x textual nodes above x log of their lists' lengths) for a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.index.base import GlobalIndex
from spatialstream.index.qttree import QTTree
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Bytes, Codes, Flags, Floats, Ints
from spatialstream.model.hashing import find_all

__all__ = ["KeywordLists", "Path", "TreeLists", "hold", "leaf_coverage", "path_coverage"]


@dataclass(frozen=True, slots=True, eq=False)
class KeywordLists:
    """The keyword lists of the four children of a textual node, in J's terms.

    Attributes:
        term: int64[m], positions in :attr:`Statistics.terms`, ascending.
        bits: uint8[m]; bit i says that the term is in the list of child i.
    """

    term: Ints
    bits: Bytes

    def hold(self, child: int, term: Codes) -> Flags:
        """Whether objects with each of the terms may be below the child: bool[n]."""
        if not len(self.term):
            return np.ones(len(term), np.bool_)
        at = np.minimum(np.searchsorted(self.term, term), len(self.term) - 1)
        bits = np.where(self.term[at] == term, self.bits[at], 0)
        result: Flags = (bits == 0) | ((bits >> child) & 1).astype(np.bool_)
        return result


Path = tuple[tuple[KeywordLists, int], ...]
"""The lists of the textual nodes from the root down to a leaf, and the child of each that leads on."""


class TreeLists:
    """The lists of a tree's textual nodes.

    Args:
        tree: the tree.
        statistics: J, in whose terms they are given.
    """

    def __init__(self, tree: QTTree, statistics: Statistics) -> None:
        self._mask = tree.texts.mask
        column = find_all(tree.table, statistics.terms)
        self._term = np.flatnonzero(column >= 0)
        self._column = column[self._term]
        self._made: dict[int, KeywordLists] = {}

    def along(self, path: tuple[tuple[int, int], ...]) -> Path:
        """The lists on a path of :meth:`QTTree.textual_paths`."""
        return tuple((self._of_row(row), child) for row, child in path)

    def _of_row(self, row: int) -> KeywordLists:
        if row not in self._made:
            bits = self._mask[row, self._column]
            listed = bits != 0
            self._made[row] = KeywordLists(self._term[listed], bits[listed])
        return self._made[row]


def hold(path: Path, term: Codes) -> Flags:
    """Whether objects with each of the terms may come to the end of a path: bool[n]."""
    result = np.ones(len(term), np.bool_)
    for lists, child in path:
        result &= lists.hold(child, term)
    return result


def path_coverage(statistics: Statistics, cell: int, path: Path) -> tuple[float, float]:
    """H_srq and H_skq of what is at the end of a path.

    Where no query with a keyword reaches the cell, nothing is known of its words, and H is 1.

    Args:
        statistics: J.
        cell: the cell of J whose M_srq and M_skq count.
        path: the keyword lists on the way.
    """
    if not path:
        return 1.0, 1.0
    srq, skq = (_held_share(path, *counts.entries(cell)) for counts in (statistics.srq, statistics.skq))
    return srq, skq


def _held_share(path: Path, term: Codes, count: Floats) -> float:
    total = float(count.sum())
    return float(count[hold(path, term)].sum()) / total if total > 0.0 else 1.0


def leaf_coverage(index: GlobalIndex, statistics: Statistics, cells: Ints) -> Floats:
    """H_srq and H_skq of each leaf, float64[n, 2].

    Args:
        index: the index; the leaves of one that is no QT-tree may hold every word.
        statistics: J.
        cells: int64[n], the cell of J of each leaf.
    """
    result = np.ones((len(cells), 2))
    if isinstance(index, QTTree):
        lists = TreeLists(index, statistics)
        for leaf, path in enumerate(index.textual_paths()):
            result[leaf] = path_coverage(statistics, int(cells[leaf]), lists.along(path))
    return result
