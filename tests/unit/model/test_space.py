"""Spaces and points."""

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.space import LARGEST, SMALLEST, WGS84, Space, check_number

PLANE = Space.planar(-1.5, 0, 10, 5)


def test_the_default_space():
    assert Space.parse("wgs84") is WGS84
    assert str(WGS84) == "wgs84"
    assert WGS84.axes == ("lon", "lat")
    assert WGS84.distance_field == "distance_m"
    assert WGS84.bounds == (-180, -90, 180, 90)


def test_a_plane():
    assert Space.parse("planar:-1.5,0,10,5") == PLANE
    assert PLANE.axes == ("x", "y")
    assert PLANE.distance_field == "distance"
    assert PLANE.distance(0, 0, 3, 4) == 5
    assert pickle.loads(pickle.dumps(PLANE)) == PLANE


BOUND = st.floats(-LARGEST, LARGEST)


@given(BOUND, BOUND, BOUND, BOUND)
def test_the_text_of_a_plane_is_read_back(a, b, c, d):
    if abs(a - c) >= SMALLEST and abs(b - d) >= SMALLEST:
        space = Space.planar(min(a, c), min(b, d), max(a, c), max(b, d))
        assert Space.parse(str(space)) == space


@pytest.mark.parametrize(
    "text", ["", "WGS84", "planar", "planar:", "planar:1,2,3", "planar:a,b,c,d", "plane:0,0,1,1", "planar:0,0,1,1,2"]
)
def test_what_is_no_space_is_told(text):
    with pytest.raises(SettingError) as caught:
        Space.parse(text)
    assert str(caught.value) == f'space: {text!r} is not a space; give "wgs84" or "planar:x0,y0,x1,y1"'


@pytest.mark.parametrize("text", ["planar:0,0,0,1", "planar:0,1,1,0", "planar:nan,0,1,1", "planar:0,0,inf,1"])
def test_a_plane_without_area_is_told(text):
    with pytest.raises(SettingError, match="space: planar bounds are x0,y0,x1,y1 with x0 < x1 and y0 < y1"):
        Space.parse(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("planar:0,0,1.1e150,1", "planar bounds must lie in [-1e+150, 1e+150]"),
        ("planar:-1e308,-1e308,1e308,1e308", "planar bounds must lie in [-1e+150, 1e+150]"),
        ("planar:0,0,1e-141,1", "planar sides must be at least 1e-140"),
    ],
)
def test_a_plane_that_arithmetic_does_not_bear_is_refused(text, problem):
    with pytest.raises(SettingError) as caught:
        Space.parse(text)
    assert str(caught.value).startswith(f"space: {problem}")


@given(BOUND, BOUND, BOUND, BOUND)
def test_distances_in_any_plane_are_finite(a, b, c, d):
    plane = Space.planar(-LARGEST, -LARGEST, LARGEST, LARGEST)
    assert math.isfinite(plane.distance(a, b, c, d))


@pytest.mark.parametrize(("value", "number"), [(1, 1.0), (-0.0, -0.0), (2**60 + 1, float(2**60)), (1e-320, 1e-320)])
def test_numbers(value, number):
    assert repr(check_number(value, "x")) == repr(number)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "is required; give a number"),
        (True, "True is not a number"),
        ("1", "'1' is not a number"),
        ([1], "[1] is not a number"),
        (math.nan, "nan is not a finite number"),
        (-math.inf, "-inf is not a finite number"),
        (10**400, f"{10**400} is not a finite number"),
    ],
)
def test_what_is_no_number_is_told(value, problem):
    with pytest.raises(RecordError) as caught:
        check_number(value, "lon")
    assert str(caught.value) == f"lon: {problem}"


@pytest.mark.parametrize("point", [(-180, -90), (180, 90), (0.5, -0.0)])
def test_bounds_belong_to_the_space(point):
    assert WGS84.check_point(*point, ("lon", "lat")) == point


@pytest.mark.parametrize(
    ("space", "point", "reason"),
    [
        (WGS84, (180.5, 0), "lon: 180.5 is out of range; it must lie in [-180, 180]"),
        (WGS84, (0, -91), "lat: -91 is out of range; it must lie in [-90, 90]"),
        (WGS84, (None, None), "lon: is required; give a number"),
        (WGS84, (1, None), "lat: is required; give a number"),
        (PLANE, (-2, 0), "x: -2 is out of range; it must lie in [-1.5, 10]"),
        (PLANE, (0, 5.1), "y: 5.1 is out of range; it must lie in [0, 5]"),
    ],
)
def test_a_point_outside_is_told(space, point, reason):
    with pytest.raises(RecordError) as caught:
        space.check_point(*point, space.axes)
    assert str(caught.value) == reason
