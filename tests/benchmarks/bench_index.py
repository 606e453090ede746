"""Speed of the global index on the default workload: building J and the QT-tree, routing objects and queries.

CPU time of one core: ``python -m tests.benchmarks.bench_index``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.index import version
from spatialstream.index.qt.construction import SPLITS, build_tree
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.model.geometry import BOX, CIRCLE, EVERYWHERE
from spatialstream.model.kinds import CODE
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, nobody
from spatialstream.model.regions import Regions
from tests.benchmarks import workload
from tests.benchmarks.workload import SPACE

COUNT = 200_000


def make_queries(objects: ObjectBatch, n: int, kind: str, shape: int = BOX, side: float = workload.SIDE) -> QueryBatch:
    """Queries of one type, with squares, the circles within them, or without a region."""
    source = workload.queries(objects, n, seed=1, side=side)
    regions = source.regions
    if shape == CIRCLE:
        circles = np.column_stack([source.centres, np.full(n, side / 2), np.zeros(n)])
        regions = Regions.plain(np.full(n, CIRCLE, np.uint8), circles)
    elif shape == EVERYWHERE:
        regions = Regions.plain(np.zeros(n, np.uint8), np.zeros((n, 4)))
    return QueryBatch(
        pa.array([f"q{i}" for i in range(n)], pa.string()),
        np.full(n, CODE[kind], np.int8),
        np.zeros(n, np.int64),
        np.full(n, 100_000, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, 10, np.int32),
        source.centres,
        regions,
        source.keywords,
        nobody(n),
        nobody(n),
    )


def seconds(work: Callable[[], Any], repeat: int = 3) -> float:
    """The least CPU time of a few runs."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def run() -> list[dict[str, Any]]:
    """The figures: rows of name, value, unit and floor (None where none is set)."""
    version.prepare()
    objects = workload.objects(COUNT, seed=0)
    crq, srq = (make_queries(objects, COUNT, kind) for kind in ("CRQ", "SRQ"))
    skq = make_queries(objects, COUNT, "SKQ", EVERYWHERE)
    circles = make_queries(objects, COUNT, "CRQ", CIRCLE)
    # queries of a quarter of the space: large enough for textual splits to pay
    wide = make_queries(objects, COUNT // 10, "SRQ", side=0.5)
    rows: list[dict[str, Any]] = []

    def report(name: str, value: float, unit: str, floor: float | None = None) -> None:
        rows.append({"name": name, "value": value, "unit": unit, "floor": floor})

    history = {}
    for name, queries in (("CRQ", crq), ("SRQ", srq), ("SKQ", skq), ("CRQ circles", circles), ("SRQ of 25 %", wide)):
        start = time.process_time()
        history[name] = Statistics.of(SPACE, objects, queries, 2e5)
        report(f"J from {len(queries):,} {name}", len(queries) / (time.process_time() - start), "queries/s", 100_000)
    few = objects.take(np.arange(2_000)), srq.take(np.arange(2_000))
    known, recent = Sample.of(SPACE, objects, srq, 2e5), Sample.of(SPACE, *few, 2e3)
    report("sample updated by 2,000 SRQ", 1e3 * seconds(lambda: known.updated(recent, few[1].take(np.arange(0)))), "ms")
    report("J from a sample", 1e3 * seconds(known.statistics), "ms")

    for name, asked, splits, leaves in (
        ("quadtree, 64 leaves", "SRQ", {"spatial"}, 64),
        ("QT-tree, 16 leaves", "SRQ of 25 %", SPLITS, 16),
        ("QT-tree, 64 leaves", "SRQ of 25 %", SPLITS, 64),
        ("QT-tree, 256 leaves", "SRQ of 25 %", SPLITS, 256),
        ("QT-tree, 1024 leaves", "SRQ of 25 %", SPLITS, 1024),
        ("text, 64 leaves", "SRQ", {"textual"}, 64),
    ):
        start = time.process_time()
        tree = build_tree(objects, leaves, history[asked], splits)
        name = f"{name}, {len(tree.texts.cell)} textual nodes"
        report(f"build {name}", time.process_time() - start, "s")
        for what, taken in (
            ("objects", seconds(lambda t=tree: t.route_objects(objects))),
            ("CRQ boxes", seconds(lambda t=tree: t.route_queries(crq), 1)),
            ("CRQ circles", seconds(lambda t=tree: t.route_queries(circles), 1)),
        ):
            floor = 1_000_000 if what == "objects" and name.startswith("QT-tree, 64") else None
            report(f"route {what} by {name}", COUNT / taken, "/s", floor)
        batches = [objects.take(np.arange(i, i + 1000)) for i in range(0, 20_000, 1000)]
        batches = [ObjectBatch(each.ids, each.t, each.x, each.y, each.terms.compact()) for each in batches]
        taken = seconds(lambda t=tree, b=batches: [t.route_objects(each) for each in b])
        report(f"route batches of 1,000 objects by {name}", 20_000 / taken, "/s")
    return rows


if __name__ == "__main__":
    for row in run():
        floor = "" if row["floor"] is None else f"   (floor {row['floor']:,.0f})"
        print(f"{row['name']:<80} {row['value']:>16,.2f} {row['unit']}{floor}")
