"""All wire schemas: Arrow inside the pipeline, JSON at its inputs and outputs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from spatialstream.model.expressions import MOST_GIVEN
from spatialstream.model.kinds import KINDS, NAMES
from spatialstream.model.ranking.asked import MOST_EXPANSIONS, MOST_WORDS, WEIGHTINGS
from spatialstream.model.times import TIME_LIMIT, UNITS

__all__ = [
    "BY",
    "LARGEST_K",
    "LONGEST_BY",
    "OBJECTS",
    "OBJECT_JSON",
    "POLYGON_JSON",
    "QUERIES",
    "QUERY_FIELDS",
    "QUERY_JSON",
    "RANKING",
    "REJECTED_JSON",
    "RESULT_JSON",
]

_TERMS = pa.list_(pa.field("item", pa.dictionary(pa.int32(), pa.string())))


def _columns(**kinds: pa.DataType) -> pa.Schema:
    """A schema of columns without nulls."""
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


OBJECTS = _columns(id=pa.string(), t=pa.int64(), x=pa.float64(), y=pa.float64(), terms=_TERMS)
"""A batch of objects inside the pipeline: ``t`` in ms; ``x``, ``y`` are longitude and latitude in WGS84."""

QUERIES = _columns(
    id=pa.string(),
    type=pa.dictionary(pa.int8(), pa.string()),
    t=pa.int64(),
    duration=pa.int64(),
    window=pa.int64(),
    step=pa.int64(),
    k=pa.int32(),
    at=pa.list_(pa.float64(), 2),
    region_kind=pa.uint8(),
    region_shape=pa.list_(pa.float64(), 4),
    keywords=_TERMS,
)
"""A batch of queries and cancellations inside the pipeline, see :class:`spatialstream.model.queries.QueryBatch`."""

BY = pa.field("by", pa.string(), nullable=False)
"""An additional last column of a batch in which at least one query has the field ``by``; other batches omit it."""

RANKING = pa.field("ranking", pa.string(), nullable=False)
"""An additional column, after ``by``, of a batch in which at least one query ranks."""

LARGEST_K = 2**31 - 1
"""Largest number of objects or terms that a query may select: the largest int32."""

LONGEST_BY = 512
"""Maximum length of ``by`` in bytes of UTF-8: names of Kubernetes accounts and resources take up to 340."""

_ID = {"type": ["string", "integer"], "description": "a whole number is read as its decimal digits"}
_TIME = {
    "oneOf": [
        {"type": "integer", "minimum": -TIME_LIMIT, "maximum": TIME_LIMIT, "description": "ms since 1970-01-01 UTC"},
        {"type": "string", "format": "date-time", "description": "RFC 3339, UTC if without zone; digits alone are ms"},
    ]
}
_DURATIONS = "|".join(rf"[0-9]{{1,{len(str(TIME_LIMIT // ms)) - 1}}}\s*{unit}" for unit, ms in UNITS.items())
_DURATION = {
    "oneOf": [
        {"type": "integer", "minimum": 0, "maximum": TIME_LIMIT, "description": "ms"},
        {"type": "string", "pattern": rf"^\s*({_DURATIONS})\s*$"},
    ]
}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_STRINGS = {"type": "array", "items": {"type": "string"}}

OBJECT_JSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "object",
    "type": "object",
    "properties": {
        "id": _ID,
        "t": _TIME,
        "lon": {"type": "number", "minimum": -180, "maximum": 180},
        "lat": {"type": "number", "minimum": -90, "maximum": 90},
        "x": {"type": "number"},
        "y": {"type": "number"},
        "text": {"type": "string"},
        "terms": _STRINGS,
    },
    "required": ["id", "t"],
    "allOf": [
        {"oneOf": [{"required": ["lon", "lat"]}, {"required": ["x", "y"]}]},
        {"oneOf": [{"required": ["text"]}, {"required": ["terms"]}]},
    ],
}
"""JSON Schema of one input object (a line of JSON Lines)."""

_POSITION = {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2}
_RING = {"type": "array", "items": _POSITION, "minItems": 4}
_RINGS = {"type": "array", "items": _RING, "minItems": 1}


def _geometry(kind: str, coordinates: dict[str, Any]) -> dict[str, Any]:
    properties = {"type": {"const": kind}, "coordinates": coordinates}
    return {"type": "object", "properties": properties, "required": ["type", "coordinates"]}


_GEOMETRIES = [
    _geometry("Polygon", _RINGS),
    _geometry("MultiPolygon", {"type": "array", "items": _RINGS, "minItems": 1}),
]
_LINE = {"type": "array", "items": _POSITION, "minItems": 2}
_LINES = [
    _geometry("LineString", _LINE),
    _geometry("MultiLineString", {"type": "array", "items": _LINE, "minItems": 1}),
    _geometry("Point", _POSITION),
    _geometry("MultiPoint", {"type": "array", "items": _POSITION, "minItems": 1}),
]


def _feature_of(geometries: list[dict[str, Any]]) -> dict[str, Any]:
    properties = {"type": {"const": "Feature"}, "geometry": {"oneOf": geometries}}
    return {"type": "object", "properties": properties, "required": ["type", "geometry"]}


POLYGON_JSON: dict[str, Any] = {
    "description": "GeoJSON (RFC 7946). Edges are straight in longitude and latitude, borders belong to the polygon; "
    "it may be cut at the antimeridian, or have longitudes beyond 180",
    "oneOf": [*_GEOMETRIES, _feature_of(_GEOMETRIES)],
}
_NEAR_JSON = {"oneOf": [*_GEOMETRIES, *_LINES, _feature_of([*_GEOMETRIES, *_LINES])]}
_WITHIN = {
    "type": "number",
    "minimum": 0,
    "description": "what lies this near to the border counts, too: metres by great circle, in a plane its units",
}
_AREA = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": "name of an area of the stream, which is looked up where the query is registered or asked; beside a "
    "polygon: of which area that is the geometry",
}
_REGION = {
    "oneOf": [
        {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        for required, properties in (
            (["box"], {"box": _NUMBERS | {"minItems": 4, "maxItems": 4}}),
            (["circle"], {"circle": _NUMBERS | {"minItems": 3, "maxItems": 3}}),
            (["polygon"], {"polygon": POLYGON_JSON, "area": _AREA}),
            (["polygon", "within"], {"polygon": _NEAR_JSON, "within": _WITHIN, "area": _AREA}),
            (["area"], {"area": _AREA, "within": _WITHIN}),
        )
    ]
}

QUERY_JSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "query",
    "type": "object",
    "properties": {
        "id": _ID,
        "type": {"enum": list(NAMES)},
        "t": _TIME,
        "region": _REGION,
        "at": _NUMBERS | {"minItems": 2, "maxItems": 2},
        "keywords": _STRINGS,
        "any": {"type": "array", "items": _STRINGS | {"minItems": 1}, "minItems": 1, "maxItems": MOST_GIVEN},
        "none": _STRINGS,
        "where": {"type": ["string", "object"], "description": "a condition on properties, in CQL2 text or CQL2 JSON"},
        "fields": _STRINGS
        | {"description": "which of the fields that the stream keeps rows show of an object; without it all"},
        "k": {"type": "integer", "minimum": 1, "maximum": LARGEST_K},
        "duration": _DURATION,
        "window": _DURATION,
        "step": _DURATION,
        "words": _STRINGS | {"minItems": 1, "description": f"by which it ranks; at most {MOST_WORDS} after extraction"},
        "radius": {"type": "number", "exclusiveMinimum": 0, "description": "of the search disk"},
        "halfLife": _DURATION,
        "between": {"type": "array", "items": _TIME, "minItems": 2, "maxItems": 2},
        "weights": {
            "type": "object",
            "properties": dict.fromkeys(("space", "time", "text"), _SHARE),
            "required": ["space"],
            "additionalProperties": False,
        },
        "expansions": {"type": "integer", "minimum": 1, "maximum": MOST_EXPANSIONS},
        "weighting": {"enum": list(WEIGHTINGS)},
        "by": {
            "type": "string",
            "minLength": 1,
            "maxLength": LONGEST_BY,
            "description": f"who registered the query, in at most {LONGEST_BY} bytes of UTF-8",
        },
        "title": {"type": "string", "description": "a title for human readers; it is ignored and not stored"},
    },
    "required": ["id", "type", "t"],
    "additionalProperties": False,
    "allOf": [
        {"if": {"properties": {"type": {"const": kind.type}}}, "then": {"required": list(kind.required)}}
        for kind in KINDS
    ],
}
"""JSON Schema of one input query (a line of JSON Lines)."""

QUERY_FIELDS = tuple(name for name in QUERY_JSON["properties"] if name != "title")
"""The fields of queries that have a meaning: id, type and t, then those that some types have."""

_PLACED = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "t": {"type": "integer"},
        "lon": {"type": "number"},
        "lat": {"type": "number"},
        "x": {"type": "number"},
        "y": {"type": "number"},
        "distance_m": {"type": "number"},
        "distance": {"type": "number"},
        "score": {"type": "number", "minimum": 0},
        "text": {"type": "string", "description": "as it was sent, if the stream keeps it"},
    },
    "additionalProperties": {
        "type": ["string", "number", "boolean"],
        "description": "properties of the object that the stream keeps; of times ms",
    },
    "required": ["id", "t"],
}

RESULT_JSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "result",
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "type": {"enum": [kind.type for kind in KINDS]},
        "t": {"type": "integer", "description": "ms"},
        "radius": {"type": "number", "description": "of the search disk of an SBQ"},
        "corpus": {"type": "integer", "description": "ms: up to when an SBQ has counted words"},
        "objects": {"type": "array", "items": _PLACED},
        "object": _PLACED,
        "terms": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"term": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
                "required": ["term", "count"],
            },
        },
    },
    "required": ["query", "type", "t"],
    "oneOf": [{"required": [rows]} for rows in dict.fromkeys(["objects", "object", "terms", *(k.rows for k in KINDS)])],
}
"""JSON Schema of one result row."""

REJECTED_JSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "rejected record",
    "type": "object",
    "properties": {
        "source": {"type": "string", "description": "the file"},
        "line": {"type": "integer", "description": "1-based line (JSON Lines, CSV) or row (Parquet)"},
        "reason": {"type": "string", "description": "field: what is wrong and what would be valid"},
        "record": {"description": "the record as it was read; a string if it is not JSON"},
    },
    "required": ["source", "line", "reason", "record"],
}
"""JSON Schema of one dead letter."""
