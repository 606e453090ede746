from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.local.grid.matching import BLOCK
from spatialstream.local.range import crq
from spatialstream.local.range.crq import ContinuousRangeIndex, Tiering
from spatialstream.local.range.frequencies import TermFrequencies
from spatialstream.model.expressions import Expression
from spatialstream.model.kinds import CODE, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch, nobody
from spatialstream.model.regions import Regions
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermLists
from tests.streams import expressions
from tests.unit.local.grid.test_grid import WORDS, batch, boxes, circles, in_region, many, points, polygons, word_sets
from tests.unit.memory_files import MemoryFiles

SMALL = Tiering(tail=3, ratio=2, full=24, large=12)


class BruteContinuousRange:
    """Reference: a dictionary of queries, each of which is tested on every object."""

    def __init__(self, space):
        self.space, self.queries, self.horizon = space, {}, -(2**63)

    def register(self, numbers, queries):
        for i, number in enumerate(numbers.tolist()):
            start, duration = int(queries.t[i]), int(queries.duration[i])
            self.queries[number] = [
                queries.ids[i].as_py(),
                queries.regions[i],
                set(queries.keywords[i]),
                start,
                start + duration,
            ]

    def end_at(self, numbers, t):
        for number, end in zip(numbers.tolist(), t.tolist(), strict=True):
            if number in self.queries:
                self.queries[number][4] = min(self.queries[number][4], end)

    def expire(self, now):
        self.horizon = max(self.horizon, now)

    def drop(self, numbers):
        for number in numbers.tolist():
            self.queries.pop(number, None)

    def continuous(self, now):
        return [
            (number, name, region, keywords, start, end)
            for number, (name, region, keywords, start, end) in sorted(self.queries.items())
            if end > max(start, now, self.horizon)
        ]

    def known(self, numbers):
        alive = {number for number, *_ in self.continuous(self.horizon)}
        return [number in alive for number in numbers.tolist()]

    def observe(self, objects):
        pass

    def __len__(self):
        return sum(end > max(start, self.horizon) for *_, start, end in self.queries.values())

    def match(self, objects):
        return [
            (o, number, name)
            for o in range(len(objects))
            for number, (name, region, keywords, start, end) in sorted(self.queries.items())
            if start <= objects.t[o] < end
            and end > self.horizon
            and Expression.of(sorted(keywords)).holds(objects.terms[o])
            and in_region(self.space, region, objects.x[o], objects.y[o])
        ]


class Indexed:
    """The index with the interface of the reference."""

    tiering = crq.DEFAULT_TIERING

    def __init__(self, space):
        self.index = self.make(space)

    def make(self, space):
        return ContinuousRangeIndex(space, self.tiering)

    def __getattr__(self, name):
        return getattr(self.index, name)

    def __len__(self):
        return len(self.index)

    def match(self, objects):
        found = self.parts(objects, 1 << 20)
        assert self.parts(objects, 2) == found
        return found

    def parts(self, objects, limit):
        """The matches, which come in parts whose size is bounded."""
        found, at = [], 0
        for first, part in self.index.match(objects, limit):
            assert first == at
            assert len(part) <= limit or len(part.checked) == 1
            at += len(part.checked)
            ids = self.index.ids_of(part)
            assert ids.type == pa.string()
            names = ids.to_pylist()
            assert self.index.id_sizes(part).tolist() == [len(name.encode()) for name in names]
            found += zip((first + part.object).tolist(), part.number.tolist(), names, strict=True)
        assert at == len(objects)
        return found

    def continuous(self, now):
        numbers, queries = self.index.continuous(now)
        queries = QueryBatch.from_arrow(queries.to_arrow())
        found = []
        for i, number in enumerate(numbers.tolist()):
            query = queries[i]
            assert query.type == QueryType.CRQ
            predicate, end = query.predicate, query.t + query.lifetime.duration
            found.append((number, query.id, predicate.region, set(predicate.expression.literals), query.t, end))
        return found

    def known(self, numbers):
        return self.index.known(numbers).tolist()


