"""State of the owners (slots, registries, mergers): in memory from turn to turn, in files at checkpoints.

An owner's structures stay in the process that has done its last turn. A *checkpoint* writes what is new in them:
immutable files of arrays, and a manifest that names all files of which the structures consist. The records of turns say
which turns end with a checkpoint, so all owners checkpoint at the same point of the stream, and so does every
repetition of a turn. Names in the storage, for each owner::

    state/<owner>/epoch-000000017.json           the manifest of the owner's structures after turn 17
    state/<owner>/000000017-003-segment.arrays   files written at the checkpoint of turn 17

Interface
    :class:`OwnerState` is one owner's state in one turn: :meth:`~OwnerState.begin` returns the structures that the turn
    before has left, :meth:`~OwnerState.end` takes those that this turn leaves, and at the end of some turns, when their
    output is complete, :meth:`~OwnerState.checkpoint` begins to write them. On a remote storage that continues
    concurrently with the following turns, and :meth:`~OwnerState.written` returns its progress.

Invariant
    The structures after a turn are a function of its record, of the structures before and of the input that these name,
    whether they were restored or have stayed in memory. So are the files of a checkpoint, and their names. So when
    turns are replayed from the last checkpoint, because memory was lost with a process, or because a task was tried
    twice, files are overwritten with equal content, and whichever attempt finishes last, the state is the same. State
    in memory is tagged with its turn, so it is never taken for the state of another.

Only a turn that quarantines records (:mod:`~spatialstream.stages.quarantine`) differs from the turn before the
decision: each decision begins a *revision*, whose number is part of the names of files and manifests, if it is not the
first.

The files of an owner's checkpoint are put at once, in any order, and its manifest after all of them: if the manifest
exists, all files exist. A process that dies meanwhile leaves some files of a turn from which nobody restores: nobody
reads them.

A checkpoint deletes the files that neither it nor the last complete checkpoint names: turns are replayed from that one
until this one is known to be complete too, and only then another one begins. A process lists the existing files at its
first checkpoint of an owner; afterwards it knows them.

Why not Spark's state store: see ``docs/architecture.md`` (latency, and gigabytes through the Python state interface).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.connectors.contracts import File, Puts, Storage, find
from spatialstream.connectors.disk import DAMAGED, is_full, undamaged
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.arrays import pack_arrays, unpack_arrays
from spatialstream.model.errors import Lost, Missing, StateError
from spatialstream.model.jsonable import from_json, to_json
from spatialstream.model.progress import made

__all__ = [
    "FORMAT",
    "Checkpointed",
    "OwnerState",
    "Progress",
    "Turn",
    "Written",
    "forget",
    "get_json",
    "get_records",
    "get_value",
    "owners_in_memory",
    "put_json",
    "put_records",
    "put_value",
    "records_file",
    "turn_name",
]

FORMAT = 14
"""Format of all that is kept in a checkpoint; a checkpoint with another number is rejected."""

T = TypeVar("T")


def put_json(storage: Storage, name: str, value: Any) -> None:
    """Write a file of JSON."""
    storage.put(name, json.dumps(value).encode())


def get_json(storage: Storage, name: str, way_out: str = DAMAGED) -> Any:
    """Read a file of the project's own that contains JSON.

    Args:
        storage: of the file.
        name: of the file.
        way_out: what to do about a damaged file, as the end of a sentence.

    Raises:
        StateError: it is missing, cannot be read, or is damaged.
    """
    with undamaged(f"{storage.place}/{name}", way_out):
        return json.loads(storage.get(name).to_pybytes())


def put_value(storage: Storage, name: str, value: object) -> None:
    """Write a file that contains a dataclass, see :mod:`~spatialstream.model.jsonable`."""
    storage.put(name, to_json(value).encode())


def get_value(storage: Storage, name: str, kind: type[T]) -> T:
    """Read what :func:`put_value` wrote.

    Raises:
        StateError: it is missing, cannot be read, or is damaged.
    """
    with undamaged(f"{storage.place}/{name}", DAMAGED):
        return from_json(kind, storage.get(name).to_pybytes())


def records_file(records: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """The content of a file of records (Arrow IPC)."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, records.schema) as writer:
        writer.write(records)
    return sink.getvalue()


def put_records(storage: Storage, name: str, records: pa.RecordBatch | pa.Table) -> None:
    """Write a file of :func:`records_file`."""
    storage.put(name, records_file(records))


def get_records(storage: Storage, name: str) -> list[pa.RecordBatch]:
    """The batches of a file of :func:`records_file`, without a copy."""
    reader = pa.ipc.open_file(storage.get(name))
    return [reader.get_batch(i) for i in range(reader.num_record_batches)]


