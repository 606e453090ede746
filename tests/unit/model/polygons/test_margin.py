"""Margins: what lies up to a distance from a border as it is drawn, compared with distances to many of its points."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.model.areas import Area, AreaTable, renewed, with_area
from spatialstream.model.errors import RecordError
from spatialstream.model.geometry import distance
from spatialstream.model.polygons.cover import BORDER, INSIDE, Cover, classify, relate
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.margin import EXACT, FARTHEST, is_near, reach
from spatialstream.model.polygons.packing import packed_polygons, table_of, unpacked_polygons
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.polygons.table import PolygonTable
from spatialstream.model.regions import Regions, parse_region
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle.polygons import region_containment
from tests.lengths import examples
from tests.unit.model.polygons import shapes

PLANE = Space.planar(-100.0, -50.0, 300.0, 900.0)
SQUARE = [[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]
HOLE = [[2, 2], [6, 2], [6, 6], [2, 6], [2, 2]]

Edge = tuple[float, float, float, float]


def nearest(edge: Edge, x: float, y: float, parts: int = 4_000) -> tuple[float, float]:
    """Bounds of the distance from a point to an edge: by so many of its points, and how far apart they are.

    Around the nearest of them it is done again, and what is farther away than they are apart is left out.
    """
    ax, ay, bx, by = edge
    low, high, best = 0.0, 1.0, math.inf
    length = 6_371_008.8 * math.radians(math.hypot(bx - ax, by - ay))
    bound = math.inf
    for _ in range(2):
        s = np.linspace(low, high, parts)
        at = [distance(True, ax + each * (bx - ax), ay + each * (by - ay), x, y) for each in s.tolist()]
        apart = length * (high - low) / (parts - 1)
        best = min(best, *at)
        kept = np.flatnonzero(np.array(at) <= best + apart)
        bound = best - apart
        low, high = float(s[max(kept[0] - 1, 0)]), float(s[min(kept[-1] + 1, parts - 1)])
    return bound, best


def edges(rng: np.random.Generator) -> Edge:
    """An edge of any length: anywhere, near a pole, along a parallel, a meridian, or across the antimeridian."""
    size = 10.0 ** rng.uniform(-6, 2)
    ax, ay = rng.uniform(-180, 180), rng.choice([rng.uniform(-90, 90), 90 - size * rng.random(), -90.0, 0.0])
    angle = rng.choice([rng.uniform(0, 2 * math.pi), 0.0, math.pi / 2])
    bx, by = ax + size * math.cos(angle), ay + size * math.sin(angle)
    return float(ax), float(np.clip(ay, -90, 90)), float(np.clip(bx, -540, 540)), float(np.clip(by, -90, 90))


@pytest.mark.parametrize("seed", range(examples(40, 2_000)))
def test_a_point_is_near_an_edge_if_a_point_of_it_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edge = edges(rng)
    s = rng.random()
    for _ in range(6):
        up = 10.0 ** rng.uniform(-6, 1.5)
        x = edge[0] + s * (edge[2] - edge[0]) + rng.normal() * up
        y = float(np.clip(edge[1] + s * (edge[3] - edge[1]) + rng.normal() * up, -90, 90))
        x = (x + 180.0) % 360.0 - 180.0
        low, high = nearest(edge, x, y)
        slack = 1e-9 * high + (1.0 if high > 1.99e7 else 1e-6)
        for within in (high + slack + EXACT, high * 1.001 + 1.0, low - slack, low * 0.999 - 1.0):
            if 0.0 < within <= 1e7:
                found = is_near(True, *edge, x, y, within, reach(True, within, 0.0))
                assert found == (within >= high), (edge, x, y, within, low, high)


def test_it_takes_few_steps_where_the_distance_is_the_same_along_an_edge() -> None:
    """Around a pole a parallel is everywhere as far: what cannot be decided early would be halved to the end."""
    edge = (-180.0, 89.9, 180.0, 89.9)
    exact = distance(True, 0.0, 89.9, 0.0, 90.0)
    for x, y in ((0.0, 90.0), (3.0, 89.99999999), (50.0, 89.999)):
        low, high = nearest(edge, x, y)
        for within in (high + 2 * EXACT, low - 1e-4):
            assert is_near(True, *edge, x, y, within, reach(True, within, 0.0)) == (within > high)
    assert is_near(True, *edge, 0.0, 90.0, exact + 1e-6, reach(True, exact, 0.0)), "its ends are as near"


def one(kind: str, coordinates: Any) -> dict[str, Any]:
    return {"type": kind, "coordinates": coordinates}


@pytest.mark.parametrize(
    ("geometry", "within", "near", "far"),
    [
        (one("Polygon", [SQUARE]), 1_000.0, [(8.008, 4), (4, 4), (-0.0089, 0)], [(8.01, 4), (4, 8.0091)]),
        (one("Polygon", [SQUARE, HOLE]), 1_000.0, [(2.005, 4), (1, 1)], [(4, 4), (2.01, 4)]),  # the hole is narrower
        (one("LineString", [[0, 0], [8, 0]]), 1_000.0, [(4, 0.0089), (8.0089, 0)], [(4, 0.0091), (8, 8)]),
        (one("LineString", [[0, 60], [90, 60]]), 1_000.0, [(45, 60.0089)], [(45, 67.7)]),  # not along the great circle
        (one("MultiPoint", [[0, 0], [8, 0]]), 1_000.0, [(0, 0.0089), (8, -0.0089)], [(4, 0)]),
        (one("Point", [180, 0]), 1_000.0, [(-180, 0), (-179.992, 0), (179.992, 0)], [(-179.99, 0), (0, 0)]),
        (one("Polygon", [[[170, -5], [190, -5], [190, 5], [170, -5]]]), 1e5, [(-169.2, 0), (-170, 5.8)], [(-169, 0)]),
        (one("MultiPoint", [[0, 89.999]]), 1_000.0, [(180, 89.9999), (77, 90)], [(180, 89.99)]),
        (one("MultiLineString", [[[0, 0], [0, 1]], [[5, 5], [6, 6]]]), 10.0, [(0, 0.5), (5.5, 5.5)], [(2, 2)]),
    ],
)
def test_what_belongs_to_a_margin(
    geometry: dict[str, Any], within: float, near: list[tuple[float, float]], far: list[tuple[float, float]]
) -> None:
    polygon = parse_polygon(geometry, WGS84, within=within)
    table = PolygonTable.of([polygon])
    regions = Regions.of([polygon])
    assert [table.contain(True, 0, *map(float, each)) for each in near] == [True] * len(near)
    assert [table.contain(True, 0, *map(float, each)) for each in far] == [False] * len(far)
    assert all(regions.contain(WGS84, 0, *map(float, each)) for each in near)


def drawn(space: Space, seed: int) -> tuple[dict[str, Any], Polygon]:
    """A polygon, a line or points, with a margin."""
    rng = np.random.default_rng(seed)
    geometry, polygon = next(shapes.polygons(space, seed))
    unit = 111_000.0 if space.geographic else 1.0
    size = np.ptp(polygon.points[:, 1])
    within = float(rng.choice([size * unit * 10.0 ** rng.uniform(-3, 1), 10.0, 5e6 if space.geographic else 100.0]))
    within = min(within, FARTHEST) if space.geographic else within
    ring = geometry["coordinates"][0] if geometry["type"] == "Polygon" else geometry["coordinates"][0][0]
    kind = rng.choice(["Polygon", "LineString", "MultiPoint", "MultiLineString"], p=[0.5, 0.2, 0.2, 0.1])
    if kind != "Polygon":
        geometry = one(str(kind), [ring[:3], ring[2:]] if kind == "MultiLineString" else ring[:-1])
    return geometry, parse_polygon(geometry, space, within=within)


def beside(space: Space, geometry: dict[str, Any], within: float, rng: np.random.Generator, n: int) -> Any:
    """Points of the space, most of them about as far from the border as the margin is wide."""
    lines = geometry["coordinates"]
    while not isinstance(lines[0][0], int | float):
        lines = [each for line in lines for each in line]
    rings = np.array(lines, np.float64)
    a = rings[rng.integers(len(rings), size=n)]
    angle = rng.uniform(0, 2 * np.pi, n)
    far = within * rng.choice([0.0, 0.5, 0.999, 1.001, 1.5], n) / (111_195.08 if space.geographic else 1.0)
    y = np.clip(a[:, 1] + far * np.sin(angle), *space.bounds[1::2])
    along = np.maximum(np.cos(np.radians(y)), 1e-9) if space.geographic else 1.0
    x = a[:, 0] + far * np.cos(angle) / along
    x = (x + 180.0) % 360.0 - 180.0 if space.geographic else np.clip(x, *space.bounds[0::2])
    return np.stack([x, y], axis=1)


SEEDS = st.integers(0, 10**6)
SPACES = st.sampled_from([WGS84, PLANE])


@settings(max_examples=examples(60, 2_000))
@given(SEEDS, SPACES)
def test_points_are_in_it_as_the_oracle_says(seed: int, space: Space) -> None:
    geometry, polygon = drawn(space, seed)
    table, regions = PolygonTable.of([polygon]), Regions.of([polygon])
    exact = region_containment(geometry, space.geographic, polygon.within, space.distance)
    less = max(polygon.within - EXACT, 0.0) if space.geographic else polygon.within
    surely = region_containment(geometry, space.geographic, less, space.distance)
    west, south, east, north = polygon.box
    for x, y in beside(space, geometry, polygon.within, np.random.default_rng(seed), 40).tolist():
        found = table.contain(space.geographic, 0, x, y)
        assert surely(x, y) <= found <= exact(x, y), (geometry, polygon.within, x, y)
        assert regions.contain(space, 0, x, y) == found
        if found:
            assert south <= y <= north
            assert (west <= x <= east) if west <= east else (x >= west or x <= east)


@settings(max_examples=examples(40, 1_000))
@given(SEEDS, SPACES)
def test_boxes_and_cells_are_never_too_certain(seed: int, space: Space) -> None:
    geometry, polygon = drawn(space, seed)
    table, rng = PolygonTable.of([polygon]), np.random.default_rng(seed)
    cover = Cover.of(space, table, 0, 256)
    at = beside(space, geometry, polygon.within, rng, 60)
    for a, b in at.reshape(30, 2, 2):
        (west, south), (east, north) = np.minimum(a, b), np.maximum(a, b)
        state = relate(table, space.geographic, 0, west, south, east, north)
        inner = [*rng.uniform((west, south), (east, north), (10, 2)), (west, north), (east, south), a, b]
        inside = {table.contain(space.geographic, 0, float(x), float(y)) for x, y in inner}
        assert state == BORDER or inside == {state == INSIDE}
    for x, y in at.tolist():
        cell = classify(cover, x, y)
        assert cell == BORDER or (cell == INSIDE) == table.contain(space.geographic, 0, x, y)


@settings(max_examples=examples(40, 1_000))
@given(SEEDS, SPACES)
def test_all_forms_are_the_same(seed: int, space: Space) -> None:
    geometry, polygon = drawn(space, seed)
    again = Polygon.from_bytes(polygon.to_bytes())
    assert (again, again.within, again.area) == (polygon, polygon.within, "")
    _, plain = next(shapes.polygons(space, seed + 1))
    packed = packed_polygons((plain, polygon))
    assert unpacked_polygons(packed, space.geographic) == (plain, polygon)
    assert [each.within for each in unpacked_polygons(packed, space.geographic)] == [0.0, polygon.within]
    for name, views, built in zip(
        PolygonTable._fields, table_of(packed), PolygonTable.of([plain, polygon]), strict=True
    ):
        assert np.array_equal(views, built), name
    assert parse_region(polygon.to_region(), space) == polygon
    if geometry["type"] == "LineString":
        assert parse_polygon(one("LineString", geometry["coordinates"][::-1]), space, within=polygon.within) == polygon
    kind = polygon.to_geojson()["type"]
    assert polygon.is_of_lines == ("Polygon" not in kind)


def test_a_margin_makes_another_polygon_and_none_makes_the_same_bytes() -> None:
    geometry = one("Polygon", [SQUARE])
    plain, none, some, more = (parse_polygon(geometry, WGS84, within=each) for each in (0.0, 0.0, 5.0, 6.0))
    assert plain == none
    assert len({plain.digest, some.digest, more.digest}) == 3
    assert (len(packed_polygons((plain,))), plain.to_bytes()) == (len(packed_polygons((none,))), none.to_bytes())
    assert packed_polygons((plain,)).view(np.int64)[0] == 5
    assert "within" not in plain.to_region()


@pytest.mark.parametrize(
    ("region", "error"),
    [
        ({"polygon": one("LineString", [[0, 0], [1, 1]])}, 'has no inside; give "within", a distance, beside it'),
        ({"polygon": one("MultiPoint", [[0, 0]]), "within": 0}, 'has no inside; give "within"'),
        ({"polygon": one("LineString", [[0, 0]]), "within": 5}, "has one position; a line has at least 2"),
        ({"polygon": one("GeometryCollection", []), "within": 5}, "is not a polygon"),
        ({"polygon": one("Polygon", [SQUARE]), "within": -1}, "within: -1 is out of range; give a distance of 0"),
        ({"polygon": one("Polygon", [SQUARE]), "within": 2e7}, "give a distance of 0 to 1e+07 m"),
        ({"polygon": one("Polygon", [SQUARE]), "within": "5"}, "within: '5' is not a number"),
        ({"polygon": one("Polygon", [SQUARE]), "within": None}, "within: is required"),
        ({"box": [0, 0, 1, 1], "within": 5}, "is a margin around a polygon or an area"),
        ({"circle": [0, 0, 1], "within": 5}, "a circle has a radius"),
        ({"area": "mitte", "within": 5}, "has not been looked up"),
        ({"polygon": one("MultiPoint", [[0, 95]]), "within": 5}, "latitude 95.0 is out of range"),
        ({"polygon": one("MultiPoint", []), "within": 5}, "must be a list of positions"),
    ],
)
def test_what_is_refused(region: dict[str, Any], error: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_region(region, WGS84)
    assert error in str(caught.value)


def test_lines_have_as_many_vertices_as_polygons_at_most() -> None:
    for kind, coordinates in (
        ("LineString", [[0, 0]] * 6),
        ("MultiPoint", [[0, 0]] * 6),
        ("MultiLineString", [[[0, 0]] * 3] * 2),
    ):
        with pytest.raises(RecordError, match="more than 5 vertices"):
            parse_region({"polygon": one(kind, coordinates), "within": 5}, WGS84, most_vertices=5)


def test_a_query_of_an_area_has_a_margin_of_its_own() -> None:
    area = Area("mitte", parse_polygon(one("Polygon", [SQUARE]), WGS84))
    table = AreaTable([area])
    record = {"id": "q", "t": 5, "region": {"area": "mitte", "within": 500}}
    known = with_area(record, lambda: table)
    region = parse_region(known["region"], WGS84)
    assert isinstance(region, Polygon)
    assert (region.area, region.within) == ("mitte", 500.0)
    assert table.geometry_state(known, WGS84)[1].value == "current"  # type: ignore[index]
    moved = Area("mitte", parse_polygon(one("Polygon", [[[0, 0], [9, 0], [9, 9], [0, 0]]]), WGS84))
    assert AreaTable([moved]).geometry_state(known, WGS84)[1].value == "outdated"  # type: ignore[index]
    assert renewed(known, moved, 9)[1]["region"] == moved.to_region(500)


def test_the_border_is_that_of_all_rings() -> None:
    """Corners of holes and of shells have each its margin: all around them there is something near."""
    polygon = parse_polygon(one("Polygon", [SQUARE, HOLE]), WGS84, within=2_000.0)
    table = PolygonTable.of([polygon])
    for a, b in [*pairwise(SQUARE), *pairwise(HOLE)]:
        x, y = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
        assert all(table.contain(True, 0, x + dx, y + dy) for dx in (-0.012, 0.012) for dy in (-0.012, 0.012))
