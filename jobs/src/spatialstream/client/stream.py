"""A running stream, for programs: ``with spatialstream.connect("dev") as stream: stream.ask(SRQ(...))``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from spatialstream.actors.query_endpoint import QueryClient
from spatialstream.client.answer import Answer
from spatialstream.client.area_queries import AreaQuery, Refreshed, area_queries, refresh
from spatialstream.client.areas import Areas
from spatialstream.client.description import StreamDescription
from spatialstream.client.registered import RegisteredQueries
from spatialstream.client.snapshot_client import SnapshotClient
from spatialstream.connectors.kafka import Connection
from spatialstream.model.areas import with_area
from spatialstream.model.errors import RecordError, Replaced, SettingError, StateError, Suspended, Unavailable
from spatialstream.model.objects import SpatialObject, parse_object
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.space import Space
from spatialstream.model.times import looks_like, looks_unlike
from spatialstream.model.typed_queries import ContinuousQuery, SnapshotQuery, TypedQuery, as_record
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import TimeLimits, read_limits
from spatialstream.store.tls import TlsFiles
from spatialstream.store.zookeeper import ZooKeeperStore

if TYPE_CHECKING:
    from spatialstream.client.record_writer import RecordWriter
    from spatialstream.client.subscription import Subscription

__all__ = ["RegisteredQueries", "Stream", "TimeLimits", "connect"]

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
    """Connect to a running stream, to query it, to watch it and to send objects.

    Args:
        stream: the stream's name.
        zookeeper: addresses of ZooKeeper, ``host:port,...``.
        broker: addresses of the broker, or a connection; used only to register, cancel, watch and send.
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


