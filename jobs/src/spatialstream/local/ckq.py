"""Continuous k-nearest queries in a slot: which arrivals can be in an answer (SSTD, sections 6.1 and 6.3).

After the grid with shrinking radii that SSTD takes from Yu, Pu and Koudas ("Monitoring k-nearest neighbor queries over
moving objects", ICDE 2005). Each query keeps the distances of its k nearest objects *of this slot*; the k-th is its radius,
infinite until k are found. An arrival that is farther than that is in no answer, so only the others go to MERGE, which keeps
the answer over all slots (:mod:`spatialstream.local.skyband`).

Candidates come from grids over the circles, with the radii at the time when a grid was built. Radii only shrink, so a stale
grid yields too many candidates and never too few, and each is checked against the current radius. A grid is built anew once
it has yielded ``_WASTE`` useless candidates per query, so that rebuilding costs a constant share of the work it saves.

The k-th distance ties with later arrivals by (timestamp descending, id, x, y). A slot keeps distances and timestamps only:
an arrival that ties with the k-th in both is passed on as well, and MERGE, which knows the ids, decides.

A query with a ``window`` has no radius: objects leave its answer, so every match may come to be in it later. The paper has
no window; each match is passed on (none if the window is 0 ms).

Cost: per object a grid lookup per tier; per candidate a distance and O(log k). State: 16 bytes per kept distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spatialstream.local.columns import Table, earliest
from spatialstream.local.grid import ProbeBatch
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.tiers import Tiers
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Candidates", "ContinuousNearestIndex", "prepare"]

_WASTE = 16
_PAIRS = 1 << 21
"""About how many (object, query) pairs are looked up at a time: bounds memory, and lets radii shrink early."""

_FIXED = {
    "number": np.int64,
    "start": np.int64,
    "k": np.int32,
    "window": np.int64,
    "x": np.float64,
    "y": np.float64,
}
_COLUMNS = {**_FIXED, "end": np.int64, "offset": np.int64, "capacity": np.int64, "count": np.int64, "touched": np.bool_}

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Arrivals that may be in answers, ordered by (position, number).

    Attributes:
        number: int64[m], of the query.
        position: int32[m], of the object in its batch.
        distance: float64[m], between the two.
    """

    number: npt.NDArray[np.int64]
    position: npt.NDArray[np.int32]
    distance: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self.number)


@kernel
def _farther(d: float, t: int, other_d: float, other_t: int) -> bool:
    """Whether (d, t) comes after the other in the order of answers, as far as distance and timestamp tell."""
    return d > other_d or (d == other_d and t < other_t)


