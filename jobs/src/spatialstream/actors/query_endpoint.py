"""The query endpoint of a running stream, at which it answers between rounds, and the client that calls its slots.

The worker's driver saves the *query endpoint* in the routing store: its address, the secret of query clients, the
certificate of its job, and the settings by which queries are validated. Whoever can read the routing store can query.
The driver returns the newest read point, and which actor has which slot; the actors answer.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import flight

from spatialstream.actors.block_buffer import BlockBuffer
from spatialstream.actors.call_pool import CallPool
from spatialstream.actors.wire import ActorLost, act, answering, client_of, options, received
from spatialstream.connectors.calls import called
from spatialstream.index.version import RoutingVersion
from spatialstream.local.catalogue import Listed
from spatialstream.model.errors import Gone, Replaced, StateError, Suspended, Unavailable
from spatialstream.model.queries import Nearest, Query
from spatialstream.model.regions import Box, Circle
from spatialstream.model.schema import QUERY_FIELDS
from spatialstream.model.space import Space
from spatialstream.model.terms import QUERY_WORDS, TermRule
from spatialstream.model.unicode_data import UNICODE
from spatialstream.stages import messages
from spatialstream.stages.messages import Block
from spatialstream.stages.snapshot_queries import ReadPoint
from spatialstream.stages.views import RoundId
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import read_named, read_suspended

__all__ = ["QUERY_ENDPOINT", "QueryClient", "QueryEndpoint"]

QUERY_ENDPOINT = "query-endpoint"
"""The name under which it is saved."""

_KNOWN_SECONDS = 5.0
"""For how long slots are assumed to stay, when choosing the actor to ask: any other actor gives the same answer."""

_STORE_SECONDS = 0.5
"""For which the store is asked why nobody answers, be the time over or not."""

_ROOM = 4 << 20
"""Bytes of what several actors have found that wait for who asks, about; with more, they wait."""

_WHOLE_AGAIN_SECONDS = 1.0
"""For how long no actor is given complete queries after one of them has not answered."""


@dataclass(frozen=True, slots=True)
class QueryEndpoint:
    """What a client needs to query a stream.

    Attributes:
        address: of the worker's driver.
        secret: of query clients; not shown by ``repr``.
        certificate: of the job; None: connections are not encrypted.
        space: of the stream, as text.
        stop_words, minimum_length, query_words: the stream's term rule.
        unicode: version of Unicode whose words its terms are; empty: it was left by a release that does not say so.
        longest: bytes of a row, of a longer one there is only the reason why it is not given; None: of any length.
    """

    address: str
    secret: str
    certificate: str | None
    space: str
    stop_words: tuple[str, ...]
    minimum_length: int
    query_words: int = QUERY_WORDS
    unicode: str = ""
    longest: int | None = None

    @classmethod
    def of(cls, endpoint: Mapping[str, Any], space: Space, rule: TermRule, longest: int | None = None) -> QueryEndpoint:
        """From :attr:`~spatialstream.actors.engine.ActorEngine.query_endpoint` and the settings of a stream."""
        terms: dict[str, Any] = {
            "stop_words": tuple(sorted(rule.stop_words)),
            "minimum_length": rule.minimum_length,
            "query_words": rule.query_words,
        }
        return cls(**endpoint, **terms, space=str(space), unicode=UNICODE, longest=longest)

    def __repr__(self) -> str:
        """Without the secret."""
        return f"QueryEndpoint(address={self.address!r}, space={self.space!r})"

    @property
    def rule(self) -> TermRule:
        """The stream's term rule."""
        return TermRule(frozenset(self.stop_words), self.minimum_length, self.query_words)

    @property
    def kind(self) -> tuple[str, TermRule, str]:
        """What a query is read by."""
        return self.space, self.rule, self.unicode

    def check_words(self) -> None:
        """Refuse to ask where the words of a query would be others here than in the stream.

        Raises:
            Unavailable: its terms are those of another version of Unicode.
        """
        if self.unicode != UNICODE:
            theirs = f"of Unicode {self.unicode}" if self.unicode else "of an older release"
            told = f"the stream's words are {theirs}, and this program's of Unicode {UNICODE}"
            raise Unavailable(f"{told}: ask with the release that the stream runs")

    def save(self, store: RoutingStore) -> None:
        """Save it in the routing store.

        Raises:
            Unavailable: the store cannot be reached.
        """
        store.save_statistics(QUERY_ENDPOINT, {}, asdict(self))

    @classmethod
    def read(cls, store: RoutingStore) -> QueryEndpoint:
        """Load it from the routing store.

        Raises:
            Unavailable: there is none, or the store cannot be reached.
        """
        kept = store.load_statistics(QUERY_ENDPOINT)
        if kept is None:
            raise Unavailable("the query endpoint is not known: no worker of the stream has run yet")
        known = {each.name for each in fields(cls)}  # one of a newer release may say more
        said = {name: value for name, value in kept[1].items() if name in known}
        return cls(**{**said, "stop_words": tuple(said["stop_words"])})


