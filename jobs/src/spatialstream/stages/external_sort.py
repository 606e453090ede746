"""Sorted runs of rows that are merged without being in memory: an external merge sort whose last pass is by cuts.

A *run* is the output of one producer, block after block, in the order of a key; there are few runs (a slot's matches,
the changes of CKQs) and any number of blocks. Each block's first key is remembered; the blocks themselves are kept in
memory while they are small together, and go to an unlinked temporary file beyond that. Blocks are then read in the
order of their first keys: every row whose key is below the first key of the next block can be emitted, because no later
block has an earlier one. So about one block per run is held, whatever the number of rows.

Correctness does not rely on that: blocks that overlap more are merged correctly too, and held longer.

Cost: each row is written and read at most once, and sorted once, among the rows between two cuts. Files are compressed
(LZ4), and vanish with the process.

Source: D. E. Knuth, "The Art of Computer Programming", vol. 3, 5.4 (merging of runs; the next block to be read is the
one whose keys end first, "forecasting").
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Ints
from spatialstream.model.progress import made
from spatialstream.stages.messages import numbers, pack, unpack

__all__ = ["Spool"]

_BLOCK_BYTES = 1 << 20
_BYTES_IN_MEMORY = 32 << 20


@dataclass(frozen=True, slots=True)
class _Block:
    """A sorted block that waits: its first key, and its content or its place in the file."""

    first: tuple[int, ...]
    content: pa.RecordBatch | None
    place: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class _Held:
    """A block that is being emitted, and the position up to which that is done."""

    number: int
    keys: tuple[Ints, ...]
    content: pa.RecordBatch
    at: int = 0

    def below(self, key: tuple[int, ...], number: int, whole: bool) -> int:
        """The number of rows that come before the first row of another block, which has this key."""
        low, high = 0, len(self.keys[0])
        for column, value in zip(self.keys, key, strict=True):
            low, high = (low + int(np.searchsorted(column[low:high], value, side)) for side in ("left", "right"))
            if whole:
                return low
        return high if self.number < number else low


class Spool:
    """Takes rows in runs, and returns all of them in the order of a key; equal keys in the order of arrival.

    Args:
        major: name of the int64 column that is the key.
        minor: further keys, by which rows with equal ``major`` are ordered. Without any these are returned together,
            however many they are, and the rows of a table are in the order of their blocks.
        block_bytes: approximate size of the pieces that are kept.
        bytes_in_memory: size up to which no file is created.

    Attributes:
        rows: number of rows taken.
        most_held: the maximum number of rows held at once while they were emitted.
    """

    def __init__(
        self,
        major: str,
        *minor: str,
        block_bytes: int = _BLOCK_BYTES,
        bytes_in_memory: int = _BYTES_IN_MEMORY,
    ) -> None:
        self._major, self._minor = major, minor
        self._block_bytes, self._room = block_bytes, bytes_in_memory
        self._blocks: list[_Block] = []
        self._file: IO[bytes] | None = None
        self._end = 0
        self.rows = 0
        self.most_held = 0

    def add(self, content: pa.RecordBatch) -> None:
        """Take some rows, in any order, preferably that of the key, and before the next ones of the same run."""
        made()
        if not content.num_rows:
            return
        keys = self._keys(content)
        below = np.zeros(content.num_rows - 1, np.bool_)  # rows that are to come after the next one
        same = ~below
        for key in keys:
            below |= same & (key[1:] < key[:-1])
            same &= key[1:] == key[:-1]
        if below.any():
            content = content.take(pa.array(np.lexsort(keys[::-1])))
        pieces = -(-content.nbytes // self._block_bytes)
        if pieces == 1:
            self._keep(content)
            return
        for piece in np.array_split(np.arange(content.num_rows), min(pieces, content.num_rows)):
            self._keep(content.slice(int(piece[0]), len(piece)))

    def _keys(self, content: pa.RecordBatch) -> tuple[Ints, ...]:
        return tuple(numbers(content, name) for name in (self._major, *self._minor))

    def _keep(self, content: pa.RecordBatch) -> None:
        first = tuple(int(key[0]) for key in self._keys(content))
        self.rows += content.num_rows
        if self._file is None and content.nbytes <= self._room:
            self._room -= content.nbytes
            self._blocks.append(_Block(first, content))
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_local_folder())  # noqa: SIM115 -- open as long as this object
            waiting, self._blocks = self._blocks, []
            for block in waiting:
                assert block.content is not None
                self._blocks.append(self._write(block.first, block.content))
        self._blocks.append(self._write(first, content))

    def _write(self, first: tuple[int, ...], content: pa.RecordBatch) -> _Block:
        assert self._file is not None
        data = pack(content, "lz4")
        self._file.write(data)
        place = self._end, data.size
        self._end += data.size
        return _Block(first, None, place)

    def close(self) -> None:
        """Discard the rows that have not been returned."""
        if self._file is not None:
            self._file.close()
        self._file, self._blocks = None, []

    def __iter__(self) -> Iterator[pa.Table]:
        """All rows in order, in tables of about a block each; what has been returned is not kept."""
        file, blocks = self._file, self._blocks
        self._file, self._blocks = None, []
        if file is None:
            yield from self._merged(blocks, None)
        else:
            with file:
                file.flush()
                yield from self._merged(blocks, file)

    def _merged(self, blocks: list[_Block], file: IO[bytes] | None) -> Iterator[pa.Table]:
        order = sorted(range(len(blocks)), key=lambda i: (blocks[i].first, i))
        held: list[_Held] = []
        for position, number in enumerate(order):
            content = _read(blocks[number], file)
            blocks[number] = _Block(blocks[number].first, None)
            held.append(_Held(number, self._keys(content), content))
            self.most_held = max(self.most_held, sum(len(each.keys[0]) for each in held))
            following = order[position + 1] if position + 1 < len(order) else None
            parts = []
            for each in sorted(held, key=lambda each: each.number):
                end = len(each.keys[0])
                if following is not None:
                    end = each.below(blocks[following].first, following, not self._minor)
                if end > each.at:
                    parts.append(each.content.slice(each.at, end - each.at))
                    each.at = end
            held = [each for each in held if each.at < len(each.keys[0])]
            made()
            if parts:
                yield self._sorted(parts)

    def _sorted(self, parts: list[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(parts)
        if len(parts) == 1 or not self._minor:
            return table
        keys = [np.concatenate(column) for column in zip(*map(self._keys, parts), strict=True)]
        order = np.lexsort(keys[::-1])
        return table if (np.diff(order) == 1).all() else table.take(pa.array(order))


def _read(block: _Block, file: IO[bytes] | None) -> pa.RecordBatch:
    if block.content is not None:
        return block.content
    assert file is not None
    start, size = block.place
    return unpack(os.pread(file.fileno(), size, start))


def _local_folder() -> str | None:
    """Where Spark keeps its spill files; None outside of Spark: where the system keeps temporary files."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
