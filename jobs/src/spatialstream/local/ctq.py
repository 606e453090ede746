"""Continuous top-k terms queries (CTQ): term counts of sliding windows, step by step (SSTD, sections 6.1 and 6.3, Figure 6).

A CTQ reports at every step now = q.t + δ, q.t + 2δ, ... <= q.t + τ the k terms found in most objects of its region with o.t in
(now - T, now] and o.t >= q.t. A slot reports, for each step, the counts over its own objects (a *partial*); MERGE adds them
up and selects (:func:`merge_steps`). A query that is cancelled at c reports the steps before c.

*Areas.* What the grid finds for an object is an area: the common region of a group, or the region of a single member
(:mod:`spatialstream.local.groups`). An area has a *log*, the objects in it in time order, and a *table*, the counts of its terms
in the window at its last step. A member's counts are those of its group's area plus those of its own, which holds

- the objects in its region outside the common one, and
- as negative entries, those of the common region that the group counts but that came before the member was there (o.t < q.t).

So members may join a group at any time, and windows are exact whatever T and δ are: a step adds the entries of the log that
have come into the window since the last step and subtracts those that have left it, or counts the window anew if that is
less work. This takes the place of panes of gcd(T, δ) ms: the log is a pane per object, stored once for all areas that hold it.

Cost: per (object, area) a 4-byte log entry; per step and area O(terms of the entries that came and went + its distinct terms).
Objects that no later step can see are not stored. Tables are a cache: they are not part of a checkpoint, the first step after
a restore counts the window anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local import groups
from spatialstream.local.columns import Strings, Table, compare_strings, earliest, rank_strings
from spatialstream.local.grid import ProbeBatch
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.keywords import KeywordTable, TermKeys
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.tiers import Tiers
from spatialstream.model.geometry import contains
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["ContinuousTermsIndex", "StepPartials", "StepRows", "merge_steps", "prepare"]

_NEVER = np.iinfo(np.int64).max
_LONG_AGO = np.iinfo(np.int64).min
_BIAS = np.int32(1 << 30)
_LEAST_SWEEP = 1 << 16

_QUERY = {
    "number": np.int64,
    "k": np.int32,
    "origin": np.int64,
    "step": np.int64,
    "last_step": np.int64,
    "common": np.int32,
    "own": np.int32,
}
_AREA = {
    "kind": np.uint8,
    "a": np.float64,
    "b": np.float64,
    "c": np.float64,
    "d": np.float64,
    "window": np.int64,
    "step": np.int64,
    "start": np.int64,
    "first": np.int64,
    "common": np.int32,
    "cell": np.int64,
}
_LOG = {
    "last": np.int64,
    "log": np.int64,
    "log_room": np.int64,
    "log_from": np.int64,
    "log_to": np.int64,
    "table": np.int64,
    "table_room": np.int64,
    "table_size": np.int64,
    "added": np.int64,
    "current": np.int64,
}

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class StepPartials:
    """What a slot counts at steps: m rows ordered by time.

    Attributes:
        number: int64[m], of the query.
        query: Arrow utf8[m], its id.
        now: int64[m], ms, the step.
        k: int32[m].
        terms: m sets of terms, in no particular order; empty where the slot has nothing.
        counts: int32, of each term of ``terms.codes``.
    """

    number: npt.NDArray[np.int64]
    query: pa.StringArray
    now: npt.NDArray[np.int64]
    k: npt.NDArray[np.int32]
    terms: TermLists
    counts: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.number)


@dataclass(frozen=True, slots=True, eq=False)
class StepRows:
    """Rows of results: m steps ordered by (time, query id).

    Attributes:
        number: int64[m], of the query.
        query: Arrow utf8[m], its id.
        t: int64[m], ms, the step.
        offsets: int32[m + 1]; the answer of row i is ``offsets[i]:offsets[i + 1]`` of the columns below.
        terms: Arrow utf8, most frequent first, ties by term.
        counts: int64.
    """

    number: npt.NDArray[np.int64]
    query: pa.StringArray
    t: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int32]
    terms: pa.StringArray
    counts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.number)


# ------------------------------------------------------------------------------------------------------------------ steps


def _first_step(origin: Ints, step: Ints, t: Ints | int) -> Ints:
    """The first of origin + step, origin + 2 step, ... that is later than t."""
    # t may be further away than the difference of two int64 can say
    after = np.maximum(np.asarray(t, np.int64), origin)
    return origin + ((after - origin) // step + 1) * step


@kernel
def _counts(t: int, start: int, first: int, step: int, last: int, window: int) -> bool:
    """Whether a step of an area (first, first + step, ... last) sees an object at t, of those from ``start`` on."""
    if t < start:
        return False
    if t <= first:
        at = first
    else:
        at = first + -((first - t) // step) * step
    return at <= last and t > at - window


@kernel
def _admit(
    geographic: bool,
    objects: Codes,
    areas: Codes,
    t: Ints,
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    kind: npt.NDArray[np.uint8],
    a: npt.NDArray[np.float64],
    b: npt.NDArray[np.float64],
    c: npt.NDArray[np.float64],
    d: npt.NDArray[np.float64],
    window: Ints,
    step: Ints,
    start: Ints,
    first: Ints,
    common: Codes,
    last: Ints,
) -> npt.NDArray[np.int8]:
    """For each pair of an object and an area that it is in: 1 if it counts there, -1 if it counts against, else 0."""
    out = np.zeros(len(objects), np.int8)
    for i in range(len(objects)):
        o, r = objects[i], areas[i]
        g = common[r]
        if g >= 0 and contains(geographic, kind[g], a[g], b[g], c[g], d[g], x[o], y[o]):
            before = t[o] < start[r] and _counts(t[o], start[g], first[g], step[g], last[g], window[g])
            if before and _counts(t[o], start[g], first[r], step[r], last[r], window[r]):
                out[i] = -1
        elif _counts(t[o], start[r], first[r], step[r], last[r], window[r]):
            out[i] = 1
    return out


@kernel
def _append(
    areas: Codes,
    entries: Codes,
    object_t: Ints,
    log: Ints,
    room: Ints,
    log_from: Ints,
    log_to: Ints,
    table_size: Ints,
    added: Ints,
    logs: Codes,
    top: int,
) -> tuple[Codes, int]:
    """Append entries to the logs of areas, in time order; returns the logs' storage, which may have grown.

    An entry that is earlier than what its area has counted makes the area count anew.
    """
    for i in range(len(areas)):
        r, entry = areas[i], entries[i]
        if log_to[r] == room[r]:
            live = log_to[r] - log_from[r]
            old = log[r] + log_from[r]
            if room[r] == 0 or 2 * live > room[r]:
                wanted = max(np.int64(4), 2 * room[r])
                if top + wanted > len(logs):
                    more = np.empty(max(top + wanted, 2 * len(logs)), np.int32)
                    more[:top] = logs[:top]
                    logs = more
                log[r] = top
                room[r] = wanted
                top += wanted
            for j in range(live):
                logs[log[r] + j] = logs[old + j]
            added[r] -= log_from[r]
            log_from[r] = 0
            log_to[r] = live
        t = object_t[entry if entry >= 0 else ~entry]
        base, at = log[r], log_to[r]
        while at > log_from[r]:
            other = logs[base + at - 1]
            if object_t[other if other >= 0 else ~other] <= t:
                break
            logs[base + at] = other
            at -= 1
        logs[base + at] = entry
        log_to[r] += 1
        if at < added[r]:
            added[r] = log_from[r]
            table_size[r] = 0
    return logs, top


@kernel
def _trim(after: Ints, object_t: Ints, log: Ints, log_from: Ints, log_to: Ints, added: Ints, logs: Codes) -> None:
    """Drop the entries of area r that are not later than ``after[r]``; tables must not be used afterwards."""
    for r in range(len(after)):
        while log_from[r] < log_to[r]:
            entry = logs[log[r] + log_from[r]]
            if object_t[entry if entry >= 0 else ~entry] > after[r]:
                break
            log_from[r] += 1
        added[r] = log_from[r]


@kernel
def _pack_logs(rows: Ints, log: Ints, log_from: Ints, log_to: Ints, logs: Codes) -> Codes:
    """The logs of areas, one after the other."""
    total = 0
    for r in rows:
        total += log_to[r] - log_from[r]
    out = np.empty(total, np.int32)
    at = 0
    for r in rows:
        for j in range(log_from[r], log_to[r]):
            out[at] = logs[log[r] + j]
            at += 1
    return out


@kernel
def _advance(
    r: int,
    now: int,
    window: int,
    object_t: Ints,
    term_from: Ints,
    term_codes: Codes,
    log: Ints,
    log_from: Ints,
    log_to: Ints,
    table: Ints,
    table_room: Ints,
    table_size: Ints,
    added: Ints,
    logs: Codes,
    codes: Codes,
    counts: Codes,
    top: int,
    scratch: Codes,
) -> tuple[Codes, Codes, int]:
    """Bring the table of area r to the step ``now``; returns the tables' storage, which may have grown."""
    base = log[r]
    begin = log_from[r]
    while begin < log_to[r]:
        entry = logs[base + begin]
        if object_t[entry if entry >= 0 else ~entry] > now - window:
            break
        begin += 1
    end = max(begin, added[r])
    while end < log_to[r]:
        entry = logs[base + end]
        if object_t[entry if entry >= 0 else ~entry] > now:
            break
        end += 1
    kept = added[r]
    dropped_to = begin
    if begin - log_from[r] >= kept - begin:  # less is left than is gone, or nothing at all
        table_size[r] = 0
        kept = begin
        dropped_to = log_from[r]
    if kept == end and dropped_to == log_from[r]:
        log_from[r] = begin
        added[r] = end
        return codes, counts, top
    bound = table_size[r]
    for j in range(log_from[r], dropped_to):
        entry = logs[base + j]
        o = entry if entry >= 0 else ~entry
        bound += term_from[o + 1] - term_from[o]
    for j in range(kept, end):
        entry = logs[base + j]
        o = entry if entry >= 0 else ~entry
        bound += term_from[o + 1] - term_from[o]
    seen = np.empty(bound, np.int32)
    distinct = 0
    for j in range(table_size[r]):
        code = codes[table[r] + j]
        scratch[code] = _BIAS + counts[table[r] + j]
        seen[distinct] = code
        distinct += 1
    for part in range(2):
        low, high = (log_from[r], dropped_to) if part == 0 else (kept, end)
        for j in range(low, high):
            entry = logs[base + j]
            o = entry
            change = np.int32(1 if part == 1 else -1)
            if entry < 0:
                o = ~entry
                change = -change
            for i in range(term_from[o], term_from[o + 1]):
                code = term_codes[i]
                if scratch[code] == 0:
                    scratch[code] = _BIAS
                    seen[distinct] = code
                    distinct += 1
                scratch[code] += change
    left = 0
    for j in range(distinct):
        if scratch[seen[j]] != _BIAS:
            left += 1
    if left > table_room[r]:
        wanted = max(np.int64(8), left + left // 2)
        if top + wanted > len(codes):
            room = max(top + wanted, 2 * len(codes))
            more_codes, more_counts = np.empty(room, np.int32), np.empty(room, np.int32)
            more_codes[:top] = codes[:top]
            more_counts[:top] = counts[:top]
            codes = more_codes
            counts = more_counts
        table[r] = top
        table_room[r] = wanted
        top += wanted
    at = table[r]
    for j in range(distinct):
        count = scratch[seen[j]] - _BIAS
        scratch[seen[j]] = 0
        if count != 0:
            codes[at] = seen[j]
            counts[at] = count
            at += 1
    table_size[r] = left
    log_from[r] = begin
    added[r] = end
    return codes, counts, top


@kernel
def _step(
    common: Codes,
    own: Codes,
    now: Ints,
    object_t: Ints,
    term_from: Ints,
    term_codes: Codes,
    window: Ints,
    log: Ints,
    log_from: Ints,
    log_to: Ints,
    table: Ints,
    table_room: Ints,
    table_size: Ints,
    added: Ints,
    current: Ints,
    logs: Codes,
    codes: Codes,
    counts: Codes,
    top: int,
    scratch: Codes,
) -> tuple[Codes, Codes, int, Ints, Codes, Codes]:
    """The counts of queries (their common and own area) at steps, in time order.

    Returns the tables' storage, and of each query and step: end of its counts in the last two, terms' codes, counts.
    """
    ends = np.empty(len(now), np.int64)
    out_codes, out_counts = np.empty(4096, np.int32), np.empty(4096, np.int32)
    size = 0
    for i in range(len(now)):
        for part in range(2):
            r = common[i] if part == 0 else own[i]
            if r >= 0 and current[r] != now[i]:
                codes, counts, top = _advance(
                    r, now[i], window[r], object_t, term_from, term_codes, log, log_from, log_to,
                    table, table_room, table_size, added, logs, codes, counts, top, scratch,
                )  # fmt: skip
                current[r] = now[i]
        g, r = common[i], own[i]
        room = table_size[g] + (table_size[r] if r >= 0 else 0)
        if size + room > len(out_codes):
            longer = max(size + room, 2 * len(out_codes))
            more_codes, more_counts = np.empty(longer, np.int32), np.empty(longer, np.int32)
            more_codes[:size] = out_codes[:size]
            more_counts[:size] = out_counts[:size]
            out_codes = more_codes
            out_counts = more_counts
        first = size
        for j in range(table[g], table[g] + table_size[g]):
            out_codes[size] = codes[j]
            out_counts[size] = counts[j]
            size += 1
        if r >= 0 and table_size[r] > 0:
            for j in range(first, size):
                scratch[out_codes[j]] = _BIAS + out_counts[j]
            for j in range(table[r], table[r] + table_size[r]):
                code = codes[j]
                if scratch[code] == 0:
                    scratch[code] = _BIAS
                    out_codes[size] = code
                    size += 1
                scratch[code] += counts[j]
            left = first
            for j in range(first, size):
                code = out_codes[j]
                if scratch[code] != _BIAS:
                    out_codes[left] = code
                    out_counts[left] = scratch[code] - _BIAS
                    left += 1
                scratch[code] = 0
            size = left
        ends[i] = size
    return codes, counts, top, ends, out_codes[:size], out_counts[:size]


@kernel
def _pack_tables(
    table: Ints, table_room: Ints, table_size: Ints, codes: Codes, counts: Codes
) -> tuple[Codes, Codes]:
    """The tables of all areas, one after the other; their places and rooms are changed accordingly."""
    total = 0
    for r in range(len(table)):
        total += table_size[r]
    out_codes, out_counts = np.empty(total, np.int32), np.empty(total, np.int32)
    at = 0
    for r in range(len(table)):
        for j in range(table_size[r]):
            out_codes[at + j] = codes[table[r] + j]
            out_counts[at + j] = counts[table[r] + j]
        table[r] = at
        table_room[r] = table_size[r]
        at += table_size[r]
    return out_codes, out_counts


# ------------------------------------------------------------------------------------------------------------------ index


class ContinuousTermsIndex:
    """The CTQs of one slot.

    Args:
        space: the stream's space.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._upto = _LONG_AGO
        self._queries = Table({**_QUERY, "cancelled": np.int64, "touched": np.bool_})
        self._names = Strings()
        self._areas, self._keys = Table({**_AREA, **_LOG}), Strings()
        self._tiers = Tiers(space, self._regions, self._alive)
        self._objects, self._terms = Table({"t": np.int64, "end": np.int64}), Table({"code": np.int32})
        self._words = Strings()
        self._clear_tables()
        self._logs, self._log_top = np.empty(0, np.int32), 0
        self._swept = 0  # objects kept at the last sweep
        self._journal = Journal("ctq")
        self._saved = [0, 0, 0, 0, 0]  # queries, areas, objects, terms, words of which the journal knows
        self._entries: list[tuple[Codes, Codes]] = []  # (areas, entries) appended since the last checkpoint
        self._moved = False  # since the last checkpoint rows or objects have been dropped

    def __len__(self) -> int:
        """Number of queries, those without further steps that have not been dropped yet included."""
        return len(self._queries)

    def register(
        self,
        numbers: npt.NDArray[np.int64],
        ids: pa.StringArray,
        queries: QueryBatch,
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
    ) -> None:
        """Add queries, from now on known by their numbers.

        Args:
            numbers: int64[n], distinct, none of them registered here before.
            ids: Arrow utf8[n], reported with their steps.
            queries: n CTQs; steps are at ``queries.t`` + δ, + 2δ, ...
            start: int64[n]: objects with ``o.t >= start`` count (q.t, or later where a query moves to this slot).
            end: int64[n], inclusive: the last step is not later (q.t + τ).
        """
        n = len(numbers)
        if n == 0:
            return
        first = np.maximum(_first_step(queries.t, queries.step, start - 1), queries.t + queries.step)
        keys = Strings()
        keys.append(groups.join_keywords(queries.keywords))
        members = groups.Members(queries.window, queries.step, queries.t % queries.step, keys, queries.regions)
        cell = groups.cells(members)
        candidates = np.flatnonzero(
            np.isin(self._areas["cell"], cell)
            & (self._areas["common"] < 0)
            & self._alive(np.arange(len(self._areas), dtype=np.int32))
        )
        founder, common_shape = groups.assign(self._groups(candidates), members, self._areas["cell"][candidates], cell)
        m = len(candidates)
        founders = np.unique(founder[founder >= m]) - m
        of_founder = np.full(n, -1, np.int64)
        of_founder[founders] = len(self._areas) + np.arange(len(founders))
        common = np.where(founder < m, np.append(candidates, 0)[np.minimum(founder, m)], of_founder[np.maximum(founder - m, 0)])
        group_start = np.full(n, _NEVER)
        np.minimum.at(group_start, np.maximum(founder - m, 0), np.where(founder >= m, start, _NEVER))
        group_first = np.full(n, _NEVER)
        np.minimum.at(group_first, np.maximum(founder - m, 0), np.where(founder >= m, first, _NEVER))
        made = Regions(queries.regions.kind[founders], common_shape[founders])
        base = self._add_areas(
            made,
            queries.keywords.take(founders),
            keys,
            founders,
            queries.window[founders],
            queries.step[founders],
            group_start[founders],
            group_first[founders],
            np.full(len(founders), -1),
            cell[founders],
        )
        del base
        shape = np.column_stack([self._areas[side][common] for side in "abcd"])
        differs = (shape != queries.regions.shape).any(axis=1)
        late = (start > self._areas["start"][common]) & (first - queries.window + 1 < start)
        single = np.flatnonzero(differs | late)
        own = np.full(n, -1, np.int64)
        own[single] = self._add_areas(
            queries.regions.take(single),
            queries.keywords.take(single),
            keys,
            single,
            queries.window[single],
            queries.step[single],
            start[single],
            first[single],
            common[single],
            cell[single],
        ) + np.arange(len(single))
        self._names.append(ids)
        self._queries.append(
            {
                "number": numbers,
                "k": queries.k,
                "origin": first - queries.step,
                "step": queries.step,
                "last_step": end,
                "common": common,
                "own": own,
                "cancelled": np.full(n, _NEVER),
                "touched": np.zeros(n, np.bool_),
            }
        )
        self._set_bounds()
        for i in np.flatnonzero(late).tolist():
            self._discount(int(own[i]))

    def _groups(self, rows: Ints) -> groups.Members:
        areas = self._areas
        keys = Strings()
        keys.append(self._keys.arrow(rows))
        return groups.Members(
            areas["window"][rows],
            areas["step"][rows],
            areas["first"][rows] % areas["step"][rows],
            keys,
            self._regions(rows.astype(np.int32)),
        )

    def _add_areas(
        self,
        regions: Regions,
        keywords: TermLists,
        keys: Strings,
        key_rows: Ints,
        window: Ints,
        step: Ints,
        start: Ints,
        first: Ints,
        common: Ints,
        cell: Ints,
    ) -> int:
        n = len(regions)
        zeros = np.zeros(n, np.int64)
        row = self._areas.append(
            {
                "kind": regions.kind,
                **{side: regions.shape[:, i] for i, side in enumerate("abcd")},
                "window": window,
                "step": step,
                "start": start,
                "first": first,
                "common": common,
                "cell": cell,
                **dict.fromkeys(_LOG, zeros),
                "last": np.full(n, _NEVER),
                "current": np.full(n, _LONG_AGO),
            }
        )
        self._keys.append(keys.arrow(key_rows))
        self._tiers.add(np.arange(row, row + n, dtype=np.int32), keywords)
        return row

    def _discount(self, area: int) -> None:
        """Enter into a member's own area, as negative, what its group has counted before the member was there."""
        areas = self._areas
        group = int(areas["common"][area])
        begin = int(areas["log"][group])
        entries = self._logs[begin + int(areas["log_from"][group]) : begin + int(areas["log_to"][group])]
        t = self._objects["t"][entries]
        seen = entries[(t < areas["start"][area]) & (t > areas["first"][area] - areas["window"][area])]
        self._enter(np.full(len(seen), area, np.int32), ~seen)

    def _enter(self, areas: Codes, entries: Codes) -> None:
        """Append entries to logs, and to what the next checkpoint writes."""
        if not len(areas):
            return
        self._entries.append((areas, entries))
        self._logs, self._log_top = _append(
            areas,
            entries,
            self._objects["t"],
            *(self._areas[name] for name in ("log", "log_room", "log_from", "log_to", "table_size", "added")),
            self._logs,
            self._log_top,
        )

    def _bound(self) -> Ints:
        """The last step of each query, if it falls on one."""
        bound: Ints = np.minimum(self._queries["last_step"], self._queries["cancelled"] - 1)
        return bound

    def _set_bounds(self) -> None:
        """An area is of use as long as a query that counts it."""
        bound, last = self._bound(), self._areas["last"]
        last[:] = _LONG_AGO
        np.maximum.at(last, self._queries["common"], bound)
        single = self._queries["own"] >= 0
        last[self._queries["own"][single]] = bound[single]

    def end_at(self, numbers: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
        """Cancel queries: they report no step at t or later. Unknown numbers are ignored.

        Args:
            numbers, t: int64[n].
        """
        rows, which = earliest(self._queries["number"], numbers, t)
        if len(rows):
            self._queries["cancelled"][rows] = np.minimum(self._queries["cancelled"][rows], t[which])
            self._queries["touched"][rows] = True
            self._set_bounds()

    def update(self, objects: ObjectBatch) -> None:
        """Take arrivals.

        Args:
            objects: ordered by (t, id, x, y).
        """
        if not len(objects) or not self._tiers.tiers:
            return
        batch = ProbeBatch.of(self._space, objects)
        pairs = []
        for tier in self._tiers.tiers:
            matches = tier.grid.probe(batch)
            matched, rows = matches.objects, tier.rows[matches.queries]
            sign = _admit(
                self._space.geographic,
                matched,
                rows,
                objects.t,
                objects.x,
                objects.y,
                *(self._areas[name] for name in ("kind", "a", "b", "c", "d", "window", "step", "start", "first", "common", "last")),
            )
            counted = np.flatnonzero(sign)
            pairs.append((matched[counted], rows[counted], sign[counted]))
        matched, rows, sign = (np.concatenate(part) for part in zip(*pairs, strict=True))
        used = np.zeros(len(objects), np.bool_)
        used[matched] = True
        kept = np.flatnonzero(used)
        position = np.cumsum(used, dtype=np.int32) - np.int32(1)
        base = self._store(objects.take(kept)) if len(kept) else 0
        entries = position[matched] + np.int32(base)
        self._enter(rows, np.where(sign > 0, entries, ~entries).astype(np.int32))

    def _store(self, objects: ObjectBatch) -> int:
        """Store objects with their terms in the slot's own vocabulary; returns the position of the first."""
        terms = objects.terms.compact()
        table = KeywordTable.build(self._words.arrow(np.arange(len(self._words))))
        known = table.translate(TermKeys.of_vocabulary(terms.vocabulary), np.arange(1, len(table) + 1))
        new = np.flatnonzero(known == 0)
        known[new] = len(self._words) + 1 + np.arange(len(new))
        self._words.append(terms.vocabulary.take(pa.array(new)))
        first = self._terms.append({"code": (known - 1)[terms.codes]})
        return self._objects.append({"t": objects.t, "end": first + terms.offsets[1:].astype(np.int64)})

    def step(self, upto: int) -> StepPartials:
        """Report every step of every query after the ``upto`` of the call before, up to and including this one.

        Args:
            upto: ms; all objects with ``o.t <= upto`` have been given.
        """
        queries = self._queries
        first = _first_step(queries["origin"], queries["step"], self._upto)
        bound = np.minimum(self._bound(), upto)
        steps = np.maximum((bound - first) // queries["step"] + 1, 0)
        steps[bound < first] = 0
        row = np.repeat(np.arange(len(queries)), steps)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(steps) - steps, steps)
        now = first[row] + nth * queries["step"][row]
        order = np.lexsort((row, queries["common"][row], now))
        row, now = row[order], now[order]
        self._upto = max(self._upto, upto)
        term_from = np.concatenate([np.zeros(1, np.int64), self._objects["end"]])
        self._codes, self._counts, self._table_top, ends, codes, counts = _step(
            queries["common"][row],
            queries["own"][row],
            now,
            self._objects["t"],
            term_from,
            self._terms["code"],
            *(
                self._areas[name]
                for name in (
                    "window", "log", "log_from", "log_to", "table", "table_room", "table_size", "added", "current",
                )
            ),
            self._logs,
            self._codes,
            self._counts,
            self._table_top,
            np.zeros(len(self._words), np.int32),
        )  # fmt: skip
        offsets = np.zeros(len(row) + 1, np.int32)
        offsets[1:] = ends
        words = self._words.arrow(np.arange(len(self._words)))
        partials = StepPartials(
            queries["number"][row],
            self._names.arrow(row),
            now,
            queries["k"][row],
            TermLists(offsets, codes, words).compact(),
            counts,
        )
        self._tidy()
        return partials

    def _tidy(self) -> None:
        """Drop what steps have left behind, once there is much of it."""
        if self._table_top > 2 * int(self._areas["table_room"].sum()) + _LEAST_SWEEP:
            tables = (self._areas[name] for name in ("table", "table_room", "table_size"))
            self._codes, self._counts = _pack_tables(*tables, self._codes, self._counts)
            self._table_top = len(self._codes)
        if len(self._objects) > 2 * self._swept + _LEAST_SWEEP:
            self._compact()
            self._moved = True

    def expire(self, now: int) -> None:
        """Drop the queries that have no step later than ``now`` and than the last call of :meth:`step`."""
        self._upto = max(self._upto, now)
        following = _first_step(self._queries["origin"], self._queries["step"], self._upto)
        kept = following <= self._bound()
        if 2 * int(kept.sum()) < len(kept):
            self._drop(np.flatnonzero(kept))
            self._compact()
            self._moved = True

    def _drop(self, rows: Ints) -> None:
        """Keep only the given queries and their areas."""
        self._queries.take(rows)
        self._names.take(rows)
        common, own = self._queries["common"], self._queries["own"]
        kept = np.unique(np.concatenate([common, own[own >= 0]]))
        position = np.full(len(self._areas) + 1, -1, np.int32)  # the last stands for "none", which is -1
        position[kept] = np.arange(len(kept))
        self._areas.take(kept)
        self._keys.take(kept.astype(np.int64))
        common[:] = position[common]
        own[:] = position[own]
        self._areas["common"][:] = position[self._areas["common"]]
        self._set_bounds()
        self._tiers.compact(position)

    def _compact(self) -> None:
        """Drop entries that no step will see, objects that no entry names, and words that no object has."""
        areas = self._areas
        following = np.maximum(_first_step(areas["first"] - areas["step"], areas["step"], self._upto), areas["first"])
        after = np.where(following > areas["last"], _NEVER, following - areas["window"])
        _trim(after, self._objects["t"], *(areas[name] for name in ("log", "log_from", "log_to", "added")), self._logs)
        rows = np.arange(len(areas))
        logs = _pack_logs(rows, *(areas[name] for name in ("log", "log_from", "log_to")), self._logs)
        negative = logs < 0
        used, entry = np.unique(np.where(negative, ~logs, logs), return_inverse=True)
        entry = entry.astype(np.int32)
        size = areas["log_to"] - areas["log_from"]
        self._place_logs(size, np.where(negative, ~entry, entry).astype(np.int32))
        starts = np.concatenate([np.zeros(1, np.int64), self._objects["end"]])
        lengths = np.diff(starts)[used]
        ends = np.cumsum(lengths)
        source = np.repeat(starts[:-1][used] - (ends - lengths), lengths) + np.arange(int(lengths.sum()))
        self._objects.take(used)
        self._objects["end"][:] = ends
        self._terms.take(source)
        words, codes = np.unique(self._terms["code"], return_inverse=True)
        self._terms["code"][:] = codes
        self._words.take(words.astype(np.int64))
        self._clear_tables()
        self._swept = len(self._objects)

    def _place_logs(self, size: Ints, logs: Codes) -> None:
        """Take packed logs as the storage of all areas."""
        areas = self._areas
        areas["log"][:], areas["log_room"][:] = np.cumsum(size) - size, size
        areas["log_from"][:], areas["log_to"][:], areas["added"][:] = 0, size, 0
        self._logs, self._log_top = logs, len(logs)

    def _clear_tables(self) -> None:
        """Let every area count its window anew."""
        for name in ("table", "table_room", "table_size"):
            self._areas[name][:] = 0
        self._areas["added"][:] = self._areas["log_from"]
        self._areas["current"][:] = _LONG_AGO
        self._codes, self._counts, self._table_top = np.empty(0, np.int32), np.empty(0, np.int32), 0

    def _regions(self, rows: npt.NDArray[np.int32]) -> Regions:
        areas = self._areas
        return Regions(areas["kind"][rows], np.column_stack([areas[side][rows] for side in "abcd"]))

    def _alive(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        alive: npt.NDArray[np.bool_] = self._areas["last"][rows] > self._upto
        return alive

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        sizes = self._sizes()
        touched = np.flatnonzero(self._queries["touched"])
        delta = None
        if not self._moved and (sizes != self._saved or len(touched) or self._entries):
            areas = np.concatenate([np.empty(0, np.int32), *(areas for areas, _ in self._entries)])
            entries = np.concatenate([np.empty(0, np.int32), *(entries for _, entries in self._entries)])
            delta = {
                **self._since(*self._saved),
                "touched": touched,
                "cancelled": self._queries["cancelled"][touched],
                "entry_area": areas,
                "entry": entries,
            }
        self._journal.save(write, delta, self._base, anew=self._moved)
        self._queries["touched"][:] = False
        self._saved, self._entries, self._moved = self._sizes(), [], False
        return {
            "journal": self._journal.manifest,
            "tiers": self._tiers.checkpoint(write, "ctq-grid"),
            "upto": int(self._upto),
            "swept": self._swept,
        }

    def _sizes(self) -> list[int]:
        return [len(part) for part in (self._queries, self._areas, self._objects, self._terms, self._words)]

    def _base(self) -> Arrays:
        self._compact()
        areas = self._areas
        size = areas["log_to"] - areas["log_from"]
        return {
            **self._since(0, 0, 0, 0, 0),
            "touched": np.arange(len(self._queries)),
            "cancelled": self._queries["cancelled"],
            "entry_area": np.repeat(np.arange(len(areas), dtype=np.int32), size),
            "entry": self._logs,
        }

    def _since(self, queries: int, areas: int, objects: int, terms: int, words: int) -> Arrays:
        """What never changes, of the rows from the given positions on."""
        name_offsets, names = self._names.part(queries)
        key_offsets, keys = self._keys.part(areas)
        word_offsets, word_bytes = self._words.part(words)
        return {
            **{f"query_{name}": self._queries[name][queries:] for name in _QUERY},
            "name_offsets": name_offsets,
            "names": names,
            **{f"area_{name}": self._areas[name][areas:] for name in _AREA},
            "key_offsets": key_offsets,
            "keys": keys,
            "object_t": self._objects["t"][objects:],
            "object_end": self._objects["end"][objects:],
            "term_code": self._terms["code"][terms:],
            "word_offsets": word_offsets,
            "words": word_bytes,
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> ContinuousTermsIndex:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._upto, self._swept = manifest["upto"], manifest["swept"]
        self._journal = Journal.open("ctq", manifest["journal"])
        self._apply(self._journal.base(read))
        for delta in self._journal.deltas(read):
            self._apply(delta)
        self._set_bounds()
        self._tiers.restore(manifest["tiers"], read)
        self._saved, self._entries = self._sizes(), []
        return self

    def _apply(self, saved: Arrays) -> None:
        n, m = len(saved["query_number"]), len(saved["area_kind"])
        self._queries.append(
            {
                **{name: saved[f"query_{name}"] for name in _QUERY},
                "cancelled": np.full(n, _NEVER),
                "touched": np.zeros(n, np.bool_),
            }
        )
        self._names.extend(saved["name_offsets"], saved["names"])
        self._areas.append(
            {
                **{name: saved[f"area_{name}"] for name in _AREA},
                **dict.fromkeys(_LOG, np.zeros(m, np.int64)),
                "current": np.full(m, _LONG_AGO),
            }
        )
        self._keys.extend(saved["key_offsets"], saved["keys"])
        self._objects.append({"t": saved["object_t"], "end": saved["object_end"]})
        self._terms.append({"code": saved["term_code"]})
        self._words.extend(saved["word_offsets"], saved["words"])
        self._queries["cancelled"][saved["touched"]] = saved["cancelled"]
        if self._log_top:
            self._enter(saved["entry_area"], saved["entry"])
        else:
            self._place_logs(np.bincount(saved["entry_area"], minlength=len(self._areas)), saved["entry"])


# ------------------------------------------------------------------------------------------------------------------ merge


@kernel
def _select(
    rows: Ints,
    firsts: Ints,
    k: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int32],
    codes: Codes,
    counts: Codes,
    word_offsets: Ints,
    words: npt.NDArray[np.uint8],
    scratch: Ints,
) -> tuple[npt.NDArray[np.int32], Codes, Ints]:
    """Add up the counts of ``rows[firsts[i]:firsts[i + 1]]`` for each i, and select the k[i] best terms, best first."""
    out_offsets = np.zeros(len(firsts), np.int32)
    out_codes, out_counts = np.empty(1024, np.int32), np.empty(1024, np.int64)
    size = 0
    for i in range(len(firsts) - 1):
        bound = 0
        for j in range(firsts[i], firsts[i + 1]):
            bound += offsets[rows[j] + 1] - offsets[rows[j]]
        seen = np.empty(bound, np.int32)
        distinct = 0
        for j in range(firsts[i], firsts[i + 1]):
            for at in range(offsets[rows[j]], offsets[rows[j] + 1]):
                code = codes[at]
                if scratch[code] == 0:
                    seen[distinct] = code
                    distinct += 1
                scratch[code] += counts[at]
        wanted = min(np.int64(k[i]), distinct)
        # a heap of the best so far, the worst of them at the root
        for j in range(distinct):
            code = seen[j]
            if j < wanted:
                at = j
                while at > 0 and _better(seen[(at - 1) // 2], code, scratch, word_offsets, words):
                    seen[at] = seen[(at - 1) // 2]
                    at = (at - 1) // 2
                seen[at] = code
            elif _better(code, seen[0], scratch, word_offsets, words):
                seen[j] = seen[0]
                _settle(seen, wanted, code, scratch, word_offsets, words)
        for last in range(wanted - 1, 0, -1):
            code = seen[last]
            seen[last] = seen[0]
            _settle(seen, last, code, scratch, word_offsets, words)
        if size + wanted > len(out_codes):
            room = max(size + wanted, 2 * len(out_codes))
            more_codes, more_counts = np.empty(room, np.int32), np.empty(room, np.int64)
            more_codes[:size] = out_codes[:size]
            more_counts[:size] = out_counts[:size]
            out_codes = more_codes
            out_counts = more_counts
        for j in range(wanted):
            out_codes[size] = seen[j]
            out_counts[size] = scratch[seen[j]]
            size += 1
        for j in range(distinct):
            scratch[seen[j]] = 0
        out_offsets[i + 1] = size
    return out_offsets, out_codes[:size], out_counts[:size]


@kernel
def _better(a: int, b: int, count: Ints, word_offsets: Ints, words: npt.NDArray[np.uint8]) -> bool:
    """Whether term a comes before term b: more often found, ties by term."""
    if count[a] != count[b]:
        return count[a] > count[b]
    return compare_strings(word_offsets, words, np.int64(a), np.int64(b)) < 0


@kernel
def _settle(heap: Codes, size: int, code: int, count: Ints, word_offsets: Ints, words: npt.NDArray[np.uint8]) -> None:
    """Put a term into a heap of ``size`` (the worst at the root) whose root is free."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _better(heap[child], heap[child + 1], count, word_offsets, words):
            child += 1
        if not _better(code, heap[child], count, word_offsets, words):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = code


def merge_steps(partials: Sequence[StepPartials]) -> StepRows:
    """Add up the partials of all slots, and select the k terms found in most objects at each step; ties by term.

    Steps at which no slot has anything give a row with no terms.
    """
    terms = TermLists.concat([part.terms.compact() for part in partials])
    none = np.empty(0, np.int64)
    number = np.concatenate([none, *(part.number for part in partials)])
    now = np.concatenate([none, *(part.now for part in partials)])
    k = np.concatenate([np.empty(0, np.int32), *(part.k for part in partials)])
    counts = np.concatenate([np.empty(0, np.int32), *(part.counts for part in partials)])
    names = pa.concat_arrays([pa.array([], pa.string()), *(part.query for part in partials)])
    rows = np.lexsort((number, rank_strings(names), now))
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(now[rows]) != 0) | (np.diff(number[rows]) != 0)
    firsts = np.append(np.flatnonzero(new), len(rows))
    words = Strings()
    words.append(terms.vocabulary)
    heads = rows[firsts[:-1]]
    offsets, codes, out_counts = _select(
        rows, firsts, k[heads], terms.offsets, terms.codes, counts, words.offsets, words.data, np.zeros(len(words), np.int64)
    )
    return StepRows(
        number[heads], names.take(pa.array(heads)), now[heads], offsets, words.arrow(codes.astype(np.int64)), out_counts
    )


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    from spatialstream.local import columns, grid
    from spatialstream.model.objects import SpatialObject
    from spatialstream.model.queries import Lifetime, Predicate, Query, TopTerms
    from spatialstream.model.regions import Box
    from spatialstream.model.space import WGS84

    columns.prepare()
    grid.prepare()
    groups.prepare()
    queries = QueryBatch.of(
        [
            Query(name, 0, Predicate(Box(0.0, 0.0, east, 1.0), ()), TopTerms(1), Lifetime(30, True, 5, 10))
            for name, east in (("a", 1.0), ("b", 0.9))
        ]
    )
    index = ContinuousTermsIndex(WGS84)
    zeros = np.zeros(2, np.int64)
    index.register(np.arange(2), queries.ids, queries, zeros, zeros + 30)
    index.update(ObjectBatch.of([SpatialObject("o", 9, 0.5, 0.5, ("a",)), SpatialObject("o", 9, 0.95, 0.5, ("b",))]))
    merge_steps([index.step(10)])
    _pack_tables(*(index._areas[name] for name in ("table", "table_room", "table_size")), index._codes, index._counts)
    index._compact()
