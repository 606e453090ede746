"""Signatures: which words the objects of a block may have, where and when they are, so that a search can skip it.

A *block* is a run of :data:`BLOCK` objects of a segment in Z-order, which lie near each other. Its signature (Faloutsos
and Christodoulakis, "Signature files", ACM TOIS 1984) is the box of its objects, the range of their timestamps, and a
Bloom filter of their words: a blocked one (Putze, Sanders and Singler, "Cache-, hash- and space-efficient Bloom
filters", WEA 2007), in which all bits of a word are in one *line* of 512 bits, so a look-up reads one cache line.

A signature rules a query out if its box is outside the query's region, its timestamps are outside the query's range, or
if of each of the query's groups of words a word is not in its filter. What it rules out has no object that satisfies
the query; what it does not rule out may have none either: some words that it does not have look as if it had them. So
whoever skips what is ruled out finds all that there is to be found. A filter that lacks a word would lose objects.

Of many blocks some one has any word by chance. So a segment of several blocks has a filter of all its words too, which
is wrong about one word in 200, and those of its blocks may be smaller: they are wrong about one in 17.

A filter is a function of the set of words and the number of its lines, by a stable hash: it means the same in every
process. Words with colliding hashes (which can be made up) cost a search of a block that could be skipped, no object.

Cost: about 6 bytes an object with 8 words; 0.2 us an object to build, with each merge of its segment again; some
nanoseconds to rule out a segment or a block.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.arrays import Array, Bytes, Codes, Floats, Ints, Words, grown, wide
from spatialstream.local.snapshot.addresses import Columns, array_at, place_of
from spatialstream.local.snapshot.termlists import get_unit
from spatialstream.local.snapshot.zranges import nearest_bound
from spatialstream.model.eight_bytes import signed
from spatialstream.model.hashing import hash_bytes, hash_strings, mix
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = ["BITS", "BLOCK", "BLOCK_BITS", "Signatures", "SignedSegment", "SlotSignatures", "WordGroups"]

BLOCK = 1024
"""Number of objects of a block; the last one of a segment has fewer."""

BITS, BLOCK_BITS = 12, 6
"""Bits for each word of a segment's filter, or that of its only block; and of those of its blocks if there are several.
With 32 slots of 31,000 objects of the benchmarks' workload, 10 and 20 bits would be 9.6 bytes an object."""

_PROBES = 5
_LINE = 512
_WORDS_OF_LINE = 8

_OWN = np.uint64(0x9E3779B97F4A7C15)
"""Makes the hashes independent of those by which texts are routed."""

_HALF, _SIX, _NINE = np.uint64(32), np.uint64(6), np.uint64(9)
_IN_WORD, _IN_LINE, _ONE = np.uint64(63), np.uint64(511), np.uint64(1)


# ------------------------------------------------------------------------------------------------------------- filters


@lean_kernel
def _line_of(hashed: Any, lines: int) -> int:
    """The line of a word among so many."""
    return signed((hashed >> _HALF) * np.uint64(lines) >> _HALF)


@lean_kernel
def _add(words: Words, first: int, lines: int, hashed: Any) -> None:
    """Add a word to the filter whose ``lines`` lines begin at line ``first``."""
    at = (first + _line_of(hashed, lines)) * _WORDS_OF_LINE
    bits = mix(hashed)
    for _ in range(_PROBES):
        words[at + signed((bits & _IN_LINE) >> _SIX)] |= _ONE << (bits & _IN_WORD)
        bits >>= _NINE


@lean_kernel
def _has(words: Words, first: int, lines: int, hashed: Any) -> bool:
    """Whether a word may be in a filter; surely not if not."""
    if lines == 0:
        return False
    at = (first + _line_of(hashed, lines)) * _WORDS_OF_LINE
    bits = mix(hashed)
    for _ in range(_PROBES):
        if (words[at + signed((bits & _IN_LINE) >> _SIX)] >> (bits & _IN_WORD)) & _ONE == np.uint64(0):
            return False
        bits >>= _NINE
    return True


