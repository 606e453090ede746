"""Answers as GeoJSON (RFC 7946), for maps and GIS tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["GEOJSON", "features"]

GEOJSON = "application/geo+json"


_LIST = ', "objects": ['
"""Before the objects of a row; within a text of one its quotes would be escaped."""
_BETWEEN = ", "

_decoder = json.JSONDecoder()


def features(row: str, more: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects of a row of an SRQ or SKQ, on the globe, as points of a collection; they are read one by one.

    Each point has the other fields of its object as properties, and the query that it answers.

    Args:
        row: as the stream gives it.
        more: members of the collection: what rows have in common (``as_of``), where retention has cut one
            (``complete_after``), and why one has no objects (``error``).
    """
    start = row.find(_LIST)
    if start < 0:
        more |= _common(json.loads(row))
        return
    at = start = start + len(_LIST)
    query = json.loads(row[:start] + "]}")["query"]
    while row[at] != "]":
        record, at = _decoder.raw_decode(row, at)
        properties = {name: value for name, value in record.items() if name not in ("id", "lon", "lat")}
        yield {
            "type": "Feature",
            "id": record["id"],
            "geometry": {"type": "Point", "coordinates": [record["lon"], record["lat"]]},
            "properties": properties | {"query": query},
        }
        at += len(_BETWEEN) if row[at] != "]" else 0
    more |= _common(json.loads(row[:start] + row[at:]))


def _common(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("as_of", "complete_after", "error") if name in row}
