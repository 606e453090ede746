"""Continuous k-nearest queries in a slot: find the arrivals that may be in an answer (SSTD, sections 6.1 and 6.3).

Based on the grid that SSTD takes from SEA-CNN (Xiong, Mokbel, Aref, ICDE 2005), with shrinking radii. Each query keeps
the distances of its k nearest objects *of this slot*; the k-th distance is its radius, infinite until k are found. A
farther arrival is in no answer, so only the others are sent to MERGE, which maintains the answer over all slots
(:mod:`spatialstream.local.nearest.skyband`).

Candidates come from grids over the circles, with the radii at the time a grid was built. Radii only shrink, so a stale
grid yields too many candidates and never too few, and each is checked against the current radius. A grid is rebuilt
once it has yielded ``_WASTE`` useless candidates per query, so that rebuilding costs a constant share of the work it
saves.

The k-th distance ties with later arrivals by (timestamp descending, id, x, y). A slot keeps only distances and
timestamps: an arrival that ties with the k-th in both is sent too, and MERGE, which has the ids, decides.

A query with a ``window`` has no radius: objects leave its answer, so every match may be in the answer later. The paper
has no window; each match is sent (none if the window is 0 ms).

Cost: per object a grid lookup per tier; per candidate a distance and O(log k). State: 16 bytes per kept distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spatialstream.local.arrays import Codes, Flags, Floats, Ints, grown
from spatialstream.local.base import ContinuousIndex
from spatialstream.local.columns import Table, earliest, join
from spatialstream.local.grid.matching import Objects
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.tiers import Tiers
from spatialstream.model.arrays import runs
from spatialstream.model.batches import Batch
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import WGS84, Space

__all__ = ["Candidates", "ContinuousNearestIndex", "prepare"]

_WASTE = 16
_PAIRS = 1 << 21
"""Approximate number of (object, query) pairs looked up at a time: bounds memory, and lets radii shrink early."""

_LEAST_CHUNK = 16
_LEAST_HEAP = 4

_FIXED = {"number": np.int64, "start": np.int64, "k": np.int64, "window": np.int64, "x": np.float64, "y": np.float64}
_CHANGING = {"end": np.int64, "offset": np.int64, "capacity": np.int64, "size": np.int64, "touched": np.bool_}


@dataclass(frozen=True, slots=True, eq=False)
class Candidates(Batch):
    """Arrivals that may be in answers, ordered by (position, number).

    Attributes:
        number: int64[m], number of the query.
        position: int32[m], position of the object in its batch.
        distance: float64[m], distance between the two.
    """

    number: Ints
    position: Codes
    distance: Floats


class _Queries(NamedTuple):
    """Columns of the queries; the k nearest of query r are ``size[r]`` entries from ``offset[r]`` on."""

    x: Floats
    y: Floats
    k: Ints
    window: Ints
    start: Ints
    end: Ints
    offset: Ints
    capacity: Ints
    size: Ints
    touched: Flags


class _Heaps(NamedTuple):
    """The k nearest of all queries: binary heaps, the farthest at the root. Free space begins at ``top[0]``."""

    distances: Floats
    times: Ints
    top: Ints


@kernel
def _farther(d: float, t: int, other_d: float, other_t: int) -> bool:
    """Whether (d, t) comes after the other one in the order of answers by distance and timestamp."""
    return d > other_d or (d == other_d and t < other_t)


@kernel
def _sink(heaps: _Heaps, base: int, count: int, d: float, t: int) -> None:
    """Put (d, t) into a heap of ``count`` whose root is free."""
    distances, times = heaps.distances, heaps.times
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _farther(
            distances[base + child + 1], times[base + child + 1], distances[base + child], times[base + child]
        ):
            child += 1
        if not _farther(distances[base + child], times[base + child], d, t):
            break
        distances[base + at] = distances[base + child]
        times[base + at] = times[base + child]
        at = child
    distances[base + at] = d
    times[base + at] = t


@kernel
def _rise(heaps: _Heaps, base: int, count: int, d: float, t: int) -> None:
    """Put (d, t) into a heap of ``count`` that has room for it at its end."""
    distances, times = heaps.distances, heaps.times
    at = count
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
def _enlarge(queries: _Queries, heaps: _Heaps, r: int) -> _Heaps:
    """Move the full heap of query r to twice as much room; return the storage, which may have grown."""
    wanted = min(queries.k[r], max(_LEAST_HEAP, 2 * queries.capacity[r]))
    top, base = heaps.top[0], queries.offset[r]
    if top + wanted > len(heaps.distances):
        room = max(top + wanted, 2 * len(heaps.distances))
        heaps = _Heaps(grown(heaps.distances, top, room), grown(heaps.times, top, room), heaps.top)
    for j in range(queries.size[r]):
        heaps.distances[top + j] = heaps.distances[base + j]
        heaps.times[top + j] = heaps.times[base + j]
    queries.offset[r], queries.capacity[r] = top, wanted
    heaps.top[0] = top + wanted
    return heaps


@kernel
def _offer(
    geographic: bool, objects: Codes, rows: Codes, batch: Objects, queries: _Queries, heaps: _Heaps
) -> tuple[_Heaps, Ints, Floats]:
    """Offer objects to queries, pair by pair in object order.

    Returns the heaps' storage, which may have grown, and the position and distance of each accepted pair.
    """
    pairs, distances, found = np.empty(len(objects), np.int64), np.empty(len(objects), np.float64), 0
    for i in range(len(objects)):
        o, r = objects[i], rows[i]
        t, window = batch.t[o], queries.window[r]
        if t < queries.start[r] or t >= queries.end[r] or window == 0:
            continue
        d = distance(geographic, queries.x[r], queries.y[r], batch.x[o], batch.y[o])
        if window < 0:
            size, base = queries.size[r], queries.offset[r]
            if size == queries.k[r]:
                if _farther(d, t, heaps.distances[base], heaps.times[base]):
                    continue
                _sink(heaps, base, size, d, t)
            else:
                if size == queries.capacity[r]:
                    heaps = _enlarge(queries, heaps, r)
                _rise(heaps, queries.offset[r], size, d, t)
                queries.size[r] = size + 1
            queries.touched[r] = True
        pairs[found] = i
        distances[found] = d
        found += 1
    return heaps, pairs[:found], distances[:found]


class ContinuousNearestIndex(ContinuousIndex):
    """The CKQs of one slot.

    Args:
        space: the stream's space.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._now = np.iinfo(np.int64).min
        self._queries = Table({**_FIXED, **_CHANGING})
        self._heaps = _Heaps(np.empty(0), np.empty(0, np.int64), np.zeros(1, np.int64))
        self._tiers = Tiers(space, self._circles, self._alive)
        self._journal = Journal("ckq")
        self._saved = 0  # rows of which the journal knows
        self._moved = False  # since the last checkpoint rows have been dropped

    def __len__(self) -> int:
        """Number of queries, including those that have ended since the last :meth:`expire`."""
        return len(self._queries)

    @property
    def nbytes(self) -> int:
        """Memory of queries, heaps and grids, O(grids)."""
        heaps = (self._heaps.distances.itemsize + self._heaps.times.itemsize) * int(self._heaps.top[0])
        return self._queries.nbytes + heaps + sum(tier.grid.nbytes for tier in self._tiers.tiers)

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """See :class:`ContinuousIndex`: objects with ``t <= o.t < t + τ`` count."""
        n = len(numbers)
        if n == 0:
            return
        first = self._queries.append(
            {
                "number": numbers,
                "start": queries.t,
                "k": queries.k,
                "window": queries.window,
                "x": queries.at[:, 0],
                "y": queries.at[:, 1],
                "end": queries.t + queries.duration,
                "touched": True,
            }
        )
        self._tiers.add(np.arange(first, first + n, dtype=np.int32), queries.keywords)

    def end_at(self, numbers: Ints, t: Ints) -> None:
        """See :class:`ContinuousIndex`."""
        rows, which = earliest(self._queries["number"], numbers, t)
        self._queries["end"][rows] = np.minimum(self._queries["end"][rows], t[which])
        self._queries["touched"][rows] = True

    def match(self, objects: ObjectBatch) -> Iterator[Candidates]:
        """See :class:`ContinuousIndex`: the arrivals that may be in answers of this slot."""
        first, chunk = 0, max(_LEAST_CHUNK, _PAIRS // max(1, len(self._queries)))
        while first < len(objects) and self._tiers.tiers:
            last = min(len(objects), first + chunk)
            batch = ProbeBatch.of(self.space, objects.slice(first, last))
            matches = 0
            found: list[tuple[Ints, Codes, Floats]] = []
            for position in reversed(range(len(self._tiers.tiers))):
                looked_up, number, at, d = self._offer(batch, position)
                matches += looked_up
                found.append((number, at + np.int32(first), d))
            chunk = max(_LEAST_CHUNK, min(8 * chunk, _PAIRS * (last - first) // max(1, matches)))
            first = last
            number, at, d = (np.concatenate(column) for column in zip(*found, strict=True))
            yield Candidates(number, at, d).take(np.lexsort((number, at)))

    def _offer(self, batch: ProbeBatch, position: int) -> tuple[int, Ints, Codes, Floats]:
        """Offer objects to one tier: number of matches; number of the query, object, distance of accepted pairs."""
        tier = self._tiers.tiers[position]
        matches = tier.grid.probe(batch)
        objects, rows = matches.objects, tier.rows[matches.queries]
        self._heaps, pairs, distances = _offer(
            self.space.geographic, objects, rows, batch.objects, self._queries.view(_Queries), self._heaps
        )
        tier.wasted += len(rows) - len(pairs)
        if tier.wasted > _WASTE * len(tier.rows):
            self._tiers.rebuild(position)
        return len(rows), self._queries["number"][rows[pairs]], objects[pairs], distances

    def expire(self, now: int) -> None:
        """Drop the queries that no object with ``o.t >= now`` can match."""
        self._now = max(self._now, now)
        kept = self._queries["end"] > self._now
        if 2 * int(kept.sum()) < len(kept):
            self._compact(kept)

    def _compact(self, kept: Flags) -> None:
        rows = np.flatnonzero(kept)
        position = np.full(len(kept), -1, np.int32)
        position[rows] = np.arange(len(rows))
        self._heaps = self._packed(rows)
        self._queries.take(rows)
        self._place()
        self._tiers.compact(position)
        self._moved = True

    def _packed(self, rows: Ints) -> _Heaps:
        """The heaps of rows, concatenated."""
        at = runs(self._queries["offset"][rows], self._queries["size"][rows])
        return _Heaps(self._heaps.distances[at], self._heaps.times[at], np.full(1, len(at)))

    def _place(self) -> None:
        """Set the offsets of all rows, whose heaps are packed."""
        count = self._queries["size"]
        self._queries["offset"][:] = np.cumsum(count) - count
        self._queries["capacity"][:] = count

    def _circles(self, rows: Codes) -> Regions:
        """The regions of objects that may be in the rows' answers."""
        queries = self._queries
        bounded = (queries["window"][rows] < 0) & (queries["size"][rows] == queries["k"][rows])
        shape = np.zeros((len(rows), 4))
        inside = rows[bounded]
        shape[bounded, 0] = queries["x"][inside]
        shape[bounded, 1] = queries["y"][inside]
        shape[bounded, 2] = self._heaps.distances[queries["offset"][inside]]
        return Regions.plain(np.where(bounded, CIRCLE, EVERYWHERE).astype(np.uint8), shape)

    def _alive(self, rows: Codes) -> Flags:
        alive: Flags = self._queries["end"][rows] > self._now
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

    def _rows(self, rows: Ints, known: int) -> Arrays:
        """The mutable columns of the rows, and the immutable columns of rows from position ``known`` on."""
        queries, heaps = self._queries, self._packed(rows)
        return {
            "rows": rows,
            "end": queries["end"][rows],
            "size": queries["size"][rows],
            "distances": heaps.distances,
            "times": heaps.times,
            **{name: queries[name][known:] for name in _FIXED},
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> ContinuousNearestIndex:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._now = manifest["now"]
        self._journal, saved = Journal.open("ckq", manifest["journal"], read)
        for arrays in saved:
            self._apply(arrays)
        distances, times = (join([arrays[name] for arrays in saved]) for name in ("distances", "times"))
        self._heaps = _Heaps(distances, times, np.full(1, len(distances)))
        self._saved = len(self._queries)
        self._tiers.restore(manifest["tiers"], read)
        return self

    def _apply(self, saved: Arrays) -> None:
        """Apply the rows of a base or delta, whose heaps are appended."""
        rows, count = saved["rows"], saved["size"]
        self._queries.append({name: saved[name] for name in _FIXED})
        queries, top = self._queries, self._heaps.top
        queries["end"][rows], queries["size"][rows], queries["capacity"][rows] = saved["end"], count, count
        queries["offset"][rows] = top[0] + np.cumsum(count) - count
        top[0] += int(count.sum())


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    index = ContinuousNearestIndex(WGS84)
    one = np.zeros(1, np.int64)
    index.register(one, QueryBatch.of([Query("q", 0, Predicate(), Nearest(0.0, 0.0, 1), Lifetime(9, True))]))
    list(index.match(ObjectBatch.of([SpatialObject(name, 0, 0.0, 0.0, ("a",)) for name in ("a", "b")])))
