"""Continuous k-nearest queries in a slot: find the arrivals that may be in an answer (SSTD, sections 6.1 and 6.3).

Based on the grid that SSTD takes from SEA-CNN (Xiong, Mokbel, Aref, ICDE 2005), with shrinking radii. Each query keeps
the distances of its k nearest objects *of this slot*; the k-th distance is its radius, infinite until k are found. A
farther arrival is in no answer, so only the others are sent to MERGE, which maintains the answer over all slots
(:mod:`spatialstream.local.nearest.skyband`).

Candidates come from grids (:mod:`spatialstream.local.nearest.heap_index`) over the circles, with the radii at the time
a grid was built. Radii only shrink, so a stale grid yields too many candidates and never too few, and each is checked
against the current radius. A grid is rebuilt once it has yielded a number of useless candidates per query, so that
rebuilding costs a constant share of the work it saves.

A query with a ``window`` has no radius. The paper has no window; each match is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spatialstream.local.arrays import Codes, Floats, Ints
from spatialstream.local.grid.matching import Objects
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.nearest.heap_index import Candidates, HeapIndex
from spatialstream.local.nearest.heaps import Heaps, Kept, enlarge, farther, rise, sink
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermLists

__all__ = ["ContinuousNearestIndex", "Near", "prepare"]


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


class ContinuousNearestIndex(HeapIndex):
    """The CKQs of one slot."""

    name, found = "ckq", Near

    def _add(self, queries: QueryBatch) -> TermLists:
        return queries.keywords

    def conditions(self) -> TermLists:
        """See :class:`~spatialstream.local.base.ContinuousIndex`."""
        found = []
        for tier in self._tiers.tiers:
            alive = self._alive(tier.rows)
            found.append(tier.grid.keywords.take(alive))
        return TermLists.concat(found)

    def _regions(self, rows: Codes) -> Regions:
        queries = self._queries
        bounded = (queries["window"][rows] < 0) & (queries["size"][rows] == queries["k"][rows])
        shape = np.zeros((len(rows), 4))
        inside = rows[bounded]
        shape[bounded, 0] = queries["x"][inside]
        shape[bounded, 1] = queries["y"][inside]
        shape[bounded, 2] = self._heaps.distances[queries["offset"][inside]]
        return Regions.plain(np.where(bounded, CIRCLE, EVERYWHERE).astype(np.uint8), shape)

    def _offer(self, batch: ProbeBatch, objects: Codes, rows: Codes) -> tuple[Ints, tuple[Floats, ...]]:
        given = batch.objects, self._queries.view(_Queries), self._queries.view(Kept)
        self._heaps, pairs, distances = _offer(self.space.geographic, objects, rows, *given, self._heaps)
        return pairs, (distances,)


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    index = ContinuousNearestIndex(WGS84)
    one = np.zeros(1, np.int64)
    index.register(one, QueryBatch.of([Query("q", 0, Predicate(), Nearest(0.0, 0.0, 1), Lifetime(9, True))]))
    list(index.match(ObjectBatch.of([SpatialObject(name, 0, 0.0, 0.0, ("a",)) for name in ("a", "b")])))
