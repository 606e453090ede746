"""The most frequent terms in a region, where only those are wanted (STQ; paper, section 5.2).

Each segment has codes of its own, so to add up the counts of all terms costs several times what it costs to count them,
and nearly all of them are of terms that occur once or twice. So segments are taken for the nodes of TPUT (Cao and Wang,
PODC 2004): the k first terms of one segment, counted in all of them, give a number that the k-th term has at least.
That number is shared out to the segments, and a term that comes to its share in none of them cannot be among the first.
What is left, a few terms more than k, is looked up in every segment.

Cost: that of counting (:mod:`~spatialstream.local.snapshot.termtables`), and O(segments) lookups a term that is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spatialstream.local.arrays import Array, grown
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.snapshot.termtables import count
from spatialstream.local.snapshot.zranges import Ask
from spatialstream.local.wordtable import add_word, find_word, gather, slots_with
from spatialstream.model.hashing import Seed
from spatialstream.model.kernels import kernel

__all__ = ["top_words"]

_SMALL = 256


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


@kernel
def _look_up(
    table: Array,
    begin: Array,
    codes: Array,
    times: Array,
    counts: Array,
    offsets: Array,
    words: Array,
    first: int,
    last: int,
    totals: Array,
) -> None:
    """Add up what all rows have of words [first, last): of word i in ``totals[i + 1]``."""
    marked = np.empty(last - first, np.int64)
    for row in range(len(table)):
        if begin[row] == begin[row + 1]:
            continue
        s = columns_at(table, row)
        m = 0
        for i in range(first, last):
            code = find_word(s.slots, s.word_offsets, s.words, words, offsets[i], offsets[i + 1])
            if code >= 0:
                counts[code] = i + 1
                marked[m] = code
                m += 1
        for j in range(begin[row], begin[row + 1]):
            totals[counts[codes[j]]] += times[j]  # of all others in the first one: there is no branch to foretell
        for i in range(m):
            counts[marked[i]] = 0


@kernel
def _add_words(
    table: Array, begin: Array, codes: Array, chosen: Array, slots: Array, offsets: Array, words: Array, n: int
) -> tuple[int, Array]:
    """Add the words of some codes, which are ascending positions in ``codes``, to n others: (how many, bytes).

    Of more than there is room for not all are added.
    """
    row = 0
    for i in chosen:
        while i >= begin[row + 1]:
            row += 1
        s = columns_at(table, row)
        if n == len(offsets) - 1:
            break
        _, n, words = add_word(
            slots, offsets, words, n, s.words, s.word_offsets[codes[i]], s.word_offsets[codes[i] + 1]
        )
    return n, words


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
    ask = Ask(*asked)
    most = 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if s.t_max > ask.t_after and s.t_min <= ask.t_last:
            most = max(most, len(s.word_offsets) - 1)
    if most > len(counts):
        counts = np.zeros(most, np.int32)
    codes, times = np.empty(2 * most + 1, np.int32), np.empty(2 * most + 1, np.int32)
    begin, weights = np.zeros(len(table) + 1, np.int64), np.zeros(len(table), np.float64)
    size, checked, reached, heaviest = 0, 0, 0, 0
    for row in range(len(table)):
        begin[row] = size
        s = columns_at(table, row)
        if s.t_max <= ask.t_after or s.t_min > ask.t_last or s.t_min > s.t_max:
            continue
        if size + len(s.word_offsets) > len(codes):
            room = 2 * (size + len(s.word_offsets))
            codes, times = grown(codes, size, room), grown(times, size, room)
        m, more = count(table, row, asked, counts, codes[size:])
        checked += more
        total = 0
        for i in range(size, size + m):
            times[i] = counts[codes[i]]
            counts[codes[i]] = 0
            total += times[i]
        weights[row] = np.sqrt(total)
        size += m
        begin[row + 1] = size
        if m > begin[heaviest + 1] - begin[heaviest]:
            heaviest = row
        reached += m > 0
    begin[len(table)] = size
    offsets, words = np.zeros(1, np.int32), np.empty(0, np.uint8)
    limit = size // max(1, 2 * reached)
    first, last = begin[heaviest], begin[heaviest + 1]
    if last - first < k or limit < k:
        return False, offsets, words, begin, checked, counts
    chosen, n = np.empty(size, np.int64), 0
    least = _kth(times[first:last], k)
    for i in range(first, last):
        if times[i] > least or (times[i] == least and n < k):
            chosen[n] = i
            n += 1
    slots = slots_with(seed, offsets, words, 0, limit)
    offsets = np.zeros(limit + 1, np.int32)
    n, words = _add_words(table, begin, codes, chosen[:n], slots, offsets, words, 0)
    totals = np.zeros(limit + 1, np.int64)
    _look_up(table, begin, codes, times, counts, offsets, words, 0, n, totals)
    bound = _kth(totals[1 : n + 1], k) - 1  # at most what a term has that is not among the first
    shares = weights / weights.sum() * bound
    m, known = 0, n
    for row in range(len(table)):
        share = int(shares[row])
        for i in range(begin[row], begin[row + 1]):
            if times[i] > share:
                chosen[m] = i
                m += 1
    n, words = _add_words(table, begin, codes, chosen[:m], slots, offsets, words, n)
    if n == limit:
        return False, offsets, words, begin, checked, counts
    _look_up(table, begin, codes, times, counts, offsets, words, known, n, totals)
    totals = totals[1 : n + 1]
    kept = np.flatnonzero(totals >= _kth(totals, k))
    offsets, words = gather(offsets, words, kept)
    return True, offsets, words, totals[kept], checked, counts
