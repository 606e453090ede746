"""Sliding term counts of many areas over one store of objects.

An *area* is a set of objects; its *log* lists them in order of time: entry n >= 0 for object n, ~n for an object that
counts as minus one. Its *table* holds the counts of their terms in the window at its last step. It is updated from step
to step by adding new entries and subtracting those that have left, or by recounting the window if that is less work.
Objects, terms and words are stored once, regardless of the number of areas.

Tables are a cache: they are not part of a checkpoint, and an area without a table recounts its window.

Cost: 4 bytes per entry; per area and step O(terms of added and removed entries + distinct terms of the window).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Codes, Ints, grown, wide
from spatialstream.local.columns import Strings, Table
from spatialstream.local.journal import Arrays
from spatialstream.local.keywords import KeywordTable, TermKeys
from spatialstream.model.arrays import runs
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.objects import ObjectBatch

__all__ = ["NEVER", "TermLogs"]

NEVER = np.iinfo(np.int64).min
"""A time before all others."""

_BIAS = 1 << 30
_LEAST_LOG = 4
_LEAST_GARBAGE = 1 << 16


class _Areas(NamedTuple):
    """Columns of the areas.

    The log of area r is ``first[r]:last[r]`` of its ``room[r]`` entries from ``log[r]`` on; ``first[r]:added[r]``
    are counted in its table: ``size[r]`` terms (of at most ``width[r]``) from ``table[r]`` on, as of ``current[r]``.
    """

    log: Ints
    room: Ints
    first: Ints
    last: Ints
    added: Ints
    table: Ints
    width: Ints
    size: Ints
    current: Ints


class _Objects(NamedTuple):
    """The objects: their times; the terms of object n are ``codes[bounds[n]:bounds[n + 1]]``."""

    t: Ints
    bounds: Ints
    codes: Codes


class _Tables(NamedTuple):
    """Terms and counts of all tables; free space begins at ``top[0]``."""

    codes: Codes
    counts: Codes
    top: Ints


@kernel
def _object(entry: int) -> int:
    return entry if entry >= 0 else ~entry


@kernel
def _make_room(areas: _Areas, r: int, more: int, logs: Codes, top: Ints) -> Codes:
    """Make room for more entries than the log of area r can hold; return the logs' storage, which may have grown."""
    begin, live = areas.log[r] + areas.first[r], areas.last[r] - areas.first[r]
    if 2 * live >= areas.room[r] or live + more > areas.room[r]:
        wanted = max(_LEAST_LOG, 2 * areas.room[r])
        while wanted < live + more:
            wanted *= 2
        if top[0] + wanted > len(logs):
            logs = grown(logs, top[0], max(top[0] + wanted, 2 * len(logs)))
        areas.log[r], areas.room[r] = top[0], wanted
        top[0] += wanted
    for j in range(live):
        logs[areas.log[r] + j] = logs[begin + j]
    areas.added[r] -= areas.first[r]
    areas.first[r], areas.last[r] = 0, live
    return logs


@kernel
def _append(rows: Codes, entries: Codes, t: Ints, areas: _Areas, logs: Codes, top: Ints) -> Codes:
    """Append entries to the logs of areas; return the logs' storage, which may have grown.

    Entries of one area that stand together are in time order, and merged into its log at once. One that is earlier than
    the entries counted in the area's table invalidates the table.
    """
    begin = 0
    while begin < len(rows):
        r, end = rows[begin], begin + 1
        while end < len(rows) and rows[end] == r:
            end += 1
        if areas.last[r] + end - begin > areas.room[r]:
            logs = _make_room(areas, r, end - begin, logs, top)
        base, left, at = areas.log[r], areas.last[r], areas.last[r] + end - begin
        for i in range(end - 1, begin - 1, -1):
            entry = wide(entries[i])
            while left > areas.first[r] and t[_object(wide(logs[base + left - 1]))] > t[_object(entry)]:
                at, left = at - 1, left - 1
                logs[base + at] = logs[base + left]
            at -= 1
            logs[base + at] = entry
        areas.last[r] += end - begin
        if at < areas.added[r]:
            areas.added[r] = areas.first[r]
            areas.size[r] = 0
        begin = end
    return logs


@kernel
def _packed_logs(areas: _Areas, after: Ints, t: Ints, logs: Codes) -> tuple[Ints, Codes]:
    """The entries of each area r that are later than ``after[r]``: their numbers, and the entries area by area."""
    sizes = np.empty(len(after), np.int64)
    total = 0
    for r in range(len(after)):
        first, last, base = areas.first[r], areas.last[r], areas.log[r]
        while first < last and t[_object(wide(logs[base + first]))] <= after[r]:
            first += 1
        sizes[r] = last - first
        total += last - first
    packed, at = np.empty(total, np.int32), 0
    for r in range(len(after)):
        end = areas.log[r] + areas.last[r]
        for j in range(end - sizes[r], end):
            packed[at] = logs[j]
            at += 1
    return sizes, packed


