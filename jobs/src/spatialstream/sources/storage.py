"""Versioned state on disk: immutable files of arrays, and one manifest an epoch that names them.

Layout under the checkpoint folder, for each owner (a slot, the registry, the merger)::

    state/<owner>/epoch-000000017.json           the manifest: what the owner's structures looked like after epoch 17
    state/<owner>/000000017-003-segment.arrays   files written during epoch 17

Epoch e reads the manifest of e-1 and writes that of e. File names depend on the owner, the epoch and the order of
writing only, and the same input writes the same bytes; so when Spark replays an epoch, after a crash or because a task
was tried twice, it overwrites files with equal content, and whichever attempt finishes last, the state is the same.
Only an epoch that leaves records out (:mod:`~spatialstream.stages.leaving`) is another than before the decision: each
decision begins a *take*, of which the names of files and manifests bear the number, if it is not the first.
Which epoch is next is decided elsewhere, and once: in embedded mode by Spark's own checkpoint, in a live stream by
:class:`Progress`.

Why not Spark's state store: see ``docs/architecture.md`` (latency, and gigabytes through the Python state interface).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt

from spatialstream.local.state import Manifest
from spatialstream.model.arrays import map_arrays, write_arrays
from spatialstream.model.errors import RunError, SettingError, StateError

__all__ = [
    "DAMAGED",
    "Progress",
    "StateFolder",
    "disk_errors",
    "made",
    "read_json",
    "undamaged",
    "whole_file",
    "write_whole",
]


DAMAGED = "the checkpoint cannot be used; begin anew with another one"
"""The way out where a file of a checkpoint is damaged."""


def made(folder: Path) -> Path:
    """The folder; it is there now."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def disk_errors(setting: str | None = None) -> Iterator[None]:
    """Say in one sentence what a disk does not do; whatever is on it is whole.

    Args:
        setting: the setting that says where on the disk; None where that was usable a moment ago.

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
        raise RunError(f"cannot go on, {problem}; once that is mended, the same again goes on from here") from error


def read_json(path: Path, way_out: str) -> Any:
    """A file of the project's own that holds JSON.

    Args:
        path: the file.
        way_out: what to do about a damaged one, as the end of a sentence.

    Raises:
        StateError: it is missing, cannot be read, or is damaged.
    """
    with undamaged(path, way_out):
        return json.loads(path.read_bytes())


@contextmanager
def undamaged(path: Path, way_out: str) -> Iterator[None]:
    """Whatever goes wrong here with a file of the project's own, is the file's fault; see :func:`read_json`."""
    try:
        yield
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror or error}; {way_out}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise StateError(f"{path} is damaged; {way_out}") from error


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to be written within; it is there whole or not at all (aside, then renamed).

    Raises:
        OSError: it cannot be written, such as on a full disk; names the file, and leaves no part of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            yield file
        aside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; raises as :func:`whole_file`."""
    with whole_file(path) as file:
        file.write(data)


@dataclass(frozen=True, slots=True)
class Progress:
    """The last of a job's epochs or rounds that is known to be done, in a file of its own.

    Attributes:
        path: the file.
    """

    path: Path

    def load(self) -> int:
        """The number; -1 if nothing is done."""
        with undamaged(self.path, DAMAGED):
            return int(self.path.read_bytes()) if self.path.exists() else -1

    def save(self, number: int) -> None:
        """This one is done, and so are all before it."""
        write_whole(self.path, str(number).encode())


def _names(value: object) -> Iterator[str]:
    """Every file name in a manifest, wherever it is nested."""
    if isinstance(value, str):
        if value.endswith(".arrays"):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _names(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _names(each)


class StateFolder:
    """The state of one owner during one epoch: reads what epoch - 1 left, writes what epoch leaves.

    Args:
        checkpoint: folder of all state.
        owner: whose it is.
        epoch: the number.
        take: of this epoch.
        before: the take of epoch - 1 by which it was done.
    """

    def __init__(self, checkpoint: Path, owner: str, epoch: int, take: int = 0, before: int = 0) -> None:
        self._folder = checkpoint / "state" / owner
        self._epoch = epoch
        self._take, self._before = take, before
        self._written = 0

    def _manifest_path(self, epoch: int, take: int) -> Path:
        return self._folder / f"epoch-{epoch:09d}{_of_take(take)}.json"

    def previous(self) -> Manifest | None:
        """The manifest of the epoch before; None at the first epoch.

        Raises:
            StateError: it is missing.
        """
        if self._epoch == 0:
            return None
        path = self._manifest_path(self._epoch - 1, self._before)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StateError(f"{path} is missing: the checkpoint is damaged, or belongs to another run") from None
        with undamaged(path, DAMAGED):
            manifest: Manifest = dict(json.loads(data).items())
        return manifest

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any] | None = None) -> str:
        """See :class:`spatialstream.local.state.WriteFile`."""
        name = f"{self._epoch:09d}{_of_take(self._take)}-{self._written:03d}-{kind}.arrays"
        self._written += 1
        write_arrays(self._folder / name, arrays, meta)
        return name

    def read(self, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """See :class:`spatialstream.local.state.ReadFile`."""
        return map_arrays(self._folder / name)

    def carry(self) -> None:
        """Nothing has changed in this epoch: it leaves the state that it found."""
        if self._epoch and self._manifest_path(self._epoch - 1, self._before).exists():
            manifest = self.previous()
            assert manifest is not None
            self.commit(manifest)

    def commit(self, manifest: Manifest) -> None:
        """Store this epoch's manifest, then delete what only the manifest before the previous one named.

        When epoch e runs, e-1 is done, so nothing older than the manifest of e-1 can be asked for again.
        """
        write_whole(self._manifest_path(self._epoch, self._take), json.dumps(manifest).encode())
        if self._epoch < 2:
            return
        for old in self._folder.glob(f"epoch-{self._epoch - 2:09d}*.json"):  # of all its takes
            before = self._manifest_path(self._epoch - 1, self._before)
            kept = set(_names(json.loads(before.read_bytes()))) | set(_names(manifest))
            for name in set(_names(json.loads(old.read_bytes()))) - kept:
                (self._folder / name).unlink(missing_ok=True)
            old.unlink(missing_ok=True)


def _of_take(take: int) -> str:
    return f"-take{take}" if take else ""
