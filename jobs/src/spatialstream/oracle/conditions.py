"""Whether an object satisfies a condition in CQL2, in three-valued logic, directly from the standard.

A test of a missing value is unknown (None); ``not``, ``and`` and ``or`` are Kleene's; only what is true satisfies.
Numbers are compared as fractions, times as instants, strings by code points.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

__all__ = ["satisfies", "truth"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def satisfies(condition: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether the condition is true.

    Args:
        condition: CQL2 JSON.
        values: those of the object that are not missing; of times the ms since 1970.
    """
    return truth(condition, values) is True


def truth(condition: Mapping[str, Any], values: Mapping[str, Any]) -> bool | None:
    """True, false, or None: unknown."""
    args: Sequence[Any] = condition["args"]
    match condition["op"]:
        case "not":
            inner = truth(args[0], values)
            return None if inner is None else not inner
        case "and":
            found = [truth(each, values) for each in args]
            return False if False in found else None if None in found else True
        case "or":
            found = [truth(each, values) for each in args]
            return True if True in found else None if None in found else False
        case "isNull":
            return args[0]["property"] not in values
        case "between":
            ends = [{"op": op, "args": [args[0], end]} for op, end in ((">=", args[1]), ("<=", args[2]))]
            return truth({"op": "and", "args": ends}, values)
        case "in":
            return truth({"op": "or", "args": [{"op": "=", "args": [args[0], each]} for each in args[1]]}, values)
        case "like":
            value = values.get(args[0]["property"])
            return None if value is None else _is_like(value, args[1])
    left, right = (_scalar(each, values) for each in args)
    return None if left is None or right is None else _compared(condition["op"], left, right)


def _compared(op: str, left: Any, right: Any) -> bool:
    results = {"=": left == right, "<>": left != right}
    if op in results:
        return bool(results[op])
    below, above = left < right, left > right
    return bool({"<": below, ">": above, "<=": not above, ">=": not below}[op])


def _scalar(form: Any, values: Mapping[str, Any]) -> Any:
    """The value of an operand: exact numbers (times too), strings as lists of code points, booleans."""
    if isinstance(form, Mapping) and "property" in form:
        form = values.get(form["property"])
    if isinstance(form, Mapping):
        text = form.get("timestamp") or form["date"]
        if re.fullmatch(r"-?\d+", text):
            return Fraction(int(text))
        moment = datetime.fromisoformat(text)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        return Fraction(since // timedelta(milliseconds=1))
    if isinstance(form, str):
        return [*map(ord, form)]
    return form if form is None or isinstance(form, bool) else Fraction(float(form))


def _is_like(value: str, pattern: str) -> bool:
    r"""Whether all of a value is what a pattern says: ``%`` is any text, ``_`` a character, ``\`` makes plain."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    meaning = {"%": ".*", "_": "."}
    expression = "".join(meaning.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(expression, value, re.DOTALL) is not None
