"""The AsyncAPI document is true: its references lead somewhere, its channel is a path, real events are as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema

from spatialstream.client.cursor import Cursor
from spatialstream.gateway.app import Gateway, Limits
from tests.unit.client.broker import Topic
from tests.unit.gateway.http import served, serving
from tests.unit.gateway.results import in_parts, messages, opener, row
from tests.unit.gateway.test_following import Events


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def resolved(document: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        document = document[name]
    return document


def test_it_is_of_the_paths_that_there_are() -> None:
    gateway = Gateway([])
    with serving(gateway) as client:
        document, openapi = (client("GET", f"/{name}.json").json for name in ("asyncapi", "openapi"))
    assert document["asyncapi"] == "3.0.0"
    for reference in references(document):
        assert resolved(document, reference), reference
    (channel,) = document["channels"].values()
    assert channel["address"] in {each.path for each in gateway.endpoints if each.method == "GET"}
    (operation,) = document["operations"].values()
    told = {each["name"]: each for each in openapi["paths"][channel["address"]]["get"]["parameters"]}
    query = operation["bindings"]["http"]["query"]
    assert query["properties"].keys() == {name for name, each in told.items() if each["in"] == "query"}
    assert channel["parameters"].keys() == {name for name, each in told.items() if each["in"] == "path"}
    said = document["components"]["messages"].values()
    for schema in (query, *(each[part] for each in said for part in ("headers", "payload"))):
        jsonschema.Draft7Validator.check_schema(schema)


def test_events_are_as_it_says() -> None:
    topics = [Topic(), Topic()]
    with serving(Gateway([served("s", results=opener(*topics))], limits=Limits(heartbeat=0.05))) as client:
        said = client("GET", "/asyncapi.json").json["components"]["messages"]
        events = Events(client, "/streams/s/results?query=x&query=y&position=oldest")
        for topic, lines in zip(topics, ([row("x", 1), *in_parts("x", 2, 3)], [row("y", 3)]), strict=True):
            topic.messages += messages([each.replace(b'{"id"', b'{"t": 1, "id"') for each in lines], 2, 0)
        seen, heartbeats = list[Any](), 0
        while len(seen) < 3 or not heartbeats:
            event = next(iter(events))
            if event.data:
                jsonschema.validate(json.loads(event.data), said["row"]["payload"])
                seen.append(event.data)
            heartbeats += event.comment == b"nothing now"
            jsonschema.validate({"id": event.id}, said["row" if event.data else "place"]["headers"])
            assert len(Cursor.parse(event.id).parts) == 2
        events.close()
