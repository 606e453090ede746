"""Build a :mod:`~spatialstream.index.query_partition` from a sample of the CKQs (DkM-SKS, Algorithm 2).

As :mod:`.dkm`, with two differences, so that a query's slot is a function of the query: HYBRID-PARTITION deals by the
query's key and not by falling cost, and subsets are given to slots, by falling cost, and not their members. A hot place
is cut until its subsets are small, so these spread over slots as members do in the paper.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

import numpy as np

from spatialstream.balance.dkm import GAMMA_1, GAMMA_2, deal
from spatialstream.balance.subscriptions import ObjectSample, Subscriptions
from spatialstream.index.query_partition import QueryPartition, share_of
from spatialstream.model.arrays import Floats, Ints, Words
from spatialstream.model.space import Space

__all__ = ["partition_queries"]

_PARTS, _HALVINGS, _DEALT = 4, 48, 32


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
