"""Short rows of snapshot queries, built one by one.

They are, to the byte, those of :func:`~spatialstream.stages.snapshots.rows_of`, which builds many rows column by
column: for a single short row, starting its kernels takes ten times as long as building the row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spatialstream.local.snapshot.totals import added_up, largest
from spatialstream.model.queries import Nearest, Query, TopTerms
from spatialstream.model.space import Space

__all__ = ["SHORT", "items_of", "short_row"]

SHORT = 200
"""Maximum objects or terms of rows that are built here: with some 300 both ways cost the same."""

_quoted = json.JSONEncoder(ensure_ascii=False).encode


def items_of(query: Query, parts: Sequence[Mapping[str, Any]]) -> int:
    """Upper bound of the objects or terms of a query's row, before those of an SKQ are cut to k."""
    found = sum(len(part["number"]) for part in parts)
    return min(found, query.k) if isinstance(query.selection, TopTerms) else found


def short_row(query: Query, parts: Sequence[Mapping[str, Any]], after: int | None, space: Space) -> str:
    """The row of a query.

    Args:
        query: a snapshot query, with its time.
        parts: what slots have found, see :func:`~spatialstream.stages.snapshots.search`.
        after: objects with this timestamp, ms, or an earlier one are not kept any more, and the row says so; None: all
            are kept.
        space: of the stream.
    """
    if isinstance(query.selection, TopTerms):
        field, items = "terms", _terms(parts, query.k)
    else:
        field, items = "objects", _objects(parts, query.k if isinstance(query.selection, Nearest) else None, space)
    note = "" if after is None else f', "complete_after": {after}'
    head = f'{{"query": {_quoted(query.id)}, "type": "{query.type.value}", "t": {query.t}{note}'
    return f'{head}, "{field}": [{", ".join(items)}]}}'


def _objects(parts: Sequence[Mapping[str, Any]], k: int | None, space: Space) -> list[str]:
    """By (t, id, x, y); with k, the first ones by (distance, t descending, id, x, y)."""
    objects = [
        each
        for part in parts
        for each in zip(
            part["distance"].tolist(),
            part["t"].tolist(),
            part["id"].to_pylist(),
            part["x"].tolist(),
            part["y"].tolist(),
            strict=True,
        )
    ]
    if k is None:
        objects.sort(key=lambda each: each[1:])
    else:
        objects.sort(key=lambda each: (each[0], -each[1], *each[2:]))
        del objects[k:]
    if not objects:
        return []
    distance, _, _, x, y = zip(*objects, strict=True)
    texts, n, (first, second) = [*map(_number, (*x, *y, *distance))], len(objects), space.axes
    items = [
        f'{{"id": {_quoted(each[2])}, "t": {each[1]}, "{first}": {texts[i]}, "{second}": {texts[n + i]}'
        for i, each in enumerate(objects)
    ]
    if k is None:
        return [f"{item}}}" for item in items]
    return [f'{item}, "{space.distance_field}": {shown}}}' for item, shown in zip(items, texts[2 * n :], strict=True)]


def _number(value: float) -> str:
    """The text that Arrow writes, as in rows built column by column; Python formats other numbers differently."""
    if 1e-4 <= abs(value) < 1e10 or value == 0.0:
        return repr(value).removesuffix(".0")
    text: str = pa.scalar(value).cast(pa.string()).as_py()
    return text


def _terms(parts: Sequence[Mapping[str, Any]], k: int) -> list[str]:
    """The k first by (count descending, term)."""
    if sum(len(part["count"]) for part in parts) <= SHORT:
        counts = Counter[str]()
        for part in parts:
            for term, count in zip(part["term"].to_pylist(), part["count"].tolist(), strict=True):
                counts[term] += count
        found = list(counts.items())
    else:
        terms, totals = largest(*added_up([(part["term"], part["count"]) for part in parts]), k)
        found = list(zip(terms.to_pylist(), totals.tolist(), strict=True))
    found.sort(key=lambda each: (-each[1], each[0]))
    return [f'{{"term": {_quoted(term)}, "count": {count}}}' for term, count in found[:k]]
