"""Two clients: one fills all that there is of everything, and the other is served all the same, as is ``/ready``."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client.area_queries import Refreshed
from spatialstream.client.areas import Areas
from spatialstream.client.history import Log
from spatialstream.client.record_writer import Sent
from spatialstream.connectors.kafka import Connection
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import RateLimits, Shares
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.space import WGS84
from spatialstream.records.decode import decode_objects
from spatialstream.servers.process import await_condition
from tests.unit.client.area_log import AreaLog
from tests.unit.client.log import MemoryLog
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, opener, row
from tests.unit.gateway.test_openapi import SKQ, Answering
from tests.unit.gateway.test_writing import CRQ, LINE, Stream

FILLER, OTHER = "filler-0123456789012345", "other-01234567890123456"
FUTURE = 4 * 10**12
MANY = 12
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
AREA = {"type": "Feature", "properties": {}, "geometry": SQUARE}
SRQ = {"type": "SRQ", "region": {"box": [0, 0, 1, 1]}, "duration": 1}


class Held(Stream):
    """What is called slow does not end before it is told to, and what is of the future is never taken in."""

    def __init__(self) -> None:
        super().__init__()
        self.room.set()
        self.go, self.begun = threading.Event(), list[str]()

    def hold(self, kind: str, slow: bool) -> None:
        if slow:
            self.begun.append(kind)
            assert self.go.wait(120.0)

    def objects(self, lines: bytes) -> None:
        self.hold("objects", b"slow" in lines)
        super().objects(lines)

    def queries(self, *records: dict[str, Any]) -> Sent:
        if records[0].get("t") == FUTURE or records[0]["id"] == "slow":
            self.begun.append(records[0]["type"])
            return Sent("queries/0", 10**6, {}, {})
        return super().queries(*records)


class HeldAsker(Answering):
    stream: Held

    def __init__(self, stream: Held) -> None:
        super().__init__(stream)
        self.areas = Areas(Connection("nowhere:1"), "s")

    def queries(self, after: int = -1, limit: int = 100) -> Any:
        self.stream.hold("queries", after == 7)
        return super().queries(after, limit)

    def refresh(self, area: str, *, timeout: float) -> Refreshed:
        self.areas.get(area)
        return Refreshed()

    def describe(self) -> dict[str, Any]:
        return {"space": "wgs84"}

    def together(self, requests: Any, *given: Any) -> Any:
        asked = [each for records, _ in requests for _, each in records]
        self.stream.hold("ask" if len(asked) < 20 else "many", any(each.get("id") == "slow" for each in asked))
        return super().together(requests)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Held:
    held, log = Held(), MemoryLog()
    AreaLog().stand_for_the_broker(monkeypatch)
    log.add(5, messages([row("q", 1)], 1, 0))

    def read(served: ServedStream) -> Log:
        first = "past" not in held.begun or held.begun.count("past") < 2
        held.hold("past", first)
        return log

    monkeypatch.setattr(ServedStream, "log", read)
    return held


@pytest.fixture
def gateway(stream: Held, tmp_path: Path, request: pytest.FixtureRequest) -> Gateway:
    may = {"rights": ["ask", "watch", "write"], "streams": ["s"]}
    tokens = [{"name": token[:6], "token": token} | may for token in (FILLER, OTHER)]
    (tmp_path / "tokens").write_text("\n".join(map(json.dumps, tokens)))
    behind = served("s", lambda: HeldAsker(stream), opener(stream.results), stream, **getattr(request, "param", {}))
    limits = Limits(body=3_000, waiting=24_000, client=RateLimits(connections=MANY))
    return Gateway([behind], Access(tmp_path / "tokens"), limits=limits)


class Filler:
    """Sends requests, and waits for no answer."""

    def __init__(self, client: Client) -> None:
        self._client, self.open = client, list[http.client.HTTPConnection]()

    def send(self, method: str, path: str, body: Any = None, held_back: int = 0) -> None:
        connection = self._client.connection()
        self.open.append(connection)
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.putrequest(method, f"/streams/s/{path}")
        for name, value in self._client.headers({"content-length": str(len(content) + held_back)}).items():
            connection.putheader(name, value)
        connection.endheaders(content)

    def fill(self) -> None:
        """Send as much of everything as there is room for, and more."""
        for _ in range(MANY):
            self.send("POST", f"ask?at_least={FUTURE}&timeout=60s", SRQ)
            self.send("POST", "ask?timeout=60s", SRQ | {"id": "slow"})
            self.send("POST", "ask?timeout=60s", [SRQ | {"id": "slow"}] * 20)
            self.send("POST", "queries?timeout=60s", CRQ | {"t": FUTURE})
            self.send("DELETE", "queries/slow?timeout=60s")
            self.send("POST", "objects", json.dumps(LINE | {"id": "slow"}).encode())
            self.send("GET", "results/past?query=q&since=0")
            self.send("GET", "results?query=q&wait=60s")
            self.send("GET", "queries?after=7")
        for _ in range(MANY):
            self.send("POST", "objects", b" " * 2_000, held_back=1)

    def __enter__(self) -> Filler:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.open:
            each.close()


@contextmanager
def fillers(nobody: Client, *tokens: str) -> Iterator[list[Filler]]:
    with ExitStack() as opened:
        yield [opened.enter_context(Filler(Client(nobody.port, token))) for token in tokens]


@pytest.fixture
def other(gateway: Gateway, stream: Held) -> Iterator[Client]:
    """The other client, when the filler has filled everything."""
    decode_objects(json.dumps(LINE).encode(), 1, WGS84)  # what has to be compiled for it is, then
    with serving(gateway) as nobody, Filler(Client(nobody.port, FILLER)) as filler:
        try:
            filler.fill()
            behind = gateway.streams["s"]
            for kind, count in (("ask", 1), ("many", 2), ("objects", 2), ("queries", 2), ("past", 2)):
                assert await_condition(lambda kind=kind, count=count: stream.begun.count(kind) >= count, 60.0), kind  # type: ignore[misc]
            for kind in ("CRQ", "CANCEL"):
                assert await_condition(lambda kind=kind: stream.begun.count(kind) == MANY, 60.0), kind  # type: ignore[misc]
            assert await_condition(lambda: behind.unanswered == 3 * MANY, 60.0)
            assert await_condition(lambda: behind.feed.listeners >= 2 * MANY, 60.0)
            assert await_condition(lambda: gateway.under_way("s") > 10_000, 60.0)
            yield Client(nobody.port, OTHER)
        finally:
            stream.go.set()


ASKED: list[tuple[str, str, Any]] = [
    ("POST", "/streams/s/ask", SKQ),
    ("POST", "/streams/s/ask", [SKQ] * 20),
    ("POST", "/streams/s/ask?at_least=0", SKQ),
    ("GET", "/streams/s/results?query=q&wait=0", None),
    ("GET", "/streams/s/results/past?query=q&since=0", None),
    ("GET", "/streams/s/results/counts?query=q&since=0", None),
    ("GET", "/streams/s/queries", None),
    ("GET", "/streams/s/queries/q0", None),
    ("POST", "/streams/s/queries", CRQ | {"id": "mine"}),
    ("DELETE", "/streams/s/queries/mine", None),
    ("POST", "/streams/s/objects", (json.dumps(LINE) + "\n").encode() * 40),
    ("GET", "/collections", None),
    ("GET", "/collections/s", None),
    ("GET", "/collections/s/queryables", None),
    ("GET", "/collections/s/items", None),
    ("GET", "/collections/s/items/5@1.5,2.5.a", None),
    ("POST", "/streams/s/areas", {"type": "FeatureCollection", "features": [AREA | {"id": "b"}]}),
    ("PUT", "/streams/s/areas/a", AREA),
    ("GET", "/streams/s/areas", None),
    ("GET", "/streams/s/areas/a", None),
    ("POST", "/streams/s/areas/a/refresh", None),
    ("DELETE", "/streams/s/areas/a", None),
    ("GET", "/streams", None),
    ("GET", "/streams/s", None),
    ("GET", "/streams/s/console/clock", None),
    ("GET", "/ready", None),
    ("GET", "/live", None),
]


def test_who_fills_everything_holds_up_nobody_else(other: Client, gateway: Gateway, stream: Held) -> None:
    for method, path, body in ASKED:
        answer = other(method, path, body)
        assert answer.status in (200, 201), (method, path, answer)
    filler = Client(other.port, FILLER)  # whatever of its own is under way, it is let go in its own time
    for path in (f"ask?at_least={FUTURE}&timeout=10ms", "ask?timeout=10ms"):
        answer = filler("POST", f"/streams/s/{path}", [SRQ | {"id": "slow"}] * 20)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1"), answer
    assert filler("POST", "/streams/s/queries?timeout=10ms", CRQ | {"t": FUTURE}).status == 202
    asked = {(method, path.partition("?")[0]) for method, path, _ in ASKED}
    for each in gateway.endpoints:
        path = (
            each.path.replace("{stream}", "s")
            .replace("{query:path}", "q0")
            .replace("{area:path}", "a")
            .replace("{item:path}", "5@1.5,2.5.a")
        )
        known = (each.method, path) in asked or each.method == "DELETE" or each.right is None
        assert known, f"{path} has no test with two clients"


def test_who_has_something_under_way_is_answered_by_themselves(gateway: Gateway, stream: Held) -> None:
    behind = gateway.streams["s"]
    with serving(gateway) as nobody, fillers(nobody, FILLER, OTHER) as (filler, other):
        try:
            filler.send("POST", "ask?timeout=60s", SRQ | {"id": "slow"})
            assert await_condition(lambda: stream.begun.count("ask") == 1 and not behind.patient, 60.0)
            behind.patient = True  # as while a call has just begun: what comes now waits
            for count, (each, asked) in enumerate(((filler, SRQ | {"id": "slow"}), (other, SKQ)), 1):
                each.send("POST", "ask?timeout=60s", asked)
                assert await_condition(lambda count=count: behind.queued == count, 60.0)  # type: ignore[misc]
            behind.patient = False
            other.send("POST", "ask?timeout=60s", SKQ)  # all that waits is begun with what comes
            for sent in other.open:
                assert sent.getresponse().status == 200
        finally:
            stream.go.set()


@pytest.mark.parametrize("gateway", [{"long": 0.05}], indirect=True)
def test_who_is_answered_with_a_dear_query_of_somebody_elses_is_answered_apart_from_it(
    gateway: Gateway, stream: Held
) -> None:
    behind = gateway.streams["s"]
    with serving(gateway) as nobody, fillers(nobody, FILLER, OTHER) as (filler, other):
        try:
            behind.patient = True
            for count, (each, asked) in enumerate(((filler, SRQ | {"id": "slow"}), (other, SKQ)), 1):
                each.send("POST", "ask?timeout=60s", asked)
                assert await_condition(lambda count=count: behind.queued == count, 60.0)  # type: ignore[misc]
            behind.patient = False
            filler.send("POST", "ask?timeout=60s", SRQ | {"id": "slow"})
            assert other.open[0].getresponse().status == 200
            assert stream.begun.count("ask") >= 2  # the first of them with the other's query
        finally:
            stream.go.set()


def test_a_client_alone_has_half_and_leaves_some_for_each_that_comes() -> None:
    shares = Shares(64, "bytes")
    taken = list[int]()
    for client in ("a", "b", "c"):
        taken.append(0)
        for _ in range(64):
            with suppress(Problem):
                shares.take(client)
                taken[-1] += 1
    assert taken == [32, 16, 8]
    shares.give("a", 32)
    for _ in range(12):
        shares.take("c")
    assert shares.taken == 36


@given(st.integers(1, 200), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 60)), max_size=60))
def test_there_is_always_something_for_who_has_nothing(most: int, asked: list[tuple[str, int]]) -> None:
    shares, held = Shares(most, "bytes"), dict[str, int]()
    for client, amount in asked:
        free = most - sum(held.values())
        try:
            shares.take(client, amount)
        except Problem:
            assert held.get(client, 0) + amount > free - amount
        else:
            held[client] = held.get(client, 0) + amount
            assert held[client] <= free - amount
        assert shares.taken == sum(held.values()) <= most
    if most >= 2 ** (len(held) + 1):
        shares.take("another")
    for client, amount in held.items():
        shares.give(client, amount)
