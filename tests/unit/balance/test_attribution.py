"""A slot's time is spread over its leaves, and none of it is lost or made up."""

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.attribution import OBJECT, Spent, UnitTimes, WorkTotals, object_seconds, spread

SECONDS = st.floats(0.0, 1e6).filter(lambda value: value == 0.0 or value > 1e-9)
COUNTS = st.integers(0, 10**9)


def test_by_hand():
    objects, checked, matches = np.array([1, 3, 0]), np.array([0, 16, 0]), np.array([0, 5, 0])

    seconds = object_seconds(Spent(match=4.8, results=2.0, objects=0.4, queries=9.0), objects, checked, matches)

    weights = np.array([OBJECT, 16 + 3 * OBJECT])
    assert seconds[:2] == pytest.approx(4.8 * weights / weights.sum() + [0.0, 2.0] + np.array([0.1, 0.3]))
    assert seconds[2] == 0.0


@given(SECONDS, st.lists(COUNTS, max_size=20))
def test_what_is_spread_adds_up(seconds, weights):
    shares = spread(seconds, np.array(weights, np.int64))

    assert len(shares) == len(weights)
    assert (shares >= 0.0).all()
    assert shares.sum() == pytest.approx(seconds if any(weights) else 0.0)


@given(st.lists(st.tuples(st.integers(1, 10**6), COUNTS, COUNTS), min_size=1, max_size=20), *[SECONDS] * 3)
def test_the_times_of_leaves_add_up_to_the_slots_time_for_objects(leaves, match, results, unpacking):
    objects, checked, matches = np.array(leaves).T
    spent = Spent(match, results if matches.any() else 0.0, unpacking)  # without a match there is nothing to write

    seconds = object_seconds(spent, objects, checked, matches)

    assert seconds.sum() == pytest.approx(sum(astuple(spent)))


@given(st.lists(st.tuples(st.integers(1, 1000), COUNTS), min_size=2, max_size=20), SECONDS)
def test_who_has_more_to_do_takes_longer(leaves, seconds):
    objects, checked = np.array(leaves).T

    times = object_seconds(Spent(match=seconds), objects, checked, np.zeros(len(objects)))

    order = np.argsort(checked + OBJECT * objects)
    assert (np.diff(times[order]) >= 0.0).all()


def test_parts_that_a_record_has_not_are_no_time():
    assert Spent.of({"match": 1, "later": 2.0}) == Spent(match=1.0)
    assert Spent.of({}) == Spent()


def test_what_each_object_match_and_query_took():
    totals = WorkTotals()
    assert totals.times == UnitTimes()
    totals.add(WorkTotals(Spent(match=1.0, results=0.5, objects=2.0, queries=3.0), 100, 800, 20, 6))
    totals.add(WorkTotals(Spent(match=1.0, results=0.5, objects=2.0, queries=3.0), 100, 800, 20, 6))

    times = totals.times  # an object is as much work to match as 8 candidates, so it took half of that time

    assert times == UnitTimes(object=(4.0 + 1.0) / 200, match=(1.0 + 1.0) / 40, ask=0.5)
    parts = 200 * times.object + 40 * times.match + 12 * times.ask
    assert parts == 2.0 + 1.0 + 4.0 + 6.0
