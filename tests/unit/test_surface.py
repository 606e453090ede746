"""The public surface: every name is there, loaded on first use, and documented where a user finds it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import spatialstream
from spatialstream import Box, RecordError, brute_force
from spatialstream.cli import main
from spatialstream.model import errors

ROOT = Path(__file__).parents[2]


def test_importing_loads_nothing_else() -> None:
    heavy = "('spatialstream', 'numpy', 'pyspark', 'pandas')"
    code = f"import sys, spatialstream; print(*(name for name in sys.modules if name.startswith({heavy})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["spatialstream"]


def test_every_public_name_is_there_and_nothing_else_is_shown() -> None:
    assert sorted(dir(spatialstream)) == sorted([*spatialstream.__all__, "__version__"])
    for name in spatialstream.__all__:
        assert getattr(spatialstream, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'anser'"):
        _ = spatialstream.anser  # type: ignore[attr-defined]


def test_the_whole_tree_of_errors_is_public() -> None:
    assert set(errors.__all__) <= set(spatialstream.__all__)


def test_every_public_name_is_in_the_first_lines() -> None:
    told = spatialstream.__doc__ or ""
    left = [name for name in spatialstream.__all__ if name not in told and name not in errors.__all__]
    assert not left


PROGRAM = """
from typing import Any
import spatialstream
from spatialstream import CRQ, SKQ, SRQ, Answer, Answers, Box, Circle, Stream, Unavailable, connect

def program(stream: Stream) -> list[dict[str, Any]]:
    near = SKQ(at=(13.4, 52.5), k=3, duration="1h")
    one: Answer = stream.ask(near)
    two: list[Answer] = stream.ask([near, SRQ(region=Circle(0, 0, 1), duration=1)])
    record: dict[str, Any] = stream.register(CRQ(region=Box(13, 52, 14, 53)))
    stream.cancel(str(record["id"]))
    try:
        count: int = stream.send([{"id": "a"}])
    except Unavailable:
        pass
    with stream.watch(CRQ(region=Box(13, 52, 14, 53))) as rows:
        for row in rows:
            print(row["t"])
    found: list[dict[str, Any]] = spatialstream.brute_force([], [near])
    return found
"""
MISTAKE = """
from spatialstream import CRQ, Box, Stream

def program(stream: Stream) -> None:
    stream.ask(CRQ(region=Box(13, 52, 14, 53)))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "problems"), [(PROGRAM, 0), (MISTAKE, 1)], ids=["right", "wrong"])
def test_a_users_program_is_checked_by_strict_types(program: str, problems: int, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "c")]
    done = subprocess.run([*command, "program.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.count("error:") == problems, done.stdout


def test_brute_force_answers_records_and_refuses_bad_ones() -> None:
    objects = [{"id": "a", "t": 1, "x": 5, "y": 5, "text": "fire"}, {"id": "b", "t": 2, "x": 9, "y": 9, "text": "x"}]
    query = spatialstream.SRQ(id="q", t=2, region=Box(0, 0, 6, 6), duration="1h")
    (row,) = brute_force(objects, [query], "planar:0,0,10,10")
    assert [each["id"] for each in row["objects"]] == ["a"]
    assert brute_force(objects, [query.to_record()], "planar:0,0,10,10") == [row]
    with pytest.raises(RecordError, match="id: 'q' is in use"):
        brute_force([], [query, spatialstream.SRQ(id="q", t=2, region=Box(0, 0, 6, 7), duration="1h")])
    with pytest.raises(RecordError, match="lon: is required"):
        brute_force(objects, [query])


def test_the_wheel_has_the_packages_and_their_types_and_no_servers_tests_or_benchmarks() -> None:
    files = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_selected_project_files()}
    assert {file.split("/")[0] for file in files} == {"spatialstream", "spatialstream_operator"}
    assert {"spatialstream/py.typed", "spatialstream/__init__.py", "spatialstream/cli/demo/live.py"} <= files
    assert not [file for file in files if "/servers/" in file or "bench" in file or "/tests/" in file]


@pytest.mark.parametrize("command", [["cluster", "up"], ["cluster", "status"], ["demo-live"]], ids=" ".join)
def test_what_starts_servers_says_that_the_wheel_has_none(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spatialstream.cli.cluster.find_spec", lambda name: importlib.util.find_spec(f"{name}_none"))
    assert main(command) == 2
    assert f"{command[0]}: starts ZooKeeper and Kafka, which are not part of the installed" in capsys.readouterr().err
