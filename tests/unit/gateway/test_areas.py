"""Areas over HTTP: kept, listed and deleted, and looked up where a query is registered or asked."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.requests import Request as HttpRequest

from spatialstream.actors.query_endpoint import Request
from spatialstream.client.area_queries import Refreshed
from spatialstream.client.areas import Areas
from spatialstream.client.registered import RegisteredQueries
from spatialstream.connectors.kafka import Connection
from spatialstream.gateway import areas
from spatialstream.gateway.access import Access
from spatialstream.gateway.answers import AnswerRooms
from spatialstream.gateway.app import Gateway
from spatialstream.model.areas import with_area
from spatialstream.model.errors import Unavailable
from spatialstream.servers.process import await_condition
from tests.unit.client.area_log import AreaLog
from tests.unit.gateway.http import Answer, Client, served, serving
from tests.unit.gateway.results import opener
from tests.unit.gateway.test_writing import TOKEN, QuerySession, Stream

GEOJSON = "application/geo+json"
PATH = "/streams/s/areas"
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
OTHER = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]}
CROSSED = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
CRQ = {"id": "q", "type": "CRQ", "region": {"area": "mitte"}, "duration": "1h"}


def collection(**shapes: Any) -> dict[str, Any]:
    features = [{"type": "Feature", "properties": {"name": n}, "geometry": shape} for n, shape in shapes.items()]
    return {"type": "FeatureCollection", "features": features}


class Session(QuerySession):
    """A stream with areas, that is asked nothing that it would answer."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.stream)
        self.scene = scene
        self.areas = Areas(Connection("nowhere:1"), "s")

    def refresh(self, area: str, *, timeout: float) -> Refreshed:
        self.scene.refreshing.append((area, timeout))
        self.scene.go.wait(30.0)
        return Refreshed(("a", "b"), {f"q{i:03}": "it has been cancelled" for i in range(150)})

    def queries(self, after: int = -1, limit: int = 100) -> RegisteredQueries:
        so_far: list[dict[str, Any]] = [{"rows": 0, "last_row": None} for _ in self.scene.registered]
        return RegisteredQueries(self.scene.registered, 0, {"round": 7, "clock": 1_000}, so_far)


@dataclass
class Scene:
    """A gateway, and what is behind it."""

    stream: Stream = field(default_factory=Stream)
    registered: list[dict[str, Any]] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    refreshing: list[tuple[str, float]] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> AreaLog:
    made = AreaLog()
    made.stand_for_the_broker(monkeypatch)
    return made


@pytest.fixture
def scene(log: AreaLog) -> Scene:
    return Scene()


@pytest.fixture
def send(scene: Scene, tmp_path: Path) -> Iterator[Client]:
    may = {"ask": ["ask"], "all": ["ask", "watch", "write"], "operator": ["watch", "write"]}
    tokens = [{"name": n, "token": f"{n}-{TOKEN}", "rights": rights, "streams": ["s"]} for n, rights in may.items()]
    (tmp_path / "tokens").write_text("\n".join(map(json.dumps, tokens)))
    behind = served("s", lambda: Session(scene), opener(scene.stream.results), scene.stream)
    with serving(Gateway([behind], Access(tmp_path / "tokens"), registrars=["operator"])) as client:
        yield Client(client.port, f"all-{TOKEN}")


def test_areas_are_kept_listed_and_deleted(send: Client, log: AreaLog) -> None:
    answer = send("PUT", f"{PATH}/mitte", SQUARE)
    area = {"name": "mitte", "revision": 0, "vertices": 4, "box": [0, 0, 8, 8], "by": "all"}
    assert answer.status == 201
    assert answer.json.pop("area").items() >= area.items()
    answer = send("POST", f"{PATH}?id=name", collection(mitte=OTHER, pankow=SQUARE), content_type=GEOJSON)
    assert (answer.status, answer.json) == (200, {"new": ["pankow"], "changed": ["mitte"], "same": []})
    assert send("PUT", f"{PATH}/mitte", {"type": "Feature", "geometry": OTHER}, content_type=GEOJSON).status == 200
    listed = send("GET", PATH).json
    assert [(each["name"], each["revision"], each["vertices"]) for each in listed["areas"]] == [
        ("mitte", 1, 4),
        ("pankow", 2, 4),
    ]
    assert listed["unusable"] == {}
    answer = send("GET", PATH, accept=GEOJSON)
    assert answer.headers["content-type"] == GEOJSON
    assert [each["geometry"] for each in answer.json["features"]] == [OTHER, SQUARE]
    shown = send("GET", f"{PATH}/mitte")
    assert (shown.json["id"], shown.json["geometry"]) == ("mitte", OTHER)
    assert send("DELETE", f"{PATH}/mitte").json == {"deleted": "mitte"}
    for method in ("GET", "DELETE"):
        answer = send(method, f"{PATH}/mitte")
        assert (answer.status, answer.json["type"]) == (404, "urn:spatialstream:problem:not-found")
    assert len(log.messages) == 4


