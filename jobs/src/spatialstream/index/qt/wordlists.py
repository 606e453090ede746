"""Textual partitioning of a live leaf without access to its objects: keyword lists from J (SSTD, section 5.3).

Algorithm 1 forms the lists of a textual node's children from their objects. When a live tree is adjusted, objects do
not move, so the keywords of the queries of the leaf's cell (M_srq and M_skq) are distributed instead: in descending
order of weight, each to the list with the smallest weight so far, so that the four lists are queried about equally
often. A word that outweighs all others together is put into every list: it separates nothing, and its objects are
spread evenly rather than all sent to one child.

Routing sends an object to the child whose list has most of its words, weighted by p_w. With Zipf's law and several
words per object, the heaviest word would nearly always decide, and its child would get half of all objects or more. So
in these nodes all words have the same weight, the mean of p_w, and the stored H and abs(O) of the four children are
equal: an object goes to the list with most of its words, and ties are broken by its id. Measured on streams of 1 to 15
words per object, the fullest child got 28 % instead of up to 73 %.

Cost: O(keywords of the cell's queries + listed words x log 4).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spatialstream.index.qt.coverage import KeywordLists, Path, hold
from spatialstream.index.qt.tree import UNIT
from spatialstream.index.statistics import SKQ, SRQ, Statistics
from spatialstream.model.arrays import Bytes, Codes, Floats, Ints

__all__ = ["MOST_WORDS", "TextualSplit", "split_words"]

MOST_WORDS = 1_024
"""Maximum number of words in the four lists; the remaining words, the least queried ones, are in no list."""

_ALL = 0b1111

_WORDS_OF_AN_OBJECT = 8
"""Assumed number of words of an object, for estimating the fraction of objects that have a word."""


@dataclass(frozen=True, slots=True, eq=False)
class TextualSplit:
    """A new textual node; g words.

    Attributes:
        lists: the keyword lists.
        chance: uint32[2], the mean p_w in M_srq and M_skq of the words of the lists, as multiples of 1 / UNIT.
        mass: int64[4, 2], H_srq and H_skq of each child, as multiples of 1 / UNIT.
        weight: float64[2], Pr(srq) p_srq and Pr(skq) p_skq of the cell.
        lengths: float64[2, l], Pr(abs(q.φ) = l) of SRQ and SKQ.
        share: float64[4], the expected share of the objects of each child.
    """

    lists: KeywordLists
    chance: npt.NDArray[np.uint32]
    mass: Ints
    weight: Floats
    lengths: Floats
    share: Floats


def split_words(statistics: Statistics, cell: int, path: Path) -> TextualSplit:
    """Distribute the words of a cell's queries over four lists.

    The expected shares of the objects assume that words are as frequent in objects as in queries. Without any words
    they are equal.

    Args:
        statistics: J.
        cell: the cell of J that the leaf is, or is a share of.
        path: the lists of the textual nodes above the leaf: only words that the leaf may hold are distributed.
    """
    of_cell = statistics.cell(cell)
    weight = np.ascontiguousarray((of_cell.arrival * of_cell.reach)[[SRQ, SKQ]])
    term, p = _words(statistics, cell)
    may_come = hold(path, term)
    term, p = term[may_come], p[may_come]
    importance = p @ weight
    heaviest = np.lexsort((term, -importance))[:MOST_WORDS]
    heaviest = heaviest[importance[heaviest] > 0.0]
    importance = importance[heaviest] / max(float(importance.sum()), 1e-300)
    objects = 1.0 - (1.0 - np.minimum(importance, 1.0)) ** _WORDS_OF_AN_OBJECT
    bits = _deal(objects)
    in_list = (bits[np.newaxis] >> np.arange(4, dtype=np.uint8)[:, np.newaxis]) & 1
    share = (in_list / np.maximum(in_list.sum(axis=0), 1)) @ objects
    share = share / share.sum() if share.sum() > 0.0 else np.full(4, 0.25)
    held = p[heaviest].sum(axis=0)
    chance = np.ceil(held / max(len(heaviest), 1) * UNIT).astype(np.uint32)
    level = np.tile((held / 4 * UNIT).astype(np.int64), (4, 1))
    order = np.argsort(term[heaviest])
    heaviest, bits = heaviest[order], bits[order]
    lists = KeywordLists(term[heaviest].astype(np.int64), bits)
    return TextualSplit(lists, chance, level, weight, of_cell.lengths, share)


def _words(statistics: Statistics, cell: int) -> tuple[Codes, Floats]:
    """The keywords of the SRQs and SKQs that reach a cell: (term int32[m] ascending, p_w float64[m, 2])."""
    entries = [counts.entries(cell) for counts in (statistics.srq, statistics.skq)]
    term, place = np.unique(np.concatenate([each[0] for each in entries]), return_inverse=True)
    p = np.zeros((len(term), 2))
    start = 0
    for kind, (terms, count) in enumerate(entries):
        total = max(float(count.sum()), 1e-300)
        p[:, kind] = np.bincount(place[start : start + len(terms)], count, minlength=len(term)) / total
        start += len(terms)
    return term, p


def _deal(importance: Floats) -> Bytes:
    """Assign words, given in descending importance, to lists: uint8[g], as bits."""
    bits = np.empty(len(importance), np.uint8)
    half = 0.5 * float(importance.sum())
    lists = [(0.0, child) for child in range(4)]
    for i, each in enumerate(importance.tolist()):
        if each > half:
            bits[i] = _ALL
            continue
        load, child = heapq.heappop(lists)
        bits[i] = 1 << child
        heapq.heappush(lists, (load + each, child))
    return bits
