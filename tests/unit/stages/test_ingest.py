"""Messages to runs: what is in them, where it stood, and what was wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.contracts import MESSAGE
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.input_files import InputFiles
from spatialstream.connectors.memory import MemorySource
from spatialstream.model.errors import StateError
from spatialstream.model.jsonable import from_json, to_json
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import TIME_LIMIT
from spatialstream.stages import ingest
from spatialstream.stages.ingest import CLOCK, Ingest, Intake, files_of, watermark
from spatialstream.stages.runs import INPUT, unpack_place
from spatialstream.stages.state import get_records

PLANE = Space.planar(0.0, 0.0, 10.0, 10.0)


def line(name: str, t: int, **more: object) -> bytes:
    return json.dumps({"id": name, "t": t, "x": 1.0, "y": 2.0, "text": "a b", **more}).encode()


_Sent = tuple[str, int, int, bytes | None, bytes | None]
"""A message: kind, partition, offset, key and value."""


def intakes(stage: Ingest, *messages: _Sent) -> list[Intake]:
    """What becomes of messages, one partition after the other."""
    found: list[Intake] = []
    for kind, number in dict.fromkeys(message[:2] for message in messages):
        _, _, *columns = zip(*(each for each in messages if each[:2] == (kind, number)), strict=True)
        batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns, MESSAGE.types)), schema=MESSAGE)
        found += stage.intakes(f"{kind}/{number}", [batch])
    return found


def records(stage: Ingest, intake: Intake) -> pa.RecordBatch:
    """What an intake's run holds."""
    assert intake.run is not None
    (found,) = get_records(stage.storage, INPUT + intake.run.name)
    return found


@pytest.fixture
def stage(tmp_path: Path) -> Ingest:
    return Ingest(3, Folder(tmp_path), PLANE)


def letters(stage: Ingest, intake: Intake) -> list[dict[str, object]]:
    return [json.loads(text) for text in stage.storage.get(INPUT + intake.rejected).to_pybytes().decode().splitlines()]


def test_many_records_a_message_and_one(stage: Ingest) -> None:
    many = b"\n".join([line("b", 7), line("a", 5)])
    (intake,) = intakes(stage, ("objects", 1, 40, None, many), ("objects", 1, 41, None, line("c", 6)))
    assert (intake.partition, intake.clock, intake.records, intake.last) == ("objects/1", 7, 3, 41)
    assert intake.run is not None
    rows = records(stage, intake)
    assert rows.column("id").to_pylist() == ["a", "c", "b"]
    assert from_json(Intake, to_json(intake)) == intake


def test_unknown_fields_are_counted(stage: Ingest) -> None:
    more = [line(name, 1).replace(b"{", b'{"size": 5, ', 1) for name in "abc"]
    given: list[_Sent] = [("objects", 0, i, None, value) for i, value in enumerate([*more, line("d", 1), b"nonsense"])]
    (intake,) = intakes(stage, *given)
    assert intake.unknown == {"size": 3}
    assert from_json(Intake, to_json(intake)) == intake


def test_every_partition_has_runs_of_its_own(stage: Ingest) -> None:
    messages = [("objects", p, 0, None, line(f"o{p}", p)) for p in range(3)]
    assert [intake.partition for intake in intakes(stage, *messages)] == ["objects/0", "objects/1", "objects/2"]


VALUES_OF_TRIES = line("a", 1), b"nonsense\n" + line("b", 2)


def test_a_late_task_of_a_try_that_failed_changes_nothing_of_the_next(stage: Ingest) -> None:
    """It read fewer messages, and ends when the next try has been done long ago."""
    both: list[_Sent] = [("objects", 0, i, None, value) for i, value in enumerate(VALUES_OF_TRIES)]
    (intake,) = intakes(replace(stage, attempt="second"), *both)
    (late,) = intakes(replace(stage, attempt="first"), both[0])
    assert intake.run is not None
    assert late.run is not None
    rows = records(stage, intake)
    assert rows.column("id").to_pylist() == ["a", "b"]
    assert len(letters(stage, intake)) == 1
    assert late.run.name != intake.run.name


def test_watermarks_move_the_clock(stage: Ingest) -> None:
    (intake,) = intakes(stage, ("queries", 0, 5, CLOCK, watermark(77)))
    assert (intake.partition, intake.clock, intake.run, intake.records) == ("queries/0", 77, None, 0)


