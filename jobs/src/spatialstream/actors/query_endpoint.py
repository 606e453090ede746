"""The query endpoint of a running stream, at which it answers between rounds, and the client that calls its actors.

The worker's driver saves the *query endpoint* in the routing store: its address, the secret of query clients, the
certificate of its job, and the settings by which queries are validated. Every process that can read the routing store
can query. The driver returns the newest read point, and which actor has which slot; any actor answers
(:mod:`~spatialstream.actors.coordinator`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from pyarrow import flight

from spatialstream.actors.call_pool import CallPool
from spatialstream.actors.read_point import ReadPoint
from spatialstream.actors.wire import ActorLost, act, client_of, options, raised
from spatialstream.connectors.calls import called
from spatialstream.index.version import RoutingVersion
from spatialstream.local.catalogue import Page
from spatialstream.model.errors import Gone, Replaced, StateError, Suspended, Unavailable
from spatialstream.model.parsed_queries import packed, unpacked
from spatialstream.model.properties.declared import Properties
from spatialstream.model.queries import Nearest, Query
from spatialstream.model.regions import Box, Circle, Polygon
from spatialstream.model.space import Space
from spatialstream.model.terms import EVERYTHING, POLYGON_VERTICES, QUERY_WORDS, TermRule
from spatialstream.model.unicode_data import UNICODE
from spatialstream.stages.views import RoundId
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import read_named, read_suspended

__all__ = [
    "QUERY_ENDPOINT",
    "AskedQuery",
    "QueriesRefusedError",
    "QueryClient",
    "QueryEndpoint",
    "Request",
    "rows_in",
]

QUERY_ENDPOINT = "query-endpoint"
"""The name under which it is saved."""

_KNOWN_SECONDS = 5.0
"""For how long slots are assumed to stay, when choosing the actor to ask: any other actor gives the same answer."""

_STORE_SECONDS = 0.5
"""For which the store is asked why nobody answers, be the time over or not."""

_SILENT_SECONDS = 5.0
"""For how long an actor that has not answered is not asked, if there are others."""

_LEAST_SECONDS = 1.0
"""Least time for an answer, so that every try has a chance."""


@dataclass(frozen=True, slots=True)
class QueryEndpoint:
    """What a client needs to query a stream.

    Attributes:
        address: of the worker's driver.
        secret: of query clients; not shown by ``repr``.
        certificate: of the job; None: connections are not encrypted.
        space: of the stream, as text.
        stop_words, minimum_length, query_words, polygon_vertices: the stream's term rule.
        properties: declarations of the stream's properties.
        fields: those of its objects that it keeps.
        unicode: version of Unicode whose words its terms are; empty: it was left by a release that does not say so.
        ranking: whether it counts words, so that queries may rank by them.
        serves: which queries it takes.
        counts: whether it counts how often a text has each of its terms.
    """

    address: str
    secret: str
    certificate: str | None
    space: str
    stop_words: tuple[str, ...]
    minimum_length: int
    query_words: int = QUERY_WORDS
    polygon_vertices: int = POLYGON_VERTICES
    properties: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    unicode: str = ""
    ranking: bool = False
    serves: str = EVERYTHING
    counts: bool = False

    @classmethod
    def of(cls, endpoint: Mapping[str, Any], space: Space, rule: TermRule) -> QueryEndpoint:
        """From :attr:`~spatialstream.actors.engine.ActorEngine.query_endpoint` and the settings of a stream."""
        terms: dict[str, Any] = {
            "stop_words": tuple(sorted(rule.stop_words)),
            "minimum_length": rule.minimum_length,
            "query_words": rule.query_words,
            "polygon_vertices": rule.polygon_vertices,
            "ranking": rule.ranking,
            "serves": rule.serves,
            "counts": rule.counts,
            "properties": tuple(rule.properties.declarations),
            "fields": rule.fields or (),
        }
        return cls(**endpoint, **terms, space=str(space), unicode=UNICODE)

    def __repr__(self) -> str:
        """Without the secret."""
        return f"QueryEndpoint(address={self.address!r}, space={self.space!r})"

    @property
    def rule(self) -> TermRule:
        """The stream's term rule."""
        properties = Properties.parse(self.properties)
        limits = self.query_words, self.polygon_vertices, self.ranking
        stop_words, kept = frozenset(self.stop_words), self.fields
        return TermRule(stop_words, self.minimum_length, *limits, properties, kept, self.serves, self.counts)

    @property
    def kind(self) -> tuple[str, TermRule, str]:
        """The settings with which clients parse queries; queries parsed under equal ones are equal."""
        return self.space, self.rule, self.unicode

    def check_words(self) -> None:
        """Make sure that queries are split into the same terms here as in the stream.

        Raises:
            Unavailable: the stream extracts terms by another version of Unicode.
        """
        if self.unicode != UNICODE:
            theirs = f"with Unicode {self.unicode}" if self.unicode else "as an older release did"
            told = f"the stream extracts terms {theirs}, and this program with Unicode {UNICODE}"
            raise Unavailable(f"{told}: query it with the release that runs the stream")

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
        lists = {name: tuple(said.get(name, ())) for name in ("stop_words", "properties", "fields")}
        return cls(**{**said, **lists})


