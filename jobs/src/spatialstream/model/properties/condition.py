"""Conditions on properties, in a normal form.

A condition is a test of one property, or a conjunction or disjunction of conditions. Negations are moved to the tests
(De Morgan's laws hold in three-valued logic), where ``not`` of ``<`` is ``>=``, and so on. A test of a missing value is
then false in place of unknown: conjunction and disjunction are monotone, so whether the whole is *true* does not change
(unknown and false are both not true, and no negation is left that could tell them apart).

The form is canonical: conjunctions and disjunctions are flat, have no repeated parts and are in a fixed order; values
of a list are sorted. ``between`` is two comparisons, ``=`` and ``<>`` are lists of one value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from spatialstream.model.properties.declared import PropertyType, Value

__all__ = [
    "OPPOSITE",
    "Both",
    "Condition",
    "Either",
    "Test",
    "all_of",
    "any_of",
    "cql2_of",
    "decoded",
    "encoded",
    "text_of",
]

OPPOSITE = {
    "in": "not in",
    "not in": "in",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "like": "not like",
    "not like": "like",
    "null": "not null",
    "not null": "null",
}
"""The operator of the negation of each test."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test of one property.

    Attributes:
        property: its name.
        type: its type.
        op: a key of :data:`OPPOSITE`; ``like`` is whether a keyword begins with a prefix.
        values: of ``in`` and ``not in`` one or more, ascending; of ``null`` and ``not null`` none; of others one.
    """

    property: str
    type: PropertyType
    op: str
    values: tuple[Value, ...] = ()

    def negated(self) -> Test:
        """The test that holds where this one does not; neither holds for a missing value, but that of nulls."""
        return Test(self.property, self.type, OPPOSITE[self.op], self.values)


@dataclass(frozen=True, slots=True)
class Both:
    """A conjunction of two or more parts."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """A disjunction of two or more parts."""

    parts: tuple[Condition, ...]


Condition = Test | Both | Either


def all_of(parts: Iterable[Condition]) -> Condition:
    """The canonical conjunction of one part or more."""
    return _joined(Both, parts)


def any_of(parts: Iterable[Condition]) -> Condition:
    """The canonical disjunction of one part or more."""
    return _joined(Either, parts)


def _joined(kind: type[Both | Either], parts: Iterable[Condition]) -> Condition:
    flat: set[Condition] = set()
    for part in parts:
        flat.update(part.parts if isinstance(part, kind) else (part,))
    if len(flat) == 1:
        return flat.pop()
    return kind(tuple(sorted(flat, key=_place)))


def _place(part: Condition) -> tuple[str, str]:
    """The place of a part among others: tests by property, then what has parts."""
    return (f" {part.property}" if isinstance(part, Test) else "~", encoded(part))


# ------------------------------------------------------------------------------------------- within processes and files


def encoded(condition: Condition) -> str:
    """The form in which conditions are stored and sent: compact JSON without spaces, equal for equal conditions."""
    text = json.dumps(_listed(condition), ensure_ascii=False, separators=(",", ":"))
    return text.replace(" ", "\\u0020")


def _listed(condition: Condition) -> list[Any]:
    if isinstance(condition, Test):
        return [condition.op.replace(" ", "-"), condition.property, condition.type.value, *condition.values]
    return ["and" if isinstance(condition, Both) else "or", *map(_listed, condition.parts)]


@lru_cache(4_096)
def decoded(text: str) -> Condition:
    """Read :func:`encoded`, which is not checked."""
    return _unlisted(json.loads(text))


def _unlisted(form: list[Any]) -> Condition:
    op, *rest = form
    if op in ("and", "or"):
        return (Both if op == "and" else Either)(tuple(map(_unlisted, rest)))
    name, kind, *values = rest
    return Test(name, PropertyType(kind), op.replace("-", " "), tuple(values))


# ------------------------------------------------------------------------------------------------ for users and people


def cql2_of(condition: Condition) -> dict[str, Any]:
    """The condition in CQL2 JSON."""
    if isinstance(condition, Both | Either):
        op = "and" if isinstance(condition, Both) else "or"
        return {"op": op, "args": [cql2_of(part) for part in condition.parts]}
    op = condition.op.removeprefix("not ")
    if condition.op in ("not in", "not like", "not null"):
        return {"op": "not", "args": [cql2_of(condition.negated())]}
    name, values = {"property": condition.property}, [_json_value(condition.type, each) for each in condition.values]
    match op:
        case "null":
            return {"op": "isNull", "args": [name]}
        case "like":
            return {"op": "like", "args": [name, _pattern(str(condition.values[0]))]}
        case "in" if len(values) > 1:
            return {"op": "in", "args": [name, values]}
    return {"op": "=" if op == "in" else op, "args": [name, values[0]]}


def _json_value(kind: PropertyType, value: Value) -> Any:
    return {"timestamp": _instant(int(value))} if kind is PropertyType.TIME else value


def _pattern(prefix: str) -> str:
    """The pattern of ``like`` for a prefix."""
    for special in ("\\", "%", "_"):
        prefix = prefix.replace(special, "\\" + special)
    return prefix + "%"


def text_of(condition: Condition) -> str:
    """The condition in CQL2 text."""
    if isinstance(condition, Test):
        return _test_text(condition)
    word = " AND " if isinstance(condition, Both) else " OR "
    return word.join(_part_texts(condition))


def _part_texts(condition: Both | Either) -> Iterator[str]:
    for part in condition.parts:
        told = text_of(part)
        yield f"({told})" if isinstance(condition, Both) and isinstance(part, Either) else told


def _test_text(test: Test) -> str:
    name, values = _name(test.property), [_literal(test.type, value) for value in test.values]
    match test.op:
        case "in" | "not in" if len(values) > 1:
            return f"{name} {test.op.upper()} ({', '.join(values)})"
        case "in" | "not in":
            return f"{name} {'=' if test.op == 'in' else '<>'} {values[0]}"
        case "like" | "not like":
            return f"{name} {test.op.upper()} {_literal(PropertyType.KEYWORD, _pattern(str(test.values[0])))}"
        case "null" | "not null":
            return f"{name} IS {test.op.upper()}"
    return f"{name} {test.op} {values[0]}"


_WORDS = frozenset(
    ("and", "or", "not", "between", "in", "is", "null", "like", "true", "false", "date", "timestamp", "interval", "div")
)
"""Words that a parser could take for something else than a name."""


def _name(name: str) -> str:
    """The name of a property, in quotes where it could be read as something else."""
    plain = name.isascii() and name[0].isalpha() and name.replace("_", "a").replace(".", "a").isalnum()
    return name if plain and name.lower() not in _WORDS else f'"{name}"'


def _literal(kind: PropertyType, value: Value) -> str:
    match kind:
        case PropertyType.KEYWORD:
            return "'" + str(value).replace("'", "''") + "'"
        case PropertyType.TIME:
            return f"TIMESTAMP('{_instant(int(value))}')"
        case PropertyType.BOOLEAN:
            return "true" if value else "false"
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _instant(t: int) -> str:
    """A time in RFC 3339; in ms as digits if it has no such form."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=t)
    except OverflowError:
        return str(t)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.").rjust(20, "0") + f"{t % 1_000:03d}Z"
