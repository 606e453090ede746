"""What is written into a store: names that can stand in paths, digests of versions, and bytes that may be damaged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError

__all__ = ["checked_name", "damage", "digest"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


def checked_name(name: str) -> str:
    """A name that can stand in a path.

    Raises:
        ValueError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a name has letters (a-z, A-Z), digits, '-', '_' and '.', and does not begin with '.': {name!r}"
        )
    return name


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Where bytes are read that may not be what this package has written.

    Raises:
        StateError: they are not.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise StateError(f"{what} is damaged, or another program's: {type(error).__name__}: {error}") from error


def digest(version: RoutingVersion) -> str:
    """SHA-256 of all that a version says."""
    return hashlib.sha256(b"".join(version.pack())).hexdigest()
