"""Columns: where in a record each field of an object is.

The column of a field is an expression: the name of a column, a path into nested values (``geometry.coordinates[0]``),
for ``text`` several of these with ``+`` between them (their values are joined by a space, missing ones are skipped),
and for ``t`` several with ``+`` (a date and a time of day), or year, month and day with ``-``. A column that has the
whole expression as its name comes first, so every name can be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records.reference import object_fields

__all__ = [
    "check_fields",
    "columns_of",
    "given_first",
    "is_expression",
    "lookup",
    "parse_columns",
    "paths_of",
    "steps_of",
    "value_of",
]

_STEP = re.compile(r"[^.\[\]]+|\[[0-9]{1,9}\]")
_EXPRESSION = re.compile(r"[.+\[\]-]")
_WIDTHS = (4, 2, 2)


def parse_columns(text: str) -> dict[str, str]:
    """``"id=code,text=headline"`` as ``{"id": "code", "text": "headline"}``: our field, then the input's column.

    Raises:
        SettingError: a part is not ``field=column``.
    """
    columns: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        field, equals, name = (piece.strip() for piece in part.partition("="))
        if not field or not equals or not name:
            raise SettingError("columns", f"{part!r} is not field=column")
        columns[field] = name
    return columns


def check_fields(columns: Mapping[str, str], rule: TermRule) -> None:
    """Make sure that columns are given to fields of objects, declared properties among them.

    Raises:
        SettingError: one is given to something else.
    """
    known = dict.fromkeys((*object_fields(WGS84)[:4], "x", "y", "text", "terms", *rule.properties.names))
    for field in columns:
        if field not in known:
            told = f"{field!r} is not a field of objects; they are {', '.join(known)}"
            raise SettingError("columns", f"{told}; declare it, if it is a property (setting property)")


def columns_of(space: Space, columns: Mapping[str, str], rule: TermRule = DEFAULT_RULE) -> dict[str, str]:
    """The column of each field; none of those whose name is another field's column."""
    taken = set(columns.values())
    fields = object_fields(space, rule)
    return {each: columns.get(each, each) for each in fields if each in columns or each not in taken}


def given_first(names: Mapping[str, str], columns: Mapping[str, str]) -> list[tuple[str, str]]:
    """Fields and their columns, those that are given before the others: if one is missing, it explains the most."""
    return sorted(names.items(), key=lambda each: each[0] not in columns)


def is_expression(column: str) -> bool:
    """Whether a column may be more than a name."""
    return _EXPRESSION.search(column) is not None


@lru_cache(maxsize=1024)
def steps_of(path: str) -> tuple[str | int, ...]:
    """The steps of a path: names of members, and numbers of elements from 0."""
    return tuple(int(step[1:-1]) if step.startswith("[") else step for step in _STEP.findall(path))


def lookup(record: object, path: str) -> tuple[bool, object]:
    """(whether it is there, the value) at a path of a record: by its whole name first, then step by step."""
    if isinstance(record, dict) and path in record:
        return True, record[path]
    value = record
    for step in steps_of(path):
        if isinstance(step, int):
            if not isinstance(value, list) or step >= len(value):
                return False, None
            value = value[step]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return False, None
    return True, value


@lru_cache(maxsize=1024)
def paths_of(field: str, column: str) -> tuple[str, ...]:
    """The paths of which the column of a field may consist, in the order in which they are joined."""
    if field == "text":
        return tuple(part.strip() for part in column.split("+"))
    if field == "t":
        return tuple(part.strip() for each in column.split("+") for part in each.split("-"))
    return (column,)


def value_of(record: object, field: str, column: str) -> tuple[bool, object]:
    """(whether all its columns are there, the value) of a field of an object.

    Raises:
        RecordError: a part of a time has no value.
    """
    found, value = lookup(record, column)
    parts = paths_of(field, column)
    if found or len(parts) == 1:
        return found, value
    pairs = [lookup(record, part) for part in parts]
    values = [value for _, value in pairs]
    return all(found for found, _ in pairs), joined(values) if field == "text" else time_of(column, values)


def joined(values: list[object]) -> str | None:
    """The text of several values."""
    return " ".join(str(value) for value in values if value is not None and value != "") or None


def time_of(column: str, values: list[object]) -> str | None:
    """The time of several values: dates are made of year, month and day, and joined with what follows by a space.

    Raises:
        RecordError: some of them are missing.
    """
    texts = ["" if value is None else str(value).strip() for value in values]
    if not any(texts):
        return None
    names = paths_of("t", column)
    if missing := [name for name, text in zip(names, texts, strict=True) if not text]:
        raise RecordError("t", f"has no {missing[0]}; give a time")
    parts, rest = [], iter(texts)
    for each in column.split("+"):
        dated = each.split("-")
        pieces = [next(rest) for _ in dated]
        filled = [piece.zfill(width) for piece, width in zip(pieces, _WIDTHS, strict=False)]
        parts.append("-".join(filled) if len(dated) > 1 else pieces[0])
    return " ".join(parts)
