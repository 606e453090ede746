"""What comes bit by bit: results in two forms, Server-Sent Events, and JSON Lines a poll at a time.

An event is a row, and its id the place after it; a browser that has lost the connection comes again with that id by
itself (``Last-Event-ID``). Where nothing comes for a while, an id alone does, so that whoever comes again need not read
what was not for them. A poll ends with the first rows, and says in ``Next-Position`` where the next one goes on; where
there are none it is further on all the same, as long as what lies back has not been read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spatialstream.gateway import logs
from spatialstream.gateway.feed import Listener
from spatialstream.model.errors import Unavailable

__all__ = ["EVENTS", "JSON_LINES", "Events", "poll", "rows_of"]

EVENTS = "text/event-stream"
JSON_LINES = "application/jsonl"

_AGAIN = 500
"""ms after which a client comes again that was let go."""
_ON = 0.5
"""Seconds, time and again, for a poll that has not come on from its place within those that it was given."""
_STALLED = 20.0
"""Seconds within which a client has to take something of what waits in its connection."""


async def poll(opened: AbstractAsyncContextManager[Listener], wait: float, sent: Callable[[int], object]) -> Response:
    """The rows that there are, or the first that come, as JSON Lines.

    Args:
        opened: somebody who follows.
        wait: seconds for the first row.
        sent: is told how many there are.
    """
    async with opened as listener:
        begun = listener.cursor
        rows = await listener.rows(wait)
        while listener.behind and listener.cursor == begun:  # else whoever polls for moments would never come on
            rows = await listener.rows(_ON)
        sent(len(rows))
        where = rows[-1][0] if rows else listener.cursor
        body = b"".join(row.line + b"\n" for _, row in rows)
    return Response(body, headers={"Next-Position": str(where), "Cache-Control": "no-store"}, media_type=JSON_LINES)


class Events(Response):
    """What comes bit by bit, until it ends, or the client has gone or takes nothing.

    Args:
        contents: what comes.
        held: what is to be let go of at the end.
        over: is set when nothing more may come.
    """

    def __init__(
        self, contents: AsyncGenerator[bytes, None], held: AsyncExitStack, over: asyncio.Event | None = None
    ) -> None:
        super().__init__(media_type=EVENTS, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._contents, self._held, self._over = contents, held, over or asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async with self._held:
            has_gone, sending, _ = tasks = [
                asyncio.ensure_future(each) for each in (gone(), self._send(send), self._over.wait())
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in tasks:
                    each.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            try:
                if not sending.cancelled():
                    sending.result()
                elif has_gone.cancelled():  # so it is over
                    await self._piece(send, b"", more=False)
            except TimeoutError:
                logs.event("stalled")

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async with aclosing(self._contents) as contents:
            async for content in contents:
                await self._piece(send, content, more=True)
        await self._piece(send, b"", more=False)

    async def _piece(self, send: Send, content: bytes, *, more: bool) -> None:
        async with asyncio.timeout(_STALLED):
            await send({"type": "http.response.body", "body": content, "more_body": more})


async def rows_of(listener: Listener, heartbeat: float, sent: Callable[[int], object]) -> AsyncGenerator[bytes, None]:
    """Rows as events, until the client is too slow for them, or the gateway ends.

    Args:
        listener: who follows.
        heartbeat: seconds after which something comes, whatever there is.
        sent: is told how many rows there are.
    """
    yield b"retry: %d\nid: %s\n\n" % (_AGAIN, str(listener.cursor).encode())
    while True:
        try:
            rows = await listener.rows(heartbeat)
        except Unavailable as error:
            listener.end(str(error))
            rows = []
        if rows:
            sent(len(rows))
            yield b"".join(b"id: %s\ndata: %s\n\n" % (str(place).encode(), row.line) for place, row in rows)
        elif listener.over is None:
            yield b": nothing now\nid: %s\n\n" % str(listener.cursor).encode()
        if listener.over is not None:
            yield b": %s; come again\n\n" % listener.over.replace("\n", " ").encode()
            return
