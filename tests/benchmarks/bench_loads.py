"""Benefit of loads from queries counted by leaf, compared with loads from J alone, measured as counted work.

``python -m tests.benchmarks.bench_loads [--seeds N]``. An hour of a stream, 100 objects and 40 queries a second (SRQs,
and every fourth a CRQ that lasts to the end), half of the queries within one small region. In the case *moved* that
region is another one in the last ten minutes. 8 slots begin with a QT-tree of 64 leaves for the first ten minutes, and
are rebalanced at the end of the hour: by what was counted by leaf in the last ten minutes, and, as if no query had been
counted, by J, which is of a sample with a memory of six hours. Objects are counted by leaf in both.

The *work* is that of the next ten minutes, with unseen queries and objects: pairs of an SRQ and an object in a leaf
that its region intersects, and of a CRQ and an object that arrives in such a leaf. It is deterministic.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spatialstream.balance.loads import LeafCounts, imbalance, leaf_loads, model_error, slot_loads
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.arrays import Floats
from spatialstream.model.kinds import CODE, TYPES, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, nobody
from tests.benchmarks import workload
from tests.benchmarks.workload import SPACE

PART = 600_000
"""The stream is drawn in parts of ten minutes, in ms; six of them are known."""
PARTS = 6
OBJECTS, QUERIES = 60_000, 24_000
"""In each part."""
HOT = 0.1
"""Side of the region where half of the queries are."""
SLOTS, LEAVES = 8, 64
SRQ, CRQ = CODE[QueryType.SRQ], CODE[QueryType.CRQ]


def part_of(seed: int, number: int, hot: tuple[float, float]) -> tuple[ObjectBatch, QueryBatch]:
    """Ten minutes of the stream, with half of the queries around objects right and above of a corner."""
    start = number * PART
    objects = workload.objects(OBJECTS, 100 * seed + number, start, 1_000.0 * OBJECTS / PART)
    here = (objects.x >= hot[0]) & (objects.x < hot[0] + HOT) & (objects.y >= hot[1]) & (objects.y < hot[1] + HOT)
    some = workload.queries(objects.take(np.flatnonzero(here)), QUERIES // 2, 200 * seed + number)
    others = workload.queries(objects, QUERIES // 2, 300 * seed + number)
    parts = []
    for name, asked in (("h", some), ("o", others)):
        n = len(asked)
        lasts = np.arange(n) % 4 == 0
        parts.append(
            QueryBatch(
                pa.array([f"{name}{number}-{i}" for i in range(n)], pa.string()),
                np.where(lasts, CRQ, SRQ).astype(np.int8),
                start + np.arange(n) * PART // n,
                np.where(lasts, 10 * PARTS * PART, PART),
                np.full(n, -1, np.int64),
                np.full(n, -1, np.int64),
                np.full(n, 10, np.int32),
                asked.centres,
                asked.regions,
                asked.keywords,
                nobody(n),
                nobody(n),
            )
        )
    return objects, QueryBatch.concat(parts)


def of_leaves(version: RoutingVersion, queries: QueryBatch, code: int) -> Floats:
    """How many queries of a type concern each leaf."""
    chosen = queries.take(np.flatnonzero(queries.code == code))
    return np.bincount(version.index.route_queries(chosen)[1], minlength=len(version.index.leaves)).astype(np.float64)


def objects_of(version: RoutingVersion, objects: ObjectBatch) -> Floats:
    """How many objects come to each leaf."""
    return np.bincount(version.index.route_objects(objects), minlength=len(version.index.leaves)).astype(np.float64)


def compared(seed: int, moves: bool) -> Iterator[tuple[str, str, float, float, float]]:
    """(strategy, by what, share of the load that is ascribed to wrong leaves, Lmax/Lmin and Lmax/mean of the work)."""
    corners = workload.objects(2, 900 + seed)
    old, new = [
        (min(x, 1.0 - HOT), min(y, 1.0 - HOT)) for x, y in zip(corners.x.tolist(), corners.y.tolist(), strict=True)
    ]
    hot = [new if moves and number >= PARTS - 1 else old for number in range(PARTS)]
    known = [part_of(seed, number, hot[number]) for number in range(PARTS)]
    coming, asked = part_of(seed, PARTS, hot[-1])
    version = build(SPACE, *known[0], LEAVES, SLOTS)
    sample = Sample.of(SPACE, *known[0], PART)
    for objects, queries in known[1:]:
        sample = sample.updated(Sample.of(SPACE, objects, queries, PART), queries.take(np.empty(0, np.int64)))
    statistics = sample.statistics()
    held, ever = (
        kind.concat(parts) for kind, parts in zip((ObjectBatch, QueryBatch), zip(*known, strict=True), strict=True)
    )

    def work(version: RoutingVersion) -> Floats:
        stand = of_leaves(version, QueryBatch.concat([ever, asked]), CRQ)
        return of_leaves(version, asked, SRQ) * objects_of(version, held) + stand * objects_of(version, coming)

    queries = np.zeros((len(TYPES), len(version.index.leaves)))
    queries[SRQ], queries[CRQ] = of_leaves(version, known[-1][1], SRQ), of_leaves(version, ever, CRQ)
    arrivals = objects_of(version, known[-1][0])
    counted = LeafCounts(objects_of(version, held), arrivals, queries[CRQ], PART, queries)

    def balance(version: RoutingVersion) -> tuple[float, float]:
        slots = slot_loads(work(version), version.mapping, SLOTS)
        return imbalance(slots), float(slots.max() / slots.mean())

    true = work(version)
    yield "none", "", 0.0, *balance(version)
    for by, counts in (("J", replace(counted, queries=None)), ("counts", counted)):
        misplaced = model_error(leaf_loads(version, counts, statistics), true) * len(true) / 2
        for strategy in ("PM", "FM", "FG"):
            proposal = propose(version, counts, statistics, BalanceSettings(), strategy)
            assert proposal is not None
            yield strategy, by, misplaced, *balance(proposal.version)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_loads")
    parser.add_argument("--seeds", type=int, default=5, help="streams of each case (default 5)")
    options = parser.parse_args()
    print(f"{'case':<8}{'strategy':<10}{'loads by':<10}{'misplaced':>10}{'Lmax/Lmin':>24}{'Lmax/mean':>11}")
    for case, moves in (("steady", False), ("moved", True)):
        found = [list(compared(seed, moves)) for seed in range(options.seeds)]
        for rows in zip(*found, strict=True):
            strategy, by = rows[0][:2]
            misplaced, ratio, most = (np.array(column) for column in list(zip(*rows, strict=True))[2:])
            share = f"{np.median(misplaced):.1%}" if by else ""
            spread = f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f})"
            print(f"{case:<8}{strategy:<10}{by:<10}{share:>10}{spread:>24}{np.median(most):>11.2f}")


if __name__ == "__main__":
    main()
