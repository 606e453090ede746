"""Error texts for statuses and logs. They never contain request headers, because those hold tokens."""

from __future__ import annotations

import re

import aiohttp

__all__ = ["cause", "without_login"]

_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")


def cause(error: BaseException) -> str:
    """The type and message of an error, on one line.

    Not its ``repr``: for a response that cannot be parsed, aiohttp's ``repr`` includes the request headers, and that of
    a decoding error includes all the bytes.
    """
    said = f"{error.status}, {error.message}" if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return without_login(": ".join(filter(None, (type(error).__name__, " ".join(said.split())))))


def without_login(text: str) -> str:
    """A text with user names and passwords removed from its URLs."""
    return _LOGIN.sub("", text)
