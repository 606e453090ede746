"""``spatialstream plan`` and ``--index auto``: files that are read as ``run`` reads them, for people and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from spatialstream.balance.planner import plan, whole
from spatialstream.balance.settings import BalanceSettings
from spatialstream.cli import main
from spatialstream.index.kinds import KINDS
from spatialstream.model.space import Space
from spatialstream.records.decode import decode_objects
from spatialstream.records.decode_queries import decode_queries

PLANE = "planar:0,0,4,4"


def lines(n: int = 1_500) -> list[dict[str, object]]:
    random = np.random.default_rng(1)
    places = np.clip(random.normal(1.3, 0.4, (n, 2)), 0.0, 4.0).round(6).tolist()
    return [{"id": f"o{i}", "t": i, "x": x, "y": y, "terms": [f"w{i % 7}"]} for i, (x, y) in enumerate(places)]


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    asked = [
        {"id": f"q{i}", "type": "CRQ", "t": i, "keywords": [f"w{i % 7}"], "duration": 10**9,
         "region": {"box": [each["x"], each["y"], min(each["x"] + 0.1, 4.0), min(each["y"] + 0.1, 4.0)]}}
        for i, each in enumerate(lines(400))
    ]  # fmt: skip
    return write(tmp_path / "queries.jsonl", asked)


@pytest.fixture
def files(tmp_path: Path, queries: Path) -> list[str]:
    objects = write(tmp_path / "objects.jsonl", lines())
    return ["--objects", str(objects), "--queries", str(queries), "--space", PLANE]


def planned(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["plan", *arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_plan_is_that_of_the_files(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = planned([*files, "--slots", "4", "--max-leaves", "64"], capsys)

    space = Space.parse(PLANE)
    read = Path(files[1]).read_bytes(), Path(files[3]).read_bytes()
    objects, queries = decode_objects(read[0], 0, space).batch, decode_queries(read[1], 0, space).batch
    expected = plan(whole(space, objects, queries), 4, BalanceSettings(leaves=64))
    assert found == json.loads(json.dumps(expected.to_record()))


def test_people_get_the_options_the_reason_and_a_table(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    record = planned(files, capsys)
    assert main(["plan", *files]) == 0

    first, _, reason, _, head, *rows = capsys.readouterr().out.splitlines()
    assert first == f"--index {record['kind']} --leaves {record['leaves']}"
    assert reason.lower() == f"{record['reason']}.".lower()
    assert "slowest slot" in head
    assert [row.split()[0] for row in rows if row.startswith("*")] == ["*"]
    taken = next(row for row in rows if row.startswith("*"))
    assert taken.split()[1:4] == [record["kind"], record["nearest"], f"{record['leaves']:,}"]
    assert {row.lstrip("* ").split()[0] for row in rows} == {kind.name for kind in KINDS.values() if kind.adapts}


def test_where_ckqs_are_to_be_is_told_too(files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        {"id": f"q{i}", "type": "CKQ", "t": i, "at": [each["x"], each["y"]], "k": 3, "keywords": each["terms"]}
        for i, each in enumerate(lines(400))
    ]
    given = [*files, "--queries", str(write(tmp_path / "ckqs.jsonl", asked)), "--slots", "2", "--max-leaves", "8"]
    assert main(["plan", *given]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"--index [a-z-]+ --leaves \d+ --nearest settle", first)
    assert {row["nearest"] for row in planned(given, capsys)["table"]} == {"settle", "dkm"}  # type: ignore[index,attr-defined]
    alone = planned([*given, "--nearest", "dkm"], capsys)
    assert alone["nearest"] == "dkm"
    assert {row["nearest"] for row in alone["table"]} == {"dkm"}  # type: ignore[index,attr-defined]


def test_files_are_read_as_run_reads_them(
    files: list[str], queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns of other names, text that is no JSON, seconds, and a declared property."""
    table = tmp_path / "objects.csv"
    rows = [f"{each['id']};{each['t']};{each['x']};{each['y']};{each['terms'][0]};5" for each in lines()]  # type: ignore[index]
    table.write_text("\n".join(["code;t;east;north;words;magnitude", *rows]))
    other = ["--objects", str(table), "--queries", str(queries), "--space", PLANE, "--separator", ";"]
    other += ["--columns", "id=code,x=east,y=north,text=words", "--property", "magnitude:number", "--time-unit", "ms"]

    assert planned(other, capsys) == planned(files, capsys)


def test_of_large_files_a_sample_stands_for_all(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = planned([*files, "--slots", "1", "--max-leaves", "1", "--sample", "1100"], capsys)
    table = found["table"]
    assert isinstance(table, list)
    assert [round(each["objects"]) for each in table] == [1_500] * len(table)


def test_too_few_objects_are_refused(queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = write(tmp_path / "few.jsonl", lines(12))
    assert main(["plan", "--objects", str(few), "--queries", str(queries), "--space", PLANE]) == 2
    assert "a plan needs at least 1,000 objects, and there are 12" in capsys.readouterr().err


def test_the_tree_can_be_planned(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    record = planned([*files, "--slots", "3"], capsys)
    assert main(["tree", *files, "--slots", "3", "--index", "auto"]) == 0
    shown = capsys.readouterr()
    assert str(record["reason"]) in shown.err
    shown_leaves = int(re.findall(r"^([\d,]+) leaves", shown.out, re.M)[-1].replace(",", ""))
    table = record["table"]
    assert isinstance(table, list)
    taken = next(each for each in table if (each["kind"], each["wanted"]) == (record["kind"], record["leaves"]))
    assert abs(shown_leaves - taken["leaves"]) <= 3


@pytest.mark.parametrize("command", ["plan", "tree"])
def test_files_of_which_little_or_nothing_can_be_used_are_told(
    command: str, queries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = write(tmp_path / "none.jsonl", [{"id": f"o{i}", "t": i, "x": 9, "y": 9, "text": "x"} for i in range(3)])
    rest = ["--queries", str(queries), "--space", PLANE]
    assert main([command, "--objects", str(none), *rest]) == 4
    told = capsys.readouterr().err
    assert told.startswith("spatialstream: every object was rejected\n  3 such as: x: 9 is out of range")
    some = write(tmp_path / "some.jsonl", [*lines(), *({"id": f"o{i}"} for i in range(300))])
    assert main([command, "--objects", str(some), *rest]) == 0
    told = capsys.readouterr().err
    assert "300 of 1,800 objects are rejected\n  300 such as: t: is required" in told
    assert main([command, "--objects", str(some), *rest, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
