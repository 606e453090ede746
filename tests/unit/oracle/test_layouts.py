"""Two readers of files in other layouts agree: that of a run, and the oracle's, which is as simple as possible."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.model.space import WGS84
from spatialstream.oracle.files import read_objects
from spatialstream.records.files import decode_chunk, plan
from spatialstream.records.layout import InputLayout

IDS: Any = (
    st.none() | st.integers(-5, 2**64) | st.sampled_from(["a", "", " b", 'say "x"', "ü", "7.0", "x;y", "|", ",", "\t"])
)
TIMES: Any = (
    st.none()
    | st.integers(0, 2**41)
    | st.sampled_from(
        ["2026-01-05", "2026-03-29T02:30", "2026-10-25T02:30", "2026-01-05T08:30Z", "soon", " 5 ", "05.01.2026 08:30"]
    )
)
NUMBERS: Any = (
    st.none() | st.floats(-200, 200) | st.integers(-200, 200) | st.sampled_from(["1e1", "+5", ".5", "x", "1_0"])
)
TEXTS: Any = st.none() | st.sampled_from(["Fire in Mitte", "", "two\nlines", 'a "quote"', "x|y;z,w\tv", "é"])
ROWS = st.lists(st.tuples(IDS, TIMES, NUMBERS, NUMBERS, TEXTS, TEXTS), max_size=8)
LAYOUTS = st.sampled_from(
    [
        InputLayout(),
        InputLayout(time_zone="Europe/Berlin"),
        InputLayout(time_format="%d.%m.%Y %H:%M", time_zone="Europe/Berlin"),
        InputLayout(at=5),
    ]
)
NAMES = ["key", "when", "x", "y", "title", "body"]
FLAT = {"id": "key", "lon": "x", "lat": "y", "text": "title+body"}


def by_run(path: Path, columns: dict[str, str], layout: InputLayout) -> tuple[list[Any], list[int]]:
    objects: list[Any] = []
    refused: list[int] = []
    for chunk in plan([path], columns, space=WGS84, layout=layout):
        for part in decode_chunk(chunk, "objects", columns=columns):
            lines = part.line.tolist()
            objects += [(lines[i], part.batch[i]) for i in range(len(lines))]
            refused += part.rejected.column("line").to_pylist()
    return objects, refused


def by_oracle(path: Path, columns: dict[str, str], layout: InputLayout) -> tuple[list[Any], list[int]]:
    places: list[tuple[str, int]] = []
    read = read_objects([path], WGS84, columns=columns, reject=places.append, layout=layout)
    return [(line, each) for (_, line), each in read], [line for _, line in places]


def agree(path: Path, columns: dict[str, str], layout: InputLayout) -> None:
    columns = columns if layout.at is not None else {**columns, "t": columns.get("t", "when")}
    objects, refused = by_run(path, columns, layout)
    expected, places = by_oracle(path, columns, layout)
    assert [(line, each.id, each.t, each.x, each.y, sorted(each.terms)) for line, each in objects] == [
        (line, each.id, each.t, each.x, each.y, sorted(each.terms)) for line, each in expected
    ]
    assert refused == places


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts")


SHARED = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SHARED
@given(ROWS, LAYOUTS, st.sampled_from(";|\t,"), st.booleans())
def test_text_with_columns(folder: Path, rows: list[Any], layout: InputLayout, mark: str, packed: bool) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=mark, lineterminator="\n")
    writer.writerows([NAMES, *rows])
    path = folder / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(out.getvalue().encode()) if packed else out.getvalue().encode())
    agree(path, FLAT, layout)


@SHARED
@given(ROWS, LAYOUTS, st.booleans(), st.integers(0, 40))
def test_json(folder: Path, rows: list[Any], layout: InputLayout, lines: bool, cut: int) -> None:
    records = [
        {"key": key, "when": when, "at": {"p": [x, y]}, "title": title, "body": body}
        for key, when, x, y, title, body in rows
    ]
    columns = {"id": "key", "lon": "at.p[0]", "lat": "at.p[1]", "text": "title+body"}
    first = {"key": "first", "when": 1, "at": {"p": [1, 2]}, "title": "x", "body": None}
    records = [first, *records]
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    text = text[: max(len(json.dumps(first)) + 1, len(text) - cut)]
    (folder / "a.json").write_text(text)
    agree(folder / "a.json", columns, layout)


@SHARED
@given(ROWS, LAYOUTS, st.sampled_from(["Point", "Polygon", None]), st.sampled_from(["a.geojson", "b.geojsonl"]))
def test_features(folder: Path, rows: list[Any], layout: InputLayout, kind: str | None, name: str) -> None:
    def feature(key: Any, when: Any, x: Any, y: Any, title: Any, kind: str | None = "Point") -> dict[str, Any]:
        geometry = None if kind is None else {"type": kind, "coordinates": [x, y]}
        return {"type": "Feature", "id": key, "geometry": geometry, "properties": {"when": when, "title": title}}

    features = [feature("first", 1, 1, 2, "x"), *(feature(*row[:5], kind) for row in rows)]
    collection = json.dumps({"type": "FeatureCollection", "features": features})
    (folder / name).write_text("\n".join(map(json.dumps, features)) if name.endswith("l") else collection)
    timed = {"t": "properties.when"} if layout.at is None else {}
    agree(folder / name, {**timed, "text": "properties.title"}, layout)


@SHARED
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.none() | st.floats(-200, 200), TEXTS), min_size=1), LAYOUTS)
def test_geoparquet(folder: Path, rows: list[Any], layout: InputLayout) -> None:
    wkb = [None if x is None else shapely.to_wkb(shapely.Point(x, x / 4)) for _, x, _ in rows]
    table = pa.table(
        {
            "key": pa.array([key for key, _, _ in rows], pa.uint64()),
            "when": pa.array(["05.01.2026 08:30"] * len(rows)),
            "said": pa.array([{"title": title} for _, _, title in rows], pa.struct([("title", pa.string())])),
            "geometry": pa.array(wkb, pa.binary()),
        }
    )
    known = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(known)}), folder / "a.parquet")
    agree(folder / "a.parquet", {"id": "key", "text": "said.title"}, layout)
