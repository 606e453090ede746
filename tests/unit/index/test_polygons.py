"""Leaves that only the box of a polygon meets are spared; contracts of routing are tested for all indexes together."""

from __future__ import annotations

import numpy as np
import pytest

from spatialstream.index.grid.grid import Grid
from spatialstream.index.qt.construction import build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box, Regions
from spatialstream.model.space import WGS84
from tests.streams import polygon
from tests.unit.index.samples import PLANE, obj

BORDERS = np.arange(5.0)
FOUR_BY_FOUR = Grid(PLANE, BORDERS, BORDERS, np.zeros(16), np.zeros(16))


def leaves(index, space, *parts):
    row, leaf = index.route_regions(Regions.of([polygon(space, parts), None, Box(0, 0, 0.5, 0.5)]))
    assert leaf[row == 1].tolist() == list(range(len(index.leaves))), "other regions are as they were"
    return leaf[row == 0].tolist()


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (
            [[[[0.1, 0.1], [1, 0.1], [0.1, 0.9], [0.1, 0.1]]], [[[3.1, 3.1], [4, 3.1], [3.5, 4], [3.1, 3.1]]]],
            [0, 1, 15],
        ),
        ([[[[0, 0], [4, 4], [4, 3.9], [0, 0]]]], [0, 1, 4, 5, 6, 9, 10, 11, 14, 15]),
        (
            [[[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], [[0.5, 0.5], [3.5, 0.5], [3.5, 3.5], [0.5, 3.5], [0.5, 0.5]]]],
            [0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 14, 15],  # a hole has the four in the middle
        ),
        ([[[[1.5, 1.5], [2, 1.5], [2, 2], [1.5, 1.5]]]], [5, 6, 9, 10]),  # a corner in common is one
        ([[[[5, 5], [9, 5], [9, 9], [5, 5]]]], [15]),  # what is out of the space has one leaf
        ([[[[-9, 2.5], [9, 2.2], [9, 2.3], [-9, 2.5]]]], [8, 9, 10, 11]),
    ],
)
def test_leaves_that_only_the_box_meets_are_spared(parts, expected):
    found = leaves(FOUR_BY_FOUR, PLANE, *parts)
    assert found == expected


def test_a_polygon_out_of_the_space_whose_box_is_in_it_has_one_leaf():
    corner = [[[[5, 3], [5, 5], [3, 5], [5, 3]]]]
    found = leaves(FOUR_BY_FOUR, PLANE, *corner)
    assert found == [15]
    beyond = [[[[5, 3.5], [5, 5], [3.5, 5], [5, 3.5]]]]
    assert leaves(FOUR_BY_FOUR, PLANE, *beyond) == [15]


def test_a_polygon_cut_at_the_antimeridian_is_not_all_around_the_world():
    borders_x, borders_y = np.linspace(-180, 180, 9), np.linspace(-90, 90, 3)
    index = Grid(WGS84, borders_x, borders_y, np.zeros(16), np.zeros(16))
    east, west = ([[x, 1], [x + 10, 1], [x + 10, 9], [x, 9], [x, 1]] for x in (170, -180))
    assert leaves(index, WGS84, [east], [west]) == [8, 15]


def test_a_tree_spares_them_too():
    rng = np.random.default_rng(1)
    found = ObjectBatch.of([obj(f"o{i}", x, y) for i, (x, y) in enumerate(rng.uniform(0, 4, (400, 2)).tolist())])
    statistics = Statistics.of(PLANE, found, QueryBatch.of([]), 1000.0, levels=2)
    tree = build_tree(found, 64, statistics, frozenset({"spatial"}))
    frame = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
    hole = [[0.1, 0.1], [3.9, 0.1], [3.9, 3.9], [0.1, 3.9], [0.1, 0.1]]
    there = leaves(tree, PLANE, [frame, hole])
    box = tree.leaves.box
    inner = (box[:, :2] > 0.1).all(axis=1) & (box[:, 2:] < 3.9).all(axis=1)
    assert 0 < inner.sum() < len(box)
    assert there == np.flatnonzero(~inner).tolist()
