"""Parsing of requests: bodies within limits, parameters, and the accepted form of the answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request

from spatialstream.gateway.problems import Problem, of_error
from spatialstream.model.errors import RecordError
from spatialstream.model.times import parse_duration
from spatialstream.records.reference import json_value

__all__ = [
    "check_media_type",
    "check_parameters",
    "duration",
    "parsed",
    "read_body",
    "wanted_form",
]


async def read_body(
    request: Request, most: int, take: Callable[[int], object] | None = None, seconds: float = 30.0
) -> bytes:
    """Read the body.

    Args:
        request: the request.
        most: bytes that it may have.
        take: is told for how many bytes more it needs room: for all of it at once, if it says how much that is, else as
            it comes; raises where there is none. None: it is not counted.
        seconds: time within which it must arrive.

    Raises:
        Problem: the body is too long, does not arrive in time, or there is no room for it.
    """
    too_large = Problem("too-large", f"a body may have at most {most} bytes; send less at a time")
    length = request.headers.get("content-length", "")
    expected = int(length[:20]) if length.isdecimal() else 0
    if expected > most:
        raise too_large
    parts, size, has = list[bytes](), 0, 0

    def up_to(size: int) -> None:
        nonlocal has
        if take is not None and size > has:
            take(size - has)
            has = size

    up_to(expected)
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large
                up_to(size)
                parts.append(part)
    except TimeoutError:
        raise Problem("slow", f"the body has not arrived within {seconds:g} s") from None
    return b"".join(parts)


def check_media_type(request: Request, *known: str) -> str:
    """Check the media type of the body, and return it; a body without one is assumed to have the first one.

    Raises:
        Problem: it is another one.
    """
    media_type = request.headers.get("content-type", known[0]).partition(";")[0].strip().lower()
    if media_type == "application/x-www-form-urlencoded":  # curl's default
        return known[0]
    if media_type not in known:
        raise Problem("media-type", f"Content-Type: {media_type} is not supported; send {' or '.join(known)}")
    return media_type


def check_parameters(request: Request, *known: str, many: Sequence[str] = ()) -> None:
    """Refuse unknown parameters, since a misspelt one would be ignored, and repeated ones.

    Args:
        request: the request.
        known: parameters that may be given once.
        many: parameters that may be repeated.

    Raises:
        Problem: a parameter is unknown or repeated.
    """
    parameters = request.query_params
    for name in parameters:
        if name not in known and name not in many:
            names = ", ".join((*many, *known)) or "none"
            there_are = f"is not a parameter of this path; known: {names}"
            raise Problem("invalid", f"{name}: {there_are}", [{"parameter": name, "detail": there_are}])
        if name in known and len(parameters.getlist(name)) > 1:
            raise Problem("invalid", f"{name}: give it once", [{"parameter": name, "detail": "give it once"}])


def parsed(body: bytes) -> Any:
    """Parse a body as JSON.

    Raises:
        Problem: it is not JSON.
    """
    value, error, _ = json_value(body.replace(b"\n", b" "))
    if error is not None:
        raise of_error(error)
    return value


def duration(request: Request, name: str, default: int, most: int) -> float:
    """Parse a parameter that is a duration in ms or with a unit; return seconds, at most ``most`` ms.

    Raises:
        Problem: it is not a duration.
    """
    text = request.query_params.get(name)
    if text is None:
        return default / 1000
    try:
        value = parse_duration(int(text) if re.fullmatch("[0-9]{1,18}", text) else text, name)
    except RecordError as error:
        raise Problem("invalid", str(error), [{"parameter": name, "detail": error.problem}]) from None
    return min(value, most) / 1000


def wanted_form(request: Request, forms: Sequence[str]) -> str:
    """The form that the request accepts with the highest quality; the first one if it has no Accept header.

    Raises:
        Problem: it accepts none.
    """
    accepted = request.headers.get("accept") or "*/*"
    ranges = [_accepted(part) for part in accepted.split(",")]

    def liking(form: str) -> float:
        fitting = [
            (specific, q) for kind, specific, q in ranges if kind in (form, form.partition("/")[0] + "/*", "*/*")
        ]
        return max(fitting, default=(0, 0.0))[1]

    best = max(forms, key=liking)
    if liking(best) <= 0.0:
        raise Problem("not-acceptable", f"Accept: {accepted} includes none of {', '.join(forms)}")
    return best


def _accepted(part: str) -> tuple[str, int, float]:
    """A media range, how specific it is, and its quality."""
    kind, *parameters = (each.strip().lower() for each in part.split(";"))
    quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
    q = float(quality) if re.fullmatch(r"[01](\.[0-9]{0,3})?", quality) else 0.0
    return kind, 2 if "*" not in kind else int(kind != "*/*"), q
