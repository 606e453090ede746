"""A region as a few ranges of positions by descent of the implicit quadtree, and the range-keyword search based on it.

A node outside the region is dropped, a node inside becomes a range that needs no check of positions, and a node on the
border is split until it has few objects or an eighth of the region's extent. So a region results in a few dozen ranges,
regardless of the number of objects (the pruning of an IR-tree, Cong et al. 2009, without a stored tree). The
range-keyword search takes the postings of the rarest term within these ranges and checks each of these objects.

Terms are words of texts, or keywords of properties (:mod:`spatialstream.model.keyword_terms`). An object's set has its
words only, so whether it has a keyword is found in the keyword's postings.

Cost: O(ranges) directory lookups, O(ranges log postings) for the search, then O(candidates).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import grown, wide
from spatialstream.local.snapshot.addresses import Columns, columns_at
from spatialstream.local.snapshot.termlists import has_all
from spatialstream.local.snapshot.zorder import LEVELS, cell, column, node_box, node_start
from spatialstream.local.wordtable import find_word, pack
from spatialstream.model.covers import shape_parts
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, POLYGON, contains, distance, distance_to_box
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.cover import INSIDE, OUTSIDE, relate
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.polygons.table import polygon_contains
from spatialstream.model.regions import Region, shape_of
from spatialstream.model.space import Space

__all__ = [
    "Ask",
    "bisect",
    "farthest",
    "has_keywords",
    "is_keyword",
    "is_reached",
    "lookup",
    "nearest_bound",
    "ranges",
    "search",
]

_CAPACITY = 512
_SPLIT = 8
_FEW = 32
_TESTED = 128
"""Nodes of the cover of a circle or polygon with fewer objects are not tested against it, only against its box."""

_DEGREE = np.pi / 180.0
_NO_POLYGON = np.empty(0)

_MARK = ord('"')


class Ask(NamedTuple):
    """A predicate and a time range: created once per query, used for every segment.

    Kernels that are called from Python take it as a plain ``tuple(ask)``, whose type numba determines faster, and
    convert it back to an Ask.
    """

    geographic: bool
    kind: int
    shape: npt.NDArray[np.float64]
    boxes: npt.NDArray[np.float64]
    word_offsets: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint8]
    polygon: npt.NDArray[np.float64]
    t_after: int
    t_last: int

    @classmethod
    def of(cls, space: Space, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int) -> Ask:
        """Build from a region (None: anywhere), keywords and the time range (t_after, t_last]."""
        kind, numbers = shape_of(region)
        shape = np.array([numbers], np.float64)
        boxes = shape_parts(space, np.array([kind], np.uint8), shape)[0]
        polygon = PolygonColumn.of([region]).packed if isinstance(region, Polygon) else _NO_POLYGON
        return cls(space.geographic, kind, shape[0], boxes, *pack(keywords), polygon, t_after, t_last)


@lean_kernel
def is_reached(s: Columns, t_after: int, t_last: int) -> bool:
    """Whether a segment may have objects in (t_after, t_last]; only then may its arrays be read."""
    return s.t_max > t_after and s.t_min <= t_last and s.t_min <= s.t_max


@kernel
def nearest_bound(geographic: bool, x: float, y: float, box: tuple[float, float, float, float]) -> float:
    """A lower bound of the computed distance from (x, y) to any point of the box.

    Near the antipode the haversine formula itself has errors of up to decimetres, hence the metre.
    """
    bound = distance_to_box(geographic, x, y, box[0], box[1], box[2], box[3])
    if geographic and bound > 1.99e7:
        bound -= 1.0
    return bound


@kernel
def farthest(geographic: bool, x: float, y: float, box: tuple[float, float, float, float]) -> float:
    """An upper bound of the computed distance from (x, y) to any point of the box (west <= east).

    Planar: the farthest corner. Geographic: the farthest point lies on the meridian of the box that differs most in
    longitude; along it the distance is largest at an end, or at the antipode of the nearest point if that is between.
    """
    west, south, east, north = box
    if not geographic:
        dx = max(x - west, east - x)
        dy = max(y - south, north - y)
        return float(np.sqrt(dx * dx + dy * dy))
    opposite = x + 180.0 if x <= 0.0 else x - 180.0
    if west <= opposite and opposite <= east:
        apart = 180.0
    else:
        apart = max(abs(west - x), abs(east - x))
        if apart > 180.0:
            other = min(abs(west - x), abs(east - x))
            apart = max(360.0 - apart, other if other <= 180.0 else 360.0 - other)
    p = y * _DEGREE
    foot = np.arctan2(np.sin(p), np.cos(p) * np.cos(apart * _DEGREE)) / _DEGREE
    back = min(max(foot - 180.0 if foot > 0.0 else foot + 180.0, south), north)
    bound = max(
        distance(True, 0.0, y, apart, back),
        max(distance(True, 0.0, y, apart, south), distance(True, 0.0, y, apart, north)),
    )
    return bound * (1.0 + 1e-9) + (1e-3 if bound < 1.99e7 else 1.0)


@lean_kernel
def _limit(cells: npt.NDArray[Any], boxes: int) -> int:
    """The level at which a node is about an eighth of the region."""
    extent = 1
    for b in range(boxes):
        extent = max(extent, max(cells[b, 2] - cells[b, 0], cells[b, 3] - cells[b, 1]) + 1)
    level = LEVELS
    while level > 0 and (extent >> (LEVELS - level)) > _SPLIT:
        level -= 1
    return level


@lean_kernel
def _cells(grid: npt.NDArray[Any], boxes: npt.NDArray[Any], outer: npt.NDArray[Any], inner: npt.NDArray[Any]) -> int:
    """Cells that the boxes touch, and cells completely inside them; returns the number of boxes that meet the grid."""
    m = 0
    for b in range(len(boxes)):
        west, south, east, north = boxes[b, 0], boxes[b, 1], boxes[b, 2], boxes[b, 3]
        if west > grid[2] or east < grid[0] or south > grid[3] or north < grid[1]:
            continue
        outer[m, 0], outer[m, 1] = cell(west, grid[0], grid[4]), cell(south, grid[1], grid[5])
        outer[m, 2], outer[m, 3] = cell(east, grid[0], grid[4]), cell(north, grid[1], grid[5])
        inner[m, 0] = 0 if west <= grid[0] else outer[m, 0] + 1
        inner[m, 1] = 0 if south <= grid[1] else outer[m, 1] + 1
        inner[m, 2] = 65535 if east >= grid[2] else outer[m, 2] - 1
        inner[m, 3] = 65535 if north >= grid[3] else outer[m, 3] - 1
        m += 1
    return m


@kernel
def ranges(s: Columns, ask: Ask, joined: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Position ranges that contain every object of the region, ascending and disjoint.

    Args:
        s: columns of a segment.
        ask: contains the region.
        joined: whether adjacent ranges are joined; otherwise each range is one node of the quadtree.

    Returns:
        first positions int64[r], ends int64[r], and whether all objects of the range are in the region bool[r].
    """
    first = np.empty(_CAPACITY, np.int64)
    end = np.empty(_CAPACITY, np.int64)
    inside = np.empty(_CAPACITY, np.bool_)
    m = 0
    kind, shape = ask.kind, ask.shape
    if kind == POLYGON:
        polygon = table_of(ask.polygon)
    outer, inner = np.empty((len(ask.boxes), 4), np.int64), np.empty((len(ask.boxes), 4), np.int64)
    meeting = _cells(s.grid, ask.boxes, outer, inner)
    limit = _limit(outer, meeting)
    stack = np.empty((4 * LEVELS + 8, 4), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 0, 0, len(s.x)
    top = 1
    if meeting == 0 and kind != EVERYWHERE:
        top = 0
    while top > 0:
        top -= 1
        level, prefix, lo, hi = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        if lo == hi:
            continue
        within = kind == EVERYWHERE
        if not within:
            shift = LEVELS - level
            x0, y0 = column(prefix) << shift, column(prefix >> 1) << shift
            x1, y1 = x0 + (1 << shift) - 1, y0 + (1 << shift) - 1
            touched = False
            for b in range(meeting):
                if x1 >= outer[b, 0] and y1 >= outer[b, 1] and x0 <= outer[b, 2] and y0 <= outer[b, 3]:
                    touched = True
                    if x0 >= inner[b, 0] and y0 >= inner[b, 1] and x1 <= inner[b, 2] and y1 <= inner[b, 3]:
                        within = True
            if not touched:
                continue
            if kind == CIRCLE:
                within = False
                if hi - lo >= _TESTED:
                    box = node_box(s.grid, level, prefix)
                    if nearest_bound(ask.geographic, shape[0], shape[1], box) > shape[2]:
                        continue
                    within = farthest(ask.geographic, shape[0], shape[1], box) <= shape[2]
            elif kind == POLYGON:
                within = False
                if hi - lo >= _TESTED:
                    west, south, east, north = node_box(s.grid, level, prefix)
                    what = relate(polygon, ask.geographic, 0, west, south, east, north)
                    if what == OUTSIDE:
                        continue
                    within = what == INSIDE
        if not within and level < limit and hi - lo > _FEW:
            upper = hi
            for child in (3, 2, 1, 0):
                start = lo if child == 0 else node_start(s, level + 1, 4 * prefix + child, lo, upper)
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = level + 1, 4 * prefix + child, start, upper
                upper = start
                top += 1
        elif joined and m > 0 and end[m - 1] == lo and inside[m - 1] == within:
            end[m - 1] = hi
        elif m == _CAPACITY:
            end[m - 1] = hi
            inside[m - 1] = False
        else:
            first[m], end[m], inside[m] = lo, hi, within
            m += 1
    return first[:m], end[:m], inside[:m]


@lean_kernel
def bisect(postings: npt.NDArray[Any], lo: int, hi: int, position: int) -> int:
    """First index in [lo, hi) of the ascending postings whose value is not below ``position``; gallops from lo."""
    step = 1
    while lo + step < hi and postings[lo + step] < position:
        lo += step
        step *= 2
    hi = min(hi, lo + step)
    while lo < hi:
        middle = (lo + hi) >> 1
        if postings[middle] < position:
            lo = middle + 1
        else:
            hi = middle
    return lo


@lean_kernel
def is_keyword(word_offsets: npt.NDArray[Any], words: npt.NDArray[Any], i: int) -> bool:
    """Whether term i is a keyword of a property: they begin with a quotation mark, and words do not."""
    return bool(word_offsets[i] < word_offsets[i + 1] and words[word_offsets[i]] == _MARK)


@kernel
def lookup(
    s: Columns, word_offsets: npt.NDArray[Any], words: npt.NDArray[Any]
) -> tuple[bool, npt.NDArray[Any], int, int]:
    """Look up terms in a segment.

    Returns:
        whether all are in it; their codes int64[k], those of words first, ascending, then those of keywords; how many
        are of words; and the rarest of all, or -1.
    """
    codes = np.empty(len(word_offsets) - 1, np.int64)
    rarest, texts, last = -1, 0, len(codes)
    for i in range(len(codes)):
        code = find_word(s.slots, s.word_offsets, s.words, words, word_offsets[i], word_offsets[i + 1])
        if code < 0:
            return False, codes, 0, -1
        if is_keyword(word_offsets, words, i):
            last -= 1
            codes[last] = code
        else:
            codes[texts] = code
            texts += 1
        # codes rank terms by frequency: the largest is the rarest
        rarest = max(rarest, code)
    codes[:texts].sort()
    return True, codes, texts, rarest


@lean_kernel
def has_keywords(s: Columns, position: int, keywords: npt.NDArray[Any]) -> bool:
    """Whether the object at a position has all of the keywords (codes).

    Cost: O(log postings) for each. No array is made, since this is called for each candidate.
    """
    for keyword in keywords:
        end = wide(s.posting_offsets[keyword + 1])
        at = bisect(s.postings, wide(s.posting_offsets[keyword]), end, position)
        if at == end or s.postings[at] != position:
            return False
    return True


@kernel
def _search(s: Columns, ask: Ask, found: npt.NDArray[Any], m: int) -> tuple[npt.NDArray[Any], int, int]:
    """Add one segment's positions to ``found[:m]``, which is replaced when it is full: (found, m, objects checked)."""
    checked = 0
    known, codes, texts, rarest = lookup(s, ask.word_offsets, ask.words)
    if not known:
        return found, m, checked
    a, b, c, d = ask.shape[0], ask.shape[1], ask.shape[2], ask.shape[3]
    timed, polygonal = not (ask.t_after < s.t_min and s.t_max <= ask.t_last), ask.kind == POLYGON
    if polygonal:
        polygon = table_of(ask.polygon)
    several, only_words = len(codes) > 1, texts == len(codes)
    in_texts, keywords = codes[:texts], codes[texts:]
    cursor, last = 0, len(s.x)
    if rarest >= 0:
        cursor, last = wide(s.posting_offsets[rarest]), wide(s.posting_offsets[rarest + 1])
    if rarest >= 0 and last - cursor <= _FEW:
        first, end, inside = np.zeros(1, np.int64), np.full(1, len(s.x), np.int64), np.zeros(1, np.bool_)
    else:
        first, end, inside = ranges(s, ask, True)
    for r in range(len(first)):
        if rarest >= 0:
            cursor = bisect(s.postings, cursor, last, first[r])
        else:
            cursor = first[r]
        while cursor < last:
            position = wide(s.postings[cursor]) if rarest >= 0 else cursor
            if position >= end[r]:
                break
            cursor += 1
            checked += 1
            if not inside[r]:
                x, y = s.x[position], s.y[position]
                if not contains(ask.geographic, ask.kind, a, b, c, d, x, y):
                    continue
                if polygonal and not polygon_contains(polygon, ask.geographic, 0, x, y):
                    continue
            if timed and not (ask.t_after < s.t[position] and s.t[position] <= ask.t_last):
                continue
            if several and not has_all(s, position, in_texts):
                continue
            if not only_words and several and not has_keywords(s, position, keywords):
                continue
            if m == len(found):
                found = grown(found, m, 2 * m)
            found[m] = position
            m += 1
    return found, m, checked


@kernel
def search(table: npt.NDArray[Any], asked: tuple[Any, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
    """The objects in the region with all keywords and t in (t_after, t_last], ascending by row and position.

    Returns:
        rows of the table int32[m], positions int32[m], and the number of objects checked.
    """
    ask = Ask(*asked)
    positions = np.empty(64, np.int32)
    ends = np.zeros(len(table) + 1, np.int64)
    m, checked = 0, 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if is_reached(s, ask.t_after, ask.t_last):
            positions, m, more = _search(s, ask, positions, m)
            checked += more
        ends[row + 1] = m
    rows = np.empty(m, np.int32)
    for row in range(len(table)):
        rows[ends[row] : ends[row + 1]] = row
    return rows, positions[:m], checked
