"""The HTTP interface: the paths, the rights they require, and the forms of their answers.

Every path is an :class:`Endpoint` that names the required right, so that nothing is served unchecked. An invalid
request raises a :class:`~spatialstream.gateway.problems.Problem`; an unexpected exception is logged, and answered as an
internal error without details.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spatialstream.client.cursor import Cursor
from spatialstream.client.snapshot_client import MOST
from spatialstream.gateway import areas, features, history, listing, logs
from spatialstream.gateway.access import Access, Caller
from spatialstream.gateway.answers import PARSED, AnswerRooms, Lines, Pieces, Room, as_collection, as_json
from spatialstream.gateway.asyncapi import events
from spatialstream.gateway.body_layouts import FORMS, PARAMETERS, body_layout
from spatialstream.gateway.console import Console, Pages
from spatialstream.gateway.feed import OLDEST
from spatialstream.gateway.following import EVENTS, JSON_LINES, Events, poll, rows_of
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.metrics import GatewayMetrics
from spatialstream.gateway.openapi import document
from spatialstream.gateway.problems import Problem, of_error
from spatialstream.gateway.rates import RateLimits, Rates, Taken
from spatialstream.gateway.requests import (
    check_media_type,
    check_parameters,
    duration,
    parsed,
    read_body,
    wanted_form,
)
from spatialstream.gateway.reviews import Reviewed
from spatialstream.gateway.stream_registry import StreamRegistry
from spatialstream.gateway.streams import ServedStream
from spatialstream.gateway.threads import CLIENT
from spatialstream.gateway.writing import Outcome, Writer
from spatialstream.model.errors import RecordError, SettingError, SpatialStreamError, Unavailable
from spatialstream.model.kinds import kind_of
from spatialstream.model.times import parse_time

__all__ = ["Gateway", "Limits"]

JSON = "application/json"
KNOWN = "known"
"""Instead of a right: the caller must be known, whatever its rights."""

_READY_SECONDS = 1.0
_MOST_QUERIES = 1_000
_OF_ANSWER = 8
"""By so much the memory is larger than an answer, at least: of half of it, which one client has, a row takes up to four
times as much as its bytes while it is text."""
_REFUSED = {"answer-too-large": "size", "no-memory": "memory"}
"""Problems of answers, as the metrics have them."""
_LONGEST_KEY = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests.

    Attributes:
        body: most bytes of a request's body.
        waiting: most bytes of objects being received, waiting to be sent or being sent, for each stream.
        answer: bytes of its answer.
        memory: bytes that requests and their answers take, of all streams together.
        heartbeat: seconds of silence after which a heartbeat is sent to a client that follows results.
        client: limits of each client.
        looking: most connections of one client on which the console shows objects as they are sent.
        head: seconds within which the head of a request must arrive.
        arrival: seconds within which a body must arrive.
        stalled: seconds within which a client must read some of the data waiting in its connection.
        recheck: seconds after which the right to an open connection is checked again.
        wait: ms that an answer is waited for unless the request says how long.
        poll: ms that a poll waits for rows unless the request says how long.
        longest_wait: most ms that a request may wait.
        clock: seconds for which the clock of a stream, once it is known, is used for the objects sent to it.
        clock_again: seconds after which a clock that did not come is asked for again.
    """

    body: int = 8 << 20
    waiting: int = 64 << 20
    answer: int = 32 << 20
    memory: int = 256 << 20
    heartbeat: float = 15.0
    client: RateLimits = field(default_factory=RateLimits)
    looking: int = 50
    head: float = 60.0
    arrival: float = 30.0
    stalled: float = 20.0
    recheck: float = 30.0
    wait: int = 10_000
    poll: int = 30_000
    longest_wait: int = 60_000
    clock: float = 1.0
    clock_again: float = 10.0

    def validate(self) -> None:
        """Check that the limits allow at least one request.

        Raises:
            SettingError: names the setting and says what would be right.
        """
        least = max(_OF_ANSWER * self.answer, 2 * PARSED * self.body)
        if self.memory < least:
            told = f"{self.memory} bytes are too few for bodies of {self.body} and answers of {self.answer}"
            raise SettingError("memory", f"{told}; give {least} at least, or make those smaller")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path with a method.

    Attributes:
        method: the HTTP method.
        path: the path, with parameters such as ``{stream}``.
        right: the right that the caller needs on the stream; :data:`KNOWN`: any, for a path without a stream; None: the
            path is public.
        answer: the handler.
    """

    method: str
    path: str
    right: str | None
    answer: (
        Callable[[Request, ServedStream], Awaitable[Response]]
        | Callable[[Request, Caller | Reviewed], Awaitable[Response]]
        | Callable[[Request], Awaitable[Response]]
    )


class Gateway:
    """The application, an ASGI callable as :attr:`app`.

    Args:
        streams: the streams to serve.
        access: authenticates and authorizes callers.
        metrics: metrics of this process.
        limits: limits of requests.
        origins: origins whose pages may call the gateway from a browser (CORS); none by default.
        registry: adds and removes streams while the gateway runs; None: the streams are fixed.
        registrars: names of callers that may set who registers a query, as the operator does.
        pages: files of the console; None: those of the package.

    Attributes:
        endpoints: all paths of the programming interface.
        console: the web console.
        ending: set when the process is to end.
    """

    def __init__(
        self,
        streams: Sequence[ServedStream],
        access: Access | None = None,
        metrics: GatewayMetrics | None = None,
        limits: Limits | None = None,
        origins: Sequence[str] = (),
        registry: StreamRegistry | None = None,
        registrars: Sequence[str] = (),
        pages: Pages | None = None,
    ) -> None:
        self.streams = {each.name: each for each in streams}
        self.registry, self._registrars = registry, frozenset(registrars)
        self._following: asyncio.Task[None] | None = None
        self.access, self.metrics, self.limits = access or Access(), metrics or GatewayMetrics(), limits or Limits()
        self._rates, self._looking = Rates(self.limits.client), Rates(RateLimits(connections=self.limits.looking))
        self._writers = {each.name: self._writer_of(each) for each in streams}
        self.rooms = AnswerRooms(self.limits.memory, self.limits.answer)
        self.metrics.memory(lambda: self.rooms.taken)
        self.ending = asyncio.Event()
        self._ready: tuple[float, dict[str, bool]] = (float("-inf"), {})
        self.endpoints = [
            Endpoint("GET", "/live", None, self.live),
            Endpoint("GET", "/ready", None, self.ready),
            Endpoint("GET", "/openapi.json", None, self.openapi),
            Endpoint("GET", "/asyncapi.json", None, self.asyncapi),
            Endpoint("GET", "/", None, features.landing),
            Endpoint("GET", "/conformance", None, features.conformance),
            Endpoint("GET", "/collections", KNOWN, self.collections),
            Endpoint("GET", "/collections/{stream}", "ask", features.collection),
            Endpoint("GET", "/collections/{stream}/queryables", "ask", features.queryables),
            Endpoint("GET", "/collections/{stream}/items", "ask", self.items),
            Endpoint("GET", "/collections/{stream}/items/{item:path}", "ask", self.item),
            Endpoint("GET", "/streams", KNOWN, self.list_streams),
            Endpoint("GET", "/streams/{stream}", "watch", listing.state),
            Endpoint("POST", "/streams/{stream}/ask", "ask", self.ask),
            Endpoint("GET", "/streams/{stream}/results", "watch", self.results),
            Endpoint("GET", "/streams/{stream}/results/past", "watch", self.past),
            Endpoint("GET", "/streams/{stream}/results/counts", "watch", history.counts),
            Endpoint("GET", "/streams/{stream}/queries", "watch", listing.queries),
            Endpoint("GET", "/streams/{stream}/queries/{query:path}", "watch", listing.query),
            Endpoint("POST", "/streams/{stream}/queries", "write", self.register),
            Endpoint("DELETE", "/streams/{stream}/queries/{query:path}", "write", self.cancel),
            Endpoint("POST", "/streams/{stream}/objects", "write", self.objects),
            Endpoint("GET", "/streams/{stream}/areas", "ask", self.list_areas),
            Endpoint("POST", "/streams/{stream}/areas", "write", self.load_areas),
            Endpoint("GET", "/streams/{stream}/areas/{area:path}", "ask", areas.show),
            Endpoint("PUT", "/streams/{stream}/areas/{area:path}", "write", self.put_area),
            Endpoint("DELETE", "/streams/{stream}/areas/{area:path}", "write", self.delete_area),
            Endpoint("POST", "/streams/{stream}/areas/{area:path}/refresh", "write", self.refresh_area),
        ]
        self.console = Console(self, pages)
        served = [*self.endpoints, *(Endpoint(*each) for each in self.console.endpoints)]
        cross_origin = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["Retry-After", "Next-Position"],
        )
        starlette = Starlette(
            routes=[
                Route(_whole(each.path), self._endpoint(each), methods=[each.method], name=f"{each.method} {each.path}")
                for each in served
            ],
            middleware=[cross_origin] if origins else [],
            exception_handlers={HTTPException: _http_problem},
            lifespan=self._lifespan,
        )
        starlette.router.redirect_slashes = False
        self.app: ASGIApp = _Watched(starlette, self.metrics, self.access)

    def end(self) -> None:
        """Tell connected clients to reconnect elsewhere, and accept nothing new."""
        self.ending.set()
        self.console.end()
        for each in self.streams.values():
            each.end("the gateway is shutting down")

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.registry is not None:
            self._following = asyncio.create_task(self.registry.keep(self.serve, self.leave))
        try:
            yield
        finally:
            if self._following is not None:
                self._following.cancel()
            for name, stream in self.streams.items():
                self._writers[name].close()
                stream.close()

    def serve(self, stream: ServedStream) -> None:
        """Start to serve a stream."""
        self._writers[stream.name] = self._writer_of(stream)
        self.streams[stream.name] = stream

    def leave(self, name: str) -> None:
        """Stop serving a stream; clients that follow it get a request to reconnect."""
        stream = self.streams.pop(name)
        stream.end("the stream is no longer served here")
        self.console.leave(name)
        self._writers.pop(name).close()
        asyncio.get_running_loop().run_in_executor(None, stream.close)

    def _endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            request.scope["state"]["route"] = f"{endpoint.method} {endpoint.path}"
            try:
                return await found(request)
            except Problem as problem:
                if problem.kind in _REFUSED:
                    self.metrics.refused(_REFUSED[problem.kind])
                return problem.response(request)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody is there to be told
            except Exception:  # noqa: BLE001 -- a defect: whatever it is, it is one request's
                logs.LOGGER.exception("failed", extra={"fields": {"path": request.url.path}})
                return Problem("internal", "see the gateway's log").response()

        async def found(request: Request) -> Response:
            try:
                if endpoint.right is None:
                    return await endpoint.answer(request)  # type: ignore[call-arg] # a path without stream
                if endpoint.right == KNOWN:
                    return await endpoint.answer(request, await self.caller(request))  # type: ignore[call-arg, arg-type]
                stream = await self._stream(request, endpoint.right)
                response = await endpoint.answer(request, stream)  # type: ignore[call-arg, arg-type]
                if isinstance(response, StreamingResponse):
                    return await self._passing(request, stream, endpoint.right, response)
                return response
            except SpatialStreamError as error:
                raise of_error(error) from None

        return answer

    async def _stream(self, request: Request, right: str) -> ServedStream:
        """Return the stream of a request, after checking its caller's right."""
        caller, name = await self.caller(request), request.path_params["stream"]
        await caller.check(right, name)
        if self.registry is not None and name in self.registry.unserved:
            raise Problem("try-again", self.registry.unserved[name], retry=10)
        if name not in self.streams:
            raise Problem("unknown-stream", f"this gateway serves no stream {name}")
        return self.streams[name]

    def under_way(self, stream: str) -> int:
        """Bytes of objects that are being received for a stream, wait to be sent to it, or are being sent."""
        return self._writers[stream].under_way

    def _writer_of(self, stream: ServedStream) -> Writer:
        return Writer(stream, self.limits.waiting, self.limits.clock, self.limits.clock_again)

    def _writer(self, stream: ServedStream) -> Writer:
        if stream.name not in self._writers:
            raise Problem("try-again", f"{stream.name} is no longer served here", retry=1)
        return self._writers[stream.name]

    async def caller(self, request: Request) -> Caller | Reviewed:
        """Authenticate a request, and charge it to the client's rate.

        Raises:
            Problem: the caller is unknown, or exceeds its rate.
        """
        state, authorization = request.scope["state"], request.headers.get("authorization")
        CLIENT.set(_address(request))
        if not self.access.knew(authorization):
            self._rates.take(_address(request), 0)  # limits the guessing of tokens, even if one guess is right
        try:
            caller = await self.access.caller(authorization)
        except Problem:
            self._rates.take(_address(request))
            raise
        state["caller"] = caller.name
        state["client"] = _address(request) if self.access.local else caller.name
        CLIENT.set(state["client"])
        self._rates.take(state["client"])
        return caller

    # ------------------------------------------------------------------------------------------------------- answers

    async def live(self, request: Request) -> Response:
        """Liveness: 503 if a background task that must not end has ended."""
        ended = self._following is not None and self._following.done()
        return JSONResponse({"live": not ended}, 503 if ended else 200)

    async def ready(self, request: Request) -> Response:
        """Readiness: whether all streams answer, checked once a second; in a cluster, whether its streams are listed.

        In a cluster a stream that does not run must not affect the others, and the names of streams are not public.
        """
        if self.registry is not None:
            ready = self.registry.ready and not self.ending.is_set()
            self.metrics.running.set(ready)
            return JSONResponse({"ready": ready, "streams": {}}, 200 if ready else 503)
        if time.monotonic() > self._ready[0] + _READY_SECONDS:
            found = await asyncio.gather(*(each.ready() for each in self.streams.values()))
            self._ready = time.monotonic(), dict(zip(self.streams, found, strict=True))
        streams = self._ready[1]
        ready = all(streams.values()) and not self.ending.is_set()
        self.metrics.running.set(ready)
        return JSONResponse({"ready": ready, "streams": streams}, 200 if ready else 503)

    async def list_streams(self, request: Request, caller: Caller | Reviewed) -> Response:
        """The streams on which the caller has any right."""
        return await listing.streams(request, caller, self.streams)

    async def collections(self, request: Request, caller: Caller | Reviewed) -> Response:
        """The streams as collections of features."""
        return await features.collections(request, caller, self.streams)

    async def items(self, request: Request, stream: ServedStream) -> Response:
        """Objects of a stream as features."""
        with ExitStack() as held:
            room = held.enter_context(self.room(request))
            return await features.items(request, stream, room, held)

    async def item(self, request: Request, stream: ServedStream) -> Response:
        """An object as a feature."""
        with self.room(request) as room:
            return await features.item(request, stream, room)

    async def past(self, request: Request, stream: ServedStream) -> Response:
        """The rows of a query that came between two times."""
        with ExitStack() as held:
            room = held.enter_context(self.room(request))
            return await history.rows(request, stream, room, held)

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI document."""
        return JSONResponse(self._document())

    async def asyncapi(self, request: Request) -> Response:
        """The AsyncAPI document."""
        return JSONResponse(events(self._document()))

    def _document(self) -> dict[str, Any]:
        return document([(each.method, each.path, each.right) for each in self.endpoints])

    async def ask(self, request: Request, stream: ServedStream) -> Response:
        """Answer a snapshot query, or several as of one round."""
        check_parameters(request, "at_least", "timeout")
        check_media_type(request, JSON)
        form = wanted_form(request, (JSON, GEOJSON))
        timeout = duration(request, "timeout", self.limits.wait, self.limits.longest_wait)
        at_least = _moment(request, "at_least")
        if at_least is not None and (text := request.query_params["at_least"]) != "now":
            await stream.check_unit("at_least", text)
        with ExitStack() as held:
            room = held.enter_context(self.room(request))
            body = await self._body(request, room)
            if isinstance(body, list) and not 1 <= len(body) <= MOST:
                raise Problem("invalid", f"{len(body)} queries; give 1 to {MOST} in a request")
            if isinstance(body, list):
                self._rates.take(request.scope["state"]["client"], len(body) - 1)
            if form == GEOJSON:
                _check_geojson(body)
            is_batch = isinstance(body, list)
            places = [(f"#/{i}", each) for i, each in enumerate(body)] if is_batch else [("#", body)]
            geographic, found = await stream.ask(await areas.resolved(stream, places, room), at_least, timeout, room)
            lines = Lines(found, room)
            del found
            if form == GEOJSON:
                if not geographic:
                    raise Problem("not-acceptable", "the stream's space is planar, and GeoJSON requires wgs84")
                lines.hold_text()
                return Pieces(as_collection(lines), form, held.pop_all())
            pieces, size = as_json(lines, many=is_batch)
            return Pieces(pieces, form, held.pop_all(), size)

    def room(self, request: Request) -> Room:
        """The memory of a request; it is to be given back."""
        return self.rooms.room(request.scope["state"]["client"])

    async def _body(self, request: Request, room: Room) -> Any:
        """The body of a request as JSON, for which it has room from the beginning.

        Raises:
            Problem: it is none, or there is none.
        """
        body = await read_body(request, self.limits.body, lambda size: room.hold(PARSED * size), self.limits.arrival)
        return parsed(body)

    async def results(self, request: Request, stream: ServedStream) -> Response:
        """The rows of queries as they arrive, as events or by polls."""
        check_parameters(request, "position", "wait", many=["query"])
        form = wanted_form(request, (JSON_LINES, EVENTS))
        queries = request.query_params.getlist("query")
        if not 1 <= len(queries) <= _MOST_QUERIES:
            told = f"{len(queries)} queries; name 1 to {_MOST_QUERIES}, each as query=ID"
            raise Problem("invalid", told, [{"parameter": "query", "detail": told}])
        wait = duration(request, "wait", self.limits.poll, self.limits.longest_wait)
        client = request.scope["state"]["client"]
        opened = stream.feed.listen(queries, _place(request), client)
        if request.method == "HEAD":
            return _head(form)
        sent = partial(self.metrics.rows, stream.name)
        async with AsyncExitStack() as held:
            held.enter_context(self._rates.connected(client))
            if form == JSON_LINES:
                return await poll(opened, wait, sent)
            held.enter_context(self.metrics.listening(stream.name))
            listener = await held.enter_async_context(opened)
            held.enter_context(self._while_allowed(request, "watch", stream, listener.end))
            return Events(rows_of(listener, self.limits.heartbeat, sent), held.pop_all(), stalled=self.limits.stalled)

    async def _passing(self, request: Request, stream: ServedStream, right: str, answer: StreamingResponse) -> Response:
        """Stream events of the console for as long as the caller has the right and reads them."""
        if request.method == "HEAD":
            return _head(EVENTS)
        over = asyncio.Event()
        async with AsyncExitStack() as held:
            for rates in (self._looking, self._rates):
                held.enter_context(rates.connected(request.scope["state"]["client"]))
            held.enter_context(self._while_allowed(request, right, stream, lambda why: over.set()))
            pieces = cast("AsyncGenerator[bytes, None]", answer.body_iterator)
            return Events(pieces, held.pop_all(), over, stalled=self.limits.stalled)

    @contextmanager
    def _while_allowed(
        self, request: Request, right: str, stream: ServedStream, end: Callable[[str], object]
    ) -> Iterator[None]:
        """End a connection when its caller loses the right: a connection may outlive a token or a right."""
        authorization = request.headers.get("authorization")

        async def look() -> None:
            while True:
                await asyncio.sleep(self.limits.recheck)
                try:
                    await (await self.access.caller(authorization)).check(right, stream.name)
                except Unavailable:
                    continue  # the right cannot be reviewed now, so the connection stays
                except Problem as problem:
                    if problem.status in (401, 403):
                        end("the token or its right has been revoked")
                        return

        looking = asyncio.create_task(look())
        try:
            yield
        finally:
            looking.cancel()

    async def register(self, request: Request, stream: ServedStream) -> Response:
        """Register a continuous query: 201 registered, 200 was registered before, 202 accepted but still pending."""
        check_parameters(request, "timeout", "time_unit")
        check_media_type(request, JSON)
        timeout = duration(request, "timeout", self.limits.wait, self.limits.longest_wait)
        sure = _unit_is_said(request, "a query says its time in ms")
        key = request.headers.get("idempotency-key")
        if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
            raise Problem("invalid", f"Idempotency-Key: must have 1 to {_LONGEST_KEY} characters")
        caller = request.scope["state"]["caller"]
        trusted = caller in self._registrars
        with self.room(request) as room:
            given = await self._body(request, room)
            outcome = await self._writer(stream).register(given, key, caller, timeout, for_others=trusted, sure=sure)
        return _written(outcome, 200 if outcome.before else 201)

    async def cancel(self, request: Request, stream: ServedStream) -> Response:
        """Cancel a continuous query: 200 cancelled, 202 accepted but still pending."""
        check_parameters(request, "timeout")
        timeout = duration(request, "timeout", self.limits.wait, self.limits.longest_wait)
        return _written(await self._writer(stream).cancel(request.path_params["query"], timeout), 200)

    async def list_areas(self, request: Request, stream: ServedStream) -> Response:
        """The areas of a stream."""
        with ExitStack() as held:
            room = held.enter_context(self.room(request))
            return await areas.listed(request, stream, room, held)

    async def load_areas(self, request: Request, stream: ServedStream) -> Response:
        """Keep the areas of a FeatureCollection."""
        check_media_type(request, GEOJSON, JSON)
        with self.room(request) as room:
            return await areas.load(request, stream, await self._body(request, room), areas.owner(request, ()))

    async def put_area(self, request: Request, stream: ServedStream) -> Response:
        """Keep an area."""
        check_media_type(request, GEOJSON, JSON)
        by = areas.owner(request, self._registrars)
        with self.room(request) as room:
            return await areas.put(request, stream, await self._body(request, room), by)

    async def delete_area(self, request: Request, stream: ServedStream) -> Response:
        """Delete an area."""
        return await areas.delete(request, stream, areas.owner(request, self._registrars))

    async def refresh_area(self, request: Request, stream: ServedStream) -> Response:
        """Register the queries of an area anew that have another geometry than it has now."""
        check_parameters(request, "timeout")
        timeout = duration(request, "timeout", self.limits.wait, self.limits.longest_wait)
        return await areas.refresh(request, stream, self._writer(stream).refreshing, timeout)

    async def objects(self, request: Request, stream: ServedStream) -> Response:
        """Send objects; 200 after the broker has acknowledged all of them."""
        check_parameters(request, "time_unit", *PARAMETERS)
        form = check_media_type(request, JSON_LINES, "application/x-ndjson", JSON, *FORMS)
        layout = body_layout(request, form)
        sure = _unit_is_said(request, "times are not converted, so they must be ms")

        async def read(taken: Taken) -> bytes:
            return await read_body(request, self.limits.body, taken.more, self.limits.arrival)

        count = await self._writer(stream).objects(read, sure=sure, layout=layout)
        self.metrics.objects(stream.name, count)
        return JSONResponse({"objects": count})


class _Whole(PathConvertor):
    """Matches the rest of a path, line breaks included: Starlette's convertor stops at the first, ignoring the rest."""

    regex = r"[\s\S]*"


