"""Copies of a remote storage's files on a disk of this machine, for the processes of one job; bounded, and optional.

A folder among the machine's temporary files, named by a *token* that is new in every job: so files of an earlier
incarnation of a stream are never taken for this one's, and no copy ever has to be validated. Each process that uses the
folder holds a shared lock on it; a process that begins to use one removes those that nobody holds any more.

Files are mapped when read. When they exceed the bound, the least recently used ones are removed; a removed file that is
mapped stays, without a name, as long as it is in use. A full disk is no failure: then there is no copy.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa

from spatialstream.connectors.disk import mapped, whole_file

__all__ = ["LocalCache"]

_MOST = 2 << 30
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class LocalCache:
    """The copies of one job. A pickle of it refers to the folder of that name on the machine where it is used.

    Attributes:
        token: of the job.
        most: approximate maximum bytes of all copies.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    most: int = _MOST

    @property
    def folder(self) -> Path:
        """The folder of the copies."""
        return _parent() / self.token

    def get(self, name: str) -> pa.Buffer | None:
        """A copy, which is the caller's own; None if there is none."""
        path = self._path(name)
        with suppress(OSError):
            found = mapped(path)
            os.utime(path)
            return found
        return None

    def put(self, name: str, parts: Sequence[memoryview]) -> bool:
        """Keep a copy, if there is room; returns whether there was."""
        try:
            _held(self.folder, os.getpid())
            with whole_file(self._path(name)) as file:
                for part in parts:
                    file.write(part)
        except OSError:
            return False
        self._bound()
        return True

    def drop(self, names: Iterable[str]) -> None:
        """Remove copies."""
        for name in names:
            with suppress(OSError):
                self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self.folder / name.replace("/", ",")

    def _bound(self) -> None:
        """Remove the least recently used copies, if all exceed the bound."""
        known = list[tuple[int, int, str]]()
        with suppress(OSError), os.scandir(self.folder) as entries:
            known = [(status.st_mtime_ns, status.st_size, each.path) for each, status in _files(entries)]
        total = sum(size for _, size, _ in known)
        for _, size, path in sorted(known):
            if total <= self.most:
                break
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 (as in the folder's list)
            total -= size


def _files(entries: Iterable[os.DirEntry[str]]) -> Iterable[tuple[os.DirEntry[str], os.stat_result]]:
    for each in entries:
        if not each.name.startswith("."):
            with suppress(OSError):  # another process may remove it
                yield each, each.stat()


def _parent() -> Path:
    """The folder of the caches of this user."""
    return Path(tempfile.gettempdir()) / f"spatialstream-cache-{os.getuid()}"


@cache
def _held(folder: Path, process: int) -> int:
    """Create a cache that exists as long as this process, and remove those whose processes have all gone.

    Raises:
        OSError: it cannot be created; or its place belongs to another user.
    """
    parent = folder.parent
    parent.mkdir(mode=0o700, exist_ok=True)
    status = parent.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{parent} must belong to this user, and be accessible to no other")
    for each in parent.iterdir():
        if each != folder:
            _sweep(each)
    while True:
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(OSError):
            if os.path.samestat(os.fstat(lock), (folder / _LOCK).stat()):
                return lock  # never closed: the process holds it until it exits
        os.close(lock)  # another process has just removed the folder as unused


def _sweep(folder: Path) -> None:
    """Remove a cache, if no process holds it."""
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
