"""What is said of an error, in statuses and logs: never what a request bore, for tokens are among its headers."""

from __future__ import annotations

import re

import aiohttp

__all__ = ["cause", "without_login"]

_LOGIN = re.compile(r"(?<=://)[^/?#\s]*@")


def cause(error: BaseException) -> str:
    """An error's kind, and what it says, in a line.

    Not its ``repr``: that of an answer that cannot be read shows the headers of the request, and that of bytes that are
    no text shows them all.
    """
    said = f"{error.status}, {error.message}" if isinstance(error, aiohttp.ClientResponseError) else str(error)
    return without_login(": ".join(filter(None, (type(error).__name__, " ".join(said.split())))))


def without_login(text: str) -> str:
    """A text whose URLs are without the name and password that they may have before a host."""
    return _LOGIN.sub("", text)
