"""Pairs of objects and queries by word and place, against a search that looks at each pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance import word_join
from spatialstream.balance.word_join import WordJoin
from spatialstream.model.covers import region_parts
from spatialstream.model.geometry import CIRCLE, EVERYWHERE
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.model.space import WGS84, Space
from tests.unit.index.samples import PLANE, obj, query, samples


def expected(space: Space, objects: ObjectBatch, queries: QueryBatch, weights: np.ndarray) -> tuple[list, list]:
    """The same sums of objects and of queries, each pair for itself."""
    often = {}
    for i in range(len(objects)):
        for word in objects.terms[i]:
            often[word] = often.get(word, 0) + 1
    boxes = region_parts(space, queries.regions)
    total, of_query = [0.0] * len(objects), [0.0] * len(queries)
    for j in range(len(queries)):
        asked = queries[j]
        assert isinstance(asked, Query)
        for group in asked.predicate.expression.groups:
            for i in range(len(objects)):
                x, y = objects.x[i], objects.y[i]
                inside = any(west <= x <= east and south <= y <= north for west, south, east, north in boxes[j])
                least = min((often.get(word, 0) for word in group), default=0)
                rarest = {word for word in group if often.get(word, 0) == least}
                assert len(rarest) < 2 or len(group) == 1, "of words that are as rare as each other any may be taken"
                if inside and (not group or rarest & set(objects.terms[i])):
                    total[i] += weights[j]
                    of_query[j] += weights[j]
    return total, of_query


@given(data=st.data(), space=st.sampled_from([WGS84, PLANE]))
def test_objects_are_joined_with_the_queries_of_their_rarest_words(data, space):
    objects, asked = data.draw(samples(space))
    queries = QueryBatch.of([each for each in asked if len(each.predicate.keywords) < 2])
    weights = np.arange(1.0, len(queries) + 1)

    found = WordJoin(space, objects, np.full(len(objects), 2.0)).pairs(queries, weights)

    for sums, those in zip(found, expected(space, objects, queries, weights), strict=True):
        assert sums.tolist() == pytest.approx([2.0 * each for each in those])


def some() -> ObjectBatch:
    """100 objects: all have "a", every second one "b", every tenth "c"."""
    words = ("a" + "b" * (i % 2 == 0) + "c" * (i % 10 == 0) for i in range(100))
    return ObjectBatch.of([obj(f"o{i}", i % 10 * 0.4, i // 10 * 0.4, word) for i, word in enumerate(words)])


def test_the_rarest_word_of_each_group_counts():
    objects = some()
    predicates = [
        Predicate(Box(0.0, 0.0, 4.0, 4.0), ("a", "c")),  # 10
        Predicate(Box(0.0, 0.0, 4.0, 4.0), any=(("a", "b"), ("c",))),  # 50 + 10
        Predicate(Box(0.0, 0.0, 4.0, 1.0), ("a",), none=("b",)),  # 30: three lines
        Predicate(Box(0.0, 0.0, 4.0, 4.0), ("a", "unknown")),
    ]
    made = query("CRQ", Box(0.0, 0.0, 1.0, 1.0), "a")
    queries = QueryBatch.of(
        [Query(f"q{i}", 0, each, made.selection, made.lifetime) for i, each in enumerate(predicates)]
    )
    join, ones = WordJoin(PLANE, objects, np.ones(100)), np.ones(1)

    assert [join.matches(queries.take(np.array([i])), ones).sum() for i in range(4)] == [10, 60, 30, 0]
    assert join.matches(queries, np.ones(4)).tolist() == expected(PLANE, objects, queries, np.ones(4))[0]


def test_of_very_many_pairs_some_stand_for_all(monkeypatch):
    objects, made = some(), query("CRQ", Box(0.0, 0.0, 4.0, 4.0), "b")
    queries = QueryBatch.of([made] * 64)
    whole = WordJoin(PLANE, objects, np.ones(100)).matches(queries, np.ones(64))
    monkeypatch.setattr(word_join, "PAIRS", 800)
    monkeypatch.setattr(word_join, "CHUNK", 200)

    assert WordJoin(PLANE, objects, np.ones(100)).matches(queries, np.ones(64)).tolist() == whole.tolist()


@pytest.mark.parametrize("space", [WGS84, PLANE])
def test_a_circle_reaches_to_the_k_th_object_with_the_word(space):
    objects, at = some(), (0.0, 0.0)
    queries = QueryBatch.of(
        [query("SKQ", None, word, at=at, k=k) for word, k in (("a", 7), ("c", 10), ("c", 11), ("", 1))]
    )

    found = WordJoin(space, objects, np.ones(100)).reach(queries)

    assert found.kind.tolist() == [CIRCLE, CIRCLE, EVERYWHERE, CIRCLE]
    for i, word, k in ((0, "a", 7), (1, "c", 10)):
        distances = sorted(
            space.distance(*at, float(objects.x[j]), float(objects.y[j]))
            for j in range(100)
            if word in objects.terms[j]
        )
        assert found.shape[i, 2] == pytest.approx(distances[k - 1], rel=1e-9)


def test_an_object_that_stands_for_many_is_further_than_the_nearest():
    objects = ObjectBatch.of([SpatialObject("o", 0, 1.0, 0.0, ("a",))])
    queries = QueryBatch.of([query("SKQ", None, "a", at=(0.0, 0.0), k=4)])

    assert WordJoin(PLANE, objects, np.full(1, 16.0)).reach(queries).shape[0, 2] == pytest.approx(0.5)
