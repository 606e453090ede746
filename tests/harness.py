"""Runs complete streams through the pipeline's stages without Spark, with configurable epochs, slots and failures."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from spatialstream.connectors.contracts import Ranges, Records
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.result_files import ResultFiles
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.records.reference import Decoded
from spatialstream.records.rejected import REJECTED
from spatialstream.stages import state, views
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.messages import Block
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import NEVER
from spatialstream.stream.embedded import EmbeddedStream, embedded_world, ended, nothing
from spatialstream.stream.engine import Inline, Merge, Task, Work
from spatialstream.stream.settings import StreamSettings

T = TypeVar("T")


def forget() -> None:
    """Drop the in-memory state of this process, as if it had crashed."""
    state.forget()
    views.forget()


class Processes:
    """An engine whose processes may crash after each function; functions of a failed attempt may still be running.

    The order of concurrent functions is random.

    Args:
        world: see :class:`~spatialstream.stream.engine.Engine`.
        step: called after each function.
        chance: random generator for the order and for late functions.
    """

    is_near = True
    width = 1
    would_move = False

    def __init__(self, world: World, step: Callable[[str], None], chance: random.Random) -> None:
        self.world, self._step, self._chance = world, step, chance
        self._late: list[Callable[[], object]] = []

    def map(self, do: Task[T], items: Sequence[T], *, anywhere: bool = False) -> list[str]:
        lines: dict[int, list[str]] = {}
        late, self._late = self._late, []
        for place in self._chance.sample(range(len(items)), len(items)):
            if anywhere:  # INGEST, whose attempts may read different messages
                self._late.append(lambda item=items[place]: list(do(self.world, item)))
            lines[place] = list(do(self.world, items[place]))
            if self._chance.random() < 0.5:  # otherwise the next item runs in the same process
                self.world.storage.await_puts()
            self._step("done")
        self.world.storage.await_puts()
        for each in late:
            if self._chance.random() < 0.5:
                each()
        return [line for place in range(len(items)) for line in lines[place]]

    def gather(self, do: Work[T], items: Sequence[T], merge: Merge, parts: Sequence[int] = (0,)) -> list[str]:
        rows: dict[int, list[Block]] = {part: [] for part in parts}
        for item in self._chance.sample(items, len(items)):
            for part, row in do(self.world, item):
                rows[part].append(row)
            self._step("done")
        lines: dict[int, list[str]] = {}
        for part in self._chance.sample(parts, len(parts)):
            if lines:
                self._step("done")
            lines[part] = list(merge(self.world, part, rows[part]))
        return [line for part in parts for line in lines[part]]

    def settled(self) -> None:
        pass

    def check(self) -> None:
        pass

    def cancel(self) -> None:
        pass


@dataclass(frozen=True)
class Given:
    """A source of given records, one block per partition."""

    blocks: Mapping[str, tuple[ObjectBatch | QueryBatch, np.ndarray]]

    def bounds(self) -> Ranges:
        return dict.fromkeys(self.blocks, (0, 1))

    def read(self, partition: str, start: int, end: int) -> Iterator[Records]:
        batch, line = self.blocks[partition]
        yield Records(partition.partition("/")[0], Decoded(batch, line, pa.RecordBatch.from_pylist([], REJECTED)))


@dataclass(frozen=True)
class Shape:
    """Parameters of running a stream, none of which may affect the results.

    Attributes:
        slots, leaves, partitions: sizes of the pipeline.
        epoch_records: records per epoch.
        forget: drop all in-memory state after every epoch, as if every process crashed.
        replays: probability that an epoch is run twice.
        checkpoints: probability that a turn ends with a checkpoint.
        blocks: number of partitions that the objects are distributed over, in random order of time.
    """

    slots: int = 1
    leaves: int = 1
    partitions: int = 1
    epoch_records: int = 1_000_000
    forget: bool = False
    replays: float = 0.0
    checkpoints: float = 1.0
    blocks: int = 1


@dataclass(frozen=True)
class Outcome:
    """The output: rows in file order, the bytes of all result files, rejected records."""

    rows: list[dict[str, Any]]
    text: bytes
    rejected: list[dict[str, Any]]


def rule_for(queries: Iterable[Query | Cancellation], objects: Iterable[SpatialObject] = ()) -> TermRule:
    """The rule of a stream that answers these queries about such objects.

    It counts words if a query ranks, and occurrences if an object has some.
    """
    ranking = any(isinstance(query, Query) and query.kind.is_ranked for query in queries)
    return TermRule(ranking=ranking, counts=ranking and any(o.counts for o in objects))


def run_stream(
    folder: Path,
    space: Space,
    objects: Sequence[SpatialObject],
    queries: Sequence[Query | Cancellation],
    shape: Shape = Shape(),
    *,
    interval: int = 300_000,
    retention: int | None = None,
    seed: int = 0,
) -> Outcome:
    """Run a stream; line i + 1 of the source ``queries`` is query i."""
    chance = random.Random(seed)
    forget()
    shuffled = list(objects)
    chance.shuffle(shuffled)
    blocks: dict[str, tuple[ObjectBatch | QueryBatch, np.ndarray]] = {}
    for block in range(shape.blocks):
        if part := shuffled[block :: shape.blocks]:
            blocks[f"objects/{block}"] = ObjectBatch.of(part), np.zeros(len(part), np.int64)
    if queries:
        blocks["queries/0"] = QueryBatch.of(queries), np.arange(1, len(queries) + 1)
    source, storage = Given(blocks), MemoryStorage()
    setup = StreamSettings(
        *("run", shape.slots, space, shape.partitions, interval, retention, rule_for(queries, objects)),
        idle=1,
        epoch_records=shape.epoch_records,
    )

    def begin() -> EmbeddedStream:
        sink = ResultFiles(folder / "results", folder / "rejected")
        engine = Inline(embedded_world(setup, storage, sink, source))
        leaves, due = shape.leaves, lambda: chance.random() < shape.checkpoints
        return EmbeddedStream(setup, engine, list(blocks), leaves=leaves, now=lambda: 0, due=due)

    stream = begin()

    def ingest(stage: Ingest) -> Sequence[Intake]:
        intakes = stream.turns.ingestion(source.bounds())(stage)
        latest = max((intake.run.last for intake in intakes if intake.run is not None), default=NEVER)
        return [*intakes, *ended(list(blocks), latest)]

    record = stream.turn(ingest)
    while True:
        if shape.forget:
            forget()
        if chance.random() < shape.replays:
            forget()
            for turns in ("epochs", "rounds"):
                storage.put(f"{turns}/done", str(record.epoch.number - 1).encode())
            stream = begin()
            stream.recover()
        if not record.held:
            break
        record = stream.turn(nothing)
    text = b"".join(path.read_bytes() for path in sorted((folder / "results").glob("*.jsonl")))
    rejected = b"".join(path.read_bytes() for path in sorted((folder / "rejected").glob("*.jsonl")))
    return Outcome(
        [json.loads(line) for line in text.splitlines()], text, [json.loads(line) for line in rejected.splitlines()]
    )
