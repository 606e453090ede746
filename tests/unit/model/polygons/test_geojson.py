"""Reading polygons: the forms that are taken, what is refused and where, and the normal form."""

import copy
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.space import WGS84, Space
from tests.unit.model.polygons.shapes import polygons

PLANE = Space.planar(0, 0, 1000, 1000)
SQUARE = [[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]
HOLE = [[2, 2], [6, 2], [6, 6], [2, 6], [2, 2]]
OTHER = [[20, 0], [24, 0], [24, 8], [20, 0]]


def polygon(*rings):
    return {"type": "Polygon", "coordinates": [*rings]}


def parts(*each):
    return {"type": "MultiPolygon", "coordinates": [*each]}


def read(value, space=WGS84):
    return parse_polygon(value, space)


def test_the_columns():
    value = read(parts([OTHER], [SQUARE, HOLE]))
    assert value.points.tolist() == [
        *([0, 0], [8, 0], [8, 8], [0, 8]),
        *([2, 2], [2, 6], [6, 6], [6, 2]),
        *([20, 0], [24, 0], [24, 8]),
    ]
    assert value.rings.tolist() == [0, 4, 8, 11]
    assert value.parts.tolist() == [0, 2, 3]
    assert len(value) == 11
    assert value.to_geojson() == parts([SQUARE, HOLE[::-1]], [OTHER])


def test_a_feature_is_its_geometry():
    feature = {"type": "Feature", "id": 3, "properties": {"name": "Mitte"}, "geometry": polygon(SQUARE)}
    assert read(feature) == read(polygon(SQUARE))


def test_altitudes_are_ignored():
    assert read(polygon([[*point, 100] for point in SQUARE])) == read(polygon(SQUARE))


@pytest.mark.parametrize(
    "same",
    [
        polygon(SQUARE[::-1], HOLE),
        polygon([*SQUARE[2:], *SQUARE[1:3]], HOLE[::-1]),
        polygon([SQUARE[0], *SQUARE], [HOLE[0], HOLE[1], HOLE[1], *HOLE[2:]]),
        polygon([[-0.0, 0], *SQUARE[1:4], [0, -0.0]], HOLE),
        parts([SQUARE, HOLE]),
    ],
)
def test_the_normal_form(same):
    assert read(same) == read(polygon(SQUARE, HOLE))
    assert hash(read(same)) == hash(read(polygon(SQUARE, HOLE)))


@pytest.mark.parametrize("other", [polygon(SQUARE), polygon(SQUARE, [[1, 1], [2, 1], [2, 2], [1, 1]])])
def test_another_geometry_has_another_digest(other):
    assert read(other) != read(polygon(SQUARE, HOLE))
    assert read(polygon(SQUARE)) != 3


def test_the_digest_is_the_same_on_every_machine():
    assert read(polygon(SQUARE, HOLE)).digest == "ccf9e1ffd5c4f2a40fd85887e6043a31"


@given(st.integers(0, 10**6), st.randoms())
def test_what_is_written_is_read_as_the_same(seed, random):
    geometry, value = next(polygons(WGS84, seed))
    assert read(value.to_geojson()) == value
    assert pickle.loads(pickle.dumps(value)) == value
    mixed = copy.deepcopy(geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]])
    random.shuffle(mixed)
    for part in mixed:
        for i, ring in enumerate(part):
            begin = random.randrange(len(ring) - 1)
            turned = [*ring[begin:-1], *ring[: begin + 1]]
            part[i] = turned if random.random() < 0.5 else turned[::-1]
    assert read(parts(*mixed)) == value


