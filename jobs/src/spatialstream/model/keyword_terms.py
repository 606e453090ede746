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

from spatialstream.model.arrays import Codes
from spatialstream.model.hashing import distinct
from spatialstream.model.kernels import kernel
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import Both, Condition, Test, all_of
from spatialstream.model.properties.declared import ARROW, PropertyType
from spatialstream.model.terms import TermLists

__all__ = ["MOST_ALTERNATIVES", "AsTerms", "as_terms", "beside", "keyword_lists", "with_keywords"]

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
def as_terms(condition: Condition) -> AsTerms:
    """Which tests of a condition can be terms: those of the fewest values first."""
    parts = condition.parts if isinstance(condition, Both) else (condition,)
    alternatives: list[tuple[str, ...]] = [()]
    chosen: list[Test] = []
    for test in sorted((part for part in parts if _is_listed(part)), key=lambda test: len(test.values)):
        if len(alternatives) * len(test.values) <= MOST_ALTERNATIVES:
            terms = [_prefix(test.property) + str(value) for value in test.values]
            alternatives = [(*each, term) for each in alternatives for term in terms]
            chosen.append(test)
    rest = [part for part in parts if part not in chosen]
    sets = tuple(tuple(dict.fromkeys(each)) for each in alternatives)
    names = tuple(dict.fromkeys(test.property for test in chosen))
    return AsTerms(sets, names, all_of(rest) if rest else None)


def _is_listed(part: Condition) -> TypeGuard[Test]:
    """Whether a condition is a test of whether a keyword is one of some values."""
    return isinstance(part, Test) and part.op == "in" and part.type is PropertyType.KEYWORD


def _prefix(name: str) -> str:
    return f'"{name}"'


def keyword_lists(columns: PropertyColumns, name: str) -> TermLists:
    """The terms of n objects' values of a property, none or one each; none at all if it is not of keywords."""
    column = columns.columns.get(name)
    if column is None or column.type != _TEXT:
        return TermLists.empty(len(columns))
    codes, firsts = distinct(pc.fill_null(column, "") if column.null_count else column)
    offsets = np.arange(len(columns) + 1, dtype=np.int32)
    if column.null_count:
        there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
        np.cumsum(there, out=offsets[1:])
        codes = codes[there]
    values = pc.fill_null(column.take(pa.array(firsts)), "")
    return TermLists(offsets, codes, pc.binary_join_element_wise(pa.scalar(_prefix(name)), values, ""))


def with_keywords(terms: TermLists, columns: PropertyColumns, names: Iterable[str]) -> TermLists:
    """The terms of n objects, after each those of its keywords.

    Args:
        terms: those of the texts, which keep their codes.
        columns: the objects' properties.
        names: the properties of which there are terms, each once.
    """
    for name in names:
        more = keyword_lists(columns, name)
        if len(more.codes):
            terms = beside(terms, more)
    return terms


def beside(lists: TermLists, more: TermLists) -> TermLists:
    """N sets, each with the terms of ``more`` after its own, which keep their codes; no term is in both."""
    vocabulary = pa.concat_arrays([lists.vocabulary, more.vocabulary])
    columns = (lists.offsets, lists.codes, more.offsets, more.codes)
    joined = _beside(*(np.require(each, requirements=["C", "W"]) for each in columns), len(lists.vocabulary))
    return TermLists(*joined, vocabulary)


@kernel
def _beside(offsets: Codes, codes: Codes, more_offsets: Codes, more: Codes, shift: int) -> tuple[Codes, Codes]:
    """Offsets and codes of sets that are joined one by one; codes of the second ones are shifted."""
    n = len(offsets) - 1
    bounds = np.empty(n + 1, np.int32)
    joined = np.empty(offsets[n] - offsets[0] + more_offsets[n] - more_offsets[0], np.int32)
    at = 0
    for i in range(n):
        bounds[i] = at
        for j in range(offsets[i], offsets[i + 1]):
            joined[at] = codes[j]
            at += 1
        for j in range(more_offsets[i], more_offsets[i + 1]):
            joined[at] = more[j] + shift
            at += 1
    bounds[n] = at
    return bounds, joined
