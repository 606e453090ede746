"""Term tables of aggregate nodes, and the counting of terms in a region (STQ; paper, section 5.2).

Every quadtree node with at least :data:`AGGREGATE` objects has a table of (term, number of its objects with the
term). A region's counts are the tables of the largest nodes inside it, plus the objects of the remaining edges one by
one: exact, and as cheap as the edges are short. Tables serve when all of the segment is within the time asked for and
no keyword restricts it; otherwise the matching objects are counted one by one.

A table is keyed by the node's range of positions, so nodes with the same objects (all of them in one corner) share
it. It is a run of 16-bit units (see :mod:`spatialstream.local.termlists`): differences of ascending codes, each with
its count.

Cost: about 8 bytes of tables an object; counting is O(entries of the tables + terms of the edges' objects).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.local.integers import wide
from spatialstream.local.termlists import get_unit, put_unit
from spatialstream.local.zorder import LEVELS, node_start
from spatialstream.local.zranges import ranges, search
from spatialstream.model.geometry import contains
from spatialstream.model.kernels import kernel

__all__ = ["AGGREGATE", "count_terms", "term_tables"]

AGGREGATE = 8192
"""Least number of objects of a node that has a table."""


@kernel
def _add_set(s: Any, position: int, counts: npt.NDArray[Any], touched: npt.NDArray[Any], m: int) -> int:
    """Count the terms of one object; ``touched[:m]`` lists the codes counted so far. Returns the new m."""
    at, end = wide(s.unit_offsets[position]), wide(s.unit_offsets[position + 1])
    code = 0
    while at < end:
        step, at = get_unit(s.units, at)
        code += step
        if counts[code] == 0:
            touched[m] = code
            m += 1
        counts[code] += 1
    return m


@kernel
def _add_table(s: Any, table: int, counts: npt.NDArray[Any], touched: npt.NDArray[Any], m: int) -> int:
    at, end = s.table_offsets[table], s.table_offsets[table + 1]
    code = 0
    while at < end:
        step, at = get_unit(s.tables, at)
        number, at = get_unit(s.tables, at)
        code += step
        if counts[code] == 0:
            touched[m] = code
            m += 1
        counts[code] += number
    return m


@kernel
def _key(lo: int, hi: int) -> int:
    """Keys ascend in the order of a descent: by first position, the larger node first."""
    return (lo << 32) | (0xFFFFFFFF - hi)


@kernel
def term_tables(s: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The tables of a segment: ascending keys int64[m], offsets int64[m + 1], units uint16."""
    terms = len(s.word_offsets) - 1
    keys = np.empty(len(s.x) // AGGREGATE * LEVELS + 1, np.int64)
    offsets = np.zeros(len(keys) + 1, np.int64)
    units = np.empty(1024, np.uint16)
    counts = np.zeros(terms, np.int32)
    touched = np.empty(terms, np.int32)
    made, at = 0, 0
    stack = np.empty((4 * LEVELS + 8, 4), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 0, 0, len(s.x)
    top = 1
    while top > 0:
        top -= 1
        level, prefix, lo, hi = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        if hi - lo < AGGREGATE:
            continue
        if made == 0 or keys[made - 1] != _key(lo, hi):
            m = 0
            for position in range(lo, hi):
                m = _add_set(s, position, counts, touched, m)
            while at + 6 * m > len(units):
                longer = np.empty(2 * len(units), np.uint16)
                longer[:at] = units[:at]
                units = longer
            previous = 0
            for code in range(terms):
                if counts[code] > 0:
                    at = put_unit(units, at, code - previous)
                    at = put_unit(units, at, counts[code])
                    previous = code
                    counts[code] = 0
            keys[made] = _key(lo, hi)
            made += 1
            offsets[made] = at
        if level < LEVELS:
            upper = hi
            for child in (3, 2, 1, 0):
                start = lo if child == 0 else node_start(s, level + 1, 4 * prefix + child, lo, upper)
                stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = level + 1, 4 * prefix + child, start, upper
                upper = start
                top += 1
    return keys[:made].copy(), offsets[: made + 1].copy(), units[:at].copy()


@kernel
def count_terms(
    s: Any,
    geographic: bool,
    kind: int,
    shape: npt.NDArray[Any],
    boxes: npt.NDArray[Any],
    word_offsets: npt.NDArray[Any],
    words: npt.NDArray[Any],
    t_after: int,
    t_last: int,
    counts: npt.NDArray[Any],
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], int]:
    """How many objects of a range-keyword search have each term.

    Args:
        s: columns of a segment.
        geographic: kind of space.
        kind: of region.
        shape: float64[4], its numbers.
        boxes: float64[m, 4], its covering boxes.
        word_offsets: of the keywords.
        words: of the keywords.
        t_after: objects have t > t_after
        t_last: and t <= t_last.
        counts: int32, at least one for each term of the segment, all 0; all 0 again afterwards.

    Returns:
        codes int32 in no particular order, their counts int64 (at least 1), and how many objects were checked.
    """
    touched = np.empty(len(s.word_offsets) - 1, np.int32)
    m = 0
    checked = 0
    if len(word_offsets) > 1:
        found, checked = search(s, geographic, kind, shape, boxes, word_offsets, words, t_after, t_last)
        for i in range(len(found)):
            m = _add_set(s, found[i], counts, touched, m)
    elif t_after < s.t_max and s.t_min <= t_last:
        a, b, c, d = shape[0], shape[1], shape[2], shape[3]
        timed = not (t_after < s.t_min and s.t_max <= t_last)
        first, end, inside = ranges(s, geographic, kind, shape, boxes, False)
        for r in range(len(first)):
            if inside[r] and not timed and end[r] - first[r] >= AGGREGATE:
                m = _add_table(s, int(np.searchsorted(s.table_keys, _key(first[r], end[r]))), counts, touched, m)
                continue
            checked += end[r] - first[r]
            for position in range(first[r], end[r]):
                if timed and not (t_after < s.t[position] and s.t[position] <= t_last):
                    continue
                if not inside[r] and not contains(geographic, kind, a, b, c, d, s.x[position], s.y[position]):
                    continue
                m = _add_set(s, position, counts, touched, m)
    totals = np.empty(m, np.int64)
    for i in range(m):
        totals[i] = counts[touched[i]]
        counts[touched[i]] = 0
    return touched[:m], totals, checked
