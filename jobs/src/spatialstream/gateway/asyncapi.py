"""The events of results as an AsyncAPI 3.0 document, derived from the OpenAPI document so that the two agree.

A test validates real events against it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from spatialstream.client.cursor import PATTERN
from spatialstream.gateway.following import EVENTS, JSON_LINES

__all__ = ["PATH", "events"]

PATH = "/streams/{stream}/results"
_ID = {"type": "string", "pattern": PATTERN, "description": "position in the results, with which to resume"}
_HTTP = "0.3.0"


def events(openapi: dict[str, Any]) -> dict[str, Any]:
    """Build the document.

    Args:
        openapi: the OpenAPI document of the same gateway.
    """
    operation = openapi["paths"][PATH]["get"]
    within = {each["name"]: each for each in operation["parameters"]}
    query = {name: each for name, each in within.items() if each["in"] == "query"}
    schema = {
        "type": "object",
        "properties": {name: {"description": each["description"], **each["schema"]} for name, each in query.items()},
        "required": [name for name, each in query.items() if each["required"]],
    }
    row = {
        "name": "row",
        "title": "A row of a query",
        "summary": "Each row is sent once. A poll returns it as a line without its id; Next-Position is the last id.",
        "contentType": "application/json",
        "headers": {"type": "object", "properties": {"id": _ID}, "required": ["id"]},
        "payload": openapi["components"]["schemas"]["Row"],
    }
    place = {
        "name": "place",
        "title": "A position",
        "summary": "An id without data: at the start, and after some time without rows.",
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "properties": {"id": _ID, "retry": {"type": "integer", "description": "ms to wait before reconnecting"}},
        },
        "payload": {"type": "null"},
    }
    channel = {"$ref": "#/channels/results"}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "spatialstream results",
            "version": version("spatialstream"),
            "description": f"Result rows of live streams as they arrive, as {EVENTS}, or as {JSON_LINES} by polls.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "results": {
                "address": PATH,
                "parameters": {"stream": {"description": within["stream"]["description"]}},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in ("row", "place")},
            }
        },
        "operations": {
            "follow": {
                "action": "send",
                "channel": channel,
                "summary": operation["summary"],
                "security": [{"$ref": "#/components/securitySchemes/token"}],
                "messages": [{"$ref": f"#/channels/results/messages/{name}"} for name in ("row", "place")],
                "bindings": {"http": {"method": "GET", "query": schema, "bindingVersion": _HTTP}},
            }
        },
        "components": {
            "messages": {"row": row, "place": place},
            "securitySchemes": openapi["components"]["securitySchemes"],
        },
    }
