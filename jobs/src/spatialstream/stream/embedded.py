"""A live stream in one process: micro-batches become epochs, with no broker and no ZooKeeper.

The decisions are those of every live stream (:class:`~spatialstream.stream.router.Router`,
:class:`~spatialstream.stream.worker.Worker`), and so are ROUTE, WORK and MERGE. What is different:

- An epoch is a round, one job from its records to its files of results.
- Epochs have numbers of their own. A micro-batch brings one epoch, or several if it is large; and there are epochs
  between micro-batches, when records that waited for a silent source are let go (:meth:`LocalStream.advance`), or when
  the input has ended (:meth:`LocalStream.finish`). Which epoch has the records of a micro-batch is written down before
  it is begun, so a micro-batch that comes again is known.
- The parts of a micro-batch are in no order, so there is one clock a source and not one a partition.
- There is one routing version, made of the first records and kept in the checkpoint.
- All slots answer an SKQ at once: a second phase would be a second job.

No Spark in here: it is behind :class:`LocalJobs`.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from spatialstream.index.version import build
from spatialstream.model.errors import RunError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import CANCEL, QueryBatch
from spatialstream.sources.contracts import Storage, find
from spatialstream.sources.disk import undamaged
from spatialstream.stages import messages
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.learning import drop_samples
from spatialstream.stages.merge import merge, publish
from spatialstream.stages.plan import Run
from spatialstream.stages.route import Row
from spatialstream.stages.routing import Routing
from spatialstream.stages.runs import read_records
from spatialstream.stages.state import get_json, put_json
from spatialstream.stages.versions import load_version, save_version, version_name
from spatialstream.stages.work import Round, WorkSettings, work
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.router import EpochRecord, Router, StreamSettings, epoch_name, route_epoch
from spatialstream.stream.worker import RoundRecord, Summary, Worker

__all__ = [
    "Ingestion",
    "LocalJobs",
    "LocalStream",
    "MergeTask",
    "RouteTask",
    "WaitingClock",
    "WorkTask",
]

_SAMPLE = 50_000
_BLOCK_BYTES = 32 << 20
_ASSIGNMENT = "micro-batch.json"
_KINDS = {"objects": "objects", "queries": "queries"}

Ingestion = Callable[[Ingest], Sequence[Intake]]
"""Makes runs of what has come in, by what decodes it for an epoch."""


class LocalJobs(Protocol):
    """What has to be done for an epoch, in whatever processes."""

    def round(self, epoch: int, record: RoundRecord) -> None:
        """ROUTE, WORK and MERGE of an epoch, by the three tasks of this module."""


class WaitingClock:
    """ms in which the stream has waited for input: stands still during an epoch, and while there is no process.

    A source is silent if it gives nothing while the stream waits; what the stream takes for its own work is no silence.

    Args:
        now: any clock, ms.
        start: what this one shows now.
    """

    def __init__(self, now: Callable[[], int], start: int = 0) -> None:
        self._now = now
        self._behind = now() - start
        self._stopped: int | None = None

    def __call__(self) -> int:
        """What the clock shows, ms."""
        return (self._now() if self._stopped is None else self._stopped) - self._behind

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let it stand still."""
        self._stopped = self._now()
        try:
            yield
        finally:
            self._behind += self._now() - self._stopped
            self._stopped = None


# ------------------------------------------------------------------------------------------------ messages of the input


def numbered(batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch]:
    """Rows of (kind, value) as messages, in batches large enough to be decoded well.

    Args:
        batches: columns ``kind`` (``"objects"`` or ``"queries"``) and ``value`` (a line of JSON).
        partition: number of the part of the micro-batch that they are; with the position in it, it names a row.
    """
    held: list[pa.RecordBatch] = []
    size = first = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _BLOCK_BYTES:
            yield _messages(held, partition, first)
            first += sum(each.num_rows for each in held)
            held, size = [], 0
    if held:
        yield _messages(held, partition, first)


