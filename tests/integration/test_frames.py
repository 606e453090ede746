"""The Python API: DataFrames in, a DataFrame out, once and as a stream."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, timestamp_millis, udf

import spatialstream
from spatialstream import (
    CRQ,
    SKQ,
    WGS84,
    AllRejected,
    AnswerStream,
    Box,
    Cancel,
    Properties,
    RunError,
    SettingError,
    Space,
    StateError,
    TermRule,
)
from spatialstream.oracle import answers, check
from spatialstream.records.decode import decode_objects
from spatialstream.spark.frame_records import object_lines
from tests.streams import Stream, object_record, query_record, random_stream, write_lines

answer = partial(spatialstream.answer, time_unit="ms")
OBJECTS = pd.DataFrame(
    {
        "id": ["a", "b", "c"],
        "t": [1_000, 2_000, 3_000],
        "lon": [13.4, 13.5, 2.35],
        "lat": [52.5, 52.6, 48.85],
        "text": ["Flood in the street", "dry", "flood again"],
    }
)
QUERIES = [
    {
        "id": "berlin",
        "type": "CRQ",
        "t": 0,
        "region": {"box": [13, 52, 14, 53]},
        "keywords": ["flood"],
        "duration": "1h",
    },
    {"id": "near", "type": "SKQ", "t": 5_000, "at": [13.4, 52.5], "k": 2, "duration": "1h"},
    {"id": "top", "type": "STQ", "t": 5_000, "region": {"box": [-180, -90, 180, 90]}, "k": 1, "duration": "1h"},
]


def test_answers_from_pandas(spark: SparkSession) -> None:
    answered = answer(OBJECTS, QUERIES, spark=spark, slots=2)
    rows = {row.query: row for row in answered.dataframe.collect()}
    assert rows["berlin"].object.asDict() == {"id": "a", "t": 1_000, "lon": 13.4, "lat": 52.5}
    assert [each.id for each in rows["near"].objects] == ["a", "b"]
    assert rows["near"].objects[0].distance_m == 0.0
    assert [(each.term, each["count"]) for each in rows["top"].terms] == [("flood", 2)]
    assert not answered.rejected_dataframe.collect()


def test_a_result_has_its_rows_as_dictionaries_and_as_frames_of_both_kinds(spark: SparkSession) -> None:
    bad = QUERIES[1] | {"id": "bad", "k": 0}
    with pytest.warns(spatialstream.RejectedWarning):
        answered = answer(OBJECTS, [*QUERIES, bad], spark=spark, slots=2)
    expected = spatialstream.brute_force(OBJECTS.to_dict("records"), QUERIES)
    assert not list(check(answered.rows, expected, 5))
    assert answered.rows is answered.rows
    (letter,) = answered.rejected
    assert letter["line"] == 4
    assert letter["reason"] == "k: 0 is out of range; give 1 to 2147483647"
    frame = answered.to_pandas()
    assert list(frame["query"]) == [row["query"] for row in answered.rows]
    assert list(frame.columns) == answered.dataframe.columns


def test_rows_of_all_snapshot_types_are_those_of_files(spark: SparkSession) -> None:
    asked = {"t": 600_000, "duration": "1h"}
    queries = [
        asked | {"id": "a", "type": "SRQ", "region": {"box": [-180, -90, 180, 90]}},
        asked | {"id": "b", "type": "SKQ", "at": [13.4, 52.5], "k": 2},
        asked | {"id": "c", "type": "STQ", "region": {"box": [-180, -90, 180, 90]}, "k": 2},
        asked
        | {"id": "d", "type": "SBQ", "at": [13.4, 52.5], "k": 2, "words": ["flood"], "radius": 1e6, "halfLife": 9},
    ]
    rule = TermRule(ranking=True)
    answered = answer(OBJECTS, queries, spark=spark, slots=2, rule=rule, time_unit="ms")
    expected = spatialstream.brute_force(OBJECTS.to_dict("records"), queries, rule=rule)
    assert [row["query"] for row in expected] == ["a", "b", "c", "d"]
    assert answered.rows == expected


def test_rows_of_a_stream_that_counts_occurrences_are_those_of_files(spark: SparkSession) -> None:
    said = OBJECTS.assign(text=["flood flood flood in Berlin", "flood warning, warning, warning", "fire"])
    asked = {"t": 600_000, "at": [13.4, 52.5], "k": 3, "radius": 5e6}
    queries = [
        asked | {"id": "a", "type": "SBQ", "words": ["flood", "warning"], "halfLife": "1h"},
        asked | {"id": "b", "type": "SBQ", "words": ["flood", "warning", "warning"], "between": [-(2**40), 600_000]},
        asked | {"id": "c", "type": "CBQ", "words": ["flood", "fire fire"], "halfLife": "1h", "t": 0, "duration": "1h"},
    ]
    rows = {}
    for rule in (TermRule(ranking=True), TermRule(ranking=True, counts=True)):
        rows[rule.counts] = answer(said, queries, spark=spark, slots=2, rule=rule, time_unit="ms").rows
        assert rows[rule.counts] == spatialstream.brute_force(said.to_dict("records"), queries, rule=rule)
    scores = {counts: [each["score"] for row in of for each in row["objects"]] for counts, of in rows.items()}
    assert scores[True] != scores[False]


def test_rows_of_a_continuous_ranked_query_are_those_of_files(spark: SparkSession) -> None:
    asked = {"id": "a", "type": "CBQ", "t": 0, "at": [13.4, 52.5], "k": 2, "words": ["flood", "fire"], "radius": 2e7}
    queries, rule = [asked | {"halfLife": "1h", "duration": "1h"}], TermRule(ranking=True)
    answered = answer(OBJECTS, queries, spark=spark, slots=2, rule=rule, time_unit="ms")
    assert answered.rows == spatialstream.brute_force(OBJECTS.to_dict("records"), queries, rule=rule)
    assert [each["score"] > 0.0 for row in answered.rows for each in row["objects"]]


SAID = OBJECTS.assign(
    country=["de", None, "fr"],
    priority=[3, None, 1.5],
    seen=pd.to_datetime(["2026-01-01", None, "2026-01-02"]),
    open=[True, False, True],
)
WHERE = {"id": "q", "type": "SRQ", "t": 9_000, "region": {"box": [-180, -90, 180, 90]}, "duration": "1h"}


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("country = 'de'", [0]),
        ("country IS NULL", [1]),
        ("priority < 2 OR open = false", [1, 2]),
        ("seen > TIMESTAMP('2026-01-01T00:00:00Z')", [2]),
    ],
)
@pytest.mark.parametrize("frames", ["pandas", "spark"])
def test_columns_are_properties_where_queries_ask_of_them(
    spark: SparkSession, where: str, rows: list[int], frames: str
) -> None:
    objects = SAID if frames == "pandas" else spark.createDataFrame(SAID.astype(object).where(SAID.notna(), None))
    (row,) = answer(objects, [WHERE | {"where": where}], spark=spark, slots=2).rows
    assert [each["id"] for each in row["objects"]] == [SAID["id"][row] for row in rows]


@pytest.mark.parametrize("frames", ["pandas", "spark"])
def test_rows_show_the_fields_that_are_asked_for(spark: SparkSession, frames: str) -> None:
    objects = SAID if frames == "pandas" else spark.createDataFrame(SAID.astype(object).where(SAID.notna(), None))
    queries = [WHERE, WHERE | {"id": "some", "fields": ["open"]}, WHERE | {"id": "odd", "fields": ["country"]}]
    with pytest.warns(spatialstream.RejectedWarning, match="'country' is not kept"):
        found = answer(objects, queries, spark=spark, slots=2, fields=["text", "priority", "seen", "open"])
    every, some = found.rows
    seen = [1_767_225_600_000, None, 1_767_312_000_000]
    expected = [
        {"text": text, "priority": priority, "seen": at, "open": there}
        for text, priority, at, there in zip(SAID["text"], [3.0, None, 1.5], seen, SAID["open"], strict=True)
    ]
    own = ("id", "t", "lon", "lat")
    shown = [{name: value for name, value in each.items() if name not in own} for each in every["objects"]]
    assert shown == [{name: value for name, value in each.items() if value is not None} for each in expected]
    assert [each.keys() - own for each in some["objects"]] == [{"open"}] * 3
    assert "it keeps text, priority, seen, open; a stream with --fields " in found.rejected[0]["reason"]


def test_a_frame_without_the_column_of_a_declared_property_is_refused(spark: SparkSession) -> None:
    rule = TermRule(properties=Properties.parse(["contry:keyword"]))
    for objects in (SAID, spark.createDataFrame(SAID[["id", "t", "lon", "lat", "text"]])):
        with pytest.raises(SettingError, match="has no column 'contry'; it has "):
            answer(objects, QUERIES, spark=spark, slots=2, rule=rule)


def test_queries_may_be_dataclasses(spark: SparkSession) -> None:
    berlin, near = Box(13, 52, 14, 53), [13.4, 52.5]
    asked = [
        CRQ(id="berlin", t=0, region=berlin, keywords=["flood"], duration=timedelta(hours=1)),
        SKQ(id="near", t=datetime(1970, 1, 1, 0, 0, 5), at=near, k=2, duration="1h"),
        Cancel(id="berlin", t=500),
    ]
    answered = answer(OBJECTS, asked, spark=spark, slots=2)
    assert [(row["query"], [each["id"] for each in row["objects"]]) for row in answered.rows] == [("near", ["a", "b"])]
    alone = answer(OBJECTS, asked[0], spark=spark, slots=2)
    assert [row["object"]["id"] for row in alone.rows] == ["a"]


@pytest.mark.parametrize("kind", ["long", "double", "string", "decimal(12,0)"])
def test_numbers_of_a_unit_are_ms_in_lines(spark: SparkSession, kind: str) -> None:
    schema = "id string, t string, lon double, lat double, text string"
    frame = spark.createDataFrame([("a", "1517966773", 1.0, 2.0, "x")], schema)
    moment = frame.withColumn("t", frame.t.cast("long").cast("timestamp"))
    for unit, t in (("s", 1_517_966_773_000), ("us", 1_517_966)):
        (row,) = object_lines(frame.withColumn("t", frame.t.cast(kind)), WGS84, unit=unit).collect()
        assert int(json.loads(bytes(row.value))["t"]) == t
        (row,) = object_lines(moment, WGS84, unit=unit).collect()
        assert json.loads(bytes(row.value))["t"] == 1_517_966_773_000


def test_times_in_seconds_are_answered_when_that_is_said(spark: SparkSession) -> None:
    seconds = 1_517_966_773
    objects = OBJECTS.assign(t=[seconds, seconds + 1, seconds + 2])
    asked = {"id": "q", "type": "SRQ", "t": seconds + 1, "region": {"box": [0, 0, 90, 90]}, "duration": "1h"}
    (found,) = spatialstream.answer(objects, asked, spark=spark, slots=1, time_unit="s").dataframe.collect()
    assert found.t == (seconds + 1) * 1000
    assert [each.t for each in found.objects] == [seconds * 1000, (seconds + 1) * 1000]
    with pytest.raises(SettingError, match="they look like seconds: give --time-unit s"):
        spatialstream.answer(objects, asked, spark=spark, slots=1)


def test_what_is_meant_is_answered_and_what_is_rejected_is_told(spark: SparkSession) -> None:
    objects = OBJECTS.assign(id=[1, 2, 3], t=[1_000.0, 2_000.0, np.nan])
    asked = pd.DataFrame([*QUERIES, QUERIES[0] | {"id": 7, "t": 0.5}])  # k is a float: two queries have none
    with pytest.warns(
        spatialstream.RejectedWarning, match="2 of 7 records were rejected; 1 of them such as: t: "
    ) as told:
        rows = answer(objects, asked, spark=spark, slots=2)
    assert told[0].filename == __file__
    found = {row.query: row for row in rows.dataframe.collect()}
    assert found["berlin"].object.id == "1"
    assert [each.id for each in found["near"].objects] == ["1", "2"]
    letters = sorted((row.source, row.line, row.reason[:13]) for row in rows.rejected_dataframe.collect())
    assert letters == [("objects", 3, "t: is require"), ("queries", 4, "t: 0.5 is not")]
    counts = {"id": [5, 6], "t": [5e3, 5e3], "k": [2.0, 0.5], "duration": [3.6e6, 3.6e6], "at": [[13.4, 52.5]] * 2}
    frames = spark.createDataFrame(objects), spark.createDataFrame(pd.DataFrame(counts).assign(type="SKQ"))
    with pytest.warns(spatialstream.RejectedWarning):
        again = answer(*frames, slots=2)
    assert [(row.query, [each.id for each in row.objects]) for row in again.dataframe.collect()] == [("5", ["1", "2"])]
    assert sorted(row.reason[:13] for row in again.rejected_dataframe.collect()) == ["k: 0.5 is not", "t: is require"]


def test_of_much_that_is_rejected_three_reasons_are_told_and_of_everything_an_error(spark: SparkSession) -> None:
    bad = [{"id": f"q{i}", "type": "CRX", "t": 5_000} for i in range(3)]
    with pytest.raises(AllRejected, match=r"every query was rejected; .*/rejected\n3 of them such as: type: 'CRX'"):
        answer(OBJECTS, bad, spark=spark, slots=1)
    objects = OBJECTS.assign(lat=[99.0, *OBJECTS.lat[1:]])
    with pytest.warns(spatialstream.RejectedWarning, match=r"3 of them such as: type: .*; 1 of them such as: lat: 99"):
        answer(objects, [*QUERIES, *bad], spark=spark, slots=1)


def test_a_column_that_is_no_field_of_a_query_is_refused(spark: SparkSession) -> None:
    asked = pd.DataFrame([{"id": "a", "type": "SKQ", "t": 1, "Keyword": ["fire"], "duration": "1h"}])
    for queries in (asked, spark.createDataFrame(asked)):
        with pytest.raises(SettingError, match="column 'Keyword' is not a query field; did you mean k"):
            spatialstream.answer(OBJECTS, queries, spark=spark, slots=2)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("bigint", [2**60 + 1], [str(2**60 + 1)]),
        ("double", [7.0, 2.0**53 - 1, 2.0**53, 0.5, float("nan")], ["7", "9007199254740991"]),
        ("float", [2.0**24 - 1, 2.0**24, 3e9, 0.5], ["16777215"]),
        ("decimal(20, 0)", [Decimal(10**19 + 1)], ["10000000000000000001"]),
        ("decimal(20, 2)", [Decimal("7.00"), Decimal("7.50")], ["7"]),
    ],
)
def test_ids_of_spark_lose_no_digits(spark: SparkSession, kind: str, given: list[Any], expected: list[str]) -> None:
    schema = f"id {kind}, t bigint, lon double, lat double, text string"
    lines = object_lines(spark.createDataFrame([(each, 1, 0.0, 0.0, "x") for each in given], schema), WGS84)
    found = decode_objects(b"\n".join(bytes(row.value) for row in lines.collect()))
    assert found.batch.ids.to_pylist() == expected
    assert all(reason.startswith("id: ") for reason in found.rejected.column("reason").to_pylist())


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kolkata"])
def test_times_without_a_zone_are_utc_wherever_it_runs(
    spark: SparkSession, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        second = pd.Timestamp("2018-02-07T01:26:13")
        objects = OBJECTS.assign(t=[second, second.tz_localize("UTC"), second.to_pydatetime()])
        asked = [
            {"id": "a", "type": "SRQ", "t": second, "duration": pd.Timedelta("1s"), "region": {"box": [0, 0, 90, 90]}},
            {
                "id": "b",
                "type": "SRQ",
                "t": "2018-02-07T01:26:13",
                "duration": 1_000,
                "region": {"box": [0, 0, 90, 90]},
            },
        ]
        from_records = answer(objects, asked, spark=spark, slots=1)
        schema = "id string, t timestamp_ntz, lon double, lat double, text string"
        plain = [(str(i), second.to_pydatetime(), 1.0, 1.0, "x") for i in range(3)]
        from_frames = answer(spark.createDataFrame(plain, schema), pd.DataFrame(asked), slots=1)
        for rows in (from_records, from_frames):
            found = [(row.query, row.t, len(row.objects)) for row in rows.dataframe.collect()]
            assert found == [("a", 1_517_966_773_000, 3), ("b", 1_517_966_773_000, 3)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        monkeypatch.undo()
        time.tzset()


def test_threads_of_one_session_are_answered_at_once(spark: SparkSession) -> None:
    def ask(number: int) -> list[str]:
        asked = QUERIES[1] | {"id": f"q{number}"}
        return [row.query for row in answer(OBJECTS, asked, slots=2, retention="1h", space="wgs84").dataframe.collect()]

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(ask, range(3))) == [["q0"], ["q1"], ["q2"]]


def test_an_output_folder_is_gone_on_with_and_never_emptied_of_what_is_not_ours(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = answer(OBJECTS, QUERIES, slots=2, output=out).dataframe.collect()
    before = files_of(out)
    assert answer(OBJECTS.copy(), list(QUERIES), slots=2, output=out).dataframe.collect() == first
    with pytest.raises(StateError, match="belongs to a run with other queries; give another output"):
        answer(OBJECTS, QUERIES[1:], slots=2, output=out)
    thesis = out / "results" / "thesis.txt"
    thesis.write_text("years of work")
    with pytest.raises(SettingError, match=r"overwrite: .*thesis\.txt does not belong to the results of a run"):
        answer(OBJECTS, QUERIES[1:], slots=2, output=out, overwrite=True)
    assert thesis.exists()
    assert files_of(out) == before
    thesis.unlink()
    (out / "results" / next(iter(before))).unlink()
    with pytest.raises(StateError, match="results holds 0 of the 3 rows that this run has written; put them back"):
        answer(OBJECTS, QUERIES, slots=2, output=out)
    rows = answer(OBJECTS, QUERIES[1:], slots=2, output=out, overwrite=True).dataframe.collect()
    assert rows == [row for row in first if row.query != "berlin"]
    assert len(list((out / ".checkpoint" / "frames").iterdir())) == 2


def test_nothing_in_nothing_out(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], "id string, t long, lon double, lat double, text string")
    for empty in (OBJECTS[:0], nothing):
        rows = answer(empty, [QUERIES[1]], slots=1).dataframe.collect()
        assert [(row.query, row.objects) for row in rows] == [("near", [])]
    assert answer(OBJECTS, pd.DataFrame(), slots=1).rows == []


OWN_SESSION = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

import spatialstream

objects, queries, out = map(Path, sys.argv[1:])


def run(number):
    return spatialstream.run(spatialstream.RunSettings(objects, str(queries), out / str(number), slots=1)).results


with ThreadPoolExecutor(2) as threads:  # without a session: they share one, which ends with them
    assert list(threads.map(run, range(2))) == [{"SKQ": 1}] * 2
assert SparkSession.getActiveSession() is None

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
records = pd.read_json(objects, lines=True), pd.read_json(queries, lines=True)
print([row["query"] for row in spatialstream.answer(*records, slots=1, time_unit="ms").rows])
"""


