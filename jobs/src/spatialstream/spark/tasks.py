"""What the two jobs of a stream run in Spark's tasks, as ``mapInArrow`` takes it.

The Python processes of the executors load this module and what it needs before their first task
(:mod:`~spatialstream.spark.daemon`). No client of the broker is among that: to the broker it is Spark that speaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from spatialstream.sources.contracts import Storage
from spatialstream.sources.delivery import result_messages
from spatialstream.sources.keys import key_of_life, key_within
from spatialstream.stages import messages
from spatialstream.stages.leaving import Left
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.work import WorkSettings
from spatialstream.stream.router import EpochRecord, epoch_name, narrow_route, route_epoch
from spatialstream.stream.worker import (
    RoundRecord,
    merge_round,
    merge_second_at_once,
    merge_second_round,
    narrow_merge,
    narrow_work,
    second_round,
    work_round,
)

__all__ = [
    "LEFT_TYPE",
    "MESSAGE_TYPE",
    "IdleTask",
    "MergeTask",
    "NarrowMergeTask",
    "NarrowRouteTask",
    "NarrowWorkTask",
    "RouteTask",
    "SecondMergeTask",
    "SecondTask",
    "WorkTask",
]

MESSAGE_TYPE = "topic string, partition int, key binary, value binary"
"""The Spark schema of what goes to the broker."""

LEFT_TYPE = "left string"
"""The Spark schema of what a turn has to leave out, as JSON."""

_ROUTED = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])


def _message(topic: str, partition: int | None, key: bytes | None, value: bytes | pa.Buffer) -> pa.RecordBatch:
    size = value.size if isinstance(value, pa.Buffer) else len(value)
    offsets = pa.py_buffer(memoryview(bytearray((0).to_bytes(4, "little") + size.to_bytes(4, "little"))))
    content = value if isinstance(value, pa.Buffer) else pa.py_buffer(value)
    data = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, content])
    return pa.RecordBatch.from_arrays(
        [pa.array([topic]), pa.array([partition], pa.int32()), pa.array([key], pa.binary()), data], schema=_ROUTED
    )


def _results(
    topic: str, lines: Iterable[pa.Array], number: int, phase: int, rows: int, life: str
) -> Iterator[pa.RecordBatch]:
    for key, value in result_messages(lines, number, phase, rows, life):
        yield _message(topic, 0, key, value)  # wherever there are more partitions: rows have one order


@dataclass(frozen=True, slots=True)
class RouteTask:
    """Numbers of router partitions to messages, as ``mapInArrow`` takes it."""

    epoch: int
    partitions: int
    storage: Storage
    blocks: str
    rejected: str
    life: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """ROUTE of an epoch."""
        record = EpochRecord.load(self.storage, epoch_name(self.epoch))
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                for key, (slot, kind, content) in route_epoch(record, partition, self.partitions, self.storage):
                    if kind == messages.REJECTED and slot < 0:
                        for line in content.column("line").to_pylist():
                            yield _message(self.rejected, None, None, line.encode())
                    else:
                        yield _message(self.blocks, slot, key_of_life(key, self.life), messages.pack(content))


@dataclass(frozen=True, slots=True)
class NarrowRouteTask:
    """Numbers of router partitions to what an epoch has to leave out, as ``mapInArrow`` takes it."""

    record: EpochRecord
    partitions: int
    storage: Storage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What ROUTE fails on."""
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield _lefts(narrow_route(self.record, partition, self.partitions, self.storage))


def _lefts(found: list[Left]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"left": pa.array([left.to_json() for left in found], pa.string())})


@dataclass(frozen=True, slots=True)
class WorkTask:
    """Messages of some slots' partitions to partials, as ``mapInArrow`` takes it."""

    record: RoundRecord
    settings: WorkSettings
    storage: Storage
    life: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """WORK of a round."""
        blocks = _blocks_by_slot(batches, self.life)
        for slot in sorted(blocks):
            for row in work_round(slot, blocks.pop(slot), self.record.round, self.settings, self.storage):
                yield from messages.messages(*row)


