"""The most frequent terms in a region, where only those are wanted (STQ; paper, section 5.2).

Each segment has codes of its own, so to add up the counts of all terms costs several times what it costs to count them,
and nearly all of them are of terms that occur once or twice. So segments are taken for the nodes of TPUT (Cao and Wang,
PODC 2004): the k first terms of one segment, counted in all of them, give a number that the k-th term has at least.
That number is shared out to the segments, and a term that comes to its share in none of them cannot be among the first.
What is left, a few terms more than k, is looked up in every segment.

Cost: that of counting (:mod:`~spatialstream.local.snapshot.termtables`), and O(segments) lookups a term that is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spatialstream.local.arrays import Array, Codes, Ints, grown
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.snapshot.termtables import count, zeros_for
from spatialstream.local.snapshot.zranges import Ask, is_reached
from spatialstream.local.wordtable import add_word, find_word, gather, slots_with
from spatialstream.model.hashing import Seed
from spatialstream.model.kernels import kernel

__all__ = ["top_words"]

_SMALL = 256
"""Below it values are counted by size."""


@kernel
def _kth(values: Array, k: int) -> int:
    """The k-th largest of values that are not negative, of which most are small; 1 <= k <= their number."""
    often = np.zeros(_SMALL, np.int64)
    for value in values:
        often[min(value, _SMALL - 1)] += 1
    small, left = _SMALL - 1, k
    while often[small] < left:
        left -= often[small]
        small -= 1
    if small < _SMALL - 1:
        return small
    large = values[values >= _SMALL - 1]
    return int(np.partition(large, len(large) - left)[len(large) - left])


class _Counted(NamedTuple):
    """What is counted in the rows of a table.

    Attributes:
        begin: int64[rows + 1], where each row's begins in the other two.
        codes: int32, of terms.
        times: int32, how many objects have each.
    """

    begin: Ints
    codes: Codes
    times: Codes


@kernel
def _counted(table: Array, asked: tuple[Any, ...], counts: Array) -> tuple[_Counted, int, Array]:
    """What there is in each row, how many objects were checked, and ``counts``, with zeros."""
    ask = Ask(*asked)
    counts = zeros_for(table, ask, counts)
    codes, times = np.empty(2 * len(counts) + 1, np.int32), np.empty(2 * len(counts) + 1, np.int32)
    begin = np.zeros(len(table) + 1, np.int64)
    size, checked = 0, 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if is_reached(s, ask.t_after, ask.t_last):
            if size + len(s.word_offsets) > len(codes):
                room = 2 * (size + len(s.word_offsets))
                codes, times = grown(codes, size, room), grown(times, size, room)
            m, more = count(table, row, asked, counts, codes[size:])
            checked += more
            for i in range(size, size + m):
                times[i] = counts[codes[i]]
                counts[codes[i]] = 0
            size += m
        begin[row + 1] = size
    return _Counted(begin, codes[:size], times[:size]), checked, counts


@kernel
def _largest_of(c: _Counted, first: int, last: int, k: int) -> Array:
    """Positions in [first, last), ascending, of the k largest numbers there, and perhaps of some of equal size."""
    least = _kth(c.times[first:last], k)
    chosen, n = np.empty(last - first, np.int64), 0
    for i in range(first, last):
        if c.times[i] > least or (c.times[i] == least and n < k):
            chosen[n] = i
            n += 1
    return chosen[:n]


@kernel
def _not_below(c: _Counted, bound: int) -> Array:
    """Positions, ascending, of all terms that may have more than ``bound`` in all rows together.

    The rows share the bound by the roots of what they have: in proportion, a row of little would have a share of less
    than one, and all of its terms would be left.
    """
    weights = np.zeros(len(c.begin) - 1, np.float64)
    for row in range(len(weights)):
        weights[row] = np.sqrt(c.times[c.begin[row] : c.begin[row + 1]].sum())
    shares = weights / weights.sum() * bound
    chosen, n = np.empty(len(c.codes), np.int64), 0
    for row in range(len(weights)):
        share = int(shares[row])
        for i in range(c.begin[row], c.begin[row + 1]):
            if c.times[i] > share:
                chosen[n] = i
                n += 1
    return chosen[:n]


@kernel
def _add_words(
    table: Array, c: _Counted, chosen: Array, slots: Array, offsets: Array, words: Array, n: int
) -> tuple[int, Array]:
    """Add the words at ascending positions to n others: (how many there are, bytes).

    Of more than ``offsets`` has room for not all are added.
    """
    row = 0
    for i in chosen:
        while i >= c.begin[row + 1]:
            row += 1
        if n == len(offsets) - 1:
            break
        s, code = columns_at(table, row), c.codes[i]
        _, n, words = add_word(slots, offsets, words, n, s.words, s.word_offsets[code], s.word_offsets[code + 1])
    return n, words


@kernel
def _look_up(
    table: Array, c: _Counted, counts: Array, offsets: Array, words: Array, first: int, last: int, totals: Array
) -> None:
    """Add up what all rows have of words [first, last): of word i in ``totals[i + 1]``."""
    marked = np.empty(last - first, np.int64)
    for row in range(len(table)):
        if c.begin[row] == c.begin[row + 1]:
            continue
        s = columns_at(table, row)
        m = 0
        for i in range(first, last):
            code = find_word(s.slots, s.word_offsets, s.words, words, offsets[i], offsets[i + 1])
            if code >= 0:
                counts[code] = i + 1
                marked[m] = code
                m += 1
        for j in range(c.begin[row], c.begin[row + 1]):
            totals[counts[c.codes[j]]] += c.times[j]  # of all others in the first: there is no branch to foretell
        for i in range(m):
            counts[marked[i]] = 0


@kernel
def top_words(
    table: Array, asked: tuple[Any, ...], k: int, seed: Seed, counts: Array
) -> tuple[bool, Array, Array, Array, int, Array]:
    """The terms of a range-keyword search that at least as many of its objects have as have the k-th.

    Args:
        table: segments.
        asked: see :class:`spatialstream.local.snapshot.zranges.Ask`.
        k: how many terms, at least 1.
        seed: of a table of words.
        counts: int32, zeros; is replaced if it is too short.

    Returns:
        whether this is a way that pays, otherwise nothing was found; terms (offsets, bytes), int64 counts, how many
        objects were checked, and ``counts``, with zeros.
    """
    c, checked, counts = _counted(table, asked, counts)
    lengths = np.diff(c.begin)
    limit = len(c.codes) // max(1, 2 * int(np.count_nonzero(lengths)))  # a lookup costs about as much as two additions
    offsets, words = np.zeros(1, np.int32), np.empty(0, np.uint8)
    if limit < k or lengths.max() < k:
        return False, offsets, words, lengths, checked, counts
    heaviest = np.argmax(lengths)
    slots = slots_with(seed, offsets, words, 0, limit)
    offsets, totals = np.zeros(limit + 1, np.int32), np.zeros(limit + 1, np.int64)
    largest = _largest_of(c, c.begin[heaviest], c.begin[heaviest + 1], k)
    known, words = _add_words(table, c, largest, slots, offsets, words, 0)
    _look_up(table, c, counts, offsets, words, 0, known, totals)
    bound = _kth(totals[1 : known + 1], k) - 1  # at most what a term has that is not among the first
    n, words = _add_words(table, c, _not_below(c, bound), slots, offsets, words, known)
    if n == limit:
        return False, offsets, words, lengths, checked, counts
    _look_up(table, c, counts, offsets, words, known, n, totals)
    totals = totals[1 : n + 1]
    kept = np.flatnonzero(totals >= _kth(totals, k))
    offsets, words = gather(offsets, words, kept)
    return True, offsets, words, totals[kept], checked, counts
