"""Term sets as runs of 16-bit units: differences of ascending codes, which rank terms by frequency.

Because codes rank terms by frequency, most differences are small. A difference below 0xFFFF is one unit; a larger one
is the unit 0xFFFF followed by its low and its high 16 bits. The first number of a set is its first code. Term tables
use the same units (see :mod:`spatialstream.local.snapshot.termtables`).

Where it is counted how often a text has a term, that is a byte beside each unit, at the first one of the term: no
offsets of their own are needed, and only escaped codes, which are rare terms, have bytes that say nothing.

Cost: about 2 bytes per term (4 as plain int32), decoded in one or two nanoseconds per term.
"""

from __future__ import annotations

import numpy as np

from spatialstream.local.arrays import Array, wide
from spatialstream.local.snapshot.addresses import Columns
from spatialstream.model.kernels import kernel, lean_kernel

__all__ = ["decode_counts", "decode_sets", "encode_counts", "encode_sets", "get_unit", "has_all", "put_unit"]

_ESCAPE = 0xFFFF
_SHORT = 32
"""Sets up to this size are sorted by insertion."""


@lean_kernel
def put_unit(units: Array, at: int, number: int) -> int:
    """Write a number (0 <= number < 2^32); return the position after it."""
    if number < _ESCAPE:
        units[at] = number
        return at + 1
    units[at] = _ESCAPE
    units[at + 1] = number & 0xFFFF
    units[at + 2] = number >> 16
    return at + 3


@lean_kernel
def get_unit(units: Array, at: int) -> tuple[int, int]:
    """Read a number; return it and the position after it."""
    number = wide(units[at])
    if number < _ESCAPE:
        return number, at + 1
    return wide(units[at + 1]) | (wide(units[at + 2]) << 16), at + 3


@kernel
def _sort(codes: Array, n: int) -> None:
    if n > _SHORT:
        codes[:n].sort()
        return
    for i in range(1, n):
        code = codes[i]
        j = i - 1
        while j >= 0 and codes[j] > code:
            codes[j + 1] = codes[j]
            j -= 1
        codes[j + 1] = code


@kernel
def encode_sets(
    offsets: Array, codes: Array, order: Array, ranks: Array, texts: int, posting_offsets: Array
) -> tuple[Array, Array, Array]:
    """Reorder and recode sets, and invert them. Terms that are not of texts have postings, and are in no unit.

    Args:
        offsets: int32[n + 1], offsets of the sets in ``codes``.
        codes: int32[m], old codes.
        order: int64[n], the set at each new position.
        ranks: int32, new code of each old one.
        texts: old codes below this are terms of texts.
        posting_offsets: int32[terms + 1], start of the postings of each new code.

    Returns:
        unit offsets int32[n + 1], units uint16, postings int32[m]: the ascending positions of each term.
    """
    n = len(order)
    longest = 0
    for i in range(n):
        longest = max(longest, offsets[order[i] + 1] - offsets[order[i]])
    buffer = np.empty(longest, np.int32)
    capacity = 1
    for i in range(len(codes)):
        capacity += 1 if ranks[codes[i]] < _ESCAPE else 3
    units = np.empty(capacity, np.uint16)
    unit_offsets = np.zeros(n + 1, np.int32)
    cursors = posting_offsets.copy()
    postings = np.empty(posting_offsets[-1], np.int32)
    at = 0
    for position in range(n):
        count = 0
        for j in range(offsets[order[position]], offsets[order[position] + 1]):
            code = ranks[codes[j]]
            if codes[j] < texts:
                buffer[count] = code
                count += 1
            postings[cursors[code]] = position
            cursors[code] += 1
        _sort(buffer, count)
        previous = 0
        for j in range(count):
            at = put_unit(units, at, buffer[j] - previous)
            previous = buffer[j]
        unit_offsets[position + 1] = at
    return unit_offsets, units[:at].copy(), postings


@kernel
def decode_sets(unit_offsets: Array, units: Array, translation: Array) -> tuple[Array, Array]:
    """Decode all sets as (offsets int32, codes int32), each code c replaced by ``translation[c]``."""
    codes = np.empty(len(units), np.int32)
    offsets = np.zeros(len(unit_offsets), np.int32)
    m, at = 0, 0
    for i in range(len(unit_offsets) - 1):
        code = 0
        while at < unit_offsets[i + 1]:
            step, at = get_unit(units, at)
            code += step
            codes[m] = translation[code]
            m += 1
        offsets[i + 1] = m
    return offsets, codes[:m].copy()


@kernel
def encode_counts(
    unit_offsets: Array, units: Array, offsets: Array, codes: Array, counts: Array, order: Array, ranks: Array
) -> Array:
    """The counts beside units, uint8[units], of sets that :func:`encode_sets` has made of the same arguments.

    Args:
        unit_offsets: int32[n + 1], of the sets in their new order.
        units: uint16, these sets.
        offsets: int32[n + 1], of the sets as they were.
        codes: int32[m], these sets.
        counts: uint8[m], of each of these codes.
        order: int64[n], the set at each new position.
        ranks: int32, new code of each old one.
    """
    beside = np.zeros(len(units), np.uint8)
    of = np.zeros(len(ranks), np.uint8)
    for position in range(len(order)):
        for j in range(offsets[order[position]], offsets[order[position] + 1]):
            of[ranks[codes[j]]] = counts[j]
        at, end = wide(unit_offsets[position]), wide(unit_offsets[position + 1])
        code = 0
        while at < end:
            first = at
            step, at = get_unit(units, at)
            code += step
            beside[first] = of[code]
    return beside


@kernel
def decode_counts(units: Array, beside: Array) -> Array:
    """The counts of all terms of all sets, uint8[m], in the order of :func:`decode_sets`."""
    counts = np.empty(len(units), np.uint8)
    m, at = 0, 0
    while at < len(units):
        counts[m] = beside[at]
        m += 1
        _, at = get_unit(units, at)
    return counts[:m].copy()


@lean_kernel
def has_all(s: Columns, position: int, wanted: Array) -> bool:
    """Whether the set at a position of segment ``s`` contains all of the ascending codes ``wanted`` (int64)."""
    at, end = wide(s.unit_offsets[position]), wide(s.unit_offsets[position + 1])
    code = 0
    i = 0
    while i < len(wanted):
        if at >= end:
            return False
        step, at = get_unit(s.units, at)
        code += step
        if code > wanted[i]:
            return False
        if code == wanted[i]:
            i += 1
    return True
