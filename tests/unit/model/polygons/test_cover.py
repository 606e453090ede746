"""Boxes and cells of a polygon: all points are what their box or cell is said to be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.model.polygons.cover import BORDER, INSIDE, LEVELS, OUTSIDE, Cover, cell_code, classify, relate
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.table import PolygonTable
from spatialstream.model.space import WGS84, Space
from tests.lengths import examples
from tests.unit.model.polygons.shapes import points, polygons

PLANE = Space.planar(-100, -50, 300, 900)
TABLE = PolygonTable.of(
    [
        parse_polygon({"type": "Polygon", "coordinates": rings}, WGS84)
        for rings in (
            [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]], [[2, 2], [6, 2], [6, 6], [2, 6], [2, 2]]],
            [[[170, -5], [190, -5], [190, 5], [170, 5], [170, -5]]],
            [[[0, 0], [10, 0], [0, 10], [0, 0]]],
        )
    ]
)
ABOVE = float(np.nextafter(5, 6))


@pytest.mark.parametrize(
    ("row", "box", "state"),
    [
        (0, (0.5, 0.5, 1.5, 7), INSIDE),
        (0, (0.5, 0.5, 2, 7), BORDER),  # its edge is the hole's
        (0, (3, 3, 5, 5), OUTSIDE),  # in the hole
        (0, (1, 1, 7, 7), BORDER),  # around the hole
        (0, (-9, -9, 9, 9), BORDER),
        (0, (8, 8, 9, 9), BORDER),  # a corner in common
        (0, (8.5, 0, 9, 9), OUTSIDE),
        (0, (1, 1, 1, 1), INSIDE),  # a point
        (1, (171, -4, 180, 4), INSIDE),
        (1, (-180, -4, -171, 4), INSIDE),
        (1, (-180, -4, -170, 4), BORDER),
        (1, (-169, -4, 169, 4), OUTSIDE),
        (2, (5, 5, 6, 6), BORDER),  # a corner on the diagonal
        (2, (5, ABOVE, 6, 6), OUTSIDE),
        (2, (1, 1, 4.5, 5), INSIDE),
        (2, (6, 6, 9, 9), OUTSIDE),  # in the bounds, beyond the diagonal
    ],
)
def test_what_a_box_is_to_a_polygon(row, box, state):
    assert relate(TABLE, True, row, *map(float, box)) == state


@settings(max_examples=examples(40, 1000))
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]))
def test_all_points_of_a_box_are_what_the_box_is(seed, space):
    geometry, polygon = next(polygons(space, seed))
    table = PolygonTable.of([polygon])
    rng = np.random.default_rng(seed)
    at = points(space, geometry, rng, 80)
    for a, b in at.reshape(40, 2, 2):
        (west, south), (east, north) = np.minimum(a, b), np.maximum(a, b)
        state = relate(table, space.geographic, 0, west, south, east, north)
        inner = [*rng.uniform((west, south), (east, north), (20, 2)), (west, north), (east, south), a, b]
        inside = {table.contain(space.geographic, 0, float(x), float(y)) for x, y in inner}
        assert state == BORDER or inside == {state == INSIDE}
        if len(inside) == 2:
            assert state == BORDER


@settings(max_examples=examples(40, 1000))
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]), st.sampled_from([4, 40, 256]))
def test_a_cover_is_never_too_certain(seed, space, most):
    geometry, polygon = next(polygons(space, seed))
    table = PolygonTable.of([polygon])
    cover = Cover.of(space, table, 0, most)
    assert len(cover.first) <= most
    assert (cover.first[1:] >= cover.end[:-1]).all()
    for x, y in points(space, geometry, np.random.default_rng(seed), 200).tolist():
        state = classify(cover, x, y)
        assert state == BORDER or (state == INSIDE) == table.contain(space.geographic, 0, x, y)


def test_cells_are_the_finer_the_more_there_may_be():
    covers = [Cover.of(WGS84, TABLE, 0, most) for most in (4, 64, 1024)]
    sizes = [int((cover.end - cover.first).sum()) for cover in covers]
    doubtful = [int((cover.end - cover.first)[~cover.inside].sum()) for cover in covers]
    assert sizes[0] > sizes[1] > sizes[2]
    assert doubtful[0] > 4 * doubtful[1] > 16 * doubtful[2]
    exact = 48 / (360 * 180) * 4**LEVELS
    assert exact < sizes[2] < 1.3 * exact


def test_the_world_is_one_cell():
    world = {"type": "Polygon", "coordinates": [[[-540, -90], [-180, -90], [-180, 90], [-540, 90], [-540, -90]]]}
    table = PolygonTable.of([parse_polygon(world, WGS84)])
    cover = Cover.of(WGS84, table, 0)
    assert classify(cover, -180.0, -90.0) == BORDER
    assert classify(cover, 0.1, 0.1) == INSIDE


def test_cells_at_the_ends_of_the_space():
    bounds = np.array(WGS84.bounds)
    assert cell_code(bounds, -180.0, -90.0) == 0
    assert cell_code(bounds, 180.0, 90.0) == 4**LEVELS - 1
    assert cell_code(bounds, 0.0, 0.0) == 3 * 4 ** (LEVELS - 1)
