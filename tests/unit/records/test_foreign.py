"""Files as their owners publish them, small ones in the formats of public feeds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spatialstream.model.errors import SettingError
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.model.times import parse_time
from spatialstream.oracle.files import read_objects
from spatialstream.records.files import decode_chunk, plan
from spatialstream.records.layout import InputLayout

Objects = list[tuple[str, int, float, float]]


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def objects(
    path: Path, columns: dict[str, str] | None = None, layout: InputLayout | None = None
) -> tuple[Objects, list[dict[str, Any]]]:
    """(id, t, lon, lat) of all objects of a file, and its dead letters."""
    found: Objects = []
    letters: list[dict[str, Any]] = []
    for chunk in plan([path], columns, space=WGS84, layout=layout):
        for part in decode_chunk(chunk, "objects", columns=columns):
            batch = part.batch
            values = batch.ids.to_pylist(), batch.t.tolist(), batch.x.tolist(), batch.y.tolist()
            found += zip(*values, strict=True)
            letters += part.rejected.to_pylist()
    return found, letters


def feature(name: object, lon: float, **properties: object) -> dict[str, object]:
    geometry = {"type": "Point", "coordinates": [lon, 52.5, 4.3]}
    return {"type": "Feature", "properties": properties, "geometry": geometry, "id": name}


QUAKES = [feature("a", 13.4, time=1000, place="8km W of Here", mag=None), feature(7, 13.5, time=2000, place="There")]
QUAKE_COLUMNS = {"t": "properties.time", "text": "properties.place"}
QUAKE_OBJECTS = [("a", 1000, 13.4, 52.5), ("7", 2000, 13.5, 52.5)]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["q.geojson", "q.json"])
def test_a_feature_collection(tmp_path: Path, name: str, indent: int | None) -> None:
    collection = {"type": "FeatureCollection", "metadata": {"count": 146}, "features": QUAKES, "bbox": [1, 2]}
    assert objects(written(tmp_path / name, json.dumps(collection, indent=indent)), QUAKE_COLUMNS) == (
        QUAKE_OBJECTS,
        [],
    )


@pytest.mark.parametrize(
    ("name", "before"), [("q.geojsonl", ""), ("q.geojsons", "\x1e"), ("q.jsonl", ""), ("q.geojson", "")]
)
def test_a_feature_a_line(tmp_path: Path, name: str, before: str) -> None:
    text = "".join(f"{before}{json.dumps(each)}\n" for each in QUAKES)
    assert objects(written(tmp_path / name, text), QUAKE_COLUMNS) == (QUAKE_OBJECTS, [])


def test_compressed_files(tmp_path: Path) -> None:
    text = json.dumps(QUAKES).encode()
    assert objects(written(tmp_path / "q.json.gz", gzip.compress(text)), QUAKE_COLUMNS) == (QUAKE_OBJECTS, [])
    packed = pa.Codec("zstd").compress(text, asbytes=True)
    assert objects(written(tmp_path / "q.json.zst", packed), QUAKE_COLUMNS) == (QUAKE_OBJECTS, [])
    line = b'{"id": "a", "t": 5, "lon": 1, "lat": 2, "text": "x"}\n'
    packed = pa.Codec("zstd").compress(line, asbytes=True)
    assert objects(written(tmp_path / "o.jsonl.zst", packed)) == ([("a", 5, 1.0, 2.0)], [])


def test_features_that_are_no_points_are_dead_letters_of_their_number(tmp_path: Path) -> None:
    area = {**feature("b", 1, time=1, place="x"), "geometry": {"type": "Polygon", "coordinates": []}}
    nowhere = {**feature("c", 1, time=1, place="x"), "geometry": None}
    found, letters = objects(written(tmp_path / "q.json", json.dumps([area, *QUAKES, nowhere, 5])), QUAKE_COLUMNS)
    assert found == QUAKE_OBJECTS
    assert [each["line"] for each in letters] == [1, 4, 5]
    assert letters[0]["reason"] == "geometry: is Polygon; an object has a Point"
    assert letters[1]["reason"].startswith("geometry: is null")
    assert json.loads(letters[0]["record"])["id"] == "b"


def test_errors_name_the_column_of_the_file(tmp_path: Path) -> None:
    bad = feature("c", 13.5, time="noon", place="x")
    _, letters = objects(written(tmp_path / "q.json", json.dumps([QUAKES[0], bad])), QUAKE_COLUMNS)
    assert [each["line"] for each in letters] == [2]
    assert letters[0]["reason"].startswith("properties.time: 'noon' is not a time")


def test_large_whole_numbers_stay_what_they_are(tmp_path: Path) -> None:
    record = {"key": {"n": 9007199254740993}, "t": 9007199254740, "lon": 1, "lat": 2, "text": "x"}
    found, _ = objects(written(tmp_path / "a.jsonl", json.dumps(record)), {"id": "key.n"})
    assert found == [("9007199254740993", 9007199254740, 1.0, 2.0)]


def test_stops_without_times(tmp_path: Path) -> None:
    text = 'stop_id,stop_name,stop_lat,stop_lon\r\n100,"Center, Depart",39.16,-120.14\r\n101,,39.16,-120.14\r\n'
    columns = {"id": "stop_id", "text": "stop_name", "lat": "stop_lat", "lon": "stop_lon"}
    found, letters = objects(written(tmp_path / "stops.txt", text), columns, InputLayout(at=77))
    assert found == [("100", 77, -120.14, 39.16)]
    assert [(each["line"], each["reason"].partition(":")[0]) for each in letters] == [(3, "stop_name")]


def test_a_dump_without_header_whose_quotes_are_plain(tmp_path: Path) -> None:
    text = '1\tPlace "A\tq,w,e,r\t25.7\t55.9\t2015-12-05\n2\t"B\t\t25\t55\t2014-12-02\n'
    columns = {"id": "1", "text": "2+3", "lat": "4", "lon": "5", "t": "6"}
    found, letters = objects(written(tmp_path / "dump.txt", text), columns, InputLayout(header=False))
    assert found == [("1", parse_time("2015-12-05"), 55.9, 25.7), ("2", parse_time("2014-12-02"), 55.0, 25.0)]
    assert letters == []


def test_service_requests_with_local_dates(tmp_path: Path) -> None:
    text = "id;opened;title;lat;lon\n1;05/07/2021 08:30;Lamp;40.7;-74\n2;soon;Tree;40.7;-74\n3;x\n"
    layout = InputLayout(time_format="%d/%m/%Y %H:%M", time_zone="America/New_York")
    found, letters = objects(written(tmp_path / "requests.csv", text), {"t": "opened", "text": "title"}, layout)
    assert found == [("1", parse_time("2021-07-05T12:30Z"), -74.0, 40.7)]
    assert [(each["line"], each["reason"]) for each in letters] == [
        (3, "opened: 'soon' does not fit the time format '%d/%m/%Y %H:%M'"),
        (4, "record: has 2 cells; the file has 5 columns"),
    ]


def test_occurrences_with_year_month_and_day(tmp_path: Path) -> None:
    text = "gbifID\tspecies\tyear\tmonth\tday\tdecimalLatitude\tdecimalLongitude\n9\tApis\t2019\t3\t7\t52\t13\n"
    text += "10\tApis\t2019\t\t\t52\t13\n"
    columns = {
        "id": "gbifID",
        "text": "species",
        "t": "year-month-day",
        "lat": "decimalLatitude",
        "lon": "decimalLongitude",
    }
    found, letters = objects(written(tmp_path / "occurrence.txt", text), columns)
    assert found == [("9", parse_time("2019-03-07"), 13.0, 52.0)]
    assert [(each["line"], each["reason"]) for each in letters] == [(3, "year-month-day: has no month; give a time")]


def test_a_quoted_newline_counts_as_a_line(tmp_path: Path) -> None:
    text = 'id;t;lon;lat;text\na;1;1;1;"two\nlines"\nb;1;1;1\n'
    found, letters = objects(written(tmp_path / "a.csv", text))
    assert [each[0] for each in found] == ["a"]
    assert letters[0]["line"] == 4


def test_bytes_that_are_no_text_are_a_dead_letter(tmp_path: Path) -> None:
    found, letters = objects(written(tmp_path / "a.csv", b"id;t;lon;lat;text\na;1;1;1;\xff\nb;1;1;1;x\n"))
    assert [each[0] for each in found] == ["b"]
    assert letters[0]["reason"] == "record: is not UTF-8 text"


def test_missing_columns_are_told_with_a_suggestion(tmp_path: Path) -> None:
    path = written(tmp_path / "q.geojson", json.dumps(QUAKES))
    with pytest.raises(SettingError, match=r"maybe --columns t=properties.time,text=properties.place"):
        plan([path], space=WGS84)
    with pytest.raises(SettingError, match=r"did you mean 'properties.time'\?"):
        plan([path], {"t": "properties.tme"}, space=WGS84)


OBJECT = '{"id": "a", "t": 5, "lon": 1, "lat": 2, "text": "x"}'


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        (f"[{OBJECT}, {OBJECT[:30]}", 2, "it ends within a value at line 1, character 86"),
        (f"[{OBJECT},\n{OBJECT}\n{OBJECT}]", 3, "'{' stands where ',' or ']' is due at line 3, character 1"),
        (f'{{"type": "FeatureCollection", "features": [{OBJECT}, }}]}}', 2, "Expecting value at line 1, character 98"),
        (f"[{OBJECT}", 2, "it ends where ',' or ']' is due at line 1, character 54"),
        (f"[{OBJECT}] 5", 2, "'5' follows the end of the document at line 1, character 56"),
    ],
)
def test_a_document_that_breaks_off_gives_what_stands_before(tmp_path: Path, text: str, place: int, told: str) -> None:
    found, letters = objects(written(tmp_path / "q.json", text))
    assert found == [("a", 5, 1.0, 2.0)] * (place - 1)
    assert [(each["line"], each["reason"]) for each in letters] == [
        (place, f"record: {told}; nothing after it is read")
    ]


@pytest.mark.parametrize("name", ["q.geojson", "q.json"])
@pytest.mark.parametrize("text", ["[", "[}", '{"type": "FeatureCollection", "features": ['])
def test_a_document_without_a_first_record_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"{name}: is not JSON: .* at line 1, character"):
        objects(written(tmp_path / name, text))


def test_bytes_that_are_no_text_spoil_their_own_feature_only(tmp_path: Path) -> None:
    good = OBJECT.encode()
    bad = good.replace(b'"x"', b'"\xff"')
    found, letters = objects(written(tmp_path / "q.json", b"[" + b",".join([good, bad, good]) + b"]"))
    assert len(found) == 2
    assert [(each["line"], each["reason"]) for each in letters] == [(2, "record: is not UTF-8 text")]


def test_values_that_are_nested_too_deeply_are_dead_letters(tmp_path: Path) -> None:
    deep = OBJECT.replace('"x"', "[" * 900 + "]" * 900)
    found, letters = objects(written(tmp_path / "q.json", f"[{OBJECT}, {deep}, {OBJECT}]"))
    assert len(found) == 2
    assert [each["line"] for each in letters] == [2]


def test_members_that_are_not_read_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "q.geojson", json.dumps([*QUAKES, feature("c", 13.5, time=1, place="x", mag=3)]))
    (chunk,) = plan([path], QUAKE_COLUMNS, space=WGS84)
    (decoded,) = decode_chunk(chunk, "objects", columns=QUAKE_COLUMNS)
    assert decoded.unknown == {"properties.mag": 2}
    columns = {"text": "a+b"}
    path = written(tmp_path / "t.csv", "id;t;lon;lat;a;b;c\n1;1;1;1;x;y;z\n2;1;1;1;x;y;\n3;1;1\n")
    (chunk,) = plan([path], columns, space=WGS84)
    (decoded,) = decode_chunk(chunk, "objects", columns=columns)
    assert decoded.unknown == {"c": 2}


def test_an_empty_document_has_no_objects(tmp_path: Path) -> None:
    assert objects(written(tmp_path / "q.json", "[]")) == ([], [])


def test_text_in_utf_16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is text in UTF-16; save it as UTF-8"):
        objects(written(tmp_path / "a.txt", "id\tt\n".encode("utf-16")))


def test_declared_properties_are_read_wherever_the_layout_has_them(tmp_path: Path) -> None:
    declared = ["place:keyword", "mag:number", "felt:boolean", "updated:time", "Incident Zip:keyword"]
    rule = TermRule(properties=Properties.parse(declared))
    found = [feature("a", 13.4, t=1000, text="x", place="Here", mag=4.5, felt=True, updated="2026-01-01", sig=9)]
    geojson = written(tmp_path / "q.geojson", json.dumps({"type": "FeatureCollection", "features": found}))
    header = "id;t;lon;lat;text;place;mag;felt;updated;Incident Zip"
    table = written(tmp_path / "q.csv", f"{header}\nb;1;2;3;x;;-1,5;TRUE;;00501\nc;1;2;3;x;There; 2.5 ;;5;\n")

    def said(path: Path) -> tuple[list[dict[str, object]], list[str]]:
        parts = [part for chunk in plan([path], space=WGS84) for part in decode_chunk(chunk, "objects", rule=rule)]
        objects_ = [dict(part.batch.properties[i]) for part in parts for i in range(len(part.batch))]
        return objects_, [letter["reason"] for part in parts for letter in part.rejected.to_pylist()]

    assert said(geojson) == ([{"place": "Here", "mag": 4.5, "felt": True, "updated": 1_767_225_600_000}], [])
    assert said(table) == (
        [{"place": "There", "mag": 2.5, "updated": 5}],
        ["mag: '-1,5' is a string, and mag is declared as number; give a number"],
    )


SEEN = TermRule(properties=Properties.parse(["seen:time", "a.b:number"]))


def seen(path: Path, layout: InputLayout, unit: str = "ms") -> list[dict[str, object]]:
    """The properties of the objects of a file, as the oracle reads them too; nothing in it is refused."""
    parts = [
        part
        for chunk in plan([path], space=WGS84, layout=layout)
        for part in decode_chunk(chunk, "objects", rule=SEEN, unit=unit)
    ]
    assert not any(part.rejected.num_rows for part in parts)
    found = [part.batch[i] for part in parts for i in range(len(part.batch))]
    assert [each for _, each in read_objects([path], WGS84, SEEN, unit=unit, layout=layout)] == found
    return [dict(each.properties) for each in found]


def test_properties_that_are_times_have_the_zone_and_the_format_of_times(tmp_path: Path) -> None:
    header, here = "id,t,lon,lat,text,seen", InputLayout(time_zone="America/New_York")
    local = written(tmp_path / "a.csv", f"{header}\na,2026-01-31,1,2,x, 2026-01-31T12:00 \nb,5,1,2,x,\n")
    assert seen(local, here) == [{"seen": parse_time("2026-01-31T17:00Z")}, {}]
    formatted = written(tmp_path / "b.csv", f"{header}\na,31/01/2026,1,2,x,30/01/2026\n")
    assert seen(formatted, InputLayout(time_format="%d/%m/%Y")) == [{"seen": parse_time("2026-01-30")}]
    line = {"id": "a", "t": 5, "lon": 1, "lat": 2, "text": "x", "seen": "2026-01-31T12:00"}
    assert seen(written(tmp_path / "c.jsonl", json.dumps(line)), here) == [{"seen": parse_time("2026-01-31T17:00Z")}]
    table = {name: [value, value] for name, value in line.items()} | {"seen": [line["seen"], None]}
    pq.write_table(pa.table(table), tmp_path / "d.parquet")
    assert seen(tmp_path / "d.parquet", here) == [{"seen": parse_time("2026-01-31T17:00Z")}, {}]


def test_a_time_that_does_not_fit_names_its_property(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "id,t,lon,lat,text,seen\na,31/01/2026,1,2,x,2026-01-30\n")
    (chunk,) = plan([path], space=WGS84, layout=InputLayout(time_format="%d/%m/%Y"))
    (part,) = decode_chunk(chunk, "objects", rule=SEEN)
    (letter,) = part.rejected.to_pylist()
    assert letter["reason"] == "seen: '2026-01-30' does not fit the time format '%d/%m/%Y'"


@pytest.mark.parametrize("said", [1_769_860_800, "1769860800"])
def test_one_time_for_all_leaves_the_unit_of_properties(tmp_path: Path, said: object) -> None:
    line = {"id": "a", "lon": 1.0, "lat": 2.0, "text": "x", "seen": said}
    at, expected = InputLayout(at=7), [{"seen": 1_769_860_800_000}]
    assert seen(written(tmp_path / "a.jsonl", json.dumps(line)), at, "s") == expected
    assert seen(written(tmp_path / "b.csv", f"id,lon,lat,text,seen\na,1,2,x,{said}\n"), at, "s") == expected
    pq.write_table(pa.table({name: [value] for name, value in line.items()}), tmp_path / "c.parquet")
    assert seen(tmp_path / "c.parquet", at, "s") == expected


def test_a_property_of_a_feature_may_have_a_name_with_points(tmp_path: Path) -> None:
    for said in ({"a.b": 3}, {"a": {"b": 3}}):
        path = written(tmp_path / "q.geojson", json.dumps([feature("a", 13.4, t=1, text="x", **said)]))
        assert seen(path, InputLayout()) == [{"a.b": 3.0}]


def test_the_column_of_a_property_has_to_be_there_where_all_records_have_the_same(tmp_path: Path) -> None:
    columns = {"mag": "magg"}
    text = written(tmp_path / "a.tsv", "id\tt\tlon\tlat\ttext\tmag\n1\t1\t1\t1\tx\t2\n")
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": ["a"], "t": [1], "lon": [1.0], "lat": [1.0], "text": ["x"], "mag": [1]}), table)
    for path in (text, table):
        with pytest.raises(SettingError, match=r"has no column 'magg' for mag; it has .*; did you mean 'mag'\?"):
            plan([path], columns, space=WGS84)
    lines = written(tmp_path / "a.geojson", json.dumps([feature("a", 13.4, t=1, text="x")]))
    assert plan([lines], {"mag": "properties.mag"}, space=WGS84)
