"""All objects of one slot, as a log-structured merge tree of segments.

The tree of O'Neil et al. (1996), size-tiered as in Bigtable (2006). Every epoch appends a small segment. Segments of
about the same size are merged, eight at a time, into one of the next size, up to :data:`CAPACITY` objects; those are
not touched again. So an object is copied a few times in its life, and a query meets some dozen segments. Segments
whose objects are all outside a query's time are not even mapped, and within one that is wholly inside it no timestamp
is compared.

Δ (``interval``) bounds the time that merging puts together. A segment belongs to the interval of its latest object,
``(t_max + phase Δ) // Δ``, and only segments of one interval are merged; when a later interval begins, what is left of
the earlier one is merged into as few segments as the capacity allows. So a merged segment is droppable as a whole at
most Δ after its earliest epoch is. Without an interval nothing is bounded, for streams that keep everything.

Objects leave with their segment, never before: what is dropped can be archived first, and nothing else is lost. Late
objects are objects like any other: those that come together form a segment, of the interval of the latest of them.

Cost: an append is the building of its objects; every now and then it pays for a merge, of at most ``CAPACITY``
objects. Stores that take in the same load, as the slots of a stream do, would all pay in the same epoch. So each has a
``phase``: by it the intervals of one store end earlier than those of another, and a store's first merges of each size
are made with fewer segments. From then on the merges of several stores are spread over time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Ints
from spatialstream.local.base import LocalIndex
from spatialstream.local.snapshot.rows import ObjectRows
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.termlists import decode_sets
from spatialstream.local.snapshot.views import ObjectsView, Part, TermNumbers
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.wordtable import to_arrow
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.regions import Box, Region
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["CAPACITY", "FAN_IN", "SegmentStore", "phase_of", "prepare"]

CAPACITY = 1 << 19
"""Objects of a segment beyond which none are added to it. Fewer would make queries slower, which meet more segments;
more would make the longest append longer, which merges as many (``tests/benchmarks/bench_segment.py``)."""

FAN_IN = 8
"""Segments of one size that are merged into one."""

_SMALLEST = 1024
"""Segments with fewer objects than this count as being of one size."""

_KEPT = ("file", "objects", "weight", "nbytes", "t_min", "t_max")
"""What a manifest tells of a segment."""

_NO_FLOOR = -(2**62)

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def phase_of(slot: int) -> float:
    """The phase in [0, 1) of a slot's store: however many slots there are, theirs are spread evenly (Weyl, 1916)."""
    return slot * _GOLDEN % 1.0


def _tier(part: Part) -> int:
    """By size, the smallest first."""
    tier, size = 0, part.weight // _SMALLEST
    while size >= FAN_IN:
        tier, size = tier + 1, size // FAN_IN
    return tier


