"""Connections: TLS, pages of other origins, and bodies that do not come."""

from __future__ import annotations

import http.client
import json
import logging
import signal
import socket
import ssl
from contextlib import closing
from pathlib import Path

import pytest
from starlette.requests import Request

from spatialstream.gateway import logs, requests
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.server import listen, server_of
from spatialstream.servers.process import await_condition
from tests.certificates import Authority
from tests.unit.client.broker import Topic
from tests.unit.gateway.http import served, serving
from tests.unit.gateway.results import opener

PAGE, ELSEWHERE = "https://maps.example", "https://evil.example"


def test_with_a_certificate_it_speaks_tls_and_nothing_else(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, address="localhost")
    trusting = ssl.create_default_context(cafile=str(files.authority))
    with serving(Gateway([]), certificate=files.certificate, key=files.key, renewal=0) as client:
        connection = http.client.HTTPSConnection("localhost", client.port, timeout=60.0, context=trusting)
        connection.request("GET", "/collections")
        answer = connection.getresponse()
        links = json.loads(answer.read())["links"]
        connection.close()
        assert answer.status == 200
        assert links[0]["href"] == f"https://localhost:{client.port}/collections"
        with pytest.raises((http.client.HTTPException, OSError)):
            client("GET", "/live")


def test_a_certificate_that_is_replaced_is_shown_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(logs, "event", lambda name, *level, **fields: told.append(name))
    authority = Authority()
    files = authority.issue(tmp_path, address="localhost")
    trusting = ssl.create_default_context(cafile=str(files.authority))

    def shown(port: int) -> bytes | None:
        plain = socket.create_connection(("127.0.0.1", port), 60.0)
        with plain, trusting.wrap_socket(plain, server_hostname="localhost") as connection:
            return connection.getpeercert(binary_form=True)

    with serving(Gateway([]), certificate=files.certificate, key=files.key, renewal=0) as client:
        first = shown(client.port)
        files.key.write_bytes(b"half a key")
        assert await_condition(lambda: "certificate not renewed" in told, 30.0)
        assert shown(client.port) == first
        authority.issue(tmp_path, address="localhost")
        assert await_condition(lambda: "certificate renewed" in told, 30.0)
        assert shown(client.port) not in (None, first)
    assert told.count("certificate not renewed") <= 2, "what is no key, and it may be that of another certificate"


def test_pages_of_origins_that_are_named_may_call_it_and_no_others() -> None:
    with serving(Gateway([served("s")], origins=[PAGE])) as client:

        def asked(origin: str, header: str) -> tuple[int, str | None]:
            """Whether a browser is told before that a page of this origin may send this header."""
            wanted = {"access-control-request-method": "POST", "access-control-request-headers": header}
            answer = client("OPTIONS", "/streams/s/ask", origin=origin, **wanted)
            return answer.status, answer.headers.get("access-control-allow-origin")

        for header in ("authorization", "content-type", "idempotency-key", "last-event-id"):
            assert asked(PAGE, header) == (200, PAGE)
        assert asked(PAGE, "x-other")[0] == 400
        assert asked(ELSEWHERE, "authorization") == (400, None)
        answer = client("GET", "/streams", origin=PAGE)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, PAGE)
        shown = {each.strip() for each in answer.headers["access-control-expose-headers"].split(",")}
        assert shown == {"Retry-After", "Next-Position"}
        assert "access-control-allow-origin" not in client("GET", "/streams", origin=ELSEWHERE).headers


def test_a_body_that_does_not_come_is_waited_for_for_a_time() -> None:
    with serving(Gateway([served("s")], limits=Limits(arrival=0.1))) as client:
        connection = client.connection()
        connection.putrequest("POST", "/streams/s/ask")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", "100")
        connection.endheaders(b"{")
        answer = connection.getresponse()
        assert answer.status == 408
        assert json.loads(answer.read())["detail"] == "the body has not arrived within 0.1 s"
        connection.close()
        assert client("GET", "/live").status == 200


def test_a_body_that_is_too_large_is_told_so_before_the_connection_ends() -> None:
    with serving(Gateway([served("s")], limits=Limits(body=8 << 20))) as client:
        answer = client("POST", "/streams/s/ask", b" " * ((8 << 20) + 1))
        assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")
        answer = client("POST", "/streams/other/ask", b" " * (8 << 20))
        assert answer.status == 404


def test_a_body_with_two_ends_is_the_last_of_its_connection() -> None:
    head = b"POST /streams/s/ask HTTP/1.1\r\nHost: localhost\r\n%bTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with serving(Gateway([served("s")])) as client:
        for length, ends in ((b"", False), (b"Content-Length: 5\r\n", True)):
            with socket.create_connection(("127.0.0.1", client.port), 60.0) as connection:
                connection.sendall(
                    head % length + b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                came = b""
                while part := connection.recv(10_000):
                    came += part
                assert came.count(b"HTTP/1.1 ") == 2 - ends


def test_a_line_of_the_log_has_nothing_that_a_terminal_obeys() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "request", None, None)
    record.fields = {"path": "/\x9b2J\x7f\u2028\ud800\x1b é"}
    line = logs.Lines().format(record)
    assert line.isascii() or {c for c in line if not c.isascii()} == {"é"}
    assert line.isprintable()
    assert json.loads(line)["path"] == record.fields["path"]


def test_a_head_that_does_not_come_is_waited_for_for_a_time() -> None:
    gateway = Gateway([served("s", results=opener(Topic()))], limits=Limits(heartbeat=0.1, head=0.5))
    with serving(gateway) as client, closing(client.connection()) as follows:
        follows.request("GET", "/streams/s/results?query=q", headers={"accept": "text/event-stream"})
        events = follows.getresponse()
        for begun in (b"", b"GET /live HT", b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\nG"):
            with socket.create_connection(("127.0.0.1", client.port), 60.0) as silent:
                silent.sendall(begun)
                came = b""
                while part := silent.recv(1000):
                    came += part
                assert came.startswith(b"HTTP/1.1 200 OK") == begun.endswith(b"G")
        with socket.create_connection(("127.0.0.1", client.port), 60.0) as slow:

            def closed() -> bool:
                try:
                    slow.sendall(b"G")
                except OSError:
                    return True
                return False

            assert await_condition(closed, 30.0), "bit by bit it does not come either"
        heard = [events.readline() for _ in range(60)]
        assert heard.count(b": nothing now\n") > 15, "what is under way may take its time"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 10.0), ("timeout=5s", 5.0), ("timeout=250", 0.25), ("timeout=1h", 60.0), ("timeout=0", 0.0)],
)
def test_nothing_is_waited_for_longer_than_the_most(text: str, seconds: float) -> None:
    request = Request({"type": "http", "query_string": text.encode(), "headers": []})
    assert requests.duration(request, "timeout", 10_000, 60_000) == seconds


def test_a_duration_that_is_none_is_named() -> None:
    request = Request({"type": "http", "query_string": b"timeout=soon", "headers": []})
    with pytest.raises(Problem) as refused:
        requests.duration(request, "timeout", 10_000, 60_000)
    assert refused.value.errors[0]["parameter"] == "timeout"


def test_a_signal_before_the_event_loop_runs_ends_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    server = server_of(Gateway([]), serving=lambda: said.append("serving"))

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(server.config, "get_loop_factory", interrupted)
    with listen("127.0.0.1", 0) as sock, pytest.raises(KeyboardInterrupt):  # sent on once it has ended
        server.run([sock])
    assert server.started
    assert said == []
