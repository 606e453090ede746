"""All objects of one slot, as a log-structured merge tree of segments.

The tree of O'Neil et al. (1996), size-tiered as in Bigtable (2006). Every epoch appends a small segment. Segments of
similar size are merged, eight at a time, into one of the next size, up to :data:`CAPACITY` objects; full segments are
not merged again. So an object is copied a few times in its lifetime, and a query searches about a dozen segments.
Segments whose objects are all outside a query's time range are not even mapped, and in a segment completely inside it
no timestamp is compared.

Δ (``interval``) bounds the time range of a merged segment. A segment belongs to the interval of its latest object,
``(t_max + phase Δ) // Δ``, and only segments of one interval are merged; when a later interval begins, the remaining
segments of the earlier one are merged into as few segments as the capacity allows. So a merged segment can be dropped
at most Δ after its earliest epoch could be. Without an interval the time range is unbounded, for streams that keep
everything.

Objects are dropped only with their whole segment, so they can be archived first, and nothing else is lost. Late objects
are treated like others: those that arrive together form a segment, of the interval of the latest of them.

Cost: an append costs the building of its segment; occasionally it also includes a merge of at most ``CAPACITY``
objects. Stores with the same load, such as the slots of a stream, would all merge in the same epoch. So each has a
``phase``, by which the intervals of its store are shifted, and its first merges of each size are done with fewer
segments. After that, the merges of several stores are spread over time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array
from spatialstream.local.base import LocalIndex
from spatialstream.local.snapshot import signatures
from spatialstream.local.snapshot.corpora import Corpora, CorpusTable
from spatialstream.local.snapshot.keywords import ENOUGH, Decided
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.termlists import decode_counts, decode_sets
from spatialstream.local.snapshot.views import ObjectsView, Part, TermNumbers
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.wordtable import to_arrow
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Box
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import StoredFields
from spatialstream.model.terms import TermLists

__all__ = ["CAPACITY", "FAN_IN", "SegmentStore", "phase_of", "prepare"]

P = ParamSpec("P")
R = TypeVar("R")

CAPACITY = 1 << 19
"""Number of objects at which a segment is full. A lower value means more segments, and so slower queries; a higher
value means larger merges, and so a longer maximum time of an append (``tests/benchmarks/bench_segment.py``)."""

FAN_IN = 8
"""Number of segments of one size that are merged into one."""

_SMALLEST = 1024
"""All segments with fewer objects than this are considered to be of the same size."""

_KEPT = ("file", "objects", "weight", "nbytes", "t_min", "t_max", "keyed")
"""The attributes of a segment in a manifest."""

_NO_FLOOR = -(2**62)

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def phase_of(slot: int) -> float:
    """The phase in [0, 1) of a slot's store: phases are spread evenly for any number of slots (Weyl, 1916)."""
    return slot * _GOLDEN % 1.0


def _tier(part: Part) -> int:
    """Size class of a segment, ascending by size."""
    tier, size = 0, part.weight // _SMALLEST
    while size >= FAN_IN:
        tier, size = tier + 1, size // FAN_IN
    return tier


