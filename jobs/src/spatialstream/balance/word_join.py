"""Which objects of a sample concern its queries, by words and by place: what the planner counts without any index.

Objects and queries are joined on the rarest word of each group of a query's words, as the indexes of a slot find
candidates (PS2Stream, section IV-C). A pair counts if the object lies in a box around the query's region too. All words
but the rarest, and what a condition says of properties, are not looked at.

Cost: O(words) and at most :data:`PAIRS` pairs; if there were more, evenly chosen queries stand for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from spatialstream.model.arrays import Flags, Floats, Ints, numpy_view, runs
from spatialstream.model.covers import region_parts
from spatialstream.model.expressions import expanded
from spatialstream.model.geometry import CIRCLE, EARTH_RADIUS_M
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space

__all__ = ["CHUNK", "PAIRS", "WordJoin"]

PAIRS = 4_000_000
"""Maximum number of pairs that are looked at in one join."""

CHUNK = 1 << 19
"""Pairs that are looked at together, about."""
_NO_WORD = -1


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """m groups of words of queries, of which an object may have all.

    Attributes:
        query: int64[m], whose it is.
        first, count: int64[m], a run of :attr:`WordJoin._rows`: the objects that have its rarest word.
    """

    query: Ints
    first: Ints
    count: Ints


class WordJoin:
    """The objects of a sample by their words.

    Args:
        space: of their places.
        objects: n objects.
        weights: float64[n], how many objects each stands for.
    """

    def __init__(self, space: Space, objects: ObjectBatch, weights: Floats) -> None:
        self._space, self._objects, self._weights = space, objects, weights

    def matches(self, queries: QueryBatch, weights: Floats) -> Floats:
        """The pairs of each object with the queries that it may match, float64[n], of what the records stand for.

        Args:
            queries: m queries.
            weights: float64[m], how many queries each stands for.
        """
        return self.pairs(queries, weights)[0]

    def pairs(self, queries: QueryBatch, weights: Floats) -> tuple[Floats, Floats]:
        """The pairs of each object, float64[n], and those of each query, float64[m]; as :meth:`matches`."""
        of_object, of_query = np.zeros(len(self._objects)), np.zeros(len(queries))
        if not len(queries) or not len(self._objects):
            return of_object, of_query
        groups, boxes = self._groups(queries), region_parts(self._space, queries.regions)
        stride = max(1, -(-int(groups.count.sum()) // PAIRS))
        chosen = np.arange(0, len(groups.query), stride)
        ends = np.cumsum(groups.count[chosen])
        for part in np.split(chosen, np.flatnonzero(np.diff(ends // CHUNK)) + 1):
            query = np.repeat(groups.query[part], groups.count[part])
            row = self._rows[runs(groups.first[part], groups.count[part])]
            inside = self._inside(row, boxes[query, 0]) | self._inside(row, boxes[query, 1])
            weight = np.where(inside, weights[query] * self._weights[row] * stride, 0.0)
            of_object += np.bincount(row, weight, len(of_object))
            of_query += np.bincount(query, weight, len(of_query))
        return of_object, of_query

    def reach(self, queries: QueryBatch) -> Regions:
        """The circle from each nearest-neighbour query's point to about its k-th object; unbounded without as many."""
        groups = self._groups(queries)
        kind, shape = np.zeros(len(queries), np.uint8), np.zeros((len(queries), 4))
        for i, (first, last) in enumerate(zip(*self._spans(groups.query, len(queries)), strict=True)):
            row = np.unique(self._rows[runs(groups.first[first:last], groups.count[first:last])])
            if (radius := self._radius(row, queries.at[i], int(queries.k[i]))) is not None:
                kind[i], shape[i] = CIRCLE, (*queries.at[i], radius, 0.0)
        return Regions.plain(kind, shape)

    @staticmethod
    def _spans(owner: Ints, n: int) -> tuple[list[int], list[int]]:
        each = np.arange(n)
        return np.searchsorted(owner, each).tolist(), np.searchsorted(owner, each, "right").tolist()

    def _radius(self, row: Ints, at: Floats, k: int) -> float | None:
        """The distance at which objects that stand for k are found; None if all stand for fewer."""
        weight = self._weights[row]
        if not len(row) or weight.sum() < k:
            return None
        distance = self._distances(row, at)
        order = np.argsort(distance, kind="stable")
        found = np.cumsum(weight[order])
        last = min(int(np.searchsorted(found, k)), len(row) - 1)
        return float(distance[order[last]]) * min(1.0, float(np.sqrt(k / found[last])))

    def _distances(self, row: Ints, at: Floats) -> Floats:
        """As :func:`spatialstream.model.geometry.distance`, of many."""
        x, y = self._objects.x[row], self._objects.y[row]
        if not self._space.geographic:
            plane: Floats = np.hypot(x - at[0], y - at[1])
            return plane
        south, north, along = np.radians(at[1]), np.radians(y), np.radians(x - at[0])
        half = np.sin((north - south) / 2.0) ** 2 + np.cos(south) * np.cos(north) * np.sin(along / 2.0) ** 2
        distances: Floats = 2.0 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1.0)))
        return distances

    def _inside(self, row: Ints, box: Floats) -> Flags:
        x, y = self._objects.x[row], self._objects.y[row]
        result: Flags = (x >= box[:, 0]) & (y >= box[:, 1]) & (x <= box[:, 2]) & (y <= box[:, 3])
        return result

    # ------------------------------------------------------------------------------------------------------- words

    @cached_property
    def _frequency(self) -> Ints:
        return np.bincount(self._objects.terms.codes, minlength=len(self._objects.terms.vocabulary))

    @cached_property
    def _rows(self) -> Ints:
        """The objects with each word, one word after the other, and then all objects."""
        terms, n = self._objects.terms, len(self._objects)
        owner = np.repeat(np.arange(n), np.diff(terms.offsets))
        return np.concatenate([owner[np.argsort(terms.codes, kind="stable")], np.arange(n)])

    def _groups(self, queries: QueryBatch) -> _Groups:
        """The groups of all queries. What has a word that no object has is left out."""
        expressions = expanded(queries.keywords)
        codes = pc.fill_null(pc.index_in(expressions.groups.vocabulary, self._objects.terms.vocabulary), _NO_WORD)
        word, offsets = numpy_view(codes)[expressions.groups.codes], expressions.groups.offsets.astype(np.int64)
        often = np.where(word == _NO_WORD, 0, self._frequency[word] if len(self._frequency) else 0)
        size = np.diff(offsets)
        owner = np.repeat(np.arange(len(size)), size)
        order = np.lexsort((word, often, owner))  # rarest first in each group
        rarest = order[offsets[:-1][size > 0]]
        first = np.full(len(size), len(self._rows) - len(self._objects))
        count = np.full(len(size), len(self._objects))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._frequency)])
        first[size > 0], count[size > 0] = starts[np.maximum(word[rarest], 0)], often[rarest]
        nonempty = count > 0
        return _Groups(expressions.owner.astype(np.int64)[nonempty], first[nonempty], count[nonempty])