class SegmentStore(LocalIndex):
    """All objects of one slot.

    Args:
        space: of the objects.
        interval: Δ in ms, the longest time that merging puts into one segment; None: unbounded.
        capacity: objects of a segment beyond which none are added to it.
        phase: in [0, 1), when this store merges in relation to others with the same load.

    Attributes:
        floor: objects with t below it are not found any more.
    """

    def __init__(self, space: Space, interval: int | None = None, capacity: int = CAPACITY, phase: float = 0.0) -> None:
        self.space = space
        self.interval = interval
        self.capacity = capacity
        self.phase = phase
        self.floor = _NO_FLOOR
        self._parts: list[Part] = []
        self._merged: set[int] = set()
        """Tiers in which there has been a merge."""
        self._own: ObjectsView | None = None
        self._numbers, self._numbers_of_views = TermNumbers(), TermNumbers()

    def __len__(self) -> int:
        """Number of objects kept; those below the floor whose segment is not gone yet are among them."""
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
        """Add the objects of an epoch, in any order of time; then merge what has become due.

        Objects below the floor are not found, but leave like the others at the next :meth:`drop_before`.
        """
        if len(objects) == 0:
            return
        part = Part.of(Segment.build(self.space, objects))
        self._parts.append(part)
        self._own = None
        interval = self._interval_of(part)
        self._close_earlier(interval)
        self._merge_tiers(interval)

    def drop_before(self, t: int) -> None:
        """Objects with timestamps below ``t`` are not found any more; segments that hold no others are dropped."""
        self.floor = max(self.floor, t)
        self._parts = [part for part in self._parts if part.t_max >= self.floor]
        self._own = None

    def leaving(self, t: int) -> Iterator[ObjectBatch]:
        """The objects that :meth:`drop_before` with ``t`` is about to drop, one segment at a time.

        Each object of the store is given exactly once over its life, if this is asked before every drop. At most one
        segment (``capacity`` objects) is loaded for it at a time. Within a segment the order is that of a Z-curve.
        """
        floor = max(self.floor, t)
        for part in [part for part in self._parts if part.t_max < floor]:
            yield _objects_of(part.read())

    def _interval_of(self, part: Part) -> int:
        if self.interval is None:
            return 0
        return (part.t_max + int(self.phase * self.interval)) // self.interval

    def _close_earlier(self, current: int) -> None:
        """Merge what is left of each interval before ``current`` that was open until now."""
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
        """Merge ``FAN_IN`` segments of one size, or as many as fill a segment, until there are no such.

        The first time fewer will do, the fewer the greater the phase: as if the store had begun earlier than it has.
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
        """Merge parts in their order, each result up to the capacity; the results take the place of the first parts."""
        group: list[Part] = []
        for part in [*parts, None]:
            if part is None or (group and sum(each.weight for each in group) + part.weight > self.capacity):
                if len(group) > 1:
                    self._replace(group, Segment.merge([each.loaded() for each in group]))
                group = []
            if part is not None:
                group.append(part)

    def _replace(self, group: Sequence[Part], segment: Segment) -> None:
        gone = {id(part) for part in group}
        at = next(i for i, part in enumerate(self._parts) if id(part) in gone)
        self._parts[at] = Part.of(segment)
        self._parts = [part for part in self._parts if id(part) not in gone]

    # ------------------------------------------------------------------------------------------------------- querying

    def view(self) -> ObjectsView:
        """What there is now: it stays as it is, and other threads may ask it, while this store is changed by one."""
        return ObjectsView(self.space, self._parts, self.floor, self._numbers_of_views)

    @property
    def _now(self) -> ObjectsView:
        """The view that this store asks itself: it never waits for who asks other views."""
        if self._own is None:
            self._own = ObjectsView(self.space, self._parts, self.floor, self._numbers)
        return self._own

    def range_query(self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int) -> ObjectRows:
        """See :meth:`ObjectsView.range_query <spatialstream.local.snapshot.views.ObjectsView.range_query>`."""
        return self._now.range_query(region, keywords, t_after, t_last)

    def nearest(
        self, x: float, y: float, k: int, keywords: Sequence[str], t_after: int, t_last: int, bound: float = np.inf
    ) -> ObjectRows:
        """See :meth:`ObjectsView.nearest <spatialstream.local.snapshot.views.ObjectsView.nearest>`."""
        return self._now.nearest(x, y, k, keywords, t_after, t_last, bound)

    def term_counts(
        self, region: Region | None, keywords: Sequence[str], t_after: int, t_last: int, most: int | None = None
    ) -> tuple[pa.StringArray, Ints]:
        """See :meth:`ObjectsView.term_counts <spatialstream.local.snapshot.views.ObjectsView.term_counts>`."""
        return self._now.term_counts(region, keywords, t_after, t_last, most)

    # -------------------------------------------------------------------------------------------------------- keeping

    def checkpoint(self, write: WriteFile) -> Manifest:
        """Write the segments that are not written yet, a file each; see :mod:`spatialstream.local.state`.

        They never change, and are by far the largest of all that is written, so they are not copied for it.
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
        """The store of a checkpoint. A segment's file is read when a query or a merge first needs it."""
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
    terms = TermLists(offsets, of_each, to_arrow(columns.word_offsets, columns.words))
    return ObjectBatch(to_arrow(columns.id_offsets, columns.ids), columns.t, columns.x, columns.y, terms)


def prepare() -> None:
    """Compile every kernel of segments and of their store."""
    space = Space.planar(0.0, 0.0, 1.0, 1.0)
    store = SegmentStore(space, capacity=16)
    for t in range(FAN_IN):
        store.append(ObjectBatch.of([SpatialObject(str(t), t, 0.5, 0.5, ("a", "b"))]))
    everywhere = Box(0.0, 0.0, 1.0, 1.0)
    store.range_query(everywhere, ["a", "b"], -1, FAN_IN)
    store.nearest(0.0, 0.0, 1, ["a"], -1, FAN_IN)
    store.term_counts(everywhere, [], -1, FAN_IN)
    store.term_counts(everywhere, [], -1, FAN_IN, 1)
    store.range_query(everywhere, ["0|a", "1|b", "!c"], -1, FAN_IN)
    store.term_counts(everywhere, ["0|a", "1|b"], -1, FAN_IN)
    list(store.leaving(FAN_IN))


def _unchanging(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The same arrays, through which nobody writes."""
    views = {name: array.view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views
