"""Distance and containment against independent formulas."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.geometry import BOX, CIRCLE, EARTH_RADIUS_M, EVERYWHERE, contains, distance, distance_to_box

LON = st.floats(-180, 180) | st.sampled_from([-180.0, 180.0, 0.0, 179.999999, -179.999999])
LAT = st.floats(-90, 90) | st.sampled_from([-90.0, 90.0, 0.0, 89.999999])
PLANAR = st.floats(-1e6, 1e6)


def chord(x1, y1, x2, y2):
    """Great-circle distance by the angle between two vectors."""

    def vector(x, y):
        x, y = math.radians(x), math.radians(y)
        return math.cos(y) * math.cos(x), math.cos(y) * math.sin(x), math.sin(y)

    a, b = vector(x1, y1), vector(x2, y2)
    cross = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    return EARTH_RADIUS_M * math.atan2(math.hypot(*cross), sum(p * q for p, q in zip(a, b, strict=True)))


@given(LON, LAT, LON, LAT)
def test_haversine_is_the_angle_between_two_vectors(x1, y1, x2, y2):
    assert math.isclose(distance(True, x1, y1, x2, y2), chord(x1, y1, x2, y2), rel_tol=1e-6, abs_tol=1.0)


@given(LON, LAT, LON, LAT, st.booleans())
def test_distance_is_symmetric_and_nothing_to_itself(x1, y1, x2, y2, geographic):
    assert math.isclose(distance(geographic, x1, y1, x2, y2), distance(geographic, x2, y2, x1, y1), rel_tol=1e-12)
    assert distance(geographic, x1, y1, x1, y1) == 0


@given(LON, LAT, LAT, st.sampled_from([-90.0, 90.0]), LON, LON)
def test_a_place_has_one_distance_whatever_it_is_called(x, y, latitude, pole, one, other):
    assert distance(True, x, y, 180.0, latitude) == distance(True, x, y, -180.0, latitude)
    assert distance(True, 180.0, latitude, x, y) == distance(True, -180.0, latitude, x, y)
    assert distance(True, x, y, one, pole) == distance(True, x, y, other, pole)
    assert distance(True, one, pole, x, y) == distance(True, other, pole, x, y)


def test_known_distances():
    quarter = math.pi / 2 * EARTH_RADIUS_M
    assert math.isclose(distance(True, 0, 0, 90, 0), quarter)
    assert math.isclose(distance(True, 17, 90, -80, 0), quarter)
    assert math.isclose(distance(True, 0, 0, 180, 0), 2 * quarter)
    assert distance(True, 180, 10, -180, 10) == distance(True, 12, 90, -99, 90) == 0
    assert distance(False, 0, 0, 3, 4) == 5


@given(PLANAR, PLANAR, PLANAR, PLANAR, PLANAR, PLANAR)
def test_a_planar_box_contains_its_border(a, b, c, d, x, y):
    west, east, south, north = min(a, c), max(a, c), min(b, d), max(b, d)
    assert contains(False, BOX, west, south, east, north, x, y) == (west <= x <= east and south <= y <= north)
    for corner in ((west, south), (west, north), (east, south), (east, north)):
        assert contains(False, BOX, west, south, east, north, *corner)


@given(LON, LAT, LON, LAT, LON, LAT)
def test_a_box_with_west_beyond_east_crosses_the_antimeridian(west, b, east, d, x, y):
    south, north = min(b, d), max(b, d)
    inside = west <= x <= east if west <= east else (west <= x <= 180 or -180 <= x <= east)
    assert contains(True, BOX, west, south, east, north, x, y) == (inside and south <= y <= north)


@given(LON, LAT, LON, LAT, st.booleans())
def test_a_circle_is_closed(x, y, px, py, geographic):
    radius = distance(geographic, x, y, px, py)
    assert contains(geographic, CIRCLE, x, y, radius, 0.0, px, py)
    if radius > 0:
        assert not contains(geographic, CIRCLE, x, y, math.nextafter(radius, 0), 0.0, px, py)


@given(LON, LAT)
def test_everywhere_is_everywhere(x, y):
    assert contains(True, EVERYWHERE, 0.0, 0.0, 0.0, 0.0, x, y)


@given(LON, LAT, LON, LAT, LON, LAT, st.floats(0, 1), st.floats(0, 1))
def test_the_distance_to_a_box_is_never_above_that_to_a_point_of_it(x, y, a, b, c, d, u, v):
    west, east, south, north = min(a, c), max(a, c), min(b, d), max(b, d)
    bound = distance_to_box(True, x, y, west, south, east, north)
    px = min(max(west + u * (east - west), west), east)
    py = min(max(south + v * (north - south), south), north)
    assert 0 <= bound <= distance(True, x, y, px, py)


@given(LON, LAT, LON, LAT, LON, LAT)
def test_the_distance_to_a_box_is_tight(x, y, a, b, c, d):
    west, east, south, north = min(a, c), max(a, c), min(b, d), max(b, d)
    bound = distance_to_box(True, x, y, west, south, east, north)
    steps = 60
    near = min(
        distance(True, x, y, west + i * (east - west) / steps, south + j * (north - south) / steps)
        for i in range(steps + 1)
        for j in range(steps + 1)
    )
    step = distance(True, 0, 0, (east - west) / steps, 0) + distance(True, 0, 0, 0, (north - south) / steps)
    assert near - bound <= step + 1


@given(PLANAR, PLANAR, PLANAR, PLANAR, PLANAR, PLANAR)
def test_the_distance_to_a_planar_box_is_exact(x, y, a, b, c, d):
    west, east, south, north = min(a, c), max(a, c), min(b, d), max(b, d)
    nearest = min(max(x, west), east), min(max(y, south), north)
    assert distance_to_box(False, x, y, west, south, east, north) == pytest.approx(distance(False, x, y, *nearest))


@given(st.lists(LON, min_size=3, max_size=3), st.lists(LAT, min_size=3, max_size=3), st.booleans())
def test_a_point_of_the_box_is_at_no_distance(lons, lats, geographic):
    west, x, east = sorted(lons)
    south, y, north = sorted(lats)
    assert distance_to_box(geographic, x, y, west, south, east, north) == 0
