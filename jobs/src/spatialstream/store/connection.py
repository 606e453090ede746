"""A connection to ZooKeeper with bounded waiting times, which reconnects by itself.

kazoo connects and reconnects in threads of its own, and begins a new session when the old one has expired. This module
adds timeouts, the repetition of operations that a lost connection has interrupted, and logs without credentials.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    ConfigurationError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_digest_acl

from spatialstream.model.errors import SettingError, StateError, Unavailable
from spatialstream.store.tls import Tls, TlsHandler

__all__ = ["Connection", "Credentials", "Wait"]

T = TypeVar("T")

Credentials = tuple[str, str]
"""User and password, for ZooKeeper's scheme *digest*."""

_LOST = (ConnectionLoss, SessionExpiredError, ConnectionClosedError, OperationTimeoutError)
_PAUSE = 0.02
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}

_log = logging.getLogger(__name__)


class Wait(Protocol):
    """Waits for the result of one of the client's asynchronous calls, until the deadline of the operation."""

    def __call__(self, result: Any) -> Any:
        """The result; raises its exception."""


class Connection:
    """A client that begins to connect at once.

    Args:
        hosts: ``host:port,host:port``, with a path at the end if everything is below one.
        credentials: for access, and as the only user with access to created nodes. None: everybody has access.
        session: seconds without contact after which the session ends.
        timeout: timeout of :meth:`attempt`, seconds.
        changed: called with whether the server can be reached, in a thread that must not be blocked.
        tls: settings of encrypted connections, read for each of them; None: not encrypted.

    Raises:
        SettingError: ``hosts``, ``credentials`` or ``tls`` are invalid.
    """

    def __init__(
        self,
        hosts: str,
        credentials: Credentials | None,
        session: float,
        timeout: float,
        changed: Callable[[bool], None],
        tls: Tls | None = None,
    ) -> None:
        self._hosts = hosts
        self._timeout = timeout
        self._listeners = [changed]
        self._connected = threading.Event()
        self._closed = False
        self._missed = False
        self._why = ""
        access = _access(credentials)
        if tls is not None:
            tls.context()  # reports invalid settings at once
            access["handler"] = TlsHandler(tls, self._failed)
        try:
            self.client = KazooClient(hosts, session, connection_retry=_RECONNECT, logger=_kazoo_log(), **access)
        except (ConfigurationError, ValueError) as error:
            raise SettingError("zookeeper", f"not a list of servers, host:port,host:port: {hosts!r}") from error
        self.client.add_listener(self._listen)
        self.client.start_async()

    @property
    def connected(self) -> bool:
        """Whether the server can be reached, as far as is known."""
        return self._connected.is_set() and not self._closed

    def listen(self, changed: Callable[[bool], None]) -> None:
        """Add a listener that is called like ``changed``."""
        self._listeners.append(changed)

    def attempt(self, operation: Callable[[Wait], T]) -> T:
        """Execute an operation, again from its beginning whenever the connection is lost; it must allow for that.

        Raises:
            StateError: ZooKeeper's answer is not what the operation expects.
            Unavailable: it took too long. Requests in flight may still take effect.
            SettingError: the credentials do not suffice.
        """
        deadline = time.monotonic() + self._timeout
        wait = partial(_result_by, deadline)
        while self._connected.wait(max(deadline - time.monotonic(), 0.0)) and not self._closed:
            try:
                return operation(wait)
            except _LOST:
                time.sleep(_PAUSE)  # the listener is notified a moment after those who wait for results
            except KazooTimeoutError:
                break
            except (NoAuthError, AuthFailedError) as error:
                raise SettingError("zookeeper", "the credentials do not give access to this stream") from error
            except KazooException as error:
                raise StateError(f"unexpected state in ZooKeeper: {type(error).__name__}") from error
        if self._closed:
            raise Unavailable("the connection to ZooKeeper has been closed")
        why = f" ({self._why})" if self._why else ""
        raise Unavailable(f"ZooKeeper ({self._hosts}) did not answer within {self._timeout:g} s{why}")

    def close(self) -> None:
        """End the session."""
        self._closed = True
        self._connected.set()  # wakes waiting threads
        self.client.remove_listener(self._listen)
        self.client.stop()
        self.client.close()

    def _failed(self, why: str) -> None:
        """Remember why there is no connection, and log it if the reason is a new one."""
        if why != self._why and not self._closed:
            self._why = why
            _log.warning("ZooKeeper (%s): %s", self._hosts, why)

    def _listen(self, state: str) -> None:
        connected = state == KazooState.CONNECTED
        if connected:
            self._why = ""
            self._connected.set()
            if self._missed:
                _log.warning("ZooKeeper (%s) is back", self._hosts)
            self._missed = False
        elif self._connected.is_set():
            self._connected.clear()
            self._missed = True
            _log.warning("ZooKeeper (%s) cannot be reached", self._hosts)
        for changed in tuple(self._listeners):
            changed(connected)


def _result_by(deadline: float, result: Any) -> Any:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise KazooTimeoutError
    return result.get(timeout=left)


def _access(credentials: Credentials | None) -> dict[str, Any]:
    if credentials is None:
        return {}
    user, password = credentials
    if not user or ":" in user or not password:
        raise SettingError("zookeeper", "credentials are a user, without colon, and a password")
    return {
        "auth_data": [("digest", f"{user}:{password}")],
        "default_acl": [make_digest_acl(user, password, all=True)],
    }


def _kazoo_log() -> logging.Logger:
    """Kazoo's log without requests, which contain credentials, and without a line for each attempt to reconnect."""
    log = logging.getLogger(f"{__name__}.kazoo")
    if log.level < logging.ERROR:
        log.setLevel(logging.ERROR)
    return log
