"""KeywordGrid: standing range-keyword queries, pruned by space and by rarest keyword together.

The idea of FAST (Mahmood, Aref, Aly: "FAST: Frequency-Aware Indexing for Spatio-Textual Data Streams", ICDE 2018), as
immutable flat arrays: a pyramid of grids; a query is kept at the deepest level where its cover still meets only a few
cells, and there under its rarest keyword alone. What is done otherwise than there:

- A query is in every cell that its cover meets and a point lies in one cell of a level, so each match is found once.
- Everything of a cell lies together: a directory (hash table) leads to the cell, which has a filter (one bit a
  keyword), a hash table from keywords to posting lists, and the lists. The objects of a batch are visited in Z-order,
  so that neighbours find their cell in the first-level cache.
- A posting holds what decides most candidates on the spot: what the cell sees of the cover, in 15-bit coordinates,
  and one signature bit for each of two more keywords. Rounding is monotone, so strictly inside is inside and strictly
  outside is outside: only a point on the border of the rounded rectangle, a circle, or a second keyword needs the
  query itself. And it says how many postings are left of its list, so that all candidates of a block are one loop.
- Objects go through stages (terms, cells, filters, tables, postings, exact checks) in blocks, each stage a loop that
  keeps what passes without a branch, because a processor mispredicts tests that pass half of the time; and that asks
  for the memory which the next stage will read (:mod:`spatialstream.local.cachelines`).
- Nobody who chooses queries chooses who shares a slot: cells have keyed hashes, words are numbered in a random order,
  both by a seed (:func:`~spatialstream.model.hashing.seed_of`) that follows from all queries of the grid.
- Words are looked up once per batch (:mod:`spatialstream.local.keywords`), with a mask of the levels at which each is
  some query's index keyword.

Cost: an object takes one directory lookup per level that one of its terms is used at, one filter bit per such term, and
one comparison per posting found. A query takes at most 5 postings of 16 bytes, averaged over the places where it may
lie; a square 2.6 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.arrays import Array, Bytes, Codes, Floats, Ints, grown
from spatialstream.local.cachelines import peek, prefetch
from spatialstream.local.columns import writable
from spatialstream.local.keywords import Int, KeywordTable, TermKeys
from spatialstream.model.covers import cover_boxes
from spatialstream.model.eight_bytes import lean_kernel
from spatialstream.model.geometry import CIRCLE, contains
from spatialstream.model.hashing import Seed, keyed_number, seed_of
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Frequency", "GridMatches", "KeywordGrid", "Objects", "ProbeBatch"]

Frequency = Callable[[pa.StringArray], Floats]
"""Estimated frequency in objects (any unit) of each word of a vocabulary."""

MAX_LEVEL = 20
"""Deepest level of the pyramid; level l has 2^l x 2^l cells."""

_CELLS = 5.0
_TERMS = 8  # of an object; it scales an estimate
_LEVEL_WORTH = 4.0  # candidates an object that are worth a level of their own
_MIX = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer
_TOP = 4294967295.0
_CHECK_REGION, _CHECK_KEYWORDS = 2, 4
_LONGEST = (1 << 19) - 1  # what a posting says of its list's rest, at most
_LOCALITY_BITS = 7
_BLOCK = 128  # objects that go through a stage together
_ROOM = 4096  # candidates that are compared at once; less than _LONGEST
_GROUP = 8  # turns of a loop that end together, so that the processor need not guess when
_AHEAD = 12  # objects between asking for terms and reading them
_LINE = 8  # 64-bit integers of a cache line
_LINES = 8  # of a filter, asked for at once
_LANE_ONES = 0x0001_0001_0001_0001
_LOW_LANES = 0x0000_7FFF_0000_7FFF
_HIGH_LANES = 0x7FFF_0000_7FFF_0000
_LANE_TOPS = 0x8000_8000_8000_8000 - (1 << 64)  # as a signed 64-bit integer


# --------------------------------------------------------------------------------------------------- space to integers


@lean_kernel
def _coordinate(value: float, low: float, scale: float) -> Int:
    """Monotone in ``value``: 0 .. 2^32 - 1 over the space, clamped outside."""
    return np.int64(min(max((value - low) * scale, 0.0), _TOP))


@kernel
def _cover_rectangles(
    frame: Floats, kind: int, a: float, b: float, c: float, d: float, boxes: Floats, rectangles: Ints
) -> int:
    parts = cover_boxes(frame, frame[6] != 0.0, kind, a, b, c, d, boxes)
    for part in range(parts):
        for side in range(4):
            axis = side & 1
            rectangles[part, side] = _coordinate(boxes[part, side], frame[axis], frame[4 + axis])
    return parts


def _frame(space: Space) -> Floats:
    """west, south, east, north, scale of x, scale of y, geographic."""
    west, south, east, north = space.bounds
    scale_x, scale_y = (min(2.0**32 / extent, 1e300) for extent in (east - west, north - south))
    return np.array([west, south, east, north, scale_x, scale_y, float(space.geographic)])


# ---------------------------------------------------------------------------------------------------- build


@kernel
def _index_keywords(offsets: Codes, codes: Codes, frequency: Floats) -> Codes:
    """The three rarest keywords of each query, the rarest first, ties by number; the number of words for none."""
    none = len(frequency)
    n = len(offsets) - 1
    chosen = np.full((n, 3), none, np.int32)
    for query in range(n):
        for i in range(offsets[query], offsets[query + 1]):
            code = codes[i]
            for rank in range(3):
                other = chosen[query, rank]
                if (
                    other == none
                    or frequency[code] < frequency[other]
                    or (frequency[code] == frequency[other] and code < other)
                ):
                    chosen[query, rank] = code
                    code = other
                if code == none:
                    break
    return chosen


@kernel
def _natural_levels(frame: Floats, kind: Bytes, shape: Floats, chosen: Codes, chance: Floats) -> tuple[Bytes, Floats]:
    """The deepest level of each query where its cover meets few cells; and for each level what decides its cost.

    Returns: levels uint8[n]; sums float64[levels, 4]: number of queries; sums of p w h, p (w + h), p, for covers of w
        by h and p the chance that an object has the index keyword.
    """
    boxes, rectangles = np.empty((2, 4)), np.empty((2, 4), np.int64)
    levels, sums = np.empty(len(kind), np.uint8), np.zeros((MAX_LEVEL + 1, 4))
    for query in range(len(kind)):
        a, b, c, d = shape[query]
        parts = _cover_rectangles(frame, kind[query], a, b, c, d, boxes, rectangles)
        width = (rectangles[0, 2] - rectangles[0, 0]) / 2.0**32
        if parts == 2:
            width += (rectangles[1, 2] - rectangles[1, 0]) / 2.0**32
        height = (rectangles[0, 3] - rectangles[0, 1]) / 2.0**32
        level = MAX_LEVEL
        while level > 0 and (width * 2.0**level + 1.0) * (height * 2.0**level + 1.0) > _CELLS:
            level -= 1
        levels[query] = level
        p = chance[chosen[query, 0]]
        sums[level, 0] += 1.0
        sums[level, 1] += p * width * height
        sums[level, 2] += p * (width + height)
        sums[level, 3] += p
    return levels, sums


def _merged_levels(sums: Floats) -> Bytes:
    """Where to keep the queries of each level: in the next coarser one in use, if that adds few candidates an object.

    A level costs every object a lookup; with a cell of side c a query is a candidate with probability p (w + c) (h +
    c).
    """
    sums = sums.copy()
    target = np.arange(len(sums), dtype=np.uint8)
    used = np.flatnonzero(sums[:, 0])[::-1]
    for level, coarser in pairwise(used):
        fine, coarse = 0.5**level, 0.5**coarser
        if sums[level, 2] * (coarse - fine) + sums[level, 3] * (coarse**2 - fine**2) < _LEVEL_WORTH:
            target[target == level] = coarser
            sums[coarser] += sums[level]
    return target


@kernel
def _level_masks(levels: Bytes, chosen: Codes, words: int) -> Ints:
    """The levels at which each word is an index keyword; the last entry is for queries without keywords."""
    masks = np.zeros(words + 1, np.int64)
    for query in range(len(levels)):
        masks[chosen[query, 0]] |= np.int64(1) << levels[query]
    return masks


@kernel
def _shuffled(words: int, seed: Seed) -> tuple[Codes, Ints]:
    """A random order of the words: the number of each, and after them the number of words itself; the word of each."""
    numbers, order = np.empty(words + 1, np.int32), np.arange(words)
    for last in range(words - 1, 0, -1):
        other = np.int64(keyed_number(np.uint64(last), seed) % np.uint64(last + 1))
        order[last], order[other] = order[other], order[last]
    for number in range(words):
        numbers[order[number]] = number
    numbers[words] = words
    return numbers, order


@lean_kernel
def _bucket(key: Int, bits: Int, seed: Seed) -> Int:
    return (np.int64(keyed_number(np.uint64(key), seed)) >> (64 - bits)) & ((np.int64(1) << bits) - 1)


@lean_kernel
def _word_hash(word: Int) -> Int:
    """Of a word's number, which is random already: multiplied by the golden ratio only to fill all bits."""
    return word * _MIX


