"""Adjustment of an A-Grid to the load: SM, *split and merge*, and SH, *shift* (Tornado, sections 4.2 and 4.3).

Both keep the number of leaves, and every leaf on its slot: the rectangles change. An operation takes cost from a slot h
with more than the mean load, the most loaded one for which there is an operation:

- SM splits one of its leaves, X, where its costlier part costs least, and merges two mergeable leaves Y and Z. Y gets
  the place of both; Z, now free, gets a part of X. (The auxiliary evaluator of figure 3 is Z's.)
- SH gives a strip of one of its leaves, A, to a neighbour B of another slot, straight or at a corner (see
  :mod:`~spatialstream.index.a_grid.layout`). The line of a straight shift is the one that leaves the higher of the two
  loads least. (In the paper routing units do not know the costs of cells, and estimate an even outcome; here the sample
  tells them.)

The benefit of an operation is C_r, the load of h less the highest load among the slots concerned afterwards (Eqn 4). In
the paper a slot is one leaf. Its price is C_t, the queries that move times β, the time to transfer one (Eqn 5). Of the
operations with C_r > C_t the one with the highest C_r is carried out, then the next one, until there is none. So load
passes on from neighbour to neighbour.

Not specified in the paper: how the two units compare. C_r is a part of the load that was counted over some minutes, and
it took the slots a measured time to work off all of it; C_r is that part of that time. The paper counts checks for
costs. Here costs of leaves are the loads by which balance is judged, because a remedy that counts in another unit than
the complaint may make it worse. The sample tells how the cost of a leaf is distributed over its cells. Gains of less
than :data:`WORTHWHILE` of the highest load are left.

Every operation lowers the highest of the loads that it changes, so none is undone. There are at most :data:`MOST`
operations for each slot.

Cost: O(leaves of h x mergeable pairs) or O(leaves of h x sides of their rectangles) per operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from spatialstream.index.a_grid.a_grid import AGrid, cells_of
from spatialstream.index.a_grid.continuous import ContinuousQueries
from spatialstream.index.a_grid.costs import Costs, Rectangle, object_costs
from spatialstream.index.a_grid.layout import (
    Corners,
    Shift,
    corner_shifts,
    corners_of,
    joined,
    mergeable,
    straight_neighbours,
    straight_shift,
)
from spatialstream.index.a_grid.origins import origins_of
from spatialstream.index.adjustment import Adjustment, LeafLoads, Limits
from spatialstream.index.base import Changes
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.tables import counted

__all__ = ["MOST", "WORTHWHILE", "shift", "split_and_merge"]

WORTHWHILE = 0.01
"""Minimum C_r of an operation, as a share of the highest load."""

MOST = 16
"""Maximum number of operations for each slot."""

_SPREAD = 8
"""The cost of a leaf without sampled objects is spread over this many columns and rows, at most."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """What an operation does.

    Attributes:
        gain: C_r, in units of cost.
        price: C_t, likewise.
        name: what it is, for :class:`Changes`.
        leaves: the new rectangle, and number of queries, of each leaf that changes.
    """

    gain: int
    price: float
    name: str
    leaves: dict[int, tuple[Rectangle, float]]


_Operations = Callable[["_Layout", int], Iterator[_Operation]]
"""The possible operations that take cost from a slot."""


class _Layout:
    """The state of an adjustment."""

    def __init__(self, index: AGrid, known: LeafLoads, sample: Sample, statistics: Statistics, slots: int) -> None:
        self.rectangles: list[Rectangle] = [(w, s, e, n) for w, s, e, n in index.rectangles.tolist()]
        self.costs = _calibrated(index, known.load, sample, statistics)
        self.continuous = ContinuousQueries(sample, index.side)
        self.slot: list[int] = known.mapping.tolist()
        self.queries: list[float] = known.continuous.tolist()
        self.cost = [self.costs.of(each) for each in self.rectangles]
        self.loads = np.zeros(slots, np.int64)
        np.add.at(self.loads, known.mapping, self.cost)
        total = float(self.loads.sum())
        self.query_price = known.transfer * total / known.seconds if known.seconds > 0.0 else 0.0
        self.corners: Corners = corners_of(self.rectangles)

    def overloaded(self) -> list[int]:
        """The slots with more than the mean load, the most loaded one first."""
        order = np.argsort(-self.loads, kind="stable")
        return [slot for slot in order.tolist() if self.loads[slot] * len(self.loads) > self.loads.sum()]

    def leaves_of(self, slot: int) -> list[int]:
        """The leaves of a slot."""
        return [leaf for leaf, of in enumerate(self.slot) if of == slot]

    def queries_of(self, leaf: int, part: Rectangle) -> float:
        """The continuous queries of a part of a leaf."""
        return self.queries[leaf] * self.continuous.share(part, self.rectangles[leaf])

    def carry_out(self, operation: _Operation) -> None:
        """Carry out an operation."""
        for leaf, (rectangle, queries) in operation.leaves.items():
            cost = self.costs.of(rectangle)
            self.loads[self.slot[leaf]] += cost - self.cost[leaf]
            self.rectangles[leaf], self.cost[leaf], self.queries[leaf] = rectangle, cost, queries
        self.corners = corners_of(self.rectangles)

    def best(self, operations: _Operations) -> _Operation | None:
        """The operation with the highest C_r among those that are worth their price; None if there is none."""
        least = WORTHWHILE * float(self.loads.max())
        for slot in self.overloaded():
            worth = [each for each in operations(self, slot) if each.gain > each.price and each.gain >= least]
            if worth:
                return max(worth, key=lambda each: (each.gain, -each.price))
        return None


def _calibrated(index: AGrid, load: Floats, sample: Sample, statistics: Statistics) -> Costs:
    """The costs of the cells: those of the sample, scaled so that each leaf costs its load."""
    objects = sample.objects
    column, row = cells_of(index.space, index.side, objects.x, objects.y)
    cost = object_costs(objects, statistics, sample.counts()[0])
    leaf = index.table[row, column]
    known = np.bincount(leaf, cost, len(load))
    cost *= (load / np.where(known > 0.0, known, 1.0))[leaf]
    columns, rows, costs = [column], [row], [cost]
    for each in np.flatnonzero((known == 0.0) & (load > 0.0)).tolist():
        west, south, east, north = index.rectangles[each].tolist()
        x, y = np.meshgrid(_evenly(west, east), _evenly(south, north))
        columns.append(x.reshape(-1))
        rows.append(y.reshape(-1))
        costs.append(np.full(x.size, load[each] / x.size))
    return Costs(index.side, np.concatenate(columns), np.concatenate(rows), np.concatenate(costs))


def _evenly(start: int, end: int) -> Codes:
    """Some numbers from ``start`` to before ``end``, evenly spaced."""
    few = min(_SPREAD, end - start)
    return (start + (2 * np.arange(few) + 1) * (end - start) // (2 * few)).astype(np.int32)


# --------------------------------------------------------------------------------------------------------- operations


def _splits_and_merges(state: _Layout, h: int) -> Iterator[_Operation]:
    """For each leaf of h and each part of it that moves, the best merge."""
    pairs = np.array(mergeable(state.rectangles, state.corners), np.int64).reshape(-1, 2)
    pairs = np.concatenate([pairs, pairs[:, ::-1]])  # either of the two may be Z, whose place is taken
    cost, slot, queries = np.array(state.cost), np.array(state.slot), np.array(state.queries)
    y, z = slot[pairs].T
    merged, loads = cost[pairs[:, 1]], state.loads
    for leaf in state.leaves_of(h):
        cut = state.costs.best_cut(state.rectangles[leaf])
        apart = (pairs != leaf).all(axis=1)
        if cut is None or not apart.any():
            continue  # X is a cell, or in all pairs
        parts = cut.of(state.rectangles[leaf])
        for staying, moved in (parts, parts[::-1]):
            given = state.costs.of(moved)
            after = [
                loads[slots] - given * (slots == h) + (given - merged) * (slots == z) + merged * (slots == y)
                for slots in (np.full_like(y, h), y, z)
            ]
            gain = loads[h] - np.maximum.reduce(after)
            query_counts = state.queries_of(leaf, moved)
            price = state.query_price * (query_counts * (z != h) + queries[pairs[:, 1]] * (z != y))
            gain[~apart | (gain <= price)] = 0
            best = int(np.lexsort((price, -gain))[0])
            if gain[best] <= 0:
                continue
            keeps, free = pairs[best].tolist()
            both = joined(state.rectangles[keeps], state.rectangles[free])
            together = state.continuous.share(both, state.rectangles[keeps], state.rectangles[free])
            changed = {
                leaf: (staying, state.queries_of(leaf, staying)),
                free: (moved, query_counts),
                keeps: (both, (state.queries[keeps] + state.queries[free]) * min(together, 1.0)),
            }
            yield _Operation(int(gain[best]), float(price[best]), "splits_and_merges", changed)


def _shifts(state: _Layout, h: int) -> Iterator[_Operation]:
    """The straight shifts out of the leaves of h, of each neighbour the best one, and the corner shifts."""
    for leaf in state.leaves_of(h):
        for target, axis, beyond in straight_neighbours(leaf, state.rectangles, state.corners):
            rectangle = state.rectangles[leaf]
            if state.slot[target] == h or rectangle[axis + 2] - rectangle[axis] < 2:
                continue
            before = state.costs.before(rectangle, axis)
            given = state.cost[leaf] - before if beyond else before
            highest = np.maximum(state.loads[h] - given, state.loads[state.slot[target]] + given)
            line = rectangle[axis] + 1 + int(highest.argmin())
            yield _shifted(state, "straight_shifts", straight_shift(leaf, target, axis, beyond, line, state.rectangles))
        for corner in corner_shifts(leaf, state.rectangles, state.corners):
            if state.slot[corner.target] != h:
                yield _shifted(state, "corner_shifts", corner)


def _shifted(state: _Layout, name: str, made: Shift) -> _Operation:
    """A shift to another slot as an operation."""
    given = state.costs.of(made.strip)
    before, target = int(state.loads[state.slot[made.source]]), int(state.loads[state.slot[made.target]])
    gain = before - max(before - given, target + given)
    asked = state.queries_of(made.source, made.strip)
    changed = {
        made.source: (made.left, state.queries_of(made.source, made.left)),
        made.target: (made.joined, state.queries[made.target] + asked),
    }
    return _Operation(gain, state.query_price * asked, name, changed)


# --------------------------------------------------------------------------------------------------------- strategies


def split_and_merge(index: AGrid, known: LeafLoads, statistics: Statistics, slots: int, limits: Limits) -> Adjustment:
    """SM: split leaves of the most loaded slot, and merge others in their place.

    Args:
        index: the index; it is not modified.
        known: what is known of the load of its leaves; it has a sample.
        statistics: J.
        slots: number of slots.
        limits: not used.
    """
    return _adjust(index, known, statistics, slots, _splits_and_merges)


def shift(index: AGrid, known: LeafLoads, statistics: Statistics, slots: int, limits: Limits) -> Adjustment:
    """SH: shift cells from leaves of the most loaded slot to their neighbours; see :func:`split_and_merge`."""
    return _adjust(index, known, statistics, slots, _shifts)


def _adjust(
    index: AGrid,
    known: LeafLoads,
    statistics: Statistics,
    slots: int,
    operations: _Operations,
) -> Adjustment:
    assert known.sample is not None  # the caller makes sure
    state = _Layout(index, known, known.sample, statistics, slots)
    applied: dict[str, int] = {}
    ended = f"there were {MOST * slots:,} operations"
    for _ in range(MOST * slots):
        best = state.best(operations)
        if best is None:
            ended = "no further operation lowers a high load by more than it costs"
            break
        state.carry_out(best)
        applied[best.name] = applied.get(best.name, 0) + 1
    rectangles = np.array(state.rectangles, np.int32)
    n = len(rectangles)
    made = AGrid(index.space, rectangles, np.zeros(n), np.zeros(n), index.side)
    origins = origins_of(index, made, known.sample, state.continuous)
    load = np.array(state.cost) * state.costs.unit
    found = made.weighed(origins.carry_objects(known.objects), load)
    return Adjustment(found, origins, _changes(operations, applied), ended, known.mapping.copy())


def _changes(operations: _Operations, done: dict[str, int]) -> Changes:
    """What was done, in figures and in words."""
    if operations is _splits_and_merges:
        count = done.get("splits_and_merges", 0)
        text = f"{counted(count, 'leaf', 'leaves')} split, {counted(count, 'pair', 'pairs')} merged"
        return Changes({"splits": count, "merges": count}, text)
    straight, corner = (done.get(name, 0) for name in ("straight_shifts", "corner_shifts"))
    corners = counted(corner, "corner shift", "corner shifts")
    text = f"{counted(straight, 'straight shift', 'straight shifts')}, {corners}"
    return Changes({"straight_shifts": straight, "corner_shifts": corner}, text)
