"""Answers of continuous k-nearest queries over all slots, and their changes (SSTD, section 6.3).

What is reported, exactly. An answer is ordered by (distance, timestamp descending, id, x, y).

- Without a window: a row whenever an arrival enters the k nearest.
- With a window T, the answer at ``now`` is over objects with ``o.t`` in (now - T, now]: an object leaves at ``o.t + T``. All
  that leave at one instant leave together, and before the arrivals of that instant; if they change the answer there is one
  row with that instant as its time, provided that the query lives then. Then come the arrivals, one by one in the order of
  (t, id, x, y), and a row for each that changes the answer. T = 0: nothing is ever in the window, and there are no rows.
- Objects count if ``start <= o.t < end``; at ``end`` and later there are no rows.

Rows are ordered by (t, leaving before arrival, the arrival's id, x, y, the query's id), and hold the whole new answer.

For a window it is enough to keep the *k-skyband* over (place in the order of answers, time of leaving): an object that k
others beat, each nearer and leaving no earlier, is in no answer until it leaves (Mouratidis, Bakiras, Papadias, "Continuous
monitoring of top-k queries over sliding windows", SIGMOD 2006). Its first k are the answer. Without a window nothing leaves,
and the k-skyband is the answer.

Cost: per arrival O(log s) comparisons and O(s) moves for a skyband of s objects (s = k without a window, about k ln(n / k)
for n objects of random distances in the window); per row O(k), its size. State: 16 bytes per skyband entry and one copy of
each object in any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.columns import Strings, Table, compare_strings, earliest, rank_strings
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.kernels import kernel
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space

__all__ = ["Arrivals", "Changes", "NearestMerger", "prepare"]

_NEVER = np.iinfo(np.int64).max
_LEAST_SWEEP = 1 << 16

_FIXED = {"number": np.int64, "k": np.int32, "window": np.int64, "start": np.int64}
_CHANGING = {"end": np.int64, "count": np.int64, "leaving": np.int64}
_COLUMNS = {**_FIXED, **_CHANGING, "offset": np.int64, "capacity": np.int64, "touched": np.bool_}
_PLACES = {"t": np.int64, "x": np.float64, "y": np.float64}

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """What the slots pass on: m pairs of a query and an object, in any order.

    Attributes:
        number: int64[m], of the query.
        ids: Arrow utf8[m], of the object.
        t: int64[m], ms.
        x, y: float64[m].
        distance: float64[m], between query and object.
    """

    number: npt.NDArray[np.int64]
    ids: pa.StringArray
    t: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    distance: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.number)

    @staticmethod
    def concat(parts: list[Arrivals]) -> Arrivals:
        """All pairs of ``parts`` (of the slots, say)."""
        if len(parts) == 1:
            return parts[0]
        columns = ("number", "t", "x", "y", "distance")
        dtypes = (np.int64, np.int64, np.float64, np.float64, np.float64)
        number, t, x, y, distance = (
            np.concatenate([np.empty(0, dtype), *(getattr(part, column) for part in parts)])
            for column, dtype in zip(columns, dtypes, strict=True)
        )
        ids = pa.concat_arrays([pa.array([], pa.string()), *(part.ids for part in parts)])
        return Arrivals(number, ids, t, x, y, distance)


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Rows of results: m new answers, in the order of the module's text.

    Attributes:
        number: int64[m], of the query.
        query: Arrow utf8[m], its id.
        t: int64[m], ms, when the answer changed.
        offsets: int32[m + 1]; answer i is ``offsets[i]:offsets[i + 1]`` of the columns below, nearest first.
        ids: Arrow utf8, of objects.
        object_t: int64, ms.
        x, y: float64.
        distance: float64.
    """

    number: npt.NDArray[np.int64]
    query: pa.StringArray
    t: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int32]
    ids: pa.StringArray
    object_t: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    distance: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.number)


@kernel
def _before(
    a: int, a_distance: float, b: int, b_distance: float, t: Ints, x: Floats, y: Floats, ids: Ints, data: Any
) -> bool:
    """Whether object a comes before object b in the order of answers."""
    if a_distance != b_distance:
        return a_distance < b_distance
    if t[a] != t[b]:
        return t[a] > t[b]
    order = compare_strings(ids, data, np.int64(a), np.int64(b))
    if order != 0:
        return order < 0
    if x[a] != x[b]:
        return x[a] < x[b]
    return y[a] < y[b]