def test_a_watermark_in_the_past_is_a_watermark(stage: Ingest) -> None:
    (intake,) = intakes(stage, ("queries", 0, 5, CLOCK, watermark(-5)), ("queries", 0, 6, CLOCK, watermark(-9)))
    assert (intake.clock, intake.refused) == (-5, 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "record: is not JSON"),
        (b"\xff", "record: is not UTF-8"),
        (b"[" * 900, "record: is not JSON"),
        (b"[" * 1000, "record: is "),
        (b"[" * 100_000, "clock: a watermark of 100000 bytes"),
        (b"{}", "clock: a watermark is"),
        (b"[]", "clock: a watermark is"),
        (b"7", "clock: a watermark is"),
        (b'{"clock": "x"}', "clock: a watermark is"),
        (b'{"clock": true}', "clock: a watermark is"),
        (b'{"clock": NaN}', "clock: a watermark is"),
        (b'{"clock": 1e999}', "clock: a watermark is"),
        (b'{"clock": %s}' % (b"9" * 30), "clock: 999999999999999999999999999999 is out of range"),
        (b'{"clock": -%s}' % (b"9" * 900), "clock: -999"),
        (
            b'{"clock": 8640000000000001}',
            f"clock: 8640000000000001 is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}",
        ),
        (b'{"clock": 101}', "clock: 101 is in the future; the latest that is taken now is 100"),
    ],
)
def test_a_watermark_that_is_none_becomes_a_dead_letter(stage: Ingest, value: bytes, reason: str) -> None:
    limited = replace(stage, ceiling=100)
    (intake,) = intakes(limited, ("queries", 0, 5, CLOCK, watermark(100)), ("queries", 0, 6, CLOCK, value))
    assert (intake.clock, intake.records, intake.refused, intake.last) == (100, 0, 1, 6)
    (letter,) = letters(stage, intake)
    assert (letter["source"], letter["offset"], letter["line"]) == ("queries/0", 6, 1)
    assert str(letter["reason"]).startswith(reason)
    assert len(json.dumps(letter)) < 10_000


def test_a_watermark_without_a_value_is_ignored_like_any_message(stage: Ingest) -> None:
    (intake,) = intakes(stage, ("queries", 0, 5, CLOCK, None))
    assert (intake.clock, intake.refused, intake.last) == (None, 0, 5)


def test_a_dead_letter_says_where_it_stood(stage: Ingest) -> None:
    many = b"\n".join([line("a", 5), b"nonsense", b"", line("b", 6, x=99)])
    (intake,) = intakes(stage, ("objects", 0, 8, None, line("z", 1)), ("objects", 0, 9, None, many))
    assert [(letter["source"], letter["offset"], letter["line"]) for letter in letters(stage, intake)] == [
        ("objects/0", 9, 2),
        ("objects/0", 9, 4),
    ]
    assert (intake.records, intake.refused) == (2, 2)


def test_the_place_of_a_query_is_kept_with_it(stage: Ingest) -> None:
    query = json.dumps({"id": "q", "type": "SRQ", "t": 1, "region": {"box": [0, 0, 1, 1]}, "duration": 1}).encode()
    (intake,) = intakes(stage, ("queries", 0, 12, None, b"\n\n" + query))
    assert intake.run is not None
    (place,) = records(stage, intake).column("line").to_pylist()
    assert unpack_place(place) == (12, 3)


def test_a_record_that_is_too_long_is_rejected_alone(stage: Ingest) -> None:
    many = b"\n".join([line("a", 5), line("huge", 5, text="word " * 300_000), line("b", 6)])
    (intake,) = intakes(stage, ("objects", 0, 8, None, many))
    (letter,) = letters(stage, intake)
    assert (intake.records, letter["offset"], letter["line"]) == (2, 8, 2)
    assert "too many" in str(letter["reason"])
    assert len(json.dumps(letter)) < 10_000


def test_empty_messages_do_no_harm(stage: Ingest) -> None:
    (intake,) = intakes(stage, ("objects", 0, 1, None, None), ("objects", 0, 2, None, b""))
    assert (intake.records, intake.refused, intake.run) == (0, 0, None)
    assert list(stage.intakes("objects/0", [pa.RecordBatch.from_pylist([], MESSAGE)])) == []