@kernel
def _sign(
    places: tuple[Ints, Floats, Floats], unit_offsets: Codes, units: Array, word_offsets: Codes, data: Bytes, size: int
) -> tuple[Floats, Ints, Ints, Words, Words]:
    """The arrays of :class:`Signatures` for blocks of ``size`` objects, given as (t, x, y) and sets of codes."""
    t, x, y = places
    n, terms = len(t), len(word_offsets) - 1
    blocks = (n + size - 1) // size
    hashes = np.empty(terms, np.uint64)
    for code in range(terms):
        hashes[code] = mix(hash_bytes(data, word_offsets[code], word_offsets[code + 1]) ^ _OWN)
    boxes, spans, ends = np.empty(4 * blocks), np.empty(2 * blocks, np.int64), np.zeros(blocks + 1, np.int64)
    lines = np.zeros(_WORDS_OF_LINE * (n // 16 + blocks), np.uint64)
    bits = BITS if blocks == 1 else BLOCK_BITS
    seen, found = np.full(terms, -1, np.int64), np.empty(terms, np.int64)
    for block in range(blocks):
        first, last = block * size, min(n, (block + 1) * size)
        west, south, east, north = x[first], y[first], x[first], y[first]
        begin, end, m = t[first], t[first], 0
        for position in range(first, last):
            west, south = min(west, x[position]), min(south, y[position])
            east, north = max(east, x[position]), max(north, y[position])
            begin, end = min(begin, t[position]), max(end, t[position])
            at, stop = wide(unit_offsets[position]), wide(unit_offsets[position + 1])
            code = 0
            while at < stop:
                step, at = get_unit(units, at)
                code += step
                if seen[code] != block:
                    seen[code] = block
                    found[m] = code
                    m += 1
        boxes[4 * block], boxes[4 * block + 1], boxes[4 * block + 2], boxes[4 * block + 3] = west, south, east, north
        spans[2 * block], spans[2 * block + 1] = begin, end
        start, more = ends[block], (m * bits + _LINE - 1) // _LINE
        ends[block + 1] = start + more
        if _WORDS_OF_LINE * ends[block + 1] > len(lines):
            lines = grown(lines, _WORDS_OF_LINE * start, 2 * _WORDS_OF_LINE * ends[block + 1])
            lines[_WORDS_OF_LINE * start :] = np.uint64(0)
        for i in range(m):
            _add(lines, start, more, hashes[found[i]])
    several = (terms * BITS + _LINE - 1) // _LINE if blocks > 1 else 0
    whole = np.zeros(_WORDS_OF_LINE * several, np.uint64)
    if several > 0:
        for code in range(terms):
            _add(whole, 0, several, hashes[code])
    return boxes, spans, ends, lines[: _WORDS_OF_LINE * ends[blocks]].copy(), whole


@dataclass(frozen=True, eq=False)
class Signatures:
    """The signatures of the b blocks of a segment.

    Attributes:
        boxes: float64[4 b], west, south, east and north of each block.
        spans: int64[2 b], least and greatest timestamp of each block, ms.
        ends: int64[b + 1], the first line of each block's filter, and the number of lines.
        lines: uint64, eight for each line.
        whole: uint64, likewise, the lines of the segment's own filter; empty if it has one block.
        key: names these signatures, in any process: two with the same key are equal.
    """

    boxes: Floats
    spans: Ints
    ends: Ints
    lines: Words
    whole: Words
    key: str = field(default_factory=lambda: os.urandom(12).hex())

    @classmethod
    def of(cls, columns: Columns, size: int = BLOCK) -> Signatures:
        """The signatures of the objects of a segment, in blocks of ``size``."""
        s = columns
        return cls(*_sign((s.t, s.x, s.y), s.unit_offsets, s.units, s.word_offsets, s.words, size))

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self.ends) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.to_arrays().values())

    def to_arrays(self) -> dict[str, Array]:
        """Serialize as named flat arrays."""
        return {f"signature_{name}": getattr(self, name) for name in _ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Signatures:
        """Deserialize the result of :meth:`to_arrays`, without a copy."""
        return cls(*cast("Any", [arrays[f"signature_{name}"] for name in _ARRAYS]))


_ARRAYS = ("boxes", "spans", "ends", "lines", "whole")


# -------------------------------------------------------------------------------------------------------- many of them


_ROW = np.dtype(
    [(name, np.int64, 2) if name in _ARRAYS else (name, np.int64) for name in ("t_min", "t_max", "known", *_ARRAYS)]
)
"""A segment in a table of kernels: its times, whether it has signatures, and address and length of their arrays."""


@dataclass(frozen=True, eq=False)
class SignedSegment:
    """A segment, as its signatures describe it.

    Attributes:
        t_min: least timestamp, ms.
        t_max: greatest timestamp, ms.
        signatures: of its blocks; None: they are not known, so anything may be there.
    """

    t_min: int
    t_max: int
    signatures: Signatures | None = None

    @cached_property
    def row(self) -> npt.NDArray[np.void]:
        """As a table of one row. It contains only addresses: who uses it keeps the segment alive."""
        rows: npt.NDArray[np.void] = np.zeros(1, _ROW)
        rows[0]["t_min"], rows[0]["t_max"] = self.t_min, self.t_max
        if self.signatures is not None:
            rows[0]["known"] = 1
            for name in _ARRAYS:
                rows[0][name] = place_of(getattr(self.signatures, name))
        return rows


class WordGroups:
    """Sets of words, one of which an object must have completely.

    Args:
        groups: the sets, at least one; one may be empty.

    Attributes:
        hashes: uint64, of the words of all groups.
        ends: int64[groups + 1], the first word of each group, and the number of words.
    """

    def __init__(self, groups: Iterable[Sequence[str]]) -> None:
        listed = [*groups]
        self.hashes = hash_strings(pa.array([word for group in listed for word in group], pa.string()))
        self.ends = np.cumsum([0, *map(len, listed)]).astype(np.int64)


@lean_kernel
def _satisfied(lines: Words, first: int, count: int, hashes: Words, ends: Ints) -> bool:
    """Whether a filter may have all words of at least one group."""
    for group in range(len(ends) - 1):
        there = True
        for i in range(ends[group], ends[group + 1]):
            if not _has(lines, first, count, hashes[i]):
                there = False
                break
        if there:
            return True
    return False


@lean_kernel
def _meets(boxes: Floats, block: int, parts: Floats) -> bool:
    west, south, east, north = boxes[4 * block], boxes[4 * block + 1], boxes[4 * block + 2], boxes[4 * block + 3]
    for i in range(len(parts)):
        if west <= parts[i, 2] and parts[i, 0] <= east and south <= parts[i, 3] and parts[i, 1] <= north:
            return True
    return False


@kernel
def _least(
    table: Array,
    firsts: Ints,
    slots: Ints,
    hashes: Words,
    ends: Ints,
    parts: Floats,
    times: tuple[int, int],
    near: tuple[bool, bool, float, float],
) -> tuple[Floats, int]:
    """A lower bound of the distance of each slot's nearest object that a query asks for; infinite if it has none.

    Args:
        table: rows of segments.
        firsts: int64[slots + 1], the first row of each slot, and the number of rows.
        slots: int64[n], the slots to look at.
        hashes: of the query's words.
        ends: of its groups.
        parts: float64[m, 4], boxes that together contain its region.
        times: (after, last], ms.
        near: whether distances are asked for (otherwise 0 stands for any), whether they are geographic, and x and y.

    Returns:
        the bounds, float64[n]; and the number of blocks that were not ruled out.
    """
    after, last = times
    wanted, geographic, x, y = near
    least = np.full(len(slots), np.inf)
    kept = 0
    hashed = np.empty(len(hashes), np.uint64)
    for i in range(len(hashes)):
        hashed[i] = mix(hashes[i] ^ _OWN)
    for i in range(len(slots)):
        for r in range(firsts[slots[i]], firsts[slots[i] + 1]):
            row = table[r]
            if not (row.t_max > after and row.t_min <= last):
                continue
            if row.known == 0:
                least[i] = 0.0
                break
            whole = array_at(row.whole, np.uint64)
            if len(whole) > 0 and not _satisfied(whole, 0, len(whole) // _WORDS_OF_LINE, hashed, ends):
                continue
            boxes, spans = array_at(row.boxes, np.float64), array_at(row.spans, np.int64)
            lines, starts = array_at(row.lines, np.uint64), array_at(row.ends, np.int64)
            for block in range(len(starts) - 1):
                if not (spans[2 * block + 1] > after and spans[2 * block] <= last) or not _meets(boxes, block, parts):
                    continue
                if not _satisfied(lines, starts[block], starts[block + 1] - starts[block], hashed, ends):
                    continue
                kept += 1
                bound = 0.0
                if wanted:
                    box = (boxes[4 * block], boxes[4 * block + 1], boxes[4 * block + 2], boxes[4 * block + 3])
                    bound = max(0.0, nearest_bound(geographic, x, y, box))
                least[i] = min(least[i], bound)
                if not wanted:
                    break
            if least[i] == 0.0:
                break
    return least, kept


class SlotSignatures:
    """The signatures of the segments of several slots, as of one moment.

    Args:
        segments: of each slot, by its number, from 0 on.
    """

    def __init__(self, segments: Sequence[Sequence[SignedSegment]]) -> None:
        self._segments = segments
        rows = [each.row for some in segments for each in some]
        self._table = np.concatenate(rows) if rows else np.zeros(0, _ROW)
        self._firsts = np.cumsum([0, *map(len, segments)]).astype(np.int64)

    def may_have(self, slots: Sequence[int], words: WordGroups, parts: Floats, times: tuple[int, int]) -> list[int]:
        """Those of ``slots`` that may have objects with the words in a region and a time range, in their order.

        Args:
            slots: numbers of slots.
            words: of at least one group all.
            parts: float64[m, 4], boxes that together contain the region.
            times: (after, last], ms.
        """
        least = self._least(slots, words, parts, times, (False, False, 0.0, 0.0))[0]
        return [slot for slot, bound in zip(slots, least.tolist(), strict=True) if bound == 0.0]

    def nearest(
        self,
        slots: Sequence[int],
        words: WordGroups,
        parts: Floats,
        times: tuple[int, int],
        at: tuple[float, float],
        *,
        geographic: bool,
    ) -> int:
        """That of some slots whose nearest block that is not ruled out is nearest to a point.

        Args:
            slots: numbers of slots, at least one.
            words: of at least one group all.
            parts: boxes that together contain the region.
            times: (after, last], ms.
            at: x and y of the point.
            geographic: whether these are degrees.
        """
        least = self._least(slots, words, parts, times, (True, geographic, float(at[0]), float(at[1])))[0]
        return slots[int(np.argmin(least))]

    def _least(
        self,
        slots: Sequence[int],
        words: WordGroups,
        parts: Floats,
        times: tuple[int, int],
        near: tuple[bool, bool, float, float],
    ) -> tuple[Floats, int]:
        asked = np.array(slots, np.int64)
        found: tuple[Floats, int] = _least(
            self._table, self._firsts, asked, words.hashes, words.ends, parts, times, near
        )
        return found


def prepare(columns: Columns) -> None:
    """Compile all kernels of this module, with the columns of a segment."""
    signed = SignedSegment(columns.t_min, columns.t_max, Signatures.of(columns))
    everywhere = np.array([[-np.inf, -np.inf, np.inf, np.inf]])
    slots, words = SlotSignatures([[signed]]), WordGroups([("a", "b")])
    slots.may_have([0], words, everywhere, (0, 1))
    slots.nearest([0], words, everywhere, (0, 1), (0.0, 0.0), geographic=False)
