"""A skewed stream that began without history: after a rebuild from its own sample the slots' load is even, and no row
is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spatialstream.balance.attribution import OBJECT
from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.proposal import propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.version import RoutingVersion
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box
from spatialstream.oracle import answers, check
from spatialstream.stages.turns import NEVER
from spatialstream.store.reports import read_sample
from spatialstream.stream.load_window import LoadWindow
from spatialstream.stream.settings import StreamSettings
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE

SLOTS = 4
WEST, SOUTH, EAST, NORTH = PLANE.bounds


def skewed(n: int = 6_000) -> tuple[list[SpatialObject], list[Query | Cancellation]]:
    """Nine in ten of the objects and queries in a hundredth of the plane, queries from the beginning to the end."""
    rng = np.random.default_rng(2)

    def places(count: int) -> list[list[float]]:
        size = np.where(rng.random((count, 1)) < 0.9, 0.1, 1.0)
        found = rng.random((count, 2)) * size * (EAST - WEST, NORTH - SOUTH) + (WEST, SOUTH)
        return found.tolist()

    objects = [SpatialObject(f"o{i}", 10 + i, x, y, ("a", f"w{i % 7}")) for i, (x, y) in enumerate(places(n))]
    side = (EAST - WEST) / 100
    queries: list[Query | Cancellation] = []
    for i, (x, y) in enumerate(places(200)):
        box = Predicate(Box(x, y, min(EAST, x + side), min(NORTH, y + side)), ("a",))
        continuous = i % 4 != 0
        t = 5 if continuous else 10 + i * n // 200
        queries.append(Query(f"q{i}", t, box, Everything(), Lifetime(10**6 if continuous else 1_000, continuous)))
    return objects, sorted(queries, key=lambda query: query.t)


def measured(window: LoadWindow, version: RoutingVersion, simulation: Simulation) -> tuple[float, LeafCounts]:
    """Lmax/Lmin of the slots' measured work under a version: candidates checked, and objects."""
    for record, summary in simulation.rounds:
        if record.round.version == version.number:
            window.use(version, NEVER)
            window.take(record.round.watermark, summary.loads)
    counts = window.counts()
    assert counts is not None
    work = np.bincount(version.mapping, window.checked + OBJECT * counts.arrivals, SLOTS)
    return float(work.max() / max(work.min(), 1e-9)), counts


def test_a_skewed_stream_without_history_is_even_after_a_rebuild(tmp_path: Path) -> None:
    objects, queries = skewed()
    nothing = ObjectBatch.of([]), QueryBatch.of([])
    setup = StreamSettings("s", slots=SLOTS, space=PLANE, partitions=2, idle=IDLE, epoch_records=200)
    simulation = Simulation(tmp_path, PLANE, objects, queries, setup, 7, sample=nothing)

    while sum(map(len, simulation.unsent.values())) > 1_500:
        simulation.produce()
        simulation.run_router()
        simulation.run_worker()
    version = simulation.store.load(0)
    before, counts = measured(LoadWindow(600_000, None), version, simulation)
    simulation.learner.learn()
    sample = read_sample(simulation.store)
    assert sample is not None
    proposal = propose(version, counts, sample.statistics(), BalanceSettings(), "rebuild", 1, sample)
    assert proposal is not None
    simulation.store.publish(proposal.version, 0, proposal.id, proposal.to_record())
    simulation.run(rebalances=0.0, disturbances=0.0)

    after, _ = measured(LoadWindow(600_000, None), proposal.version, simulation)
    assert before > 6.0
    assert after < 2.0
    assert simulation.store.state().active.number == 1
    expected, refused = answers(objects, queries, PLANE)
    assert refused == []
    assert [str(each) for each in check(simulation.rows(), expected, 5)] == []
