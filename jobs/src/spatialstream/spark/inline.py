"""The pipeline without Spark: the same stages in one process.

For tests of exactness, and for measuring the stages alone. What Spark adds (shuffles, scheduling, checkpoints) is
replaced by plain loops; ROUTE, WORK, MERGE and their state on disk are the very same code.
"""

from __future__ import annotations

from spatialstream.spark.run_stages import Paths, RouteStage
from spatialstream.stages import merge as merging
from spatialstream.stages import work as working
from spatialstream.stages.merge import EpochResults, merge, publish
from spatialstream.stages.route import Row
from spatialstream.stages.work import WorkSettings, work

__all__ = ["forget", "run_epoch"]


def forget() -> None:
    """Drop what this process has in memory, as if it had died: the next epoch restores from disk."""
    working.forget()
    merging.forget()


def run_epoch(paths: Paths, settings: WorkSettings, epoch: int, partitions: int, slots: int) -> EpochResults:
    """One epoch: route its shares, let every slot work, merge and publish."""
    route = RouteStage(paths, partitions)
    inbox: dict[int, list[Row]] = {slot: [] for slot in range(slots)}
    for partition in range(partitions):
        for row in route.rows(epoch, partition):
            inbox[row[0]].append(row)
    partials = (row for slot in range(slots) for row in work(slot, inbox[slot], settings, paths.storage))
    results = merge(partials, settings.space, paths.storage)
    publish(results, paths.results, paths.rejected)
    return results
