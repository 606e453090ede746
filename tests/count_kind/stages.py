"""What the stages do for counts: slots count, MERGE sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.json_columns import joined
from spatialstream.model.queries import Query
from spatialstream.model.space import Space
from spatialstream.stages.kinds.base import (
    Arrived,
    Columns,
    ContinuousStage,
    Objects,
    Partial,
    RowsOf,
    SnapshotStage,
)
from spatialstream.stages.kinds.rows import STEP, RowSink
from spatialstream.stages.messages import columns, numbers
from spatialstream.stages.rows import RowLimits, row_heads
from tests.count_kind.indexes import CountIndex

STEPS = "count_steps"


def _with_counts(heads: pa.LargeStringArray, counts: pa.Int64Array) -> pa.LargeStringArray:
    return joined(heads, ', "count": ', pc.cast(counts, pa.string()), "}")


class SnapshotCount(SnapshotStage):
    partial = "snapshot_counts"

    def search(self, objects: Objects, query: Query, since: int, *, alone: bool, within: float) -> Columns:
        predicate = query.predicate
        found = objects.range_query(predicate.region, predicate.expression.literals, since, query.t)
        return {"count": np.array([len(found)])}

    def lines(
        self,
        asked: pa.RecordBatch,
        parts: Sequence[pa.RecordBatch],
        space: Space,
        after: pa.Int64Array | None,
        limits: RowLimits | None,
    ) -> RowsOf:
        counts = np.zeros(asked.num_rows, np.int64)
        for part in parts:
            np.add.at(
                counts, np.searchsorted(numbers(asked, "number"), numbers(part, "number")), numbers(part, "count")
            )
        heads = row_heads("SCQ", asked.column("id"), numbers(asked, "t"), after)
        return _with_counts(heads, pa.array(counts)), np.arange(asked.num_rows)

    def answer(self, query: Query, parts: Sequence[Mapping[str, Any]], space: Space) -> str:
        return f'"count": {sum(int(part["count"].sum()) for part in parts)}'


class ContinuousCount(ContinuousStage):
    spooled: ClassVar[Mapping[str, str]] = {STEPS: "now"}

    def match(self, index: CountIndex, arrived: Arrived) -> Iterator[Partial]:
        index.match(arrived.objects)
        return iter(())

    def steps(self, index: CountIndex, watermark: int) -> Iterator[Partial]:
        if rows := sorted(index.steps(watermark), key=lambda row: (row[2], row[0])):
            number, query, now, count = zip(*rows, strict=True)
            yield (
                STEPS,
                columns(number=np.array(number), query=pa.array(query), now=np.array(now), count=np.array(count)),
            )

    def merge(self, spools: Mapping[str, Iterable[pa.Table]], merger: None, watermark: int, sink: RowSink) -> None:
        for table in spools[STEPS]:  # all rows of some steps
            summed = table.group_by(["now", "number", "query"]).aggregate([("count", "sum")])
            content = summed.sort_by([("now", "ascending"), ("number", "ascending")]).combine_chunks().to_batches()[0]
            number, now = numbers(content, "number"), numbers(content, "now")
            sink.count(number, now)
            if not sink.state_only:
                lines = _with_counts(row_heads("CCQ", content.column("query"), now), content.column("count_sum"))
                sink.lines.add("CCQ", now, STEP, number, lines)


SNAPSHOT = {"SCQ": SnapshotCount()}
CONTINUOUS = {"CCQ": ContinuousCount()}
