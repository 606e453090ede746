"""The interface as an OpenAPI 3.1 document, built from the endpoints and the schemas of records.

Tests compare it with the paths, and validate real answers against its schemas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from spatialstream.client.cursor import PATTERN
from spatialstream.gateway.access import RIGHTS
from spatialstream.gateway.body_layouts import CSV
from spatialstream.gateway.features import CRS84, MOST_ITEMS, SCHEMA
from spatialstream.gateway.following import EVENTS, JSON_LINES
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.history import MOST_PARTS, MOST_ROWS
from spatialstream.gateway.listing import MOST_LISTED
from spatialstream.gateway.problems import KINDS, PROBLEM_TYPE
from spatialstream.model.areas import GeometryState
from spatialstream.model.kinds import KINDS as QUERY_KINDS
from spatialstream.model.kinds import Kind
from spatialstream.model.schema import OBJECT_JSON, POLYGON_JSON, QUERY_FIELDS, QUERY_JSON, RESULT_JSON

__all__ = ["document"]

JSON = "application/json"


def _object(required: Sequence[str] | None = None, **properties: Any) -> dict[str, Any]:
    """A schema of objects; all properties are required unless ``required`` is given."""
    return {"type": "object", "properties": properties, "required": list(required or properties)}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(record: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "$schema"} | more


def _query(*, continuous: bool) -> dict[str, Any]:
    """The schema of continuous or of snapshot queries as sent; without ``t`` they get the stream's clock."""
    return {
        "title": "continuous query" if continuous else "snapshot query",
        "oneOf": [_of_kind(kind) for kind in QUERY_KINDS if kind.continuous == continuous],
    }


def _listed() -> dict[str, Any]:
    """The schema of a registered query as listed."""
    kinds = [_of_kind(kind, listed=True) for kind in QUERY_KINDS if kind.continuous]
    return {"title": "registered query", "required": ["id", "t"], "oneOf": kinds}


def _of_kind(kind: Kind, *, listed: bool = False) -> dict[str, Any]:
    """The schema of a query type. Null means absent, so null is the only value allowed for fields of other types.

    The gateway knows who registers a query: ``by`` is in a listed query, not in one that is sent.
    """
    optional = [name for name in kind.optional if listed or name != "by"]
    properties: dict[str, Any] = {"type": {"const": kind.type}}
    for name in QUERY_FIELDS:
        if name in kind.required:
            properties[name] = QUERY_JSON["properties"][name]
        elif name in ("id", "t", *optional):
            properties[name] = {"anyOf": [QUERY_JSON["properties"][name], {"type": "null"}]}
        elif name != "type":
            properties[name] = {"type": "null"}
    if listed:
        return _object(["type", *kind.required], **properties)
    properties["title"] = {"anyOf": [QUERY_JSON["properties"]["title"], {"type": "null"}]}
    return _object(["type", *kind.required], **properties) | {"additionalProperties": False}


def _sent() -> dict[str, Any]:
    """The schema of an object as sent, with the coordinates of the stream's space; other coordinates are ignored."""
    properties = dict(OBJECT_JSON["properties"])
    axes = [{name: properties.pop(name) for name in names} for names in (("lon", "lat"), ("x", "y"))]
    _, texts = OBJECT_JSON["allOf"]
    places = [{"properties": numbers, "required": [*numbers]} for numbers in axes]
    return _schema(OBJECT_JSON) | {"properties": properties, "allOf": [{"anyOf": places}, texts]}