class Stream:
    """A running stream; made by :func:`connect`. Safe for several threads.

    Args:
        store: the stream's routing store.
        opened: closed with it.
        broker: how to reach its topics; None: it can be asked and described only.
        name: the stream's name.

    Attributes:
        space, rule: of the stream.
        snapshots: has snapshot queries answered as lines of JSON, also several requests together, and knows the read
            point; for servers, and other programs that do not need the answers as objects.

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
            endpoint = query_client.query_endpoint
            self.space, self.rule = Space.parse(endpoint.space), endpoint.rule
            self.snapshots = SnapshotClient(query_client.newest, query_client.ask, self.space, self.rule)
            self._description = StreamDescription(store, lambda: query_client.actors)
            self._store, self._limits = store, (float("-inf"), TimeLimits())
            self._query_client, self._opened = query_client, closing.pop_all()

    def as_of(self, timeout: float = 10.0) -> dict[str, int] | None:
        """Return the round and the clock as of which a query would be answered now; None before the clock has started.

        Args:
            timeout: seconds to wait for the stream.

        Raises:
            Unavailable: it does not answer in time.
        """
        return self.snapshots.as_of(timeout)

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

        See :meth:`spatialstream.client.description.StreamDescription.describe`; and ``serves`` is what the stream
        serves, ``everything`` or ``subscriptions``.

        Raises:
            StateError: there is no such stream any more.
            Unavailable: the store cannot be reached.
        """
        return {"serves": self.rule.serves} | self._description.describe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @overload
    def ask(
        self,
        query: SnapshotQuery | Mapping[str, Any],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> Answer: ...

    @overload
    def ask(
        self,
        query: Iterable[SnapshotQuery | Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> list[Answer]: ...

    def ask(
        self,
        query: SnapshotQuery | Mapping[str, Any] | Iterable[SnapshotQuery | Mapping[str, Any]],
        *,
        at_least: int | str | None = None,
        timeout: float = 10.0,
        sure: bool = False,
    ) -> Answer | list[Answer]:
        """Return the answer to a snapshot query, or the answers to several, in their order.

        An answer is the row that the stream gives for the query, which a notebook displays on a map, with ``as_of``,
        such as ``{"round": 17, "clock": 1000}``: all objects with timestamps up to ``clock`` have been considered.

        Args:
            query: a snapshot query, or its record. Without ``t`` its time is the clock; with a ``t`` in the past it
                considers the objects up to then. Without ``id`` it gets one.
            at_least: ms or ISO 8601: wait until the clock has reached this time.
            timeout: seconds for the answers to arrive, including the wait for ``at_least``, and retries if the stream
                cannot be reached or proceeds to another round meanwhile. At least one try of a second is made.
            sure: accept numeric times as ms even if they look like another unit.

        Raises:
            SettingError: a query is not a snapshot query of this stream, it is of an area that the stream does not
                know, or its time is later than the clock or looks like another unit than ms; names the query, and says
                what would be right.
            Unavailable: there is no answer in time; a later try may succeed.
            Suspended: the stream is suspended; raised as soon as that is known.
            Replaced: the stream has been replaced by another one of its name.
        """
        if isinstance(query, SnapshotQuery | Mapping):
            return self.snapshots.ask(self._record("query", query), at_least=at_least, timeout=timeout, sure=sure)
        records = [self._record(f"query {number}", each) for number, each in enumerate(query)]
        return self.snapshots.ask(records, at_least=at_least, timeout=timeout, sure=sure)

    def register(self, query: ContinuousQuery | Mapping[str, Any], *, timeout: float = 30.0) -> dict[str, Any]:
        """Register a continuous query, and return its record when it is registered.

        The query stays registered until its duration is over or it is cancelled; :meth:`watch` follows its rows.
        An identical query that is registered already is no error.

        Args:
            query: a continuous query, or its record. Without ``t`` it starts at the stream's clock; without ``id`` it
                gets one, which is in the record that is returned.
            timeout: seconds within which it must be registered.

        Raises:
            SettingError: it is not a continuous query of this stream, it is of an area that the stream does not know,
                or its id belongs to another query.
            Unavailable: the broker or the stream does not answer in time; the query may be registered nevertheless.
        """
        with self.watch(query, timeout=timeout) as subscription:
            return subscription.query

    def cancel(self, id: str, *, timeout: float = 30.0) -> None:
        """Cancel a continuous query, and return when it is no longer registered.

        Args:
            id: the query's id.
            timeout: seconds within which it must be cancelled.

        Raises:
            SettingError: no query of this id is registered.
            Unavailable: the broker or the stream does not answer in time; the query may be cancelled nevertheless.
        """
        until, writer = time.monotonic() + timeout, self._record_writer
        registered = self.query(id, timeout).queries
        if not registered:
            raise SettingError("query", f"no query with the id {id!r} is registered")
        as_of = self.as_of(timeout)
        t = registered[0]["t"] if as_of is None else max(registered[0]["t"], as_of["clock"])
        writer.queries({"id": id, "type": "CANCEL", "t": t})
        while self.query(id, max(1.0, until - time.monotonic())).queries[:1] == registered:
            if time.monotonic() > until:
                raise Unavailable(f"the stream has not cancelled the query {id!r} in time")
            time.sleep(_PAUSE)

    def send(self, objects: Mapping[str, Any] | Iterable[Mapping[str, Any]], *, sure: bool = False) -> int:
        """Send objects to the stream, all or none, and return their number when the broker has them.

        The stream rejects objects whose times are beyond its limits (retention, and how far ahead of the wall clock
        times may be); they become dead letters.

        Args:
            objects: a record or several, in the JSON form of objects.
            sure: accept numeric times as ms even if they look like another unit.

        Raises:
            SettingError: an object is unusable, and which; or their times look as if they were not ms.
            Unavailable: the broker may not have all of them.
        """
        records = [objects] if isinstance(objects, Mapping) else list(objects)
        parsed = [self._parsed(number, record) for number, record in enumerate(records)]
        if not sure:
            self._check_times(parsed)
        if records:
            self._record_writer.objects(b"".join(json.dumps(dict(record)).encode() + b"\n" for record in records))
        return len(records)

    def _parsed(self, number: int, record: Mapping[str, Any]) -> SpatialObject:
        """An object, which is checked."""
        try:
            return parse_object(dict(record), self.space, self.rule)
        except RecordError as error:
            raise SettingError(f"object {number}", str(error)) from None

    def _check_times(self, objects: Sequence[SpatialObject]) -> None:
        """Refuse times that look as if they were not ms."""
        properties = PropertyColumns.of([each.properties for each in objects])
        for name, t in [("", np.array([each.t for each in objects], np.int64)), *properties.times()]:
            if looks_like(t) is None:
                continue
            as_of = self.as_of()
            if problem := looks_unlike(t, time.time_ns() // 1_000_000 if as_of is None else as_of["clock"], name):
                raise SettingError("objects", f"{name or 't'}: {problem}, or sure=True if they are right")

    @cached_property
    def areas(self) -> Areas:
        """The areas that the stream knows by name; what they do may raise Unavailable.

        Raises:
            SettingError: the stream was opened without a broker.
        """
        return Areas(self._reached_broker(), self._name, self.space, self.rule)

    def area_queries(self) -> Iterator[AreaQuery]:
        """The registered queries of areas, and whether they have the geometry that their area has now.

        Raises:
            Unavailable: the broker or the stream does not answer in time.
        """
        return area_queries(self, self.areas.table())

    def refresh(self, area: str, *, timeout: float = 60.0) -> Refreshed:
        """Register those queries of an area anew that have another geometry than it has now.

        All of them end at one instant of the stream's time and begin again at the same one: no object is missed, and
        none is matched by both. A query ends when it would have ended. Windows of a CKQ and a CTQ begin empty.

        Args:
            area: the area's name.
            timeout: seconds within which that must be done.

        Raises:
            SettingError: there is no such area.
            Unavailable: the broker or the stream does not answer in time; some queries may be registered anew.
        """
        table = self.areas.table()
        return refresh(self, self.areas.get(area), table, self._record_writer, timeout)

    def _record(self, place: str, query: TypedQuery | Mapping[str, Any]) -> Mapping[str, Any]:
        """The record of a query, with the polygon of the area that it names."""
        try:
            record: Mapping[str, Any] = with_area(as_record(query), lambda: self.areas.table())
        except RecordError as error:
            raise SettingError(place, str(error)) from None
        return record

    @cached_property
    def _record_writer(self) -> RecordWriter:
        from spatialstream.client.record_writer import RecordWriter

        return RecordWriter(self._reached_broker(), self._name)

    def _reached_broker(self) -> Connection:
        if self._broker is None:
            raise SettingError("broker", "is required for this; give its address")
        return self._broker

    def queries(self, after: int = -1, limit: int = 100, timeout: float = 10.0) -> RegisteredQueries:
        """Return a page of the registered continuous queries with their row counts, in the order of registration.

        Args:
            after: :attr:`RegisteredQueries.last` of the previous page.
            limit: most queries to return; fewer are returned if their polygons have 50,000 vertices or more.
            timeout: seconds to wait for the stream.

        Raises:
            Unavailable: it does not answer in time.
        """
        return self._registered({"after": after, "limit": limit}, timeout, limit)

    def query(self, id: str, timeout: float = 10.0) -> RegisteredQueries:
        """Return the continuous query of an id, if it is registered; ``timeout`` and errors as in :meth:`queries`."""
        return self._registered({"id": id}, timeout, 1)

    def watch(
        self,
        query: ContinuousQuery | Mapping[str, Any] | str,
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
            query: a continuous query, or its record, which is registered unless an identical query with its id already
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

        given = query if isinstance(query, str) else self._record("query", query)
        return Subscription(self, self._reached_broker(), self._name, given, after, cancel, patience, timeout)

    def _registered(self, asked: Mapping[str, Any], timeout: float, limit: int) -> RegisteredQueries:
        until = time.monotonic() + timeout
        while True:
            try:
                read_point = self.snapshots.read_point(max(1.0, until - time.monotonic()))
                page = self._query_client.listed(read_point.round, asked, max(1.0, until - time.monotonic()))
            except (Replaced, Suspended):
                raise  # no retry can succeed, or is likely to
            except Unavailable:  # the stream has proceeded to another round, or a slot is moving
                if time.monotonic() + _PAUSE > until:
                    raise
                time.sleep(_PAUSE)
            else:
                queries = page.queries[:limit]
                so_far: list[dict[str, Any]] = [{"rows": each[2], "last_row": each[3]} for each in queries]
                last = queries[-1][0] if queries else None
                records = [each[1] for each in queries]
                return RegisteredQueries(records, last, read_point.as_of, so_far, page.cut and len(queries) < limit)

    def close(self) -> None:
        """Close all connections."""
        self._opened.close()