@lean_kernel
def _top(hash_: Int, bits: Int) -> Int:
    return (hash_ >> (64 - bits)) & ((np.int64(1) << bits) - 1)


@lean_kernel
def _filter_words(bits: Int) -> Int:
    """Length of the filter of a cell with 2^bits slots: a byte a slot."""
    return (np.int64(1) << max(bits, 3)) >> 3


@lean_kernel
def _cell_key(level: Int, column: Int, row: Int) -> Int:
    return (np.int64(level) << 40 | np.int64(column) << 20 | np.int64(row)) + 1


@kernel
def _cell_of_key(key: Int) -> tuple[Int, Int, Int]:
    return (key - 1) >> 40, (key - 1) >> 20 & 0xFFFFF, (key - 1) & 0xFFFFF


@kernel
def _assign_cells(frame: Floats, kind: Bytes, shape: Floats, levels: Bytes, seed: Seed) -> tuple[Codes, Ints, Ints]:
    """Every (query, cell) that meets, in the order of queries.

    Returns:
        queries int32[p]; cells int64[p], numbered by first appearance; keys int64[c] of the cells.
    """
    boxes, rectangles = np.empty((2, 4)), np.empty((2, 4), np.int64)
    bits, count, cells = 8, 0, 0
    table = np.zeros((1 << bits, 2), np.int64)
    keys = np.empty(1 << (bits - 1), np.int64)
    queries = np.empty(4 * len(kind) + 16, np.int32)
    places = np.empty(len(queries), np.int64)
    for query in range(len(kind)):
        a, b, c, d = shape[query]
        parts = _cover_rectangles(frame, kind[query], a, b, c, d, boxes, rectangles)
        shift = 32 - np.int64(levels[query])
        for part in range(parts):
            for column in range(rectangles[part, 0] >> shift, (rectangles[part, 2] >> shift) + 1):
                if part == 1 and column >= rectangles[0, 0] >> shift:
                    break  # the columns of both parts, which have the same rows, are taken once
                for row in range(rectangles[part, 1] >> shift, (rectangles[part, 3] >> shift) + 1):
                    key = _cell_key(levels[query], column, row)
                    slot = _bucket(key, bits, seed)
                    while table[slot, 0] != key and table[slot, 0] != 0:
                        slot = (slot + 1) & ((1 << bits) - 1)
                    if table[slot, 0] == 0:
                        table[slot, 0] = key
                        table[slot, 1] = cells
                        keys[cells] = key
                        cells += 1
                    place = table[slot, 1]
                    if cells == len(keys):
                        bits += 1
                        table = np.zeros((1 << bits, 2), np.int64)
                        keys = grown(keys, cells, 1 << (bits - 1))
                        for cell in range(cells):
                            slot = _bucket(keys[cell], bits, seed)
                            while table[slot, 0] != 0:
                                slot = (slot + 1) & ((1 << bits) - 1)
                            table[slot, 0] = keys[cell]
                            table[slot, 1] = cell
                    if count == len(queries):
                        queries, places = grown(queries, count, 2 * count), grown(places, count, 2 * count)
                    queries[count] = query
                    places[count] = place
                    count += 1
    return queries[:count].copy(), places[:count].copy(), keys[:cells].copy()


