"""The workload of a kd^t-tree's nodes, from a sample (PS2Stream, Definition 1 and Algorithm 1).

The load of a set of objects O and of queries Q that come to one place is ``c1 |O| |Q| + c2 |O| + c3 |Q|`` per ms:
checking, receiving objects, registering queries. (Dropping queries, the paper's c4, costs nothing that matters here.)
In |O| |Q| the queries are those that are registered at a time; in c3 |Q| those that come. O is a *set*: an object that
reaches one place for two reasons comes once.

The paper has no values of c1 to c3. Here they are the times that the planner has measured
(:data:`spatialstream.balance.planner.MEASURED`). What it measures of checking is the time of a pair of a query and an
object with its word, so c1 is that time the fraction of all pairs of the sample that are such.

A query is an *entry* for each of its groups of words: with the group's rarest word, or with none. Its region counts as
the boxes around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from spatialstream.index.a_grid.a_grid import cells_of
from spatialstream.index.a_grid.costs import Rectangle
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats, Ints, Words, runs
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.expressions import expanded, searched
from spatialstream.model.geometry import EVERYWHERE
from spatialstream.model.hashing import hash_strings
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["ENTRY", "MATCH", "NO_WORD", "OBJECT", "Workload"]

OBJECT, ENTRY, MATCH = 1.83, 0.56, 0.074
"""Microseconds of an object, of registering a query, and of a pair of a query and an object with its word."""

NO_WORD = -1
"""The word of an entry without one."""

Lists = tuple[Ints, Ints]
"""Lists of numbers: (offsets int64[n + 1], numbers)."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """n sampled objects and e entries of queries.

    Attributes:
        column, row: int32[n], the fine cell of each object.
        rate: float64[n], objects per ms that each stands for.
        ids: uint64[n], hashes of their ids.
        terms: their words, as positions in ``hashes``.
        hashes: uint64[v], hashes of all words of objects and queries, ascending.
        postings: (offsets int64[v + 1], objects int64): the objects that have each word.
        ranges: int64[q, 2, 4], the fine cells that each query concerns, inclusive, as at most two ranges of (first
            column, first row, last column, last row).
        keywords: the words of each query, likewise.
        entry: int64[e], the query of each entry, ascending.
        word: int64[e], its word, or :data:`NO_WORD`.
        coming: float64[e], entries per ms that it stands for.
        standing: float64[e], entries at a time that it stands for.
        pair: c1, microseconds of a pair of an object and an entry.
    """

    column: Codes
    row: Codes
    rate: Floats
    ids: Words
    terms: Lists
    hashes: Words
    postings: tuple[Ints, Ints]
    ranges: Ints
    keywords: Lists
    entry: Ints
    word: Ints
    coming: Floats
    standing: Floats
    pair: float

    @classmethod
    def of(cls, objects: ObjectBatch, statistics: Statistics, frequencies: Frequencies, side: int) -> Self:
        """That of sampled objects and of the CRQs of J, on a grid of ``side`` columns and rows."""
        space, crqs = statistics.space, statistics.crqs
        terms, keywords, hashes = _together(objects.terms, searched(crqs.keywords))
        owner, word = _entries(crqs, frequencies, hashes)
        times = statistics.crq_counts[owner] / max(statistics.span, 1.0)
        lasts = np.minimum(crqs.duration, statistics.span)[owner]
        each = np.repeat(np.arange(len(objects)), np.diff(terms[0]))
        postings = each[np.argsort(terms[1], kind="stable")]
        counts = np.bincount(terms[1], minlength=len(hashes))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        standing = times * np.maximum(lasts, 0)
        share = np.append(counts / max(len(objects), 1), 1.0)[word]  # the last one is of NO_WORD
        pair = MATCH * float(standing @ share) / max(float(standing.sum()), 1e-300)
        column, row = cells_of(space, side, objects.x, objects.y)
        rate = statistics.rates(objects.x, objects.y)
        ranges = _ranges(space, crqs, side)
        return cls(
            *(column, row, rate, hash_strings(objects.ids), terms, hashes, (starts, postings)),
            *(ranges, keywords, owner, word, times, standing, pair),
        )

    def objects_within(self, rectangle: Rectangle, among: Ints) -> Ints:
        """The objects in a rectangle, of some."""
        west, south, east, north = rectangle
        column, row = self.column[among], self.row[among]
        return among[(column >= west) & (column < east) & (row >= south) & (row < north)]

    def entries_within(self, rectangle: Rectangle, among: Ints) -> Ints:
        """The entries whose queries concern a rectangle, of some."""
        west, south, east, north = rectangle
        first_x, first_y, last_x, last_y = self.ranges[self.entry[among]].transpose(2, 0, 1)
        meets = (first_x < east) & (last_x >= west) & (first_y < north) & (last_y >= south)
        result: Ints = among[meets.any(axis=1)]
        return result

    def load(self, objects: Ints, entries: Ints) -> float:
        """Definition 1 of a set of objects and a set of entries, in microseconds per ms."""
        return self.sums(
            float(self.rate[objects].sum()),
            float(self.coming[entries].sum()),
            float(self.standing[entries].sum()),
        )

    def sums(self, rate: float, coming: float, standing: float) -> float:
        """Definition 1 of objects and entries per ms, and of entries at a time."""
        return self.pair * rate * standing + OBJECT * rate + ENTRY * coming

    def similarity(self, objects: Ints, entries: Ints) -> float:
        """The cosine of the word frequencies of objects and of queries; 1 without queries: no text tells them apart."""
        queries = np.unique(self.entry[entries])
        if not len(queries):
            return 1.0
        one, other = _counted(self.terms, objects), _counted(self.keywords, queries)
        n = max(len(one), len(other))
        one, other = (np.pad(each, (0, n - len(each))).astype(np.float64) for each in (one, other))
        lengths = float(np.sqrt((one @ one) * (other @ other)))
        return float(one @ other) / lengths if lengths else 0.0


def _counted(lists: Lists, rows: Ints) -> Floats:
    """How many of some rows have each word, up to the last word that one of them has."""
    offsets, codes = lists
    counts: Floats = np.bincount(codes[runs(offsets[rows], offsets[rows + 1] - offsets[rows])]).astype(np.float64)
    return counts


def _together(one: TermLists, other: TermLists) -> tuple[Lists, Lists, Words]:
    """Two columns of word lists with the codes of one vocabulary, and the hashes of its words, ascending."""
    words = [hash_strings(each.vocabulary) for each in (one, other)]
    hashes, codes = np.unique(np.concatenate(words), return_inverse=True)
    split = len(words[0])
    first, second = (
        (lists.offsets.astype(np.int64), of[lists.codes].astype(np.int64))
        for lists, of in ((one, codes[:split]), (other, codes[split:]))
    )
    return first, second, hashes


def _entries(crqs: QueryBatch, frequencies: Frequencies, hashes: Words) -> tuple[Ints, Ints]:
    """The query of each entry, and its word."""
    found = expanded(crqs.keywords)
    some = np.diff(found.groups.offsets) > 0
    word = np.full(len(some), NO_WORD, np.int64)
    word[some] = np.searchsorted(hashes, frequencies.rarest(found.groups)[some])
    return found.owner.astype(np.int64), word


def _ranges(space: Space, crqs: QueryBatch, side: int) -> Ints:
    """The fine cells that each query concerns, see :class:`Workload`."""
    parts = region_parts(space, crqs.regions)
    parts[crqs.regions.kind == EVERYWHERE] = space.bounds, NOWHERE
    flat = np.nan_to_num(parts.reshape(-1, 4), posinf=0.0, neginf=0.0)
    low, high = (cells_of(space, side, flat[:, i], flat[:, i + 1]) for i in (0, 2))
    ranges: Ints = np.stack([*low, *high], axis=1).astype(np.int64)
    ranges[parts.reshape(-1, 4)[:, 0] > parts.reshape(-1, 4)[:, 2]] = (side, side, -1, -1)
    return ranges.reshape(-1, 2, 4)