@kernel
def _replay(
    rows: Ints,
    firsts: Ints,
    pair_object: npt.NDArray[np.int32],
    pair_distance: Floats,
    pair_rank: Ints,
    horizon: int,
    t: Ints,
    x: Floats,
    y: Floats,
    ids: Ints,
    data: npt.NDArray[np.uint8],
    k: npt.NDArray[np.int32],
    window: Ints,
    start: Ints,
    end: Ints,
    offset: Ints,
    capacity: Ints,
    count: Ints,
    leaving: Ints,
    touched: npt.NDArray[np.bool_],
    objects: npt.NDArray[np.int32],
    distances: Floats,
    beaten: npt.NDArray[np.int32],
    top: int,
) -> Any:
    """Replay arrivals and leavings of ``rows``, each with the pairs ``firsts[i]:firsts[i + 1]`` in order of arrival.

    Returns the storage of the skybands (objects, distances, beaten, top), and the rows of results: row, t, rank (-1: leaving),
    end of its answer in the last two, answers' objects and distances.
    """
    found, size = 0, 0
    out_row, out_t = np.empty(1024, np.int64), np.empty(1024, np.int64)
    out_rank, out_end = np.empty(1024, np.int64), np.empty(1024, np.int64)
    out_object, out_distance = np.empty(8192, np.int32), np.empty(8192, np.float64)
    for i in range(len(rows)):
        r = rows[i]
        at = firsts[i]
        last = firsts[i + 1]
        while True:
            # the next event of this query: a leaving, if it is not later than the next arrival
            until = horizon if at == last else t[pair_object[at]]
            changed = False
            now = until
            rank = np.int64(-1)
            base = offset[r]
            if window[r] >= 0 and leaving[r] <= until:
                now = leaving[r]
                kept = 0
                leaving[r] = _NEVER
                for j in range(count[r]):
                    expiry = t[objects[base + j]] + window[r]
                    if expiry <= now:
                        changed = changed or j < k[r]
                    else:
                        leaving[r] = min(leaving[r], expiry)
                        objects[base + kept] = objects[base + j]
                        distances[base + kept] = distances[base + j]
                        beaten[base + kept] = beaten[base + j]
                        kept += 1
                count[r] = kept
                touched[r] = True
                changed = changed and now < end[r]
            elif at == last:
                break
            else:
                o = pair_object[at]
                d = pair_distance[at]
                rank = pair_rank[at]
                at += 1
                if now < start[r] or now >= end[r] or window[r] == 0:
                    continue
                low, high = 0, count[r]
                while low < high:
                    middle = (low + high) // 2
                    if _before(o, d, objects[base + middle], distances[base + middle], t, x, y, ids, data):
                        high = middle
                    else:
                        low = middle + 1
                if window[r] < 0:
                    if low >= k[r]:
                        continue
                    kept = min(count[r], np.int64(k[r]) - 1)
                    beats = 0
                else:
                    beats = 0
                    for j in range(low):
                        if t[objects[base + j]] >= now:
                            beats += 1
                    if beats >= k[r]:
                        continue
                    kept = low
                    for j in range(low, count[r]):
                        more = beaten[base + j] + (1 if t[objects[base + j]] <= now else 0)
                        if more < k[r]:
                            objects[base + kept] = objects[base + j]
                            distances[base + kept] = distances[base + j]
                            beaten[base + kept] = more
                            kept += 1
                    leaving[r] = min(leaving[r], now + window[r])
                if kept == capacity[r]:
                    wanted = max(np.int64(4), 2 * capacity[r])
                    if window[r] < 0:
                        wanted = min(wanted, np.int64(k[r]))
                    if top + wanted > len(objects):
                        room = max(top + wanted, 2 * len(objects))
                        more_objects = np.empty(room, np.int32)
                        more_distances = np.empty(room, np.float64)
                        more_beaten = np.empty(room, np.int32)
                        more_objects[:top] = objects[:top]
                        more_distances[:top] = distances[:top]
                        more_beaten[:top] = beaten[:top]
                        objects = more_objects
                        distances = more_distances
                        beaten = more_beaten
                    for j in range(kept):
                        objects[top + j] = objects[base + j]
                        distances[top + j] = distances[base + j]
                        beaten[top + j] = beaten[base + j]
                    base = top
                    offset[r] = top
                    capacity[r] = wanted
                    top += wanted
                for j in range(kept, low, -1):
                    objects[base + j] = objects[base + j - 1]
                    distances[base + j] = distances[base + j - 1]
                    beaten[base + j] = beaten[base + j - 1]
                objects[base + low] = o
                distances[base + low] = d
                beaten[base + low] = beats
                count[r] = kept + 1
                touched[r] = True
                changed = low < k[r]
            if not changed:
                continue
            if found == len(out_row):
                room = 2 * found
                more_row, more_t = np.empty(room, np.int64), np.empty(room, np.int64)
                more_rank, more_end = np.empty(room, np.int64), np.empty(room, np.int64)
                more_row[:found] = out_row
                more_t[:found] = out_t
                more_rank[:found] = out_rank
                more_end[:found] = out_end
                out_row, out_t, out_rank, out_end = more_row, more_t, more_rank, more_end
            shown = min(count[r], np.int64(k[r]))
            if size + shown > len(out_object):
                room = max(size + shown, 2 * len(out_object))
                more_out_object, more_out_distance = np.empty(room, np.int32), np.empty(room, np.float64)
                more_out_object[:size] = out_object[:size]
                more_out_distance[:size] = out_distance[:size]
                out_object, out_distance = more_out_object, more_out_distance
            for j in range(shown):
                out_object[size + j] = objects[base + j]
                out_distance[size + j] = distances[base + j]
            size += shown
            out_row[found] = r
            out_t[found] = now
            out_rank[found] = rank
            out_end[found] = size
            found += 1
    return (
        objects,
        distances,
        beaten,
        top,
        out_row[:found],
        out_t[:found],
        out_rank[:found],
        out_end[:found],
        out_object[:size],
        out_distance[:size],
    )


