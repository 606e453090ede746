"""The process: a socket, TLS if there is a certificate, and an end in order.

uvicorn speaks HTTP: it is small, kept by the people who keep Starlette, and needs no compiler. It waits for ever for
the head of a request, as long as bytes of it come or none ever has, and for clients to take what has been sent to them;
that is bounded here. Told to end (SIGTERM), the gateway takes no new connection, tells those who follow results to come
again, finishes what is under way, and ends.

The certificate and its key may be replaced at any time, as cert-manager and Kubernetes do: new connections are shown
what is new within seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from spatialstream.gateway import logs
from spatialstream.gateway.app import Gateway
from spatialstream.model.errors import SettingError

__all__ = ["check_address", "listen", "server_of"]

_GRACE = 20
"""Seconds for what is under way when it is told to end."""
_KEEP_ALIVE = 30
_HEAD = 60
"""Seconds for the head of a request, from when its connection is there, or free again."""
_STALLED = 20
"""Seconds within which a client has to take some of what waits in its connection, be that closing or not."""
_BACKLOG = 1024
_RENEWAL = 5
"""Seconds between two looks at the certificate's files."""


def check_address(host: str, *, local: bool) -> None:
    """Refuse to listen where others could come, if there are no tokens.

    Raises:
        SettingError: they could.
    """
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if local and not loopback:
        raise SettingError("host", f"{host} is not this machine alone, and everybody could ask; give --tokens")


def listen(host: str, port: int) -> socket.socket:
    """A socket; port 0 is any that is free.

    Raises:
        SettingError: it cannot be had.
    """
    try:
        sock = socket.create_server((host, port), backlog=_BACKLOG, family=_family(host))
    except OSError as error:
        raise SettingError("port", f"{host}:{port} cannot be used: {error.strerror}") from None
    # connections inherit it; asyncio sets it for those alone whose socket names its protocol, and without it what is
    # sent in two pieces waits for the other side's delayed acknowledgement, 40 ms
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Server(uvicorn.Server):
    """Tells the gateway that it is to end, before its connections are waited for."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn calls it for a signal; a second one ends at once."""
        if not self.should_exit:
            logs.event("ending")
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn calls it when it is to end."""
        self._gateway.end()
        await super().shutdown(sockets)


class _Connection(H11Protocol):
    """A connection; one on which no request comes ends, whatever else does, and one of which nothing is taken."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        super().connection_made(transport)  # type: ignore[arg-type] # uvicorn wants one that it can write to, as it is
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        super().connection_lost(exc)
        for timer in (self._late, self._stalled):
            if timer is not None:
                timer.cancel()

    def handle_events(self) -> None:
        """As uvicorn calls it when something has come."""
        super().handle_events()
        self._wait()

    def on_response_complete(self) -> None:
        """As uvicorn calls it."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Wait for the head of a request, if that is what is to come."""
        begun = self.cycle is not None  # before the first request it is none, though uvicorn says it never is
        if begun and not self.cycle.response_complete:
            if self._late is not None:
                self._late.cancel()
                self._late = None
        elif self._late is None:
            self._late = self.loop.call_later(_HEAD, self.transport.close)

    def pause_writing(self) -> None:
        """As asyncio calls it when much waits."""
        super().pause_writing()
        self._look(None)

    def resume_writing(self) -> None:
        """As asyncio calls it when little does."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def _look(self, before: int | None) -> None:
        """See now and then whether less waits than before."""
        waiting = self.transport.get_write_buffer_size()
        if before is None or waiting < before:
            self._stalled = self.loop.call_later(_STALLED, self._look, waiting)
        else:
            self.transport.abort()  # to close it would be to wait


class _Certificate:
    """The certificate that is shown, from files that may be replaced."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = certificate, key
        self._shown, self._told = self._read(), ""

    def _read(self) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in self._files)

    def renew(self, context: ssl.SSLContext) -> None:
        """Show what is in the files now. What cannot be used is told once, and what was shown stays."""
        try:
            if (found := self._read()) != self._shown:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                    *self._files
                )  # what fails must not be half in use
                context.load_cert_chain(*self._files)
                logs.event("certificate renewed")
            self._shown, self._told = found, ""
        except OSError as error:  # as ssl.SSLError is
            reason = error.strerror or str(error)
            if reason != self._told:
                logs.event("certificate not renewed", logging.WARNING, reason=reason)
            self._told = reason


def server_of(
    gateway: Gateway, certificate: Path | None = None, key: Path | None = None, proxies: Sequence[str] = ()
) -> uvicorn.Server:
    """What serves it; ``run([socket])`` does so until the process is told to end.

    Args:
        gateway: what is served.
        certificate: with which it speaks TLS.
        key: of the certificate.
        proxies: addresses, or networks, of those who are believed what they say of a client: ``X-Forwarded-For``, its
            address, and ``X-Forwarded-Proto``, whether it speaks TLS.

    Raises:
        SettingError: the certificate cannot be used, or one of the proxies is no address.
    """
    for each in proxies:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            raise SettingError("trusted-proxy", f"{each!r} is no address, nor a network such as 10.0.0.0/8") from None

    async def renew() -> None:
        if shown is not None and config.ssl is not None:
            shown.renew(config.ssl)

    config = uvicorn.Config(
        gateway.app,
        http=_Connection,
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
        timeout_notify=_RENEWAL,
        ssl_certfile=None if certificate is None else str(certificate),
        ssl_keyfile=None if key is None else str(key),
    )
    try:
        shown = None if certificate is None or key is None else _Certificate(certificate, key)
        config.load()
    except OSError as error:  # as ssl.SSLError is
        problem = f"{certificate} and {key} cannot be used: {error.strerror or error}"
        raise SettingError("certificate", problem) from None
    return _Server(config, gateway)
