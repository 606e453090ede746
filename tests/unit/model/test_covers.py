"""Covering boxes of regions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.covers import region_parts
from spatialstream.model.regions import Box, Circle, Regions
from spatialstream.model.space import WGS84
from tests.unit.index.samples import PLANE, points, regions, spaces


def in_parts(parts, x, y):
    return [bool(w <= x <= e and s <= y <= n) for w, s, e, n in parts]


@given(st.data(), spaces)
def test_a_point_of_the_region_lies_in_its_parts(data, space):
    region = data.draw(regions(space))
    x, y = data.draw(points(space))
    columns = Regions.of([region])

    if columns.contain(space, 0, x, y):
        assert any(in_parts(region_parts(space, columns)[0], x, y))


def test_edges():
    columns = Regions.of([None, Box(170.0, 1.0, -170.0, 2.0), Circle(0.0, 90.0, 1.0), Circle(180.0, 0.0, 0.0)])

    everywhere, crossing, pole, point = region_parts(WGS84, columns).tolist()

    nowhere = [np.inf, np.inf, -np.inf, -np.inf]
    assert everywhere == [[-180.0, -90.0, 180.0, 90.0], nowhere]
    assert crossing == [[170.0, 1.0, 180.0, 2.0], [-180.0, 1.0, -170.0, 2.0]]
    assert pole[0][::2] == [-180.0, 180.0]
    assert pole[1] == nowhere
    assert in_parts(point, 180.0, 0.0) == [True, False]
    assert in_parts(point, -180.0, 0.0) == [False, True]
    assert region_parts(PLANE, Regions.of([])).shape == (0, 2, 4)
