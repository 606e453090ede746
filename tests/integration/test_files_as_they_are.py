"""Files in other layouts than ours, from the files to rows: run, checked by the oracle, and answered in Python."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spatialstream
from spatialstream import CRQ, AllRejected, Box, InputLayout
from spatialstream.cli import main
from spatialstream.spark.answers import RejectedWarning

pytestmark = pytest.mark.usefixtures("spark")

QUERY = {
    "id": "q",
    "type": "CRQ",
    "t": 0,
    "region": {"box": [13, 52, 14, 53]},
    "keywords": ["fire"],
    "duration": "20000d",
}
COLUMNS = "t=properties.time,text=properties.title+properties.body"


def quake(name: str, lon: float, t: object, title: str, kind: str = "Point") -> dict[str, Any]:
    properties = {"time": t, "title": title, "body": None, "mag": 1}
    return {
        "type": "Feature",
        "id": name,
        "geometry": {"type": kind, "coordinates": [lon, 52.5]},
        "properties": properties,
    }


FEATURES = [
    quake("a", 13.5, 1_000_000_000_000, "Fire"),
    quake("b", 13.5, "2001-09-09", "fire, again"),
    quake("c", 1, 1_000_000_000_002, "Fire"),
    quake("d", 13.5, 1_000_000_000_003, "Rain"),
    quake("e", 13.5, 1, "Fire", "Polygon"),
    quake("f", 13.5, "soon", "Fire"),
]


def rows(output: Path) -> list[str]:
    lines = [line for path in sorted((output / "results").glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted(json.loads(line)["object"]["id"] for line in lines)


def test_a_document_that_breaks_off_is_answered_and_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.dumps({"type": "FeatureCollection", "features": FEATURES})
    (tmp_path / "q.geojson").write_text(document[:-5])
    (tmp_path / "queries.jsonl").write_text(json.dumps(QUERY) + "\n")
    files = [
        "--objects",
        str(tmp_path / "q.geojson"),
        "--queries",
        str(tmp_path / "queries.jsonl"),
        "--columns",
        COLUMNS,
    ]
    output = tmp_path / "out"

    assert main(["run", *files, "--output", str(output), "--slots", "2", "--time-zone", "Europe/Berlin"]) == 0

    assert rows(output) == ["a", "b"]
    letters = [
        json.loads(line) for path in (output / "rejected").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert sorted((each["line"], each["reason"].partition(":")[0]) for each in letters) == [
        (5, "geometry"),
        (6, "record"),
    ]
    assert "unknown   'properties.mag' in 4 objects (fields that are not read)" in capsys.readouterr().err
    assert main(["check", *files, "--output", str(output), "--time-zone", "Europe/Berlin"]) == 0
    assert "exact" in capsys.readouterr().out
    assert main(["check", *files, "--output", str(output)]) == 1, "b is of another day then"


def test_the_standard_input_is_resumed_by_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queries.jsonl").write_text(json.dumps(QUERY) + "\n")
    command = ["run", "--objects", "-", "--queries", str(tmp_path / "queries.jsonl"), "--output", str(tmp_path / "out")]
    for features, more, status in (
        (FEATURES, [], 0),
        (FEATURES, [], 0),
        (FEATURES[:1], [], 3),
        (FEATURES[:1], ["--overwrite"], 0),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(map(json.dumps, features)).encode())))
        found = main([*command, "--columns", COLUMNS, "--slots", "2", "--quiet", *more])
        assert (found == 0) == (status == 0)
    assert rows(tmp_path / "out") == ["a"]


def test_files_are_answered_in_python(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("1|1000000000|13.5|52.5|Fire\n2|soon|13.5|52.5|Fire\n")
    (folder / "b.csv").write_text("3,1000000001,13.5,52.5,Rain\n")
    (folder / "notes.pdf").write_text("")
    columns = {"id": "1", "t": "2", "lon": "3", "lat": "4", "text": "5"}
    since = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)  # 1,000,000,000 s
    query = CRQ(id="q", t=since, region=Box(13, 52, 14, 53), keywords=["fire"], duration="1h")
    with pytest.warns() as warned:
        found = spatialstream.answer(
            folder, query, spark=spark, slots=2, columns=columns, layout=InputLayout(header=False), time_unit="s"
        )
    told = {each.category: str(each.message) for each in warned}
    assert "1 files are skipped, since their names do not end" in told[UserWarning]
    assert "1 of 4 records were rejected" in told[RejectedWarning]
    assert [(row["t"], row["object"]["id"]) for row in found.rows] == [(1_000_000_000_000, "1")]
    assert [(Path(each["source"]).name, each["line"]) for each in found.rejected] == [("a.txt", 2)]


def test_of_files_that_are_rejected_reasons_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,t,lon,lat,text\n1,soon,1,1,x\n")
    with pytest.raises(AllRejected, match="1 of them such as: t: 'soon' is not a time"):
        spatialstream.answer([tmp_path / "a.csv"], QUERY, spark=spark, slots=2)