class SmallTiers(Indexed):
    tiering = SMALL


class Restored(SmallTiers):
    """Goes through a checkpoint and back before and after every call."""

    def __init__(self, space):
        super().__init__(space)
        self.files = MemoryFiles()

    def _through_files(self):
        manifest = json.loads(json.dumps(self.index.checkpoint(self.files.write)))
        self.index = ContinuousRangeIndex.restore(self.index.space, manifest, self.files.read, SMALL)

    def __getattr__(self, name):
        self._through_files()
        return getattr(self.index, name)

    def match(self, objects):
        self._through_files()
        return super().match(objects)

    def continuous(self, now):
        self._through_files()
        return super().continuous(now)


IMPLEMENTATIONS = [BruteContinuousRange, Indexed, SmallTiers, Restored]


def columns(queries, first=0):
    """(region, keywords, start, end) of each query to what ``register`` takes."""
    n = len(queries)
    start, end = (np.array([query[i] for query in queries], np.int64) for i in (2, 3))
    absent = np.full(n, -1)
    return np.arange(first, first + n), QueryBatch(
        pa.array([f"q{i}" for i in range(first, first + n)], pa.string()),
        np.full(n, CODE[QueryType.CRQ], np.int8),
        start,
        end - start,
        absent,
        absent,
        np.zeros(n, np.int32),
        np.zeros((n, 2)),
        Regions.of([query[0] for query in queries]),
        TermLists.of([query[1] for query in queries]),
        nobody(n),
        nobody(n),
    )


def at(t, *numbers):
    """Numbers, and one time for all, to what ``end_at`` takes."""
    return np.array(numbers, np.int64), np.full(len(numbers), t)


def at_times(objects, times) -> ObjectBatch:
    result = batch(objects)
    result.t[:] = times
    return result


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda implementation: implementation.__name__)
def index(request):
    return request.param(WGS84)


ANYWHERE = (0.0, 0.0, ["a"])


