"""Words as bytes in flat arrays, and an exact lookup from a word to its code.

Words are (offsets int32[n + 1], bytes uint8[...]), as in Arrow. The table uses open addressing with linear probing over
a keyed hash, and begins with the hash's seed (:mod:`spatialstream.model.hashing`). A hit is always verified against the
bytes, so a lookup never returns the code of a different word.

Cost: 5 to 11 bytes of table per word; a lookup reads one or two slots and compares one word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Bytes, Codes, grown, wide
from spatialstream.model.arrays import string_view
from spatialstream.model.eight_bytes import signed
from spatialstream.model.hashing import Seed, keyed_word, same_bytes
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = [
    "Strings",
    "add_word",
    "compare",
    "compare_words",
    "concatenate",
    "find_word",
    "from_arrow",
    "gather",
    "pack",
    "room_of",
    "slots_of",
    "slots_with",
    "to_arrow",
]

Strings = tuple[Codes, Array]
"""Lists as (offsets int32[n + 1], values): strings, or sets of codes. The first offset is 0."""

_LARGEST = 2**31 - 1

_HEAD = 4
"""Length of a table's header, its seed, in int32."""


def pack(words: Sequence[str]) -> tuple[Codes, Bytes]:
    """Pack words as (offsets, bytes)."""
    offsets = np.zeros(len(words) + 1, np.int32)
    if not words:
        return offsets, np.empty(0, np.uint8)
    coded = [word.encode() for word in words]
    end = 0
    for i, word in enumerate(coded):
        end += len(word)
        offsets[i + 1] = end
    return offsets, np.frombuffer(bytearray(b"".join(coded)) or bytearray(1), np.uint8)


def concatenate(parts: Sequence[Strings]) -> Strings:
    """Concatenate lists: (offsets, values) of all.

    Raises:
        OverflowError: the offsets need more than 31 bits.
    """
    offsets, base = [np.zeros(1, np.int32)], 0
    for part, values in parts:
        if base + len(values) > _LARGEST:
            raise OverflowError("a segment's offsets are limited to 31 bits")
        offsets.append(part[1:] + np.int32(base))
        base += int(part[-1])
    return np.concatenate(offsets), np.concatenate([values for _, values in parts])


def to_arrow(offsets: Codes, data: Bytes) -> pa.StringArray:
    """Convert (offsets, bytes) to an Arrow array, without a copy."""
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def from_arrow(strings: pa.StringArray) -> tuple[Codes, Bytes]:
    """(offsets from 0, bytes) of an Arrow array, which may be a slice."""
    offsets, data = string_view(strings)
    return offsets - offsets[0], data[int(offsets[0]) : int(offsets[-1])]


@kernel
def gather(offsets: Array, data: Array, rows: Array) -> tuple[Array, Array]:
    """Copy the words at ``rows`` (int64), in that order, in Arrow's format: (offsets, bytes)."""
    taken, size = np.zeros(len(rows) + 1, np.int32), 0
    for i in range(len(rows)):
        size += wide(offsets[rows[i] + 1]) - wide(offsets[rows[i]])
        if size > _LARGEST:
            raise OverflowError("an Arrow array holds at most 2 GiB of strings")
        taken[i + 1] = size
    copied = np.empty(size, np.uint8)
    for i in range(len(rows)):
        start = offsets[rows[i]]
        for j in range(taken[i], taken[i + 1]):
            copied[j] = data[start]
            start += 1
    return taken, copied


@lean_kernel
def compare(a: Array, start: int, end: int, b: Array, other_start: int, other_end: int) -> int:
    """Negative, zero or positive if word a[start:end] is before, equal to or after word b[other_start:other_end]."""
    while start < end and other_start < other_end:
        if a[start] != b[other_start]:
            return wide(a[start]) - wide(b[other_start])
        start += 1
        other_start += 1
    return (end - start) - (other_end - other_start)


@lean_kernel
def compare_words(offsets: Array, data: Array, a: int, b: int) -> int:
    """As :func:`compare`, for words a and b of one list; for UTF-8 this is the order of code points."""
    return compare(data, offsets[a], offsets[a + 1], data, offsets[b], offsets[b + 1])


@kernel
def _seed(slots: Array) -> Seed:
    return slots[:_HEAD].view(np.uint64)


@lean_kernel
def _slot(slots: Array, offsets: Array, data: Array, other: Array, start: int, end: int) -> int:
    """The slot with the word other[start:end], or the free slot where it belongs."""
    mask = len(slots) - _HEAD - 1
    slot = signed(keyed_word(other, start, end, slots[:_HEAD].view(np.uint64))) & mask
    while slots[_HEAD + slot] >= 0:
        code = slots[_HEAD + slot]
        length = offsets[code + 1] - offsets[code]
        if length == end - start and same_bytes(data, offsets[code], other, start, length):
            break
        slot = (slot + 1) & mask
    return _HEAD + slot


@kernel
def _capacity(words: int) -> int:
    size = 2
    while 3 * size < 4 * words + 4:
        size *= 2
    return size


@kernel
def slots_with(seed: Seed, offsets: Array, data: Array, n: int, room: int) -> Array:
    """Build the table of the first n words, which must be distinct, with room for ``room`` words.

    Returns:
        int32: the seed, then codes; -1 in free slots.
    """
    slots = np.full(_HEAD + _capacity(room), -1, np.int32)
    slots[:_HEAD] = seed.view(np.int32)
    for code in range(n):
        slots[_slot(slots, offsets, data, data, offsets[code], offsets[code + 1])] = code
    return slots


@kernel
def slots_of(slots: Array, offsets: Array, data: Array, n: int, room: int) -> Array:
    """As :func:`slots_with`, with the seed of another table."""
    return slots_with(_seed(slots), offsets, data, n, room)


@lean_kernel
def room_of(slots: Array) -> int:
    """Number of slots of a table."""
    return len(slots) - _HEAD


@lean_kernel
def find_word(slots: Array, offsets: Array, data: Array, other: Array, start: int, end: int) -> int:
    """The code of the word other[start:end], or -1."""
    return wide(slots[_slot(slots, offsets, data, other, start, end)])


@kernel
def add_word(
    slots: Array, offsets: Array, data: Array, n: int, other: Array, start: int, end: int
) -> tuple[int, int, Array]:
    """Find the word other[start:end], or add it as word n: (its code, new n, bytes of all words).

    ``slots`` and ``offsets`` must have room for it; ``data`` is replaced by a larger array if full.
    """
    slot = _slot(slots, offsets, data, other, start, end)
    if slots[slot] >= 0:
        return wide(slots[slot]), n, data
    at = wide(offsets[n])
    if at + end - start > len(data):
        data = grown(data, at, 2 * (at + end - start) + 1024)
    for i in range(start, end):
        data[at + i - start] = other[i]
    offsets[n + 1] = at + end - start
    slots[slot] = n
    return n, n + 1, data
