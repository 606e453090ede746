"""Runs on real Spark, against the oracle."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spatialstream.cli import main
from spatialstream.generate import GenerateSettings, write_stream
from spatialstream.model.errors import RecordError, StateError
from spatialstream.model.kinds import QueryType
from spatialstream.model.queries import Query
from spatialstream.model.space import WGS84
from spatialstream.oracle import check_files
from spatialstream.spark.run import RunSettings, run
from tests import streams
from tests.lengths import AT_LENGTH, examples


def text_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))


@settings(
    max_examples=examples(12, 60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    stream=streams.streams(max_objects=40, max_queries=14),
    slots=st.sampled_from([1, 2, 3]),
    leaves=st.sampled_from([1, 16]),
    epoch=st.sampled_from([10, 25, 1_000]),
)
@pytest.mark.timeout(600)
def test_small_streams_are_the_oracles(
    spark: SparkSession, stream: streams.Stream, slots: int, leaves: int, epoch: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        objects, queries = streams.write_stream(folder, stream)
        setup = RunSettings(
            *((objects,), (queries,), folder / "out", slots, leaves),
            space=stream.space,
            epoch_records=epoch,
            rule=stream.rule,
        )
        summary = run(setup, spark)
        found = check_files([objects], [queries], folder / "out" / "results", stream.space, rule=stream.rule)
        assert list(found.lines())[2:] == ["exact"]
        assert summary.complete
        assert sum(summary.results.values()) == sum(found.rows.values())
        assert summary.rejected == found.rejected


@pytest.mark.timeout(600)
def test_thousands_of_objects_and_queries_of_each_type(spark: SparkSession, tmp_path: Path) -> None:
    objects, queries = tmp_path / "objects.jsonl.gz", tmp_path / "queries.jsonl"
    many, asked = (10_000, 1_000) if AT_LENGTH else (4_000, 300)
    generated = GenerateSettings(
        objects=many,
        queries=dict.fromkeys(QueryType, asked),
        region=(0.001, 1.0),
        circles=0.3,
        duration=5_000,
        window=2_000,
        step=1_000,
        diurnal=True,
    )
    write_stream(objects, queries, generated)
    summary = run(RunSettings((objects,), (queries,), tmp_path / "out", 3, epoch_records=many * 3 // 10), spark)
    found = check_files([objects], [queries], tmp_path / "out" / "results", WGS84)
    assert list(found.lines())[2:] == ["exact"]
    assert min(found.rows[kind] for kind in QueryType) >= asked
    assert summary.results == {kind: rows for kind, rows in found.rows.items() if rows}


def test_dirty_input_is_told_and_the_rest_is_answered(spark: SparkSession, tmp_path: Path) -> None:
    stream = streams.random_stream(3, 300, 10)
    objects, queries = streams.write_stream(tmp_path, stream)
    lines = objects.read_text().splitlines()
    for place in range(0, 300, 30):
        lines.insert(place, '{"id": "torn", "t": 1517966773840, "lon": 500, "lat": 0, "text": ""}' if place else "{")
    objects.write_text("\n".join(lines))
    summary = run(RunSettings((objects,), (queries,), tmp_path / "out", 2, epoch_records=100), spark)
    found = check_files([objects], [queries], tmp_path / "out" / "results", WGS84)
    assert list(found.lines())[2:] == ["exact"]
    assert found.rejected == summary.rejected >= 10
    with pytest.raises(RecordError, match="line 1"):
        run(RunSettings((objects,), (queries,), tmp_path / "strict", 2, strict=True), spark)


def test_retention_bounds_what_snapshots_see(spark: SparkSession, tmp_path: Path) -> None:
    stream = streams.random_stream(5, 1_000, 40)
    objects, queries = streams.write_stream(tmp_path, stream)
    setup = RunSettings(
        (objects,), (queries,), tmp_path / "out", 2, epoch_records=150, interval=60_000, retention=600_000
    )
    run(setup, spark)
    results = tmp_path / "out" / "results"
    found = check_files([objects], [queries], results, WGS84, retention=600_000)
    assert list(found.lines())[2:] == ["exact"]
    assert not check_files([objects], [queries], results, WGS84).exact


def test_a_finished_run_is_kept_and_another_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = streams.random_stream(9, 100, 5)
    objects, queries = streams.write_stream(tmp_path, stream)
    setup = RunSettings((objects,), (queries,), tmp_path / "out", 2)
    first, text = run(setup, spark), text_of(tmp_path / "out" / "results")
    again = run(setup, spark)
    assert (again.results, again.rejected) == (first.results, first.rejected)
    assert text_of(tmp_path / "out" / "results") == text
    with pytest.raises(StateError, match="other leaves"):
        run(RunSettings((objects,), (queries,), tmp_path / "out", 2, leaves=7), spark)
    replaced = run(RunSettings((objects,), (queries,), tmp_path / "out", 2, leaves=7, overwrite=True), spark)
    assert replaced.results == first.results
    assert text_of(tmp_path / "out" / "results") == text


def test_without_input_there_is_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "objects.jsonl").touch()
    (tmp_path / "queries.jsonl").touch()
    setup = RunSettings((tmp_path / "objects.jsonl",), (tmp_path / "queries.jsonl",), tmp_path / "out")
    summary = run(setup, spark)
    assert (summary.objects, summary.queries, summary.results, summary.epochs) == (0, 0, {}, 0)
    assert (tmp_path / "out" / "results").is_dir()


def test_a_run_of_which_everything_is_rejected_says_why_and_ends_with_a_status_of_its_own(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [{"id": f"o{i}", "t": 1_795_880_000_000 + i, "lon": 1.0, "lat": 2.0, "text": "fire"} for i in range(30)]
    crq = {"id": "q", "type": "CRQ", "t": 1_795_880_000_000, "region": {"box": [0, 0, 9, 9]}, "duration": "1h"}
    twice = [crq | {"duration": "2h"}, crq | {"id": "x", "typ": "CRQ"}, {"id": "gone", "type": "CANCEL", "t": crq["t"]}]

    def done(name: str, things: list[dict[str, Any]], asked: list[dict[str, Any]]) -> tuple[int, str]:
        files = [
            str(streams.write_lines(tmp_path / f"{name}-{kind}.jsonl", lines))
            for kind, lines in (("objects", things), ("queries", asked))
        ]
        command = ["run", "--objects", files[0], "--queries", files[1], "--output", str(tmp_path / name)]
        return main(command), capsys.readouterr().err

    status, told = done("nothing", [each | {"lat": 99} for each in objects], [crq])
    assert status == 4
    assert "every object was rejected\n  30 such as: lat: 99 is out of range" in told
    status, told = done("unasked", objects, twice[1:])
    assert status == 4
    assert "every query was rejected\n  1 such as: " in told
    assert "id: no continuous query 'gone' is active" in told
    status, told = done("some", objects, [crq, *twice])
    assert status == 0
    assert "3 of 4 queries\n          1 such as: " in told
    status, told = done("few", [{"id": 5}, *objects], [crq])
    assert status == 0
    assert "rejected  1  in" in told
    assert "such as" not in told


def csv_lines(names: list[str], records: list[dict[str, Any]]) -> Iterator[str]:
    """Records as CSV, in which an empty string is quoted and a missing value is not."""
    yield ",".join(names)
    for each in records:
        cells = (each.get(name) for name in names)
        yield ",".join('""' if cell == "" else "" if cell is None else str(cell) for cell in cells)


def test_conditions_on_properties_are_the_oracles_through_files_of_all_kinds(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = streams.random_stream(11, 600, 30, where=0.6)
    kept = [streams.keeping(each, "!") for each in stream.objects]  # a text that CSV has too
    stream = streams.Stream(stream.space, kept, stream.queries)
    objects, queries = streams.write_stream(tmp_path, stream)
    lines = objects.read_text().splitlines()
    torn = {"id": "torn", "t": 1517966773840, "lon": 0, "lat": 0, "text": "", "priority": "high"}
    objects.write_text("\n".join([*lines[:300], json.dumps(torn), *lines[300:]]))
    declared = [option for each in streams.PROPERTIES.declarations for option in ("--property", each)]
    declared += ["--fields", ",".join(streams.FIELDS)]
    files = ["--objects", str(objects), "--queries", str(queries), "--output", str(tmp_path / "out"), *declared]
    assert main(["run", *files, "--slots", "2", "--epoch", "150", "--time-unit", "ms"]) == 0
    assert "1 such as: priority: 'high' is a string" not in capsys.readouterr().err  # one of 600 is not much
    letters = [json.loads(each) for each in text_of(tmp_path / "out" / "rejected").splitlines()]
    (letter,) = [each for each in letters if each["source"] == str(objects)]
    assert letter["reason"] == "priority: 'high' is a string, and priority is declared as number; give a number"
    assert main(["check", *files, "--time-unit", "ms"]) == 0
    assert capsys.readouterr().out.endswith("exact\n")

    table = tmp_path / "objects.parquet"
    records = [json.loads(each) for each in lines]
    names = list(dict.fromkeys(name for each in records for name in each))
    pq.write_table(pa.table({name: [each.get(name) for each in records] for name in names}), table)
    found = []
    for each in (table, tmp_path / "objects.csv"):
        if each.suffix == ".csv":
            each.write_text("\n".join(csv_lines(names, records)))
        setup = RunSettings((each,), (queries,), tmp_path / each.suffix, 3, rule=stream.rule)
        assert run(setup, spark).rejected == len(letters) - 1
        found.append(text_of(tmp_path / each.suffix / "results"))
    assert found == [text_of(tmp_path / "out" / "results")] * 2


def test_a_run_that_declares_no_properties_refuses_conditions_and_another_declaration_is_another_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = streams.random_stream(12, 60, 5, where=0.5)
    objects, queries = streams.write_stream(tmp_path, stream)
    asked = sum(isinstance(each, Query) and each.predicate.where is not None for each in stream.queries)
    summary = run(RunSettings((objects,), (queries,), tmp_path / "none", 2), spark)
    assert summary.rejected >= asked > 0
    reasons = [json.loads(each)["reason"] for each in text_of(tmp_path / "none" / "rejected").splitlines()]
    assert sum(each.startswith("where: the stream declares no properties") for each in reasons) == asked
    run(RunSettings((objects,), (queries,), tmp_path / "out", 2, rule=stream.rule), spark)
    with pytest.raises(StateError, match="other properties"):
        run(RunSettings((objects,), (queries,), tmp_path / "out", 2), spark)
