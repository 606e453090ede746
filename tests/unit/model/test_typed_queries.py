"""Queries as dataclasses: they are the JSON form, with its rules and its error texts."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import shapely

from spatialstream import CBQ, CKQ, CRQ, CTQ, SBQ, SKQ, SRQ, STQ, Box, Cancel, Circle, Polygon, RecordError
from spatialstream.model.kinds import CODE, KINDS
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84
from spatialstream.model.terms import ANY_WORDS
from spatialstream.model.typed_queries import TypedQuery, as_record

BOX = Box(13, 52, 14, 53)
TRIANGLE = Polygon({"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [0, 4], [0, 0]]]})
FAR = {"type": "Polygon", "coordinates": [[[0, 0], [0, 600], [1, 1], [0, 0]]]}
TEXT = {"any": [["flood", "river"], ["fire"]], "none": ["drill"]}
VALID = [
    SRQ(id="q", t=5, region=BOX, duration="1h", keywords=["flood"]),
    SKQ(id="q", t=5, at=[13.4, 52.5], k=3, duration=10, **TEXT),
    STQ(id="q", t=5, region=Circle(13, 52, 1000), k=3, duration="1h"),
    CRQ(id="q", t=5, region=BOX, by="anna"),
    CRQ(id="q", t=5, region=TRIANGLE),
    CKQ(id="q", t=5, at=(13.4, 52.5), k=3, window="5m", duration="1h"),
    CTQ(id="q", t=5, region=BOX, k=3, window="1h", step="5m", none=["drill"]),
    CRQ(id="q", t=5, region=BOX, where="at > TIMESTAMP('2026-01-01T00:00:00.000Z') AND country = 'de'"),
    SRQ(id="q", t=5, region=BOX, duration=5, where={"op": ">=", "args": [{"property": "the priority"}, 3]}),
    SBQ(
        id="q", t=5, at=[13.4, 52.5], k=3, words=["flood"], radius=1e3, half_life="6h", expansions=2, weighting="static"
    ),
    SBQ(id="q", t=5, at=[13.4, 52.5], k=3, words=["flood"], radius=1e3, half_life="6h", where="country = 'de'"),
    CBQ(id="q", t=5, at=[13.4, 52.5], k=3, words=["flood"], radius=1e3, half_life="6h", weights={"space": 0.5}),
]
CLASSES: list[Any] = [*dict.fromkeys(type(each) for each in VALID)]


def test_there_is_a_class_for_each_type_with_the_fields_that_it_takes() -> None:
    for kind, each in zip(KINDS, sorted(CLASSES, key=lambda each: list(CODE).index(each.__name__)), strict=True):
        names = {"halfLife" if field.name == "half_life" else field.name for field in fields(each)}
        assert names == {"id", "t", *kind.required, *kind.optional}
        assert each.__name__ == kind.type


@pytest.mark.parametrize("query", VALID, ids=lambda query: type(query).__name__)
def test_the_record_of_a_query_is_the_json_form(query: Any) -> None:
    parsed = parse_query(query.to_record(), WGS84, ANY_WORDS)
    assert parsed.type == type(query).__name__
    again = parsed.to_record()
    assert parse_query(again, WGS84, ANY_WORDS) == parsed
    assert again.get("where") == query.to_record().get("where")
    for name in query.to_record():
        assert name in again


@pytest.mark.parametrize("query", [*VALID, Cancel(id="q", t=1), BOX, Circle(1, 2, 3), TRIANGLE], ids=repr)
def test_a_query_is_a_value(query: Any) -> None:
    assert hash(query) == hash(pickle.loads(pickle.dumps(query)))
    assert query == pickle.loads(pickle.dumps(query))
    with pytest.raises(FrozenInstanceError):
        query.__setattr__(fields(query)[0].name, 1)


def test_times_and_numbers_of_python_and_numpy_are_what_they_mean() -> None:
    query = CTQ(
        id=7,
        t=datetime(2018, 2, 7, 1, tzinfo=UTC),
        region=Box(*np.array([13.0, 52.0, 14.0, 53.0])),
        k=np.int64(3),  # type: ignore[arg-type]
        window=timedelta(hours=1),
        step=timedelta(seconds=1),
    )
    assert query.to_record() == {
        "type": "CTQ",
        "id": 7,
        "t": "2018-02-07T01:00:00+00:00",
        "region": {"box": [13.0, 52.0, 14.0, 53.0]},
        "k": 3,
        "window": 3_600_000,
        "step": 1000,
    }
    assert SKQ(at=np.array([1.0, 2.0]), k=1, duration=1) == SKQ(at=[1.0, 2.0], k=1, duration=1)  # type: ignore[arg-type]


WRONG: list[tuple[type[TypedQuery], dict[str, Any]]] = [
    (SRQ, {"region": BOX, "duration": "-1h"}),
    (SRQ, {"region": None, "duration": "1h"}),
    (SRQ, {"region": BOX, "duration": "1h", "keywords": "flood"}),
    (SRQ, {"region": BOX, "duration": "1h", "keywords": ["?!"]}),
    (SRQ, {"region": BOX, "duration": "1h", "any": []}),
    (SRQ, {"region": BOX, "duration": "1h", "any": [["a"]], "keywords": ["b"]}),
    (SKQ, {"at": [1], "k": 0, "duration": "1h"}),
    (CTQ, {"region": BOX, "k": 1, "window": "1h", "step": 0}),
    (CRQ, {"region": BOX, "by": ""}),
    (CRQ, {"region": BOX, "t": "tomorrow"}),
    (Cancel, {"t": 1}),
]


@pytest.mark.parametrize(("kind", "given"), WRONG, ids=str)
def test_a_mistake_is_refused_when_the_query_is_made_with_the_text_of_the_json_form(
    kind: Any, given: dict[str, Any]
) -> None:
    record = {**kind._assumed, "type": kind._type, **given}
    if isinstance(record.get("region"), Box):
        record["region"] = record["region"].to_record()
    with pytest.raises(RecordError) as expected:
        parse_query(record, WGS84, timed=False)
    with pytest.raises(RecordError) as found:
        kind(**given)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    ("region", "problem"),
    [
        (lambda: Box(0, 3, 1, 2), "region.box: south 3 is greater than north 2"),
        (lambda: Box(0, float("nan"), 1, 2), "region.box: nan is not a finite number"),
        (lambda: Circle(0, 0, -1), "region.circle: the radius -1 is negative; it must be at least 0"),
        (lambda: Circle("0", 0, 1), "region.circle: '0' is not a number"),
        (
            lambda: Polygon({"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}),
            "region.polygon.coordinates[0]: crosses or touches itself at [1, 1]; give a ring that does not",
        ),
        (
            lambda: Polygon(3),  # type: ignore[arg-type]
            "region.polygon: must be a GeoJSON Polygon, MultiPolygon, or Feature of one of them",
        ),
    ],
)
def test_a_region_is_checked_when_it_is_made(region: Any, problem: str) -> None:
    with pytest.raises(RecordError) as found:
        region()
    assert str(found.value) == problem


def test_what_depends_on_the_space_is_left_to_the_stream() -> None:
    crossing = SRQ(id="q", t=0, region=Box(170, 0, -170, 1), duration=1)
    assert parse_query(crossing.to_record(), WGS84)
    for region, problem in ((Box(0, 0, 600, 1), "600 is out of range"), (Polygon(FAR), "latitude 600.0 is out of")):
        outside = SRQ(id="q", t=0, region=region, duration=1)
        with pytest.raises(RecordError, match=problem):
            parse_query(outside.to_record(), WGS84)


def test_what_says_its_geojson_is_a_region() -> None:
    shape = shapely.Polygon([(0, 0), (4, 0), (0, 4)], [[(1, 1), (2, 1), (1, 2)]])
    query = SRQ(id="q", t=0, region=shape, duration=1)
    assert query.region == Polygon(shape) == Polygon(shape.__geo_interface__)
    record = {"type": "SRQ", "id": "q", "t": 0, "region": {"polygon": shapely.geometry.mapping(shape)}, "duration": 1}
    assert parse_query(query.to_record(), WGS84) == parse_query(json.loads(json.dumps(record)), WGS84)
    assert as_record({**record, "region": shape}) == query.to_record()
    feature = {"type": "Feature", "id": 3, "geometry": shape, "properties": {"name": object()}}
    assert json.dumps(Polygon(feature).to_record()["polygon"]) == json.dumps(
        {"type": "Feature", "geometry": query.to_record()["region"]["polygon"]}
    )
    array = Polygon({"type": "Polygon", "coordinates": np.array([[[0, 0], [4, 0], [0, 4], [0, 0]]])})
    assert array == TRIANGLE
    with pytest.raises(RecordError, match=r"region\.polygon\.type: 'Point' is not a polygon"):
        SRQ(id="q", t=0, region=shapely.Point(1, 2), duration=1)


def test_a_record_stays_as_it_is() -> None:
    record = {"type": "SRQ"}
    assert as_record(record) is record