@lean_kernel
def _within(coordinate: Int, level: Int) -> Int:
    """The place of a 32-bit coordinate within its cell, in 15 bits."""
    return ((coordinate << level) & 0xFFFFFFFF) >> 17


@kernel
def _interval_within(low: Int, high: Int, cell: Int, level: Int) -> Int:
    """What a cell sees of an interval: two places within it, low | high << 16."""
    first = _within(low, level) if low >> (32 - level) == cell else np.int64(0)
    last = _within(high, level) if high >> (32 - level) == cell else np.int64(0x7FFF)
    return first | last << 16


@kernel
def _query_of(tail: Int) -> Int:
    return (tail & 0xFFFFFFFF) >> 3


@kernel
def _write_postings(
    frame: Floats,
    kind: Bytes,
    shape: Floats,
    offsets: Codes,
    chosen: Codes,
    none: int,
    queries: Codes,
    places: Ints,
    keys: Ints,
) -> tuple[Ints, Ints]:
    """Postings grouped by cell, queries ascending within one; and the bounds of the cells, int64[cells + 1].

    A posting, int64[2]: interval of columns | interval of rows << 32; query << 3 | flags | signature bits of two more
    keywords << 32. Above bit 44 goes the rest of its list, see :func:`_group_by_keyword`.
    """
    boxes, rectangles = np.empty((2, 4)), np.empty((2, 4), np.int64)
    bounds = np.zeros(len(keys) + 1, np.int64)
    for place in places:
        bounds[place + 1] += 1
    for cell in range(len(keys)):
        bounds[cell + 1] += bounds[cell]
    cursor = bounds[:-1].copy()
    postings = np.empty((len(queries), 2), np.int64)
    previous = np.int64(-1)
    tail, signature = np.int64(0), np.int64(0)
    for i in range(len(queries)):
        query = np.int64(queries[i])
        if query != previous:
            previous = query
            a, b, c, d = shape[query]
            parts = _cover_rectangles(frame, kind[query], a, b, c, d, boxes, rectangles)
            tail = query << 3
            if parts == 2:
                rectangles[0, 0], rectangles[0, 2] = 0, 0xFFFFFFFF
            if parts == 2 or kind[query] == CIRCLE:
                tail |= _CHECK_REGION
            if offsets[query + 1] - offsets[query] > 1:
                tail |= _CHECK_KEYWORDS
            second, third = np.int64(chosen[query, 1]), np.int64(chosen[query, 2])
            signature = np.int64(0) if second == none else (second + 1) & 63
            signature |= np.int64(0) if third == none else ((third + 1) & 63) << 6
        level, column, row = _cell_of_key(keys[places[i]])
        at = cursor[places[i]]
        cursor[places[i]] += 1
        postings[at, 0] = (
            _interval_within(rectangles[0, 0], rectangles[0, 2], column, level)
            | _interval_within(rectangles[0, 1], rectangles[0, 3], row, level) << 32
        )
        postings[at, 1] = tail | signature << 32
    return postings, bounds


