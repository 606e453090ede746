"""Partitions of CKQs that are a function of the query (``index.query_partition``, ``balance.query_partition``)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.query_partition import (
    SLACK,
    dealt_evenly,
    first_partition,
    partition_anew,
    partition_queries,
    rebalanced,
)
from spatialstream.balance.subscriptions import ObjectSample, Subscriptions
from spatialstream.index.query_partition import QueryPartition, keys_of
from spatialstream.index.sample import Sample
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


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 100])
def test_dealt_evenly_no_slot_has_more_than_a_sixteenth_above_the_mean(slots):
    partition = dealt_evenly(PLANE, slots)
    subsets = np.bincount(partition.slot, minlength=slots)

    assert subsets.max() <= subsets.mean() * 17 / 16
    asked = queries(np.random.default_rng(slots), 8_000, PLANE)
    subset = partition.subsets_of(asked.at, keys_of(asked))
    assert set(subset.tolist()) <= set(range(len(partition.slot)))
    counts = np.bincount(partition.slot[subset], minlength=slots)
    assert counts.max() < 1.5 * 8_000 / slots
    if slots > 1:
        again = QueryPartition.from_arrays(PLANE, partition.to_arrays())
        assert (again.slots_of(asked) == partition.slots_of(asked)).all()


def objects(random, n, west, south, east, north):
    places = zip(random.uniform(west, east, n).tolist(), random.uniform(south, north, n).tolist(), strict=True)
    return [SpatialObject(f"{west}-{i}", i, *at, ("ab"[i % 2],)) for i, at in enumerate(places)]


def crowded(random, n=600):
    """CKQs on a hundredth of the space, and objects, of which half are there too."""
    asked = queries(random, n, PLANE, 0.1)
    return asked, ObjectBatch.of(
        [*objects(random, 500, -4.0, 0.0, -3.2, 0.8), *objects(random, 500, -3.2, 0.8, 4.0, 8.0)]
    )


def test_the_first_partition_is_made_of_a_history_that_is_large_enough():
    random = np.random.default_rng(7)
    asked, there = crowded(random)
    made = first_partition(PLANE, there, asked, 1.0, 4)
    few = first_partition(PLANE, there, asked.take(np.arange(79)), 1.0, 4)
    none = first_partition(PLANE, ObjectBatch.of([]), asked, 1.0, 4)

    for each in (few, none):
        assert (each.slots_of(asked) == dealt_evenly(PLANE, 4).slots_of(asked)).all()
    assert not made.dealt.all()
    load = np.bincount(made.slot, made.cost, 4)
    assert load.max() < 1.2 * load.min()
    assert load.sum() < first_partition(PLANE, there, asked, 1.0, 1).cost.sum() * 1.01, "more subsets cost no more"


def test_many_slots_need_many_queries():
    asked, there = crowded(np.random.default_rng(7), 5_000)
    made = first_partition(PLANE, there, asked, 1.0, 250)

    assert not made.dealt.all()
    assert set(made.slots_of(asked).tolist()) == set(range(250))
    assert first_partition(PLANE, there, asked.take(np.arange(4_999)), 1.0, 250).dealt[0]


def test_a_new_partition_leaves_most_of_the_queries_where_they_are():
    random = np.random.default_rng(8)
    asked, there = crowded(random)
    lasting = replace(asked, duration=np.full(len(asked), 10**6))
    sample = Sample.of(PLANE, there, lasting, 1_000.0)
    first = first_partition(PLANE, there, lasting, 1.0, 4)
    elsewhere = first.moved((first.slot + 1) % 4)

    again, moved = partition_anew(elsewhere, sample, 4)
    assert moved < 0.05
    assert (again.slots_of(lasting) != elsewhere.slots_of(lasting)).mean() == pytest.approx(moved)
    one = elsewhere.moved(np.zeros(len(elsewhere.slot), np.int32))
    even, moved = partition_anew(one, sample, 4)
    assert 0.65 < moved < 0.85
    for each in (again, even):
        load = np.bincount(each.slot, each.cost, 4)
        assert load.max() <= (1.0 + SLACK) * load.mean() + each.cost.max()
    ended = Sample.of(PLANE, there, replace(asked, duration=np.zeros(len(asked), np.int64)), 1_000.0)
    assert partition_anew(elsewhere, ended, 4) == (elsewhere, 0.0)


def loads(partition, asked, objects, slots):
    """What the CKQs of each slot cost, each subset in the rectangle around its balls (Eqns 5 and 6)."""
    sample = ObjectSample(objects)
    radius = sample.radii(PLANE, asked.at, asked.k, asked.keywords)
    found = zip(asked.at.tolist(), radius.tolist(), strict=True)
    balls = Regions.of([Circle(*at, reach) if np.isfinite(reach) else None for at, reach in found])
    those = Subscriptions.of(PLANE, asked.at, balls, asked.keywords, sample)
    subset = partition.subsets_of(asked.at, keys_of(asked))
    load = np.zeros(slots)
    for each in np.unique(subset):
        load[partition.slot[each]] += those.costs(np.flatnonzero(subset == each), sample)[1].sum()
    return load


def test_subsets_move_until_no_slot_has_much_more_than_the_mean_and_no_others_do():
    asked, there = crowded(np.random.default_rng(8))
    lasting = replace(asked, duration=np.full(len(asked), 10**6))
    sample = Sample.of(PLANE, there, lasting, 1_000.0)
    first = first_partition(PLANE, there, lasting, 1.0, 4)
    two = first.moved(np.where(first.slot == 1, 0, first.slot).astype(np.int32))  # slot 0 has all of slot 1, too
    before = loads(two, lasting, there, 4)
    assert before[1] == 0.0
    assert before.max() > 1.5 * before.mean()

    after, moved = rebalanced(two, sample, 4)

    load = loads(after, lasting, there, 4)
    assert load.sum() == pytest.approx(before.sum())
    assert load.max() <= (1.0 + SLACK) * load.mean() + after.cost.max()
    assert load.max() < before.max()
    assert (after.slots_of(lasting) != two.slots_of(lasting)).mean() == pytest.approx(moved)
    assert 0.2 < moved < 0.4
    assert (after.child == two.child).all()
    assert rebalanced(after, sample, 4) == (after, 0.0), "what is even stays"
    unknown = Sample.of(PLANE, there, lasting.take(np.arange(0)), 1_000.0)
    assert rebalanced(two, unknown, 4) == (two, 0.0)


@pytest.mark.parametrize("space", [PLANE, WGS84], ids=["plane", "wgs84"])
def test_radii_are_those_of_the_kth_nearest_objects(space):
    random = np.random.default_rng(9)
    words = ["a", "b", "c"]
    west, south, east, north = space.bounds
    there = [
        SpatialObject(f"{i}", i, float(random.uniform(west, east)), float(random.uniform(south, north)),
                      tuple(w for w in words if random.random() < 0.4))
        for i in range(200)
    ]  # fmt: skip
    weight = 1.0 + random.integers(0, 3, 200)
    predicates = [Predicate(), Predicate(keywords=("a",)), Predicate(keywords=("a", "b")), Predicate(keywords=("x",)),
                  Predicate(any=(("a", "b"), ("c",)))]  # fmt: skip
    asked = [
        Query(
            f"q{i}",
            0,
            predicates[i % 5],
            Nearest(float(random.uniform(west, east)), float(random.uniform(south, north)), 1 + 20 * (i % 9)),
            Lifetime(9, True),
        )
        for i in range(45)
    ]
    batch = QueryBatch.of(asked)
    radii = ObjectSample(ObjectBatch.of(there), weight).radii(space, batch.at, batch.k, batch.keywords)

    for query, radius in zip(asked, radii.tolist(), strict=True):
        at, found = query.selection, 0.0
        wanted = np.inf
        for distance, i in sorted((space.distance(at.x, at.y, o.x, o.y), i) for i, o in enumerate(there)
                                  if query.predicate.expression.holds(o.terms)):  # fmt: skip
            found += weight[i]
            if found >= at.k:
                wanted = distance
                break
        assert radius == pytest.approx(wanted, rel=1e-9)
    assert np.isinf(radii).any()
    assert np.isfinite(radii).any()