@kernel
def _pack(
    rows: Ints, offset: Ints, count: Ints, objects: npt.NDArray[np.int32], distances: Floats, beaten: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], Floats, npt.NDArray[np.int32]]:
    """The skybands of rows, one after the other."""
    total = 0
    for r in rows:
        total += count[r]
    out_objects = np.empty(total, np.int32)
    out_distances = np.empty(total, np.float64)
    out_beaten = np.empty(total, np.int32)
    at = 0
    for r in rows:
        for j in range(count[r]):
            out_objects[at] = objects[offset[r] + j]
            out_distances[at] = distances[offset[r] + j]
            out_beaten[at] = beaten[offset[r] + j]
            at += 1
    return out_objects, out_distances, out_beaten


class NearestMerger:
    """The answers of all CKQs.

    Args:
        space: the stream's space.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._queries, self._names = Table(_COLUMNS), Strings()
        self._objects, self._ids = Table(_PLACES), Strings()
        self._entries = np.empty(0, np.int32), np.empty(0), np.empty(0, np.int32)
        self._top = 0
        self._swept = 0  # objects kept at the last sweep
        self._journal = Journal("nearest")
        self._saved = 0, 0  # queries and objects of which the journal knows
        self._moved = False  # since the last checkpoint queries or objects have been dropped

    def __len__(self) -> int:
        """Number of queries, finished ones that have not been dropped yet included."""
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
            numbers: int64[n], distinct, none of them registered before.
            ids: Arrow utf8[n], reported with their changes.
            queries: n CKQs.
            start, end: int64[n]: objects with ``start <= o.t < end`` count.
        """
        n = len(numbers)
        if n == 0:
            return
        zeros = np.zeros(n, np.int64)
        self._names.append(ids)
        self._queries.append(
            {
                "number": numbers,
                "k": queries.k,
                "window": queries.window,
                "start": start,
                "end": end,
                "count": zeros,
                "leaving": np.full(n, _NEVER),
                "offset": zeros,
                "capacity": zeros,
                "touched": np.ones(n, np.bool_),
            }
        )

    def end_at(self, numbers: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
        """Cancel queries: nothing at t or later counts or is reported. Unknown numbers are ignored.

        Args:
            numbers, t: int64[n].
        """
        rows, which = earliest(self._queries["number"], numbers, t)
        self._queries["end"][rows] = np.minimum(self._queries["end"][rows], t[which])
        self._queries["touched"][rows] = True

    def apply(self, arrivals: Arrivals, horizon: int) -> Changes:
        """Take the arrivals of an epoch, and let objects leave until ``horizon``.

        Args:
            arrivals: from all slots; none earlier than the horizon of the call before. Pairs with unknown queries are ignored.
            horizon: last timestamp of the epoch; no arrival is later.
        """
        row, pairs, pair_objects, rank = self._sorted(arrivals)
        queries = self._queries
        due = np.flatnonzero((queries["leaving"] <= horizon) & (queries["window"] >= 0))
        rows = np.union1d(row, due)
        firsts = np.append(np.searchsorted(row, rows), len(row))
        *entries, top, out_row, out_t, out_rank, out_end, out_object, out_distance = _replay(
            rows,
            firsts,
            pair_objects,
            arrivals.distance[pairs],
            rank,
            horizon,
            *(self._objects[name] for name in _PLACES),
            self._ids.offsets,
            self._ids.data,
            *(queries[name] for name in ("k", "window", "start", "end", "offset", "capacity", "count", "leaving", "touched")),
            *self._entries,
            self._top,
        )
        self._entries, self._top = (entries[0], entries[1], entries[2]), top
        changes = self._changes(out_row, out_t, out_rank, out_end, out_object, out_distance)
        self._drop(horizon)
        return changes

    def _sorted(self, arrivals: Arrivals) -> tuple[Ints, Ints, npt.NDArray[np.int32], Ints]:
        """Adds the arrivals' objects, and gives the pairs by query, then in order of arrival.

        Returns:
            Row of the query, position in ``arrivals``, object, and rank of the object in the order (t, id, x, y).
        """
        order = np.lexsort((arrivals.y, arrivals.x, rank_strings(arrivals.ids), arrivals.t))
        same = np.ones(len(order), np.bool_)
        if len(order):
            same[0] = False
        id_rank = rank_strings(arrivals.ids)[order]
        t, x, y = arrivals.t[order], arrivals.x[order], arrivals.y[order]
        for column in (t, id_rank, x, y):
            same[1:] &= column[1:] == column[:-1]
        rank = np.cumsum(~same)
        first = order[~same]
        base = self._objects.append({"t": arrivals.t[first], "x": arrivals.x[first], "y": arrivals.y[first]})
        self._ids.append(arrivals.ids.take(pa.array(first)))
        numbers = self._queries["number"]
        by_number = np.argsort(numbers, kind="stable")
        if len(numbers) == 0:
            order = order[:0]
        wanted = arrivals.number[order]
        place = np.minimum(np.searchsorted(numbers[by_number], wanted), len(numbers) - 1)
        row = by_number[place]
        known = np.flatnonzero(numbers[row] == wanted)
        by_row = known[np.argsort(row[known], kind="stable")]
        return row[by_row], order[by_row], (base + rank[by_row] - 1).astype(np.int32), rank[by_row]

    def _changes(
        self, row: Ints, t: Ints, rank: Ints, end: Ints, objects: npt.NDArray[np.int32], distance: Floats
    ) -> Changes:
        """Put rows of results in order, and the objects' columns in place of their numbers."""
        names = self._names.arrow(row)
        order = np.lexsort((rank_strings(names), rank, t))
        lengths = np.diff(end, prepend=0)
        offsets = np.zeros(len(row) + 1, np.int32)
        np.cumsum(lengths[order], out=offsets[1:])
        entry = np.repeat((end - lengths)[order] - offsets[:-1], lengths[order]) + np.arange(offsets[-1])
        shown = objects[entry].astype(np.int64)
        return Changes(
            self._queries["number"][row[order]],
            names.take(pa.array(order)),
            t[order],
            offsets,
            self._ids.arrow(shown),
            self._objects["t"][shown],
            self._objects["x"][shown],
            self._objects["y"][shown],
            distance[entry],
        )

    def _drop(self, horizon: int) -> None:
        """Drop finished queries and objects in no skyband, once there are many."""
        kept = self._queries["end"] > horizon
        finished = 4 * int(kept.sum()) < 3 * len(kept)
        if finished or len(self._objects) > 2 * self._swept + _LEAST_SWEEP:
            self._compact(np.flatnonzero(kept))
            self._moved = True

    def _compact(self, rows: Ints) -> None:
        """Keep only the given queries, and the objects in their skybands."""
        objects, distances, beaten = self._packed(rows)
        used, objects_now = np.unique(objects, return_inverse=True)
        self._objects.take(used)
        self._ids.take(used.astype(np.int64))
        self._queries.take(rows)
        self._names.take(rows)
        self._adopt(objects_now.astype(np.int32), distances, beaten)
        self._swept = len(self._objects)

    def _packed(self, rows: Ints) -> tuple[npt.NDArray[np.int32], Floats, npt.NDArray[np.int32]]:
        packed: tuple[npt.NDArray[np.int32], Floats, npt.NDArray[np.int32]] = _pack(
            rows, self._queries["offset"], self._queries["count"], *self._entries
        )
        return packed

    def _adopt(self, objects: npt.NDArray[np.int32], distances: Floats, beaten: npt.NDArray[np.int32]) -> None:
        """Take packed skybands as the storage of all rows."""
        count = self._queries["count"]
        self._queries["offset"][:] = np.cumsum(count) - count
        self._queries["capacity"][:] = count
        self._entries, self._top = (objects, distances, beaten), len(objects)

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        touched = np.flatnonzero(self._queries["touched"])
        delta = None
        if len(touched) and not self._moved:
            delta = self._rows(touched, *self._saved)
        if self._journal.save(write, delta, self._base, anew=self._moved):
            self._swept = len(self._objects)
        self._queries["touched"][:] = False
        self._saved, self._moved = (len(self._queries), len(self._objects)), False
        return {"journal": self._journal.manifest, "swept": self._swept}

    def _base(self) -> Arrays:
        self._compact(np.arange(len(self._queries)))
        return self._rows(np.arange(len(self._queries)), 0, 0)

    def _rows(self, rows: Ints, queries: int, objects: int) -> Arrays:
        """What changes of the rows, and the queries and objects from the given positions on."""
        entries = self._packed(rows)
        name_offsets, names = self._names.part(queries)
        id_offsets, ids = self._ids.part(objects)
        return {
            "rows": rows,
            **{name: self._queries[name][rows] for name in _CHANGING},
            "entry_object": entries[0],
            "entry_distance": entries[1],
            "entry_beaten": entries[2],
            **{name: self._queries[name][queries:] for name in _FIXED},
            "name_offsets": name_offsets,
            "names": names,
            **{f"object_{name}": self._objects[name][objects:] for name in _PLACES},
            "id_offsets": id_offsets,
            "ids": ids,
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> NearestMerger:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._journal = Journal.open("nearest", manifest["journal"])
        self._apply(self._journal.base(read))
        for delta in self._journal.deltas(read):
            self._apply(delta)
        self._saved, self._swept = (len(self._queries), len(self._objects)), manifest["swept"]
        return self

    def _apply(self, saved: Arrays) -> None:
        rows, new, count = saved["rows"], len(saved["number"]), saved["count"]
        unset = {name: np.zeros(new, dtype) for name, dtype in _COLUMNS.items() if name not in _FIXED}
        self._queries.append({**{name: saved[name] for name in _FIXED}, **unset})
        self._names.extend(saved["name_offsets"], saved["names"])
        self._objects.append({name: saved[f"object_{name}"] for name in _PLACES})
        self._ids.extend(saved["id_offsets"], saved["ids"])
        for name in _CHANGING:
            self._queries[name][rows] = saved[name]
        self._queries["capacity"][rows] = count
        self._queries["offset"][rows] = self._top + np.cumsum(count) - count
        new_entries = saved["entry_object"], saved["entry_distance"], saved["entry_beaten"]
        old = tuple(entries[: self._top] for entries in self._entries)
        self._entries = tuple(map(np.concatenate, zip(old, new_entries, strict=True))) if self._top else new_entries  # type: ignore[assignment]
        self._top = len(self._entries[0])


def prepare() -> None:
    """Compile the kernels of this module."""
    from spatialstream.local import columns
    from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query
    from spatialstream.model.space import WGS84

    columns.prepare()
    merger = NearestMerger(WGS84)
    queries = QueryBatch.of([Query("q", 0, Predicate(), Nearest(0.0, 0.0, 1), Lifetime(9, True, 5))])
    zero = np.zeros(1, np.int64)
    merger.register(zero, queries.ids, queries, zero, zero + 9)
    merger.apply(Arrivals(zero, pa.array(["a"], pa.string()), zero, np.zeros(1), np.zeros(1), np.zeros(1)), 0)
    merger._compact(zero)