class AskedQuery(NamedTuple):
    """A query of a request.

    Attributes:
        query: a snapshot query; its time does not matter if it is not ``timed``.
        timed: whether it has a time; otherwise its time is the clock.
        checked: its time as it was given, if one is to be refused that looks like another unit than ms.
    """

    query: Query
    timed: bool = False
    checked: int | str | None = None


class Request(NamedTuple):
    """What a client asks of an actor.

    Attributes:
        asked: the queries; they are numbered in this order.
        seconds: for the answers to arrive.
        at_least: ms: no answer before the clock has reached this time; None: at once.
        largest: bytes of the rows together, at most; None: any number.
    """

    asked: Sequence[AskedQuery]
    seconds: float
    at_least: int | None = None
    largest: int | None = None

    def to_json(self) -> bytes:
        """For :meth:`~spatialstream.actors.coordinator.QueryCoordinator.ask`."""
        forms = [(packed(query), timed, checked) for query, timed, checked in self.asked]
        return json.dumps(self._replace(asked=forms)).encode()  # type: ignore[arg-type]

    @classmethod
    def of_json(cls, body: bytes) -> Request:
        """From :meth:`to_json`."""
        forms, *rest = json.loads(body)
        return cls([AskedQuery(unpacked(form), *times) for form, *times in forms], *rest)


