"""Matching of a batch of objects against a grid, in stages: each is a loop over a block that filters candidates.

See :mod:`spatialstream.local.grid.keyword_grid` for the reasons.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import Codes, Floats, Ints, grown
from spatialstream.local.cachelines import peek, prefetch
from spatialstream.local.grid.layout import (
    CHECK_KEYWORDS,
    CHECK_REGION,
    MAX_LEVEL,
    Index,
    bucket,
    cell_key,
    coordinate,
    filter_words,
    top,
    within,
    word_hash,
)
from spatialstream.local.keywords import Int
from spatialstream.model.geometry import POLYGON, contains
from spatialstream.model.hashing import Seed
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.polygons.table import PolygonTable, polygon_contains

__all__ = ["BLOCK", "LOCALITY_BITS", "Objects", "arrange", "count_candidates", "match", "unpack"]

LOCALITY_BITS = 7
"""Best resolution of :func:`arrange`."""

BLOCK = 128
"""Objects that pass through a stage together."""

_ROOM = 4096  # candidates that are compared at once; less than LONGEST
_GROUP = 8  # loop iterations are padded to a multiple of this, so that the loop's end is easy to predict
_AHEAD = 12  # objects between prefetching terms and reading them
_LINE = 8  # 64-bit integers per cache line
_LINES = 8  # cache lines of a filter that are prefetched at once
_LANE_ONES = 0x0001_0001_0001_0001
_LOW_LANES = 0x0000_7FFF_0000_7FFF
_HIGH_LANES = 0x7FFF_0000_7FFF_0000
_LANE_TOPS = 0x8000_8000_8000_8000 - (1 << 64)  # as a signed 64-bit integer


class Objects(NamedTuple):
    """A batch of n objects.

    Attributes:
        order: int32[n], the order in which the objects are visited (Z-order).
        visits: uint32[n, 4], in that order: the positions in 32-bit coordinates, and the bounds of the terms in
            ``codes``.
        x, y: float64[n], the positions.
        t: int64[n], the timestamps.
        codes: int32[m], the terms of all objects.
    """

    order: Codes
    visits: npt.NDArray[np.uint32]
    x: Floats
    y: Floats
    t: Ints
    codes: Codes


@kernel
def arrange(x: Floats, y: Floats, offsets: Codes, frame: Floats, bits: int) -> tuple[Codes, npt.NDArray[np.uint32]]:
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
        column, row = coordinate(x[i], frame[0], frame[4]), coordinate(y[i], frame[1], frame[5])
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


class _Block(NamedTuple):
    """Intermediate results of a block of objects; see the stages for what each reads and writes.

    Attributes:
        words, spans, objects: of stage 1.
        latest: the last cell of each level, as (key, cell).
        entries: (object, cell), of stage 2.
        hits: entry << 32 | word, of stage 3.
        lists: (entry, first posting), of stage 4.
        places: (position of the object within the cell, signature) by list, of stage 5.
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
    slot = bucket(key, bits, seed)
    while directory[slot, 0] != key:
        if directory[slot, 0] == 0:
            return 0
        slot = (slot + 1) & ((np.int64(1) << bits) - 1)
    value: Int = directory[slot, 1]
    return value


