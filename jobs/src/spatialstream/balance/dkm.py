"""The placement of CKQs by DkM-SKS: which slot has which query, so that all have as much work.

S. Tsuruoka, S. Nishio, D. Amagata, T. Hara: Distributed spatial-keyword kNN monitoring for location-aware pub/sub
(2020), section 4. Subscriptions are cut into subsets, always the costliest one into four (Algorithm 2): by space where
that makes their rectangles, and so their costs, smaller; otherwise by dealing them out by cost. Then each goes to the
slot with the least load, the costliest subset first (Algorithm 3). The members of a subset thus go to different slots:
they lie near each other and have like words, so one object concerns many of them, and the slots look at them at the
same time.

The paper prints γ1 = 100,000 and γ2 = 20, by which 20 workers would have two million subsets; they are exchanged here.

All is deterministic: ties go to the lower number. Cost: O(n log n) for n subscriptions, and 8 γ1 m / 3 estimates of
costs (:mod:`.subscriptions`) for m slots.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spatialstream.balance.subscriptions import EVERYWHERE, ObjectSample, Subscriptions, overlap
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.space import Space

__all__ = ["GAMMA_1", "GAMMA_2", "Placement", "Subset", "deal", "partition", "place"]

GAMMA_1 = 20
"""γ1: there are at least so many subsets for each slot, if there are as many subscriptions."""

GAMMA_2 = 100_000
"""γ2: larger subsets are cut by space without looking at costs."""

_PARTS = 4

_HALVINGS = 48
"""A cell that has been quartered so often has no width any more: what is in it is at one place."""


@dataclass(frozen=True, slots=True, eq=False)
class Subset:
    """Some of n subscriptions.

    Attributes:
        rows: int64[m], which, by falling cost.
        cost: float64[m], of each (Eqn 5).
        box: float64[4], R, the rectangle around their balls.
        cell: float64[4], the part of the space in which their places are.
        halvings: how often the space was halved for it.
    """

    rows: Ints
    cost: Floats
    box: Floats
    cell: Floats
    halvings: int = 0

    @property
    def total(self) -> float:
        """The cost of all (Eqn 6)."""
        return float(self.cost.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where subscriptions are.

    Attributes:
        slot: int32[n], of each subscription.
        load: float64[slots], the cost of the subscriptions of each slot.
        subsets: of the partition, by falling cost.
    """

    slot: Codes
    load: Floats
    subsets: Sequence[Subset]

    def with_new(self, new: Subscriptions, sample: ObjectSample) -> Placement:
        """With further subscriptions, one after the other (section 4.4).

        Each costs what it would as a member of the subset whose rectangle has most of its ball's in common (Eqn 7), and
        goes to the slot with the least load.
        """
        cost = np.zeros(len(new))
        boxes = np.array([each.box for each in self.subsets] or [EVERYWHERE])
        nearest = np.array([int(overlap(boxes, ball).argmax()) for ball in new.ball], np.int64)
        for number in np.unique(nearest).tolist():
            rows = np.flatnonzero(nearest == number)
            words = new.words.take(rows)
            owner = np.repeat(np.arange(len(rows)), np.diff(words.offsets))
            probability = sample.probabilities(boxes[number])[words.codes]
            cost[rows] = np.bincount(owner, probability, len(rows))
        slot, load = deal(cost, self.load)
        return replace(self, slot=np.concatenate([self.slot, slot]), load=load)


def place(
    subscriptions: Subscriptions,
    sample: ObjectSample,
    space: Space,
    slots: int,
    gamma: tuple[int, int] = (GAMMA_1, GAMMA_2),
) -> Placement:
    """Give each subscription a slot (Algorithms 2 and 3).

    Args:
        subscriptions: n subscriptions.
        sample: the objects by which their costs are estimated.
        space: in which they are.
        slots: number of slots.
        gamma: γ1 and γ2.
    """
    subsets = partition(subscriptions, sample, space, gamma[0] * slots, gamma[1])
    rows = np.concatenate([np.empty(0, np.int64), *(each.rows for each in subsets)])
    dealt, load = deal(np.concatenate([np.empty(0), *(each.cost for each in subsets)]), np.zeros(slots))
    slot = np.empty(len(subscriptions), np.int32)
    slot[rows] = dealt
    return Placement(slot, load, subsets)


