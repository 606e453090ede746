"""A hundred thousand ranked queries of each type beside the oracle, in small worlds that are full of ties.

A world has up to 24 objects at up to six places, among them poles and both sides of the antimeridian, with few times,
ids and words; in some all objects have a word, which weighs nothing. Many radii are the distance of a place, or a
fraction of it, so that objects lie exactly on the border of the disk, or of a multiple of it. Worlds are drawn by a
generator of their own, because hypothesis takes longer for one than all else here. At length
(``HYPOTHESIS_PROFILE=explore``) there are 100,000 queries of each type, and 2,000 with each change.

- SBQ: segments of one to three slots, or their views of a moment before more came; each row is the oracle's, to the
  bit.
- CBQ: slots that are cut into epochs and restored, and their merger; each change of each answer is the oracle's.
- The bound of the search: no node's exceeds the score of anything in it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.local.snapshot.best import RankedAsk, node_bound
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.zorder import node_start
from spatialstream.local.wordtable import to_arrow
from spatialstream.model.expressions import Expression, absorbed
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Best, Lifetime, Predicate, Query
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Circle
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers
from spatialstream.oracle import ranking as oracle
from spatialstream.stages.kinds.best import SnapshotBest
from tests.lengths import examples
from tests.streams import repeated
from tests.unit.local.best.test_cbq import BestRun, expected
from tests.unit.local.continuous import Epoch, Stream, order
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(-8.0, -8.0, 8.0, 8.0)
PLACES = {
    PLANE: [(x, y) for x in (-8.0, -4.0, 0.0, 2.0, 8.0) for y in (-8.0, 0.0, 1.0, 8.0)],
    WGS84: [
        *[(180.0, 0.0), (-180.0, 0.0), (179.5, -17.25), (-179.5, -17.25), (0.0, 0.0), (-149.9, 61.2)],
        *[(0.0, 90.0), (123.0, 90.0), (0.0, -90.0), (-180.0, -90.0), (-45.0, 89.5), (135.0, 89.5), (139.7, 35.7)],
    ],
}
FARTHEST = {PLANE: 22.0, WGS84: 2.0e7}
WORDS = ("a", "b", "c", "fire", "水", "all")
SPAN = 20
"""Times of objects are of so many ms."""

ASKED = 20
"""Queries in a world."""


@dataclass
class Seen:
    """How many of the cases were what the worlds are for."""

    cases: int = 0
    ties: int = 0
    on_border: int = 0
    grown: int = 0
    weightless: int = 0
    cut: int = 0

    def check(self, share: float) -> None:
        """At least this share of the cases was so, in each respect."""
        assert min(vars(self).values()) >= share * self.cases, vars(self)


@dataclass
class World:
    """Objects in the order in which they come."""

    chance: random.Random
    space: Space
    pool: list[tuple[float, float]]
    objects: list[SpatialObject]
    start: int
    interval: int

    @classmethod
    def drawn(cls, seed: int) -> World:
        chance = random.Random(seed)
        space = (PLANE, WGS84)[seed % 2]
        pool = chance.choices(PLACES[space], k=chance.randint(1, 5))
        pool.append((chance.uniform(space.west, space.east), chance.uniform(space.south, space.north)))
        start, shared = chance.choice([0, -7, 1_517_966_773_840]), chance.random() < 0.3
        found = []
        for _ in range(chance.randrange(25)):
            terms = chance.sample(WORDS, chance.choice([0, 1, 1, 2, 3, 5]))
            terms += ["all"] if shared and "all" not in terms else []
            t, name = start + chance.randrange(SPAN), f"o{chance.randrange(12)}"
            found.append(SpatialObject(name, t, *chance.choice(pool), tuple(terms)))
        if chance.random() < 0.4:
            found = [repeated(o, chance) for o in found]
        return cls(chance, space, pool, found, start, chance.choice([1, 5, 8, 300_000]))

    def point(self) -> tuple[float, float]:
        """Where a query is."""
        return self.chance.choice(self.pool if self.chance.random() < 0.8 else PLACES[self.space])

    def radius(self, at: tuple[float, float], expansions: int) -> float:
        """The distance of a place, or a fraction of it, or any."""
        exact = self.space.distance(*at, *self.chance.choice(self.pool)) / self.chance.choice([1, 1, 2, 3, 4])
        most = FARTHEST[self.space] / expansions
        return min(exact, most) if exact > 0.0 and self.chance.random() < 0.7 else most * self.chance.random() + 1e-3

    def words(self) -> tuple[str, ...]:
        """The words of a query, with one that no object has."""
        return tuple(sorted(self.chance.sample((*WORDS, "none"), self.chance.choice([1, 1, 2, 4]))))

    def counts(self, words: tuple[str, ...]) -> tuple[int, ...]:
        """How often a query has its words, where that is counted."""
        if not any(o.counts for o in self.objects) or self.chance.random() < 0.5:
            return ()
        return tuple(self.chance.choice([1, 2, 7]) for _ in words)

    def text(self) -> Expression:
        """A filter; mostly there is none."""
        chance = self.chance
        if chance.random() < 0.7:
            return Expression()
        none = tuple(chance.sample(WORDS, chance.randrange(2)))
        groups = absorbed(chance.sample(WORDS, chance.randint(1, 2)) for _ in range(chance.randint(1, 3)))
        return Expression(groups[0], (), none) if len(groups) == 1 else Expression((), groups, none)


# ----------------------------------------------------------------------------------------------------------------- SBQ


class Tables:
    """The corpus tables of some objects, counted when they are needed."""

    def __init__(self, objects: Iterable[SpatialObject], interval: int) -> None:
        self.objects, self.interval = list(objects), interval
        self.there: dict[int, CorpusTable] = {}

    def of(self, t: int) -> CorpusTable:
        at = t // self.interval * self.interval
        if at not in self.there:
            self.there[at] = table_of(at, [o for o in self.objects if o.t <= at])
        return self.there[at]


def table_of(at: int, objects: list[SpatialObject]) -> CorpusTable:
    counts = Counter(word for o in objects for word in {*o.terms})
    words = sorted(counts)
    frequencies = np.array([counts[word] for word in words], np.int64)
    return CorpusTable.of(at, len(objects), pa.array(words, pa.string()), frequencies)


def snapshot(world: World, name: str) -> Query:
    """An SBQ."""
    chance, at, expansions = world.chance, world.point(), world.chance.choice([1, 1, 2, 3, 4, 64])
    radius, t, static = world.radius(at, expansions), world.start + chance.randrange(SPAN + 5), chance.random() < 0.3
    duration = chance.choice([0, 1, 5, 10, 1_000, 10**12])
    if chance.random() < 0.3:
        last = t - chance.randrange(5)
        first = last - chance.randint(1, 20)
        shares = chance.choice([(1 / 3, 1 / 3, 1 / 3), (0.0, 1.0, 0.0), (0.5, 0.25, 0.25), (0.0, 0.0, 1.0)])
        by = Ranking(world.words(), radius, expansions, None, (first, last), shares, static)
        duration = t - first + 1
    else:
        share = chance.choice([0.0, 0.2, 0.5, 1.0])
        shares, half_life = (share, 0.0, 1.0 - share), chance.choice([1, 5, 64, 100, 86_400_000])
        by = Ranking(world.words(), radius, expansions, half_life, None, shares, static)
    by = replace(by, counts=world.counts(by.words))
    text, k = world.text(), chance.choice([1, 1, 2, 3, 100])
    predicate = Predicate(Circle(*at, by.reach), text.keywords, text.any, text.none)
    return Query(name, t, predicate, Best(*at, k, by), Lifetime(duration))


def stores(world: World) -> Iterator[tuple[list[SpatialObject], list[Any]]]:
    """What is there at two moments, and who answers about it: views of the first, then the slots themselves."""
    chance, slots = world.chance, [SegmentStore(world.space, capacity=16) for _ in range(world.chance.randint(1, 3))]
    of = [chance.randrange(len(slots)) for _ in world.objects]
    half = chance.randrange(len(world.objects) + 1)

    def come(first: int, end: int) -> Tables:
        while first < end:
            next_ = min(end, first + chance.choice([1, 2, 25]))
            for slot, store in enumerate(slots):
                store.append(ObjectBatch.of([world.objects[i] for i in range(first, next_) if of[i] == slot]))
            first = next_
        return Tables(world.objects[:end], world.interval)

    views = []
    tables = come(0, half)
    for store in slots:
        store.corpora = tables
        views.append(store.view())
    tables = come(half, len(world.objects))
    for store in slots:
        store.corpora = tables
    yield world.objects[:half], views
    yield world.objects, slots


def test_every_snapshot_row_is_the_oracles() -> None:
    stage, seen = SnapshotBest(), Seen()
    for seed in range(examples(100, 5_000)):
        world = World.drawn(seed)
        for objects, slots in stores(world):
            for i in range(ASKED // 2):
                query = snapshot(world, f"q{i}")
                (row,), _ = answers(objects, [query], world.space, None, world.interval)
                since = query.t - query.lifetime.duration
                parts = [stage.search(each, query, since, alone=len(slots) == 1, within=np.inf) for each in slots]
                found = json.loads(f"{{{stage.answer(query, parts, world.space)}}}")
                assert {"query": query.id, "type": "SBQ", "t": query.t} | found == row, (seed, i, query)
                note(seen, world, query, row, objects)
    seen.check(0.01)


def note(seen: Seen, world: World, query: Query, row: dict[str, Any], objects: list[SpatialObject]) -> None:
    """Count what a case had."""
    best = query.selection
    assert isinstance(best, Best)
    by, listed = best.ranking, row["objects"]
    scores = [each["score"] for each in listed]
    corpus = oracle.Corpus.of(o.terms for o in objects if o.t <= row["corpus"])
    seen.cases += 1
    seen.ties += len({*scores}) < len(scores)
    seen.on_border += any(each[world.space.distance_field] == row["radius"] for each in listed)
    seen.grown += row["radius"] > by.radius and len(listed) > 0
    seen.weightless += len(listed) > 0 and not any(corpus.weight(word) for word in by.words)
    seen.cut += len(listed) == query.k


# ----------------------------------------------------------------------------------------------------------------- CBQ


def standing(world: World, name: str) -> Query:
    """A CBQ, with the weights of its words."""
    chance, at, words = world.chance, world.point(), world.words()
    radius, share = world.radius(at, 1), chance.choice([0.0, 0.2, 0.5, 1.0])
    weights = tuple(chance.choice([0, 1, 16_384, 300_000]) for _ in words)
    shares, half_life = (share, 0.0, 1.0 - share), chance.choice([1, 3, 1000])
    by = Ranking(words, radius, 1, half_life, shares=shares, static=True, weights=weights)
    text, k = world.text(), chance.choice([1, 1, 2, 3, 2**31 - 1])
    predicate = Predicate(Circle(*at, radius), text.keywords, text.any, text.none)
    lifetime = Lifetime(chance.choice([1, 6, 100]), True, chance.choice([None, None, 0, 1, 3, 5, 100]))
    return Query(name, chance.randrange(SPAN // 2), predicate, Best(*at, k, by), lifetime)


def stream_of(world: World) -> Stream:
    """The objects and queries of a world, cut into epochs, some of which end with a restart."""
    chance, start = world.chance, world.start
    objects = sorted((replace(o, t=o.t - start) for o in world.objects), key=order)
    queries = [standing(world, f"q{i}") for i in range(ASKED)]
    end = [10**9 if chance.random() < 0.8 else query.t + chance.randrange(6) for query in queries]
    cuts = [0, *sorted(chance.sample(range(1, SPAN), chance.randrange(4))), SPAN + 10]
    slots, epochs = chance.randint(1, 3), []
    for first, last in pairwise(cuts):
        come = [o for o in objects if first <= o.t < last]
        epochs.append(
            Epoch(
                [i for i, query in enumerate(queries) if first <= query.t < last],
                [(i, t) for i, t in enumerate(end) if first <= t < last],
                come,
                [chance.randrange(slots) for _ in come],
                last,
                last - 1,
                restart=chance.random() < 0.1,
            )
        )
    return Stream(world.space, queries, end, objects, slots, epochs)


def test_every_change_of_a_continuous_answer_is_the_oracles() -> None:
    rows, queries = 0, 0
    for seed in range(examples(100, 5_000)):
        stream = stream_of(World.drawn(seed))
        right = expected(stream)
        assert BestRun(stream, MemoryFiles()).whole() == right, seed
        rows, queries = rows + len(right), queries + len(stream.queries)
    assert 2 * rows > queries


# --------------------------------------------------------------------------------------------------------------- bound


@dataclass
class Nodes:
    """The nodes of a segment's tree that have objects, down to a level, with the postings of a query's words."""

    s: Any
    most: int = 7
    known: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.known = {word: i for i, word in enumerate(to_arrow(self.s.word_offsets, self.s.words).to_pylist())}

    def of(self, words: tuple[str, ...]) -> Iterator[tuple[np.ndarray, range]]:
        """Each node as the search has it, and the positions in it."""
        waiting = [(0, 0, 0, len(self.s.x))]
        while waiting:
            level, prefix, lo, hi = waiting.pop()
            if lo == hi:
                continue
            yield np.array([0, level, prefix, lo, hi, *self._postings(words, lo, hi)], np.int64), range(lo, hi)
            if level < self.most:
                starts = [lo, *(node_start(self.s, level + 1, 4 * prefix + i, lo, hi) for i in (1, 2, 3)), hi]
                waiting += [(level + 1, 4 * prefix + i, starts[i], starts[i + 1]) for i in range(4)]

    def _postings(self, words: tuple[str, ...], lo: int, hi: int) -> list[int]:
        found: list[int] = []
        for word in words:
            code = self.known.get(word)
            first, last = (0, 0) if code is None else self.s.posting_offsets[code : code + 2].tolist()
            found += (first + np.searchsorted(self.s.postings[first:last], [lo, hi])).tolist()
        return found


def test_no_bound_exceeds_the_score_of_anything_in_its_node() -> None:
    pairs = 0
    for seed in range(examples(40, 2_000)):
        world = World.drawn(seed)
        if not world.objects:
            continue
        s = Segment.build(world.space, ObjectBatch.of(world.objects)).columns
        nodes, tables = Nodes(s), Tables(world.objects, world.interval)
        for i in range(5):
            query = snapshot(world, f"q{i}")
            best = query.selection
            assert isinstance(best, Best)
            radius, at = best.ranking.radius * world.chance.randint(1, best.ranking.expansions), (best.x, best.y)
            times = query.t - query.lifetime.duration, query.t
            if best.ranking.between is not None:
                times = best.ranking.between[0] - 1, best.ranking.between[1]
            given = world.space, at, best.ranking, Expression(), times, query.t, tables.of(query.t)
            ask, scores = RankedAsk.of(*given), scores_of(world, query, radius, times)
            for node, positions in nodes.of(best.ranking.words):
                bound = node_bound(s, ask, radius, node)
                there = [scores.get(place(s, position), []) for position in positions]
                assert all(bound <= score for each in there for score in each), (seed, i, node)
                pairs += sum(map(len, there))
    assert pairs > examples(40, 2_000) * 10


def place(s: Any, position: int) -> tuple[float, float, int]:
    return float(s.x[position]), float(s.y[position]), int(s.t[position])


def scores_of(
    world: World, query: Query, radius: float, times: tuple[int, int]
) -> dict[tuple[float, float, int], list[float]]:
    """By the oracle: the scores of the candidates by where and when they are."""
    best = query.selection
    assert isinstance(best, Best)
    by = best.ranking
    corpus = oracle.Corpus.of(o.terms for o in world.objects if o.t <= query.t // world.interval * world.interval)
    found: dict[tuple[float, float, int], list[float]] = {}
    for o in world.objects:
        d = world.space.distance(best.x, best.y, o.x, o.y)
        if d > radius or {*o.terms}.isdisjoint(by.words) or not times[0] < o.t <= times[1]:
            continue
        s, text = oracle.space_score(d, radius), oracle.text_score(o.said, by.asked, corpus, by.static)
        if by.half_life is not None:
            score = oracle.decayed(by.shares[0], s, text, oracle.decay(query.t - o.t, by.half_life))
        else:
            assert by.between is not None
            first, last = by.between
            score = oracle.over_interval(by.shares, s, 1.0 - (o.t - first) / (last - first), text)
        found.setdefault((o.x, o.y, o.t), []).append(score)
    return found
