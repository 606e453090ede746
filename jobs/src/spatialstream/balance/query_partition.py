"""Build a :mod:`~spatialstream.index.query_partition` from a sample of the CKQs (DkM-SKS, Algorithm 2).

As :mod:`.dkm`, with two differences, so that a query's slot is a function of the query: HYBRID-PARTITION deals by the
query's key and not by falling cost, and subsets are given to slots, by falling cost, and not their members. A hot place
is cut until its subsets are small, so these spread over slots as members do in the paper.

The ball of a sampled CKQ is that to its k-th nearest among the sampled objects, each of which counts as many: so the
paper finds that of a new subscription (section 4.4). Without as many CKQs as there are to be subsets, queries are dealt
by their keys alone.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace

import numpy as np

from spatialstream.balance.dkm import GAMMA_1, GAMMA_2, deal
from spatialstream.balance.subscriptions import ObjectSample, Subscriptions
from spatialstream.index.query_partition import QueryPartition, keys_of, share_of
from spatialstream.index.sample import Sample
from spatialstream.model.arrays import Codes, Floats, Ints, Words
from spatialstream.model.geometry import CIRCLE, EVERYWHERE
from spatialstream.model.kinds import Route, having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space

__all__ = [
    "SLACK",
    "dealt_evenly",
    "first_partition",
    "partition_anew",
    "partition_queries",
    "rebalanced",
    "sampled_partition",
]

_PARTS, _HALVINGS, _DEALT = 4, 48, 32

_EVENLY = 16
"""Subsets a slot, at least, if queries are dealt by their keys alone: no slot has more than 1/16 above the mean."""

SLACK = 0.1
"""How far a slot's cost may be above the mean, as a part of it, so that CKQs stay."""

_MOST = 4_096
"""Sampled CKQs from which a partition is made, at most, unless there are very many slots."""

_NEAREST = having(lambda kind: kind.route is Route.EVERYWHERE)


@dataclass(eq=False)
class _Node:
    """A node under construction."""

    rows: Ints
    cell: Floats
    halvings: int
    times: int
    cost: float = 0.0
    box: Floats = field(default_factory=lambda: np.zeros(4))
    is_dealt: bool = False
    children: list[_Node] = field(default_factory=list)


def first_partition(
    space: Space, objects: ObjectBatch, queries: QueryBatch, weight: float, slots: int
) -> QueryPartition:
    """The partition with which a stream begins.

    Args:
        space: of the stream.
        objects: objects like those to come, as far as there are any.
        queries: queries like those to come.
        weight: how many objects each of them stands for.
        slots: number of slots.
    """
    made = sampled_partition(space, objects, np.full(len(objects), weight), queries, slots)
    return dealt_evenly(space, slots) if made is None else made


def partition_anew(old: QueryPartition, sample: Sample, slots: int) -> tuple[QueryPartition, float]:
    """A partition for the CKQs and objects that come now, and which part of the CKQs changes slot.

    A subset is on the slot that has most of its CKQs now, unless that would be more than :data:`SLACK` above the mean.
    With too few sampled CKQs all stays as it is.
    """
    queries = _registered(sample)
    made = sampled_partition(sample.space, sample.objects, sample.counts()[0], queries, slots)
    if made is None:
        return old, 0.0
    here = np.zeros((len(made.slot), slots), np.int64)
    np.add.at(here, (made.subsets_of(queries.at, keys_of(queries)), old.slots_of(queries)), 1)
    slot = _settled(made.cost, here)
    return made.moved(slot), 1.0 - float(here[np.arange(len(slot)), slot].sum()) / len(queries)