register_url_convertor("whole", _Whole())


def _whole(path: str) -> str:
    """The path with this convertor."""
    return path.replace(":path}", ":whole}")


def _written(outcome: Outcome, status: int) -> Response:
    known = outcome.as_of is not None or outcome.before
    record = {"query": outcome.query, "processed": known, "as_of": outcome.as_of, "position": outcome.position}
    return JSONResponse(record, status if known else 202)


def _unit_is_said(request: Request, why: str) -> bool:
    """Whether a request says that times are ms, even if they look like something else.

    Raises:
        Problem: it says that they are something else; they cannot be, and ``why``.
    """
    unit = request.query_params.get("time_unit")
    if unit not in (None, "ms"):
        told = f"{unit!r} is not ms: {why}"
        raise Problem("invalid", f"time_unit: {told}", [{"parameter": "time_unit", "detail": told}])
    return unit is not None


def _head(form: str) -> Response:
    """The answer to HEAD for a path with a streaming response."""
    response = Response(headers={"Cache-Control": "no-store"}, media_type=form)
    del response.headers["content-length"]
    return response


def _address(request: Request) -> str:
    return "nobody" if request.client is None else request.client.host


def _place(request: Request) -> Cursor | str | None:
    """The position at which results start: ``Last-Event-ID``, as a browser sends it, else the parameter."""
    begins = _parsed_place(request.query_params.get("position", "newest"))  # always parsed, so that it is checked
    last = request.headers.get("last-event-id")
    return _parsed_place(last) if last else begins


