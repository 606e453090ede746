"""Versioned state: immutable files of arrays, and one manifest an epoch that names them.

Names in the storage, for each owner (a slot, the registry, the merger)::

    state/<owner>/epoch-000000017.json           the manifest: what the owner's structures looked like after epoch 17
    state/<owner>/000000017-003-segment.arrays   files written during epoch 17

Epoch e reads the manifest of e-1 and writes that of e. File names depend on the owner, the epoch and the order of
writing only, and the same input writes the same bytes; so when an epoch is done again, after a crash or because a task
was tried twice, that overwrites files with equal content, and whichever attempt finishes last, the state is the same.
Only an epoch that leaves records out (:mod:`~spatialstream.stages.leaving`) is another than before the decision: each
decision begins a *take*, of which the names of files and manifests bear the number, if it is not the first.
Which epoch is next is decided elsewhere, and once, with :class:`Progress`.

Why not Spark's state store: see ``docs/architecture.md`` (latency, and gigabytes through the Python state interface).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy.typing as npt
import pyarrow as pa

from spatialstream.local.state import Manifest
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.model.errors import Missing, StateError
from spatialstream.model.jsonable import from_json, to_json
from spatialstream.sources.contracts import Storage, find
from spatialstream.sources.disk import DAMAGED, undamaged

__all__ = [
    "FORMAT",
    "OwnerState",
    "Progress",
    "get_json",
    "get_records",
    "get_value",
    "put_json",
    "put_records",
    "put_value",
]

FORMAT = 2
"""Of all that is kept in a checkpoint; one with another number cannot be gone on with, and is refused."""

T = TypeVar("T")


def put_json(storage: Storage, name: str, value: Any) -> None:
    """Write a file of JSON."""
    storage.put(name, json.dumps(value).encode())


def get_json(storage: Storage, name: str, way_out: str = DAMAGED) -> Any:
    """A file of the project's own that holds JSON.

    Args:
        storage: where it is.
        name: of the file.
        way_out: what to do about a damaged one, as the end of a sentence.

    Raises:
        StateError: it is missing, cannot be read, or is damaged.
    """
    with undamaged(f"{storage.place}/{name}", way_out):
        return json.loads(storage.get(name).to_pybytes())


def put_value(storage: Storage, name: str, value: object) -> None:
    """Write a file that holds a dataclass, see :mod:`~spatialstream.model.jsonable`."""
    storage.put(name, to_json(value).encode())


def get_value(storage: Storage, name: str, kind: type[T]) -> T:
    """What :func:`put_value` wrote.

    Raises:
        StateError: it is missing, cannot be read, or is damaged.
    """
    with undamaged(f"{storage.place}/{name}", DAMAGED):
        return from_json(kind, storage.get(name).to_pybytes())


def put_records(storage: Storage, name: str, records: pa.RecordBatch | pa.Table) -> None:
    """Write a file of records (Arrow IPC)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, records.schema) as writer:
        writer.write(records)
    storage.put(name, sink.getvalue())


def get_records(storage: Storage, name: str) -> list[pa.RecordBatch]:
    """The batches of a file of :func:`put_records`, without a copy."""
    reader = pa.ipc.open_file(storage.get(name))
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


@dataclass(frozen=True, slots=True)
class Progress:
    """The last of a job's epochs or rounds that is known to be done, in a file of its own.

    Attributes:
        storage: where the file is.
        name: of the file.
    """

    storage: Storage
    name: str

    def load(self) -> int:
        """The number; -1 if nothing is done."""
        with undamaged(f"{self.storage.place}/{self.name}", DAMAGED):
            data = find(self.storage, self.name)
            return -1 if data is None else int(data.to_pybytes())

    def save(self, number: int) -> None:
        """This one is done, and so are all before it."""
        self.storage.put(self.name, str(number).encode())


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


class OwnerState:
    """The state of one owner during one epoch: reads what epoch - 1 left, writes what epoch leaves.

    Args:
        storage: of all state.
        owner: whose it is.
        epoch: the number.
        take: of this epoch.
        before: the take of epoch - 1 by which it was done.
    """

    def __init__(self, storage: Storage, owner: str, epoch: int, take: int = 0, before: int = 0) -> None:
        self._storage, self._prefix = storage, f"state/{owner}/"
        self._epoch = epoch
        self._take, self._before = take, before
        self._written = 0

    def _manifest_name(self, epoch: int, take: int) -> str:
        return f"{self._prefix}epoch-{epoch:09d}{_of_take(take)}.json"

    def previous(self) -> Manifest | None:
        """The manifest of the epoch before; None at the first epoch.

        Raises:
            StateError: it is missing.
        """
        if self._epoch == 0:
            return None
        name = self._manifest_name(self._epoch - 1, self._before)
        try:
            data = self._storage.get(name)
        except Missing as error:
            raise StateError(f"{error}: the checkpoint is damaged, or belongs to another run") from None
        with undamaged(f"{self._storage.place}/{name}", DAMAGED):
            manifest: Manifest = dict(json.loads(data.to_pybytes()).items())
        return manifest

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any] | None = None) -> str:
        """See :class:`spatialstream.local.state.WriteFile`."""
        name = f"{self._epoch:09d}{_of_take(self._take)}-{self._written:03d}-{kind}.arrays"
        self._written += 1
        self._storage.put(self._prefix + name, *pack_arrays(arrays, meta))
        return name

    def read(self, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """See :class:`spatialstream.local.state.ReadFile`."""
        name = self._prefix + name
        return unpack_arrays(self._storage.get(name), f"{self._storage.place}/{name}")

    def carry(self) -> None:
        """Nothing has changed in this epoch: it leaves the state that it found."""
        if self._epoch and find(self._storage, self._manifest_name(self._epoch - 1, self._before)) is not None:
            manifest = self.previous()
            assert manifest is not None
            self.commit(manifest)

    def commit(self, manifest: Manifest) -> None:
        """Store this epoch's manifest, then delete what only the manifest before the previous one named.

        When epoch e runs, e-1 is done, so nothing older than the manifest of e-1 can be asked for again.
        """
        put_json(self._storage, self._manifest_name(self._epoch, self._take), manifest)
        if self._epoch < 2:
            return
        old = [
            name
            for name in self._storage.list(self._prefix)
            if name.startswith(f"{self._prefix}epoch-{self._epoch - 2:09d}")
        ]  # of all its takes
        if not old:
            return
        before = self._manifest_name(self._epoch - 1, self._before)
        kept = {*self._named(before), *_names(manifest)}
        for name in old:
            self._storage.delete(self._prefix + each for each in self._named(name) - kept)
        self._storage.delete(old)

    def _named(self, manifest: str) -> set[str]:
        """The files that a manifest names."""
        return set(_names(json.loads(self._storage.get(manifest).to_pybytes())))


def _of_take(take: int) -> str:
    return f"-take{take}" if take else ""
