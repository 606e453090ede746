"""The ten saved searches of docs/saved-searches.md, from files to rows; generated streams with properties, fields."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spatialstream
from spatialstream.cli import main
from spatialstream.generate import GenerateSettings, write_stream
from spatialstream.model.kinds import KINDS, TYPES
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.oracle import answers, check_files, read_objects, read_queries
from spatialstream.spark.run import RunSettings, run
from tests.lengths import AT_LENGTH
from tests.unit.test_docs import ROOT, commands

EXAMPLE = ROOT / "examples" / "saved-searches"
RULE = TermRule(properties=Properties.parse(["country:keyword", "priority:number"]), fields=("text", "priority"))

FOUND = {
    "berlin-fire": ["r01", "r02"],
    "strasbourg-flood": ["r06"],
    "kehl-flood": ["r07"],
    "geneva-any": ["r09", "r10"],
    "paris-power": ["r12"],
    "vienna-water": ["r14", "r15"],
    "bratislava-water": ["r16"],
    "madrid-storm": ["r19"],
    "oslo-slide": ["r20"],
    "lisbon-unrated": ["r21"],
}
"""What a person finds who reads the ten searches and the twenty-three reports."""


def test_the_oracle_finds_what_a_person_does() -> None:
    objects = [each for _, each in read_objects([EXAMPLE / "reports.csv"], WGS84, RULE)]
    queries = [each for _, each in read_queries([EXAMPLE / "searches.jsonl"], WGS84, RULE)]
    rows, refused = answers(objects, queries, WGS84)
    assert refused == []
    found = defaultdict(list)
    for row in rows:
        found[row["query"]].append(row["object"]["id"])
    assert found == FOUND


@pytest.mark.timeout(900)
def test_the_command_of_the_page_finds_the_same(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"out", *(each.name for each in EXAMPLE.iterdir())}
    for each in EXAMPLE.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    page = ROOT / "docs" / "saved-searches.md"
    for words in commands(page):
        if words[0] in ("run", "check"):
            # absolute, because the processes of a running Spark are in another folder
            assert main([str(tmp_path / word) if word in files else word for word in words]) == 0
    assert "exact" in capsys.readouterr().out
    lines = [line for path in (tmp_path / "out" / "results").glob("*.jsonl") for line in path.read_text().splitlines()]
    found = defaultdict(list)
    for row in map(json.loads, lines):
        found[row["query"]].append(row["object"]["id"])
    assert {name: sorted(ids) for name, ids in found.items()} == FOUND
    shown = json.loads(next(line for line in page.read_text().splitlines() if line.startswith('{"query"')))
    assert shown in [json.loads(line) for line in lines], "the row that the page shows"


@pytest.mark.timeout(900)
def test_in_python_they_are_answered_alike() -> None:
    import pandas as pd

    searches = [json.loads(line) for line in (EXAMPLE / "searches.jsonl").read_text().splitlines()]
    reports = pd.read_csv(EXAMPLE / "reports.csv")
    answered = spatialstream.answer(reports, searches, fields=["text", "priority"])
    found = defaultdict(list)
    for row in answered.rows:
        found[row["query"]].append(row["object"]["id"])
        assert row["object"]["text"]
    assert {name: sorted(ids) for name, ids in found.items()} == FOUND


@pytest.mark.timeout(900)
def test_generated_streams_with_properties_polygons_conditions_and_fields_are_the_oracles(
    spark: SparkSession, tmp_path: Path
) -> None:
    objects, queries = tmp_path / "objects.jsonl", tmp_path / "queries.jsonl"
    declared = Properties.parse(["country:keyword", "priority:number", "seen:time", "open:boolean"])
    rule = TermRule(ranking=True, properties=declared, fields=("text", "priority", "open"))
    many, asked = (10_000, 200) if AT_LENGTH else (3_000, 60)
    generated = GenerateSettings(
        objects=many,
        properties=declared,
        queries=dict.fromkeys(TYPES, asked),
        region=(0.01, 1.0),
        circles=0.2,
        polygons=0.5,
        margins=0.3,
        where=0.6,
        fields=rule.fields or (),
        keywords=(0, 1),
        duration=5_000,
        window=2_000,
        step=1_000,
    )
    write_stream(objects, queries, generated)
    setup = RunSettings((objects,), (queries,), tmp_path / "out", 3, rule=rule, epoch_records=many // 4)
    summary = run(setup, spark)
    found = check_files([objects], [queries], tmp_path / "out" / "results", WGS84, rule=rule)
    assert list(found.lines())[2:] == ["exact"]
    assert min(found.rows[kind.type] for kind in KINDS) >= asked
    assert summary.rejected == 0
