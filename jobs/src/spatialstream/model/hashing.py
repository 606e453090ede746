"""Stable 64-bit hashes of strings, and frozen tables keyed by them.

Routing decisions have to be the same in every process and in every replay, so they may not use Python's ``hash``. The
hash here is FNV-1a over the UTF-8 bytes, with the finaliser of MurmurHash3. Whoever needs identity compares the bytes
too; routing does not, since taking two terms for one may send an object to a leaf other than the best one, but never a
query to too few.

Cost: O(bytes) to hash, O(1) expected to find (open addressing, at most half full).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.arrays import string_view
from spatialstream.model.kernels import kernel

__all__ = ["Table", "find_all", "hash_bytes", "hash_strings", "make_table", "mix", "prepare"]


class Table(NamedTuple):
    """A frozen table: the position of a hash, ``values[i]`` (int32, -1 where free) for ``keys[i]`` (uint64)."""

    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.int32]


_OFFSET = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


@kernel
def mix(value: Any) -> Any:
    """A uint64 with every bit of ``value`` (uint64) spread over all bits."""
    value ^= value >> _SHIFT
    value *= _FIRST
    value ^= value >> _SHIFT
    value *= _SECOND
    return value ^ (value >> _SHIFT)


@kernel
def hash_bytes(data: npt.NDArray[np.uint8], start: int, end: int) -> Any:
    """The hash (uint64) of ``data[start:end]``."""
    value = _OFFSET
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * _PRIME
    return mix(value)


@kernel
def _hash_all(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint64]) -> None:
    for i in range(len(out)):
        out[i] = hash_bytes(data, offsets[i], offsets[i + 1])


@kernel
def _fill(hashes: npt.NDArray[np.uint64], keys: npt.NDArray[np.uint64], values: npt.NDArray[np.int32]) -> None:
    last = np.uint64(len(keys) - 1)
    for i in range(len(hashes)):
        at = hashes[i] & last
        while values[at] >= 0 and keys[at] != hashes[i]:
            at = (at + np.uint64(1)) & last
        if values[at] < 0:
            keys[at] = hashes[i]
            values[at] = i


@kernel
def _find_all(
    keys: npt.NDArray[np.uint64],
    values: npt.NDArray[np.int32],
    hashes: npt.NDArray[np.uint64],
    out: npt.NDArray[np.int32],
) -> None:
    last = np.uint64(len(keys) - 1)
    for i in range(len(hashes)):
        at = hashes[i] & last
        while values[at] >= 0 and keys[at] != hashes[i]:
            at = (at + np.uint64(1)) & last
        out[i] = values[at]


def hash_strings(strings: pa.StringArray) -> npt.NDArray[np.uint64]:
    """The hashes uint64[n] of n strings without nulls."""
    offsets, data = string_view(strings)
    out = np.empty(len(strings), np.uint64)
    _hash_all(offsets, data, out)
    return out


def make_table(hashes: npt.NDArray[np.uint64]) -> Table:
    """A table that finds the position of each of ``hashes``."""
    capacity = 1 << (2 * len(hashes)).bit_length()
    keys, values = np.zeros(capacity, np.uint64), np.full(capacity, -1, np.int32)
    _fill(hashes, keys, values)
    return Table(keys, values)


def find_all(table: Table, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The position in the table of each hash; -1 where it has none."""
    out = np.empty(len(hashes), np.int32)
    _find_all(table.keys, table.values, hashes, out)
    return out


def prepare() -> None:
    """Compile all kernels of this module."""
    hashes = hash_strings(pa.array(["a"]))
    find_all(make_table(hashes), hashes)
