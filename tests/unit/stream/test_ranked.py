"""Ranked queries in a live stream: rows are the oracle's while tables are passed within rounds, versions change and
processes die; and so they are between the rounds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spatialstream.client import SnapshotClient
from spatialstream.connectors.folder import Folder
from spatialstream.model.errors import SettingError, StateError
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.oracle import answers
from spatialstream.stages.corpus import CORPUS, KEPT
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, Stream, counted, random_stream
from tests.unit.stream import test_asked
from tests.unit.stream.test_asked import Asked, client_of
from tests.unit.stream.test_stream import in_order

INTERVAL = 60_000


def settings_of(seed: int, stream: Stream, retention: int | None = None) -> StreamSettings:
    sizes: dict[str, Any] = {"slots": 1 + seed % 5, "partitions": 1 + seed % 3, "mergers": 1 + seed % 2}
    epoch = [5, 40, 1_000_000][seed % 3]
    return StreamSettings(
        "s",
        **sizes,
        space=stream.space,
        idle=IDLE,
        interval=INTERVAL,
        retention=retention,
        rule=replace(stream.rule, ranking=True),
        epoch_records=epoch,
    )


def drawn(seed: int, *sizes: Any, **more: Any) -> Stream:
    """A random stream; every other pair of seeds counts occurrences, so in both spaces."""
    stream = random_stream(seed, *sizes, **more)
    return counted(stream, seed) if seed // 2 % 2 == 0 else stream


@pytest.mark.parametrize("seed", range(examples(4, 60)))
@pytest.mark.parametrize("retention", [None, 600_000])
def test_every_row_is_the_oracles_while_everything_fails(tmp_path: Path, seed: int, retention: int | None) -> None:
    space = (WGS84, PLANE)[seed % 2]
    stream = in_order(drawn(seed, 300, 60, space, types=["SBQ"], repeated=0.0, where=0.3))
    setup = settings_of(seed, stream, retention)
    index = ["qt-tree", "grid"][seed // 2 % 2]
    simulation = Simulation(
        tmp_path, space, stream.objects, stream.queries, setup, seed, chaos=0.01, checkpoints=0.3, index=index
    )
    simulation.run(0.4, 0.03)
    expected, refused = answers(stream.objects, stream.queries, space, retention, INTERVAL)
    assert refused == []
    assert {row["query"]: row for row in simulation.rows()} == {row["query"]: row for row in expected}
    assert sum(len(row["objects"]) for row in expected) > 20
    there = simulation.storage.list(CORPUS)
    assert all(name.endswith(".arrays") for name in there)
    assert 0 < len(there) <= 2 * KEPT + 60  # those of the last rounds, and not of all


@pytest.mark.parametrize("seed", range(examples(4, 60)))
@pytest.mark.parametrize("retention", [None, 600_000])
def test_every_change_of_a_continuous_one_is_the_oracles_while_everything_fails(
    tmp_path: Path, seed: int, retention: int | None
) -> None:
    """Queries move without what they have kept, and rounds are replayed by the tables of their time."""
    space = (WGS84, PLANE)[seed % 2]
    made = drawn(seed, 400, 80, space, types=["CBQ"], repeated=0.0, where=0.3)
    stream = in_order(replace(made, queries=[*map(lasting, made.queries)]))
    setup = settings_of(seed, stream, retention)
    index = ["qt-tree", "grid"][seed // 2 % 2]
    simulation = Simulation(
        tmp_path, space, stream.objects, stream.queries, setup, seed, chaos=0.01, checkpoints=0.3, index=index
    )
    simulation.run(0.9, 0.03)
    expected, _ = answers(stream.objects, stream.queries, space, retention, INTERVAL)
    found = by_query(simulation.rows())
    assert found == by_query(expected)
    assert sum(len(rows) for rows in found.values()) > 20
    assert len(simulation.storage.list(CORPUS)) <= 2 * KEPT + 60


def lasting(query: Query | Cancellation) -> Query | Cancellation:
    """A query that lasts for an hour, so that it moves."""
    if isinstance(query, Cancellation):
        return query
    return replace(query, lifetime=replace(query.lifetime, duration=3_600_000))


def by_query(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each query, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["query"], []).append(row)
    return found


class AskedRanked(Asked):
    """A simulation that is asked for the best as of each round, at its watermark, which half of the queries name."""

    def meant(self, query: Query, t: int, chance: random.Random) -> Query:
        """The query as of a time; some are about an interval before it."""
        by = query.selection.ranking
        assert by is not None
        if chance.random() < 0.5:
            return replace(query, t=t)
        last = t - chance.choice([0, 1, 300_000])
        by = replace(by, half_life=None, between=(last - chance.choice([1, 900_000]), last), shares=(0.5, 0.25, 0.25))
        return replace(query, selection=query.selection.ranked(by)).at(t)

    def ask(self, turn: Round) -> None:
        if turn.watermark == NEVER:
            return
        chance = random.Random(self.random.random())
        asked = [self.meant(query, turn.watermark, chance) for query in chance.sample(self.query_block, 6)]
        client: SnapshotClient = client_of(self, turn, self.work_settings.space)
        client.rule = self.settings.rule
        records = [query.to_record() for query in asked]
        for record in records[::2]:
            del record["t"]
        try:
            rows = client.ask(records, timeout=0.0)
        except test_asked.Unavailable as error:
            self.wrong += [] if "try again" in str(error) else [str(error)]
            return
        seen = [each for each in self.objects if each.t <= turn.watermark]
        for row, query in zip(rows, asked, strict=True):
            row.pop("as_of")
            expected, _ = answers(seen, [query], self.work_settings.space, self.settings.retention, INTERVAL)
            self.wrong += [] if [row] == expected else [f"{row} is not {expected}"]
            self.answered += 1


@pytest.mark.parametrize("retention", [None, 600_000])
def test_an_answer_is_the_oracles_as_of_its_round(tmp_path: Path, retention: int | None) -> None:
    answered = 0
    for seed in range(2):
        space = (WGS84, PLANE)[seed]
        made = drawn(seed, 500, 40, space, types=["SBQ"], where=0.4)
        objects = sorted(made.objects, key=lambda each: each.t)
        queries = [query for query in made.queries if isinstance(query, Query)]
        setup = replace(settings_of(seed, made, retention), slots=3, epoch_records=60)
        simulation = AskedRanked(tmp_path / str(seed), space, objects, queries, setup, seed, chaos=0.004)
        simulation.run(rebalances=0.6)
        assert simulation.wrong == []
        answered += simulation.answered
    assert answered > 100


def test_whether_occurrences_are_counted_is_for_the_life_of_a_stream(tmp_path: Path) -> None:
    counting = StreamSettings("s", rule=TermRule(ranking=True, counts=True))
    plain = replace(counting, rule=TermRule(ranking=True))
    for name, first, later in (("a", counting, plain), ("b", plain, counting)):
        first.claim(Folder(tmp_path / name))
        first.claim(Folder(tmp_path / name))
        with pytest.raises(StateError, match=r"belongs to a stream with term_counts \w+, not \w+$"):
            later.claim(Folder(tmp_path / name))
    with pytest.raises(SettingError, match=r"^term-counts: are for ranked queries"):
        StreamSettings("s", rule=TermRule(counts=True)).validate()
