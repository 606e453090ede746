"""Continuous k-nearest queries in a slot: find the arrivals that may be in an answer (SSTD, sections 6.1 and 6.3).

Based on the grid that SSTD takes from SEA-CNN (Xiong, Mokbel, Aref, ICDE 2005), with shrinking radii. Each query keeps
the distances of its k nearest objects *of this slot*; the k-th distance is its radius, infinite until k are found. A
farther arrival is in no answer, so only the others are sent to MERGE, which maintains the answer over all slots
(:mod:`spatialstream.local.nearest.skyband`).

Candidates come from grids (:mod:`spatialstream.local.nearest.heap_index`) over the circles, with the radii at the time
a grid was built. Radii only shrink, so a stale grid yields too many candidates and never too few, and each is checked
against the current radius. A grid is rebuilt once it has yielded a number of useless candidates per query, so that
rebuilding costs a constant share of the work it saves.

A query *settles* when MERGE knows its k-th distance over all slots: it is sent to the slots, whose own radius is mostly
larger, and is the query's *cap* (section 6.3 has the worker send it to the routers). From then on the query concerns
the circle of this radius, in all slots the same one, and moves between slots as those with regions do. Its heap stays
behind: where it comes to, arrivals within the cap are sent until k of them are known.

A query with a ``window`` has no radius and no cap. The paper has no window; each match is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import Codes, Floats, Ints
from spatialstream.local.base import SettlingIndex
from spatialstream.local.grid.matching import Objects
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.journal import Arrays
from spatialstream.local.nearest.heap_index import Candidates, HeapIndex
from spatialstream.local.nearest.heaps import Heaps, Kept, enlarge, farther, rise, sink
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch, nobody
from spatialstream.model.regions import Regions
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists

__all__ = ["ContinuousNearestIndex", "Near", "prepare"]

_NO_INTS = np.empty(0, np.int64)
_AWAITED = ("number", "cap")


@dataclass(frozen=True, slots=True, eq=False)
class Near(Candidates):
    """Arrivals that may be in answers.

    Attributes:
        distance: float64[m], distance between query and object.
    """

    distance: Floats


class _Queries(NamedTuple):
    """Columns of the queries."""

    x: Floats
    y: Floats
    window: Ints
    start: Ints
    end: Ints
    cap: Floats


@kernel
def _offer(
    geographic: bool, objects: Codes, rows: Codes, batch: Objects, queries: _Queries, kept: Kept, heaps: Heaps
) -> tuple[Heaps, Ints, Floats]:
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
        if d > queries.cap[r]:
            continue
        if window < 0:
            size, base = kept.size[r], kept.offset[r]
            if size == kept.k[r]:
                if farther(d, t, heaps.distances[base], heaps.times[base]):
                    continue
                sink(heaps, base, size, d, t)
            else:
                if size == kept.capacity[r]:
                    heaps = enlarge(kept, heaps, r)
                rise(heaps, kept.offset[r], size, d, t)
                kept.size[r] = size + 1
            kept.touched[r] = True
        pairs[found] = i
        distances[found] = d
        found += 1
    return heaps, pairs[:found], distances[:found]


class ContinuousNearestIndex(HeapIndex, SettlingIndex):
    """The CKQs of one slot; the region of a query that has settled is the circle of its cap."""

    name, found = "ckq", Near
    derived: ClassVar[Mapping[str, npt.DTypeLike]] = {"cap": np.float64}

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._awaited = _NO_INTS, np.empty(0)
        """Numbers of queries that may come, ascending, and their caps."""

    def _add(self, queries: QueryBatch) -> TermLists:
        rows = slice(len(self._queries) - len(queries), None)
        regions, number = queries.regions, self._queries["number"][rows]
        cap = np.where(regions.kind == CIRCLE, regions.shape[:, 2], np.inf)
        awaited, caps = self._awaited
        if len(awaited):
            at = np.minimum(np.searchsorted(awaited, number), len(awaited) - 1)
            cap = np.minimum(cap, np.where(awaited[at] == number, caps[at], np.inf))
        self._queries["cap"][rows] = cap
        return queries.keywords

    def _regions(self, rows: Codes) -> Regions:
        queries, radius = self._queries, self._queries["cap"][rows]
        full = (queries["window"][rows] < 0) & (queries["size"][rows] == queries["k"][rows])
        radius[full] = np.minimum(radius[full], self._heaps.distances[queries["offset"][rows[full]]])
        return _circles(queries["x"][rows], queries["y"][rows], radius)

    def shrink(self, numbers: Ints, radii: Floats, *, await_others: bool) -> None:
        """See :class:`SettlingIndex`."""
        queries, known = self._queries, np.zeros(len(numbers), np.bool_)
        rows = self._rows_of(numbers)
        at = np.searchsorted(numbers, queries["number"][rows])
        less = radii[at] < queries["cap"][rows]
        queries["cap"][rows[less]] = radii[at[less]]
        queries["touched"][rows[less]] = True
        known[at] = True
        if await_others and not known.all():
            awaited, caps = self._awaited
            number, cap = np.concatenate([awaited, numbers[~known]]), np.concatenate([caps, radii[~known]])
            order = np.lexsort((cap, number))
            number, first = np.unique(number[order], return_index=True)
            self._awaited = number, cap[order][first]

    def circles(self, numbers: Ints) -> tuple[Ints, Regions]:
        """See :class:`SettlingIndex`."""
        queries, rows = self._queries, self._rows_of(numbers)
        return queries["number"][rows], _circles(*(queries[name][rows] for name in ("x", "y", "cap")))

    def placed(self, numbers: Ints) -> tuple[Floats, Ints, Ints]:
        """Places float64[n, 2], times and k of queries in the index, by which each has its slot."""
        queries = self._queries
        order = np.argsort(queries["number"], kind="stable")
        rows = order[np.searchsorted(queries["number"][order], numbers)]
        at = np.column_stack([queries["x"][rows], queries["y"][rows]])
        return at, queries["start"][rows], queries["k"][rows]

    def _rows_of(self, numbers: Ints) -> Ints:
        queries = self._queries
        return np.flatnonzero(np.isin(queries["number"], numbers) & (queries["end"] > self._now))

    def forget_others(self) -> None:
        """See :class:`SettlingIndex`."""
        self._awaited = _NO_INTS, np.empty(0)

    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        """See :class:`MovableIndex`; the queries have no ids, by which only MERGE calls them."""
        queries = self._queries
        rows = np.flatnonzero(queries["end"] > max(now, self._now)).astype(np.int32)
        if not len(rows):
            return _NO_INTS, QueryBatch.of([])
        rows = rows[np.argsort(queries["number"][rows])]
        n, x, y, start = len(rows), queries["x"][rows], queries["y"][rows], queries["start"][rows]
        return queries["number"][rows], QueryBatch(
            ids=nobody(n),
            code=np.full(n, CODE[QueryType.CKQ], np.int8),
            t=start,
            duration=queries["end"][rows] - start,
            window=queries["window"][rows],
            step=np.full(n, -1, np.int64),
            k=queries["k"][rows].astype(np.int32),
            at=np.column_stack([x, y]),
            regions=_circles(x, y, queries["cap"][rows]),
            keywords=self._tiers.keywords(rows).compact(),
            by=nobody(n),
            ranking=nobody(n),
        )

    def _rows(self, rows: Ints, known: int) -> Arrays:
        return {**super()._rows(rows, known), "cap": self._queries["cap"][rows]}

    def _apply(self, saved: Arrays) -> None:
        super()._apply(saved)
        self._queries["cap"][saved["rows"]] = saved["cap"]

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        manifest = super().checkpoint(write)
        if len(self._awaited[0]):
            manifest["awaited"] = write(f"{self.name}-awaited", dict(zip(_AWAITED, self._awaited, strict=True)))
        return manifest

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> Self:
        """See :mod:`spatialstream.local.state`."""
        self = super().restore(space, manifest, read)
        if "awaited" in manifest:
            arrays, _ = read(manifest["awaited"])
            self._awaited = arrays[_AWAITED[0]], arrays[_AWAITED[1]]
        return self

    def _offer(self, batch: ProbeBatch, objects: Codes, rows: Codes) -> tuple[Ints, tuple[Floats, ...]]:
        given = batch.objects, self._queries.view(_Queries), self._queries.view(Kept)
        self._heaps, pairs, distances = _offer(self.space.geographic, objects, rows, *given, self._heaps)
        return pairs, (distances,)


def _circles(x: Floats, y: Floats, radius: Floats) -> Regions:
    """Circles; everywhere where the radius is infinite."""
    bounded = np.isfinite(radius)
    shape = np.zeros((len(radius), 4))
    for side, column in enumerate((x, y, radius)):
        shape[bounded, side] = column[bounded]
    return Regions.plain(np.where(bounded, CIRCLE, EVERYWHERE).astype(np.uint8), shape)


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    index = ContinuousNearestIndex(WGS84)
    one = np.zeros(1, np.int64)
    index.register(one, QueryBatch.of([Query("q", 0, Predicate(), Nearest(0.0, 0.0, 1), Lifetime(9, True))]))
    list(index.match(ObjectBatch.of([SpatialObject(name, 0, 0.0, 0.0, ("a",)) for name in ("a", "b")])))
