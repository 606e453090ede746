"""Streams in one process: router and worker take turns over a storage, with no broker and no ZooKeeper.

The decisions are those of every stream (:class:`~spatialstream.stream.router.Router`,
:class:`~spatialstream.stream.worker.Worker`), and so are ROUTE, WORK and MERGE. The differences:

- An epoch is followed by its round, so its rows are there when the next epoch begins.
- There is one routing version, built from the first records and kept in the checkpoint.
- All slots answer an SKQ at once, so that all rows have one fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from spatialstream.balance.planner import first_plan
from spatialstream.connectors.block_files import BlockFiles
from spatialstream.connectors.contracts import Sink, Source, Storage, find
from spatialstream.index.kinds import AUTO, DEFAULT
from spatialstream.index.version import build
from spatialstream.model.kinds import CANCEL
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.runs import sample
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import Run
from spatialstream.stages.versions import check_kind, load_version, save_version, version_name
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.driver import Ingestion, RouterTurns, WorkerTurns
from spatialstream.stream.engine import Engine
from spatialstream.stream.router import EpochRecord, Router
from spatialstream.stream.settings import CHECKPOINT_SECONDS, StreamSettings
from spatialstream.stream.timeouts import Every
from spatialstream.stream.worker import Worker

__all__ = ["EmbeddedStream", "embedded_world", "ended", "nothing"]

_SAMPLE = 50_000
"""Maximum number of records of each kind from which the routing version is built."""


def nothing(stage: Ingest) -> Sequence[Intake]:
    """An ingestion of no records."""
    return ()


def ended(partitions: Sequence[str], latest: int) -> list[Intake]:
    """Intakes that end partitions: nothing up to ``latest``, ms, follows."""
    return [Intake(name, latest + 1, None, "", 0, 0, -1) for name in partitions]


def embedded_world(settings: StreamSettings, storage: Storage, sink: Sink, source: Source | None = None) -> World:
    """The environment of the tasks of a stream in one process.

    Args:
        settings: of the stream.
        storage: of its state.
        sink: of rows and dead letters.
        source: of the records; None if they are read elsewhere.
    """
    return settings.world(storage, BlockFiles(storage, settings.slots), sink, source=source)


class EmbeddedStream:
    """One instance per process, with exclusive use of the storage.

    Args:
        settings: of the stream.
        engine: executes the stages; see :func:`embedded_world`.
        partitions: names of the partitions that are read.
        index: kind of the global index, or ``auto``; None: that of the checkpoint if it has one, else the default.
        leaves: number of leaves of the index, unless it is planned.
        history: returns objects like those to come, for the index; called once in the stream's incarnation; None:
            the first objects that arrive are used.
        now: a clock, ms.
        step: called before each step, with its name; tests stop the stream there.
        due: called once per turn, returns whether it is to end with a checkpoint; None: by the time since the last one.

    Raises:
        StateError: the stream in the storage has another kind of index.
    """

    def __init__(
        self,
        settings: StreamSettings,
        engine: Engine,
        partitions: Sequence[str],
        *,
        index: str | None = None,
        leaves: int = 64,
        history: Callable[[], ObjectBatch] | None = None,
        now: Callable[[], int],
        step: Callable[[str], None] = lambda name: None,
        due: Callable[[], bool] | None = None,
    ) -> None:
        settings, storage = replace(settings, two_phase=False, measured=False), engine.world.storage
        self._settings, self._storage = settings, storage
        self._kind, self._leaves, self._history = index or DEFAULT, leaves, history
        self._store = MemoryStore()
        if find(storage, version_name(0)) is not None:
            version = load_version(storage, 0)
            check_kind(version, None if index == AUTO else index, settings.name)
            self._store.create(version)
        router_due, worker_due = due or Every(CHECKPOINT_SECONDS), due or Every(CHECKPOINT_SECONDS)
        self.router = Router(settings, storage, self._store, partitions, now, step, due=router_due)
        self.turns = RouterTurns(self.router, engine, step)
        worker = Worker(settings, storage, self._store, step, due=worker_due)
        self._rounds = WorkerTurns(worker, engine, settings.slots, step)
        self._tidy = False

    def recover(self) -> None:
        """Redo the last turn if it is not known to be done. To be called first."""
        if self.router.unfinished:
            self.turn(nothing)
        else:
            self._work()

    def turn(self, ingestion: Ingestion) -> EpochRecord:
        """Do the next epoch, or after a restart the last one again, and its round."""
        record = self.turns.epoch(lambda stage: self._with_version(ingestion(stage)))
        self._work()
        if not self._tidy:
            self.router.tidy()  # remove what tries of an earlier process have left
            self._tidy = True
        return record

    def _work(self) -> None:
        while (record := self._rounds.next()) is not None:
            self._rounds.do(record)

    def _with_version(self, intakes: Sequence[Intake]) -> Sequence[Intake]:
        """Build the routing version from the first intakes, unless an earlier start has done it; return the intakes."""
        if self.router.last is None and find(self._storage, version_name(0)) is None:
            self._first_version([intake.run for intake in intakes if intake.run is not None])
        return intakes

    def _first_version(self, runs: Sequence[Run]) -> None:
        objects = self._history() if self._history else sample(self._storage, runs, ObjectBatch, _SAMPLE)
        queries = sample(self._storage, runs, QueryBatch, _SAMPLE)
        rows = [sum(run.rows for run in runs if run.kind == kind) for kind in ("objects", "queries")]
        known = len(objects) if self._history else rows[0]
        each = known / max(len(objects), 1), rows[1] / max(len(queries), 1)
        queries = queries.take(np.flatnonzero(queries.code != CANCEL))
        settings = self._settings
        given = settings.space, objects, queries
        made = first_plan(self._kind, self._leaves, settings.slots, *given, each)
        version = build(*given, made.leaves, settings.slots, kind=made.kind)
        save_version(self._storage, version)
        self._store.create(version)
