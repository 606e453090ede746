"""The interface as an OpenAPI 3.1 document, made of the paths that there are and the schemas of records.

A test holds it against the paths, and real answers against its schemas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from spatialstream.client.cursor import PATTERN
from spatialstream.gateway.access import RIGHTS
from spatialstream.gateway.features import CRS84, MOST_ITEMS
from spatialstream.gateway.following import EVENTS, JSON_LINES
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.history import MOST_PARTS, MOST_ROWS
from spatialstream.gateway.listing import MOST_LISTED
from spatialstream.gateway.problems import KINDS, PROBLEM_TYPE
from spatialstream.model.kinds import KINDS as QUERY_KINDS
from spatialstream.model.kinds import Kind
from spatialstream.model.schema import OBJECT_JSON, QUERY_FIELDS, QUERY_JSON, RESULT_JSON

__all__ = ["document"]

JSON = "application/json"


def _object(required: Sequence[str] | None = None, **properties: Any) -> dict[str, Any]:
    """A schema of objects; all properties are required if nothing else is said."""
    return {"type": "object", "properties": properties, "required": list(required or properties)}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(record: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "$schema"} | more


def _query(*, standing: bool) -> dict[str, Any]:
    """A query of those that stand, or of those that are asked; without a time it is of the stream's clock."""
    return {
        "title": "continuous query" if standing else "snapshot query",
        "oneOf": [_of_kind(kind) for kind in QUERY_KINDS if kind.continuous == standing],
    }


def _listed() -> dict[str, Any]:
    """A query as it stands."""
    kinds = [_of_kind(kind, listed=True) for kind in QUERY_KINDS if kind.continuous]
    return {"title": "query that stands", "required": ["id", "t"], "oneOf": kinds}


