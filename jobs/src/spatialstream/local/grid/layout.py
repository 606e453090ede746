"""The memory layout of a grid, shared by building and matching.

- ``directory`` int64[2^b, 2], a hash table of the cells: key of the cell (:func:`cell_key`); position in ``slots`` <<
  12 | level << 6 | log2 of its number of slots.
- ``slots`` int64[s], for each cell its filter (:func:`filter_words`), then a hash table of its keywords: word + 1 << 32
  | first posting.
- ``postings`` int64[p, 2], those of a keyword of a cell are consecutive: the columns of the query's cover inside the
  cell, low | high << 16 (:func:`within`) | likewise the rows << 32; query << 3 | flags | signature bits of two more
  keywords, 6 bits each << 32 | number of remaining postings of the list << 44.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spatialstream.local.arrays import Bytes, Codes, Floats, Ints
from spatialstream.local.keywords import Int
from spatialstream.model.hashing import Seed, keyed_number
from spatialstream.model.kernels import lean_kernel
from spatialstream.model.space import Space

__all__ = [
    "CHECK_KEYWORDS",
    "CHECK_REGION",
    "LONGEST",
    "MAX_LEVEL",
    "Index",
    "bucket",
    "cell_key",
    "cell_of_key",
    "coordinate",
    "filter_words",
    "frame_of",
    "top",
    "within",
    "word_hash",
]

MAX_LEVEL = 20
"""Deepest level of the pyramid; level l has 2^l x 2^l cells."""

CHECK_REGION, CHECK_KEYWORDS = 2, 4
"""Flags of a posting: checks that its rectangle and its signature cannot decide."""

LONGEST = (1 << 19) - 1
"""Largest remaining length of a list that a posting can store."""

_MIX = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer
_TOP = 4294967295.0


class Index(NamedTuple):
    """The data of a grid that matching reads.

    Attributes:
        seed: seed of the positions of cells and of the numbers of words.
        directory, slots, postings: cells, their keywords, their posting lists.
        kind, shape: the queries' regions.
        geometry: int32[n], the query's polygon in ``polygons``, or -1.
        polygons: float64[...], the distinct polygons, see :mod:`spatialstream.model.polygons.packing`.
        keyword_lists, keyword_codes: the queries' keywords, as numbers.
    """

    seed: Seed
    directory: Ints
    slots: Ints
    postings: Ints
    kind: Bytes
    shape: Floats
    geometry: Codes
    keyword_lists: Codes
    keyword_codes: Codes
    polygons: Floats


@lean_kernel
def coordinate(value: float, low: float, scale: float) -> Int:
    """Monotone in ``value``: 0 .. 2^32 - 1 over the space, clamped outside."""
    return np.int64(min(max((value - low) * scale, 0.0), _TOP))


def frame_of(space: Space) -> Floats:
    """west, south, east, north, scale of x, scale of y, geographic."""
    west, south, east, north = space.bounds
    scale_x, scale_y = (min(2.0**32 / extent, 1e300) for extent in (east - west, north - south))
    return np.array([west, south, east, north, scale_x, scale_y, float(space.geographic)])


@lean_kernel
def bucket(key: Int, bits: Int, seed: Seed) -> Int:
    """First position to probe for a cell in a table of 2^bits."""
    return (np.int64(keyed_number(np.uint64(key), seed)) >> (64 - bits)) & ((np.int64(1) << bits) - 1)


@lean_kernel
def word_hash(word: Int) -> Int:
    """Hash of a word's number. Numbers are already random; multiplying by the golden ratio only fills all bits."""
    return word * _MIX


@lean_kernel
def top(hash_: Int, bits: Int) -> Int:
    """First position to probe for a word in a table of 2^bits: the highest bits of its hash."""
    return (hash_ >> (64 - bits)) & ((np.int64(1) << bits) - 1)


@lean_kernel
def filter_words(bits: Int) -> Int:
    """Length of the filter of a cell with 2^bits slots: one byte per slot."""
    return (np.int64(1) << max(bits, 3)) >> 3


@lean_kernel
def cell_key(level: Int, column: Int, row: Int) -> Int:
    """Encode a cell as one number, never 0."""
    return (np.int64(level) << 40 | np.int64(column) << 20 | np.int64(row)) + 1


@lean_kernel
def cell_of_key(key: Int) -> tuple[Int, Int, Int]:
    """Decode a cell's key: level, column and row."""
    return (key - 1) >> 40, (key - 1) >> 20 & 0xFFFFF, (key - 1) & 0xFFFFF


@lean_kernel
def within(coordinate: Int, level: Int) -> Int:
    """The position of a 32-bit coordinate within its cell, in 15 bits."""
    return ((coordinate << level) & 0xFFFFFFFF) >> 17
