"""Large answers: complete where they are allowed, given up while they are made where not, and nothing to others."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spatialstream.client import SnapshotClient
from spatialstream.client.history import Log
from spatialstream.gateway.access import Access
from spatialstream.gateway.answers import AnswerRooms, Lines, as_collection
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.server import listen
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import SettingError
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers
from spatialstream.servers.process import await_condition
from tests.unit.client.log import MemoryLog
from tests.unit.client.test_snapshot_client import PLANE, SKQ, SRQ, STQ, Stream, objects, stream
from tests.unit.gateway import http
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, opener
from tests.unit.gateway.test_ask import Opened

__all__ = ["stream"]
ASK = "/streams/s/ask"
FILLER, OTHER = "filler-0123456789012345", "other-01234567890123456"
LIMITS = Limits(body=1 << 20, answer=2 << 20, memory=16 << 20)


@pytest.fixture
def slots(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr("spatialstream.stages.snapshot_queries.BLOCK_BYTES", 100_000)
    stream.actors.set_message_bytes(50_000)
    stream.round(1_000, objects(5_000, 900))
    return stream


@pytest.fixture
def gateway(slots: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    may = {"rights": ["ask", "watch", "write"], "streams": ["s"]}
    tokens = [{"name": token[:5], "token": token} | may for token in (FILLER, OTHER)]
    (tmp_path / "tokens").write_text("\n".join(map(json.dumps, tokens)))
    log = MemoryLog()
    rows = [json.dumps({"query": "q", "t": i, "x": "é" * 60_000}).encode() for i in range(12)]
    log.add(5, messages(rows, 1, 0))

    def read(_: ServedStream) -> Log:
        return log

    monkeypatch.setattr(ServedStream, "log", read)
    behind = served("s", lambda: Opened(slots.newest, slots.ask, PLANE), opener())
    return Gateway([behind], Access(tmp_path / "tokens"), limits=LIMITS)


@pytest.fixture
def nobody(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    def little(host: str, port: int) -> socket.socket:
        """A socket in whose connections little waits that is not read: Linux lets megabytes wait."""
        sock = listen(host, port)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        return sock

    monkeypatch.setattr(http, "listen", little)
    with serving(gateway) as nobody:
        yield nobody
        assert await_condition(lambda: gateway.rooms.taken == 0, 60.0)


def refused(gateway: Gateway, reason: str) -> float:
    return (
        gateway.metrics.registry.get_sample_value("spatialstream_gateway_refused_answers_total", {"reason": reason})
        or 0
    )


def test_a_large_answer_that_is_allowed_is_complete(nobody: Client, slots: Stream) -> None:
    ask = Client(nobody.port, OTHER)
    kinds: tuple[dict[str, Any], ...] = (
        SRQ,
        SKQ | {"k": 4_999},
        STQ,
        SRQ | {"region": {"box": [0, 0, 4, 4]}, "t": 950},
    )
    asked: list[dict[str, Any]] = [kind | {"id": f"q{i}"} for i, kind in enumerate(kinds)]
    right = [slots.right(each) for each in asked]
    answer = ask("POST", ASK, asked)
    assert (answer.status, answer.json) == (200, right)
    assert 1_000_000 < len(answer.body) == int(answer.headers["content-length"])
    assert [ask("POST", ASK, each).json for each in asked] == right


def test_what_would_be_too_large_is_given_up_while_it_is_found(nobody: Client, gateway: Gateway, slots: Stream) -> None:
    ask = Client(nobody.port, FILLER)
    answer = ask("POST", ASK, [SRQ] * 1_000)
    assert answer.status == 413
    assert answer.json["type"] == "urn:spatialstream:problem:answer-too-large"
    assert "; ask for less: fewer queries at a time, a smaller region" in answer.json["detail"]
    assert slots.actors.found < 2 * LIMITS.answer, "of some 250 MB"
    assert refused(gateway, "size") == 1
    slots.actors.found = 0
    answer = ask("POST", ASK, [SKQ | {"k": 5_000}] * 1_000)
    assert (answer.status, refused(gateway, "size")) == (413, 2)
    assert slots.actors.found < LIMITS.memory
    assert ask("POST", ASK, [SRQ] * 4).status == 200


def test_one_of_those_that_are_answered_together_is_refused_alone(slots: Stream) -> None:
    gateway = Gateway([served("s", lambda: Opened(slots.newest, slots.ask, PLANE))], limits=LIMITS)
    near = {**SRQ, "region": {"box": [1, 1, 2, 2]}, "id": "near"}
    behind = gateway.streams["s"]
    with serving(gateway) as client, ExitStack() as opened:
        behind.patient = True
        sent = []
        for count, asked in enumerate(([SRQ] * 15, near, [SRQ] * 2), 1):
            connection = client.connection()
            opened.callback(connection.close)
            connection.request("POST", ASK, json.dumps(asked), {"content-type": "application/json"})
            sent.append(connection)
            assert await_condition(lambda count=count: behind.queued == count, 60.0)  # type: ignore[misc]
        behind.patient = False
        assert client("POST", ASK, near).json == slots.right(near)
        found = [each.getresponse() for each in sent]
        assert [each.status for each in found] == [413, 200, 200]
        assert json.loads(found[1].read()) == slots.right(near)
        assert len(json.loads(found[2].read())) == 2
        assert await_condition(lambda: gateway.rooms.taken == 0, 60.0)


def asked_and_not_read(port: int, request: str, body: bytes = b"") -> tuple[socket.socket, bytes]:
    """A connection on which an answer has begun, of which nothing more is read, and its status."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.connect(("127.0.0.1", port))
    head = f"{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {FILLER}\r\n"
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return sock, sock.recv(12)[-3:]


