"""Parsers for quantities of Kubernetes (``500m``, ``2Gi``, ``1e3``) and memory sizes of Java (``768m``, ``2g``)."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

from spatialstream.model.errors import SettingError

__all__ = ["MEBIBYTE", "parse_heap", "parse_quantity"]

MEBIBYTE = 1 << 20

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,2})|([numkMGTPE]|[KMGTPE]i)?)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_HEAP = re.compile(r"([1-9][0-9]*)([mg])")


def parse_quantity(value: object, field: str) -> int:
    """A quantity as an integer number of its unit (bytes, cores), rounded up.

    Args:
        value: an integer or a string.
        field: the path of the field, for the error.

    Raises:
        SettingError: the value is not a quantity.
    """
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value))
    if match is None:
        raise SettingError(field, f"{value!r} is not a quantity; give one such as 2Gi")
    number, exponent, suffix = Decimal(match[1]), match[2], match[3] or ""
    scale = Decimal(1024) ** _BINARY[suffix] if suffix in _BINARY else Decimal(10) ** int(exponent or _DECIMAL[suffix])
    return int((number * scale).to_integral_value(ROUND_CEILING))


def parse_heap(value: object, field: str) -> int:
    """A memory size of Java in MiB, from a string such as ``768m`` or ``2g``.

    Raises:
        SettingError: the value is not such a string.
    """
    match = _HEAP.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise SettingError(field, f"{value!r} is not a memory size of Java; give one such as 768m or 2g")
    return int(match[1]) * (1024 if match[2] == "g" else 1)