def rebalanced(old: QueryPartition, sample: Sample, slots: int) -> tuple[QueryPartition, float]:
    """The same subsets with even costs of the slots, and which part of the CKQs changes slot: what PM and FM do.

    A subset costs what its sampled CKQs cost among the objects that come now (Eqn 6). It stays on its slot unless that
    would be more than :data:`SLACK` above the mean, and if none of its CKQs is in the sample.
    """
    queries, objects = _registered(sample), sample.objects
    if not len(queries) or not len(objects):
        return old, 0.0
    those, known = _subscriptions(sample.space, objects, sample.counts()[0], queries)
    subset = old.subsets_of(queries.at, keys_of(queries))
    cost, count = np.zeros(len(old.slot)), np.bincount(subset, minlength=len(old.slot))
    for each in np.unique(subset).tolist():
        cost[each] = those.costs(np.flatnonzero(subset == each), known)[1].sum()
    some = np.flatnonzero(cost > 0.0)
    here = np.zeros((len(some), slots), np.int64)
    here[np.arange(len(some)), old.slot[some]] = 1
    slot = old.slot.copy()
    slot[some] = _settled(cost[some], here)
    moved = float(count[slot != old.slot].sum()) / len(queries)
    return replace(old, cost=cost).moved(slot) if moved else old, moved


def _registered(sample: Sample) -> QueryBatch:
    """The sampled CKQs that have not ended."""
    queries = sample.queries
    return queries.take(np.flatnonzero(_NEAREST[queries.code] & (queries.duration > sample.now - queries.t)))


def _settled(cost: Floats, here: Ints) -> Codes:
    """The slot of each subset, by falling cost: that which has most of its queries, or else the lightest.

    Args:
        cost: float64[m], of the subsets.
        here: int64[m, slots], how many of the queries of each are on each slot now.
    """
    slot, load = np.empty(len(cost), np.int32), np.zeros(here.shape[1])
    highest, most = (1.0 + SLACK) * cost.sum() / len(load), here.argmax(axis=1)
    for subset in np.argsort(-cost, kind="stable").tolist():
        chosen = most[subset]
        if not here[subset, chosen] or load[chosen] + cost[subset] > highest:
            chosen = load.argmin()
        slot[subset] = chosen
        load[chosen] += cost[subset]
    return slot


