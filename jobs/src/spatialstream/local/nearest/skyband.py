"""Answers of continuous k-nearest queries over all slots, and their changes (SSTD, section 6.3).

The exact semantics. An answer is ordered by (distance, timestamp descending, id, x, y), and objects that are alike in
all of these by the fields that the stream keeps.

- Without a window: a row whenever an arrival enters the k nearest.
- With a window T, the answer at ``now`` is over objects with ``o.t`` in (now - T, now]: an object leaves at ``o.t +
  T``. All objects that leave at one instant leave together, before the arrivals of that instant; if they change the
  answer, there is one row with that instant as its time, provided that the query is active then. Then the arrivals are
  processed one by one in the order of (t, id, x, y, fields), with a row for each that changes the answer. With T = 0
  nothing is ever in the window, and there are no rows.
- Objects count if ``start <= o.t < end``; at ``end`` and later there are no rows.
- A *late* object, with ``o.t`` before the time H up to which changes have been reported, arrives at H: its row, if it
  changes the answer, has the time H, so that the times of a query's rows never decrease. Otherwise it is treated like
  any other object; it has no effect if it has left the window by H, or if the query has ended by then.

Rows are ordered by (t, leaving before arrival, the arrival's id, x, y, the query's id), and contain the complete new
answer.

For a window it suffices to keep the *k-skyband* over (position in the order of answers, time of leaving): an object
that is dominated by k others, each nearer and leaving no earlier, is in no answer until it leaves (Mouratidis, Bakiras,
Papadias, "Continuous monitoring of top-k queries over sliding windows", SIGMOD 2006). The first k of the skyband are
the answer. Without a window nothing leaves, and the k-skyband is the answer.

Cost: per arrival O(log s) comparisons and O(s) moves for a skyband of s objects (s = k without a window, about k ln(n
/ k) for n objects of random distances in the window); per row O(k), its size. State: 16 bytes per skyband entry and
one copy of each object in any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.arrays import Bytes, Codes, Flags, Floats, Ints, grown, wide
from spatialstream.local.base import ContinuousMerger
from spatialstream.local.columns import Strings, Table, earliest, join, rank_strings
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.wordtable import compare_words
from spatialstream.model.arrays import runs
from spatialstream.model.batches import Batch, joined
from spatialstream.model.expressions import fields_of, has_marks
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import StoredFields, chosen

__all__ = ["Arrivals", "Changes", "NearestMerger", "prepare"]

_NEVER = np.iinfo(np.int64).max
_NO_INTS = np.empty(0, np.int64)
_NOT_STORED = StoredFields.none(0)
_LEAST_SWEEP = 1 << 16
_LEAST_BAND = 4
_SHOWN = 1 << 20
"""Approximate number of objects in the answers of a part: bounds memory."""

_FIXED = {"number": np.int64, "k": np.int64, "window": np.int64, "start": np.int64}
_CHANGING = {"end": np.int64, "size": np.int64, "leaving": np.int64, "told": np.float64}
_PLACES = {"t": np.int64, "x": np.float64, "y": np.float64}
_BANDS = ("objects", "distances", "beaten")
_STORED = ("stored_offsets", "stored")
_DERIVED = {"offset": np.int64, "capacity": np.int64, "touched": np.bool_, "changed": np.bool_}
_SHRUNK = 2.0**-0.5
"""A radius is told again when it has shrunk to this share of the one that was told: then half of the area is left."""


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals(Batch):
    """The candidates sent by slots: m pairs of a query and an object, in any order.

    Attributes:
        number: int64[m], number of the query.
        ids: Arrow utf8[m], id of the object.
        t: int64[m], ms, timestamp of the object.
        x, y: float64[m], its coordinates.
        distance: float64[m], distance between query and object.
        stored: the fields of the object that the stream keeps.
    """

    number: Ints
    ids: pa.StringArray
    t: Ints
    x: Floats
    y: Floats
    distance: Floats
    stored: StoredFields = field(default=_NOT_STORED, kw_only=True)

    def __post_init__(self) -> None:
        if self.stored is _NOT_STORED:
            object.__setattr__(self, "stored", StoredFields.none(len(self.number)))

    @property
    def ordered_by(self) -> Floats:
        """The number by which answers are ordered, the least first."""
        return self.distance

    @classmethod
    def concat(cls, parts: Sequence[Arrivals]) -> Arrivals:
        """Concatenate the pairs of ``parts`` (those of all slots, for example), which may be empty."""
        return joined(
            parts or [cls(_NO_INTS, pa.array([], pa.string()), _NO_INTS, np.empty(0), np.empty(0), np.empty(0))]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Rows of results: m new answers, in the order described in the module.

    Attributes:
        number: int64[m], number of the query.
        query: Arrow utf8[m], its id.
        t: int64[m], ms, time of the change.
        offsets: int32[m + 1]; answer i is ``offsets[i]:offsets[i + 1]`` of the columns below, nearest first.
        ids: Arrow utf8, of objects.
        object_t: int64, ms.
        x, y: float64.
        distance: float64.
        score: float64, of answers that are ordered by more than the distance; None: there is none.
        stored: Arrow large_utf8, the fields that the stream keeps; None if it keeps none.
        fields: the choice of each query of them (:func:`~spatialstream.model.expressions.fields_of`), by its number;
            without one they are all.
    """

    number: Ints
    query: pa.StringArray
    t: Ints
    offsets: Codes
    ids: pa.StringArray
    object_t: Ints
    x: Floats
    y: Floats
    distance: Floats
    score: Floats | None
    stored: pa.LargeStringArray | None
    fields: Mapping[int, tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.number)

    def shown(self) -> pa.LargeStringArray | None:
        """The fields of the objects that their rows show."""
        chosen_by = {number: self.fields[number] for number in np.unique(self.number).tolist() if number in self.fields}
        if self.stored is None or not chosen_by:
            return self.stored
        owner, column = np.repeat(self.number, np.diff(self.offsets)), self.stored
        for fields in set(chosen_by.values()):
            numbers = [number for number, each in chosen_by.items() if each == fields]
            here = np.isin(owner, numbers)
            column = pc.replace_with_mask(column, pa.array(here), chosen(self.stored.filter(pa.array(here)), fields))
        return column


