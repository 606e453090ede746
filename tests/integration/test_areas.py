"""Queries in files and DataFrames that name areas: run, checked by the oracle, and answered in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import spatialstream
from spatialstream import SRQ, Area, SettingError
from spatialstream.cli import main

pytestmark = pytest.mark.usefixtures("spark")

WEST = [[[0, 0], [4, 0], [4, 8], [0, 8], [0, 0]]]
EAST = [[[5, 0], [8, 0], [8, 8], [5, 0]]]
AREAS = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "properties": {"name": name}, "geometry": {"type": "Polygon", "coordinates": rings}}
        for name, rings in (("west", WEST), ("east", EAST))
    ],
}
T = 1_600_000_000_000
OBJECTS = [{"id": f"o{x}", "t": T + x, "lon": x, "lat": 1, "text": "a"} for x in range(9)]


def query(area: str) -> dict[str, Any]:
    return {"id": area, "type": "SRQ", "t": T + 10, "region": {"area": area}, "duration": 100}


def test_a_run_is_checked_with_its_areas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects, queries, areas = (tmp_path / name for name in ("objects.jsonl", "queries.jsonl", "areas.geojson"))
    objects.write_text("".join(json.dumps(each) + "\n" for each in OBJECTS))
    queries.write_text("".join(json.dumps(query(name)) + "\n" for name in ("west", "east")))
    areas.write_text(json.dumps(AREAS))
    files = ["--objects", str(objects), "--queries", str(queries)]
    named = ["--areas", str(areas), "--area-id", "name"]
    output = tmp_path / "out"

    assert main(["run", *files, *named, "--output", str(output), "--slots", "2", "--quiet"]) == 0

    lines = [line for path in (output / "results").glob("*.jsonl") for line in path.read_text().splitlines()]
    found = {row["query"]: [each["id"] for each in row["objects"]] for row in map(json.loads, lines)}
    assert found == {"west": ["o0", "o1", "o2", "o3", "o4"], "east": ["o6", "o7", "o8"]}
    assert main(["check", *files, *named, "--output", str(output)]) == 0
    assert "exact" in capsys.readouterr().out
    queries.write_text(json.dumps(query("wset")) + "\n")
    assert main(["run", *files, *named, "--output", str(tmp_path / "other"), "--quiet"]) == 2
    told = "queries.jsonl line 1: region.area: 'wset' is not an area of the stream; did you mean west?"
    assert told in capsys.readouterr().err


def test_answers_of_areas(tmp_path: Path) -> None:
    objects = pd.DataFrame(OBJECTS)
    asked = [SRQ(id="q", t=T + 10, region=Area("east"), duration=100), query("west")]
    answers = spatialstream.answer(objects, asked, areas=AREAS, area_id="name", output=tmp_path / "out", slots=2)
    found = {row["query"]: [each["id"] for each in row["objects"]] for row in answers.rows}
    assert found == {"q": ["o6", "o7", "o8"], "west": ["o0", "o1", "o2", "o3", "o4"]}
    with pytest.raises(SettingError, match=r"line 2: region\.area: 'w' is not an area of the stream; its areas are"):
        spatialstream.answer(objects, [query("west"), query("w")], areas=AREAS, area_id="name")