class TestContract:
    def test_an_empty_index_matches_nothing(self, index):
        assert index.match(at_times([ANYWHERE], [0])) == []
        assert len(index) == 0

    def test_matches_come_by_object_then_number_with_the_ids(self, index):
        index.register(*columns([(None, ["a"], 0, 10), (None, [], 0, 10)]))
        index.register(*columns([(None, ["b"], 0, 10), (None, ["a"], 0, 10)], first=7))
        assert index.match(at_times([ANYWHERE, (0.0, 0.0, ["b"])], [1, 1])) == [
            (0, 0, "q0"),
            (0, 1, "q1"),
            (0, 8, "q8"),
            (1, 1, "q1"),
            (1, 7, "q7"),
        ]

    def test_a_life_holds_its_start_and_not_its_end(self, index):
        index.register(*columns([(None, [], 5, 7), (None, [], 6, 6)]))
        assert [o for o, *_ in index.match(at_times([ANYWHERE] * 4, [4, 5, 6, 7]))] == [1, 2]
        assert len(index) == 1

    def test_a_cancellation_brings_the_end_forward_and_never_back(self, index):
        index.register(*columns([(None, [], 0, 10)] * 3))
        index.end_at(*at(5, 1))
        index.end_at(*at(8, 1, 2))
        index.end_at(*at(100, 2))
        index.end_at(*at(0, 55))
        assert index.match(at_times([ANYWHERE] * 3, [4, 5, 8])) == [
            *((0, number, f"q{number}") for number in range(3)),
            (1, 0, "q0"),
            (1, 2, "q2"),
            (2, 0, "q0"),
        ]

    def test_a_cancellation_counts_before_and_after_the_query_was_first_matched(self, index):
        index.register(*columns([(None, [], 0, 10)] * 2))
        index.end_at(*at(3, 0))
        assert index.match(at_times([ANYWHERE], [3])) == [(0, 1, "q1")]
        index.end_at(*at(4, 1))
        assert index.match(at_times([ANYWHERE], [4])) == []
        assert len(index) == 2
        index.expire(3)
        assert len(index) == 1

    def test_a_cancellation_before_the_start_leaves_nothing(self, index):
        index.register(*columns([(None, [], 5, 10)]))
        index.end_at(*at(2, 0))
        assert index.match(at_times([ANYWHERE] * 3, [1, 2, 5])) == []
        assert len(index) == 0

    def test_the_expired_are_gone_for_good(self, index):
        index.register(*columns([(None, [], 0, end) for end in (5, 6, 7)]))
        index.expire(6)
        index.expire(2)
        assert index.match(at_times([ANYWHERE], [1])) == [(0, 2, "q2")]
        assert len(index) == 1
        index.expire(100)
        assert index.match(at_times([ANYWHERE], [1])) == []
        assert len(index) == 0

    def test_numbers_need_not_increase(self, index):
        index.register(*columns([(None, [], 0, 10)] * 5, first=100))
        index.register(*columns([(None, [], 0, 10)] * 5, first=50))
        index.end_at(*at(0, 52, 101))
        found = [number for _, number, _ in index.match(at_times([ANYWHERE], [0]))]
        assert found == [50, 51, 53, 54, 100, 102, 103, 104]

    def test_a_dropped_query_matches_nothing_until_it_is_registered_again(self, index):
        everything = at_times([ANYWHERE], [3])
        index.register(*columns([(None, [], 0, 10)] * 3))
        for _ in range(3):
            index.drop(np.array([1, 77]))
            assert [number for _, number, _ in index.match(everything)] == [0, 2]
            assert index.known(np.array([0, 1, 2, 77])) == [True, False, True, False]
            index.end_at(*at(2, 1))
            index.register(*columns([(None, ["a"], 0, 10)], first=1))
            assert [number for _, number, _ in index.match(everything)] == [0, 1, 2]
        index.end_at(*at(3, 1))
        assert [number for _, number, _ in index.match(everything)] == [0, 2]

    def test_a_cancellation_is_for_the_registration_that_is_there(self, index):
        index.register(*columns([(None, [], 0, 10)]))
        index.match(at_times([ANYWHERE], [0]))
        index.drop(np.array([0]))
        index.register(*columns([(None, [], 0, 1)], first=5))
        index.end_at(*at(2, 0))
        index.register(*columns([(None, [], 0, 10)]))
        index.end_at(*at(4, 0))
        assert index.match(at_times([ANYWHERE] * 3, [2, 3, 4])) == [(0, 0, "q0"), (1, 0, "q0")]

    def test_a_registered_query_has_its_cancellation_in_its_end(self, index):
        index.register(*columns([(None, ["a"], 2, 10), (None, [], 0, 4), (None, [], 5, 5)], first=4))
        index.register(*columns([(None, ["b", "c"], 1, 9)]))
        index.end_at(*at(7, 4))
        assert index.continuous(-1) == [
            (0, "q0", None, {"b", "c"}, 1, 9),
            (4, "q4", None, {"a"}, 2, 7),
            (5, "q5", None, set(), 0, 4),
        ]
        assert [number for number, *_ in index.continuous(4)] == [0, 4]
        index.expire(7)
        assert [number for number, *_ in index.continuous(0)] == [0]

    def test_no_rows_are_no_change(self, index):
        index.register(*columns([]))
        index.end_at(*at(0))
        assert index.match(at_times([], [])) == []

    def test_thousands_registered_one_at_a_time(self, index):
        queries, objects = many(WGS84, 300, 6)
        twin = BruteContinuousRange(WGS84)
        for number, (region, words) in enumerate(queries):
            one = columns([(region, words, number, number + 200)], first=number)
            index.register(*one)
            twin.register(*one)
        some = at_times(objects, np.arange(len(objects)))
        expected = twin.match(some)
        assert len(expected) > 500
        assert index.match(some) == expected


