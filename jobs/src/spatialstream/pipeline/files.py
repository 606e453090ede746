"""Versioned state on disk: immutable files of arrays, and one manifest an epoch that names them.

Layout under the checkpoint folder, for each owner (a slot, the registry, the merger)::

    state/<owner>/epoch-000000017.json           the manifest: what the owner's structures looked like after epoch 17
    state/<owner>/000000017-003-segment.arrays   files written during epoch 17

Epoch e reads the manifest of e-1 and writes that of e. File names depend on the owner, the epoch and the order of
writing only, and the same input writes the same bytes; so when Spark replays an epoch, after a crash or because a task
was tried twice, it overwrites files with equal content, and whichever attempt finishes last, the state is the same.
Which epoch is next is decided elsewhere, and once: in embedded mode by Spark's own checkpoint, in a live stream by
:class:`Progress`.

Why not Spark's state store: see ``docs/architecture.md`` (latency, and gigabytes through the Python state interface).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from spatialstream.local.state import Manifest
from spatialstream.model.arrays import map_arrays, write_arrays
from spatialstream.model.errors import StateError

__all__ = ["Progress", "StateFolder", "write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all (aside, then renamed)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(data)
    aside.replace(path)


@dataclass(frozen=True, slots=True)
class Progress:
    """The last of a job's epochs or rounds that is known to be done, in a file of its own.

    Attributes:
        path: the file.
    """

    path: Path

    def load(self) -> int:
        """The number; -1 if nothing is done."""
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
    """The state of one owner during one epoch: reads what epoch - 1 left, writes what epoch leaves."""

    def __init__(self, checkpoint: Path, owner: str, epoch: int) -> None:
        self._folder = checkpoint / "state" / owner
        self._epoch = epoch
        self._written = 0

    def _manifest_path(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch:09d}.json"

    def previous(self) -> Manifest | None:
        """The manifest of the epoch before; None at the first epoch.

        Raises:
            StateError: it is missing.
        """
        if self._epoch == 0:
            return None
        path = self._manifest_path(self._epoch - 1)
        try:
            manifest: Manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise StateError(f"{path} is missing: the checkpoint is damaged, or belongs to another run") from None
        return manifest

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any] | None = None) -> str:
        """See :class:`spatialstream.local.state.WriteFile`."""
        name = f"{self._epoch:09d}-{self._written:03d}-{kind}.arrays"
        self._written += 1
        write_arrays(self._folder / name, arrays, meta)
        return name

    def read(self, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """See :class:`spatialstream.local.state.ReadFile`."""
        return map_arrays(self._folder / name)

    def carry(self) -> None:
        """Nothing has changed in this epoch: it leaves the state that it found."""
        if self._epoch and self._manifest_path(self._epoch - 1).exists():
            manifest = self.previous()
            assert manifest is not None
            self.commit(manifest)

    def commit(self, manifest: Manifest) -> None:
        """Store this epoch's manifest, then delete what only the manifest before the previous one named.

        When epoch e runs, e-1 is done, so nothing older than the manifest of e-1 can be asked for again.
        """
        write_whole(self._manifest_path(self._epoch), json.dumps(manifest).encode())
        old = self._manifest_path(self._epoch - 2)
        if self._epoch >= 2 and old.exists():
            kept = set(_names(json.loads(self._manifest_path(self._epoch - 1).read_bytes()))) | set(_names(manifest))
            for name in set(_names(json.loads(old.read_bytes()))) - kept:
                (self._folder / name).unlink(missing_ok=True)
            old.unlink(missing_ok=True)
