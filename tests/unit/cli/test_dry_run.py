"""``--dry-run``, and inputs that are folders or the standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from spatialstream.cli import main

STOPS = "stop_id;stop_name;stop_lat;stop_lon;zone\n1;Main Street;52;13;A\n2;;52;13;A\n"
COLUMNS = ["--columns", "id=stop_id,text=stop_name,lat=stop_lat,lon=stop_lon", "--at", "2026-01-01"]


@pytest.fixture
def stops(tmp_path: Path) -> Path:
    path = tmp_path / "stops.txt"
    path.write_text(STOPS)
    return path


@pytest.mark.parametrize("command", [["run"], ["load", "--stream", "none", "--bootstrap", "nowhere:1"]])
def test_it_shows_how_objects_would_be_read_and_does_nothing_else(
    command: list[str], stops: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--objects", str(stops), "--dry-run", *COLUMNS]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{stops}: text with 5 columns, with a header",
        "guessed   semicolons separate the columns; the first line names the columns; quotes enclose cells",
        "read      id from stop_id, t from --at, lon from stop_lon, lat from stop_lat, text from stop_name",
        "not read  zone",
        'object    {"id": "1", "t": "2026-01-01T00:00:00.000Z", "lon": 13.0, "lat": 52.0, "terms": ["main", "street"]}',
        "rejected  1 of the first 2 records:",
        "          3: stop_name: is required; give a string, or a list of strings as terms",
    ]
    assert list(stops.parent.iterdir()) == [stops]


@pytest.mark.parametrize(
    ("given", "unit"), [("1795880000", "s"), ("1795880000000", "ms"), ("2026-11-28T14:13:20Z", "us")]
)
def test_one_time_for_all_objects_has_the_unit_of_times(
    given: str, unit: str, stops: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--objects", str(stops), "--dry-run", *COLUMNS[:2], "--at", given, "--time-unit", unit]) == 0
    assert '"t": "2026-11-28T' in capsys.readouterr().out


@pytest.mark.parametrize(("given", "unit"), [("1795880000000", "s"), ("1795880000", "us")])
def test_one_time_in_another_unit_than_that_of_times_is_refused(
    given: str, unit: str, stops: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--objects", str(stops), "--dry-run", *COLUMNS[:2], "--at", given, "--time-unit", unit]) == 2
    assert f"at: {given} is no recent time in {unit}, the unit of times" in capsys.readouterr().err


def test_a_missing_column_is_told_with_a_command_that_helps(stops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--objects", str(stops), "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert "has no column 'id'; it has 'stop_id', 'stop_name', 'stop_lat', 'stop_lon', 'zone'" in told
    suggested = "maybe --columns id=stop_id,lon=stop_lon,lat=stop_lat,text=stop_name, and --at TIME if it has no times"
    assert suggested in told


def test_a_property_without_a_column_is_told_once(stops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stops.parent / "more.txt").write_text(STOPS)
    properties = ["--property", "zones:keyword", "--property", "zone:keyword"]
    assert main(["run", "--objects", str(stops.parent), "--dry-run", *COLUMNS, *properties]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "spatialstream: no file of objects has a column 'zones', so no object has the property zones; the files have "
        "'stop_id', 'stop_name', 'stop_lat', 'stop_lon', 'zone'; did you mean --columns zones=zone?\n"
    )
    assert '"zone": "A"' in out


def test_a_folder_is_its_files_and_says_what_it_skips(stops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stops.parent / "notes.pdf").write_text("")
    (stops.parent / "more.csv").write_text(STOPS)
    assert main(["run", "--objects", str(stops.parent), "--dry-run", *COLUMNS]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if ": text with" in line] == [
        f"{stops.parent / name}: text with 5 columns, with a header" for name in ("more.csv", "stops.txt")
    ]
    assert (
        err
        == f"spatialstream: skipped, since their names do not end as those of objects do: {stops.parent}/notes.pdf\n"
    )


def test_the_standard_input_is_read_once(
    stops: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STOPS.encode())))
    assert main(["load", "--stream", "none", "--objects", "-", "--dry-run", *COLUMNS]) == 0
    assert '"id": "1"' in capsys.readouterr().out
    assert main(["run", "--objects", "-", "-", "--dry-run", *COLUMNS]) == 2
    assert "can be read only once" in capsys.readouterr().err


def test_what_is_needed_is_named(stops: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--stream", "none", "--dry-run"]) == 2
    assert "objects: is required with --dry-run" in capsys.readouterr().err
    assert main(["run", "--dry-run"]) == 2
    assert "objects: is required; give --objects" in capsys.readouterr().err
