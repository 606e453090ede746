"""The kd^t-tree of PS2Stream (Chen et al., ICDE 2017, section IV), as a grid^t.

A kd-tree cuts space into *cells*, along the lines of a fine grid. A cell where objects and queries have different words
is divided further by text: each word belongs to one of its *shares*. A leaf is a share; a cell that is not divided is
one leaf. As in the grid^t (section IV-C) a table has the cell of every fine cell, so an object's cell is one lookup.

- An object's *home* is one share of its cell, by a hash of its id.
- A CRQ is registered, in each cell that its region meets, at the share of the rarest word of each of its groups; one
  without words at all shares.
- An object has *copies* at the shares of its words under which CRQs are registered (H2 of the paper); without knowing
  these, at the shares of all its words.
- A match is reported by the share of the rarest word of the first group that the object satisfies; of a CRQ without
  words by the home.

A cell has a table of the words that were dealt to its shares when it was built. Other words belong to the share that
their hash says. Which word of a group is the rarest follows from frequencies that are a part of the index.

Cost: per object a lookup, and O(log words of the cell) for each of its words; per CRQ that of the cells that it meets
and of its words. 4 bytes of memory per fine cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.base import Changes, GlobalIndex, LeafWords, Leaves
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Codes, Flags, Floats, Ints, Words, runs
from spatialstream.model.errors import StateError
from spatialstream.model.expressions import expanded
from spatialstream.model.hashing import distinct, hash_strings
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.tables import counted
from spatialstream.model.terms import TermLists

__all__ = ["KdT"]

_CRQ = CODE[QueryType.CRQ]

_FIGURES = ("leaves.objects", "leaves.load")


# ------------------------------------------------------------------------------------------------------------ kernels


@lean_kernel
def _leaf_of(first: Codes, offsets: Ints, words: Words, shares: Codes, cell: int, word: Any) -> Any:
    """The leaf of a word in a cell."""
    start, size = first[cell], first[cell + 1] - first[cell]
    if size == 1:
        return start
    low, high = offsets[cell], offsets[cell + 1]
    while low < high:
        middle = (low + high) // 2
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    if low < offsets[cell + 1] and words[low] == word:
        return start + shares[low]
    return start + np.int32(word % np.uint64(size))


@kernel
def _leaves_of(first: Codes, offsets: Ints, words: Words, shares: Codes, cell: Codes, word: Words) -> Codes:
    """The leaf of each word in a cell of its own, int32[n]."""
    out = np.empty(len(cell), np.int32)
    for i in range(len(out)):
        out[i] = _leaf_of(first, offsets, words, shares, cell[i], word[i])
    return out


@lean_kernel
def _listed(offsets: Ints, hashes: Words, leaf: int, word: Any) -> Any:
    """Whether a word is one of a leaf's, whose hashes ascend."""
    low, high = offsets[leaf], offsets[leaf + 1]
    while low < high:
        middle = (low + high) // 2
        if hashes[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low < offsets[leaf + 1] and hashes[low] == word


@kernel
def _copies(
    first: Codes,
    offsets: Ints,
    words: Words,
    shares: Codes,
    cell: Codes,
    home: Codes,
    spans: Codes,
    codes: Codes,
    hashes: Words,
    filtered: bool,
    asked: Ints,
    asked_words: Words,
    row_out: Codes,
    leaf_out: Codes,
) -> int:
    """Write the leaves of the words of each object, ascending and without its home; return their number.

    ``spans`` and ``codes`` are the objects' words, ``hashes`` those of the vocabulary; if ``filtered``, ``asked`` and
    ``asked_words`` are the words that count at each leaf.
    """
    seen = np.full(first[len(first) - 1], -1, np.int64)
    end = 0
    for i in range(len(cell)):
        if first[cell[i] + 1] - first[cell[i]] == 1:
            continue
        seen[home[i]] = i
        start = end
        for j in range(spans[i], spans[i + 1]):
            word = hashes[codes[j]]
            leaf = _leaf_of(first, offsets, words, shares, cell[i], word)
            if seen[leaf] == i or (filtered and not _listed(asked, asked_words, leaf, word)):
                continue
            seen[leaf] = i
            at = end
            while at > start and leaf_out[at - 1] > leaf:
                leaf_out[at] = leaf_out[at - 1]
                at -= 1
            leaf_out[at] = leaf
            row_out[end] = i
            end += 1
    return end


@kernel
def _first_held(
    row: Codes, query: Codes, first: Ints, offsets: Codes, words: Codes, spans: Codes, codes: Codes
) -> Ints:
    """The first group of each query that its object has, int64[m], if it has one of them.

    The groups of query q are those from ``first[q]`` up to ``first[q + 1]``, with ``words`` by ``offsets``; the words
    of the objects are ``codes`` by ``spans``.
    """
    out = np.empty(len(row), np.int64)
    for i in range(len(row)):
        last = first[query[i] + 1] - 1
        found = last  # if it is none of the others
        for group in range(first[query[i]], last):
            lacks = 0
            for k in range(offsets[group], offsets[group + 1]):
                has = 0
                for j in range(spans[row[i]], spans[row[i] + 1]):
                    if codes[j] == words[k]:
                        has = 1
                        break
                if has == 0:
                    lacks = 1
                    break
            if lacks == 0:
                found = group
                break
        out[i] = found
    return out


# ---------------------------------------------------------------------------------------------------------- the index


class KdT(GlobalIndex):
    """A kd^t-tree of n leaves in c cells.

    Args:
        cells: the cells, each a rectangle of fine cells.
        first: int32[c + 1]; the shares of cell i are the leaves from ``first[i]`` up to ``first[i + 1]``.
        offsets: int64[c + 1]; the words that were dealt in cell i are those from ``offsets[i]`` up to
            ``offsets[i + 1]``.
        words: uint64[w], hashes of words, ascending in each cell.
        shares: int32[w], the share of each in its cell.
        frequencies: of words.
        objects: float64[n], see :class:`Leaves`.
        load: float64[n], likewise.

    Attributes:
        cell: int32[n], the cell of each leaf.
        sizes: int32[c], number of shares of each cell.
        table: ``first``, ``offsets``, ``words`` and ``shares``.

    Raises:
        StateError: the columns do not fit together.
    """

    kind: ClassVar[str] = "kd-t"
    replicates: ClassVar[bool] = True

    def __init__(
        self,
        cells: AGrid,
        first: Codes,
        offsets: Ints,
        words: Words,
        shares: Codes,
        frequencies: Frequencies,
        objects: Floats,
        load: Floats,
    ) -> None:
        _check(len(cells.leaves), first, offsets, words, shares)
        n = int(first[-1])
        if not objects.shape == load.shape == (n,):
            raise StateError(f"a kd-t of {n} leaves has as many numbers of objects and loads")
        self.space, self.cells, self.frequencies = cells.space, cells, frequencies
        self.first, self.table = first, (first, offsets, words, shares)
        self.sizes: Codes = np.diff(first)
        self.cell: Codes = np.repeat(np.arange(len(first) - 1, dtype=np.int32), self.sizes)
        self.leaves = Leaves(cells.leaves.box[self.cell], (self.sizes > 1)[self.cell], objects, load)

    # ------------------------------------------------------------------------------------------------------ by space

    def route_objects(self, objects: ObjectBatch) -> Codes:
        """See :class:`GlobalIndex`."""
        cell = self.cells.route_objects(objects)
        return self._home(cell, objects)

    def _home(self, cell: Codes, objects: ObjectBatch) -> Codes:
        if (self.sizes == 1).all():
            return self.first[cell]
        share = hash_strings(objects.ids) % self.sizes[cell].astype(np.uint64)
        home: Codes = self.first[cell] + share.astype(np.int32)
        return home

    def route_regions(self, regions: Regions) -> tuple[Codes, Codes]:
        """The leaves that each region intersects: (row int32[m], leaf int32[m]), ascending by (row, leaf)."""
        row, cell = self.cells.route_regions(regions)
        sizes = self.sizes[cell]
        rows: Codes = np.repeat(row, sizes)
        return rows, runs(self.first[cell], sizes).astype(np.int32)

    def nearest_leaves(self, at: Floats) -> Codes:
        """See :class:`GlobalIndex`."""
        return self.first[self.cells.nearest_leaves(at)]

    # ------------------------------------------------------------------------------------------------------- by text

    def copies(self, objects: ObjectBatch, words: LeafWords | None = None) -> tuple[Codes, Codes]:
        """See :class:`GlobalIndex`."""
        cell, terms = self.cells.route_objects(objects), objects.terms
        asked = (np.zeros(1, np.int64), np.empty(0, np.uint64)) if words is None else words
        row, leaf = np.empty(len(terms.codes), np.int32), np.empty(len(terms.codes), np.int32)
        given = terms.offsets, terms.codes, hash_strings(terms.vocabulary)
        home, filtered = self._home(cell, objects), words is not None
        found = _copies(*self.table, cell, home, *given, filtered, *asked, row, leaf)
        return row[:found], leaf[:found]

    def route_continuous(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        """See :class:`GlobalIndex`."""
        row, leaf, _ = self._registered(queries)
        pairs = np.unique(row * len(self.leaves) + leaf)
        row, leaf = np.divmod(pairs, len(self.leaves))
        return row.astype(np.int32), leaf.astype(np.int32)

    def registered(self, queries: QueryBatch) -> LeafWords:
        """See :class:`GlobalIndex`; those of one leaf ascend."""
        queries = queries.take(np.flatnonzero(queries.code == _CRQ))
        _, leaf, word = self._registered(queries)
        leaf = leaf[: len(word)]  # those without words come last
        order = np.lexsort((word, leaf))
        leaf, word = leaf[order], word[order]
        first = np.ones(len(leaf), np.bool_)
        first[1:] = (leaf[1:] != leaf[:-1]) | (word[1:] != word[:-1])
        offsets = np.zeros(len(self.leaves) + 1, np.int64)
        np.cumsum(np.bincount(leaf[first], minlength=len(self.leaves)), out=offsets[1:])
        return offsets, word[first]

    def _registered(self, queries: QueryBatch) -> tuple[Ints, Ints, Words]:
        """The leaves of each query, (row, leaf) int64[m] each, and the words by which the first of them are chosen."""
        row, cell = self.cells.route_regions(queries.regions)
        owner, word, bare = self._pivots(queries.keywords)
        first = np.searchsorted(owner, np.arange(len(queries) + 1))
        sizes = np.where(bare, 0, np.diff(first))[row]
        groups = runs(first[row], sizes)
        by_word = np.repeat(row, sizes).astype(np.int64), word[groups]
        leaf = _leaves_of(*self.table, np.repeat(cell, sizes), by_word[1])
        rest = bare[row]
        everywhere = self.sizes[cell[rest]]
        rows = np.concatenate([by_word[0], np.repeat(row[rest], everywhere).astype(np.int64)])
        leaves = np.concatenate([leaf.astype(np.int64), runs(self.first[cell[rest]], everywhere)])
        return rows, leaves, by_word[1]

    def _pivots(self, keywords: TermLists) -> tuple[Codes, Words, Flags]:
        """The query and the rarest word of each group of n expressions, and whether each has a group without words."""
        found = expanded(keywords)
        bare = np.zeros(len(keywords), np.bool_)
        bare[found.owner[np.diff(found.groups.offsets) == 0]] = True
        return found.owner, self.frequencies.rarest(found.groups), bare

    def reporter(self, objects: ObjectBatch, row: Codes, keywords: TermLists, query: Codes) -> Codes:
        """See :class:`GlobalIndex`."""
        cell = self.cells.route_objects(objects)
        leaf = self._home(cell, objects)[row]
        found = expanded(keywords)
        first = np.searchsorted(found.owner, np.arange(len(keywords) + 1))
        words = _as_in(objects.terms.vocabulary, found.groups)
        group = _first_held(row, query, first, found.groups.offsets, words, objects.terms.offsets, objects.terms.codes)
        some = np.diff(found.groups.offsets)[group] > 0
        pivot = self.frequencies.rarest(found.groups)[group[some]]
        leaf[some] = _leaves_of(*self.table, cell[row[some]], pivot)
        return leaf

    # -------------------------------------------------------------------------------------------------------- figures

    def by_leaf(self, statistics: Statistics, figures: Floats) -> Floats:
        """See :class:`GlobalIndex`. Of the CRQs of a cell each share has its part."""
        result: Floats = self.cells.by_leaf(statistics, figures)[:, self.cell]
        result[_CRQ] /= self.sizes[self.cell]
        return result

    def composition(self) -> Changes:
        """See :class:`GlobalIndex`."""
        cells, divided = len(self.sizes), int((self.sizes > 1).sum())
        shares = int(self.sizes[self.sizes > 1].sum())
        text = f"{counted(cells, 'cell', 'cells')}, {divided:,} of them divided by text into {shares:,} shares"
        return Changes({"cells": cells, "shares": shares}, text)

    def weighed(self, objects: Floats, load: Floats) -> Self:
        """See :class:`GlobalIndex`."""
        other = copy(self)
        other.leaves = Leaves(self.leaves.box, self.leaves.textual, objects, load)
        return other

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """See :class:`GlobalIndex`."""
        first, offsets, words, shares = self.table
        arrays: dict[str, Array] = {
            "rectangles": self.cells.rectangles,
            "first": first,
            "words.offsets": offsets,
            "words": words,
            "words.shares": shares,
            "frequencies.words": self.frequencies.hashes,
            "frequencies": self.frequencies.counts,
        }
        figures = dict(zip(_FIGURES, (self.leaves.objects, self.leaves.load), strict=True))
        return arrays | figures, {"space": str(self.space), "side": self.cells.side}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """See :class:`GlobalIndex`.

        Raises:
            StateError: the arrays are not those of a kd^t-tree.
        """
        nothing = np.zeros(len(arrays["rectangles"]))
        named = {"rectangles": arrays["rectangles"], **dict.fromkeys(_FIGURES, nothing)}
        table = arrays["first"], arrays["words.offsets"], arrays["words"], arrays["words.shares"]
        frequencies = Frequencies(arrays["frequencies.words"], arrays["frequencies"])
        objects, load = (arrays[name] for name in _FIGURES)
        return cls(AGrid.from_arrays(named, meta), *table, frequencies, objects, load)


def _as_in(vocabulary: pa.StringArray, groups: TermLists) -> Codes:
    """The words of groups as codes of another vocabulary, int32[words]; -1 of a word that it does not have."""
    codes, _ = distinct(pa.concat_arrays([vocabulary, groups.vocabulary]))
    n = len(vocabulary)  # whose words are distinct, so each is its own code
    known = codes[n:]
    result: Codes = np.where(known < n, known, -1).astype(np.int32)[groups.codes]
    return result


def _check(cells: int, first: Codes, offsets: Ints, words: Words, shares: Codes) -> None:
    """Refuse a table that does not describe the shares of the cells.

    Raises:
        StateError: it does not.
    """
    if not first.shape == offsets.shape == (cells + 1,) or first[0] or offsets[0]:
        raise StateError(f"a kd-t of {cells} cells has as many runs of shares and of words")
    if (np.diff(first) < 1).any() or (np.diff(offsets) < 0).any() or offsets[-1] != len(words):
        raise StateError("each cell of a kd-t has a share, and the words of cells follow each other")
    of = np.repeat(np.diff(first), np.diff(offsets))
    if shares.shape != words.shape or ((shares < 0) | (shares >= of)).any():
        raise StateError("each word of a kd-t belongs to a share of its cell")
    starts = np.zeros(len(words) + 1, np.bool_)
    starts[offsets[:-1]] = True
    if (~starts[1:-1] & (words[1:] <= words[:-1])).any():
        raise StateError("the words of each cell of a kd-t ascend by hash")
