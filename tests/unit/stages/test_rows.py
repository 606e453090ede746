"""Result rows as text: they say what they are made of, however long they are, and in parts they say the same."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.connectors.delivery import Assembler
from spatialstream.model import json_columns
from spatialstream.model.space import WGS84
from spatialstream.stages.rows import RowLimits, match_lines, object_texts, row_lines, term_texts

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BLOCKS = st.lists(st.tuples(NAMES, st.lists(NAMES, max_size=6), st.none() | st.integers(0, 9)), max_size=6)


def lines_of(
    rows: list[tuple[str, list[str], int | None]], limits: RowLimits | None
) -> tuple[list[str], list[int], list[dict[str, Any]]]:
    """(lines, the row of each, what the rows are to say) of STQs."""
    terms = [term for _, listed, _ in rows for term in listed]
    offsets = np.cumsum([0, *(len(listed) for _, listed, _ in rows)]).astype(np.int32)
    counts = np.arange(len(terms))
    after = pa.array([each for _, _, each in rows], pa.int64())
    items = term_texts(pa.array(terms, pa.string()), counts)
    queries, t = pa.array([name for name, _, _ in rows], pa.string()), np.arange(len(rows))
    lines, row = row_lines("STQ", queries, t, "terms", offsets, items, after, limits)
    expected = []
    for i, (name, listed, late) in enumerate(rows):
        found = [{"term": term, "count": int(offsets[i]) + j} for j, term in enumerate(listed)]
        note = {} if late is None else {"complete_after": late}
        expected.append({"query": name, "type": "STQ", "t": i, **note, "terms": found})
    return lines.to_pylist(), row.tolist(), expected


@given(BLOCKS)
def test_rows_say_what_they_hold(rows: list[tuple[str, list[str], int | None]]) -> None:
    lines, row, expected = lines_of(rows, None)
    assert [json.loads(line) for line in lines] == expected
    assert row == list(range(len(rows)))


@given(BLOCKS, st.none() | st.integers(1, 200))
def test_few_rows_are_written_as_many_are(rows: list[tuple[str, list[str], int | None]], most: int | None) -> None:
    limits = None if most is None else RowLimits(10**9, most)
    few = lines_of(rows, limits)
    with patch.object(json_columns, "_FEW", -1):
        assert lines_of(rows, limits) == few


@given(BLOCKS, st.integers(1, 200))
def test_parts_are_short_and_put_together_are_the_row(rows: list[tuple[str, list[str], int | None]], most: int) -> None:
    whole, _, expected = lines_of(rows, None)
    lines, row, _ = lines_of(rows, RowLimits(10**9, most))
    assembler = Assembler()
    assert [each.decode() for line in lines for each in assembler.add(line.encode())] == whole
    assert row == sorted(row)
    assert set(row) == set(range(len(rows)))
    for line, of in zip(lines, row, strict=True):
        found = json.loads(line)
        if "part" in found:
            assert found["terms"]
            assert {name: found[name] for name in ("query", "t")} == {
                name: expected[of][name] for name in ("query", "t")
            }
        listed = line[line.index('"terms": [') + len('"terms": [') : -2]
        assert len(listed.encode()) <= most or len(found["terms"]) == 1


@pytest.mark.parametrize(("above", "error"), [(0, False), (1, True)])
def test_a_row_that_is_too_long_says_so_and_the_others_are_as_they_were(above: int, error: bool) -> None:
    rows: list[tuple[str, list[str], int | None]] = [("a", ["x"], None), ("b", ["y" * 10] * 50, None), ("c", [], None)]
    whole, _, _ = lines_of(rows, None)
    size = len(whole[1])
    lines, row, expected = lines_of(rows, RowLimits(size - above, size))
    assert row == [0, 1, 2]
    assert [lines[0], lines[2]] == [whole[0], whole[2]]
    found = json.loads(lines[1])
    if error:
        reason = f"the row would have {size} bytes, and the most is {size - 1}; ask for less of it"
        assert found == {"query": "b", "type": "STQ", "t": 1, "error": reason}
    else:
        assert found == expected[1]


@pytest.mark.parametrize(("above", "parts"), [(0, 1), (1, 2)])
def test_a_list_is_cut_where_it_is_longer_than_a_part(above: int, parts: int) -> None:
    rows: list[tuple[str, list[str], int | None]] = [("a", ["x"] * 7, 3)]
    items = ", ".join(f'{{"term": "x", "count": {i}}}' for i in range(7))
    lines, row, _ = lines_of(rows, RowLimits(10**9, len(items) - above))
    assert len(lines) == len(row) == parts
    assert all('"complete_after": 3' in line for line in lines)


@given(st.lists(NAMES, max_size=8))
def test_more_text_than_32_bits_can_count_is_the_same_text(names: list[str]) -> None:
    ids, n = pa.array(names, pa.string()), len(names)
    t, x, y = np.arange(n), np.linspace(0, 1, n), np.linspace(0, 1, n)
    which = np.repeat(np.arange(n, dtype=np.int32), 2)
    matched = ids.take(pa.array(which))
    small = object_texts(WGS84, ids, t, x, y, x)
    few = match_lines(matched, t, small, which)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_columns, "_ROOM", 10)
        large = object_texts(WGS84, ids, t, x, y, x)
        many = match_lines(matched, t, large, which)
    if n:
        assert large.type == many.type == pa.large_string()
    assert large.to_pylist() == small.to_pylist()
    assert many.to_pylist() == few.to_pylist()
    found = [(row["query"], row["t"], row["object"]["id"]) for row in map(json.loads, few.to_pylist())]
    assert found == [(names[i], i, names[i]) for i in which.tolist()]
