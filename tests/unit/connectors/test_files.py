"""What lies in files where both jobs are one process: blocks, announcements, rows and dead letters."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from spatialstream.connectors.block_files import BlockFiles
from spatialstream.connectors.keys import block_key
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.result_files import ResultFiles


def blocks(epoch: int, partition: int, size: int = 3) -> list[tuple[int, bytes, pa.Buffer]]:
    return [
        (slot, block_key(epoch, partition, number, "objects"), pa.py_buffer(b"%d%d%d" % (epoch, slot, number) * size))
        for slot in (0, 1)
        for number in range(size)
    ]


def given(channel: BlockFiles, slot: int, start: int, end: int) -> list[tuple[bytes, bytes]]:
    return [(key, content.to_pybytes()) for key, content in channel.blocks(slot, start, end)]


def of(sent: list[tuple[int, bytes, pa.Buffer]], slot: int) -> list[tuple[bytes, bytes]]:
    return [(key, content.to_pybytes()) for of_slot, key, content in sent if of_slot == slot]


def announced(channel: BlockFiles, after: int | None) -> list[int]:
    return [each["epoch"] for each in channel.announced(after, 9, 0.0)[0] if each is not None]


def test_blocks_of_epochs_are_given_once_and_in_their_order() -> None:
    channel = BlockFiles(MemoryStorage(), 2)
    assert channel.begins() == channel.ends() == [0, 0]
    channel.send([])
    for epoch in (0, 1):
        for partition in (1, 0, 1):  # the last one once more, as after a crash
            channel.send(iter(blocks(epoch, partition)))
        assert channel.ends() == [epoch + 1] * 2
    for slot in (0, 1):
        expected = [of([*blocks(epoch, 0), *blocks(epoch, 1)], slot) for epoch in (0, 1)]
        assert given(channel, slot, 0, 1) == expected[0]
        assert given(channel, slot, 0, 2) == expected[0] + expected[1]
        assert given(channel, slot, 1, 1) == []


def test_what_fails_on_the_way_leaves_nothing() -> None:
    channel, sent = BlockFiles(MemoryStorage(), 2), blocks(0, 0)

    def failing() -> object:
        yield from sent[:2]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        channel.send(failing())  # type: ignore[arg-type]
    assert given(channel, 0, 0, 1) == []


def test_announcements_are_heard_and_what_lies_long_before_is_let_go() -> None:
    channel = BlockFiles(MemoryStorage(), 2)
    assert channel.announced(None, 9, 0.0) == ([], 0)
    for epoch in (0, 1, 3, 4):  # those in which nothing happens are not announced
        channel.send(blocks(epoch, 0))
        channel.announce({"epoch": epoch, "past": [[1, 2, 3]]})
        channel.announce({"epoch": epoch, "past": [[1, 2, 3]]})
        found, after = channel.announced(epoch, 9, 0.0)
        assert (found, after) == ([{"epoch": epoch, "past": [[1, 2, 3]]}], epoch + 1)
    assert announced(channel, None) == [3, 4]
    assert channel.announced(0, 1, 0.0)[1] == 4
    assert (channel.begins(), channel.ends()) == ([0, 0], [5, 5])
    channel.release([2, 2])
    assert (channel.begins(), channel.ends()) == ([3, 3], [5, 5])
    channel.release([4, 4])
    assert (channel.begins(), channel.ends()) == ([4, 4], [5, 5])


def test_rows_and_letters_are_whole_files_that_a_repetition_overwrites(tmp_path: Path) -> None:
    sink = ResultFiles(tmp_path / "results", tmp_path / "rejected")
    pieces = [pa.array(rows, pa.large_string()) for rows in (["a", "b"], [], ["c\u00e9"])]
    for _ in range(2):
        assert sink.rows(7, 0, iter(pieces)) == 3
        assert sink.rows(7, 1, pieces[:1]) == 2
        assert sink.rows(8, 0, [pieces[1]]) == sink.rows(9, 0, []) == 0
        sink.rejected(7, "input", (f"letter {i}" for i in range(2_500)))
        sink.rejected(7, "round", ["x"])
        sink.rejected(8, "round", [])
    found = {str(path.relative_to(tmp_path)): path.read_text("utf-8") for path in tmp_path.rglob("*.jsonl")}
    assert found.pop("rejected/input-000000007.jsonl").splitlines() == [f"letter {i}" for i in range(2_500)]
    assert found == {
        "results/epoch-000000007.jsonl": "a\nb\nc\u00e9\n",
        "results/epoch-000000007_1.jsonl": "a\nb\n",
        "rejected/epoch-000000007.jsonl": "x\n",
    }
