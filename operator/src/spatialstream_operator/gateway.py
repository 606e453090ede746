"""An HTTP client of the gateway, to register queries and keep areas with the token of the operator's account."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from spatialstream.model.errors import Unavailable
from spatialstream_operator.causes import cause

__all__ = ["Gateway", "Refusal"]

_TIMEOUT = 30.0
_REQUESTS = 16
"""Maximum number of concurrent requests: after a start the operator reconciles all queries at once."""
_WAIT = "10s"
"""How long the gateway waits for the stream to process a query."""
_UNKNOWN_STREAM = "urn:spatialstream:problem:unknown-stream"


class Refusal(Exception):  # noqa: N818 (it says what is)
    """The gateway rejected a request, and would reject it again.

    Args:
        status: the HTTP status.
        detail: the gateway's message.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail


class Gateway:
    """A client of the gateway. Every method raises Refusal, or Unavailable if there is no usable response for now.

    Args:
        url: URL of the gateway within the cluster.
        token: file with the token; read for each request, because it is rotated.
        authority: file with the CA certificates that verify the gateway; the system's if there is no such file.
    """

    def __init__(self, url: str, token: str, authority: str = "") -> None:
        self._url, self._token, self._authority = url.rstrip("/"), Path(token), Path(authority or "/nowhere")
        self._room = asyncio.Semaphore(_REQUESTS)

    async def find(self, stream: str, query: str) -> dict[str, Any] | None:
        """A registered query (``query``) and its result rows so far (``so_far``); None if it is not registered."""
        try:
            answer = await self._ask("GET", _path(stream, query))
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            return None
        return answer

    async def clock(self, stream: str) -> int | None:
        """The stream's clock, in ms; None if it has not started."""
        clock: int | None = (await self._ask("GET", _path(stream)))["clock"]
        return clock

    async def register(self, stream: str, record: dict[str, Any]) -> bool:
        """Register a query; True if the stream has processed the registration, False if that is still pending."""
        return bool((await self._ask("POST", f"{_path(stream)}/queries?timeout={_WAIT}", record))["processed"])

    async def cancel(self, stream: str, query: str) -> bool:
        """Cancel a query; True if it is no longer registered, False if that is still pending."""
        try:
            return bool((await self._ask("DELETE", f"{_path(stream, query)}?timeout={_WAIT}"))["processed"])
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            return True

    async def keep_area(self, stream: str, name: str, by: str, geometry: dict[str, Any]) -> dict[str, Any]:
        """Have the stream know an area of an owner; return the ``area`` as it is kept, and whether it has ``changed``.

        One that is as it was is not written again.
        """
        return await self._ask("PUT", _area(stream, name, by), geometry)

    async def delete_area(self, stream: str, name: str, by: str) -> None:
        """Have the stream know an area no more, unless it is of another owner."""
        try:
            await self._ask("DELETE", _area(stream, name, by))
        except Refusal as refusal:
            if refusal.status not in (404, 409):
                raise

    async def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            headers = {"Authorization": f"Bearer {self._token.read_text('utf-8').strip()}"}
            async with (
                self._room,
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT)) as session,
                session.request(method, f"{self._url}{path}", json=body, headers=headers, ssl=self._trust()) as answer,
            ):
                content = await answer.json(content_type=None)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"cannot query the gateway at {self._url}: {cause(error)}") from None
        if not isinstance(content, dict):
            raise Unavailable(f"the gateway at {self._url} returned {status} with an unexpected body")
        if 200 <= status < 300:
            return content
        detail = str(content.get("detail", "no reason"))
        if status >= 500 or status in (408, 429) or content.get("type") == _UNKNOWN_STREAM:
            raise Unavailable(f"the gateway reports: {detail}")
        raise Refusal(status, detail)

    def _trust(self) -> ssl.SSLContext | bool:
        return ssl.create_default_context(cafile=self._authority) if self._authority.exists() else True


def _area(stream: str, name: str, by: str) -> str:
    return f"{_path(stream)}/areas/{quote(name, safe='')}?by={quote(by, safe='')}"


def _path(stream: str, query: str = "") -> str:
    path = f"/streams/{quote(stream, safe='')}"
    return f"{path}/queries/{quote(query, safe='')}" if query else path