@dataclass(frozen=True, slots=True)
class Progress:
    """The last epoch or round of a job that is known to be done, in a file of its own.

    Attributes:
        storage: of the file.
        name: of the file.
    """

    storage: Storage
    name: str

    def load(self) -> int:
        """The number; -1 if nothing is done."""
        return self._read()[0]

    def counts(self) -> dict[str, int]:
        """The counts of all that is done."""
        return self._read()[1]

    def save(self, number: int, counts: Mapping[str, int] | None = None) -> None:
        """Save that this turn and all turns before it are done, and the counts of them.

        It need not be durable at once: a turn that is not known to be done is redone, with the same outcome.
        """
        self.storage.put_later(self.name, f"{number}\n{json.dumps(dict(counts or {}))}".encode())

    def _read(self) -> tuple[int, dict[str, int]]:
        with undamaged(f"{self.storage.place}/{self.name}", DAMAGED):
            data = find(self.storage, self.name)
            if data is None:
                return -1, {}
            number, _, counts = data.to_pybytes().partition(b"\n")
            return int(number), dict(json.loads(counts or b"{}").items())


def _names(value: object) -> Iterator[str]:
    """Every file name in a manifest, at any depth."""
    if isinstance(value, str):
        if value.endswith(".arrays"):
            yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _names(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _names(each)


Turn = tuple[int, int]
"""An epoch or a round: its number, and its revision."""


class _Told(Protocol):
    """What an owner has to know of its turn, see :mod:`~spatialstream.stages.turns`."""

    @property
    def number(self) -> int: ...

    @property
    def revision(self) -> int: ...

    @property
    def before(self) -> Turn | None: ...

    @property
    def since(self) -> Turn | None: ...


class Checkpointed(Protocol):
    """Structures of an owner."""

    def checkpoint(self, write: WriteFile) -> Manifest:
        """Write what is new, see :mod:`spatialstream.local.state`."""


_kept: dict[tuple[str, str], tuple[Turn, Any]] = {}
"""Structures in the memory of this process: (place, owner) -> (turn after which they are the state, structures)."""


_files: dict[tuple[str, str], tuple[Turn, set[str], set[str]]] = {}
"""Of the owners whose last checkpoint this process has written: (turn, its files, all files of the owner)."""


_sets: dict[tuple[str, str], tuple[Turn, Puts]] = {}
"""Of the same owners: (turn, the set of its puts)."""


@dataclass(frozen=True, slots=True)
class Written:
    """The progress of a checkpoint, of one owner or of several.

    Attributes:
        there: whether it is complete.
        lost: whether it will never be: the process that has begun to write it is gone.
        trouble: why it is not complete yet, if something has failed.
        full: whether the cause is that the storage is full.
    """

    there: bool = True
    lost: bool = False
    trouble: str = ""
    full: bool = False

    @classmethod
    def of_all(cls, owners: Iterable[Written]) -> Written:
        """The combined progress of several owners."""
        known = list(owners)
        there, lost = all(each.there for each in known), any(each.lost for each in known)
        trouble = next((each for each in known if each.trouble), cls())
        return cls(there, lost, trouble.trouble, trouble.full)


def owners_in_memory(storage: Storage) -> list[str]:
    """The owners whose state this process has in memory, sorted."""
    return sorted(owner for place, owner in _kept if place == storage.place)


def forget(storage: Storage | None = None, owner: str | None = None) -> None:
    """Drop what this process has in memory, as if it had died.

    Args:
        storage: only for this one; None: for all.
        owner: only for this one; None: for all.
    """
    place = None if storage is None else storage.place
    for known in (_kept, _files, _sets):
        for key in [each for each in known if place in (None, each[0]) and owner in (None, each[1])]:
            del known[key]


class OwnerState:
    """The state of one owner in one turn: what the turn before left, and what this one leaves.

    Args:
        storage: of all state.
        owner: name of the owner.
        turn: the turn.
        before: the turn that the owner has done before; None if this is its first.
        since: the last turn before whose checkpoint is complete; None if there is none.
    """

    def __init__(
        self, storage: Storage, owner: str, turn: Turn, before: Turn | None = None, since: Turn | None = None
    ) -> None:
        self._storage, self._owner, self._prefix = storage, owner, f"state/{owner}/"
        self._turn, self._before, self._since = turn, before, since
        self._new: list[File] = []

    @classmethod
    def of(cls, storage: Storage, owner: str, turn: _Told) -> OwnerState:
        """The state of an owner in an epoch or a round."""
        return cls(storage, owner, (turn.number, turn.revision), turn.before, turn.since)

    def begin(self, restore: Callable[[Manifest | None, ReadFile], T]) -> T:
        """The structures before the turn. They leave this process's memory: if the turn fails, they are gone.

        Args:
            restore: restores structures from a manifest; from None it makes empty ones.

        Raises:
            Lost: the turn before was done by another process, or one that has died, and no checkpoint came after it.
            StateError: the checkpoint is damaged.
        """
        known, structures = _kept.pop((self._storage.place, self._owner), (None, None))
        if structures is None or known != self._before:
            return restore(self.previous(), self.read)
        kept: T = structures
        return kept

    def copy(self, storage: Storage, restore: Callable[[Manifest | None, ReadFile], Checkpointed]) -> None:
        """Write the structures at the beginning of the turn to another storage, as if that were their checkpoint.

        They are then in no memory: they name files that this storage does not have.
        """
        if self._before is not None:
            other = OwnerState(storage, self._owner, self._before)
            other.commit(self.begin(restore).checkpoint(other.write))

    def end(self, structures: object) -> None:
        """The turn leaves these structures, which stay in this process's memory."""
        _kept[self._storage.place, self._owner] = self._turn, structures

    def checkpoint(self) -> Written:
        """Begin to write what is new in the structures that the turn has left; returns the progress.

        Raises:
            Lost: this process does not have them.
        """
        structures: Checkpointed | None = self.ended()
        if structures is None:
            raise Lost(f"the state of {self._owner} after turn {self._turn[0]} is not in memory any more")
        self.commit(structures.checkpoint(self.write))
        return self.written()

    def written(self, patience: float = 0.0) -> Written:
        """The progress of the checkpoint that :meth:`checkpoint` has begun, in this process or in one that is gone.

        Args:
            patience: maximum seconds to wait for its completion.
        """
        turn, puts = _sets.get((self._storage.place, self._owner), (None, None))
        if puts is None or turn != self._turn:
            there = find(self._storage, self._manifest_name(self._turn)) is not None
            return Written(there, not there)
        if puts.wait(patience):
            return Written()
        trouble = puts.trouble
        return Written(there=False, trouble=str(trouble or ""), full=trouble is not None and is_full(trouble))

    def ended(self) -> Any:
        """The structures that the turn has left, to be read only; None if this process does not have them."""
        known, structures = _kept.get((self._storage.place, self._owner), (None, None))
        return structures if known == self._turn else None

    def previous(self) -> Manifest | None:
        """The manifest of the turn before; None at the first turn.

        Raises:
            Lost: there is no checkpoint of the turn before.
            StateError: the manifest is missing or damaged.
        """
        if self._before is None:
            return None
        if self._before != self._since:
            raise Lost(f"the state of {self._owner} after turn {self._before[0]} is not in memory any more")
        return self._manifest(self._before)

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any] | None = None) -> str:
        """See :class:`spatialstream.local.state.WriteFile`."""
        name = f"{turn_name(self._turn)}-{len(self._new):03d}-{kind}.arrays"
        if self._storage.is_far:  # the following turns do not wait, and may change the arrays
            arrays = {each: np.array(array) if array.flags.writeable else array for each, array in arrays.items()}
        made()
        self._new.append((self._prefix + name, list(pack_arrays(arrays, meta))))
        return name

    def read(self, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """See :class:`spatialstream.local.state.ReadFile`."""
        made()
        name = self._prefix + name
        return unpack_arrays(self._storage.get(name), f"{self._storage.place}/{name}")

    def commit(self, manifest: Manifest) -> None:
        """Begin to put what has been written, and this turn's manifest; then delete what is not needed any more.

        That is what neither this manifest nor that of the last complete checkpoint names. The manifest may name files
        of an earlier checkpoint that this process is still putting, so these have to be complete first.
        """
        name, key = self._manifest_name(self._turn), (self._storage.place, self._owner)
        _, earlier = _sets.get(key, (None, None))
        _sets[key] = self._turn, self._storage.put_set(self._new, (name, [json.dumps(manifest).encode()]), earlier)
        self._new = []
        named = {name.removeprefix(self._prefix), *_names(manifest)}
        there = set(named)
        if self._since is not None:
            before, known = self._files()
            there |= known
            old = [name for name in there - named - before if _number_of(name) <= self._since[0]]
            self._storage.discard(self._prefix + name for name in old)
            there.difference_update(old)
        _files[key] = self._turn, named, there

    def _files(self) -> tuple[set[str], set[str]]:
        """The files of the last complete checkpoint, and all existing files; remembered, if this process wrote it."""
        assert self._since is not None
        turn, named, there = _files.get((self._storage.place, self._owner), (None, set[str](), set[str]()))
        if turn == self._since:
            return named, there
        manifest = self._manifest_name(self._since).removeprefix(self._prefix)
        there = {name.removeprefix(self._prefix) for name in self._storage.list(self._prefix)}
        return {manifest, *_names(self._manifest(self._since))}, there

    def _manifest_name(self, turn: Turn) -> str:
        return f"{self._prefix}{_MANIFEST}{turn_name(turn)}.json"

    def _manifest(self, turn: Turn) -> Manifest:
        name = self._manifest_name(turn)
        try:
            data = self._storage.get(name)
        except Missing as error:
            raise StateError(f"{error}: the checkpoint is damaged, or belongs to another run") from None
        with undamaged(f"{self._storage.place}/{name}", DAMAGED):
            manifest: Manifest = dict(json.loads(data.to_pybytes()).items())
        return manifest


_MANIFEST = "epoch-"
"""Prefix of the names of manifests."""


def turn_name(turn: Turn) -> str:
    """A turn, as part of file names."""
    number, revision = turn
    return f"{number:09d}-rev{revision}" if revision else f"{number:09d}"


def _number_of(name: str) -> int:
    """The turn in which a file of an owner was written."""
    return int(name.removeprefix(_MANIFEST)[:9])
