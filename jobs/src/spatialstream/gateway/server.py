"""The server process: a socket, TLS if there is a certificate, and a graceful shutdown.

uvicorn implements HTTP: it is small, maintained by the maintainers of Starlette, and needs no compiler. By itself it
waits forever for the head of a request, as long as bytes of it arrive or none ever has, and for clients to read their
data; both are bounded here. On SIGTERM the gateway accepts no new connection, tells clients that follow results to
reconnect, finishes the requests under way, and ends.

The certificate and its key may be replaced at any time, as cert-manager and Kubernetes do: new connections use the new
ones within seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from spatialstream.gateway import logs
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.model.errors import SettingError

__all__ = ["check_address", "listen", "server_of"]

_GRACE = 20
"""Seconds for requests under way to finish at shutdown."""
_KEEP_ALIVE = 30
_HEAD = 60
"""Seconds for the head of a request to arrive, from when its connection is open, or idle again."""
_STALLED = 20
"""Seconds within which a client must read some of the data waiting in its connection, even one that is closing."""
_BACKLOG = 1024
_RENEWAL = 5
"""Seconds between two checks of the certificate's files."""


def check_address(host: str, *, local: bool) -> None:
    """Check that a gateway without tokens listens on a loopback address only.

    Raises:
        SettingError: it does not.
    """
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if local and not loopback:
        raise SettingError("host", f"{host} is not a loopback address, so anyone could connect; give --tokens")


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 is any free port.

    Raises:
        SettingError: the address or port cannot be used.
    """
    try:
        sock = socket.create_server((host, port), backlog=_BACKLOG, family=_family(host))
    except OSError as error:
        raise SettingError("port", f"{host}:{port} cannot be used: {error.strerror}") from None
    # connections inherit it; asyncio sets it only on sockets that name their protocol, and without it data sent in two
    # pieces waits 40 ms for the other side's delayed acknowledgement
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Server(uvicorn.Server):
    """Says when it serves, and tells the gateway to end before waiting for its connections."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, serving: Callable[[], None]) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._serving = serving

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Override of uvicorn's, which handles signals only once its event loop runs: one before is not lost."""
        with self.capture_signals():
            super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Override of uvicorn's start."""
        await super().startup(sockets)
        if not self.should_exit:
            self._serving()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Override of uvicorn's signal handler; a second signal ends at once."""
        if not self.should_exit:
            logs.event("ending")
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Override of uvicorn's shutdown."""
        self._gateway.end()
        await super().shutdown(sockets)


class _Connection(H11Protocol):
    """A connection, closed if no head of a request arrives in time, or if its client stops reading."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, limits: Limits, **more: Any) -> None:
        super().__init__(*given, **more)
        self._limits = limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Override of asyncio's callback."""
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn wants one that it can write to, as it is
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Override of asyncio's callback."""
        super().connection_lost(exc)
        for timer in (self._late, self._stalled):
            if timer is not None:
                timer.cancel()

    def handle_events(self) -> None:
        """Override of uvicorn's callback for received data."""
        super().handle_events()
        self._wait()

    def on_response_complete(self) -> None:
        """Override of uvicorn's callback."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Start the timer for the head of a request if one is expected, else stop it."""
        begun = self.cycle is not None  # None before the first request, contrary to uvicorn's annotation
        if begun and not self.cycle.response_complete:
            if self._late is not None:
                self._late.cancel()
                self._late = None
        elif self._late is None:
            self._late = self.loop.call_later(self._limits.head, self.transport.close)

    def pause_writing(self) -> None:
        """Override of asyncio's callback for a full write buffer."""
        super().pause_writing()
        self._look(None)

    def resume_writing(self) -> None:
        """Override of asyncio's callback for a drained write buffer."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def _look(self, before: int | None) -> None:
        """Check periodically that the write buffer shrinks; abort the connection otherwise."""
        waiting = self.transport.get_write_buffer_size()
        if before is None or waiting < before:
            self._stalled = self.loop.call_later(self._limits.stalled, self._look, waiting)
        else:
            self.transport.abort()  # closing would wait for the buffer to drain


class _Certificate:
    """The server's certificate, from files that may be replaced."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._shown, self._reported = self._read(), ""

    def _read(self) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in self._files)

    def renew(self, context: ssl.SSLContext) -> None:
        """Load the files if they have changed. An unusable certificate is logged once, and the previous one stays."""
        try:
            if (certificate := self._read()) != self._shown:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    *self._files
                )  # what fails must not be half in use
                context.load_cert_chain(*self._files)
                logs.event("certificate renewed")
            self._shown, self._reported = certificate, ""
        except OSError as error:  # as ssl.SSLError is
            reason = error.strerror or str(error)
            if reason != self._reported:
                logs.event("certificate not renewed", logging.WARNING, reason=reason)
            self._reported = reason


def server_of(
    gateway: Gateway,
    certificate: Path | None = None,
    key: Path | None = None,
    proxies: Sequence[str] = (),
    renewal: int = 5,
    serving: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """Build the server; ``run([socket])`` serves until the process is told to end.

    Args:
        gateway: the application.
        certificate: certificate for TLS; None: plain HTTP.
        key: the certificate's key.
        proxies: addresses or networks of proxies whose ``X-Forwarded-For`` (the client's address) and
            ``X-Forwarded-Proto`` (whether it uses TLS) are trusted.
        renewal: seconds after which the files of the certificate are read again.
        serving: called once requests are served, and a signal ends the server in order.

    Raises:
        SettingError: the certificate cannot be used, or a proxy is not an address or network.
    """
    for each in proxies:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            problem = f"{each!r} is neither an address nor a network such as 10.0.0.0/8"
            raise SettingError("trusted-proxy", problem) from None

    async def renew() -> None:
        if shown is not None and config.ssl is not None:
            shown.renew(config.ssl)

    config = uvicorn.Config(
        gateway.app,
        http=cast("type[asyncio.Protocol]", partial(_Connection, limits=gateway.limits)),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        lifespan="on",
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        callback_notify=renew,
        timeout_notify=renewal,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
    )
    try:
        shown = None if certificate is None or key is None else _Certificate(certificate, key)
        config.load()
    except OSError as error:  # as ssl.SSLError is
        problem = f"{certificate} and {key} cannot be used: {error.strerror or error}"
        raise SettingError("certificate", problem) from None
    return _Server(config, gateway, serving)
