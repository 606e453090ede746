"""Continuous best queries: slots and merger together against brute force over the whole stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.best import cbq
from spatialstream.local.best.cbq import ContinuousBestIndex
from spatialstream.local.best.merger import BestMerger, ScoredArrivals
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Best, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Circle
from spatialstream.model.space import Space
from spatialstream.oracle.ranking import forward, forward_order, space_score, text_score
from tests.streams import expressions
from tests.unit.local.continuous import (
    PLACES,
    PLANE,
    WORDS,
    Candidates,
    Epoch,
    MergedRun,
    Stream,
    compiled,
    first_of,
    order,
    queries_of,
    streams,
)
from tests.unit.local.test_moves import Router, cancel, moves
from tests.unit.memory_files import MemoryFiles

Row = tuple[int, str, list[tuple[str, int, float, float, float, float]]]


@dataclass
class Weights:
    """In place of a corpus: the weights that the query has."""

    of: dict[str, int]

    def weight(self, word: str) -> int:
        return self.of[word]


def expected(stream: Stream) -> list[Row]:
    """Every change of every answer, from its definition."""
    return first_of(stream, lambda query, objects: candidates(query, objects, stream.space))


def candidates(query: Query, objects: Sequence[SpatialObject], space: Space) -> Candidates:
    """The objects that may be in an answer; a row shows the distance and A of each."""
    at, by = query.selection, query.selection.ranking
    assert isinstance(at, Best)
    assert by is not None
    assert by.half_life is not None
    found = []
    for o in objects:
        d = space.distance(at.x, at.y, o.x, o.y)
        if d > by.radius or {*by.words}.isdisjoint(o.terms) or not query.predicate.expression.holds(o.terms):
            continue
        weights: Any = Weights(dict(zip(by.words, by.weights, strict=True)))
        a = forward(by.shares[0], space_score(d, by.radius), text_score(o.said, by.words, weights, static=True))
        exponent, mantissa = forward_order(a, o.t - query.t, by.half_life)
        found.append((o, (-exponent, -mantissa, -o.t, o.id, o.x, o.y), (o.id, o.t, o.x, o.y, d, a)))
    return sorted(found, key=lambda each: (order(each[0]), each[1]))


class BestRun(MergedRun):
    """Slots and merger."""

    index, merging, arrivals = ContinuousBestIndex, BestMerger, ScoredArrivals
    found, columns = ("distance", "score", "key"), ("distance", "score")

    def continuous(self) -> list:
        return [self.merger, self.merger, *self.slots]  # several slots name a query

    def rows(self, epoch: Epoch, batches: list[ObjectBatch]) -> list[Row]:
        rows = self.changes_of(self.merger, self.merged(batches), epoch.horizon)
        assert len(self.merger) <= len(self.stream.queries)
        return rows


arrivals_of = BestRun.arrivals_of


def rankings(space: Space) -> st.SearchStrategy[Ranking]:
    weights = st.dictionaries(st.sampled_from([*WORDS, "rare"]), st.sampled_from([0, 1, 16_384, 300_000]), min_size=1)
    radii = [1.0, 1.5, 5.0] if space == PLANE else [20_000.0, 60_000.0, 6e6]
    return st.builds(
        lambda words, radius, share, half_life: Ranking(
            tuple(sorted(words)),
            radius,
            1,
            half_life,
            shares=(share, 0.0, 1.0 - share),
            static=True,
            weights=tuple(words[word] for word in sorted(words)),
        ),
        weights,
        st.sampled_from(radii),
        st.sampled_from([0.0, 0.2, 1.0]),
        st.sampled_from([1, 3, 1000]),
    )


def queries_in(space: Space) -> st.SearchStrategy[list[Query]]:
    parts = st.builds(
        lambda place, k, by, text: (Predicate(Circle(*place, by.radius), *text), Best(*place, k, by)),
        st.sampled_from(PLACES[space]),
        st.sampled_from([1, 2, 3, 2**31 - 1]),
        rankings(space),
        st.one_of(st.just(((), (), ())), expressions(WORDS)),
    )
    return queries_of(parts)


@given(data=st.data())
def test_answers_do_not_know_of_moves(data: st.DataObject) -> None:
    stream = data.draw(streams(queries_in(PLANE), PLANE))
    slots: Any = [ContinuousBestIndex(PLANE) for _ in range(3)]
    router, merger, files, rows = Router(stream, slots), BestMerger(PLANE), MemoryFiles(), []
    for epoch in stream.epochs:
        router.admit(epoch.numbers)
        merger.register(*stream.batch(epoch.numbers))
        merger.end_at(np.array([i for i, _ in epoch.cancelled], np.int64), np.array([t for _, t in epoch.cancelled]))
        found = []
        for slot, index in enumerate(router.slots):
            cancel(index, epoch)
            found.append(arrivals_of(index, router.objects_of(slot, epoch)))
            index.expire(epoch.before - 1)
        rows += BestRun.changes_of(merger, ScoredArrivals.concat(found), epoch.horizon)
        for leaf, to in data.draw(moves):
            router.move(leaf, to, epoch.before - 1, epoch.before)
        for (slot, number), _ in list(router.lost.items()):
            router.slots[slot].drop(np.array([number]))
        router.lost.clear()
        if epoch.restart:
            manifests = [index.checkpoint(files.write) for index in router.slots]
            router.slots = [ContinuousBestIndex.restore(PLANE, manifest, files.read) for manifest in manifests]

    assert rows == expected(stream)


def one(half_life: int = 1_000, k: int = 1, **more: Any) -> QueryBatch:
    by = Ranking(("x", "y"), 2.0, 1, half_life, static=True, weights=(10, 20), **more)
    return QueryBatch.of([Query("q", 0, Predicate(Circle(0.0, 0.0, 2.0)), Best(0.0, 0.0, k, by), Lifetime(99, True))])


def test_what_cannot_be_among_the_best_is_not_passed_on() -> None:
    index = ContinuousBestIndex(PLANE)
    index.register(np.zeros(1, np.int64), one())

    def passed(*objects: SpatialObject) -> list[str]:
        return arrivals_of(index, list(objects)).ids.to_pylist()

    assert passed(SpatialObject("far", 1, 2.5, 0.0, ("x",))) == []
    assert passed(SpatialObject("wordless", 1, 0.0, 0.0, ("z",))) == []
    assert passed(SpatialObject("on the border", 1, 2.0, 0.0, ("x",))) == ["on the border"]
    assert passed(SpatialObject("better", 2, 0.0, 0.0, ("x", "y"))) == ["better"]
    assert passed(SpatialObject("worse", 3, 1.0, 0.0, ("x", "y"))) == []
    assert passed(SpatialObject("equal and later", 2, 0.0, 0.0, ("x", "y"))) == ["equal and later"]


def test_a_later_object_is_better_by_half_for_each_half_life() -> None:
    index = ContinuousBestIndex(PLANE)
    index.register(np.zeros(1, np.int64), one(half_life=10, shares=(1.0, 0.0, 0.0), k=9))
    objects = [SpatialObject(str(t), t, 1.0, 0.0, ("x",)) for t in (0, 10, 25, 50)]
    found = arrivals_of(index, objects)

    assert found.score.tolist() == [0.5] * 4
    first, second, third, last = (int(key) for key in found.key)
    assert (second - first, last - first) == (2**36, 5 * 2**36)
    assert third - second == 2**36 + int((2**0.5 - 1.0) * 2**36)  # 2^1.5 is 2 times 1.414


def test_kernels_are_compiled_by_prepare() -> None:
    cbq.prepare()
    before = compiled(cbq)
    test_what_cannot_be_among_the_best_is_not_passed_on()

    assert compiled(cbq) == before
    assert before[f"{cbq.__name__}._offer"] == 1


def test_queries_that_come_back_have_the_weights_of_their_first_registration() -> None:
    index = ContinuousBestIndex(PLANE)
    index.register(np.array([5]), one())
    numbers, queries = index.continuous(0)
    assert numbers.tolist() == [5]
    assert queries[0] == one()[0]
    assert queries[0].selection.ranking.weights == (10, 20)
