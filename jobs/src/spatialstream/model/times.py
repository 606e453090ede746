"""Timestamps and durations: integer milliseconds internally; ISO 8601 and ``"30m"`` are accepted as input."""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta

import numpy as np

from spatialstream.model.arrays import Ints
from spatialstream.model.errors import RecordError, SettingError

__all__ = [
    "FOREVER",
    "TIME_LIMIT",
    "TIME_UNITS",
    "UNITS",
    "check_time",
    "check_times",
    "duration_of",
    "format_duration",
    "in_milliseconds",
    "looks_like",
    "looks_unlike",
    "parse_duration",
    "parse_time",
    "time_unit",
    "whole_number",
]

TIME_LIMIT = 8_640_000_000_000_000
"""Largest absolute timestamp and duration, in ms (about 273,000 years): sums of a few of them fit into an int64."""

FOREVER = 2 * TIME_LIMIT + 1
"""A duration in ms that reaches beyond all timestamps from any of them. No valid input is that long."""

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Units of durations, each in ms."""

TIME_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Units of numeric timestamps, each in microseconds."""

_FEBRUARY_1970, _YEAR_2100, _YEAR_10000 = 2_678_400_000, 4_102_444_800_000, 253_402_300_800_000
_NEARLY_ALL = 0.95
_LOOKS = {"s": ("in January 1970", "seconds"), "us": ("beyond the year 2100", "microseconds")}
"""Where times of a unit lie if they are read as ms, and what the unit is called."""

_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|h|d|w)\s*")
_MOST_DIGITS = 4_000  # int() limits the length of a string

_WHOLE = re.compile(r"(-?)0*([0-9]+)")
_HOUR, _ZONE = r"(?:[01][0-9]|2[0-3])", r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?"
_MOMENT = re.compile(
    rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[Tt ]{_HOUR}(?::[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]+)?)?)?{_ZONE})?"
    rf"|[0-9]{{8}}[Tt]{_HOUR}(?:[0-5][0-9](?:[0-5][0-9](?:[.,][0-9]+)?)?)?{_ZONE}"
)
"""The accepted subset of ``datetime.fromisoformat``, which takes more in newer Pythons: a date, maybe a time of day."""


