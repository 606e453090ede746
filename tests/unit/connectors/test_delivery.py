"""Result messages, and how repeated ones are told."""

from __future__ import annotations

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.delivery import Assembler, Deduplicator, Place, result_messages

LINES = st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=30), max_size=40)


@given(LINES, st.integers(1, 9), st.integers(0, 5), st.lists(st.integers(0, 40), max_size=4))
def test_messages_hold_all_rows_in_order(lines: list[str], most: int, sliced: int, cuts: list[int]) -> None:
    column = pa.array([*["x"] * sliced, *lines], pa.large_string()).slice(sliced)
    bounds = [0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]
    pieces = [column.slice(first, last - first) for first, last in pairwise(bounds)]
    messages = list(result_messages(pieces, 7, 0, most))
    assert messages == list(result_messages([column], 7, 0, most)), "pieces do not show"
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
    assert [key for key, _ in result_messages([lines], 0, 1, 100)] == [b"0 1 0", b"0 1 1", b"0 1 2"]


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
    (incarnation,) = record["incarnations"]
    assert len(incarnation["next"]) == 3
    later = Deduplicator.from_record(record, rounds=3)
    assert later.new_rows(b"99 0 0", b"x") == []
    assert later.new_rows(b"5 0 0", b"x") == []
    assert later.new_rows(b"100 0 0", b"x") == [b"x"]


def test_a_new_incarnation_counts_its_rounds_from_0_again() -> None:
    known = Deduplicator()
    assert known.incarnation is None
    for number in range(300):
        assert known.new_rows(f"{number} 0 0 a".encode(), b"x") == [b"x"]
    known = Deduplicator.from_record(json.loads(json.dumps(known.to_record())))
    assert known.incarnation == "a"
    assert known.new_rows(b"0 0 0 b", b"x\ny") == [b"x", b"y"]
    assert known.incarnation == "b"
    # what is still on its way from the incarnation before
    assert known.new_rows(b"299 0 0 a", b"x\nz") == [b"z"]
    assert known.new_rows(b"0 0 0 b", b"x\ny\nz") == [b"z"]
    assert known.incarnation == "b"
    assert known.repeated == 3


def test_incarnations_that_are_kept_are_bounded() -> None:
    known = Deduplicator()
    for incarnation in range(100):
        assert known.new_rows(f"0 0 0 incarnation{incarnation}".encode(), b"x") == [b"x"]
    assert len(known.to_record()["incarnations"]) == 8
    assert known.new_rows(b"0 0 0 incarnation99", b"x") == []


@given(st.integers(0, 10**12), st.integers(0, 1), st.integers(0, 10**12), st.sampled_from(["", "0f3a", "b"]))
def test_a_key_says_its_place(number: int, phase: int, first: int, incarnation: str) -> None:
    place = Place(number, phase, first, incarnation)
    assert Place.of(place.key) == place
    assert place.key.split(b" ")[:3] == [str(each).encode() for each in (number, phase, first)]


@pytest.mark.parametrize("key", [None, b"", b"clock", b"1 2", b"1 2 3 ", b"-1 0 0", b"1 0 0 a b", b"9" * 40 + b" 0 0"])
def test_what_is_no_key_of_results(key: bytes | None) -> None:
    assert Place.of(key) is None
    with pytest.raises(ValueError, match="not the key of a message of results"):
        Deduplicator().new_rows(key or b"", b"x")


def part(number: int, parts: int, items: str, query: str = "q") -> bytes:
    head = f'{{"query": "{query}", "type": "STQ", "t": 5, "part": {number}, "parts": {parts}'
    return f'{head}, "terms": [{items}]}}'.encode()


def test_parts_are_put_together() -> None:
    whole = Assembler()
    assert whole.add(part(0, 3, "1, 2")) == []
    assert whole.add(part(1, 3, "3")) == []
    assert whole.waiting
    assert whole.add(part(2, 3, "4, 5")) == [b'{"query": "q", "type": "STQ", "t": 5, "terms": [1, 2, 3, 4, 5]}']
    assert not whole.waiting
    row = b'{"query": ", \\"part\\": 1, \\"parts\\": 2", "type": "SRQ", "t": 5, "objects": []}'
    assert whole.add(row) == [row]


def test_parts_that_cannot_be_put_together_are_given_as_they_are() -> None:
    whole = Assembler()
    assert whole.add(part(1, 3, "3")) == [part(1, 3, "3")]
    assert whole.add(part(0, 2, "1")) == []
    assert whole.add(part(0, 2, "1", "other")) == [part(0, 2, "1")]
    assert whole.waiting
    assert whole.add(part(1, 3, "1", "other")) == [part(0, 2, "1", "other"), part(1, 3, "1", "other")]
    assert whole.add(part(0, 2, "1")) == []
    assert whole.add(b"{}") == [part(0, 2, "1"), b"{}"]
    assert not whole.waiting
