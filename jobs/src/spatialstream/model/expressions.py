"""Keyword expressions: which terms an object must and must not have, as sets of literals.

An expression requires either all of a set of terms, or all terms of at least one of several groups (disjunctive normal
form); in addition it may forbid terms. It is stored as a set of *literals*, strings that encode a term and its role:

=========== =====================================
``term``    the term is required
``i|term``  the term belongs to group i, from 0
``!term``   the term is forbidden
``?where``  the condition on properties, encoded
``>fields`` no condition: which fields rows show
=========== =====================================

Terms never contain ``|``, ``!``, ``?`` or ``>``, and an expression of required terms alone is the set of these terms.
So all code that stores, sends, groups or compares sets of terms works on expressions too, and the encoding of a plain
set of terms stays what it is without expressions.

The form is canonical. A group that contains all terms of another group is redundant and removed; the remaining groups
are sorted, and a single remaining group becomes a plain set of required terms.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Ints, runs, string_view
from spatialstream.model.hashing import distinct
from spatialstream.model.keyword_terms import as_terms, beside
from spatialstream.model.properties.condition import Condition, decoded, encoded, text_of
from spatialstream.model.terms import TermLists

__all__ = [
    "MOST_GIVEN",
    "MOST_GROUPS",
    "Expanded",
    "Expression",
    "absorbed",
    "expanded",
    "fields_literal",
    "fields_of",
    "has_marks",
    "is_marked",
    "keyed",
    "posted",
    "searched",
]

MOST_GROUPS = 64
"""Maximum number of groups of an expression in canonical form."""

MOST_GIVEN = 256
"""Maximum number of groups in a query's record, before redundant groups are removed."""

_PLAIN, _NONE, _WHERE, _FIELDS = -1, -2, -3, -4
"""Values in place of a group number: the term is required, or forbidden; or it is a condition, or fields."""

_MARKS = ("!", "?", ">")
_GROUP_OF = dict(zip(_MARKS, (_NONE, _WHERE, _FIELDS), strict=True))


def absorbed(groups: Iterable[Iterable[str]]) -> tuple[tuple[str, ...], ...]:
    """The groups in canonical form: sorted, without groups that contain another group."""
    ordered = sorted({tuple(sorted(set(group))) for group in groups})
    sets = [frozenset(group) for group in ordered]
    return tuple(group for group, terms in zip(ordered, sets, strict=True) if not any(other < terms for other in sets))