def operations():
    regions = st.one_of(st.none(), boxes(WGS84), circles(WGS84), polygons(WGS84))
    times = st.integers(0, 12)
    query = st.tuples(
        regions,
        st.one_of(word_sets(4), expressions(WORDS).map(lambda parts: list(Expression(*parts).literals))),
        times,
        times,
    )
    thing = st.builds(lambda p, words: (p[0], p[1], words), points(WGS84), word_sets(6))
    return st.lists(
        st.one_of(
            st.tuples(st.just("register"), st.lists(query, min_size=1, max_size=9)),
            st.tuples(st.just("end_at"), st.tuples(st.lists(st.integers(0, 60), max_size=8), times)),
            st.tuples(st.just("expire"), times),
            st.tuples(st.just("drop"), st.lists(st.integers(0, 30), max_size=20)),
            st.tuples(st.just("come back"), st.tuples(st.integers(0, 30), query)),
            st.tuples(st.just("continuous"), times),
            st.tuples(st.just("match"), st.lists(st.tuples(thing, times), max_size=6)),
        ),
        max_size=25,
    )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS[1:])
@given(history=operations())
@settings(max_examples=60)
def test_any_history_gives_the_matches_of_the_twin(implementation, history):
    index, twin, registered = implementation(WGS84), BruteContinuousRange(WGS84), 0
    everything = at_times([(x, 0.0, WORDS) for x in (-180.0, 0.0, 45.0, 180.0)], [0, 3, 6, 9])
    for name, argument in [*history, ("match", [])]:
        if name == "match":
            for objects in (at_times([o for o, _ in argument], [t for _, t in argument]), everything):
                index.observe(objects)
                assert index.match(objects) == twin.match(objects)
            assert len(index) == len(twin)
            continue
        if name == "continuous":
            assert index.continuous(argument) == twin.continuous(argument)
            assert index.known(np.arange(60)) == twin.known(np.arange(60))
            continue
        if name == "come back":
            if argument[0] >= registered or argument[0] in twin.queries:
                continue
            name, arguments = "register", columns([argument[1]], first=argument[0])
        elif name == "drop":
            arguments = (np.array(argument, np.int64),)
        elif name == "register":
            arguments = columns(argument, first=registered)
            registered += len(argument)
        elif name == "end_at":
            arguments = at(argument[1], *argument[0])
        else:
            arguments = (argument,)
        for each in (index, twin):
            getattr(each, name)(*arguments)


def random_queries(n, seed, life=1000):
    queries, objects = many(WGS84, n, seed)
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 100, n)
    return [(region, words, int(s), int(s) + life) for (region, words), s in zip(queries, start, strict=True)], objects


class TestTiers:
    def test_there_are_few_and_none_above_the_limit(self):
        index = ContinuousRangeIndex(WGS84, Tiering(tail=8, ratio=4, full=256, large=1 << 30))
        queries, _ = random_queries(1000, 7)
        for first in range(0, 1000, 5):
            index.register(*columns(queries[first : first + 5], first=first))
        assert len(index) == sum(index.tiers) == 1000
        assert max(index.tiers) <= 256
        assert len(index.tiers) <= 1000 // (256 * 4 / 5) + 5

    def test_a_bulk_above_the_limit_becomes_several(self):
        index = ContinuousRangeIndex(WGS84, Tiering(tail=8, full=100))
        index.register(*columns(random_queries(350, 8)[0]))
        assert index.tiers == [100, 100, 100, 50]

    def test_space_is_reclaimed_when_more_than_half_is_dead(self):
        index = ContinuousRangeIndex(WGS84, Tiering(tail=8, full=100))
        index.register(*columns([(None, [], 0, 10 + i) for i in range(100)]))
        index.expire(59)
        assert index.tiers == [100]
        index.expire(60)
        assert index.tiers == [49]
        index.expire(1000)
        assert index.tiers == []

    def test_cancelled_queries_are_reclaimed_too(self):
        index = ContinuousRangeIndex(WGS84, Tiering(tail=8, full=100))
        index.register(*columns([(None, [], 0, 1000)] * 100))
        index.end_at(*at(5, *np.arange(60)))
        index.expire(5)
        assert index.tiers == [40]

    def test_one_call_does_at_most_one_large_merge(self):
        index = ContinuousRangeIndex(WGS84, Tiering(tail=8, full=100, large=10))
        for first in (0, 100, 200):
            index.register(*columns([(None, [], 0, 10 + 50 * (i % 2) + first) for i in range(100)], first=first))
        index.end_at(*at(0, *np.arange(0, 300, 2)))
        index.end_at(*at(0, *np.arange(1, 60, 2)))
        index.end_at(*at(0, *np.arange(101, 160, 2)))
        index.end_at(*at(0, *np.arange(201, 260, 2)))
        sizes = []
        for _ in range(4):
            index.expire(1)
            sizes.append(sum(index.tiers))
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > sizes[-1] == len(index)


