"""Prerequisites of a live stream's jobs: a lock on the checkpoint, the claim to it, and a first routing version."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from spatialstream.balance.planner import first_plan
from spatialstream.balance.query_partition import first_partition
from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.owned import STREAM
from spatialstream.connectors.program import program
from spatialstream.index.kinds import AUTO, DEFAULT
from spatialstream.index.version import build
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.model.kinds import CANCEL
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.records.commonest import commonest
from spatialstream.records.files import decode_chunk, plan
from spatialstream.records.layout import InputLayout
from spatialstream.records.reasons import common_reasons, told_reasons
from spatialstream.records.reference import Decoded
from spatialstream.stages.versions import save_version, version_name
from spatialstream.store.base import RoutingState, RoutingStore
from spatialstream.store.lease import FolderLease, Lease
from spatialstream.stream.router import EPOCHS
from spatialstream.stream.settings import StreamSettings

__all__ = [
    "FirstIndex",
    "Refused",
    "check_incarnation",
    "claim",
    "claimed",
    "ensure_first_version",
    "locked",
    "read_objects",
    "read_queries",
]

_SAMPLE = 50_000
_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)


@dataclass(frozen=True, slots=True)
class Refused:
    """The records of a file that cannot be used.

    Attributes:
        count: how many there are.
        reasons: why, see :func:`~spatialstream.records.reasons.common_reasons`.
        unknown: of the others, the commonest fields that are not read, see :mod:`~spatialstream.records.commonest`.
    """

    count: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Sequence[Decoded[Any]]) -> Refused:
        """Those of all parts."""
        found = [part.rejected.column("reason") for part in parts]
        reasons = common_reasons(chain.from_iterable(each.to_pylist() for each in found))
        return cls(sum(map(len, found)), reasons, commonest(part.unknown for part in parts))


@dataclass(frozen=True, slots=True)
class FirstIndex:
    """The global index that a new stream begins with.

    Attributes:
        kind: its kind; None: the default; :data:`~spatialstream.index.kinds.AUTO`: what the planner chooses.
        leaves: number of its leaves, unless the planner chooses.
        objects: file of objects like those to come.
        queries: file of queries like those to come.
    """

    kind: str | None = None
    leaves: int = 64
    objects: Path | None = None
    queries: Path | None = None


@contextmanager
def locked(checkpoint: Path, job: str) -> Iterator[None]:
    """Lock a folder of this machine for this process.

    Raises:
        SettingError: another process has locked it.
        OSError: the folder cannot be written.
    """
    with FolderLease(checkpoint, job) as lease:
        lease.acquire(0.0)
        yield


def claim(settings: StreamSettings, storage: Storage, lease: Lease, patience: float) -> str:
    """Claim a checkpoint that both jobs may claim at the same time; see :meth:`StreamSettings.claim`.

    Args:
        settings: of the stream.
        storage: of its state.
        lease: held while the first state is created.
        patience: seconds to wait for the lease.

    Raises:
        StateError: the storage is not this stream's.
        Unavailable: it is not claimed yet, and the lease cannot be had.
    """
    if (incarnation := claimed(settings, storage)) is not None:
        return incarnation
    with lease:
        lease.acquire(patience)
        return settings.claim(storage)


def claimed(settings: StreamSettings, storage: Storage) -> str | None:
    """The incarnation of the stream that has claimed a checkpoint; None if none has.

    Raises:
        StateError: the storage is not this stream's.
    """
    return None if find(storage, STREAM.marker) is None else settings.claim(storage)


def ensure_first_version(
    store: RoutingStore,
    storage: Storage,
    settings: StreamSettings,
    first: FirstIndex,
    patience: float = 60.0,
    incarnation: str = "",
    report: Callable[[str], None] = lambda text: None,
) -> None:
    """Create the stream in the routing store, unless it exists.

    A router that has run before does not need the store to continue, so it does not wait for it.

    Args:
        store: the routing store.
        storage: of the stream's state.
        settings: of the stream.
        first: the index of a new stream.
        patience: seconds to wait for the store.
        incarnation: id of the stream's incarnation.
        report: called with messages for the operator.

    Raises:
        Unavailable: the store cannot be reached.
        StateError: the stream in the store has another number of slots, or another incarnation.
    """
    if storage.list(EPOCHS):
        check_incarnation(store, storage, settings.name, incarnation)
        return None
    ends = time.monotonic() + patience
    while True:
        try:
            return _ensure(store, storage, settings, first, incarnation, report)
        except Unavailable:
            if time.monotonic() > ends:
                raise
            time.sleep(0.5)


def check_incarnation(
    store: RoutingStore, storage: Storage, stream: str, incarnation: str, *, new: bool = False
) -> None:
    """Make sure that routing store and checkpoint have the same incarnation; an unreachable store is accepted.

    Args:
        store: the routing store.
        storage: of the stream's state.
        stream: its name.
        incarnation: the checkpoint's.
        new: whether the stream need not be in the store yet.

    Raises:
        StateError: they have not.
    """
    try:
        if store.versions():
            return _same_incarnation(store.state(), storage, stream, incarnation)
    except Unavailable:
        return
    if not new:
        raise StateError(
            f"{storage.place} holds the state of {stream}, but the routing store has no entry for it: the entry was "
            f"removed. Remove the state as well with {program()} remove --checkpoint; then the stream starts anew"
        )


def _same_incarnation(state: RoutingState, storage: Storage, stream: str, incarnation: str) -> None:
    if state.incarnation != incarnation:
        raise StateError(
            f"the routing store belongs to another incarnation of {stream} "
            f"({state.incarnation or 'without an id'}) than {storage.place} "
            f"({incarnation or 'without an id'}). Give the job the checkpoint of that incarnation; or, if no other "
            f"has this name, remove that incarnation with {program()} remove, without --checkpoint; then the stream "
            "starts anew"
        )


def _ensure(
    store: RoutingStore,
    storage: Storage,
    settings: StreamSettings,
    first: FirstIndex,
    incarnation: str,
    report: Callable[[str], None],
) -> None:
    if store.versions():
        state = store.state()
        _same_incarnation(state, storage, settings.name, incarnation)
        if state.slots != settings.slots:
            raise StateError(f"the stream in the routing store has {state.slots} slots, not {settings.slots}")
        version = store.load(state.active.number)
        if first.kind not in (None, AUTO, kind := version.index.kind):
            report(f"the index is of kind {kind}; {program()} rebalance --strategy rebuild --index changes it")
    else:
        objects, queries = first.objects, first.queries
        object_batch, no_objects = (
            (ObjectBatch.of([]), Refused()) if objects is None else read_objects([objects], settings)
        )
        query_batch, no_queries = (QueryBatch.of([]), Refused()) if queries is None else read_queries(queries, settings)
        for path, refused in ((objects, no_objects), (queries, no_queries)):
            if refused.count:
                told = "; ".join(told_reasons(refused.reasons))
                report(f"{path}: {refused.count:,} records are invalid and were skipped: {told}")
        query_batch = query_batch.take(np.flatnonzero(query_batch.code != CANCEL))
        given = settings.space, _sample(object_batch), _sample(query_batch)
        weights = len(object_batch) / max(len(given[1]), 1), len(query_batch) / max(len(given[2]), 1)
        wanted = first.kind or DEFAULT, first.leaves, settings.slots
        made = first_plan(*wanted, *given, weights, nearest=settings.nearest)
        version = build(*given, made.leaves, settings.slots, kind=made.kind)
        if settings.placing:
            version = replace(version, nearest=first_partition(*given, weights[0], settings.slots))
        if made.reason:
            report(f"index: {made.reason}")
        store.create(version, incarnation, made.reason)
    if find(storage, version_name(version.number)) is None:
        save_version(storage, version)


def _sample(batch: _Batch) -> _Batch:
    stride = max(1, -(-len(batch) // _SAMPLE))
    return batch if stride == 1 else batch.take(np.arange(0, len(batch), stride))


def read_objects(
    paths: Sequence[Path],
    settings: StreamSettings,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
    layout: InputLayout | None = None,
) -> tuple[ObjectBatch, Refused]:
    """Read whole files of objects into memory, sorted by time; also returns the rejected records.

    Args:
        paths: the files.
        settings: of the stream.
        columns: our field name -> name in the file, or an expression (:mod:`~spatialstream.records.columns`).
        unit: of numeric times.
        layout: how its records are laid out; None: as we write them, or as the file shows.
    """
    given = settings.space, settings.rule, columns, unit
    chunks = plan(paths, columns, "objects", space=settings.space, layout=layout)
    parts = [decoded for chunk in chunks for decoded in decode_chunk(chunk, "objects", *given)]
    batches = [part.batch for part in parts if len(part.batch)]
    return _sorted(ObjectBatch.concat(batches or [ObjectBatch.of([])])), Refused.of(parts)


def read_queries(path: Path, settings: StreamSettings, unit: str = "ms") -> tuple[QueryBatch, Refused]:
    """A whole file of queries and cancellations, likewise."""
    given = settings.space, settings.rule, None, unit
    chunks = plan((path,), None, "queries")
    parts = [decoded for chunk in chunks for decoded in decode_chunk(chunk, "queries", *given)]
    batches = [part.batch for part in parts if len(part.batch)]
    return _sorted(QueryBatch.concat(batches or [QueryBatch.of([])])), Refused.of(parts)


def _sorted(batch: _Batch) -> _Batch:
    return batch.take(np.argsort(batch.t, kind="stable"))