@dataclass(frozen=True, slots=True)
class Expression:
    """A keyword expression, and with it the condition on properties.

    Attributes:
        keywords: required terms.
        any: groups of which at least one is required, in canonical form; if not empty, there are no keywords.
        none: forbidden terms.
        where: the condition on properties; None if there is none.
    """

    keywords: tuple[str, ...] = ()
    any: tuple[tuple[str, ...], ...] = ()
    none: tuple[str, ...] = ()
    where: Condition | None = None

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The sets of terms of which at least one is required: one set or more; a single one may be empty."""
        return self.any or (self.keywords,)

    def holds(self, terms: Collection[str]) -> bool:
        """Whether an object with these terms satisfies the expression, apart from the condition on properties."""
        there = frozenset(terms)
        return there.isdisjoint(self.none) and any(there.issuperset(group) for group in self.groups)

    @property
    def literals(self) -> tuple[str, ...]:
        """The expression as literals."""
        of_groups = (f"{i}|{term}" for i, group in enumerate(self.any) for term in group)
        of_where = () if self.where is None else (f"?{encoded(self.where)}",)
        return (*self.keywords, *of_groups, *(f"!{term}" for term in self.none), *of_where)

    def to_record(self) -> dict[str, Any]:
        """The expression's fields in a query's record, without empty ones."""
        groups = [[*group] for group in self.any]
        where = "" if self.where is None else text_of(self.where)
        fields = {"keywords": [*self.keywords], "any": groups, "none": [*self.none], "where": where}
        return {name: terms for name, terms in fields.items() if terms}

    @classmethod
    def of(cls, literals: Sequence[str]) -> Expression:
        """Build the expression from its literals."""
        if not is_marked(literals):
            return cls(tuple(literals))
        keywords: list[str] = []
        groups: dict[int, list[str]] = {}
        none: list[str] = []
        where = None
        for literal in literals:
            group, term = _parted(literal)
            if group == _WHERE:
                where = decoded(term)
            if group in (_WHERE, _FIELDS):
                continue
            part = none if group == _NONE else keywords if group == _PLAIN else groups.setdefault(group, [])
            part.append(term)
        return cls(tuple(keywords), tuple(tuple(groups[i]) for i in sorted(groups)), tuple(none), where)


def _parted(literal: str) -> tuple[int, str]:
    """Split a literal into (group, term)."""
    if literal.startswith(_MARKS):
        return _GROUP_OF[literal[0]], literal[1:]
    group, mark, term = literal.partition("|")
    return (int(group), term) if mark else (_PLAIN, literal)


def fields_of(literals: Iterable[str]) -> tuple[str, ...] | None:
    """The fields that the rows of a query show, of its literals; None: all that the stream keeps."""
    found = next((literal for literal in literals if literal.startswith(">")), None)
    return None if found is None else tuple(json.loads(found[1:]))


def fields_literal(fields: Sequence[str] | None) -> tuple[str, ...]:
    """What :func:`fields_of` reads: one literal, or none."""
    return () if fields is None else (">" + json.dumps(fields, ensure_ascii=False),)


def is_marked(literals: Iterable[str]) -> bool:
    """Whether any literal is in a group, forbidden or a condition, rather than a term that is plainly required."""
    return any("|" in literal or literal.startswith(_MARKS) for literal in literals)


def has_marks(lists: TermLists) -> bool:
    """As :func:`is_marked`, for all literals of the vocabulary. O(bytes), at a few bytes per ns."""
    _, data = string_view(lists.vocabulary)
    return any(bool((data == ord(mark)).any()) for mark in ("|", *_MARKS))


@dataclass(frozen=True, slots=True, eq=False)
class Expanded:
    """n expressions as conjunctions, at least one each, and their forbidden terms.

    Attributes:
        owner: int32[m], the expression of each conjunction, ascending.
        groups: the m conjunctions.
        none: the forbidden terms of each of the n expressions.
        where: int32[n], the condition of each of them among ``conditions``, or -1.
        conditions: the distinct conditions on properties.
    """

    owner: Codes
    groups: TermLists
    none: TermLists
    where: Codes
    conditions: tuple[Condition, ...]


def expanded(lists: TermLists) -> Expanded:
    """Expand n expressions into conjunctions."""
    n = len(lists)
    group, term, vocabulary = _vocabulary(lists)
    query = np.repeat(np.arange(n), np.diff(lists.offsets))
    codes = lists.codes[int(lists.offsets[0]) : int(lists.offsets[-1])]
    wanted, absent, asked = group[codes] > _NONE, group[codes] == _NONE, group[codes] == _WHERE
    key = query * (MOST_GROUPS + 1) + group[codes] + 1
    unconditional = np.setdiff1d(np.arange(n), query[wanted]) * (MOST_GROUPS + 1)
    rows = np.union1d(key[wanted], unconditional)
    owner = rows // (MOST_GROUPS + 1)
    groups = _lists(np.searchsorted(rows, key[wanted]), term[codes[wanted]], len(rows), vocabulary)
    used, of_each = np.unique(term[codes[asked]], return_inverse=True)
    where = np.full(n, -1, np.int32)
    where[query[asked]] = of_each
    conditions = tuple(decoded(vocabulary[int(code)].as_py()) for code in used)
    none = _lists(query[absent], term[codes[absent]], n, vocabulary)
    return Expanded(owner.astype(np.int32), groups, none, where, conditions)


def posted(parts: Expanded) -> tuple[Expanded, tuple[str, ...]]:
    """Expressions whose tests of keywords are terms of conjunctions, as far as :mod:`.keyword_terms` makes them that.

    Returns:
        the expressions, each with a conjunction for each of its own and each set of terms, and with what is left of its
        condition; and the properties, ascending, of which objects have to have terms.
    """
    found = [as_terms(condition) for condition in parts.conditions]
    names = tuple(sorted({name for each in found for name in each.names}))
    if not names:
        return parts, names
    sets = TermLists.of([*(terms for each in found for terms in each.alternatives), ()])
    sizes = np.array([*(len(each.alternatives) for each in found), 1])
    asked = parts.where[parts.owner]  # -1 is the last, which is empty
    rows, places = np.repeat(np.arange(len(asked)), sizes[asked]), runs((np.cumsum(sizes) - sizes)[asked], sizes[asked])
    rests: dict[Condition, int] = {}
    left = [-1 if each.rest is None else rests.setdefault(each.rest, len(rests)) for each in found]
    where = np.array([*left, -1], np.int32)[parts.where]
    groups = beside(parts.groups.take(rows), sets.take(places))
    return Expanded(parts.owner[rows], groups, parts.none, where, tuple(rests)), names


@lru_cache(4_096)
def keyed(expression: Expression, unkeyed: frozenset[str] = frozenset()) -> Expression:
    """The expression with tests of keywords as terms of its groups, as far as :mod:`.keyword_terms` makes them that.

    It is what an index of such terms looks for, and has no record; an expression of too many groups stays as it is, and
    so do tests of properties that are ``unkeyed``, which the index has no terms of.
    """
    if expression.where is None:
        return expression
    found = as_terms(expression.where, unkeyed)
    if not found.names or len(expression.groups) * len(found.alternatives) > MOST_GROUPS:
        return expression
    groups = tuple((*group, *terms) for group in expression.groups for terms in found.alternatives)
    return Expression(any=groups, none=expression.none, where=found.rest)


def searched(lists: TermLists) -> TermLists:
    """The distinct terms that each expression looks for: required terms and terms of groups."""
    group, term, vocabulary = _vocabulary(lists)
    query = np.repeat(np.arange(len(lists)), np.diff(lists.offsets))
    codes = lists.codes[int(lists.offsets[0]) : int(lists.offsets[-1])]
    wanted = group[codes] > _NONE
    size = max(1, len(vocabulary))
    pairs = np.unique(query[wanted] * size + term[codes[wanted]])
    return _lists(pairs // size, pairs % size, len(lists), vocabulary)


def _vocabulary(lists: TermLists) -> tuple[Ints, Ints, pa.StringArray]:
    """Group and term code of each literal in the vocabulary (int64[v] each, see :func:`_parted`), and the terms."""
    starts, data = string_view(lists.vocabulary)
    first, size = starts[:-1].astype(np.int64), np.diff(starts).astype(np.int64)
    data = np.append(data, np.zeros(2, np.uint8))  # so that two bytes of each literal can be read
    bar = pc.find_substring(lists.vocabulary, "|").to_numpy(zero_copy_only=False).astype(np.int64)
    absent = (size > 0) & (data[first] == ord("!"))
    where = (size > 0) & (data[first] == ord("?"))
    fields = (size > 0) & (data[first] == ord(">"))
    digits = (data[first].astype(np.int64) - ord("0"), data[first + 1].astype(np.int64) - ord("0"))
    group = np.where(bar == 1, digits[0], 10 * digits[0] + digits[1])
    group = np.where(bar < 0, _PLAIN, group)
    group = np.select([absent, where, fields], [_NONE, _WHERE, _FIELDS], group)
    skipped = np.where(absent | where | fields, 1, bar + 1)
    offsets = np.zeros(len(starts), np.int32)
    np.cumsum(size - skipped, out=offsets[1:])
    at = np.arange(offsets[-1]) + np.repeat(first + skipped - offsets[:-1], size - skipped)
    buffers = pa.py_buffer(offsets), pa.py_buffer(data[at])
    terms = pa.StringArray.from_buffers(len(size), *buffers)
    codes, firsts = distinct(terms)
    return group, codes.astype(np.int64), terms.take(pa.array(firsts))


def _lists(owner: Ints, term: Ints, n: int, vocabulary: pa.StringArray) -> TermLists:
    """Term lists of n owners from (owner, term) pairs."""
    order = np.argsort(owner, kind="stable")
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=n), out=offsets[1:])
    return TermLists(offsets, term[order].astype(np.int32), vocabulary).compact()
