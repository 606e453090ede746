"""Parsed snapshot queries as short JSON lists, as they travel between the processes of a stream.

A query is parsed and checked where it enters, and never again: reading this form takes a tenth of the time of
:func:`~spatialstream.model.queries.parse_query`. It is only for processes of one release that have a secret in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spatialstream.model.queries import Everything, Lifetime, Nearest, Predicate, Query, Selection, TopTerms
from spatialstream.model.regions import Box, Circle, Region

__all__ = ["packed", "unpacked"]

_REGIONS: dict[int, type[Box] | type[Circle]] = {4: Box, 3: Circle}
"""By the number of their attributes."""


def packed(query: Query) -> list[Any]:
    """The JSON form of a snapshot query."""
    predicate = query.predicate
    match query.selection:
        case Nearest(x, y, k):
            selects: Sequence[float] = (x, y, k)
        case TopTerms(k):
            selects = (k,)
        case _:
            selects = ()
    match predicate.region:
        case Box(west, south, east, north):
            shape: Sequence[float] = (west, south, east, north)
        case Circle(x, y, radius):
            shape = (x, y, radius)
        case _:
            shape = ()
    return [
        query.id,
        query.t,
        query.lifetime.duration,
        shape,
        predicate.keywords,
        predicate.any,
        predicate.none,
        selects,
    ]


def unpacked(form: Sequence[Any]) -> Query:
    """The query of :func:`packed`.

    Raises:
        ValueError, TypeError, LookupError: it is not the form of a query.
    """
    name, t, duration, shape, keywords, groups, none, selects = form
    region: Region | None = _REGIONS[len(shape)](*map(float, shape)) if shape else None
    predicate = Predicate(region, tuple(keywords), tuple(map(tuple, groups)), tuple(none))
    return Query(str(name), int(t), predicate, _selection(selects), Lifetime(int(duration)))


def _selection(selects: Sequence[Any]) -> Selection:
    if not selects:
        return Everything()
    *at, k = selects
    return Nearest(float(at[0]), float(at[1]), int(k)) if at else TopTerms(int(k))
