"""Growth of each figure with objects, queries, leaves and the size of an epoch: the curves of ``make bench``.

A curve is measured like the figure of the same name in the tables, on one core and in CPU time where applicable. There
are few points and runs are short, so single points may be affected by other load on the machine.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spatialstream.local.range import crq as crq_module
from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.model.regions import Box
from tests.benchmarks import bench_crq, workload
from tests.benchmarks.workload import SPACE

if TYPE_CHECKING:
    from spatialstream.local.snapshot.segments import SegmentStore
    from spatialstream.model.objects import ObjectBatch

Points = list[tuple[float, float]]


@dataclass
class Chart:
    """One picture.

    Attributes:
        name: of the file.
        title: what is measured.
        x, y: labels of the axes, both logarithmic, with units.
        series: label -> points (x, y).
        floor: the figure to reach, as a line; None for none.
    """

    name: str
    title: str
    x: str
    y: str
    series: dict[str, Points] = field(default_factory=dict)
    floor: float | None = None

    def add(self, label: str, x: float, y: float) -> None:
        """One more point of a series."""
        self.series.setdefault(label, []).append((float(x), float(y)))


def best_of(work: Callable[[], object], repeat: int = 3) -> float:
    """The least CPU time of a few runs, s."""
    return min(bench_crq.cpu_seconds(work) for _ in range(repeat))


def crq(largest: int = 10_000_000) -> Iterator[Chart]:
    """Matching and registration by the number of continuous queries."""
    crq_module.prepare()
    source, stream = (workload.objects(200_000, seed) for seed in (bench_crq.SOURCE_SEED, bench_crq.STREAM_SEED))
    speed = Chart("crq-queries", "CRQ matching, one core", "continuous queries", "objects/s", floor=1e6)
    bulk = Chart(
        "crq-registration",
        "CRQ registration in bulks that grow it to",
        "continuous queries",
        "queries/s, all bulks so far",
    )
    parts = bench_crq.batches(stream)
    for name, options in (
        ("regions of 0.0001 % to 1 %", {"side": (0.001, 0.1)}),
        ("frequent keywords only", {"frequent": 100}),
        ("regions of 0.01 %", {}),  # the last, since what follows gigabytes in one process is slower
    ):
        index, count, spent = ContinuousRangeIndex(SPACE), 0, 0.0
        index.observe(stream.take(np.arange(20_000)))
        for n in (10_000, 30_000, 100_000, 200_000, 500_000, 1_000_000, 3_000_000, 10_000_000):
            if n > (largest if not options else min(largest, 1_000_000)):
                break
            while count < n:
                added = workload.queries(source, min(n - count, 1_000_000), bench_crq.QUERY_SEED + count, **options)
                spent += bench_crq.cpu_seconds(lambda a=added, c=count, i=index: bench_crq.register(i, a, c))
                count += len(added)
            chosen = parts if n <= 1_000_000 else parts[:1]
            times = 5 if n <= 1_000_000 else 2
            taken = best_of(lambda i=index, c=chosen: [bench_crq.match(i, part) for part in c], times)
            speed.add(name, n, sum(map(len, chosen)) / taken)
            if not options:
                bulk.add("with the merges of tiers", n, count / spent)
    yield speed
    yield bulk


def routing(leaves: Sequence[int] = (1, 4, 16, 64, 256, 1024)) -> Iterator[Chart]:
    """Routing by the number of leaves, with and without textual splits."""
    from spatialstream.index import version
    from spatialstream.index.qt.construction import SPLITS, build_tree
    from spatialstream.index.statistics import Statistics
    from tests.benchmarks.bench_index import make_queries

    version.prepare()
    objects = workload.objects(200_000, seed=0)
    crqs = make_queries(objects, 200_000, "CRQ")
    narrow = Statistics.of(SPACE, objects, make_queries(objects, 200_000, "SRQ"), 2e5)
    wide = Statistics.of(SPACE, objects, make_queries(objects, 20_000, "SRQ", side=0.5), 2e5)
    speed = Chart("route-leaves", "Routing, one core", "leaves", "per second", floor=1e6)
    building = Chart("tree-leaves", "Building a tree of 200,000 objects, one core", "leaves", "s")
    for name, history, splits in (("QT-tree", wide, SPLITS), ("quadtree", narrow, {"spatial"})):
        for n in leaves:
            started = time.process_time()
            tree = build_tree(objects, n, history, splits)
            building.add(name, n, max(time.process_time() - started, 1e-3))
            speed.add(f"objects, {name}", n, len(objects) / best_of(lambda t=tree: t.route_objects(objects)))
            speed.add(f"queries, {name}", n, len(crqs) / best_of(lambda t=tree: t.route_queries(crqs), 1))
    yield speed
    yield building


def snapshot(sizes: Sequence[int] = (10_000, 100_000, 500_000, 1_000_000, 5_000_000)) -> Iterator[Chart]:
    """Time of snapshot queries, and speed of building, by the number of objects of a segment."""
    from spatialstream.local.snapshot import segments
    from spatialstream.local.snapshot.segment import Segment
    from spatialstream.local.snapshot.segments import SegmentStore

    segments.prepare()
    asked_of = "objects of the segment"
    times = Chart("snapshot-objects", "Snapshot queries, median, one core", asked_of, "µs")
    building = Chart("segment-objects", "Building a segment, one core", asked_of, "objects/s", floor=5e5)
    everything = workload.objects(max(sizes), seed=1)
    for n in sizes:
        batch = everything.take(np.arange(n))
        started = time.process_time()
        Segment.build(SPACE, batch)
        building.add("build", n, n / (time.process_time() - started))
        store = SegmentStore(SPACE)
        store.append(batch)
        for name, seconds in _asked(store, batch):
            times.add(name, n, seconds * 1e6)
    yield times
    yield building


def _asked(store: SegmentStore, batch: ObjectBatch, n: int = 300) -> Iterator[tuple[str, float]]:
    """The median time of each kind of snapshot query, s."""
    from tests.benchmarks.bench_segment import FOREVER, measured, top

    asked = workload.queries(batch, n, seed=2)
    boxes = [Box(*shape) for shape in asked.regions.shape.tolist()]
    centres, words = asked.centres.tolist(), [tuple(asked.keywords[i]) for i in range(n)]
    for name, ask in (
        ("SRQ, 0.01 %", lambda i: store.range_query(boxes[i], words[i], *FOREVER)),
        ("SKQ, nearest 10", lambda i: store.nearest(*centres[i], 10, words[i], *FOREVER)),
        ("STQ, top 20 of 0.01 %", lambda i: top(store, boxes[i])),
    ):
        measured(ask, 20)
        yield name, float(np.median(measured(ask, n)[0]))


def pipeline(objects: int = 1_000_000) -> Iterator[Chart]:
    """From file to results on Spark, by the number of continuous CRQs and by the size of an epoch."""
    from spatialstream.kernels import compile_kernels
    from spatialstream.spark.session import embedded_session
    from tests.benchmarks.bench_pipeline import throughput

    compile_kernels()
    spark = embedded_session("benchmarks")
    measured = f"objects/s, {objects:,} objects"
    by_queries = Chart("pipeline-queries", "File to results, all cores", "continuous CRQs", measured, floor=8e4)
    by_epoch = Chart("pipeline-epoch", "File to results, all cores, 200,000 CRQs", "records an epoch", measured)

    def point(chart: Chart, x: int, queries: int, records: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for row in throughput(spark, Path(folder), objects, queries, records):
                if row["unit"] == "objects/s":
                    chart.add("file to results" if row.get("floor") else "route, work, merge alone", x, row["value"])

    try:
        point(Chart("", "", "", ""), 1, 1_000, 250_000)  # starts Spark's processes
        for queries in (1_000, 10_000, 100_000, 200_000, 1_000_000):
            point(by_queries, queries, queries, 250_000)
        for records in (10_000, 30_000, 100_000, 250_000, 500_000):
            point(by_epoch, records, 200_000, records)
    finally:
        spark.stop()
    yield by_queries
    yield by_epoch


CURVES: dict[str, Callable[[], Iterator[Chart]]] = {
    "crq": crq,
    "index": routing,
    "segment": snapshot,
    "pipeline": pipeline,
}
"""The curves that go with each benchmark."""


def draw(chart: Chart, path: Path) -> None:
    """A picture of a chart, as a small SVG file."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spatialstream", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for colour, marker, (label, points) in zip(
        ("#2a5f8f", "#b5482a", "#2a7f62", "#7a5195"), "osD^", chart.series.items(), strict=False
    ):
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, linewidth=1.4, label=label)
    if chart.floor is not None:
        axes.axhline(chart.floor, color="#555555", linewidth=1, linestyle="--", label="floor")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(title=chart.title, xlabel=chart.x, ylabel=chart.y)
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
