"""The global indexes that are compared, and a stream's slots filled under one of them.

A new index is one more line of :data:`METHODS`. All have the same indexes below, as in the paper (section 7.1): those
of the product, one for all objects of a slot. *By leaf* there is one for each leaf, as in section 6.1 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spatialstream.index.qt.construction import build_tree
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from tests.benchmarks.paper import workloads
from tests.benchmarks.paper.workloads import HOUR, SPACE

Builder = Callable[[ObjectBatch, QueryBatch, int, int], RoutingVersion]
"""(history of objects, of queries, leaves, slots) -> an index and its mapping to slots."""

HISTORY, HISTORY_QUERIES = 100_000, 30_000
"""Objects and queries of the history that an index is built from, at most; other ones than those it is asked about."""

KINDS = ("SRQ", "SKQ", "STQ", "CRQ", "CKQ", "CTQ")

EPOCHS = 20
"""Parts in which the objects come to the slots."""


def _tree(splits: Collection[str]) -> Builder:
    def builder(objects: ObjectBatch, queries: QueryBatch, leaves: int, slots: int) -> RoutingVersion:
        return build(SPACE, objects, queries, leaves, slots, builder=partial(build_tree, splits=splits))

    return builder


METHODS: dict[str, Builder] = {
    "QT-tree": _tree({"spatial", "textual"}),
    "Quadtree": _tree({"spatial"}),
    "Text": _tree({"textual"}),
}
"""The global indexes, by name."""


@lru_cache(maxsize=2)
def history(data: str, n: int, seed: int, kind: str) -> tuple[ObjectBatch, QueryBatch]:
    """What an index is built from: objects and queries of before.

    Args:
        data: the data set.
        n: objects that the index is for.
        seed: of all.
        kind: of the queries; ``mix``: as many of each, over the paper's ranges (section 7.1).
    """
    objects = workloads.objects(data, min(HISTORY, n), 1000 + seed)
    count = min(HISTORY_QUERIES, n)
    if kind != "mix":
        return objects, workloads.queries(objects, {QueryType(kind): count}, 4 * seed)
    each = dict.fromkeys(map(QueryType, KINDS), count // 24 + 1)
    asked = [
        workloads.queries(objects, each, 4 * seed + i, region=(1e-4, 1.0), keywords=(1, 3), k=k)
        for i, k in enumerate((10, 20, 30, 40))
    ]
    return objects, QueryBatch.concat(asked)


@dataclass(frozen=True, slots=True)
class Key:
    """What a system follows from.

    Attributes:
        data: the data set.
        objects: how many are in the slots.
        method: the global index.
        leaves: θ.
        slots: slots.
        days: Δ in days; 0: unbounded.
        hours: the time over which the objects came.
        history: see :func:`history`.
        seed: of all.
    """

    data: str
    objects: int
    method: str
    leaves: int
    slots: int
    days: float
    hours: float
    history: str
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Indexes of objects: one a slot, or one a leaf.

    Attributes:
        version: routes to units, as if each were a slot.
        slot: int64[units], whose each is.
        stores: the indexes.
    """

    version: RoutingVersion
    slot: npt.NDArray[np.int64]
    stores: list[SegmentStore]


class System:
    """A global index and the slots under it; what is costly is made when it is first asked for.

    Attributes:
        version: the index, and its mapping to slots.
        predicted: by the cost model, objects visited by a random query of the history (Eqn 2), for so many objects.
        by_leaf: the index with a slot for each leaf.
    """

    def __init__(self, key: Key) -> None:
        self.key = key
        before = history(key.data, key.objects, key.seed, key.history)
        self.version = METHODS[key.method](*before, key.leaves, key.slots)
        self.predicted = float(self.version.index.leaves.load.sum()) * key.objects / len(before[0])
        leaves = len(self.version.index.leaves)
        self.by_leaf = RoutingVersion(0, self.version.index, np.arange(leaves, dtype=np.int32), leaves)

    @cached_property
    def objects(self) -> ObjectBatch:
        """What is in the slots."""
        return workloads.objects(self.key.data, self.key.objects, self.key.seed, self.key.hours)

    @cached_property
    def leaf(self) -> npt.NDArray[np.int32]:
        """The leaf of each object."""
        return self.version.index.route_objects(self.objects)

    @cached_property
    def held(self) -> npt.NDArray[np.int64]:
        """Objects of each leaf."""
        return np.bincount(self.leaf, minlength=self.by_leaf.slots)

    @cached_property
    def words(self) -> npt.NDArray[np.bool_]:
        """bool[leaves, words], whether the leaf has an object with the word."""
        terms = self.objects.terms
        found = np.zeros((self.by_leaf.slots, len(terms.vocabulary)), np.bool_)
        found[np.repeat(self.leaf, np.diff(terms.offsets)), terms.codes] = True
        return found

    def units(self, layout: str) -> Units:
        """The objects' indexes: one a ``slot``, else one a leaf."""
        return self._slots if layout == "slot" else self._leaves

    @cached_property
    def _slots(self) -> Units:
        return self._filled(self.version, np.arange(self.version.slots))

    @cached_property
    def _leaves(self) -> Units:
        return self._filled(self.by_leaf, self.version.mapping.astype(np.int64))

    def _filled(self, version: RoutingVersion, slot: npt.NDArray[np.int64]) -> Units:
        interval = round(self.key.days * 24 * HOUR) or None
        stores = [SegmentStore(SPACE, interval, phase=phase_of(int(each))) for each in slot]
        owner, n = version.mapping[self.leaf], len(self.objects)
        ends = np.linspace(0, n, EPOCHS + 1).astype(int)
        for first, last in pairwise(ends.tolist()):
            order = first + np.argsort(owner[first:last], kind="stable")
            bounds = np.searchsorted(owner[order], np.arange(len(stores) + 1))
            for unit, store in enumerate(stores):
                rows = order[bounds[unit] : bounds[unit + 1]]
                if len(rows):
                    batch = self.objects.take(rows)
                    store.append(ObjectBatch(batch.ids, batch.t, batch.x, batch.y, batch.terms.compact()))
        return Units(version, slot, stores)


@lru_cache(maxsize=1)
def system(key: Key) -> System:
    """The system; the last one is kept."""
    return System(key)
