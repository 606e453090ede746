"""Results over HTTP: events that a browser resumes, polls that go on, heartbeats, and an end that is told."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from spatialstream.gateway import server
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.feed import Feed, FeedLimits
from spatialstream.gateway.metrics import GatewayMetrics
from spatialstream.gateway.streams import ServedStream
from spatialstream.servers.process import await_condition
from tests.unit.client.broker import Topic
from tests.unit.gateway.http import Client, nowhere, served, serving
from tests.unit.gateway.results import Slower, messages, opener, row

PATH = "/streams/s/results"


@dataclass
class Event:
    id: str = ""
    data: bytes = b""
    comment: bytes = b""


class Events:
    """What an EventSource does with a connection."""

    def __init__(self, client: Client, path: str, last: str | None = None) -> None:
        self.connection = client.connection()
        headers = {"accept": "text/event-stream"} | ({} if last is None else {"last-event-id": last})
        self.connection.request("GET", path, headers=client.headers(headers))
        self.response: http.client.HTTPResponse = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["content-type"].startswith("text/event-stream")
        self.last = ""

    def __iter__(self) -> Iterator[Event]:
        event = Event()
        while line := self.response.readline():
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name == b"id":
                event.id = self.last = value.decode()
            elif name == b"data":
                event.data = value
            elif name == b"":
                if line == b"\n":
                    yield event
                    event = Event()
                else:
                    event.comment = value

    def rows(self, count: int) -> list[bytes]:
        found: list[bytes] = []
        for event in self:
            found += [event.data] if event.data else []
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self.response.close()
        self.connection.close()


@dataclass
class Live:
    topic: Topic
    client: Client
    gateway: Gateway
    metrics: GatewayMetrics


@pytest.fixture
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    topic, metrics = Topic(), GatewayMetrics()
    limits = getattr(request, "param", Limits(heartbeat=0.2))
    gateway = Gateway([served("s", results=opener(topic))], metrics=metrics, limits=limits)
    with serving(gateway) as client:
        yield Live(topic, client, gateway, metrics)


def test_events_are_resumed_by_their_ids(live: Live) -> None:
    def sample(name: str) -> float | None:
        return live.metrics.registry.get_sample_value(f"spatialstream_gateway_{name}", {"stream": "s"})

    first = Events(live.client, f"{PATH}?query=x&query=y")
    live.topic.messages += messages([row("x", 1), row("z", 2), row("y", 3)], 5, 0)
    assert first.rows(2) == [row("x", 1), row("y", 3)]
    first.close()
    assert await_condition(lambda: sample("listeners") == 0.0, 60.0), "else what comes next is sent there, too"
    live.topic.messages += messages([row("y", 4), row("x", 5)], 1, 1)
    live.topic.messages += messages([row("y", 4), row("x", 5)], 1, 1)  # done again
    second = Events(live.client, f"{PATH}?query=x&query=y", first.last)
    assert second.rows(2) == [row("y", 4), row("x", 5)]
    before = second.last
    heard = next(event for event in second if event.comment)  # nothing comes for a while
    assert heard.comment == b"nothing now"
    assert heard.id >= before
    second.close()
    assert await_condition(lambda: sample("listeners") == 0.0, 60.0), "else what comes next is sent there, too"
    live.topic.messages += messages([row("x", 6)], 1, 2)
    third = Events(live.client, f"{PATH}?query=x", second.last)
    assert third.rows(1) == [row("x", 6)]
    third.close()

    assert sample("rows_total") == 5.0
    assert await_condition(lambda: sample("listeners") == 0.0, 60.0)


def test_polls_go_on_where_the_last_one_ended(live: Live) -> None:
    live.topic.messages += messages([row("x", 1), row("x", 2)], 1, 0)
    answer = live.client("GET", f"{PATH}?query=x&position=oldest")
    assert answer.headers["content-type"] == "application/jsonl"
    assert answer.body == row("x", 1) + b"\n" + row("x", 2) + b"\n"
    place = quote(answer.headers["next-position"])
    answer = live.client("GET", f"{PATH}?query=x&position={place}&wait=10ms")
    assert (answer.status, answer.body) == (200, b"")
    place = quote(answer.headers["next-position"])
    threading.Timer(0.3, lambda: live.topic.messages.extend(messages([row("x", 3)], 1, 1))).start()
    assert live.client("GET", f"{PATH}?query=x&position={place}").body == row("x", 3) + b"\n"
    assert live.client("GET", f"{PATH}?query=x&wait=0").body == b""


@pytest.fixture
def far() -> Iterator[Client]:
    """A gateway of which a row lies behind many of others, three seconds of reading back."""
    topic = Topic(messages([*(row("z", number) for number in range(60)), row("x", 60), row("z", 61)], 1, 0))
    feed = Feed("s", opener(topic, broker=Slower), FeedLimits(back=1))
    with serving(Gateway([ServedStream("s", nowhere, feed, None)], limits=Limits(heartbeat=0.2))) as client:  # type: ignore[arg-type]
        yield client


def test_a_poll_of_what_lies_far_back_ends_in_time_and_comes_on(far: Client) -> None:
    far("GET", f"{PATH}?query=x&wait=0")  # it reads now
    places, body = ["oldest"], b""
    while not body:
        began = time.monotonic()
        answer = far("GET", f"{PATH}?query=x&position={quote(places[-1])}&wait=100ms")
        assert time.monotonic() - began < 2.0
        assert answer.status == 200
        body, place = answer.body, answer.headers["next-position"]
        assert place not in places
        places.append(place)
    assert body == row("x", 60) + b"\n"
    assert len(places) > 5


def test_who_reads_what_lies_far_back_hears_how_far_that_is(far: Client) -> None:
    events = Events(far, f"{PATH}?query=x&position=oldest")
    heard = [next(event for event in events if event.comment) for _ in range(3)]
    events.close()
    assert len({event.id for event in heard}) == 3
    rest = Events(far, f"{PATH}?query=x&position=oldest", events.last)
    found = []
    for event in rest:
        found.append(event)
        if event.data:
            break
    rest.close()
    assert found[-1].data == row("x", 60)
    assert {event.comment for event in found[1:-1]} == {b"nothing now"}
    assert not {event.id for event in found} & {event.id for event in heard[:-1]}, "what was read is not read again"


def test_who_asks_for_the_head_alone_follows_nothing(live: Live) -> None:
    with closing(live.client.connection()) as connection:  # which stays open
        for accept in ("text/event-stream", "application/jsonl"):
            connection.request("HEAD", f"{PATH}?query=x", headers={"accept": accept})
            response = connection.getresponse()
            assert (response.status, response.headers["content-type"].partition(";")[0]) == (200, accept)
            assert response.read() == b""
            assert live.gateway.streams["s"].feed.listeners == 0
    assert live.client("HEAD", f"{PATH}?query=x&position=forged").status == 400


def test_what_is_no_place_is_refused(live: Live) -> None:
    live.topic.messages += messages([row("x", 1)], 1, 0)
    for place in ("x", "1", "-1~a", "--1", "%20"):
        answer = live.client("GET", f"{PATH}?query=x&position={place}")
        assert (answer.status, answer.errors[0]["parameter"]) == (400, "position")
    assert live.client("GET", f"{PATH}?query=x", last_event_id="forged").status == 400
    assert live.client("GET", f"{PATH}?query=x&position=forged", last_event_id="oldest").status == 400
    assert live.client("GET", f"{PATH}?query=x&position=-99").status == 410
    assert live.client("GET", f"{PATH}?query=x&position=-0-0").status == 410
    assert live.client("GET", PATH).errors[0]["parameter"] == "query"
    assert live.client("GET", f"{PATH}?{'query=x&' * 1001}").status == 400
    assert live.client("GET", f"{PATH}?query=x", accept="text/html").status == 406


def test_who_follows_is_told_that_the_gateway_ends(live: Live) -> None:
    events = Events(live.client, f"{PATH}?query=x")
    live.topic.messages += messages([row("x", 1)], 1, 0)
    assert events.rows(1) == [row("x", 1)]
    live.gateway.end()
    *_, last = events
    events.close()
    assert last.comment == b"the gateway is shutting down; come again"
    assert live.client("GET", f"{PATH}?query=x").status == 503


def test_one_who_takes_nothing_is_let_go_and_others_go_on(live: Live) -> None:
    slow, quick = Events(live.client, f"{PATH}?query=x"), Events(live.client, f"{PATH}?query=x")
    lines = [row("x", number) + b" " * 50_000 for number in range(400)]  # more than sockets and the gateway hold
    for number, line in enumerate(lines):
        live.topic.messages += messages([line], 1, number)
        if number % 10 == 9:
            assert quick.rows(10) == lines[number - 9 : number + 1]
    found = [event for event in slow if event.data or event.comment]
    assert found[-1].comment == b"rows arrive faster than they are read; come again"
    slow.close()
    rest = Events(live.client, f"{PATH}?query=x", slow.last)
    rows = [event.data for event in found if event.data]
    assert 0 < len(rows) < 400
    assert rows + rest.rows(400 - len(rows)) == lines
    rest.close()
    quick.close()


@pytest.mark.parametrize("live", [Limits(heartbeat=0.2, stalled=1.0)], indirect=True)
def test_the_connection_of_one_who_takes_nothing_does_not_stay(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, ended = threading.Event(), server._Connection.connection_lost

    def lose(connection: server._Connection, error: Exception | None) -> None:
        lost.set()
        ended(connection, error)

    def asked() -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        sock.settimeout(60.0)
        sock.connect(("127.0.0.1", live.client.port))
        sock.sendall(b"GET %b?query=x&position=oldest HTTP/1.0\r\nHost: localhost\r\n\r\n" % PATH.encode())
        return sock

    live.topic.messages += messages([row("x", 1) + b" " * 10_000_000], 1, 0)
    with asked() as slow:
        came = 0
        while part := slow.recv(1 << 19):  # less than all in a second, but some
            came += len(part)
            time.sleep(0.03)
    assert came > 10_000_000
    monkeypatch.setattr(server._Connection, "connection_lost", lose)
    with asked():
        assert lost.wait(60.0)
