"""Routing versions as the stages load them: each an immutable file of the storage."""

from __future__ import annotations

from functools import lru_cache

from spatialstream.connectors.contracts import Storage
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError

__all__ = ["VERSIONS", "check_kind", "load_version", "number_of", "save_version", "version_name"]

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


def check_kind(version: RoutingVersion, kind: str | None, stream: str) -> None:
    """Refuse to continue a stream under another kind of index than it has; None accepts every kind.

    Args:
        version: one of its versions.
        kind: the kind that is asked for.
        stream: its name.

    Raises:
        StateError: the stream has another kind.
    """
    if kind is not None and kind != version.index.kind:
        raise StateError(
            f"the index of {stream} is of kind {version.index.kind}, which it keeps: it cannot become {kind}"
        )
