"""Ten thousand requests that are none, or nearly one: no answer is a failure, and the process goes on."""

from __future__ import annotations

import http.client
import json
import random
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.rates import RateLimits
from spatialstream.gateway.streams import ServedStream
from tests.unit.client.log import MemoryLog
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, opener, row
from tests.unit.gateway.test_openapi import SKQ, Answering
from tests.unit.gateway.test_writing import CRQ, LINE, TOKEN, Stream

REQUESTS = 10_000
WORDS = [
    *("", ".", "..", "../..", "%2e%2e", "%2f", "..%2f..%2fetc%2fpasswd", "s", "S", "s%00", "%", "%zz", "*", "'\"`;--"),
    *(
        "streams",
        "ask",
        "queries",
        "results",
        "objects",
        "-1",
        "1e999",
        "NaN",
        "null",
        "{}",
        "[]",
        "a" * 3_000,
        "é",
        "🦄",
    ),
    *("\ud800", "9" * 400, "oldest", "newest", "-0", "7692c3ad-0", "7692c3ad-0~a.1.1..0-1", "-" * 65, "-0~a.1.1.1.1"),
    *("2024-02-30", "PT1S", "1h", "-1h", "180,90,-180,-90", "1,2,3", "nan,nan,nan,nan", "..", "/..", "2024-01-01/.."),
]
VALUES: list[Any] = [
    *WORDS,
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    [None] * 5,
    {"a": {}},
]
NAMES = ["type", "id", "t", "region", "at", "keywords", "any", "none", "k", "duration", "window", "step", "by"]
NAMES += ["lon", "text"]
HEADERS = ["accept", "content-type", "last-event-id", "idempotency-key", "authorization", "content-encoding", "range"]


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    token = {"name": "all", "token": TOKEN, "rights": ["ask", "watch", "write"], "streams": ["s"]}
    (tmp_path / "tokens").write_text(json.dumps(token))
    stream = Stream()
    stream.room.set()
    log = MemoryLog()
    log.add(5, messages([row("s", 1), row("s", 2)], 1, 0))
    monkeypatch.setattr(ServedStream, "log", lambda _: log)
    behind = served("s", lambda: Answering(stream), opener(stream.results), stream)
    limits = Limits(body=5_000, client=RateLimits(rate=0))
    return Gateway([behind], Access(tmp_path / "tokens"), limits=limits)


def mutated(chance: random.Random, record: dict[str, Any]) -> Any:
    """A record of which something is wrong, mostly."""
    record = dict(record)
    for _ in range(chance.randint(0, 3)):
        record[chance.choice(NAMES)] = chance.choice(VALUES)
    if chance.random() < 0.2:
        record.pop(chance.choice([*record]), None)
    return chance.choice([record, [record], [record] * chance.randint(0, 3), chance.choice(VALUES), {"a": record}])


def body_of(chance: random.Random) -> bytes:
    made = mutated(chance, chance.choice([SKQ, CRQ, LINE, {"type": "CANCEL", "id": "q"}]))
    content = json.dumps(made).encode(errors="replace")
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randint(0, 40))
    if kind == 1:
        at = chance.randint(0, len(content))
        return content[:at] + chance.randbytes(2) + content[at + chance.randint(0, 3) :]
    if kind == 2:
        return content[: chance.randint(0, len(content))]
    if kind == 3:
        return chance.choice([b"[" * 4_000, b'{"a":' * 900, b"\xef\xbb\xbf" + content, b"9" * 4_999, b"x" * 6_000])
    return content