@kernel
def _group_by_keyword(chosen: Codes, postings: Ints, bounds: Ints, keys: Ints, seed: Seed) -> tuple[Ints, Ints]:
    """Group the postings of each cell by index keyword, in place, and write into each how many are left of its list.

    Returns: directory int64[2^b, 2]: key of the cell; position in ``slots`` << 12 | level << 6 | log2 of its number
        of slots. slots int64[s]: for each cell its filter, then its slots: keyword + 1 << 32 | first posting.
    """
    cells = len(keys)
    bits = 2
    while (1 << bits) < 2 * cells:
        bits += 1
    directory = np.zeros((1 << bits, 2), np.int64)
    largest = 1
    for cell in range(cells):
        largest = max(largest, bounds[cell + 1] - bounds[cell])
    scratch = np.zeros(4 * largest, np.int64)
    words, starts = np.empty(largest, np.int64), np.empty(largest + 1, np.int64)
    group = np.empty(largest, np.int64)
    copies = np.empty((largest, 2), np.int64)
    slots = np.zeros(2 * len(postings) + 16, np.int64)
    used = np.int64(0)
    for cell in range(cells):
        first, size = bounds[cell], bounds[cell + 1] - bounds[cell]
        wide = 1
        while (1 << wide) < 2 * size:
            wide += 1
        # scratch: keyword + 1 << 32 | number of its group in this cell
        groups = 0
        for i in range(size):
            copies[i] = postings[first + i]
            word = np.int64(chosen[_query_of(copies[i, 1]), 0]) + 1
            slot = _top(_word_hash(word), wide)
            while scratch[slot] != 0 and scratch[slot] >> 32 != word:
                slot = (slot + 1) & ((1 << wide) - 1)
            if scratch[slot] == 0:
                scratch[slot] = word << 32 | groups
                words[groups] = word
                starts[groups] = 0
                groups += 1
            group[i] = scratch[slot] & 0xFFFFFFFF
            starts[group[i]] += 1
        for slot in range(1 << wide):
            scratch[slot] = 0
        at = first
        for g in range(groups):
            at, starts[g] = at + starts[g], at
        narrow = 1
        while (1 << narrow) < 2 * groups:
            narrow += 1
        filter_size = _filter_words(narrow)
        base = used + filter_size
        if base + (1 << narrow) > len(slots):
            slots = grown(slots, used, 2 * len(slots) + base + (1 << narrow))
            slots[used:] = 0
        for g in range(groups):
            hashed = _word_hash(words[g])
            slot = _top(hashed, narrow)
            slots[used + (slot >> 3)] |= np.int64(1) << (hashed >> 20 & 63)
            while slots[base + slot] != 0:
                slot = (slot + 1) & ((1 << narrow) - 1)
            slots[base + slot] = words[g] << 32 | starts[g]
        for i in range(size):
            postings[starts[group[i]]] = copies[i]
            starts[group[i]] += 1
        at = first
        for g in range(groups):
            for i in range(at, starts[g]):
                postings[i, 1] |= min(starts[g] - i, _LONGEST) << 44
            at = starts[g]
        slot = _bucket(keys[cell], bits, seed)
        while directory[slot, 0] != 0:
            slot = (slot + 1) & ((1 << bits) - 1)
        directory[slot, 0] = keys[cell]
        directory[slot, 1] = used << 12 | _cell_of_key(keys[cell])[0] << 6 | narrow
        used = base + (1 << narrow)
    return directory, slots[:used].copy()


# ---------------------------------------------------------------------------------------------------- match


@kernel
def _arrange(x: Floats, y: Floats, offsets: Codes, frame: Floats, bits: int) -> tuple[Codes, npt.NDArray[np.uint32]]:
    """Z-order: points of a cell of 2^-bits together, neighbouring cells near each other.

    Returns:
        order int32[n], objects in the order of visits; visits uint32[n, 4] in that order: coordinates, and bounds of
        the terms.
    """
    n = len(x)
    spread = np.zeros(1 << bits, np.int64)
    for value in range(1 << bits):
        for bit in range(bits):
            spread[value] |= ((value >> bit) & 1) << (2 * bit)
    keys, cells = np.empty(n, np.int32), np.empty((n, 2), np.uint32)
    starts = np.zeros((1 << (2 * bits)) + 1, np.int32)
    for i in range(n):
        column, row = _coordinate(x[i], frame[0], frame[4]), _coordinate(y[i], frame[1], frame[5])
        cells[i, 0], cells[i, 1] = column, row
        keys[i] = spread[column >> (32 - bits)] << 1 | spread[row >> (32 - bits)]
        starts[keys[i] + 1] += 1
    for key in range(1 << (2 * bits)):
        starts[key + 1] += starts[key]
    order, visits = np.empty(n, np.int32), np.empty((n, 4), np.uint32)
    for i in range(n):
        at = starts[keys[i]]
        starts[keys[i]] += 1
        order[at] = i
        visits[at, 0], visits[at, 1], visits[at, 2], visits[at, 3] = (
            cells[i, 0],
            cells[i, 1],
            offsets[i],
            offsets[i + 1],
        )
    return order, visits


class Objects(NamedTuple):
    """A batch of n objects.

    Attributes:
        order: int32[n], in which the objects are visited (Z-order).
        visits: uint32[n, 4], in that order: the places in 32-bit coordinates, and where in ``codes`` the terms are.
        x, y: float64[n], the places.
        t: int64[n], the timestamps.
        codes: int32[m], the terms of all objects.
    """

    order: Codes
    visits: npt.NDArray[np.uint32]
    x: Floats
    y: Floats
    t: Ints
    codes: Codes


class _Index(NamedTuple):
    """What matching reads of a grid.

    Attributes:
        seed: of the places of cells, and of the numbers of words.
        directory, slots, postings: cells, their keywords, their posting lists.
        kind, shape: the queries' regions.
        keyword_lists, keyword_codes: the queries' keywords, as numbers.
    """

    seed: Seed
    directory: Ints
    slots: Ints
    postings: Ints
    kind: Bytes
    shape: Floats
    keyword_lists: Codes
    keyword_codes: Codes


class _Block(NamedTuple):
    """What a block of objects has come to: each stage says what it reads and what it writes.

    Attributes:
        words, spans, objects: of stage 1.
        latest: the last cell of each level, as (key, cell).
        entries: (object, cell), of stage 2.
        hits: entry << 32 | word, of stage 3.
        lists: (entry, first posting), of stage 4.
        places: (place of the object within the cell, signature) by list, of stage 5.
        candidates: list << 32 | posting, of stage 5.
    """

    words: Ints
    spans: Ints
    objects: Ints
    latest: Ints
    entries: Ints
    hits: Ints
    lists: Ints
    places: Ints
    candidates: Ints


