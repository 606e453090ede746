"""H, the fraction of query keywords that a leaf may hold, from frozen keyword lists and the current J (Eqn 1).

SSTD, sections 4.1.1 and 4.2. When a tree is built, H counts the words of the sample's objects in each leaf. A live leaf
holds many more objects, which are not inspected again. All that is certain about a leaf's words is how the textual
nodes above it route. So H is the probability, in the current M_srq or M_skq of the leaf's cell, that for each of these
nodes a keyword is in the list that leads to the leaf, or in none of the node's four lists, because such words may go to
any child. A leaf without textual nodes above it may hold every word: its H is 1.

Cost: O(keywords of the cell's queries x textual nodes above x log of their lists' lengths) per leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Bytes, Codes, Flags, Floats, Ints
from spatialstream.model.hashing import Table, find_all

__all__ = ["KeywordLists", "Path", "TreeLists", "hold", "path_coverage"]


@dataclass(frozen=True, slots=True, eq=False)
class KeywordLists:
    """The keyword lists of the four children of a textual node, in J's numbering of terms.

    Attributes:
        term: int64[m], positions in :attr:`Statistics.terms`, ascending.
        bits: uint8[m]; bit i is set if the term is in the list of child i.
    """

    term: Ints
    bits: Bytes

    def hold(self, child: int, term: Codes) -> Flags:
        """Whether objects with each of the terms may be routed to the child: bool[n]."""
        if not len(self.term):
            return np.ones(len(term), np.bool_)
        at = np.minimum(np.searchsorted(self.term, term), len(self.term) - 1)
        bits = np.where(self.term[at] == term, self.bits[at], 0)
        result: Flags = (bits == 0) | ((bits >> child) & 1).astype(np.bool_)
        return result


Path = tuple[tuple[KeywordLists, int], ...]
"""The keyword lists of the textual nodes from the root to a leaf, each with the child on the path."""


class TreeLists:
    """The keyword lists of a tree's textual nodes.

    Args:
        mask: uint8[r, g], the masks of the tree's textual nodes over its dictionary.
        table: the dictionary.
        statistics: J, whose numbering of terms the lists use.
    """

    def __init__(self, mask: Bytes, table: Table, statistics: Statistics) -> None:
        self._mask = mask
        column = find_all(table, statistics.terms)
        self._term = np.flatnonzero(column >= 0)
        self._column = column[self._term]
        self._made: dict[int, KeywordLists] = {}

    def along(self, path: tuple[tuple[int, int], ...]) -> Path:
        """The keyword lists along a path of textual nodes: of each the row, and the child on the path."""
        return tuple((self._of_row(row), child) for row, child in path)

    def _of_row(self, row: int) -> KeywordLists:
        if row not in self._made:
            bits = self._mask[row, self._column]
            listed = bits != 0
            self._made[row] = KeywordLists(self._term[listed], bits[listed])
        return self._made[row]


def hold(path: Path, term: Codes) -> Flags:
    """Whether objects with each of the terms may reach the end of a path: bool[n]."""
    result = np.ones(len(term), np.bool_)
    for lists, child in path:
        result &= lists.hold(child, term)
    return result


def path_coverage(statistics: Statistics, cell: int, path: Path) -> tuple[float, float]:
    """H_srq and H_skq of the leaf at the end of a path.

    If no query with keywords reaches the cell, nothing is known of its words, and H is 1.

    Args:
        statistics: J.
        cell: the cell of J whose M_srq and M_skq are used.
        path: the keyword lists on the path.
    """
    if not path:
        return 1.0, 1.0
    srq, skq = (_held_share(path, *counts.entries(cell)) for counts in (statistics.srq, statistics.skq))
    return srq, skq


def _held_share(path: Path, term: Codes, count: Floats) -> float:
    total = float(count.sum())
    return float(count[hold(path, term)].sum()) / total if total > 0.0 else 1.0
