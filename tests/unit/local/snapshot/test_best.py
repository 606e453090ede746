"""The search for the best objects of a slot: nothing is pruned that belongs to the answer."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.snapshot.best import RankedAsk, node_bound
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.zorder import node_start
from spatialstream.local.wordtable import to_arrow
from spatialstream.model.expressions import Expression
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.properties.condition import cql2_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import Properties
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import ranking as oracle
from spatialstream.oracle.conditions import satisfies
from tests.lengths import examples
from tests.streams import repeated

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
WORDS = tuple(f"w{i}" for i in range(12))
T = 10_000


def drawn(chance: random.Random, space: Space, n: int, counts: bool = False) -> list[SpatialObject]:
    """Objects in clusters, some with the same place, time or id; words by Zipf's law, w0 in nearly all."""
    centres = [(chance.uniform(space.west, space.east), chance.uniform(space.south, space.north)) for _ in range(5)]
    found: list[SpatialObject] = []
    for i in range(n):
        x, y = chance.choice(centres)
        spread = (space.east - space.west) * chance.choice([0.0, 0.001, 0.02])
        x = min(max(chance.gauss(x, spread), space.west), space.east)
        y = min(max(chance.gauss(y, spread), space.south), space.north)
        weights = [1.0 / (rank + 1) ** 1.2 for rank in range(len(WORDS))]
        terms = tuple(dict.fromkeys(chance.choices(WORDS, weights, k=chance.randrange(6))))
        said = (("priority", float(chance.randrange(5))),) if chance.random() < 0.8 else ()
        found.append(SpatialObject(f"o{i % (n // 2 + 1)}", chance.randrange(T), x, y, terms, said))
    return [repeated(o, chance) for o in found] if counts else found


def ranking_of(chance: random.Random, space: Space) -> Ranking:
    words = tuple(sorted(chance.sample(WORDS, chance.choice([1, 2, 5]))))
    counts = tuple(chance.choice([1, 3]) for _ in words) if chance.random() < 0.3 else ()
    radius = chance.choice([0.003, 0.05, 0.3]) * (1e7 if space.geographic else 1.0)
    expansions, static = chance.choice([1, 3]), chance.random() < 0.5
    if chance.random() < 0.3:
        return Ranking(words, radius, expansions, None, (2_000, 9_000), (0.3, 0.3, 0.4), static, (), counts)
    share, half_life = chance.choice([0.0, 0.2, 0.8, 1.0]), chance.choice([10, 2_000, 100_000])
    return Ranking(words, radius, expansions, half_life, None, (share, 0.0, 1.0 - share), static, (), counts)


def corpus_of(objects: list[SpatialObject]) -> CorpusTable:
    counted = oracle.Corpus.of(o.terms for o in objects)
    words = sorted(counted.frequency)
    frequencies = np.array([counted.frequency[word] for word in words], np.int64)
    return CorpusTable.of(0, counted.objects, pa.array(words, pa.string()), frequencies)


def score_of(o: SpatialObject, at: tuple[float, float], space: Space, by: Ranking, radius: float, corpus: Any) -> float:
    """By the oracle."""
    s = oracle.space_score(space.distance(*at, o.x, o.y), radius)
    text = oracle.text_score(o.said, by.asked, corpus, by.static)
    if by.half_life is not None:
        return oracle.decayed(by.shares[0], s, text, oracle.decay(T - o.t, by.half_life))
    assert by.between is not None
    first, last = by.between
    return oracle.over_interval(by.shares, s, 1.0 - (o.t - first) / (last - first), text)


DECLARED = Properties.parse(["priority:number"])
CONDITIONS = (None, None, "priority >= 3", "priority = 4", "priority = 7", "NOT (priority >= 1 OR priority IS NULL)")


