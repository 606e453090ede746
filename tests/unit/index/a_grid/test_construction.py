"""Construction of an A-Grid: costliest first, cut where the larger half is least (Tornado, 4.1), by brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.index.a_grid.construction import build_a_grid, divide
from spatialstream.index.a_grid.costs import Costs, object_costs
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from tests.unit.index.samples import PLANE, WGS84, obj, query, samples, spaces


def costs_of(cells) -> Costs:
    """Costs by row and column."""
    table = np.array(cells, np.float64)
    row, column = np.nonzero(table)
    return Costs(len(table), column.astype(np.int32), row.astype(np.int32), table[row, column])


def real(costs: Costs, rectangle) -> float:
    return costs.of(rectangle) * costs.unit


# ------------------------------------------------------------------------------------------------------------- costs


tables = st.integers(2, 6).flatmap(
    lambda side: st.lists(st.lists(st.integers(0, 3), min_size=side, max_size=side), min_size=side, max_size=side)
)


@given(tables)
def test_sums_and_cuts_are_those_of_the_cells(cells):
    table, costs = np.array(cells), costs_of(cells)
    side = len(table)
    whole = (0, 0, side, side)
    halves = [(table[:, :at].sum(), table[:, at:].sum()) for at in range(1, side)]
    halves += [(table[:at].sum(), table[at:].sum()) for at in range(1, side)]

    cut = costs.best_cut(whole)

    assert cut is not None
    one, other = (table[part[1] : part[3], part[0] : part[2]].sum() for part in cut.of(whole))
    assert max(one, other) == min(max(pair) for pair in halves)
    assert cut.larger * costs.unit == pytest.approx(max(one, other))
    assert one + other == table.sum()
    for axis in (0, 1):
        expected = np.cumsum(table.sum(axis=axis))[:-1]
        np.testing.assert_allclose(costs.before(whole, axis) * costs.unit, expected, atol=1e-9)


def test_of_equal_cuts_the_central_one_is_taken():
    assert costs_of(np.zeros((8, 8))).best_cut((0, 0, 8, 4))[:2] == (0, 4)
    assert costs_of(np.zeros((8, 8))).best_cut((2, 0, 4, 8))[:2] == (1, 4)
    assert costs_of([[1, 0, 0, 0, 0, 0, 0, 1], *[[0] * 8] * 7]).best_cut((0, 0, 8, 8))[:2] == (0, 4)
    assert costs_of([[1] * 8] * 8).best_cut((3, 3, 4, 4)) is None


def test_a_place_costs_what_the_queries_there_visit():
    places = [(0.5, 0.5), (0.6, 0.5), (3.5, 3.5)]
    sample = ObjectBatch.of([obj(f"o{i}", x, y) for i, (x, y) in enumerate(places)])
    asked = QueryBatch.of([query("STQ", Box(0.1, 0.1, 0.9, 0.9))] * 3 + [query("STQ", Box(3.1, 3.1, 3.9, 3.9))])
    j = Statistics.of(PLANE, sample, asked, 1000.0, levels=2)

    assert object_costs(sample, j).tolist() == [0.75, 0.75, 0.25]
    assert object_costs(sample, Statistics.of(PLANE, sample, QueryBatch.of([]), 1.0)).tolist() == [1.0, 1.0, 1.0]


# ---------------------------------------------------------------------------------------------------------- division


def test_the_costliest_is_cut_first():
    cells = np.zeros((4, 4))
    cells[0] = [1, 1, 6, 2]  # the south row; the first cut leaves 2 | 8, the second is that of the 8

    assert divide(costs_of(cells), 4, 2) == [(0, 0, 2, 4), (2, 0, 4, 4)]
    assert divide(costs_of(cells), 4, 3) == [(0, 0, 2, 4), (2, 0, 3, 4), (3, 0, 4, 4)]
    # the 6 is one cell: no cut makes it cheaper, so the others are cut
    assert divide(costs_of(cells), 4, 4) == [(0, 0, 1, 4), (1, 0, 2, 4), (2, 0, 3, 4), (3, 0, 4, 4)]


def test_without_costs_the_largest_are_halved():
    assert divide(costs_of(np.zeros((4, 4))), 4, 4) == [(0, 0, 2, 2), (2, 0, 4, 2), (0, 2, 2, 4), (2, 2, 4, 4)]


def test_there_are_no_more_rectangles_than_cells():
    assert len(divide(costs_of(np.ones((3, 3))), 3, 50)) == 9


@given(tables, st.integers(1, 12))
def test_the_parts_divide_the_grid_and_more_of_them_cost_no_more(cells, leaves):
    costs, side = costs_of(cells), len(cells)

    parts, fewer = divide(costs, side, leaves), divide(costs, side, max(1, leaves - 1))

    covered = np.zeros((side, side), int)
    for west, south, east, north in parts:
        covered[south:north, west:east] += 1
    assert (covered == 1).all()
    assert len(parts) == min(leaves, side * side)
    assert max(map(costs.of, parts)) <= max(map(costs.of, fewer))  # alpha of Eqn 3
    assert sum(map(costs.of, parts)) == costs.of((0, 0, side, side))


# ------------------------------------------------------------------------------------------------------------- build


@given(data=st.data(), space=spaces)
def test_its_leaves_have_the_loads_of_the_sample(data, space):
    found, asked = data.draw(samples(space))
    j = Statistics.of(space, found, asked, 1000.0, levels=2)

    index = build_a_grid(found, 9, j)

    leaf, cost = index.route_objects(found), object_costs(found, j)
    assert len(index.leaves) == 9
    assert index.leaves.objects.tolist() == np.bincount(leaf, minlength=9).tolist()
    np.testing.assert_allclose(index.leaves.load, np.bincount(leaf, cost, 9))


def test_a_skewed_stream_is_divided_more_evenly_than_by_equal_cells():
    rng = np.random.default_rng(3)
    places = np.concatenate([rng.normal((-74.0, 40.7), 0.5, (1500, 2)), rng.uniform((-125, 25), (-67, 49), (500, 2))])
    sample = ObjectBatch.of([obj(f"o{i}", x, y, t=i) for i, (x, y) in enumerate(places.tolist())])

    index = build_a_grid(sample, 25, Statistics.of(WGS84, sample, QueryBatch.of([]), 2000.0))

    largest = float(index.leaves.objects.max())
    assert largest <= 250  # an even division has 80, a grid of 25 equal cells all 2,000 in one or two