@lean_kernel
def _read_terms(first: Int, last: Int, batch: Objects, tags: Ints, everyone: Int, block: _Block) -> None:
    """Stage 1: the words of objects first .. last - 1 that occur in queries.

    Writes their tags (levels << 32 | word) to ``words`` and (signature of the words, union of the levels) to
    ``objects``; the tags of object ``first + i`` are ``words[spans[i]:spans[i + 1]]``, padded with zeros to a multiple
    of _GROUP. ``everyone`` is the tag of a virtual word of all objects, for queries without keywords; 0 if there are no
    such queries.
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
def _enter_cells(first: Int, last: Int, visits: npt.NDArray[np.uint32], index: Index, bits: Int, block: _Block) -> Int:
    """Stage 2: write the cells of each object to ``entries``. Prefetches the filter of each new cell."""
    objects, latest, entries = block.objects, block.latest, block.entries
    count = np.int64(0)
    for o in range(first, last):
        column, row, union = np.int64(visits[o, 0]), np.int64(visits[o, 1]), objects[o - first, 1]
        level = 0
        while union >> level != 0:
            if union >> level & 1 != 0:
                key = cell_key(level, column >> (32 - level), row >> (32 - level))
                if latest[level, 0] != key:
                    cell = _find_cell(index.directory, bits, index.seed, key)
                    latest[level, 0], latest[level, 1] = key, cell
                    for word in range(0, min(filter_words(cell & 63), _LINES * _LINE), _LINE):
                        prefetch(index.slots, (cell >> 12) + word)
                entries[count, 0], entries[count, 1] = o - first, latest[level, 1]
                count += np.int64(latest[level, 1] != 0)
            level += 1
    return count


@lean_kernel
def _pass_filters(count: Int, slots: Ints, block: _Block) -> Int:
    """Stage 3: write the words of the entries that pass their cells' filters to ``hits``. Prefetches the slots."""
    words, spans, entries, hits = block.words, block.spans, block.entries, block.hits
    kept = np.int64(0)
    for i in range(count):
        o, cell = entries[i, 0], entries[i, 1]
        base, level, narrow = cell >> 12, cell >> 6 & 63, cell & 63
        for group in range(spans[o], spans[o + 1], _GROUP):
            for at in range(group, group + _GROUP):
                tag = peek(words, at)
                hashed = word_hash(tag & 0xFFFFFFFF)
                hits[kept] = i << 32 | at
                bit = peek(slots, base + (top(hashed, narrow) >> 3)) >> (hashed >> 20 & 63)
                kept += bit & tag >> (32 + level) & 1
    for i in range(kept):
        cell, word = entries[hits[i] >> 32, 1], peek(words, hits[i] & 0xFFFFFFFF) & 0xFFFFFFFF
        prefetch(slots, (cell >> 12) + filter_words(cell & 63) + top(word_hash(word), cell & 63))
    return kept


@lean_kernel
def _find_lists(count: Int, slots: Ints, postings: Ints, block: _Block) -> Int:
    """Stage 4: write the posting lists of the hits to ``lists``. Prefetches the first postings of each."""
    words, entries, hits, lists = block.words, block.entries, block.hits, block.lists
    kept = np.int64(0)
    for i in range(count):
        entry, word = hits[i] >> 32, peek(words, hits[i] & 0xFFFFFFFF) & 0xFFFFFFFF
        cell = entries[entry, 1]
        narrow = cell & 63
        base, slot = (cell >> 12) + filter_words(narrow), top(word_hash(word), narrow)
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
    """Stage 5: write as many postings of the lists as fit to ``candidates``.

    Starts with list ``at`` after its first ``skipped`` postings. Writes to ``places`` the values that a list's postings
    are compared with: (column | row << 32 of the object within the cell, signature). Counts the postings of each
    object; ``visits`` and ``checked`` start with the first object of the block. Returns the number of candidates, and
    where to continue.
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
        places[at, 0], places[at, 1] = within(column, level) | within(row, level) << 32, objects[o, 0]
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
    """Stage 6: append candidates whose rectangle and signature admit the object, as (object, query << 3 | flags).

    The four comparisons with a rectangle are one subtraction of four 16-bit lanes (east - x, x - west, ...), whose top
    bits say which differences are not negative. A lane of zero is a border: then the flag to check the region is set.
    Returns the new number of survivors.
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
def _check_keywords(count: Int, survivors: Ints, block: _Block, index: Index, life: Ints) -> tuple[Int, Int]:
    """Stage 7: keep the survivors whose object has all keywords. Prefetches the lifetimes of the survivors.

    Returns the number of survivors, and of words compared.
    """
    words, spans, offsets, codes = block.words, block.spans, index.keyword_lists, index.keyword_codes
    for i in range(count):
        prefetch(offsets, survivors[i, 1] >> 3)
        prefetch(life, 2 * (survivors[i, 1] >> 3))
    for i in range(count):
        prefetch(codes, np.int64(peek(offsets, survivors[i, 1] >> 3)))
    kept, compared = np.int64(0), np.int64(0)
    for i in range(count):
        o, tail = survivors[i, 0], survivors[i, 1]
        has_all = True
        if tail & CHECK_KEYWORDS != 0:
            keyword, end = np.int64(peek(offsets, tail >> 3)), np.int64(peek(offsets, (tail >> 3) + 1))
            compared -= keyword * (spans[o + 1] - spans[o])
            while has_all and keyword < end:
                has_all = _has(words, spans[o], spans[o + 1], np.int64(peek(codes, keyword)) + 1)
                keyword += 1
            compared += keyword * (spans[o + 1] - spans[o])
        survivors[kept, 0], survivors[kept, 1] = o, tail
        kept += np.int64(has_all)
    return kept, compared