def target_of(chance: random.Random, paths: list[str]) -> str:
    path = chance.choice(paths)
    for name in ("{stream}", "{query:path}", "{query}", "{id}", "{item:path}"):
        word = "s" if name == "{stream}" and chance.random() < 0.8 else chance.choice(WORDS)
        path = path.replace(name, quote(word, safe="%/.", errors="replace"))
    if chance.random() < 0.1:
        path = "/" + "/".join(quote(chance.choice(WORDS), safe="%.", errors="replace") for _ in range(4))
    names = ["query", "position", "wait", "timeout", "at_least", "limit", "bbox", "datetime", "q", "after", "x"]
    names += ["since", "until", "parts"]
    if parameters := [(chance.choice(names), chance.choice(WORDS)) for _ in range(chance.randint(0, 3))]:
        path += "?" + "&".join(f"{name}={quote(value, safe='%', errors='replace')}" for name, value in parameters)
    return path + ("&" if "?" in path else "?") + "wait=0&timeout=1ms"


def requests(chance: random.Random, paths: list[str]) -> Iterator[tuple[str, str, bytes | None, dict[str, str]]]:
    while True:
        method = chance.choice(["GET", "GET", "POST", "POST", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "QUERY"])
        chosen = chance.sample(HEADERS, chance.randint(0, 2))
        headers = {name: chance.choice(WORDS).encode("latin-1", "replace").decode("latin-1") for name in chosen}
        if headers.get("accept") is None:
            headers["accept"] = chance.choice(["*/*", "application/geo+json", "application/json;q=0", "text/html"])
        yield method, target_of(chance, paths), body_of(chance) if method in ("POST", "PUT") else None, headers


@pytest.mark.timeout(300)
def test_ten_thousand_malformed_requests_are_no_failure(gateway: Gateway) -> None:
    chance, statuses = random.Random(15), Counter[int]()
    paths = sorted({each.path for each in gateway.endpoints})
    with serving(gateway) as nobody:
        client = Client(nobody.port, TOKEN)
        connection = client.connection()
        for _, (method, target, body, headers) in zip(range(REQUESTS), requests(chance, paths), strict=False):
            try:
                connection.request(method, target, body, client.headers(headers))
                response = connection.getresponse()
                content = response.read()
            except (http.client.HTTPException, OSError):  # it was too bad to keep the connection for
                connection.close()
                connection = client.connection()
                statuses[0] += 1
                continue
            statuses[response.status] += 1
            told = method, target, body, headers, content
            assert response.status < 500 or b"internal" not in content, told
            assert response.status in (503, *range(200, 500)), told
            if response.status >= 400 and method != "HEAD" and content.startswith(b"{"):
                assert json.loads(content)["status"] == response.status, told
            if b"etc" in target.encode():
                assert b"root:" not in content
        connection.close()
        assert client("POST", "/streams/s/ask", SKQ).status == 200
    assert statuses[0] < REQUESTS / 10, statuses
    assert statuses[200] > 0 < statuses[400], statuses


def test_bytes_that_are_no_http_are_no_failure(gateway: Gateway) -> None:
    chance = random.Random(16)
    begins = [
        b"GET / HTTP/1.1\r\n",
        b"POST /streams/s/objects HTTP/1.1\r\nhost: localhost\r\n",
        b"",
        b"PRI * HTTP/2.0\r\n",
    ]
    more = [b"content-length: -1\r\n", b"content-length: 5\r\ncontent-length: 6\r\n", b"transfer-encoding: chunked\r\n"]
    more += [
        b"x: " + b"y" * 70_000 + b"\r\n",
        b"\x00: a\r\n",
        b"host\r\n",
        b"a: b\r\n" * 200,
        b"expect: 100-continue\r\n",
    ]
    with serving(gateway) as client:
        for _ in range(300):
            sent = chance.choice(begins) + b"".join(chance.sample(more, chance.randint(0, 3))) + b"\r\n"
            sent += chance.choice([b"", chance.randbytes(50), b"zz\r\nabc", b"5\r\nabcde\r\n0\r\n\r\n"])
            with closing(socket.create_connection(("127.0.0.1", client.port), 10.0)) as connection, suppress(OSError):
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(100)
                assert not answer.startswith(b"HTTP/1.1 500"), (sent, answer)
        assert Client(client.port, TOKEN)("POST", "/streams/s/ask", SKQ).status == 200
