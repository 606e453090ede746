"""Queries over HTTP: answers as the session gives them, their forms, and what is said of what cannot be answered."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.actors.query_endpoint import Request
from spatialstream.client import SnapshotClient
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.model.errors import Replaced, Suspended, Unavailable
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import SUBSCRIPTIONS, TermRule
from spatialstream.servers.process import await_condition
from tests.asking import Rows
from tests.unit.client.test_snapshot_client import PLANE, SKQ, SRQ, STQ, Stream, objects, stream
from tests.unit.gateway.http import Client, served, serving

__all__ = ["stream"]
ASK = "/streams/s/ask"


class Opened(SnapshotClient):
    @property
    def snapshots(self) -> SnapshotClient:
        return self

    def close(self) -> None:
        pass


@dataclass
class Live:
    """A gateway of the stream ``s``, which has slots in this process."""

    stream: Stream
    ask: Client
    away: list[str] = field(default_factory=list)


@pytest.fixture
def live(stream: Stream) -> Iterator[Live]:
    away: list[str] = []

    def opener() -> Any:
        if away:
            raise Unavailable(away[0])
        return Opened(stream.newest, stream.ask, PLANE)

    with serving(Gateway([served("s", opener)], limits=Limits(body=2_000))) as client:
        yield Live(stream, client, away)


def test_an_answer_is_the_askers_and_says_as_of_when(live: Live) -> None:
    live.stream.round(1_000, objects(40, 900))
    for record in (SRQ, SKQ, STQ, SKQ | {"keywords": ["w3"]}, SRQ | {"t": 950}):
        answer = live.ask("POST", ASK, record | {"id": "q"})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.json == live.stream.right(record | {"id": "q"}, record.get("t"))
    asked = [each | {"id": f"q{i}"} for i, each in enumerate((SRQ, STQ, SKQ))]
    assert live.ask("POST", ASK, asked).json == [live.stream.right(each) for each in asked]
    assert live.ask("POST", ASK, [SRQ]).json[0]["t"] == 1_000


def test_what_is_wrong_is_named_with_its_place(live: Live) -> None:
    live.stream.round(1_000, objects(4, 900))
    wrong: list[tuple[Any, str, str]] = [
        (SRQ | {"region": {"box": [0, 0, 1]}}, "#/region/box", "must be a list of 4 numbers"),
        (
            [SRQ | {"region": {"polygon": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, "9"], [0, 0]]]}}}],
            "#/0/region/polygon/coordinates/0/2",
            "'9' is not a number",
        ),
        ([SKQ, SKQ | {"k": 0}], "#/1/k", "0 is out of range; give 1 to 2147483647"),
        (SRQ | {"t": 2_000}, "#/t", "2000 is later than the stream's clock, which is at 1000; leave t out"),
        ([SRQ | {"type": "CRQ"}], "#/0/type", "CRQ is not a snapshot query"),
        (b"{", "#", "is not JSON"),
        (b"\xff", "#", "is not UTF-8"),
        (b"[" * 1_900, "#", "is nested too deeply"),
    ]
    for body, pointer, detail in wrong:
        answer = live.ask("POST", ASK, body)
        assert answer.status == 400
        (error,) = answer.errors
        assert error["pointer"] == pointer
        assert detail in error["detail"]
    for path, parameter in (
        ("?at_least=soon", "at_least"),
        ("?timeout=x", "timeout"),
        ("?atleast=1", "atleast"),
    ):
        answer = live.ask("POST", ASK + path, SRQ)
        assert (answer.status, answer.errors[0]["parameter"]) == (400, parameter)
    assert live.ask("POST", ASK, []).status == 400
    assert live.ask("POST", ASK, [SKQ] * 1_001).status == 413


def test_later_is_503_and_says_when(live: Live) -> None:
    answer = live.ask("POST", ASK + "?timeout=20ms", SRQ)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "has just started" in answer.json["detail"]
    live.stream.round(1_000, objects(4, 900))
    answer = live.ask("POST", ASK + "?timeout=20ms&at_least=2000", SRQ)
    assert answer.status == 503
    assert "has not reached 2000: it is at 1000, and advances only with an object, a query" in answer.json["detail"]
    assert "without at_least the answer is as of the current clock" in answer.json["detail"]
    assert live.ask("POST", ASK + "?at_least=1970-01-01T00:00:01Z", SRQ).status == 200
    assert live.ask("POST", ASK + "?at_least=now&timeout=1", SRQ).status == 503


@pytest.mark.parametrize("unit", [1_000, 1])
def test_a_time_to_wait_for_is_in_the_unit_of_the_streams_times(live: Live, unit: int) -> None:
    clock = 1_795_880_000_000 // unit
    live.stream.round(clock, objects(4, clock - 100))
    answer = live.ask("POST", f"{ASK}?at_least={1_795_880_000}", SRQ)
    if unit == 1_000:  # which is what the stream has as ms
        assert answer.status == 200
        return
    assert (answer.status, answer.errors[0]["parameter"]) == (400, "at_least")
    assert "it looks like seconds; give ms or RFC 3339" in answer.errors[0]["detail"]
    assert live.ask("POST", f"{ASK}?at_least=1970-01-21", SRQ).status == 200


def test_a_stream_that_is_away_is_found_when_it_is_there(live: Live) -> None:
    live.stream.round(1_000, objects(4, 900))
    live.away.append("no worker of the stream has run yet")
    assert live.ask("GET", "/ready").json == {"ready": False, "streams": {"s": False}}
    answer = live.ask("POST", ASK, SRQ)
    assert (answer.status, answer.json["detail"]) == (503, live.away[0])
    live.away.clear()
    assert live.ask("POST", ASK, SRQ).status == 200


def test_a_stream_that_was_begun_anew_is_opened_anew(stream: Stream) -> None:
    stream.round(1_000, objects(10, 900))
    closed = list[Opened]()

    class Old(Opened):
        def close(self) -> None:
            closed.append(self)

    def replaced(request: Request) -> NoReturn:
        raise Replaced("the stream was begun anew")

    openers = [lambda: Old(stream.newest, replaced, WGS84), lambda: Opened(stream.newest, stream.ask, PLANE)]
    with serving(Gateway([served("s", lambda: openers.pop(0)())])) as ask:
        assert ask("POST", ASK, SRQ | {"id": "q"}).json == stream.right(SRQ | {"id": "q"})
        assert len(closed) == 1
        assert ask("POST", ASK, SKQ).status == 200
    assert openers == []


def test_a_stream_of_subscriptions_answers_no_snapshot_queries(stream: Stream) -> None:
    stream.round(1_000, objects(10, 900))
    rule = TermRule(serves=SUBSCRIPTIONS)
    with serving(Gateway([served("s", lambda: Opened(stream.newest, stream.ask, PLANE, rule))])) as ask:
        for body in (SRQ, [SKQ, STQ]):
            answer = ask("POST", ASK, body)
            assert (answer.status, answer.json["type"]) == (409, "urn:spatialstream:problem:not-served")
            told = "the stream serves subscriptions and stores no objects; register a CRQ, CKQ, CTQ or CBQ"
            assert answer.json["detail"] == told


def test_queries_that_come_together_are_answered_together_but_for_those_that_are_none(stream: Stream) -> None:
    stream.round(1_000, objects(40, 900))
    room, looks = threading.Event(), list[int]()

    def asked_of(request: Request) -> Rows:
        looks.append(len(request.asked))
        room.wait(300.0)
        yield from stream.ask(request)

    behind = served("s", lambda: Opened(stream.newest, asked_of, PLANE))
    unread = {**SRQ, "region": {"box": [1]}}
    early = {**SRQ, "t": 2_000}
    kinds = {"region/box": unread, "t": early}
    asked = [{**(SRQ, SKQ, STQ, SRQ)[i % 4], "id": f"q{i}"} for i in range(4)]
    asked += [{**(SRQ, unread, SKQ, early, STQ)[i % 5], "id": f"q{i}"} for i in range(4, 40)]
    with serving(Gateway([behind])) as ask, ThreadPoolExecutor(40) as threads:
        answers = []
        for each in asked[:4]:  # as many as are answered at once
            answers.append(threads.submit(ask, "POST", ASK, each))
            assert await_condition(lambda: len(looks) == len(answers), 60.0)
        answers += [threads.submit(ask, "POST", ASK, each) for each in asked[4:]]
        assert await_condition(lambda: behind.queued == 36, 60.0)
        room.set()
        for record, answer in zip(asked, answers, strict=True):
            found = answer.result()
            wrong = [place for place, kind in kinds.items() if kind | {"id": record["id"]} == record]
            if wrong:
                assert (found.status, [each["pointer"] for each in found.errors]) == (400, [f"#/{wrong[0]}"])
            else:
                assert found.json == stream.right(record)
    assert looks[:4] == [1] * 4
    # the 36 as of one round, however many of them are wrong: those that are early are known only then
    assert len(looks) == 6
    assert looks[4] > looks[5]


def test_what_comes_waits_for_a_call_that_does_not_take_long(stream: Stream) -> None:
    stream.round(1_000, objects(4, 900))
    room, sizes = threading.Event(), list[int]()

    class Slow(Opened):
        def together(self, requests: Any, *given: Any) -> Any:
            sizes.append(len(requests))
            room.wait(300.0)
            return super().together(requests, *given)

    behind = served("s", lambda: Slow(stream.newest, stream.ask, PLANE), patience=300.0)
    asked = [{**SRQ, "id": f"q{i}"} for i in range(20)]
    with serving(Gateway([behind])) as ask, ThreadPoolExecutor(20) as threads:
        answers = [threads.submit(ask, "POST", ASK, asked[0])]
        assert await_condition(lambda: sizes == [1], 60.0)
        answers += [threads.submit(ask, "POST", ASK, each) for each in asked[1:]]
        assert await_condition(lambda: behind.queued == 19, 60.0)
        room.set()
        assert [each.result().json for each in answers] == [stream.right(each) for each in asked]
        assert sizes == [1, 19]
        assert ask("POST", ASK, SRQ).status == 200
    assert sizes == [1, 19, 1]


def test_a_defect_is_of_the_query_alone_that_brings_it_about(stream: Stream) -> None:
    stream.round(1_000, objects(4, 900))
    room, sizes = threading.Event(), list[int]()

    class Defective(Opened):
        def together(self, requests: Any, *given: Any) -> Any:
            sizes.append(len(requests))
            room.wait(300.0)
            if any(record["id"] == "q4" for records, _ in requests for _, record in records):
                raise ZeroDivisionError
            return super().together(requests, *given)

    behind = served("s", lambda: Defective(stream.newest, stream.ask, PLANE))
    asked = [{**SRQ, "id": f"q{i}"} for i in range(7)]
    with serving(Gateway([behind])) as ask, ThreadPoolExecutor(7) as threads:
        answers = []
        for each in asked[:4]:
            answers.append(threads.submit(ask, "POST", ASK, each))
            assert await_condition(lambda: len(sizes) == len(answers), 60.0)
        answers += [threads.submit(ask, "POST", ASK, each) for each in asked[4:]]
        assert await_condition(lambda: behind.queued == 3, 60.0)
        room.set()
        assert [each.result().status for each in answers] == [200] * 4 + [500, 200, 200]
    assert sizes == [1, 1, 1, 1, 3, 1, 1, 1]


def test_requests_that_are_none(live: Live) -> None:
    live.stream.round(1_000)
    assert live.ask("POST", "/streams/other/ask", SRQ).status == 404
    assert live.ask("POST", "/streams/s%2Fask/ask", SRQ).status == 404
    assert live.ask("POST", "/streams/../streams/s/ask", SRQ).status == 404
    assert live.ask("POST", ASK + "/", SRQ).status == 404
    assert live.ask("GET", "/nothing").errors == []
    answer = live.ask("GET", ASK)
    assert (answer.status, answer.headers["allow"], answer.errors) == (405, "POST", [])
    answer = live.ask("PUT", "/streams/s/queries")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert live.ask("POST", ASK, SRQ, content_type="text/csv").status == 415
    assert live.ask("POST", ASK, SRQ, accept="image/png").status == 406
    assert live.ask("POST", ASK, b" " * 3_000).status == 413
    connection = live.ask.connection()
    connection.request("POST", ASK, iter([b" " * 1_000] * 9), {"content-type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()
    # by another name this machine may be asked by a page of elsewhere
    assert live.ask("POST", ASK, SRQ, host="evil.example").status == 403
    assert live.ask("GET", "/ready", host="[::1]:80").status in (200, 503)
    assert "access-control-allow-origin" not in live.ask("POST", ASK, SRQ, origin="http://evil.example").headers


def test_geojson_is_of_places_on_the_globe(stream: Stream) -> None:
    row = {
        "query": "q",
        "type": "SKQ",
        "t": 5,
        "complete_after": 3,
        "objects": [{"id": "a", "t": 4, "lon": 1.5, "lat": 2.5, "distance_m": 7.0, "text": "fire", "n": 3}],
        "as_of": {"round": 1, "clock": 5},
    }

    class Globe(Opened):
        def together(self, requests: Any, *given: Any) -> Any:
            return [[json.dumps(row).encode()] for _ in requests]

    def opener(space: Space) -> Any:
        return lambda: Globe(stream.newest, stream.ask, space)

    streams = [served("s", opener(WGS84)), served("plane", opener(PLANE))]
    with serving(Gateway(streams)) as ask:
        answer = ask("POST", ASK, SKQ, accept="application/geo+json, application/json;q=0.5")
        assert answer.headers["content-type"] == "application/geo+json"
        assert answer.json == {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "id": "a",
                    "geometry": {"type": "Point", "coordinates": [1.5, 2.5]},
                    "properties": {"t": 4, "distance_m": 7.0, "text": "fire", "n": 3, "query": "q"},
                }
            ],
            "complete_after": 3,
            "as_of": {"round": 1, "clock": 5},
        }
        assert ask("POST", ASK, [SKQ, STQ], accept="application/geo+json").status == 406
        assert ask("POST", "/streams/plane/ask", SKQ, accept="application/geo+json").status == 406
        assert ask("POST", ASK, SKQ, accept="application/geo+json;q=0.1, */*;q=0.2").json == row


def test_a_defect_is_told_without_what_is_inside(
    stream: Stream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def opener() -> Any:
        raise ZeroDivisionError("something inside")

    with serving(Gateway([served("s", opener)])) as ask, caplog.at_level(logging.INFO):
        answer = ask("POST", ASK, SRQ)
    assert (answer.status, answer.json["detail"]) == (500, "see the gateway's log")
    assert b"something inside" not in answer.body
    assert "something inside" in caplog.text


@settings(max_examples=300)
@given(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "X"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
    st.binary(max_size=60) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(repr),
    st.dictionaries(
        st.sampled_from(["accept", "content-type", "last-event-id", "authorization"]), st.text(), max_size=3
    ),
)
def test_no_request_is_a_failure(method: str, path: str, body: Any, headers: dict[str, str]) -> None:
    ask = _shared()
    content = body if isinstance(body, bytes) else body.encode(errors="replace")
    safe = {name: "".join(c for c in value if 32 <= ord(c) < 256 and ord(c) != 127) for name, value in headers.items()}
    for target in (f"/{path}", ASK, f"{ASK}?{path}", f"/streams/{path}/ask"):
        connection = ask.connection()
        connection.request(method, target, content, {"content-type": "application/json"} | safe)
        response = connection.getresponse()
        assert response.status < 500 or response.status == 503, (target, response.read())
        connection.close()


_SHARED: list[Client] = []


@pytest.fixture(autouse=True, scope="module")
def _server() -> Iterator[None]:
    def opener() -> Any:
        raise Unavailable("nobody")

    with serving(Gateway([served("s", opener)])) as client:
        _SHARED.append(client)
        yield


def _shared() -> Client:
    return _SHARED[-1]


def test_an_open_line_is_no_burden(live: Live) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", live.ask.port)
    connection.connect()  # and nothing more
    assert live.ask("GET", "/ready").status in (200, 503)
    connection.close()


@pytest.mark.parametrize("query", ["", "&at_least=5"])
def test_who_asks_a_suspended_stream_is_told_so_at_once(query: str) -> None:
    class Resting:
        space = Space.parse("wgs84")

        def __getattr__(self, name: str) -> Any:
            raise Suspended("the stream is suspended: it answers no queries until it is resumed")

        def close(self) -> None:
            pass

    with serving(Gateway([served("s", Resting)])) as client:
        answer = client("POST", f"/streams/s/ask?timeout=60s{query}", SRQ)
        assert (answer.status, answer.json["detail"]) == (
            503,
            "the stream is suspended: it answers no queries until it is resumed",
        )


@pytest.mark.parametrize("query", ["", "&at_least=5"])
def test_who_asks_a_stream_that_is_not_reached_is_told_so_and_not_that_much_is_asked(query: str) -> None:
    found, tried = threading.Event(), threading.Semaphore(0)

    def away() -> Any:
        tried.release()
        assert found.wait(60.0)
        raise Unavailable("ZooKeeper at 127.0.0.1:1 cannot be reached")

    with serving(Gateway([served("s", away)])) as client:
        first = client("POST", f"/streams/s/ask?timeout=0s{query}", SRQ)
        assert (first.status, "has not been reached yet" in first.json["detail"]) == (503, True)
        assert tried.acquire(timeout=60.0)
        found.set()
        assert await_condition(
            lambda: "127.0.0.1:1" in client("POST", f"/streams/s/ask?timeout=0s{query}", SRQ).json["detail"], 60.0
        )
