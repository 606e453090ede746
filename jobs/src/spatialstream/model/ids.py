"""Ids of objects and queries: strings, or whole numbers, which are converted to their decimal digits."""

from __future__ import annotations

from decimal import Decimal

from spatialstream.model.errors import RecordError

__all__ = ["EXACT_FLOATS", "parse_id"]

EXACT_FLOATS = 2.0**53
"""Below this, a float represents exactly one whole number; from here on, several whole numbers share one float."""

_MOST_BITS = 10_000
_MOST = Decimal(10) ** 76


def parse_id(value: object) -> str:
    """Parse an id. A whole number of any numeric type is converted to its decimal digits.

    Raises:
        RecordError: ``value`` is something else, or a float that may represent several whole numbers.
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise RecordError("id", "is required; give a string")
    if isinstance(value, float) and not abs(value) < EXACT_FLOATS:
        told = f"{value!r} is a float of 2^53 or more, which may have lost digits; give an integer or a string"
        raise RecordError("id", told)
    if isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > _MOST_BITS:
            raise RecordError("id", "is an integer with too many digits; give a string")
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, Decimal) and -_MOST < value < _MOST and value == value.to_integral_value():
        return str(int(value))
    raise RecordError("id", f"{value!r} is neither a string nor a whole number")
