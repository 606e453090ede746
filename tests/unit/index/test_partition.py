"""The differencing method of Karmarkar and Karp."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.partition import imbalance, karmarkar_karp


def sums(loads, subsets, k):
    return np.bincount(subsets, loads, minlength=k)


def greedy(loads, k):
    """The largest load first, each to the least loaded subset."""
    result = np.zeros(k)
    for load in sorted(loads, reverse=True):
        result[result.argmin()] += load
    return result


def test_the_papers_example_of_3_workers_and_7_leaves():
    loads = np.array([7.0, 13.0, 3.0, 11.0, 3.0, 5.0, 4.0])

    subsets = karmarkar_karp(loads, 3)

    names = [{f"P{leaf + 1}" for leaf in np.flatnonzero(subsets == subset)} for subset in range(3)]
    assert names == [{"P1", "P3", "P6"}, {"P2", "P5"}, {"P4", "P7"}]
    assert sums(loads, subsets, 3).tolist() == [15.0, 16.0, 15.0]


def test_the_method_on_the_textbook_example():
    # 8 7 6 5 4: differences 8-7, 6-5, then 4-1, 3-1, so the two sums differ by 2
    subsets = karmarkar_karp(np.array([8.0, 7.0, 6.0, 5.0, 4.0]), 2)

    assert sorted(sums([8, 7, 6, 5, 4], subsets, 2)) == [14.0, 16.0]


@pytest.mark.parametrize("k", [2, 3, 8])
def test_it_balances_better_than_the_greedy_method(k):
    rng = np.random.default_rng(5)
    samples = [rng.lognormal(0.0, 1.0, 64) for _ in range(20)]

    differencing = [np.ptp(sums(loads, karmarkar_karp(loads, k), k)) for loads in samples]
    greedily = [np.ptp(greedy(loads, k)) for loads in samples]

    assert np.median(differencing) < np.median(greedily)


@given(st.lists(st.floats(0.0, 1e6), max_size=30), st.integers(1, 9))
def test_every_load_has_a_subset_and_sums_differ_by_one_load_at_most(loads, k):
    subsets = karmarkar_karp(np.array(loads), k)

    assert subsets.dtype == np.int32
    assert len(subsets) == len(loads)
    assert set(subsets.tolist()) <= set(range(k))
    if loads:
        assert np.ptp(sums(loads, subsets, k)) <= max(loads) * (1 + 1e-9)


@given(st.integers(0, 40), st.integers(1, 9))
def test_equal_loads_spread_evenly_even_if_they_are_0(n, k):
    for load in (0.0, 1.0):
        counts = np.bincount(karmarkar_karp(np.full(n, load), k), minlength=k)

        assert np.ptp(counts) <= 1


def test_subsets_are_numbered_by_their_first_load():
    subsets = karmarkar_karp(np.array([1.0, 5.0, 2.0, 5.0, 1.0]), 4)

    firsts = [int(np.flatnonzero(subsets == subset)[0]) for subset in sorted(set(subsets.tolist()))]
    assert firsts == sorted(firsts)


def test_imbalance_is_the_ratio_of_the_largest_and_the_smallest_load():
    assert imbalance(np.array([2.0, 1.0, 6.0])) == 6.0
    assert imbalance(np.array([3.0])) == 1.0
    assert imbalance(np.array([3.0, 0.0])) == np.inf
    assert imbalance(np.zeros(3)) == imbalance(np.zeros(0)) == 1.0
