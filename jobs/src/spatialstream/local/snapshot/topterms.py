"""The most frequent terms in a region, without the counts of all other terms (STQ; paper, section 5.2).

Each segment has its own codes, so summing the counts of all terms over segments costs several times as much as counting
them, and nearly all of these terms occur once or twice. So segments are treated like the nodes of TPUT (Cao and Wang,
PODC 2004): the top k terms of one segment, counted in all segments, give a lower bound of the count of the k-th term.
The bound is divided among the segments; a term that reaches its share in no segment cannot be among the top k. The
remaining terms, a few more than k, are looked up in every segment.

Cost: that of counting (:mod:`~spatialstream.local.snapshot.termtables`), and O(segments) lookups per remaining term.
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
"""Values below this are counted in buckets, one for each value."""


@kernel
def _kth(values: Array, k: int) -> int:
    """The k-th largest of nonnegative values, most of which are small; 1 <= k <= their number."""
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
    """The term counts of the rows of a table.

    Attributes:
        begin: int64[rows + 1], start of each row in the other two columns.
        codes: int32, codes of terms.
        times: int32, number of objects with each term.
    """

    begin: Ints
    codes: Codes
    times: Codes


@kernel
def _counted(table: Array, asked: tuple[Any, ...], counts: Array) -> tuple[_Counted, int, Array]:
    """The term counts of each row, the number of objects checked, and ``counts``, reset to zeros."""
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
    """Positions in [first, last), ascending, of the k largest counts, possibly with some equal to the smallest."""
    least = _kth(c.times[first:last], k)
    chosen, n = np.empty(last - first, np.int64), 0
    for i in range(first, last):
        if c.times[i] > least or (c.times[i] == least and n < k):
            chosen[n] = i
            n += 1
    return chosen[:n]


@kernel
def _not_below(c: _Counted, bound: int) -> Array:
    """Positions, ascending, of all terms whose total count over all rows may exceed ``bound``.

    The bound is divided among rows in proportion to the square roots of their sizes: with plain proportions, a small
    row would have a share of less than one, and all of its terms would remain.
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
    """Add the words at ascending positions to n others: (new number of words, bytes).

    Stops when ``offsets`` is full.
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
    """Sum the counts of words [first, last) over all rows: those of word i in ``totals[i + 1]``."""
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
            totals[counts[c.codes[j]]] += c.times[j]  # all other terms are added to the first total, to avoid a branch
        for i in range(m):
            counts[marked[i]] = 0


@kernel
def top_words(
    table: Array, asked: tuple[Any, ...], k: int, seed: Seed, counts: Array
) -> tuple[bool, Array, Array, Array, int, Array]:
    """The terms of a range-keyword search whose counts are at least that of the k-th most frequent term.

    Args:
        table: segments.
        asked: see :class:`spatialstream.local.snapshot.zranges.Ask`.
        k: number of terms, at least 1.
        seed: seed of a table of words.
        counts: int32, zeros; is replaced if it is too short.

    Returns:
        whether this method pays off (otherwise there is no result); terms (offsets, bytes), int64 counts, the number of
        objects checked, and ``counts``, reset to zeros.
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
    bound = _kth(totals[1 : known + 1], k) - 1  # upper bound of the count of a term that is not in the result
    n, words = _add_words(table, c, _not_below(c, bound), slots, offsets, words, known)
    if n == limit:
        return False, offsets, words, lengths, checked, counts
    _look_up(table, c, counts, offsets, words, known, n, totals)
    totals = totals[1 : n + 1]
    kept = np.flatnonzero(totals >= _kth(totals, k))
    offsets, words = gather(offsets, words, kept)
    return True, offsets, words, totals[kept], checked, counts