def deal(cost: Floats, load: Floats) -> tuple[Codes, Floats]:
    """Give each of n items, in order, to the one with the least load (R. L. Graham, 1969; Algorithms 1 and 3).

    Of those with equal loads the one that has got fewer items counts as lighter, so items without cost are spread too.

    Args:
        cost: float64[n], of the items; by falling cost no load gets above 4/3 of what is best.
        load: float64[m], what each has before.

    Returns:
        int32[n], to which each item goes; and float64[m], the loads then.
    """
    heap = [(each, 0, i) for i, each in enumerate(load.tolist())]
    heapq.heapify(heap)
    chosen = np.empty(len(cost), np.int32)
    for item, each in enumerate(cost.tolist()):
        least, items, i = heap[0]
        heapq.heapreplace(heap, (least + each, items + 1, i))
        chosen[item] = i
    after = np.empty(len(load))
    for each, _, i in heap:
        after[i] = each
    return chosen, after


def partition(
    subscriptions: Subscriptions, sample: ObjectSample, space: Space, least: int, gamma_2: int = GAMMA_2
) -> list[Subset]:
    """Cut subscriptions into at least so many subsets, if there are as many of them (Algorithm 2).

    Returns:
        the subsets, by falling cost; none is empty.
    """
    whole = _subset(np.arange(len(subscriptions)), np.array(space.bounds), 0, subscriptions, sample)
    number = itertools.count()
    queue, alone = [(-whole.total, next(number), whole)] if len(subscriptions) else [], list[Subset]()
    while queue and len(queue) + len(alone) < least:
        subset = heapq.heappop(queue)[-1]
        if len(subset.rows) == 1:
            alone.append(subset)
            continue
        for part in _divided(subset, subscriptions, sample, gamma_2):
            heapq.heappush(queue, (-part.total, next(number), part))
    found = [*alone, *(subset for _, _, subset in sorted(queue, key=lambda entry: entry[:2]))]
    return sorted(found, key=lambda subset: -subset.total)


def _divided(subset: Subset, subscriptions: Subscriptions, sample: ObjectSample, gamma_2: int) -> list[Subset]:
    """The parts of a subset: by space, or, if that costs as much or more and it is not too large to look, dealt out."""
    if subset.halvings < _HALVINGS:
        by_space = list(_by_space(subset, subscriptions, sample))
        if len(subset.rows) > gamma_2:
            return by_space
        dealt = list(_dealt(subset, subscriptions, sample))
        return min(dealt, by_space, key=lambda parts: sum(part.total for part in parts))
    return list(_dealt(subset, subscriptions, sample))


def _by_space(subset: Subset, subscriptions: Subscriptions, sample: ObjectSample) -> Iterator[Subset]:
    """SPACE-ONLY-PARTITION: the subscriptions in each quarter of the subset's cell."""
    west, south, east, north = subset.cell.tolist()
    x, y = (west + east) / 2.0, (south + north) / 2.0
    right, above = subscriptions.x[subset.rows] >= x, subscriptions.y[subset.rows] >= y
    for is_right, is_above in itertools.product((False, True), repeat=2):
        rows = subset.rows[(right == is_right) & (above == is_above)]
        if len(rows):
            cell = x if is_right else west, y if is_above else south, east if is_right else x, north if is_above else y
            yield _subset(rows, np.array(cell), subset.halvings + 1, subscriptions, sample)


def _dealt(subset: Subset, subscriptions: Subscriptions, sample: ObjectSample) -> Iterator[Subset]:
    """HYBRID-PARTITION: each subscription, by falling cost, to the part that costs least so far."""
    part, _ = deal(subset.cost, np.zeros(_PARTS))
    for each in range(_PARTS):
        rows = subset.rows[part == each]
        if len(rows):
            yield _subset(rows, subset.cell, subset.halvings, subscriptions, sample)


def _subset(rows: Ints, cell: Floats, halvings: int, subscriptions: Subscriptions, sample: ObjectSample) -> Subset:
    if not len(rows):
        return Subset(rows, np.empty(0), cell, cell)
    box, cost = subscriptions.costs(rows, sample)
    order = np.lexsort((rows, -cost))
    return Subset(rows[order], cost[order], box, cell, halvings)
