"""Continuous queries that move between slots and back, while objects do not move: compared with brute force."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.local.range.crq import ContinuousRangeIndex, Tiering
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch, TopTerms
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.space import Space
from tests.unit.local.continuous import LAST, PLACES, PLANE, WORDS, Epoch, Stream, order, streams
from tests.unit.local.terms.test_ctq import REGIONS, Row, expected, queries_in, rows_of
from tests.unit.memory_files import MemoryFiles

SLOTS = 3
LEAVES = [
    {place for place in PLACES[PLANE] if (place[0] >= 2.0, place[1] >= 1.0) == side}
    for side in ((False, False), (False, True), (True, False), (True, True))
]
Index = ContinuousRangeIndex | ContinuousTermsIndex


def leaves_of(query: Query) -> set[int]:
    """The leaves whose objects a query may see; some leaf, in any case, so that some slot reports its steps."""
    region = Regions.of([query.predicate.region])
    return {i for i, places in enumerate(LEAVES) if any(region.contain(PLANE, 0, *place) for place in places)} or {0}


@dataclass
class Router:
    """The owner of each leaf; moves the queries of a leaf when it is assigned to another slot."""

    stream: Stream
    slots: list[Index]
    owner: list[int] = field(default_factory=lambda: [0, 1, 2, 0])
    lost: dict[tuple[int, int], int] = field(default_factory=dict)
    """(slot, query) -> when the slot lost the query's last leaf."""

    def __post_init__(self) -> None:
        self.leaves = [leaves_of(query) for query in self.stream.queries]

    def owners(self, number: int) -> set[int]:
        return {self.owner[leaf] for leaf in self.leaves[number]}

    def admit(self, numbers: list[int]) -> None:
        for slot in range(SLOTS):
            mine = [number for number in numbers if slot in self.owners(number)]
            self.slots[slot].register(*self.stream.batch(mine))

    def move(self, leaf: int, to: int, upto: int, last: int) -> None:
        """Steps up to ``upto`` have been reported; the objects so far, up to ``last``, went to the old owner."""
        before = [self.owners(number) for number in range(len(self.stream.queries))]
        old, self.owner[leaf] = self.owner[leaf], to
        numbers, queries = self.slots[old].continuous(upto)
        queries = QueryBatch.from_arrow(queries.to_arrow())
        concerned = np.array([leaf in self.leaves[number] for number in numbers], np.bool_)
        wanted = np.flatnonzero(concerned & ~self.slots[to].known(numbers))
        self.slots[to].register(numbers[wanted], queries.take(wanted))
        for number in range(len(self.stream.queries)):
            self.lost.pop((to, number), None) if leaf in self.leaves[number] else None
            for slot in before[number] - self.owners(number):
                self.lost[slot, number] = last

    def release(self, upto: int) -> None:
        """Drop the queries of lost leaves whose windows no longer reach back to when they were lost."""
        for (slot, number), when in list(self.lost.items()):
            if upto >= when + (self.stream.queries[number].lifetime.window or 0) - 1:
                self.slots[slot].drop(np.array([number, 999], np.int64))
                del self.lost[slot, number]

    def objects_of(self, slot: int, epoch: Epoch) -> ObjectBatch:
        return ObjectBatch.of([o for o in epoch.objects if self.owner_of(o) == slot])

    def owner_of(self, o: SpatialObject) -> int:
        return next(self.owner[i] for i, places in enumerate(LEAVES) if (o.x, o.y) in places)


def cancel(index: Index, epoch: Epoch) -> None:
    index.end_at(
        np.array([number for number, _ in epoch.cancelled] + [998], np.int64),
        np.array([t for _, t in epoch.cancelled] + [0], np.int64),
    )


def pairs(index: ContinuousRangeIndex, objects: ObjectBatch) -> list[tuple]:
    """(object, id of the query) of all matches."""
    return [
        (order(objects[first + o]), name)
        for first, matches in index.match(objects)
        for o, name in zip(matches.object.tolist(), index.ids_of(matches).to_pylist(), strict=True)
    ]


def expected_pairs(stream: Stream) -> list[tuple]:
    """Every match, from its definition."""
    return sorted(
        (order(o), query.id)
        for o in stream.objects
        for query, end in zip(stream.queries, stream.end, strict=True)
        if query.t <= o.t < min(query.t + query.lifetime.duration, end)
        and query.predicate.expression.holds(o.terms)
        and Regions.of([query.predicate.region]).contain(stream.space, 0, o.x, o.y)
    )


