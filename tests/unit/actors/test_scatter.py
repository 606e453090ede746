"""Queries that concern several actors: one of them asks the others, and omits what they do not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from spatialstream.actors import scatter
from spatialstream.actors.query_metrics import OUTCOMES, QueryMetrics
from spatialstream.actors.scatter import Scatter
from spatialstream.actors.wire import ActorLost
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.stages import views
from spatialstream.stages.snapshot_queries import lines_of
from spatialstream.stages.tasks import World
from spatialstream.stages.views import View
from spatialstream.stream.settings import StreamSettings
from tests.unit.client.test_snapshot_client import PLANE, SKQ, SLOTS, SRQ, STQ, Stream, objects

ACTORS = {0: "a", 1: "b", 2: "c"}


class Actor:
    """An actor, and the behaviour of its endpoint.

    Attributes:
        scatter: of the actor.
        metrics: of the actor.
        away: whether its endpoint is unreachable.
        calls: how often it has been asked.
    """

    def __init__(self, world: World, actors: dict[str, Actor]) -> None:
        self.metrics, self.away, self.calls, self.lost = QueryMetrics(), False, 0, list[str]()
        self.actors: dict[str, Actor] = actors
        self.scatter = Scatter(world, "secret", self, self.lost.append, self.metrics)  # type: ignore[arg-type]

    def ask(self, address: str, secret: str, body: bytes, seconds: float) -> bytes:
        """As :class:`~spatialstream.actors.call_pool.CallPool`."""
        other = self.actors[address]
        other.calls += 1
        if other.away:
            raise ActorLost("nobody is there", address)
        assert secret == "secret"
        return other.scatter.answer(body)


class Cluster:
    """A stream with three slots, each in an actor of its own.

    Views of other actors are invisible, because their storages have other places.
    """

    def __init__(self) -> None:
        self.stream = Stream(PLANE)
        self.stream.round(1_000, objects(300, 900))
        assert self.stream.turn is not None
        self.actors: dict[str, Actor] = {}
        for slot, name in ACTORS.items():
            settings = StreamSettings("s", slots=SLOTS, space=PLANE)
            channel = MemoryChannel([MemoryLog() for _ in range(SLOTS)], MemoryLog())
            world = settings.world(MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog()))
            views.keep(world.storage.place, slot, View.of(self.stream.stores[slot], self.stream.turn, None))
            self.actors[name] = Actor(world, self.actors)

    def right(self, queries: Sequence[Query]) -> dict[int, str]:
        read_point = self.stream.newest(1.0)
        assert read_point is not None
        lines = lines_of(QueryBatch.of(queries), read_point, PLANE, self.stream.call, lambda: 1.0)
        return {i: line.decode() for i, line in enumerate(lines)}

    def lines(self, name: str, queries: Sequence[Query], actors: dict[int, str] = ACTORS) -> dict[int, str]:
        read_point = self.stream.newest(1.0)
        assert read_point is not None
        return self.actors[name].scatter.lines(queries, read_point, actors, 5.0)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    views.forget()
    yield Cluster()
    views.forget()


def parsed(*records: dict[str, Any]) -> list[Query]:
    found = [parse_query(record | {"id": f"q{i}", "t": 1_000}, PLANE) for i, record in enumerate(records)]
    return [query for query in found if isinstance(query, Query)]


CORNER = SRQ | {"region": {"box": [1, 1, 1.1, 1.1]}}
QUERIES = parsed(SRQ, SKQ | {"k": 1_000}, STQ, CORNER, SRQ | {"any": [["w3", "a"], ["w1"]]}, SRQ | {"keywords": ["no"]})


@pytest.mark.parametrize("name", ACTORS.values())
def test_any_actor_has_the_whole_answer(cluster: Cluster, name: str) -> None:
    assert cluster.lines(name, QUERIES) == cluster.right(QUERIES)
    for query in QUERIES:
        assert cluster.lines(name, [query])[0] == cluster.right([query])[0]
    counted = sum(actor.metrics.counts[:, OUTCOMES.index("answered")].sum() for actor in cluster.actors.values())
    assert counted == 2 * len(QUERIES), "where it is answered, and nowhere else"


def test_each_actor_is_asked_once_for_all_questions(cluster: Cluster) -> None:
    cluster.lines("a", parsed(SRQ, STQ, SRQ, STQ))
    assert [actor.calls for actor in cluster.actors.values()] == [0, 1, 1]


def test_what_concerns_an_actor_that_is_away_is_left_out(cluster: Cluster) -> None:
    cluster.actors["c"].away = True
    lines = cluster.lines("a", QUERIES)
    assert 0 < len(lines) < len(QUERIES)
    assert lines.items() < cluster.right(QUERIES).items()
    assert set(cluster.actors["a"].lost) == {"c"}


def test_what_concerns_a_slot_that_moves_is_left_out(cluster: Cluster) -> None:
    lines = cluster.lines("a", QUERIES, {0: "a", 1: "b"})
    assert 0 < len(lines) < len(QUERIES)
    assert lines.items() < cluster.right(QUERIES).items()
    assert cluster.actors["c"].calls == 0


def test_what_an_actor_has_lost_is_left_out(cluster: Cluster) -> None:
    lines = cluster.lines("a", QUERIES, {0: "a", 1: "b", 2: "b"})
    assert 0 < len(lines) < len(QUERIES)
    assert lines.items() < cluster.right(QUERIES).items()


def test_what_is_too_large_for_one_actor_is_left_out(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "LARGEST", 3_000)
    assert cluster.lines("a", parsed(SRQ)) == {}
    assert cluster.lines("a", parsed(CORNER)) == cluster.right(parsed(CORNER))
