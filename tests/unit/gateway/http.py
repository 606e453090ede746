"""A gateway on a real socket in a thread of this process, and a client."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from spatialstream.gateway.app import Gateway
from spatialstream.gateway.feed import Feed
from spatialstream.gateway.server import listen, server_of
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import Unavailable
from spatialstream.servers.process import await_condition


def nowhere(*given: Any) -> NoReturn:
    raise Unavailable("nobody")


def served(
    name: str,
    opener: Callable[[], Any] = nowhere,
    results: Callable[[int], Any] = nowhere,
    record_writer: Any = None,
    **more: Any,
) -> ServedStream:
    """A stream of which only what is given can be reached."""
    return ServedStream(name, opener, Feed(name, results), record_writer, **more)


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Of problem details."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        errors: list[dict[str, Any]] = self.json.get("errors", [])
        return errors


@dataclass
class Client:
    port: int
    token: str | None = None

    def connection(self, timeout: float = 120.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        return ({} if self.token is None else {"Authorization": f"Bearer {self.token}"}) | dict(more)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A request; a body that is no bytes is sent as JSON, and ``_`` in a header's name is ``-``."""
        connection = self.connection()
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json"} if content is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, content, self.headers(sent))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()


@contextmanager
def serving(
    gateway: Gateway, *proxies: str, certificate: Path | None = None, key: Path | None = None, renewal: int = 5
) -> Iterator[Client]:
    """The gateway, for as long as it is used; who is believed what they say of clients, and with what it speaks TLS."""
    server = server_of(gateway, certificate, key, proxies, renewal)
    with listen("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        try:
            assert await_condition(lambda: server.started or not thread.is_alive(), 60.0)
            yield Client(sock.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(60.0)
            assert not thread.is_alive()
