"""Continuous top-k terms queries (CTQ): sliding term counts, step by step (SSTD, sections 6.1, 6.3, Figure 6).

A CTQ reports at every step now = q.t + δ, q.t + 2δ, ... <= q.t + τ the k terms that occur in most objects of its region
with o.t in (now - T, now] and o.t >= q.t. For each step, a slot reports the counts over its own objects (a *partial*);
MERGE adds them up and selects the k terms (:func:`merge_steps`). A query that is cancelled at c reports the steps
before c.

*Areas.* The grid finds areas for an object: the common region of a group, or the region of a single member
(:mod:`spatialstream.local.terms.groups`). An area logs the objects in it and keeps the counts of their terms in the
window at its last step (:mod:`spatialstream.local.terms.termlogs`). A member's counts are those of its group's area
plus those of its own area, which contains

- the objects in its region outside the common region, and
- as negative entries, the objects of the common region that the group counts but that precede the member (o.t < q.t).

So members may join a group at any time. The paper uses hash tables instead of logs; with logs, windows are exact for
all T and δ, and each object is stored once, regardless of the number of areas. Objects that no later step can see are
not stored.

*Moves.* A query counts the objects that arrive after it was registered *in this slot*. When it moves from slot A to
slot B at u, B registers it with its own t and reports the steps later than u; A keeps it until its windows no longer
reach back to u (for the last time at a step before u + T) and then drops it; the partials of both add up to the answer.

*Late objects* (earlier than those of previous calls) count in the steps that have not been reported yet.

Cost: per object a grid lookup per tier; 4 bytes per (object, area); per step and area O(terms of the objects that have
arrived and left + distinct terms).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import Bytes, Codes, Flags, Floats, Ints
from spatialstream.local.base import MovableIndex
from spatialstream.local.columns import Strings, Table, earliest
from spatialstream.local.grid.matching import Objects
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.journal import Arrays, Journal
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.terms import groups
from spatialstream.local.terms.steps import StepPartials, merge_steps
from spatialstream.local.terms.termlogs import TermLogs
from spatialstream.local.tiers import Tiers
from spatialstream.model.geometry import contains
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.polygons.column import PolygonSet
from spatialstream.model.polygons.packing import packed_polygons, unpacked_polygons
from spatialstream.model.progress import made
from spatialstream.model.queries import Lifetime, Predicate, Query, QueryBatch, TopTerms, nobody
from spatialstream.model.regions import Box, Regions
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists

__all__ = ["ContinuousTermsIndex", "prepare"]

_ROWS = 1 << 16
_FIRST_ROWS = 1 << 10
_COUNTS = 1 << 20
"""Approximate numbers of steps listed at a time, of steps of the first part, and of counts of a part: bound memory."""

_LATEST = np.iinfo(np.int64).max
_EARLIEST = np.iinfo(np.int64).min
_DROPPED = _EARLIEST + 1
"""Time of cancellation that marks a dropped query."""

_CTQ = CODE[QueryType.CTQ]

_QUERY = {
    **dict.fromkeys(("number", "t", "first", "step", "last_step"), np.int64),
    **dict.fromkeys(("k", "common", "own"), np.int32),
}
_SIDES = ("a", "b", "c", "d")
_AREA = {
    "kind": np.uint8,
    **dict.fromkeys(_SIDES, np.float64),
    **dict.fromkeys(("window", "step", "start", "first", "cell"), np.int64),
    "common": np.int32,
    "polygon": np.int32,
}


class _Areas(NamedTuple):
    """Columns of the areas: region; steps ``first``, ``first + step``, ... ``last``, of objects from ``start`` on.

    ``common`` of a member's own area is the area of its group; otherwise -1.
    """

    kind: Bytes
    a: Floats
    b: Floats
    c: Floats
    d: Floats
    window: Ints
    step: Ints
    start: Ints
    first: Ints
    last: Ints
    common: Codes


def _next_step(first: Ints, step: Ints, t: int | Ints) -> Ints:
    """The first of first, first + step, ... that is later than t."""
    later = np.maximum(first - 1, t)  # before the subtraction, which could overflow for a t far away
    return first + (later - first) // step * step + step


@lean_kernel
def _sees(areas: _Areas, r: int, g: int, t: int) -> bool:
    """Whether a step of area r sees an object at t, given that objects from ``start[g]`` on count."""
    if t < areas.start[g]:
        return False
    step = areas.first[r]
    if t > step:
        step += -((step - t) // areas.step[r]) * areas.step[r]
    return bool(step <= areas.last[r] and t > step - areas.window[r])


@kernel
def _signs(geographic: bool, objects: Codes, rows: Codes, batch: Objects, areas: _Areas) -> npt.NDArray[np.int8]:
    """The sign of each pair of an object and an area: 1 if the object counts, -1 if it counts negatively, else 0."""
    signs = np.zeros(len(objects), np.int8)
    for i in range(len(objects)):
        o, r = objects[i], rows[i]
        g, t = areas.common[r], batch.t[o]
        x, y, a, b, c, d = batch.x[o], batch.y[o], areas.a[g], areas.b[g], areas.c[g], areas.d[g]
        # a group's polygon is that of all its members, and the object is in the member's: the box is enough
        if g >= 0 and contains(geographic, areas.kind[g], a, b, c, d, x, y):
            if t < areas.start[r] and _sees(areas, g, g, t) and _sees(areas, r, g, t):
                signs[i] = -1
        elif _sees(areas, r, r, t):
            signs[i] = 1
    return signs


class ContinuousTermsIndex(MovableIndex):
    """The CTQs of one slot.

    Args:
        space: the stream's space.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._watermark = _EARLIEST
        self._queries = Table({**_QUERY, "cancelled": np.int64, "touched": np.bool_})
        self._names = Strings()
        self._areas, self._keys = Table({**_AREA, "last": np.int64}), Strings()
        self._polygons = PolygonSet()  # those of the areas, by the numbers in their column
        self._tiers = Tiers(space, self._regions, self._alive)
        self._logs = TermLogs()
        self._journal = Journal("ctq")
        self._saved = 0, 0, 0, (0, 0, 0)  # queries, areas, polygons, contents of the logs of which the journal knows
        self._entries: list[tuple[Codes, Codes]] = []  # (areas, entries) appended since the last checkpoint
        self._moved = False  # since the last checkpoint rows or objects have been dropped

    def __len__(self) -> int:
        """Number of queries, including those without further steps that have not been dropped yet."""
        return len(self._queries)

    @property
    def nbytes(self) -> int:
        """Memory of queries, areas, grids and logs, O(grids)."""
        stored = (self._queries, self._names, self._areas, self._keys, self._polygons, self._logs)
        return sum(part.nbytes for part in stored) + sum(tier.grid.nbytes for tier in self._tiers.tiers)

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        """See :class:`MovableIndex`: of the objects that arrive from now on, those with ``o.t >= t`` count.

        Steps are at t + δ, t + 2δ, ..., not later than t + τ; steps up to the last call of :meth:`steps` are skipped.
        """
        start = queries.t
        if len(numbers) == 0:
            return
        areas = len(self._areas)
        first = _next_step(start + queries.step, queries.step, self._watermark)
        common = self._group(queries, start, first)
        own = self._single(queries, start, first, common)
        self._names.append(queries.ids)
        self._queries.append(
            {
                "number": numbers,
                "t": start,
                "k": queries.k,
                "first": first,
                "step": queries.step,
                "last_step": start + queries.duration,
                "common": common,
                "own": own,
                "cancelled": _LATEST,
            }
        )
        self._set_last()
        for area in own[(own >= 0) & (common < areas)].tolist():
            self._discount(area)

    def _group(self, queries: QueryBatch, start: Ints, first: Ints) -> Codes:
        """The common area of each query's group; creates areas for new groups."""
        keys, phase = groups.join_keywords(queries.keywords), queries.t % queries.step
        polygon = self._polygons.codes(queries.regions.polygons)
        members = groups.Members.of(queries.window, queries.step, phase, keys, queries.regions, polygon)
        cells = groups.cells(members)
        areas = self._areas
        known = np.isin(areas["cell"], cells) & (areas["common"] < 0) & (areas["last"] > self._watermark)
        # a member may start later than its group, but not earlier
        existing = np.flatnonzero(known & (areas["start"] <= start.min()) & (areas["first"] <= first.min()))
        founder, shape = groups.assign(self._members(existing), members, self._areas["cell"][existing], cells)
        new, group = np.unique(founder, return_inverse=True)
        joined = int(np.searchsorted(new, len(existing)))
        founders, of_new = new[joined:] - len(existing), group >= joined
        starts, firsts = np.full(len(founders), _LATEST), np.full(len(founders), _LATEST)
        np.minimum.at(starts, group[of_new] - joined, start[of_new])
        np.minimum.at(firsts, group[of_new] - joined, first[of_new])
        chosen = queries.take(founders)
        added = self._add_areas(
            Regions(chosen.regions.kind, shape[founders], chosen.regions.polygons),
            chosen,
            starts,
            firsts,
            np.full(len(founders), -1),
            cells[founders],
        )
        return np.concatenate([existing[new[:joined]], added])[group].astype(np.int32)

    def _single(self, queries: QueryBatch, start: Ints, first: Ints, common: Codes) -> Codes:
        """The own area of each query whose counts differ from those of its group; -1 for the others."""
        shape = np.column_stack([self._areas[side][common] for side in _SIDES])
        differs = (shape != queries.regions.shape).any(axis=1)
        seen = first - queries.window + 1
        # its first step sees objects from before its start, which the group counts
        late = (start > self._areas["start"][common]) & (seen < start)
        # or the group has objects that arrived before the query
        joins = self._logs.latest(common) >= seen
        rows = np.flatnonzero(differs | late | joins)
        own = np.full(len(queries), -1, np.int32)
        chosen, cells = queries.take(rows), self._areas["cell"][common[rows]]
        own[rows] = self._add_areas(chosen.regions, chosen, start[rows], first[rows], common[rows], cells)
        return own

    def _members(self, areas: Ints) -> groups.Members:
        window, step, first = (self._areas[name][areas] for name in ("window", "step", "first"))
        regions = self._regions(areas.astype(np.int32))
        return groups.Members.of(
            window, step, first % step, self._keys.arrow(areas), regions, self._areas["polygon"][areas]
        )

    def _add_areas(
        self, regions: Regions, queries: QueryBatch, start: Ints, first: Ints, common: Ints | Codes, cells: Ints
    ) -> Codes:
        """Add the areas of as many queries; returns their positions."""
        n = len(regions)
        position = self._areas.append(
            {
                "kind": regions.kind,
                **{side: regions.shape[:, i] for i, side in enumerate(_SIDES)},
                "window": queries.window,
                "step": queries.step,
                "start": start,
                "first": first,
                "common": common,
                "cell": cells,
                "polygon": self._polygons.codes(regions.polygons),
                "last": _LATEST,
            }
        )
        self._keys.append(groups.join_keywords(queries.keywords))
        self._logs.add(n)
        added = np.arange(position, position + n, dtype=np.int32)
        self._tiers.add(added, queries.keywords)
        return added

    def _discount(self, area: int) -> None:
        """Add negative entries to a member's own area for the objects that its group counted before the member."""
        entries, t = self._logs.log(int(self._areas["common"][area]))
        first_seen = self._areas["first"][area] - self._areas["window"][area] + 1
        entries = entries[t >= first_seen]
        self._enter(np.full(len(entries), area, np.int32), ~entries)

    def _enter(self, areas: Codes, entries: Codes) -> None:
        """Append entries to logs, and to the data of the next checkpoint."""
        if len(areas):
            self._entries.append((areas, entries))
            self._logs.append(areas, entries)

    def _bound(self) -> Ints:
        """Upper bound of the last step of each query."""
        bound: Ints = np.minimum(self._queries["last_step"], self._queries["cancelled"] - 1)
        return bound

    def _set_last(self) -> None:
        """Set the last step of each area to that of the last query that uses it."""
        bound, own, last = self._bound(), self._queries["own"], self._areas["last"]
        last[:] = _EARLIEST
        np.maximum.at(last, self._queries["common"], bound)
        last[own[own >= 0]] = bound[own >= 0]

    def end_at(self, numbers: Ints, t: Ints) -> None:
        """See :class:`MovableIndex`: no step at t or later is reported."""
        rows, which = earliest(self._queries["number"], numbers, t)
        if len(rows):
            self._queries["cancelled"][rows] = np.minimum(self._queries["cancelled"][rows], t[which])
            self._queries["touched"][rows] = True
            self._set_last()

    def drop(self, numbers: Ints) -> None:
        """See :class:`MovableIndex`."""
        self.end_at(numbers, np.full(len(numbers), _DROPPED))

    def known(self, numbers: Ints) -> Flags:
        """See :class:`MovableIndex`."""
        return np.isin(numbers, self._queries["number"][self._unfinished(self._watermark)])

    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        """See :class:`MovableIndex`. A cancellation at c is expressed as the duration: ``t + duration < c``."""
        queries, areas = self._queries, self._areas
        rows = np.flatnonzero(self._unfinished(max(now, self._watermark)))
        rows = rows[np.argsort(queries["number"][rows])]
        n, common, own, t = len(rows), queries["common"][rows], queries["own"][rows], queries["t"][rows]
        return queries["number"][rows], QueryBatch(
            self._names.arrow(rows),
            np.full(n, _CTQ, np.int8),
            t,
            self._bound()[rows] - t,
            areas["window"][common],
            queries["step"][rows],
            queries["k"][rows],
            np.zeros((n, 2)),
            self._regions(np.where(own < 0, common, own)),
            groups.split_keywords(self._keys.arrow(common.astype(np.int64))),
            nobody(n),
            nobody(n),
        )

    def _unfinished(self, now: int) -> Flags:
        """Whether each row has a step after ``now``."""
        queries = self._queries
        unfinished: Flags = _next_step(queries["first"], queries["step"], now) <= self._bound()
        return unfinished

    def match(self, objects: ObjectBatch) -> Iterable[StepPartials]:
        """See :class:`MovableIndex`. Returns no results: the objects count in later calls of :meth:`steps`."""
        if not len(objects) or not self._tiers.tiers:
            return ()
        batch, areas = ProbeBatch.of(self.space, objects, self._tiers.posted), self._areas.view(_Areas)
        pairs = []
        for tier in self._tiers.tiers:
            matches = tier.grid.probe(batch)
            matched, rows = matches.objects, tier.rows[matches.queries]
            signs = _signs(self.space.geographic, matched, rows, batch.objects, areas)
            counted = np.flatnonzero(signs)
            pairs.append((matched[counted], rows[counted], signs[counted]))
        matched, rows, signs = (np.concatenate(column) for column in zip(*pairs, strict=True))
        if not len(matched):
            return ()
        stored = np.unique(matched)
        base = self._logs.store(objects.take(stored))
        entries = (base + np.searchsorted(stored, matched)).astype(np.int32)
        self._enter(rows, np.where(signs > 0, entries, ~entries))
        return ()

    def steps(self, watermark: int, rows: int = _ROWS, counts: int = _COUNTS) -> Iterator[StepPartials]:
        """Report every step after the ``watermark`` of the previous call, up to and including this one.

        Yields consecutive nonempty parts; callers must consume all parts.

        Args:
            watermark: in ms: all objects with ``o.t <= watermark`` have been passed, except late ones, and all
                cancellations up to then.
            rows: number of steps listed at a time, unless they are of one instant.
            counts: approximate number of counts of a part.
        """
        while True:
            until = self._reach(watermark, rows)
            yield from self._counted(*self._due(until), counts)
            self._watermark = max(self._watermark, until)
            if self._logs.crowded:
                self._compact()
            if until >= watermark:
                return

    def _counted(self, row: Ints, now: Ints, counts: int) -> Iterator[StepPartials]:
        """The partials of the given steps, in parts."""
        queries, first, size = self._queries, 0, _FIRST_ROWS
        while first < len(row):
            some, at = row[first : first + size], now[first : first + size]
            common, own = queries["common"][some], queries["own"][some]
            made()
            ends, codes, found = self._logs.count(common, own, at, self._areas["window"])
            offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
            terms = TermLists(offsets, codes, self._logs.words).compact()
            yield StepPartials(queries["number"][some], self._names.arrow(some), at, queries["k"][some], terms, found)
            first += len(some)
            size = max(1, min(4 * size, counts * len(some) // max(1, len(found))))

    def _reach(self, watermark: int, rows: int) -> int:
        """The latest time up to which at most ``rows`` steps are due; if more are due at the next step, its time."""
        following, steps = self._following(watermark)
        if int(steps.sum()) <= rows:
            return watermark
        low = int(following[steps > 0].min())  # a step is due then
        high = watermark
        while low < high:
            middle = (low + high + 1) // 2
            if int(self._following(middle)[1].sum()) <= rows:
                low = middle
            else:
                high = middle - 1
        return low

    def _following(self, watermark: int) -> tuple[Ints, Ints]:
        """For each query, its first step after the last call, and the number of those up to ``watermark``."""
        queries = self._queries
        following = _next_step(queries["first"], queries["step"], self._watermark)
        bound = np.minimum(self._bound(), watermark)
        steps = np.where(following <= bound, (np.maximum(bound, following) - following) // queries["step"] + 1, 0)
        return following, steps

    def _due(self, watermark: int) -> tuple[Ints, Ints]:
        """The steps after the last call: row and time of each, ordered by time, then group."""
        queries = self._queries
        following, steps = self._following(watermark)
        row = np.repeat(np.arange(len(queries)), steps)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(steps) - steps, steps)
        now = following[row] + nth * queries["step"][row]
        order = np.lexsort((row, queries["common"][row], now))
        return row[order], now[order]

    def expire(self, now: int) -> None:
        """Drop the queries that have no step later than ``now`` and than the last call of :meth:`steps`."""
        self._watermark = max(self._watermark, now)
        kept = np.flatnonzero(self._unfinished(self._watermark))
        if 2 * len(kept) < len(self._queries):
            self._drop(kept)

    def _drop(self, rows: Ints) -> None:
        """Keep only the given queries and their areas."""
        self._queries.take(rows)
        self._names.take(rows)
        common, own = self._queries["common"], self._queries["own"]
        kept = np.union1d(common, own[own >= 0]).astype(np.int64)
        position = np.full(len(self._areas) + 1, -1, np.int32)  # the last stands for "none", which is -1
        position[kept] = np.arange(len(kept))
        self._areas.take(kept)
        self._areas["polygon"][:] = self._polygons.keep(self._areas["polygon"])
        self._keys.take(kept)
        self._logs.take(kept)
        common[:], own[:] = position[common], position[own]
        self._areas["common"][:] = position[self._areas["common"]]
        self._set_last()
        self._tiers.compact(position)
        self._compact()

    def _compact(self) -> None:
        """Drop the objects that no later step can see."""
        areas = self._areas
        following = _next_step(areas["first"], areas["step"], self._watermark)
        self._logs.compact(np.where(following > areas["last"], _LATEST, following - areas["window"]))
        self._moved = True

    def _regions(self, areas: Codes) -> Regions:
        shape = np.column_stack([self._areas[side][areas] for side in _SIDES])
        return Regions(self._areas["kind"][areas], shape, self._polygons.column(self._areas["polygon"][areas]))

    def _alive(self, areas: Codes) -> Flags:
        alive: Flags = self._areas["last"][areas] > self._watermark
        return alive

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        touched = np.flatnonzero(self._queries["touched"])
        delta = None
        if not self._moved and (len(touched) or self._entries or self._sizes() != self._saved):
            rows = np.concatenate([np.empty(0, np.int32), *(areas for areas, _ in self._entries)])
            entries = np.concatenate([np.empty(0, np.int32), *(entries for _, entries in self._entries)])
            delta = self._rows(*self._saved, touched, rows, entries)
        self._journal.save(write, delta, self._base, anew=self._moved)
        self._queries["touched"][:] = False
        self._saved, self._entries, self._moved = self._sizes(), [], False
        return {
            "journal": self._journal.manifest,
            "tiers": self._tiers.checkpoint(write, "ctq-grid"),
            "watermark": int(self._watermark),
            "swept": self._logs.swept,
        }

    def _sizes(self) -> tuple[int, int, int, tuple[int, int, int]]:
        return len(self._queries), len(self._areas), len(self._polygons), self._logs.sizes

    def _base(self) -> Arrays:
        self._compact()
        return self._rows(0, 0, 0, (0, 0, 0), np.arange(len(self._queries)), *self._logs.packed())

    def _rows(
        self,
        queries: int,
        areas: int,
        polygons: int,
        logs: tuple[int, int, int],
        touched: Ints,
        rows: Codes,
        entries: Codes,
    ) -> Arrays:
        """The immutable columns, from the given positions on; cancellations of queries; entries of areas."""
        name_offsets, names = self._names.part(queries)
        key_offsets, keys = self._keys.part(areas)
        return {
            **{f"query_{name}": self._queries[name][queries:] for name in _QUERY},
            "name_offsets": name_offsets,
            "names": names,
            **{f"area_{name}": self._areas[name][areas:] for name in _AREA},
            "polygons": packed_polygons(self._polygons.polygons[polygons:]),
            "key_offsets": key_offsets,
            "keys": keys,
            "touched": touched,
            "cancelled": self._queries["cancelled"][touched],
            **self._logs.since(*logs),
            "entry_area": rows,
            "entry": entries,
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> ContinuousTermsIndex:
        """See :mod:`spatialstream.local.state`."""
        self = cls(space)
        self._watermark, self._logs.swept = manifest["watermark"], manifest["swept"]
        self._journal, (base, *deltas) = Journal.open("ctq", manifest["journal"], read)
        self._apply(base)
        self._logs.load(base["entry_area"], base["entry"])
        for delta in deltas:
            self._apply(delta)
            self._logs.append(delta["entry_area"], delta["entry"])
        self._set_last()
        self._tiers.restore(manifest["tiers"], read)
        self._saved = self._sizes()
        return self

    def _apply(self, saved: Arrays) -> None:
        self._queries.append({**{name: saved[f"query_{name}"] for name in _QUERY}, "cancelled": _LATEST})
        self._names.extend(saved["name_offsets"], saved["names"])
        self._areas.append({**{name: saved[f"area_{name}"] for name in _AREA}, "last": _LATEST})
        self._keys.extend(saved["key_offsets"], saved["keys"])
        self._polygons.add(unpacked_polygons(saved["polygons"], self.space.geographic))
        self._queries["cancelled"][saved["touched"]] = saved["cancelled"]
        self._logs.add(len(saved["area_kind"]))
        self._logs.extend(saved)


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    regions = (Box(0.0, 0.0, 1.0, 1.0), Box(0.0, 0.0, 0.9, 1.0))
    queries = [Query("q", 0, Predicate(region), TopTerms(1), Lifetime(30, True, 5, 10)) for region in regions]
    index = ContinuousTermsIndex(WGS84)
    index.register(np.arange(2), QueryBatch.of(queries))
    index.match(ObjectBatch.of([SpatialObject("o", 9, 0.5, 0.5, ("a", "b"))]))
    merge_steps(list(index.steps(10)))
    index.match(ObjectBatch.of([SpatialObject("o", 11, 0.5, 0.5, ("a", "c"))]))
    index._compact()
