"""Runs whole streams through the pipeline's stages without Spark, cut, spread, lost and replayed as a test likes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spatialstream.index.version import build
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.spark.inline import forget, run_epoch
from spatialstream.spark.run_stages import VERSION_FILE, Paths
from spatialstream.stages.plan import Run, cut_epochs
from spatialstream.stages.runs import write_run
from spatialstream.stages.work import WorkSettings


@dataclass(frozen=True)
class Shape:
    """How a stream is run: none of it may show in the results.

    Attributes:
        slots, leaves, partitions: of the pipeline.
        epoch_records: records an epoch.
        forget: drop all memory after every epoch, as if every process died.
        replays: chance that an epoch is run twice.
        blocks: number of runs that the input is dealt out to, in random order of time.
    """

    slots: int = 1
    leaves: int = 1
    partitions: int = 1
    epoch_records: int = 1_000_000
    forget: bool = False
    replays: float = 0.0
    blocks: int = 1


@dataclass(frozen=True)
class Outcome:
    """What came out: rows in file order, the bytes of all result files, rejected records."""

    rows: list[dict[str, Any]]
    text: bytes
    rejected: list[dict[str, Any]]


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
    paths = Paths(folder / "checkpoint", folder / "results", folder / "rejected")
    forget()
    runs = []
    shuffled = list(objects)
    chance.shuffle(shuffled)
    for block in range(shape.blocks):
        part = shuffled[block :: shape.blocks]
        if part:
            runs.append(_run(paths, f"objects-{block:06d}", ObjectBatch.of(part), np.zeros(len(part), np.int64)))
    if queries:
        runs.append(_run(paths, "queries-000000", QueryBatch.of(queries), np.arange(1, len(queries) + 1)))
    plan = cut_epochs(runs, shape.epoch_records, shape.partitions)
    plan.save(paths.storage)
    version = build(space, ObjectBatch.of(shuffled), QueryBatch.of(list(queries)), shape.leaves, shape.slots)
    paths.storage.put(VERSION_FILE, *version.pack())
    settings = WorkSettings(space, interval, retention)
    for epoch in range(plan.epochs):
        run_epoch(paths, settings, epoch, shape.partitions, shape.slots)
        if shape.forget:
            forget()
        if chance.random() < shape.replays:
            forget()
            run_epoch(paths, settings, epoch, shape.partitions, shape.slots)
    text = b"".join(path.read_bytes() for path in sorted(paths.results.glob("*.jsonl")))
    rejected = b"".join(path.read_bytes() for path in sorted(paths.rejected.glob("*.jsonl")))
    return Outcome(
        [json.loads(line) for line in text.splitlines()], text, [json.loads(line) for line in rejected.splitlines()]
    )


def _run(paths: Paths, name: str, batch: ObjectBatch | QueryBatch, line: np.ndarray) -> Run:
    kind = "objects" if isinstance(batch, ObjectBatch) else "queries"
    times = write_run(paths.storage, f"{name}.arrow", batch, line)
    return Run(f"{name}.arrow", kind, len(batch), kind, times, 0)