class TestCheckpoint:
    def test_only_what_is_new_is_written(self):
        files = RecordingFiles()
        index = ContinuousRangeIndex(WGS84, Tiering(tail=8, ratio=1))
        index.register(*columns(random_queries(100, 9)[0]))
        index.checkpoint(files.write)
        assert files.take() == ["crq"]
        index.checkpoint(files.write)
        assert files.take() == []
        index.end_at(*at(0, 3, 4))
        index.checkpoint(files.write)
        assert files.take() == ["crq-ends"]
        index.register(*columns(random_queries(10, 10)[0], first=100))
        index.checkpoint(files.write)
        assert files.take() == ["crq"]

    def test_overlays_stay_few(self):
        files = RecordingFiles()
        index = ContinuousRangeIndex(WGS84)
        queries, _ = random_queries(200, 11)
        index.register(*columns(queries))
        for number in range(100):
            index.end_at(*at(0, number))
            manifest = index.checkpoint(files.write)
            assert len(manifest["overlays"]) <= 9
        again = ContinuousRangeIndex.restore(WGS84, manifest, files.read)
        assert len(again) == len(index) == 100

    def test_the_same_calls_on_equal_structures_write_equal_bytes_in_any_process(self, become_process):
        histories = []
        for restored in (False, True):
            become_process(int(restored))
            files = RecordingFiles()
            index = ContinuousRangeIndex(WGS84, SMALL)
            queries, objects = random_queries(200, 12, life=40)
            stream = at_times(objects, np.arange(len(objects)))
            for step in range(20):
                index.register(*columns(queries[step * 10 : step * 10 + 10], first=step * 10))
                index.end_at(*at(step * 7, *np.arange(step, 200, 23)))
                index.drop(np.arange(step * 10, step * 10 + 4))
                if step % 3:
                    index.register(*columns(queries[step * 10 + 1 : step * 10 + 3], first=step * 10 + 1))
                index.observe(stream)
                list(index.match(stream))
                index.expire(step * 5)
                manifest = index.checkpoint(files.write)
                if restored:
                    index = ContinuousRangeIndex.restore(WGS84, manifest, files.read, SMALL)
            histories.append((files.bytes, manifest))
        assert len(histories[0][0]) > 20
        assert histories[0] == histories[1]

    def test_matches_stay_readable_when_the_index_has_changed(self):
        index = ContinuousRangeIndex(WGS84, SMALL)
        index.register(*columns([(None, [], 0, 10)] * 10))
        ((_, found),) = index.match(at_times([ANYWHERE], [0]))
        index.expire(100)
        assert index.ids_of(found).to_pylist() == [f"q{i}" for i in range(10)]


class RecordingFiles(MemoryFiles):
    """Files in memory that remember what was written."""

    def __init__(self):
        super().__init__()
        self.kinds, self.bytes = [], []

    def write(self, kind, arrays, meta=None):
        self.kinds.append(kind)
        self.bytes.append((kind, {name: array.tobytes() for name, array in arrays.items()}, dict(meta or {})))
        return super().write(kind, arrays, meta)

    def take(self):
        kinds, self.kinds = self.kinds, []
        return kinds