def test_what_is_too_old_or_from_the_future_is_rejected(stage: Ingest) -> None:
    limited = replace(stage, floor=10, ceiling=20)
    many = b"\n".join(line(f"o{t}", t) for t in (9, 10, 11, 20, 21))
    query = {"id": "q", "type": "SRQ", "region": {"box": [0, 0, 1, 1]}, "duration": 1}
    asked = b"\n".join(json.dumps({**query, "t": t}).encode() for t in (5, 21))
    objects, queries = intakes(limited, ("objects", 0, 8, None, many), ("queries", 0, 3, None, asked))
    assert [(letter["line"], str(letter["reason"])[:12]) for letter in letters(stage, objects)] == [
        (1, "t: 9 is too "),
        (2, "t: 10 is too"),
        (5, "t: 21 is in "),
    ]
    assert (objects.records, objects.clock) == (2, 20)
    assert (queries.records, queries.refused, queries.clock) == (1, 1, 5)
    assert letters(stage, objects)[0]["record"] == {"id": "o9", "t": 9, "x": 1.0, "y": 2.0, "terms": ["a", "b"]}


# -------------------------------------------------------------------------------------------------- whatever bytes come

NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "1e-400",
    "9" * 30,
    "1" + "0" * 400,
    "0x1",
    "1.",
    "007",
]
BYTES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"",
            b"\n",
            b"\n" * 50,
            b"\0",
            b"\xef\xbb\xbf{}",
            b"\xc0\xaf",
            b"\xed\xa0\x80",
            b"[" * 5_000,
            b'{"a":' * 5_000,
            b'{"id": "\\ud800"}',
            "{\u2028}".encode("utf-16"),
            b'"' + b"x" * 70_000 + b'"',
            b"x\n" * 3_000,
        ]
    ),
)
FIELDS = st.sampled_from(
    ["id", "t", "x", "y", "text", "terms", "type", "region", "at", "k", "duration", "window", "step"]
)
VALUES = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(['"9999-12-31T23:59:59-23:59"', '"0001-01-01T00:00+23:59"', '"\\ud800"', '"\\u0000"', '"CANCEL"']),
    st.sampled_from(
        ['{"box": [0, 0, 1, 1]}', '{"circle": [5, 5, 1e308]}', '{"circle": [1e999, 5, 1]}', "[1, 2]", "[[[]]]"]
    ),
    st.sampled_from([f'"{"9" * 5_000}ms"', f'"{"9" * 5_000}w"', '"٣s"', '"²s"', "[" * 400 + "]" * 400, '["a", null]']),
)


@st.composite
def mutated(draw: st.DrawFn, kind: str) -> bytes:
    """A good record, of which some fields have become strange, or some bytes have."""
    record = {"id": '"o"', "t": "5", "x": "1", "y": "2", "text": '"a b"'}
    if kind == "queries":
        record = {"id": '"q"', "type": '"SRQ"', "t": "5", "region": '{"box": [0, 0, 1, 1]}', "duration": "5"}
    record |= draw(st.dictionaries(FIELDS, VALUES, max_size=3))
    line = ("{" + ", ".join(f'"{name}": {value}' for name, value in record.items()) + "}").encode()
    for at, byte in draw(st.lists(st.tuples(st.integers(0, len(line) - 1), st.integers(0, 255)), max_size=2)):
        line = line[:at] + bytes([byte]) + line[at + 1 :]
    return line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 4)) == 0 else line


