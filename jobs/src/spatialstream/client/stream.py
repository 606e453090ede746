"""A running stream, for programs: ``with spatialstream.connect("dev") as stream: stream.ask({...})``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from spatialstream.actors.query_endpoint import QueryClient
from spatialstream.client.description import StreamDescription
from spatialstream.client.snapshot_client import SnapshotClient
from spatialstream.connectors.kafka import Connection
from spatialstream.model.errors import Replaced, SettingError, StateError, Unavailable
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
    """Reach a running stream, to ask and to watch it.

    Args:
        stream: its name.
        zookeeper: ``host:port,...``.
        broker: likewise, or how to reach it; it is needed to watch, and not before.
        credentials: user and password of ZooKeeper.
        tls: files by which ZooKeeper is known, and this side to it; None: what is said to it is not encrypted.

    Raises:
        SettingError: a name, an address or a file cannot be used.
        Unavailable: ZooKeeper cannot be reached, or no worker of such a stream has run yet.
    """
    with ExitStack() as opened:
        store = opened.enter_context(ZooKeeperStore(zookeeper, stream, credentials=credentials, tls=tls))
        known = Connection(broker) if isinstance(broker, str) else broker
        return Stream(store, opened.pop_all(), known, stream)


@dataclass(frozen=True, slots=True)
class Registered:
    """Queries that stand.

    Attributes:
        queries: their records, in the order of registration; ``t`` is since when one stands, and ``by`` who has
            registered it, if that is known.
        last: what tells the last of them; None: there is none.
        as_of: the round, and the stream's clock then.
        so_far: what each of the queries has had by then, since it was registered: how many ``rows``, of which one that
            leaves in parts is one, and ``last_row``, the largest ``t`` of them in ms; None if there was none.
    """

    queries: list[dict[str, Any]]
    last: int | None
    as_of: dict[str, int]
    so_far: list[dict[str, int | None]]


class Stream(SnapshotClient):
    """A running stream; made by :func:`connect`. Several threads may use it.

    Args:
        store: its routing store.
        opened: is closed with it.
        broker: how to reach its topics; None: it cannot be watched.
        name: of the stream.

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
            given = query_client.newest, query_client.call, space, rule
            super().__init__(*given, whole=query_client.ask, longest=query_client.query_endpoint.longest)
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
        """Describe the stream for people.

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
        """The queries that stand, with what they have had, in the order of their registration, a page at a time.

        Args:
            after: the :attr:`Registered.last` of the page before.
            limit: how many, at most.
            timeout: seconds within which the stream has to say.

        Raises:
            Unavailable: it does not.
        """
        return self._standing({"after": after, "limit": limit}, timeout, limit)

    def continuous_query(self, name: str, timeout: float = 10.0) -> Registered:
        """The query of an id, if it stands; ``timeout`` and errors as in :meth:`standing`."""
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
        """The rows of a continuous query, as they come, each once: to be iterated over, with ``for`` or ``async for``.

        When this returns, the query stands. (In an event loop call it in a thread.)

        Args:
            query: the fields of a CRQ, CKQ or CTQ, which is registered, unless one of its id and just like it stands
                already; or the id of one that stands. Without ``t`` it stands from the stream's clock on, and without
                ``id`` it gets one.
            after: the :attr:`~spatialstream.client.subscription.Subscription.position` after which rows are wanted, or
                ``"oldest"``; None: what comes from now on.
            cancel: cancel the query at the end.
            patience: seconds without a row after which it ends; None: it ends with the query.
            timeout: seconds within which the query has to stand.

        Raises:
            SettingError: it is no continuous query of this stream, or its id is that of another one; or none of that id
                stands.
            Gone: the broker does not keep what comes after the position any more.
            Unavailable: the broker, or the stream, does not answer in time.
        """
        from spatialstream.client.subscription import Subscription

        if self._broker is None:
            raise SettingError("broker", "say where it is, to watch the stream")
        return Subscription(self, self._broker, self._name, query, after, cancel, patience, timeout)

    def _standing(self, asked: Mapping[str, Any], timeout: float, limit: int) -> Registered:
        until = time.monotonic() + timeout
        while True:
            try:
                read_point = self.read_point(max(1.0, until - time.monotonic()))
                found = self._query_client.listed(read_point.round, asked, max(1.0, until - time.monotonic()))
            except Replaced:
                raise  # no later try can succeed
            except Unavailable:  # the stream has gone on, or a part of it is moving
                if time.monotonic() + _PAUSE > until:
                    raise
                time.sleep(_PAUSE)
            else:
                as_of = {"round": read_point.round[0], "clock": read_point.clock}
                queries = found[:limit]
                so_far: list[dict[str, int | None]] = [{"rows": each[2], "last_row": each[3]} for each in queries]
                last = queries[-1][0] if queries else None
                return Registered([each[1] for each in queries], last, as_of, so_far)

    def close(self) -> None:
        """Let go of all connections."""
        self._opened.close()