class TestFrequencies:
    def test_frequent_words_count_more(self):
        seen = TermFrequencies()
        seen.observe(at_times([(0.0, 0.0, ["a", "b"])] * 9 + [(0.0, 0.0, ["a", "a longer word"])], [0] * 10))
        assert seen.of(pa.array(["a", "b", "a longer word", "never"])).tolist() == [10.0, 9.0, 1.0, 0.0]

    def test_a_period_is_sampled_at_its_start_and_old_counts_fade(self):
        seen = TermFrequencies()
        many_objects = at_times([(0.0, 0.0, ["a"])] * 1024, [0] * 1024)
        for _ in range(1024):
            seen.observe(many_objects)
        assert seen.of(pa.array(["a"])).tolist() == [65536.0]
        seen.observe(many_objects)
        assert seen.of(pa.array(["a"])).tolist() == [65536.0 / 2 + 1024]

    def test_they_choose_the_index_keyword(self):
        index = ContinuousRangeIndex(WGS84)
        index.observe(at_times([(0.0, 0.0, ["common"])] * 50 + [(0.0, 0.0, ["rare"])], [0] * 51))
        index.register(*columns([(None, ["common", "rare"], 0, 10)] * 20 + [(None, ["rare"], 0, 10)] * 30))
        assert [part.checked.tolist() for _, part in index.match(at_times([(0.0, 0.0, ["common"])], [0]))] == [[0]]


def test_candidates_are_counted_by_query(monkeypatch):
    monkeypatch.setattr(crq, "_SAMPLE_WORK", 0)
    monkeypatch.setattr(crq, "MOST_TESTED", 10_000)
    queries, places = many(WGS84, 300, 6)
    index, objects = ContinuousRangeIndex(WGS84, Tiering(tail=64)), at_times(places, np.zeros(len(places), np.int64))
    index.register(*columns([(region, words, 0, 9) for region, words in queries]))
    groups = QueryBatch.of([Query("any", 0, Predicate(any=(("a",), ("b", "ab"))), Everything(), Lifetime(9, True))])
    index.register(np.array([len(queries)]), groups)
    matched, told, checked = Counter(), Counter(), 0
    for first in range(0, 3 * BLOCK, BLOCK // 2):
        for _, matches in index.match(objects.take(np.arange(first, first + BLOCK // 2))):
            matched.update(index.ids_of(matches).to_pylist())
            checked += int(matches.checked.sum())
        told.update(index.tested())
        assert index.tested() == {}
    assert told.total() == checked
    assert matched
    assert all(told[name] >= count for name, count in matched.items())


def test_of_many_queries_the_most_expensive_are_found_by_a_sample(monkeypatch):
    monkeypatch.setattr(crq, "_SAMPLE_WORK", 100_000)
    index = ContinuousRangeIndex(WGS84)
    index.register(*columns([(None, words, 0, 9) for words in [[]] * 3 + [["flood"]] * 200]))
    places = [(0.0, 0.0, ["flood"] if i % 10 == 0 else ["a"]) for i in range(1_000)]
    some, told, n = at_times(places, np.zeros(len(places), np.int64)), Counter(), 100_000
    for _ in range(n // 1_000):
        list(index.match(some))
        found = index.tested()
        assert len(found) <= crq.MOST_TESTED + 1
        told.update(found)
    assert {name for name, _ in told.most_common(4)} == {"", "q0", "q1", "q2"}
    assert all(0.9 * n <= told[name] <= n for name in ("q0", "q1", "q2"))
    assert told.total() == pytest.approx(3 * n + 200 * n / 10, rel=0.1)


def test_every_kernel_has_a_single_signature():
    crq.prepare()
    kernels = {name: value for name, value in vars(crq).items() if hasattr(value, "signatures")}
    assert {name: len(kernel.signatures) for name, kernel in kernels.items()} == dict.fromkeys(kernels, 1)
    assert kernels
