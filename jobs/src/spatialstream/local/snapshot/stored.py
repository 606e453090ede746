"""The fields of a segment's objects that the stream keeps, compressed in blocks (as Lucene's stored fields are).

Consecutive objects, which lie near each other, make a block of about 16 KiB: their fields as lines, compressed by zstd.
A block is decompressed when a row shows one of its objects, and not kept. Blocks are flat arrays, mapped from the
segment's file as all its arrays are.

Cost: about 2 us an object to build; 30 us for each block that is looked into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Bytes, Ints

__all__ = ["StoredBlocks"]

_BLOCK_BYTES = 16 << 10
_CODEC = "zstd"


@dataclass(frozen=True, slots=True, eq=False)
class StoredBlocks:
    """The fields of n objects.

    Attributes:
        firsts: int64[blocks + 1], the first object of each block, and n.
        ends: int64[blocks + 1], where each block begins in ``data``, and its length.
        sizes: int64[blocks], their sizes when they are decompressed.
        data: uint8, the compressed blocks.
    """

    firsts: Ints
    ends: Ints
    sizes: Ints
    data: Bytes

    @classmethod
    def of(cls, column: pa.LargeStringArray) -> StoredBlocks:
        """Compress a column of fields, one text each, without line feeds."""
        n = len(column)
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + n + 1]
        _, begins = np.unique((offsets[:-1] - offsets[0]) // _BLOCK_BYTES, return_index=True)
        firsts = np.append(begins, n).astype(np.int64)
        pieces, sizes = list[bytes](), list[int]()
        for first, last in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True):
            lines = "\n".join(column.slice(first, last - first).to_pylist()).encode()
            sizes.append(len(lines))
            pieces.append(pa.compress(lines, _CODEC, asbytes=True))
        ends = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
        return cls(firsts, ends, np.array(sizes, np.int64), np.frombuffer(b"".join(pieces), np.uint8))

    def __len__(self) -> int:
        """Number of objects."""
        return int(self.firsts[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.firsts.nbytes + self.ends.nbytes + self.sizes.nbytes + self.data.nbytes

    def at(self, positions: Array) -> pa.LargeStringArray:
        """The fields of the objects at these positions."""
        block = np.searchsorted(self.firsts, positions, "right") - 1
        found: list[bytes] = [b""] * len(positions)
        order = np.argsort(block, kind="stable")
        used, begins = np.unique(block[order], return_index=True)
        for number, rows in zip(used.tolist(), np.split(order, begins[1:]), strict=False):
            lines, first = self._lines(number), int(self.firsts[number])
            for row, position in zip(rows.tolist(), positions[rows].tolist(), strict=True):
                found[row] = lines[position - first]
        return pa.array(found, pa.large_binary()).cast(pa.large_string())

    def all(self) -> pa.LargeStringArray:
        """The fields of all objects."""
        lines = [line for number in range(len(self.sizes)) for line in self._lines(number)]
        return pa.array(lines, pa.large_binary()).cast(pa.large_string())

    def _lines(self, number: int) -> list[bytes]:
        piece = pa.py_buffer(self.data[int(self.ends[number]) : int(self.ends[number + 1])])
        whole: bytes = pa.decompress(piece, int(self.sizes[number]), _CODEC, asbytes=True)
        return whole.split(b"\n")

    @staticmethod
    def merged(parts: Sequence[StoredBlocks | None], sizes: Sequence[int], order: Array) -> StoredBlocks | None:
        """Those of the objects of several segments of so many, in a new order; None if none has any."""
        if all(part is None for part in parts):
            return None
        columns = [
            pa.array([""] * size, pa.large_string()) if part is None else part.all()
            for part, size in zip(parts, sizes, strict=True)
        ]
        return StoredBlocks.of(pa.concat_arrays(columns).take(pa.array(order)))

    def to_arrays(self) -> dict[str, Array]:
        """Serialize as named arrays."""
        return {f"stored_{name}": getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> StoredBlocks:
        """Deserialize the result of :meth:`to_arrays`, without a copy."""
        return cls(*(arrays[f"stored_{name}"] for name in cls.__slots__))
