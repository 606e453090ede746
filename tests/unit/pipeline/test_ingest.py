"""Messages to runs: what is in them, where it stood, and what was wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spatialstream.model.space import Space
from spatialstream.pipeline.ingest import CLOCK, Ingest, Intake, mark
from spatialstream.pipeline.order import read_records
from spatialstream.pipeline.plan import unpack_place

PLANE = Space.planar(0.0, 0.0, 10.0, 10.0)


def line(name: str, t: int, **more: object) -> bytes:
    return json.dumps({"id": name, "t": t, "x": 1.0, "y": 2.0, "text": "a b", **more}).encode()


def batch(*messages: tuple[str, int, int, bytes | None, bytes | None]) -> pa.RecordBatch:
    topic, partition, offset, key, value = zip(*messages, strict=True)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(topic),
            "partition": pa.array(partition, pa.int32()),
            "offset": pa.array(offset, pa.int64()),
            "key": pa.array(key, pa.binary()),
            "value": pa.array(value, pa.binary()),
        }
    )


@pytest.fixture
def stage(tmp_path: Path) -> Ingest:
    return Ingest(3, tmp_path, {"s.objects": "objects", "s.queries": "queries"}, PLANE)


def letters(stage: Ingest, intake: Intake) -> list[dict[str, object]]:
    return [json.loads(text) for text in (stage.folder / intake.rejected).read_text().splitlines()]


def test_many_records_a_message_and_one(stage: Ingest) -> None:
    many = b"\n".join([line("b", 7), line("a", 5)])
    (intake,) = stage.intakes([batch(("s.objects", 1, 40, None, many), ("s.objects", 1, 41, None, line("c", 6)))])
    assert (intake.partition, intake.clock, intake.records, intake.last) == ("objects/1", 7, 3, 41)
    assert intake.run is not None
    rows = read_records(stage.folder / intake.run.name, pa.array([0, 1, 2]).to_numpy())
    assert rows.column("id").to_pylist() == ["a", "c", "b"]
    assert Intake.from_json(intake.to_json()) == intake


def test_every_partition_has_runs_of_its_own(stage: Ingest) -> None:
    messages = [("s.objects", p, 0, None, line(f"o{p}", p)) for p in range(3)]
    assert [intake.partition for intake in stage.intakes([batch(*messages)])] == ["objects/0", "objects/1", "objects/2"]


def test_a_late_task_of_a_try_that_failed_changes_nothing_of_the_next(stage: Ingest) -> None:
    """It read fewer messages, and ends when the next try has been done long ago."""
    both = batch(("s.objects", 0, 0, None, line("a", 1)), ("s.objects", 0, 1, None, b"nonsense\n" + line("b", 2)))
    (intake,) = replace(stage, attempt="second").intakes([both])
    (late,) = replace(stage, attempt="first").intakes([both.slice(0, 1)])
    assert intake.run is not None
    assert late.run is not None
    rows = read_records(stage.folder / intake.run.name, pa.array([0, 1]).to_numpy())
    assert rows.column("id").to_pylist() == ["a", "b"]
    assert len(letters(stage, intake)) == 1
    assert late.run.name != intake.run.name


def test_marks_move_the_clock(stage: Ingest) -> None:
    (intake,) = stage.intakes([batch(("s.queries", 0, 5, CLOCK, mark(77)))])
    assert (intake.partition, intake.clock, intake.run, intake.records) == ("queries/0", 77, None, 0)
    for nonsense in (b"", b"{}", b"[]", b'{"clock": "x"}', b'{"clock": true}', b"\xff"):
        (intake,) = stage.intakes([batch(("s.queries", 0, 5, CLOCK, nonsense))])
        assert intake.clock is None


def test_a_dead_letter_says_where_it_stood(stage: Ingest) -> None:
    many = b"\n".join([line("a", 5), b"nonsense", b"", line("b", 6, x=99)])
    (intake,) = stage.intakes([batch(("s.objects", 0, 8, None, line("z", 1)), ("s.objects", 0, 9, None, many))])
    assert [(letter["source"], letter["offset"], letter["line"]) for letter in letters(stage, intake)] == [
        ("objects/0", 9, 2),
        ("objects/0", 9, 4),
    ]
    assert (intake.records, intake.refused) == (2, 2)


def test_the_place_of_a_query_is_kept_with_it(stage: Ingest) -> None:
    query = json.dumps({"id": "q", "type": "SRQ", "t": 1, "region": {"box": [0, 0, 1, 1]}, "duration": 1}).encode()
    (intake,) = stage.intakes([batch(("s.queries", 0, 12, None, b"\n\n" + query))])
    assert intake.run is not None
    (place,) = read_records(stage.folder / intake.run.name, pa.array([0]).to_numpy()).column("line").to_pylist()
    assert unpack_place(place) == (12, 3)


def test_a_record_that_is_too_long_is_rejected_alone(stage: Ingest) -> None:
    many = b"\n".join([line("a", 5), line("huge", 5, text="word " * 300_000), line("b", 6)])
    (intake,) = stage.intakes([batch(("s.objects", 0, 8, None, many))])
    (letter,) = letters(stage, intake)
    assert (intake.records, letter["offset"], letter["line"]) == (2, 8, 2)
    assert "too many" in str(letter["reason"])
    assert len(json.dumps(letter)) < 10_000


def test_empty_messages_do_no_harm(stage: Ingest) -> None:
    (intake,) = stage.intakes([batch(("s.objects", 0, 1, None, None), ("s.objects", 0, 2, None, b""))])
    assert (intake.records, intake.refused, intake.run) == (0, 0, None)
    assert list(stage.intakes([batch(("s.objects", 0, 1, None, b"x")).slice(0, 0)])) == []


def test_what_is_too_old_or_from_the_future_is_rejected(stage: Ingest) -> None:
    limited = replace(stage, floor=10, ceiling=20)
    many = b"\n".join(line(f"o{t}", t) for t in (9, 10, 11, 20, 21))
    query = {"id": "q", "type": "SRQ", "region": {"box": [0, 0, 1, 1]}, "duration": 1}
    asked = b"\n".join(json.dumps({**query, "t": t}).encode() for t in (5, 21))
    objects, queries = limited.intakes([batch(("s.objects", 0, 8, None, many), ("s.queries", 0, 3, None, asked))])
    assert [(letter["line"], str(letter["reason"])[:12]) for letter in letters(stage, objects)] == [
        (1, "t: 9 is too "),
        (2, "t: 10 is too"),
        (5, "t: 21 is in "),
    ]
    assert (objects.records, objects.clock) == (2, 20)
    assert (queries.records, queries.refused, queries.clock) == (1, 1, 5)
    assert letters(stage, objects)[0]["record"] == {"id": "o9", "t": 9, "x": 1.0, "y": 2.0, "terms": ["a", "b"]}
