"""Speed and size of the snapshot index on one core: ``python -m tests.benchmarks.bench_segment [objects]``.

Figures are CPU times. The segment holds all objects; the store holds the same objects, appended epoch by epoch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spatialstream.local.snapshot import segments
from spatialstream.local.snapshot.segment import Segment
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Box
from tests.benchmarks.workload import SPACE, objects, queries

Row = dict[str, Any]

EPOCH = 100_000
SLOTS, SMALL_EPOCH, SMALL_EPOCHS = 4, 10_000, 200
"""Slots of a stream of 40,000 objects/s, with an epoch a second."""

QUERIES = 1_000
FOREVER = (-1, 2**62)


def run(n: int = 5_000_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    segments.prepare()
    batch = objects(n, seed=1)
    result: list[Row] = []

    def row(name: str, value: float, unit: str, floor: str = "", note: str = "") -> None:
        bound = float(floor.lstrip("<> ").replace(",", "")) if floor else None
        result.append({"name": name, "value": round(value, 3), "unit": unit, "floor": bound, "note": note})

    begun = time.process_time()
    segment = Segment.build(SPACE, batch)
    row("segment: build", n / (time.process_time() - begun), "objects/s", "> 500,000", f"{n:,} objects")
    row("segment: size", segment.nbytes / n, "bytes/object", "< 120", "with terms, ids, index and tables")
    del segment
    store = SegmentStore(SPACE)
    store.append(batch)
    query(store, "segment", batch, row)

    store = SegmentStore(SPACE)
    spent: list[float] = []
    for start in range(0, n, EPOCH):
        part = batch.take(np.arange(start, min(start + EPOCH, n)))
        begun = time.process_time()
        store.append(part)
        spent.append(time.process_time() - begun)
    row("store: append", n / sum(spent), "objects/s", "", f"epochs of {EPOCH:,}; {store.segments} segments at the end")
    row("store: longest append", max(spent), "s", "", "a merge of half a million objects included")
    row("store: size", store.nbytes / n, "bytes/object", "< 120")
    query(store, "store", batch, row)
    del store
    for name, phases in (("one phase", [0.0] * SLOTS), ("a phase each", [phase_of(slot) for slot in range(SLOTS)])):
        note = f"{SLOTS} x {SMALL_EPOCH:,} objects, in each of {SMALL_EPOCHS} epochs"
        row(f"{SLOTS} stores, {name}: longest epoch", longest_epoch(batch, phases), "s", "", note)
    return result


def longest_epoch(batch: ObjectBatch, phases: Sequence[float]) -> float:
    """CPU seconds of the epoch that takes most of them, when stores of these phases take in the same load."""
    stores, longest = [SegmentStore(SPACE, phase=phase) for phase in phases], 0.0
    for start in range(0, min(len(batch), SMALL_EPOCHS * SMALL_EPOCH), SMALL_EPOCH):
        part = batch.take(np.arange(start, start + SMALL_EPOCH))
        begun = time.process_time()
        for store in stores:
            store.append(part)
        longest = max(longest, time.process_time() - begun)
    return longest


def query(index: SegmentStore, name: str, batch: ObjectBatch, row: Callable[..., None]) -> None:
    """Rows of the three searches, over a store of one segment or of many."""
    asked = queries(batch, QUERIES, seed=2)
    shapes = [Box(*shape) for shape in asked.regions.shape.tolist()]
    words = [tuple(asked.keywords[i]) for i in range(QUERIES)]
    times, found = measured(lambda i: index.range_query(shapes[i], words[i], *FOREVER))
    floors = ("< 100", "< 600", "< 100", "< 3,000") if name == "segment" else ("",) * 4
    row(f"{name}: SRQ, median", np.median(times) * 1e6, "us", floors[0], f"{found:.0f} objects on average")
    row(f"{name}: SRQ, p95", np.percentile(times, 95) * 1e6, "us", floors[1])
    centres = asked.centres.tolist()
    times, found = measured(lambda i: index.nearest(*centres[i], 10, words[i], *FOREVER))
    row(f"{name}: nearest 10, median", np.median(times) * 1e6, "us", floors[2], "1-3 keywords")
    row(f"{name}: nearest 10, p95", np.percentile(times, 95) * 1e6, "us", floors[3])
    begun = time.process_time()
    top(index, Box(*SPACE.bounds))
    row(f"{name}: first top 20 terms of everything", (time.process_time() - begun) * 1e3, "ms")
    for side, share, floor in ((0.01, "0.01 %", "< 1"), (0.1, "1 %", "< 10"), (0.5, "25 %", "")):
        chosen = queries(batch, QUERIES // 5, seed=3, side=side)
        boxes = [Box(*shape) for shape in chosen.regions.shape.tolist()]
        times, _ = measured(lambda i, boxes=boxes: top(index, boxes[i]), QUERIES // 5)
        row(
            f"{name}: top 20 terms of {share}, median", np.median(times) * 1e3, "ms", floor if name == "segment" else ""
        )
        row(f"{name}: top 20 terms of {share}, p95", np.percentile(times, 95) * 1e3, "ms")


def top(store: SegmentStore, box: Box, k: int = 20) -> list[str]:
    """The most frequent terms."""
    terms, counts = store.term_counts(box, (), *FOREVER, k)
    return [name for _, name in sorted(zip((-counts).tolist(), terms.to_pylist(), strict=True))[:k]]


def measured(ask: Callable[[int], Any], n: int = QUERIES) -> tuple[list[float], float]:
    """CPU seconds of each call, and the average number of results."""
    times, found = [], 0
    for i in range(n):
        begun = time.process_time()
        answer = ask(i)
        times.append(time.process_time() - begun)
        found += len(answer)
    return times, found / n


def main() -> None:
    """Print the rows."""
    for row in run(*map(int, sys.argv[1:])):
        print(f"{row['name']:<42}{row['value']:>14,.3f} {row['unit']:<14}{row['floor'] or '':<12}{row['note']}")


if __name__ == "__main__":
    main()
