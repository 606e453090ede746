"""What is wrong with a request, as problem details (RFC 9457): which field, and what would be right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spatialstream.model.errors import Gone, RecordError, SettingError, SpatialStreamError, TooLarge, Unavailable

__all__ = ["KINDS", "PROBLEM_TYPE", "Problem", "of_error", "of_record"]

PROBLEM_TYPE = "application/problem+json"

KINDS = {
    "invalid": (400, "The request is not one that can be answered"),
    "unauthorized": (401, "A token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "There is nothing of this name"),
    "unknown-stream": (404, "There is no stream of this name"),
    "method": (405, "This method is not for this path"),
    "not-acceptable": (406, "The answer has no such form"),
    "slow": (408, "The request took too long to come"),
    "conflict": (409, "It is there already"),
    "gone": (410, "It is not kept any more"),
    "too-large": (413, "The body is too large"),
    "answer-too-large": (413, "The answer would be too large"),
    "media-type": (415, "The body is not of a form that is read here"),
    "too-many": (429, "More than there is room for"),
    "internal": (500, "The gateway has failed"),
    "no-memory": (503, "There is no memory for it now: try again"),
    "try-again": (503, "Not now: try again"),
}
"""Kinds of problems: status and title of each."""

_BODIES = {"content-length", "transfer-encoding"}
_MOST_PASSED_OVER = 64 << 20
_LINGER = 2.0
"""Bytes of a body that is refused, and seconds for it, which are read all the same."""

_NARROW = "ask for less: fewer queries at a time, a smaller region, a shorter duration, more keywords, or a smaller k"

_SHOWN = 100
"""Errors of one request that are told, at most."""


class Problem(Exception):  # noqa: N818 (as RFC 9457 calls it)
    """Why a request is refused.

    Args:
        kind: of :data:`KINDS`.
        detail: a sentence about this request.
        errors: what is wrong where; each has ``detail``, and ``pointer`` (into the body), ``line`` (of it) or
            ``parameter``.
        retry: seconds after which the same request may succeed; None: it is not known to.
        headers: more of the response.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        errors: Sequence[Mapping[str, Any]] = (),
        retry: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(kind, detail)
        self.kind, self.detail, self.errors = kind, detail, list(errors)
        self.headers = dict(headers or {}) | ({} if retry is None else {"Retry-After": str(retry)})

    @property
    def status(self) -> int:
        """Of the response."""
        return KINDS[self.kind][0]

    def to_record(self) -> dict[str, Any]:
        """The body."""
        return {
            "type": f"urn:spatialstream:problem:{self.kind}",
            "title": KINDS[self.kind][1],
            "status": self.status,
            "detail": self.detail,
            **({"errors": self.errors[:_SHOWN]} if self.errors else {}),
        }

    def response(self, request: Request | None = None) -> Response:
        """As it is sent; where a request has a body, some of what is still to come of it is read meanwhile."""
        body = json.dumps(self.to_record(), ensure_ascii=False).encode(errors="replace")
        return _Refusal(request, body, self.status, self.headers, PROBLEM_TYPE)


class _Refusal(Response):
    """A refusal that its client can read: a connection that is closed with more to be read is reset, and it with it."""

    def __init__(self, request: Request | None, *given: Any) -> None:
        super().__init__(*given)
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI calls it."""
        request = self._request
        # who waits to be told to go on has sent nothing
        if request is None or "expect" in request.headers or not _BODIES.intersection(request.headers.keys()):
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        left = _MOST_PASSED_OVER
        with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # it has gone, or all has been read
            async with asyncio.timeout(_LINGER):
                async for part in request.stream():
                    left -= len(part)
                    if left < 0:
                        break
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def of_error(error: SpatialStreamError) -> Problem:
    """What the package's own errors mean to who has asked.

    The setting of a SettingError is a place within the body, as the gateway has called it (``"#/3"``), or the name of
    a parameter.
    """
    if isinstance(error, Gone):
        return Problem("gone", str(error))
    if isinstance(error, Unavailable):
        return Problem("try-again", str(error), retry=1)
    if isinstance(error, TooLarge):
        return Problem("answer-too-large", f"{error}; {_NARROW}")
    if isinstance(error, RecordError):
        return of_record("#", str(error))
    if isinstance(error, SettingError) and error.setting.startswith("#"):
        return of_record(error.setting, error.problem)
    if isinstance(error, SettingError):
        return Problem("invalid", str(error), [{"parameter": error.setting, "detail": error.problem}])
    return Problem("internal", str(error))


def of_record(place: str, reason: str) -> Problem:
    """A record that cannot be used.

    Args:
        place: of the record in the body, a JSON pointer as a fragment.
        reason: ``field: what would be right``, or what is wrong with the whole of it.
    """
    field, colon, problem = reason.partition(": ")
    pointer = "/".join((place, *field.split("."))) if colon and field != "record" else place
    return Problem("invalid", reason, [{"pointer": pointer, "detail": problem or reason}])
