"""Encoding of what a store contains: names that are valid in paths, digests of versions, detection of damaged bytes."""

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
    """The name, if it is valid in a path.

    Raises:
        ValueError: it is not.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a name may have letters (a-z, A-Z), digits, '-', '_' and '.', and must not begin with '.': {name!r}"
        )
    return name


@contextmanager
def damage(source: str) -> Iterator[None]:
    """A context for reading bytes that this package may not have written.

    Raises:
        StateError: they are invalid.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise StateError(
            f"{source} is damaged, or was written by another program: {type(error).__name__}: {error}"
        ) from error


def digest(version: RoutingVersion) -> str:
    """SHA-256 of the content of a version."""
    return hashlib.sha256(b"".join(version.pack())).hexdigest()
