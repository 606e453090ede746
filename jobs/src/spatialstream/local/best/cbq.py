"""Continuous best queries in a slot: find the arrivals that may be in an answer.

The continuous form of Pastri's query (Ray and Nickerson, JOSIS 24, 2022), with forward decay
(:mod:`spatialstream.model.ranking.scores`): the order of two objects never changes, so it is enough to keep the keys of
the k best of the slot, as :class:`~spatialstream.local.nearest.heap_index.HeapIndex` does. What others call top-k
publish/subscribe: TaSK (Chen, Cong, Cao, Tan, ICDE 2015), Skype (Wang, Zhang, Zhang, Lin, Huang, PVLDB 9, 2016).

The disk of a query does not change, and neither do the weights of its words, which come with it. A grid finds the
objects in the disk that have one of the words: each word is a group of the query's expression, together with the
keywords of its filter. A filter with groups stays as it is, and the kernel looks whether a word is there.

A query moves without its heap: where it comes to, it keeps the best of what arrives from then on. It then sends more
than it needs to MERGE, and never less.

Cost: per object a grid lookup per tier; per candidate a distance, a comparison of each of its terms that is a word of
any query, and O(log k). State: 16 bytes per kept object, 16 bytes per word, and the query itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.arrays import Bytes, Codes, Flags, Floats, Ints, wide
from spatialstream.local.columns import Table
from spatialstream.local.grid.matching import Objects
from spatialstream.local.grid.probing import ProbeBatch
from spatialstream.local.journal import Arrays
from spatialstream.local.keywords import KeywordTable
from spatialstream.local.nearest.heap_index import Candidates, HeapIndex
from spatialstream.local.nearest.heaps import Heaps, Kept, enlarge, farther, rise, sink
from spatialstream.model.expressions import Expression, absorbed
from spatialstream.model.geometry import CIRCLE, distance
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Best, Lifetime, Predicate, Query, QueryBatch, nobody
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.scores import continuous_key, continuous_score, spatial_score, textual_score
from spatialstream.model.regions import Circle, Regions
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermLists

__all__ = ["ContinuousBestIndex", "Scored", "prepare"]


@dataclass(frozen=True, slots=True, eq=False)
class Scored(Candidates):
    """Arrivals that may be in answers.

    Attributes:
        distance: float64[m], distance between query and object.
        score: float64[m], A.
        key: float64[m], by which objects are ordered, the greatest first.
    """

    distance: Floats
    score: Floats
    key: Floats


class _Queries(NamedTuple):
    """Columns of the queries; their words are ``length[r]`` entries from ``first[r]`` on."""

    x: Floats
    y: Floats
    window: Ints
    start: Ints
    end: Ints
    radius: Floats
    share: Floats
    half_life: Ints
    asked: Ints
    first: Ints
    length: Ints


class _Words(NamedTuple):
    """The words of all queries, and their weights."""

    word: Ints
    weight: Ints


@lean_kernel
def _overlap(
    o: int, r: int, batch: Objects, spans: Codes, counts: Bytes, tags: Ints, queries: _Queries, words: _Words
) -> tuple[int, int]:
    """The sum of the weights of the query's words in the object, each as often as it is there; -1 if none is.

    And the sum of the squares of the occurrences of all its terms.
    """
    dot, shared, counted = 0, False, len(counts) > 0
    own = wide(spans[o + 1]) - wide(spans[o])
    first, last = queries.first[r], queries.first[r] + queries.length[r]
    for j in range(spans[o], spans[o + 1]):
        times = wide(counts[j]) if counted else 1
        own += times * times - 1
        tag = tags[batch.codes[j]]
        if tag > 0:
            for w in range(first, last):
                if words.word[w] == tag - 1:
                    dot += times * words.weight[w]
                    shared = True
    return dot if shared else -1, own


@kernel
def _offer(
    geographic: bool,
    objects: Codes,
    rows: Codes,
    batch: Objects,
    spans: Codes,
    counts: Bytes,
    tags: Ints,
    queries: _Queries,
    words: _Words,
    kept: Kept,
    heaps: Heaps,
) -> tuple[Heaps, Ints, Floats]:
    """Offer objects to queries, pair by pair in object order.

    ``spans`` are the bounds of each object's terms, ``counts`` their occurrences, if these are counted; the tag of a
    term is its number among the words of all queries plus 1, or 0.

    Returns the heaps' storage, which may have grown, the positions of the m accepted pairs, and float64[3, m]: their
    distances, scores and keys.
    """
    pairs, values, found = np.empty(len(objects), np.int64), np.empty((3, len(objects)), np.float64), 0
    for i in range(len(objects)):
        o, r = objects[i], rows[i]
        t, window = batch.t[o], queries.window[r]
        if t < queries.start[r] or t >= queries.end[r] or window == 0:
            continue
        d = distance(geographic, queries.x[r], queries.y[r], batch.x[o], batch.y[o])
        if d > queries.radius[r]:
            continue
        dot, own = _overlap(o, r, batch, spans, counts, tags, queries, words)
        if dot < 0:
            continue
        textual = textual_score(dot, own, queries.asked[r])
        score = continuous_score(queries.share[r], spatial_score(d, queries.radius[r]), textual)
        key = continuous_key(score, t - queries.start[r], queries.half_life[r])
        if window < 0:
            size, base = kept.size[r], kept.offset[r]
            if size == kept.k[r]:
                if farther(-key, t, heaps.distances[base], heaps.times[base]):
                    continue
                sink(heaps, base, size, -key, t)
            else:
                if size == kept.capacity[r]:
                    heaps = enlarge(kept, heaps, r)
                rise(heaps, kept.offset[r], size, -key, t)
                kept.size[r] = size + 1
            kept.touched[r] = True
        pairs[found] = i
        values[0, found], values[1, found], values[2, found] = d, score, key
        found += 1
    return heaps, pairs[:found], np.ascontiguousarray(values[:, :found])


class ContinuousBestIndex(HeapIndex):
    """The CBQs of one slot, each with the weights of its words."""

    name, found, shrinks = "cbq", Scored, False
    derived: ClassVar[Mapping[str, npt.DTypeLike]] = {
        **{"radius": np.float64, "share": np.float64},
        **dict.fromkeys(("half_life", "asked", "first", "length"), np.int64),
    }

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self._asked: list[QueryBatch] = []  # all queries, in pieces
        self._forget_words()

    def _forget_words(self) -> None:
        self._words = Table({"word": np.int64, "weight": np.int64})
        self._numbers: dict[str, int] = {}  # of the words
        self._table: KeywordTable | None = None  # of the same words; made when it is needed

    @property
    def nbytes(self) -> int:
        """See :class:`LocalIndex`; O(grids + pieces)."""
        held: int = sum(each.ids.nbytes + each.ranking.nbytes + each.regions.shape.nbytes for each in self._asked)
        return super().nbytes + self._words.nbytes + held

    def _add(self, queries: QueryBatch) -> TermLists:
        self._asked.append(queries)
        rankings = self._rank(queries)
        return TermLists.of([_posted(queries.keywords[row], by.words) for row, by in enumerate(rankings)])

    def _rank(self, queries: QueryBatch) -> list[Ranking]:
        """Set what follows from the rankings of queries, whose rows are the last ones."""
        rankings = [Ranking.of_text(text) for text in queries.ranking.to_pylist()]
        numbers, known = self._numbers, len(self._numbers)
        words = [numbers.setdefault(word, len(numbers)) for by in rankings for word in by.words]
        if len(numbers) > known:
            self._table = None
        weights = [weight for by in rankings for weight in by.weights]
        first = self._words.append({"word": np.array(words, np.int64), "weight": np.array(weights, np.int64)})
        length = np.array([len(by.words) for by in rankings], np.int64)
        rows = slice(len(self._queries) - len(queries), None)
        for name, column in (
            ("radius", [by.radius for by in rankings]),
            ("share", [by.shares[0] for by in rankings]),
            ("half_life", [by.half_life for by in rankings]),
            ("asked", [sum(weight * weight for weight in by.weights) for by in rankings]),
            ("first", first + np.cumsum(length) - length),
            ("length", length),
        ):
            self._queries[name][rows] = column
        return rankings

    def _regions(self, rows: Codes) -> Regions:
        shape = np.zeros((len(rows), 4))
        for side, name in enumerate(("x", "y", "radius")):
            shape[:, side] = self._queries[name][rows]
        return Regions.plain(np.full(len(rows), CIRCLE, np.uint8), shape)

    def _offer(self, batch: ProbeBatch, objects: Codes, rows: Codes) -> tuple[Ints, tuple[Floats, ...]]:
        tags = np.zeros(batch.words, np.int64)
        if self._table is None:
            self._table = KeywordTable.build(pa.array([*self._numbers], pa.string()))
        tags[batch.keys.used] = self._table.translate(batch.keys, np.arange(1, len(self._table) + 1))
        bounds, codes, counts = batch.texts  # the keywords of an object say nothing about how long its text is
        said = batch.objects._replace(codes=codes), bounds, counts
        given = *said, tags, self._queries.view(_Queries), self._words.view(_Words)
        kept = self._queries.view(Kept)
        self._heaps, pairs, values = _offer(self.space.geographic, objects, rows, *given, kept, self._heaps)
        return pairs, tuple(values)

    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        """See :class:`MovableIndex`; the queries have the weights of their words."""
        number, start, end = (self._queries[name] for name in ("number", "start", "end"))
        rows = np.flatnonzero(end > max(now, self._now))
        if not len(rows):
            return np.empty(0, np.int64), QueryBatch.of([])
        rows = rows[np.argsort(number[rows])]
        queries = self._whole().take(rows)
        return number[rows], replace(
            queries, duration=end[rows] - start[rows], keywords=queries.keywords.compact(), by=nobody(len(rows))
        )

    def _whole(self) -> QueryBatch:
        """All queries in one piece."""
        self._asked = [QueryBatch.concat(self._asked)]
        return self._asked[0]

    def _compact(self, kept: Flags) -> None:
        super()._compact(kept)
        left = self._whole().take(np.flatnonzero(kept))
        self._asked = [replace(left, keywords=left.keywords.compact())]
        self._forget_words()
        self._rank(left)

    def _rows(self, rows: Ints, known: int) -> Arrays:
        new = QueryBatch.of([])
        if known < len(self._queries):
            new = self._whole().take(np.arange(known, len(self._queries)))
        return {**super()._rows(rows, known), "queries": _packed(new)}

    def _apply(self, saved: Arrays) -> None:
        super()._apply(saved)
        queries = QueryBatch.from_arrow(pa.ipc.open_stream(saved["queries"].tobytes()).read_next_batch())
        if len(queries):
            self._asked.append(queries)
            self._rank(queries)


def _posted(literals: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """The literals of a condition that every object satisfies which satisfies the given ones and has one of the words.

    Others may satisfy it only where the given ones have groups.
    """
    given = Expression.of(literals)
    if given.any:
        return given.literals
    groups = absorbed((*given.keywords, word) for word in words)
    only = groups[0] if len(groups) == 1 else ()
    return replace(given, keywords=only, any=() if only else groups).literals


def _packed(queries: QueryBatch) -> Codes:
    """Queries as an Arrow IPC stream, uint8[n]."""
    sink_ = pa.BufferOutputStream()
    batch = replace(queries, keywords=queries.keywords.compact(), by=nobody(len(queries))).to_arrow()
    with pa.ipc.new_stream(sink_, batch.schema) as writer:
        writer.write_batch(batch)
    return np.frombuffer(sink_.getvalue(), np.uint8)


def prepare() -> None:
    """Compile the kernels of this module and of those it uses."""
    by = Ranking(("a", "b"), 1.0, 1, 1, static=True, weights=(1, 1))
    predicate = Predicate(Circle(0.0, 0.0, 1.0))
    index, one = ContinuousBestIndex(WGS84), np.zeros(1, np.int64)
    index.register(one, QueryBatch.of([Query("q", 0, predicate, Best(0.0, 0.0, 1, by), Lifetime(9, continuous=True))]))
    list(index.match(ObjectBatch.of([SpatialObject(name, 0, 0.0, 0.0, ("a",)) for name in ("a", "b")])))