class QueriesRefusedError(Exception):
    """Queries have invalid times, or times that are still in the future; no query of the request is answered.

    Attributes:
        reasons: by the number of the query.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


def rows_in(messages: Iterable[bytes]) -> Iterator[tuple[list[int], list[bytes]]]:
    """The numbers of queries and their rows, from the messages of a coordinator.

    Raises:
        QueriesRefusedError: see there.
        Exception: the one that a message carries.
    """
    for message in messages:
        head, *rows = message.split(b"\n")
        header = json.loads(head)
        if "refused" in header:
            raise QueriesRefusedError({int(number): reason for number, reason in header["refused"].items()})
        if "failed" in header:
            raise raised(header["failed"])
        yield header["numbers"], rows


@dataclass(frozen=True, slots=True)
class _Known:
    """What the driver said last; it may have changed since.

    Attributes:
        record: of the newest read point; empty: no round is done.
        versions: routing versions that have been loaded.
        since: s of the monotonic clock.
        actors: address of the actor of each slot, without slots that are moving.
        parts: address of the actor of each part of MERGE; None while it is moving.
    """

    record: Mapping[str, Any]
    versions: dict[int, RoutingVersion]
    since: float
    actors: Mapping[int, str] = field(init=False)
    parts: Mapping[int, str | None] = field(init=False)

    def __post_init__(self) -> None:
        actors, parts = ({int(i): at for i, at in self.record.get(each, {}).items()} for each in ("actors", "parts"))
        object.__setattr__(self, "actors", {slot: address for slot, address in actors.items() if address})
        object.__setattr__(self, "parts", parts)


class QueryClient:
    """Calls a stream's driver and actors; thread-safe.

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
        self._versions: dict[int, RoutingVersion] = {}
        self._loading: dict[int, Future[RoutingVersion]] = {}
        self._known = _Known({}, {}, float("-inf"))
        self._silent: dict[str, float] = {}
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
        return dict(self._known.actors)

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
        known = self._located(seconds)
        if not known.record:
            return None
        return ReadPoint.of(known.record, lambda number: self._version(number, known.versions, until))

    def _located(self, seconds: float) -> _Known:
        """Ask the driver; errors as of :meth:`newest`."""
        until = time.monotonic() + seconds
        with self._lock:
            query_endpoint, versions = self.query_endpoint, self._versions
        if query_endpoint.kind != self._stream:
            raise Replaced("the stream was created again with another space or term rule: connect to it again")
        if self._suspended:  # there may be nobody, and to find that out takes all the time there is
            self._suspended = False
            self._look_for_another(0.0)
            self._check_suspended()
        how = options(query_endpoint.secret, seconds)
        try:
            client = self._client(query_endpoint, query_endpoint.address)
            record = act(client, "read_point", b"", how, query_endpoint.address)
        except ActorLost as error:
            self._forget(query_endpoint.address)
            self._look_for_another(until - time.monotonic())
            self._check_suspended()
            raise Unavailable(f"the stream's worker does not answer: {error}") from None
        if record is None:
            self._check_begun(until - time.monotonic())
        self._known = known = _Known(record or {}, versions, time.monotonic())
        self._keep(known)
        return known

    def _check_suspended(self) -> None:
        """Make sure that the stream is not suspended, according to the last look-up.

        Raises:
            Suspended: it is.
        """
        if self._suspended:
            raise Suspended("the stream is suspended: it answers no queries until it is resumed")

    def _check_begun(self, seconds: float) -> None:
        """Make sure that there has been no round yet, if the worker's driver knows of none.

        Raises:
            Unavailable: there has been one: the worker has just started, and has not read its state yet.
        """
        named = called(lambda: read_named(self._store))
        try:
            begun = named.result(max(0.0, seconds)) is not None
        except (TimeoutError, Unavailable):
            return
        if begun:
            raise Unavailable(
                "the stream's worker has just started, and has not read its state yet: try again in a moment"
            )

    def _keep(self, known: _Known) -> None:
        """Drop versions that no query uses any more, and what is known of actors that have gone."""
        with self._lock:
            if known.record:
                numbers = {known.record["version"], *(past[0] for past in known.record["past"])}
                for number in known.versions.keys() - numbers:
                    del known.versions[number]
            addresses = {self.query_endpoint.address, *known.actors.values(), *known.parts.values()}
            self._clients = {address: client for address, client in self._clients.items() if address in addresses}
            self._silent = {address: until for address, until in self._silent.items() if address in addresses}

    def ask(self, request: Request) -> Generator[tuple[list[int], list[bytes]]]:
        """Have an actor answer queries, see :func:`rows_in`.

        What is not read to the end is not found to the end.

        Raises:
            ActorLost: the actor does not answer; another one is asked next time.
            Unavailable: there is no answer now; see also :meth:`newest`.
            TooLarge: the rows would be larger than they may be, or what is found.
        """
        until = time.monotonic() + request.seconds
        address = self._coordinator(request.asked[0].query, request.seconds)
        left = max(_LEAST_SECONDS, until - time.monotonic())
        try:
            with closing(self._messages(address, request._replace(seconds=left))) as messages:
                yield from rows_in(messages)
        except (Gone, ActorLost):
            self._known = replace(self._known, since=float("-inf"))  # something is elsewhere now
            raise

    def _messages(self, address: str, request: Request) -> Generator[bytes]:
        """The messages of a coordinator."""
        first_timeout = max(_LEAST_SECONDS, request.seconds / 2)  # leaves time for another one
        given = address, self.query_endpoint.secret, request.to_json(), request.seconds, first_timeout
        try:
            with closing(self._asking.ask(*given)) as messages:
                yield from messages
        except ActorLost:
            self._forget(address)
            self._silent[address] = time.monotonic() + _SILENT_SECONDS
            raise

    def _coordinator(self, query: Query, seconds: float) -> str:
        """The address of an actor that answers, best of the one that has most of a query's answer.

        Raises:
            Unavailable: there is none; see :meth:`newest`.
        """
        located, now = self._known, time.monotonic()
        if now > located.since + _KNOWN_SECONDS:
            located = self._located(seconds)
        if not located.record:
            raise Unavailable("the stream has just started: it has not completed a round yet")
        if not located.actors:
            raise Gone("the stream's slots are moving: try again")
        best = None
        with suppress(Unavailable):  # where that is may be not known yet
            best = located.actors.get(_slot_of(query, self._version(located.record["version"], located.versions, now)))
        others = list(dict.fromkeys(located.actors.values()))
        heard = [address for address in (best, *others) if address is not None and self._silent.get(address, 0.0) < now]
        return heard[0] if heard else others[0]

    def listed(self, round_id: RoundId, asked: Mapping[str, Any], seconds: float) -> Page:
        """The continuous queries of all parts of MERGE as of a round, by number.

        If a part ends early, so does the whole: what other parts have after its end is left out.

        See :func:`~spatialstream.stages.views.listed`.

        Raises:
            Unavailable: a part does not answer; Gone: it does not have that round.
        """
        query_endpoint, parts = self.query_endpoint, self._known.parts
        if not parts or None in parts.values():
            raise Gone("a part of MERGE is moving: try again")

        def of_part(part: int, address: str) -> Page:
            body = json.dumps({"part": part, "round": round_id, "asked": asked}).encode()
            try:
                queries, cut = act(
                    self._client(query_endpoint, address),
                    "listed",
                    body,
                    options(query_endpoint.secret, seconds),
                    address,
                )
            except ActorLost:
                self._forget(address)
                raise
            return Page([(int(number), record, int(rows), last) for number, record, rows, last in queries], bool(cut))

        calls = [called(partial(of_part, part, str(address))) for part, address in parts.items()]
        return joined([call.result() for call in calls])

    def _client(self, query_endpoint: QueryEndpoint, address: str) -> flight.FlightClient:
        with self._lock:
            if address not in self._clients:
                root = None if query_endpoint.certificate is None else query_endpoint.certificate.encode()
                self._clients[address] = client_of(address, root)
            return self._clients[address]

    def _forget(self, address: str) -> None:
        with self._lock:
            self._clients.pop(address, None)

    def _version(self, number: int, known: dict[int, RoutingVersion], until: float) -> RoutingVersion:
        """A routing version, loaded once; right after its adoption the store may be unreachable.

        Raises:
            Unavailable: the store did not return it by then, s of the monotonic clock, or has it no longer, because it
                was removed after the worker had passed it. If it returns the version later, the next call finds it.
        """
        if number not in known:
            with self._lock:
                loading = self._loading.get(number)
                if loading is None:
                    loading = self._loading[number] = called(partial(self._store.load, number))
            try:
                known[number] = loading.result(max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise Unavailable(
                    "the stream's objects are being moved, and their new places are not known yet: try again"
                ) from None
            except StateError:
                raise Unavailable("the stream has advanced meanwhile: try again") from None
            finally:
                if loading.done():
                    with self._lock:
                        self._loading = {each: one for each, one in self._loading.items() if one is not loading}
        return known[number]


def joined(pages: Iterable[Page]) -> Page:
    """The pages of several parts as one."""
    pages = list(pages)
    upto = min((page.queries[-1][0] for page in pages if page.cut), default=None)
    found = sorted((each for page in pages for each in page.queries), key=lambda each: each[0])
    return Page([each for each in found if upto is None or each[0] <= upto], upto is not None)


def _slot_of(query: Query, version: RoutingVersion) -> int:
    """A slot that is likely to have most of an answer."""
    match query.selection, query.predicate.region:
        case Nearest(x, y), _:
            at = x, y
        case _, Box(west, south, east, north):
            at = (west + east) / 2, (south + north) / 2
        case _, Circle(x, y):
            at = x, y
        case _, Polygon(box=(west, south, east, north)):
            at = (west + east) / 2, (south + north) / 2
        case _:
            return 0
    return int(version.mapping[version.index.nearest_leaves(np.array([at]))[0]])
