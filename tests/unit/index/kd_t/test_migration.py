"""Minimum cost migration: algorithm GR by hand, and against every choice there is."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.kd_t.migration import greedy

figures = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=9)


def chosen(cells, target, most=np.inf):
    loads, sizes = np.array(cells, np.float64).T
    return greedy(loads, sizes, target, most).tolist()


@pytest.mark.parametrize(
    ("cells", "target", "expected"),
    [
        ([(4, 4), (4, 4), (4, 4)], 8, [0, 1]),
        ([(10, 1), (1, 9)], 5, [0]),
        # by rising S/L: 0 is taken; with 1 the size is 7; 2 is taken, and with 3 the size is 4
        ([(4, 1), (10, 6), (3, 2), (1, 1)], 8, [0, 2, 3]),
        ([(3, 1), (3, 2), (9, 30), (3, 3)], 8, [0, 1, 3]),
        ([(0, 0), (5, 5)], 5, [1]),
        ([(1, 0), (1, 0)], 5, [0, 1]),  # all there is does not suffice
    ],
)
def test_cells_are_taken_by_rising_relative_cost(cells, target, expected):
    assert chosen(cells, target) == expected


def test_a_cell_that_would_be_too_much_is_passed_over():
    assert chosen([(9, 1), (3, 3), (3, 4)], 5) == [0]
    assert chosen([(9, 1), (3, 3), (3, 4)], 5, 9) == [1, 2]
    assert chosen([(9, 1), (9, 2)], 5, 9) == []


@given(cells=figures, target=st.integers(1, 40), most=st.none() | st.integers(2, 80))
def test_what_is_chosen_is_a_solution_whenever_there_is_one_without_a_bound(cells, target, most):
    loads, sizes = np.array(cells, np.float64).T
    found = greedy(loads, sizes, target, np.inf if most is None else most)

    assert found.tolist() == sorted({*found.tolist()})
    if most is not None:
        assert loads[found].sum() < max(most, target)
    elif loads.sum() >= target:
        each = chain.from_iterable(combinations(range(len(cells)), n) for n in range(len(cells) + 1))
        least = min(sizes[list(some)].sum() for some in each if loads[list(some)].sum() >= target)
        assert loads[found].sum() >= target
        assert sizes[found].sum() >= least
        # without the last cell it is none
        assert any(loads[found].sum() - loads[cell] < target for cell in found)
    else:
        assert found.tolist() == np.flatnonzero(loads > 0).tolist()