@lean_kernel
def _terms_of(objects: _Objects, logs: Codes, first: int, last: int) -> int:
    """The total number of terms of the entries ``first:last``."""
    terms = 0
    for j in range(first, last):
        o = _object(wide(logs[j]))
        terms += objects.bounds[o + 1] - objects.bounds[o]
    return terms


@lean_kernel
def _tally(
    objects: _Objects, logs: Codes, first: int, last: int, sign: int, scratch: Codes, seen: Codes, found: int
) -> int:
    """Add the terms of the entries ``first:last`` to ``scratch``, times ``sign``; append new ones to ``seen[found:]``.

    Returns the total number of terms seen. Counts in ``scratch`` are biased, so 0 means a term that was not seen.
    """
    bounds, codes = objects.bounds, objects.codes
    for j in range(first, last):
        entry = wide(logs[j])
        o = _object(entry)
        change = sign if entry >= 0 else -sign
        for i in range(bounds[o], bounds[o + 1]):
            code = codes[i]
            if scratch[code] == 0:
                scratch[code] = _BIAS
                seen[found] = code
                found += 1
            scratch[code] += change
    return found


@lean_kernel
def _recall(codes: Codes, counts: Codes, first: int, last: int, scratch: Codes, seen: Codes, found: int) -> int:
    """Like :func:`_tally` for the counts ``first:last`` of a table."""
    for j in range(first, last):
        code = codes[j]
        if scratch[code] == 0:
            scratch[code] = _BIAS
            seen[found] = code
            found += 1
        scratch[code] += counts[j]
    return found


@lean_kernel
def _settle(scratch: Codes, seen: Codes, found: int, counts: Codes) -> int:
    """Keep the seen terms whose count is not 0, and write their counts; clear ``scratch``. Returns their number."""
    kept = 0
    for j in range(found):
        code = seen[j]
        count = scratch[code] - _BIAS
        scratch[code] = 0
        if count != 0:
            seen[kept] = code
            counts[kept] = count
            kept += 1
    return kept


@kernel
def _keep(areas: _Areas, r: int, tables: _Tables, codes: Codes, counts: Codes, size: int) -> _Tables:
    """Store ``size`` terms and counts as the table of area r; return the tables' storage, which may have grown."""
    if size > areas.width[r]:
        wanted, top = size + size // 2, tables.top[0]
        if top + wanted > len(tables.codes):
            room = max(top + wanted, 2 * len(tables.codes))
            tables = _Tables(grown(tables.codes, top, room), grown(tables.counts, top, room), tables.top)
        areas.table[r], areas.width[r] = top, wanted
        tables.top[0] = top + wanted
    base = areas.table[r]
    tables.codes[base : base + size] = codes[:size]
    tables.counts[base : base + size] = counts[:size]
    areas.size[r] = size
    return tables


@kernel
def _advance(
    areas: _Areas, r: int, now: int, window: int, objects: _Objects, logs: Codes, tables: _Tables, scratch: Codes
) -> _Tables:
    """Update the table of area r to the step ``now``; return the tables' storage, which may have grown."""
    base, old, added, last = areas.log[r], areas.first[r], areas.added[r], areas.last[r]
    first = old
    while first < last and objects.t[_object(wide(logs[base + first]))] <= now - window:
        first += 1
    end = max(first, added)
    while end < last and objects.t[_object(wide(logs[base + end]))] <= now:
        end += 1
    if first - old >= added - first:  # more has left than is still counted
        areas.size[r] = 0
        old, added = first, first
    areas.first[r], areas.added[r] = first, end
    if old == first and added == end:
        return tables
    terms = _terms_of(objects, logs, base + old, base + first) + _terms_of(objects, logs, base + added, base + end)
    seen = np.empty(areas.size[r] + terms, np.int32)
    begin = areas.table[r]
    found = _recall(tables.codes, tables.counts, begin, begin + areas.size[r], scratch, seen, 0)
    found = _tally(objects, logs, base + old, base + first, -1, scratch, seen, found)
    found = _tally(objects, logs, base + added, base + end, 1, scratch, seen, found)
    counts = np.empty(found, np.int32)
    return _keep(areas, r, tables, seen, counts, _settle(scratch, seen, found, counts))


