"""The row counts of continuous queries, and the times of their last rows, compared with counts of the results' rows.

Router, worker and rebalancer are interleaved at random, die before any of their steps, lose state in memory, and redo
rounds; the listing is queried in between, after rounds that are done.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spatialstream.model.errors import Lost
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84
from spatialstream.stages.views import listed
from spatialstream.stream.driver import WorkerTurns
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Crash, Simulation
from tests.streams import PLANE, Stream, random_stream, streams
from tests.unit.stream.test_stream import in_order


class Counted(Simulation):
    """A stream whose counts are compared with its results after some rounds."""

    def __init__(self, *given_: Any, **more: Any) -> None:
        super().__init__(*given_, **more)
        self.compared, self.with_rows = 0, 0

    def run_worker(self) -> None:
        super().run_worker()
        worker = self.worker
        if worker is None or worker.last is None or worker.unfinished or self.random.random() < 0.7:
            return
        try:
            turn = WorkerTurns(worker, self.processes, self.settings.slots, self.step).recall()
        except Crash:
            self.worker = None
            return
        except Lost:
            return
        assert turn is not None
        self.compare(turn.number, turn.revision)

    def compare(self, number: int, revision: int) -> None:
        for part in range(self.settings.mergers):
            had = dict[str, list[int]]()
            for row in self.rows_of(part):
                had.setdefault(row["query"], []).append(row["t"])
            everything = {"after": -1, "limit": 10**6}
            for _, record, rows, last in listed(self.storage.place, part, (number, revision), everything).queries:
                mine = [t for t in had.get(record["id"], []) if t >= record["t"]]
                assert (rows, last) == (len(mine), max(mine, default=None)), record
                self.compared += 1
                self.with_rows += rows > 0


def compared(stream: Stream, seed: int, chaos: float) -> Counted:
    setup = StreamSettings(
        "s",
        slots=1 + seed % 4,
        space=stream.space,
        partitions=1 + seed % 2,
        mergers=[1, 3][seed // 5 % 2],
        idle=IDLE,
        epoch_records=[5, 40, 1_000_000][seed % 3],
        rule=stream.rule,
    )
    with tempfile.TemporaryDirectory() as folder:
        counted = Counted(Path(folder), stream.space, stream.objects, stream.queries, setup, seed, chaos=chaos)
        counted.run(0.3, 0.05)
    return counted


@settings(max_examples=examples(2, 40), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_counts_are_those_of_the_results_while_everything_fails(seed: int) -> None:
    compared(in_order(random_stream(seed, 200, 40, [WGS84, PLANE][seed % 2], types=TYPES)), seed, 0.01)


@settings(max_examples=examples(3, 80), suppress_health_check=[HealthCheck.too_slow])
@given(streams(), st.integers(0, 10**6))
def test_with_ties_and_borders(stream: Stream, seed: int) -> None:
    compared(in_order(stream), seed, 0.005)


def test_the_comparison_sees_rows_and_rounds_that_are_done_again() -> None:
    found = compared(in_order(random_stream(27, 300, 40, WGS84, types=TYPES)), 27, 0.01)
    assert found.compared >= 50
    assert found.with_rows >= 20
    assert found.again >= 10
