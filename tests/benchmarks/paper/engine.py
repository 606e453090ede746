"""Measures the points of figures, a file each; a run that is started again goes on with those that have none yet.

Files are in a folder that is named after a digest of the code that is measured and that measures: what was measured of
other code is measured again, and stays beside it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import spatialstream
from spatialstream.model.kinds import QueryType
from tests.benchmarks import bench_rebalance, workload
from tests.benchmarks.paper import counting, rebalancing, systems, workloads
from tests.benchmarks.paper.counting import Counts
from tests.benchmarks.paper.rivals import space
from tests.benchmarks.paper.specs import SNAPSHOT, Figure, Panel, Point
from tests.benchmarks.paper.systems import Key, System, system
from tests.benchmarks.paper.workloads import HOUR

MEASURED = ("model", "index", "local", "balance", "stages", "generate")
"""Folders of the product whose code the counts depend on."""

MONTH = 31 * 24.0
"""Hours over which objects come where Δ matters."""

_STREAM_SEED, _ASKED_SEED = 2000, 3000


def code_digest() -> str:
    """Of the code that is measured, and of that which measures."""
    root = Path(spatialstream.__file__).parent
    files = [path for folder in MEASURED for path in sorted((root / folder).rglob("*.py"))]
    files += [
        Path(str(each.__file__))
        for each in (counting, rebalancing, systems, workloads, space, workload, bench_rebalance)
    ]
    files.append(Path(__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


def name_of(point: Point) -> str:
    """The name of a point's file."""
    return "_".join(str(value).replace("'", "p") for value in asdict(point).values()) + ".json"


def key_of(point: Point) -> Key:
    """The system that a point is about."""
    hours = MONTH if point.days else 72.0
    history = point.kind if point.history == "own" else point.history
    return Key(
        point.data, point.objects, point.method, point.leaves, point.slots, point.days, hours, history, point.seed
    )  # fmt: skip


def measure(point: Point, scale: float) -> Counts:
    """One point."""
    if point.kind in ("objects", "queries"):
        return rebalancing.adjusted(point.kind, point.objects or point.queries, scale)
    built = system(key_of(point))
    span = (point.region, point.region), (point.keywords, point.keywords)
    counts = {QueryType(point.kind): point.queries}
    if point.kind in SNAPSHOT:
        asked = workloads.queries(
            built.objects, counts, _ASKED_SEED + point.seed, region=span[0], keywords=span[1], k=point.k
        )
        found = counting.snapshot(built, asked, point.layout)
    else:
        found = _streamed(built, point, counts, *span)
    textual = float(built.version.index.leaves.textual.sum())
    return found | {
        "predicted": built.predicted,
        "tree_leaves": float(len(built.version.index.leaves)),
        "tree_textual": textual,
    }


def _streamed(
    built: System, point: Point, counts: dict[QueryType, int], region: tuple[float, float], keywords: tuple[int, int]
) -> Counts:
    stream = workloads.objects(point.data, point.objects, _STREAM_SEED + point.seed)
    around = workloads.objects(point.data, max(point.objects, 1000), _ASKED_SEED + point.seed)
    asked = workloads.queries(
        around, counts, _ASKED_SEED + point.seed, region=region, keywords=keywords, k=point.k, duration=73 * HOUR,
        window=8 * HOUR, step=4 * HOUR,
    )  # fmt: skip
    return counting.throughput(built, asked, stream)


class Results:
    """What has been measured.

    Args:
        folder: for files.
        scale: by which numbers of objects and queries are multiplied.
        seeds: how many samples each point is measured on.
    """

    def __init__(self, folder: Path, scale: float, seeds: int) -> None:
        self.scale, self.seeds = scale, seeds
        self.folder = folder / f"{code_digest()}-{scale:g}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def points(self, figures: Iterable[Figure]) -> list[Point]:
        """What the figures need, each point once; those of one system stand together."""
        needed = {
            point: None
            for figure in figures
            for panel in figure.panels
            for point in panel.points(panel.samples(self.seeds), self.scale)
        }
        return sorted(needed, key=lambda point: (point.kind in ("objects", "queries"), point.seed, str(key_of(point))))

    def missing(self, figures: Iterable[Figure]) -> list[Point]:
        """The points that have no file yet."""
        return [point for point in self.points(figures) if not (self.folder / name_of(point)).exists()]

    def fill(self, figures: Sequence[Figure]) -> None:
        """Measure what has no file yet."""
        missing = self.missing(figures)
        for i, point in enumerate(missing, 1):
            began = time.monotonic()
            counts = measure(point, self.scale)
            path = self.folder / name_of(point)
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps({"point": asdict(point), "counts": counts}, indent=1))
            partial.replace(path)
            print(f"{i}/{len(missing)} {path.stem}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)

    def counts(self, point: Point) -> Counts:
        """Of a point that has been measured."""
        counts: Counts = json.loads((self.folder / name_of(point)).read_text())["counts"]
        return counts

    def panel(self, panel: Panel) -> dict[str, dict[float, Counts]]:
        """series -> x -> name -> the median over seeds.

        Raises:
            ValueError: series that should have the same answers have not.
        """
        result: dict[str, dict[float, Counts]] = {series: {} for series in panel.series}
        for x in panel.xs:
            by_seed = [self._at(panel, x, seed) for seed in range(panel.samples(self.seeds))]
            for series in panel.series:
                names = by_seed[0][series]
                result[series][x] = {name: median(each[series][name] for each in by_seed) for name in names}
        return result

    def _at(self, panel: Panel, x: float, seed: int) -> dict[str, Counts]:
        """series -> counts."""
        found = {series: self.counts(panel.point(series, x, seed, self.scale)) for series in panel.series}
        if not panel.across:
            return {
                series: {name.removeprefix(f"{series}."): value for name, value in counts.items()
                         if name.startswith(f"{series}.")}
                for series, counts in found.items()
            }  # fmt: skip
        if panel.across != "data" and len({counts["digest"] for counts in found.values()}) > 1:
            raise ValueError(f"{panel.name} at {x:g}: answers differ")
        return found

    def table(self) -> list[dict[str, object]]:
        """Every point that has been measured: its fields and counts."""
        rows = []
        for path in sorted(self.folder.glob("*.json")):
            found = json.loads(path.read_text())
            rows += [{**found["point"], "measure": name, "value": value} for name, value in found["counts"].items()]
        return rows
