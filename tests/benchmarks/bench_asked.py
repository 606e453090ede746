"""Snapshot queries between the rounds, without transport: ``python -m tests.benchmarks.bench_asked [objects]``.

Four slots in one process, queried like actors: queries are validated, routed, answered from views, and converted to
rows. Then the same while the slots process objects, as their turns do. Figures are wall-clock times unless stated
otherwise.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from spatialstream import kernels
from spatialstream.actors.query_endpoint import Request
from spatialstream.actors.read_point import ReadPoint
from spatialstream.client import SnapshotClient
from spatialstream.index.version import build
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.model.objects import ObjectBatch
from spatialstream.stages import views
from spatialstream.stages.routing import Routing
from spatialstream.stages.turns import Round
from spatialstream.stages.views import View
from tests.asking import AskedActors, world_of
from tests.benchmarks.bench_index import make_queries
from tests.benchmarks.workload import SPACE, objects, queries

Record = dict[str, Any]

SLOTS, LEAVES = 4, 64
EPOCH = 50_000
QUERIES, BATCH = 2_000, 100
RATE, ROUND = 20_000, 0.1
"""Objects per second during the queries, and duration of a round in seconds."""
PLACE = "benchmark"


class Slots:
    """The slots of a stream, their views, and the parameters of a query session."""

    def __init__(self, sample: ObjectBatch) -> None:
        self.version = build(SPACE, sample, make_queries(sample, 10_000, "SRQ"), LEAVES, SLOTS)
        self.stores = [SegmentStore(SPACE, phase=phase_of(slot)) for slot in range(SLOTS)]
        self.number: int = 0
        self.directory: ReadPoint | None = None
        self.actors = AskedActors(lambda seconds: self.directory, {}, {"a": world_of(SPACE, SLOTS, PLACE)})

    def round(self, batch: ObjectBatch) -> None:
        """All slots do a round."""
        slots, watermark = self.version.route_objects(batch), int(batch.t[-1])
        turn = Round(self.number, (self.number,), (0,), watermark, self.version.number)
        for slot, store in enumerate(self.stores):
            store.append(batch.take(np.flatnonzero(slots == slot)))
            views.keep(PLACE, slot, View.of(store, turn, None))
        self.directory = ReadPoint((turn.number, turn.revision), watermark, Routing(self.version, two_phase=True))
        self.number += 1

    def ask(self, request: Request) -> Iterator[tuple[list[int], list[bytes]]]:
        """What an actor answers that has all slots, without transport."""
        return self.actors.ask(request)


def snapshot_queries(batch: ObjectBatch) -> dict[str, list[Record]]:
    """Records of each query type, with keywords of existing objects."""
    source = queries(batch, QUERIES, seed=2)
    shapes, centres = source.regions.shape.tolist(), source.centres.tolist()
    words = [list(source.keywords[i]) for i in range(QUERIES)]
    forever = {"duration": 10**15}
    return {
        "SRQ 0.01 %": [
            {"type": "SRQ", "region": {"box": box}, "keywords": each, **forever}
            for box, each in zip(shapes, words, strict=True)
        ],
        "SKQ 10": [
            {"type": "SKQ", "at": at, "k": 10, "keywords": each, **forever}
            for at, each in zip(centres, words, strict=True)
        ],
        "STQ 0.01 %": [{"type": "STQ", "region": {"box": box}, "k": 20, **forever} for box in shapes],
    }


def run(n: int = 5_000_000) -> list[dict[str, Any]]:
    """Every figure as (name, value, unit, floor, note)."""
    kernels.prepare()
    batch = objects(n, seed=1)
    slots = Slots(batch.take(np.arange(0, n, max(1, n // 50_000))))
    began = time.process_time()
    for start in range(0, n, EPOCH):
        slots.round(batch.take(np.arange(start, min(start + EPOCH, n))))
    result: list[dict[str, Any]] = []

    def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        result.append({"name": name, "value": round(value, 3), "unit": unit, "floor": floor, "note": note})

    row("taken in, views kept", n / (time.process_time() - began), "objects/s", None, "CPU time")
    began = time.perf_counter()
    for _ in range(100):
        slots.stores[0].view()
    row("a view is taken in", (time.perf_counter() - began) * 1e4, "us", None, f"{slots.stores[0].segments} segments")
    asked = snapshot_queries(batch)
    session = SnapshotClient(lambda seconds: slots.directory, slots.ask, SPACE)
    for name, records in asked.items():
        measure(name, session, records, row, "idle", (1.5, 10.0))
    with TakingIn(slots):
        for name, records in asked.items():
            measure(name, session, records, row, f"under {RATE:,} objects/s", (4.0, 40.0))
    return result


def measure(
    name: str,
    session: SnapshotClient,
    records: list[Record],
    row: Callable[..., None],
    load: str,
    floors: Sequence[float],
) -> None:
    """Measure single queries, and several in one call."""
    one_by_one(f"{name}, {load}", session, records, row, floors)
    times, spent = [], time.thread_time()
    for part in (records[first : first + BATCH] for first in range(0, len(records), BATCH)):
        began = time.perf_counter()
        session.ask(part)
        times.append((time.perf_counter() - began) * 1e3 / len(part))
    spent = (time.thread_time() - spent) * 1e3 / len(records)
    note = f"{spent:.2f} ms of its thread's CPU"
    row(f"{name}, {load}: each of {BATCH} together, median", float(np.median(times)), "ms", None, note)


def one_by_one(
    name: str,
    session: SnapshotClient,
    records: list[Record],
    row: Callable[..., None],
    floors: Sequence[float | None],
) -> None:
    session.ask(records[:BATCH])
    times, spent = [], time.thread_time()
    for record in records:
        began = time.perf_counter()
        session.ask(record)
        times.append((time.perf_counter() - began) * 1e3)
    spent = (time.thread_time() - spent) * 1e3 / len(records)
    row(f"{name}: median", float(np.median(times)), "ms", floors[0], f"{spent:.2f} ms of its thread's CPU")
    row(f"{name}: p95", float(np.percentile(times, 95)), "ms", floors[1])


class TakingIn:
    """Context in which the slots do rounds in another thread."""

    def __init__(self, slots: Slots) -> None:
        self._slots, self._over = slots, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        for part in self._batches():
            began = time.monotonic()
            self._slots.round(part)
            self._over.wait(max(0.0, began + ROUND - time.monotonic()))

    def _batches(self) -> Iterator[ObjectBatch]:
        size, clock = int(RATE * ROUND), self._slots.directory.clock + 1
        known = objects(100 * size, seed=9)
        for i in itertools.count():
            if self._over.is_set():
                return
            first = i % 100 * size
            part = known.slice(first, first + size)
            yield ObjectBatch(part.ids, part.t - part.t[0] + clock, part.x, part.y, part.terms)
            clock += int(ROUND * 1000)


def main() -> None:
    """Print the rows."""
    for row in run(*map(int, sys.argv[1:])):
        print(f"{row['name']:<62}{row['value']:>14,.3f} {row['unit']:<14}{row['floor'] or '':<8}{row['note']}")


if __name__ == "__main__":
    main()
