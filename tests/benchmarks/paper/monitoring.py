"""A simulator of workers that monitor k nearest neighbours, counted: objects times subscriptions (DkM-SKS, section 5).

Every object comes to every worker, and each subscription is at one. What a worker does for an object is counted by the
entries of its index that it looks at, which depends on the index and on the subscription's ball, and not on who else is
at the worker. So counts are of each subscription, and a placement adds up those of its workers.

The indexes are those of the paper:

- ``words``: an inverted file of all subscriptions (KOP, section 3.1);
- ``subsets``: an inverted file for each subset, looked at if the object lies in the rectangle around its balls (SOP);
- ``cells``: an inverted file for each cell of a grid, with the subscriptions whose balls meet the cell (DkM-SKS, 4.3);
- ``boxes``: the same with the rectangles around the balls, as PS2Stream's GI2 has queries (its section IV-D).

A subscription is looked at once for each word that it has in common with the object. Its ball is unbounded until it has
found k objects; such ones are in a list beside the cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spatialstream.balance.subscriptions import Subscriptions
from spatialstream.model.arrays import Codes, Floats, Ints
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

SIDE = 64
"""Cells in a row, and in a column, as PS2Stream has them; the paper does not say how many DkM-SKS has."""

INDEXES = ("words", "subsets", "cells", "boxes")

MOST = 20
"""The largest k."""


class _Objects(NamedTuple):
    x: Floats
    y: Floats
    offsets: Codes
    codes: Codes
    home: Codes


class _Balls(NamedTuple):
    x: Floats
    y: Floats
    k: Ints
    nearest: Floats
    size: Ints


class _Groups(NamedTuple):
    of: Ints
    box: Floats
    worker: Codes


class _Counts(NamedTuple):
    entries: Ints
    objects: Ints
    copies: Ints


@dataclass(frozen=True, eq=False)
class Looked:
    """What was looked at for some objects.

    Attributes:
        entries: int64[n, 4], of each subscription, in each index of :data:`INDEXES`.
        objects: int64[m], for each object, in the index ``cells``.
        copies: int64[workers], the objects with another home for which a worker looks at an entry in the index
            ``cells``: those that it has to get as copies.
        changed: how often an answer changed.
    """

    entries: Ints
    objects: Ints
    copies: Ints
    changed: int


@kernel
def _apart(low: float, high: float, at: float) -> float:
    return max(0.0, max(low - at, at - high))


@kernel
def _arrive(
    objects: _Objects,
    offsets: Ints,
    postings: Ints,
    balls: _Balls,
    groups: _Groups,
    corner: Floats,
    cell: Floats,
    last: Ints,
    got: Ints,
    counts: _Counts,
) -> int:
    """Have objects come, one after the other; adds to the counts, and returns how often an answer changed.

    ``last`` int64[n] and ``got`` int64[workers] are -1: the last object that came to each.
    """
    changed, looked = 0, counts.entries
    for o in range(len(objects.x)):
        x, y = objects.x[o], objects.y[o]
        west = corner[0] + np.floor((x - corner[0]) / cell[0]) * cell[0]
        south = corner[1] + np.floor((y - corner[1]) / cell[1]) * cell[1]
        for each in range(objects.offsets[o], objects.offsets[o + 1]):
            word = objects.codes[each]
            for p in range(offsets[word], offsets[word + 1]):
                s = postings[p]
                k, size = balls.k[s], balls.size[s]
                radius = balls.nearest[s, k - 1] if size >= k else np.inf
                looked[s, 0] += 1
                g = groups.of[s]
                if groups.box[g, 0] <= x <= groups.box[g, 2] and groups.box[g, 1] <= y <= groups.box[g, 3]:
                    looked[s, 1] += 1
                dx = _apart(west, west + cell[0], balls.x[s])
                dy = _apart(south, south + cell[1], balls.y[s])
                if dx * dx + dy * dy <= radius * radius:
                    looked[s, 2] += 1
                    counts.objects[o] += 1
                    worker = groups.worker[s]
                    if got[worker] != o and objects.home[o] != worker:
                        got[worker] = o
                        counts.copies[worker] += 1
                if dx <= radius and dy <= radius:
                    looked[s, 3] += 1
                if last[s] == o:
                    continue
                last[s] = o
                distance = np.sqrt((balls.x[s] - x) ** 2 + (balls.y[s] - y) ** 2)
                if distance >= radius:
                    continue
                changed += 1
                i = min(size, k - 1)
                while i > 0 and balls.nearest[s, i - 1] > distance:
                    balls.nearest[s, i] = balls.nearest[s, i - 1]
                    i -= 1
                balls.nearest[s, i] = distance
                balls.size[s] = min(size + 1, k)
    return changed


@dataclass(eq=False)
class Monitored:
    """Subscriptions and what they have found.

    Attributes:
        space: a plane.
        x, y, k: of n subscriptions.
        words: their words, as codes of the objects' vocabulary.
        nearest: float64[n, MOST], distances of what they have found, ascending.
        size: int64[n], how much that is.
    """

    space: Space
    x: Floats
    y: Floats
    k: Ints
    words: TermLists
    nearest: Floats
    size: Ints

    @classmethod
    def new(cls, space: Space, x: Floats, y: Floats, k: Ints, words: TermLists) -> Monitored:
        """Subscriptions that have found nothing."""
        return cls(space, x, y, k, words, np.full((len(x), MOST), np.inf), np.zeros(len(x), np.int64))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def radius(self) -> Floats:
        """Of each ball; infinite with fewer than k objects."""
        rows = np.arange(len(self))
        return np.where(self.size >= self.k, self.nearest[rows, self.k - 1], np.inf)

    def take(self, rows: Ints) -> Monitored:
        """Some of them."""
        columns = self.x[rows], self.y[rows], self.k[rows], self.words.take(rows), self.nearest[rows], self.size[rows]
        return Monitored(self.space, *columns)

    def with_k(self, k: Ints) -> Monitored:
        """The same ones with other k, at most those with which they have found something."""
        return Monitored(self.space, self.x, self.y, k, self.words, self.nearest.copy(), np.minimum(self.size, k))

    def beside(self, others: Monitored) -> Monitored:
        """These, and then others."""
        pairs = ((getattr(self, name), getattr(others, name)) for name in ("x", "y", "k", "nearest", "size"))
        x, y, k, nearest, size = (np.concatenate(pair) for pair in pairs)
        return Monitored(self.space, x, y, k, TermLists.concat([self.words, others.words]), nearest, size)

    def subscriptions(self) -> Subscriptions:
        """As a placement takes them."""
        west, south, east, north = self.space.bounds
        x, y, radius = self.x, self.y, self.radius
        low, high = (x - radius, y - radius), (x + radius, y + radius)
        ball = np.stack([np.maximum(low[0], west), np.maximum(low[1], south),
                         np.minimum(high[0], east), np.minimum(high[1], north)], axis=1)  # fmt: skip
        return Subscriptions(x, y, ball, self.words)

    def arrive(
        self,
        objects: ObjectBatch,
        *,
        home: Codes | None = None,
        worker: Codes | None = None,
        group: Ints | None = None,
        ended: Ints | None = None,
    ) -> Looked:
        """Have objects come.

        Args:
            objects: with the vocabulary of the subscriptions' words.
            home: int32[m], the worker that gets each object anyway; None: none does.
            worker: int32[n], the worker of each subscription; None: there is one.
            group: int64[n], the subset of each subscription; None: all are one.
            ended: rows of subscriptions that have been deleted.
        """
        home = np.full(len(objects), -1, np.int32) if home is None else home
        worker = np.zeros(len(self), np.int32) if worker is None else worker
        group = np.zeros(len(self), np.int64) if group is None else group
        ball, boxes = self.subscriptions().ball, np.empty((int(group.max()) + 1, 4))
        boxes[:, :2], boxes[:, 2:] = np.inf, -np.inf
        for side, outermost in enumerate((np.minimum, np.minimum, np.maximum, np.maximum)):
            outermost.at(boxes[:, side], group, ball[:, side])
        offsets, postings = self._postings(np.empty(0, np.int64) if ended is None else ended)
        west, south, east, north = self.space.bounds
        workers = int(worker.max(initial=0)) + 1
        counts = _Counts(*(np.zeros(n, np.int64) for n in ((len(self), len(INDEXES)), len(objects), workers)))
        changed = _arrive(
            _Objects(objects.x, objects.y, objects.terms.offsets, objects.terms.codes, home),
            *(
                offsets,
                postings,
                _Balls(self.x, self.y, self.k, self.nearest, self.size),
                _Groups(group, boxes, worker),
            ),
            *(np.array([west, south]), np.array([east - west, north - south]) / SIDE),
            *(np.full(len(self), -1, np.int64), np.full(workers, -1, np.int64), counts),
        )
        return Looked(counts.entries, counts.objects, counts.copies, int(changed))

    def _postings(self, ended: Ints) -> tuple[Ints, Ints]:
        owner = np.repeat(np.arange(len(self)), np.diff(self.words.offsets))
        alive = ~np.isin(owner, ended)
        owner, codes = owner[alive], self.words.codes[alive]
        counts = np.bincount(codes, minlength=len(self.words.vocabulary))
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), owner[np.argsort(codes, kind="stable")]


def thinned(objects: ObjectBatch, lengths: Sequence[int], seed: int) -> ObjectBatch:
    """Objects with the first words of others.

    Args:
        objects: the others.
        lengths: how many words they have, evenly, if there are as many.
        seed: of the choice.
    """
    terms = objects.terms
    size = np.random.default_rng((9, seed)).choice(np.asarray(lengths), len(objects))
    size = np.minimum(size, np.diff(terms.offsets))
    owner = np.repeat(np.arange(len(objects)), np.diff(terms.offsets))
    kept = np.arange(len(owner)) - terms.offsets[owner] < size[owner]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)]).astype(np.int32)
    words = TermLists(offsets, terms.codes[kept], terms.vocabulary)
    return ObjectBatch(objects.ids, objects.t, objects.x, objects.y, words)


def drawn(around: ObjectBatch, n: int, seed: int, k: int, space: Space, most_words: int = 5) -> Monitored:
    """n subscriptions, each at a random object's place, with 1 to ``most_words`` of its words and k of 1 to ``k``."""
    random = np.random.default_rng((10, seed))
    chosen = around.take(random.integers(0, len(around), n))
    terms = chosen.terms
    size = np.diff(terms.offsets)
    wanted = 1 + np.floor(random.random(n) * np.minimum(size, most_words)).astype(np.int64)
    owner = np.repeat(np.arange(n), size)
    order = np.lexsort((random.random(len(owner)), owner))
    kept = np.arange(len(owner)) - terms.offsets[owner] < wanted[owner]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(wanted)]).astype(np.int32)
    words = TermLists(offsets, terms.codes[order][kept], terms.vocabulary)
    return Monitored.new(space, chosen.x.copy(), chosen.y.copy(), random.integers(1, k, n, endpoint=True), words)