class _Queries(NamedTuple):
    """Columns of the queries; the skyband of query r is ``size[r]`` entries from ``offset[r]`` on, nearest first.

    ``leaving`` is when the first entry leaves, or earlier.
    """

    k: Ints
    window: Ints
    start: Ints
    end: Ints
    offset: Ints
    capacity: Ints
    size: Ints
    leaving: Ints
    touched: Flags


class _Objects(NamedTuple):
    """Columns of the objects."""

    t: Ints
    x: Floats
    y: Floats
    id_offsets: Ints
    id_bytes: Bytes
    stored_offsets: Ints
    stored_bytes: Bytes


class _Bands(NamedTuple):
    """The skybands of all queries, nearest first: object, distance, and number of objects that dominate it.

    Free space begins at ``top[0]``.
    """

    objects: Codes
    distances: Floats
    beaten: Codes
    top: Ints


class _Pairs(NamedTuple):
    """Arrivals of queries: object, distance, and rank of the object in the order of arrival."""

    objects: Codes
    distances: Floats
    ranks: Ints


class _Answers(NamedTuple):
    """Changed answers: query, time, rank of the arrival (-1: objects left), end of the answer; and objects, distances.

    ``size`` is the number of answers, and of objects in them.
    """

    rows: Ints
    t: Ints
    ranks: Ints
    ends: Ints
    objects: Codes
    distances: Floats
    size: Ints


@lean_kernel
def _before(objects: _Objects, a: int, a_distance: float, b: int, b_distance: float) -> bool:
    """Whether object a comes before object b in the order of answers."""
    if a_distance != b_distance:
        return a_distance < b_distance
    if objects.t[a] != objects.t[b]:
        return bool(objects.t[a] > objects.t[b])
    order = compare_words(objects.id_offsets, objects.id_bytes, wide(a), wide(b))
    if order != 0:
        return order < 0
    if objects.x[a] != objects.x[b]:
        return bool(objects.x[a] < objects.x[b])
    if objects.y[a] != objects.y[b]:
        return bool(objects.y[a] < objects.y[b])
    if len(objects.stored_offsets) <= max(a, b) + 1:
        return False
    return compare_words(objects.stored_offsets, objects.stored_bytes, wide(a), wide(b)) < 0


