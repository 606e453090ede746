"""Speed of continuous nearest and top-terms queries, one core: ``python -m tests.benchmarks.bench_ckq_ctq [objects]``.

Figures are CPU times for the default workload in epochs of 10,000 objects (10 s of stream time). A slot and the merger
are measured separately, and so is the first epoch of CKQs, in which every query finds its first k objects.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.local.nearest import ckq, skyband
from spatialstream.local.nearest.ckq import ContinuousNearestIndex, Near
from spatialstream.local.nearest.skyband import Arrivals, NearestMerger
from spatialstream.local.terms import ctq
from spatialstream.local.terms.ctq import ContinuousTermsIndex
from spatialstream.local.terms.steps import merge_steps
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, nobody
from spatialstream.model.regions import Regions
from spatialstream.model.terms import TermLists
from tests.benchmarks.workload import SPACE, objects, queries
from tests.unit.memory_files import MemoryFiles

Row = dict[str, Any]

EPOCH = 10_000
FOREVER = 1 << 50


class Figures:
    """Rows of results."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, name: str, value: float, unit: str, note: str = "") -> None:
        """One row."""
        self.rows.append({"name": name, "value": float(f"{value:.4g}"), "unit": unit, "floor": "", "note": note})


class Clock:
    """CPU seconds of this process, by what they were spent on."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        self._last = time.process_time()

    def start(self) -> None:
        """Begin to measure."""
        self._last = time.process_time()

    def lap(self, name: str) -> None:
        """What was done since the last call."""
        now = time.process_time()
        self.spent.setdefault(name, []).append(now - self._last)
        self._last = now


def nearest(figures: Figures, n: int, count: int, window: int = -1, keywords: tuple[int, int] = (1, 3)) -> None:
    """``count`` CKQs with k = 10 over n objects."""
    source = objects(100_000, seed=1)
    columns = queries(source, count, seed=2, keywords=keywords)
    batch = query_batch(columns, code=4, k=10, window=window, step=-1)
    numbers = np.arange(count, dtype=np.int64)
    index, merger, clock, files = ContinuousNearestIndex(SPACE), NearestMerger(SPACE), Clock(), MemoryFiles()
    name = f"CKQ {count:,}" + (f", window {window // 1000} s" if window >= 0 else "")
    clock.start()
    index.register(numbers, batch)
    merger.register(numbers, batch)
    clock.lap("register")
    stream = objects(n, seed=3)
    passed = rows = 0
    for first in range(0, n, EPOCH):
        part = stream.take(np.arange(first, min(n, first + EPOCH)))
        clock.start()
        found = list(index.match(part))
        clock.lap("slot")
        arrivals = Arrivals.concat([arrivals_of(part, each) for each in found])
        clock.start()
        changes = list(merger.changes(arrivals, int(part.t[-1])))
        clock.lap("merger")
        index.checkpoint(files.write)
        clock.lap("slot checkpoint")
        merger.checkpoint(files.write)
        clock.lap("merger checkpoint")
        passed, rows = passed + len(arrivals), rows + sum(map(len, changes))
    figures.add(f"{name}: register", count / clock.spent["register"][0], "queries/s", "slot and merger")
    figures.add(f"{name}: slot, first epoch", EPOCH / clock.spent["slot"][0], "objects/s", "every radius is infinite")
    steady = clock.spent["slot"][1:]
    figures.add(f"{name}: slot, then", EPOCH * len(steady) / sum(steady), "objects/s", f"{passed:,} pairs passed on")
    figures.add(f"{name}: slot, last epoch", EPOCH / steady[-1], "objects/s")
    merger_spent = sum(clock.spent["merger"])
    figures.add(
        f"{name}: merger", passed / max(1e-9, merger_spent), "pairs/s", f"{rows:,} changes in {merger_spent:.2f} s"
    )
    for what in ("slot checkpoint", "merger checkpoint"):
        figures.add(f"{name}: {what}", 1e3 * float(np.median(clock.spent[what])), "ms", "median of epochs")
    restored(figures, name, ContinuousNearestIndex, index, files)


def arrivals_of(part: ObjectBatch, found: Near) -> Arrivals:
    """What a slot passes on."""
    at = found.position
    return Arrivals(found.number, part.ids.take(pa.array(at)), part.t[at], part.x[at], part.y[at], found.distance)


def restored(figures: Figures, name: str, kind: Any, index: Any, files: MemoryFiles) -> None:
    """How long a restore takes."""
    manifest = index.checkpoint(files.write)
    begun = time.process_time()
    kind.restore(SPACE, manifest, files.read)
    figures.add(f"{name}: slot restore", 1e3 * (time.process_time() - begun), "ms", "copies of all arrays included")


def top_terms(figures: Figures, n: int, count: int, window: int, step: int) -> None:
    """``count`` CTQs with k = 20 over n objects."""
    source = objects(100_000, seed=1)
    columns = queries(source, count, seed=2)
    batch = query_batch(columns, code=5, k=20, window=window, step=step)
    numbers = np.arange(count, dtype=np.int64)
    index, clock, files = ContinuousTermsIndex(SPACE), Clock(), MemoryFiles()
    name = f"CTQ {count:,}, T {window // 1000} s, δ {step // 1000} s"
    clock.start()
    index.register(numbers, batch)
    clock.lap("register")
    stream = objects(n, seed=3)
    terms = 0
    for first in range(0, n, EPOCH):
        part = stream.take(np.arange(first, min(n, first + EPOCH)))
        clock.start()
        index.match(part)
        clock.lap("update")
        partials = list(index.steps(int(part.t[-1])))
        clock.lap("step")
        merge_steps(partials)
        clock.lap("merge")
        index.checkpoint(files.write)
        clock.lap("checkpoint")
        terms += sum(len(each.counts) for each in partials)
    figures.add(f"{name}: register", count / clock.spent["register"][0], "queries/s")
    update, step_, merge = (sum(clock.spent[what]) for what in ("update", "step", "merge"))
    figures.add(
        f"{name}: update and step", n / (update + step_), "objects/s", f"update {update:.2f} s, step {step_:.2f} s"
    )
    figures.add(f"{name}: merge", terms / max(1e-9, merge), "terms/s", f"{terms:,} terms in {merge:.2f} s")
    figures.add(f"{name}: checkpoint", 1e3 * float(np.median(clock.spent["checkpoint"])), "ms", "median of epochs")
    restored(figures, name, ContinuousTermsIndex, index, files)


def query_batch(columns: Any, code: int, k: int, window: int, step: int) -> QueryBatch:
    """Continuous queries from columns of the workload, all issued at 0."""
    n = len(columns)
    regional = code == 5
    return QueryBatch(
        pa.array([f"q{i}" for i in range(n)], pa.string()),
        np.full(n, code, np.int8),
        np.zeros(n, np.int64),
        np.full(n, FOREVER),
        np.full(n, window, np.int64),
        np.full(n, step, np.int64),
        np.full(n, k, np.int32),
        np.zeros((n, 2)) if regional else np.ascontiguousarray(columns.centres),
        columns.regions if regional else Regions.plain(np.zeros(n, np.uint8), np.zeros((n, 4))),
        TermLists.empty(n) if regional else columns.keywords,
        nobody(n),
        nobody(n),
    )


def run(n: int = 200_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    for module in (ckq, skyband, ctq):
        module.prepare()
    figures = Figures()
    nearest(figures, n, 10_000)
    nearest(figures, n, 100_000)
    nearest(figures, n // 4, 1_000, window=60_000)
    top_terms(figures, n, 1_000, window=60_000, step=10_000)
    top_terms(figures, n, 10_000, window=60_000, step=10_000)
    top_terms(figures, n, 10_000, window=10_000, step=10_000)
    return figures.rows


def main() -> None:
    """Print the figures."""
    for row in run(*map(int, sys.argv[1:])):
        print(f"{row['name']:<55} {row['value']:>14,} {row['unit']:<10} {row['note']}")


if __name__ == "__main__":
    main()
