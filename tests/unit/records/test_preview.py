"""A look at a file: the first objects as they would be read, what is guessed, and what is not read."""

from __future__ import annotations

import json
from pathlib import Path

from spatialstream.model.properties.declared import Properties
from spatialstream.model.terms import TermRule
from spatialstream.records.layout import InputLayout
from spatialstream.records.preview import preview


def test_text_with_columns(tmp_path: Path) -> None:
    path = tmp_path / "stops.txt"
    path.write_text("stop;name;lat;lon;zone\n1;Main Street;52;13;A\n2;;52;13;A\n")
    columns = {"id": "stop", "text": "name"}
    found = preview(path, columns, InputLayout(at=0))
    assert found.form == "text with 5 columns, with a header"
    assert found.guesses == (
        "semicolons separate the columns",
        "the first line names the columns",
        "quotes enclose cells",
    )
    assert found.columns == {"id": "stop", "t": "--at", "lon": "lon", "lat": "lat", "text": "name"}
    assert found.objects == (
        {"id": "1", "t": "1970-01-01T00:00:00.000Z", "lon": 13.0, "lat": 52.0, "terms": ["main", "street"]},
    )
    assert (found.read, [line for line, _ in found.refused], found.unused) == (2, [3], ("zone",))


def test_what_is_said_is_no_guess(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1|5|13|52|x\n")
    layout = InputLayout(separator="|", header=False, quotes=False)
    found = preview(path, {"id": "1", "t": "2", "lon": "3", "lat": "4", "text": "5"}, layout, unit="s")
    assert (found.form, found.guesses) == ("text with 5 columns, without a header", ())
    assert found.objects[0]["t"] == "1970-01-01T00:00:05.000Z"


def test_features(tmp_path: Path) -> None:
    path = tmp_path / "q.geojson"
    properties = {"t": 1000, "text": "Here", "mag": 2}
    feature = {"type": "Feature", "id": 7, "geometry": {"type": "Point", "coordinates": [13, 52]}}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [{**feature, "properties": properties}] * 5}))
    found = preview(path, most=2)
    assert found.form == "GeoJSON"
    assert found.columns == {
        "id": "id",
        "t": "properties.t",
        "lon": "geometry.coordinates[0]",
        "lat": "geometry.coordinates[1]",
        "text": "properties.text",
    }
    assert [each["id"] for each in found.objects] == ["7", "7"]
    assert (found.read, found.unused) == (5, ("properties.mag",))


def test_our_own_layouts_and_empty_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "t": 8640000000000000, "lon": 1, "lat": 2, "text": "x", "more": 1}\n')
    found = preview(path, unit="ms")
    assert (found.form, found.guesses, found.unused) == ("JSON Lines", (), ("more",))
    assert found.objects == ({"id": "a", "t": 8640000000000000, "lon": 1.0, "lat": 2.0, "terms": ["x"]},)
    for name in ("a.csv", "b.jsonl", "c.json", "d.txt"):
        (tmp_path / name).write_text("")
        assert preview(tmp_path / name).read == 0, name


def test_properties_are_shown_with_where_they_are_read(tmp_path: Path) -> None:
    rule = TermRule(properties=Properties.parse(["size:number", "seen:time", "open:boolean"]))
    path = tmp_path / "q.geojson"
    said = {"t": 1000, "text": "Here", "mag": {"value": 2.5}, "seen": "2026-01-31", "open": None, "more": 1}
    feature = {"type": "Feature", "id": 7, "geometry": {"type": "Point", "coordinates": [13, 52]}, "properties": said}
    path.write_text(json.dumps([feature]))
    found = preview(path, {"size": "properties.mag.value"}, rule=rule)
    assert list(found.columns.items())[5:] == [
        ("size", "properties.mag.value"),
        ("seen", "properties.seen"),
        ("open", "properties.open"),
    ]
    assert list(found.objects[0].items())[4:] == [
        ("terms", ["here"]),
        ("size", 2.5),
        ("seen", "2026-01-31T00:00:00.000Z"),
    ]
    assert found.unused == ("properties.more",)