@lean_kernel
def _place(objects: _Objects, entries: Codes, distances: Floats, base: int, size: int, o: int, d: float) -> int:
    """The number of ``size`` entries from ``base`` on that come before, or equal, object o at distance d."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        other = distances[base + middle]
        if d < other or (d == other and _before(objects, o, d, entries[base + middle], other)):
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def _enlarge(queries: _Queries, bands: _Bands, r: int) -> _Bands:
    """Move the full skyband of query r to twice as much room; return the storage, which may have grown."""
    wanted = max(_LEAST_BAND, 2 * queries.capacity[r])
    if queries.window[r] < 0:
        wanted = min(wanted, queries.k[r])
    top, base = bands.top[0], queries.offset[r]
    if top + wanted > len(bands.objects):
        room = max(top + wanted, 2 * len(bands.objects))
        bands = _Bands(
            grown(bands.objects, top, room),
            grown(bands.distances, top, room),
            grown(bands.beaten, top, room),
            bands.top,
        )
    for j in range(queries.size[r]):
        bands.objects[top + j] = bands.objects[base + j]
        bands.distances[top + j] = bands.distances[base + j]
        bands.beaten[top + j] = bands.beaten[base + j]
    queries.offset[r], queries.capacity[r] = top, wanted
    bands.top[0] = top + wanted
    return bands


@lean_kernel
def _leave(objects: _Objects, queries: _Queries, bands: _Bands, r: int, now: int) -> bool:
    """Remove objects that have left the window of query r by ``now``; return whether the answer has changed."""
    times, entries, distances, beaten = objects.t, bands.objects, bands.distances, bands.beaten
    base, window = queries.offset[r], queries.window[r]
    changed, kept, leaving = False, base, _NEVER
    for j in range(base, base + queries.size[r]):
        leaves = times[entries[j]] + window
        if leaves <= now:
            changed = changed or j - base < queries.k[r]
        else:
            leaving = min(leaving, leaves)
            entries[kept] = entries[j]
            distances[kept] = distances[j]
            beaten[kept] = beaten[j]
            kept += 1
    queries.size[r] = kept - base
    queries.leaving[r] = leaving
    queries.touched[r] = True
    return changed


@lean_kernel
def _thin(objects: _Objects, queries: _Queries, bands: _Bands, r: int, at: int, t: int) -> int:
    """Before inserting an object of time t at position ``at`` of the skyband of query r, drop dominated entries.

    Entries are dropped if k others then dominate them. Returns the number of objects that dominate the new object; if
    it is k or more, the object must not be inserted, and nothing was changed.
    """
    times, entries, distances, beaten = objects.t, bands.objects, bands.distances, bands.beaten
    base, k, beats = queries.offset[r], queries.k[r], 0
    for j in range(base, base + at):
        if times[entries[j]] >= t:
            beats += 1
    if beats >= k:
        return beats
    kept = base + at
    for j in range(base + at, base + queries.size[r]):
        by = wide(beaten[j])
        if times[entries[j]] <= t:
            by += 1
        if by < k:
            entries[kept] = entries[j]
            distances[kept] = distances[j]
            beaten[kept] = by
            kept += 1
    queries.size[r] = kept - base
    return beats


@lean_kernel
def _insert(bands: _Bands, base: int, at: int, size: int, o: int, d: float, beats: int) -> None:
    """Insert an entry at position ``at`` of a skyband of ``size`` from ``base`` on, which has room for it."""
    entries, distances, beaten = bands.objects, bands.distances, bands.beaten
    for j in range(base + size, base + at, -1):
        entries[j] = entries[j - 1]
        distances[j] = distances[j - 1]
        beaten[j] = beaten[j - 1]
    entries[base + at] = o
    distances[base + at] = d
    beaten[base + at] = beats


@kernel
def _roomy(answers: _Answers, more: int) -> _Answers:
    """The same answers, with room for another one with ``more`` objects."""
    found, size = answers.size
    room, objects = 2 * found + 1024, 2 * size + 1024 + more
    return _Answers(
        grown(answers.rows, found, room),
        grown(answers.t, found, room),
        grown(answers.ranks, found, room),
        grown(answers.ends, found, room),
        grown(answers.objects, size, objects),
        grown(answers.distances, size, objects),
        answers.size,
    )


@lean_kernel
def _note(
    answers: _Answers, entries: Codes, distances: Floats, r: int, t: int, rank: int, base: int, count: int
) -> None:
    """Add the answer of query r, which is ``count`` entries from ``base`` on; there is room for it."""
    found, size = answers.size
    shown, shown_distances = answers.objects, answers.distances
    for j in range(count):
        shown[size + j] = entries[base + j]
        shown_distances[size + j] = distances[base + j]
    answers.rows[found] = r
    answers.t[found] = t
    answers.ranks[found] = rank
    answers.ends[found] = size + count
    answers.size[0] = found + 1
    answers.size[1] = size + count


@kernel
def _replay(
    rows: Ints,
    firsts: Ints,
    pairs: _Pairs,
    reported: int,
    horizon: int,
    objects: _Objects,
    queries: _Queries,
    bands: _Bands,
) -> tuple[_Bands, _Answers]:
    """Replay arrivals and leavings for ``rows[i]``, with the pairs ``firsts[i]:firsts[i + 1]`` in order of arrival.

    Objects earlier than ``reported`` arrive at that time.

    Returns the skybands' storage, which may have grown, and the changed answers, query by query.
    """
    empty = np.empty(0, np.int64)
    answers = _Answers(
        empty, empty, empty, empty, np.empty(0, np.int32), np.empty(0, np.float64), np.zeros(2, np.int64)
    )
    for i in range(len(rows)):
        r, at, last = rows[i], firsts[i], firsts[i + 1]
        while True:
            # the next event: a leaving, if it is not later than the next arrival
            until = horizon if at == last else max(objects.t[pairs.objects[at]], reported)
            if queries.window[r] >= 0 and queries.leaving[r] <= until:
                now, rank = queries.leaving[r], wide(np.int32(-1))
                if not _leave(objects, queries, bands, r, now) or now >= queries.end[r]:
                    continue
            elif at == last:
                break
            else:
                o, d, now, rank = pairs.objects[at], pairs.distances[at], until, pairs.ranks[at]
                at += 1
                t, window = objects.t[o], queries.window[r]
                if t < queries.start[r] or now >= queries.end[r] or (window >= 0 and t + window <= now):
                    continue
                base, beats = queries.offset[r], 0
                place = _place(objects, bands.objects, bands.distances, base, queries.size[r], o, d)
                if window < 0:
                    if place >= queries.k[r]:
                        continue
                    queries.size[r] = min(queries.size[r], queries.k[r] - 1)
                else:
                    beats = _thin(objects, queries, bands, r, place, t)
                    if beats >= queries.k[r]:
                        continue
                    queries.leaving[r] = min(queries.leaving[r], t + window)
                if queries.size[r] == queries.capacity[r]:
                    bands = _enlarge(queries, bands, r)
                _insert(bands, queries.offset[r], place, queries.size[r], o, d, beats)
                queries.size[r] += 1
                queries.touched[r] = True
                if place >= queries.k[r]:
                    continue
            shown = min(queries.size[r], queries.k[r])
            if answers.size[0] == len(answers.rows) or answers.size[1] + shown > len(answers.objects):
                answers = _roomy(answers, shown)
            _note(answers, bands.objects, bands.distances, r, now, rank, queries.offset[r], shown)
    return bands, answers


class NearestMerger(ContinuousMerger):
    """The answers of all CKQs.

    Args:
        space: the stream's space.

    Attributes:
        name: prefix of the names of its files.
        columns: what is kept of objects besides their ids.
    """

    name: ClassVar[str] = "nearest"
    columns: ClassVar[Mapping[str, npt.DTypeLike]] = _PLACES

    def __init__(self, space: Space) -> None:
        self.space = space
        self._queries, self._names = Table({**_FIXED, **_CHANGING, **_DERIVED}), Strings()
        self._objects, self._ids = Table(self.columns), Strings()
        self._stored, self._stores = Strings(), False  # of the objects, if the stream keeps fields
        self._fields = dict[int, tuple[str, ...]]()  # of the queries that choose some
        self._bands = _Bands(np.empty(0, np.int32), np.empty(0), np.empty(0, np.int32), np.zeros(1, np.int64))
        self._reported = np.iinfo(np.int64).min  # the latest horizon
        self._swept = 0  # objects kept at the last sweep
        self._journal = Journal(self.name)
        self._saved = 0, 0  # queries and objects of which the journal knows
        self._moved = False  # since the last checkpoint queries or objects have been dropped

    def __len__(self) -> int:
        """Number of queries, including finished ones that have not been dropped yet."""
        return len(self._queries)

    @property
    def nbytes(self) -> int:
        """Memory of queries, objects and skybands, O(1)."""
        entry = self._bands.objects.itemsize + self._bands.distances.itemsize + self._bands.beaten.itemsize
        stored = (self._queries, self._names, self._objects, self._ids, self._stored)
        return sum(part.nbytes for part in stored) + entry * int(self._bands.top[0])

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """Add queries, identified by their numbers from now on, and reported by their ids.

        Args:
            numbers: int64[n], distinct, none of them registered before.
            queries: n CKQs: objects with ``t <= o.t < t + τ`` count.
        """
        self._names.append(queries.ids)
        self._fields |= _choices(numbers, queries)
        self._queries.append(
            {
                "number": numbers,
                "k": queries.k,
                "window": queries.window,
                "start": queries.t,
                "end": queries.t + queries.duration,
                "leaving": _NEVER,
                "told": np.full(len(numbers), np.inf),
                "touched": True,
            }
        )

    def end_at(self, numbers: Ints, t: Ints) -> None:
        """Cancel queries: nothing at t or later counts or is reported. Unknown numbers are ignored.

        Args:
            numbers: int64[n].
            t: int64[n].
        """
        rows, which = earliest(self._queries["number"], numbers, t)
        self._queries["end"][rows] = np.minimum(self._queries["end"][rows], t[which])
        self._queries["touched"][rows] = True

    def changes(self, arrivals: Arrivals, horizon: int, shown: int = _SHOWN) -> Iterator[Changes]:
        """Process the arrivals of an epoch, and let objects leave until ``horizon``.

        Yields the changes in nonempty parts in order of time; callers must consume all parts.

        Args:
            arrivals: arrivals of all slots; those earlier than the last horizon are late, see the module. Pairs with
                unknown queries are ignored.
            horizon: no arrival is later; no future registration or cancellation is at or before it, except late ones.
            shown: maximum number of objects in the answers of a part, unless it consists of one instant.
        """
        if not len(self._queries) and not len(self._objects):  # as in every round of a stream without such queries
            self._reported = max(self._reported, horizon)
            return
        for part, until in self._parts(arrivals, horizon, shown):
            changes = self._replayed(part, until)
            if len(changes):
                yield changes

    def _parts(self, arrivals: Arrivals, horizon: int, shown: int) -> Iterator[tuple[Arrivals, int]]:
        """Split arrivals between instants, so that the answers of each part have at most about ``shown`` objects."""
        t, weight = self._instants(arrivals, horizon)
        if int(weight.sum()) <= shown:
            yield arrivals, horizon
            return
        order = np.argsort(t, kind="stable")
        t, ends = t[order], np.cumsum(weight[order])
        first, given, before = 0, 0, np.iinfo(np.int64).min
        while first < len(t):
            last = int(np.searchsorted(ends, given + shown, "right"))
            if last < len(t):  # whole instants, one at least
                last = int(max(np.searchsorted(t, t[last], "left"), np.searchsorted(t, t[first], "right")))
            until = horizon if last == len(t) else int(t[last - 1])
            yield arrivals.take(np.flatnonzero((arrivals.t > before) & (arrivals.t <= until))), until
            first, given, before = last, int(ends[last - 1]), until

    def _instants(self, arrivals: Arrivals, horizon: int) -> tuple[Ints, Ints]:
        """The times at which answers may change up to ``horizon``, and the number of objects each may then have."""
        queries = self._queries
        row = self._rows_of(arrivals.number)
        known = row >= 0
        row, come = row[known], arrivals.t[known]
        due = np.flatnonzero((queries["leaving"] <= horizon) & (queries["window"] >= 0))
        size = queries["size"][due]
        there = np.repeat(due, size)
        held = self._objects["t"][self._bands.objects[runs(queries["offset"][due], size)]]
        windowed = queries["window"][row] >= 0
        owner = np.concatenate([there, row[windowed]])
        leaves = np.concatenate([held, come[windowed]]) + queries["window"][owner]
        t = np.concatenate([come, leaves])
        weight = queries["k"][np.concatenate([row, owner])]
        now = t <= horizon
        return t[now], weight[now]

    def _replayed(self, arrivals: Arrivals, horizon: int) -> Changes:
        """All changes at once."""
        row, pairs = self._sorted(arrivals)
        queries, placed = self._queries, self._objects
        due = np.flatnonzero((queries["leaving"] <= horizon) & (queries["window"] >= 0))
        rows = np.union1d(row, due)
        firsts = np.append(np.searchsorted(row, rows), len(row))
        strings = self._ids.offsets, self._ids.data, self._stored.offsets, self._stored.data
        objects = _Objects(placed["t"], placed["x"], placed["y"], *strings)
        self._bands, answers = _replay(
            rows, firsts, pairs, self._reported, horizon, objects, queries.view(_Queries), self._bands
        )
        queries["changed"][answers.rows[: int(answers.size[0])]] = True
        changes = self._changes(answers, objects)
        self._reported = max(self._reported, horizon)
        self._drop(self._reported)
        return changes

    def _sorted(self, arrivals: Arrivals) -> tuple[Ints, _Pairs]:
        """Add the arrivals' objects; return the query's row of each pair, and the pairs by row, then by arrival."""
        keys = [arrivals.t, rank_strings(arrivals.ids), arrivals.x, arrivals.y]
        if arrivals.stored.column is not None:
            keys.append(_ranks(arrivals.stored.column))
        order = np.lexsort((arrivals.ordered_by, *keys[::-1]))
        new = np.zeros(len(order), np.bool_)
        new[:1] = True
        for column in keys:
            new[1:] |= column[order[1:]] != column[order[:-1]]
        rank = np.cumsum(new) - 1
        row = self._rows_of(arrivals.number[order])
        by_row = np.argsort(row, kind="stable")
        by_row = by_row[np.searchsorted(row[by_row], 0) :]
        objects = self._keep_objects(arrivals, order, np.flatnonzero(new), rank, by_row)
        return row[by_row], _Pairs(objects, arrivals.ordered_by[order[by_row]], rank[by_row].astype(np.int64))

    def _keep_objects(self, arrivals: Arrivals, order: Ints, new: Ints, rank: Ints, pairs: Ints) -> Codes:
        """Keep the arrivals' objects; returns the object of each pair.

        Args:
            arrivals: the pairs.
            order: positions of the pairs, sorted by object.
            new: positions in ``order`` of the first pair of each object.
            rank: the object's number, for each of ``order``.
            pairs: positions in ``order`` of the pairs of known queries.
        """
        base = self._keep(arrivals, order[new])
        return (base + rank[pairs]).astype(np.int32)

    def _keep(self, arrivals: Arrivals, pairs: Ints) -> int:
        """Keep the objects of some pairs; returns the position of the first."""
        self._ids.append(arrivals.ids.take(pa.array(pairs)))
        if arrivals.stored.column is not None:
            self._stores = True
            self._stored.append(arrivals.stored.column.take(pa.array(pairs)).cast(pa.string()))
        return self._objects.append({name: getattr(arrivals, name)[pairs] for name in self.columns})

    def _has(self, numbers: Ints) -> Flags:
        """Whether each number is that of a query."""
        return np.isin(numbers, self._queries["number"])

    def _rows_of(self, wanted: Ints) -> Ints:
        """The row of each number; -1 if unknown."""
        numbers = self._queries["number"]
        if not len(numbers):
            return np.full(len(wanted), -1)
        by_number = np.argsort(numbers, kind="stable")
        row = by_number[np.minimum(np.searchsorted(numbers[by_number], wanted), len(numbers) - 1)]
        return np.where(numbers[row] == wanted, row, -1)

    def radii(self) -> tuple[Ints, Floats]:
        """See :class:`ContinuousMerger`: the distances of the k-th objects, of queries without a window."""
        queries = self._queries
        rows = np.flatnonzero(queries["changed"])
        queries["changed"][rows] = False
        rows = rows[(queries["window"][rows] < 0) & (queries["size"][rows] == queries["k"][rows])]
        radius = self._bands.distances[queries["offset"][rows] + queries["k"][rows] - 1]
        told = radius < _SHRUNK * queries["told"][rows]
        rows, radius = rows[told], radius[told]
        queries["told"][rows], queries["touched"][rows] = radius, True
        order = np.argsort(queries["number"][rows])
        return queries["number"][rows[order]], radius[order]

    def _changes(self, answers: _Answers, objects: _Objects) -> Changes:
        """Sort changed answers, and replace positions of objects by their columns."""
        found = int(answers.size[0])
        row, t, ends = answers.rows[:found], answers.t[:found], answers.ends[:found]
        names, sizes = self._names.arrow(row), np.diff(ends, prepend=0)
        order = np.lexsort((rank_strings(names), answers.ranks[:found], t))
        offsets = np.concatenate([[0], np.cumsum(sizes[order])]).astype(np.int32)
        entries = runs((ends - sizes)[order], sizes[order])
        shown = answers.objects[entries].astype(np.int64)
        return Changes(
            self._queries["number"][row[order]],
            names.take(pa.array(order)),
            t[order],
            offsets,
            self._ids.arrow(shown),
            objects.t[shown],
            objects.x[shown],
            objects.y[shown],
            *self._measured(answers.distances[entries], shown),
            self._stored.arrow(shown).cast(pa.large_string()) if self._stores else None,
            self._fields,
        )

    def _measured(self, ordered_by: Floats, shown: Ints) -> tuple[Floats, Floats | None]:
        """Distances and scores of shown objects, which were ordered by a number each."""
        return ordered_by, None

    def _drop(self, horizon: int) -> None:
        """Drop finished queries and objects in no skyband, if there are many."""
        kept = self._queries["end"] > horizon
        finished = 4 * int(kept.sum()) < 3 * len(kept)
        if finished or len(self._objects) > 2 * self._swept + _LEAST_SWEEP:
            self._compact(np.flatnonzero(kept))
            self._moved = True

    def _compact(self, rows: Ints) -> None:
        """Keep only the given queries, and the objects in their skybands."""
        packed = self._packed(rows)
        used, position = np.unique(packed.objects, return_inverse=True)
        self._bands = packed._replace(objects=position.astype(np.int32))
        self._objects.take(used)
        self._ids.take(used.astype(np.int64))
        if self._stores:
            self._stored.take(used.astype(np.int64))
        self._queries.take(rows)
        if self._fields:
            known = {*self._queries["number"].tolist()}
            self._fields = {number: each for number, each in self._fields.items() if number in known}
        self._names.take(rows)
        count = self._queries["size"]
        self._queries["offset"][:] = np.cumsum(count) - count
        self._queries["capacity"][:] = count
        self._swept = len(self._objects)

    def _packed(self, rows: Ints) -> _Bands:
        """The skybands of rows, concatenated."""
        at, bands = runs(self._queries["offset"][rows], self._queries["size"][rows]), self._bands
        return _Bands(bands.objects[at], bands.distances[at], bands.beaten[at], np.full(1, len(at)))

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        touched = np.flatnonzero(self._queries["touched"])
        delta = None
        if len(touched) and not self._moved:
            delta = self._rows(touched, *self._saved)
        anew = self._journal.save(write, delta, self._base, anew=self._moved)
        if anew:
            self._swept = len(self._objects)
        if anew or delta is not None:  # else objects that came and are in no answer are in no file yet
            self._saved = len(self._queries), len(self._objects)
        self._queries["touched"][:], self._moved = False, False
        choices = {"fields": [[number, each] for number, each in self._fields.items()]} if self._fields else {}
        return {"journal": self._journal.manifest, "swept": self._swept, "reported": int(self._reported), **choices}

    def _base(self) -> Arrays:
        self._compact(np.arange(len(self._queries)))
        return self._rows(np.arange(len(self._queries)), 0, 0)

    def _rows(self, rows: Ints, queries: int, objects: int) -> Arrays:
        """The mutable columns of the rows, and the queries and objects from the given positions on."""
        packed = self._packed(rows)
        name_offsets, names = self._names.part(queries)
        id_offsets, ids = self._ids.part(objects)
        return {
            "rows": rows,
            **{name: self._queries[name][rows] for name in _CHANGING},
            **{f"band_{name}": getattr(packed, name) for name in _BANDS},
            **{name: self._queries[name][queries:] for name in _FIXED},
            "name_offsets": name_offsets,
            "names": names,
            **{f"object_{name}": self._objects[name][objects:] for name in self.columns},
            "id_offsets": id_offsets,
            "ids": ids,
            **(dict(zip(_STORED, self._stored.part(objects), strict=True)) if self._stores else {}),
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> Self:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._reported = manifest["reported"]
        self._fields = {number: tuple(each) for number, each in manifest.get("fields", ())}
        self._journal, saved = Journal.open(cls.name, manifest["journal"], read)
        for arrays in saved:
            self._apply(arrays)
        objects, distances, beaten = (join([arrays[f"band_{name}"] for arrays in saved]) for name in _BANDS)
        self._bands = _Bands(objects, distances, beaten, np.full(1, len(objects)))
        self._saved, self._swept = (len(self._queries), len(self._objects)), manifest["swept"]
        return self

    def _apply(self, saved: Arrays) -> None:
        """Apply the rows of a base or delta, whose skybands are appended."""
        rows, count = saved["rows"], saved["size"]
        self._queries.append({name: saved[name] for name in _FIXED})
        self._names.extend(saved["name_offsets"], saved["names"])
        self._objects.append({name: saved[f"object_{name}"] for name in self.columns})
        self._ids.extend(saved["id_offsets"], saved["ids"])
        if _STORED[0] in saved:
            self._stores = True
            self._stored.extend(*(saved[name] for name in _STORED))
        queries, top = self._queries, self._bands.top
        for name in _CHANGING:
            queries[name][rows] = saved[name]
        queries["capacity"][rows] = count
        queries["offset"][rows] = top[0] + np.cumsum(count) - count
        top[0] += int(count.sum())


def _choices(numbers: Ints, queries: QueryBatch) -> dict[int, tuple[str, ...]]:
    """The fields that queries choose, by their numbers; of those that choose none there is nothing."""
    if not has_marks(queries.keywords):
        return {}
    each = ((number, fields_of(queries.keywords[row])) for row, number in enumerate(numbers.tolist()))
    return {number: fields for number, fields in each if fields is not None}


def _ranks(strings: pa.LargeStringArray) -> Ints:
    """The rank of each string: the number of distinct smaller ones, at least as many."""
    ranks: Ints = pc.rank(strings, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    merger = NearestMerger(WGS84)
    one, origin = np.zeros(1, np.int64), np.zeros(1)
    merger.register(one, QueryBatch.of([Query("q", 0, Predicate(), Nearest(0.0, 0.0, 1), Lifetime(9, True, 5))]))
    list(merger.changes(Arrivals(one, pa.array(["a"], pa.string()), one, origin, origin, origin), 0))
