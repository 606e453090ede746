"""Snapshot searches for expressions: unions of conjunctions, forbidden terms, and conditions on properties.

Each group of an expression is a separate search, which prunes by all of its terms. Objects found by several searches
are deduplicated by segment and position. Forbidden terms and the condition on properties are checked on the objects
found.

Cost: the sum of the searches, and O(terms) for each object found if there are forbidden terms, O(tests) if there is a
condition. Of nearest objects, four times as many are searched again while too few of them satisfy the expression; each
search goes no farther than the k-th object of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Codes, Flags, Floats, Ints, wide
from spatialstream.local.snapshot.addresses import columns_at
from spatialstream.local.snapshot.rows import rows_at
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.termlists import get_unit
from spatialstream.local.snapshot.totals import Counts, added_up
from spatialstream.local.wordtable import find_word, gather, pack, to_arrow
from spatialstream.model.expressions import Expression
from spatialstream.model.kernels import kernel
from spatialstream.model.properties.condition import Condition
from spatialstream.model.properties.programs import Programs

__all__ = ["FoundNearest", "Satisfying", "Share", "count_terms", "nearest_of_groups", "satisfying", "search_groups"]

Found = tuple[Codes, Codes, int]
"""Objects as rows of the table and positions, ascending by both; and the number of objects checked."""

FoundNearest = tuple[Codes, Codes, Floats, int]
"""Objects as rows and positions, ascending by distance; their distances; and the number of objects checked."""

Satisfying = Callable[[Codes, Codes], Flags]
"""Whether each object, as a row and a position, satisfies what a search does not look for."""

SearchNearest = Callable[[int, float], FoundNearest]
"""Finds so many of the nearest objects of a group, of those within a distance (inclusive)."""

_MORE = 4
"""Factor by which more neighbours are requested if too few of them satisfy the expression."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """Segments of a table in which the same is looked for.

    Attributes:
        rows: their rows.
        places: int32, where these are in the table; None: they are all of it.
    """

    rows: Array
    places: Codes | None

    def owners(self, rows: Codes) -> Codes:
        """Rows of the table, of those of the share."""
        return rows if self.places is None else self.places[rows]


@kernel
def _lacking(table: Array, rows: Codes, positions: Codes, word_offsets: Array, words: Array) -> Flags:
    """Whether each object has none of the words."""
    lacking = np.ones(len(rows), np.bool_)
    absent = np.empty(len(word_offsets) - 1, np.int64)
    row = -1
    for i in range(len(rows)):
        s = columns_at(table, wide(rows[i]))
        if rows[i] != row:
            row = wide(rows[i])
            for w in range(len(absent)):
                absent[w] = find_word(s.slots, s.word_offsets, s.words, words, word_offsets[w], word_offsets[w + 1])
        at, end = wide(s.unit_offsets[positions[i]]), wide(s.unit_offsets[positions[i] + 1])
        code = 0
        while at < end:
            step, at = get_unit(s.units, at)
            code += step
            for w in range(len(absent)):
                if absent[w] == code:
                    lacking[i] = False
    return lacking


@kernel
def _tally(table: Array, row: int, positions: Codes) -> tuple[Array, Array, Ints]:
    """Count the terms of the objects at positions of a row: (offsets, bytes) of the terms, int64 counts."""
    s = columns_at(table, row)
    counts = np.zeros(len(s.word_offsets) - 1, np.int64)
    for position in positions:
        at, end = wide(s.unit_offsets[position]), wide(s.unit_offsets[position + 1])
        code = 0
        while at < end:
            step, at = get_unit(s.units, at)
            code += step
            counts[code] += 1
    present = np.flatnonzero(counts)
    offsets, words = gather(s.word_offsets, s.words, present)
    return offsets, words, counts[present]


@lru_cache(1_024)
def _program(condition: Condition) -> Programs:
    return Programs.of([condition])


def satisfying(table: Array, segments: Sequence[Segment | None], expression: Expression) -> Satisfying:
    """What an expression says of objects besides its groups.

    Args:
        table: the table of segments.
        segments: of each row; None: it is not read.
        expression: the expression.
    """

    def satisfied(rows: Codes, positions: Codes) -> Flags:
        kept = np.ones(len(rows), np.bool_)
        if expression.none:
            kept &= _lacking(table, rows, positions, *pack(expression.none))
        if expression.where is not None:
            program = _program(expression.where)
            for row in np.unique(rows).tolist():
                segment, here = segments[row], np.flatnonzero(rows == row)
                properties = None if segment is None else segment.properties
                kept[here] &= program.hold(properties, np.zeros(len(here), np.int32), positions[here])
        return kept

    return satisfied


def search_groups(expression: Expression, satisfied: Satisfying, search: Callable[[Sequence[str]], Found]) -> Found:
    """The objects that satisfy an expression.

    Args:
        expression: the expression.
        satisfied: see :func:`satisfying`.
        search: finds the objects that have all of the given terms.
    """
    found = [search(group) for group in expression.groups]
    checked = sum(each[2] for each in found)
    rows, positions, _ = found[0]
    if len(found) > 1:
        keys = np.unique(np.concatenate([rows.astype(np.int64) << 32 | positions for rows, positions, _ in found]))
        rows, positions = (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)
    if not expression.none and expression.where is None:
        return rows, positions, checked
    kept = satisfied(rows, positions)
    return rows[kept], positions[kept], checked


def nearest_of_groups(
    table: Array, k: int, bound: float, searches: Iterable[tuple[SearchNearest, Satisfying]]
) -> FoundNearest:
    """The k nearest objects within a distance that one of several searches finds.

    Args:
        table: the table of segments.
        k: number of objects.
        bound: the distance.
        searches: each with what else its objects have to satisfy, see :func:`satisfying`.
    """
    parts, checked = [], 0
    for search, satisfied in searches:
        wanted = k
        while True:
            rows, positions, distances, more = search(wanted, bound)
            checked += more
            kept = np.flatnonzero(satisfied(rows, positions))
            if len(kept) >= k or len(rows) < wanted:
                break
            wanted *= _MORE
        if 0 < k <= len(kept):
            bound = min(bound, float(distances[kept[k - 1]]))
        parts.append((rows[kept], positions[kept], distances[kept]))
    if len(parts) == 1:
        rows, positions, distances = parts[0]
        return rows[:k], positions[:k], distances[:k], checked
    rows, positions, distances = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(distances)
    nearest = distances[order[: k + 1]]
    if (nearest[:-1] < nearest[1:]).all():  # none of two searches, and no ties
        best = order[:k]
        return rows[best], positions[best], distances[best], checked
    _, first = np.unique(rows.astype(np.int64) << 32 | positions, return_index=True)
    found = rows_at(table, rows[first], positions[first], distances[first])
    best = first[found.order()[:k]]
    return rows[best], positions[best], distances[best], checked


def count_terms(table: Array, rows: Codes, positions: Codes) -> Counts:
    """Count the terms of objects: (terms, counts), in no particular order."""
    found = [(pa.array([], pa.string()), np.empty(0, np.int64))]
    for row in np.unique(rows).tolist():
        offsets, data, counts = _tally(table, row, positions[rows == row])
        found.append((to_arrow(offsets, data), counts))
    return added_up(found)