@kernel
def _count(
    common: Codes,
    own: Codes,
    now: Ints,
    window: Ints,
    areas: _Areas,
    objects: _Objects,
    logs: Codes,
    tables: _Tables,
    scratch: Codes,
) -> tuple[_Tables, Ints, Codes, Codes]:
    """The counts of pairs of areas at steps, in time order.

    Returns the tables' storage, which may have grown; end of each pair's counts in the last two; terms; counts.
    """
    ends = np.empty(len(now), np.int64)
    codes, counts, size = np.empty(4096, np.int32), np.empty(4096, np.int32), 0
    for i in range(len(now)):
        g, r = common[i], own[i]
        if areas.current[g] != now[i]:
            tables = _advance(areas, g, now[i], window[g], objects, logs, tables, scratch)
            areas.current[g] = now[i]
        if r >= 0 and areas.current[r] != now[i]:
            tables = _advance(areas, r, now[i], window[r], objects, logs, tables, scratch)
            areas.current[r] = now[i]
        more = areas.size[r] if r >= 0 else 0
        if size + areas.size[g] + more > len(codes):
            room = 2 * size + areas.size[g] + more
            codes, counts = grown(codes, size, room), grown(counts, size, room)
        begin, end = areas.table[g], areas.table[g] + areas.size[g]
        if more > 0:
            seen = codes[size:]
            found = _recall(tables.codes, tables.counts, begin, end, scratch, seen, 0)
            begin = areas.table[r]
            found = _recall(tables.codes, tables.counts, begin, begin + more, scratch, seen, found)
            size += _settle(scratch, seen, found, counts[size:])
        else:
            codes[size : size + end - begin] = tables.codes[begin:end]
            counts[size : size + end - begin] = tables.counts[begin:end]
            size += end - begin
        ends[i] = size
    return tables, ends, codes[:size], counts[:size]


