"""Exact keyword lookup for complete vocabularies: from the words of a batch to their numbers in an index.

Indexes work on small integers, batches contain words. :class:`TermKeys` computes keys for the words of a batch once: a
word of up to 8 bytes *is* its key. :class:`KeywordTable`, an open-addressing hash table, then looks up each word in an
index's own vocabulary and verifies it, by length and key or by its bytes. So hash collisions of different words never
lead to a wrong answer. The key of a longer word is a hash of 64 bits that each table computes with its own seed
(:mod:`spatialstream.model.hashing`), as it does positions: no choice of words makes a table slow.

Cost: O(bytes) for the keys of the words that a batch uses, one or two cache lines per word and table for the lookup,
and a pass over the bytes of long words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Bytes, Codes, Ints
from spatialstream.model.arrays import string_view
from spatialstream.model.eight_bytes import folded, signed
from spatialstream.model.hashing import Seed, keyed_word, same_bytes, seed_of
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.terms import TermLists

__all__ = ["Int", "KeywordTable", "TermKeys"]

Int = int | np.int64
"""A 64-bit integer in a kernel: numba does not distinguish the two types."""


_MIX = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer
_INLINE = 8  # words of so many bytes are their own key


@lean_kernel
def _key(data: Bytes, first: Int, last: Int) -> Int:
    if last - first <= _INLINE:
        key = np.int64(0)
        for i in range(first, last):
            key = (key << 8) | np.int64(data[i])
        return key
    key = np.int64(last - first)
    for i in range(first, last):
        key = (key ^ np.int64(data[i])) * _MIX
        key ^= (key >> 29) & 0x7FFFFFFFF
    return key


@lean_kernel
def _table_key(data: Bytes, first: int, length: int, key: Int, seed: Seed) -> Int:
    """The key of a word in one table; ``key`` is its table-independent key."""
    return key if length <= _INLINE else signed(keyed_word(data, first, first + length, seed))


@lean_kernel
def _bucket(key: Int, length: Int, bits: int, seed: Seed) -> Int:
    mixed = np.int64(folded(np.uint64(key) ^ seed[0], np.uint64(length) ^ seed[1]))
    return (mixed >> (64 - bits)) & ((np.int64(1) << bits) - 1)


@kernel
def _used_codes(codes: Codes, words: int) -> Codes:
    used = np.zeros(words, np.uint8)
    for code in codes:
        used[code] = 1
    count = 0
    for word in range(words):
        count += used[word]
    result = np.empty(count, np.int32)
    count = 0
    for word in range(words):
        if used[word]:
            result[count] = word
            count += 1
    return result


@kernel
def _keys(offsets: Codes, data: Bytes, used: Codes) -> Ints:
    keys = np.empty(len(used), np.int64)
    for i in range(len(used)):
        keys[i] = _key(data, offsets[used[i]], offsets[used[i] + 1])
    return keys


@kernel
def _build_table(offsets: Codes, data: Bytes, seed: Seed) -> Ints:
    words = len(offsets) - 1
    bits = 2
    while (1 << bits) < 2 * words:
        bits += 1
    slots = np.zeros((1 << bits, 2), np.int64)
    for word in range(words):
        first = signed(offsets[word])
        length = signed(offsets[word + 1]) - first
        key: Int = np.int64(0)
        if length <= _INLINE:
            key = _key(data, first, first + length)
        key = _table_key(data, first, length, key, seed)
        slot = _bucket(key, length, bits, seed)
        while slots[slot, 1] != 0:
            slot = (slot + 1) & ((1 << bits) - 1)
        slots[slot, 0] = key
        slots[slot, 1] = (length << 32) | (word + 1)
    return slots


@kernel
def _translate(
    slots: Ints,
    seed: Seed,
    offsets: Codes,
    data: Bytes,
    tags: Ints,
    batch_offsets: Codes,
    batch_data: Bytes,
    used: Codes,
    keys: Ints,
) -> Ints:
    result = np.empty(len(used), np.int64)
    bits = 2
    while (1 << bits) < len(slots):
        bits += 1
    for i in range(len(used)):
        first = signed(batch_offsets[used[i]])
        length = signed(batch_offsets[used[i] + 1]) - first
        key = _table_key(batch_data, first, length, keys[i], seed)
        slot = _bucket(key, length, bits, seed)
        value = np.int64(0)
        while slots[slot, 1] != 0:
            entry = slots[slot, 1]
            if slots[slot, 0] == key and entry >> 32 == length:
                word = (entry & 0xFFFFFFFF) - 1
                if length <= _INLINE or same_bytes(batch_data, first, data, offsets[word], length):
                    value = tags[word]
                    break
            slot = (slot + 1) & (len(slots) - 1)
        result[i] = value
    return result


@dataclass(frozen=True, slots=True, eq=False)
class TermKeys:
    """The keys of the words that a batch uses, for lookup in any number of tables.

    Attributes:
        offsets, data: the batch's vocabulary.
        used: int32[m], codes of the words in use, ascending.
        keys: int64[m], the bytes of each word, or a hash that is the same in every process.
    """

    offsets: Codes
    data: Bytes
    used: Codes
    keys: Ints

    @classmethod
    def of(cls, terms: TermLists) -> TermKeys:
        """Compute the keys of the words that occur in ``terms``."""
        offsets, data = string_view(terms.vocabulary)
        used = _used_codes(terms.codes, len(terms.vocabulary))
        return cls(offsets, data, used, _keys(offsets, data, used))

    @classmethod
    def of_vocabulary(cls, vocabulary: pa.StringArray) -> TermKeys:
        """Compute the keys of all words of a vocabulary."""
        offsets, data = string_view(vocabulary)
        used = np.arange(len(vocabulary), dtype=np.int32)
        return cls(offsets, data, used, _keys(offsets, data, used))


@dataclass(frozen=True, slots=True, eq=False)
class KeywordTable:
    """An index's vocabulary as a hash table in flat arrays; word i of the vocabulary has number i.

    Attributes:
        slots: int64[2^b, 2], open addressing: key; length << 32 | number + 1.
        seed: seed of the keys and positions.
        offsets, data: the words.
    """

    slots: Ints
    seed: Seed
    offsets: Codes
    data: Bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def build(cls, vocabulary: pa.StringArray) -> KeywordTable:
        """Build the table of a vocabulary of distinct words."""
        offsets, data = string_view(vocabulary)
        first, last = int(offsets[0]), int(offsets[-1])
        offsets, data = offsets - np.int32(first), data[first:last].copy()
        seed = seed_of(offsets, data)
        return cls(_build_table(offsets, data, seed), seed, offsets, data)

    @property
    def vocabulary(self) -> pa.StringArray:
        """The words, as a view."""
        return pa.StringArray.from_buffers(len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.data))

    def translate(self, keys: TermKeys, tags: Ints) -> Ints:
        """Look up the words of a batch: the tag of each word, or 0 if the table does not contain it.

        Args:
            keys: the batch's words.
            tags: int64[len(self)], the tag of each word of the table.

        Returns:
            int64[len(keys.used)], in the order of ``keys``.
        """
        return _translate(
            self.slots, self.seed, self.offsets, self.data, tags, keys.offsets, keys.data, keys.used, keys.keys
        )

    def to_arrays(self) -> dict[str, Array]:
        """Serialize as flat arrays, see :meth:`from_arrays`."""
        return {f"keyword_{name}": getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> KeywordTable:
        """Deserialize the result of :meth:`to_arrays`; nothing is rebuilt."""
        return cls(*(arrays[f"keyword_{name}"] for name in cls.__slots__))