_TEXT = {"type": "string"}
_MS = {"type": "integer", "description": "ms since 1970-01-01 UTC"}
_AS_OF = _object(round={"type": "integer"}, clock=_MS)
_LINK = _object(href={"type": "string", "format": "uri"}, rel=_TEXT, type=_TEXT, title=_TEXT)
_LINKS = {"type": "array", "items": _LINK}
_POINT = _object(
    type={"const": "Point"},
    coordinates={"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
)
_NAMES = {"type": "array", "items": _TEXT}
_AREA = _object(
    name=_TEXT,
    revision={"type": "integer", "description": "grows whenever the geometry changes"},
    digest={**_TEXT, "description": "of the geometry"},
    vertices={"type": "integer"},
    box={"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4},
)
_AREA["properties"]["by"] = {**_TEXT, "description": "who keeps it, if that is known"}
_LOADED = _object(
    new={**_NAMES, "description": "names of areas that there were not before"},
    changed={**_NAMES, "description": "of those that had another geometry, which queries of them keep"},
    same={**_NAMES, "description": "of those that had the same"},
)
_FEATURE = _object(type={"const": "Feature"}, id=_TEXT, geometry=_POINT, properties={"type": "object"})
_SCHEMAS = {
    "Landing": _object(title=_TEXT, description=_TEXT, links=_LINKS),
    "Collection": _object(
        id=_TEXT,
        title=_TEXT,
        itemType={"const": "feature"},
        crs={"type": "array", "items": _TEXT},
        extent={"type": "object"},
        links=_LINKS,
    ),
    "Collections": _object(links=_LINKS, collections={"type": "array", "items": _ref("Collection")}),
    "Items": _object(
        type={"const": "FeatureCollection"},
        features={"type": "array", "items": _FEATURE},
        numberReturned={"type": "integer", "minimum": 0},
        timeStamp={"type": "string", "format": "date-time"},
        as_of={"anyOf": [_AS_OF, {"type": "null"}]},
        links=_LINKS,
    ),
    "Item": {"allOf": [_FEATURE, _object(links=_LINKS)]},
    "SnapshotQuery": _query(continuous=False),
    "RegisteredQuery": _query(continuous=True),
    "QueryThatStands": _listed(),
    "Object": _sent(),
    "Row": _schema(RESULT_JSON)
    | {
        "properties": RESULT_JSON["properties"] | {"error": _TEXT, "complete_after": {"type": "integer"}},
        "oneOf": [*RESULT_JSON["oneOf"], {"required": ["error"]}],
    },
    "Answer": {"allOf": [_ref("Row"), _object(as_of=_AS_OF)]},
    "FeatureCollection": _object(
        ["type", "features"],
        type={"const": "FeatureCollection"},
        features={
            "type": "array",
            "items": _FEATURE,
        },
        as_of=_AS_OF,
    ),
    "Written": _object(
        query=_TEXT,
        processed={"type": "boolean", "description": "whether the stream has processed it"},
        as_of={"anyOf": [_AS_OF, {"type": "null"}]},
        position={**_TEXT, "description": "a position in the results before its first row"},
    ),
    "Taken": _object(objects={"type": "integer", "minimum": 0}),
    "Live": _object(live={"type": "boolean"}),
    "Streams": _object(
        streams={"type": "array", "items": _object(name=_TEXT, rights={"type": "array", "items": {"enum": [*RIGHTS]}})}
    ),
    "State": _object(
        name=_TEXT,
        space={**_TEXT, "description": "wgs84, or planar: followed by the bounds"},
        round={"type": "integer", "description": "the newest completed round"},
        clock={"type": ["integer", "null"], "description": "the stream's watermark, in ms since 1970-01-01 UTC"},
        behind={"type": ["integer", "null"], "description": "ms by which the clock is behind the current time"},
        version={"type": "integer", "description": "number of the routing version"},
        slots={"type": "integer", "minimum": 1},
    ),
    "Past": _object(
        ["query", "since", "until", "rows"],
        query=_TEXT,
        since=_MS,
        until=_MS,
        rows={"type": "array", "items": _object(at={**_MS, "description": "time of arrival, ms"}, row=_ref("Row"))},
        next={**_TEXT, "description": "URL of the next page, which may be empty"},
    ),
    "Counts": _object(
        query=_TEXT,
        since=_MS,
        until=_MS,
        kept_since={"type": ["integer", "null"], "description": "time since which rows are kept, ms"},
        counts={
            "type": "array",
            "items": _object(
                since=_MS,
                rows={"type": "integer", "minimum": 0},
                exact={"type": "boolean", "description": "whether the number is exact; otherwise an estimate"},
            ),
        },
    ),
    "SoFar": _object(
        ["rows", "last_row"],
        rows={"type": "integer", "minimum": 0, "description": "rows of the query since its registration"},
        last_row={"type": ["integer", "null"], "description": "largest t of these rows, ms"},
        geometry={
            "enum": [each.value for each in GeometryState],
            "description": "of a query of an area: whether it has the geometry that the area has now",
        },
    ),
    "Area": _AREA,
    "Areas": _object(
        areas={"type": "array", "items": _ref("Area")},
        unusable={
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "names of areas whose geometry cannot be used, and why",
        },
    ),
    "AreaFeature": _object(type={"const": "Feature"}, id=_TEXT, geometry={"type": "object"}, properties=_ref("Area")),
    "AreaFeatures": _object(
        type={"const": "FeatureCollection"}, features={"type": "array", "items": _ref("AreaFeature")}
    ),
    "AreaGeometry": POLYGON_JSON,
    "AreaCollection": {
        "type": "object",
        "properties": {
            "type": {"const": "FeatureCollection"},
            "features": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        },
        "required": ["type", "features"],
    },
    "LoadedAreas": _LOADED,
    "KeptArea": {"allOf": [_ref("LoadedAreas"), _object(area=_ref("Area"))]},
    "RefreshedQueries": _object(
        area=_TEXT,
        refreshed={"type": "integer", "minimum": 0, "description": "queries that are registered anew"},
        refused={
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "of queries that the stream has not taken, 100 at most, why",
        },
    ),
    "Queries": _object(
        ["queries", "so_far", "as_of"],
        queries={"type": "array", "items": _ref("QueryThatStands")},
        so_far={"type": "array", "items": _ref("SoFar"), "description": "for each of the queries, in their order"},
        as_of=_AS_OF,
        next={**_TEXT, "description": "URL of the next page"},
    ),
    "RegisteredAsOf": _object(query=_ref("QueryThatStands"), so_far=_ref("SoFar"), as_of=_AS_OF),
    "Ready": _object(
        ready={"type": "boolean"}, streams={"type": "object", "additionalProperties": {"type": "boolean"}}
    ),
    "Problem": _object(
        ["type", "title", "status", "detail"],
        type=_TEXT,
        title=_TEXT,
        status={"type": "integer"},
        detail=_TEXT,
        errors={
            "type": "array",
            "items": _object(
                ["detail"], detail=_TEXT, pointer=_TEXT, parameter=_TEXT, field=_TEXT, line={"type": "integer"}
            ),
        },
    ),
}


def _parameter(where: str, name: str, text: str, schema: Any = None, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "description": text, "required": required, "schema": schema or _TEXT}


def _at_least(least: int) -> dict[str, Any]:
    """A whole number without a maximum: larger numbers are reduced to the limit, as OGC API, Features requires."""
    return {"type": "integer", "minimum": least}


_TIME, _DURATION = QUERY_JSON["properties"]["t"], QUERY_JSON["properties"]["duration"]
_TIMEOUT = _parameter("query", "timeout", "how long to wait, such as 5s; 10s by default, 60s at most", _DURATION)
_TIME_UNIT = _parameter("query", "time_unit", "times are ms even if they look like another unit", {"enum": ["ms"]})
_COLUMN = r"(id|t|lon|lat|x|y|text|terms)=[^,=&]*[^,=&\s][^,=&]*"
_EITHER = f"of {CSV} and {GEOJSON}"
_LAYOUT = [
    _parameter("query", name, text, schema)
    for name, text, schema in (
        (
            "columns",
            f"{_EITHER}: where the fields are",
            {"type": "string", "pattern": f"^{_COLUMN}(,{_COLUMN})*$"},
        ),
        ("separator", f"of {CSV}: what separates the columns", {"enum": [",", ";", "|", "tab"]}),
        ("header", f"of {CSV}: whether the first line names the columns", {"enum": ["true", "false"]}),
        ("quotes", f"of {CSV}: whether quotation marks enclose cells", {"enum": ["csv", "none"]}),
        ("time_format", f"{_EITHER}: of times, as strptime takes it", {"type": "string", "pattern": "%"}),
        ("time_zone", f"{_EITHER}: IANA name of the zone of times that name none", None),
        ("at", f"{_EITHER}: time of all objects", {"anyOf": [*_TIME["oneOf"], {"const": "now"}]}),
    )
]
_PLACE = {"type": "string", "pattern": PATTERN}
_BEGINNING = {"anyOf": [{"enum": ["newest", "oldest"]}, _PLACE]}
_NUMBER = {"type": "number"}
_LON, _LAT = (_NUMBER | {"minimum": -most, "maximum": most} for most in (180, 90))
_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_MOMENT = _DAY + r"(T(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?)?"
_END = rf"({_MOMENT}|\.\.)?"


def _corners(*numbers: Any) -> dict[str, Any]:
    return {"prefixItems": numbers, "minItems": len(numbers), "maxItems": len(numbers)}


_BBOX = {
    "type": "array",
    "items": {"type": "number"},
    "oneOf": [
        _corners(_LON, _LAT, _LON, _LAT),
        _corners(_LON, _LAT, _NUMBER, _LON, _LAT, _NUMBER),
    ],
}
_MANY = {"anyOf": [_ref("Answer"), {"type": "array", "items": _ref("Answer")}]}
_ASKED = {"type": "array", "items": _ref("SnapshotQuery"), "minItems": 1, "maxItems": 1000}


def _content(text: str, forms: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    content = {form: {"schema": schema} for form, schema in forms.items()}
    shown = {name: {"description": text, "schema": _TEXT} for name, text in (headers or {}).items()}
    return {"description": text, "content": content} | ({"headers": shown} if shown else {})


def _body(text: str, form: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "required": True, "content": {form: {"schema": schema}}}


_PAST = [
    _parameter("query", "query", "id of a query", required=True),
    _parameter(
        "query", "since", "start of the time of arrival, in ms or ISO 8601; by default an hour before until", _TIME
    ),
    _parameter("query", "until", "end of the time of arrival, exclusive; by default now", _TIME),
]
_WRITTEN = {JSON: _ref("Written")}
_FORM = _parameter("query", "f", "ignored: there is only one form of this answer")

_OPERATIONS: dict[str, dict[str, Any]] = {
    "GET /live": {
        "summary": "Liveness: whether the process works",
        "responses": {"200": _content("yes", {JSON: _ref("Live")}), "503": _content("no", {JSON: _ref("Live")})},
    },
    "GET /ready": {
        "summary": "Readiness: whether all streams answer; in a cluster, whether its streams are known",
        "responses": {"200": _content("yes", {JSON: _ref("Ready")}), "503": _content("no", {JSON: _ref("Ready")})},
    },
    "GET /openapi.json": {
        "summary": "This document",
        "responses": {"200": _content("the document", {JSON: {"type": "object"}})},
    },
    "GET /asyncapi.json": {
        "summary": "The events of results (AsyncAPI 3)",
        "responses": {"200": _content("the document", {JSON: {"type": "object"}})},
    },
    "GET /": {
        "summary": "Landing page (OGC API)",
        "parameters": [_parameter("query", "f", "any value: return the landing page, do not redirect to the console")],
        "responses": {
            "200": _content("links", {JSON: _ref("Landing")}),
            "307": {"description": "to the console, if text/html is preferred to JSON and f is not given"},
        },
    },
    "GET /conformance": {
        "summary": "Conformance classes of OGC API, Features",
        "parameters": [_FORM],
        "responses": {
            "200": _content("URIs of classes", {JSON: _object(conformsTo={"type": "array", "items": _TEXT})})
        },
    },
    "GET /collections": {
        "summary": "The streams as collections of features",
        "parameters": [_FORM],
        "responses": {"200": _content("the collections", {JSON: _ref("Collections")})},
    },
    "GET /collections/{stream}": {
        "summary": "A stream as a collection of features",
        "parameters": [_FORM],
        "responses": {"200": _content("the collection", {JSON: _ref("Collection")})},
    },
    "GET /collections/{stream}/queryables": {
        "summary": "The properties that a filter of items may name, as JSON Schema",
        "parameters": [_FORM],
        "responses": {"200": _content("the schema", {SCHEMA: {"type": "object"}})},
    },
    "GET /collections/{stream}/items": {
        "summary": "Objects of a stream as features, newest first",
        "parameters": [
            _parameter(
                "query", "bbox", "west,south,east,north; crosses the antimeridian if west is greater than east", _BBOX
            )
            | {"style": "form", "explode": False},
            _parameter("query", "bbox-crs", "coordinate reference system of the bbox", {"const": CRS84}),
            _parameter(
                *(
                    "query",
                    "datetime",
                    "a time, or two separated by a slash, one of which may be ..; if repeated, the intersection",
                ),
                {"type": "string", "pattern": f"^({_MOMENT}|{_END}/{_END})$"},
            ),
            _parameter("query", "q", "words: an object must have all words of one of the parts between commas"),
            _parameter("query", "filter", "a condition on the properties that the stream declares, in CQL2"),
            _parameter("query", "filter-crs", "coordinate reference system of the filter", {"const": CRS84}),
            _parameter(
                *("query", "filter-lang", "language of the filter"),
                {"enum": ["cql2-text", "cql2-json"], "default": "cql2-text"},
            ),
            _parameter("query", "limit", f"items of a page, at most {MOST_ITEMS}", _at_least(1) | {"default": 10}),
            _parameter("query", "page", "as given in the link `next`"),
            _FORM,
        ],
        "responses": {"200": _content("a page of items", {GEOJSON: _ref("Items")})},
    },
    "GET /collections/{stream}/items/{item}": {
        "summary": "An object as a feature",
        "parameters": [_FORM],
        "responses": {"200": _content("the feature", {GEOJSON: _ref("Item")})},
    },
    "GET /streams": {
        "summary": "The streams on which you have any right",
        "responses": {"200": _content("the streams", {JSON: _ref("Streams")})},
    },
    "GET /streams/{stream}": {
        "summary": "The state of a stream",
        "responses": {"200": _content("the state", {JSON: _ref("State")})},
    },
    "GET /streams/{stream}/queries": {
        "summary": "The registered continuous queries, in the order of registration",
        "parameters": [
            _parameter("query", "limit", f"queries of a page, by default 100, at most {MOST_LISTED}", _at_least(1)),
            _parameter("query", "after", "as given in `next`", _at_least(-1)),
        ],
        "responses": {"200": _content("a page of queries", {JSON: _ref("Queries")})},
    },
    "GET /streams/{stream}/queries/{query}": {
        "summary": "A registered continuous query",
        "responses": {"200": _content("the query", {JSON: _ref("RegisteredAsOf")})},
    },
    "POST /streams/{stream}/ask": {
        "summary": "Answer snapshot queries, as of one round",
        "parameters": [
            _parameter(
                *("query", "at_least", "ms, ISO 8601 or now: wait until the stream's clock has reached this time"),
                {"anyOf": [*_TIME["oneOf"], {"const": "now"}]},
            ),
            _TIMEOUT,
        ],
        "requestBody": _body("a query, or several", JSON, {"anyOf": [_ref("SnapshotQuery"), _ASKED]}),
        "responses": {"200": _content("the answers", {JSON: _MANY, GEOJSON: _ref("FeatureCollection")})},
    },
    "GET /streams/{stream}/results": {
        "summary": "Follow the rows of queries, each once",
        "parameters": [
            _parameter(
                *("query", "query", "ids of queries"),
                {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 1000},
                required=True,
            )
            | {"explode": True},
            _parameter(
                "query", "position", "where to start: newest, oldest, or a position returned before", _BEGINNING
            ),
            _parameter(
                *("query", "wait", "how long a poll waits for the first row; by default 30s, at most 60s"),
                _DURATION,
            ),
            _parameter(
                *("header", "Last-Event-ID", "id of the last event, used instead of position; empty: no id"),
                {"anyOf": [*_BEGINNING["anyOf"], {"const": ""}]},
            ),
        ],
        "responses": {
            "200": _content(
                "one row per line or event; a poll returns the position of the next poll in Next-Position",
                {JSON_LINES: _TEXT, EVENTS: _TEXT},
                {"Next-Position": "position for the next poll"},
            )
        },
    },
    "GET /streams/{stream}/results/past": {
        "summary": "The rows of a query that arrived in a time range",
        "parameters": [
            *_PAST,
            _parameter("query", "limit", f"rows of a page, by default 1000, at most {MOST_ROWS}", _at_least(1)),
            _parameter("query", "position", "as given in `next`", _PLACE),
        ],
        "responses": {"200": _content("a page of rows", {JSON: _ref("Past")})},
    },
    "GET /streams/{stream}/results/counts": {
        "summary": "The number of rows of a query that arrived in each part of a time range",
        "parameters": [
            *_PAST,
            _parameter("query", "parts", f"number of equal parts, by default 60, at most {MOST_PARTS}", _at_least(1)),
        ],
        "responses": {"200": _content("the number of rows in each part", {JSON: _ref("Counts")})},
    },
    "POST /streams/{stream}/queries": {
        "summary": "Register a continuous query",
        "parameters": [
            _TIMEOUT,
            _TIME_UNIT,
            _parameter(
                *("header", "Idempotency-Key", "a repeated request with the same key is the same registration"),
                {"type": "string", "minLength": 1, "maxLength": 256},
            ),
        ],
        "requestBody": _body("the query", JSON, _ref("RegisteredQuery")),
        "responses": {
            "201": _content("the query is registered", _WRITTEN),
            "200": _content("the query was registered before, with the same key", _WRITTEN),
            "202": _content("the broker has the query; the stream has not processed it yet", _WRITTEN),
        },
    },
    "DELETE /streams/{stream}/queries/{query}": {
        "summary": "Cancel a continuous query",
        "parameters": [_TIMEOUT],
        "responses": {
            "200": _content("the query is cancelled", _WRITTEN),
            "202": _content("the broker has the cancellation; the stream has not processed it yet", _WRITTEN),
        },
    },
    "GET /streams/{stream}/areas": {
        "summary": "The areas that the stream knows by name; as GeoJSON with their geometries",
        "responses": {"200": _content("the areas", {JSON: _ref("Areas"), GEOJSON: _ref("AreaFeatures")})},
    },
    "POST /streams/{stream}/areas": {
        "summary": "Keep the areas of a GeoJSON FeatureCollection, all or none; areas that are not in it stay",
        "parameters": [_parameter("query", "id", "the property that has a feature's name; by default its own id")],
        "requestBody": _body("features", GEOJSON, _ref("AreaCollection")),
        "responses": {"200": _content("what has changed", {JSON: _ref("LoadedAreas")})},
    },
    "GET /streams/{stream}/areas/{area}": {
        "summary": "An area as a GeoJSON feature",
        "responses": {"200": _content("the area", {GEOJSON: _ref("AreaFeature")})},
    },
    "PUT /streams/{stream}/areas/{area}": {
        "summary": "Keep an area; registered queries of it keep the geometry that they have",
        "requestBody": _body("a Polygon, a MultiPolygon, or a Feature of one of them", GEOJSON, _ref("AreaGeometry")),
        "responses": {
            "200": _content("there was an area of this name", {JSON: _ref("KeptArea")}),
            "201": _content("there was none", {JSON: _ref("KeptArea")}),
        },
    },
    "POST /streams/{stream}/areas/{area}/refresh": {
        "summary": "Register the queries anew that have another geometry of an area than it has now",
        "parameters": [_TIMEOUT],
        "responses": {"200": _content("they are registered anew", {JSON: _ref("RefreshedQueries")})},
    },
    "DELETE /streams/{stream}/areas/{area}": {
        "summary": "Delete an area; registered queries of it keep their geometry",
        "responses": {"200": _content("it is deleted", {JSON: _object(deleted=_TEXT)})},
    },
    "POST /streams/{stream}/objects": {
        "summary": "Send objects, all or none",
        "parameters": [_TIME_UNIT, *_LAYOUT],
        "requestBody": {
            "description": "JSON Lines, each of an object; text with columns; GeoJSON: features, or one",
            "required": True,
            "content": {
                JSON_LINES: {"schema": _ref("Object")},
                CSV: {"schema": _TEXT},
                GEOJSON: {"schema": {"type": ["object", "array"], "items": {"type": "object"}}},
            },
        },
        "responses": {"200": _content("the broker has all of them", {JSON: _ref("Taken")})},
    },
}


def document(endpoints: Sequence[tuple[str, str, str | None]]) -> dict[str, Any]:
    """Build the document.

    Args:
        endpoints: method, path and right of each endpoint.
    """
    paths: dict[str, dict[str, Any]] = {}
    for method, path, right in endpoints:
        plain = path.replace(":path}", "}")
        declared = _OPERATIONS[f"{method} {plain}"]
        names = [part[1:-1] for part in plain.split("/") if part.startswith("{")]
        within = [_parameter("path", name, f"the {name}'s name", required=True) for name in names]
        operation = declared | {
            "operationId": f"{method.lower()}{plain.replace('/', '_').replace('{', '').replace('}', '')}"
        }
        refused = {"description": "a problem; with Retry-After if a later request may succeed", "content": _REFUSED}
        operation |= {
            "parameters": within + declared.get("parameters", []),
            "responses": declared["responses"] | {"4XX": refused, "5XX": refused},
        }
        if right is not None:
            operation |= {
                "description": f"Requires the right `{right}`." if right in RIGHTS else "Requires any right.",
                "security": [{"token": []}, {}] if right != "write" else [{"token": []}],
            }
        paths.setdefault(plain, {})[method.lower()] = operation
    statuses = ", ".join(f"{status} ({kind})" for kind, (status, _) in KINDS.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "spatialstream gateway",
            "version": version("spatialstream"),
            "description": f"Live streams over HTTP. Errors are problem details (RFC 9457): {statuses}.",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


_REFUSED = {PROBLEM_TYPE: {"schema": _ref("Problem")}}