@dataclass(frozen=True, slots=True)
class _Known:
    """Where slots are, as the driver said last; it may have changed since.

    Attributes:
        actors: address of the actor of each slot.
        version: the routing version, which says where objects are.
        since: s of the monotonic clock.
    """

    actors: Mapping[int, str]
    version: RoutingVersion
    since: float = field(default_factory=time.monotonic)


class QueryClient:
    """Calls a stream's driver and slots; thread-safe.

    Args:
        store: the routing store.

    Raises:
        Unavailable: the store cannot be reached, no worker of the stream has run yet, or its words are others than
        here.
    """

    def __init__(self, store: RoutingStore) -> None:
        self._store, self._lock = store, threading.Lock()
        self._query_endpoint: QueryEndpoint | None = None
        self._clients: dict[str, flight.FlightClient] = {}
        self._asking = CallPool("ask", lambda address: self._client(self.query_endpoint, address))
        self._actors: dict[int, str] = {}
        self._parts: dict[int, str | None] = {}
        self._versions: dict[int, RoutingVersion] = {}
        self._loading: dict[int, Future[RoutingVersion]] = {}
        self._known: _Known | None = None
        self._whole_from = float("-inf")
        self._suspended = False
        self._looking = Future[None]()
        self._looking.set_result(None)
        self.query_endpoint.check_words()
        self._stream = self.query_endpoint.kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._asking.close()
        for client in self._clients.values():
            client.close()

    @property
    def query_endpoint(self) -> QueryEndpoint:
        """The query endpoint, as loaded last."""
        if self._query_endpoint is None:
            self._query_endpoint = QueryEndpoint.read(self._store)
        return self._query_endpoint

    @property
    def actors(self) -> dict[int, str]:
        """The address of the actor of each slot, as the driver said last, without slots that are moving."""
        return dict(self._actors)

    def _look_for_another(self, seconds: float) -> None:
        """Reload the query endpoint, which a new driver replaces; if the store is unreachable, the known one is kept.

        Waits for a slow store no longer than ``seconds``; its answer is used when it comes.
        """
        with self._lock:
            if self._looking.done():
                self._looking = called(self._look)
            looking = self._looking
        with suppress(TimeoutError, Unavailable):
            looking.result(max(_STORE_SECONDS, seconds))

    def _look(self) -> None:
        with suppress(StateError):  # what is damaged says nothing
            self._suspended = read_suspended(self._store)
        found = QueryEndpoint.read(self._store)
        with self._lock:
            if found != self._query_endpoint:
                # a stream that was removed and created again has different versions with the same numbers
                self._query_endpoint, self._versions, self._loading = found, {}, {}

    def newest(self, seconds: float) -> ReadPoint | None:
        """The read point of the newest round that is done; None if none is.

        Args:
            seconds: timeout of the driver's answer.

        Raises:
            Unavailable: it does not.
            Suspended: it cannot: the stream is at rest.
            Replaced: the stream is another one now.
        """
        until = time.monotonic() + seconds
        with self._lock:
            query_endpoint, versions = self.query_endpoint, self._versions
        if query_endpoint.kind != self._stream:
            raise Replaced("the stream was created again with another space or term rule: connect to it again")
        if self._suspended:  # there may be nobody, and to find that out takes all the time there is
            self._suspended = False
            self._look_for_another(0.0)
            self._check_suspended()
        try:
            known = act(
                self._client(query_endpoint, query_endpoint.address),
                "read_point",
                b"",
                options(query_endpoint.secret, seconds),
                query_endpoint.address,
            )
        except ActorLost as error:
            self._forget(query_endpoint.address)
            self._look_for_another(until - time.monotonic())
            self._check_suspended()
            raise Unavailable(f"the stream's worker does not answer: {error}") from None
        if known is None:
            self._check_begun(until - time.monotonic())
            return None
        self._actors = {int(slot): address for slot, address in known["actors"].items() if address}
        self._parts = {int(part): address for part, address in known["parts"].items()}
        read_point = ReadPoint.of(known, lambda number: self._version(number, versions, until - time.monotonic()))
        self._known = _Known(self._actors, read_point.routing.active)
        self._keep(
            {known["version"], *(past[0] for past in known["past"])}, {query_endpoint.address, *self._actors.values()}
        )
        return read_point

    def _check_suspended(self) -> None:
        """Make sure that the stream is not at rest on purpose, by what was found last.

        Raises:
            Suspended: it is.
        """
        if self._suspended:
            raise Suspended("the stream is suspended: nobody answers until it goes on")

    def _check_begun(self, seconds: float) -> None:
        """Make sure that there has been no round yet, if the worker's driver knows of none.

        Raises:
            Unavailable: there has been one: the worker has restarted, and has not read its state yet.
        """
        named = called(lambda: read_named(self._store))
        try:
            begun = named.result(max(0.0, seconds)) is not None
        except (TimeoutError, Unavailable):
            return
        if begun:
            raise Unavailable("the stream's worker has restarted, and has not read its state yet")

    def _keep(self, versions: set[int], addresses: set[str]) -> None:
        """Drop versions that no query uses any more, and clients of actors that have gone."""
        with self._lock:
            self._versions = {number: version for number, version in self._versions.items() if number in versions}
            addresses |= {address for address in self._parts.values() if address is not None}
            self._clients = {address: client for address, client in self._clients.items() if address in addresses}

    def call(
        self, slots: Sequence[int], round_id: RoundId, query_block: pa.RecordBatch, seconds: float
    ) -> Generator[Block]:
        """Ask slots, see :data:`~spatialstream.stages.snapshot_queries.Call`.

        They find little more than what is taken, and nothing for one who takes no more rows.
        """
        groups: dict[str, list[int]] = {}
        for slot in slots:
            if slot not in self._actors:
                raise Gone(f"slot {slot} is moving: try again")
            groups.setdefault(self._actors[slot], []).append(slot)
        given = round_id, messages.pack(query_block), seconds
        if len(groups) == 1:
            ((address, mine),) = groups.items()
            yield from self._answer(address, mine, *given)
            return
        buffer = BlockBuffer(len(groups), lambda: None, _ROOM)

        def read(address: str, mine: list[int]) -> None:
            try:
                with closing(self._answer(address, mine, *given)) as rows:
                    while not buffer.closed and (row := next(rows, None)) is not None:
                        buffer.write(row)
            except Exception as error:  # noqa: BLE001 - it is raised where the rows are taken
                buffer.end(error)
            else:
                buffer.end()

        try:
            for address, mine in groups.items():
                called(partial(read, address, mine))
            yield from buffer
        finally:
            buffer.close()

    def ask(
        self, query_block: Sequence[tuple[Query, Mapping[str, Any]]], seconds: float, most: int | None = None
    ) -> tuple[dict[str, int], list[bytes]] | None:
        """Have one actor answer queries completely, as of the newest round, at its watermark; see actors.coordinator.

        Args:
            query_block: the queries and their records, without times.
            seconds: timeout.
            most: bytes of the rows, which come all at once; None: any number.

        Returns:
            ``as_of`` and rows; None: not possible at present, but :meth:`newest` and :meth:`call` may work.
        """
        now, known = time.monotonic(), self._known
        if known is None or now < self._whole_from or now > known.since + _KNOWN_SECONDS:
            return None
        address = known.actors.get(_slot_of(query_block[0][0], known.version))
        if address is None:
            return None
        asked = [{name: value for name, value in record.items() if name in QUERY_FIELDS} for _, record in query_block]
        try:
            body = json.dumps({"asked": asked, "seconds": seconds, "most": most}).encode()
        except (TypeError, ValueError, RecursionError):  # values of the program's own types
            return None
        try:
            head, *lines = self._asking.ask(address, self.query_endpoint.secret, body, seconds).split(b"\n")
            answered = json.loads(head)
        except ActorLost:
            self._forget(address)
            self._known, self._whole_from = None, time.monotonic() + _WHOLE_AGAIN_SECONDS
            return None
        if "failed" in answered:
            self._known = None
            return None
        return None if answered["answer"] is None else (answered["answer"], lines)

    def listed(self, round_id: RoundId, asked: Mapping[str, Any], seconds: float) -> list[Listed]:
        """The continuous queries of all parts of MERGE as of a round, by number.

        See :func:`~spatialstream.stages.views.listed`.

        Raises:
            Unavailable: a part does not answer; Gone: it does not have that round.
        """
        query_endpoint, parts = self.query_endpoint, self._parts
        if not parts or None in parts.values():
            raise Gone("a part of MERGE is moving: try again")

        def of_part(part: int, address: str) -> list[Listed]:
            body = json.dumps({"part": part, "round": round_id, "asked": asked}).encode()
            try:
                found = act(
                    self._client(query_endpoint, address),
                    "listed",
                    body,
                    options(query_endpoint.secret, seconds),
                    address,
                )
            except ActorLost:
                self._forget(address)
                raise
            return [(int(number), record, int(rows), last) for number, record, rows, last in found]

        calls = [called(partial(of_part, part, str(address))) for part, address in parts.items()]
        return sorted((each for call in calls for each in call.result()), key=lambda each: each[0])

    def _answer(
        self, address: str, slots: list[int], round_id: RoundId, query_block: pa.Buffer, seconds: float
    ) -> Generator[Block]:
        query_endpoint = self.query_endpoint
        head = json.dumps({"slots": slots, "round": round_id}).encode()
        ticket = flight.Ticket(head + b"\n" + query_block.to_pybytes())
        try:
            with answering(address):
                reader = self._client(query_endpoint, address).do_get(ticket, options(query_endpoint.secret, seconds))
        except ActorLost:
            self._forget(address)
            raise
        over = False
        try:
            yield from received(address, reader)
            over = True
        except ActorLost:
            self._forget(address)
            raise
        finally:
            if not over:
                reader.cancel()

    def _client(self, query_endpoint: QueryEndpoint, address: str) -> flight.FlightClient:
        with self._lock:
            if address not in self._clients:
                root = None if query_endpoint.certificate is None else query_endpoint.certificate.encode()
                self._clients[address] = client_of(address, root)
            return self._clients[address]

    def _forget(self, address: str) -> None:
        with self._lock:
            self._clients.pop(address, None)

    def _version(self, number: int, known: dict[int, RoutingVersion], seconds: float) -> RoutingVersion:
        """A routing version, loaded once; right after its adoption the store may be unreachable.

        Raises:
            Unavailable: the store did not return it within so many seconds, or has it no longer, because it was removed
                after the worker had passed it. What it gives later is there for who asks again.
        """
        if number not in known:
            with self._lock:
                loading = self._loading.get(number)
                if loading is None:
                    loading = self._loading[number] = called(partial(self._store.load, number))
            try:
                known[number] = loading.result(max(0.0, seconds))
            except TimeoutError:
                raise Unavailable(
                    "the stream's objects are being moved, and where they are is not known here yet: try again"
                ) from None
            except StateError:
                raise Unavailable("the stream has advanced meanwhile: try again") from None
            finally:
                if loading.done():
                    with self._lock:
                        self._loading = {each: one for each, one in self._loading.items() if one is not loading}
        return known[number]


def _slot_of(query: Query, version: RoutingVersion) -> int:
    """A slot that is likely to have most of an answer."""
    match query.selection, query.predicate.region:
        case Nearest(x, y), _:
            at = x, y
        case _, Box(west, south, east, north):
            at = (west + east) / 2, (south + north) / 2
        case _, Circle(x, y):
            at = x, y
        case _:
            return 0
    return int(version.mapping[version.index.nearest_leaves(np.array([at]))[0]])
