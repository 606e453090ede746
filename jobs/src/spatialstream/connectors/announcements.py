"""Parses messages of the announcement log, whatever else others may have written there.

Valid messages are announcements of epochs, and those of :mod:`spatialstream.stream.leadership`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["announcements_within", "read_announcement"]


def announcements_within(values: Iterable[bytes | None], incarnation: str) -> list[dict[str, Any] | None]:
    """The announcements of an incarnation of the stream among the values of messages.

    None for each message that belongs to no incarnation.
    """
    read = map(read_announcement, values)
    return [each for each in read if each is None or each.get("incarnation", "") == incarnation]


def read_announcement(value: bytes | None) -> dict[str, Any] | None:
    """An announcement from the value of its message; None if it is none, whatever its bytes are."""
    try:
        record: object = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not all(
        _is_text(record.get(name, "")) for name in ("job", "leadership", "incarnation")
    ):
        return None
    return record if any(_fits(record, fields) for fields in _FORMS) else None


def _fits(record: Mapping[str, object], fields: Mapping[str, Callable[[object], bool]]) -> bool:
    return record.keys() & _FIELDS == fields.keys() and all(fits(record[name]) for name, fits in fields.items())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_list(*fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Accepts lists with as many values as there are tests; with a single test, lists of any length."""

    def check(value: object) -> bool:
        if not isinstance(value, list):
            return False
        tests = fits * len(value) if len(fits) == 1 else fits
        return len(value) == len(tests) and all(test(each) for test, each in zip(tests, value, strict=True))

    return check


_ANNOUNCED: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(("epoch", "before", "watermark", "born", "refused", "records", "revision"), _is_number),
    "adoption": lambda value: isinstance(value, dict) and _is_number(value.get("active")),
    "controls": _is_list(_is_list(_is_text, _is_number)),
    "past": _is_list(_is_list(_is_number, _is_number, _is_number)),
    "ends": _is_list(_is_number),
}
"""The minimum fields of an announcement; see :meth:`spatialstream.stream.router.Router.announcement`."""

_BEGINNING: Mapping[str, Callable[[object], bool]] = {"number": _is_number}
_RESTATEMENT: Mapping[str, Callable[[object], bool]] = dict.fromkeys(
    ("number", "begun", "count", "announced"), _is_number
)
_DECISION: Mapping[str, Callable[[object], bool]] = {
    "record": _is_text,
    **dict.fromkeys(("turn", "count", "keep"), _is_number),
}
_WITH_RECORD: Mapping[str, Callable[[object], bool]] = {**_DECISION, "content": _is_text}
_FORMS = (_ANNOUNCED, _BEGINNING, _RESTATEMENT, _DECISION, _WITH_RECORD)
_FIELDS = frozenset().union(*_FORMS)
"""A message has the fields of one form, and none of another: so its reader may access any of them."""
