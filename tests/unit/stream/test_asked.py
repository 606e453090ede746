"""Queries between the rounds of a stream: whatever the router and the worker do, a row is correct, or there is none."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spatialstream.actors.read_point import ReadPoint
from spatialstream.client import SnapshotClient
from spatialstream.model.errors import Unavailable
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Lifetime, Query
from spatialstream.model.space import WGS84, Space
from spatialstream.oracle import answers, check
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stages.versions import load_version
from spatialstream.stream.settings import StreamSettings
from tests.asking import AskedActors, world_of
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, query_record, random_stream

SNAPSHOTS = (QueryType.SRQ, QueryType.SKQ, QueryType.STQ)


def client_of(simulation: Simulation, turn: Round, space: Space) -> SnapshotClient:
    """A client that is answered as of a round of a simulation, by an actor that has some of its slots' views."""
    read_point = ReadPoint.of(ReadPoint.record(turn), lambda number: load_version(simulation.storage, number))
    world = world_of(space, 3, simulation.storage.place, simulation.settings.retention)
    actors = AskedActors(lambda seconds: read_point, {}, {"a": world})
    rule = simulation.settings.rule
    return SnapshotClient(lambda seconds: read_point, actors.ask, space, rule, pause=lambda seconds: None)


class Asked(Simulation):
    """A simulation that is queried after each try of a round."""

    def __init__(
        self,
        folder: Path,
        space: Space,
        objects: list[SpatialObject],
        query_block: list[Query],
        *rest: Any,
        **more: Any,
    ) -> None:
        super().__init__(folder, space, objects, [], *rest, **more)
        self.objects, self.query_block = objects, query_block
        self.answered, self.refused_at, self.under_way = 0, 0, 0
        self.versions: set[int] = set()
        self.wrong: list[str] = []

    def run_worker(self) -> None:
        super().run_worker()
        if self.rounds:
            done = [record.round for record, _ in self.rounds]
            for turn in {done[-1].number: done[-1], done[max(0, len(done) - 3)].number: done[max(0, len(done) - 3)]}:
                self.ask(next(each for each in reversed(done) if each.number == turn))

    def ask(self, turn: Round) -> None:
        """Ask some queries as of a round that is done."""
        chance = random.Random(self.random.random())
        now = max(turn.watermark, 0)
        asked = [self.timed(query, now, chance) for query in chance.sample(self.query_block, 6)]
        session = client_of(self, turn, self.work_settings.space)
        try:
            rows = session.ask([query_record(query) for query in asked], timeout=0.0)
        except Unavailable as error:
            known = "has just started" in str(error) if turn.watermark == NEVER else "try again" in str(error)
            self.wrong += [] if known else [str(error)]
            self.refused_at += 1
            return
        assert [row.pop("as_of") for row in rows] == [{"round": turn.number, "clock": turn.watermark}] * len(asked)
        self.wrong += differences(rows, asked, self.objects, self.work_settings.space, self.settings.retention, turn)
        self.answered += len(rows)
        self.under_way += bool(turn.past)
        self.versions.add(turn.version)

    @staticmethod
    def timed(query: Query, clock: int, chance: random.Random) -> Query:
        """The query at the watermark, or some time before it."""
        return replace(query, t=clock if chance.random() < 0.5 or query.t > clock else query.t)


def differences(
    rows: list[dict[str, Any]],
    asked: list[Query],
    objects: list[SpatialObject],
    space: Space,
    retention: int | None,
    turn: Round,
) -> list[str]:
    """Differences from the oracle's rows over all objects up to the watermark, as far back as retention allows."""
    seen = [each for each in objects if each.t <= turn.watermark]
    found = []
    for row, query in zip(rows, asked, strict=True):
        floor = -(2**62) if retention is None else turn.watermark - retention
        since = max(query.t - query.lifetime.duration, floor)
        noted = row.pop("complete_after", None)
        if noted != (since if since > query.t - query.lifetime.duration else None):
            found.append(f"{query}: complete after {noted}, not {since}")
        near = replace(query, lifetime=Lifetime(max(0, query.t - since)))
        expected, _ = answers(seen, [near], space)
        found += [f"{query}: {each}" for each in check([row], expected, 5)]
    return found


@pytest.mark.parametrize("retention", [None, 600_000])
def test_an_answer_is_the_oracles_as_of_its_round_while_versions_change_and_processes_die(
    tmp_path: Path, retention: int | None
) -> None:
    simulations = []
    for seed in range(4):
        space = WGS84 if seed % 2 else PLANE
        drawn = random_stream(seed, 800, 40, space, types=SNAPSHOTS, where=0.4)
        objects = sorted(drawn.objects, key=lambda each: each.t)
        query_block = [query for query in drawn.queries if isinstance(query, Query)]
        setup = StreamSettings(
            *("s", 3, space),
            idle=IDLE,
            retention=retention,
            interval=60_000,
            epoch_records=100,
            rule=drawn.rule,
        )
        simulation = Asked(tmp_path / str(seed), space, objects, query_block, setup, seed, chaos=0.004)
        simulation.run(rebalances=0.6)
        assert simulation.wrong == []
        simulations.append(simulation)
    assert sum(each.answered for each in simulations) > 1_000
    assert sum(each.refused_at for each in simulations) > 10
    assert sum(each.under_way for each in simulations) > 20
    assert sum(len(each.versions) for each in simulations) > 8


def test_a_row_is_that_of_the_stream_to_the_byte(tmp_path: Path) -> None:
    drawn = random_stream(9, 400, 40, WGS84, types=SNAPSHOTS)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted((each for each in drawn.queries if isinstance(each, Query)), key=lambda each: each.t)
    setup = StreamSettings("s", slots=3, space=WGS84, idle=IDLE, interval=60_000, epoch_records=100)
    simulation = Simulation(tmp_path, WGS84, objects, queries, setup, 1)
    simulation.run(rebalances=0.3)
    by_stream = {row["query"]: row for row in simulation.rows()}
    turn = simulation.rounds[-1][0].round
    records = [("", query_record(query)) for query in queries]
    for query, line in zip(queries, client_of(simulation, turn, WGS84).lines(records), strict=True):
        as_of = {"round": turn.number, "clock": turn.watermark}
        assert line == json.dumps(by_stream[query.id] | {"as_of": as_of}, ensure_ascii=False)
    assert len(by_stream) == 120
