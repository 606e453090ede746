"""What values of pandas and NumPy mean as records, and what they do not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pyspark.sql import Row

from spatialstream.model.errors import SettingError
from spatialstream.model.kinds import QueryType
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.model.typed_queries import Box, Polygon
from spatialstream.records.decode import decode_objects
from spatialstream.records.decode_queries import decode_queries
from spatialstream.spark.pandas_records import object_records, query_records

MOMENT = 1_517_966_773_840


def values(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": ["a"], "t": [0], "lon": [1.5], "lat": [2.5], "text": ["x"]} | columns)


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        (pd.Series([7]), "7"),
        (pd.Series([7.0, None])[:1], "7"),
        (pd.Series([-3], dtype="Int64"), "-3"),
        (pd.Series([2**64 - 1], dtype="uint64"), str(2**64 - 1)),
        (pd.Series(["b"], dtype="category"), "b"),
        (pd.Series(["b"], dtype="string"), "b"),
        (pd.Series([Decimal("9.00")], dtype=object), "9"),
        (pd.Series([UUID(int=5)], dtype=object), str(UUID(int=5))),
        (pd.Series([7.5]), 7.5),
        (pd.Series([True]), True),
        (pd.Series([None], dtype=object), None),
        (pd.Series([pd.NA], dtype="Int64"), None),
    ],
)
def test_ids(column: pd.Series[Any], meant: Any) -> None:
    (record,) = values(object_records(frame(id=column), WGS84))
    assert record.get("id") == meant


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        (pd.Series([MOMENT]), MOMENT),
        (pd.Series([float(MOMENT), np.nan])[:1], MOMENT),
        (pd.Series(["2018-02-07T01:26:13.840Z"]), "2018-02-07T01:26:13.840Z"),
        (pd.to_datetime(pd.Series(["2018-02-07T01:26:13.840999"])), MOMENT),
        (pd.to_datetime(pd.Series(["2018-02-07T01:26:13.840"])).astype("datetime64[s]"), MOMENT - 840),
        (pd.to_datetime(pd.Series(["2018-02-07T02:26:13.840+01:00"])), MOMENT),
        (pd.Series([datetime(2018, 2, 7, 1, 26, 13, 840_000)], dtype=object), MOMENT),
        (pd.Series([datetime(2018, 2, 7, 3, 26, 13, 840_000, timezone(timedelta(hours=2)))], dtype=object), MOMENT),
        (pd.Series([np.datetime64("2018-02-07T01:26:13.840999")], dtype=object), MOMENT),
        (pd.Series([np.datetime64("1969-12-31T23:59:59.9999")], dtype=object), -1),
        (pd.Series([datetime(1969, 12, 31, 23, 59, 59, 999_001)], dtype=object), -1),
        (pd.Series([date(1970, 1, 3)], dtype=object), 2 * 86_400_000),
        (pd.Series([datetime.max], dtype=object), 253_402_300_799_999),
        (pd.Series([1.5]), 1.5),
        (pd.Series([pd.NaT]), None),
        (pd.Series([np.datetime64("NaT")], dtype=object), None),
        (pd.Series([timedelta(seconds=1)], dtype=object), {"timedelta": "0:00:01"}),
    ],
)
def test_times(column: pd.Series[Any], meant: Any) -> None:
    (record,) = values(object_records(frame(t=column), WGS84))
    assert record.get("t") == meant


@pytest.mark.parametrize(("unit", "t"), [("s", 1_517_966_773_000), ("ms", 1_517_966_773), ("us", 1_517_966)])
@pytest.mark.parametrize("column", [[1_517_966_773], [1_517_966_773.0], ["1517966773"]])
def test_numbers_of_a_unit_become_ms(unit: str, t: int, column: list[Any]) -> None:
    found = decode_objects(b"\n".join(object_records(frame(t=column), WGS84, unit=unit)))
    assert found.batch.t.tolist() == [t]
    (query,) = values(query_records({"id": "q", "type": "CANCEL", "t": column[0]}, unit))
    assert int(query["t"]) == t
    (moment,) = values(object_records(frame(t=pd.to_datetime(["2018-02-07T01:26:13.840"])), WGS84, unit=unit))
    assert moment["t"] == MOMENT


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_without_a_zone_is_the_same_time_in_utc(moment: datetime) -> None:
    naive = frame(t=pd.Series([moment.replace(tzinfo=None)], dtype=object))
    aware = frame(t=pd.Series([moment], dtype=object))
    assert list(object_records(naive, WGS84)) == list(object_records(aware, WGS84))


@given(st.floats(-180, 180), st.floats(-90, 90))
def test_coordinates_keep_every_bit(x: float, y: float) -> None:
    (record,) = values(object_records(frame(lon=[x], lat=[np.float64(y)]), WGS84))
    assert (record["lon"], record["lat"]) == (x, y)
    (query,) = values(query_records(pd.DataFrame([{"id": "q", "type": "SKQ", "t": 0, "at": [x, y]}])))
    assert query["at"] == [x, y]


def test_texts_and_terms() -> None:
    objects = pd.DataFrame(
        {
            "id": list("abcd"),
            "t": 0,
            "x": [1, 2, 3, np.nan],
            "y": np.arange(4, dtype=np.float32),
            "text": ["a", None, np.nan, "d\nd"],
            "terms": [None, ["b"], np.array(["c", "c"]), np.nan],
            "more": [object()] * 4,
        }
    )
    assert values(object_records(objects, Space.planar(0, 0, 9, 9))) == [
        {"id": "a", "t": 0, "x": 1.0, "y": 0.0, "text": "a"},
        {"id": "b", "t": 0, "x": 2.0, "y": 1.0, "terms": ["b"]},
        {"id": "c", "t": 0, "x": 3.0, "y": 2.0, "terms": ["c", "c"]},
        {"id": "d", "t": 0, "y": 3.0, "text": "d\nd"},
    ]


RECORD = {"id": "q", "type": "SRQ", "t": 9, "region": {"box": [0, 0, 1, 1]}, "keywords": ["a"], "duration": 60_000}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"t": np.int64(9), "duration": np.int32(60_000)},
        {"t": 9.0, "duration": 60_000.0, "k": np.nan, "at": None, "window": pd.NA, "by": pd.NA},
        {"t": pd.Timestamp(9, unit="ms"), "duration": pd.Timedelta("1min")},
        {"t": np.datetime64(9, "ms"), "duration": np.timedelta64(1, "m")},
        {"region": {"box": np.array([0, 0, 1, 1])}, "keywords": np.array(["a"]), "id": np.str_("q")},
        {"region": Row(box=(0, 0, 1, 1), circle=None), "keywords": ("a",), "type": QueryType.SRQ},
        {"keywords": {"a"}, "duration": timedelta(minutes=1)},
    ],
)
def test_queries_mean_the_same(changed: dict[str, Any]) -> None:
    record = RECORD | changed
    for given_as in (record, [record], iter([record]), [Row(**record)]):
        assert values(query_records(given_as)) == [RECORD]
    assert values(query_records(pd.DataFrame([record]))) == [RECORD]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pd.Series([7, 2**60 + 1]), ["7", str(2**60 + 1)]),
        (pd.Series([7.0, 2.0**53 - 1, np.nan]), ["7", "9007199254740991"]),
        (pd.Series([2.0**53, -(2.0**60)]), []),
        (pd.Series([2.0**24 - 1, 2.0**24], dtype="float32"), ["16777215"]),
        (pd.Series([2.0**24 - 1, 2.0**24, None], dtype="Float32"), ["16777215"]),
        (pd.Series([Decimal(10**19 + 1), Decimal("0.5")]), ["10000000000000000001"]),
        (pd.Series([np.float32(2**24), np.float64(5)], dtype=object), ["5"]),
    ],
)
def test_ids_lose_no_digits(ids: pd.Series[Any], expected: list[str]) -> None:
    objects = pd.DataFrame({"id": ids, "t": 0, "lon": 0, "lat": 0, "text": "x"})
    found = decode_objects(b"\n".join(object_records(objects, WGS84)))
    assert found.batch.ids.to_pylist() == expected
    assert all(reason.startswith("id: ") for reason in found.rejected.column("reason").to_pylist())
    assert found.rejected.num_rows == len(ids) - len(expected)


def test_a_field_that_is_none_is_refused() -> None:
    told = "^queries: column 'keywrods' is not a query field; did you mean keywords\\?$"
    with pytest.raises(SettingError, match=told):
        query_records(pd.DataFrame([RECORD | {"keywrods": None}]))
    for value in (["fire"], None, np.nan):
        found = decode_queries(b"\n".join(query_records([RECORD | {"keywrods": value}])))
        assert found.rejected.column("reason").to_pylist() == ["keywrods: is not a query field; did you mean keywords?"]


def test_a_ranked_query_has_its_times_and_numbers_of_any_unit_and_type() -> None:
    record = {"id": "q", "type": "SBQ", "t": 10, "at": [1.0, 2.0], "k": 3.0, "words": ["flood"], "radius": 5}
    asked = pd.DataFrame([record | {"between": [1, 2]}, record | {"halfLife": timedelta(hours=1), "expansions": 2.0}])
    lines = [json.loads(line) for line in query_records(asked, "s")]
    assert [line["t"] for line in lines] == [10_000, 10_000]
    assert lines[0]["between"] == [1_000, 2_000]
    assert (lines[1]["halfLife"], lines[1]["expansions"], lines[1].get("between")) == (3_600_000, 2, None)
    decoded = decode_queries(b"\n".join(query_records(asked, "s")), rule=TermRule(ranking=True))
    assert decoded.batch.ids.to_pylist() == ["q", "q"]


def test_a_count_that_is_a_float_because_of_a_query_without_one() -> None:
    asked = [{"id": "a", "type": "SKQ", "t": 1, "at": [0, 0], "k": 1, "duration": "1h"}, RECORD]
    found = decode_queries(b"\n".join(query_records(pd.DataFrame(asked))))
    assert [found.batch[0].id, found.batch[1].id] == ["a", "q"]


def test_geometries_are_regions_and_those_that_are_none_are_rejected_with_the_reason() -> None:
    shape = shapely.Polygon([(0, 0), (4, 0), (0, 4)])
    queries = [
        {"id": name, "type": "CRQ", "t": 1, "region": region}
        for name, region in (
            ("a", shape),
            ("b", Polygon(shape)),
            ("c", Polygon(shape).to_record()),
            ("d", Box(0, 0, 1, 1)),
        )
    ]
    for given_as in (queries, pd.DataFrame(queries)):
        found = decode_queries(b"\n".join(query_records(given_as))).batch
        assert [found[i].id for i in range(4)] == ["a", "b", "c", "d"]
        assert [found.regions[i] == found.regions[0] for i in range(4)] == [True, True, True, False]
        assert len(found.regions.polygons.distinct) == 1
    point = [{"id": "a", "type": "CRQ", "t": 1, "region": shapely.Point(1, 2)}]
    for given_as in (point, pd.DataFrame(point)):
        (rejected,) = decode_queries(b"\n".join(query_records(given_as))).rejected.to_pylist()
        assert rejected["reason"].startswith("region.polygon.type: 'Point' is not a polygon")


def test_regions_have_margins_and_a_column_of_them_may_have_none() -> None:
    road, triangle = shapely.LineString([(0, 0), (4, 1)]), shapely.Polygon([(0, 0), (4, 0), (0, 4)])
    regions = [
        Polygon(road, within=200),
        Polygon(triangle, within=0.5).to_record(),
        {"polygon": triangle.__geo_interface__, "within": None},
    ]
    queries = [{"id": str(i), "type": "CRQ", "t": 1, "region": each} for i, each in enumerate(regions)]
    for given_as in (queries, pd.DataFrame(queries)):
        found = decode_queries(b"\n".join(query_records(given_as))).batch
        assert [found.regions[i].within for i in range(3)] == [200.0, 0.5, 0.0]
        assert [found.regions[i].is_of_lines for i in range(3)] == [True, False, False]


def test_who_has_registered_some_queries_is_kept() -> None:
    asked = [
        {"id": name, "type": "CKQ", "t": 1, "at": [0, 0], "k": 1, "by": by} for name, by in (("a", "é"), ("b", None))
    ]
    for given_as in (asked, pd.DataFrame(asked)):
        assert decode_queries(b"\n".join(query_records(given_as))).batch.by.to_pylist() == ["é", ""]


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        (frame().drop(columns="t"), "objects: has no column 't'; it has 'id', 'lon', 'lat', 'text'"),
        (frame().drop(columns="text"), "objects: has neither a column 'text' nor 'terms'; it has "),
        (pd.concat([frame(), frame()[["id"]]], axis=1), "objects: has the column 'id' more than once"),
        (frame().iloc[:0].drop(columns="lat"), "objects: has no column 'lat'"),
    ],
)
def test_a_frame_that_lacks_a_column_is_refused_at_once(objects: pd.DataFrame, problem: str) -> None:
    with pytest.raises(SettingError) as error:
        object_records(objects, WGS84)
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize(
    ("queries", "problem"),
    [
        (pd.DataFrame([{"id": "a", "t": 0}]), "queries: has no column 'type'"),
        ("queries.jsonl", "queries: is of type str"),
        (5, "queries: is of type int"),
        ([RECORD, ["q"]], "queries: record 2 is of type list; give a dict"),
    ],
)
def test_queries_that_are_none_are_refused(queries: Any, problem: str) -> None:
    with pytest.raises(SettingError) as error:
        list(query_records(queries))
    assert str(error.value).startswith(problem)


def test_frames_of_nothing_are_no_records() -> None:
    for empty in (pd.DataFrame(), frame().iloc[:0]):
        assert list(object_records(empty, WGS84)) == []
    for queries in (pd.DataFrame(), [], iter([])):
        assert list(query_records(queries)) == []


ANY = st.recursive(
    st.integers()
    | st.floats()
    | st.decimals()
    | st.booleans()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.text()
    | st.binary()
    | st.uuids()
    | st.sampled_from([None, pd.NA, pd.NaT, "\ud800", 1 << 10_001, Decimal("sNaN"), Decimal("1e999999"), object()])
    | arrays.from_dtype(np.dtype("datetime64[ns]"))
    | arrays.from_dtype(np.dtype("timedelta64[s]"))
    | arrays.from_dtype(np.dtype("complex128")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(("id", "t", "lon", "lat", "text"), ANY)), min_size=1, max_size=5))
def test_whatever_a_frame_holds_each_row_is_a_record_or_rejected(rows: list[dict[str, Any]]) -> None:
    columns = {name: pd.Series([row[name] for row in rows], dtype=object) for name in rows[0]}
    found = decode_objects(b"\n".join(object_records(pd.DataFrame(columns), WGS84)))
    assert len(found.batch) + len(found.rejected) == len(rows)


@given(st.dictionaries(st.sampled_from([*RECORD, "k", "at", "step", "window", "by", "other"]), ANY))
def test_whatever_a_query_holds_it_is_a_record_or_rejected(record: dict[str, Any]) -> None:
    found = decode_queries(b"\n".join(query_records(record)))
    assert len(found.batch) + len(found.rejected) == 1
