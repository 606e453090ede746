"""Frozen frequencies of words, which say under which word of a group a CRQ is registered: its rarest (PS2Stream, IV-C).

They are those of the sample that an index was built from, and a part of the index: so every router and every slot takes
the same word, as long as the version is in use. A word that is not among them is rarer than all that are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from spatialstream.model.arrays import Floats, Ints, Words
from spatialstream.model.hashing import hash_strings
from spatialstream.model.terms import TermLists

__all__ = ["MOST", "Frequencies"]

MOST = 16_384
"""Maximum number of words: of more, the most frequent ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """The frequencies of some words.

    Attributes:
        hashes: uint64[f], hashes of the words, ascending.
        counts: int64[f], in how many objects each is, about.
    """

    hashes: Words
    counts: Ints

    @classmethod
    def of(cls, terms: TermLists, weight: Floats | None = None) -> Self:
        """Those of the words of n objects.

        Args:
            terms: the words of each.
            weight: float64[n], how many objects each stands for; 1 by default.
        """
        each = None if weight is None else np.repeat(weight, np.diff(terms.offsets))
        counts = np.bincount(terms.codes, each, len(terms.vocabulary))
        hashes, which = np.unique(hash_strings(terms.vocabulary), return_inverse=True)
        total = np.ceil(np.bincount(which, counts, len(hashes))).astype(np.int64)
        kept = np.sort(np.lexsort((hashes, -total))[:MOST])
        kept = kept[total[kept] > 0]
        return cls(hashes[kept], total[kept])

    def of_hashes(self, hashes: Words) -> Ints:
        """The frequency of each word, int64[n]; 0 of one that is not known."""
        if not len(self.hashes):
            return np.zeros(len(hashes), np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[at] == hashes, self.counts[at], 0)

    def rarest(self, groups: TermLists) -> Words:
        """The hash of the rarest word of each of n groups, uint64[n]; of equally rare ones that of the least hash.

        0 for a group without words.
        """
        result = np.zeros(len(groups), np.uint64)
        sizes = np.diff(groups.offsets)
        some = np.flatnonzero(sizes)
        if not len(some):
            return result
        hashes = hash_strings(groups.vocabulary)
        order = np.lexsort((hashes, self.of_hashes(hashes)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        start = int(groups.offsets[0])
        codes = groups.codes[start : int(groups.offsets[-1])]
        first = np.minimum.reduceat(rank[codes], groups.offsets[some] - start)
        result[some] = hashes[order[first]]
        return result
