"""What of a sample concerns a node: objects and entries within, and how similar their words are."""

import numpy as np
import pytest

from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.workload import NO_WORD, Workload
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box, Circle
from spatialstream.model.space import WGS84
from tests.unit.index.samples import PLANE, obj, query

SIDE = 8


def work(objects: ObjectBatch, *queries: Query, space=PLANE) -> Workload:
    asked = QueryBatch.of(queries)
    statistics = Statistics.of(space, objects, asked, 100.0)
    return Workload.of(objects, statistics, Frequencies.of(objects.terms), SIDE)


def some(n: int = 40) -> ObjectBatch:
    rng = np.random.default_rng(1)
    places = (4.0 * rng.random((n, 2))).tolist()
    return ObjectBatch.of([obj(f"o{i}", x, y, "ab" if i % 2 else "c", t=i) for i, (x, y) in enumerate(places)])


def test_objects_and_entries_of_a_rectangle():
    objects = some()
    sample = work(objects, query("CRQ", Box(0.0, 0.0, 0.9, 0.9), "a"), query("CRQ", Circle(3.0, 3.0, 0.9), "c"))
    everything = np.arange(len(objects)), np.arange(2)

    west = 0, 0, SIDE // 2, SIDE
    here = sample.objects_within(west, everything[0])

    assert here.tolist() == np.flatnonzero(objects.x < 2.0).tolist()
    assert sample.entries_within(west, everything[1]).tolist() == [0]
    assert sample.entries_within((0, 0, SIDE, SIDE), everything[1]).tolist() == [0, 1]


def test_a_query_across_the_antimeridian_concerns_both_ends():
    objects = ObjectBatch.of([obj(f"o{i}", 0.0, 0.0, "a", t=i) for i in range(3)])
    sample = work(objects, query("CRQ", Box(170.0, -5.0, -170.0, 5.0), "a"), space=WGS84)

    found = [len(sample.entries_within((i, 0, i + 1, SIDE), np.arange(1))) for i in range(SIDE)]

    assert found == [1, 0, 0, 0, 0, 0, 0, 1]


def test_there_is_an_entry_for_each_group_with_its_rarest_word():
    any_of = Predicate(None, (), (("a", "b"), ("c",)))
    of_groups = Query("q", 0, any_of, Everything(), Lifetime(50, True))
    sample = work(some(), of_groups, query("CRQ", None, "x", duration=10**6), query("CRQ", None))

    assert sample.entry.tolist() == [0, 0, 1, 2]
    assert sample.word[-1] == NO_WORD
    assert len({*sample.word.tolist()}) == 4
    assert sample.standing[:2] == pytest.approx([0.01 * 50] * 2)
    assert sample.standing[2] == pytest.approx(1.0), "it stands all the time"
    assert sample.coming == pytest.approx([0.01] * 4)


def test_other_queries_are_no_entries():
    assert len(work(some(), query("SRQ", None, "a"), query("CKQ", None, "a")).entry) == 0


@pytest.mark.parametrize(
    ("asked", "low", "high"), [("ab", 0.8, 1.0), ("c", 0.5, 0.6), ("x", 0.0, 0.0), ("", 0.0, 0.0), (None, 1.0, 1.0)]
)
def test_similarity_is_the_cosine_of_frequencies(asked, low, high):
    queries = [] if asked is None else [query("CRQ", None, asked)]
    sample = work(some(), *queries)

    found = sample.similarity(np.arange(40), np.arange(len(sample.entry)))

    assert low <= found <= high