def _blocks_by_slot(batches: Iterator[pa.RecordBatch], life: str) -> dict[int, list[tuple[bytes, Any]]]:
    """The messages of a life of the stream, and those that are no blocks of any."""
    blocks: dict[int, list[tuple[bytes, Any]]] = {}
    for batch in batches:
        slot, key, value = (batch.column(name) for name in ("partition", "key", "value"))
        for i in range(batch.num_rows):
            if (name := key_within(key[i].as_py(), life)) is not None:
                blocks.setdefault(slot[i].as_py(), []).append((name, value[i].as_buffer()))
    return blocks


@dataclass(frozen=True, slots=True)
class NarrowWorkTask:
    """Messages of some slots' partitions to what a round has to leave out, as ``mapInArrow`` takes it."""

    record: RoundRecord
    settings: WorkSettings
    storage: Storage
    life: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What WORK fails on."""
        blocks = _blocks_by_slot(batches, self.life)
        for slot in sorted(blocks):
            yield _lefts(narrow_work(slot, blocks.pop(slot), self.record.round, self.settings, self.storage))


@dataclass(frozen=True, slots=True)
class NarrowMergeTask:
    """Partials of all slots to what a round has to leave out, as ``mapInArrow`` takes it; there is one partition."""

    record: RoundRecord
    settings: WorkSettings
    storage: Storage
    limits: RowLimits | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What MERGE fails on."""
        rows = [row for batch in batches for row in messages.blocks(batch)]
        if rows:
            yield _lefts(narrow_merge(rows, self.record, self.settings, self.storage, self.limits))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Partials of all slots to messages of results, as ``mapInArrow`` takes it; there is one partition."""

    record: RoundRecord
    settings: WorkSettings
    storage: Storage
    results: str
    rejected: str
    rows_per_message: int
    limits: RowLimits | None = None
    life: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """MERGE of a round."""
        rows = (row for batch in batches for row in messages.blocks(batch))
        first = next(rows, None)
        if first is None:
            return
        number = self.record.round.number
        results = merge_round(chain([first], rows), self.record, self.settings.space, self.storage, limits=self.limits)
        lines: Iterable[pa.Array] = ()
        if results.second is not None:  # before a row is sent: if this fails, other rows may get the same keys
            lines = merge_second_at_once(results.second, number, self.settings, self.storage, self.limits)
        yield from _results(self.results, results.lines, number, 0, self.rows_per_message, self.life)
        for line in results.rejected:
            yield _message(self.rejected, None, None, line.encode())
        yield from _results(self.results, lines, number, 1, self.rows_per_message, self.life)


@dataclass(frozen=True, slots=True)
class SecondTask:
    """Positions in a list of slots to what these slots say in the second phase, as ``mapInArrow`` takes it."""

    number: int
    slots: tuple[int, ...]
    settings: WorkSettings
    storage: Storage

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The second phase of a round."""
        for batch in batches:
            for position in batch.column(0).to_pylist():
                for row in second_round(self.slots[position], self.number, self.settings, self.storage):
                    yield from messages.messages(*row)


@dataclass(frozen=True, slots=True)
class SecondMergeTask:
    """What slots say in the second phase to messages of results, as ``mapInArrow`` takes it; one partition."""

    number: int
    settings: WorkSettings
    storage: Storage
    results: str
    rows_per_message: int
    limits: RowLimits | None = None
    life: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """MERGE of the second phase of a round."""
        rows = [row for batch in batches for row in messages.blocks(batch)]
        lines = merge_second_round(rows, self.number, self.settings.space, self.storage, self.limits)
        yield from _results(self.results, lines, self.number, 1, self.rows_per_message, self.life)


@dataclass(frozen=True, slots=True)
class IdleTask:
    """Any batches to none: the task of a warm-up, which reads and drops."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """No batches."""
        for _ in batches:
            pass
        yield from ()
