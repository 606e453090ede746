"""Parquet in other layouts: nested and joined columns, times of a format or zone, one time for all, GeoParquet."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from spatialstream.model.errors import SettingError
from spatialstream.model.space import WGS84
from spatialstream.model.times import parse_time
from spatialstream.records.files import decode_chunk, plan
from spatialstream.records.layout import InputLayout

PLAIN: dict[str, Any] = {"id": ["a", "b"], "t": [1, 2], "lon": [13.0, 14.0], "lat": [52.0, 53.0], "text": ["x y", "z"]}


def read(
    path: Path, table: pa.Table, columns: dict[str, str] | None = None, layout: InputLayout | None = None
) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]], dict[str, int]]:
    """((id, t, lon, lat, terms) of all objects, (row, reason) of all dead letters, counts of what is not read)."""
    pq.write_table(table, path, row_group_size=2)
    found: list[tuple[Any, ...]] = []
    letters: list[tuple[int, str]] = []
    unknown: dict[str, int] = {}
    for chunk in plan([path], columns, space=WGS84, layout=layout):
        for part in decode_chunk(chunk, "objects", columns=columns):
            batch = part.batch
            found += [(o.id, o.t, o.x, o.y, o.terms) for o in (batch[i] for i in range(len(batch)))]
            letters += [(each["line"], each["reason"]) for each in part.rejected.to_pylist()]
            unknown = {name: unknown.get(name, 0) + count for name, count in part.unknown.items()}
    return found, letters, unknown


def geo(table: pa.Table, column: str, encoding: str = "WKB") -> pa.Table:
    known = {"version": "1.1.0", "primary_column": column, "columns": {column: {"encoding": encoding}}}
    return table.replace_schema_metadata({"geo": json.dumps(known)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.parquet"


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.decimal128(20, 0)]
)
@pytest.mark.parametrize("layout", [InputLayout(), InputLayout(at=5)])
def test_ids_of_any_whole_numbers_are_their_digits(path: Path, kind: pa.DataType, layout: InputLayout) -> None:
    most = {pa.uint64(): 2**64 - 1, pa.int64(): 2**63 - 1}.get(kind, 100)
    given = {name: values for name, values in PLAIN.items() if name != "t" or layout.at is None}
    found, letters, _ = read(path, pa.table({**given, "id": pa.array([most, 7], kind)}), None, layout)
    assert [each[0] for each in found] == [str(most), "7"]
    assert letters == []


def test_paths_go_into_structures_and_lists(path: Path) -> None:
    places = [{"at": [13.0, 52.0], "of": {"n": 2**60 + 1}}, {"at": [14.0], "of": {"n": 3}}, None]
    point = pa.struct([("at", pa.list_(pa.float64())), ("of", pa.struct([("n", pa.int64())]))])
    table = pa.table({"t": [1, 2, 3], "text": ["x", "y", "z"], "place": pa.array(places, point), "more": [1, 1, 1]})
    columns = {"id": "place.of.n", "lon": "place.at[0]", "lat": "place.at[1]"}
    found, letters, unknown = read(path, table, columns)
    assert found == [(str(2**60 + 1), 1, 13.0, 52.0, ("x",))]
    assert [(row, reason.partition(":")[0]) for row, reason in letters] == [(2, "place.at[1]"), (3, "place.of.n")]
    assert unknown == {"more": 1}


@pytest.mark.parametrize("size", [None, 2])
def test_elements_of_sliced_lists(path: Path, size: int | None) -> None:
    points = pa.array([[0.0, 0.0], [13.0, 52.0], [14.0, 53.0]], pa.list_(pa.float64(), size or -1))
    given = {name: values for name, values in PLAIN.items() if name not in ("lon", "lat")}
    found, _, _ = read(path, pa.table({**given, "at": points.slice(1)}), {"lon": "at[0]", "lat": "at[1]"})
    assert [each[2:4] for each in found] == [(13.0, 52.0), (14.0, 53.0)]


def test_texts_and_dates_of_several_columns(path: Path) -> None:
    table = pa.table(
        {
            **{name: values for name, values in PLAIN.items() if name not in ("t", "text")},
            **{"year": [2026, 2026], "month": [1, None], "day": [5, 7], "title": ["Fire", None], "body": ["out", "x"]},
        }
    )
    found, letters, _ = read(path, table, {"t": "year-month-day", "text": "title+body"})
    assert found == [("a", parse_time("2026-01-05"), 13.0, 52.0, ("fire", "out"))]
    assert letters == [(2, "year-month-day: has no month; give a time")]


@pytest.mark.parametrize(
    "times",
    [
        pa.array(["05.01.2026 08:30", "soon"]),
        pa.array([datetime(2026, 1, 5, 8, 30), None], pa.timestamp("ns")),
        pa.array([datetime(2026, 1, 5, 7, 30, tzinfo=UTC), None], pa.timestamp("ms", "UTC")),
    ],
)
def test_local_times_and_formats(path: Path, times: pa.Array) -> None:
    layout = InputLayout(time_format="%d.%m.%Y %H:%M" if times.type == pa.string() else None, time_zone="Europe/Berlin")
    found, letters, _ = read(path, pa.table({**PLAIN, "t": times}), None, layout)
    assert [each[1] for each in found] == [parse_time("2026-01-05T07:30Z")]
    assert letters[0][0] == 2


def test_dates_in_a_zone_and_numbers_without_one(path: Path) -> None:
    layout = InputLayout(time_zone="Europe/Berlin")
    found, _, _ = read(path, pa.table({**PLAIN, "t": [date(2026, 1, 5), date(2026, 7, 5)]}), None, layout)
    assert [each[1] for each in found] == [parse_time("2026-01-04T23:00Z"), parse_time("2026-07-04T22:00Z")]
    found, _, _ = read(path, pa.table(PLAIN), None, layout)
    assert [each[1] for each in found] == [1, 2]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_whole_numbers_have_the_format_that_is_given(path: Path, kind: pa.DataType) -> None:
    days = pa.array([20210705, 20210706], kind)
    found, letters, _ = read(path, pa.table({**PLAIN, "t": days}), None, InputLayout(time_format="%Y%m%d"))
    assert [each[1] for each in found] == [parse_time("2021-07-05"), parse_time("2021-07-06")]
    assert not letters


def test_one_time_for_all(path: Path) -> None:
    found, letters, _ = read(path, pa.table({n: v for n, v in PLAIN.items() if n != "t"}), None, InputLayout(at=77))
    assert [each[1] for each in found] == [77, 77]
    assert letters == []


def test_points_of_geoparquet_as_wkb(path: Path) -> None:
    shapes = [shapely.Point(13.5, 52.25), shapely.Point(1, 2, 3), shapely.box(0, 0, 1, 1), None, shapely.Point()]
    wkb = [None if each is None else shapely.to_wkb(each, byte_order=i % 2) for i, each in enumerate(shapes)]
    table = pa.table({"id": range(5), "t": range(5), "text": list("abcde"), "geom": pa.array(wkb, pa.binary())})
    found, letters, unknown = read(path, geo(table, "geom"))
    assert [each[:4] for each in found] == [("0", 0, 13.5, 52.25), ("1", 1, 1.0, 2.0)]
    assert letters == [
        (3, "geometry: is Polygon; an object has a Point"),
        (4, "geometry: is null; an object has a Point"),
        (5, "geometry: is an empty Point; an object has a Point"),
    ]
    assert unknown == {}


def test_bytes_that_are_no_wkb_are_a_dead_letter(path: Path) -> None:
    wkb = pa.array([shapely.to_wkb(shapely.Point(13, 52)), b"\x01\x02"], pa.binary())
    given = {name: values for name, values in PLAIN.items() if name not in ("lon", "lat")}
    found, letters, _ = read(path, geo(pa.table({**given, "geometry": wkb}), "geometry"))
    assert [each[0] for each in found] == ["a"]
    assert [row for row, _ in letters] == [2]


def test_points_of_geoparquet_as_structures(path: Path) -> None:
    points = pa.array([{"x": 13.0, "y": 52.0}, None], pa.struct([("x", pa.float64()), ("y", pa.float64())]))
    given = {name: values for name, values in PLAIN.items() if name not in ("lon", "lat")}
    found, letters, _ = read(path, geo(pa.table({**given, "geometry": points}), "geometry", "point"))
    assert [each[2:4] for each in found] == [(13.0, 52.0)]
    assert [(row, reason.partition(":")[0]) for row, reason in letters] == [(2, "lon")]


def test_columns_of_coordinates_come_before_the_geometry(path: Path) -> None:
    wkb = pa.array([shapely.to_wkb(shapely.Point(1, 2))] * 2, pa.binary())
    found, _, unknown = read(path, geo(pa.table({**PLAIN, "geometry": wkb}), "geometry"))
    assert [each[2] for each in found] == [13.0, 14.0]
    assert unknown == {"geometry": 2}


def test_what_is_missing_or_contradicts_is_refused(path: Path) -> None:
    table = pa.table({"place": [{"lon": 1.0, "lat": 2.0}], "time": [1], "name": ["x"], "id": [1]})
    suggested = "maybe --columns t=time,lon=place.lon,lat=place.lat,text=name"
    with pytest.raises(SettingError, match=f"has no column 't'; it has 'place.lon', .* {suggested}"):
        read(path, table, None, InputLayout(time_zone="Europe/Berlin"))
    with pytest.raises(SettingError, match=r"has no column 'place.lng' for lon; .* did you mean 'place.lon'\?"):
        read(path, table, {"lon": "place.lng"})
    with pytest.raises(SettingError, match="leave out the options of text with columns"):
        read(path, pa.table(PLAIN), None, InputLayout(separator=";"))


def test_rows_keep_their_numbers_over_row_groups(path: Path) -> None:
    table = pa.table({"id": range(5), "lon": np.arange(5.0), "lat": [1.0, 1.0, 100.0, 1.0, 100.0], "text": ["x"] * 5})
    found, letters, _ = read(path, table, None, InputLayout(at=1))
    assert [each[0] for each in found] == ["0", "1", "3"]
    assert [row for row, _ in letters] == [3, 5]
