"""Areas: what is read from GeoJSON and what is refused, how names are looked up, and what a query keeps of one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spatialstream.local.contents import content_digests
from spatialstream.model.areas import Area, AreaTable, GeometryState, asked_area, read_areas, renewed, with_area
from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.model.typed_queries import CRQ, as_record
from spatialstream.model.typed_queries import Area as TypedArea
from spatialstream.records.decode_queries import decode_queries
from spatialstream.records.encode import query_lines

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
OTHER = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]}
CROSSED = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
QUERY = {"id": "q", "type": "CRQ", "t": 5, "region": {"area": "mitte"}, "duration": 100}


def feature(geometry: Any, id: Any = None, /, **properties: Any) -> dict[str, Any]:
    own = {} if id is None else {"id": id}
    return {"type": "Feature", "geometry": geometry, "properties": properties} | own


def collection(*features: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features)}


def table(*areas: tuple[str, Any]) -> AreaTable:
    return AreaTable(read_areas(collection(*(feature(shape, name) for name, shape in areas))))


def test_areas_of_a_collection_have_the_names_of_a_property_or_their_own_ids() -> None:
    given = collection(feature(SQUARE, 7, name="Mitte", id=3), feature(OTHER, "8", name="Neukölln", id="x"))
    assert [each.name for each in read_areas(given)] == ["7", "8"]
    assert [each.name for each in read_areas(given, "name")] == ["Mitte", "Neukölln"]
    assert [each.name for each in read_areas(given, "id")] == ["3", "x"], "a property that is called id comes first"
    assert read_areas(given)[0].polygon == parse_query({**QUERY, "region": {"polygon": SQUARE}}, WGS84).predicate.region
    assert [each.name for each in read_areas(collection(feature(SQUARE, name=" Mitte ")), "name")] == ["Mitte"]
    (one,) = read_areas(SQUARE, name="a")
    assert one == Area("a", read_areas(feature(SQUARE), name="a")[0].polygon)
    plane = Space.planar(0.0, 0.0, 1e6, 1e6)
    (far,) = read_areas(
        {"type": "Polygon", "coordinates": [[[0, 0], [9e5, 0], [0, 9e5], [0, 0]]]}, space=plane, name="a"
    )
    assert not far.polygon.geographic


@pytest.mark.parametrize(
    ("given", "name_from", "told"),
    [
        (7, None, "geojson: must be a GeoJSON FeatureCollection, Feature, Polygon or MultiPolygon"),
        (collection(), None, "features: must be a list of features, at least one"),
        (collection(SQUARE), None, "feature 1: is not a GeoJSON Feature"),
        (
            collection(feature(SQUARE, "a"), feature(SQUARE, name="b", size=2.5, open=True)),
            None,
            "feature 2: has no id; say which property has the name: its properties are name",
        ),
        (
            collection(feature(SQUARE, "a", name="b")),
            "nom",
            "feature 1: has no property 'nom': its properties are name",
        ),
        (feature(SQUARE), None, "feature 1: has no id; say which property has the name: it has no property that could"),
        (
            collection(feature(SQUARE, name="b"), feature(OTHER, name="b")),
            "name",
            "feature 2: has the name 'b', as feature 1 has; an area has one geometry",
        ),
        (feature(SQUARE, "a\n"), None, r"feature 1, id: 'a\\n' is not a name: it has a control character"),
        (feature(SQUARE, ""), None, "feature 1, id: has 0 bytes; the name of an area has 1 to 200"),
        (feature(SQUARE, 2.5), None, "feature 1, id: 2.5 is not the name of an area"),
        (
            collection(feature(SQUARE, "a"), feature(CROSSED, "b")),
            None,
            r"feature 2 \(b\): coordinates\[0\]: crosses or touches itself at \[1, 1\]",
        ),
        (feature(None, "a"), None, r"feature 1 \(a\): must be a GeoJSON Polygon or MultiPolygon"),
        (
            feature({"type": "Point", "coordinates": [0, 0]}, "a"),
            None,
            r"feature 1 \(a\): type: 'Point' is not a polygon; it must be a GeoJSON Polygon",
        ),
        (
            feature({"type": "Polygon", "coordinates": [[[52, 113], [53, 113], [53, 114], [52, 113]]]}, "a"),
            None,
            "longitude and latitude look exchanged",
        ),
        (
            feature({"type": "Polygon", "coordinates": [[[391e3, 582e4], [392e3, 582e4], [392e3, 583e4]]]}, "a"),
            None,
            r"these look like metres of a projection, so convert them to WGS84 \(EPSG:4326\)",
        ),
    ],
)
def test_what_is_refused_names_the_feature_and_the_place(given: Any, name_from: str | None, told: str) -> None:
    with pytest.raises(RecordError, match=told):
        read_areas(given, name_from)


def test_one_name_is_for_one_area_and_a_limit_of_vertices_is_the_streams() -> None:
    with pytest.raises(RecordError, match="name: is given for one area, and there are 2 features"):
        read_areas(collection(feature(SQUARE), feature(OTHER)), name="a")
    with pytest.raises(RecordError, match=r"feature 1 \(a\): coordinates: has more than 3 vertices"):
        read_areas(SQUARE, name="a", rule=TermRule(polygon_vertices=3))


def test_another_coordinate_system_of_the_collection_is_refused() -> None:
    told = r"feature 1 \(a\): crs: 'EPSG:25833' is not WGS84"
    with pytest.raises(RecordError, match=told):
        read_areas(collection(feature(SQUARE, "a")) | {"crs": {"type": "name", "properties": {"name": "EPSG:25833"}}})


def test_a_query_that_names_an_area_gets_its_polygon() -> None:
    areas = table(("mitte", SQUARE))
    found = with_area(QUERY, lambda: areas)
    assert found["region"] == {"polygon": areas.find("mitte").polygon.to_geojson(), "area": "mitte"}
    assert QUERY["region"] == {"area": "mitte"}, "what was given stays as it was"

    def never() -> AreaTable:
        raise AssertionError

    for other in (
        {**QUERY, "region": {"polygon": SQUARE}},
        {**QUERY, "region": {"polygon": SQUARE, "area": "x"}},
        7,
        {},
    ):
        assert with_area(other, never) is other
    typed = CRQ(id="q", t=5, region=TypedArea("mitte"), duration=100)
    assert with_area(as_record(typed), lambda: areas) == found
    assert with_area(as_record({**QUERY, "region": TypedArea("mitte")}), lambda: areas) == found


def test_names_of_queries_that_are_none() -> None:
    for region in ({"area": 7}, {"area": " a"}, {"area": ""}):
        with pytest.raises(RecordError, match=r"^region\.area: "):
            asked_area({"region": region})
    with pytest.raises(RecordError, match=r"^region\.area: 7 is not the name of an area"):
        TypedArea(7)  # type: ignore[arg-type]


def test_an_area_that_nobody_knows_is_refused_with_the_nearest_names() -> None:
    areas = table(("Mitte", SQUARE), ("Pankow", OTHER), ("Mitten", OTHER))
    with pytest.raises(RecordError, match=r"^region\.area: 'mite' is not an area .*; did you mean Mitte or Mitten\?$"):
        with_area({**QUERY, "region": {"area": "mite"}}, lambda: areas)
    with pytest.raises(RecordError, match=r"'x' is not an area of the stream; its areas are Mitte, Mitten, Pankow$"):
        areas.find("x")
    with pytest.raises(RecordError, match="'x' is not an area of the stream; it has none; load some first"):
        AreaTable().find("x")
    with pytest.raises(RecordError, match="'x' has no usable geometry: torn"):
        AreaTable(unusable={"x": "torn"}).find("x")


def test_a_record_that_was_not_looked_up_is_rejected_where_it_is_read() -> None:
    with pytest.raises(
        RecordError, match=r"^region\.area: 'mitte' has not been looked up; clients, the gateway and the"
    ):
        parse_query(QUERY, WGS84)
    line = json.dumps(QUERY).encode()
    (reason,) = decode_queries(line).rejected["reason"].to_pylist()
    assert reason.startswith("region.area: 'mitte' has not been looked up")
    with pytest.raises(RecordError, match=r"^region\.area: names the geometry of a polygon; give it alone, or beside"):
        parse_query({**QUERY, "region": {"box": [0, 0, 1, 1], "area": "mitte"}}, WGS84)


def test_the_name_stays_with_the_query_and_makes_no_other_query_of_it() -> None:
    named = parse_query({**QUERY, "region": {"polygon": SQUARE, "area": "mitte"}}, WGS84)
    twin = parse_query({**QUERY, "id": "r", "region": {"polygon": SQUARE, "area": "twin"}}, WGS84)
    plain = parse_query({**QUERY, "region": {"polygon": SQUARE}}, WGS84)
    assert named == plain
    assert isinstance(named, Query)
    assert named.to_record()["region"]["area"] == "mitte"
    assert "area" not in plain.to_record()["region"]
    assert parse_query(named.to_record(), WGS84).to_record() == named.to_record()
    batch = QueryBatch.of([named, twin, plain])
    parts = QueryBatch.concat([batch.take(np.array([2])), batch.take(np.array([1, 0]))])
    read = decode_queries(bytes(query_lines(batch))).batch
    for each in (batch, QueryBatch.from_arrow(batch.to_arrow()), read, parts.take(np.array([2, 1, 0]))):
        assert [each[row].to_record()["region"].get("area") for row in range(3)] == ["mitte", "twin", None]
    digests = content_digests(batch).tolist()
    assert digests[0] == digests[1] == digests[2], "the same query comes again, under whatever name"
    assert Polygon.from_bytes(twin.predicate.region.to_bytes()).area == "twin"  # type: ignore[union-attr]


def test_a_query_is_current_outdated_or_of_a_deleted_area() -> None:
    before, now = table(("mitte", SQUARE), ("pankow", SQUARE)), table(("mitte", OTHER))
    record = with_area(QUERY, lambda: before)
    assert before.geometry_state(record, WGS84) == ("mitte", GeometryState.CURRENT)
    assert now.geometry_state(record, WGS84) == ("mitte", GeometryState.OUTDATED)
    assert AreaTable().geometry_state(record, WGS84) == ("mitte", GeometryState.DELETED)
    for region in ({"polygon": SQUARE}, {"box": [0, 0, 1, 1]}, None):
        assert now.geometry_state({**QUERY, "region": region}, WGS84) is None


def test_a_query_that_is_registered_anew_ends_when_it_would_have() -> None:
    area = table(("mitte", OTHER)).find("mitte")
    record = with_area({**QUERY, "by": "somebody"}, lambda: table(("mitte", SQUARE)))
    end, begin = renewed(record, area, 30)
    assert end == {"id": "q", "type": "CANCEL", "t": 30}
    assert begin == {**record, "t": 30, "duration": 75, "region": area.to_region()}
    endless = {name: value for name, value in record.items() if name != "duration"}
    assert "duration" not in renewed(endless, area, 30)[1]


@pytest.mark.parametrize(
    ("kept_by", "by", "told"),
    [
        ("", "", ""),
        ("anna", "ben", ""),
        ("sa/geo/mitte", "sa/geo/mitte", ""),
        ("sa/geo/mitte", "anna", "'mitte' is kept by the SpatialArea geo/mitte; change that resource"),
        ("sa/geo/mitte", "sa/geo/other", "'mitte' is kept by the SpatialArea geo/mitte; change that resource"),
        ("anna", "sa/geo/mitte", "'mitte' is an area that anna has loaded; delete it there, or give another name"),
        ("", "sa/geo/mitte", "'mitte' is an area that somebody has loaded; delete it there, or give another name"),
    ],
)
def test_who_may_write_an_area(kept_by: str, by: str, told: str) -> None:
    (area,) = read_areas(SQUARE, name="mitte")
    areas = AreaTable([replace(area, by=kept_by)])
    assert areas.conflict(["new", "mitte"], by) == told
    assert areas.conflict(["new"], by) == ""
    assert replace(area, by=kept_by).to_record().get("by", "") == kept_by
