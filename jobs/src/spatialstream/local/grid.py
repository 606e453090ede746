"""KeywordGrid: standing range-keyword queries, pruned by space and by rarest keyword together.

The idea of FAST (Mahmood, Aref, Aly: "FAST: Frequency-Aware Indexing for Spatio-Textual Data Streams", ICDE 2018), as
immutable flat arrays: a pyramid of grids; a query is kept at the deepest level where its cover still meets only a few cells,
and there under its rarest keyword alone. What is done otherwise than there:

- A query is in every cell that its cover meets and a point lies in one cell of a level, so each match is found once.
- Everything of a cell lies together: a directory (hash table) leads to the cell, a hash table of its own from keywords to
  posting lists. The objects of a batch are visited in Z-order, so neighbours find their cell in the first-level cache.
- A posting holds what decides most candidates on the spot: the cover's rectangle in 32-bit coordinates (rounding is
  monotone, so strictly inside is inside, strictly outside is outside), and two more keywords. Only a point on the border of
  the rounded rectangle, a circle, or a fourth keyword needs the query itself.
- Words are looked up once per batch (:mod:`spatialstream.local.keywords`), with a mask of the levels at which each is
  some query's index keyword.

Cost: an object takes one directory lookup per level that one of its terms is used at, one probe per such term, and one
comparison per posting found. A query takes 1 to 4 postings of 32 bytes, 2.7 on average for a square of the worst size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local import keywords as keywords_module
from spatialstream.local.keywords import KeywordTable, TermKeys
from spatialstream.model.geometry import BOX, CIRCLE, EARTH_RADIUS_M, contains
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Frequency", "GridMatches", "KeywordGrid", "ProbeBatch", "prepare"]

Frequency = Callable[[pa.StringArray], npt.NDArray[np.float64]]
"""Estimated frequency in objects (any unit) of each word of a vocabulary."""

MAX_LEVEL = 20
"""Deepest level of the pyramid; level l has 2^l x 2^l cells."""

_CELLS = 4.0
_MIX = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer
_TOP = 4294967295.0
_LAST, _CHECK_REGION, _CHECK_KEYWORDS = 1, 2, 4
_LOCALITY_BITS = 7
_DEGREES = 180.0 / math.pi


# ------------------------------------------------------------------------------------------------------ space to integers


@kernel
def _coordinate(value: float, low: float, scale: float) -> int:
    """Monotone in ``value``: 0 .. 2^32 - 1 over the space, clamped outside."""
    return np.int64(min(max((value - low) * scale, 0.0), _TOP))


@kernel
def _coordinates(values: npt.NDArray[np.float64], low: float, scale: float) -> npt.NDArray[np.uint32]:
    result = np.empty(len(values), np.uint32)
    for i in range(len(values)):
        result[i] = _coordinate(values[i], low, scale)
    return result


@kernel
def _cover(
    frame: npt.NDArray[np.float64], kind: int, a: float, b: float, c: float, d: float, boxes: npt.NDArray[np.float64]
) -> int:
    """Covering boxes of a region into ``boxes``; as :func:`spatialstream.model.regions.cover`. Returns how many."""
    west, south, east, north = a, b, c, d
    if kind == CIRCLE:
        if frame[6] == 0.0:
            reach = c * (1.0 + 1e-12) + 1e-12 * (abs(a) + abs(b))
            west, south, east, north = a - reach, b - reach, a + reach, b + reach
        else:
            angle = c / EARTH_RADIUS_M * (1.0 + 1e-9) + 1e-12
            reach = min(angle, math.pi) * _DEGREES + 1e-9
            south, north = b - reach, b + reach
            west, east = -180.0, 180.0
            if south > -90.0 and north < 90.0:
                ratio = math.sin(angle) / math.cos(b / _DEGREES)
                if ratio < 1.0:
                    reach = math.asin(ratio) * _DEGREES + 1e-9
                    if 2.0 * reach < 360.0:
                        west, east = a - reach, a + reach
                        if west < -180.0:
                            west += 360.0
                        elif east > 180.0:
                            east -= 360.0
    elif kind != BOX:
        west, south, east, north = frame[0], frame[1], frame[2], frame[3]
    boxes[0, 0], boxes[0, 1], boxes[0, 2], boxes[0, 3] = west, south, east, north
    if west <= east:
        return 1
    boxes[0, 2] = frame[2]
    boxes[1, 0], boxes[1, 1], boxes[1, 2], boxes[1, 3] = frame[0], south, east, north
    return 2


@kernel
def _cover_rectangles(
    frame: npt.NDArray[np.float64],
    kind: int,
    a: float,
    b: float,
    c: float,
    d: float,
    boxes: npt.NDArray[np.float64],
    rectangles: npt.NDArray[np.int64],
) -> int:
    parts = _cover(frame, kind, a, b, c, d, boxes)
    for part in range(parts):
        for side in range(4):
            axis = side & 1
            rectangles[part, side] = _coordinate(boxes[part, side], frame[axis], frame[4 + axis])
    return parts


def _frame(space: Space) -> npt.NDArray[np.float64]:
    """west, south, east, north, scale of x, scale of y, geographic."""
    west, south, east, north = space.bounds
    scale_x, scale_y = (min(2.0**32 / extent, 1e300) for extent in (east - west, north - south))
    return np.array([west, south, east, north, scale_x, scale_y, float(space.geographic)])


# ------------------------------------------------------------------------------------------------------------------ build


@kernel
def _index_keywords(
    offsets: npt.NDArray[np.int32], codes: npt.NDArray[np.int32], frequency: npt.NDArray[np.float64]
) -> npt.NDArray[np.int32]:
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
def _levels(
    frame: npt.NDArray[np.float64],
    kind: npt.NDArray[np.uint8],
    shape: npt.NDArray[np.float64],
    chosen: npt.NDArray[np.int32],
    deepest: int,
    masks: npt.NDArray[np.int64],
) -> npt.NDArray[np.uint8]:
    """The level of each query; sets its bit in the mask of the query's index keyword."""
    boxes, rectangles = np.empty((2, 4)), np.empty((2, 4), np.int64)
    levels = np.empty(len(kind), np.uint8)
    for query in range(len(kind)):
        a, b, c, d = shape[query]
        parts = _cover_rectangles(frame, kind[query], a, b, c, d, boxes, rectangles)
        width = rectangles[0, 2] - rectangles[0, 0]
        if parts == 2:
            width += rectangles[1, 2] - rectangles[1, 0]
        height = rectangles[0, 3] - rectangles[0, 1]
        level = deepest
        while level > 0:
            cell = 2.0 ** (32 - level)
            if (width / cell + 1.0) * (height / cell + 1.0) <= _CELLS:
                break
            level -= 1
        levels[query] = level
        masks[chosen[query, 0]] |= np.int64(1) << level
    return levels