def test_names_are_any_text_that_can_be_printed(send: Client) -> None:
    for name in ("a/b c", "Tempelhof-Schöneberg", "100 %"):
        assert send("PUT", f"{PATH}/{quote(name, safe='')}", SQUARE).status == 201
        assert send("GET", f"{PATH}/{quote(name, safe='')}").json["id"] == name
    assert send("PUT", f"{PATH}/{quote('a' * 201)}", SQUARE).status == 400
    assert send("PUT", f"{PATH}/%0a", SQUARE).status == 400


def test_what_is_no_area_is_refused_and_nothing_is_kept(send: Client, log: AreaLog) -> None:
    answer = send("POST", f"{PATH}?id=name", collection(mitte=SQUARE, pankow=CROSSED))
    assert answer.status == 400
    assert "feature 2 (pankow): coordinates[0]: crosses or touches itself at [1, 1]" in answer.json["detail"]
    assert send("PUT", f"{PATH}/a", collection(mitte=SQUARE, pankow=SQUARE)).status == 400
    assert send("PUT", f"{PATH}/a", b"{").status == 400
    assert send("POST", f"{PATH}?name=a", collection(a=SQUARE)).errors[0]["parameter"] == "name"
    assert log.messages == []


def test_who_may_not_write_reads_areas_only(send: Client) -> None:
    send("PUT", f"{PATH}/mitte", SQUARE)
    other = Client(send.port, f"ask-{TOKEN}")
    assert [other("GET", path).status for path in (PATH, f"{PATH}/mitte")] == [200, 200]
    assert [other(method, f"{PATH}/mitte", SQUARE).status for method in ("PUT", "DELETE")] == [403, 403]
    assert other("POST", PATH, collection()).status == 403


def test_what_a_resource_keeps_nobody_else_changes_and_it_takes_over_nothing(send: Client, log: AreaLog) -> None:
    operator, by = Client(send.port, f"operator-{TOKEN}"), quote("sa/geo/mitte", safe="")
    answer = operator("PUT", f"{PATH}/mitte?by={by}", SQUARE)
    assert (answer.status, answer.json["area"]["by"]) == (201, "sa/geo/mitte")
    for method, path, body in (
        ("PUT", f"{PATH}/mitte", OTHER),
        ("POST", f"{PATH}?id=name", collection(pankow=SQUARE, mitte=OTHER)),
        ("DELETE", f"{PATH}/mitte", None),
    ):
        answer = send(method, path, body)
        assert answer.status == 409
        assert answer.json["detail"] == "'mitte' is kept by the SpatialArea geo/mitte; change that resource"
    assert len(log.messages) == 1
    answer = send("PUT", f"{PATH}/mitte?by={by}", SQUARE)
    assert (answer.status, answer.errors[0]["parameter"]) == (400, "by")
    send("PUT", f"{PATH}/pankow", SQUARE)
    for method in ("PUT", "DELETE"):
        answer = operator(method, f"{PATH}/pankow?by={by}", SQUARE)
        assert answer.status == 409
        assert answer.json["detail"].startswith("'pankow' is an area that all has loaded")
    assert operator("DELETE", f"{PATH}/mitte?by={by}").status == 200


def test_queries_of_an_area_are_registered_anew(send: Client, scene: Scene) -> None:
    path = f"{PATH}/{quote('a/b', safe='')}/refresh"
    assert send("POST", path).status == 404
    send("PUT", f"{PATH}/{quote('a/b', safe='')}", SQUARE)
    assert Client(send.port, f"ask-{TOKEN}")("POST", path).status == 403
    assert send("POST", f"{path}?wait=1s").errors[0]["parameter"] == "wait"
    assert scene.refreshing == []
    first = list[Answer]()
    asking = threading.Thread(target=lambda: first.append(send("POST", f"{path}?timeout=20s")))
    asking.start()
    assert await_condition(lambda: scene.refreshing == [("a/b", 20.0)], 30.0)
    answer = send("POST", path)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    scene.go.set()
    asking.join(30.0)
    assert first[0].status == 200
    told = first[0].json
    assert (told["area"], told["refreshed"], len(told["refused"])) == ("a/b", 2, 100)
    assert send("POST", path).status == 200
    assert send("GET", f"{PATH}/{quote('a/b', safe='')}/refresh").status == 404, "an area may be called so"


