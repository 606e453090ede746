"""The sample of a live stream: estimates, decay, cancellations, and serialization as arrays."""

import json
import math

import numpy as np
import pytest

from spatialstream.index import sample as module
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import SRQ
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.samples import PLANE

NO_QUERIES = QueryBatch.of([])
NO_OBJECTS = ObjectBatch.of([])
BOX = Box(0.5, 0.5, 1.5, 1.5)


def stream(first: int, n: int, t: int = 0) -> ObjectBatch:
    return ObjectBatch.of(
        [SpatialObject(f"o{i}", t, i % 4 + 0.5, i // 4 % 4 + 0.5, ("a",)) for i in range(first, first + n)]
    )


def asked(name: str, t: int, duration: int, continuous: bool = True) -> Query:
    return Query(name, t, Predicate(BOX, ("a",)), Everything(), Lifetime(duration, continuous))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "OBJECTS", 256)
    return 256


def test_a_small_stream_is_its_own_sample() -> None:
    sample = Sample.of(PLANE, stream(0, 10), QueryBatch.of([asked("q", 0, 5)]), 100.0)

    assert (len(sample.objects), len(sample.queries), sample.seen) == (10, 1, 10.0)
    assert sample.counts()[0] == pytest.approx(np.ones(10))


def test_a_bounded_sample_stands_for_the_whole_stream(small: int) -> None:
    sample = Sample.of(PLANE, stream(0, 1000), NO_QUERIES, 1.0)
    for first in range(1000, 20_000, 1000):
        sample = sample.updated(Sample.of(PLANE, stream(first, 1000), NO_QUERIES, 1.0), NO_QUERIES)

    assert len(sample.objects) == small
    assert sample.seen == 20_000
    assert sample.counts()[0].sum() == pytest.approx(20_000, rel=0.2)
    west = sample.counts()[0][sample.objects.x < 2.0].sum()
    assert west == pytest.approx(10_000, rel=0.35)
    early = np.array([int(name[1:]) < 10_000 for name in sample.objects.ids.to_pylist()])
    assert 0.3 < early.mean() < 0.7


def test_records_that_stand_for_more_are_kept_first(small: int) -> None:
    both = ObjectBatch.concat([stream(0, 1000), stream(1000, 100)])
    weights = np.append(np.ones(1000), np.full(100, 50.0))

    sample = Sample.of(PLANE, both, NO_QUERIES, 1.0, (weights, np.empty(0)))

    heavy = np.array([int(name[1:]) >= 1000 for name in sample.objects.ids.to_pylist()])
    assert heavy.sum() == 100
    assert sample.counts()[0][heavy] == pytest.approx(np.full(100, 50.0))
    assert sample.counts()[0][~heavy].sum() == pytest.approx(1000, rel=0.2)


def test_what_is_old_fades() -> None:
    hour = 3_600_000
    old = Sample.of(PLANE, stream(0, 100), NO_QUERIES, 1000.0)
    sample = old.updated(Sample.of(PLANE, stream(100, 10, 6 * hour), NO_QUERIES, 500.0), NO_QUERIES)

    assert sample.counts()[0][:100] == pytest.approx(np.full(100, math.exp(-1)))
    assert sample.counts()[0][100:] == pytest.approx(np.ones(10))
    assert sample.span == pytest.approx(1000.0 * math.exp(-1) + 500.0)
    assert sample.statistics(1).objects[0] == pytest.approx(100 * math.exp(-1) + 10)


def test_a_registered_query_does_not_fade_until_it_has_ended() -> None:
    hour = 3_600_000
    queries = [asked("stands", 0, 10**15), asked("ended", 0, hour), asked("snapshot", 0, 10**15, continuous=False)]
    sample = Sample.of(PLANE, NO_OBJECTS, QueryBatch.of(queries), 1000.0)

    later = sample.updated(Sample.of(PLANE, stream(0, 1, 7 * hour), NO_QUERIES, 1000.0), NO_QUERIES)

    assert later.counts()[1] == pytest.approx([1.0, math.exp(-1), math.exp(-7 / 6)])
    assert later.statistics(1).queries[SRQ] == pytest.approx(math.exp(-7 / 6))


def test_a_cancelled_query_has_ended() -> None:
    hour = 3_600_000
    sample = Sample.of(PLANE, NO_OBJECTS, QueryBatch.of([asked("a", 0, 10**15), asked("b", 0, 10**15)]), 1000.0)
    ends = QueryBatch.of([Cancellation("b", hour), Cancellation("unknown", hour)])

    later = sample.updated(Sample.of(PLANE, stream(0, 1, 7 * hour), ends, 1000.0), ends)

    assert len(later.queries) == 2
    assert later.counts()[1] == pytest.approx([1.0, math.exp(-1)])


def test_the_arrays_are_the_whole_sample(small: int) -> None:
    sample = Sample.of(PLANE, stream(0, 500), QueryBatch.of([asked("q", 3, 5), asked("s", 4, 6, False)]), 100.0)

    arrays, meta = sample.to_arrays()
    again = Sample.from_arrays(arrays, json.loads(json.dumps(meta)))

    assert (again.space, again.now, again.span, again.seen) == (PLANE, sample.now, 100.0, 500.0)
    assert again.least == sample.least
    for one, other in zip(again.counts(), sample.counts(), strict=True):
        assert one.tolist() == other.tolist()
    assert again.objects.ids.equals(sample.objects.ids)
    assert again.objects[7] == sample.objects[7]
    assert [again.queries[i] for i in range(2)] == [sample.queries[i] for i in range(2)]


def test_a_query_ends_with_the_first_cancellation_after_it() -> None:
    """An id may be registered again once it has been cancelled."""
    queries = [asked("a", 10, 10**15), asked("a", 30, 10**15), asked("a", 50, 10**15), asked("b", 10, 5)]
    ends = [Cancellation("a", 40), Cancellation("a", 20), Cancellation("a", 9), Cancellation("b", 16)]

    whole = Sample.of(PLANE, NO_OBJECTS, QueryBatch.of([*queries, *ends]), 1000.0)
    later = Sample.of(PLANE, NO_OBJECTS, QueryBatch.of(queries), 1000.0)
    later = later.updated(Sample.of(PLANE, NO_OBJECTS, NO_QUERIES, 1000.0), QueryBatch.of(ends))

    assert whole.queries.duration.tolist() == [10, 10, 10**15, 5]
    assert later.queries.duration.tolist() == [10, 10, 10**15, 5]


def test_long_records_are_bounded_by_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TEXT", 50_000)
    long = [SpatialObject(f"o{i}", 0, i % 4 + 0.5, 0.5, tuple(f"w{i}-{j}" for j in range(100))) for i in range(400)]

    sample = Sample.of(PLANE, ObjectBatch.of(long), QueryBatch.of([asked(f"q{i}", 0, 9) for i in range(400)]), 1.0)

    kept = [sample.objects[i] for i in range(len(sample.objects))]
    text = sum(len(each.id) + sum(map(len, each.terms)) for each in kept)
    assert 49_000 < text <= 50_000
    assert sample.counts()[0].sum() == pytest.approx(400, rel=0.3)
    assert len(sample.queries) == 400
    arrays, _ = sample.to_arrays()
    assert arrays["objects"].nbytes < 150_000
