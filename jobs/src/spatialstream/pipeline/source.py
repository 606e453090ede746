"""The embedded mode's source: a plan of epochs, one micro-batch each.

Rows carry no data, only (epoch, partition): ROUTE reads its share of the runs itself, memory-mapped, so objects never
pass through the JVM before they are blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from spatialstream.pipeline.plan import PLAN_FILE, EpochPlan

__all__ = ["STOP_FILE", "PlanSource"]

STOP_FILE = "stop"
"""While a file of this name is in the checkpoint, no further epoch is begun."""


class PlanReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers the next epoch, one at a time, until the plan is done or somebody asks to stop."""

    def __init__(self, checkpoint: Path, partitions: int) -> None:
        self._stop = checkpoint / STOP_FILE
        self._epochs = EpochPlan.load(checkpoint / PLAN_FILE).epochs
        self._partitions = partitions

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Before the first epoch."""
        return {"epoch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The end of the next epoch; ``start`` when there is none."""
        if start["epoch"] >= self._epochs or self._stop.exists():
            return start
        return {"epoch": start["epoch"] + 1}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """The plan is fixed before the query starts: nothing to prepare."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The router partitions of one epoch."""
        if start == end:
            return []
        return [InputPartition((start["epoch"], partition)) for partition in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One row: which epoch, and which share of it."""
        epoch, share = partition.value
        yield pa.RecordBatch.from_pydict(
            {"epoch": pa.array([epoch], pa.int64()), "share": pa.array([share], pa.int32())}
        )

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to release: the runs stay until the checkpoint goes."""


class PlanSource(DataSource):
    """``spark.readStream.format("spatialstream_plan").option("checkpoint", DIR).option("partitions", P)``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "spatialstream_plan"

    def schema(self) -> str:
        """One row a router partition and epoch."""
        return "epoch long, share int"

    def streamReader(self, schema: Any) -> PlanReader:  # noqa: N802 - Spark's name
        """The reader of one query."""
        return PlanReader(Path(self.options["checkpoint"]), int(self.options["partitions"]))
