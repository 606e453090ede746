"""Keywords as terms, by which an index finds the objects of ``country = 'de'`` as it finds those that have a word.

An object gets a term for each of its keywords, made of the name of the property and the value; a test of one value, or
of one of a few, requires such terms. They are exact, so of these tests there is nothing left to check: no name has a
quotation mark, and no term of a text begins with one, so two properties, two values, or a value and a word have
different terms. A missing value has no term, and makes the test unknown, so that the condition is not true.

Only tests that each object of a query has to satisfy become terms: a condition that is one, or the parts of a
conjunction. Indexes alone know them: what counts or ranks words has those of texts.

Cost: O(tests), once for each condition; for an object one hash for each keyword, and a copy of its terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Bytes, Codes, Flags, Ints, runs, string_view
from spatialstream.model.eight_bytes import load, signed
from spatialstream.model.hashing import Seed, keyed_word, process_seed
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import Both, Condition, Test, all_of
from spatialstream.model.properties.declared import ARROW, PropertyType
from spatialstream.model.terms import TermLists

__all__ = [
    "MOST_ALTERNATIVES",
    "AsTerms",
    "as_terms",
    "asked_of",
    "beside",
    "keyword_lists",
    "with_few_values",
    "with_keywords",
]

MOST_ALTERNATIVES = 16
"""Sets of terms that stand for a condition at most: each is an entry of an index. Tests of more values are checked."""

_TEXT = ARROW[PropertyType.KEYWORD]


@dataclass(frozen=True, slots=True)
class AsTerms:
    """A condition as sets of terms, of one of which an object has to have all, and what it has to satisfy besides.

    Attributes:
        alternatives: the sets, one or more; without tests that are terms a single one, which is empty.
        names: the properties that the terms are of.
        rest: the condition without the tests that are terms; None: nothing is left.
    """

    alternatives: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    rest: Condition | None


@lru_cache(4_096)
def as_terms(condition: Condition, unkeyed: frozenset[str] = frozenset()) -> AsTerms:
    """Which tests of a condition can be terms: those of the fewest values first, and none of ``unkeyed`` properties."""
    parts = _parts_of(condition)
    alternatives: list[tuple[str, ...]] = [()]
    chosen: list[Test] = []
    tests = [part for part in parts if _is_listed(part) and part.property not in unkeyed]
    for test in sorted(tests, key=lambda test: len(test.values)):
        if len(alternatives) * len(test.values) <= MOST_ALTERNATIVES:
            terms = [_prefix(test.property) + str(value) for value in test.values]
            alternatives = [(*each, term) for each in alternatives for term in terms]
            chosen.append(test)
    rest = [part for part in parts if part not in chosen]
    sets = tuple(tuple(dict.fromkeys(each)) for each in alternatives)
    names = tuple(dict.fromkeys(test.property for test in chosen))
    return AsTerms(sets, names, all_of(rest) if rest else None)


@lru_cache(4_096)
def asked_of(condition: Condition) -> frozenset[str]:
    """The properties of which a condition has tests that can be terms."""
    return frozenset(part.property for part in _parts_of(condition) if _is_listed(part))


def _parts_of(condition: Condition) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, Both) else (condition,)


def _is_listed(part: Condition) -> TypeGuard[Test]:
    """Whether a condition is a test of whether a keyword is one of some values."""
    return isinstance(part, Test) and part.op == "in" and part.type is PropertyType.KEYWORD


def _prefix(name: str) -> str:
    return f'"{name}"'


def keyword_lists(columns: PropertyColumns, name: str) -> TermLists:
    """The terms of n objects' values of a property, none or one each; none at all if it is not of keywords."""
    return with_keywords(TermLists.empty(len(columns)), columns, [name])


def with_keywords(terms: TermLists, columns: PropertyColumns, names: Iterable[str]) -> TermLists:
    """The terms of n objects, after each those of its keywords.

    Args:
        terms: those of the texts, which keep their codes.
        columns: the objects' properties.
        names: the properties of which there are terms, each once.
    """
    for name in names:
        column = columns.columns.get(name)
        if column is not None and column.type == _TEXT:
            more = with_few_values(terms, column, name, len(column))
            terms = terms if more is None else more
    return terms


