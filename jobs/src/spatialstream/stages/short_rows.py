"""Short rows of snapshot queries, built one by one.

They are, to the byte, those of :func:`~spatialstream.stages.snapshots.rows_of`, which builds many rows column by
column: for a single short row, starting its kernels takes ten times as long as building the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spatialstream.model.queries import Query
from spatialstream.model.space import Space
from spatialstream.stages.kinds import SNAPSHOT

__all__ = ["SHORT", "items_of", "short_row"]

SHORT = 200
"""Maximum items of rows that are built here: with some 300 both ways cost the same."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def items_of(query: Query, parts: Sequence[Mapping[str, Any]]) -> int:
    """Upper bound of the items that are gone through for a query's row."""
    return SNAPSHOT[query.type].items(query, parts)


def short_row(query: Query, parts: Sequence[Mapping[str, Any]], after: int | None, space: Space) -> str:
    """The row of a query.

    Args:
        query: a snapshot query, with its time.
        parts: what slots have found, see :func:`~spatialstream.stages.snapshots.search`.
        after: objects with this timestamp, ms, or an earlier one are not kept any more, and the row says so; None: all
            are kept.
        space: of the stream.
    """
    note = "" if after is None else f', "complete_after": {after}'
    head = f'{{"query": {_quoted(query.id)}, "type": "{query.type}", "t": {query.t}{note}'
    return f"{head}, {SNAPSHOT[query.type].answer(query, parts, space)}}}"
