"""Text with columns: which mark separates them, and which lines its records are on."""

from __future__ import annotations

import io

import pytest

from spatialstream.records.delimited import DelimitedRecords, found_separator
from spatialstream.records.layout import InputLayout


def read(text: str, layout: InputLayout | None = None) -> list[tuple[int, object, str | None]]:
    records = DelimitedRecords(io.BytesIO(text.encode()), layout or InputLayout())
    return [(line, value, error and str(error)) for line, value, error in records]


@pytest.mark.parametrize(
    ("lines", "header", "mark"),
    [
        (["a;b,c;d"], True, ";"),
        (["a\tb,c,d,e", "a\tb"], False, "\t"),
        (["a|b"], True, "|"),
        (["a"], True, ","),
        ([], True, ","),
    ],
)
def test_separators_are_found(lines: list[str], header: bool, mark: str) -> None:
    assert found_separator(lines, header) == mark


def test_records_are_on_the_line_where_they_begin() -> None:
    assert read('a;b\n1;"two\nlines"\n\n2;""\n') == [
        (2, {"a": "1", "b": "two\nlines"}, None),
        (5, {"a": "2", "b": None}, None),
    ]


def test_a_record_that_is_none_spoils_no_other() -> None:
    found = read('a;b\n1;"x"y\n2;z\n3\n4;5\n')
    assert [line for line, _, error in found if error is None] == [3, 5]
    assert [(line, error) for line, _, error in found if error] == [
        (2, "record: is not a record of columns: ';' expected after '\"'"),
        (4, "record: has 1 cells; the file has 2 columns"),
    ]


def test_quotes_are_plain_where_tabs_separate() -> None:
    assert read('a\tb\n"x\ty"\n') == [(2, {"a": '"x', "b": 'y"'}, None)]
    assert read('a\tb\n"x\ty"\tz\n', InputLayout(quotes=True)) == [(2, {"a": "x\ty", "b": "z"}, None)]
    assert read('a;b\n"x;y"\n', InputLayout(quotes=False)) == [(2, {"a": '"x', "b": 'y"'}, None)]


def test_columns_without_a_header_are_numbers() -> None:
    assert read("x|y\n", InputLayout(header=False)) == [(1, {"1": "x", "2": "y"}, None)]
    assert read("", InputLayout(header=False)) == []
