"""Routing versions as the stages load them: each an immutable file of the storage."""

from __future__ import annotations

from functools import lru_cache

from spatialstream.connectors.contracts import Storage
from spatialstream.index.version import RoutingVersion

__all__ = ["VERSIONS", "load_version", "number_of", "save_version", "version_name"]

VERSIONS = "versions/"
"""Prefix of their names."""


def version_name(number: int) -> str:
    """The name of a version's file."""
    return f"{VERSIONS}{number:06d}.arrays"


def number_of(name: str) -> int:
    """The number of the version in a file."""
    return int(name.removeprefix(VERSIONS).removesuffix(".arrays"))


def save_version(storage: Storage, version: RoutingVersion) -> None:
    """Save a version where the stages find it."""
    storage.put(version_name(version.number), *version.pack())


@lru_cache(maxsize=8)
def load_version(storage: Storage, number: int) -> RoutingVersion:
    """Load a version.

    Raises:
        StateError: it is missing, or damaged.
    """
    name = version_name(number)
    return RoutingVersion.unpack(storage.get(name), f"{storage.place}/{name}")
