"""Messages that grow with data stay below the broker's limit: blocks, partials, dead letters, rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.connectors.contracts import MESSAGE
from spatialstream.connectors.delivery import result_messages
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.kafka import LARGEST_MESSAGE, Topics
from spatialstream.model.errors import SettingError
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.space import WGS84
from spatialstream.records.rejected import rejected_line
from spatialstream.stages import messages, route
from spatialstream.stages.ingest import LARGEST_ID, LARGEST_RECORD, Ingest, Intake
from spatialstream.stages.rows import RowLimits, match_lines, object_texts, row_lines, term_texts

ROOM = 64 << 10
"""Upper bound of what the broker counts besides key and value."""


def intake(folder: Path, record: dict[str, Any], **more: Any) -> tuple[Intake, list[dict[str, Any]]]:
    """The outcome of a record, and the dead letters."""
    value = json.dumps(record, ensure_ascii=False).encode()
    batch = pa.RecordBatch.from_pylist([{"offset": 0, "value": value}], MESSAGE)
    (found,) = Ingest(0, Folder(folder), WGS84, longest=8 << 20, **more).intakes("objects/0", [batch])
    letters = (folder / "input" / found.rejected).read_bytes() if found.rejected else b""
    assert len(letters) < 100_000
    return found, [json.loads(line) for line in letters.splitlines()]


def thing(**fields: Any) -> dict[str, Any]:
    return {"id": "o", "t": 5, "lon": 0.0, "lat": 0.0, "text": ""} | fields


def kana(n: int) -> str:
    """A term of 18 n bytes, from a text of 3 n bytes."""
    return "\u3316" * n


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (thing(id="x" * (LARGEST_ID - 2)), None),
        (thing(id="x" * (LARGEST_ID - 1)), "id: 4194305 bytes as JSON are too many; the most is 4194304"),
        (thing(id="\x01" * 700_000), "id: 4200002 bytes as JSON are too many; the most is 4194304"),
        (thing(text=kana((LARGEST_RECORD - 20) // 18)), None),
        (
            thing(text=kana(LARGEST_RECORD // 18 + 1)),
            "record: id, terms and fields take 8388623 bytes; the most is 8388608",
        ),
    ],
)
def test_a_record_that_no_message_could_carry_is_a_dead_letter(
    tmp_path: Path, record: dict[str, Any], reason: str | None
) -> None:
    found, letters = intake(tmp_path, record)
    assert (found.records, found.refused) == ((1, 0) if reason is None else (0, 1))
    assert [letter["reason"] for letter in letters] == ([] if reason is None else [reason])


@pytest.mark.parametrize(
    "record", [thing(id="x" * 2_000_000), thing(text=" ".join(kana(9_000) + f"{i}" for i in range(9)))]
)
def test_the_echo_of_a_record_that_comes_too_late_is_short(tmp_path: Path, record: dict[str, Any]) -> None:
    _, (letter,) = intake(tmp_path, record, floor=10)
    assert letter["reason"].startswith("t: 5 is too old")
    assert isinstance(letter["record"], str)


@pytest.mark.parametrize("text", ["x", "\\", "\x01", "\U0001f600"])
def test_dead_letters_are_short_whatever_they_tell(text: str) -> None:
    long = json.dumps({"id": text * 100_000}, ensure_ascii=False)
    letter = rejected_line("queries/0", 1, "id: no continuous query " + text * 100_000, long, 7)
    assert len(letter.encode()) < ROOM
    assert json.loads(letter)["record"].startswith('{"id": "')
    short = json.dumps({"id": text * 1_000}, ensure_ascii=False)
    assert json.loads(rejected_line("queries/0", 1, "no", short))["record"] == json.loads(short)


def test_what_is_taken_in_fits_into_a_block() -> None:
    terms = tuple(f"{i:07d}" for i in range((LARGEST_RECORD - 1) // 15))
    batch = ObjectBatch.of([SpatialObject("o", 5, 0.0, 0.0, terms)]).to_arrow()
    block = batch.append_column("seq", pa.array([0])).append_column("leaf", pa.array([0], pa.int32()))
    (part,) = route.parts_of(messages.OBJECTS, block)
    assert messages.pack(part).size < LARGEST_MESSAGE - ROOM


@pytest.mark.parametrize("kind", [messages.REJECTED, messages.ENDED])
def test_blocks_of_any_kind_are_cut_until_they_fit(kind: str) -> None:
    content = messages.columns(t=np.arange(5_000), line=pa.array(["x" * 20] * 5_000))
    parts = list(route.parts_of(kind, content, 1_000))
    assert pa.concat_batches(parts).equals(content)
    assert all(part.nbytes <= 1_000 for part in parts)


def test_blocks_between_tasks_are_cut() -> None:
    content = messages.columns(t=np.arange(700), terms=pa.array([["a", "b"], ["c"]] * 350))
    rows = [row for batch in messages.messages(3, "kind", content, 1_000) for row in messages.blocks(batch)]
    assert len(rows) > 1
    assert {row[:2] for row in rows} == {(3, "kind")}
    assert pa.concat_batches([row[2] for row in rows]).equals(content)
    alone = messages.columns(line=pa.array(["x" * 5_000]))
    assert len(list(messages.messages(0, "kind", alone, 1_000))) == 1


def test_the_longest_rows_fit_into_messages() -> None:
    name, zero = "x" * (LARGEST_ID - 2), np.zeros(1)
    ids, t = pa.array([name]), np.zeros(1, np.int64)
    texts = object_texts(WGS84, ids, t, zero, zero, zero)
    crq = match_lines(ids, t, texts, np.zeros(1, np.int32))
    items = pa.concat_arrays([texts, texts, texts])
    skq, _ = row_lines("SKQ", ids, t, "objects", np.array([0, 3], np.int32), items, None, RowLimits())
    words = term_texts(pa.array(["y" * LARGEST_RECORD] * 3), np.ones(3, np.int64))
    stq, _ = row_lines("STQ", ids, t, "terms", np.array([0, 3], np.int32), words, pa.array([7]), RowLimits())
    assert (len(skq), len(stq)) == (3, 3)
    for lines in (crq, skq, stq):
        for key, value in result_messages([lines.cast(pa.large_string())], 10**9, 1, 500, "f" * 12):
            assert len(key) + value.size < LARGEST_MESSAGE - ROOM


@pytest.mark.parametrize("small", ["blocks", "results", "rejected", "epochs", "areas"])
def test_topics_that_take_too_little_are_refused(small: str) -> None:
    def described(resources: list[Any]) -> dict[Any, Any]:
        (resource,) = resources
        size = 1_000 if resource.name == f"s.{small}" else LARGEST_MESSAGE
        return {resource: MagicMock(result=lambda timeout: {"max.message.bytes": SimpleNamespace(value=str(size))})}

    with pytest.raises(
        SettingError, match=rf"s\.{small} accepts messages of at most 1000 bytes; set max\.message\.bytes to 16777216"
    ):
        Topics("s").check_sizes(SimpleNamespace(describe_configs=described))  # type: ignore[arg-type]
