"""A server that speaks another language: TLS, where it is asked by plain HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
"""What TLS says to HTTP: an alert, that its version is none."""


@asynccontextmanager
async def garbled(answer: bytes = ALERT) -> AsyncIterator[str]:
    """Its URL; it answers with the same bytes whatever it is asked."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