@lean_kernel
def _find_cell(directory: Ints, bits: Int, seed: Seed, key: Int) -> Int:
    slot = _bucket(key, bits, seed)
    while directory[slot, 0] != key:
        if directory[slot, 0] == 0:
            return 0
        slot = (slot + 1) & ((np.int64(1) << bits) - 1)
    value: Int = directory[slot, 1]
    return value


@lean_kernel
def _read_terms(first: Int, last: Int, batch: Objects, tags: Ints, everyone: Int, block: _Block) -> None:
    """Stage 1: the words of objects first .. last - 1 that some query has.

    ``words`` gets their tags (levels << 32 | word) and ``objects`` (signature of the words, union of the levels);
    those of object ``first + i`` are ``words[spans[i]:spans[i + 1]]``, filled up with zeros to a multiple of _GROUP.
    ``everyone`` is the tag of a word that every object is taken to have, that of the queries without keywords; 0 if
    there are none.
    """
    visits, codes = batch.visits, batch.codes
    words, spans, objects = block.words, block.spans, block.objects
    at = np.int64(0)
    for o in range(first, last):
        spans[o - first] = at
        later = min(o + _AHEAD, len(visits) - 1)
        prefetch(codes, np.int64(visits[later, 2]))
        prefetch(codes, np.int64(visits[later, 3]) - 1)
        signature, union = np.int64(1), np.int64(everyone)
        for i in range(visits[o, 2], visits[o, 3]):
            tag = peek(tags, np.int64(peek(codes, np.int64(i))))
            words[at] = tag
            union |= tag
            signature |= np.int64(1) << (tag & 63)  # bit 0 is always set
            at += np.int64(tag != 0)
        words[at] = everyone
        at += np.int64(everyone != 0)
        for i in range(_GROUP):
            words[at + i] = 0
        at = (at + _GROUP - 1) & -_GROUP
        objects[o - first, 0], objects[o - first, 1] = signature, union >> 32
    spans[last - first] = at


@lean_kernel
def _enter_cells(first: Int, last: Int, visits: npt.NDArray[np.uint32], index: _Index, bits: Int, block: _Block) -> Int:
    """Stage 2: the cells of each object, into ``entries``. Asks for the filter of each new cell."""
    objects, latest, entries = block.objects, block.latest, block.entries
    count = np.int64(0)
    for o in range(first, last):
        column, row, union = np.int64(visits[o, 0]), np.int64(visits[o, 1]), objects[o - first, 1]
        level = 0
        while union >> level != 0:
            if union >> level & 1 != 0:
                key = _cell_key(level, column >> (32 - level), row >> (32 - level))
                if latest[level, 0] != key:
                    cell = _find_cell(index.directory, bits, index.seed, key)
                    latest[level, 0], latest[level, 1] = key, cell
                    for word in range(0, min(_filter_words(cell & 63), _LINES * _LINE), _LINE):
                        prefetch(index.slots, (cell >> 12) + word)
                entries[count, 0], entries[count, 1] = o - first, latest[level, 1]
                count += np.int64(latest[level, 1] != 0)
            level += 1
    return count


@lean_kernel
def _pass_filters(count: Int, slots: Ints, block: _Block) -> Int:
    """Stage 3: the words of the entries that their cells may have, into ``hits``. Asks for the slots."""
    words, spans, entries, hits = block.words, block.spans, block.entries, block.hits
    kept = np.int64(0)
    for i in range(count):
        o, cell = entries[i, 0], entries[i, 1]
        base, level, narrow = cell >> 12, cell >> 6 & 63, cell & 63
        for group in range(spans[o], spans[o + 1], _GROUP):
            for at in range(group, group + _GROUP):
                tag = peek(words, at)
                hashed = _word_hash(tag & 0xFFFFFFFF)
                hits[kept] = i << 32 | at
                bit = peek(slots, base + (_top(hashed, narrow) >> 3)) >> (hashed >> 20 & 63)
                kept += bit & tag >> (32 + level) & 1
    for i in range(kept):
        cell, word = entries[hits[i] >> 32, 1], peek(words, hits[i] & 0xFFFFFFFF) & 0xFFFFFFFF
        prefetch(slots, (cell >> 12) + _filter_words(cell & 63) + _top(_word_hash(word), cell & 63))
    return kept


@lean_kernel
def _find_lists(count: Int, slots: Ints, postings: Ints, block: _Block) -> Int:
    """Stage 4: the posting lists of the hits, into ``lists``. Asks for the first postings of each."""
    words, entries, hits, lists = block.words, block.entries, block.hits, block.lists
    kept = np.int64(0)
    for i in range(count):
        entry, word = hits[i] >> 32, peek(words, hits[i] & 0xFFFFFFFF) & 0xFFFFFFFF
        cell = entries[entry, 1]
        narrow = cell & 63
        base, slot = (cell >> 12) + _filter_words(narrow), _top(_word_hash(word), narrow)
        found = peek(slots, base + slot)
        while found != 0 and found >> 32 != word:
            slot = (slot + 1) & ((np.int64(1) << narrow) - 1)
            found = peek(slots, base + slot)
        posting = found & 0xFFFFFFFF
        prefetch(postings, 2 * posting)
        prefetch(postings, 2 * posting + _LINE)
        lists[kept, 0], lists[kept, 1] = entry, posting
        kept += np.int64(found != 0)
    return kept


