"""Answers as GeoJSON (RFC 7946), for maps and GIS tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["GEOJSON", "collection"]

GEOJSON = "application/geo+json"


def collection(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The objects of rows of SRQs and SKQs, on the globe, as one collection of points.

    Each point has the other fields of its object as properties, and the query that it answers. What the rows have in
    common (``as_of``), and where retention has cut one (``complete_after``), are members of the collection.
    """
    features, more = list[dict[str, Any]](), dict[str, Any]()
    for row in rows:
        more |= {name: row[name] for name in ("as_of", "complete_after", "error") if name in row}
        for each in row.get("objects", ()):
            properties = {name: value for name, value in each.items() if name not in ("id", "lon", "lat")}
            features.append(
                {
                    "type": "Feature",
                    "id": each["id"],
                    "geometry": {"type": "Point", "coordinates": [each["lon"], each["lat"]]},
                    "properties": properties | {"query": row["query"]},
                }
            )
    return {"type": "FeatureCollection", "features": features, **more}