def range_queries(space: Space) -> st.SearchStrategy[list[Query]]:
    query = st.builds(
        lambda t, region, keywords, duration: (t, Predicate(region, tuple(keywords)), Everything(), duration),
        st.integers(0, LAST // 2),
        st.sampled_from(REGIONS[space]),
        st.sets(st.sampled_from(WORDS), max_size=2).map(sorted),
        st.sampled_from([0, 1, 5, 7, 100]).map(lambda duration: Lifetime(duration, True)),
    )
    return st.lists(query, max_size=8).map(lambda parts: [Query(f"q{i}", *part) for i, part in enumerate(parts)])


moves = st.lists(st.tuples(st.integers(0, len(LEAVES) - 1), st.integers(0, SLOTS - 1)), max_size=4)


@given(data=st.data())
def test_steps_that_span_moves_are_the_sums_of_the_slots_partials(data):
    stream = data.draw(streams(queries_in(PLANE), PLANE))
    router = Router(stream, [ContinuousTermsIndex(PLANE) for _ in range(SLOTS)])
    files, rows = MemoryFiles(), []
    for epoch in stream.epochs:
        router.admit(epoch.numbers)
        upto, partials = epoch.before - 1, []
        for slot, index in enumerate(router.slots):
            cancel(index, epoch)
            index.match(router.objects_of(slot, epoch))
            partials += index.steps(upto)
            index.expire(upto)
        rows += rows_of(partials)
        for leaf, to in data.draw(moves):
            router.move(leaf, to, upto, epoch.before)
        router.release(upto)
        if epoch.restart:
            manifests = [index.checkpoint(files.write) for index in router.slots]
            router.slots = [ContinuousTermsIndex.restore(PLANE, manifest, files.read) for manifest in manifests]

    assert rows == expected(stream)


@given(data=st.data())
def test_an_object_is_matched_once_wherever_its_queries_are(data):
    stream = data.draw(streams(range_queries(PLANE), PLANE))
    tiering = Tiering(tail=2, ratio=2, full=6, large=4)
    router = Router(stream, [ContinuousRangeIndex(PLANE, tiering) for _ in range(SLOTS)])
    files, found = MemoryFiles(), []
    for epoch in stream.epochs:
        router.admit(epoch.numbers)
        upto = epoch.before - 1
        for slot, index in enumerate(router.slots):
            cancel(index, epoch)
            objects = router.objects_of(slot, epoch)
            found += pairs(index, objects)
            index.expire(upto)
        for leaf, to in data.draw(moves):
            router.move(leaf, to, upto, epoch.before)
        router.release(upto)
        if epoch.restart:
            manifests = [index.checkpoint(files.write) for index in router.slots]
            router.slots = [
                ContinuousRangeIndex.restore(PLANE, manifest, files.read, tiering) for manifest in manifests
            ]

    assert sorted(found) == expected_pairs(stream)


@dataclass
class Registered:
    """A registration in the reference."""

    query: Query
    end: int
    seen: list[SpatialObject] = field(default_factory=list)


class TermsTwin:
    """The definition: a query counts the objects that come after it was registered, in the steps not yet reported."""

    def __init__(self) -> None:
        self.upto, self.queries = -(10**9), dict[int, Registered]()

    def unfinished(self, now: int) -> dict[int, Registered]:
        return {
            number: continuous
            for number, continuous in sorted(self.queries.items())
            if any(step > max(now, self.upto) for step in self.steps(continuous))
        }

    @staticmethod
    def steps(continuous: Registered) -> range:
        step = continuous.query.lifetime.step
        return range(continuous.query.t + step, continuous.end + 1, step)

    def step(self, upto: int) -> list[Row]:
        rows = []
        for continuous in self.queries.values():
            query = continuous.query
            for now in self.steps(continuous):
                if self.upto < now <= upto:
                    inside = [o for o in continuous.seen if max(query.t, now - query.lifetime.window + 1) <= o.t <= now]
                    counts = Counter(term for o in inside for term in o.terms)
                    rows.append((now, query.id, sorted(counts.items(), key=lambda c: (-c[1], c[0]))[: query.k]))
        self.upto = max(self.upto, upto)
        return sorted(rows, key=lambda row: row[:2])

    def update(self, objects: list[SpatialObject]) -> None:
        for continuous in self.queries.values():
            predicate = continuous.query.predicate
            region = Regions.of([predicate.region])
            continuous.seen += [
                o for o in objects if predicate.expression.holds(o.terms) and region.contain(PLANE, 0, o.x, o.y)
            ]


def term_operations() -> st.SearchStrategy[list[tuple]]:
    times = st.integers(0, LAST)
    region = st.sampled_from([Box(0.0, 0.0, 2.0, 1.0), Box(0.0, 0.0, 2.0, 1.5), Circle(1.0, 1.0, 1.0)])
    lifetime = st.builds(
        lambda duration, window, step: Lifetime(duration, True, window, step),
        st.sampled_from([3, 8, 30]),
        st.sampled_from([0, 2, 5, 100]),
        st.sampled_from([1, 2, 5]),
    )
    # most have a group in common
    usual = st.tuples(st.sampled_from([0, 2, 4, 6, 8]), region, st.just(()), st.just(Lifetime(30, True, 5, 2)))
    query = st.one_of(usual, usual, st.tuples(times, st.none(), st.just(("x",)), lifetime))
    thing = st.builds(
        lambda i, t, place, terms: SpatialObject(i, t, *place, tuple(sorted(terms))),
        st.sampled_from("ab"),
        times,
        st.sampled_from(PLACES[PLANE][:6]),
        st.sets(st.sampled_from(WORDS), min_size=1),
    )
    numbers = st.integers(0, 5)
    return st.lists(
        st.one_of(
            st.tuples(st.just("register"), st.dictionaries(numbers, query, min_size=1)),
            st.tuples(st.just("update"), st.lists(thing, min_size=1, max_size=6)),
            st.tuples(st.just("step"), times),
            st.tuples(st.just("drop"), st.sets(numbers)),
            st.tuples(st.just("end_at"), st.tuples(numbers, times)),
            st.tuples(st.just("restart"), st.none()),
        ),
        max_size=24,
    )


@given(history=term_operations())
def test_a_registration_counts_what_comes_after_it_in_any_order_of_time(history):
    index, twin, files = ContinuousTermsIndex(PLANE), TermsTwin(), MemoryFiles()
    for name, argument in [*history, ("step", 50)]:
        if name == "register":
            new = {number: parts for number, parts in sorted(argument.items()) if number not in twin.queries}
            queries = [Query(f"q{n}", t, Predicate(r, k), TopTerms(2), life) for n, (t, r, k, life) in new.items()]
            batch, numbers = QueryBatch.of(queries), np.array(list(new), np.int64)
            index.register(numbers, batch)
            twin.queries |= {n: Registered(q, q.t + q.lifetime.duration) for n, q in zip(new, queries, strict=True)}
        elif name == "update":
            objects = sorted(argument, key=lambda o: (o.t, o.id, o.x, o.y))
            index.match(ObjectBatch.of(objects))
            twin.update(objects)
        elif name == "step":
            assert rows_of(list(index.steps(argument))) == twin.step(argument)
            index.expire(argument)
        elif name == "drop":
            index.drop(np.array([*argument, 99], np.int64))
            twin.queries = {number: each for number, each in twin.queries.items() if number not in argument}
        elif name == "end_at":
            number, t = argument
            index.end_at(np.array([number]), np.array([t]))
            if number in twin.queries:
                twin.queries[number].end = min(twin.queries[number].end, t - 1)
        else:
            index = ContinuousTermsIndex.restore(PLANE, index.checkpoint(files.write), files.read)
        assert index.known(np.arange(7)).tolist() == [number in twin.unfinished(-1) for number in range(7)]
        compare_continuous(index, twin, LAST // 2)


def compare_continuous(index: ContinuousTermsIndex, twin: TermsTwin, now: int) -> None:
    numbers, queries = index.continuous(now)
    expected = twin.unfinished(now)
    assert numbers.tolist() == list(expected)
    for i, each in enumerate(expected.values()):
        lifetime = each.query.lifetime
        left = Lifetime(each.end - each.query.t, True, lifetime.window, lifetime.step)
        assert queries[i] == Query(each.query.id, each.query.t, each.query.predicate, each.query.selection, left)


def test_a_window_that_spans_a_move_is_the_sum_of_both_slots():
    query = QueryBatch.of([Query("q", 0, Predicate(), TopTerms(2), Lifetime(40, True, 10, 5))])
    zero = np.zeros(1, np.int64)
    old, new = ContinuousTermsIndex(PLANE), ContinuousTermsIndex(PLANE)
    old.register(zero, query)
    old.match(ObjectBatch.of([SpatialObject("a", 3, 0.0, 0.0, ("x",)), SpatialObject("b", 7, 0.0, 0.0, ("y",))]))
    assert list(new.steps(7)) == []
    assert rows_of(list(old.steps(7))) == [(5, "q", [("x", 1)])]

    new.register(zero, query)
    new.match(ObjectBatch.of([SpatialObject("c", 8, 0.0, 0.0, ("x",)), SpatialObject("d", 16, 0.0, 0.0, ("y",))]))
    assert rows_of([*old.steps(16), *new.steps(16)]) == [
        (10, "q", [("x", 2), ("y", 1)]),
        (15, "q", [("x", 1), ("y", 1)]),
    ]
    old.drop(zero)
    assert rows_of([*old.steps(20), *new.steps(20)]) == [(20, "q", [("y", 1)])]
    assert not old.known(zero).any()


def test_a_query_does_not_count_what_its_group_counted_before_it_came():
    queries = QueryBatch.of([Query(f"q{i}", 0, Predicate(), TopTerms(2), Lifetime(40, True, 10, 5)) for i in range(2)])
    index = ContinuousTermsIndex(PLANE)
    for i, term in enumerate(["x", "y"]):
        one = queries.take(np.array([i]))
        index.register(np.array([i]), one)
        index.match(ObjectBatch.of([SpatialObject(term, 3, 0.0, 0.0, (term,))]))

    assert rows_of(list(index.steps(5))) == [(5, "q0", [("x", 1), ("y", 1)]), (5, "q1", [("y", 1)])]