def with_few_values(terms: TermLists, column: pa.StringArray, name: str, most: int) -> TermLists | None:
    """The terms of n objects, after each that of its value of a property, if it has one.

    Args:
        terms: those of the texts, which keep their codes.
        column: the values, of keywords.
        name: of the property.
        most: number of distinct values up to which there are such terms; None if there are more, which is found as soon
            as there is one more.
    """
    if column.null_count == len(column):
        return terms
    there = _EVERYWHERE
    if column.null_count:
        there = np.require(column.is_valid().to_numpy(zero_copy_only=False), requirements=["C", "W"])
    bounds, own = (np.require(each, requirements=["C", "W"]) for each in (terms.offsets, terms.codes))
    known = len(terms.vocabulary)
    offsets, codes, firsts = _joined(bounds, own, known, *string_view(column), there, process_seed(), most)
    if len(firsts) > most:
        return None
    more = pc.binary_join_element_wise(pa.scalar(_prefix(name)), column.take(pa.array(firsts)), "")
    return TermLists(offsets, codes, pa.concat_arrays([terms.vocabulary, more]))


_EVERYWHERE = np.empty(0, np.bool_)


@lean_kernel
def _are_same(data: Bytes, one: int, other: int, length: int) -> bool:
    """Whether two strings of one length have the same bytes."""
    if length < 8:
        same = True
        for i in range(length):
            same &= data[one + i] == data[other + i]
        return same
    i = signed(0)
    while i + 8 < length:
        if load(data, one + i) != load(data, other + i):
            return False
        i += 8
    return bool(load(data, one + length - 8) == load(data, other + length - 8))


@kernel
def _joined(
    offsets: Codes, codes: Codes, known: int, bounds: Codes, data: Bytes, there: Flags, seed: Seed, most: int
) -> tuple[Codes, Codes, Ints]:
    """Sets of terms, each with a code of its string after its own; and the row in which each string is first.

    Strings are numbered from ``known``, in order of appearance; where ``there`` (empty: everywhere) is false there is
    none. It ends early where there are more than ``most`` strings, and is then of no use but for their number.
    """
    n = len(offsets) - 1
    ends, joined = np.empty(n + 1, np.int32), np.empty(offsets[n] - offsets[0] + n, np.int32)
    slots, firsts = np.full(256, -1, np.int32), np.empty(128, np.int64)
    hashes = np.empty(len(firsts), np.uint64)
    m, at = 0, 0
    for i in range(n):
        ends[i] = at
        for j in range(offsets[i], offsets[i + 1]):
            joined[at] = codes[j]
            at += 1
        if len(there) > 0 and not there[i]:
            continue
        first, length = signed(bounds[i]), signed(bounds[i + 1]) - signed(bounds[i])
        hashed, last = keyed_word(data, first, first + length, seed), signed(len(slots) - 1)
        slot = signed(hashed) & last
        while slots[slot] >= 0:
            other, end = signed(bounds[firsts[slots[slot]]]), signed(bounds[firsts[slots[slot]] + 1])
            if hashes[slots[slot]] == hashed and end - other == length and _are_same(data, first, other, length):
                break
            slot = (slot + 1) & last
        if slots[slot] < 0:
            slots[slot], firsts[m], hashes[m] = m, i, hashed
            m += 1
            if m > most:
                break
        joined[at] = known + slots[slot]
        at += 1
        if m == len(firsts):
            firsts, hashes = np.concatenate((firsts, firsts)), np.concatenate((hashes, hashes))
            slots = np.full(4 * m, -1, np.int32)
            for code in range(m):
                slot = signed(hashes[code]) & signed(len(slots) - 1)
                while slots[slot] >= 0:
                    slot = (slot + 1) & signed(len(slots) - 1)
                slots[slot] = code
    ends[n] = at
    return ends, joined[:at].copy(), firsts[:m].copy()


def beside(lists: TermLists, more: TermLists) -> TermLists:
    """N sets, each with the terms of ``more`` after its own, which keep their codes; no term is in both."""
    sizes, others = np.diff(lists.offsets), np.diff(more.offsets)
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(sizes + others, out=offsets[1:])
    codes = np.empty(int(offsets[-1]), np.int32)
    codes[runs(offsets[:-1], sizes)] = lists.codes[lists.offsets[0] : lists.offsets[-1]]
    codes[runs(offsets[:-1] + sizes, others)] = more.codes[more.offsets[0] : more.offsets[-1]] + len(lists.vocabulary)
    return TermLists(offsets, codes, pa.concat_arrays([lists.vocabulary, more.vocabulary]))
