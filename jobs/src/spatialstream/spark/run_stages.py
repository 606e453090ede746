"""ROUTE, WORK and MERGE as functions from DataFrame to DataFrame.

Each is a thin wrapper around the pure function of its module. The functions that run in Spark's Python processes are
top-level classes with small pickled settings, so that they can be tested without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col

from spatialstream.index.version import RoutingVersion
from spatialstream.sources.contracts import Storage
from spatialstream.sources.folder import Folder
from spatialstream.stages import messages
from spatialstream.stages.merge import merge, publish
from spatialstream.stages.plan import EpochPlan
from spatialstream.stages.route import Row, Share, route
from spatialstream.stages.routing import Routing
from spatialstream.stages.runs import queries_of_epoch, route_share
from spatialstream.stages.state import OwnerState
from spatialstream.stages.work import WorkSettings, work

__all__ = [
    "VERSION_FILE",
    "MergeStage",
    "Paths",
    "RouteStage",
    "WorkStage",
    "merge_stage",
    "route_stage",
    "run_version",
    "work_stage",
]

VERSION_FILE = "version-1.arrays"
"""The routing version of a run, in its storage."""

_PUBLISHED = "epoch long, rows long"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a run keeps its things."""

    checkpoint: Path
    results: Path
    rejected: Path

    @property
    def storage(self) -> Folder:
        """The run's state."""
        return Folder(self.checkpoint)

    @property
    def frames(self) -> Path:
        """What DataFrames were given as, see :func:`spatialstream.spark.answers.answer`."""
        return self.checkpoint / "frames"


@lru_cache(maxsize=4)
def _plan(storage: Storage) -> EpochPlan:
    return EpochPlan.load(storage)


@lru_cache(maxsize=4)
def run_version(storage: Storage) -> RoutingVersion:
    """The routing version of a run."""
    return RoutingVersion.unpack(storage.get(VERSION_FILE), f"{storage.place}/{VERSION_FILE}")


@dataclass(frozen=True, slots=True)
class RouteStage:
    """Numbers of shares to blocks: share s is router partition s mod P of epoch s div P.

    Shares past the end of the plan are empty.
    """

    paths: Paths
    partitions: int

    def share(self, epoch: int, partition: int) -> Share:
        """What one router partition has to route in one epoch."""
        plan = _plan(self.paths.storage)
        queries = queries_of_epoch(plan, epoch, self.paths.storage) if partition == 0 else None
        objects = route_share(plan, epoch, self.paths.storage, partition, self.partitions)
        return Share(epoch, plan.upto[epoch], partition, self.partitions, objects, queries)

    def rows(self, epoch: int, partition: int) -> Iterator[Row]:
        """The blocks of one router partition in one epoch."""
        state = OwnerState(self.paths.storage, "registry", epoch) if partition == 0 else None
        return route(self.share(epoch, partition), Routing(run_version(self.paths.storage)), state)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it."""
        epochs = _plan(self.paths.storage).epochs
        for batch in batches:
            for share in batch["value"].to_pylist():
                epoch, partition = divmod(share, self.partitions)
                if epoch < epochs:
                    for row in self.rows(epoch, partition):
                        yield from messages.messages(*row)


@dataclass(frozen=True, slots=True)
class WorkStage:
    """Blocks of one slot to partials."""

    paths: Paths
    settings: WorkSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it; a Spark partition is a slot."""
        rows = [row for batch in batches for row in messages.blocks(batch)]
        if rows:
            for row in work(rows[0][0], rows, self.settings, self.paths.storage):
                yield from messages.messages(*row)


@dataclass(frozen=True, slots=True)
class MergeStage:
    """Partials of all slots to the epoch's files; gives the number of rows that were published."""

    paths: Paths
    settings: WorkSettings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it; there is one Spark partition."""
        rows = (row for batch in batches for row in messages.blocks(batch))
        first = next(rows, None)
        if first is None:
            return
        results = merge(chain([first], rows), self.settings.space, self.paths.storage)
        publish(results, self.paths.results, self.paths.rejected)
        yield pa.RecordBatch.from_pydict(
            {"epoch": pa.array([results.epoch], pa.int64()), "rows": pa.array([results.rows], pa.int64())}
        )


def route_stage(shares: DataFrame, stage: RouteStage) -> DataFrame:
    """ROUTE: numbers of shares (column ``value``) -> blocks (slot, kind, data)."""
    return shares.mapInArrow(stage, messages.BLOCK_TYPE)


def work_stage(blocks: DataFrame, stage: WorkStage, slots: int) -> DataFrame:
    """WORK: blocks -> partials. Partition s of the shuffle is slot s, so slots never share a task."""
    return blocks.repartitionById(slots, col("slot")).mapInArrow(stage, messages.BLOCK_TYPE)


def merge_stage(partials: DataFrame, stage: MergeStage) -> DataFrame:
    """MERGE: partials -> the number of rows that were published."""
    return partials.repartition(1).mapInArrow(stage, _PUBLISHED)