@lean_kernel
def _list_candidates(
    count: Int, at: Int, skipped: Int, visits: npt.NDArray[np.uint32], postings: Ints, block: _Block, checked: Codes
) -> tuple[Int, Int, Int]:
    """Stage 5: as many postings of the lists as there is room for, into ``candidates``.

    Begins with list ``at`` without its ``skipped`` first postings. ``places`` gets what a list's postings are compared
    with: (column | row << 32 of the object within the cell, signature). Counts the postings of each object; ``visits``
    and ``checked`` begin with the block's first. Returns how many, and where to go on.
    """
    objects, entries, lists, places, candidates = (
        block.objects,
        block.entries,
        block.lists,
        block.places,
        block.candidates,
    )
    kept, room = np.int64(0), len(candidates) - _GROUP
    while at < count and kept < room:
        entry, posting = lists[at, 0], lists[at, 1] + skipped
        o, level = entries[entry, 0], entries[entry, 1] >> 6 & 63
        column, row = np.int64(visits[o, 0]), np.int64(visits[o, 1])
        places[at, 0], places[at, 1] = _within(column, level) | _within(row, level) << 32, objects[o, 0]
        length = peek(postings, 2 * posting + 1) >> 44
        taken = min(length, room - kept)
        for group in range(0, taken, _GROUP):
            for i in range(group, group + _GROUP):
                candidates[kept + i] = (at << 32 | posting) + i
        kept += taken
        checked[o] += taken
        skipped = skipped + taken if taken < length else np.int64(0)
        at += np.int64(taken == length)
    return kept, at, skipped


@lean_kernel
def _compare(count: Int, postings: Ints, block: _Block, kept: Int, survivors: Ints) -> Int:
    """Stage 6: append candidates whose rectangle and signature admit the object, (object, query << 3 | flags).

    The four comparisons with a rectangle are one subtraction of four 16-bit lanes (east - x, x - west, ...), whose
    top bits tell which were not negative. A zero lane is a border: then the flag to check the region is set. Returns
    how many survivors there are now.
    """
    entries, lists, places, candidates = block.entries, block.lists, block.places, block.candidates
    before = kept
    for i in range(count):
        candidate = candidates[i]
        at, posting = candidate >> 32, candidate & 0xFFFFFFFF
        place, signature = peek(places, 2 * at), peek(places, 2 * at + 1)
        corners, tail = peek(postings, 2 * posting), peek(postings, 2 * posting + 1)
        lanes = (_LANE_TOPS | place | corners & _HIGH_LANES) - (place << 16 | corners & _LOW_LANES)
        border = np.int64((lanes - _LANE_ONES) & _LANE_TOPS != _LANE_TOPS)
        survivors[kept, 0], survivors[kept, 1] = at, (tail & 0xFFFFFFFF) | border << 1
        inside = np.int64(lanes & _LANE_TOPS == _LANE_TOPS)
        kept += inside & (signature >> (tail >> 32 & 63)) & (signature >> (tail >> 38 & 63))
    for i in range(before, kept):
        survivors[i, 0] = entries[lists[survivors[i, 0], 0], 0]
    return kept


@lean_kernel
def _has(words: Ints, first: Int, last: Int, word: Int) -> bool:
    found = False
    for i in range(first, last):
        found |= (peek(words, i) & 0xFFFFFFFF) == word
    return found


@lean_kernel
def _check_keywords(count: Int, survivors: Ints, block: _Block, index: _Index, life: Ints) -> Int:
    """Stage 7: keep the survivors whose object has all keywords. Asks for the survivors' lives."""
    words, spans, offsets, codes = block.words, block.spans, index.keyword_lists, index.keyword_codes
    for i in range(count):
        prefetch(offsets, survivors[i, 1] >> 3)
        prefetch(life, 2 * (survivors[i, 1] >> 3))
    for i in range(count):
        prefetch(codes, np.int64(peek(offsets, survivors[i, 1] >> 3)))
    kept = np.int64(0)
    for i in range(count):
        o, tail = survivors[i, 0], survivors[i, 1]
        has_all = True
        if tail & _CHECK_KEYWORDS != 0:
            for k in range(peek(offsets, tail >> 3), peek(offsets, (tail >> 3) + 1)):
                word = np.int64(peek(codes, np.int64(k))) + 1
                has_all = has_all and _has(words, spans[o], spans[o + 1], word)
        survivors[kept, 0], survivors[kept, 1] = o, tail
        kept += np.int64(has_all)
    return kept


@lean_kernel
def _check_regions(geographic: bool, count: Int, survivors: Ints, batch: Objects, index: _Index, first: Int) -> Int:
    """Stage 8: keep those whose region holds the object: (place of the object in the batch, query) from here on."""
    order, x, y, kind, shape = batch.order, batch.x, batch.y, index.kind, index.shape
    kept = np.int64(0)
    for i in range(count):
        o, tail = np.int64(order[first + survivors[i, 0]]), survivors[i, 1]
        query = tail >> 3
        inside = True
        if tail & _CHECK_REGION != 0:
            a, b, c, d = shape[query, 0], shape[query, 1], shape[query, 2], shape[query, 3]
            inside = contains(geographic, kind[query], a, b, c, d, x[o], y[o])
        survivors[kept, 0], survivors[kept, 1] = o, query
        kept += np.int64(inside)
    return kept


