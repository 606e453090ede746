"""Conditions in CQL2 (OGC 21-065r2), as text or JSON, to their normal form.

The subset: ``and or not``, the comparisons ``= <> < <= > >=`` of a property with a value, ``between``, ``in`` with a
list of values, ``isNull``, and ``like`` with a prefix (``'abc%'``) for keywords. Everything else is an error that names
the operator: to ignore a part of a condition would find other objects than were asked for.

Text is parsed by the library ``cql2``, whose JSON is then read like that of a record. Its parser recurses on the
stack of the thread, and a stack that overflows ends the process; :func:`_check_nesting` refuses what is too deep first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.properties.condition import Both, Condition, Either, Test, all_of, any_of, encoded
from spatialstream.model.properties.declared import Properties, PropertyType, Value, parse_value
from spatialstream.model.times import parse_time

__all__ = ["FIELD", "LONGEST_TEXT", "MOST_VALUES", "parse_where"]

FIELD = "where"
"""The field of queries that holds a condition."""

LONGEST_TEXT = 8_192
"""Maximum length of a condition in characters, of CQL2 text and of the encoded form."""

MOST_VALUES = 1_000
"""Maximum number of values that a condition compares with."""

_DEEPEST = 64
_MOST_SIGNS = 128
_MOST_OF_ALL = 1_000
"""Limits of nesting, of text in which strings are left out, and (because what is a string is the library's to say) of
all of it. A thread of 512 KiB parses 64 levels, one of 8 MiB 1,000."""

_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_NOT = re.compile(r"\bnot\b", re.IGNORECASE)
_SIGN = re.compile(r"[-+*/%^]")

_COMPARISONS = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparisons, and what each is with its sides exchanged."""

_SUBSET = "and or not = <> < <= > >= between in isNull like"


def parse_where(value: object, properties: Properties) -> Condition:
    """Parse and check a condition in CQL2, as text or JSON.

    Args:
        value: a string, or what JSON is in Python.
        properties: those of the stream.

    Raises:
        RecordError: the stream declares no properties, or the condition is not CQL2, is outside the subset, names a
            property that is not declared, or compares one with a value of another type.
    """
    if properties.known and not properties:
        raise _fault("the stream declares no properties; remove it, or declare them (setting property)")
    form = _from_text(value) if isinstance(value, str) else value
    reader = _Reader(properties)
    condition = reader.condition(form, 0, negated=False)
    if len(encoded(condition)) > LONGEST_TEXT:
        raise _fault(f"is longer than {LONGEST_TEXT} characters in normal form; give a shorter condition")
    return condition


def _fault(problem: str) -> RecordError:
    return RecordError(FIELD, problem)


# ---------------------------------------------------------------------------------------------------------------- text


def _from_text(text: str) -> Any:
    """The JSON form of CQL2 text."""
    import cql2  # a megabyte of machine code that only those need who write conditions as text

    _check_nesting(text)
    try:
        return cql2.parse_text(text).to_json()
    except cql2.ParseError as error:
        raise _fault(f"is not CQL2 text: {_told(str(error))}") from None
    except Exception as error:  # noqa: BLE001 - the library raises no narrower class where a number is out of range
        raise _fault(f"is not CQL2 text: {error}") from None


def _told(error: str) -> str:
    """What the library says of a mistake, in a line: the place, and what it expected there."""
    place = re.search(r"--> 1:(\d+)", error) or re.search(r"--> (\d+:\d+)", error)
    expected = error.rpartition("=")[2].strip()
    return f"at character {place[1]}, {expected}" if place else expected


def _check_nesting(text: str) -> None:
    """Refuse a text that could be too deep for the library's parser."""
    if len(text) > LONGEST_TEXT:
        raise _fault(f"has {len(text)} characters; give at most {LONGEST_TEXT}")
    plain = _QUOTED.sub("''", text)
    depth = deepest = 0
    for each in plain:
        depth += (each == "(") - (each == ")")
        deepest = max(deepest, depth)
    crowded = len(_NOT.findall(plain)) > _DEEPEST or len(_SIGN.findall(plain)) > _MOST_SIGNS
    total = text.count("(") + len(_NOT.findall(text)) + len(_SIGN.findall(text))
    if deepest > _DEEPEST or crowded or total > _MOST_OF_ALL:
        raise _fault(f"is nested too deeply; give at most {_DEEPEST} levels of parentheses and of NOT")


# ---------------------------------------------------------------------------------------------------------------- JSON


class _Reader:
    """Reads one condition in JSON, and counts its values."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self._values = 0

    def condition(self, form: object, depth: int, *, negated: bool) -> Condition:
        """The condition of a form; with ``negated``, of its negation."""
        if depth > _DEEPEST:
            raise _fault(f"is nested too deeply; give at most {_DEEPEST} levels")
        op, args = _operation(form)
        match op.lower():
            case "not":
                (only,) = _arguments(op, args, 1)
                return self.condition(only, depth + 1, negated=not negated)
            case "and" | "or":
                if not args:
                    raise _fault(f"{op} has no arguments; give at least one")
                join: Callable[[Sequence[Condition]], Both | Either | Test] = (
                    all_of if (op.lower() == "and") != negated else any_of
                )
                return join([self.condition(each, depth + 1, negated=negated) for each in args])
            case "isnull":
                (only,) = _arguments(op, args, 1)
                return self._null(only, negated)
        return self._predicate(op, args, negated)

    def _predicate(self, op: str, args: Sequence[object], negated: bool) -> Condition:
        """The condition of a comparison."""
        if op in _COMPARISONS:
            left, right = _arguments(op, args, 2)
            if _name_of(left) is None and _name_of(right) is not None:
                left, right, op = right, left, _COMPARISONS[op]
            return self._compared(left, op, right, negated)
        match op.lower():
            case "between":
                name, low, high = _arguments(op, args, 3)
                ends = [self._compared(name, ">=", low, negated), self._compared(name, "<=", high, negated)]
                return (any_of if negated else all_of)(ends)
            case "in":
                name, values = _arguments(op, args, 2)
                return self._listed(name, values, negated)
            case "like":
                name, pattern = _arguments(op, args, 2)
                return self._like(name, pattern, negated)
        raise _fault(f"{op[:40]} is not supported; the operators are {_SUBSET}")

    def _test(self, name: str, kind: PropertyType, op: str, values: Sequence[Value], negated: bool) -> Test:
        self._values += len(values)
        if self._values > MOST_VALUES:
            raise _fault(f"compares with more than {MOST_VALUES} values; give fewer")
        test = Test(name, kind, op, tuple(values))
        return test.negated() if negated else test

    def _null(self, form: object, negated: bool) -> Condition:
        name = self._property("isNull", form)
        kind = self._properties.check(name, FIELD) or PropertyType.KEYWORD
        return self._test(name, kind, "null", (), negated)

    def _compared(self, form: object, op: str, literal: object, negated: bool) -> Condition:
        name = self._property(op, form)
        kind, value = self._value(name, op, literal)
        if op in ("=", "<>"):
            return self._test(name, kind, "in", [value], negated != (op == "<>"))
        if kind is PropertyType.BOOLEAN:
            raise _fault(f"{op} does not apply to {name}, which is a boolean; give = or <>")
        return self._test(name, kind, op, [value], negated)

    def _listed(self, form: object, literals: object, negated: bool) -> Condition:
        name = self._property("in", form)
        if not isinstance(literals, list) or not literals:
            raise _fault("in needs a list of one value or more")
        if len(literals) > MOST_VALUES:
            raise _fault(f"compares with more than {MOST_VALUES} values; give fewer")
        found = [self._value(name, "in", literal) for literal in literals]
        kinds = {kind for kind, _ in found}
        if len(kinds) > 1:
            raise _fault(f"in of {name} has values of several types: {', '.join(sorted(kinds))}")
        return self._test(name, kinds.pop(), "in", sorted({value for _, value in found}), negated)

    def _like(self, form: object, pattern: object, negated: bool) -> Condition:
        name = self._property("like", form)
        kind = self._properties.check(name, FIELD) or PropertyType.KEYWORD
        if kind is not PropertyType.KEYWORD:
            raise _fault(f"like does not apply to {name}, which is a {kind}; it is for keywords")
        if not isinstance(pattern, str):
            raise _fault("like needs a pattern, a string")
        prefix, whole = _prefix_of(str(parse_value(name, kind, pattern)))
        return self._test(name, kind, "in" if whole else "like", [prefix], negated)

    def _property(self, op: str, form: object) -> str:
        name = _name_of(form)
        if name is None:
            operation = isinstance(form, Mapping) and form.get("op")
            problem = f"{operation} is not supported" if operation else f"{op} has no property"
            raise _fault(f"{problem}; compare a property with a value, as in priority >= 3")
        return name

    def _value(self, name: str, op: str, literal: object) -> tuple[PropertyType, Value]:
        """The type of a property, and a value to compare it with."""
        declared = self._properties.check(name, FIELD)
        if literal is None:
            raise _fault(f"{op} null is never true; give {name} IS NULL (isNull)")
        other = _name_of(literal)
        if other is not None:
            raise _fault(f"{op} compares the properties {name} and {other}; compare a property with a value")
        found = _kind_of(literal)
        if found is None:
            operation = literal.get("op") or next(iter(literal), "{}") if isinstance(literal, Mapping) else literal
            raise _fault(f"{str(operation)[:40]} is not supported as a value; give a string, number, time or boolean")
        kind = declared or found
        if kind is not found:
            right = _RIGHT[kind]
            told = f"{_shown(literal)} is a {_CALLED[found]}, and {name} is declared as {kind}; give {right}"
            raise _fault(f"{name} {op} {told}")
        try:
            return kind, _time(literal) if kind is PropertyType.TIME else parse_value(name, kind, literal)
        except RecordError as error:
            raise _fault(f"{name} {op}: {error.problem}") from None


_CALLED = {
    PropertyType.KEYWORD: "string",
    PropertyType.NUMBER: "number",
    PropertyType.TIME: "time",
    PropertyType.BOOLEAN: "boolean",
}
_RIGHT = {
    PropertyType.KEYWORD: "a string, such as 'high'",
    PropertyType.NUMBER: "a number, such as 3",
    PropertyType.TIME: "a time, such as TIMESTAMP('2026-01-31T12:00:00Z') or DATE('2026-01-31')",
    PropertyType.BOOLEAN: "true or false",
}


def _operation(form: object) -> tuple[str, Sequence[object]]:
    """Operator and arguments of a form."""
    name = _name_of(form)
    if name is not None:
        raise _fault(f"{name!r} alone is not a condition; give a comparison, such as {name} = true")
    if isinstance(form, bool):
        raise _fault(f"{str(form).lower()} alone is not a condition on properties; give a comparison, or remove it")
    if not isinstance(form, Mapping) or not isinstance(form.get("op"), str) or not isinstance(form.get("args"), list):
        raise _fault('must be CQL2: text such as "priority >= 3", or JSON such as {"op": ">=", "args": [...]}')
    _check_members(form, "op", "args")
    return form["op"], form["args"]


def _check_members(form: Mapping[Any, Any], *known: str) -> None:
    """Refuse members that would be passed over, such as the second of two conditions in one object."""
    for name in [name for name in form if name not in known]:
        raise _fault(f"{str(name)[:40]!r} has no meaning beside {' and '.join(known)}; remove it")


def _arguments(op: str, args: Sequence[object], n: int) -> Sequence[object]:
    if len(args) != n:
        raise _fault(f"{op} has {len(args)} arguments; it takes {n}")
    return args


def _name_of(form: object) -> str | None:
    """The name of a property, if the form is one."""
    name = form.get("property") if isinstance(form, Mapping) else None
    if not isinstance(name, str):
        return None
    _check_members(form, "property")  # type: ignore[arg-type]  # it is a mapping
    return name


def _kind_of(literal: object) -> PropertyType | None:
    """The type of a literal; None: it is none."""
    match literal:
        case bool():
            return PropertyType.BOOLEAN
        case int() | float():
            return PropertyType.NUMBER
        case str():
            return PropertyType.KEYWORD
        case {"timestamp": str(), **rest} | {"date": str(), **rest} if not rest:
            return PropertyType.TIME
    return None


def _shown(literal: object) -> str:
    """A literal in a message, as in CQL2 text."""
    if isinstance(literal, Mapping):
        ((form, text),) = literal.items()
        return f"{str(form).upper()}({text!r})"
    if isinstance(literal, bool):
        return str(literal).lower()
    shown = repr(literal)
    return shown if len(shown) <= 60 else shown[:60] + "…"


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DIGITS = re.compile(r"-?[0-9]+")
_FIRST, _END = -62_135_596_800_000, 253_402_300_800_000
"""The years 1 to 9999, which RFC 3339 has: other times are digits in the normal form."""


def _time(literal: object) -> int:
    """The instant of a timestamp, or of the beginning of a date in UTC."""
    assert isinstance(literal, Mapping)
    text = literal.get("date", literal.get("timestamp"))
    if "date" in literal and not _DATE.fullmatch(text):
        raise _fault(f"{text!r} is not a date; give YYYY-MM-DD")
    t = parse_time(text, FIELD)
    if _DIGITS.fullmatch(text) and _FIRST <= t < _END:  # of which unit, nobody has said
        raise _fault(f"{text!r} is not a timestamp; give RFC 3339, such as 2026-01-31T12:00:00Z")
    return t


def _prefix_of(pattern: str) -> tuple[str, bool]:
    """(prefix, whether it is all of the keyword) of a pattern that has no ``%`` but one at its end."""
    prefix, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            char = pattern[at]
        elif char == "%" and at == len(pattern) - 1:
            return prefix, False
        elif char in "%_":
            raise _fault(f"like {pattern!r} is not supported: a pattern is a prefix and one % at its end, as in 'abc%'")
        prefix += char
        at += 1
    return prefix, True