class TermLogs:
    """Objects with their terms, and the logs and tables of areas. Areas and objects are known by their positions."""

    def __init__(self) -> None:
        self._areas = Table(dict.fromkeys(_Areas._fields, np.int64))
        self._objects, self._codes = Table({"t": np.int64, "end": np.int64}), Table({"code": np.int32})
        self._words = Strings()
        self._logs, self._log_top = np.empty(0, np.int32), np.zeros(1, np.int64)
        self._tables = _no_tables()
        self._latest = NEVER
        self.swept = 0
        """Number of objects after the last :meth:`compact`."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of objects, of their terms, and of distinct words."""
        return len(self._objects), len(self._codes), len(self._words)

    @property
    def nbytes(self) -> int:
        """Memory of objects, words, logs and tables."""
        tables = self._tables.codes.itemsize + self._tables.counts.itemsize
        stored = (self._areas, self._objects, self._codes, self._words)
        used = self._logs.itemsize * int(self._log_top[0]) + tables * int(self._tables.top[0])
        return sum(part.nbytes for part in stored) + used

    @property
    def crowded(self) -> bool:
        """Whether to :meth:`compact`: there are twice as many objects as after the last time."""
        return len(self._objects) > 2 * self.swept + _LEAST_GARBAGE

    @property
    def words(self) -> pa.StringArray:
        """The words, in the order of their codes."""
        return self._words.arrow(np.arange(len(self._words)))

    def add(self, areas: int) -> None:
        """Add areas with empty logs."""
        self._areas.append({"current": np.full(areas, NEVER)})

    def take(self, areas: Ints) -> None:
        """Keep only the given areas, in the given order."""
        self._areas.take(areas)

    def store(self, objects: ObjectBatch) -> int:
        """Store objects; return the position of the first."""
        terms = objects.terms.compact()
        table = KeywordTable.build(self.words)
        codes = table.translate(TermKeys.of_vocabulary(terms.vocabulary), np.arange(1, len(table) + 1)) - 1
        new = np.flatnonzero(codes < 0)
        codes[new] = len(table) + np.arange(len(new))
        self._words.append(terms.vocabulary.take(pa.array(new)))
        first = self._codes.append({"code": codes[terms.codes]})
        return self._objects.append({"t": objects.t, "end": first + terms.offsets[1:].astype(np.int64)})

    def append(self, areas: Codes, entries: Codes) -> None:
        """Append entries to the logs of areas, entry by entry: O(n) if they are in time order, after those before.

        Others, which are late, are put in their places, O(n log n) and the length of each area's log that has some.

        Args:
            areas: int32[n].
            entries: int32[n]: n for object n, or ~n if it counts as minus one.
        """
        t = self._objects["t"][np.where(entries < 0, ~entries, entries)]
        if len(t) and (t[0] < self._latest or np.any(t[1:] < t[:-1])):
            order = np.lexsort((t, areas))
            areas, entries = areas[order], entries[order]
        self._latest = int(np.max(t, initial=self._latest))
        self._logs = _append(areas, entries, self._objects["t"], self._areas.view(_Areas), self._logs, self._log_top)

    def latest(self, areas: Codes) -> Ints:
        """Time of the last entry of areas without negative entries; :data:`NEVER` if an area has no entries."""
        columns = self._areas.view(_Areas)
        filled = columns.last[areas] > columns.first[areas]
        latest = np.full(len(areas), NEVER)
        latest[filled] = self._objects["t"][self._logs[(columns.log + columns.last - 1)[areas[filled]]]]
        return latest

    def log(self, area: int) -> tuple[Codes, Ints]:
        """The entries of an area without negative entries, and their times."""
        areas = self._areas.view(_Areas)
        entries = self._logs[areas.log[area] + areas.first[area] : areas.log[area] + areas.last[area]]
        return entries, self._objects["t"][entries]

    def count(self, common: Codes, own: Codes, now: Ints, window: Ints) -> tuple[Ints, Codes, Codes]:
        """Counts of the terms in pairs of areas, in (now - window, now].

        Args:
            common: int32[m], an area.
            own: int32[m], a second area, or -1.
            now: int64[m], ascending; not before earlier steps of the area.
            window: int64 by area, ms; the window of an area never moves back.

        Returns:
            End of each pair's counts in the following two (int64[m]), codes of terms, counts (which are not 0).
        """
        areas = self._areas.view(_Areas)
        if self._tables.top[0] > 2 * int(areas.width.sum()) + _LEAST_GARBAGE:
            at = runs(areas.table, areas.size)
            self._tables = _Tables(self._tables.codes[at], self._tables.counts[at], np.full(1, len(at)))
            areas.table[:], areas.width[:] = np.cumsum(areas.size) - areas.size, areas.size
        self._tables, ends, codes, counts = _count(
            common,
            own,
            now,
            window,
            areas,
            self._stored(),
            self._logs,
            self._tables,
            np.zeros(len(self._words), np.int32),
        )
        return ends, codes, counts

    def _stored(self) -> _Objects:
        bounds = np.concatenate([np.zeros(1, np.int64), self._objects["end"]])
        return _Objects(self._objects["t"], bounds, self._codes["code"])

    def compact(self, after: Ints) -> None:
        """Drop entries, then objects without an entry, then words without an object. Codes and positions change.

        Args:
            after: int64 by area: entries at or before this time are dropped.
        """
        sizes, logs = _packed_logs(self._areas.view(_Areas), after, self._objects["t"], self._logs)
        negative = logs < 0
        used, position = np.unique(np.where(negative, ~logs, logs), return_inverse=True)
        position = position.astype(np.int32)
        self._place(sizes, np.where(negative, ~position, position).astype(np.int32))
        bounds = self._stored().bounds
        lengths = np.diff(bounds)[used]
        self._codes.take(runs(bounds[:-1][used], lengths))
        self._objects.take(used)
        self._objects["end"][:] = np.cumsum(lengths)
        words, codes = np.unique(self._codes["code"], return_inverse=True)
        self._codes["code"][:] = codes
        self._words.take(words.astype(np.int64))
        self.swept = len(self._objects)

    def _place(self, sizes: Ints, logs: Codes) -> None:
        """Replace all logs by packed ones, and drop all tables."""
        areas = self._areas
        areas["log"][:], areas["room"][:] = np.cumsum(sizes) - sizes, sizes
        areas["first"][:], areas["last"][:], areas["added"][:] = 0, sizes, 0
        areas["table"][:], areas["width"][:], areas["size"][:] = 0, 0, 0
        areas["current"][:] = NEVER
        self._logs, self._log_top = logs, np.full(1, len(logs))
        self._tables = _no_tables()

    def packed(self) -> tuple[Codes, Codes]:
        """All entries, after :meth:`compact`, for :meth:`load`: the area of each entry, and the entry."""
        return np.repeat(np.arange(len(self._areas), dtype=np.int32), self._areas["last"]), self._logs

    def since(self, objects: int, terms: int, words: int) -> Arrays:
        """The data stored since :attr:`sizes` had these values, for :meth:`extend`."""
        word_offsets, word_bytes = self._words.part(words)
        return {
            "object_t": self._objects["t"][objects:],
            "object_end": self._objects["end"][objects:],
            "term_code": self._codes["code"][terms:],
            "word_offsets": word_offsets,
            "word_bytes": word_bytes,
        }

    def extend(self, saved: Arrays) -> None:
        """Store the data of :meth:`since` again."""
        self._latest = int(np.max(saved["object_t"], initial=self._latest))
        self._objects.append({"t": saved["object_t"], "end": saved["object_end"]})
        self._codes.append({"code": saved["term_code"]})
        self._words.extend(saved["word_offsets"], saved["word_bytes"])

    def load(self, areas: Codes, entries: Codes) -> None:
        """Replace all entries by those of :meth:`packed`."""
        self._place(np.bincount(areas, minlength=len(self._areas)), entries)


def _no_tables() -> _Tables:
    return _Tables(np.empty(0, np.int32), np.empty(0, np.int32), np.zeros(1, np.int64))