def test_who_takes_all_the_memory_they_can_leaves_some_for_others(
    nobody: Client, gateway: Gateway, slots: Stream
) -> None:
    filler, other = Client(nobody.port, FILLER), Client(nobody.port, OTHER)
    right = [slots.right(SRQ | {"id": f"q{i}"}) for i in range(2)]
    with ExitStack() as opened:
        statuses = list[bytes]()
        while b"503" not in statuses:
            sock, status = asked_and_not_read(nobody.port, f"POST {ASK}", json.dumps([SRQ] * 4).encode())
            opened.enter_context(sock)
            statuses.append(status)
        assert statuses[:2] == [b"200"] * 2
        assert len(statuses) < 40
        assert refused(gateway, "memory") == 1
        assert gateway.rooms.taken <= LIMITS.memory
        refusal = filler("POST", ASK, [SRQ] * 4)
        assert (refusal.status, refusal.headers["retry-after"]) == (503, "1")
        assert refusal.json["type"] == "urn:spatialstream:problem:no-memory"
        assert "bytes of memory" in refusal.json["detail"]
        for _ in range(5):
            answer = other("POST", ASK, [SRQ | {"id": f"q{i}"} for i in range(2)])
            assert (answer.status, answer.json) == (200, right)
        assert other("GET", "/streams/s/results/past?query=q&since=0&limit=1").status == 200
    assert await_condition(lambda: filler("POST", ASK, [SRQ] * 4).status == 200, 60.0)


def test_bodies_that_are_held_back_hold_their_own_clients_memory(nobody: Client, gateway: Gateway) -> None:
    with ExitStack() as opened:
        for _ in range(6):
            sock = opened.enter_context(socket.create_connection(("127.0.0.1", nobody.port), 60.0))
            head = f"POST {ASK} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {FILLER}\r\n"
            head += "Content-Length: 400000\r\n\r\n"
            sock.sendall(head.encode() + b" ")
        assert await_condition(lambda: refused(gateway, "memory") >= 3, 60.0)
        assert Client(nobody.port, FILLER)("POST", ASK, b" " * 400_000).status == 503
        assert Client(nobody.port, OTHER)("POST", ASK, SRQ).status == 200
        registering = Client(nobody.port, OTHER)("POST", "/streams/s/queries", b" " * 100_000)
        assert registering.status == 400, "it is no JSON, for which there was room"