def _of_view(query: Callable[Concatenate[ObjectsView, P], R]) -> Callable[Concatenate[SegmentStore, P], R]:
    """A query of a view as a method of the store, which asks its own view: of the same meaning and signature."""

    @wraps(query)
    def method(store: SegmentStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return query(store._now, *args, **kwargs)

    return method


class SegmentStore(LocalIndex):
    """All objects of one slot.

    Args:
        space: the space of the objects.
        interval: Δ in ms, the maximum time range of a merged segment; None: unbounded.
        capacity: number of objects at which a segment is full.
        phase: in [0, 1), shifts the merges of this store relative to other stores with the same load.

    Attributes:
        floor: objects with t below this are no longer found.
    """

    def __init__(self, space: Space, interval: int | None = None, capacity: int = CAPACITY, phase: float = 0.0) -> None:
        self.space = space
        self.interval = interval
        self.capacity = capacity
        self.phase = phase
        self.floor = _NO_FLOOR
        self._parts: list[Part] = []
        self._merged: set[int] = set()
        """Size classes in which there has been a merge."""
        self._own: ObjectsView | None = None
        self._corpora: Corpora | None = None
        self._numbers, self._numbers_of_views = TermNumbers(), TermNumbers()

    def __len__(self) -> int:
        """Number of objects, including those below the floor whose segment has not been dropped yet."""
        return sum(part.objects for part in self._parts)

    @property
    def nbytes(self) -> int:
        """Bytes of all segments, in files and in memory."""
        return sum(part.nbytes for part in self._parts)

    @property
    def segments(self) -> int:
        """Number of segments."""
        return len(self._parts)

    # ------------------------------------------------------------------------------------------------------- changing

    def append(self, objects: ObjectBatch) -> None:
        """Add the objects of an epoch, in any order of time; then do the merges that are due.

        Objects below the floor are not found, but are dropped like others by the next :meth:`drop_before`.
        """
        if len(objects) == 0:
            return
        part = Part.of(Segment.build(self.space, objects, self._decided(len(objects))))
        self._parts.append(part)
        self._own = None
        interval = self._interval_of(part)
        self._close_earlier(interval)
        self._merge_tiers(interval)

    def drop_before(self, t: int) -> None:
        """Raise the floor to ``t``: older objects are no longer found, and segments with only such are dropped."""
        self.floor = max(self.floor, t)
        self._parts = [part for part in self._parts if part.t_max >= self.floor]
        self._own = None

    def leaving(self, t: int) -> Iterator[ObjectBatch]:
        """Yield the objects that :meth:`drop_before` with ``t`` would drop, one segment at a time.

        Each object of the store is yielded exactly once over its lifetime if this is called before every drop. At most
        one segment (``capacity`` objects) is loaded at a time. Objects of a segment are in Z-order.
        """
        floor = max(self.floor, t)
        for part in [part for part in self._parts if part.t_max < floor]:
            yield _objects_of(part.read())

    def _interval_of(self, part: Part) -> int:
        if self.interval is None:
            return 0
        return (part.t_max + int(self.phase * self.interval)) // self.interval

    def _close_earlier(self, current: int) -> None:
        """Merge the remaining segments of each interval before ``current`` that is still open."""
        if self.interval is None:
            return
        intervals = [self._interval_of(part) for part in self._parts[:-1]]
        if intervals and max(intervals) < current:
            latest = max(intervals)
            open_ = [
                part
                for part in self._parts[:-1]
                if self._interval_of(part) == latest and part.weight <= self.capacity // 2
            ]
            self._merge(open_)

    def _merge_tiers(self, interval: int) -> None:
        """Merge ``FAN_IN`` segments of one size, or as many as fill a segment, as long as there are any.

        The first merge of each size takes fewer segments, depending on the phase: as if the store had started earlier.
        """
        merged = True
        while merged:
            merged = False
            tiers: dict[int, list[Part]] = {}
            for part in self._parts:
                if self._interval_of(part) == interval and part.weight <= self.capacity // 2:
                    tiers.setdefault(_tier(part), []).append(part)
            for tier, members in sorted(tiers.items()):
                full = 1.0 if tier in self._merged else 1.0 - self.phase
                weight = sum(part.weight for part in members)
                if len(members) > 1 and (len(members) >= full * FAN_IN or weight >= full * self.capacity):
                    self._merge(members[:FAN_IN])
                    self._merged.add(tier)
                    merged = True
                    break

    def _merge(self, parts: Sequence[Part]) -> None:
        """Merge parts in order, each result up to the capacity; the results replace the first parts."""
        group: list[Part] = []
        for part in [*parts, None]:
            if part is None or (group and sum(each.weight for each in group) + part.weight > self.capacity):
                if len(group) > 1:
                    decided = self._decided(sum(each.objects for each in group))
                    self._replace(group, Segment.merge([each.loaded() for each in group], decided))
                group = []
            if part is not None:
                group.append(part)

    def _decided(self, objects: int) -> Decided:
        """What the largest segment says of the properties of one of so many objects; nothing if it has fewer."""
        largest = max(self._parts, key=lambda part: part.objects, default=None)
        if largest is None or largest.objects < max(objects, ENOUGH):
            return {}
        return largest.keyed

    def _replace(self, group: Sequence[Part], segment: Segment) -> None:
        gone = {id(part) for part in group}
        at = next(i for i, part in enumerate(self._parts) if id(part) in gone)
        self._parts[at] = Part.of(segment)
        self._parts = [part for part in self._parts if id(part) not in gone]

    # ------------------------------------------------------------------------------------------------------- querying

    def view(self) -> ObjectsView:
        """An immutable view of the current state, which other threads may query while one thread changes the store."""
        return ObjectsView(self.space, self._parts, self.floor, self._numbers_of_views, self._corpora)

    @property
    def _now(self) -> ObjectsView:
        """The view for the store's own queries: it never waits for threads that query other views."""
        if self._own is None:
            self._own = ObjectsView(self.space, self._parts, self.floor, self._numbers, self._corpora)
        return self._own

    range_query = _of_view(ObjectsView.range_query)
    nearest = _of_view(ObjectsView.nearest)
    best = _of_view(ObjectsView.best)
    term_counts = _of_view(ObjectsView.term_counts)

    @property
    def corpora(self) -> Corpora | None:
        """The tables that ranked queries read; None: there are none. They are not part of the store."""
        return self._corpora

    @corpora.setter
    def corpora(self, corpora: Corpora | None) -> None:
        self._corpora, self._own = corpora, None

    # -------------------------------------------------------------------------------------------------------- keeping

    def checkpoint(self, write: WriteFile) -> Manifest:
        """Write the segments that are not written yet, one file each; see :mod:`spatialstream.local.state`.

        They are immutable and by far the largest part of a checkpoint, so they are not copied.
        """
        for part in self._parts:
            if part.file is None:
                part.file = write("segment", _unchanging(part.loaded().to_arrays()), None)
        return {
            "interval": self.interval,
            "capacity": self.capacity,
            "phase": self.phase,
            "merged": sorted(self._merged),
            "floor": self.floor,
            "segments": [{name: getattr(part, name) for name in _KEPT} for part in self._parts],
        }

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> SegmentStore:
        """Load the store of a checkpoint. A segment's file is read when a query or a merge first needs it."""
        store = cls(space, manifest["interval"], manifest["capacity"], manifest["phase"])
        store._merged = set(manifest["merged"])
        store.floor = manifest["floor"]

        def load(name: str) -> Segment:
            return Segment.from_arrays(space, read(name)[0])

        store._parts = [Part(**part, load=load) for part in manifest["segments"]]
        return store


def _objects_of(segment: Segment) -> ObjectBatch:
    columns = segment.columns
    codes = np.arange(segment.terms, dtype=np.int32)
    offsets, of_each = decode_sets(columns.unit_offsets, columns.units, codes)
    counts = decode_counts(columns.units, columns.counts) if len(columns.counts) else None
    terms = TermLists(offsets, of_each, to_arrow(columns.word_offsets, columns.words), counts)
    if any(segment.keyed.values()):
        terms = terms.compact()  # keywords of properties are terms of the index, not of its objects
    objects = ObjectBatch(to_arrow(columns.id_offsets, columns.ids), columns.t, columns.x, columns.y, terms)
    if segment.properties is not None:
        objects = replace(objects, properties=segment.properties.columns())
    if segment.stored is not None:
        objects = replace(objects, stored=StoredFields(len(segment), segment.stored.all()))
    return objects


def prepare() -> None:
    """Compile every kernel of segments and of their store."""
    space = Space.planar(0.0, 0.0, 1.0, 1.0)
    store = SegmentStore(space, capacity=16)
    for t in range(FAN_IN):
        given = (("p", "v"),)
        store.append(ObjectBatch.of([SpatialObject(str(t), t, 0.5, 0.5, ("a", "b"), given, counts=(1, 2))]))
    everywhere = Box(0.0, 0.0, 1.0, 1.0)
    store.range_query(everywhere, ["a", "b"], -1, FAN_IN)
    store.nearest(0.0, 0.0, 1, ["a"], -1, FAN_IN)
    store.term_counts(everywhere, [], -1, FAN_IN)
    store.term_counts(everywhere, [], -1, FAN_IN, 1)
    store.range_query(everywhere, ["0|a", "1|b", "!c"], -1, FAN_IN)
    store.term_counts(everywhere, ["0|a", "1|b"], -1, FAN_IN)
    corpus = CorpusTable.of(0, 2, pa.array(["a"]), np.array([2]))
    ranking = Ranking(("a", "c"), 1.0, 1, half_life=1)
    store.best((0.0, 0.0), 1, ranking, ["0|a", "1|b", "!c"], (-1, FAN_IN), FAN_IN, corpus)
    list(store.leaving(FAN_IN))
    signatures.prepare(Segment.build(space, ObjectBatch.of([SpatialObject("0", 0, 0.5, 0.5, ("a", "b"))])).columns)


def _unchanging(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Read-only views of the arrays."""
    views = {name: array.view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views
