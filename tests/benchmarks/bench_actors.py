"""The work of each actor if a stream is processed by 1, 2, 4, 8 of them: ``python -m tests.benchmarks.bench_actors``.

Work is counted, not timed, so it is the same on any machine: the tasks of actor processes count the records that they
read, the bytes that they send or receive, and the candidates that they check. The numbers of slots, router partitions
and parts of MERGE do not depend on the number of actors; each of n actors has an n-th of them. So the sums must be the
same, and the work of the busiest actor must decrease as 1/n; otherwise one actor does work for all. Only INGEST is done
by any free actor, so its distribution depends on timing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.actors.engine import ActorEngine
from spatialstream.connectors.contracts import Channel
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.keys import read_key
from spatialstream.connectors.result_files import ResultFiles
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.stages import messages, tasks
from spatialstream.stages.division import PartBlock
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.messages import Block
from spatialstream.stages.tasks import SlotBlocks, World
from spatialstream.stream.embedded import EmbeddedStream, embedded_world, ended, nothing
from spatialstream.stream.engine import Engine
from spatialstream.stream.settings import StreamSettings
from tests.benchmarks.bench_crq import continuous
from tests.benchmarks.workload import SPACE, objects, queries
from tests.contracts.engines import PROCESSES, Processes, until
from tests.harness import Given

ACTORS = (1, 2, 4, 8)
SLOTS, PARTITIONS, MERGERS, LEAVES = 32, 8, 8, 128
BLOCKS = 8
"""Partitions of the source for objects, and as many for queries."""

COUNTED = (
    ("INGEST", "records"),
    ("ROUTE", "objects"),
    ("ROUTE", "queries"),
    ("ROUTE", "bytes"),
    ("WORK", "objects"),
    ("WORK", "queries"),
    ("WORK", "candidates"),
    ("WORK", "bytes"),
    ("MERGE", "rows"),
    ("MERGE", "bytes"),
)
"""Stage and what is counted of it. Bytes are those of blocks that ROUTE sends, WORK takes, and MERGE takes of WORK."""

Counts = dict[tuple[str, str], list[int]]
"""Stage and what is counted of it -> how much of it each actor has had, of those that have had any, descending."""


def _leave(world: World, turn: int, stage: str, item: object, counts: dict[str, int]) -> None:
    """Write down what this process has done; the same again if it is done again."""
    name = f"counts/{stage}-{turn:09d}-{str(item).replace('/', '-')}.json"
    world.storage.put(name, json.dumps({"actor": os.getpid(), "stage": stage, "counts": counts}).encode())


@dataclass(frozen=True, slots=True)
class _Sent:
    """A channel that counts what is sent, as whoever sends it finds it."""

    channel: Channel
    counts: dict[str, int]

    def send(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> dict[int, int]:
        return self.channel.send(self._counted(blocks))

    def _counted(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> Iterator[tuple[int, bytes, pa.Buffer]]:
        for block in blocks:
            _count_block(self.counts, block[1], block[2])
            yield block


def _count_block(counts: dict[str, int], key: bytes, content: Any) -> None:
    place = read_key(key)
    assert place is not None
    counts["bytes"] += content.size
    named = {messages.OBJECTS: "objects", messages.REGISTERED: "queries"}.get(place[1])
    if named is not None:
        counts[named] += messages.unpack(content).num_rows


class InputTasks(tasks.InputTasks):
    """INGEST, counted."""

    def read(self, world: World, part: Any) -> Iterator[str]:
        """See :class:`~spatialstream.stages.tasks.InputTasks`."""
        lines = list(super().read(world, part))
        records = sum(int(json.loads(line)["records"]) for line in lines)
        _leave(world, self.epoch, "INGEST", part[0], {"records": records})
        return iter(lines)


class EpochTasks(tasks.EpochTasks):
    """ROUTE, counted."""

    def route(self, world: World, partition: int) -> Iterator[str]:
        """See :class:`~spatialstream.stages.tasks.EpochTasks`."""
        counts = {"objects": 0, "queries": 0, "bytes": 0}
        channel: Any = _Sent(world.channel, counts)
        lines = list(super().route(replace(world, channel=channel), partition))
        _leave(world, self.epoch.number, "ROUTE", partition, counts)
        return iter(lines)


class RoundTasks(tasks.RoundTasks):
    """WORK and MERGE, counted."""

    def work(self, world: World, of: SlotBlocks) -> Iterator[PartBlock]:
        """See :class:`~spatialstream.stages.tasks.RoundTasks`; what is said of the load is counted here."""
        counts = {"objects": 0, "queries": 0, "bytes": 0, "candidates": 0}
        for key, content in self._blocks(world, of):
            _count_block(counts, key, content)
        told = tasks.RoundTasks(replace(self.turn, measured=True))
        for part, row in told.work(world, of):
            if row[1] == messages.LOAD:
                load = json.loads(row[2]["load"][0].as_py())
                counts["candidates"] += sum(load.get("leaf_checked", ()))
            yield part, row
        _leave(world, self.turn.number, "WORK", of[0], counts)

    def merge(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """See :class:`~spatialstream.stages.tasks.RoundTasks`."""
        counts = {"rows": 0, "bytes": 0}

        def counted() -> Iterator[Block]:
            for row in rows:
                if row[1] != messages.LOAD:  # which is as long as times have digits
                    counts["rows"] += row[2].num_rows
                    counts["bytes"] += messages.pack(row[2]).size
                yield row

        yield from super().merge(world, part, counted())
        _leave(world, self.turn.number, "MERGE", part, counts)


TASKS = {kind.__name__: kind for kind in (InputTasks, EpochTasks, RoundTasks, tasks.IdleTasks)}


def _given(came: int, asked: int, epochs: int) -> tuple[Given, int]:
    """Objects, and as many registrations before them in each epoch, in blocks; and the last timestamp."""
    rate = 1000.0
    stream = objects(came, seed=1, start=1, rate=rate)
    last = int(stream.t[-1])
    columns = queries(stream, asked, seed=2)
    asks = continuous(pa.array([f"q{i}" for i in range(asked)]), columns)
    asks = replace(asks, t=(np.arange(asked) * epochs // asked) * (last // epochs))
    blocks: dict[str, tuple[ObjectBatch | QueryBatch, np.ndarray]] = {}
    for block in range(BLOCKS):
        for kind, batch in (("objects", stream), ("queries", asks)):
            rows = np.arange(block, len(batch), BLOCKS)
            blocks[f"{kind}/{block}"] = batch.take(rows), rows
    return Given(blocks), last


def _stream(engine: Engine, settings: StreamSettings, source: Given, last: int) -> None:
    """All of a stream, epoch by epoch; nothing moves from one actor to another."""
    partitions = list(source.blocks)
    stream = EmbeddedStream(settings, engine, partitions, leaves=LEAVES, now=lambda: 0, due=lambda: False)

    def ingest(stage: Ingest) -> Sequence[Intake]:
        return [*stream.turns.ingestion(source.bounds())(stage), *ended(partitions, last)]

    record = stream.turn(ingest)
    while record.held:
        record = stream.turn(nothing)


def counted(actors: int, came: int, asked: int, epochs: int = 4) -> Counts:
    """What each of so many actors has done of a stream.

    Args:
        actors: how many processes.
        came: objects of the stream.
        asked: continuous queries that are registered in the meantime.
        epochs: of the stream, about.
    """
    settings = StreamSettings(
        "actors",
        slots=SLOTS,
        space=SPACE,
        partitions=PARTITIONS,
        mergers=MERGERS,
        idle=1,
        epoch_records=(came + asked) // epochs,
    )
    source, last = _given(came, asked, epochs)
    found: dict[tuple[str, str], dict[int, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        storage = Folder(Path(name, "state"))
        sink = ResultFiles(Path(name, "results"), Path(name, "rejected"))
        PROCESSES.set_forkserver_preload(["tests.benchmarks.actors_ready"])
        with ActorEngine(embedded_world(settings, storage, sink, source), Processes(actors), tasks=TASKS) as engine:
            until(lambda: len(engine.observed()) == actors, 250.0)
            _stream(engine, settings, source, last)
        for each in storage.list("counts/"):
            told = json.loads(storage.get(each).to_pybytes())
            for what, count in told["counts"].items():
                of = found.setdefault((told["stage"], what), {})
                of[told["actor"]] = of.get(told["actor"], 0) + count
    return {each: sorted(of.values(), reverse=True) for each, of in found.items()}


def run(came: int = 200_000, asked: int = 200_000) -> list[dict[str, Any]]:
    """The figures; for each number of actors the largest share of what is counted, as a multiple of an n-th."""
    rows: list[dict[str, Any]] = []
    sums: dict[tuple[str, str], int] = {}
    for actors in ACTORS:
        counts = counted(actors, came, asked)
        for stage, what in COUNTED:
            of = counts[stage, what]
            total = sums.setdefault((stage, what), sum(of))
            assert sum(of) == total, f"{stage} {what}: {sum(of)} with {actors} actors, {total} with one"
            name = f"{stage} {what}, the busiest of {actors}"
            rows.append(
                {"name": name, "value": of[0], "unit": what, "note": f"{of[0] * actors / total:.2f} of an n-th"}
            )
    return rows


if __name__ == "__main__":
    sizes = [int(each) for each in sys.argv[1:]]
    for row in run(*sizes):
        print(f"{row['name']:<44}{row['value']:>16,} {row['unit']:<12}{row['note']}", flush=True)
