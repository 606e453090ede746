"""What is written: objects all or none, queries that are told to stand when they do, and what there is no room for."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import pytest

from spatialstream.client.record_writer import Sent
from spatialstream.client.snapshot_client import SnapshotClient
from spatialstream.gateway import writing
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.feed import FeedLimits
from spatialstream.model.errors import Unavailable
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.servers.process import await_condition
from spatialstream.store.reports import TimeLimits
from tests.unit.client.broker import Topic
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, opener

CRQ = {"type": "CRQ", "region": {"circle": [13.4, 52.5, 1_000]}, "duration": "1h"}
LINE = {"id": "a", "t": 5, "lon": 13.4, "lat": 52.5, "text": "hello"}
TOKEN = "everything-0123456789"
OPERATOR, LONG, TOO_LONG, HALF = (f"{name}-0123456789012345" for name in ("operator", "long", "too-long", "half"))


MARK = "7692c3ad"
"""Of the topic of results."""


@dataclass
class Stream:
    """Takes in what it is sent, with a round each, if it goes on; stands for its topics and its clock."""

    results: Topic = field(default_factory=Topic)
    sent: list[list[dict[str, Any]]] = field(default_factory=list)
    registered: dict[str, int] = field(default_factory=dict)
    refused: dict[int, dict[int, str]] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    goes_on: bool = True
    room: threading.Event = field(default_factory=threading.Event)
    busy: threading.Event = field(default_factory=threading.Event)
    clock: int | None = 0
    limits: TimeLimits = field(default_factory=TimeLimits)
    rule: TermRule = field(default_factory=TermRule)
    away: bool = False

    def objects(self, lines: bytes) -> None:
        if b"away" in lines:
            raise Unavailable("messages were not delivered: no answer")
        self.busy.set()
        self.room.wait(60.0)
        self.lines.append(lines)

    def queries(self, *records: dict[str, Any]) -> Sent:
        self.sent.append(list(records))
        number = len(self.sent) - 1
        if self.goes_on:
            record, probe = records
            name = record["id"]
            if record["type"] == "CANCEL" and self.registered.pop(name, None) is None:
                self.refused[number] = {1: f"id: no continuous query {name!r} is active"}
            elif record["type"] != "CANCEL" and name in self.registered:
                self.refused[number] = {
                    1: f"id: {name!r} is in use until 99; give another id, or cancel that query first"
                }
            elif record["type"] != "CANCEL":
                self.registered[name] = record["t"]
            answer = json.dumps({"query": probe["id"], "type": "SRQ", "t": probe["t"], "objects": []})
            self.results.messages += messages([answer.encode()], 1, number)
        return Sent("queries/0", number, {}, {})

    def poll(self, sent: Sent) -> None:
        sent.refused |= self.refused.get(sent.offset, {})


def nobody(request: object) -> NoReturn:
    raise Unavailable("nobody answers")


class QuerySession(SnapshotClient):
    def __init__(self, stream: Stream) -> None:
        super().__init__(lambda seconds: None, nobody, WGS84, stream.rule)
        self.stream = stream

    @property
    def snapshots(self) -> SnapshotClient:
        return self

    def limits(self) -> TimeLimits:
        return self.stream.limits

    def as_of(self, timeout: float = 10.0) -> dict[str, int] | None:
        if self.stream.away:
            raise Unavailable("nobody answers")
        if self.stream.clock is None:
            return None
        return {"round": len(self.stream.sent) - 1, "clock": self.stream.clock + 1_000 * len(self.stream.sent)}

    def close(self) -> None:
        pass


@pytest.fixture
def stream() -> Stream:
    stream = Stream()
    stream.room.set()
    return stream


@pytest.fixture
def gateway(stream: Stream, tmp_path: Path, request: pytest.FixtureRequest) -> Gateway:
    may = {"rights": ["ask", "watch", "write"], "streams": ["s"]}
    callers = {"all": TOKEN, "operator": OPERATOR, "é" * 256: LONG, "é" * 257: TOO_LONG, "\ud800": HALF}
    tokens = [{"name": name, "token": token, **may} for name, token in callers.items()]
    (tmp_path / "tokens").write_text("\n".join(map(json.dumps, tokens)))
    behind = served("s", lambda: QuerySession(stream), opener(stream.results), stream)
    return Gateway(
        [behind],
        Access(tmp_path / "tokens"),
        limits=getattr(request, "param", Limits(waiting=100)),
        registrars=["operator"],
    )


@pytest.fixture
def send(gateway: Gateway) -> Iterator[Client]:
    with serving(gateway) as client:
        yield Client(client.port, TOKEN)


def test_a_query_is_reported_as_registered_when_it_is(send: Client, stream: Stream) -> None:
    answer = send("POST", "/streams/s/queries", CRQ | {"id": "q"})
    assert answer.status == 201
    assert answer.json == {
        "query": "q",
        "processed": True,
        "as_of": {"round": 0, "clock": 1_000},
        "position": f"{MARK}-0",
    }
    ((record, probe),) = stream.sent
    assert record == CRQ | {"id": "q", "t": 0, "by": "all"}  # the stream's clock, and the token's name
    assert (probe["t"], probe["type"]) == (0, "SRQ")
    answer = send("POST", "/streams/s/queries", CRQ | {"id": "q"})
    assert (answer.status, answer.errors[0]["pointer"]) == (409, "#/id")
    answer = send("DELETE", "/streams/s/queries/q")
    assert (answer.status, answer.json["processed"]) == (200, True)
    answer = send("DELETE", "/streams/s/queries/q")
    assert (answer.status, answer.json["detail"]) == (404, "id: no continuous query 'q' is active")
    assert send("POST", "/streams/s/queries", CRQ | {"id": "a/b ?", "t": 7}).status == 201
    assert stream.sent[-1][0]["t"] == 7
    assert send("DELETE", "/streams/s/queries/a%2Fb%20%3F").status == 200


def test_with_a_key_a_registration_is_made_once(send: Client, stream: Stream) -> None:
    def registered(query: dict[str, Any], key: str) -> tuple[int, str]:
        answer = send("POST", "/streams/s/queries", query, idempotency_key=key)
        return answer.status, answer.json["query"]

    status, name = registered(CRQ, "k")
    assert status == 201
    assert registered(CRQ, "k") == (200, name)
    assert list(stream.registered) == [name]
    for query, key in ((CRQ, "l"), (CRQ | {"duration": "2h"}, "k")):
        status, other = registered(query, key)
        assert status == 201
        assert other != name
    assert send("POST", "/streams/s/queries", CRQ | {"id": "q"}, idempotency_key="k").status == 400
    assert send("POST", "/streams/s/queries", CRQ, idempotency_key="k" * 257).status == 400


def test_who_registers_is_who_the_token_says_and_nobody_else(send: Client, stream: Stream) -> None:
    def registered(client: Client, name: str, **said: Any) -> Any:
        return client("POST", "/streams/s/queries", CRQ | {"id": name} | said)

    for by in ("somebody", "all", "", 5, ["all"], {}):
        answer = registered(send, "forged", by=by)
        told = "is set by the gateway, to the caller all; leave it out"
        assert (answer.status, answer.errors) == (400, [{"pointer": "#/by", "detail": told}])
    assert not stream.sent
    assert registered(send, "a", by=None).status == 201
    assert registered(Client(send.port, LONG), "b").status == 201
    assert [record["by"] for record, _ in stream.sent] == ["all", "é" * 256]
    for token, told in ((TOO_LONG, "has 514 bytes; give 1 to 512 bytes of UTF-8"), (HALF, "half of a surrogate pair")):
        answer = registered(Client(send.port, token), "c")
        assert answer.status == 403
        assert f"the caller's name cannot be stored with a query: {told}" in answer.json["detail"].replace(
            r"'\ud800' holds ", ""
        )
    assert len(stream.sent) == 2
    for what in (CRQ | {"type": "SRQ"}, {"type": "CANCEL", "id": "a"}):
        answer = send("POST", "/streams/s/queries", what | {"by": "somebody"})
        assert (answer.status, answer.errors[0]["pointer"]) == (400, "#/by")
    answer = send("POST", "/streams/s/ask", {"type": "SKQ", "at": [1, 2], "k": 1, "duration": 1, "by": "somebody"})
    assert (answer.status, answer.errors[0]["pointer"]) == (400, "#/by")


def test_who_registers_for_others_says_for_whom(send: Client, stream: Stream) -> None:
    operator = Client(send.port, OPERATOR)
    path = "/streams/s/queries"
    assert operator("POST", path, CRQ | {"id": "a", "by": "sq/geo/floods"}).status == 201
    assert operator("POST", path, CRQ | {"id": "b"}).status == 201
    assert [record["by"] for record, _ in stream.sent] == ["sq/geo/floods", "operator"]
    for by in ("", "é" * 257, 5, "\ud800"):
        answer = operator("POST", path, CRQ | {"id": "c", "by": by})
        assert (answer.status, answer.errors[0]["pointer"]) == (400, "#/by")
    assert len(stream.sent) == 2
    one, other = (operator("POST", path, CRQ | {"by": by}, idempotency_key="k") for by in ("anna", "berta"))
    assert (one.status, other.status) == (201, 200), "who asks is no part of what is asked"
    assert one.json["query"] == other.json["query"]


def test_an_id_may_have_lines(send: Client, stream: Stream) -> None:
    names = ["a", "a\n", "\na\n\nb", "\r\n"]
    for name in names:
        assert send("POST", "/streams/s/queries", CRQ | {"id": name}).status == 201
    for left in range(len(names) - 1, -1, -1):
        answer = send("DELETE", f"/streams/s/queries/{quote(names[left], safe='')}")
        assert (answer.status, answer.json["query"]) == (200, names[left])
        assert list(stream.registered) == names[:left]


def test_what_the_stream_has_not_come_to_is_accepted_and_no_more(send: Client, stream: Stream) -> None:
    stream.goes_on = False
    answer = send("POST", "/streams/s/queries?timeout=50ms", CRQ | {"id": "q"})
    assert (answer.status, answer.json) == (
        202,
        {"query": "q", "processed": False, "as_of": None, "position": f"{MARK}-0"},
    )
    stream.refused[1] = {1: "t: is in the future", 2: "t: is in the future"}
    answer = send("POST", "/streams/s/queries", CRQ | {"id": "q", "t": 4 * 10**12})
    assert (answer.status, answer.errors) == (400, [{"pointer": "#/t", "detail": "is in the future"}])


def test_what_is_no_continuous_query_is_not_sent(send: Client, stream: Stream) -> None:
    for query, pointer in (
        ({"type": "SRQ", "region": {"box": [0, 0, 1, 1]}, "duration": 1}, "#/type"),
        (CRQ | {"region": {"circle": [0, 99, 1]}}, "#/region/circle"),
        ({"type": "CANCEL", "id": "q"}, "#/type"),
        ([CRQ], "#"),
    ):
        answer = send("POST", "/streams/s/queries", query)
        assert (answer.status, answer.errors[0]["pointer"]) == (400, pointer)
    assert not stream.sent


def test_a_field_that_is_none_is_refused_with_the_one_that_was_meant(send: Client, stream: Stream) -> None:
    answer = send("POST", "/streams/s/queries", CRQ | {"keywrods": ["fire"]})
    assert (answer.status, answer.errors[0]["pointer"]) == (400, "#/keywrods")
    assert answer.errors[0]["detail"] == "is not a query field; did you mean keywords?"
    assert not stream.sent


def test_objects_are_sent_as_they_are_written_all_or_none(send: Client, stream: Stream) -> None:
    one, two = json.dumps(LINE), json.dumps(LINE | {"id": "b", "more": [1]})
    answer = send("POST", "/streams/s/objects", f"\ufeff{one}\n\n{two}\n".encode(), content_type="application/jsonl")
    assert (answer.status, answer.json) == (200, {"objects": 2})
    assert stream.lines == [f"{one}\n\n{two}\n".encode()]
    answer = send("POST", "/streams/s/objects", f'{one}\n{{"id": "c"}}\nx\n'.encode())
    assert answer.status == 400
    assert [(each["line"], each["field"]) for each in answer.errors] == [(2, "t"), (3, "record")]
    assert send("POST", "/streams/s/objects", b"").json == {"objects": 0}
    assert send("POST", "/streams/s/objects", json.dumps(LINE | {"id": "away"}).encode()).status == 503
    assert len(stream.lines) == 1


def test_objects_are_taken_as_text_with_columns(send: Client, stream: Stream) -> None:
    columns = "columns=id=key,text=title%2Bbody,t=when&time_format=%25d.%25m.%25Y&time_zone=Europe/Berlin"
    path = f"/streams/s/objects?{columns}&separator=%3B"
    rows = "key;when;lon;lat;title;body;more\n1;28.11.2026;0.5;0.25;Fire;out;x\n2;28.11.2026;1;1;;Rain;y\n"
    answer = send("POST", path, rows.encode(), content_type="text/csv; charset=utf-8")
    assert (answer.status, answer.json) == (200, {"objects": 2})
    sent = [json.loads(line) for line in b"".join(stream.lines).splitlines()]
    assert sent[0] == {"id": "1", "t": "2026-11-27T23:00:00+00:00", "lon": 0.5, "lat": 0.25, "text": "Fire out"}
    answer = send("POST", path, (rows + "3;soon;1;1;x;;\n4;5\n").encode(), content_type="text/csv")
    assert answer.status == 400
    assert [(each["line"], each["field"]) for each in answer.errors] == [(4, "when"), (5, "record")]
    assert "none has been sent; line 4: when: 'soon' does not fit the time format '%d.%m.%Y'" in answer.json["detail"]
    assert len(stream.lines) == 1


def quake(name: str, lon: float, kind: str = "Point") -> dict[str, Any]:
    properties = {"time": LINE["t"], "text": "Fire"}
    return {
        "type": "Feature",
        "id": name,
        "geometry": {"type": kind, "coordinates": [lon, 0]},
        "properties": properties,
    }


def test_objects_are_taken_as_features(send: Client, stream: Stream) -> None:
    path, form = "/streams/s/objects?columns=t=properties.time,text=properties.text", "application/geo+json"
    one, area, far = quake("a", 0), quake("b", 0, "Polygon"), quake("c", 500)
    for body in (one, [one], {"type": "FeatureCollection", "features": [one]}):
        assert send("POST", path, body, content_type=form).json == {"objects": 1}
    sent = {"id": "a", "t": LINE["t"], "lon": 0, "lat": 0, "text": "Fire"}
    assert [json.loads(line) for lines in stream.lines for line in lines.splitlines()] == [sent] * 3
    told: dict[str, Any] = {"type": "FeatureCollection", "features": [one, area, far]}
    answer = send("POST", path, told, content_type=form)
    assert [(each["pointer"], each["field"]) for each in answer.errors] == [
        ("#/features/1", "geometry"),
        ("#/features/2", "lon"),
    ]
    assert "pointer #/features/1: geometry: is Polygon; an object has a Point" in answer.json["detail"]
    assert [each["pointer"] for each in send("POST", path, [one, far], content_type=form).errors] == ["#/1"]
    assert [each["pointer"] for each in send("POST", path, far, content_type=form).errors] == ["#"]
    answer = send("POST", path, json.dumps(told)[:-40].encode(), content_type=form)
    assert [each["pointer"] for each in answer.errors] == ["#/features/1", "#/features/2"]
    assert len(stream.lines) == 3


@pytest.mark.parametrize(
    ("query", "form", "parameter", "told"),
    [
        ("columns=id=a", "application/jsonl", "columns", "is a parameter of text/csv and application/geo\\+json"),
        (
            "header=false",
            "application/geo+json",
            "header",
            "is a parameter of text/csv, and the body is application/geo",
        ),
        ("columns=colour=red", "text/csv", "columns", "'colour' is not a field of objects"),
        ("header=no", "text/csv", "header", "'no' is not a choice; give true or false"),
        ("quotes=double", "text/csv", "quotes", "give csv or none"),
        ("separator=x", "text/csv", "separator", "give ',', ';'"),
        ("time_zone=Mars", "text/csv", "time_zone", "give an IANA name"),
        ("time_format=d", "text/csv", "time_format", "has no fields"),
        ("at=soon", "text/csv", "at", "'soon' is not a time.*, or now"),
        ("at=5&columns=t=a", "text/csv", "at", "is the time of all objects"),
    ],
)
def test_parameters_of_a_layout_are_checked(
    send: Client, stream: Stream, query: str, form: str, parameter: str, told: str
) -> None:
    answer = send("POST", f"/streams/s/objects?{query}", b"id,t,lon,lat,text\n", content_type=form)
    assert (answer.status, answer.errors[0]["parameter"]) == (400, parameter)
    assert re.search(told, answer.errors[0]["detail"])
    assert not stream.lines


def test_a_body_that_lacks_a_column_is_refused(send: Client, stream: Stream) -> None:
    answer = send("POST", "/streams/s/objects?at=now", b"id,lng,lat,text\n1,2,3,x\n", content_type="text/csv")
    assert answer.status == 400
    assert "has no column 'lon'; it has 'id', 'lng', 'lat', 'text'; maybe --columns lon=lng" in answer.json["detail"]
    answer = send("POST", "/streams/s/objects", b"[", content_type="application/geo+json")
    assert (answer.status, answer.errors[0]["pointer"]) == (400, "#")
    assert not stream.lines


@pytest.mark.parametrize(
    ("form", "head", "line", "end"),
    [
        ("application/x-ndjson", b"", b"{}\n", b""),
        ("text/csv", b"id,t,lon,lat,text\n", b",,,,\n", b""),
        ("application/geo+json", b"[%s," % json.dumps(quake("a", 0)).encode(), b"{},", b"{}]"),
    ],
)
def test_a_body_of_unusable_records_does_not_take_many_times_its_size(
    send: Client, stream: Stream, form: str, head: bytes, line: bytes, end: bytes
) -> None:
    geojson = form == "application/geo+json"
    path = "/streams/s/objects" + ("?columns=t=properties.time,text=properties.text" if geojson else "")
    body = head + line * (400_000 // len(line)) + end
    send("POST", path, head + line + end, content_type=form)  # what is loaded at first does not count
    tracemalloc.start()
    answer = send("POST", path, body, content_type=form)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (answer.status, len(answer.errors)) == (400, 100)
    assert answer.json["detail"].startswith("100 objects or more are invalid, and none has been sent; ")
    assert most < 60 * len(body), "all of it would take 250 times as much"
    assert not stream.lines


def test_objects_of_many_blocks_are_sent_as_they_came(
    send: Client, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BLOCK", 100)
    lines = [json.dumps(LINE | {"id": f"o{i}", "more": "x" * (i % 150)}).encode() for i in range(50)]
    body = b"\n".join(lines)
    assert send("POST", "/streams/s/objects", body).json == {"objects": 50}
    assert stream.lines == [body]
    lines[7], lines[41] = b"{}", b"x"
    answer = send("POST", "/streams/s/objects", b"\r\n".join(lines))
    assert [each["line"] for each in answer.errors] == [8, 42]
    assert answer.json["detail"].startswith("2 objects are invalid")


def test_times_of_properties_are_refused_as_those_of_objects_are(send: Client, stream: Stream) -> None:
    stream.rule = TermRule(properties=Properties.parse(["seen:time"]))
    stream.clock = 1_795_880_000_000
    now = LINE | {"t": stream.clock}
    lines = b"\n".join(json.dumps(now | {"seen": 1_795_880_000 + i}).encode() for i in range(3))
    answer = send("POST", "/streams/s/objects", lines)
    assert (answer.status, answer.errors[0]["pointer"]) == (400, "#/seen")
    assert "nearly all times of 'seen' lie in January 1970: they look like seconds" in answer.json["detail"]
    assert send("POST", "/streams/s/objects?time_unit=ms", lines).status == 200
    assert send("POST", "/streams/s/objects", json.dumps(now | {"seen": "9999-12-31"}).encode()).status == 200


@pytest.mark.parametrize("t", [1_795_880_000, 1_795_880_000_000_000])
def test_times_of_another_unit_are_refused_unless_the_stream_is_of_such(send: Client, stream: Stream, t: int) -> None:
    lines = b"\n".join(json.dumps(LINE | {"t": t + i}).encode() for i in range(3))
    stream.clock = 1_795_880_000_000
    for none in (False, True):
        stream.clock = None if none else stream.clock
        answer = send("POST", "/streams/s/objects", lines)
        assert answer.status == 400
        assert "they look like " + ("seconds" if t < 10**12 else "microseconds") in answer.json["detail"]
    assert not stream.lines
    assert send("POST", "/streams/s/objects?time_unit=s", lines).status == 400
    assert send("POST", "/streams/s/objects?time_unit=ms", lines).status == 200
    stream.clock = t + 60_000
    assert send("POST", "/streams/s/objects", lines).status == 200


@pytest.mark.parametrize("t", [1_795_880_000, "1795880000", 1_795_880_000_000_000])
def test_a_query_of_another_unit_is_refused_unless_the_stream_is_of_such(send: Client, stream: Stream, t: Any) -> None:
    for clock in (1_795_880_000_000, None):
        stream.clock = clock
        answer = send("POST", "/streams/s/queries", CRQ | {"t": t})
        assert answer.status == 400
        assert "it looks like " + ("seconds" if int(t) < 10**12 else "microseconds") in answer.json["detail"]
    assert not stream.sent
    assert send("POST", "/streams/s/queries?time_unit=us", CRQ | {"t": t}).status == 400
    assert send("POST", "/streams/s/queries?time_unit=ms&timeout=1ms", CRQ | {"t": t}).status in (201, 202)
    stream.clock = int(t)
    assert send("POST", "/streams/s/queries?timeout=1ms", CRQ | {"t": t}).status in (201, 202)
    stream.clock = 1_795_880_000_000
    said = CRQ | {"t": "1970-01-21T10:00:00Z"}  # and so it is no number of anything
    assert send("POST", "/streams/s/queries?timeout=1ms", said).status in (201, 202)


@pytest.mark.parametrize("gateway", [Limits(waiting=100_000, clock=0.0, clock_again=0.0)], indirect=True)
def test_objects_that_the_stream_would_reject_for_their_time_are_refused(send: Client, stream: Stream) -> None:
    now = time.time_ns() // 1_000_000
    stream.clock, stream.limits = now, TimeLimits(ahead=600_000, retention=3_600_000)

    def sent(*times: int) -> Any:
        lines = b"\n".join(json.dumps(LINE | {"t": t}).encode() for t in times)
        return send("POST", "/streams/s/objects", lines)

    assert sent(now, now - 3_599_999, now + 600_000).status == 200
    answer = sent(now, now - 3_600_000, now + 700_000)
    assert answer.status == 400
    early, late = answer.errors
    floor = now - 3_600_000
    told = f"{floor} is too old; retention has passed everything up to {floor}, which is 1h before the stream's clock"
    assert early == {"line": 2, "field": "t", "detail": told}
    assert (late["line"], late["field"]) == (3, "t")
    assert late["detail"].startswith(f"{now + 700_000} is in the future; the latest that is taken now is ")
    assert late["detail"].endswith(", which is 10m from now")
    assert len(stream.lines) == 1
    for clock, away in ((None, False), (now, True)):  # nobody can be sure what the stream will do
        stream.clock, stream.away = clock, away
        assert sent(now - 3_600_000).status == 200
        assert sent(now + 700_000).status == 400
    stream.limits = TimeLimits()
    assert sent(now + 700_000).status == 200


def test_a_clock_that_does_not_come_is_not_asked_for_with_each_request(send: Client, stream: Stream) -> None:
    now = time.time_ns() // 1_000_000
    stream.clock, stream.limits, stream.away = now, TimeLimits(retention=3_600_000), True
    line = json.dumps(LINE | {"t": now - 3_600_000}).encode()
    assert send("POST", "/streams/s/objects", line).status == 200
    stream.away = False
    assert send("POST", "/streams/s/objects", line).status == 200, "for some seconds nobody asks"


def test_what_there_is_no_room_for_is_told_to_come_again(send: Client, stream: Stream) -> None:
    line, statuses = json.dumps(LINE).encode(), list[int]()
    assert 50 < len(line) <= 100  # so there is room for one
    stream.room.clear()
    first = threading.Thread(target=lambda: statuses.append(send("POST", "/streams/s/objects", line).status))
    first.start()
    assert stream.busy.wait(60.0)
    answer = send("POST", "/streams/s/objects", line)
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    stream.room.set()
    first.join()
    assert (statuses, stream.lines) == ([200], [line])
    assert send("POST", "/streams/s/objects", line * 3).status == 400  # that it is too much alone is no reason


def test_there_is_room_for_what_comes_before_more_of_it_is_read(send: Client, gateway: Gateway, stream: Stream) -> None:
    line = json.dumps(LINE).encode()

    def begin(*length: tuple[str, str]) -> http.client.HTTPConnection:
        connection = send.connection()
        connection.putrequest("POST", "/streams/s/objects")
        for name, value in (*send.headers({}).items(), *length):
            connection.putheader(name, value)
        connection.endheaders()
        return connection

    with closing(begin(("Content-Length", str(len(line) + 1)))) as first:
        first.send(line)  # and the last byte is still to come
        assert await_condition(lambda: gateway.under_way("s") == len(line) + 1, 60.0)  # what it says that it will have
        with closing(begin(("Content-Length", "70"))) as other:  # none of it is sent
            answer = other.getresponse()
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        with closing(begin(("Transfer-Encoding", "chunked"))) as other:
            other.send(b"46\r\n%b\r\n" % (b" " * 70))  # and more may come
            assert other.getresponse().status == 429
        assert gateway.under_way("s") == len(line) + 1
        first.send(b"\n")
        assert first.getresponse().status == 200
    assert await_condition(lambda: gateway.under_way("s") == 0, 60.0)
    with closing(begin(("Content-Length", "70"))) as first:
        first.send(b" " * 60)
        assert await_condition(lambda: gateway.under_way("s") == 70, 60.0)
    assert await_condition(lambda: gateway.under_way("s") == 0, 60.0), "he has gone"
    assert stream.lines == [line + b"\n"]


def test_who_registers_has_room_besides_those_who_follow(send: Client, gateway: Gateway) -> None:
    gateway.streams["s"].feed.limits = FeedLimits(listeners=0)
    assert send("GET", "/streams/s/results?query=q").status == 503
    assert send("POST", "/streams/s/queries", CRQ | {"id": "q"}).status == 201
    assert send("DELETE", "/streams/s/queries/q").status == 200


def test_writing_needs_a_token(stream: Stream) -> None:
    with serving(Gateway([served("s", lambda: QuerySession(stream), opener(stream.results), stream)])) as client:
        for method, path in (("POST", "queries"), ("DELETE", "queries/q"), ("POST", "objects")):
            answer = client(method, f"/streams/s/{path}", CRQ if method == "POST" else None)
            assert (answer.status, answer.json["detail"]) == (403, "anyone lacks the right write; it has ask, watch")
    assert not stream.sent
    assert not stream.lines
