"""A place in the results as a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client.cursor import Cursor
from spatialstream.client.results import Row
from spatialstream.connectors.delivery import Place
from spatialstream.model.errors import SettingError

BLOCKS = st.builds(
    lambda round_, phase, upto, incarnation, offset, partition: Row(
        b"", Place(round_, phase, 0, incarnation), upto, partition, offset, {}
    ),
    *(st.integers(0, 9), st.integers(0, 1), st.integers(1, 5), st.sampled_from(["", "a", "b"]), st.integers(0, 99)),
    st.integers(0, 1),
)


@given(st.lists(BLOCKS, max_size=20), BLOCKS)
def test_a_word_says_which_rows_have_been_had(rows: list[Row], other: Row) -> None:
    cursor, had = Cursor.of([3, 4], "0a1b"), list[Row]()
    for row in rows:
        if not cursor.has(row):
            cursor = cursor.after(row)
            had.append(row)
            assert cursor.offsets[row.partition] == row.resume
        assert cursor.has(row)
    assert Cursor.parse(str(cursor)) == cursor
    assert cursor.joined(cursor) == cursor

    def series(row: Row) -> object:
        return row.partition, row.place.incarnation, row.place.phase

    same = [each for each in had if series(each) == series(other)]
    latest = max(((each.place.round, each.upto) for each in same), default=(-1, 0))
    assert cursor.has(other) == ((other.place.round, other.upto) <= latest)


@given(st.lists(BLOCKS, max_size=9), st.lists(BLOCKS, max_size=9), BLOCKS)
def test_joined_has_what_either_has(one: list[Row], two: list[Row], other: Row) -> None:
    def of(rows: list[Row]) -> Cursor:
        cursor = Cursor.of([0, 0])
        for row in rows:
            cursor = cursor if cursor.has(row) else cursor.after(row)
        return cursor

    joined = of(one).joined(of(two))
    assert joined.has(other) == (of(one).has(other) or of(two).has(other))
    assert joined.offsets == tuple(map(max, of(one).offsets, of(two).offsets))


@pytest.mark.parametrize(
    "word",
    [
        *("", "x", "1", "-", "-1-", "--1", "x-1", "-1" * 65, "-1~a", "-1~a.1.2", "-1~a.1.2.3", "-" + "9" * 19, "-1\n"),
        *("-1~é.1.1.1.1", "-1~a.1.1.1.1-" + "1~a.1.1.1.1" * 5, "0" * 17 + "-1", "-1" * 10_000),
    ],
)
def test_what_is_no_word_is_refused(word: str) -> None:
    with pytest.raises(SettingError, match="position: is not a valid position"):
        Cursor.parse(word)


def test_incarnations_are_a_few() -> None:
    cursor = Cursor.of([0])
    for incarnation in "abcdef":
        cursor = cursor.after(Row(b"", Place(1, 0, 0, incarnation), 1, 0, 1, {}))
    assert [incarnation for incarnation, _ in cursor.parts[0].incarnations] == ["c", "d", "e", "f"]
    assert Cursor.parse(str(cursor)) == cursor