def sampled_partition(
    space: Space, objects: ObjectBatch, weights: Floats, queries: QueryBatch, slots: int
) -> QueryPartition | None:
    """The partition for sampled objects and queries; None if these are too few.

    Args:
        space: of both.
        objects: n objects.
        weights: float64[n], how many objects each stands for.
        queries: of which the CKQs count.
        slots: number of slots.
    """
    queries = queries.take(np.flatnonzero(_NEAREST[queries.code]))
    most = max(_MOST, 2 * GAMMA_1 * slots)
    queries = queries.take(np.arange(0, len(queries), max(1, -(-len(queries) // most))))
    if not len(objects) or len(queries) < GAMMA_1 * slots:
        return None
    those, sample = _subscriptions(space, objects, weights, queries)
    return partition_queries(those, keys_of(queries), sample, space, slots)


def _subscriptions(
    space: Space, objects: ObjectBatch, weights: Floats, queries: QueryBatch
) -> tuple[Subscriptions, ObjectSample]:
    """CKQs with the balls that they have among sampled objects; and these."""
    sample = ObjectSample(objects, weights)
    radius = sample.radii(space, queries.at, queries.k, queries.keywords)
    bounded = np.isfinite(radius)
    shape = np.zeros((len(queries), 4))
    shape[:, :2], shape[:, 2] = queries.at, np.where(bounded, radius, 0.0)
    balls = Regions.plain(np.where(bounded, CIRCLE, EVERYWHERE).astype(np.uint8), shape)
    return Subscriptions.of(space, queries.at, balls, queries.keywords, sample), sample


def dealt_evenly(space: Space, slots: int) -> QueryPartition:
    """A partition that knows nothing of queries: dealt by their keys into equally many subsets a slot, or one more."""
    depth = math.ceil(math.log(_EVENLY * slots, _PARTS))
    inner, subsets = (_PARTS**depth - 1) // (_PARTS - 1), _PARTS**depth
    child = np.concatenate([_PARTS * np.arange(inner) + 1, ~np.arange(subsets)]).astype(np.int32)
    dealt = np.arange(len(child)) < inner
    box = np.tile(np.array(space.bounds, np.float64), (subsets, 1))
    slot = (np.arange(subsets) % slots).astype(np.int32)
    return QueryPartition(space, child, dealt, slot, np.full(subsets, 1.0 / subsets), box)


def partition_queries(
    subscriptions: Subscriptions,
    key: Words,
    sample: ObjectSample,
    space: Space,
    slots: int,
    gamma: tuple[int, int] = (GAMMA_1, GAMMA_2),
) -> QueryPartition:
    """Cut sampled CKQs into at least γ1 subsets a slot, if there are as many, and give these to slots.

    Args:
        subscriptions: n CKQs.
        key: uint64[n], of :func:`~spatialstream.index.query_partition.keys_of`.
        sample: of the objects.
        space: of both.
        slots: number of slots.
        gamma: γ1 and γ2.
    """

    def measured(node: _Node) -> _Node:
        if len(node.rows):
            node.box, cost = subscriptions.costs(node.rows, sample)
            node.cost = float(cost.sum())
        return node

    root = measured(_Node(np.arange(len(subscriptions)), np.array(space.bounds), 0, 0))
    number, leaves = itertools.count(), 1
    queue = [(-root.cost, next(number), root)]
    while queue and leaves < gamma[0] * slots:
        node = heapq.heappop(queue)[-1]
        if len(node.rows) < 2:
            continue
        by_space = [measured(each) for each in _quarters(node, subscriptions)] if node.halvings < _HALVINGS else []
        by_key = [measured(each) for each in _dealt(node, key)] if node.times < _DEALT else []
        costs = [sum(each.cost for each in parts) if parts else np.inf for parts in (by_space, by_key)]
        is_dealt = not by_space or (len(node.rows) <= gamma[1] and costs[1] <= costs[0])
        node.is_dealt, node.children = is_dealt, by_key if is_dealt else by_space
        leaves += len(node.children) - 1 if node.children else 0
        for each in node.children:
            heapq.heappush(queue, (-each.cost, next(number), each))
    return _flat(root, space, slots)


def _quarters(node: _Node, subscriptions: Subscriptions) -> list[_Node]:
    west, south, east, north = node.cell.tolist()
    x, y = (west + east) / 2.0, (south + north) / 2.0
    share = (subscriptions.x[node.rows] >= x).astype(np.int64) + 2 * (subscriptions.y[node.rows] >= y)
    cells = [(west, south, x, y), (x, south, east, y), (west, y, x, north), (x, y, east, north)]
    return [_Node(node.rows[share == i], np.array(cell), node.halvings + 1, node.times) for i, cell in enumerate(cells)]


def _dealt(node: _Node, key: Words) -> list[_Node]:
    share = share_of(key[node.rows], node.times)
    return [_Node(node.rows[share == i], node.cell, node.halvings, node.times + 1) for i in range(_PARTS)]


def _flat(root: _Node, space: Space, slots: int) -> QueryPartition:
    """The tree as arrays, in breadth-first order; subsets by falling cost to the least loaded slot."""
    nodes, child, subsets = [root], [], list[_Node]()
    for node in nodes:
        child.append(len(nodes) if node.children else ~len(subsets))
        nodes += node.children
        if not node.children:
            subsets.append(node)
    cost = np.array([each.cost for each in subsets])
    order = np.argsort(-cost, kind="stable")
    slot = np.empty(len(cost), np.int32)
    slot[order], _ = deal(cost[order], np.zeros(slots))
    dealt = np.array([each.is_dealt for each in nodes])
    return QueryPartition(space, np.array(child, np.int32), dealt, slot, cost, np.array([each.box for each in subsets]))
