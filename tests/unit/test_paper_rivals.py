"""Partitions of space to compare with (``tests/benchmarks/paper/rivals``): what they divide, and how evenly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.a_grid.a_grid import SIDE
from tests.benchmarks.paper import workloads
from tests.benchmarks.paper.rivals import space
from tests.benchmarks.paper.systems import METHODS, history

SPACES = ("k-d tree", "R-tree", "A-Grid")


@pytest.mark.parametrize("method", SPACES)
@pytest.mark.parametrize("data", ["TW", "Uni"])
def test_leaves_divide_space_and_objects(method, data):
    objects, queries = history(data, 4_000, 0, "SRQ")
    index = METHODS[method](objects, queries, 23, 4).index

    assert len(index.leaves) == 23
    assert index.rectangles[:, 2:].min() > 0
    areas = np.prod(index.rectangles[:, 2:] - index.rectangles[:, :2], axis=1)
    assert areas.min() > 0
    assert areas.sum() == SIDE * SIDE
    assert np.bincount(index.route_objects(objects), minlength=23).tolist() == index.leaves.objects.tolist()


@pytest.mark.parametrize("method", ["k-d tree", "R-tree"])
def test_leaves_have_about_as_many_objects(method):
    index = METHODS[method](*history("Uni", 20_000, 0, "SRQ"), 16, 4).index

    assert index.leaves.objects.min() > 0.9 * 20_000 / 16
    assert index.leaves.objects.max() < 1.1 * 20_000 / 16


def test_a_grid_has_64_times_64_cells():
    assert len(METHODS["Grid"](*history("Uni", 1_000, 0, "SRQ"), 16, 4).index.leaves) == 4096


def test_a_kd_tree_cuts_across_x_and_y_in_turn():
    index = METHODS["k-d tree"](*history("Uni", 20_000, 0, "SRQ"), 4, 4).index
    width, height = (index.rectangles[:, 2:] - index.rectangles[:, :2]).T

    assert width == pytest.approx(SIDE / 2, abs=20)
    assert height == pytest.approx(SIDE / 2, abs=20)


@pytest.mark.parametrize(
    ("at", "expected"),
    [([1, 2, 3, 4], 3), ([2, 2, 2, 9], 3), ([0, 9, 9, 9], 9), ([5, 5], None), ([], None), ([0, 9], 4)],
)
def test_the_line_that_divides_most_evenly(at, expected):
    assert space.median(np.array(at, np.int32), 0, 10) == expected


def test_objects_at_one_place_are_not_divided():
    objects = workloads.objects("TW", 2_000, 0).take(np.zeros(2_000, np.int64))
    _, queries = history("TW", 2_000, 0, "SRQ")

    assert len(METHODS["k-d tree"](objects, queries, 16, 4).index.leaves) == 1
    assert len(METHODS["R-tree"](objects, queries, 16, 4).index.leaves) == 16


@given(st.lists(st.integers(0, SIDE - 1), max_size=30), st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_lines_leave_a_cell_between_them(at, share):
    found = space.divisions(np.array(at, np.int32), np.array(share))

    assert (found[0], found[-1], len(found)) == (0, SIDE, len(share) + 1)
    assert np.diff(found).min() >= 1