@lean_kernel
def _check_lives(count: Int, survivors: Ints, times: Ints, life: Ints, horizon: Int) -> Int:
    """Stage 9: keep those that live at the object's time and beyond the horizon."""
    kept = np.int64(0)
    for i in range(count):
        o, query = survivors[i, 0], survivors[i, 1]
        t, begin, end = times[o], peek(life, 2 * query), peek(life, 2 * query + 1)
        survivors[kept, 0], survivors[kept, 1] = o, query
        kept += np.int64((begin <= t) & (t < end) & (horizon < end))
    return kept


@kernel
def _most_words(visits: npt.NDArray[np.uint32]) -> Int:
    """Bound for the words of a block, with room to fill up."""
    most = np.int64(0)
    for first in range(0, len(visits), _BLOCK):
        words = np.int64(0)
        for i in range(first, min(first + _BLOCK, len(visits))):
            words += (np.int64(visits[i, 3]) - np.int64(visits[i, 2]) + _GROUP) & -_GROUP
        most = max(most, words)
    return most


@kernel
def _match(
    geographic: bool,
    batch: Objects,
    index: _Index,
    tags: Ints,
    depth: int,
    everyone: int,
    life: Ints,
    horizon: int,
    limit: int,
) -> tuple[Ints, Codes]:
    """Matches of a batch, a block of objects at a time through all stages; it ends once there are more than ``limit``.

    Args after the index: the tag of each code; number of levels in use; see :func:`_read_terms`; and as in
        :meth:`KeywordGrid.probe_within`.

    Returns:
        object << 32 | query int64[m], in no order; number of postings seen int32[n], in the order of visits.
    """
    visits = batch.visits
    n = len(visits)
    bits = 2
    while (1 << bits) < len(index.directory):
        bits += 1
    most = _most_words(visits)
    block = _Block(
        np.empty(most + 2 * _GROUP, np.int64),
        np.empty(_BLOCK + 1, np.int64),
        np.empty((_BLOCK, 2), np.int64),
        np.zeros((MAX_LEVEL + 1, 2), np.int64),
        np.empty((depth * _BLOCK + 1, 2), np.int64),
        np.empty(depth * most + 1, np.int64),
        np.empty((depth * most + 1, 2), np.int64),
        np.empty((depth * most + 1, 2), np.int64),
        np.empty(_ROOM + _GROUP, np.int64),
    )
    survivors = np.empty((2 * _ROOM, 2), np.int64)
    checked, found = np.zeros(n, np.int32), np.empty(max(1024, 4 * n), np.int64)
    total = np.int64(0)
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        _read_terms(first, last, batch, tags, everyone, block)
        count = _enter_cells(first, last, visits, index, bits, block)
        count = _pass_filters(count, index.slots, block)
        listed = _find_lists(count, index.slots, index.postings, block)
        at: Int = np.int64(0)
        skipped: Int = np.int64(0)
        count = np.int64(0)
        while at < listed:
            if count + _ROOM >= len(survivors):
                survivors = grown(survivors, count, 2 * len(survivors))
            more, at, skipped = _list_candidates(
                listed, at, skipped, visits[first:], index.postings, block, checked[first:]
            )
            count = _compare(more, index.postings, block, count, survivors)
        count = _check_keywords(count, survivors, block, index, life)
        count = _check_regions(geographic, count, survivors, batch, index, first)
        if len(life) > 0:
            count = _check_lives(count, survivors, batch.t, life, horizon)
        if total + count > len(found):
            found = grown(found, total, 2 * len(found) + count)
        for i in range(count):
            found[total + i] = survivors[i, 0] << 32 | survivors[i, 1]
        total += count
        if total > limit:
            break
    return found[:total], checked


@kernel
def _unpack(found: Ints, order: Codes, visited: Codes) -> tuple[Ints, Codes, Codes]:
    """Sorted matches as (starts, queries); and what was counted in the order of visits, in that of objects."""
    n = len(order)
    starts, queries, checked = np.zeros(n + 1, np.int64), np.empty(len(found), np.int32), np.empty(n, np.int32)
    for i in range(len(found)):
        starts[(found[i] >> 32) + 1] += 1
        queries[i] = found[i] & 0xFFFFFFFF
    for i in range(n):
        starts[i + 1] += starts[i]
        checked[order[i]] = visited[i]
    return starts, queries, checked


# ---------------------------------------------------------------------------------------------------- interface


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBatch:
    """A batch of objects, made ready once to be matched against any number of grids of one space.

    Attributes:
        objects: the batch.
        words: number of words of its vocabulary.
        keys: those that it uses.
        spans: int32[n + 1], where in ``objects.codes`` the terms of each object are.
    """

    objects: Objects
    words: int
    keys: TermKeys
    spans: Codes

    @classmethod
    def of(cls, space: Space, objects: ObjectBatch) -> ProbeBatch:
        """Make a batch ready: O(objects + terms)."""
        x, y, t = writable(objects.x), writable(objects.y), writable(objects.t)
        offsets, codes = writable(objects.terms.offsets), writable(objects.terms.codes)
        order, visits = _arrange(x, y, offsets, _frame(space), _LOCALITY_BITS)
        words = len(objects.terms.vocabulary)
        return cls(Objects(order, visits, x, y, t, codes), words, TermKeys.of(objects.terms), offsets)


