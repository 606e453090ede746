"""The embedded pipeline on real Spark: from files to results, and the latency of small epochs.

``python -m tests.benchmarks.bench_pipeline``. Wall-clock times on all cores. Throughput: 200,000 continuous
CRQs and two million objects of the default workload, from JSON Lines to JSON Lines, decoding, ordering and registration
included. Latency: epochs of 1,000 objects and 10 snapshot queries, from the end of one to that of the next.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from spatialstream.generate import GenerateSettings, write_stream
from spatialstream.kernels import compile_kernels
from spatialstream.model.kinds import QueryType
from spatialstream.model.space import Space
from spatialstream.spark.run import Progress, RunSettings
from spatialstream.spark.run import run as run_files
from spatialstream.spark.session import embedded_session

OBJECTS, QUERIES = 2_000_000, 200_000
EPOCHS, EPOCH_OBJECTS, EPOCH_QUERIES = 60, 1_000, 10
PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)


class Clock:
    """When each phase, and each epoch, was first reported."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}
        self.done: list[tuple[float, int]] = []

    def report(self, progress: Progress) -> None:
        self.phases.setdefault(progress.phase, time.monotonic())
        if progress.phase == "answering":
            self.done.append((time.monotonic(), progress.done))


def throughput(
    spark: SparkSession, folder: Path, count: int = OBJECTS, continuous: int = QUERIES, epoch_records: int = 250_000
) -> list[dict[str, Any]]:
    """Objects a second from file to results, with continuous CRQs."""
    objects, queries = folder / "objects.jsonl", folder / "queries.jsonl"
    generated = GenerateSettings(
        kind="clusters",
        objects=count,
        space=PLANE,
        rate=200_000.0,
        queries={QueryType.CRQ: continuous},
        duration=3_600_000,
        registered=(0.0, 0.0),
    )
    write_stream(objects, queries, generated)
    clock = Clock()
    began = time.monotonic()
    settings = RunSettings((objects,), (queries,), folder / "out", space=PLANE, epoch_records=epoch_records)
    summary = run_files(settings, spark, clock.report)
    ended = time.monotonic()
    reading = clock.phases["answering"] - clock.phases["reading"]
    answering = ended - clock.phases["answering"]
    matches = summary.results.get("CRQ", 0)
    return [
        row(
            f"file to results, {continuous:,} CRQs", count / (reading + answering), "objects/s", 150_000, "aim 250,000"
        ),
        row("   decoding and ordering alone", (count + continuous) / reading, "records/s"),
        row("   route, work, merge alone", count / answering, "objects/s"),
        row("   result rows", matches / (reading + answering), "rows/s"),
        row("   the whole run, of a warm session", ended - began, "s"),
    ]


def latency(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    """Milliseconds of an epoch of 1,000 objects and 10 snapshot queries."""
    objects, queries = folder / "objects.jsonl", folder / "queries.jsonl"
    per_type = EPOCHS * EPOCH_QUERIES // 3
    kinds = dict.fromkeys((QueryType.SRQ, QueryType.SKQ, QueryType.STQ), per_type)
    generated = GenerateSettings(
        kind="clusters",
        objects=EPOCHS * EPOCH_OBJECTS,
        space=PLANE,
        queries={**kinds, QueryType.CRQ: 10_000},
        duration=3_600_000,
        registered=(0.0, 0.0),
        asked=(0.0, 1.0),
    )
    write_stream(objects, queries, generated)
    settings = RunSettings(
        (objects,), (queries,), folder / "out", space=PLANE, epoch_records=EPOCH_OBJECTS + EPOCH_QUERIES
    )
    clock = Clock()
    run_files(settings, spark, clock.report)
    ends = {done: at for at, done in reversed(clock.done)}
    warm = np.diff([ends[done] for done in sorted(ends) if done >= 10]) * 1_000
    p50, p95 = np.percentile(warm, [50, 95])
    label = "epoch of 1,000 objects and 10 snapshots"
    return [row(f"{label}, p50", p50, "ms"), row(f"{label}, p95", p95, "ms", 80, "aim 30")]


def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> dict[str, Any]:
    return {"name": name, "value": float(value), "unit": unit, "floor": floor, "note": note}


def run() -> list[dict[str, Any]]:
    compile_kernels()
    spark = embedded_session("benchmarks")
    try:
        rows = []
        for measure in (throughput, latency):
            with tempfile.TemporaryDirectory() as name:
                rows += measure(spark, Path(name))
        return rows
    finally:
        spark.stop()


if __name__ == "__main__":
    for each in run():
        print(f"{each['name']:<60} {each['value']:>14,.1f} {each['unit']}")
