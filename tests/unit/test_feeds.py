"""The commands that docs/files.md gives for public feeds read files in the formats of these feeds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from spatialstream.cli import main
from tests.unit.test_docs import ROOT, commands

QUAKE = {
    "type": "Feature",
    "properties": {"mag": None, "place": "5 km N of Here", "time": 1767225600000, "title": "M 1.0 - 5 km N of Here"},
    "geometry": {"type": "Point", "coordinates": [13.5, 52.25, 4.3]},
    "id": "xx1",
}
FILES = {
    "all_day.geojson": json.dumps({"type": "FeatureCollection", "metadata": {"count": 1}, "features": [QUAKE]}),
    "stops.txt": 'stop_id,stop_code,stop_name,stop_lat,stop_lon\r\n7,7,"Main Street, East",52.25,13.5\r\n',
    "cities15000.txt": '1\tHere "on Sea\tHere\tIci,Hier\t52.25\t13.5\tP\tPPL\tDE\t\t16\t\t\t\t20000\t\t34'
    "\tEurope/Berlin\t2026-01-01\n",
    "requests.csv": "Unique Key,Created Date,Complaint Type,Descriptor,Latitude,Longitude\n"
    "11,12/31/2025 07:00:00 PM,Street Light,Out,52.25,13.5\n",
    "occurrence.txt": "gbifID\tspecies\tlocality\tyear\tmonth\tday\tdecimalLatitude\tdecimalLongitude\n"
    "5\tApis mellifera\tPark\t2026\t1\t1\t52.25\t13.5\n",
    "StormEvents_details.csv.gz": '"EVENT_ID","EVENT_TYPE","BEGIN_DATE_TIME","BEGIN_LAT","BEGIN_LON",'
    '"EVENT_NARRATIVE"\n'
    '"9","Hail","31-DEC-25 18:00:00","52.25","13.5","Hail, of the size\nof peas, fell."\n',
}
WORDS = {
    "all_day.geojson": ("xx1", ["m", "1", "0", "5", "km", "n", "of", "here"]),
    "stops.txt": ("7", ["main", "street", "east"]),
    "cities15000.txt": ("1", ["here", "on", "sea", "ici", "hier"]),
    "requests.csv": ("11", ["street", "light", "out"]),
    "occurrence.txt": ("5", ["apis", "mellifera", "park"]),
    "StormEvents_details.csv.gz": ("9", ["hail", "of", "the", "size", "peas", "fell"]),
}
FEEDS = {words[words.index("--objects") + 1]: words for words in commands(ROOT / "docs" / "files.md") if "run" in words}


def test_each_feed_has_a_command() -> None:
    assert FEEDS.keys() == FILES.keys()


def write(folder: Path, name: str) -> None:
    content = FILES[name].encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


@pytest.mark.parametrize("name", FILES)
def test_a_feed_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, name)

    assert main([*FEEDS[name], *(["--dry-run"] if "--dry-run" not in FEEDS[name] else [])]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("rejected")] == []
    (found,) = [json.loads(line.removeprefix("object ")) for line in lines if line.startswith("object ")]
    number, words = WORDS[name]
    moment = "2026-01-01T00:00:00.000Z"
    assert found == {"id": number, "t": moment, "lon": 13.5, "lat": 52.25, "terms": found["terms"]}
    assert sorted(found["terms"]) == sorted(words)
