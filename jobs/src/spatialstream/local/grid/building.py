"""Construction of a :class:`~spatialstream.local.grid.keyword_grid.KeywordGrid`: levels, cells, postings and tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Bytes, Codes, Flags, Floats, Ints, grown
from spatialstream.local.columns import writable
from spatialstream.local.grid.layout import (
    CHECK_KEYWORDS,
    CHECK_REGION,
    LONGEST,
    MAX_LEVEL,
    Index,
    bucket,
    cell_key,
    cell_of_key,
    coordinate,
    filter_words,
    frame_of,
    top,
    within,
    word_hash,
)
from spatialstream.local.keywords import Int
from spatialstream.model.covers import cover_boxes
from spatialstream.model.geometry import CIRCLE, POLYGON
from spatialstream.model.hashing import Seed, keyed_number, seed_of
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.polygons.cover import BORDER, INSIDE, OUTSIDE, relate
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.polygons.table import PolygonTable
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Frequency", "build_index"]

Frequency = Callable[[pa.StringArray], Floats]
"""Estimated frequency in objects (any unit) of each word of a vocabulary."""

_CELLS = 5.0
_TERMS = 8  # assumed number of terms of an object; it scales an estimate
_SLACK = 2.0**-48  # share of the space by which cells are widened: more than rounding moves a coordinate
_LEVEL_WORTH = 4.0  # a level is kept separate if merging it would add this many candidates per object


def build_index(
    space: Space, regions: Regions, keywords: TermLists, frequency: Frequency | None
) -> tuple[Index, Codes, Ints, int]:
    """Index n queries.

    Args: those of :meth:`~spatialstream.local.grid.keyword_grid.KeywordGrid.build`, with compact keywords.

    Returns:
        The index; and ``words``, ``tags`` and ``unconditional`` of the grid.
    """
    offsets, codes = writable(keywords.offsets), writable(keywords.codes)
    if offsets[0] != 0:
        codes, offsets = codes[offsets[0] :].copy(), offsets - offsets[0]
    words = len(keywords.vocabulary)
    rarity = np.bincount(codes, minlength=words).astype(np.float64)
    chance = np.append(np.minimum(rarity * (_TERMS / max(1, len(codes))), 1.0), 1.0)
    if frequency is not None:  # ties of the estimate are broken by the queries' own counts
        order = np.lexsort((rarity, frequency(keywords.vocabulary)))
        rarity[order] = np.arange(words, dtype=np.float64)
    kind, shape = writable(regions.kind), writable(regions.shape)
    frame = frame_of(space)
    chosen = _index_keywords(offsets, codes, rarity)
    levels, sums = _natural_levels(frame, kind, shape, chosen, chance)
    levels = _merged_levels(sums)[levels]
    seed = seed_of(kind, shape, chosen[:, 0])
    numbers, order = _shuffled(words, seed)
    chosen, codes = numbers[chosen], numbers[codes]
    masks = _level_masks(levels, chosen, words)
    geometry, polygons = writable(regions.polygons.codes), regions.polygons.packed
    queries, places, certain, keys = _assign_cells(frame, kind, shape, geometry, polygons, levels, seed)
    postings, bounds = _write_postings(frame, kind, shape, offsets, chosen, words, queries, places, certain, keys)
    directory, slots = _group_by_keyword(chosen, postings, bounds, keys, seed)
    index = Index(seed, directory, slots, postings, kind, shape, geometry, offsets, codes, polygons)
    tags = (masks << 32 | np.arange(1, words + 2))[numbers[:-1]]
    return index, order.astype(np.int32), tags, int(masks[-1])


@lean_kernel
def _cover_rectangles(
    frame: Floats, kind: int, a: float, b: float, c: float, d: float, boxes: Floats, rectangles: Ints
) -> int:
    parts = cover_boxes(frame, frame[6] != 0.0, kind, a, b, c, d, boxes)
    for part in range(parts):
        for side in range(4):
            axis = side & 1
            rectangles[part, side] = coordinate(boxes[part, side], frame[axis], frame[4 + axis])
    return parts


@kernel
def _index_keywords(offsets: Codes, codes: Codes, frequency: Floats) -> Codes:
    """The three rarest keywords of each query, rarest first, ties by number; missing ones are the number of words."""
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
    """The deepest level at which each query's cover intersects few cells; and the figures of the cost of each level.

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
    """The level that stores the queries of each level: the next coarser one, if that adds few candidates per object.

    Each level in use costs every object a lookup; in cells of side c, a query is a candidate with probability p (w + c)
    (h + c).
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
    """The levels at which each word is an index keyword, as masks; the last entry is for queries without keywords."""
    masks = np.zeros(words + 1, np.int64)
    for query in range(len(levels)):
        masks[chosen[query, 0]] |= np.int64(1) << levels[query]
    return masks


@kernel
def _shuffled(words: int, seed: Seed) -> tuple[Codes, Ints]:
    """Number the words in random order: the number of each word, followed by ``words``; and the word of each number."""
    numbers, order = np.empty(words + 1, np.int32), np.arange(words)
    for last in range(words - 1, 0, -1):
        other = np.int64(keyed_number(np.uint64(last), seed) % np.uint64(last + 1))
        order[last], order[other] = order[other], order[last]
    for number in range(words):
        numbers[order[number]] = number
    numbers[words] = words
    return numbers, order


@lean_kernel
def _in_cell(frame: Floats, table: PolygonTable, polygon: int, level: int, column: Int, row: Int) -> int:
    """What a cell is to a polygon, see :func:`~spatialstream.model.polygons.cover.relate`.

    The cell is a little wider than the points whose coordinates are in it, see :func:`coordinate`.
    """
    wide, high = frame[2] - frame[0], frame[3] - frame[1]
    count = 2.0**level
    west = max(frame[0] + wide * (column / count) - wide * _SLACK, frame[0])
    east = min(frame[0] + wide * ((column + 1) / count) + wide * _SLACK, frame[2])
    south = max(frame[1] + high * (row / count) - high * _SLACK, frame[1])
    north = min(frame[1] + high * ((row + 1) / count) + high * _SLACK, frame[3])
    return relate(table, frame[6] != 0.0, polygon, west, south, east, north)


@kernel
def _assign_cells(
    frame: Floats, kind: Bytes, shape: Floats, geometry: Codes, polygons: Floats, levels: Bytes, seed: Seed
) -> tuple[Codes, Ints, Flags, Ints]:
    """Every pair of a query and a cell that its cover intersects, of a polygon those that it does, in order of queries.

    Returns:
        queries int32[p]; cells int64[p], numbered by first appearance; whether the query is a polygon that contains the
        cell, bool[p]; keys int64[c] of the cells.
    """
    table_of_polygons = table_of(polygons)
    boxes, rectangles = np.empty((2, 4)), np.empty((2, 4), np.int64)
    bits, count, cells = 8, 0, 0
    table = np.zeros((1 << bits, 2), np.int64)
    keys = np.empty(1 << (bits - 1), np.int64)
    queries = np.empty(4 * len(kind) + 16, np.int32)
    places, certain = np.empty(len(queries), np.int64), np.empty(len(queries), np.bool_)
    for query in range(len(kind)):
        a, b, c, d = shape[query]
        parts = _cover_rectangles(frame, kind[query], a, b, c, d, boxes, rectangles)
        shift = 32 - np.int64(levels[query])
        for part in range(parts):
            for column in range(rectangles[part, 0] >> shift, (rectangles[part, 2] >> shift) + 1):
                if part == 1 and column >= rectangles[0, 0] >> shift:
                    break  # columns that both parts have in common (with the same rows) are visited once
                for row in range(rectangles[part, 1] >> shift, (rectangles[part, 3] >> shift) + 1):
                    state = BORDER
                    if kind[query] == POLYGON:
                        state = _in_cell(frame, table_of_polygons, geometry[query], levels[query], column, row)
                        if state == OUTSIDE:
                            continue
                    key = cell_key(levels[query], column, row)
                    slot = bucket(key, bits, seed)
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
                            slot = bucket(keys[cell], bits, seed)
                            while table[slot, 0] != 0:
                                slot = (slot + 1) & ((1 << bits) - 1)
                            table[slot, 0] = keys[cell]
                            table[slot, 1] = cell
                    if count == len(queries):
                        queries, places = grown(queries, count, 2 * count), grown(places, count, 2 * count)
                        certain = grown(certain, count, 2 * count)
                    queries[count] = query
                    places[count] = place
                    certain[count] = state == INSIDE
                    count += 1
    return queries[:count].copy(), places[:count].copy(), certain[:count].copy(), keys[:cells].copy()


@lean_kernel
def _interval_within(low: Int, high: Int, cell: Int, level: Int) -> Int:
    """The part of an interval inside a cell: two positions within the cell, low | high << 16."""
    first = within(low, level) if low >> (32 - level) == cell else np.int64(0)
    last = within(high, level) if high >> (32 - level) == cell else np.int64(0x7FFF)
    return first | last << 16


@lean_kernel
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
    certain: Flags,
    keys: Ints,
) -> tuple[Ints, Ints]:
    """Write the postings grouped by cell, queries ascending within a cell; and the bounds of cells, int64[cells + 1].

    :func:`_group_by_keyword` adds to each posting the remaining length of its list.
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
            if parts == 2 or kind[query] == CIRCLE or kind[query] == POLYGON:
                tail |= CHECK_REGION
            if offsets[query + 1] - offsets[query] > 1:
                tail |= CHECK_KEYWORDS
            second, third = np.int64(chosen[query, 1]), np.int64(chosen[query, 2])
            signature = np.int64(0) if second == none else (second + 1) & 63
            signature |= np.int64(0) if third == none else ((third + 1) & 63) << 6
        level, column, row = cell_of_key(keys[places[i]])
        at = cursor[places[i]]
        cursor[places[i]] += 1
        postings[at, 0] = (
            _interval_within(rectangles[0, 0], rectangles[0, 2], column, level)
            | _interval_within(rectangles[0, 1], rectangles[0, 3], row, level) << 32
        )
        postings[at, 1] = (tail & ~CHECK_REGION if certain[i] else tail) | signature << 32
    return postings, bounds


@kernel
def _group_by_keyword(chosen: Codes, postings: Ints, bounds: Ints, keys: Ints, seed: Seed) -> tuple[Ints, Ints]:
    """Group the postings of each cell by index keyword, in place, and add to each the remaining length of its list.

    Returns: directory; slots.
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
            slot = top(word_hash(word), wide)
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
        filter_size = filter_words(narrow)
        base = used + filter_size
        if base + (1 << narrow) > len(slots):
            slots = grown(slots, used, 2 * len(slots) + base + (1 << narrow))
            slots[used:] = 0
        for g in range(groups):
            hashed = word_hash(words[g])
            slot = top(hashed, narrow)
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
                postings[i, 1] |= min(starts[g] - i, LONGEST) << 44
            at = starts[g]
        slot = bucket(keys[cell], bits, seed)
        while directory[slot, 0] != 0:
            slot = (slot + 1) & ((1 << bits) - 1)
        directory[slot, 0] = keys[cell]
        directory[slot, 1] = used << 12 | cell_of_key(keys[cell])[0] << 6 | narrow
        used = base + (1 << narrow)
    return directory, slots[:used].copy()
