"""Rows that wait in a spool come out as if all of them had been sorted at once, with few of them in memory."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.stages.external_sort import Spool
from spatialstream.stages.messages import columns

BLOCKS = st.lists(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=1, max_size=12), max_size=12)
ROOM = st.sampled_from([0, 100, 400, 1 << 20])
SIZE = st.sampled_from([1, 60, 1 << 20])


def block(keys: list[tuple[int, int]], first: int = 0) -> pa.RecordBatch:
    major, minor = np.array(keys, np.int64).reshape(-1, 2).T.copy()
    names = pa.array([f"row {first + i}" for i in range(len(keys))], pa.large_string())
    return columns(major=major, minor=minor, name=names)


@given(BLOCKS, SIZE, ROOM)
def test_rows_come_out_sorted_and_ties_as_they_came(blocks: list[list[tuple[int, int]]], size: int, room: int) -> None:
    spool = Spool("major", "minor", block_bytes=size, bytes_in_memory=room)
    given_rows: list[tuple[int, int, str]] = []
    for keys in blocks:
        content = block(keys, len(given_rows))
        spool.add(content)
        given_rows += [tuple(row.values()) for row in content.to_pylist()]
    assert spool.rows == len(given_rows)
    found = [tuple(row.values()) for table in spool for row in table.to_pylist()]
    assert found == sorted(given_rows, key=lambda row: row[:2])
    assert list(spool) == [], "for once"


@given(BLOCKS, SIZE, ROOM)
def test_rows_of_one_key_stay_together(blocks: list[list[tuple[int, int]]], size: int, room: int) -> None:
    spool = Spool("major", block_bytes=size, bytes_in_memory=room)
    for keys in blocks:
        spool.add(block(keys))
    tables = [table.column("major").to_pylist() for table in spool]
    assert all(max(one) < min(other) for one, other in pairwise(tables))
    assert sorted(chain.from_iterable(tables)) == sorted(major for keys in blocks for major, _ in keys)


@pytest.mark.parametrize("runs", [1, 5])
def test_a_block_of_each_run_is_in_memory(runs: int) -> None:
    blocks, rows = 40, 50
    spool = Spool("major", "minor", bytes_in_memory=0)
    for run in range(runs):
        for number in range(blocks):
            spool.add(block([(number * rows + i, run) for i in range(rows)]))
    assert spool.rows == runs * blocks * rows
    assert sum(table.num_rows for table in spool) == spool.rows
    assert spool.most_held <= (runs + 1) * rows


def test_the_file_is_where_spark_keeps_its_own_and_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'missing'},{tmp_path}")
    spool = Spool("major", bytes_in_memory=0)
    with pytest.raises(FileNotFoundError):
        spool.add(block([(1, 1)]))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},{tmp_path / 'missing'}")
    spool.add(block([(1, 1)]))
    assert list(tmp_path.iterdir()) == []
    assert sum(table.num_rows for table in spool) == 1