@kernel
def _bucket(key: int, bits: int) -> int:
    return (((key ^ (key >> 29)) * _MIX) >> (64 - bits)) & ((np.int64(1) << bits) - 1)


@kernel
def _cell_key(level: int, column: int, row: int) -> int:
    return (np.int64(level) << 40 | np.int64(column) << 20 | np.int64(row)) + 1


@kernel
def _assign_cells(
    frame: npt.NDArray[np.float64],
    kind: npt.NDArray[np.uint8],
    shape: npt.NDArray[np.float64],
    levels: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
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
                    slot = _bucket(key, bits)
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
                        grown = np.empty(1 << (bits - 1), np.int64)
                        grown[:cells] = keys
                        keys = grown
                        for cell in range(cells):
                            slot = _bucket(keys[cell], bits)
                            while table[slot, 0] != 0:
                                slot = (slot + 1) & ((1 << bits) - 1)
                            table[slot, 0] = keys[cell]
                            table[slot, 1] = cell
                    if count == len(queries):
                        more = np.empty(2 * count, np.int32)
                        more[:count] = queries
                        queries = more
                        further = np.empty(2 * count, np.int64)
                        further[:count] = places
                        places = further
                    queries[count] = query
                    places[count] = place
                    count += 1
    return queries[:count].copy(), places[:count].copy(), keys[:cells].copy()


@kernel
def _write_postings(
    frame: npt.NDArray[np.float64],
    kind: npt.NDArray[np.uint8],
    shape: npt.NDArray[np.float64],
    offsets: npt.NDArray[np.int32],
    chosen: npt.NDArray[np.int32],
    none: int,
    queries: npt.NDArray[np.int32],
    places: npt.NDArray[np.int64],
    cells: int,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Postings grouped by cell, queries ascending within one; and the bounds of the cells, int64[cells + 1]."""
    boxes, rectangles = np.empty((2, 4)), np.empty((2, 4), np.int64)
    bounds = np.zeros(cells + 1, np.int64)
    for place in places:
        bounds[place + 1] += 1
    for cell in range(cells):
        bounds[cell + 1] += bounds[cell]
    cursor = bounds[:-1].copy()
    postings = np.empty((len(queries), 8), np.uint32)
    previous = -1
    flags = 0
    for i in range(len(queries)):
        query = queries[i]
        if query != previous:
            previous = query
            a, b, c, d = shape[query]
            parts = _cover_rectangles(frame, kind[query], a, b, c, d, boxes, rectangles)
            flags = 0
            if parts == 2:
                rectangles[0, 0], rectangles[0, 2] = 0, 0xFFFFFFFF
            if parts == 2 or kind[query] == CIRCLE:
                flags |= _CHECK_REGION
            if offsets[query + 1] - offsets[query] > 3:
                flags |= _CHECK_KEYWORDS
        at = cursor[places[i]]
        cursor[places[i]] += 1
        for side in range(4):
            postings[at, side] = rectangles[0, side]
        postings[at, 4] = query
        second, third = chosen[query, 1], chosen[query, 2]
        postings[at, 5] = 0 if second == none else second + 1
        postings[at, 6] = 0 if third == none else third + 1
        postings[at, 7] = flags
    return postings, bounds


@kernel
def _group_by_keyword(
    chosen: npt.NDArray[np.int32],
    postings: npt.NDArray[np.uint32],
    bounds: npt.NDArray[np.int64],
    keys: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Group the postings of each cell by index keyword, in place.

    Returns:
        directory int64[2^b, 2]: key of the cell; first slot << 6 | log2 of the number of slots. slots int64[s]: keyword + 1
        << 32 | first posting.
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
    copies = np.empty((largest, 8), np.uint32)
    slots = np.zeros(2 * len(postings) + 16, np.int64)
    used = 0
    for cell in range(cells):
        first, size = bounds[cell], bounds[cell + 1] - bounds[cell]
        wide = 1
        while (1 << wide) < 2 * size:
            wide += 1
        # scratch: keyword + 1 << 32 | number of its group in this cell
        groups = 0
        for i in range(size):
            copies[i] = postings[first + i]
            word = np.int64(chosen[copies[i, 4], 0]) + 1
            slot = _bucket(word, wide)
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
        if used + (1 << narrow) > len(slots):
            grown = np.zeros(2 * len(slots) + (1 << narrow), np.int64)
            grown[:used] = slots[:used]
            slots = grown
        for g in range(groups):
            slot = _bucket(words[g], narrow)
            while slots[used + slot] != 0:
                slot = (slot + 1) & ((1 << narrow) - 1)
            slots[used + slot] = words[g] << 32 | starts[g]
        for i in range(size):
            postings[starts[group[i]]] = copies[i]
            starts[group[i]] += 1
        for g in range(groups):
            postings[starts[g] - 1, 7] |= _LAST
        slot = _bucket(keys[cell], bits)
        while directory[slot, 0] != 0:
            slot = (slot + 1) & ((1 << bits) - 1)
        directory[slot, 0] = keys[cell]
        directory[slot, 1] = used << 6 | narrow
        used += 1 << narrow
    return directory, slots[:used].copy()


# ------------------------------------------------------------------------------------------------------------------ match


@kernel
def _z_order(columns: npt.NDArray[np.uint32], rows: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.int32]:
    """A permutation that brings points of a cell of 2^-bits together and neighbouring cells near each other."""
    spread = np.zeros(1 << bits, np.int64)
    for value in range(1 << bits):
        for bit in range(bits):
            spread[value] |= ((value >> bit) & 1) << (2 * bit)
    keys = np.empty(len(columns), np.int32)
    starts = np.zeros((1 << (2 * bits)) + 1, np.int64)
    for i in range(len(columns)):
        keys[i] = spread[np.int64(columns[i]) >> (32 - bits)] << 1 | spread[np.int64(rows[i]) >> (32 - bits)]
        starts[keys[i] + 1] += 1
    for key in range(1 << (2 * bits)):
        starts[key + 1] += starts[key]
    order = np.empty(len(columns), np.int32)
    for i in range(len(columns)):
        order[starts[keys[i]]] = i
        starts[keys[i]] += 1
    return order


@kernel
def _find_cell(directory: npt.NDArray[np.int64], bits: int, key: int) -> int:
    slot = _bucket(key, bits)
    while directory[slot, 0] != key:
        if directory[slot, 0] == 0:
            return 0
        slot = (slot + 1) & ((np.int64(1) << bits) - 1)
    return directory[slot, 1]


@kernel
def _has(words: npt.NDArray[np.int64], count: int, word: int) -> bool:
    for i in range(count):
        if words[i] == word:
            return True
    return False


@kernel
def _match(
    geographic: bool,
    order: npt.NDArray[np.int32],
    columns: npt.NDArray[np.uint32],
    rows: npt.NDArray[np.uint32],
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    t: npt.NDArray[np.int64],
    term_offsets: npt.NDArray[np.int32],
    term_codes: npt.NDArray[np.int32],
    tags: npt.NDArray[np.int64],
    unconditional: int,
    directory: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    postings: npt.NDArray[np.uint32],
    kind: npt.NDArray[np.uint8],
    shape: npt.NDArray[np.float64],
    keyword_offsets: npt.NDArray[np.int32],
    keyword_codes: npt.NDArray[np.int32],
    none: int,
    life: npt.NDArray[np.int64],
    horizon: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], int]:
    """Matches of a batch: (starts int64[n + 1], queries int32[m] in ascending order per object, candidates seen)."""
    n = len(order)
    bits = 2
    while (1 << bits) < len(directory):
        bits += 1
    longest = 1
    for i in range(n):
        longest = max(longest, term_offsets[i + 1] - term_offsets[i])
    words, levels = np.empty(longest + 1, np.int64), np.empty(longest + 1, np.int64)
    cell_keys, cell_values = np.zeros(32, np.int64), np.zeros(32, np.int64)
    firsts, counts = np.empty(n, np.int64), np.empty(n, np.int64)
    found = np.empty(max(1024, 4 * n), np.int32)
    total, candidates = 0, 0
    timed = len(life) > 0
    for at in range(n):
        o = order[at]
        known, signature, union = 0, np.int64(0), unconditional
        for i in range(term_offsets[o], term_offsets[o + 1]):
            tag = tags[term_codes[i]]
            if tag != 0:
                words[known] = tag & 0xFFFFFFFF
                levels[known] = tag >> 32
                union |= tag >> 32
                signature |= np.int64(1) << (tag & 63)
                known += 1
        probes = known
        if unconditional != 0:
            words[known] = none + 1
            levels[known] = unconditional
            probes += 1
        begin = total
        px, py, column, row = x[o], y[o], columns[o], rows[o]
        level = 0
        while union >> level != 0:
            if union >> level & 1 == 0:
                level += 1
                continue
            key = _cell_key(level, np.int64(column) >> (32 - level), np.int64(row) >> (32 - level))
            if cell_keys[level] != key:
                cell_keys[level] = key
                cell_values[level] = _find_cell(directory, bits, key)
            value = cell_values[level]
            if value == 0:
                level += 1
                continue
            base, narrow = value >> 6, value & 63
            for probe in range(probes):
                if levels[probe] >> level & 1 == 0:
                    continue
                word = words[probe]
                slot = _bucket(word, narrow)
                entry = slots[base + slot]
                while entry != 0 and entry >> 32 != word:
                    slot = (slot + 1) & ((np.int64(1) << narrow) - 1)
                    entry = slots[base + slot]
                if entry == 0:
                    continue
                posting = entry & 0xFFFFFFFF
                while True:
                    candidates += 1
                    flags = postings[posting, 7]
                    if (
                        postings[posting, 0] <= column
                        and column <= postings[posting, 2]
                        and postings[posting, 1] <= row
                        and row <= postings[posting, 3]
                    ):
                        second, third = np.int64(postings[posting, 5]), np.int64(postings[posting, 6])
                        matches = True
                        if second != 0:
                            matches = signature >> (second & 63) & 1 != 0 and _has(words, known, second)
                            if matches and third != 0:
                                matches = signature >> (third & 63) & 1 != 0 and _has(words, known, third)
                        query = postings[posting, 4]
                        if matches and flags & _CHECK_KEYWORDS != 0:
                            for i in range(keyword_offsets[query], keyword_offsets[query + 1]):
                                if not _has(words, known, np.int64(keyword_codes[i]) + 1):
                                    matches = False
                                    break
                        if matches and (
                            flags & _CHECK_REGION != 0
                            or postings[posting, 0] == column
                            or column == postings[posting, 2]
                            or postings[posting, 1] == row
                            or row == postings[posting, 3]
                        ):
                            a, b, c, d = shape[query]
                            matches = contains(geographic, kind[query], a, b, c, d, px, py)
                        if matches and timed:
                            until = life[query, 1]
                            matches = life[query, 0] <= t[o] and t[o] < until and horizon < until
                        if matches:
                            if total == len(found):
                                grown = np.empty(2 * total, np.int32)
                                grown[:total] = found
                                found = grown
                            found[total] = query
                            total += 1
                    if flags & _LAST != 0:
                        break
                    posting += 1
            level += 1
        firsts[o], counts[o] = begin, total - begin
        if total - begin > 32:
            found[begin:total].sort()
        else:
            for i in range(begin + 1, total):
                query_ = found[i]
                j = i
                while j > begin and found[j - 1] > query_:
                    found[j] = found[j - 1]
                    j -= 1
                found[j] = query_
    starts = np.zeros(n + 1, np.int64)
    result = np.empty(total, np.int32)
    for o in range(n):
        starts[o + 1] = starts[o] + counts[o]
        for i in range(counts[o]):
            result[starts[o] + i] = found[firsts[o] + i]
    return starts, result, candidates


# -------------------------------------------------------------------------------------------------------------- interface


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.require(array, requirements=["C", "W"])


@dataclass(frozen=True, slots=True, eq=False)
class ProbeBatch:
    """A batch of objects, made ready once to be matched against any number of grids of one space.

    Attributes:
        objects: the batch.
        columns, rows: uint32[n], the places in 32-bit coordinates.
        order: int32[n], in which the objects are visited (Z-order).
        keys: the words that the batch uses.
    """

    objects: ObjectBatch
    columns: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint32]
    order: npt.NDArray[np.int32]
    keys: TermKeys

    @classmethod
    def of(cls, space: Space, objects: ObjectBatch) -> ProbeBatch:
        """Make a batch ready: O(objects + terms)."""
        frame = _frame(space)
        columns = _coordinates(_writable(objects.x), frame[0], frame[4])
        rows = _coordinates(_writable(objects.y), frame[1], frame[5])
        order = _z_order(columns, rows, _LOCALITY_BITS)
        return cls(objects, columns, rows, order, TermKeys.of(objects.terms))


@dataclass(frozen=True, slots=True, eq=False)
class GridMatches:
    """What matches each object of a batch.

    Attributes:
        starts: int64[n + 1]; object i matches ``queries[starts[i]:starts[i + 1]]``.
        queries: int32[m], ascending for each object.
        candidates: how many postings were looked at, the measure of the work done.
    """

    starts: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    candidates: int

    @property
    def objects(self) -> npt.NDArray[np.int32]:
        """int32[m], the object of each match."""
        return np.repeat(np.arange(len(self.starts) - 1, dtype=np.int32), np.diff(self.starts))


_ALWAYS = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class KeywordGrid:
    """An immutable index over n standing range-keyword queries; see the module's text.

    Attributes:
        space: of the regions.
        regions: n regions.
        table: the queries' words.
        keyword_offsets, keyword_codes: the queries' keywords, coded in the table.
        tags: int64 by word: levels at which it is an index keyword << 32 | number + 1.
        unconditional: levels of the queries without keywords, as a mask.
        directory, slots, postings: cells, their keywords, their posting lists.
    """

    space: Space
    regions: Regions
    table: KeywordTable
    keyword_offsets: npt.NDArray[np.int32]
    keyword_codes: npt.NDArray[np.int32]
    tags: npt.NDArray[np.int64]
    unconditional: int
    directory: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    postings: npt.NDArray[np.uint32]

    @classmethod
    def build(
        cls, space: Space, regions: Regions, keywords: TermLists, frequency: Frequency | None = None
    ) -> KeywordGrid:
        """Index n queries.

        Args:
            space: of the regions.
            regions: n regions.
            keywords: n sets of keywords.
            frequency: how often each word occurs in objects; by default how often it occurs in the queries. It decides which
                keyword is the rarest, so it changes the speed and never the matches.
        """
        keywords = keywords.compact()
        offsets, codes = _writable(keywords.offsets), _writable(keywords.codes)
        if offsets[0] != 0:
            codes, offsets = codes[offsets[0] :].copy(), offsets - offsets[0]
        table = KeywordTable.build(keywords.vocabulary)
        if frequency is None:
            rarity = np.bincount(codes, minlength=len(table)).astype(np.float64)
        else:
            rarity = np.ascontiguousarray(frequency(keywords.vocabulary), np.float64)
        kind, shape = _writable(regions.kind), _writable(regions.shape)
        frame = _frame(space)
        chosen = _index_keywords(offsets, codes, rarity)
        masks = np.zeros(len(table) + 1, np.int64)
        levels = _levels(frame, kind, shape, chosen, _deepest(len(kind)), masks)
        queries, places, keys = _assign_cells(frame, kind, shape, levels)
        postings, bounds = _write_postings(frame, kind, shape, offsets, chosen, len(table), queries, places, len(keys))
        directory, slots = _group_by_keyword(chosen, postings, bounds, keys)
        tags = masks[:-1] << 32 | np.arange(1, len(table) + 1)
        return cls(space, Regions(kind, shape), table, offsets, codes, tags, int(masks[-1]), directory, slots, postings)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.regions)

    @property
    def keywords(self) -> TermLists:
        """The queries' keywords, as views."""
        return TermLists(self.keyword_offsets, self.keyword_codes, self.table.vocabulary)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in self.to_arrays()[0].values())

    def match(self, objects: ObjectBatch) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """All pairs (object, query) that match: object in the region, with all keywords; by object, then query."""
        matches = self.probe(ProbeBatch.of(self.space, objects))
        return matches.objects, matches.queries

    def probe(self, batch: ProbeBatch, life: npt.NDArray[np.int64] = _ALWAYS, horizon: int = -(2**63)) -> GridMatches:
        """Match a batch that was made ready before.

        Args:
            batch: the objects.
            life: int64[n, 2], first and end of each query's life: ``first <= o.t < end``; empty for no condition.
            horizon: queries whose end is not later are not reported.
        """
        objects = batch.objects
        starts, queries, candidates = _match(
            self.space.geographic,
            batch.order,
            batch.columns,
            batch.rows,
            _writable(objects.x),
            _writable(objects.y),
            _writable(objects.t),
            _writable(objects.terms.offsets),
            _writable(objects.terms.codes),
            self.table.translate(batch.keys, self.tags),
            self.unconditional,
            self.directory,
            self.slots,
            self.postings,
            self.regions.kind,
            self.regions.shape,
            self.keyword_offsets,
            self.keyword_codes,
            len(self.table),
            life,
            horizon,
        )
        return GridMatches(starts, queries, candidates)

    def to_arrays(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything as flat arrays and a JSON-able rest, see :meth:`from_arrays`."""
        arrays = {
            "kind": self.regions.kind,
            "shape": self.regions.shape,
            "keyword_lists": self.keyword_offsets,
            "keyword_codes": self.keyword_codes,
            "tags": self.tags,
            "directory": self.directory,
            "slots": self.slots,
            "postings": self.postings,
        }
        return arrays | self.table.to_arrays(), {"unconditional": self.unconditional}

    @classmethod
    def from_arrays(cls, space: Space, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> KeywordGrid:
        """From :meth:`to_arrays`; nothing is rebuilt or copied, so the arrays may be memory-mapped."""
        return cls(
            space,
            Regions(arrays["kind"], arrays["shape"]),
            KeywordTable.from_arrays(arrays),
            arrays["keyword_lists"],
            arrays["keyword_codes"],
            arrays["tags"],
            int(meta["unconditional"]),
            arrays["directory"],
            arrays["slots"],
            arrays["postings"],
        )


def _deepest(n: int) -> int:
    """With few queries, deep levels cost more probes than they save candidates."""
    return min(MAX_LEVEL, 4 + math.ceil(math.log2(n + 1) / 2))


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    from spatialstream.model.regions import Box

    keywords_module.prepare()
    space = Space.planar(0.0, 0.0, 1.0, 1.0)
    grid = KeywordGrid.build(space, Regions.of([Box(0.0, 0.0, 1.0, 1.0), None]), TermLists.of([["a"], []]))
    one = np.full(1, 0.5)
    grid.match(ObjectBatch(pa.array(["o"], pa.string()), np.zeros(1, np.int64), one, one, TermLists.of([["a", "b"]])))
