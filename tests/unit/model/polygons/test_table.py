"""Whether polygons contain points: plain cases, then pairs by the thousand against the oracle in fractions."""

import numpy as np
import pytest

from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.table import PolygonTable, contain_points
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle.polygons import polygon_containment
from spatialstream.report.land import land_rings
from tests.lengths import AT_LENGTH, examples
from tests.unit.model.polygons.shapes import points, polygons

PLANE = Space.planar(-100, -50, 300, 900)
SQUARE = [[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]
HOLE = [[2, 2], [6, 2], [6, 6], [2, 6], [2, 2]]
COUNTRY = {
    # a shell with a bay, an enclave, a lake with a corner on the coast; an island; an exclave in the enclave
    "type": "MultiPolygon",
    "coordinates": [
        [
            [[0, 0], [10, 0], [10, 10], [6, 10], [6, 7], [5, 7], [5, 10], [0, 10], [0, 0]],
            [[1, 1], [1, 4], [4, 4], [4, 1], [1, 1]],
            [[10, 5], [8, 4], [8, 6], [10, 5]],
        ],
        [[[12, 1], [13, 1.5], [12.5, 3], [12, 1]]],
        [[[2, 2], [3, 2], [3, 3], [2, 3], [2, 2]]],
    ],
}
AHEAD = {"type": "Polygon", "coordinates": [[[170, -5], [190, -5], [190, 5], [170, 5], [170, -5]]]}
CUT = {
    "type": "MultiPolygon",
    "coordinates": [
        [[[170, -5], [180, -5], [180, 5], [170, 5], [170, -5]]],
        [[[-180, -5], [-170, -5], [-170, 5], [-180, 5], [-180, -5]]],
    ],
}
BEHIND = {"type": "Polygon", "coordinates": [[[-190, -5], [-170, -5], [-170, 5], [-190, 5], [-190, -5]]]}
WORLD = {"type": "Polygon", "coordinates": [[[-180, -90], [180, -90], [180, 90], [-180, 90], [-180, -90]]]}


def contains(geometry, x, y, space=WGS84):
    """Whether it contains the point, by the kernel and by the oracle."""
    found = PolygonTable.of([parse_polygon(geometry, space)]).contain(space.geographic, 0, x, y)
    assert polygon_containment(geometry, space.geographic)(x, y) == found
    return found


def one(*rings):
    return {"type": "Polygon", "coordinates": [*rings]}


@pytest.mark.parametrize("rings", [(SQUARE, HOLE), (SQUARE[::-1], HOLE), (SQUARE, HOLE[::-1])])
@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [
        (1, 1, True),
        (0, 0, True),  # vertices
        (8, 8, True),
        (8, 3, True),  # edges
        (3, 8, True),
        (2, 2, True),  # the hole's border is inside
        (2, 4, True),
        (4, 6, True),
        (3, 3, False),  # what is in the hole is not
        (np.nextafter(2, 3), 4, False),
        (np.nextafter(8, 9), 3, False),
        (-1, 0, False),  # on the level of an edge, and of vertices
        (9, 8, False),
        (-0.0, 4, True),
    ],
)
def test_borders_of_shells_and_holes_are_inside(rings, x, y, inside):
    assert contains(one(*rings), x, y) is inside
    assert contains(one(*rings), x, y, PLANE) is inside


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [
        (5.5, 8, False),
        (5.5, 7, True),
        (0.5, 0.5, True),
        (1.5, 1.5, False),
        (2.5, 2.5, True),
        (2, 2, True),
        (1, 1, True),
        (9, 5, False),
        (10, 5, True),
        (8, 5, True),
        (12.5, 2, True),
        (11, 2, False),
    ],
)
def test_a_country_with_an_enclave_a_lake_and_an_island(x, y, inside):
    assert contains(COUNTRY, x, y) is inside


@pytest.mark.parametrize("geometry", [AHEAD, CUT, BEHIND], ids=["beyond 180", "cut", "below -180"])
@pytest.mark.parametrize(
    ("x", "inside"),
    [
        (170, True),
        (175, True),
        (180, True),
        (-180, True),
        (-175, True),
        (-170, True),
        (np.nextafter(170, 0), False),
        (np.nextafter(-170, 0), False),
        (0, False),
    ],
)
def test_a_polygon_across_the_antimeridian(geometry, x, inside):
    assert contains(geometry, x, 2.5) is inside
    assert contains(geometry, x, 5) is inside


