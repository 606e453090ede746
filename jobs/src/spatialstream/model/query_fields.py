"""The fields of a query's JSON form, one by one: each reader checks the value of one field.

:func:`~spatialstream.model.queries.parse_query` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar

from spatialstream.model.errors import RecordError
from spatialstream.model.expressions import MOST_GIVEN, MOST_GROUPS, absorbed
from spatialstream.model.schema import LARGEST_K, LONGEST_BY, QUERY_JSON
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule, extract_terms
from spatialstream.model.times import parse_duration

__all__ = [
    "Faults",
    "FieldReader",
    "TextParts",
    "check_by",
    "check_fields",
    "parse_count",
    "parse_point",
    "parse_step",
    "parse_text",
    "unknown_fields",
]

T = TypeVar("T")

TextParts = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]
"""The keywords, the groups of which any word is enough, and the forbidden terms."""

_KNOWN = dict.fromkeys(QUERY_JSON["properties"])
_LONGEST_NAME = 40


class Faults(list[RecordError]):
    """What is wrong with a record, in the order in which it is found."""

    def add(self, field: str, problem: str) -> None:
        """Add what is wrong with a field."""
        self.append(RecordError(field, problem))

    def of(self, default: T, parse: Callable[..., T], *given: Any) -> T:
        """What a function makes of a part of the record; the default where it cannot."""
        try:
            return parse(*given)
        except RecordError as error:
            self.append(error)
            return default

    def check(self) -> None:
        """Raise all of it, if there is any."""
        if self:
            raise RecordError.of(self)


class FieldReader:
    """Reads the fields that a record has and its kind takes, and collects what is wrong with them.

    Args:
        record: the JSON form.
        present: names of the fields to read.
        faults: where to collect.
    """

    def __init__(self, record: Mapping[str, Any], present: Collection[str], faults: Faults) -> None:
        self.record, self.present, self.faults = record, present, faults

    def __call__(self, field: str, default: T, parse: Callable[..., T], *more: Any) -> T:
        """What ``parse`` makes of a field; the default if it is not to be read or is wrong."""
        if field not in self.present:
            return default
        return self.faults.of(default, parse, self.record[field], *more)

    def among(self, fields: Iterable[str]) -> dict[str, Any]:
        """The fields to read among the given ones, as they are."""
        return {field: self.record[field] for field in fields if field in self.present}


def check_fields(names: Iterable[object]) -> None:
    """Refuse names that are not query fields, even if the field is null: it may be a misspelt condition.

    Raises:
        RecordError: for the first unknown name; the message suggests the closest field.
    """
    for fault in unknown_fields(names):
        raise fault


def unknown_fields(names: Iterable[object]) -> Iterator[RecordError]:
    """What is wrong with each name that is not a query field, see :func:`check_fields`."""
    for name in map(str, names):
        if name not in _KNOWN:
            short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
            yield RecordError(short, f"is not a query field; {_meant(short)}")


@lru_cache(256)
def _meant(name: str) -> str:
    near = get_close_matches(name.lower(), _KNOWN, 1)
    return f"did you mean {near[0]}?" if near else f"the fields are {', '.join(_KNOWN)}"


def check_by(value: object) -> str:
    """Validate the field ``by``: who registered a query.

    Raises:
        RecordError: ``value`` is not Unicode text of 1 to :data:`~spatialstream.model.schema.LONGEST_BY` bytes.
    """
    if not isinstance(value, str):
        raise RecordError("by", f"{value!r} is not a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise RecordError("by", f"{value!r} holds half of a surrogate pair; give Unicode text") from None
    if not 1 <= size <= LONGEST_BY:
        raise RecordError("by", f"has {size} bytes; give 1 to {LONGEST_BY} bytes of UTF-8")
    return value


def parse_point(value: object, space: Space) -> tuple[float, float]:
    """Read the field ``at``: a point of the space."""
    if not isinstance(value, list) or len(value) != 2:
        raise RecordError("at", f"must be a list of 2 numbers, [{', '.join(space.axes)}]")
    return space.check_point(value[0], value[1], ("at", "at"))


def parse_step(value: object) -> int:
    """Read the field ``step``, in ms."""
    step = parse_duration(value, "step")
    if step == 0:
        raise RecordError("step", "is 0; a step is at least 1 ms")
    return step


def parse_count(value: object) -> int:
    """Read the field ``k``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError("k", f"{value!r} is not an integer")
    if not 1 <= value <= LARGEST_K:
        raise RecordError("k", f"{value} is out of range; give 1 to {LARGEST_K}")
    return value


def parse_text(record: Mapping[str, Any], rule: TermRule) -> TextParts:
    """Read the fields ``keywords``, ``any`` and ``none``, in canonical form."""
    keywords, none = _terms(record, "keywords", rule), _terms(record, "none", rule)
    any_groups = record.get("any")
    if any_groups is None:
        _check_words(len(keywords), 0, len(none), rule)
        return keywords, (), none
    if keywords:
        raise RecordError("any", "cannot be combined with keywords; give one of the two")
    if not isinstance(any_groups, list) or not all(isinstance(group, list) for group in any_groups):
        raise RecordError("any", f"{any_groups!r} is not a list of groups, each a list of strings")
    if not 1 <= len(any_groups) <= MOST_GIVEN:
        raise RecordError("any", f"has {len(any_groups)} groups; give 1 to {MOST_GROUPS}, or remove it")
    if not all(any_groups):
        raise RecordError("any", "has an empty group, which would match every text; remove the group")
    groups = absorbed(_terms({"any": group}, "any", rule) for group in any_groups)
    if len(groups) > MOST_GROUPS:
        raise RecordError("any", f"has {len(groups)} groups after removing redundant ones; give at most {MOST_GROUPS}")
    _check_words(0, sum(map(len, groups)), len(none), rule)
    return (*groups, (), none) if len(groups) == 1 else ((), groups, none)


def _check_words(keywords: int, groups: int, none: int, rule: TermRule) -> None:
    """Refuse more words in all than a query may have; the part with the most of them is named."""
    count, field = max((keywords, "keywords"), (groups, "any"), (none, "none"))
    if (total := keywords + groups + none) > rule.query_words:
        of_all = "" if count == total else f" of {total} in all"
        problem = f"has {count} words{of_all}; a query may have {rule.query_words}"
        raise RecordError(field, f"{problem} (setting query-words)")


def _terms(record: Mapping[str, Any], field: str, rule: TermRule) -> tuple[str, ...]:
    """Extract the distinct terms of a field that is a list of strings."""
    value = record.get(field)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(keyword, str) for keyword in value):
        raise RecordError(field, f"{value!r} is not a list of strings")
    result: dict[str, None] = {}
    for keyword in value:
        terms = extract_terms(keyword, rule)
        if not terms:
            raise RecordError(field, f"{keyword!r} has no term: no word character is left after term extraction")
        result.update(dict.fromkeys(terms))
    return tuple(result)
