"""Files that exist completely or not at all, and error messages about disks."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from spatialstream.model.errors import Missing, RunError, SettingError, StateError

__all__ = [
    "DAMAGED",
    "disk_errors",
    "is_full",
    "made",
    "mapped",
    "new_file",
    "private_file",
    "undamaged",
    "whole_file",
    "write_whole",
]


_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})

DAMAGED = "the checkpoint cannot be used; start again with another one"
"""The advice if a file of a checkpoint is damaged."""

_TRIES = 100


def made(folder: Path) -> Path:
    """The folder, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def disk_errors(setting: str | None = None) -> Iterator[None]:
    """Turns errors of a disk into one sentence; all files on it stay complete.

    Args:
        setting: the setting that names the folder; None if the folder was usable before.

    Raises:
        SettingError: the folder of the setting cannot be used.
        RunError: another error of the disk, such as that it is full.
    """
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        problem = f"{error.filename}: {what}" if error.filename else what
        if setting is not None:
            raise SettingError(setting, f"cannot be used, {problem}; give a folder that can be written") from error
        raise RunError(f"cannot continue: {problem}; after solving this, the same run continues from here") from error


def is_full(error: BaseException) -> bool:
    """Whether the error says that a disk is full, or that this user's quota is used up."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def undamaged(file: Path | str, way_out: str) -> Iterator[None]:
    """Attributes any error within to a damaged file of the project's own.

    Args:
        file: the file, as shown to a person.
        way_out: what to do about a damaged file, as the end of a sentence.

    Raises:
        StateError: it is missing, cannot be read, or is damaged.
    """
    try:
        yield
    except Missing as error:
        raise StateError(f"{error}; {way_out}") from error
    except OSError as error:
        raise StateError(f"{file} cannot be read: {error.strerror or error}; {way_out}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise StateError(f"{file} is damaged; {way_out}") from error


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to be written within; it exists completely or not at all (temporary file, then renamed).

    Raises:
        OSError: it cannot be written, such as on a full disk; names the file, and leaves no part of it.
    """
    aside = path.with_name(f".{path.name}.{secrets.randbits(63)}")  # others may write the same, also on other machines
    try:
        with _opened(aside) as file:
            yield file
        aside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(aside)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _opened(path: Path) -> IO[bytes]:
    """A new file; its folder is created, repeatedly if others remove it because it is empty."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return path.open("wb")
        with suppress(FileNotFoundError, FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file completely or not at all; raises as :func:`whole_file`."""
    with whole_file(path) as file:
        file.write(data)


def new_file(path: Path, data: bytes) -> bool:
    """Write a complete file unless it exists; returns whether it was written. Raises as :func:`whole_file`.

    Some shared folders (SMB, mounted buckets) have no links, which make only one of several concurrent calls succeed.
    There the last one does.
    """
    aside = path.with_name(f".{path.name}.{secrets.randbits(63)}")
    write_whole(aside, data)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return True


def private_file(path: Path, data: bytes) -> None:
    """Write a new file that only this user may read.

    Raises:
        OSError: it cannot be written.
    """
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def mapped(path: Path) -> pa.Buffer:
    """A file's bytes, mapped; writing to them changes neither the file nor what other callers get.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return pa.py_buffer(bytearray())
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