def test_a_registration_gets_the_polygon_of_its_area(send: Client, scene: Scene) -> None:
    send("PUT", f"{PATH}/mitte", SQUARE)
    assert send("POST", "/streams/s/queries", CRQ).status == 201
    ((record, _),) = scene.stream.sent
    assert record["region"] == {"polygon": SQUARE, "area": "mitte"}
    for method, path, query in (
        ("POST", "/streams/s/queries", CRQ),
        ("POST", "/streams/s/ask", {"type": "SRQ", "region": {"area": "mitte"}, "duration": 1}),
    ):
        answer = send(method, path, query | {"region": {"area": "mite"}})
        assert (answer.status, answer.errors) == (
            400,
            [
                {
                    "pointer": "#/region/area",
                    "detail": "'mite' is not an area of the stream; did you mean mitte?",
                }
            ],
        )
    several = [{"type": "SRQ", "region": {"area": name}, "duration": 1} for name in ("mitte", "x")]
    assert send("POST", "/streams/s/ask", several).errors[0]["pointer"] == "#/1/region/area"
    assert len(scene.stream.sent) == 1


def test_a_listed_query_says_whether_its_area_has_changed(send: Client, scene: Scene, log: AreaLog) -> None:
    send("PUT", f"{PATH}/mitte", SQUARE)
    table = Areas(Connection("nowhere:1"), "s").table()
    scene.registered = [with_area(CRQ | {"t": 1}, lambda: table), CRQ | {"t": 1, "region": {"polygon": SQUARE}}]

    def told() -> list[str | None]:
        return [each.get("geometry") for each in send("GET", "/streams/s/queries").json["so_far"]]

    assert told() == ["current", None]
    send("PUT", f"{PATH}/mitte", OTHER)
    assert told() == ["outdated", None]
    send("DELETE", f"{PATH}/mitte")
    assert told() == ["deleted", None]
    log.there = False
    assert told() == [None, None], "without its areas a stream is listed nevertheless"
    with pytest.raises(Unavailable):
        Areas(Connection("nowhere:1"), "s").table()
    assert send("GET", PATH).status == 503


def many_sided(vertices: int) -> dict[str, Any]:
    """A polygon of so many vertices."""
    angles = np.linspace(0.0, 2.0 * np.pi, vertices, endpoint=False)
    ring = np.stack([10.0 * np.cos(angles), 10.0 * np.sin(angles)], axis=1).tolist()
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def test_a_small_request_does_not_take_the_memory_of_a_large_one_by_naming_areas(send: Client, scene: Scene) -> None:
    send("PUT", f"{PATH}/big", many_sided(5_000))
    query = {"type": "SRQ", "region": {"area": "big"}, "duration": 1}
    tracemalloc.start()
    answer = send("POST", "/streams/s/ask", [query] * 1_000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status == 413
    assert "these queries have 5000000 vertices in all; ask fewer queries of areas at a time" in answer.json["detail"]
    assert most < 20e6, "their polygons are not made"


def test_areas_are_made_as_they_are_sent(scene: Scene, log: AreaLog) -> None:
    count, vertices = 30, 1_000
    behind = served("s", lambda: Session(scene), opener(scene.stream.results), scene.stream)
    Areas(Connection("nowhere:1"), "s").load(
        {
            "type": "FeatureCollection",
            "features": [
                {"type": "Feature", "id": f"a{n}", "geometry": many_sided(vertices + n)} for n in range(count)
            ],
        }
    )
    scope = {
        "type": "http",
        "method": "GET",
        "path": PATH,
        "query_string": b"",
        "headers": [(b"accept", GEOJSON.encode())],
    }
    sent = [0, b"", b""]

    async def send(message: Any) -> None:
        body = message.get("body", b"")
        sent[:] = [sent[0] + len(body), sent[1] or body[:60], body or sent[2]]

    async def get() -> int:
        rooms, held = AnswerRooms(256 << 20, 32 << 20), ExitStack()
        room = held.enter_context(rooms.room("me"))
        response = await areas.listed(HttpRequest(scope), behind, room, held)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        await response(scope, None, send)  # type: ignore[arg-type]  # it receives nothing
        assert rooms.taken == 0
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    most = asyncio.run(get())
    tracemalloc.stop()
    assert sent[0] > 30 * count * vertices
    assert sent[1].startswith(b'{"type": "FeatureCollection", "features": [')
    assert sent[2].endswith(b"]}")
    assert most < 5 * 200 * vertices, "a few at a time"
