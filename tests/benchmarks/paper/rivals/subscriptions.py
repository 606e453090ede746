"""Placements of subscriptions that DkM-SKS (2020, sections 3 and 5) compares with: KOP, SOP, and PS2Stream extended.

Each has the interface of :class:`spatialstream.balance.dkm.Placement`: ``slot`` of each subscription, ``load`` of each
worker, and ``with_new``, which places further ones. The paper does not say how it extends PS2Stream, whose queries are
regions at every worker that they meet. Here a subscription is at one worker: that of the leaf of a kd^t-tree at its
place which has its rarest word.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from spatialstream.balance.dkm import Placement, deal
from spatialstream.balance.subscriptions import EVERYWHERE, ObjectSample, Subscriptions, around
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.model.space import Space

THETA = 20
"""Of SOP: so many subspaces for each worker."""


class Placed(Protocol):
    """Where subscriptions are."""

    @property
    def slot(self) -> Codes:
        """int32[n], the worker of each subscription."""

    def with_new(self, new: Subscriptions, sample: ObjectSample) -> Self:
        """With further subscriptions."""


def costs(subscriptions: Subscriptions, box: Floats, sample: ObjectSample) -> Floats:
    """The sum of P(R, λ) over the words of each subscription; without a rectangle Eqn 1."""
    words = subscriptions.words
    owner = np.repeat(np.arange(len(subscriptions)), np.diff(words.offsets))
    total = np.bincount(owner, sample.probabilities(box)[words.codes], len(subscriptions))
    return total.astype(np.float64)


# ---------------------------------------------------------------------------------------------------------------- words


@dataclass(frozen=True, eq=False)
class ByWords:
    """KOP: keyword-oriented partition (section 3.1, Algorithm 1)."""

    slot: Codes
    load: Floats

    @classmethod
    def of(cls, subscriptions: Subscriptions, sample: ObjectSample, workers: int) -> Self:
        """Place all, by falling cost (Eqn 1)."""
        cost = costs(subscriptions, EVERYWHERE, sample)
        order = np.argsort(-cost, kind="stable")
        slot = np.empty(len(cost), np.int32)
        slot[order], load = deal(cost[order], np.zeros(workers))
        return cls(slot, load)

    def with_new(self, new: Subscriptions, sample: ObjectSample) -> Self:
        """See :class:`Placed`."""
        slot, load = deal(costs(new, EVERYWHERE, sample), self.load)
        return replace(self, slot=np.concatenate([self.slot, slot]), load=load)


# ---------------------------------------------------------------------------------------------------------------- space


@dataclass(frozen=True, eq=False)
class BySpace:
    """SOP: space-oriented partition (section 3.2).

    Attributes:
        slot: of each subscription.
        load: of each worker.
        group: int64[n], the subset of each; a new subscription is a subset of its own.
    """

    slot: Codes
    load: Floats
    group: Ints

    @classmethod
    def of(cls, subscriptions: Subscriptions, sample: ObjectSample, space: Space, workers: int) -> Self:
        """Quarter the costliest subspace (Eqn 3) until there are θ for each worker, and place these by falling cost."""
        subsets = quartered(subscriptions, sample, space, THETA * workers)
        subsets.sort(key=lambda subset: -subset[0])
        dealt, load = deal(np.array([cost for cost, _ in subsets]), np.zeros(workers))
        slot, group = np.empty(len(subscriptions), np.int32), np.empty(len(subscriptions), np.int64)
        for number, (_, rows) in enumerate(subsets):
            slot[rows], group[rows] = dealt[number], number
        return cls(slot, load, group)

    def with_new(self, new: Subscriptions, sample: ObjectSample) -> Self:
        """See :class:`Placed`; each costs P(R) of its ball's rectangle (Eqn 2)."""
        cost = np.array([sample.probabilities(ball)[sample.any] for ball in new.ball])
        slot, load = deal(cost, self.load)
        group = int(self.group.max()) + 1 + np.arange(len(new))
        both = np.concatenate([self.slot, slot]), np.concatenate([self.group, group])
        return replace(self, slot=both[0], load=load, group=both[1])