def _of_kind(kind: Kind, *, listed: bool = False) -> dict[str, Any]:
    """A query of a kind. What is null is as if it were not there, so that is all that fields of other kinds may be.

    Who registers a query, the gateway knows: it is in one that is listed, not in one that is sent.
    """
    optional = [name for name in kind.optional if listed or name != "by"]
    properties: dict[str, Any] = {"type": {"const": kind.type.value}}
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
    """An object as it may be sent: with the coordinates of the stream's space; others are nothing to it."""
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
    "SnapshotQuery": _query(standing=False),
    "RegisteredQuery": _query(standing=True),
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
        taken_in={"type": "boolean", "description": "whether the stream has come to it"},
        as_of={"anyOf": [_AS_OF, {"type": "null"}]},
        position={**_TEXT, "description": "a place in the results before its first row"},
    ),
    "Taken": _object(objects={"type": "integer", "minimum": 0}),
    "Live": _object(live={"type": "boolean"}),
    "Streams": _object(
        streams={"type": "array", "items": _object(name=_TEXT, rights={"type": "array", "items": {"enum": [*RIGHTS]}})}
    ),
    "State": _object(
        name=_TEXT,
        space={**_TEXT, "description": "wgs84, or planar: and its bounds"},
        round={"type": "integer", "description": "the newest that is done"},
        clock={"type": ["integer", "null"], "description": "ms since 1970-01-01 UTC up to which all has come"},
        behind={"type": ["integer", "null"], "description": "ms that the clock is behind the day's"},
        version={"type": "integer", "description": "of the tree"},
        slots={"type": "integer", "minimum": 1},
    ),
    "Past": _object(
        ["query", "since", "until", "rows"],
        query=_TEXT,
        since=_MS,
        until=_MS,
        rows={"type": "array", "items": _object(at={**_MS, "description": "ms; when it came"}, row=_ref("Row"))},
        next={**_TEXT, "description": "where the next page is; it may be empty"},
    ),
    "Counts": _object(
        query=_TEXT,
        since=_MS,
        until=_MS,
        kept_since={"type": ["integer", "null"], "description": "ms; rows from then on are kept"},
        counts={
            "type": "array",
            "items": _object(
                since=_MS,
                rows={"type": "integer", "minimum": 0},
                exact={"type": "boolean", "description": "whether all were counted; else it is an estimate"},
            ),
        },
    ),
    "SoFar": _object(
        rows={"type": "integer", "minimum": 0, "description": "that the query has had since it was registered"},
        last_row={"type": ["integer", "null"], "description": "ms; the largest t of them"},
    ),
    "Queries": _object(
        ["queries", "so_far", "as_of"],
        queries={"type": "array", "items": _ref("QueryThatStands")},
        so_far={"type": "array", "items": _ref("SoFar"), "description": "of each of the queries, in their order"},
        as_of=_AS_OF,
        next={**_TEXT, "description": "where the next page is"},
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


def _parameter(where: str, name: str, told: str, schema: Any = None, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "description": told, "required": required, "schema": schema or _TEXT}


def _at_least(least: int) -> dict[str, Any]:
    """Of a number of which more than there is room for is taken for the most, as OGC API, Features requires."""
    return {"type": "integer", "minimum": least}


_TIME, _DURATION = QUERY_JSON["properties"]["t"], QUERY_JSON["properties"]["duration"]
_TIMEOUT = _parameter("query", "timeout", "how long to wait, such as 5s; 10s by default, 60s at most", _DURATION)
_TIME_UNIT = _parameter("query", "time_unit", "times are ms even if they look like another unit", {"enum": ["ms"]})
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


def _content(told: str, forms: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    content = {form: {"schema": schema} for form, schema in forms.items()}
    shown = {name: {"description": text, "schema": _TEXT} for name, text in (headers or {}).items()}
    return {"description": told, "content": content} | ({"headers": shown} if shown else {})


def _body(told: str, form: str, schema: Any) -> dict[str, Any]:
    return {"description": told, "required": True, "content": {form: {"schema": schema}}}


_PAST = [
    _parameter("query", "query", "id of a query", required=True),
    _parameter("query", "since", "when the first came, in ms or ISO 8601; an hour before until by default", _TIME),
    _parameter("query", "until", "when the next one came; now by default", _TIME),
]
_WRITTEN = {JSON: _ref("Written")}
_FORM = _parameter("query", "f", "passed over: there is one form of this")

_OPERATIONS: dict[str, dict[str, Any]] = {
    "GET /live": {
        "summary": "Whether the process is worth keeping",
        "responses": {"200": _content("yes", {JSON: _ref("Live")}), "503": _content("no", {JSON: _ref("Live")})},
    },
    "GET /ready": {
        "summary": "Whether all streams can be asked; of a cluster, whether its streams are known",
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
        "summary": "What is here (OGC API)",
        "parameters": [_parameter("query", "f", "whatever it is, what is here and not the console")],
        "responses": {
            "200": _content("links", {JSON: _ref("Landing")}),
            "307": {"description": "to the console, for who accepts text/html rather than JSON and gives no f"},
        },
    },
    "GET /conformance": {
        "summary": "The classes of OGC API, Features that it conforms to",
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
    "GET /collections/{stream}/items": {
        "summary": "Objects of a stream as features, newest first",
        "parameters": [
            _parameter("query", "bbox", "west,south,east,north; across the antimeridian if west is above east", _BBOX)
            | {"style": "form", "explode": False},
            _parameter("query", "bbox-crs", "of the bbox", {"const": CRS84}),
            _parameter(
                *(
                    "query",
                    "datetime",
                    "a time, or two with a slash, of which one may be ..; of several, all hold",
                ),
                {"type": "string", "pattern": f"^({_MOMENT}|{_END}/{_END})$"},
            ),
            _parameter("query", "q", "words: all of one of the parts between commas"),
            _parameter("query", "limit", f"of a page, {MOST_ITEMS} at most", _at_least(1) | {"default": 10}),
            _parameter("query", "page", "as the link `next` has it"),
            _FORM,
        ],
        "responses": {"200": _content("a page of them", {GEOJSON: _ref("Items")})},
    },
    "GET /collections/{stream}/items/{item}": {
        "summary": "An object as a feature",
        "parameters": [_FORM],
        "responses": {"200": _content("the feature", {GEOJSON: _ref("Item")})},
    },
    "GET /streams": {
        "summary": "The streams with which you may do anything",
        "responses": {"200": _content("the streams", {JSON: _ref("Streams")})},
    },
    "GET /streams/{stream}": {
        "summary": "How far a stream is",
        "responses": {"200": _content("its state", {JSON: _ref("State")})},
    },
    "GET /streams/{stream}/queries": {
        "summary": "The queries that stand, in the order of their registration",
        "parameters": [
            _parameter("query", "limit", f"of a page, 100 by default, {MOST_LISTED} at most", _at_least(1)),
            _parameter("query", "after", "as `next` has it", _at_least(-1)),
        ],
        "responses": {"200": _content("a page of them", {JSON: _ref("Queries")})},
    },
    "GET /streams/{stream}/queries/{query}": {
        "summary": "A query that stands",
        "responses": {"200": _content("the query", {JSON: _ref("RegisteredAsOf")})},
    },
    "POST /streams/{stream}/ask": {
        "summary": "Ask snapshot queries, as of one round",
        "parameters": [
            _parameter(
                *("query", "at_least", "ms, ISO 8601 or now: wait until the stream's clock has come so far"),
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
            _parameter("query", "position", "where to begin: newest, oldest, or a word given here", _BEGINNING),
            _parameter(
                *("query", "wait", "of a poll: how long to wait for the first row; 30s by default, 60s at most"),
                _DURATION,
            ),
            _parameter(
                *("header", "Last-Event-ID", "instead of position: the id of the last event; none if it is empty"),
                {"anyOf": [*_BEGINNING["anyOf"], {"const": ""}]},
            ),
        ],
        "responses": {
            "200": _content(
                "rows, a line or an event each; a poll says in Next-Position where the next one begins",
                {JSON_LINES: _TEXT, EVENTS: _TEXT},
                {"Next-Position": "of a poll"},
            )
        },
    },
    "GET /streams/{stream}/results/past": {
        "summary": "The rows of a query that came between two times",
        "parameters": [
            *_PAST,
            _parameter("query", "limit", f"of a page, 1000 by default, {MOST_ROWS} at most", _at_least(1)),
            _parameter("query", "position", "as `next` has it", _PLACE),
        ],
        "responses": {"200": _content("a page of them", {JSON: _ref("Past")})},
    },
    "GET /streams/{stream}/results/counts": {
        "summary": "How many rows of a query came in each part of a time",
        "parameters": [
            *_PAST,
            _parameter("query", "parts", f"of equal length, 60 by default, {MOST_PARTS} at most", _at_least(1)),
        ],
        "responses": {"200": _content("of each part how many", {JSON: _ref("Counts")})},
    },
    "POST /streams/{stream}/queries": {
        "summary": "Register a continuous query",
        "parameters": [
            _TIMEOUT,
            _TIME_UNIT,
            _parameter(
                *("header", "Idempotency-Key", "registered with it again, it is the same registration"),
                {"type": "string", "minLength": 1, "maxLength": 256},
            ),
        ],
        "requestBody": _body("the query", JSON, _ref("RegisteredQuery")),
        "responses": {
            "201": _content("it stands", _WRITTEN),
            "200": _content("it stood before, under the same key", _WRITTEN),
            "202": _content("the broker has it; the stream has not come to it yet", _WRITTEN),
        },
    },
    "DELETE /streams/{stream}/queries/{query}": {
        "summary": "Cancel a continuous query",
        "parameters": [_TIMEOUT],
        "responses": {
            "200": _content("it stands no more", _WRITTEN),
            "202": _content("the broker has it; the stream has not come to it yet", _WRITTEN),
        },
    },
    "POST /streams/{stream}/objects": {
        "summary": "Send objects, all or none",
        "parameters": [_TIME_UNIT],
        "requestBody": _body("JSON Lines, each of an object", JSON_LINES, _ref("Object")),
        "responses": {"200": _content("the broker has all of them", {JSON: _ref("Taken")})},
    },
}


def document(endpoints: Sequence[tuple[str, str, str | None]]) -> dict[str, Any]:
    """The document.

    Args:
        endpoints: method, path and right of each.
    """
    paths: dict[str, dict[str, Any]] = {}
    for method, path, right in endpoints:
        plain = path.replace(":path}", "}")
        known = _OPERATIONS[f"{method} {plain}"]
        names = [part[1:-1] for part in plain.split("/") if part.startswith("{")]
        within = [_parameter("path", name, f"the {name}'s name", required=True) for name in names]
        operation = known | {
            "operationId": f"{method.lower()}{plain.replace('/', '_').replace('{', '').replace('}', '')}"
        }
        refused = {"description": "a problem, with Retry-After where it may succeed later", "content": _REFUSED}
        operation |= {
            "parameters": within + known.get("parameters", []),
            "responses": known["responses"] | {"4XX": refused, "5XX": refused},
        }
        if right is not None:
            operation |= {
                "description": f"Needs the right `{right}`." if right in RIGHTS else "Needs any right.",
                "security": [{"token": []}, {}] if right != "write" else [{"token": []}],
            }
        paths.setdefault(plain, {})[method.lower()] = operation
    statuses = ", ".join(f"{status} ({kind})" for kind, (status, _) in KINDS.items())
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "spatialstream gateway",
            "version": version("spatialstream"),
            "description": f"Live streams over HTTP. Problems are of RFC 9457; there are {statuses}.",
        },
        "paths": paths,
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


_REFUSED = {PROBLEM_TYPE: {"schema": _ref("Problem")}}