def test_a_longitude_beyond_180_is_not_rounded():
    edge = 181.0
    west = one([[170, 0], [edge, 0], [edge, 1], [170, 1], [170, 0]])
    assert contains(west, -179.0, 0.5)
    assert not contains(west, np.nextafter(-179.0, 0), 0.5)  # plus 360 it would be rounded to 181


@pytest.mark.parametrize("y", [-90, 0, 90])
@pytest.mark.parametrize("x", [-180, -1e-300, 180])
def test_the_whole_world(x, y):
    assert contains(WORLD, x, y)


def test_polygons_in_one_table_do_not_know_each_other():
    geometries = [one(SQUARE, HOLE), COUNTRY, CUT, one(SQUARE), AHEAD]
    table = PolygonTable.of([parse_polygon(each, WGS84) for each in geometries])
    rng = np.random.default_rng(4)
    rows = rng.integers(0, len(geometries), 2000).astype(np.int32)
    x, y = rng.uniform(-1, 14, 2000).round(), rng.uniform(-6, 11, 2000).round()
    x[::3] += 165
    alone = [PolygonTable.of([parse_polygon(each, WGS84)]) for each in geometries]
    expected = [alone[row].contain(True, 0, *point) for row, *point in zip(rows, x, y, strict=True)]
    assert contain_points(table, True, rows, x, y).tolist() == expected
    assert 200 < sum(expected) < 1800


def test_no_polygons():
    table = PolygonTable.of([])
    assert table.bounds.shape == (0, 4)
    assert contain_points(table, True, np.empty(0, np.int32), np.empty(0), np.empty(0)).tolist() == []


def test_a_flat_polygon_has_as_many_bands_as_can_be_told_apart():
    low = one([[0, 0], [1, 0], [1, 5e-324], [0, 5e-324], [0, 0]])
    assert contains(low, 0.5, 5e-324)
    assert not contains(low, 0.5, 1e-323)


def test_bands_take_no_more_memory_than_edges():
    """Edges that all reach through the whole height are listed few times."""
    count = 2000
    teeth = [[i / count, (i % 2) * 10.0] for i in range(count)]
    table = PolygonTable.of([parse_polygon(one([*teeth, [1, -1], [0, -1], teeth[0]]), WGS84)])
    assert len(table.edges) <= 4 * len(table.x)
    for x, y in ((0.5 / count, 4), (1.5 / count, 9.9), (0.3, 5), (0.3001, 2)):
        expected = polygon_containment(one([*teeth, [1, -1], [0, -1], teeth[0]]), True)(x, y)
        assert table.contain(True, 0, x, y) == expected


@pytest.mark.parametrize("part", range(50 if AT_LENGTH else 2))
@pytest.mark.parametrize("space", [WGS84, PLANE], ids=["wgs84", "plane"])
def test_pairs_are_as_in_fractions(space, part):
    """Half a million pairs at length in each space, most of them on borders or within 2^-50 of them."""
    rng = np.random.default_rng((part, space.geographic))
    kinds = [0, 0]
    for _, (geometry, polygon) in zip(range(examples(15, 100)), polygons(space, 1000 + part), strict=False):
        exact = polygon_containment(geometry, space.geographic)
        at = points(space, geometry, rng, 100)
        rows = np.zeros(len(at), np.int32)
        found = contain_points(PolygonTable.of([polygon]), space.geographic, rows, *at.T.copy())
        expected = [exact(x, y) for x, y in at.tolist()]
        assert found.tolist() == expected, (geometry, at[found != expected])
        kinds[0] += expected.count(True)
        kinds[1] += expected.count(False)
    assert min(kinds) > 200


def test_outlines_of_land_are_as_in_fractions():
    """Natural Earth's, at 1:50 million, as the package keeps them for its maps: simplified, and without holes."""
    rng = np.random.default_rng(8)
    checked = 0
    for ring in sorted(land_rings(), key=len, reverse=True)[: examples(20, 700)]:
        geometry = one([*map(list, ring), list(ring[0])] if ring[0] != ring[-1] else [*map(list, ring)])
        try:
            polygon = parse_polygon(geometry, WGS84)
        except RecordError:  # some cross themselves, since they are simplified
            continue
        exact = polygon_containment(geometry, True)
        at = points(WGS84, geometry, rng, 60)
        found = contain_points(PolygonTable.of([polygon]), True, np.zeros(60, np.int32), *at.T.copy())
        assert found.tolist() == [exact(x, y) for x, y in at.tolist()]
        checked += 1
    assert checked >= 15