MARGIN = 'and has no inside; give "within", a distance, beside it'
FORM = "must be a GeoJSON Polygon, MultiPolygon, or Feature of one of them"
BOW_TIE = [[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]
SPIKE = [[0, 0], [4, 0], [4, 4], [4, 6], [4, 4], [0, 4], [0, 0]]
THROUGH = [[0, 0], [1, 1], [2, 2], [2, 0], [1, 1], [0, 2], [0, 0]]


@pytest.mark.parametrize(
    ("space", "value", "reason"),
    [
        (WGS84, None, f": {FORM}"),
        (WGS84, [SQUARE], f": {FORM}"),
        (WGS84, {"coordinates": [SQUARE]}, f".type: is missing; it {FORM}"),
        (
            WGS84,
            {"type": "LineString", "coordinates": SQUARE},
            f".type: 'LineString' is not a polygon, {MARGIN}; it {FORM}",
        ),
        (WGS84, {"type": "Feature"}, ".geometry: must be a GeoJSON Polygon or MultiPolygon"),
        (
            WGS84,
            {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}},
            f".geometry.type: 'Point' is not a polygon, {MARGIN}; it {FORM}",
        ),
        (WGS84, {"type": "Polygon"}, ".coordinates: must be a list of rings, at least one"),
        (WGS84, polygon(), ".coordinates: must be a list of rings, at least one"),
        (WGS84, parts(), ".coordinates: must be a list of polygons, at least one"),
        (WGS84, parts([SQUARE], []), ".coordinates[1]: must be a list of rings, at least one"),
        (WGS84, polygon([]), ".coordinates[0]: must be a list of positions, at least one"),
        (WGS84, polygon(SQUARE, [[1]]), ".coordinates[1][0]: must be a position, [lon, lat]"),
        (PLANE, polygon([3, 4]), ".coordinates[0][0]: must be a position, [x, y]"),
        (WGS84, polygon([[0, "a"]]), ".coordinates[0][0]: 'a' is not a number"),
        (WGS84, polygon([[0, math.nan]]), ".coordinates[0][0]: nan is not a finite number"),
        (PLANE, polygon([[math.inf, 0]]), ".coordinates[0][0]: inf is not a finite number"),
        (PLANE, polygon([[0, 2e150]]), ".coordinates[0][0]: 2e+150 is out of range; it must lie in [-1e+150, 1e+150]"),
        (
            WGS84,
            polygon([[52.5, 113.4], *SQUARE]),
            ".coordinates[0][0]: latitude 113.4 is out of range; it must lie in [-90, 90];"
            " longitude and latitude look exchanged, GeoJSON has the longitude first",
        ),
        (
            WGS84,
            polygon([[152.5, 113.4], *SQUARE]),
            ".coordinates[0][0]: latitude 113.4 is out of range; it must lie in [-90, 90]",
        ),
        (
            WGS84,
            polygon([[541, 0], *SQUARE]),
            ".coordinates[0][0]: longitude 541.0 is out of range; it must lie in [-540, 540]",
        ),
        (
            WGS84,
            polygon([[-181, 0], [181, 0], [0, 9], [-181, 0]]),
            ".coordinates[0]: reaches from longitude -181 to 181, more than once around the Earth",
        ),
        (WGS84, polygon([[1, 1]] * 4), ".coordinates[0]: has 1 distinct points; a ring has at least 3"),
        (
            WGS84,
            parts([SQUARE], [[[1, 1], [2, 2], [1, 1], [1, 1]]]),
            ".coordinates[1][0]: has 2 distinct points; a ring has at least 3",
        ),
        (
            WGS84,
            polygon(SQUARE[:4]),
            ".coordinates[0]: is not closed: it begins at [0.0, 0.0] and ends at [0.0, 8.0];"
            " repeat the first position at the end",
        ),
        (
            WGS84,
            parts([SQUARE], [OTHER, BOW_TIE]),
            ".coordinates[1][1]: crosses or touches itself at [1, 1]; give a ring that does not",
        ),
        (WGS84, polygon(THROUGH), ".coordinates[0]: crosses or touches itself at [1, 1]; give a ring that does not"),
        (WGS84, polygon(SPIKE), ".coordinates[0]: crosses or touches itself at [4, 4]; give a ring that does not"),
        (
            WGS84,
            polygon([[0, 0], [1, 1], [2, 2], [0, 0]]),
            ".coordinates[0]: crosses or touches itself at [1, 1]; give a ring that does not",
        ),
        (
            WGS84,
            polygon(SQUARE, [[4, 4], [12, 4], [12, 5], [4, 4]]),
            ".coordinates: has rings that cross or share an edge at [8, 4];"
            " the first ring is the border, and all others are holes in it",
        ),
        (
            WGS84,
            polygon(SQUARE, OTHER),
            ".coordinates: has a hole that is not in the first ring at [20, 0];"
            " the first ring is the border, and all others are holes in it",
        ),
        (
            WGS84,
            polygon(SQUARE, HOLE, [[3, 3], [4, 3], [4, 4], [3, 3]]),
            ".coordinates: has a hole in a hole at [3, 3];"
            " the first ring is the border, and all others are holes in it",
        ),
        (
            WGS84,
            polygon(SQUARE) | {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::25833"}}},
            ".crs: 'urn:ogc:def:crs:EPSG::25833' is not WGS84; give longitudes and latitudes (RFC 7946)",
        ),
    ],
)
def test_what_is_no_polygon_is_told_with_the_place(space, value, reason):
    with pytest.raises(RecordError) as caught:
        parse_polygon(value, space)
    assert str(caught.value) == f"region.polygon{reason}"


def test_wgs84_may_be_named():
    named = {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}}
    assert read(polygon(SQUARE) | named) == read(polygon(SQUARE))


def test_the_number_of_vertices_is_limited():
    ring = [[math.cos(i / 5001 * math.tau), math.sin(i / 5001 * math.tau)] for i in range(5001)]
    ring.append(ring[0])
    away = [[x + 10, y] for x, y in ring]
    with pytest.raises(RecordError, match=r"coordinates: has more than 10000 vertices \(setting polygon-vertices\)$"):
        read(parts([ring], [away]))
    assert len(parse_polygon(parts([ring], [away]), WGS84, most_vertices=10_002)) == 10_002


def test_holes_that_touch_are_taken():
    left, right = [[2, 4], [4, 2], [4, 6], [2, 4]], [[4, 2], [6, 4], [4, 6], [4, 2]]
    assert len(read(polygon(SQUARE, left, [[4, 2], [6, 4], [5, 6], [4, 2]]))) == 10
    with pytest.raises(RecordError, match="share an edge"):
        read(polygon(SQUARE, left, right))