@lean_kernel
def _check_regions(
    geographic: bool,
    count: Int,
    survivors: Ints,
    batch: Objects,
    index: Index,
    polygons: PolygonTable,
    known: Ints,
    first: Int,
) -> Int:
    """Stage 8: keep survivors whose region contains the object; from here on they are (object in the batch, query).

    ``known`` has for each polygon the object that was tested last, and the outcome (object << 1 | whether it is
    inside): many queries of one polygon cost a test.
    """
    order, x, y, kind, shape = batch.order, batch.x, batch.y, index.kind, index.shape
    geometry = index.geometry
    kept = np.int64(0)
    for i in range(count):
        o, tail = np.int64(order[first + survivors[i, 0]]), survivors[i, 1]
        query = tail >> 3
        inside = True
        if tail & CHECK_REGION != 0:
            if kind[query] == POLYGON:
                polygon = geometry[query]
                if known[polygon] >> 1 != o:
                    known[polygon] = o << 1 | np.int64(polygon_contains(polygons, geographic, polygon, x[o], y[o]))
                inside = known[polygon] & 1 == 1
            else:
                a, b, c, d = shape[query, 0], shape[query, 1], shape[query, 2], shape[query, 3]
                inside = contains(geographic, kind[query], a, b, c, d, x[o], y[o])
        survivors[kept, 0], survivors[kept, 1] = o, query
        kept += np.int64(inside)
    return kept


@lean_kernel
def _check_lives(count: Int, survivors: Ints, times: Ints, life: Ints, horizon: Int) -> Int:
    """Stage 9: keep survivors whose query is active at the object's time and ends after the horizon."""
    kept = np.int64(0)
    for i in range(count):
        o, query = survivors[i, 0], survivors[i, 1]
        t, begin, end = times[o], peek(life, 2 * query), peek(life, 2 * query + 1)
        survivors[kept, 0], survivors[kept, 1] = o, query
        kept += np.int64((begin <= t) & (t < end) & (horizon < end))
    return kept


@lean_kernel
def _most_words(visits: npt.NDArray[np.uint32]) -> Int:
    """Upper bound of the number of words of a block, including padding."""
    most = np.int64(0)
    for first in range(0, len(visits), BLOCK):
        words = np.int64(0)
        for i in range(first, min(first + BLOCK, len(visits))):
            words += (np.int64(visits[i, 3]) - np.int64(visits[i, 2]) + _GROUP) & -_GROUP
        most = max(most, words)
    return most


@kernel
def _room(most: Int, depth: int) -> _Block:
    """Room for blocks of at most so many words."""
    return _Block(
        np.empty(most + 2 * _GROUP, np.int64),
        np.empty(BLOCK + 1, np.int64),
        np.empty((BLOCK, 2), np.int64),
        np.zeros((MAX_LEVEL + 1, 2), np.int64),
        np.empty((depth * BLOCK + 1, 2), np.int64),
        np.empty(depth * most + 1, np.int64),
        np.empty((depth * most + 1, 2), np.int64),
        np.empty((depth * most + 1, 2), np.int64),
        np.empty(_ROOM + _GROUP, np.int64),
    )


