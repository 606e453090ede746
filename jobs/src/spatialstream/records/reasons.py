"""Classes of reasons for rejecting records, by which they are counted.

A dead letter's reason is a sentence that begins with the field: thousands of letters have thousands of reasons, but a
metric must be bounded. Times have classes of their own, since they say more about the stream than about the record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from spatialstream.records.commonest import commonest

__all__ = [
    "REASONS",
    "VALUES",
    "all_rejected",
    "common_reasons",
    "in_the_future",
    "reason_class",
    "renamed",
    "told_reasons",
    "too_old",
]

_FIELDS = ("id", "t", "text", "terms", "type", "region", "at", "keywords", "where", "k", "duration", "window", "step")

REASONS = (*_FIELDS, "place", "late", "future", "json", "size", "clock", "other")
"""The classes: the invalid field (``place`` for a coordinate); ``late`` and ``future`` for times that the stream does
not accept; ``json`` and ``size`` for input that is not a record, or too long; ``clock`` for watermarks."""

_OF_NAME = {name: name for name in (*_FIELDS, "clock")} | dict.fromkeys(("lon", "lat", "x", "y"), "place")
_OF_TIME = (("is too old;", "late"), ("is in the future;", "future"))


def reason_class(reason: str) -> str:
    """The class of a dead letter's reason, ``field: problem``; one of :data:`REASONS`."""
    field, _, problem = reason.partition(":")
    if field == "record":
        return "size" if "are too many" in problem else "json"
    if field == "t":
        return next((word for text, word in _OF_TIME if text in problem), "t")
    return _OF_NAME.get(field.split(".")[0].split("[")[0], "other")


VALUES = r"'[^']*'|\"[^\"]*\"|[-+]?\d[-+.\w]*"
"""What differs between two reasons that say the same of different records, as a regular expression of Python and
Java."""

_VALUE = re.compile(VALUES)
_TOGETHER = 10_000


def common_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """How often there are which reasons, the commonest first, each told of the first record that has it."""
    total, left = dict[str, int](), iter(reasons)
    while some := Counter(islice(left, _TOGETHER)):
        total = commonest([total, some], lambda reason: _VALUE.sub("", reason))
    return total


def told_reasons(reasons: Mapping[str, int], most: int = 3) -> list[str]:
    """The first of what :func:`common_reasons` gives, a line each."""
    return [f"{count:,} such as: {reason}" for reason, count in reasons.items() if reason][:most]


def all_rejected(kinds: Iterable[str]) -> str:
    """That everything of some kinds, ``"objects"`` or ``"queries"``, was rejected."""
    names = {"objects": "object", "queries": "query"}
    return f"every {' and every '.join(names[kind] for kind in kinds)} was rejected"


def renamed(reason: str, columns: Mapping[str, str]) -> str:
    """A reason that begins with one of our fields, with the name that the field has in the input."""
    field, colon, problem = reason.partition(": ")
    field, dot, rest = field.partition(".")
    return f"{columns.get(field, field)}{dot}{rest}{colon}{problem}" if colon else reason


def too_old(t: int, floor: int) -> str:
    """What is wrong with an object of a time (ms) up to the floor."""
    return f"{t} is too old; retention has passed everything up to {floor}"


def in_the_future(t: int, ceiling: int) -> str:
    """What is wrong with a record or watermark of a time (ms) after the ceiling."""
    return f"{t} is in the future; the latest that is taken now is {ceiling}"