def quartered(subscriptions: Subscriptions, sample: ObjectSample, space: Space, least: int) -> list[tuple[float, Ints]]:
    """The subscriptions of at least so many subspaces, with their costs; those of one place are not quartered."""
    number = itertools.count()

    def entry(rows: Ints, cell: Floats) -> tuple[float, int, Ints, Floats]:
        probability = sample.probabilities(around(subscriptions.ball[rows]))[sample.any]
        return -float(probability) * len(rows), next(number), rows, cell

    queue, done = [entry(np.arange(len(subscriptions)), np.array(space.bounds))], list[tuple[float, Ints]]()
    while queue and len(queue) + len(done) < least:
        cost, _, rows, cell = heapq.heappop(queue)
        if len(np.unique(np.stack([subscriptions.x[rows], subscriptions.y[rows]]), axis=1).T) == 1:
            done.append((-cost, rows))
            continue
        for part, of_part in quarters(rows, cell, subscriptions):
            heapq.heappush(queue, entry(part, of_part))
    return done + [(-cost, rows) for cost, _, rows, _ in queue]


def quarters(rows: Ints, cell: Floats, subscriptions: Subscriptions) -> Iterator[tuple[Ints, Floats]]:
    """The subscriptions in each quarter of a cell, without empty ones."""
    west, south, east, north = cell.tolist()
    x, y = (west + east) / 2.0, (south + north) / 2.0
    right, above = subscriptions.x[rows] >= x, subscriptions.y[rows] >= y
    for is_right, is_above in itertools.product((False, True), repeat=2):
        mine = rows[(right == is_right) & (above == is_above)]
        if len(mine):
            low = x if is_right else west, y if is_above else south
            yield mine, np.array([*low, east if is_right else x, north if is_above else y])


# ------------------------------------------------------------------------------------------------------------ PS2Stream

SAMPLED, LEAVES = 10_000, 4
"""Subscriptions from which the kd^t-tree is built; its leaves for each worker."""


@dataclass(frozen=True, eq=False)
class ByTree:
    """PS2Stream, extended."""

    slot: Codes
    version: RoutingVersion

    @classmethod
    def of(
        cls, subscriptions: Subscriptions, objects: ObjectBatch, sample: ObjectSample, space: Space, workers: int
    ) -> Self:
        """Build the tree of CRQs with the balls as regions, and place all."""
        some = subscriptions.take(np.linspace(0, len(subscriptions) - 1, min(SAMPLED, len(subscriptions))).astype(int))
        queries = as_queries(some, some.ball, sample)
        version = build(space, objects, queries, LEAVES * workers, workers, kind="kd-t")
        return cls(leaves_of(subscriptions, sample, version), version)

    def with_new(self, new: Subscriptions, sample: ObjectSample) -> Self:
        """See :class:`Placed`."""
        return replace(self, slot=np.concatenate([self.slot, leaves_of(new, sample, self.version)]))


def as_queries(subscriptions: Subscriptions, boxes: Floats, sample: ObjectSample) -> QueryBatch:
    """CRQs with boxes, and with the rarest word of each subscription."""
    frequency, words = sample.probabilities(EVERYWHERE), subscriptions.words
    vocabulary = sample.vocabulary
    made = []
    for i, box in enumerate(boxes.tolist()):
        codes = words.codes[words.offsets[i] : words.offsets[i + 1]]
        word = str(vocabulary[int(codes[frequency[codes].argmin()])])
        made.append(Query(f"{i}", 0, Predicate(Box(*box), (word,)), Everything(), Lifetime(1, True)))
    return QueryBatch.of(made)


def leaves_of(subscriptions: Subscriptions, sample: ObjectSample, version: RoutingVersion) -> Codes:
    """The worker of the leaf of each subscription."""
    places = np.stack([subscriptions.x, subscriptions.y, subscriptions.x, subscriptions.y], axis=1)
    row, leaf = version.index.route_continuous(as_queries(subscriptions, places, sample))
    _, first = np.unique(row, return_index=True)
    return version.mapping[leaf[first]]


def by_hash(subscriptions: Subscriptions, workers: int) -> Placement:
    """No placement: one worker after the other."""
    return Placement((np.arange(len(subscriptions)) % workers).astype(np.int32), np.zeros(workers), [])
