"""Errors as problem details (RFC 9457), which name the field and say what would be right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spatialstream.model.errors import (
    Gone,
    NotServed,
    RecordError,
    SettingError,
    SpatialStreamError,
    TooLarge,
    Unavailable,
)

__all__ = ["KINDS", "PROBLEM_TYPE", "SHOWN", "Problem", "of_error", "of_record"]

PROBLEM_TYPE = "application/problem+json"

KINDS = {
    "invalid": (400, "The request is invalid"),
    "unauthorized": (401, "A valid token is required"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "Not found"),
    "unknown-stream": (404, "There is no stream of this name"),
    "method": (405, "The method is not allowed for this path"),
    "not-acceptable": (406, "The answer has none of the accepted forms"),
    "slow": (408, "The request took too long to arrive"),
    "conflict": (409, "The id is in use already"),
    "not-served": (409, "The stream serves subscriptions only"),
    "gone": (410, "It is no longer kept"),
    "too-large": (413, "The body is too large"),
    "answer-too-large": (413, "The answer would be too large"),
    "media-type": (415, "The form of the body is not supported"),
    "too-many": (429, "A limit is exceeded"),
    "internal": (500, "The gateway has failed"),
    "no-memory": (503, "There is no memory for it now: try again"),
    "try-again": (503, "Temporarily unavailable: try again"),
}
"""Kinds of problems: status and title of each."""

_BODIES = {"content-length", "transfer-encoding"}
_MOST_PASSED_OVER = 64 << 20
_LINGER = 2.0
"""Limits, in bytes and seconds, of reading the rest of a refused body."""

_NARROW = "ask for less: fewer queries at a time, a smaller region, a shorter duration, more keywords, or a smaller k"

SHOWN = 100
"""Most errors listed for one request."""


class Problem(Exception):  # noqa: N818 (as RFC 9457 calls it)
    """The refusal of a request.

    Args:
        kind: a key of :data:`KINDS`.
        detail: a sentence about this request.
        errors: the single errors; each has ``detail``, and ``pointer`` (into the body), ``line`` (of the body) or
            ``parameter``.
        retry: seconds after which the same request may succeed; None: not known.
        headers: further headers of the response.
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
        """The status of the response."""
        return KINDS[self.kind][0]

    def to_record(self) -> dict[str, Any]:
        """The body of the response, as JSON values."""
        return {
            "type": f"urn:spatialstream:problem:{self.kind}",
            "title": KINDS[self.kind][1],
            "status": self.status,
            "detail": self.detail,
            **({"errors": self.errors[:SHOWN]} if self.errors else {}),
        }

    def response(self, request: Request | None = None) -> Response:
        """Build the response; if the request has a body, some of its unread rest is read while sending."""
        body = json.dumps(self.to_record(), ensure_ascii=False).encode(errors="replace")
        return _Refusal(request, body, self.status, self.headers, PROBLEM_TYPE)


class _Refusal(Response):
    """A refusal that its client can read: closing a connection with unread data resets it, and loses the answer."""

    def __init__(self, request: Request | None, *given: Any) -> None:
        super().__init__(*given)
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Implement ASGI."""
        request = self._request
        # a client that expects 100 Continue has not sent its body
        if request is None or "expect" in request.headers or not _BODIES.intersection(request.headers.keys()):
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        allowance = _MOST_PASSED_OVER
        with suppress(TimeoutError, ClientDisconnect, RuntimeError):  # the client has gone, or all has been read
            async with asyncio.timeout(_LINGER):
                async for part in request.stream():
                    allowance -= len(part)
                    if allowance < 0:
                        break
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def of_error(error: SpatialStreamError) -> Problem:
    """Convert an error of this package to a problem.

    The setting of a SettingError is a JSON pointer into the body (``"#/3"``), or the name of a parameter.
    """
    if isinstance(error, Gone):
        return Problem("gone", str(error))
    if isinstance(error, Unavailable):
        return Problem("try-again", str(error), retry=1)
    if isinstance(error, TooLarge):
        return Problem("answer-too-large", f"{error}; {_NARROW}")
    if isinstance(error, NotServed):
        return Problem("not-served", error.problem)
    if isinstance(error, RecordError):
        return of_record("#", str(error))
    if isinstance(error, SettingError) and error.setting.startswith("#"):
        return of_record(error.setting, error.problem)
    if isinstance(error, SettingError):
        return Problem("invalid", str(error), [{"parameter": error.setting, "detail": error.problem}])
    return Problem("internal", str(error))


def of_record(place: str, reason: str) -> Problem:
    """Make the problem of an invalid record.

    Args:
        place: position of the record in the body, a JSON pointer as a fragment.
        reason: ``field: problem``, or the problem of the whole record.
    """
    field, colon, problem = reason.partition(": ")
    names = field.replace("[", ".").replace("]", "").split(".")  # such as region.polygon.coordinates[0][3]
    pointer = "/".join((place, *names)) if colon and field != "record" else place
    return Problem("invalid", reason, [{"pointer": pointer, "detail": problem or reason}])
