"""The command line: what it refuses, and with which status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spatialstream.cli import main
from tests import streams


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error of a command that ends with status 2."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code
    told = capsys.readouterr().err
    assert status == 2, told
    assert told.count("\n") == 1, told
    return told


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    objects, queries = streams.write_stream(tmp_path, streams.random_stream(1, 200, 5))
    return ["--objects", str(objects), "--queries", str(queries)]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--slots", "0"], "at least 1"),
        (["--leaves", "many"], "whole number"),
        (["--interval", "soon"], "not a duration"),
        (["--retention", "1m"], "shorter than the interval"),
        (["--space", "mars"], "planar:x0,y0,x1,y1"),
        (["--space", "planar:3,0,1,1"], "x0 < x1"),
        (["--columns", "colour=red"], "not a field of objects"),
        (["--stop-words", "nowhere.txt"], "nowhere.txt"),
        (["--speed", "fast"], "--speed"),
        (["--slots", "5000"], "1 to 1024"),
    ],
)
def test_an_unusable_option_is_refused_in_one_line(
    option: list[str], said: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(["run", *files, "--output", str(tmp_path / "out"), *option], capsys)


@pytest.mark.parametrize(
    ("t", "told"),
    [
        (1_517_966_773, "in January 1970; they look like seconds: give --time-unit s "),
        (1_517_966_773_840_000, "beyond the year 2100; they look like microseconds: give --time-unit us "),
    ],
)
@pytest.mark.parametrize("kind", ["objects", "queries"])
def test_times_that_look_as_if_they_were_of_another_unit_are_refused(
    kind: str, t: int, told: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"objects": {"lon": 0, "lat": 0, "text": "x"}, "queries": {"type": "CRQ", "region": {"box": [0, 0, 1, 1]}}}
    for name, fields in given.items():
        record = {"id": "a", "t": t if name == kind else 1_517_966_773_840, **fields}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
    said = refused(["run", *files, "--output", str(tmp_path / "out")], capsys)
    assert f"{kind}: as milliseconds, nearly all times in {kind}.jsonl lie {told}" in said
    assert not (tmp_path / "out" / "results").exists()  # and the right command has nothing to overwrite


def test_a_missing_file_is_refused(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.jsonl")
    told = refused(["run", "--objects", missing, *files[2:], "--output", str(tmp_path / "out")], capsys)
    assert missing in told
    assert not (tmp_path / "out" / "results").exists()


@pytest.mark.parametrize("place", ["objects.jsonl/out", "/proc/out", "/proc/version"])
def test_an_output_that_cannot_be_written_is_refused(
    place: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(["run", *files, "--output", str(tmp_path / place)], capsys)
    assert told.startswith("spatialstream: output: cannot be used, ")
    told = refused(["generate", "--objects", "/proc/x.jsonl", "--queries", str(tmp_path / "q"), "--quiet"], capsys)
    assert told.startswith("spatialstream: /proc/x.jsonl: ")


def test_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--output" in refused(["run", "--objects", "a.jsonl", "--queries", "b.jsonl"], capsys)


@pytest.mark.parametrize("job", ["router", "worker"])
def test_a_job_cannot_be_told_to_trust_everybody(job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--stream", "quakes", "--checkpoint", str(tmp_path / "checkpoint")]
    for setting in ("spark.authenticate=false", "spark.authenticate.secret=4711", "spark.network.crypto.enabled=false"):
        told = refused([job, *options, "--conf", setting], capsys)
        assert f"{setting.partition('=')[0]} cannot be set" in told
        assert "4711" not in told
    assert not (tmp_path / "checkpoint").exists()


def test_the_tree_is_shown_and_drawn(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "tree.svg"
    assert main(["tree", *files, "--leaves", "16", "--slots", "3", "--svg", str(picture)]) == 0
    assert "Lmax/Lmin" in capsys.readouterr().out
    assert picture.read_text().startswith("<svg")


def test_check_finds_what_is_missing(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / "results").mkdir(parents=True)
    assert main(["check", *files, "--output", str(tmp_path / "out")]) == 1
    assert "missing" in capsys.readouterr().out


def test_the_same_options_generate_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        objects, queries = tmp_path / f"{name}.jsonl", tmp_path / f"{name}-queries.jsonl"
        options = ["--number", "500", "--queries-per-type", "CRQ=20,CTQ=3", "--region", "0.01:1", "--quiet"]
        assert main(["generate", "--objects", str(objects), "--queries", str(queries), *options]) == 0
        made.append((objects.read_bytes(), queries.read_bytes()))
    assert made[0] == made[1]
    assert made[0][0].count(b"\n") == 500
    assert made[0][1].count(b"\n") == 23
