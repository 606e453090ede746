"""Result messages, and how repeated ones are told."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.pipeline.delivery import Deduplicator, result_messages

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30), max_size=40)


@given(LINES, st.integers(1, 9), st.integers(0, 5))
def test_messages_hold_all_rows_in_order(lines: list[str], most: int, sliced: int) -> None:
    column = pa.array([*["x"] * sliced, *lines], pa.large_string()).slice(sliced)
    messages = list(result_messages(column, 7, 0, most))
    rows = [row for _, value in messages for row in value.to_pybytes().decode().split("\n")]
    assert rows == lines
    first = 0
    for key, value in messages:
        assert key == f"7 0 {first}".encode()
        count = value.to_pybytes().count(b"\n") + 1
        assert count <= most
        first += count


def test_long_rows_get_messages_of_their_own() -> None:
    lines = pa.array(["a" * 200_000, "b", "c" * 200_000], pa.large_string())
    assert [key for key, _ in result_messages(lines, 0, 1, 100)] == [b"0 1 0", b"0 1 1", b"0 1 2"]


def test_a_repeated_round_is_dropped_and_a_new_one_is_not() -> None:
    known = Deduplicator()
    assert [known.is_new(key) for key in (b"0 0 0", b"0 1 0", b"0 0 0", b"1 0 0", b"0 1 0")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert known.repeated == 2


def test_what_is_kept_is_bounded_and_can_be_written_down() -> None:
    known = Deduplicator(rounds=3)
    for number in range(100):
        assert known.is_new(f"{number} 0 0".encode())
    record = json.loads(json.dumps(known.to_record()))
    assert len(record["seen"]) == 3
    later = Deduplicator.from_record(record, rounds=3)
    assert not later.is_new(b"99 0 0")
    assert not later.is_new(b"5 0 0")
    assert later.is_new(b"100 0 0")
