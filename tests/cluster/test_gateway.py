"""A live stream over HTTP, while connections are dropped, the gateway is killed, and what answers behind it."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spatialstream.client import Connection, RecordWriter
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.servers import job
from spatialstream.servers.process import await_condition
from tests.cluster.stream import LiveStream, Servers
from tests.cluster.test_faults import kill_python
from tests.streams import random_stream
from tests.unit.gateway.http import Client

TOKEN = "everything-0123456789"
EVERYWHERE = {"box": [-180, -90, 180, 90]}


class GatewayServer(job.GatewayServer):
    """The gateway of a stream, with a token that may everything."""

    def __init__(self, folder: Path, stream: LiveStream) -> None:
        where = ["--stream", stream.name, "--bootstrap", stream.servers.kafka.bootstrap]
        where += ["--zookeeper", stream.servers.zookeeper.hosts]
        super().__init__(folder, [*where, "--tokens", str(folder / "tokens")])

    def _configure(self) -> None:
        token = {"name": "test", "token": TOKEN, "rights": ["ask", "watch", "write"], "streams": ["*"]}
        (self.folder / "tokens").write_text(json.dumps(token))


@dataclass
class Follower:
    """Follows queries as a browser does, and loses its connection now and then.

    Attributes:
        client, queries, last: how it reaches the gateway, what it follows, and the id of the event that it had last.
        chance: of when it loses its connection.
        stream: its name.
        longest: seconds for which a connection lasts.
        rows: those that have come.
        resumed: how often it has come again.
        failed: what was answered other than events.
    """

    client: Client
    queries: list[str]
    last: str
    chance: random.Random
    stream: str = "gateway"
    longest: float = 6.0
    rows: list[bytes] = field(default_factory=list)
    resumed: int = -1
    failed: list[tuple[int, bytes]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.is_set():
            with suppress(OSError, http.client.HTTPException):
                self._follow()
            self.over.wait(0.2)

    def _follow(self) -> None:
        path = f"/streams/{self.stream}/results?position=oldest&" + "&".join(
            f"query={quote(each)}" for each in self.queries
        )
        headers = {"accept": "text/event-stream", "last-event-id": self.last}
        with closing(self.client.connection(timeout=30.0)) as connection:
            connection.request("GET", path, headers=self.client.headers(headers))
            response = connection.getresponse()
            if response.status != 200:
                self.failed.append((response.status, response.read()))
                return
            self.resumed += 1
            until, event = time.monotonic() + self.chance.uniform(0.5, self.longest), dict[bytes, bytes]()
            while time.monotonic() < until and (line := response.readline()):
                if line == b"\n":  # whole; what was cut off is not there
                    self.rows += [event[b"data"]] if b"data" in event else []
                    self.last = event.get(b"id", self.last.encode()).decode()
                    event = {}
                else:
                    name, _, value = line.rstrip(b"\n").partition(b": ")
                    event[name] = value


def registered(client: Client) -> list[str]:
    """The ids of registered queries, page by page."""
    found, path = list[str](), "/streams/gateway/queries?limit=2"
    while path:
        answer = client("GET", path)
        if answer.status == 503:
            return []
        assert answer.status == 200, answer
        found += [each["id"] for each in answer.json["queries"]]
        path = answer.json.get("next", "")
    for name in found:
        assert client("GET", f"/streams/gateway/queries/{name}").status in (200, 503)
    return found


def past(client: Client, query: str) -> list[Any]:
    """All rows of a query that have come, page by page."""
    found, path = list[Any](), f"/streams/gateway/results/past?query={query}&since=0&limit=1000"
    while path:
        answer = client("GET", path)
        assert answer.status == 200, answer
        found += [each["row"] for each in answer.json["rows"]]
        path = answer.json.get("next", "")
    return found


def by_query(rows: list[bytes]) -> dict[str, list[bytes]]:
    """The rows of each query in their order; those of different ones may be in different partitions."""
    found = defaultdict[str, list[bytes]](list)
    for row in rows:
        found[json.loads(row)["query"]].append(row)
    return found


@pytest.mark.gate
@pytest.mark.timeout(900)
def test_every_row_comes_once_over_http_whatever_is_killed(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = sorted(random_stream(8, 6_000, 0, WGS84).objects, key=lambda each: each.t)
    with (
        LiveStream(servers, "gateway", tmp_path, WGS84, 3, "--mergers", "2") as stream,
        GatewayServer(tmp_path / "gateway", stream) as server,
    ):
        http_ = Client(server.port, TOKEN)
        sending = stream.send(objects, [], rate=150.0)
        asked = {"type": "SKQ", "at": [0, 0], "k": 5, "duration": "52w"}
        assert await_condition(lambda: http_("POST", "/streams/gateway/ask", asked).status == 200, 60.0)

        names, position, began = list[str](), "", time.monotonic()
        for i in range(5):
            query = {"type": "CRQ", "region": EVERYWHERE, "duration": "52w"} | ({"keywords": ["w1"]} if i == 4 else {})
            response = http_("POST", "/streams/gateway/queries?timeout=60s", query, idempotency_key=str(i))
            assert response.status == 201, response
            names.append(response.json["query"])
            position = position or response.json["position"]
        took = time.monotonic() - began
        again = http_("POST", "/streams/gateway/queries?timeout=60s", query, idempotency_key="4")
        assert again.status in (200, 201)  # 201 if the stream's clock stood still
        assert again.json["query"] == names[4]

        assert registered(http_) == names
        forged = http_("POST", "/streams/gateway/queries", query | {"by": "somebody else"})
        assert (forged.status, forged.errors[0]["pointer"]) == (400, "#/by")
        topic = RecordWriter(Connection(stream.servers.kafka.bootstrap), "gateway")
        topic.queries(http_("GET", f"/streams/gateway/queries/{names[0]}").json["query"] | {"by": "somebody else"})

        followers = [Follower(http_, names, position, random.Random(seed)) for seed in range(4)]
        threads = [threading.Thread(target=each.run, daemon=True) for each in followers]
        for thread in threads:
            thread.start()
        clock = http_("POST", "/streams/gateway/ask", asked).json["as_of"]["clock"]
        sent = [{"id": f"sent{i}", "t": clock + i, "lon": 0.01 * i, "lat": 0.0, "text": "sent w1"} for i in range(100)]
        lines = "".join(json.dumps(each) + "\n" for each in sent).encode()
        assert http_("POST", "/streams/gateway/objects", lines).json == {"objects": 100}

        assert await_condition(lambda: all(each.rows for each in followers), 60.0)
        for i, fault in enumerate((server.kill, lambda: kill_python(stream), server.kill)):
            fault()
            server.start(timeout=120.0)
            name = f"after-{i}"
            line = json.dumps({"id": name, "t": clock, "lon": 1.0, "lat": 0.0, "text": "sent w1"}).encode()
            sent.append(json.loads(line))
            assert await_condition(
                lambda body=line: http_("POST", "/streams/gateway/objects", body).status == 200, 60.0
            )
            wanted = f'"id": "{name}"'.encode()
            assert await_condition(
                lambda text=wanted: all(sum(text in row for row in each.rows) == 5 for each in followers), 240.0
            ), name
        assert await_condition(lambda: registered(http_) == names, 60.0), "whatever has been killed"
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        end = objects[-1].t
        answer = http_("POST", f"/streams/gateway/ask?at_least={end}&timeout=60s", asked | {"id": "q", "t": end})
        assert answer.status == 200, answer
        everything = objects + [SpatialObject(each["id"], each["t"], each["lon"], 0.0, ("sent", "w1")) for each in sent]  # type: ignore[arg-type]
        right, _ = answers(everything, [parse_query(asked | {"id": "q", "t": end}, WGS84)], WGS84)
        row: dict[str, Any] = {name: value for name, value in answer.json.items() if name != "as_of"}
        assert [str(each) for each in check([row], right, 5)] == []

        assert http_("DELETE", f"/streams/gateway/queries/{names[4]}?timeout=60s").status == 200
        assert http_("DELETE", f"/streams/gateway/queries/{names[4]}?timeout=60s").status == 404

        assert await_condition(lambda: registered(http_) == names[:4], 60.0)

        def of_topic() -> list[bytes]:
            return [line for line in stream.lines if json.loads(line)["query"] in names]

        assert await_condition(lambda: all(len(each.rows) >= len(of_topic()) for each in followers), 120.0)
        assert await_condition(lambda: all(each.resumed > 3 for each in followers), 240.0)
        for each in followers:
            each.over.set()
        for thread in threads:
            thread.join(40.0)
        expected = of_topic()
        for each in followers:
            assert by_query(each.rows) == by_query(expected)
            assert {status for status, _ in each.failed} <= {503}
        for name in names:
            assert past(http_, name) == [json.loads(line) for line in by_query(expected)[name]]
            (counted,) = http_("GET", f"/streams/gateway/results/counts?query={name}&since=0&parts=1").json["counts"]
            assert counted == {"since": 0, "rows": len(by_query(expected)[name]), "exact": True}
        for name in names[:4]:
            had = [json.loads(line)["t"] for line in by_query(expected)[name]]
            shown = http_("GET", f"/streams/gateway/queries/{name}")
            assert shown.json["query"]["by"] == "test", "whoever else has asked the same"
            assert shown.json["so_far"] == {"rows": len(had), "last_row": max(had)}, "whatever was killed meanwhile"
        direct = {"id": "direct", "type": "CRQ", "t": end, "region": EVERYWHERE, "by": "who writes to the topic"}
        topic.queries(direct)
        assert await_condition(lambda: registered(http_) == [*names[:4], "direct"], 60.0)
        shown = http_("GET", "/streams/gateway/queries/direct").json["query"]
        assert (shown["t"], shown["by"]) == (end, "who writes to the topic")
        assert len({json.loads(line)["object"]["id"] for line in expected} & {each["id"] for each in sent}) == 103
        assert server.stop(30.0), "it ends in order"
        assert TOKEN not in server.log.read_text()
        with capsys.disabled():
            print(
                f"\n{len(expected)} rows, resumed {[each.resumed for each in followers]} times; "
                f"5 queries were registered after {took:.2f} s"
            )
