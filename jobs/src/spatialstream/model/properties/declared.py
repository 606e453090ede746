"""The properties that a stream declares, and the values of one record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.times import parse_time

__all__ = [
    "ANY_PROPERTIES",
    "ARROW",
    "LONGEST_KEYWORD",
    "MOST_PROPERTIES",
    "NO_PROPERTIES",
    "Properties",
    "PropertyType",
    "Value",
    "parse_value",
]

Value = str | float | int | bool
"""The value of a property: a keyword is a str, a number a float, a time an int (ms), a boolean a bool."""

LONGEST_KEYWORD = 4_096
"""Maximum length of a keyword in bytes of UTF-8."""

MOST_PROPERTIES = 64
"""Maximum number of properties that a stream declares."""

_LONGEST_NAME = 128
_TAKEN = frozenset(
    ("id", "t", "x", "y", "lon", "lat", "text", "terms", "geometry", "day", "distance", "distance_m", "properties")
)
"""Names of an object's own fields, and of those that results and the archive add."""


class PropertyType(StrEnum):
    """The type of a property."""

    KEYWORD = "keyword"
    NUMBER = "number"
    TIME = "time"
    BOOLEAN = "boolean"


ARROW: dict[PropertyType, pa.DataType] = {
    PropertyType.KEYWORD: pa.string(),
    PropertyType.NUMBER: pa.float64(),
    PropertyType.TIME: pa.timestamp("ms", "UTC"),
    PropertyType.BOOLEAN: pa.bool_(),
}
"""The Arrow type of each type."""

_WORDING = {
    PropertyType.KEYWORD: "a string",
    PropertyType.NUMBER: "a number",
    PropertyType.TIME: "a time, in milliseconds or ISO 8601",
    PropertyType.BOOLEAN: "true or false",
}


@dataclass(frozen=True)
class Properties:
    """The declared properties of a stream's objects.

    Attributes:
        types: names and types, in the order of the declaration.
        known: whether these are all; otherwise the stream is not known, and conditions may name any property.
    """

    types: tuple[tuple[str, PropertyType], ...] = ()
    known: bool = True

    @classmethod
    def parse(cls, declarations: Iterable[str], setting: str = "property") -> Properties:
        """Read declarations of the form ``name:type``.

        Raises:
            SettingError: a declaration is not valid, or there are two of one name.
        """
        types: dict[str, PropertyType] = {}
        for each in declarations:
            name, _, kind = each.rpartition(":")
            if not name:
                raise SettingError(setting, f"{each!r} has no type; give name:type, such as country:keyword")
            if kind not in tuple(PropertyType):
                known = ", ".join(PropertyType)
                raise SettingError(setting, f"{kind!r} of {name!r} is not a type of properties; give one of {known}")
            problem = f"{name!r} is declared twice" if name in types else _fault_of(name)
            if problem:
                raise SettingError(setting, problem)
            types[name] = PropertyType(kind)
        if len(types) > MOST_PROPERTIES:
            raise SettingError(setting, f"{len(types)} properties are too many; declare at most {MOST_PROPERTIES}")
        return cls(tuple(types.items()))

    def __bool__(self) -> bool:
        return bool(self.types)

    @property
    def declarations(self) -> list[str]:
        """What :meth:`parse` reads."""
        return [f"{name}:{kind}" for name, kind in self.types]

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        return tuple(name for name, _ in self.types)

    @property
    def times(self) -> tuple[str, ...]:
        """The names of those that are times."""
        return tuple(name for name, kind in self.types if kind is PropertyType.TIME)

    @cached_property
    def type_of(self) -> Mapping[str, PropertyType]:
        """The type of each name."""
        return dict(self.types)

    def check(self, name: str, field: str) -> PropertyType | None:
        """The type of a property that a condition names; None if that is not known.

        Raises:
            RecordError: it is not declared; the message suggests the nearest name.
        """
        found = self.type_of.get(name)
        if found is None and self.known:
            near = get_close_matches(name, self.names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the properties are {', '.join(self.names)}"
            raise RecordError(field, f"{name[:_LONGEST_NAME]!r} is not a property of the stream; {hint}")
        return found

    def read(self, record: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
        """The values of a record, without missing ones.

        Raises:
            RecordError: a value is not of the declared type; the message names both types.
        """
        given = ((name, kind, record.get(name)) for name, kind in self.types)
        return tuple((name, parse_value(name, kind, value)) for name, kind, value in given if value is not None)


NO_PROPERTIES = Properties()
"""Of a stream that declares none."""

ANY_PROPERTIES = Properties(known=False)
"""Of a stream that is not known: the types of properties are those of the values that they are compared with."""


def _fault_of(name: str) -> str:
    """What is wrong with the name of a property; an empty string: nothing."""
    if name in _TAKEN:
        return f"{name!r} is a field of every object; declare the property under another name"
    if len(name) > _LONGEST_NAME or not name.isprintable() or '"' in name or name != name.strip():
        form = f"1 to {_LONGEST_NAME} printable characters, without quotes and without space at the ends"
        return f"{name!r} is not the name of a property; give {form}"
    return ""


def parse_value(name: str, kind: PropertyType, value: object) -> Value:
    """Parse the value of a property in its JSON form.

    A keyword is a string, a number a finite JSON number (the nearest double), a time as ``t`` of objects is, a boolean
    true or false. Nothing is converted from one type to another.

    Raises:
        RecordError: the value is of another type, or out of range; the message names both types.
    """
    match kind:
        case PropertyType.KEYWORD if isinstance(value, str):
            return _keyword(name, value)
        case PropertyType.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return _number(name, value)
        case PropertyType.BOOLEAN if isinstance(value, bool):
            return value
        case PropertyType.TIME if isinstance(value, int | str) and not isinstance(value, bool):
            return parse_time(value, name)
    told = repr(value)
    told = told if len(told) <= _LONGEST_NAME else told[:_LONGEST_NAME] + "…"
    raise RecordError(name, f"{told} is {_kind_of(value)}, and {name} is declared as {kind}; give {_WORDING[kind]}")


def _kind_of(value: object) -> str:
    """The type of a JSON value, in words."""
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), f"of type {type(value).__name__}")


def _keyword(name: str, value: str) -> str:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise RecordError(name, f"{value!r} holds half of a surrogate pair; give Unicode text") from None
    if size > LONGEST_KEYWORD:
        raise RecordError(name, f"has {size} bytes; a keyword has at most {LONGEST_KEYWORD} bytes of UTF-8")
    return value


def _number(name: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RecordError(name, "is not a finite number; give one that a double can hold")
    return number + 0.0  # -0.0 is 0.0
