"""Parsed snapshot queries as short JSON lists, as they travel between the processes of a stream.

A query is parsed and checked where it enters, and never again: reading this form takes a sixth of the time of
:func:`~spatialstream.model.queries.parse_query`. It is only for processes of one release that have a secret in common.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from spatialstream.model.kinds import CODE, KINDS
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.properties.condition import decoded, encoded
from spatialstream.model.queries import Lifetime, Predicate, Query
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.regions import Box, Circle, Region

__all__ = ["packed", "unpacked"]

_REGIONS: dict[int, type[Box] | type[Circle]] = {4: Box, 3: Circle}
"""By the number of their attributes."""


def packed(query: Query) -> list[Any]:
    """The JSON form of a snapshot query."""
    predicate = query.predicate
    match predicate.region:
        case Box(west, south, east, north):
            shape: Sequence[float] | str = (west, south, east, north)
        case Circle(x, y, radius):
            shape = (x, y, radius)
        case Polygon() as polygon:
            shape = b64encode(polygon.to_bytes()).decode()
        case None:
            shape = ()
        case unknown:
            raise TypeError(f"{unknown!r} is not a region")
    return [
        query.id,
        query.t,
        query.lifetime.duration,
        shape,
        predicate.keywords,
        predicate.any,
        predicate.none,
        "" if predicate.where is None else encoded(predicate.where),
        query.type,
        query.selection.columns,
        "" if query.selection.ranking is None else query.selection.ranking.text,
        query.fields,
    ]


def unpacked(form: Sequence[Any]) -> Query:
    """The query of :func:`packed`.

    Raises:
        ValueError, TypeError, LookupError: it is not the form of a query.
    """
    name, t, duration, shape, keywords, groups, none, where, kind, (k, x, y), ranking, fields = form
    region = _region(shape) if shape else None
    condition = decoded(where) if where else None
    predicate = Predicate(region, tuple(keywords), tuple(map(tuple, groups)), tuple(none), condition)
    selection = KINDS[CODE[kind]].selection.of(int(k), float(x), float(y))
    if ranking:
        selection = selection.ranked(Ranking.of_text(ranking))
    lifetime, shown = Lifetime(int(duration)), None if fields is None else tuple(fields)
    return Query(str(name), int(t), predicate, selection, lifetime, fields=shown)


def _region(shape: Sequence[float] | str) -> Region:
    if isinstance(shape, str):
        return Polygon.from_bytes(b64decode(shape, validate=True))
    return _REGIONS[len(shape)](*map(float, shape))
