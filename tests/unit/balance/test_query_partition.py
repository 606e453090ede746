"""Partitions of CKQs that are a function of the query (``index.query_partition``, ``balance.query_partition``)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.query_partition import partition_queries
from spatialstream.balance.subscriptions import ObjectSample, Subscriptions
from spatialstream.index.query_partition import QueryPartition, keys_of
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.regions import Circle, Regions
from spatialstream.model.space import WGS84, Space

PLANE = Space.planar(-4.0, 0.0, 4.0, 8.0)


def queries(random, n, space, side=1.0):
    west, south, east, north = space.bounds
    x = west + side * (east - west) * random.random(n)
    y = south + side * (north - south) * random.random(n)
    words, kept, t = [Predicate(keywords=(word,)) for word in "ab"], Lifetime(9, True), random.integers(0, 9, n)
    places = enumerate(zip(x.tolist(), y.tolist(), strict=True))
    return QueryBatch.of([Query(f"q{i}", int(t[i]), words[i % 2], Nearest(*at, 1 + i % 3), kept) for i, at in places])


def built(asked, random, space, slots, gamma):
    west, south, east, north = space.bounds
    given_ = [(random.uniform(west, east), random.uniform(south, north), "ab"[i % 2]) for i in range(50)]
    sample = ObjectSample(ObjectBatch.of([SpatialObject(f"{i}", 0, x, y, (w,)) for i, (x, y, w) in enumerate(given_)]))
    balls = Regions.of([Circle(*at, 0.3) if i % 5 else None for i, at in enumerate(asked.at.tolist())])
    those = Subscriptions.of(space, asked.at, balls, asked.keywords, sample)
    return those, sample, partition_queries(those, keys_of(asked), sample, space, slots, gamma)


@given(
    st.integers(0, 2**32), st.integers(0, 60), st.sampled_from([PLANE, WGS84]), st.integers(1, 5),
    st.sampled_from([(1, 10), (4, 10), (4, 1000), (4, 0)]), st.sampled_from([0.0, 0.01, 1.0]),
)  # fmt: skip
def test_a_query_falls_into_the_subset_that_it_was_counted_in(seed, n, space, slots, gamma, side):
    random = np.random.default_rng(seed)
    asked = queries(random, n, space, side)
    those, sample, partition = built(asked, random, space, slots, gamma)
    subset = partition.subsets_of(asked.at, keys_of(asked))

    assert subset.min(initial=0) >= 0
    for each in np.unique(subset):
        box, cost = those.costs(np.flatnonzero(subset == each), sample)
        assert partition.cost[each] == pytest.approx(cost.sum())
        assert (partition.box[each] == box).all()
    assert partition.cost.sum() == pytest.approx(sum(partition.cost[np.unique(subset)]))
    assert (partition.slots_of(asked) == partition.slot[subset]).all()
    load = np.bincount(partition.slot, partition.cost, slots)
    assert np.ptp(load) <= partition.cost.max() + 1e-9


def test_alone_they_go_where_they_go_in_company_and_through_arrays():
    random = np.random.default_rng(1)
    asked = queries(random, 200, WGS84)
    partition = built(asked, random, WGS84, 4, (20, 1000))[2]
    other = queries(np.random.default_rng(2), 100, WGS84)
    together = partition.slots_of(other)

    assert [int(partition.slots_of(other.take(np.array([i])))[0]) for i in range(100)] == together.tolist()
    again = QueryPartition.from_arrays(WGS84, partition.to_arrays())
    assert (again.slots_of(other) == together).all()
    assert len({*together.tolist()}) == 4
    moved = partition.moved((partition.slot + 1) % 4)
    assert (moved.slots_of(other) == (together + 1) % 4).all()


def test_a_key_is_what_owners_of_a_query_know_whatever_else_it_has():
    asked = queries(np.random.default_rng(3), 50, PLANE)
    less = replace(asked, duration=asked.duration - 1, ids=asked.ids.take(np.zeros(50, np.int64)))

    assert (keys_of(asked) == keys_of(less)).all()
    assert len(np.unique(keys_of(asked))) == 50
    shares = np.bincount((keys_of(queries(np.random.default_rng(4), 4_000, PLANE)) & np.uint64(3)).astype(np.int64))
    assert shares.min() > 850


def test_places_on_borders_and_negative_zero_have_one_subset():
    at = np.array([[0.0, 4.0], [-0.0, 4.0], [-4.0, 0.0], [4.0, 8.0]])
    asked = QueryBatch.of(
        [Query(f"{i}", 0, Predicate(), Nearest(x, y, 1), Lifetime(9, True)) for i, (x, y) in enumerate(at)]
    )
    partition = built(queries(np.random.default_rng(5), 100, PLANE), np.random.default_rng(6), PLANE, 4, (20, 10))[2]
    slots = partition.slots_of(asked)

    assert slots[0] == slots[1]
