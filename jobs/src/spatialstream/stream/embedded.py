"""Streams in one process: router and worker take turns over a storage, with no broker and no ZooKeeper.

The decisions are those of every stream (:class:`~spatialstream.stream.router.Router`,
:class:`~spatialstream.stream.worker.Worker`), and so are ROUTE, WORK and MERGE. What is different:

- An epoch is followed by its round, so rows are there when the next one begins.
- There is one routing version, made of the first records and kept in the checkpoint.
- All slots answer an SKQ at once, so that all rows are in their one fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from spatialstream.connectors.block_files import BlockFiles
from spatialstream.connectors.contracts import Sink, Source, Storage, find
from spatialstream.index.version import build
from spatialstream.model.kinds import CANCEL
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.runs import sample
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import Run
from spatialstream.stages.versions import load_version, save_version, version_name
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.driver import Ingestion, RouterTurns, WorkerTurns
from spatialstream.stream.engine import Engine
from spatialstream.stream.router import EpochRecord, Router
from spatialstream.stream.settings import CHECKPOINT_SECONDS, StreamSettings
from spatialstream.stream.timeouts import Every
from spatialstream.stream.worker import Worker

__all__ = ["EmbeddedStream", "embedded_world", "ended", "nothing"]

_SAMPLE = 50_000
"""Records of each kind of which the routing version is made, at most."""


def nothing(stage: Ingest) -> Sequence[Intake]:
    """The ingestion of nothing."""
    return ()


def ended(partitions: Sequence[str], latest: int) -> list[Intake]:
    """The end of partitions: nothing comes any more up to ``latest``, ms."""
    return [Intake(name, latest + 1, None, "", 0, 0, -1) for name in partitions]


def embedded_world(settings: StreamSettings, storage: Storage, sink: Sink, source: Source | None = None) -> World:
    """What the tasks of a stream in one process have to do with.

    Args:
        settings: of the stream.
        storage: of its state.
        sink: of rows and dead letters.
        source: of the records; None where others read them.
    """
    return settings.world(storage, BlockFiles(storage, settings.slots), sink, source=source)


class EmbeddedStream:
    """One instance a process, for which the storage is alone.

    Args:
        settings: of the stream.
        engine: does the stages; see :func:`embedded_world`.
        partitions: that are read.
        leaves: of the QT-tree.
        history: gives objects like those to come, for the QT-tree; it is asked once in the stream's incarnation; None:
            the first ones that come.
        now: a clock, ms.
        step: is called before each step, with its name; tests stop the stream there.
        due: is asked once a turn whether it is to end with a checkpoint; None: by the time since the last one.
    """

    def __init__(
        self,
        settings: StreamSettings,
        engine: Engine,
        partitions: Sequence[str],
        *,
        leaves: int = 64,
        history: Callable[[], ObjectBatch] | None = None,
        now: Callable[[], int],
        step: Callable[[str], None] = lambda name: None,
        due: Callable[[], bool] | None = None,
    ) -> None:
        settings, storage = replace(settings, two_phase=False, measured=False), engine.world.storage
        self._settings, self._storage = settings, storage
        self._leaves, self._history = leaves, history
        self._store = MemoryStore()
        if find(storage, version_name(0)) is not None:
            self._store.create(load_version(storage, 0))
        router_due, worker_due = due or Every(CHECKPOINT_SECONDS), due or Every(CHECKPOINT_SECONDS)
        self.router = Router(settings, storage, self._store, partitions, now, step, due=router_due)
        self.turns = RouterTurns(self.router, engine, step)
        worker = Worker(settings, storage, self._store, step, due=worker_due)
        self._rounds = WorkerTurns(worker, engine, settings.slots, step)
        self._tidy = False

    def recover(self) -> None:
        """Do again what nobody knows whether it was done. To be called first."""
        if self.router.unfinished:
            self.turn(nothing)
        else:
            self._work()

    def turn(self, ingestion: Ingestion) -> EpochRecord:
        """The next epoch, or the last one again after a restart, and its round."""
        record = self.turns.epoch(lambda stage: self._with_version(ingestion(stage)))
        self._work()
        if not self._tidy:
            self.router.tidy()  # of what tries of an earlier process have left
            self._tidy = True
        return record

    def _work(self) -> None:
        while (record := self._rounds.next()) is not None:
            self._rounds.do(record)

    def _with_version(self, intakes: Sequence[Intake]) -> Sequence[Intake]:
        """The first intakes, of which the routing version is built, unless an earlier start has done it."""
        if self.router.last is None and find(self._storage, version_name(0)) is None:
            self._first_version([intake.run for intake in intakes if intake.run is not None])
        return intakes

    def _first_version(self, runs: Sequence[Run]) -> None:
        objects = self._history() if self._history else sample(self._storage, runs, ObjectBatch, _SAMPLE)
        queries = sample(self._storage, runs, QueryBatch, _SAMPLE)
        queries = queries.take(np.flatnonzero(queries.code != CANCEL))
        version = build(self._settings.space, objects, queries, self._leaves, self._settings.slots)
        save_version(self._storage, version)
        self._store.create(version)