def parse_time(value: object, field: str = "t") -> int:
    """Parse a timestamp, in milliseconds or in the format of RFC 3339, to milliseconds since 1970-01-01 UTC.

    Milliseconds are an integer, or a string of its decimal digits (the only form in CSV, accepted in all formats). A
    time is ``YYYY-MM-DD``, optionally followed by ``T`` (or ``t``, or one space) and ``HH[:MM[:SS[.fraction]]]``, with
    ``Z`` or an offset at the end, without which it is UTC; or the basic form of ISO 8601, ``YYYYMMDDTHH[MM[SS...]]``.
    Fractions of a millisecond are truncated.

    Raises:
        RecordError: ``value`` is neither, or out of range.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        result = value
    elif isinstance(value, str) and (digits := _WHOLE.fullmatch(value)):
        result = TIME_LIMIT + 1 if len(digits[2]) > _MOST_DIGITS else int(digits[1] + digits[2])
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.upper() if _MOMENT.fullmatch(value) else "")
        except ValueError:
            raise RecordError(
                field, f'{value!r} is not a time; give milliseconds or ISO 8601, such as "2018-02-07T01:26:13.840Z"'
            ) from None
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        result = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    else:
        raise RecordError(field, f"{value!r} is not a time; give integer milliseconds or an ISO 8601 string")
    if abs(result) > TIME_LIMIT:
        raise RecordError(field, f"{value!r} is out of range; give milliseconds from {-TIME_LIMIT} to {TIME_LIMIT}")
    return result


def in_milliseconds(value: object, unit: str) -> object:
    """Convert a numeric time (an integer or its digits) from a unit to ms, rounded down; return other values unchanged.

    Args:
        value: a value that :func:`parse_time` takes.
        unit: one of :data:`TIME_UNITS`.
    """
    if isinstance(value, str) and (digits := _WHOLE.fullmatch(value)) and len(digits[2]) <= _MOST_DIGITS:
        value = int(digits[1] + digits[2])
    if isinstance(value, int) and not isinstance(value, bool):
        return value * TIME_UNITS[unit] // TIME_UNITS["ms"]
    return value


def looks_like(t: Ints, latest: int = _YEAR_2100) -> str | None:
    """Detect times that are probably not in ms: the unit, ``"s"`` or ``"us"``, that at least 95 % of them suggest.

    Read as ms, present-day seconds lie in January 1970 (or, if negative, December 1969), and microseconds beyond the
    year 2100. Zeros are ignored, because they are the same in every unit.

    Args:
        t: times in ms.
        latest: what is as late, or later, looks like microseconds.

    Returns:
        The unit; None if the times look like ms.
    """
    size = np.abs(t[t != 0])
    if len(size) and np.mean(size < _FEBRUARY_1970) >= _NEARLY_ALL:
        return "s"
    return "us" if len(size) and np.mean(size >= latest) >= _NEARLY_ALL else None


def looks_unlike(t: Ints, clock: int, name: str = "") -> str | None:
    """What is wrong with times that look as if they were not ms, unless a stream's clock looks the same; None: nothing.

    Args:
        t: times in ms.
        clock: of the stream that they are for, ms.
        name: of the property whose values they are; empty: of none.
    """
    unit = _unit_of(t, name)
    # 0 is among the times of each unit, and looks like none
    if unit is None or looks_like(np.array([clock or 1])) == unit:
        return None
    lie, seconds = _LOOKS[unit]
    return f"nearly all times{_of(name)} lie {lie}: they look like {seconds}; give ms or RFC 3339"


def _unit_of(t: Ints, name: str) -> str | None:
    """As :func:`looks_like`, of the times of objects or of a property, which may say that something never ends."""
    return looks_like(t, _YEAR_10000 if name else _YEAR_2100)


def _of(name: str) -> str:
    return f" of {name!r}" if name else ""


def check_time(value: object, clock: int) -> None:
    """Refuse a time that is a number and looks as if it were not of ms, unless a stream's clock looks the same.

    What says its unit, as RFC 3339 does, is what it says.

    Args:
        value: what :func:`parse_time` takes.
        clock: of the stream that it is for, ms.

    Raises:
        RecordError: it looks so.
    """
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        return
    unit = looks_like(np.array([t := parse_time(value)]))
    if unit is not None and looks_like(np.array([clock or 1])) != unit:
        lie, name = _LOOKS[unit]
        told = f"{t} lies {lie}, and the stream's clock at {clock}: it looks like {name}; give ms or RFC 3339"
        raise RecordError("t", told)


def check_times(t: Ints, setting: str, where: str = "", name: str = "") -> None:
    """Refuse times that were read as ms by default and look like another unit.

    Args:
        t: times that were read as ms.
        setting: the setting to name in the error, ``"objects"`` or ``"queries"``.
        where: the file, as a phrase of the error message.
        name: of the property whose values they are; empty: of none.

    Raises:
        SettingError: the times look like another unit; the message says how to specify the unit.
    """
    unit = _unit_of(t, name)
    if unit is not None:
        lie, seconds = _LOOKS[unit]
        every = f", which is then that of every time{where or ' of the input'} that is a number" if name else ""
        raise SettingError(
            setting,
            f"as milliseconds, nearly all times{_of(name)}{where} lie {lie}; they look like {seconds}: give "
            f'--time-unit {unit} (in Python time_unit="{unit}"){every}, or ms if they are milliseconds',
        )


def time_unit(value: object, setting: str = "time-unit") -> str:
    """Validate a setting that is a unit of numeric times.

    Raises:
        SettingError: it is not one of :data:`TIME_UNITS`.
    """
    if not isinstance(value, str) or value not in TIME_UNITS:
        raise SettingError(setting, f"{value!r} is not a time unit; give one of {', '.join(TIME_UNITS)}")
    return value


def parse_duration(value: object, field: str = "duration") -> int:
    """Parse a duration, integer milliseconds or a string like ``"30m"`` (ms, s, m, h, d, w), to milliseconds.

    Raises:
        RecordError: ``value`` is neither, or negative, or longer than :data:`TIME_LIMIT`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        result = value
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        digits = match[1]
        result = TIME_LIMIT + 1 if len(digits) > _MOST_DIGITS else int(digits) * UNITS[match[2]]
    else:
        raise RecordError(
            field, f'{value!r} is not a duration; give milliseconds or a string such as "30m", "2h", "7d"'
        )
    if result < 0:
        raise RecordError(field, f"{value!r} is negative; a duration is at least 0")
    if result > TIME_LIMIT:
        raise RecordError(field, f"{value!r} is out of range; give at most {TIME_LIMIT} ms")
    return result


def duration_of(value: object, setting: str) -> int:
    """Parse a setting that is a duration, in whole ms, a string like ``"30m"``, or a timedelta, to ms (rounded down).

    Raises:
        SettingError: ``value`` is none of them, or negative, or longer than :data:`TIME_LIMIT`.
    """
    if isinstance(value, timedelta):
        value = value // timedelta(milliseconds=1)
    try:
        return parse_duration(value if isinstance(value, str) else operator.index(value), setting)  # type: ignore[arg-type]
    except TypeError:
        problem = f'{value!r} is not a duration; give milliseconds, a string such as "30m", or a timedelta'
        raise SettingError(setting, problem) from None
    except RecordError as error:
        raise SettingError(setting, error.problem) from None


def whole_number(value: object, setting: str) -> int:
    """Convert a setting that is a whole number of Python or NumPy.

    Raises:
        SettingError: ``value`` is not a whole number.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SettingError(setting, f"{value!r} is not a whole number") from None


def format_duration(milliseconds: int) -> str:
    """Format a duration as its shortest exact string: ``format_duration(5_400_000) == "90m"``."""
    for unit in ("w", "d", "h", "m", "s"):
        if milliseconds and milliseconds % UNITS[unit] == 0:
            return f"{milliseconds // UNITS[unit]}{unit}"
    return f"{milliseconds}ms"
