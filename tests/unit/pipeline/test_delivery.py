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
    messages = [(b"0 0 0", b"a\nb"), (b"0 1 0", b"c"), (b"0 0 0", b"a\nb"), (b"1 0 0", b"d"), (b"0 1 0", b"c")]
    assert [known.new_rows(*message) for message in messages] == [[b"a", b"b"], [b"c"], [], [b"d"], []]
    assert known.repeated == 3


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(1, 4), max_size=8))
def test_rows_are_told_however_they_were_put_into_messages(once: list[int], again: list[int]) -> None:
    rows = [str(i).encode() for i in range(sum(once))]
    known = Deduplicator()
    got: list[bytes] = []
    for sizes in (once, again):
        first = 0
        for size in sizes:
            part = rows[first : first + size]
            if part:
                got += known.new_rows(f"0 0 {first}".encode(), b"\n".join(part))
            first += size
    assert got == rows


def test_what_is_kept_is_bounded_and_can_be_written_down() -> None:
    known = Deduplicator(rounds=3)
    for number in range(100):
        assert known.new_rows(f"{number} 0 0".encode(), b"x") == [b"x"]
    record = json.loads(json.dumps(known.to_record()))
    assert len(record["next"]) == 3
    later = Deduplicator.from_record(record, rounds=3)
    assert later.new_rows(b"99 0 0", b"x") == []
    assert later.new_rows(b"5 0 0", b"x") == []
    assert later.new_rows(b"100 0 0", b"x") == [b"x"]
