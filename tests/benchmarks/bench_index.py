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
from spatialstream.index.construction import build_tree
from spatialstream.index.statistics import Statistics
from spatialstream.model.geometry import BOX, CIRCLE, EVERYWHERE
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

SPACE = Space.planar(0.0, 0.0, 1.0, 1.0)
OBJECTS = 200_000
VOCABULARY = 100_000
TERMS = 8


def zipf_codes(rng: np.random.Generator, rows: int, columns: int, vocabulary: int) -> np.ndarray:
    """Distinct ranks in each row, drawn from Zipf(1.0) by rejecting rows with repetitions."""
    chance = np.cumsum(1.0 / np.arange(1, vocabulary + 1))
    codes = np.empty((rows, columns), np.int32)
    todo = np.arange(rows)
    while len(todo):
        codes[todo] = np.searchsorted(chance, rng.random((len(todo), columns)) * chance[-1])
        ordered = np.sort(codes[todo], axis=1)
        todo = todo[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
    return codes


def make_objects(rng: np.random.Generator, n: int = OBJECTS) -> ObjectBatch:
    """70 % from 40 Gaussian clusters with sigma 0.02, the others uniform; 8 distinct Zipf terms each."""
    centres = rng.random((40, 2))
    places = centres[rng.integers(0, 40, n)] + rng.normal(0.0, 0.02, (n, 2))
    places[rng.random(n) < 0.3] = -1.0
    outside = ((places < 0.0) | (places > 1.0)).any(axis=1)
    places[outside] = rng.random((int(outside.sum()), 2))
    codes = zipf_codes(rng, n, TERMS, VOCABULARY)
    vocabulary = pa.array([f"word{i}" for i in range(VOCABULARY)], pa.string())
    terms = TermLists(np.arange(n + 1, dtype=np.int32) * TERMS, codes.reshape(-1), vocabulary)
    ids = pa.array([f"o{i}" for i in range(n)], pa.string())
    x, y = (np.ascontiguousarray(column) for column in places.T)
    return ObjectBatch(ids, np.arange(n, dtype=np.int64), x, y, terms)


def make_queries(
    rng: np.random.Generator, objects: ObjectBatch, n: int, code: int, kind: int = BOX, side: float = 0.01
) -> QueryBatch:
    """Queries of one type around objects, each with 1 to 3 keywords of its object."""
    chosen = rng.integers(0, len(objects), n)
    x, y = objects.x[chosen], objects.y[chosen]
    shape = np.zeros((n, 4))
    if kind == BOX:
        shape[:] = np.stack([x - side / 2, y - side / 2, x + side / 2, y + side / 2], axis=1)
    elif kind == CIRCLE:
        shape[:, 0], shape[:, 1], shape[:, 2] = x, y, side / 2
    counts = rng.integers(1, 4, n)
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    keywords = objects.terms.codes[np.repeat(chosen, counts) * TERMS + position]
    return QueryBatch(
        pa.array([f"q{i}" for i in range(n)], pa.string()),
        np.full(n, code, np.int8),
        np.zeros(n, np.int64),
        np.full(n, 100_000, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, -1, np.int64),
        np.full(n, 10, np.int32),
        np.stack([x, y], axis=1),
        Regions(np.full(n, kind, np.uint8), shape),
        TermLists(offsets, keywords, objects.terms.vocabulary),
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
    rng = np.random.default_rng(7)
    objects = make_objects(rng)
    srq, crq, skq = (make_queries(rng, objects, OBJECTS, code) for code in (0, 3, 1))
    wide = make_queries(rng, objects, OBJECTS // 10, 0, side=0.2)
    circles = make_queries(rng, objects, OBJECTS, 3, CIRCLE)
    skq = QueryBatch.concat([skq.take(np.arange(0))]) if False else skq
    skq.regions.kind[:] = EVERYWHERE
    rows: list[dict[str, Any]] = []

    def report(name: str, value: float, unit: str, floor: float | None = None) -> None:
        rows.append({"name": name, "value": value, "unit": unit, "floor": floor})

    for name, queries in (("SRQ", srq), ("CRQ", crq), ("SKQ", skq), ("CRQ circles", circles), ("SRQ wide", wide)):
        taken = seconds(lambda q=queries: Statistics.of(SPACE, objects, q, 1e6), 1)
        report(f"statistics J, {len(queries):,} {name}", len(queries) / taken, "queries/s", 100_000 if len(queries) == OBJECTS else None)
    history = Statistics.of(SPACE, objects, QueryBatch.concat([srq, wide]), 1e6)
    report("update of J by 10,000 queries", 1e3 * seconds(lambda: history.updated(Statistics.of(SPACE, objects.take(np.arange(1000)), srq.take(np.arange(10_000)), 1e6))), "ms")
    only_wide = Statistics.of(SPACE, objects, wide, 1e6)
    for name, statistics, splits in (
        ("QT-tree, 64 leaves", only_wide, ("spatial", "textual")),
        ("QT-tree, 64 leaves (small queries)", history, ("spatial", "textual")),
        ("quadtree, 64 leaves", history, ("spatial",)),
        ("text, 64 leaves", history, ("textual",)),
    ):
        taken = seconds(lambda s=statistics, p=splits: build_tree(objects, 64, s, p), 1)
        tree = build_tree(objects, 64, statistics, splits)
        report(f"build: {name}, {len(tree.texts.cell)} textual nodes", taken, "s")
        taken = seconds(lambda t=tree: t.route_objects(objects))
        report(f"route objects: {name}", len(objects) / taken, "objects/s", 1_000_000)
        small = [objects.take(np.arange(i, i + 1000)) for i in range(0, 20_000, 1000)]
        small = [ObjectBatch(b.ids, b.t, b.x, b.y, b.terms.compact()) for b in small]
        taken = seconds(lambda t=tree, s=small: [t.route_objects(b) for b in s])
        report(f"route objects in batches of 1,000: {name}", 20_000 / taken, "objects/s")
        for what, queries in (("CRQ boxes", crq), ("CRQ circles", circles)):
            taken = seconds(lambda t=tree, q=queries: t.route_queries(q))
            report(f"route {what}: {name}", len(queries) / taken, "queries/s", 1_000_000)
    return rows


if __name__ == "__main__":
    for row in run():
        floor = "" if row["floor"] is None else f"   (floor {row['floor']:,.0f})"
        print(f"{row['name']:<70} {row['value']:>14,.3f} {row['unit']}{floor}")
