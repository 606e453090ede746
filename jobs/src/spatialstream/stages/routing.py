"""Which slots a record concerns while routing versions change (SSTD, sections 4.2, 5.2 and 5.3).

Objects go by the active version alone, so each is stored once and never moves. A continuous query goes to the slots
that it concerns under the active version and, while a new version is being prepared, under that one too: so the slots
that will be responsible have it before their first object comes. CKQs concern the whole space: they go to every slot,
whether or not it has a leaf now, and leave those that they do not need later
(:mod:`~spatialstream.stages.settling`); or, if a version has a partition of them, to one slot under each version
(:mod:`~spatialstream.index.query_partition`). A snapshot query goes wherever objects of its time may be: to its
slots under every version whose range of object timestamps meets its own.

Cost: that of routing under one version, times the versions consulted, which for most queries is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spatialstream.index.version import RoutingVersion
from spatialstream.model.kinds import IS_CONTINUOUS, Route, having
from spatialstream.model.queries import Nearest, Query, QueryBatch
from spatialstream.model.regions import Circle, Region, Regions
from spatialstream.model.space import Space

__all__ = ["Extent", "PastVersion", "Routing", "widened"]

_SLACK = 1e-9
"""Relative and, with a hundredth of a metre, absolute rounding up of radii: more than the error of distances to
boxes."""

_TWO_PHASE = having(lambda kind: kind.has_second_phase)
_EVERYWHERE = having(lambda kind: kind.route is Route.EVERYWHERE)


def widened(radius: Any, space: Space) -> Any:
    """A radius, or an array of radii, a little larger: so that a box which is met in truth is not found too far."""
    return radius * (1.0 + _SLACK) + (0.01 if space.geographic else 0.0)


Pairs = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
"""(row, slot), ascending and distinct."""


class Extent(NamedTuple):
    """Where and when objects are that a query looks at.

    Attributes:
        region: None: anywhere.
        since, t: only objects of (since, t] matter, ms.
    """

    region: Region | None
    since: int
    t: int

    @classmethod
    def of(cls, query: Query) -> Extent:
        """The extent of a query, without regard to the retention."""
        return cls(query.predicate.region, query.t - query.lifetime.duration, query.t)


@dataclass(frozen=True, slots=True, eq=False)
class PastVersion:
    """A version that is not active any more, and the timestamps of objects that were routed under it.

    Attributes:
        version: the version.
        first: the smallest timestamp, ms.
        last: the largest.
    """

    version: RoutingVersion
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """The routing of an epoch; fixed before the epoch runs.

    Attributes:
        active: the version of the epoch.
        pending: the version that is being prepared, if there is one.
        past: earlier versions under which objects that are kept were routed.
        two_phase: whether a query with a second phase goes only to the nearest slot, which then determines the other
            slots that matter (section 6.2); otherwise it goes to all slots at once.
    """

    active: RoutingVersion
    pending: RoutingVersion | None = None
    past: tuple[PastVersion, ...] = ()
    two_phase: bool = False

    @property
    def slots(self) -> int:
        """Number of slots, the same in all versions."""
        return self.active.slots

    def route_queries(self, queries: QueryBatch) -> Pairs:
        """The slots of each query: (row int32[m], slot int32[m]), ascending by both, each pair once."""
        continuous, everywhere = IS_CONTINUOUS[queries.code], _EVERYWHERE[queries.code]
        nearest = _TWO_PHASE[queries.code] & self.two_phase
        parts = [self._under(self.active, queries, np.flatnonzero(~(nearest | everywhere)))]
        if everywhere.any():
            parts += self._nearest(queries, np.flatnonzero(everywhere))
        if nearest.any():
            leaves = self.active.index.nearest_leaves(queries.at[nearest])
            parts.append((np.flatnonzero(nearest), self.active.mapping[leaves]))
        if self.pending is not None:
            parts.append(self._under(self.pending, queries, np.flatnonzero(continuous & ~everywhere)))
        for past in self.past:
            reaches = (queries.t >= past.first) & (queries.t - queries.duration < past.last)
            rows = np.flatnonzero(reaches & ~continuous & ~nearest)
            parts.append(self._under(past.version, queries, rows))
        return self._distinct(parts)

    def _nearest(
        self, queries: QueryBatch, row: npt.NDArray[np.int64]
    ) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]:
        """CKQs: each on its slot under the active and the pending version, or on all slots."""
        versions = [each for each in (self.active, self.pending) if each is not None]
        found, mine = [], queries.take(row)
        for nearest in (each.nearest for each in versions):
            if nearest is None:
                slots = np.arange(self.slots, dtype=np.int32)
                return [(np.repeat(row, self.slots), np.tile(slots, len(row)))]
            found.append((row, nearest.slots_of(mine)))
        return found

    def slots_of(self, queries: Sequence[Query]) -> list[list[int]]:
        """The slots of each of some snapshot queries, ascending: as :meth:`route_queries`, without columns."""
        found, others = [list[int]() for _ in queries], list[int]()
        points, nearest = list[tuple[float, float]](), list[int]()
        for i, query in enumerate(queries):
            if self.two_phase and isinstance(query.selection, Nearest) and query.kind.has_second_phase:
                nearest.append(i)
                points.append((query.selection.x, query.selection.y))
            else:
                others.append(i)
        if nearest:
            leaves = self.active.index.nearest_leaves(np.array(points))
            for i, slot in zip(nearest, self.active.mapping[leaves].tolist(), strict=True):
                found[i] = [slot]
        asked = [Extent.of(queries[i]) for i in others]
        for i, slots in zip(others, self.reaching(asked), strict=True):
            found[i] = slots
        return found

    def reaching(self, asked: Sequence[Extent]) -> list[list[int]]:
        """The slots that may hold objects of each extent, ascending."""
        found = [set[int]() for _ in asked]
        versions = [(self.active, [*range(len(asked))])]
        for past in self.past:
            rows = [i for i, each in enumerate(asked) if each.t >= past.first and each.since < past.last]
            versions.append((past.version, rows))
        for version, rows in versions:
            if rows:
                row, leaf = version.index.route_regions(Regions.of([asked[i].region for i in rows]))
                for i, slot in zip(row.tolist(), version.mapping[leaf].tolist(), strict=True):
                    found[rows[i]].add(slot)
        return [sorted(slots) for slots in found]

    def slots_within(
        self,
        at: npt.NDArray[np.float64],
        radius: npt.NDArray[np.float64],
        since: npt.NDArray[np.int64],
        t: npt.NDArray[np.int64],
    ) -> Pairs:
        """The slots that may hold objects of (since, t] within the radius: phase two of SKQs (section 6.2).

        Args:
            at: float64[n, 2].
            radius: float64[n], in the unit of distances, rounded up by the caller; infinite for everywhere.
            since: int64[n], ms; only objects of (since, t] matter.
            t: int64[n], ms.
        """
        bounded = np.isfinite(radius)
        shapes = [Circle(float(x), float(y), float(r)) for (x, y), r in zip(at[bounded], radius[bounded], strict=True)]
        regions = Regions.of([None] * len(radius))
        kind, shape = regions.kind.copy(), regions.shape.copy()
        circles = Regions.of(shapes)
        kind[bounded], shape[bounded] = circles.kind, circles.shape
        parts = [self._of_regions(self.active, Regions.plain(kind, shape), np.arange(len(radius)))]
        for past in self.past:
            rows = np.flatnonzero((t >= past.first) & (since < past.last))
            parts.append(self._of_regions(past.version, Regions.plain(kind, shape), rows))
        return self._distinct(parts)

    @staticmethod
    def _under(
        version: RoutingVersion, queries: QueryBatch, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        if not len(rows):
            return np.empty(0, np.int64), np.empty(0, np.int32)
        row, slot = version.route_queries(queries if len(rows) == len(queries) else queries.take(rows))
        return rows[row], slot

    @staticmethod
    def _of_regions(
        version: RoutingVersion, regions: Regions, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        if not len(rows):
            return np.empty(0, np.int64), np.empty(0, np.int32)
        row, leaf = version.index.route_regions(regions.take(rows))
        return rows[row], version.mapping[leaf]

    def _distinct(self, parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]) -> Pairs:
        keys = [row.astype(np.int64) * self.slots + slot for row, slot in parts if len(row)]
        if not keys:
            return np.empty(0, np.int32), np.empty(0, np.int32)
        distinct = np.unique(np.concatenate(keys))
        return (distinct // self.slots).astype(np.int32), (distinct % self.slots).astype(np.int32)
