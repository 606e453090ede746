"""The console's paths: its pages, and the data for them.

The data requires the same rights as the rest of the interface: ``ask`` for objects, dead letters and the clock,
``watch`` for the stream's internals.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from spatialstream.client.stream import Stream
from spatialstream.gateway.access import Access, Caller
from spatialstream.gateway.console.pages import Pages
from spatialstream.gateway.console.passing import Passing
from spatialstream.gateway.following import EVENTS
from spatialstream.gateway.requests import check_parameters
from spatialstream.gateway.reviews import Reviewed
from spatialstream.gateway.streams import ServedStream
from spatialstream.gateway.threads import as_gateway
from spatialstream.model.errors import Unavailable

__all__ = ["Console"]

_LOOK_SECONDS = 1.0
"""Time for which the description of a stream is cached."""
_LETTERS = 100
_CLOCK = ("space", "properties", "fields", "ranking", "as_of", "answers", "now")

Answer = Callable[[Request, ServedStream], Awaitable[Response]] | Callable[[Request], Awaitable[Response]]


class Host(Protocol):
    """The gateway that serves the console.

    Attributes:
        streams: the streams that it serves, by name.
        access: authenticates callers.
    """

    streams: dict[str, ServedStream]
    access: Access

    async def caller(self, request: Request) -> Caller | Reviewed:
        """Return who sends a request, or raise a Problem."""
        ...


class Console:
    """The console of a gateway.

    Args:
        gateway: serves it.
        pages: its files; None: those of the package.

    Attributes:
        endpoints: method, path, required right and handler of each path.
    """

    def __init__(self, gateway: Host, pages: Pages | None = None) -> None:
        self._gateway, self._pages = gateway, pages or Pages()
        self._passing, self._descriptions = dict[str, Passing](), dict[str, _CachedDescription]()
        self.endpoints: Sequence[tuple[str, str, str | None, Answer]] = [
            ("GET", "/console", None, self.home),
            ("GET", "/console/session", None, self.session),
            ("GET", "/console/{path:path}", None, self.page),
            ("GET", "/streams/{stream}/console/objects", "ask", self.objects),
            ("GET", "/streams/{stream}/console/clock", "ask", self.clock),
            ("GET", "/streams/{stream}/console/rejected", "ask", self.rejected),
            ("GET", "/streams/{stream}/console/inside", "watch", self.inside),
        ]

    def end(self) -> None:
        """End all connections."""
        for each in self._passing.values():
            each.end()

    def leave(self, name: str) -> None:
        """Stop serving a stream."""
        self._descriptions.pop(name, None)
        if name in self._passing:
            self._passing.pop(name).end()

    async def home(self, request: Request) -> Response:
        """Redirect to the console."""
        return RedirectResponse("/console/", 307)

    async def page(self, request: Request) -> Response:
        """A file of the console."""
        return self._pages.answer(request, request.path_params["path"])

    async def session(self, request: Request) -> Response:
        """The caller, and its rights on each stream."""
        caller = await self._gateway.caller(request)
        rights = {name: await caller.rights_on(name) for name in sorted(self._gateway.streams)}
        streams = [{"name": name, "rights": sorted(may)} for name, may in rights.items() if may]
        access = self._gateway.access
        said = {"caller": caller.name, "tokens": not access.local, "version": version("spatialstream")}
        return JSONResponse(said | {"streams": streams}, headers={"Cache-Control": "no-store"})

    async def objects(self, request: Request, stream: ServedStream) -> Response:
        """Objects as they are sent; see :class:`~spatialstream.gateway.console.passing.Passing`."""
        check_parameters(request)
        passing = self._passing.setdefault(stream.name, Passing(stream.name, stream.live_sample))
        events = await passing.events()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events, headers=headers, media_type=EVENTS)

    async def rejected(self, request: Request, stream: ServedStream) -> Response:
        """The newest dead letters."""
        check_parameters(request)
        found = await stream.call(lambda _: stream.dead_letters(_LETTERS))
        said = {"count": found.count, "newest": list(found.newest)}
        return JSONResponse(said, headers={"Cache-Control": "no-store"})

    async def clock(self, request: Request, stream: ServedStream) -> Response:
        """The stream's settings and progress: the part of the description that requires only the right ``ask``."""
        check_parameters(request)
        known = await self._look(stream)
        return JSONResponse({name: known[name] for name in _CLOCK}, headers={"Cache-Control": "no-store"})

    async def inside(self, request: Request, stream: ServedStream) -> Response:
        """Versions, leaves, slots, loads; see :meth:`spatialstream.client.description.StreamDescription.describe`."""
        check_parameters(request)
        return JSONResponse(await self._look(stream), headers={"Cache-Control": "no-store"})

    async def _look(self, stream: ServedStream) -> dict[str, Any]:
        return await self._descriptions.setdefault(stream.name, _CachedDescription(stream)).get()


class _CachedDescription:
    """The description of a stream, cached for a second for all pages."""

    def __init__(self, stream: ServedStream) -> None:
        self._stream, self._lock = stream, asyncio.Lock()
        self._until, self._known = float("-inf"), dict[str, Any]()

    async def get(self) -> dict[str, Any]:
        """Return the description.

        Raises:
            Unavailable: the store does not answer.
        """
        async with self._lock:
            if time.monotonic() >= self._until:
                as_of, answers, began = None, False, time.time_ns()
                with suppress(Unavailable):  # the worker does not answer: the store's content is still of interest
                    as_of = await self._stream.as_of()
                    answers = True
                took = (time.time_ns() - began) / 1e6
                with as_gateway():  # it is for all pages: no client may delay it
                    known = await self._stream.call(_described)
                now = time.time_ns() // 1_000_000
                self._known = known | {"as_of": as_of, "answers": answers, "answered_ms": took, "now": now}
                self._until = time.monotonic() + _LOOK_SECONDS
            return self._known


def _described(opened: Stream) -> dict[str, Any]:
    """The description of a stream, the type of each of its properties, what it keeps, and whether queries may rank."""
    rule = opened.rule
    said = {"properties": dict(rule.properties.types), "fields": [*(rule.fields or ())], "ranking": rule.ranking}
    return opened.describe() | said