@given(st.data())
def test_whatever_bytes_come_everything_else_is_as_without_them(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(["objects", "queries"]))
    good = line("good", 7) if kind == "objects" else CRQ
    strange = st.one_of(mutated(kind), BYTES)
    keys = st.sampled_from([None, None, b"", b"\xff\0", b"clock ", CLOCK])
    sent: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        sent.append((data.draw(keys), data.draw(st.one_of(strange, st.none()))))
        sent.append((data.draw(st.sampled_from([None, b"\xff"])), good))
    stage = Ingest(0, Folder(tmp_path_factory.mktemp("input")), PLANE, longest=1 << 16, ceiling=1_000)
    messages = [(kind, 0, i, key, value) for i, (key, value) in enumerate(sent)]
    (intake,) = intakes(stage, *messages)
    assert intake.last == len(sent) - 1
    assert intake.quarantined == 0
    assert intake.run is not None
    rows = records(stage, intake)
    assert rows.column("id").to_pylist().count("good") >= len(sent) // 2
    assert intake.clock is not None
    assert 7 <= intake.clock <= 1_000
    watermarks = sum(key == CLOCK and value is not None for key, value in sent)
    lines = sum(
        bool(each.strip(b" \t\r")) for key, value in sent if key != CLOCK for each in (value or b"").split(b"\n")
    )
    assert lines <= intake.records + intake.refused <= lines + watermarks
    for letter in letters(stage, intake) if intake.rejected else ():
        assert sent[int(str(letter["offset"]))][1] != good
        assert "cannot be read (" not in str(letter["reason"]), "the parser should have known"
        assert len(json.dumps(letter)) < 40_000
    assert from_json(Intake, to_json(intake)) == intake


CRQ = b'{"id": "good", "type": "CRQ", "t": 7, "region": {"box": [0, 0, 1, 1]}, "duration": 1}'


def test_a_message_of_very_many_bad_lines_has_few_dead_letters(stage: Ingest) -> None:
    many = b"x\n" * 300_000 + line("good", 7)
    (intake,) = intakes(stage, ("objects", 0, 3, None, many), ("objects", 0, 4, None, b"y"))
    assert (intake.records, intake.refused) == (1, 300_001)
    found = letters(stage, intake)
    assert len(found) == 1_002
    assert [(letter["offset"], letter["line"]) for letter in found[-2:]] == [(4, 1), (3, 1_001)]
    assert found[-1]["reason"] == "record: this is the first of 299000 more records of this message that cannot be used"


@pytest.mark.parametrize("bad", [(5,), (0,), (0, 1, 8), tuple(range(9))])
def test_a_line_on_which_decoding_fails_is_left_out(
    stage: Ingest, bad: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = ingest.decode_objects

    def faulty(data: pa.Buffer, *more: Any) -> Any:
        if b"poison" in data.to_pybytes():
            raise ZeroDivisionError("in a kernel")
        return decode(data, *more)

    monkeypatch.setattr(ingest, "decode_objects", faulty)
    lines = [line("poison" if i in bad else f"o{i}", i) for i in range(9)]
    values = b"\n".join(lines[:3]), b"\n".join(lines[3:8]), lines[8]
    (intake,) = intakes(stage, *(("objects", 0, 7 + i, None, value) for i, value in enumerate(values)))
    assert (intake.records, intake.refused, intake.quarantined) == (9 - len(bad), len(bad), len(bad))
    places = [(7, 1), (7, 2), (7, 3), *((8, at) for at in range(1, 6)), (9, 1)]
    found = letters(stage, intake)
    assert [(letter["offset"], letter["line"]) for letter in found] == [places[i] for i in bad]
    assert {letter["reason"] for letter in found} == {"record: cannot be read (ZeroDivisionError: in a kernel)"}
    if intake.run is not None:
        rows = records(stage, intake)
        assert rows.column("id").to_pylist() == [f"o{i}" for i in range(9) if i not in bad]


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(28, "no space left"), StateError("damaged"), ValueError("always")]
)
def test_what_is_no_record_s_fault_fails_the_epoch(
    stage: Ingest, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*more: Any) -> Any:
        raise error

    monkeypatch.setattr(ingest, "decode_objects", fail)
    with pytest.raises(type(error)):
        list(intakes(stage, ("objects", 0, 7, None, line("a", 1))))


