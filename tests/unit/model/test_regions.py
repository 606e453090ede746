"""Regions: their JSON form, their covers, their columns."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spatialstream.model.covers import region_parts
from spatialstream.model.errors import RecordError
from spatialstream.model.geometry import EARTH_RADIUS_M, contains, distance
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.regions import Box, Circle, Polygon, Regions, parse_region
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle.polygons import region_containment
from tests.streams import polygons

PLANE = Space.planar(-10, 0, 10, 5)
LON = st.floats(-180, 180) | st.sampled_from([-180.0, 180.0, 179.5, -179.5, 0.0])
LAT = st.floats(-90, 90) | st.sampled_from([-90.0, 90.0, 89.5, -89.5, 0.0])
BOXES = st.builds(lambda w, a, e, b: Box(w, min(a, b), e, max(a, b)), LON, LAT, LON, LAT)
RADII = st.floats(0, 25e6) | st.floats(0, 1000) | st.sampled_from([0.0, 1e-9, math.pi * EARTH_RADIUS_M, 1e300])
CIRCLES = st.builds(Circle, LON, LAT, RADII)
POLYGONS = polygons(WGS84, [(179.5, 0.0), (-180.0, 0.0), (0.0, 0.0)])
POLYGON_FORM = "region.polygon: must be a GeoJSON Polygon, MultiPolygon, or Feature of one of them"
FLAT = st.floats(-1e9, 1e9)
PLANAR_REGIONS = st.builds(
    lambda a, b, c, d: Box(min(a, c), min(b, d), max(a, c), max(b, d)), FLAT, FLAT, FLAT, FLAT
) | st.builds(Circle, FLAT, FLAT, st.floats(0, 1e9))


def inside(space, region, x, y):
    return Regions.of([region]).contain(space, 0, x, y)


def cover(space, region):
    parts = region_parts(space, Regions.of([region]))[0].tolist()
    return [(west, south, east, north) for west, south, east, north in parts if west <= east]


def covering(boxes, x, y):
    return sum(west <= x <= east and south <= y <= north for west, south, east, north in boxes)


def test_the_json_form():
    assert parse_region({"box": [170, -10, -170.5, 10]}, WGS84) == Box(170, -10, -170.5, 10)
    assert parse_region({"circle": [0, 90, 0]}, WGS84) == Circle(0, 90, 0)
    assert parse_region({"box": [-100, -100, 100, -100]}, PLANE) == Box(-100, -100, 100, -100)
    assert parse_region({"circle": [0, 5, 1e9]}, PLANE) == Circle(0, 5, 1e9)


FORM = (
    'region: must be {"box": [west, south, east, north]}, {"circle": [x, y, radius]}, {"polygon": GeoJSON} or '
    '{"area": name}'
)
TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [0, 4], [0, 0]]]}


def test_a_polygon_is_geojson() -> None:
    read = parse_region({"polygon": TRIANGLE}, WGS84)
    assert read == parse_polygon(TRIANGLE, WGS84)
    assert parse_region({"polygon": TRIANGLE}, WGS84) is read, "one that was read lately is the same one"
    assert parse_region({"polygon": {"type": "Feature", "geometry": TRIANGLE}}, WGS84) == read
    with pytest.raises(RecordError) as caught:
        parse_region({"polygon": TRIANGLE}, WGS84, most_vertices=2)
    assert str(caught.value) == "region.polygon.coordinates: has more than 2 vertices (setting polygon-vertices)"


@pytest.mark.parametrize(
    ("given", "box"),
    [
        ([170, 0, 190, 1], Box(170, 0, -170, 1)),
        ([-190, 0, -170, 1], Box(170, 0, -170, 1)),
        ([190, 0, 200.25, 1], Box(-170, 0, -159.75, 1)),
        ([-200.25, 0, -190, 1], Box(159.75, 0, 170, 1)),
        ([180, 0, 190, 1], Box(180, 0, -170, 1)),
        ([-190, 0, -180, 1], Box(170, 0, -180, 1)),
        ([-90, 0, 270, 1], Box(-180, 0, 180, 1)),
        ([-91, 0, 269.5, 1], Box(-180, 0, 180, 1)),
        ([-190, 0, 190, 1], Box(-180, 0, 180, 1)),
        ([180, 0, 540, 1], Box(-180, 0, 180, 1)),
        ([-190, 0, 169, 1], Box(170, 0, 169, 1)),
        ([-540, 0, -530, 1], Box(180, 0, -170, 1)),
        ([530, 0, 540, 1], Box(170, 0, -180, 1)),
        ([-540, 0, -540, 1], Box(180, 0, -180, 1)),
    ],
)
def test_a_box_may_have_longitudes_beyond_180(given: list[float], box: Box) -> None:
    assert parse_region({"box": given}, WGS84) == box


@given(st.floats(-540, 540), st.floats(-540, 540), LON)
@example(-540.0, -540.0, 180.0)
@example(-540.0, -530.0, 180.0)
@example(530.0, 540.0, -180.0)
def test_a_box_beyond_180_is_the_same_box(west: float, east: float, x: float) -> None:
    west, east = min(west, east), max(west, east)
    box = parse_region({"box": [west, 0, east, 0]}, WGS84)
    turns = [x] if west >= -180 and east <= 180 else [Fraction(x) + turn for turn in (-720, -360, 0, 360, 720)]
    assert inside(WGS84, box, x, 0.0) == any(west <= each <= east for each in turns)


@pytest.mark.parametrize(
    ("space", "value", "reason"),
    [
        (WGS84, None, FORM),
        (WGS84, [0, 0, 1, 1], FORM),
        (WGS84, {}, FORM),
        (WGS84, {"disc": [0, 0, 1]}, FORM),
        (WGS84, {"box": [0, 0, 1, 1], "circle": [0, 0, 1]}, FORM),
        (WGS84, {"box": [0, 0, 1]}, "region.box: must be a list of 4 numbers"),
        (WGS84, {"box": "0,0,1,1"}, "region.box: must be a list of 4 numbers"),
        (WGS84, {"circle": [0, 0, 1, 1]}, "region.circle: must be a list of 3 numbers"),
        (
            WGS84,
            {"box": [0, 0, 541, 1]},
            "region.box: longitude 541 is out of range; it must lie in [-180, 180], or beyond that by at most 360 in a "
            "box across the antimeridian",
        ),
        (
            WGS84,
            {"box": [190, 0, 170, 1]},
            "region.box: west 190 is greater than east 170, and one of them is beyond 180",
        ),
        (WGS84, {"polygon": [[0, 0], [1, 1], [2, 0]]}, POLYGON_FORM),
        (
            WGS84,
            {"polygon": {"type": "Polygon", "coordinates": [[[52, 113], [52, 114], [53, 114], [52, 113]]]}},
            "region.polygon.coordinates[0][0]: latitude 113.0 is out of range; it must lie in [-90, 90]; "
            "longitude and latitude look exchanged, GeoJSON has the longitude first",
        ),
        (WGS84, {"box": [0, 0, 1, 91]}, "region.box: 91 is out of range; it must lie in [-90, 90]"),
        (WGS84, {"box": [0, 2, 1, 1]}, "region.box: south 2 is greater than north 1"),
        (WGS84, {"box": [0, "a", 1, 1]}, "region.box: 'a' is not a number"),
        (WGS84, {"circle": [0, -91, 1]}, "region.circle: -91 is out of range; it must lie in [-90, 90]"),
        (WGS84, {"circle": [0, 0, -1]}, "region.circle: the radius -1 is negative; it must be at least 0"),
        (WGS84, {"circle": [0, 0, math.inf]}, "region.circle: inf is not a finite number"),
        (WGS84, {"circle": [0, 0, None]}, "region.circle: is required; give a number"),
        (PLANE, {"box": [2, 0, 1, 1]}, "region.box: west 2 is greater than east 1"),
        (PLANE, {"box": [0, 0, 1, math.nan]}, "region.box: nan is not a finite number"),
        (PLANE, {"circle": [11, 0, 1]}, "region.circle: 11 is out of range; it must lie in [-10, 10]"),
    ],
)
def test_what_is_no_region_is_told(space, value, reason):
    with pytest.raises(RecordError) as caught:
        parse_region(value, space)
    assert str(caught.value) == reason


@given(st.none() | BOXES | CIRCLES | POLYGONS, LON, LAT)
def test_a_cover_contains_the_region(region, x, y):
    boxes = cover(WGS84, region)
    assert 1 <= len(boxes) <= 2
    assert all(west <= east and south <= north for west, south, east, north in boxes)
    assert covering(boxes, x, y) <= 1 or abs(x) == 180
    if inside(WGS84, region, x, y):
        assert covering(boxes, x, y) >= 1


@given(CIRCLES, st.floats(0, 2 * math.pi), st.floats(0.999999, 1.0))
def test_a_cover_contains_the_circles_rim(circle, bearing, part):
    angle = min(circle.radius * part / EARTH_RADIUS_M, math.pi)
    lat = math.radians(circle.y)
    to = math.asin(
        max(-1, min(1, math.sin(lat) * math.cos(angle) + math.cos(lat) * math.sin(angle) * math.cos(bearing)))
    )
    turn = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(lat), math.cos(angle) - math.sin(lat) * math.sin(to)
    )
    x = (circle.x + math.degrees(turn) + 540) % 360 - 180
    y = math.degrees(to)
    if distance(True, circle.x, circle.y, x, y) <= circle.radius:
        assert covering(cover(WGS84, circle), x, y) >= 1


@pytest.mark.parametrize(
    ("region", "boxes"),
    [
        (None, [(-180, -90, 180, 90)]),
        (Box(170, -5, -170, 5), [(170, -5, 180, 5), (-180, -5, -170, 5)]),
        (Box(10, 1, 20, 2), [(10, 1, 20, 2)]),
    ],
)
def test_covers_of_boxes_are_exact(region, boxes):
    assert cover(WGS84, region) == boxes


@pytest.mark.parametrize(
    ("circle", "count"),
    [
        (Circle(0, 0, 100_000), 1),
        (Circle(179.9, 0, 100_000), 2),
        (Circle(-179.9, 0, 100_000), 2),
        (Circle(0, 89.9, 100_000), 1),
        (Circle(0, -89.9, 100_000), 1),
        (Circle(5, 5, 30e6), 1),
    ],
)
def test_covers_of_circles_are_as_many_boxes_as_they_need(circle, count):
    boxes = cover(WGS84, circle)
    assert len(boxes) == count
    whole = any(east - west == 360 for west, _, east, _ in boxes)
    assert whole == (abs(circle.y) > 89 or circle.radius > 20e6)
    assert all(west >= -180 and east <= 180 and south >= -90 and north <= 90 for west, south, east, north in boxes)


@given(st.floats(-179, 179), st.floats(-80, 80), st.floats(1, 100_000))
def test_covers_of_circles_are_tight(x, y, radius):
    boxes = cover(WGS84, Circle(x, y, radius))
    height = boxes[0][3] - boxes[0][1]
    assert height <= 2 * math.degrees(radius / EARTH_RADIUS_M) * 1.001 + 1e-8
    assert (
        sum(east - west for west, _, east, _ in boxes)
        <= 1.1 * height / math.cos(math.radians(abs(y) + height / 2)) + 1e-8
    )


@given(PLANAR_REGIONS, FLAT, FLAT)
def test_planar_covers_contain_the_region(region, x, y):
    boxes = cover(PLANE, region)
    assert len(boxes) == 1
    if inside(PLANE, region, x, y):
        assert covering(boxes, x, y) == 1
    if isinstance(region, Circle):
        for px, py in ((region.x + region.radius, region.y), (region.x, region.y - region.radius)):
            if inside(PLANE, region, px, py):
                assert covering(boxes, px, py) == 1


@given(st.lists(st.none() | BOXES | CIRCLES | POLYGONS, max_size=8))
def test_columns_hold_the_same_regions(regions):
    columns = Regions.of(regions)
    assert [columns[i] for i in range(len(columns))] == regions
    chosen = np.arange(0, len(regions), 2)
    assert [columns.take(chosen)[i] for i in range(len(chosen))] == regions[::2]
    mask = np.arange(len(regions)) % 2 == 0
    assert [columns.take(mask)[i] for i in range(len(chosen))] == regions[::2]


@given(st.none() | BOXES | CIRCLES | POLYGONS, LON, LAT)
def test_columns_contain_what_the_region_contains(region, x, y):
    found = Regions.of([None, region]).contain(WGS84, 1, x, y)
    match region:
        case None:
            assert found
        case Box(w, s, e, n):
            assert found == contains(True, 1, w, s, e, n, x, y)
        case Circle(cx, cy, radius):
            assert found == (distance(True, cx, cy, x, y) <= radius)
        case Polygon():
            assert found == region_containment(region.to_geojson(), True, region.within, WGS84.distance)(x, y)
