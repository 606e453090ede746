"""Term tables of aggregate nodes, and the counting of terms in a region (STQ; paper, section 5.2).

Every quadtree node with at least :data:`AGGREGATE` objects has a table of (term, number of its objects with the
term). The counts of a region are the sum of the tables of the largest nodes inside it and of the remaining objects at
its edges, which are counted one by one: the result is exact, and cheap if the edges are short. Tables are used if the
whole segment is within the requested time range and there are no keywords; otherwise the matching objects are counted
one by one.

A table is keyed by the node's range of positions, so nodes with the same objects (all of them in one corner) share it.
It is a run of 16-bit units (see :mod:`spatialstream.local.snapshot.termlists`): differences of ascending codes, each
with its count.

Cost: about 8 bytes of tables per object; counting is O(entries of the tables + terms of the objects at the edges).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import grown, wide
from spatialstream.local.snapshot.addresses import Columns, columns_at
from spatialstream.local.snapshot.termlists import get_unit, put_unit
from spatialstream.local.snapshot.zorder import LEVELS, node_start
from spatialstream.local.snapshot.zranges import Ask, is_reached, ranges, search
from spatialstream.local.wordtable import add_word, gather, room_of, slots_of
from spatialstream.model.geometry import POLYGON, contains
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.polygons.table import polygon_contains

__all__ = ["AGGREGATE", "count", "count_words", "term_tables", "zeros_for"]

AGGREGATE = 8192
"""Minimum number of objects of a node that has a table."""


@lean_kernel
def _add_set(s: Columns, position: int, counts: npt.NDArray[Any], touched: npt.NDArray[Any], m: int) -> int:
    """Count the terms of one object; ``touched[:m]`` lists the codes counted so far. Returns the new m.

    ``touched`` has room for one extra code: a code is written there before it is known to be new, so that the processor
    need not wait for its count.
    """
    at, end = wide(s.unit_offsets[position]), wide(s.unit_offsets[position + 1])
    code = 0
    while at < end:
        step, at = get_unit(s.units, at)
        code += step
        touched[m] = code
        m += counts[code] == 0
        counts[code] += 1
    return m


@lean_kernel
def _add_table(s: Columns, table: int, counts: npt.NDArray[Any], touched: npt.NDArray[Any], m: int) -> int:
    at, end = s.table_offsets[table], s.table_offsets[table + 1]
    code = 0
    while at < end:
        step, at = get_unit(s.tables, at)
        number, at = get_unit(s.tables, at)
        code += step
        touched[m] = code
        m += counts[code] == 0
        counts[code] += number
    return m


@kernel
def _key(lo: int, hi: int) -> int:
    """Key of a table; keys ascend in the order of a descent: by first position, larger nodes first."""
    return (lo << 32) | (0xFFFFFFFF - hi)


@kernel
def term_tables(table: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """The tables of the segment in row 0: ascending keys int64[m], offsets int64[m + 1], units uint16."""
    s = columns_at(table, 0)
    terms = len(s.word_offsets) - 1
    keys = np.empty(len(s.x) // AGGREGATE * LEVELS + 1, np.int64)
    offsets = np.zeros(len(keys) + 1, np.int64)
    units = np.empty(1024, np.uint16)
    counts = np.zeros(terms, np.int32)
    touched = np.empty(terms + 1, np.int32)
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
                units = grown(units, at, 2 * len(units))
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
def zeros_for(table: npt.NDArray[Any], ask: Ask, zeros: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """An array of zeros (int32) for the codes of any reached segment: ``zeros`` itself, or a longer one if needed."""
    most = 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if is_reached(s, ask.t_after, ask.t_last):
            most = max(most, len(s.word_offsets) - 1)
    return zeros if len(zeros) >= most else np.zeros(most, np.int32)


@kernel
def count(
    table: npt.NDArray[Any], row: int, asked: tuple[Any, ...], counts: npt.NDArray[Any], touched: npt.NDArray[Any]
) -> tuple[int, int]:
    """Count one segment's terms in ``counts``: (number of codes in ``touched``, number of objects checked).

    ``counts`` has room for all codes of the segment, and ``touched`` for one more.
    """
    ask = Ask(*asked)
    s = columns_at(table, row)
    m, checked = 0, 0
    if len(ask.word_offsets) > 1:
        _, found, checked = search(table[row : row + 1], asked)
        for i in range(len(found)):
            m = _add_set(s, found[i], counts, touched, m)
    elif is_reached(s, ask.t_after, ask.t_last):
        a, b, c, d = ask.shape[0], ask.shape[1], ask.shape[2], ask.shape[3]
        timed, polygonal = not (ask.t_after < s.t_min and s.t_max <= ask.t_last), ask.kind == POLYGON
        if polygonal:
            polygon = table_of(ask.polygon)
        first, end, inside = ranges(s, ask, False)
        for r in range(len(first)):
            if inside[r] and not timed and end[r] - first[r] >= AGGREGATE:
                m = _add_table(s, int(np.searchsorted(s.table_keys, _key(first[r], end[r]))), counts, touched, m)
                continue
            checked += end[r] - first[r]
            for position in range(first[r], end[r]):
                if timed and not (ask.t_after < s.t[position] and s.t[position] <= ask.t_last):
                    continue
                if not inside[r]:
                    x, y = s.x[position], s.y[position]
                    if not contains(ask.geographic, ask.kind, a, b, c, d, x, y):
                        continue
                    if polygonal and not polygon_contains(polygon, ask.geographic, 0, x, y):
                        continue
                m = _add_set(s, position, counts, touched, m)
    return m, checked


@lean_kernel
def _in_order(counts: npt.NDArray[Any], size: int, touched: npt.NDArray[Any], m: int) -> None:
    """Sort the counted codes if there are many, so that later passes read memory sequentially."""
    if 8 * m < size:
        return
    at = 0
    for code in range(size):
        if counts[code] > 0:
            touched[at] = code
            at += 1


@lean_kernel
def _add_up(
    numbers: npt.NDArray[Any],
    counts: npt.NDArray[Any],
    touched: npt.NDArray[Any],
    m: int,
    totals: npt.NDArray[Any],
    present: npt.NDArray[Any],
    n: int,
) -> int:
    """Move the counts of ``touched[:m]`` to ``totals``; ``present[:n]`` lists the numbers in it. Returns the new n."""
    for i in range(m):
        code = touched[i]
        number = numbers[code] - 1
        present[n] = number
        n += totals[number] == 0
        totals[number] += counts[code]
        counts[code] = 0
    return n


@kernel
def count_words(
    table: npt.NDArray[Any],
    asked: tuple[Any, ...],
    known_offsets: npt.NDArray[Any],
    known: npt.NDArray[Any],
    slots: npt.NDArray[Any],
    size: int,
    counts: npt.NDArray[Any],
    totals: npt.NDArray[Any],
) -> tuple[
    tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int, npt.NDArray[Any], npt.NDArray[Any]],
    tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int],
]:
    """Count over all rows by the numbers of :class:`~spatialstream.local.snapshot.views.TermNumbers`, its state.

    Returns:
        the new state; and the result: terms (offsets, bytes), counts, and the number of objects checked.
    """
    ask = Ask(*asked)
    counts = zeros_for(table, ask, counts)
    touched = np.empty(len(counts) + 1, np.int32)
    present = np.empty(len(counts) + 1, np.int64)
    n, checked = 0, 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if not is_reached(s, ask.t_after, ask.t_last):
            continue
        m, more = count(table, row, asked, counts, touched)
        checked += more
        _in_order(counts, len(s.word_offsets) - 1, touched, m)
        if size + m >= len(known_offsets):
            known_offsets = grown(known_offsets, size + 1, 2 * (size + m) + 64)
            totals = grown(totals, size, len(known_offsets))
            totals[size:] = 0
        if 2 * (size + m) > room_of(slots):
            slots = slots_of(slots, known_offsets, known, size, 2 * (size + m))
        if n + m >= len(present):
            present = grown(present, n, 2 * (n + m) + 1)
        for i in range(m):
            code = touched[i]
            if s.numbers[code] == 0:
                number, size, known = add_word(
                    slots, known_offsets, known, size, s.words, s.word_offsets[code], s.word_offsets[code + 1]
                )
                s.numbers[code] = number + 1
        n = _add_up(s.numbers, counts, touched, m, totals, present, n)
    _in_order(totals, size, present, n)
    numbers = np.empty(n, np.int64)
    for i in range(n):
        numbers[i] = totals[present[i]]
        totals[present[i]] = 0
    found_offsets, found = gather(known_offsets, known, present[:n])
    return (known_offsets, known, slots, size, counts, totals), (found_offsets, found, numbers, checked)
