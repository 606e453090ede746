"""What a CKQ costs where it stands, estimated from a sample of the objects (DkM-SKS, section 4.1).

A *subscription* is a CKQ, and its *ball* the circle to its k-th nearest object: only an object in the ball that has one
of its words may change its answer. Subscriptions that are looked at together share a rectangle R around their balls.
With P(R, λ), the part of all objects that lie in R and have the word λ (Eqn 4), the cost of a subscription is the sum
of P(R, λ) over its words (Eqn 5), and that of a set the sum over its members (Eqn 6).

The paper's subscriptions ask for objects with any one of some words. Here a query is an expression: it counts with the
rarest word of each of its groups, as indexes of a slot find candidates, and with all objects of R if a group has none.

Cost: that of the objects in R, for each set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Floats, Ints, numpy_view, runs
from spatialstream.model.batches import Batch
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.expressions import expanded
from spatialstream.model.geometry import EARTH_RADIUS_M
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["EVERYWHERE", "ObjectSample", "Subscriptions", "around", "entry_words", "overlap"]

EVERYWHERE = np.array([-np.inf, -np.inf, np.inf, np.inf])
"""The rectangle of all places."""

_UNKNOWN = -1
"""In place of a word that no object of the sample has."""


class ObjectSample:
    """The sample from which costs are estimated, ``O_init``.

    Args:
        objects: n objects.
        weights: float64[n], how many objects each stands for; None: one.

    Attributes:
        vocabulary: the words, by their codes; the code after the last one is that of all objects, with a word or not.
    """

    def __init__(self, objects: ObjectBatch, weights: Floats | None = None) -> None:
        terms = objects.terms
        self._x, self._y = objects.x, objects.y
        self._weights = np.ones(len(objects)) if weights is None else weights
        self._first, self._size = terms.offsets[:-1].astype(np.int64), np.diff(terms.offsets).astype(np.int64)
        self._codes = terms.codes
        self._total = max(float(self._weights.sum()), 1e-300)
        self.vocabulary = terms.vocabulary

    @property
    def any(self) -> int:
        """The code of all objects."""
        return len(self.vocabulary)

    def probabilities(self, box: Floats) -> Floats:
        """P(R, λ) of each code: the part of the objects that lie in a rectangle and have the word (Eqn 4)."""
        west, south, east, north = box
        inside = (self._x >= west) & (self._x <= east) & (self._y >= south) & (self._y <= north)
        rows = np.flatnonzero(inside)
        weights, size = self._weights[rows], self._size[rows]
        codes = self._codes[runs(self._first[rows], size)]
        counts: Floats = np.bincount(codes, np.repeat(weights, size), self.any + 1).astype(np.float64)
        counts[self.any] = weights.sum()
        return counts / self._total

    def radii(self, space: Space, at: Floats, k: Ints | Codes, keywords: TermLists) -> Floats:
        """How far each of n CKQs looks for k objects, if the sample is all there is; infinite if it has not as many.

        What they forbid and conditions on properties are ignored: it is an estimate.

        Args:
            space: of the places.
            at: float64[n, 2].
            k: int[n].
            keywords: their expressions.
        """
        found = expanded(keywords)
        known = pc.fill_null(pc.index_in(found.groups.vocabulary, self.vocabulary), _UNKNOWN)
        words, offsets = numpy_view(known)[found.groups.codes], found.groups.offsets
        owner = np.repeat(np.arange(len(self._x)), self._size)
        postings = owner[np.argsort(self._codes[runs(self._first, self._size)], kind="stable")]
        counts = np.bincount(self._codes[runs(self._first, self._size)], minlength=self.any)
        ends = np.cumsum(counts)

        def having(group: Ints) -> Ints:
            rows = np.arange(len(self._x))
            for word in group.tolist():
                mine = postings[ends[word] - counts[word] : ends[word]] if word != _UNKNOWN else rows[:0]
                rows = mine if len(rows) == len(self._x) else np.intersect1d(rows, mine, assume_unique=True)
            return rows

        radius = np.full(len(at), np.inf)
        first = np.searchsorted(found.owner, np.arange(len(at) + 1))
        for query, (x, y) in enumerate(at.tolist()):
            groups = [having(words[offsets[i] : offsets[i + 1]]) for i in range(first[query], first[query + 1])]
            rows = groups[0] if len(groups) == 1 else np.unique(np.concatenate(groups))
            distance = _distances(space, x, y, self._x[rows], self._y[rows])
            order = np.argsort(distance)
            enough = int(np.searchsorted(np.cumsum(self._weights[rows[order]]), k[query]))
            if enough < len(rows):
                radius[query] = distance[order[enough]]
        return radius


@dataclass(frozen=True, slots=True, eq=False)
class Subscriptions(Batch):
    """n CKQs, as far as their costs depend on them.

    Attributes:
        x, y: float64[n], their places.
        ball: float64[n, 4], a rectangle (west, south, east, north) around each ball.
        words: n sets of codes of the sample's words.
    """

    x: Floats
    y: Floats
    ball: Floats
    words: TermLists

    @classmethod
    def of(cls, space: Space, at: Floats, balls: Regions, keywords: TermLists, sample: ObjectSample) -> Self:
        """Subscriptions at some places.

        Args:
            space: of the places.
            at: float64[n, 2].
            balls: the circle of each, to its k-th nearest object; unbounded where it has not found as many.
            keywords: their expressions.
            sample: whose words they are compared with.
        """
        return cls(at[:, 0].copy(), at[:, 1].copy(), _rectangles(space, balls), entry_words(keywords, sample))

    def costs(self, rows: Ints, sample: ObjectSample) -> tuple[Floats, Floats]:
        """The rectangle R around the balls of some of them, and the cost of each in it (Eqn 5), float64[m]."""
        box = around(self.ball[rows])
        words = self.words.take(rows)
        owner = np.repeat(np.arange(len(rows)), np.diff(words.offsets))
        cost: Floats = np.bincount(owner, sample.probabilities(box)[words.codes], len(rows)).astype(np.float64)
        return box, cost


def around(boxes: Floats) -> Floats:
    """The smallest rectangle around others, float64[n, 4]."""
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


def overlap(boxes: Floats, box: Floats) -> Floats:
    """The area that each of n rectangles has in common with one."""
    sides = np.minimum(boxes[:, 2:], box[2:]) - np.maximum(boxes[:, :2], box[:2])
    area: Floats = np.prod(np.maximum(sides, 0.0), axis=1)
    return area


def _distances(space: Space, x: float, y: float, xs: Floats, ys: Floats) -> Floats:
    """Distances of a place to others, without care for the last bit."""
    if not space.geographic:
        return np.hypot(xs - x, ys - y)
    one, other = np.radians(y), np.radians(ys)
    across = np.sin(np.radians(xs - x) / 2.0) ** 2
    chord = np.sin((other - one) / 2.0) ** 2 + np.cos(one) * np.cos(other) * across
    arc: Floats = 2.0 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(1.0, chord)))
    return arc


def _rectangles(space: Space, balls: Regions) -> Floats:
    """A rectangle around each circle, within the space; one across the antimeridian is as wide as the space."""
    parts = region_parts(space, balls)
    boxes, across = parts[:, 0].copy(), parts[:, 1, 0] != NOWHERE[0]
    boxes[across, 0], boxes[across, 2] = space.west, space.east
    bounds = np.array(space.bounds)
    low, high = np.maximum(boxes[:, :2], bounds[:2]), np.minimum(boxes[:, 2:], bounds[2:])
    return np.concatenate([low, high], axis=1)


def entry_words(keywords: TermLists, sample: ObjectSample) -> TermLists:
    """The words under which a slot looks up each of n CKQs, as n sets of codes of the sample.

    They are the rarest word of each of its groups, and ``sample.any`` for a group without words; words that no object
    has are left out.
    """
    found = expanded(keywords)
    groups, n = found.groups, len(keywords)
    known = pc.fill_null(pc.index_in(groups.vocabulary, sample.vocabulary), _UNKNOWN)
    frequency = sample.probabilities(EVERYWHERE)
    word = numpy_view(known)[groups.codes].astype(np.int64)
    often = np.where(word == _UNKNOWN, 0.0, frequency[word])
    size = np.diff(groups.offsets)
    order = np.lexsort((word, often, np.repeat(np.arange(len(size)), size)))  # rarest first in each group
    rarest = np.full(len(size), sample.any, np.int64)
    rarest[size > 0] = word[order[groups.offsets[:-1][size > 0]]]
    kept = rarest != _UNKNOWN
    pairs = np.unique(found.owner[kept].astype(np.int64) * (sample.any + 1) + rarest[kept])
    owner, codes = np.divmod(pairs, sample.any + 1)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(np.bincount(owner, minlength=n))]).astype(np.int32)
    return TermLists(offsets, codes.astype(np.int32), sample.vocabulary)
