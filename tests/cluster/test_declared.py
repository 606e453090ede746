"""A stream with properties, polygons, areas, conditions and fields for all types, while its processes are killed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spatialstream.cli import main
from spatialstream.client import Areas
from spatialstream.generate import GenerateSettings, object_batches, query_batch
from spatialstream.model.areas import with_area
from spatialstream.model.kinds import TYPES
from spatialstream.model.objects import ObjectBatch, SpatialObject, parse_object
from spatialstream.model.properties.declared import Properties
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.regions import Polygon
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.oracle.conditions import satisfies
from spatialstream.records.encode import object_lines, query_lines
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.cluster.test_faults import kill_python, publish_moved
from tests.cluster.test_gateway import TOKEN, GatewayServer
from tests.unit.gateway.http import Client

NAME = "declared"
RULE = TermRule(
    ranking=True,
    counts=True,
    properties=Properties.parse(["country:keyword", "priority:number", "seen:time", "open:boolean"]),
    fields=("text", "priority", "open"),
)
DECLARED = [f"--property={each}" for each in RULE.properties.declarations]
DECLARED += ["--ranking", "--term-counts", f"--fields={','.join(RULE.fields or ())}"]
GENERATED = GenerateSettings(
    objects=12_000,
    rate=20.0,
    properties=RULE.properties,
    fields=RULE.fields or (),
    queries=dict.fromkeys(TYPES, 20),
    region=(0.05, 2.0),
    circles=0.2,
    polygons=0.6,
    margins=0.3,
    keywords=(0, 1),
    where=0.6,
    k=5,
    duration=240_000,
    window=60_000,
    step=20_000,
)


@dataclass
class Run:
    """The stream, when it has had everything.

    Attributes:
        stream: the stream.
        objects, queries: what it was sent.
    """

    stream: LiveStream
    objects: list[SpatialObject]
    queries: list[Query]


def generated() -> tuple[list[SpatialObject], list[dict[str, Any]]]:
    """Objects as the stream reads them, with the fields that it keeps, and records of queries; in order of time."""
    batch = ObjectBatch.concat(list(object_batches(GENERATED)))
    lines = bytes(object_lines(batch, WGS84)).splitlines()
    objects = [parse_object(json.loads(line), WGS84, RULE) for line in lines]
    return objects, [json.loads(line) for line in bytes(query_lines(query_batch(GENERATED))).splitlines()]


def located(stream: LiveStream) -> list[str]:
    """Where the stream is; how it reads records, commands find out there."""
    servers = stream.servers
    return ["--stream", NAME, "--bootstrap", servers.kafka.bootstrap, "--zookeeper", servers.zookeeper.hosts]


def of_area(name: str, region: Mapping[str, Any]) -> dict[str, Any]:
    """The region with the area of its polygon in the polygon's place."""
    return {"area": name} | {member: value for member, value in region.items() if member != "polygon"}


def of_areas(stream: LiveStream, records: Sequence[dict[str, Any]], folder: Path) -> list[Query]:
    """The queries, of whose polygons every other one is an area that the stream knows by name; margins stay."""
    shapes = {
        f"area {i}": each["region"]["polygon"]
        for i, each in enumerate(records)
        if i % 2 and each.get("region", {}).get("polygon", {}).get("type") == "Polygon"
    }
    features = [{"type": "Feature", "properties": {"name": name}, "geometry": shape} for name, shape in shapes.items()]
    (folder / "areas.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    assert main(["areas", "load", str(folder / "areas.geojson"), "--id", "name", *located(stream)]) == 0
    table = Areas(stream.connection, NAME, WGS84, RULE).table()
    named = [
        each | ({"region": of_area(f"area {i}", each["region"])} if f"area {i}" in shapes else {})
        for i, each in enumerate(records)
    ]
    queries = [parse_query(dict(with_area(each, lambda: table)), WGS84, RULE) for each in named]
    areas = [q.predicate.region.area for q in queries if isinstance(q.predicate.region, Polygon)]
    assert sum(map(bool, areas)) == len(shapes) > 10
    return queries


@pytest.fixture(scope="module")
def run(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp(NAME)
    objects, records = generated()
    with LiveStream(servers, NAME, folder, WGS84, 3, *DECLARED) as stream:
        queries = of_areas(stream, records, folder)
        sending = stream.send(objects, queries, rate=60.0, lasting=True, tick=0.1)
        stream.await_rows(100)
        number = publish_moved(stream)
        kill(stream, "worker")
        assert await_condition(lambda: stream.store.state().active.number == number, PATIENCE)
        stream.await_progress()
        kill_python(stream)
        stream.await_progress()
        assert sending.is_alive(), "everything was sent before the processes were killed"
        kill(stream, "router")
        stream.await_progress()
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        yield Run(stream, objects, queries)


def kill(stream: LiveStream, job: str) -> None:
    server = getattr(stream, job)
    server.kill()
    server.start(timeout=PATIENCE)


@pytest.mark.timeout(2400)
def test_rows_are_the_oracles_whatever_dies(run: Run) -> None:
    assert differences(run.stream, run.objects, run.queries) == []
    asked = {query.type: query for query in run.queries if query.predicate.where is not None}
    assert len(asked) >= len(TYPES) - 1
    rows = run.stream.rows()
    shown = [each for row in rows for each in row.get("objects", [row["object"]] if "object" in row else [])]
    assert sum("text" in each for each in shown) > 100
    assert run.stream.rejected() == []


@pytest.mark.timeout(1200)
def test_items_have_the_fields_of_what_a_filter_selects(run: Run, tmp_path: Path) -> None:
    box = (-30.0, 30.0, 60.0, 70.0)
    condition = {"op": ">=", "args": [{"property": "priority"}, 3]}
    expected = {
        each.id: json.loads("{" + (each.stored or "") + "}")
        for each in run.objects
        if box[0] <= each.x <= box[2] and box[1] <= each.y <= box[3] and satisfies(condition, dict(each.properties))
    }
    assert len(expected) > 500
    last = 1 + max(each.t for each in run.objects)
    one_more = {"id": "loaded", "t": last, "lon": 13.4, "lat": 52.5, "text": "Fire!", "priority": 4, "country": "de"}
    (tmp_path / "more.jsonl").write_text(json.dumps(one_more))
    assert main(["load", *located(run.stream), "--objects", str(tmp_path / "more.jsonl"), "--settle", "1"]) == 0
    expected["loaded"] = {"text": "Fire!", "priority": 4}
    with GatewayServer(tmp_path, run.stream) as server:
        client = Client(server.port, TOKEN)
        path = f"/collections/{NAME}/items?bbox={','.join(map(str, box))}&limit=10000"

        def items(filtered: str) -> Any:
            return client("GET", f"{path}&filter={quote(filtered)}")

        assert await_condition(lambda: items("priority >= 3").json.get("as_of", {}).get("clock", 0) >= last, PATIENCE)
        answer = items("priority >= 3")
        assert answer.status == 200
        found = {each["properties"]["object"]: each["properties"] for each in answer.json["features"]}
        plain = {
            name: {k: v for k, v in each.items() if k not in ("object", "t", "time")} for name, each in found.items()
        }
        assert plain == expected
        none = items("priority >= 3 AND country = 'nowhere'")
        assert (none.status, none.json["features"]) == (200, [])
        assert items("prio >= 3").status == 400
        (one,) = [each for each in answer.json["features"] if each["properties"]["object"] == min(expected)]
        single = client("GET", f"/collections/{NAME}/items/{quote(one['id'], safe='')}")
        assert (single.status, single.json["properties"]) == (200, one["properties"])
