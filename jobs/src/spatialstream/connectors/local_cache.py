"""Copies of a remote storage's files on a disk of this machine, for the processes of one job; bounded, and dispensable.

A folder of the machine's temporary files, named by a *token* that is new in every job: so nothing of an earlier life of
a stream is ever taken for this one's, and nobody has to be asked whether a copy is still right. Each process that uses
it holds a shared lock of it; whoever begins to use one removes those that nobody holds any more.

What is read is mapped. When the files are more than the bound, those go that have not been used for longest; what is
mapped of them stays, without a name, for as long as somebody has it. A disk that is full is no failure: then there is
no copy.
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
    """The copies of one job. A pickle of it means the folder of that name on the machine where it is used.

    Attributes:
        token: of the job.
        most: bytes of all copies, about.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    most: int = _MOST

    @property
    def folder(self) -> Path:
        """Where they are."""
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
        """Keep a copy, if there is room; whether there was."""
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
        """Remove the copies that have not been used for longest, if all are more than the bound."""
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
    """Where the caches of this user are."""
    return Path(tempfile.gettempdir()) / f"spatialstream-cache-{os.getuid()}"


@cache
def _held(folder: Path, process: int) -> int:
    """Make a cache that stays for as long as this process lives, and remove those whose processes have all gone.

    Raises:
        OSError: it cannot be made; or where it would be is somebody else's.
    """
    parent = folder.parent
    parent.mkdir(mode=0o700, exist_ok=True)
    status = parent.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{parent} is not this user's alone")
    for each in parent.iterdir():
        if each != folder:
            _sweep(each)
    while True:
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(OSError):
            if os.path.samestat(os.fstat(lock), (folder / _LOCK).stat()):
                return lock  # never closed: the process ends with it
        os.close(lock)  # somebody has just taken it for one that nobody holds


def _sweep(folder: Path) -> None:
    """Remove a cache, if no process holds it."""
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
