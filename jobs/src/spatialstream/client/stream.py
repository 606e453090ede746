"""A running stream, for programs: ``with spatialstream.connect("dev") as stream: stream.ask({...})``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from spatialstream.actors.query_endpoint import QueryClient
from spatialstream.client.description import StreamDescription
from spatialstream.client.registered import Registered
from spatialstream.client.snapshot_client import SnapshotClient
from spatialstream.connectors.kafka import Connection
from spatialstream.model.errors import Replaced, SettingError, StateError, Suspended, Unavailable
from spatialstream.model.space import Space
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import TimeLimits, read_limits
from spatialstream.store.tls import TlsFiles
from spatialstream.store.zookeeper import ZooKeeperStore

if TYPE_CHECKING:
    from spatialstream.client.subscription import Subscription

__all__ = ["Registered", "Stream", "TimeLimits", "connect"]

_PAUSE = 0.02
_LIMITS_SECONDS = 5.0
"""For which it is trusted that a stream takes the times that it took."""


def connect(
    stream: str,
    zookeeper: str = "127.0.0.1:2181",
    broker: str | Connection = "127.0.0.1:9092",
    *,
    credentials: tuple[str, str] | None = None,
    tls: TlsFiles | None = None,
) -> Stream:
    """Connect to a running stream, to query and to watch it.

    Args:
        stream: the stream's name.
        zookeeper: addresses of ZooKeeper, ``host:port,...``.
        broker: addresses of the broker, or a connection; used only to watch.
        credentials: user and password of ZooKeeper.
        tls: files for TLS to ZooKeeper; None: no encryption.

    Raises:
        SettingError: a name, an address or a file cannot be used.
        Unavailable: ZooKeeper cannot be reached, or no worker of such a stream has run yet.
    """
    with ExitStack() as opened:
        store = opened.enter_context(ZooKeeperStore(zookeeper, stream, credentials=credentials, tls=tls))
        known = Connection(broker) if isinstance(broker, str) else broker
        return Stream(store, opened.pop_all(), known, stream)


class Stream(SnapshotClient):
    """A running stream; made by :func:`connect`. Safe for several threads.

    Args:
        store: the stream's routing store.
        opened: closed with it.
        broker: how to reach its topics; None: it cannot be watched.
        name: the stream's name.

    Raises:
        Unavailable: the store cannot be reached, or no worker of the stream has run yet.
    """

    def __init__(
        self, store: RoutingStore, opened: ExitStack | None = None, broker: Connection | None = None, name: str = ""
    ) -> None:
        self._broker, self._name = broker, name
        with ExitStack() as closing:
            if opened is not None:
                closing.push(opened)
            query_client = closing.enter_context(QueryClient(store))
            space, rule = Space.parse(query_client.query_endpoint.space), query_client.query_endpoint.rule
            super().__init__(query_client.newest, query_client.ask, space, rule)
            self._description = StreamDescription(store, lambda: query_client.actors)
            self._store, self._limits = store, (float("-inf"), TimeLimits())
            self._query_client, self._opened = query_client, closing.pop_all()

    def limits(self) -> TimeLimits:
        """Which times of objects the stream takes, as its router has told last; all, if nobody can say."""
        at, limits = self._limits
        if time.monotonic() > at + _LIMITS_SECONDS:
            with suppress(Unavailable, StateError):
                limits = read_limits(self._store) or TimeLimits()
            self._limits = time.monotonic(), limits
        return limits

    def describe(self) -> dict[str, Any]:
        """Describe the stream's internals.

        See :meth:`spatialstream.client.description.StreamDescription.look`.

        Raises:
            StateError: there is no such stream any more.
            Unavailable: the store cannot be reached.
        """
        return self._description.look()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def standing(self, after: int = -1, limit: int = 100, timeout: float = 10.0) -> Registered:
        """Return a page of the registered continuous queries with their row counts, in the order of registration.

        Args:
            after: :attr:`Registered.last` of the previous page.
            limit: most queries to return.
            timeout: seconds to wait for the stream.

        Raises:
            Unavailable: it does not answer in time.
        """
        return self._standing({"after": after, "limit": limit}, timeout, limit)

    def continuous_query(self, name: str, timeout: float = 10.0) -> Registered:
        """Return the continuous query of an id, if it is registered; ``timeout`` and errors as in :meth:`standing`."""
        return self._standing({"id": name}, timeout, 1)

    def watch(
        self,
        query: Mapping[str, Any] | str,
        *,
        after: str | None = None,
        cancel: bool = False,
        patience: float | None = None,
        timeout: float = 30.0,
    ) -> Subscription:
        """Subscribe to a continuous query: iterate over its rows as they arrive, with ``for`` or ``async for``.

        Each row is returned once. When this method returns, the query is registered. (In an event loop, call it in a
        thread.)

        Args:
            query: the fields of a CRQ, CKQ or CTQ, which is registered unless an identical query with its id already
                is; or the id of a registered query. Without ``t`` the query starts at the stream's clock, and without
                ``id`` it gets one.
            after: the :attr:`~spatialstream.client.subscription.Subscription.position` after which to start, or
                ``"oldest"``; None: with rows that arrive from now on.
            cancel: cancel the query at the end.
            patience: seconds without a row after which the iteration ends; None: it ends with the query.
            timeout: seconds within which the query must be registered.

        Raises:
            SettingError: it is not a continuous query of this stream, its id belongs to another query, or no query of
                that id is registered.
            Gone: the broker has deleted the messages after the position.
            Unavailable: the broker or the stream does not answer in time.
        """
        from spatialstream.client.subscription import Subscription

        if self._broker is None:
            raise SettingError("broker", "is required to watch the stream; give its address")
        return Subscription(self, self._broker, self._name, query, after, cancel, patience, timeout)

    def _standing(self, asked: Mapping[str, Any], timeout: float, limit: int) -> Registered:
        until = time.monotonic() + timeout
        while True:
            try:
                read_point = self.read_point(max(1.0, until - time.monotonic()))
                found = self._query_client.listed(read_point.round, asked, max(1.0, until - time.monotonic()))
            except (Replaced, Suspended):
                raise  # no retry can succeed, or is likely to
            except Unavailable:  # the stream has proceeded to another round, or a slot is moving
                if time.monotonic() + _PAUSE > until:
                    raise
                time.sleep(_PAUSE)
            else:
                queries = found[:limit]
                so_far: list[dict[str, int | None]] = [{"rows": each[2], "last_row": each[3]} for each in queries]
                last = queries[-1][0] if queries else None
                return Registered([each[1] for each in queries], last, read_point.as_of, so_far)

    def close(self) -> None:
        """Close all connections."""
        self._opened.close()
