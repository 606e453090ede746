"""A storage from what a person names: a folder, or the URL of an object store."""

from __future__ import annotations

from pathlib import Path

from spatialstream.connectors.folder import Folder
from spatialstream.connectors.local_cache import LocalCache
from spatialstream.connectors.object_store import ObjectStorage, is_url

__all__ = ["storage_at"]


def storage_at(place: str | Path, setting: str) -> Folder | ObjectStorage:
    """The storage at a place; a remote one gets a new cache with each call.

    Raises:
        SettingError: it is neither a folder's path nor a known URL; names the setting.
    """
    if is_url(str(place)):
        return ObjectStorage.parse(str(place), setting, LocalCache())
    return Folder(Path(place).absolute())
