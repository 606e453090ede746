"""DkM-SKS: costs, cutting and placing of subscriptions (``balance.subscriptions``, ``balance.dkm``)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.dkm import deal, partition, place
from spatialstream.balance.subscriptions import EVERYWHERE, ObjectSample, Subscriptions, overlap
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.regions import Circle, Regions
from spatialstream.model.space import WGS84, Space

PLANE = Space.planar(0.0, 0.0, 8.0, 8.0)


def objects(*given):
    """Objects of (x, y, words)."""
    return ObjectBatch.of([SpatialObject(f"o{i}", i, x, y, tuple(words)) for i, (x, y, words) in enumerate(given)])


def subscriptions(sample, *given, space=PLANE):
    """Subscriptions of (x, y, radius or None, predicate)."""
    queries = QueryBatch.of(
        [
            Query(f"s{i}", 0, predicate, Nearest(x, y, 1), Lifetime(1, True))
            for i, (x, y, _, predicate) in enumerate(given)
        ]
    )
    balls = Regions.of([None if radius is None else Circle(x, y, radius) for x, y, radius, _ in given])
    return Subscriptions.of(space, queries.at, balls, queries.keywords, sample)


def any_of(*words):
    return Predicate(any=tuple((word,) for word in words)) if len(words) > 1 else Predicate(keywords=words)


FOUR = objects((1, 1, "ab"), (2, 2, "a"), (3, 3, "bc"), (7, 7, "a"))


def test_probabilities_are_parts_of_all_objects():
    sample = ObjectSample(FOUR)
    of = dict(
        zip([*sample.vocabulary.to_pylist(), None], sample.probabilities(np.array([0.0, 0.0, 3.0, 3.0])), strict=True)
    )

    assert of == {"a": 0.5, "b": 0.5, "c": 0.25, None: 0.75}


def test_objects_count_as_many_as_they_stand_for():
    sample = ObjectSample(FOUR, np.array([1.0, 1.0, 2.0, 4.0]))

    assert sample.probabilities(np.array([2.5, 2.5, 8.0, 8.0]))[sample.any] == 0.75


def test_a_cost_is_the_sum_over_words_in_the_rectangle_around_all_balls():
    sample = ObjectSample(FOUR)
    three = subscriptions(
        sample, (1, 1, 0.5, any_of("a", "b")), (3, 3, 0.5, any_of("c")), (2, 2, 0.1, any_of("a", "x"))
    )

    box, cost = three.costs(np.arange(3), sample)

    assert box == pytest.approx([0.5, 0.5, 3.5, 3.5])
    assert cost.tolist() == [1.0, 0.25, 0.5]
    assert three.costs(np.array([0]), sample)[1].tolist() == [0.5], "alone in its own ball: a and b of one object"


def test_a_group_counts_with_its_rarest_word_and_a_query_without_words_with_all_objects():
    sample = ObjectSample(FOUR)
    given = (
        Predicate(keywords=("a", "c")),
        Predicate(any=(("a", "b"), ("c",))),
        Predicate(),
        Predicate(keywords=("x", "a")),
    )
    each = subscriptions(sample, *((4, 4, None, predicate) for predicate in given))

    assert each.costs(np.arange(4), sample)[1].tolist() == [0.25, 0.75, 1.0, 0.0]


def test_rectangles_lie_in_the_space_and_reach_around_the_antimeridian():
    sample = ObjectSample(FOUR)
    ball = subscriptions(
        sample,
        (179.9, 10, 100_000.0, any_of("a")),
        (0, 89.9, 100_000.0, any_of("a")),
        (5, 5, None, any_of("a")),
        space=WGS84,
    ).ball

    assert ball[:, [0, 2]].tolist() == [[-180.0, 180.0]] * 3
    assert ball[1, 3] == 90.0
    assert 9.0 < ball[0, 1] < 9.2


def test_each_item_goes_to_the_least_loaded():
    chosen, load = deal(np.array([5.0, 4.0, 3.0, 3.0, 3.0]), np.zeros(2))

    assert chosen.tolist() == [0, 1, 1, 0, 1]
    assert load.tolist() == [8.0, 10.0]


def test_items_without_cost_are_spread():
    chosen, _ = deal(np.zeros(6), np.array([1.0, 0.0, 0.0]))

    assert chosen.tolist() == [1, 2, 1, 2, 1, 2]


@given(st.lists(st.floats(0.0, 100.0), max_size=40), st.integers(1, 6))
def test_dealing_by_falling_cost_is_near_the_best(costs, m):
    cost = np.sort(np.array(costs))[::-1]
    chosen, load = deal(cost, np.zeros(m))

    assert load == pytest.approx(np.bincount(chosen, cost, m))
    bound = max(cost.sum() / m, cost.max(initial=0.0))
    assert load.max() <= bound * 2 - bound / m + 1e-6
    assert load.max() - load.min() <= cost.max(initial=0.0) + 1e-6


def test_lying_apart_they_are_cut_by_space():
    """Four clusters in the corners (figure 5(a)): each quarter has a rectangle of its own."""
    corners = [(x, y) for x in (1, 7) for y in (1, 7)]
    sample = ObjectSample(objects(*((x, y, "a") for x, y in corners)))
    apart = subscriptions(sample, *((x + dx, y, 0.5, any_of("a")) for x, y in corners for dx in (0.0, 0.1)))

    subsets = partition(apart, sample, PLANE, 4)

    assert sorted(sorted(each.rows.tolist()) for each in subsets) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert all(each.total == 0.5 for each in subsets)


def test_overlapping_they_are_dealt_out_by_cost():
    """Large balls in the middle (figure 5(b)): quarters would have nearly the same rectangle."""
    sample = ObjectSample(objects(*((x, y, "ab"[: 1 + (x > 4)]) for x in (1, 7) for y in (1, 7))))
    near = [(x, y) for x in (3.9, 4.1) for y in (3.9, 4.1)]
    together = subscriptions(sample, *((x, y, None, any_of(*words)) for words in ("ab", "a") for x, y in near))

    subsets = partition(together, sample, PLANE, 4)

    assert [each.rows.tolist() for each in subsets] == [[0, 4], [1, 5], [2, 6], [3, 7]], "a costly and a cheap one each"


def test_large_subsets_are_cut_by_space_whatever_it_costs():
    sample = ObjectSample(FOUR)
    given = [(x, y, None, any_of("a")) for x in (1, 7) for y in (1, 7)] * 2
    subsets = partition(subscriptions(sample, *given), sample, PLANE, 4, gamma_2=7)

    assert sorted(sorted(each.rows.tolist()) for each in subsets) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_subscriptions_at_one_place_are_cut_all_the_same():
    sample = ObjectSample(FOUR)
    same = subscriptions(sample, *[(2, 2, 1.0, any_of("a"))] * 30)

    for gamma_2 in (0, 100):
        subsets = partition(same, sample, PLANE, 10, gamma_2)
        assert len(subsets) >= 10
        assert sorted(row for each in subsets for row in each.rows.tolist()) == list(range(30))


def test_there_are_no_more_subsets_than_subscriptions():
    sample = ObjectSample(FOUR)

    assert len(partition(subscriptions(sample, *[(2, 2, 1.0, any_of("a"))] * 3), sample, PLANE, 100)) == 3
    assert partition(subscriptions(sample), sample, PLANE, 100) == []


def test_members_of_a_subset_go_to_different_slots():
    sample = ObjectSample(FOUR)
    same = subscriptions(sample, *[(2, 2, 1.0, any_of("a"))] * 8)

    placement = place(same, sample, PLANE, 4, (1, 100))

    assert len(placement.subsets) >= 4
    assert np.bincount(placement.slot).tolist() == [2, 2, 2, 2]
    assert placement.load == pytest.approx(np.full(4, 1.0))


def test_new_ones_cost_as_in_the_subset_that_they_overlap_most_and_go_to_the_lightest():
    sample = ObjectSample(FOUR)
    old = subscriptions(sample, (1, 1, 1.0, any_of("a")), (7, 7, 0.5, any_of("a")))
    placement = place(old, sample, PLANE, 2, (1, 100))
    assert placement.load.tolist() == [0.5, 0.25]
    new = subscriptions(sample, (2, 2, 0.5, any_of("a", "b")), (1, 1, 0.1, any_of("a")))

    after = placement.with_new(new, sample)

    assert after.slot.tolist() == [0, 1, 1, 0]
    assert after.load.tolist() == [1.0, 1.0]
    assert place(subscriptions(sample), sample, PLANE, 2).with_new(new, sample).load.tolist() == [1.25, 0.75]


def test_overlap_is_the_common_area():
    boxes = np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 5.0, 5.0], [3.0, 3.0, 4.0, 4.0], EVERYWHERE])

    assert overlap(boxes, np.array([1.0, 1.0, 2.0, 3.0])).tolist() == [1.0, 2.0, 0.0, 2.0]


@st.composite
def workloads(draw):
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(st.integers(1, 60)), draw(st.integers(1, 60))
    words = np.array(list("abcdefgh"))
    side = draw(st.sampled_from([0.5, 8.0]))

    def some(count):
        return [tuple(random.choice(words, random.integers(1, 4), replace=False)) for _ in range(count)]

    sample = ObjectSample(objects(*((*random.uniform(0, side, 2), each) for each in some(n))))
    radius = np.where(random.random(m) < 0.2, np.inf, random.exponential(1.0, m))
    made = [
        (*random.uniform(0, side, 2), None if np.isinf(r) else float(r), any_of(*each))
        for r, each in zip(radius, some(m), strict=True)
    ]
    return sample, subscriptions(sample, *made)


@given(workloads(), st.integers(1, 5), st.integers(1, 4), st.sampled_from([0, 10, 1000]))
def test_a_placement_has_each_once_and_costs_what_it_says(workload, slots, gamma_1, gamma_2):
    sample, those = workload
    placement = place(those, sample, PLANE, slots, (gamma_1, gamma_2))

    assert len(placement.subsets) >= min(gamma_1 * slots, len(those))
    assert sorted(row for each in placement.subsets for row in each.rows.tolist()) == list(range(len(those)))
    cost = np.empty(len(those))
    for subset in placement.subsets:
        box, expected = those.costs(subset.rows, sample)
        assert (subset.box == box).all()
        assert (those.ball[subset.rows, :2] >= box[:2]).all()
        assert (those.ball[subset.rows, 2:] <= box[2:]).all()
        assert subset.cost == pytest.approx(expected)
        assert (np.diff(subset.cost) <= 0.0).all()
        inside = (subset.cell[0] <= those.x[subset.rows]) & (those.x[subset.rows] <= subset.cell[2])
        assert inside.all()
        cost[subset.rows] = subset.cost
    assert (np.diff([each.total for each in placement.subsets]) <= 1e-12).all()
    assert placement.load == pytest.approx(np.bincount(placement.slot, cost, slots))
    assert placement.load.max() - placement.load.min() <= cost.max() + 1e-9
    again = place(those, sample, PLANE, slots, (gamma_1, gamma_2))
    assert (again.slot == placement.slot).all(), "deterministic"
