"""Tolerant readers and writers of the values in a resource's status.

A status may have been written by an older or a newer operator, or by a person. A value of an unexpected type counts as
absent: the decision then starts from its initial state, which is always safe, and never fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.times import parse_time

__all__ = ["flag", "moment", "moment_text", "part", "ratio", "ratio_text", "text", "texts", "whole"]

_LATEST = 253_402_300_799_999  # the end of the year 9999, the last that ISO 8601 has four digits for


def moment_text(at: int | None) -> str | None:
    """A time in ms since 1970-01-01 UTC in the format of Kubernetes; with ms only if they are not 0.

    >>> moment_text(1_795_262_400_000), moment_text(1_795_262_400_250)
    ('2026-11-21T12:00:00Z', '2026-11-21T12:00:00.250Z')
    """
    if at is None:
        return None
    seconds, rest = divmod(min(max(at, 0), _LATEST), 1000)
    written = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{written}.{rest:03}Z" if rest else f"{written}Z"


def moment(record: Mapping[str, Any], key: str) -> int | None:
    """The time at a key, in ms; None if there is none."""
    value = record.get(key)
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except RecordError:
        return None


def ratio_text(value: float | None) -> str | None:
    """A ratio in the form of a status: a string, because JSON has no infinity.

    >>> ratio_text(9.28125), ratio_text(float("inf"))
    ('9.28', '+Inf')
    """
    if value is None or math.isnan(value):
        return None
    return "+Inf" if math.isinf(value) else f"{value:.2f}"


def ratio(record: Mapping[str, Any], key: str) -> float | None:
    """The ratio at a key, at least 0 and perhaps infinite; None if there is none."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number >= 0.0 else None


def whole(record: Mapping[str, Any], key: str) -> int | None:
    """The whole number of at least 0 at a key; None if there is none."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text(record: Mapping[str, Any], key: str) -> str:
    """The string at a key; "" if there is none."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def flag(record: Mapping[str, Any], key: str) -> bool | None:
    """The truth value at a key; None if there is none."""
    value = record.get(key)
    return value if isinstance(value, bool) else None


def texts(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The strings in the list at a key."""
    value = record.get(key)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list | tuple) else ()


def part(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The mapping at a key; an empty one if there is none."""
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}
