"""Records of queries, checked and parsed where they enter a client; from there on queries travel parsed."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.queries import Cancellation, Query, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import ANY_WORDS, TermRule

__all__ = ["check_queries", "checked_query"]


def check_queries(
    records: Iterable[tuple[str, object]], space: Space, rule: TermRule = ANY_WORDS
) -> list[dict[str, Any]]:
    """Check records of queries, and give an id to those without one; a record without a time gets it when it is sent.

    Args:
        records: how to call the place that each comes from, and the record.
        space: of the stream.
        rule: of the stream's terms; default: one that takes any number of words, for the stream will say.

    Raises:
        SettingError: a record is not a valid query of this stream; names its origin, the field, and what would be
            right.
    """
    checked: list[dict[str, Any]] = []
    ids: set[str] = set()
    for place, given in records:
        record, query = checked_query(place, given, space, rule)
        if isinstance(query, Query):
            if query.id in ids:
                raise SettingError(place, f"another query has the same id {query.id!r}")
            ids.add(query.id)
        checked.append(record)
    return checked


def checked_query(
    place: str, given: object, space: Space, rule: TermRule
) -> tuple[dict[str, Any], Query | Cancellation]:
    """Check one record for :func:`check_queries`, and parse it; a query without a time gets time 0."""
    if not isinstance(given, dict):
        raise SettingError(place, "is not a JSON object")
    record = {name: value for name, value in given.items() if name != "t" or value is not None}
    if record.get("id") is None and record.get("type") != "CANCEL":
        record["id"] = f"q-{uuid.uuid4().hex[:12]}"
    try:
        query = parse_query({"t": 0, **record}, space, rule)
        query.id.encode()
        record["id"] = query.id
    except RecordError as error:
        raise SettingError(place, str(error)) from None
    except UnicodeEncodeError:
        raise SettingError(place, "id: holds half of a surrogate pair; give Unicode text") from None
    return record, query