def test_a_session_of_ones_own_needs_no_python_on_the_path(tmp_path: Path) -> None:
    things = write_lines(tmp_path / "objects.jsonl", OBJECTS.to_dict("records"))
    asked = write_lines(tmp_path / "queries.jsonl", [QUERIES[1]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    command = [sys.executable, "-c", OWN_SESSION, str(things), str(asked), str(tmp_path)]
    told = subprocess.run(command, env=environment | {"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert told.stdout == "['near']\n", told.stderr


def test_answers_from_spark_in_a_plane(spark: SparkSession) -> None:
    objects = spark.createDataFrame(OBJECTS.rename(columns={"lon": "x", "lat": "y"}))
    queries = spark.createDataFrame(
        pd.DataFrame([{"id": "q", "type": "SKQ", "t": 9, "at": [0.0, 0.0], "k": 1, "duration": 9}])
    )
    rows = answer(objects, queries, space=Space.planar(0, 0, 100, 100)).dataframe.collect()
    assert [(row.query, row.objects) for row in rows] == [("q", [])]


def test_an_unusable_setting_is_refused(spark: SparkSession) -> None:
    with pytest.raises(SettingError, match="slots"):
        answer(OBJECTS, QUERIES, spark=spark, slots=0)


# -------------------------------------------------------------------------------------------------------------- streams

FOREVER = 10**12
OBJECT_TYPE = "id string, t long, lon double, lat double, text string"
QUERY_TYPE = (
    "id string, type string, t long, region struct<box: array<double>, circle: array<double>, "
    "polygon: struct<type: string, coordinates: array<array<array<double>>>>>, at array<double>, "
    "keywords array<string>, any array<array<string>>, none array<string>, "
    "k long, duration long, window long, step long"
)


class Folder:
    """A folder into which a test drops files, and the streaming DataFrame of what is in them."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.kind, self.files = place, kind, 0
        (place / "in").mkdir(parents=True)

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(self.kind).json(str(self.place / "in"))

    def drop(self, records: Sequence[object]) -> None:
        self.files += 1
        write_lines(self.place / "whole", records).rename(self.place / "in" / f"{self.files}.json")


@pytest.fixture
def objects(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "objects", OBJECT_TYPE)


@pytest.fixture
def queries(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "queries", QUERY_TYPE)


def in_order(stream: Stream) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The records of a stream, by time."""
    return (
        [object_record(each, stream.space) for each in sorted(stream.objects, key=lambda o: o.t)],
        [query_record(each) for each in sorted(stream.queries, key=lambda query: query.t)],
    )


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "results").glob("*.jsonl"))}


def differences(stream: Stream, folder: Path) -> list[str]:
    expected, refused = answers(stream.objects, sorted(stream.queries, key=lambda query: query.t), stream.space)
    assert not refused
    rows = [json.loads(line) for text in files_of(folder).values() for line in text.splitlines()]
    return [str(each) for each in check(rows, expected, 5)]


def test_two_streams_are_answered_exactly_with_a_stop_in_between(
    spark: SparkSession, objects: Folder, queries: Folder, tmp_path: Path
) -> None:
    stream = random_stream(5, 300, 10)
    things, asked = in_order(stream)

    def begin() -> AnswerStream:
        frames = objects.read(spark), queries.read(spark)
        return spatialstream.answer_stream(
            *frames, checkpoint=tmp_path / "state", slots=3, leaves=8, idle=FOREVER, time_unit="ms"
        )

    with begin() as handle:
        for i in range(3):
            objects.drop(things[50 * i : 50 * (i + 1)])
            queries.drop(asked[15 * i : 15 * (i + 1)])
            handle.process_all_available()
        objects.drop(things[150:200])  # may or may not be begun
    assert handle.exception() is None
    assert not handle.query.isActive
    before = files_of(handle.output)
    assert len(before) >= 3
    with begin() as handle:
        queries.drop(asked[45:])
        handle.process_all_available()
        objects.drop(things[200:])
        handle.flush()
        found = files_of(handle.output)
        assert handle.results().dataframe.count() == sum(text.count(b"\n") for text in found.values())
    assert before.items() <= found.items()
    assert differences(stream, handle.output) == []


CHILD = """
import sys
import spatialstream
from spatialstream.spark.session import embedded_session

folder, kind, queries = sys.argv[1:]
spark = embedded_session("child", 2)
objects = spark.readStream.schema(kind).json(folder + "/objects/in")
asked = spark.read.json(queries)
handle = spatialstream.answer_stream(
    objects, asked, checkpoint=folder + "/state", slots=2, leaves=8, idle=10**12, time_unit="ms"
)
handle.query.awaitTermination()
"""


def test_a_killed_stream_goes_on(spark: SparkSession, objects: Folder, tmp_path: Path) -> None:
    stream = random_stream(7, 200, 6)
    things, asked = in_order(stream)
    path = write_lines(tmp_path / "queries.jsonl", asked)
    objects.drop(things[:80])
    command = [sys.executable, "-c", CHILD, str(tmp_path), OBJECT_TYPE, str(path)]
    child = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_for(tmp_path / "state" / "spark" / "commits" / "0", child)
        objects.drop(things[80:150])
        wait_for(tmp_path / "state" / "rounds" / "000000001.json", child)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    before = files_of(tmp_path / "state" / "output")
    asking = spark.read.json(str(path))
    with spatialstream.answer_stream(
        objects.read(spark), asking, checkpoint=tmp_path / "state", slots=2, leaves=8, idle=FOREVER, time_unit="ms"
    ) as handle:
        objects.drop(things[150:])
        handle.flush()
    assert before
    assert before.items() <= files_of(handle.output).items()
    assert differences(stream, handle.output) == []


def wait_for(path: Path, child: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 280
    while not path.exists():
        assert child.poll() is None, "the stream has ended by itself"
        assert time.monotonic() < limit, path
        time.sleep(0.005)


def test_a_silent_source_is_not_waited_for(spark: SparkSession, objects: Folder, tmp_path: Path) -> None:
    plane = Space.planar(0, 0, 100, 100)
    frame = objects.read(spark).select("id", timestamp_millis("t").alias("t"), col("lon").alias("x"), "text", "lat")
    frame = frame.selectExpr("id", "t", "x", "lat as y", "split(text, ' ') as terms", "text as other")
    asked = [{"id": "c", "type": "CRQ", "t": 0, "region": {"box": [0, 0, 9, 9]}, "keywords": ["b"], "duration": "1h"}]
    with spatialstream.answer_stream(
        frame,
        asked,
        checkpoint=tmp_path / "state",
        output=tmp_path / "out",
        space=plane,
        slots=2,
        idle=200,
        time_unit="ms",
    ) as handle:
        assert handle.output == tmp_path / "out"
        assert not handle.results().dataframe.collect()
        objects.drop([{"id": "a", "t": 5, "lon": 1.5, "lat": 2, "text": "a b"}])
        handle.process_all_available()
        assert handle.await_idle(60)
        (row,) = handle.results().dataframe.collect()
        assert row.object.asDict() == {"id": "a", "t": 5, "x": 1.5, "y": 2.0}
    assert not handle.await_idle(0)


def test_an_unusable_row_is_rejected_and_nothing_else(spark: SparkSession, objects: Folder, tmp_path: Path) -> None:
    history = pd.DataFrame({"id": ["h"], "t": [0], "lon": [1.0], "lat": [1.0], "text": ["a"]})
    asked = pd.DataFrame([{"id": "s", "type": "STQ", "t": 9, "region": {"box": [0, 0, 9, 9]}, "k": 1, "duration": 99}])
    with spatialstream.answer_stream(
        objects.read(spark), asked, checkpoint=tmp_path / "state", history=history, slots=2, time_unit="ms"
    ) as handle:
        things = [
            {"id": f"o{i}", "t": i, "lon": 1.0, "lat": lat, "text": "a"} for i, lat in enumerate([1.0, 91.0, 2.0])
        ]
        objects.drop(things)
        handle.flush()
        (row,) = handle.results().dataframe.collect()
        assert [(term.term, term["count"]) for term in row.terms] == [("a", 2)]
        (letter,) = [json.loads(path.read_text()) for path in (handle.output / "rejected").glob("*.jsonl")]
    assert letter["record"]["id"] == "o1"
    assert letter["source"].startswith("objects/")


def test_a_stream_that_fails_says_why_and_can_be_begun_again(
    spark: SparkSession, objects: Folder, tmp_path: Path
) -> None:
    def fail(lat: float) -> float:
        raise ValueError("no luck today")

    unlucky = udf(fail, "double", useArrow=False)
    frame, state = objects.read(spark), tmp_path / "state"
    objects.drop([{"id": "a", "t": 5, "lon": 1.0, "lat": 2.0, "text": "a"}])
    asked = [{"id": "s", "type": "SRQ", "t": 9, "region": {"box": [0, 0, 9, 9]}, "duration": 99}]
    more: Any = {"checkpoint": state, "slots": 2, "time_unit": "ms"}
    handle = spatialstream.answer_stream(frame.withColumn("lat", unlucky("lat")), asked, **more)
    with pytest.raises(RunError, match="ValueError: no luck today"):
        handle.flush()
    assert "no luck" in str(handle.exception())
    handle.stop()
    with spatialstream.answer_stream(frame, asked, **more) as handle:
        with pytest.raises(SettingError, match="is running on"):
            spatialstream.answer_stream(frame, asked, **more)
        handle.flush()
        assert [o.id for o in handle.results().dataframe.collect()[0].objects] == ["a"]
    with pytest.raises(StateError, match="other queries"):
        spatialstream.answer_stream(frame, [], **more)
    with pytest.raises(StateError, match="slots"):
        spatialstream.answer_stream(frame, asked, **{**more, "slots": 3})
    with pytest.raises(RunError, match="stopped"):
        handle.flush()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop("t"), "objects: has no column 't'; it has 'id', 'lon', 'lat', 'text'"),
        (lambda frame: frame.drop("text"), "objects: has neither a column 'text' nor 'terms'"),
        (lambda frame: frame.withColumn("lon", col("id")), "objects: column 'lon' is of type string"),
        (lambda frame: frame.withColumn("t", col("t") > 0), "objects: column 't' is of type boolean"),
        (lambda frame: frame.select("*", col("id").alias("ID")), "objects: has the column 'id' more than once"),
        (lambda frame: frame.withColumn("terms", col("text")), "objects: column 'terms' is of type string"),
        (lambda frame: frame.sparkSession.createDataFrame([], OBJECT_TYPE), "objects: is not a streaming DataFrame"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(
    spark: SparkSession, objects: Folder, tmp_path: Path, change: Any, message: str
) -> None:
    with pytest.raises(SettingError) as error:
        spatialstream.answer_stream(change(objects.read(spark)), [], checkpoint=tmp_path / "state")
    assert str(error.value).startswith(message)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("streaming", [True, False])
def test_streamed_times_that_look_like_seconds_are_refused_until_that_is_said(
    spark: SparkSession, objects: Folder, tmp_path: Path, streaming: bool
) -> None:
    seconds = 1_517_966_773
    asked = [{"id": "q", "type": "SRQ", "t": seconds, "region": {"box": [0, 0, 90, 90]}, "duration": "1h"}]
    objects.drop([{"id": "a", "t": seconds, "lon": 1.0, "lat": 2.0, "text": "a"}])
    frame, state, refused = objects.read(spark), tmp_path / "state", "in January 1970; they look like seconds"
    if not streaming:
        with pytest.raises(SettingError, match=f"queries: .*{refused}"):
            spatialstream.answer_stream(frame, asked, checkpoint=state, slots=2)
        assert not state.exists()
    else:
        handle = spatialstream.answer_stream(frame, [asked[0] | {"t": "2018-02-07"}], checkpoint=state, slots=2)
        with pytest.raises(SettingError, match=f"objects: .*{refused}"):
            handle.flush()
        handle.stop()
        asked[0]["t"] = "2018-02-07"
    with spatialstream.answer_stream(frame, asked, checkpoint=state, slots=2, time_unit="s") as handle:
        handle.flush()
        (row,) = handle.results().dataframe.collect()
    assert [each.t for each in row.objects] == ([seconds * 1_000] if not streaming else [])
    with pytest.raises(SettingError, match="'h' is not a time unit"):
        spatialstream.answer_stream(frame, asked, checkpoint=state, time_unit="h")


def test_other_settings_that_cannot_be_used_are_refused(spark: SparkSession, objects: Folder, tmp_path: Path) -> None:
    frame = objects.read(spark)
    with pytest.raises(SettingError, match="queries: has no column 'id'"):
        spatialstream.answer_stream(frame, frame.drop("id"), checkpoint=tmp_path)
    with pytest.raises(SettingError, match="history: is a streaming DataFrame"):
        spatialstream.answer_stream(frame, [], checkpoint=tmp_path, history=frame)
    with pytest.raises(SettingError, match="leaves"):
        spatialstream.answer_stream(frame, [], checkpoint=tmp_path, leaves=0)
    with pytest.raises(SettingError, match="idle"):
        spatialstream.answer_stream(frame, [], checkpoint=tmp_path, idle=-1)


@pytest.mark.parametrize(
    ("kind", "t", "expected"),
    [
        ("int", 7, 7),
        ("string", "2018-02-07T01:26:13.840Z", "2018-02-07T01:26:13.840Z"),
        ("timestamp_ntz", datetime(2018, 2, 7, 1, 26, 13, 840_999), 1_517_966_773_840),
        ("timestamp_ntz", datetime(1969, 12, 31, 23, 59, 59, 999_001), -1),
        ("date", date(1970, 1, 3), 2 * 86_400_000),
        ("timestamp", None, None),
    ],
)
def test_times_become_ms(spark: SparkSession, kind: str, t: Any, expected: Any) -> None:
    frame = spark.createDataFrame(
        [("a", t, Decimal("0.5"), 3, ["b"])], f"id string, t {kind}, lon decimal(9, 4), lat int, terms array<string>"
    )
    (row,) = object_lines(frame, WGS84).collect()
    wanted = {"id": "a", "t": expected, "lon": 0.5, "lat": 3.0, "terms": ["b"]}
    assert (row.kind, json.loads(row.value)) == ("objects", {k: v for k, v in wanted.items() if v is not None})