@dataclass(frozen=True, slots=True, eq=False)
class GridMatches:
    """What matches each object of a batch.

    Attributes:
        starts: int64[n + 1]; object i matches ``queries[starts[i]:starts[i + 1]]``.
        queries: int32[m], ascending for each object.
        checked: int32[n], how many postings were looked at for each object, the measure of the work done.
    """

    starts: Ints
    queries: Codes
    checked: Codes

    @property
    def objects(self) -> Codes:
        """int32[m], the object of each match."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))


_ALWAYS = np.empty((0, 2), np.int64)
UNLIMITED = 2**62
"""More matches than there can be."""


@dataclass(frozen=True, slots=True, eq=False)
class KeywordGrid:
    """An immutable index over n standing range-keyword queries; see the module's text.

    Attributes:
        space: of the regions.
        table: the queries' words.
        words: int32, the word of each number. Numbers are in random order, the table's words in the order in which they
            came, so that a lookup of many reads memory about in sequence.
        tags: int64 by word: levels at which it is an index keyword << 32 | number + 1.
        unconditional: levels of the queries without keywords, as a mask.
        index: the queries, and the cells.
    """

    space: Space
    table: KeywordTable
    words: Codes
    tags: Ints
    unconditional: int
    index: _Index

    @classmethod
    def build(
        cls, space: Space, regions: Regions, keywords: TermLists, frequency: Frequency | None = None
    ) -> KeywordGrid:
        """Index n queries.

        Args:
            space: of the regions.
            regions: n < 2^29 regions.
            keywords: n sets of keywords.
            frequency: how often each word occurs in objects; by default how often it occurs in the queries. It decides
                which keyword is the rarest, so it changes the speed and never the matches.
        """
        keywords = keywords.compact()
        offsets, codes = writable(keywords.offsets), writable(keywords.codes)
        if offsets[0] != 0:
            codes, offsets = codes[offsets[0] :].copy(), offsets - offsets[0]
        words = len(keywords.vocabulary)
        rarity = np.bincount(codes, minlength=words).astype(np.float64)
        chance = np.append(np.minimum(rarity * (_TERMS / max(1, len(codes))), 1.0), 1.0)
        if frequency is not None:  # ties of the estimate by the queries' own counts
            order = np.lexsort((rarity, frequency(keywords.vocabulary)))
            rarity[order] = np.arange(words, dtype=np.float64)
        kind, shape = writable(regions.kind), writable(regions.shape)
        frame = _frame(space)
        chosen = _index_keywords(offsets, codes, rarity)
        levels, sums = _natural_levels(frame, kind, shape, chosen, chance)
        levels = _merged_levels(sums)[levels]
        seed = seed_of(kind, shape, chosen[:, 0])
        numbers, order = _shuffled(words, seed)
        chosen, codes = numbers[chosen], numbers[codes]
        masks = _level_masks(levels, chosen, words)
        queries, places, keys = _assign_cells(frame, kind, shape, levels, seed)
        postings, bounds = _write_postings(frame, kind, shape, offsets, chosen, words, queries, places, keys)
        directory, slots = _group_by_keyword(chosen, postings, bounds, keys, seed)
        return cls(
            space,
            KeywordTable.build(keywords.vocabulary),
            order.astype(np.int32),
            (masks << 32 | np.arange(1, words + 2))[numbers[:-1]],
            int(masks[-1]),
            _Index(seed, directory, slots, postings, kind, shape, offsets, codes),
        )

    def __len__(self) -> int:
        return len(self.index.kind)

    @property
    def regions(self) -> Regions:
        """The queries' regions."""
        return Regions(self.index.kind, self.index.shape)

    @property
    def keywords(self) -> TermLists:
        """The queries' keywords."""
        return TermLists(self.index.keyword_lists, self.words[self.index.keyword_codes], self.table.vocabulary)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in self.to_arrays()[0].values())

    def probe(self, batch: ProbeBatch, life: Ints = _ALWAYS, horizon: int = -(2**63)) -> GridMatches:
        """Match a batch that was made ready before.

        Args:
            batch: the objects.
            life: int64[n, 2], first and end of each query's life: ``first <= o.t < end``; empty for no condition.
            horizon: queries whose end is not later are not reported.
        """
        found = self.probe_within(batch, UNLIMITED, life, horizon)
        assert found is not None
        return found

    def probe_within(
        self, batch: ProbeBatch, limit: int, life: Ints = _ALWAYS, horizon: int = -(2**63)
    ) -> GridMatches | None:
        """As :meth:`probe`, if there are at most ``limit`` matches; else None, as soon as there are more."""
        known = self.table.translate(batch.keys, self.tags)
        tags = np.empty(batch.words, np.int64)
        tags[batch.keys.used] = known
        levels = self.unconditional | int(np.bitwise_or.reduce(known, initial=0)) >> 32
        found, visited = _match(
            self.space.geographic,
            batch.objects,
            self.index,
            tags,
            levels.bit_count(),
            self.unconditional << 32 | (len(self.table) + 1) if self.unconditional else 0,
            life,
            horizon,
            limit,
        )
        if len(found) > limit:
            return None
        found.sort()
        return GridMatches(*_unpack(found, batch.objects.order, visited))

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Everything as flat arrays and a JSON-able rest, see :meth:`from_arrays`."""
        arrays = {"words": self.words, "tags": self.tags, **self.index._asdict(), **self.table.to_arrays()}
        return arrays, {"unconditional": self.unconditional}

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> KeywordGrid:
        """From :meth:`to_arrays`; nothing is rebuilt or copied, so the arrays may be memory-mapped."""
        index = _Index(*(arrays[name] for name in _Index._fields))
        table, unconditional = KeywordTable.from_arrays(arrays), int(meta["unconditional"])
        return cls(space, table, arrays["words"], arrays["tags"], unconditional, index)
