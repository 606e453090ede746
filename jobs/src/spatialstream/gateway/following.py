"""Delivery of results as they arrive, in two forms: Server-Sent Events, and polls of JSON Lines.

An event is a row, and its id the position after it; a browser that has lost the connection reconnects with that id by
itself (``Last-Event-ID``). After some time without rows an id alone is sent, so that a client that reconnects need not
read again what was not for it. A poll returns the first rows, with the position for the next poll in ``Next-Position``;
while past results are read, that position advances even without rows.
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
"""ms after which a disconnected client reconnects."""
_ON = 0.5
"""Seconds by which a poll that has not advanced its position in the given time is extended, repeatedly."""


async def poll(opened: AbstractAsyncContextManager[Listener], wait: float, sent: Callable[[int], object]) -> Response:
    """Answer a poll: the available rows, or the first that arrive, as JSON Lines.

    Args:
        opened: the listener.
        wait: seconds to wait for the first row.
        sent: called with the number of rows.
    """
    async with opened as listener:
        begun = listener.cursor
        rows = await listener.rows(wait)
        while listener.behind and listener.cursor == begun:  # otherwise very short polls would never advance
            rows = await listener.rows(_ON)
        sent(len(rows))
        where = rows[-1][0] if rows else listener.cursor
        body = b"".join(row.line + b"\n" for _, row in rows)
    return Response(body, headers={"Next-Position": str(where), "Cache-Control": "no-store"}, media_type=JSON_LINES)


class Events(Response):
    """A streaming response that ends with its contents, or when the client disconnects or stops reading.

    Args:
        contents: the pieces of the body.
        held: closed at the end.
        over: set to end the response early.
        stalled: seconds within which the client must read some of the data waiting in its connection.
    """

    def __init__(
        self,
        contents: AsyncGenerator[bytes, None],
        held: AsyncExitStack,
        over: asyncio.Event | None = None,
        *,
        stalled: float = 20.0,
    ) -> None:
        super().__init__(media_type=EVENTS, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._contents, self._held, self._over, self._stalled = contents, held, over or asyncio.Event(), stalled

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Implement ASGI."""

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
                elif has_gone.cancelled():  # ``over`` is set, and the client is still there
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
        async with asyncio.timeout(self._stalled):
            await send({"type": "http.response.body", "body": content, "more_body": more})


async def rows_of(listener: Listener, heartbeat: float, sent: Callable[[int], object]) -> AsyncGenerator[bytes, None]:
    """Yield rows as events until the listener ends.

    Args:
        listener: the listener.
        heartbeat: seconds without rows after which a position alone is sent.
        sent: called with the number of rows.
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
