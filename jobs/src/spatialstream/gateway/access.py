"""Authentication and authorization by bearer tokens; without tokens, callers on this machine may read.

Tokens are those of a file or of a cluster's accounts. The cluster authorizes its accounts
(:mod:`~spatialstream.gateway.reviews`). The file has one token a line, as JSON::

    {"name": "dashboard", "sha256": "9f86d0...", "rights": ["ask", "watch"], "streams": ["quakes"]}
    {"name": "sensors", "token": "...", "rights": ["write"], "streams": ["*"]}

A token is compared by its digest with every token of the file, in constant time. The content of the file is never shown
or logged; the file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spatialstream.gateway.problems import Problem
from spatialstream.gateway.reviews import RIGHTS, Reviewed, Reviews
from spatialstream.model.errors import SettingError

__all__ = ["ANYONE", "RIGHTS", "Access", "Caller", "read_tokens"]

_FIELDS = {"name", "token", "sha256", "rights", "streams"}
_SHORTEST = 16
_EVERY = "*"
_REMEMBERED = 4096
"""Number of valid tokens remembered, the latest ones."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request.

    Attributes:
        name: the caller's name, for the log.
        rights: a subset of :data:`RIGHTS`.
        streams: names of the streams that the rights apply to; ``*``: all.
        digest: digest of the token; not shown.
    """

    name: str
    rights: frozenset[str]
    streams: frozenset[str]
    digest: bytes = field(default=b"", repr=False)

    async def check(self, right: str, stream: str) -> None:
        """Check that the caller has a right on a stream.

        Raises:
            Problem: it does not.
        """
        if not self.streams & {_EVERY, stream}:
            raise Problem("forbidden", f"{self.name} has no rights on the stream {stream}")
        if right not in self.rights:
            may = ", ".join(sorted(self.rights)) or "none"
            raise Problem("forbidden", f"{self.name} lacks the right {right}; it has {may}")

    async def rights_on(self, stream: str) -> frozenset[str]:
        """Return the caller's rights on a stream."""
        return self.rights if self.streams & {_EVERY, stream} else frozenset()


ANYONE = Caller("anyone", frozenset({"ask", "watch"}), frozenset({_EVERY}))
"""The caller of every request to a gateway without tokens, which serves this machine only."""


def read_tokens(path: Path) -> list[Caller]:
    """Read the callers of a token file.

    Raises:
        SettingError: it cannot be read, or a line is not of the form above; names the line, and never shows it.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingError("tokens", f"{path} cannot be read: {reason}") from None
    callers = [_caller(f"{path} line {number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not callers:
        raise SettingError("tokens", f"{path} has no token; without --tokens the gateway is read-only and local")
    if len({each.name for each in callers}) < len(callers):
        raise SettingError("tokens", f"{path} has a name twice; give each token a name of its own")
    return callers


def _caller(place: str, line: str) -> Caller:
    def wrong(problem: str) -> SettingError:
        return SettingError("tokens", f"{place}: {problem}")

    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise wrong("is not JSON") from None
    if not isinstance(record, dict) or not record.keys() <= _FIELDS:
        raise wrong(f"must be an object with only the fields {', '.join(sorted(_FIELDS))}")
    name = record.get("name")
    if not isinstance(name, str) or not name:
        raise wrong("name: give a name, for the log")
    return Caller(
        name, _words(record, "rights", wrong, RIGHTS), _words(record, "streams", wrong), _digest(record, wrong)
    )


def _bearer(authorization: str | None) -> str | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _digest(record: Mapping[str, Any], wrong: Callable[[str], SettingError]) -> bytes:
    token, digest = record.get("token"), record.get("sha256")
    if (token is None) == (digest is None):
        raise wrong("give either token, or sha256 with the token's digest")
    if isinstance(token, str) and len(token) >= _SHORTEST:
        return hashlib.sha256(token.encode()).digest()
    if isinstance(digest, str) and re.fullmatch("[0-9a-fA-F]{64}", digest):
        return bytes.fromhex(digest)
    raise wrong(f"a token must have at least {_SHORTEST} characters, a sha256 64 hexadecimal digits")


def _words(
    record: Mapping[str, Any], name: str, wrong: Callable[[str], SettingError], known: tuple[str, ...] = ()
) -> frozenset[str]:
    words = record.get(name)
    if not isinstance(words, list) or not words or not all(isinstance(each, str) for each in words):
        raise wrong(f"{name}: give a list of strings")
    if known and not set(words) <= set(known):
        raise wrong(f"{name}: must be among {', '.join(known)}")
    return frozenset(words)


class Access:
    """Authenticates requests.

    Args:
        tokens: the token file; None: no file.
        report: called with a message when a changed file cannot be read; the previous tokens stay valid then.
        reviews: has a cluster review tokens that are not in the file; None: no cluster. Without a file and a cluster
            every caller is :data:`ANYONE`.
        recheck: seconds after which the file is checked for changes.

    Raises:
        SettingError: see :func:`read_tokens`.
    """

    def __init__(
        self,
        tokens: Path | None = None,
        report: Callable[[str], object] = lambda text: None,
        reviews: Reviews | None = None,
        recheck: float = 1.0,
    ) -> None:
        self._recheck = recheck
        self._path, self._report, self._lock, self._reviews = tokens, report, threading.Lock(), reviews
        self._looked, self._state = time.monotonic(), self._stat()
        self._callers = [] if tokens is None else read_tokens(tokens)
        self._right = OrderedDict[bytes, None]()

    @property
    def local(self) -> bool:
        """Whether there are no tokens, so that only callers on this machine are allowed."""
        return self._path is None and self._reviews is None

    async def caller(self, authorization: str | None) -> Caller | Reviewed:
        """Return the caller that an Authorization header identifies.

        Raises:
            Problem: the token is missing or unknown.
            Unavailable: the cluster does not answer.
        """
        if self.local:
            return ANYONE
        self._look()
        token = _bearer(authorization)
        if token is not None:
            digest = _digest_of(token)
            found = [each for each in self._callers if hmac.compare_digest(each.digest, digest)]
            identity = found[0] if found else None if self._reviews is None else await self._reviews.caller(token)
            self._right.pop(digest, None)
            if identity is not None:
                self._right[digest] = None
                if len(self._right) > _REMEMBERED:
                    self._right.popitem(last=False)
                return identity
        told = "send Authorization: Bearer TOKEN" if authorization is None else "the token is unknown"
        raise Problem("unauthorized", told, headers={"WWW-Authenticate": 'Bearer realm="spatialstream"'})

    def knew(self, authorization: str | None) -> bool:
        """Whether the token of this header was valid at its last use, as far as that is remembered."""
        token = _bearer(authorization)
        return self.local or (token is not None and _digest_of(token) in self._right)

    def _stat(self) -> tuple[int, int] | None:
        try:
            stat = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_ino)

    def _look(self) -> None:
        """Read the file again if it has changed."""
        with self._lock:
            if self._path is None or time.monotonic() < self._looked + self._recheck:
                return
            self._looked = time.monotonic()
            state = self._stat()
            if state == self._state:
                return
            self._state = state
            try:
                self._callers = read_tokens(self._path)
            except SettingError as error:
                self._report(f"{error}; the tokens read before stay valid")
