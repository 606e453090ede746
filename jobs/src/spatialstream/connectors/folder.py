"""Storage in a folder, of one machine or shared by several."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from spatialstream.connectors.disk import mapped, new_file, whole_file
from spatialstream.connectors.synchronous_storage import SynchronousStorage
from spatialstream.model.errors import Missing

__all__ = ["Folder", "checked"]

_PART = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*")
"""A part of a name. None begins with a dot: such files are being written, or belong to others."""


def checked(name: str) -> str:
    """The name, if it is valid.

    Raises:
        ValueError: it is not: letters, digits and ``_ . = -``, in parts separated by ``/``, none of which begins with a
            dot.
    """
    if not all(map(_PART.fullmatch, name.split("/"))):
        raise ValueError(f"{name!r} is not a valid file name in a storage")
    return name


@dataclass(frozen=True, slots=True)
class Folder(SynchronousStorage):
    """A folder as a :class:`~spatialstream.connectors.contracts.Storage`; created with the first file.

    A file is written under a hidden temporary name, and renamed. Files are mapped when read, so pages are shared
    between processes and read on demand; a file that is replaced or removed stays, without a name, as long as it is
    mapped. Nothing is forced to the disk: killed processes lose nothing, but a machine that loses power may.

    Attributes:
        path: of the folder.
    """

    path: Path

    @property
    def place(self) -> str:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        return str(self.path)

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        with whole_file(self.path / checked(name)) as file:
            for part in parts:
                file.write(part)

    def create(self, name: str, data: bytes) -> bool:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        path = self.path / checked(name)
        return new_file(path, data) or path.read_bytes() == data

    def get(self, name: str) -> pa.Buffer:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        path = self.path / checked(name)
        try:
            return mapped(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise Missing(f"{path} is missing") from None

    def list(self, prefix: str) -> list[str]:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        if prefix:
            checked(prefix.removesuffix("/"))
        return sorted(_below(f"{self.path}/{prefix}", prefix))

    def delete(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`. Also removes folders that become empty."""
        folders: set[str] = set()
        for name in names:
            folders.add(checked(name).rpartition("/")[0])
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                os.unlink(f"{self.path}/{name}")  # noqa: PTH108 (names are text, and there are many)
        for folder in folders:
            with suppress(OSError):
                while folder:
                    os.rmdir(f"{self.path}/{folder}")  # noqa: PTH106
                    folder = folder.rpartition("/")[0]


def _below(folder: str, prefix: str) -> Iterator[str]:
    """Names of the files in a folder and in those below it."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from _below(entry.path, f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name
    except (FileNotFoundError, NotADirectoryError):
        return
