"""The global indexes that are compared, and a stream's slots filled under one of them.

A new index is one more line of :data:`METHODS`. All have the same indexes below, as in the paper (section 7.1): those
of the product, one for all objects of a slot. *By leaf* there is one for each leaf, as in section 6.1 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from spatialstream.index.a_grid.construction import build_a_grid
from spatialstream.index.adjustment import Builder as IndexBuilder
from spatialstream.index.qt import construction
from spatialstream.index.qt.construction import build_tree
from spatialstream.index.qt.tree import QTTree
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.model.arrays import Codes, Ints
from spatialstream.model.hashing import find_all, hash_strings
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from tests.benchmarks.paper import workloads
from tests.benchmarks.paper.rivals import space
from tests.benchmarks.paper.workloads import HOUR, SPACE

Builder = Callable[[ObjectBatch, QueryBatch, int, int], RoutingVersion]
"""(history of objects, of queries, leaves, slots) -> an index and its mapping to slots."""

HISTORY, HISTORY_QUERIES = 100_000, 30_000
"""Objects and queries of the history that an index is built from, at most; other ones than those it is asked about."""

KINDS = ("SRQ", "SKQ", "STQ", "CRQ", "CKQ", "CTQ")

ALONE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "SRQ-wide": ("SRQ", {"region": (1.0, 1.0)}),
    "SKQ-words": ("SKQ", {"keywords": (1, 3)}),
}
"""Histories of one type of query with other ranges than usual: its type, and what :func:`workloads.queries` takes."""

EPOCHS = 20
"""Parts in which the objects come to the slots."""


LEARNT = 5_000
"""Objects that a tree with learning lists routes before it learns from them."""


class Learning(QTTree):
    """A tree that adds the words of the objects that it routes to its keyword lists, as section 4.2 of the paper says.

    It learns from :data:`LEARNT` objects at a time. Such a tree routes the same object elsewhere when it comes again,
    so it is of no use but to compare with.
    """

    def route_objects(self, objects: ObjectBatch) -> Codes:
        """The leaf of each object; the lists change."""
        firsts = range(0, len(objects), LEARNT)
        parts = [objects.take(np.arange(first, min(first + LEARNT, len(objects)))) for first in firsts]
        return np.concatenate([self._learnt(part) for part in parts])

    def _learnt(self, part: ObjectBatch) -> Codes:
        leaf, terms, texts = super().route_objects(part), part.terms, self.texts
        word = find_all(self.table, hash_strings(terms.vocabulary))[terms.codes]
        owner = np.repeat(np.arange(len(part)), np.diff(terms.offsets))
        for row, child in np.moveaxis(self._paths[leaf], 0, -1):
            there = row >= 0
            np.add.at(texts.objects, (row[there], child[there]), 1.0)
            heard = there[owner] & (word >= 0)
            bit = np.left_shift(1, child[owner[heard]]).astype(np.uint8)
            np.bitwise_or.at(texts.mask, (row[owner[heard]], word[heard]), bit)
        for row, mask in enumerate(texts.mask):
            bits = (mask >> np.arange(4, dtype=np.uint8)[:, np.newaxis]) & 1
            texts.mass[row] = bits.astype(np.int64) @ texts.chance[texts.cell[row]].astype(np.int64)
        return leaf

    @cached_property
    def _paths(self) -> Ints:
        """The textual nodes above each leaf, and the child on its path: int64[leaves, depth, 2], filled up with -1."""
        paths = self.textual_paths()
        result = np.full((len(paths), max(map(len, paths)), 2), -1)
        for leaf, path in enumerate(paths):
            result[leaf, : len(path)] = np.array(path).reshape(-1, 2)
        return result


def _learning(objects: ObjectBatch, leaves: int, statistics: Statistics) -> Learning:
    tree = build_tree(objects, leaves, statistics, {"textual"})
    return Learning(tree.space, tree.nodes, tree.texts, tree.table, tree.leaves)


def _eager(objects: ObjectBatch, leaves: int, statistics: Statistics) -> QTTree:
    """By text wherever that is estimated to be better at all."""
    with patch.multiple(construction, _GAIN=0.0):
        return build_tree(objects, leaves, statistics)


def _in_sample(objects: ObjectBatch, leaves: int, statistics: Statistics) -> QTTree:
    """As the paper prints it: a leaf has the words that its objects of the history have, and no others.

    Each of these objects stands for so many that all their words are there, without a prior, and an object is taken to
    go to the lists that have its words. The project's tree has no such setting, for nobody wants the tree.
    """
    counted = patch.multiple(construction, _GAIN=0.0, _MORE=1e6, _USUAL=1e-12)
    with counted, patch(f"{construction.__name__}._Builder._lift", return_value=1.0):
        return build_tree(objects, leaves, statistics)


def _tree(builder: IndexBuilder) -> Builder:
    def built(objects: ObjectBatch, queries: QueryBatch, leaves: int, slots: int) -> RoutingVersion:
        return build(SPACE, objects, queries, leaves, slots, builder=builder)

    return built


METHODS: dict[str, Builder] = {
    "QT-tree": _tree(build_tree),
    "Quadtree": _tree(partial(build_tree, splits={"spatial"})),
    "Text": _tree(partial(build_tree, splits={"textual"})),
    "In-sample": _tree(_in_sample),
    "Eager": _tree(_eager),
    "Learning": _tree(_learning),
    "A-Grid": _tree(build_a_grid),
    "Grid": _tree(space.grid),
    "k-d tree": _tree(space.kd_tree),
    "R-tree": _tree(space.r_tree),
}
"""The global indexes, by name."""


@lru_cache(maxsize=2)
def history(data: str, n: int, seed: int, kind: str) -> tuple[ObjectBatch, QueryBatch]:
    """What an index is built from: objects and queries of before.

    Args:
        data: the data set.
        n: objects that the index is for.
        seed: of all.
        kind: of the queries, or one of :data:`ALONE`; ``mix``: as many of each, over the paper's ranges (section 7.1).
    """
    objects = workloads.objects(data, min(HISTORY, n), 1000 + seed)
    count = min(HISTORY_QUERIES, n)
    if kind != "mix":
        name, ranges = ALONE.get(kind, (kind, {}))
        return objects, workloads.queries(objects, {QueryType(name): count}, 4 * seed, **ranges)
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