@kernel
def _sink(distances: Floats, times: Ints, base: int, count: int, d: float, t: int) -> None:
    """Put (d, t) at the root of a heap whose root is free: the farthest of the heap ends up there."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        right = child + 1
        if right < count and _farther(
            distances[base + right], times[base + right], distances[base + child], times[base + child]
        ):
            child = right
        if not _farther(distances[base + child], times[base + child], d, t):
            break
        distances[base + at] = distances[base + child]
        times[base + at] = times[base + child]
        at = child
    distances[base + at] = d
    times[base + at] = t


@kernel
def _rise(distances: Floats, times: Ints, base: int, at: int, d: float, t: int) -> None:
    """Put (d, t) into a heap whose last place, ``at``, is free."""
    while at > 0:
        parent = (at - 1) // 2
        if not _farther(d, t, distances[base + parent], times[base + parent]):
            break
        distances[base + at] = distances[base + parent]
        times[base + at] = times[base + parent]
        at = parent
    distances[base + at] = d
    times[base + at] = t


@kernel
def _offer(
    geographic: bool,
    objects: npt.NDArray[np.int32],
    rows: npt.NDArray[np.int32],
    object_x: Floats,
    object_y: Floats,
    object_t: Ints,
    x: Floats,
    y: Floats,
    k: npt.NDArray[np.int32],
    window: Ints,
    start: Ints,
    end: Ints,
    offset: Ints,
    capacity: Ints,
    count: Ints,
    touched: npt.NDArray[np.bool_],
    distances: Floats,
    times: Ints,
    top: int,
    out_pair: npt.NDArray[np.int64],
    out_distance: Floats,
) -> tuple[int, Floats, Ints, int]:
    """Offer objects to queries, pair by pair in object order: (accepted, and the heaps' storage, which may have grown)."""
    found = 0
    for i in range(len(objects)):
        o = objects[i]
        r = rows[i]
        t = object_t[o]
        if t < start[r] or t >= end[r] or window[r] == 0:
            continue
        d = distance(geographic, x[r], y[r], object_x[o], object_y[o])
        if window[r] < 0:
            base = offset[r]
            if count[r] == k[r]:
                if _farther(d, t, distances[base], times[base]):
                    continue
                _sink(distances, times, base, count[r], d, t)
            else:
                if count[r] == capacity[r]:
                    wanted = min(np.int64(k[r]), max(np.int64(4), 2 * capacity[r]))
                    if top + wanted > len(distances):
                        size = max(top + wanted, 2 * len(distances))
                        more_distances = np.empty(size, np.float64)
                        more_times = np.empty(size, np.int64)
                        more_distances[:top] = distances[:top]
                        more_times[:top] = times[:top]
                        distances = more_distances
                        times = more_times
                    for j in range(count[r]):
                        distances[top + j] = distances[base + j]
                        times[top + j] = times[base + j]
                    base = top
                    offset[r] = top
                    capacity[r] = wanted
                    top += wanted
                _rise(distances, times, base, count[r], d, t)
                count[r] += 1
            touched[r] = True
        out_pair[found] = i
        out_distance[found] = d
        found += 1
    return found, distances, times, top


@kernel
def _pack(
    rows: npt.NDArray[np.int64], offset: Ints, count: Ints, distances: Floats, times: Ints
) -> tuple[Floats, Ints]:
    """The heaps of rows, one after the other."""
    total = 0
    for r in rows:
        total += count[r]
    out_distances = np.empty(total, np.float64)
    out_times = np.empty(total, np.int64)
    at = 0
    for r in rows:
        for j in range(count[r]):
            out_distances[at] = distances[offset[r] + j]
            out_times[at] = times[offset[r] + j]
            at += 1
    return out_distances, out_times


class ContinuousNearestIndex:
    """The CKQs of one slot.

    Args:
        space: the stream's space.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._now = np.iinfo(np.int64).min
        self._queries = Table(_COLUMNS)
        self._distances, self._times, self._top = np.empty(0), np.empty(0, np.int64), 0
        self._tiers = Tiers(space, self._circles, self._alive)
        self._journal = Journal("ckq")
        self._saved = 0  # rows of which the journal knows
        self._moved = False  # since the last checkpoint rows have been dropped

    def __len__(self) -> int:
        """Number of queries, those that have ended since the last :meth:`expire` included."""
        return len(self._queries)

    def register(
        self,
        numbers: npt.NDArray[np.int64],
        queries: QueryBatch,
        start: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
    ) -> None:
        """Add queries, from now on known by their numbers.

        Args:
            numbers: int64[n], distinct, none of them registered here before.
            queries: n CKQs.
            start, end: int64[n]: objects with ``start <= o.t < end`` count.
        """
        n = len(numbers)
        if n == 0:
            return
        zeros = np.zeros(n, np.int64)
        first = self._queries.append(
            {
                "number": numbers,
                "start": start,
                "end": end,
                "k": queries.k,
                "window": queries.window,
                "x": queries.at[:, 0],
                "y": queries.at[:, 1],
                "offset": zeros,
                "capacity": zeros,
                "count": zeros,
                "touched": np.ones(n, np.bool_),
            }
        )
        self._tiers.add(np.arange(first, first + n, dtype=np.int32), queries.keywords)

    def end_at(self, numbers: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
        """Cancel queries: objects with ``o.t >= t`` no longer count. Unknown numbers are ignored.

        Args:
            numbers, t: int64[n].
        """
        rows, which = earliest(self._queries["number"], numbers, t)
        self._queries["end"][rows] = np.minimum(self._queries["end"][rows], t[which])
        self._queries["touched"][rows] = True

    def update(self, objects: ObjectBatch) -> Candidates:
        """Offer arrivals to all queries.

        Args:
            objects: ordered by (t, id, x, y), none earlier than those of earlier calls.
        """
        numbers, positions, distances = [], [], []
        first, chunk = 0, max(16, _PAIRS // max(1, len(self._queries)))
        while first < len(objects) and self._tiers.tiers:
            last = min(len(objects), first + chunk)
            part = _slice(objects, first, last)
            batch = ProbeBatch.of(self._space, part)
            pairs = 0
            for position in range(len(self._tiers.tiers) - 1, -1, -1):
                matched, at, number, d = self._offer(part, batch, position)
                pairs += matched
                positions.append((at + first).astype(np.int32))
                numbers.append(number)
                distances.append(d)
            chunk = max(16, min(8 * chunk, _PAIRS * (last - first) // max(1, pairs)))
            first = last
        if not numbers:
            return Candidates(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0))
        number, at, d = np.concatenate(numbers), np.concatenate(positions), np.concatenate(distances)
        order = np.lexsort((number, at))
        return Candidates(number[order], at[order], d[order])

    def _offer(
        self, part: ObjectBatch, batch: ProbeBatch, position: int
    ) -> tuple[int, npt.NDArray[np.int32], Ints, Floats]:
        """Offer objects to one tier: how many matched, then object, number and distance of each accepted pair."""
        queries, tier = self._queries, self._tiers.tiers[position]
        matches = tier.grid.probe(batch)
        matched, rows = matches.objects, tier.rows[matches.queries]
        pair, d = np.empty(len(rows), np.int64), np.empty(len(rows))
        found, self._distances, self._times, self._top = _offer(
            self._space.geographic,
            matched,
            rows,
            part.x,
            part.y,
            part.t,
            *(queries[name] for name in ("x", "y", "k", "window", "start", "end")),
            *(queries[name] for name in ("offset", "capacity", "count", "touched")),
            self._distances,
            self._times,
            self._top,
            pair,
            d,
        )
        pair, d = pair[:found], d[:found]
        result = len(rows), matched[pair], queries["number"][rows[pair]], d
        tier.wasted += len(rows) - found
        if tier.wasted > _WASTE * len(tier.rows):
            self._tiers.rebuild(position)
        return result

    def expire(self, now: int) -> None:
        """Drop the queries that take no object with ``o.t >= now``."""
        self._now = max(self._now, now)
        kept = self._queries["end"] > self._now
        if 2 * int(kept.sum()) < len(kept):
            self._compact(kept)

    def _compact(self, kept: npt.NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(kept)
        position = np.full(len(kept), -1, np.int32)
        position[rows] = np.arange(len(rows))
        queries = self._queries
        packed = _pack(rows, queries["offset"], queries["count"], self._distances, self._times)
        queries.take(rows)
        self._adopt(*packed)
        self._tiers.compact(position)
        self._moved = True

    def _adopt(self, distances: Floats, times: Ints) -> None:
        """Take packed heaps as the storage of all rows."""
        count = self._queries["count"]
        self._queries["offset"][:] = np.cumsum(count) - count
        self._queries["capacity"][:] = count
        self._distances, self._times, self._top = distances, times, len(distances)

    def _circles(self, rows: npt.NDArray[np.int32]) -> Regions:
        queries = self._queries
        bounded = (queries["window"][rows] < 0) & (queries["count"][rows] == queries["k"][rows])
        shape = np.zeros((len(rows), 4))
        inside = rows[bounded]
        shape[bounded, 0] = queries["x"][inside]
        shape[bounded, 1] = queries["y"][inside]
        shape[bounded, 2] = self._distances[queries["offset"][inside]]
        return Regions(np.where(bounded, CIRCLE, EVERYWHERE).astype(np.uint8), shape)

    def _alive(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        alive: npt.NDArray[np.bool_] = self._queries["end"][rows] > self._now
        return alive

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        touched = np.flatnonzero(self._queries["touched"])
        delta = self._rows(touched, self._saved) if len(touched) else None
        self._journal.save(write, delta, lambda: self._rows(np.arange(len(self._queries)), 0), anew=self._moved)
        self._queries["touched"][:] = False
        self._saved, self._moved = len(self._queries), False
        return {
            "journal": self._journal.manifest,
            "tiers": self._tiers.checkpoint(write, "ckq-grid"),
            "now": int(self._now),
        }

    def _rows(self, rows: npt.NDArray[np.int64], known: int) -> Arrays:
        """What changes of the rows, and what is fixed of those from position ``known`` on."""
        queries = self._queries
        distances, times = _pack(rows, queries["offset"], queries["count"], self._distances, self._times)
        return {
            "rows": rows,
            "end": queries["end"][rows],
            "count": queries["count"][rows],
            "distances": distances,
            "times": times,
            **{name: queries[name][known:] for name in _FIXED},
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> ContinuousNearestIndex:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._now = manifest["now"]
        self._journal = Journal.open("ckq", manifest["journal"])
        self._apply(self._journal.base(read))
        for delta in self._journal.deltas(read):
            self._apply(delta)
        self._saved = len(self._queries)
        self._tiers.restore(manifest["tiers"], read)
        return self

    def _apply(self, saved: Arrays) -> None:
        rows, new = saved["rows"], len(saved["number"])
        unset = {name: np.zeros(new, dtype) for name, dtype in _COLUMNS.items() if name not in _FIXED}
        self._queries.append({**{name: saved[name] for name in _FIXED}, **unset})
        queries, count = self._queries, saved["count"]
        queries["end"][rows], queries["count"][rows], queries["capacity"][rows] = saved["end"], count, count
        queries["offset"][rows] = self._top + np.cumsum(count) - count
        if self._top:
            self._distances = np.concatenate([self._distances[: self._top], saved["distances"]])
            self._times = np.concatenate([self._times[: self._top], saved["times"]])
        else:
            self._distances, self._times = saved["distances"], saved["times"]
        self._top = len(self._distances)


def _slice(objects: ObjectBatch, first: int, last: int) -> ObjectBatch:
    """A contiguous part of a batch, without copying its columns."""
    if first == 0 and last == len(objects):
        return objects
    offsets = objects.terms.offsets[first : last + 1]
    terms = TermLists(
        offsets - offsets[0], objects.terms.codes[int(offsets[0]) : int(offsets[-1])], objects.terms.vocabulary
    )
    return ObjectBatch(
        objects.ids.slice(first, last - first), objects.t[first:last], objects.x[first:last], objects.y[first:last], terms
    )


def prepare() -> None:
    """Compile the kernels of this module."""
    from spatialstream.model.space import WGS84

    numbers, zero = np.zeros(1, np.int64), np.zeros(1, np.int64)
    queries: Any = QueryBatch(
        None,
        np.zeros(1, np.int8),
        zero,
        zero,
        zero - 1,
        zero - 1,
        np.ones(1, np.int32),
        np.zeros((1, 2)),
        Regions.of([None]),
        TermLists.empty(1),
    )
    index = ContinuousNearestIndex(WGS84)
    index.register(numbers, queries, zero, zero + 9)
    from spatialstream.model.objects import SpatialObject

    index.update(ObjectBatch.of([SpatialObject("a", 0, 0.0, 0.0, ()), SpatialObject("b", 0, 0.0, 0.0, ())]))
    index._compact(np.ones(1, np.bool_))