def _messages(batches: Sequence[pa.RecordBatch], partition: int, first: int) -> pa.RecordBatch:
    kind, value = (pa.concat_arrays([batch.column(name) for batch in batches]) for name in ("kind", "value"))
    rows = len(value)
    return pa.RecordBatch.from_pydict(
        {
            "topic": kind,
            "partition": pa.array(np.full(rows, partition, np.int32)),
            "offset": pa.array(np.arange(first, first + rows)),
            "key": pa.nulls(rows, pa.binary()),
            "value": value,
        }
    )


def _given(data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """JSON Lines as rows of (kind, value): many lines a row."""
    with io.BufferedReader(pa.BufferReader(data)) as file:
        while lines := file.readlines(_BLOCK_BYTES):
            value = pa.array([b"".join(lines).removesuffix(b"\n")])
            yield pa.RecordBatch.from_arrays([pa.array(["queries"]), value], ["kind", "value"])


# --------------------------------------------------------------------------------------- what runs in the stages' tasks


class _OnePhase(EpochRecord):
    """An epoch whose SKQs go to all slots."""

    __slots__ = ()

    def routing(self, storage: Storage) -> Routing:
        return replace(EpochRecord.routing(self, storage), two_phase=False)


@dataclass(frozen=True, slots=True)
class RouteTask:
    """Numbers of router partitions to blocks; dead letters of the input go by slot 0.

    Attributes:
        epoch: number of the epoch.
        partitions: router partitions.
        storage: of the stream's state.
    """

    epoch: int
    partitions: int
    storage: Storage

    def rows(self, partition: int) -> Iterator[Row]:
        """The blocks of one router partition."""
        record = _OnePhase.load(self.storage, epoch_name(self.epoch))
        for _, (slot, kind, content) in route_epoch(record, partition, self.partitions, self.storage):
            yield max(slot, 0), kind, content

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it."""
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                for row in self.rows(partition):
                    yield from messages.messages(*row)


@dataclass(frozen=True, slots=True)
class WorkTask:
    """Blocks to partials.

    Attributes:
        order: the round.
        settings: of the slots.
        storage: of the stream's state.
    """

    order: Round
    settings: WorkSettings
    storage: Storage

    def rows(self, slot: int, blocks: Sequence[Row]) -> Iterator[Row]:
        """The partials of one slot."""
        return work(slot, blocks, self.settings, self.storage, self.order)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it; all blocks of a slot are in one Spark partition."""
        by_slot: dict[int, list[Row]] = {}
        for batch in batches:
            for row in messages.blocks(batch):
                by_slot.setdefault(row[0], []).append(row)
        for slot, blocks in by_slot.items():
            for row in self.rows(slot, blocks):
                yield from messages.messages(*row)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Partials of all slots to the round's files, each whole, under names that a repetition overwrites.

    Attributes:
        order: the round.
        settings: of the slots.
        storage: of the stream's state.
        output: folder of ``results`` and ``rejected``.
    """

    order: Round
    settings: WorkSettings
    storage: Storage
    output: Path

    def publish(self, rows: Iterable[Row]) -> int:
        """Merge; returns the number of result rows."""
        results = merge(rows, self.settings.space, self.storage, self.order)
        publish(results, self.output / "results", self.output / "rejected")
        summary = Summary(results.rows, len(results.rejected), results.counts, results.loads)
        summary.save(self.storage, self.order.number)
        return summary.lines

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it; there is one Spark partition."""
        rows = (row for batch in batches for row in messages.blocks(batch))
        first = next(rows, None)
        if first is not None:
            published = self.publish(chain([first], rows))
            yield pa.RecordBatch.from_pydict({"rows": pa.array([published], pa.int64())})


# ----------------------------------------------------------------------------------------------------------- the stream


class _Jobs:
    """What router and worker have done: an epoch is announced by being worked."""

    def __init__(
        self,
        settings: StreamSettings,
        storage: Storage,
        store: MemoryStore,
        jobs: LocalJobs,
        given: str | None,
        first_version: Callable[[Sequence[Run]], None],
    ) -> None:
        self.coming: Ingestion = _nothing
        self.router: Router | None = None
        self.worker: Worker | None = None
        self._settings = settings
        self._storage = storage
        self._store = store
        self._jobs = jobs
        self._given = given
        self._first_version = first_version
        self._epoch = -1

    def ingest(self, epoch: int) -> Sequence[Intake]:
        assert self.router is not None
        settings, (floor, _) = self._settings, self.router.limits()
        ingest = Ingest(epoch, self._storage, _KINDS, settings.space, settings.rule, settings.longest, floor)
        intakes = [replace(each, partition=f"{each.partition.split('/')[0]}/0") for each in self.coming(ingest)]
        if epoch == 0:
            if self._given is not None:
                # they are all there, so they have no clock that could hold others back, or drive time ahead
                first = ingest.intakes(numbered(_given(self._storage.get(self._given)), _GIVEN_PART))
                intakes += [replace(each, partition="objects/0", clock=None) for each in first]
            self._first_version([each.run for each in intakes if each.run is not None])
        return intakes

    def route(self, record: EpochRecord) -> None:
        self._epoch = record.epoch

    def announce(self, epoch: int, announcement: Mapping[str, Any]) -> None:
        assert self.worker is not None
        if self.worker.unfinished:
            self.worker.again()
        self.worker.round([{**announcement, "ends": [0] * self._settings.slots}])

    def work(self, record: RoundRecord) -> None:
        self._jobs.round(self._epoch, record)

    def second(self, record: RoundRecord, slots: Sequence[int]) -> None:
        raise StateError(f"round {record.round.number} has a second phase, which is not meant to be")


_GIVEN_PART = 1_000_000
"""Number of the part that queries given from the start are, beyond those of any micro-batch."""


def _nothing(ingest: Ingest) -> Sequence[Intake]:
    return ()


class LocalStream:
    """A live stream in one process; its methods may be called by several threads.

    Args:
        settings: of the stream.
        storage: of the stream's state, which nobody else uses.
        jobs: what does the work.
        leaves: of the QT-tree.
        queries: name of the file of the queries that are there from the start; None if they come as a stream.
        history: gives objects like those to come, for the QT-tree; it is asked once in the stream's life.
        now: a clock that does not go back, ms.
        step: is called before each step, with its name; tests stop the stream there.
    """

    def __init__(
        self,
        settings: StreamSettings,
        storage: Storage,
        jobs: LocalJobs,
        *,
        leaves: int = 64,
        queries: str | None = None,
        history: Callable[[], ObjectBatch] | None = None,
        now: Callable[[], int],
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._settings, self._storage = settings, storage
        self._leaves, self._history = leaves, history
        self._names = ["objects/0"] if queries is not None else ["objects/0", "queries/0"]
        self._store = MemoryStore()
        if find(storage, version_name(0)) is not None:
            self._store.create(load_version(storage, 0))
        self._jobs = _Jobs(settings, storage, self._store, jobs, queries, self._first_version)
        self._router = Router(settings, storage, self._store, self._jobs, self._names, lambda: self._clock(), step)
        self._jobs.router = self._router
        self._jobs.worker = Worker(settings.slots, storage, self._store, self._jobs, step=step)
        last = self._router.last
        self._clock = WaitingClock(now, 0 if last is None else last.born)
        self._lock = threading.Lock()
        self._closed = False

    # -------------------------------------------------------------------------------------------------------- epochs

    def recover(self) -> None:
        """Do the last epoch again, if nobody knows whether it was finished. To be called first.

        Raises:
            StateError: the checkpoint is damaged.
        """
        with self._busy():
            if self._router.unfinished:
                self._next(_nothing)

    def micro_batch(self, number: int, coming: Ingestion) -> bool:
        """Take a micro-batch in, unless that was done before, and answer what is due; False if the stream is closed.

        Args:
            number: of the micro-batch; they ascend, and the last one may come again after a restart.
            coming: makes runs of its records; the names of the sources are ``objects`` and ``queries``, and any part.

        Raises:
            StateError: the checkpoint is damaged.
        """
        with self._busy() as is_open:
            if is_open:
                if self._assigned(number) > self._router.done:
                    self._next(coming)
                self._drain()
            return is_open

    def advance(self) -> bool:
        """Do the epochs that are due without input; whether there was one."""
        with self._busy() as is_open:
            before = self._router.done
            if is_open and not self._promised():
                self._drain()
            return self._router.done > before

    def finish(self) -> None:
        """Answer everything that has come: no source gives anything earlier than the latest record so far.

        Raises:
            RunError: the stream has been closed, or a micro-batch has been begun and is not done.
        """
        with self._busy() as is_open:
            if not is_open or self._promised():
                raise RunError("the stream has been stopped")
            if self._router.last is None:
                self._next(_nothing)
            record = self._router.last
            assert record is not None
            latest = max((run.last for run in record.runs), default=record.upto)
            if latest > record.upto:
                clock = latest + self._settings.disorder + 1
                self._next(lambda ingest: [Intake(name, clock, None, "", 0, 0, -1) for name in self._names])
                self._drain()

    @property
    def quiet(self) -> bool:
        """Whether all sources have been silent for the time after which they are left out, and nothing is due."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            record = self._router.last
            heard = 0 if record is None else max(clock.heard for clock in record.clocks.partitions.values())
            silent = self._clock() - heard >= self._settings.idle
            return silent and not self._promised() and not self._router.wants_epoch()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait for the end of what is under way; nothing is begun any more."""
        with self._lock:
            self._closed = True

    @contextmanager
    def _busy(self) -> Iterator[bool]:
        """Alone, and without the clock; whether the stream is open."""
        with self._lock, self._clock.stopped():
            yield not self._closed

    def _next(self, coming: Ingestion) -> None:
        """The next epoch, or the last one again after a restart."""
        self._jobs.coming = coming
        self._router.epoch()
        # samples are for learning, and there is no other version to be learnt for
        drop_samples(self._storage)

    def _drain(self) -> None:
        """The epochs that are due without more input, such as the rest of a large micro-batch."""
        while self._router.wants_epoch():
            self._next(_nothing)

    # ----------------------------------------------------------------------------------- which micro-batch, which epoch

    def _known(self) -> tuple[int, int]:
        """The last micro-batch that has been begun, and its epoch."""
        if find(self._storage, _ASSIGNMENT) is None:
            return -1, -1
        way_out = "begin anew with another checkpoint"
        known = get_json(self._storage, _ASSIGNMENT, way_out)
        with undamaged(f"{self._storage.place}/{_ASSIGNMENT}", way_out):
            return known["batch"], known["epoch"]

    def _assigned(self, number: int) -> int:
        """The epoch of a micro-batch; it is written down."""
        batch, epoch = self._known()
        if batch > number:
            raise StateError(f"micro-batch {batch} came before {number}: the checkpoint is damaged")
        if batch < number:
            epoch = self._router.done + 1
            put_json(self._storage, _ASSIGNMENT, {"batch": number, "epoch": epoch})
        return epoch

    def _promised(self) -> bool:
        """Whether the next epoch belongs to a micro-batch that has not come again yet."""
        return self._known()[1] > self._router.done

    # ------------------------------------------------------------------------------------------------- routing version

    def _first_version(self, runs: Sequence[Run]) -> None:
        """Build the routing version, unless an earlier start has done it: then it may be in use."""
        if find(self._storage, version_name(0)) is not None:
            return
        objects = self._history() if self._history else _sample(self._storage, runs, "objects", ObjectBatch)
        queries = _sample(self._storage, runs, "queries", QueryBatch)
        queries = queries.take(np.flatnonzero(queries.code != CANCEL))
        version = build(self._settings.space, objects, queries, self._leaves, self._settings.slots)
        save_version(self._storage, version)
        self._store.create(version)


_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)


def _sample(storage: Storage, runs: Sequence[Run], kind: str, batch: type[_Batch]) -> _Batch:
    """Every so-many-th record of all runs of a kind."""
    mine = [run for run in runs if run.kind == kind]
    stride = max(1, -(-sum(run.rows for run in mine) // _SAMPLE))
    records = [read_records(storage, run.name, np.arange(0, run.rows, stride)) for run in mine]
    plain = [record.drop_columns(["line"]) if kind == "queries" else record for record in records]
    return batch.concat([batch.from_arrow(record) for record in plain] or [batch.of([])])
