"""Hashes of strings and numbers, and hash tables.

There are two kinds of hash, so that an attacker cannot make a table slow by choosing its keys (Crosby, Wallach,
"Denial of service via algorithmic complexity attacks", USENIX Security 2003):

- A *stable* hash identifies a string in every process and every replay; Python's ``hash`` does not, so routing
  decisions may not use it. It is FNV-1a over the UTF-8 bytes with the finaliser of MurmurHash3, so it is easy to
  construct strings with equal hashes. Code that needs identity also compares the bytes. Routing does not: confusing two
  terms may send an object to a leaf other than the best one, but never sends a query to too few leaves.
- A *keyed* hash determines the position in one table. It depends on a seed of 128 bits that an attacker does not know,
  and uses the multiplication of wyhash and foldhash: xor with one half of the seed, multiply by the other half, and xor
  the upper half of the product with the lower. What two inputs have in common, or how they differ, then says nothing
  about their positions under most seeds; a chain of such steps, eight bytes each, has no collisions that hold for many
  seeds. Numbers in equal steps have positions in equal steps, which some seeds (3 in 1,000 tried) make long runs of;
  nobody can choose numbers for a seed that nobody knows. The seed affects only the cost of a table, never its results.

Seeds come from :func:`process_seed` (random) for tables that stay in their process, and from :func:`seed_of` (a digest
of the table's contents) for tables in files. The latter can be computed by anybody, but only from the complete
contents: choosing words that collide under the seed that they themselves produce means finding a fixed point of BLAKE2.
So files with equal content have equal bytes, whichever process writes them, and contain the seed of their tables.

Cost: O(bytes) to hash, expected O(1) to look up (open addressing, linear probing).
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Array, Bytes, Codes, Ints, Words, string_view
from spatialstream.model.eight_bytes import folded, load, signed
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = [
    "Seed",
    "Table",
    "distinct",
    "distinct_words",
    "find_all",
    "hash_bytes",
    "hash_strings",
    "keyed_hashes",
    "keyed_number",
    "keyed_word",
    "make_table",
    "mix",
    "prepare",
    "process_seed",
    "same_bytes",
    "seed_of",
]

Seed = Words
"""The seed of a keyed hash, uint64[2]; the second number is odd."""


class Table(NamedTuple):
    """An immutable hash table from stable hashes to positions.

    Attributes:
        keys: uint64[2^b], the stable hash in each table slot.
        values: int32[2^b], its position; -1 in a free table slot.
        seed: seed of the keyed hash, kept so that the table can be read in every process that it is sent to.
    """

    keys: Words
    values: Codes
    seed: Seed


_OFFSET = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)
_FIRST = np.uint64(0xFF51AFD7ED558CCD)
_SECOND = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)


# ---------------------------------------------------------------------------------------------------------- stable


@lean_kernel
def mix(value: Any) -> Any:
    """Spread every bit of ``value`` (uint64) over all bits of the result (uint64)."""
    value ^= value >> _SHIFT
    value *= _FIRST
    value ^= value >> _SHIFT
    value *= _SECOND
    return value ^ (value >> _SHIFT)


@lean_kernel
def hash_bytes(data: Bytes, start: int, end: int) -> Any:
    """The stable hash (uint64) of ``data[start:end]``."""
    value = _OFFSET
    for i in range(start, end):
        value = (value ^ np.uint64(data[i])) * _PRIME
    return mix(value)


@kernel
def _hash_all(offsets: Codes, data: Bytes, out: Words) -> None:
    for i in range(len(out)):
        out[i] = hash_bytes(data, offsets[i], offsets[i + 1])


def hash_strings(strings: pa.StringArray) -> Words:
    """Compute the stable hashes uint64[n] of n strings without nulls."""
    offsets, data = string_view(strings)
    out = np.empty(len(strings), np.uint64)
    _hash_all(offsets, data, out)
    return out


# ----------------------------------------------------------------------------------------------------------- keyed


def _seed(random: bytes) -> Seed:
    seed = np.frombuffer(bytearray(random), np.uint64)  # a bytearray, because kernels require writable arrays
    seed[1] |= np.uint64(1)
    return seed


_PROCESS_SEED = _seed(os.urandom(16))


def process_seed() -> Seed:
    """The random seed of this process (and of its forks), for tables that never leave it.

    Kernels receive it as an argument: module constants that a kernel uses become part of the cached machine code.
    """
    return _PROCESS_SEED


def seed_of(*contents: Array) -> Seed:
    """Derive the seed of a table that is written to a file from arrays that together determine its contents."""
    digest = hashlib.blake2b(digest_size=16)
    for array in contents:
        digest.update(array.nbytes.to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return _seed(digest.digest())


@lean_kernel
def keyed_number(number: np.uint64, seed: Seed) -> np.uint64:
    """The keyed hash of a number."""
    return folded(number ^ seed[0], seed[1])


@lean_kernel
def keyed_word(data: Bytes, start: int, end: int, seed: Seed) -> np.uint64:
    """The keyed hash of ``data[start:end]``.

    Only strings below eight bytes that begin with a byte below 8 have the hash of another one whatever the seed.
    """
    state = seed[0] ^ np.uint64(end - start)
    if end - start < 8:
        word = np.uint64(0)
        for i in range(start, end):
            word = word << np.uint64(8) | np.uint64(data[i])
        return folded(state ^ word, seed[1])
    i = start
    while i + 8 < end:
        state = folded(state ^ load(data, i), seed[1])
        i += 8
    return folded(state ^ load(data, end - 8), seed[1])


@lean_kernel
def same_bytes(left: Bytes, at: int, right: Bytes, other: int, length: int) -> bool:
    """Whether ``left[at : at + length]`` equals ``right[other : other + length]``."""
    same = 0
    while same < length and left[at + same] == right[other + same]:
        same += 1
    return same == length


@kernel
def _keyed_all(offsets: Codes, data: Bytes, seed: Seed, out: Words) -> None:
    for i in range(len(out)):
        out[i] = keyed_word(data, offsets[i], offsets[i + 1], seed)


def keyed_hashes(strings: pa.StringArray, seed: Seed) -> Words:
    """Compute the keyed hashes uint64[n] of n strings without nulls."""
    offsets, data = string_view(strings)
    out = np.empty(len(strings), np.uint64)
    _keyed_all(offsets, data, seed, out)
    return out


# ---------------------------------------------------------------------------------------------------------- tables


@kernel
def _fill(hashes: Words, seed: Seed, keys: Words, values: Codes) -> None:
    last = np.uint64(len(keys) - 1)
    for i in range(len(hashes)):
        at = keyed_number(hashes[i], seed) & last
        while values[at] >= 0 and keys[at] != hashes[i]:
            at = (at + np.uint64(1)) & last
        if values[at] < 0:
            keys[at] = hashes[i]
            values[at] = i


@kernel
def _find_all(keys: Words, values: Codes, seed: Seed, hashes: Words, out: Codes) -> None:
    last = np.uint64(len(keys) - 1)
    for i in range(len(hashes)):
        at = keyed_number(hashes[i], seed) & last
        while values[at] >= 0 and keys[at] != hashes[i]:
            at = (at + np.uint64(1)) & last
        out[i] = values[at]


def make_table(hashes: Words) -> Table:
    """Build a table that maps each of ``hashes`` to its position (the first one, for duplicates)."""
    capacity = 1 << (2 * len(hashes)).bit_length()
    keys, values = np.zeros(capacity, np.uint64), np.full(capacity, -1, np.int32)
    seed = process_seed()
    _fill(hashes, seed, keys, values)
    return Table(keys, values, seed)


def find_all(table: Table, hashes: Words) -> Codes:
    """Look up the position of each hash; -1 if the table does not contain it."""
    out = np.empty(len(hashes), np.int32)
    _find_all(table.keys, table.values, table.seed, hashes, out)
    return out


@kernel
def _distinct(offsets: Codes, data: Bytes, seed: Seed, slots: Codes) -> tuple[Codes, Ints]:
    n = len(offsets) - 1
    last = signed(len(slots) - 1)
    codes, firsts = np.empty(n, np.int32), np.empty(n, np.int64)
    m = 0
    for row in range(n):
        start, end = signed(offsets[row]), signed(offsets[row + 1])
        slot = signed(keyed_word(data, start, end, seed)) & last
        while slots[slot] >= 0:
            other = signed(offsets[slots[slot]])
            length = signed(offsets[slots[slot] + 1]) - other
            if length == end - start and same_bytes(data, other, data, start, length):
                break
            slot = (slot + 1) & last
        if slots[slot] < 0:
            slots[slot] = row
            codes[row] = m
            firsts[m] = row
            m += 1
        else:
            codes[row] = codes[slots[slot]]
    return codes, firsts[:m].copy()


def distinct_words(offsets: Codes, data: Bytes) -> tuple[Codes, Ints]:
    """As :func:`distinct`, for n strings given as (offsets int32[n + 1], bytes)."""
    slots = np.full(1 << (3 * len(offsets) // 2).bit_length(), -1, np.int32)
    codes, firsts = _distinct(offsets, data, process_seed(), slots)
    return codes, firsts


def distinct(strings: pa.StringArray) -> tuple[Codes, Ints]:
    """Dictionary-encode n strings without nulls. Arrow's dictionary_encode is not used: its hash is open to collisions.

    Returns:
        the code of each string, int32[n]; and for each of the m codes, which are in the order of first appearance, the
        row of its first appearance, int64[m].
    """
    return distinct_words(*string_view(strings))


def prepare() -> None:
    """Compile all kernels of this module."""
    strings = pa.array(["a", "a long word"])
    hashes = hash_strings(strings)
    find_all(make_table(hashes), hashes)
    keyed_hashes(strings, seed_of(hashes))
    distinct(strings)