def _parsed_place(word: str) -> Cursor | str | None:
    return {"newest": None, OLDEST: OLDEST}[word] if word in ("newest", OLDEST) else Cursor.parse(word)


def _check_geojson(asked: Any) -> None:
    """Refuse queries whose answers have no coordinates, such as STQs."""
    for each in asked if isinstance(asked, list) else [asked]:
        kind = kind_of(each.get("type")) if isinstance(each, Mapping) else None
        if kind is not None and not kind.continuous and not kind.has_places:
            answer = f"the answer to an {kind.type} is {kind.rows} without coordinates"
            raise Problem("not-acceptable", f"{answer}; accept application/json")


def _moment(request: Request, name: str) -> int | None:
    """Parse a parameter that is a time: ms, ISO 8601, or ``now``; None if it is not given.

    Raises:
        Problem: it is not a time.
    """
    text = request.query_params.get(name)
    if text is None or text == "now":
        return None if text is None else time.time_ns() // 1_000_000
    try:
        return parse_time(text, name)
    except RecordError as error:
        raise of_error(SettingError(name, error.problem)) from None


async def _http_problem(request: Request, error: Exception) -> Response:
    """Answer errors of Starlette's router: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    kind, detail, headers = "invalid", str(error.detail), error.headers
    if error.status_code == 404:
        kind, detail = "not-found", f"there is no path {request.scope['path']}"
    elif error.status_code == 405:
        kind, detail = "method", f"{request.method} is not allowed for {request.scope['path']}"
        # the error knows only the first route of the path, and each method has its own
        routes = [each for each in request.app.routes if each.matches(request.scope)[0] is not Match.NONE]
        headers = {"Allow": ", ".join(sorted({method for each in routes for method in each.methods}))}
    return Problem(kind, detail, headers=headers).response()


class _Watched:
    """Middleware: the log, the metrics, and the restriction to this machine."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics, access: Access) -> None:
        self._app, self._metrics, self._access = app, metrics, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, first = time.monotonic(), 0, 0.0
        state = scope["state"] = dict(scope.get("state") or {})

        async def watched(message: Message) -> None:
            nonlocal status, first
            if message["type"] == "http.response.start":
                status, first = message["status"], time.monotonic() - began
                if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
                    # a proxy in front may disagree about where the body ends (RFC 9112, 6.3)
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        try:
            if self._access.local and not _is_local(scope):
                problem = Problem("forbidden", "without tokens the gateway serves this machine only: use localhost")
                await problem.response()(scope, receive, watched)
            else:
                await self._app(scope, receive, watched)
        finally:
            route = state.get("route", "none")
            self._metrics.observe(route, status, first)
            more = {"caller": state["caller"]} if "caller" in state else {}
            client = (scope.get("client") or ("", 0))[0]
            took = round((time.monotonic() - began) * 1000, 1)
            logs.event("request", route=route, path=scope["path"], status=status, ms=took, client=client, **more)


def _is_local(scope: Scope) -> bool:
    """Whether the Host header names this machine: after DNS rebinding, a page of another origin names its own host."""
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
