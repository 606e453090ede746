"""Listings of continuous queries after each round: exactly the admitted ones, whatever the jobs do and whoever dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spatialstream.local.registry import last_instant
from spatialstream.model.errors import Gone
from spatialstream.model.kinds import KINDS
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.stages import views
from spatialstream.stages.turns import Round
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream

CONTINUOUS = tuple(kind.type for kind in KINDS if kind.continuous)


AGAIN = "somebody else"
"""The owner who registers existing queries again."""


def registered_by(queries: Sequence[Query | Cancellation]) -> list[Query | Cancellation]:
    """The queries with their owners; some come again from another owner, who does not become theirs."""
    result = list[Query | Cancellation]()
    for position, each in enumerate(queries):
        if not isinstance(each, Query):
            result.append(each)
            continue
        result.append(replace(each, by=f"sq/geo/q{position}") if position % 3 else each)
        if position % 4 == 0:
            result.append(replace(each, by=AGAIN))
    return result


class Listed(Simulation):
    """A simulation whose continuous queries are listed after each try of a round."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.listings, self.gone = dict[int, list[dict[str, Any]]](), 0

    def run_worker(self) -> None:
        super().run_worker()
        if self.rounds:
            turn = self.rounds[-1][0].round
            try:
                found = [each for part in range(self.settings.mergers) for each in self.listed(part, turn)]
            except Gone:
                self.gone += 1
            else:
                self.listings[turn.watermark] = [record for _, record, _, _ in found]

    def listed(self, part: int, turn: Round) -> list[Any]:
        found, after = list[Any](), -1
        while page := views.listed(
            self.storage.place, part, (turn.number, turn.revision), {"after": after, "limit": 7}
        ).queries:
            found += page
            after = page[-1][0]
        for _, record, _, _ in found[:2]:
            named = views.listed(self.storage.place, part, (turn.number, turn.revision), {"id": record["id"]}).queries
            assert [each for _, each, _, _ in named] == [record]
        return found


@pytest.mark.parametrize("mergers", [1, 3])
def test_registered_queries_are_those_that_were_admitted(tmp_path: Path, mergers: int) -> None:
    listed, seeds = 0, examples(2, 9)
    for seed in range(seeds):
        drawn = random_stream(seed, 300, 25, WGS84, types=CONTINUOUS, cancelled=0.3, repeated=0.0)
        objects = sorted(drawn.objects, key=lambda each: each.t)
        queries = registered_by(sorted(drawn.queries, key=lambda each: each.t))
        setup = StreamSettings(
            *("s", 3, WGS84), idle=IDLE, interval=60_000, epoch_records=60, mergers=mergers, rule=drawn.rule
        )
        simulation = Listed(tmp_path / str(seed), WGS84, objects, queries, setup, seed, chaos=0.004)
        simulation.run(rebalances=0.4)
        refused = set(simulation.refused())
        admitted = [
            each
            for position, each in enumerate(queries)
            if position not in refused and getattr(each, "by", "") != AGAIN
        ]
        for clock, found in simulation.listings.items():
            come = [each for each in admitted if each.t <= clock]
            ended = {each.id for each in come if not isinstance(each, Query)}
            right = [
                each.to_record()
                for each in come
                if isinstance(each, Query) and each.id not in ended and last_instant(QueryBatch.of([each]))[0] > clock
            ]
            assert sorted(found, key=lambda each: each["id"]) == sorted(right, key=lambda each: each["id"])
            listed += len(right)
    assert listed > 100 * seeds


def test_who_has_registered_a_query_changes_no_row(tmp_path: Path) -> None:
    drawn = random_stream(5, 300, 25, WGS84, types=CONTINUOUS, cancelled=0.3, repeated=0.0)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    setup = StreamSettings(*("s", 3, WGS84), idle=IDLE, interval=60_000, epoch_records=60, mergers=2, rule=drawn.rule)
    found = list[list[dict[str, Any]]]()
    for name, asked in (("known", registered_by(queries)), ("unknown", queries)):
        simulation = Simulation(tmp_path / name, WGS84, objects, asked, setup, 5, chaos=0.004)
        simulation.run(rebalances=0.4)
        found.append(sorted(simulation.rows(), key=lambda row: (row["query"], row["t"], str(row))))
    assert found[0] == found[1]
    assert len(found[0]) > 300