@kernel
def match(
    geographic: bool,
    batch: Objects,
    index: Index,
    tags: Ints,
    depth: int,
    everyone: int,
    life: Ints,
    horizon: int,
    limit: int,
    begin: Int,
    effort: int,
    checked: Codes,
) -> tuple[Ints, Int]:
    """Match a part of a batch; each block of objects passes through all stages.

    Stops when there are more than ``limit`` matches, or when the allowed number of comparisons is exceeded.

    Args after the index: the tag of each code; number of levels in use; see :func:`_read_terms`; as in
        :meth:`~spatialstream.local.grid.keyword_grid.KeywordGrid.probe_within`; the first visit; the approximate number
        of comparisons allowed in addition to those of the first block; and int32[n], the output for the number of
        postings read, in the order of visits.

    Returns:
        object << 32 | query int64[m], in no particular order; the visit to continue with.
    """
    visits = batch.visits
    n = len(visits)
    bits = 2
    while (1 << bits) < len(index.directory):
        bits += 1
    block, polygons = _room(_most_words(visits), depth), table_of(index.polygons)
    known = np.full(len(polygons.scale), -1, np.int64)
    survivors = np.empty((2 * _ROOM, 2), np.int64)
    found = np.empty(max(1024, 4 * (n - begin)), np.int64)
    total, left, last = np.int64(0), np.int64(effort), np.int64(begin)
    while last < n and left >= 0 and total <= limit:
        first, last = last, min(last + BLOCK, np.int64(n))
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
            left -= more
        count, compared = _check_keywords(count, survivors, block, index, life)
        left -= compared
        count = _check_regions(geographic, count, survivors, batch, index, polygons, known, first)
        if len(life) > 0:
            count = _check_lives(count, survivors, batch.t, life, horizon)
        if total + count > len(found):
            found = grown(found, total, 2 * len(found) + count)
        for i in range(count):
            found[total + i] = survivors[i, 0] << 32 | survivors[i, 1]
        total += count
    return found[:total], last


@kernel
def count_candidates(
    batch: Objects, index: Index, tags: Ints, depth: int, everyone: int, first: Int, counts: Codes
) -> None:
    """Count how many objects of a block are compared with each query, which :func:`match` does without counting.

    Args up to the visit that the block begins with: as there; and int32[queries], to which is added.
    """
    visits, postings = batch.visits, index.postings
    last = min(first + BLOCK, np.int64(len(visits)))
    bits = 2
    while (1 << bits) < len(index.directory):
        bits += 1
    block = _room(_most_words(visits[first:last]), depth)
    _read_terms(first, last, batch, tags, everyone, block)
    count = _enter_cells(first, last, visits, index, bits, block)
    count = _pass_filters(count, index.slots, block)
    listed = _find_lists(count, index.slots, postings, block)
    for at in range(listed):
        posting = block.lists[at, 1]
        for i in range(posting, posting + (peek(postings, 2 * posting + 1) >> 44)):
            counts[(peek(postings, 2 * i + 1) & 0xFFFFFFFF) >> 3] += 1


@kernel
def unpack(found: Ints, order: Codes, visited: Codes) -> tuple[Ints, Codes, Codes]:
    """Unpack sorted matches as (starts, queries); and reorder the counts of visits to the order of objects."""
    n = len(order)
    starts, queries, checked = np.zeros(n + 1, np.int64), np.empty(len(found), np.int32), np.empty(n, np.int32)
    for i in range(len(found)):
        starts[(found[i] >> 32) + 1] += 1
        queries[i] = found[i] & 0xFFFFFFFF
    for i in range(n):
        starts[i + 1] += starts[i]
        checked[order[i]] = visited[i]
    return starts, queries, checked