def test_small_batches_are_decoded_together_and_large_ones_in_pieces(
    stage: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(ingest, "_MOST_BYTES", 400)
    values = [line(f"o{i}", i) for i in range(20)]
    columns = [pa.array(range(20)), pa.nulls(20, pa.binary()), pa.array(values, pa.binary())]
    whole = pa.RecordBatch.from_arrays(columns, schema=MESSAGE)
    for batches in ([whole], [whole.slice(i, 1) for i in range(20)]):
        found = list(stage.intakes("objects/0", batches))
        assert 1 < len(found) < 20
        assert [each for intake in found for each in records(stage, intake).column("id").to_pylist()] == [
            f"o{i}" for i in range(20)
        ]
        assert found[-1].last == 19


def test_blocks_that_a_source_has_decoded_are_taken_as_they_are(stage: Ingest, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\n".join([line("a", 5), b"nonsense", line("b", 3), b""]))
    source = InputFiles.of([path], [], PLANE, TermRule(), {})
    (name,) = source.bounds()
    (text,) = stage.part(source, (name, 0, 1))
    intake = from_json(Intake, text)
    assert (intake.partition, intake.clock, intake.records, intake.refused, intake.last) == ("objects/0", 5, 2, 1, 0)
    assert records(stage, intake).column("id").to_pylist() == ["b", "a"]
    assert [(letter["source"], letter["line"]) for letter in letters(stage, intake)] == [(str(path), 2)]


def test_offsets_that_no_message_has_are_read_too(stage: Ingest) -> None:
    """Markers of transactions have offsets, but no source shows them."""
    source = MemorySource(["objects/0"])
    source.logs["objects/0"].append((None, line("a", 5)), (None, line("b", 6)))

    class Unmarked:
        bounds = staticmethod(source.bounds)

        def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
            return source.read(partition, start, end - 1)

    found = [from_json(Intake, text) for text in stage.part(Unmarked(), ("objects/0", 0, 2))]
    assert [(each.records, each.clock, each.last) for each in found] == [(1, 5, 0), (0, None, 1)]


def source_of(*values: bytes | None, first: int = 0) -> MemorySource:
    source = MemorySource(["objects/0"])
    source.logs["objects/0"].append(*((None, b"{}") for _ in range(first)), *((None, value) for value in values))
    return source


def test_a_run_that_nobody_has_waited_for_is_made_again_as_it_was(stage: Ingest) -> None:
    late = replace(stage, deferred=True, attempt="first", floor=2, ceiling=50, longest=100)
    both = b"nonsense\n" + line("b", 3)
    values = line("a", 9), both, line("too-old", 1), line("future", 77), b"x" * 101, line("c", 9)
    source = source_of(*values, first=5)
    (intake,) = late.intakes("objects/0", source.read("objects/0", 5, 11))
    assert intake.run is not None
    assert (intake.records, intake.refused) == (3, 4)
    assert from_json(Intake, to_json(intake)) == intake
    names = list(files_of(intake.run, [intake.rejected]))
    assert len(names) == 2
    before = [stage.storage.get(name).to_pybytes() for name in names]
    stage.storage.delete(names)
    replace(stage, longest=100, epoch=9).again(source, intake.run)
    assert [stage.storage.get(name).to_pybytes() for name in names] == before
    assert list(files_of(intake.run, [])) == names[:1]


def test_files_that_others_wait_for_have_no_origin(stage: Ingest, tmp_path: Path) -> None:
    (intake,) = stage.intakes("objects/0", source_of(line("a", 9)).read("objects/0", 0, 1))
    assert intake.run is not None
    assert intake.run.origin is None
    (only_letters,) = replace(stage, deferred=True).intakes("objects/0", source_of(b"nonsense").read("objects/0", 0, 1))
    assert only_letters.run is None
    assert letters(stage, only_letters), "there is no run to make them again with"


@pytest.mark.parametrize("others", [[line("a", 9), line("b", 9)], [b"nonsense"], [line("a", 8)]])
def test_a_run_of_messages_that_are_others_now_is_told(stage: Ingest, others: list[bytes]) -> None:
    late = replace(stage, deferred=True)
    (intake,) = late.intakes("objects/0", source_of(line("a", 9)).read("objects/0", 0, 1))
    assert intake.run is not None
    origin = replace(intake.run.origin, end=len(others)) if intake.run.origin else None
    with pytest.raises(StateError, match=r"objects/0: messages 0 to \d are not those from which 000000003-objects"):
        stage.again(source_of(*others), replace(intake.run, origin=origin))


def test_a_run_whose_messages_are_gone_is_told(stage: Ingest) -> None:
    source = source_of(line("a", 9), line("b", 9))
    (intake,) = replace(stage, deferred=True).intakes("objects/0", source.read("objects/0", 0, 2))
    assert intake.run is not None
    source.logs["objects/0"].remove(1)
    with pytest.raises(StateError):
        stage.again(source, intake.run)
