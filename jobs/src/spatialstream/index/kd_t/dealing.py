"""Text partitioning of a cell: its words are dealt to shares (PS2Stream, PartitionNode of Algorithm 1).

Words under which queries are registered are dealt by falling o_w q_w, the product of the objects and of the queries
with the word, each to the share whose load (Definition 1) grows least. That counts *sets* of objects: a word costs a
share nothing whose objects come for its other words anyway. The paper does not say how words are dealt.

Left to itself the least growth would take all words to one share. So of the shares only those take part that have about
the mean load or less (:data:`SLACK`). And only the :data:`MOST` words with the largest products are dealt; what is
left, and every word that comes later, belongs to the share that its hash says.

Cost: O(shares x objects with the word) for each word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spatialstream.index.kd_t.workload import ENTRY, NO_WORD, OBJECT, Workload
from spatialstream.model.arrays import Codes, Flags, Floats, Ints, Words, runs
from spatialstream.model.kernels import kernel

__all__ = ["MOST", "SLACK", "Dealt", "Part", "deal", "divided"]

MOST = 1_024
"""Maximum number of words of a cell that are dealt."""

SLACK = 0.1
"""A share takes part as long as its load exceeds the mean by at most this fraction of it. Without any slack the words
of a topic, which the same objects have, would be torn apart: the share that has taken one is above the mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What comes to a leaf.

    Attributes:
        objects: the sampled objects, ascending.
        entries: the entries of queries, ascending.
        load: Definition 1.
    """

    objects: Ints
    entries: Ints
    load: float


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """The shares of a cell.

    Attributes:
        parts: what comes to each.
        words: int64[w], the words that were dealt, see :class:`Workload`; ascending.
        shares: int64[w], the share of each.
    """

    parts: tuple[Part, ...]
    words: Ints
    shares: Ints

    @property
    def load(self) -> float:
        """Of all shares."""
        return sum(part.load for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """What comes to a cell, by word.

    Attributes:
        words: int64[w], the words under which queries are registered, ascending.
        worded: the entries with a word.
        of: int64, the word of each of these, as a position in ``words``.
        bare: the entries without a word.
        first, rows: (offsets int64[w + 1], positions): the objects of the cell that have each word.
    """

    words: Ints
    worded: Ints
    of: Ints
    bare: Ints
    first: Ints
    rows: Ints

    @classmethod
    def of_entries(cls, workload: Workload, objects: Ints, entries: Ints) -> _Cell:
        """That of objects and entries."""
        word = workload.word[entries]
        has = word != NO_WORD
        words, of = np.unique(word[has], return_inverse=True)
        return cls(words, entries[has], of, entries[~has], *_postings(workload, objects, words))


class _Asked(NamedTuple):
    """Words under which queries are registered: the objects with each, what comes of queries, and what stands."""

    first: Ints
    rows: Ints
    coming: Floats
    standing: Floats


class _Shares(NamedTuple):
    """Of each share the objects that come, their rate, and its queries that come and that stand."""

    member: Flags
    rate: Floats
    coming: Floats
    standing: Floats


@kernel
def _deal(chosen: Ints, asked: _Asked, rate: Floats, shares: _Shares, pair: float, share: Ints) -> None:
    """Give each chosen word the share whose load grows least, of those with about the mean load or less."""
    n = len(shares.rate)
    load = np.empty(n)
    for word in chosen:
        for i in range(n):
            load[i] = pair * shares.rate[i] * shares.standing[i] + OBJECT * shares.rate[i] + ENTRY * shares.coming[i]
        highest = load.mean() * (1.0 + SLACK)
        taken, least, gained = -1, np.inf, 0.0
        for i in range(n):
            if load[i] > highest:
                continue
            new = 0.0
            for at in range(asked.first[word], asked.first[word + 1]):
                if not shares.member[i, asked.rows[at]]:
                    new += rate[asked.rows[at]]
            growth = (shares.rate[i] + new) * (shares.standing[i] + asked.standing[word])
            growth = pair * (growth - shares.rate[i] * shares.standing[i]) + OBJECT * new
            if growth < least:
                taken, least, gained = i, growth, new
        share[word] = taken
        for at in range(asked.first[word], asked.first[word + 1]):
            shares.member[taken, asked.rows[at]] = True
        shares.rate[taken] += gained
        shares.coming[taken] += asked.coming[word]
        shares.standing[taken] += asked.standing[word]


def deal(workload: Workload, objects: Ints, entries: Ints, shares: int) -> Dealt:
    """Deal the words of a cell.

    Args:
        workload: the sample.
        objects: the objects of the cell.
        entries: the entries of queries that concern it.
        shares: how many shares.
    """
    cell = _Cell.of_entries(workload, objects, entries)
    words, first, rows = cell.words, cell.first, cell.rows
    coming, standing = (
        np.bincount(cell.of, each[cell.worded], len(words)).astype(np.float64)
        for each in (workload.coming, workload.standing)
    )
    rate = workload.rate[objects]
    frequent = np.bincount(np.repeat(np.arange(len(words)), np.diff(first)), rate[rows], len(words))
    weight = frequent * standing
    order = np.lexsort((workload.hashes[words], -weight))[:MOST]
    chosen = order[weight[order] > 0.0]
    share = (workload.hashes[words] % np.uint64(shares)).astype(np.int64)

    member = np.zeros((shares, len(objects)), np.bool_)
    member[(workload.ids[objects] % np.uint64(shares)).astype(np.int64), np.arange(len(objects))] = True
    rates = member @ rate
    comes, stands = (np.full(shares, float(each[cell.bare].sum())) for each in (workload.coming, workload.standing))
    _deal(
        chosen, _Asked(first, rows, coming, standing), rate, _Shares(member, rates, comes, stands), workload.pair, share
    )
    chosen = np.sort(chosen)
    return _divided(workload, objects, cell, shares, words[chosen], share[chosen])


def divided(
    workload: Workload, objects: Ints, entries: Ints, shares: int, hashes: Words, dealt: Codes | Ints
) -> tuple[Part, ...]:
    """What comes to each share of a cell whose words are dealt already.

    Args:
        workload: the sample.
        objects: the objects of the cell.
        entries: the entries of queries that concern it.
        shares: how many shares.
        hashes: uint64[w], the words that were dealt.
        dealt: int[w], the share of each.
    """
    _, at, among = np.intersect1d(workload.hashes, hashes, assume_unique=True, return_indices=True)
    cell = _Cell.of_entries(workload, objects, entries)
    return _divided(workload, objects, cell, shares, at, np.asarray(dealt, np.int64)[among]).parts


def _divided(workload: Workload, objects: Ints, cell: _Cell, shares: int, dealt: Ints, share_of: Ints) -> Dealt:
    """The shares of a cell; words that were not dealt belong to the share that their hash says."""
    share = (workload.hashes[cell.words] % np.uint64(shares)).astype(np.int64)
    _, at, among = np.intersect1d(cell.words, dealt, assume_unique=True, return_indices=True)
    share[at] = share_of[among]
    member = np.zeros((shares, len(objects)), np.bool_)
    member[(workload.ids[objects] % np.uint64(shares)).astype(np.int64), np.arange(len(objects))] = True
    member[np.repeat(share, np.diff(cell.first)), cell.rows] = True
    parts = []
    for each in range(shares):
        here = objects[member[each]]
        there = np.sort(np.concatenate([cell.bare, cell.worded[share[cell.of] == each]]))
        parts.append(Part(here, there, workload.load(here, there)))
    return Dealt(tuple(parts), dealt, share_of)


def _postings(workload: Workload, objects: Ints, words: Ints) -> tuple[Ints, Ints]:
    """The objects of a cell that have each word, as positions among them: (offsets int64[words + 1], positions)."""
    place = np.full(len(workload.rate), -1, np.int64)
    place[objects] = np.arange(len(objects))
    starts, all_rows = workload.postings
    sizes = starts[words + 1] - starts[words]
    rows = place[all_rows[runs(starts[words], sizes)]]
    here = rows >= 0
    of = np.repeat(np.arange(len(words)), sizes)[here]
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(of, minlength=len(words)))])
    return first, rows[here]
