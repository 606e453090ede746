"""Expressions in the indexes of a slot, compared with brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spatialstream.local.grid.expression_grid import ExpressionGrid, build_grid, grid_from_arrays
from spatialstream.local.grid.probing import ProbeBatch, posted_in
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.expressions import Expression
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.regions import Box, Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists
from spatialstream.oracle.conditions import satisfies
from tests.unit.local.snapshot.twin import Twin

PLANE = Space.planar(0.0, 0.0, 8.0, 8.0)
WORDS = [f"w{i}" for i in range(12)]


def drawn_objects(rng: np.random.Generator, n: int) -> list[SpatialObject]:
    found = []
    for i in range(n):
        x, y = rng.integers(0, 9, 2).astype(float)
        terms = tuple(rng.choice(WORDS, rng.integers(0, 6), replace=False, p=WEIGHTS).tolist())
        found.append(SpatialObject(f"o{i % 50}", int(rng.integers(0, 40)), x, y, terms))
    return found


WEIGHTS = np.array([1.0 / (i + 1) for i in range(len(WORDS))])
WEIGHTS /= WEIGHTS.sum()


def drawn_expression(rng: np.random.Generator) -> Expression:
    def terms(most: int) -> list[str]:
        return rng.choice(WORDS, rng.integers(1, most + 1), replace=False).tolist()

    kind = rng.integers(0, 4)
    if kind == 0:
        return Expression(tuple(terms(2)))
    none = tuple(terms(2)) if kind >= 2 else ()
    if kind == 3:
        return Expression((), (), none)
    record = {"id": "q", "type": "CRQ", "t": 0, "region": {"box": [0, 0, 1, 1]}, "none": list(none)}
    return parsed(record | {"any": [terms(3) for _ in range(rng.integers(1, 6))]})


def parsed(record: dict[str, object]) -> Expression:
    query = parse_query(record, PLANE)
    assert isinstance(query, Query)
    return query.predicate.expression


def test_a_million_pairs_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(7)
    objects = drawn_objects(rng, 1_000)
    batch = ObjectBatch.of(objects)
    ready = ProbeBatch.of(PLANE, batch)
    for _ in range(4):
        asked = [drawn_expression(rng) for _ in range(250)]
        boxes = [Box(*sorted(rng.integers(0, 9, 2).tolist())[:1] * 2, 8.0, 8.0) for _ in asked]
        grid = build_grid(PLANE, Regions.of(boxes), TermLists.of([each.literals for each in asked]))
        assert isinstance(grid, ExpressionGrid)
        life = np.stack([rng.integers(0, 40, len(asked)), rng.integers(0, 60, len(asked))], axis=1)
        grid = grid_from_arrays(PLANE, *grid.to_arrays())
        for lives, horizon in ((np.empty((0, 2), np.int64), -(2**63)), (life, 10)):
            found = grid.probe(ready, lives, horizon)
            pairs = list(zip(found.objects.tolist(), found.queries.tolist(), strict=True))
            expected = [
                (i, q)
                for i, o in enumerate(objects)
                for q, (each, box) in enumerate(zip(asked, boxes, strict=True))
                if box.west <= o.x and box.south <= o.y and each.holds(o.terms)
                if not len(lives) or (lives[q, 0] <= o.t < lives[q, 1] and horizon < lives[q, 1])
            ]
            assert pairs == expected


DECLARED = Properties.parse(["country:keyword", "kind:keyword", "name:keyword", "priority:number"])
CONDITIONS = [
    parse_where(each, DECLARED)
    for each in (
        "country = 'c0'",
        "country = 'c3' AND priority >= 3",
        "country IN ('c0', 'c1', '') AND kind = 'k1'",
        "country IN ('c0', 'c1') AND kind IN ('k0', 'k1') AND priority < 4",
        "country = 'c0' AND country = 'c1'",
        "country = 'c0' OR kind = 'k0'",
        "country <> 'c0' AND kind = 'k0'",
        "country IS NULL",
        "priority = 2",
        "country = 'nowhere'",
    )
]


@pytest.mark.parametrize("rows", [True, False], ids=["properties", "none"])
def test_half_a_million_pairs_with_conditions_are_those_of_brute_force(rows: bool) -> None:
    rng = np.random.default_rng(8)

    def said() -> tuple[tuple[str, str | float], ...]:
        priority = float(rng.integers(6))
        given = ("country", f"c{rng.integers(0, 5)}"), ("kind", f"k{rng.integers(0, 3)}"), ("priority", priority)
        return tuple(each for each in given if rng.random() < 0.8)

    objects = [replace(o, properties=said() if rows else ()) for o in drawn_objects(rng, 500)]
    texts = {
        (i, each): satisfies(cql2_of(each), dict(o.properties)) for i, o in enumerate(objects) for each in CONDITIONS
    }
    total = 0
    for alone in (False, True):
        drawn = [drawn_expression(rng) for _ in range(500)]
        asked = [replace(each, where=CONDITIONS[rng.integers(len(CONDITIONS))]) for each in drawn]
        if alone:  # one conjunction each, as most queries have
            asked = [replace(each, any=(), where=CONDITIONS[i % 2]) for i, each in enumerate(asked)]
        boxes = [Box(0.0, 0.0, *rng.integers(0, 9, 2).astype(float).tolist()) for _ in asked]
        grid = build_grid(PLANE, Regions.of(boxes), TermLists.of([each.literals for each in asked]))
        assert grid.posted == (("country",) if alone else ("country", "kind"))
        again = grid_from_arrays(PLANE, *grid.to_arrays())
        assert again.posted == grid.posted
        assert [again.keywords[i] for i in range(len(asked))] == [[*each.literals] for each in asked]
        life = np.stack([rng.integers(0, 40, len(asked)), rng.integers(0, 60, len(asked))], axis=1)
        ready = ProbeBatch.of(PLANE, ObjectBatch.of(objects), posted_in([grid]))
        for lives, horizon in ((np.empty((0, 2), np.int64), -(2**63)), (life, 10)):
            found = again.probe(ready, lives, horizon)
            pairs = list(zip(found.objects.tolist(), found.queries.tolist(), strict=True))
            expected = [
                (i, q)
                for i, o in enumerate(objects)
                for q, (each, box) in enumerate(zip(asked, boxes, strict=True))
                if o.x <= box.east and o.y <= box.north and each.holds(o.terms) and texts[i, each.where]
                if not len(lives) or (lives[q, 0] <= o.t < lives[q, 1] and horizon < lives[q, 1])
            ]
            assert pairs == expected
            total += len(pairs)
    assert total > (5_000 if rows else 100)


def test_a_query_lies_under_its_keyword_if_that_is_rarer_than_its_words() -> None:
    objects = [
        SpatialObject(f"o{i}", i, 1.0, 1.0, ("often",), (("country", f"c{i % 50}"), ("name", f"n{i}")))
        for i in range(1_000)
    ]
    for condition, candidates in (("country = 'c7'", 20), ("name = 'n7'", 1)):
        index = ContinuousRangeIndex(PLANE)
        index.observe(ObjectBatch.of(objects))
        record = {"id": "q", "type": "CRQ", "t": 0, "region": {"box": [0, 0, 8, 8]}, "keywords": ["often"]}
        query = parse_query(record, PLANE)
        assert isinstance(query, Query)
        predicate = replace(query.predicate, where=parse_where(condition, DECLARED))
        index.register(np.array([0]), QueryBatch.of([replace(query, predicate=predicate)]))
        found = [matches for _, matches in index.match(ObjectBatch.of(objects))]
        assert sum(int(each.checked.sum()) for each in found) == candidates
        assert sum(map(len, found)) == candidates


def test_conjunctions_alone_have_a_plain_grid() -> None:
    lists = TermLists.of([("a",), (), ("b", "c")])
    assert not isinstance(build_grid(PLANE, Regions.of([None] * 3), lists), ExpressionGrid)


@pytest.mark.parametrize("seed", range(4))
def test_snapshots_are_those_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    store, twin = SegmentStore(PLANE, capacity=128), Twin(PLANE)
    for _ in range(6):
        objects = drawn_objects(rng, 60)
        store.append(ObjectBatch.of(objects))
        twin.append(objects)
    for _ in range(60):
        literals = drawn_expression(rng).literals
        box = Box(*rng.integers(0, 4, 2).astype(float).tolist(), 8.0, 8.0)
        after, last = 5, 35
        found = store.range_query(box, literals, after, last)
        rows = list(zip(found.t.tolist(), found.ids.to_pylist(), found.x.tolist(), found.y.tolist(), strict=True))
        assert rows == twin.range_query(box, literals, after, last)
        x, y = rng.integers(0, 9, 2).astype(float).tolist()
        k = int(rng.choice([1, 3, 10, 1_000]))
        for bound in (np.inf, 3.0):
            near = store.nearest(x, y, k, literals, after, last, bound)
            assert near.distance is not None
            columns = (near.distance, near.t, near.ids.to_pylist(), near.x, near.y)
            assert [tuple(row) for row in zip(*columns, strict=True)] == twin.nearest(
                x, y, k, literals, after, last, bound
            )
        terms, counts = store.term_counts(box, literals, after, last)
        assert dict(zip(terms.to_pylist(), counts.tolist(), strict=True)) == twin.term_counts(
            box, literals, after, last
        )


def test_many_subscriptions_of_single_words() -> None:
    """A million of them are `make bench ARGS=crq`; some thousands here, in several calls, and every match."""
    rng, n = np.random.default_rng(11), 6_000
    words = [f"w{i}" for i in range(200)]
    drawn = np.minimum(rng.zipf(1.5, (n, 3)) - 1, 199)
    corners = rng.integers(0, 8, (n, 2)).astype(float)
    records = [
        {"id": f"q{i}", "type": "CRQ", "t": 0, "region": {"box": [*corner, corner[0] + 1, corner[1] + 1]}}
        | {"any": [[words[each]] for each in of_query]}
        for i, (corner, of_query) in enumerate(zip(corners.tolist(), drawn.tolist(), strict=True))
    ]
    queries = QueryBatch.of([parse_query(record, PLANE) for record in records])
    index = ContinuousRangeIndex(PLANE)
    for first in range(0, n, 2_500):
        rows = np.arange(first, min(first + 2_500, n))
        index.register(rows, queries.take(rows))
    objects = [
        SpatialObject(f"o{i}", i, *place, tuple(words[each] for each in sorted({*terms})))
        for i, (place, terms) in enumerate(
            zip(rng.random((300, 2)).tolist(), np.minimum(rng.zipf(1.3, (300, 4)) - 1, 199).tolist(), strict=True)
        )
    ]

    found = {
        (first + int(o), int(q))
        for first, part in index.match(ObjectBatch.of(objects))
        for o, q in zip(part.object, part.number, strict=True)
    }

    wanted = [{words[each] for each in of_query} for of_query in drawn.tolist()]
    here = np.flatnonzero((corners == 0.0).all(axis=1)).tolist()
    assert found == {(o, q) for o, each in enumerate(objects) for q in here if wanted[q] & {*each.terms}}
    assert len(found) > 1_000