@pytest.mark.parametrize("seed", range(examples(60, 1_000)))
def test_the_best_are_those_of_brute_force(seed: int) -> None:
    chance = random.Random(seed)
    space = (WGS84, PLANE)[seed % 2]
    objects = drawn(chance, space, chance.choice([0, 3, 300, 1_500]), counts=seed % 3 == 0)
    store = SegmentStore(space)
    for part in range(3):
        if objects[part::3]:
            store.append(ObjectBatch.of(objects[part::3]))
    by, k = ranking_of(chance, space), chance.choice([1, 5, 40])
    at = (objects[0].x, objects[0].y) if objects else (0.5, 0.5)
    keywords = chance.choice([(), ("w0",), ("0|w0", "1|w1", "1|w2"), ("!w0",)])
    condition = chance.choice(CONDITIONS)
    where = None if condition is None else parse_where(condition, DECLARED)
    keywords = (*keywords, *Expression(where=where).literals)
    times = (chance.choice([-1, T // 2]), T) if by.between is None else (by.between[0] - 1, by.between[1])
    found = store.best(at, k, by, keywords, times, T, corpus_of(objects))
    counted, text = oracle.Corpus.of(o.terms for o in objects), Expression.of(keywords)
    candidates = [
        (space.distance(*at, o.x, o.y), o)
        for o in objects
        if {*o.terms} & {*by.words} and text.holds(o.terms) and times[0] < o.t <= times[1]
        if where is None or satisfies(cql2_of(where), dict(o.properties))
    ]
    rows = found.rows
    columns = (rows.distance, rows.t, rows.ids, rows.x, rows.y)
    here = list(zip(*(column.tolist() for column in columns), strict=True))
    near = sorted(d for d, _ in candidates)
    own = by.multiple(near[k - 1] if len(near) >= k else math.inf)
    for i in range(1, own + 1):  # whatever the radius will be, the best within it are among what is found
        radius = i * by.radius
        wanted = sorted(
            (score_of(o, at, space, by, radius, counted), -o.t, o.id, o.x, o.y, d) for d, o in candidates if d <= radius
        )[:k]
        for _, minus_t, name, x, y, d in wanted:
            assert (d, -minus_t, name, x, y) in here
    assert len(here) < 2 * k or own == 1
    textual = {(t, name, x, y): text for (_, t, name, x, y), text in zip(here, found.textual.tolist(), strict=True)}
    for _, o in candidates:
        if (key := (o.t, o.id, o.x, o.y)) in textual:
            same = [each for _, each in candidates if (each.t, each.id, each.x, each.y) == key]
            assert textual[key] in [oracle.text_score(each.said, by.asked, counted, by.static) for each in same]


@given(st.integers(0, 10**9))
def test_no_bound_exceeds_the_score_of_anything_in_its_node(seed: int) -> None:
    chance = random.Random(seed)
    space = (WGS84, PLANE)[seed % 2]
    objects = drawn(chance, space, 200, counts=seed % 3 == 0)
    by, at, table = ranking_of(chance, space), (objects[0].x, objects[0].y), corpus_of(objects)
    s = Segment.build(space, ObjectBatch.of(objects)).columns
    ask = RankedAsk.of(space, at, by, Expression(), (-1, T), T, table)
    counted = oracle.Corpus.of(o.terms for o in objects)
    known = {word: i for i, word in enumerate(to_arrow(s.word_offsets, s.words).to_pylist())}
    if by.between is not None:
        objects = [o for o in objects if by.between[0] <= o.t <= by.between[1]]
    near = [o for o in objects if {*o.terms} & {*by.words} and space.distance(*at, o.x, o.y) <= by.radius]
    checked = 0
    for level in range(7):
        for prefix in {chance.randrange(4**level) for _ in range(12)}:
            lo = node_start(s, level, prefix, 0, len(s.x))
            hi = node_start(s, level, prefix + 1, lo, len(s.x))
            node = [0, level, prefix, lo, hi]
            for word in by.words:
                code = known.get(word)
                first, last = (0, 0) if code is None else s.posting_offsets[code : code + 2]
                node += (first + np.searchsorted(s.postings[first:last], [lo, hi])).tolist()
            bound = node_bound(s, ask, by.radius, np.array(node, np.int64))
            there = {(float(s.x[i]), float(s.y[i]), int(s.t[i])) for i in range(lo, hi)}
            inside = [o for o in near if (o.x, o.y, o.t) in there]
            assert all(bound <= score_of(o, at, space, by, by.radius, counted) for o in inside)
            checked += len(inside)
    assert checked >= len(near)


def test_most_objects_of_a_large_segment_are_not_looked_at() -> None:
    chance = random.Random(5)
    objects = [
        SpatialObject(f"o{i}", T - i % 50, chance.random(), chance.random(), (chance.choice(WORDS), f"r{i % 997}"))
        for i in range(30_000)
    ]
    store = SegmentStore(PLANE)
    store.append(ObjectBatch.of(objects))
    table, by = corpus_of(objects), Ranking(("w1", "w2"), 0.2, 1, 1_000, shares=(0.8, 0.0, 0.2))
    checked = store.best((0.5, 0.5), 5, by, (), (-1, T), T, table).checked
    matching = sum(bool({*o.terms} & {*by.words}) for o in objects if math.dist((0.5, 0.5), (o.x, o.y)) <= 0.2)
    assert 5 <= checked < matching / 3