def test_pages_of_what_has_come_hold_memory_until_they_are_sent(nobody: Client, gateway: Gateway) -> None:
    client = Client(nobody.port, OTHER)
    answer = client("GET", "/streams/s/results/past?query=q&since=0")
    times = [each["row"]["t"] for each in answer.json["rows"]]
    assert times == list(range(len(times)))
    assert int(answer.headers["content-length"]) == len(answer.body) > 1_200_000
    with ExitStack() as opened:
        statuses = list[bytes]()
        while b"503" not in statuses:
            sock, status = asked_and_not_read(nobody.port, "GET /streams/s/results/past?query=q&since=0")
            opened.enter_context(sock)
            statuses.append(status)
        assert 3 <= len(statuses) < 40
        assert gateway.rooms.taken <= LIMITS.memory
        assert client("GET", "/streams/s/results/past?query=q&since=0").status == 200


def test_geojson_is_made_object_by_object(stream: Stream) -> None:
    globe = Stream(WGS84)
    globe.round(1_000, objects(3_000, 900))
    everything: dict[str, Any] = {**SRQ, "region": {"box": [0, 0, 8, 8]}}
    near: dict[str, Any] = {"type": "SKQ", "at": [1, 1], "k": 2, "duration": "1h"}
    asked = [
        everything | {"id": 'a, "objects": [{"é'},
        near | {"id": "b"},
        everything | {"id": "c", "keywords": ["none"]},
    ]
    rows, _ = answers(globe.seen, [parse_query(each | {"t": 1_000}, WGS84) for each in asked], WGS84)
    right = [
        {
            "type": "Feature",
            "id": each["id"],
            "geometry": {"type": "Point", "coordinates": [each["lon"], each["lat"]]},
            "properties": {name: each[name] for name in each if name not in ("id", "lon", "lat")}
            | {"query": row["query"]},
        }
        for row in sorted(rows, key=lambda row: [each["id"] for each in asked].index(row["query"]))
        for each in row["objects"]
    ]

    def opened() -> SnapshotClient:
        return Opened(globe.newest, globe.ask, WGS84)

    gateway = Gateway([served("s", opened)], limits=LIMITS)
    with serving(gateway) as ask:
        answer = ask("POST", ASK, asked, accept="application/geo+json")
        assert answer.status == 200
        assert answer.json["features"] == right
        assert answer.json["as_of"] == {"round": 0, "clock": 1_000}
        assert await_condition(lambda: gateway.rooms.taken == 0, 60.0)


def test_a_collection_says_why_a_row_has_no_objects() -> None:
    as_of = {"round": 1, "clock": 5}
    row = json.dumps({"query": "q", "type": "SRQ", "t": 5, "error": "it would be too long", "as_of": as_of}).encode()
    room = AnswerRooms(1_000, 100).room("a")
    found = json.loads(b"".join(as_collection(Lines([row], room))))
    assert found["features"] == []
    assert (found["error"], found["as_of"]["clock"]) == ("it would be too long", 5)


def test_what_no_request_can_have_is_no_matter_of_trying_again() -> None:
    rooms = AnswerRooms(1_000, 100)
    with rooms.room("a") as room:
        room.hold(500)
        with pytest.raises(Problem) as refused:
            room.hold(1)
        assert refused.value.kind == "answer-too-large"
        with rooms.room("b") as other, pytest.raises(Problem) as refused:
            other.hold(251)
        assert refused.value.kind == "no-memory"
        room.hold(-600)
        assert rooms.taken == 0
    with pytest.raises(Problem, match="has disconnected"):
        room.hold(1)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(),
        Limits(answer=1 << 10, memory=128 << 20),
        Limits(body=15 << 20),
        Limits(answer=64 << 20, memory=512 << 20),
    ],
)
def test_limits_that_can_be_kept(limits: Limits) -> None:
    limits.validate()


@pytest.mark.parametrize("limits", [Limits(answer=33 << 20), Limits(memory=255 << 20), Limits(body=1 << 30)])
def test_limits_with_which_no_request_could_be_answered_are_refused(limits: Limits) -> None:
    with pytest.raises(SettingError, match=r"^memory: .* give \d+ at least"):
        limits.validate()
