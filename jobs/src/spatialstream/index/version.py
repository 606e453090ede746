"""Routing versions: a global index and the mapping table from leaves to slots (SSTD, 4.1.2, 5.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pyarrow as pa

from spatialstream.index.adjustment import Builder
from spatialstream.index.base import GlobalIndex, LeafWords
from spatialstream.index.kinds import DEFAULT, KINDS, kind_named
from spatialstream.index.partition import karmarkar_karp
from spatialstream.index.query_partition import QueryPartition
from spatialstream.index.statistics import Statistics
from spatialstream.model import hashing
from spatialstream.model.arrays import Codes, Ints, pack_arrays, unpack_arrays
from spatialstream.model.errors import StateError
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.regions import Circle
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists

__all__ = ["RoutingVersion", "build", "prepare"]

_UNIFORM_SIDE = 64
"""Side of the uniform grid of points that replaces the sample of a stream without history."""


@kernel
def _distinct_slots(rows: Codes, leaves: Codes, mapping: Codes, last_row: Ints, row_out: Codes, slot_out: Codes) -> int:
    """Write one entry per row and slot and return their number; ``last_row`` int64[slots] is initially -1."""
    found = 0
    for i in range(len(rows)):
        slot = mapping[leaves[i]]
        if last_row[slot] != rows[i]:
            last_row[slot] = rows[i]
            row_out[found] = rows[i]
            slot_out[found] = slot
            found += 1
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RoutingVersion:
    """An immutable pair of global index and mapping table.

    Attributes:
        number: the version's number.
        index: the global index.
        mapping: int32[leaves], the slot of each leaf.
        slots: number of slots, including slots without a leaf.
        nearest: the one slot of each CKQ, to which objects go as copies; None: CKQs are where their circles are.
    """

    number: int
    index: GlobalIndex
    mapping: Codes
    slots: int
    nearest: QueryPartition | None = None

    @property
    def replicates(self) -> bool:
        """Whether objects may go to slots as copies."""
        return self.index.replicates or self.nearest is not None

    def route_objects(self, objects: ObjectBatch) -> Codes:
        """The slot of each object, int32[n]."""
        return self.mapping[self.index.route_objects(objects)]

    def deliver(
        self, objects: ObjectBatch, words: LeafWords | None = None, nearest: tuple[Ints, Codes] | None = None
    ) -> tuple[Ints, Codes, Codes]:
        """Where each object goes: its home, and the other slots that have a copy, each slot once.

        Args:
            objects: n objects.
            words: see :meth:`GlobalIndex.copies`.
            nearest: (row, slot), at least where an object may match a CKQ, if each of these is on one slot; None: every
                slot that has a subset of these gets every object.

        Returns:
            row int64[m], leaf int32[m], slot int32[m]: first the n homes in order; then the copies, ascending by row,
            with ``~leaf`` of the first leaf of theirs in the slot, or of the home if they are there for CKQs.
        """
        home = self.index.route_objects(objects)
        row, slot = np.arange(len(home)), self.mapping[home]
        if not self.replicates:
            return row, home, slot
        copied, leaf = self.index.copies(objects, words)
        target = self.mapping[leaf]
        if self.nearest is not None:
            each, to = self._to_all(len(home)) if nearest is None else nearest
            copied, leaf = np.concatenate([copied, each]), np.concatenate([leaf, home[each]])
            target = np.concatenate([target, to])
        other = target != slot[copied]
        copied, leaf, target = copied[other].astype(np.int64), leaf[other], target[other]
        _, first = np.unique(copied * self.slots + target, return_index=True)
        copied, leaf, target = copied[first], leaf[first], target[first]
        parts = (row, copied), (home, ~leaf), (slot, target)
        rows, leaves, slots = (np.concatenate(pair) for pair in parts)
        return rows, leaves, slots

    def _to_all(self, n: int) -> tuple[Ints, Codes]:
        """(row, slot) of n objects and all slots that have a subset of the CKQs."""
        assert self.nearest is not None
        slots = np.unique(self.nearest.slot)
        return np.repeat(np.arange(n), len(slots)), np.tile(slots, n)

    def route_queries(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        """The slots of each query: (row int32[m], slot int32[m]), ascending by row, each slot once per row."""
        rows, leaves = self.index.route_queries(queries)
        row, slot = np.empty(len(rows), np.int32), np.empty(len(rows), np.int32)
        last_row = np.full(self.slots, -1, np.int64)
        found = _distinct_slots(rows, leaves, self.mapping, last_row, row, slot)
        return row[:found], slot[:found]

    def pack(self) -> Iterator[bytes | memoryview]:
        """Yield the consecutive parts of a file of this version."""
        arrays, meta = self.index.to_arrays()
        arrays = {f"index.{name}": array for name, array in arrays.items()} | {"mapping": self.mapping}
        if self.nearest is not None:
            arrays |= {f"nearest.{name}": array for name, array in self.nearest.to_arrays().items()}
        meta = {"number": self.number, "slots": self.slots, "kind": self.index.kind, "index": meta}
        return pack_arrays(arrays, meta)

    @classmethod
    def unpack(cls, data: pa.Buffer, name: str) -> RoutingVersion:
        """Read a file of :meth:`pack`, without a copy.

        Args:
            data: the file's bytes.
            name: the file's name, for error messages.

        Raises:
            StateError: the file is not a routing version, its kind of index is unknown, or another release wrote it.
        """
        arrays, meta = unpack_arrays(data, name)
        if meta.get("kind") not in KINDS:
            raise StateError(f"{name} is not a routing version: its kind of index is {meta.get('kind')!r}")
        kind = KINDS[meta["kind"]].implementation.index
        parts = {key.removeprefix("index."): array for key, array in arrays.items() if key.startswith("index.")}
        try:
            index = kind.from_arrays(parts, meta["index"])
        except KeyError as error:
            raise StateError(f"{name} was written by another release: it has no {error}") from None
        given = {key.removeprefix("nearest."): array for key, array in arrays.items() if key.startswith("nearest.")}
        nearest = QueryPartition.from_arrays(index.space, given) if given else None
        return cls(meta["number"], index, arrays["mapping"], meta["slots"], nearest)


def build(
    space: Space,
    objects: ObjectBatch,
    queries: QueryBatch,
    leaves: int,
    slots: int,
    *,
    number: int = 0,
    kind: str = DEFAULT,
    builder: Builder | None = None,
    levels: int | None = None,
) -> RoutingVersion:
    """Build a routing version from a representative sample: statistics, global index, assignment of leaves to slots.

    One STQ over the whole space is added to the sampled queries. Its effect is negligible if there are many queries; if
    there are few or none, it weights leaves that no query concerns by their number of objects. Without sampled objects,
    objects are assumed to be uniformly distributed.

    Args:
        space: the stream's space.
        objects: a sample of the objects, whose timestamps span the sampling period.
        queries: a sample of the queries of the same period.
        leaves: θ, about how many leaves the index is to have.
        slots: number of slots.
        number: the version's number.
        kind: the kind of index, of :data:`spatialstream.index.kinds.KINDS`.
        builder: builds the index instead of the builder of the kind, for example with other settings.
        levels: depth of a complete J; None: J is adaptive.

    Raises:
        SettingError: there is no such kind of index.
    """
    implementation = kind_named(kind).implementation
    if not len(objects):
        objects = _uniform_objects(space)
    span = max(float(objects.t.max() - objects.t.min()), 1.0)
    everywhere = Query("", 0, Predicate(), TopTerms(1), Lifetime(0))
    history = Statistics.of(space, objects, QueryBatch.concat([queries, QueryBatch.of([everywhere])]), span, levels)
    if builder is None:
        return RoutingVersion(number, *implementation.place(objects, leaves, history, slots), slots)
    index = builder(objects, leaves, history)
    return RoutingVersion(number, index, karmarkar_karp(index.leaves.load, slots), slots)


def _uniform_objects(space: Space) -> ObjectBatch:
    """Objects without terms, uniformly distributed over the space."""
    west, south, east, north = space.bounds
    steps = (np.arange(_UNIFORM_SIDE) + 0.5) / _UNIFORM_SIDE
    x, y = (each.reshape(-1) for each in np.meshgrid(west + (east - west) * steps, south + (north - south) * steps))
    n = len(x)
    ids = pa.array([str(i) for i in range(n)], pa.string())
    return ObjectBatch(ids, np.zeros(n, np.int64), x, y, TermLists.empty(n))


def prepare() -> None:
    """Compile all kernels of the global indexes of every kind."""
    hashing.prepare()
    objects = ObjectBatch.of([SpatialObject(str(i), i, float(i), 0.0, ("a", "b")[: i + 1]) for i in range(2)])
    asked = QueryBatch.of([Query("", 0, Predicate(Circle(0.0, 0.0, 1.0), ("a",)), Everything(), Lifetime(1))])
    for sample, kind in product((objects, ObjectBatch.of([])), KINDS):
        version = build(WGS84, sample, asked, 4, 2, kind=kind)
        version.deliver(objects)
        version.route_queries(asked)
        version.index.reporter(objects, np.zeros(1, np.int32), asked.keywords, np.zeros(1, np.int32))
        version.index.nearest_leaves(np.zeros((1, 2)))
