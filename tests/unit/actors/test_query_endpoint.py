"""Query clients can query, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyarrow import flight

from spatialstream.actors.actor import Actor, ActorSpec
from spatialstream.actors.query_endpoint import AskedQuery, QueryClient, QueryEndpoint, Request
from spatialstream.actors.read_point import ReadPoint
from spatialstream.actors.registry import ActorRegistry
from spatialstream.actors.wire import ActorLost, Command, act, client_of, options
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import build
from spatialstream.model.errors import Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.model.terms import TermRule
from spatialstream.stages.tasks import IdleTasks, World
from spatialstream.stages.turns import Round
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.settings import StreamSettings
from tests.streams import PROPERTIES

OWN, ASKING = "own", "asking"
SETTINGS = StreamSettings("s", slots=2)


@pytest.fixture
def world() -> World:
    channel = MemoryChannel([MemoryLog() for _ in range(SETTINGS.slots)], MemoryLog())
    return SETTINGS.world(MemoryStorage(), channel, MemorySink([MemoryLog()], MemoryLog()))


@pytest.fixture
def actor(world: World) -> Iterator[Actor]:
    made = Actor(ActorSpec("127.0.0.1:1", OWN, world, ASKING), "127.0.0.1")
    yield made
    made.shutdown()


def registry_of(read_point: dict[str, object] | None) -> ActorRegistry:
    return ActorRegistry("127.0.0.1", OWN, 10.0, None, ASKING, lambda: read_point)


def test_who_may_ask_commands_nothing(actor: Actor) -> None:
    client, how = client_of(actor.address), options(ASKING, 10.0)
    command = Command.of(IdleTasks().publish, (), 1).to_json()
    for name in ("map", "gather", "end"):
        with pytest.raises(ActorLost, match="own processes"):
            act(client, name, command, how)
    with pytest.raises(flight.FlightUnauthorizedError):
        list(client.do_get(flight.Ticket(command), how))
    assert not actor.ended.is_set()


@pytest.mark.parametrize("secret", ["", "another", OWN.upper()])
def test_who_knows_no_secret_is_told_nothing(actor: Actor, secret: str) -> None:
    registry = registry_of({"round": [0, 0]})
    try:
        driver = client_of(f"127.0.0.1:{registry.port}")
        for client, name in (
            (client_of(actor.address), "map"),
            (client_of(actor.address), "ask"),
            (driver, "read_point"),
        ):
            with pytest.raises(ActorLost, match="secret of this stream"):
                act(client, name, b"{}", options(secret, 10.0))
    finally:
        registry.shutdown()


def test_a_stranger_sends_no_heartbeat() -> None:
    registry = registry_of(None)
    try:
        with pytest.raises(ActorLost, match="own processes"):
            act(client_of(f"127.0.0.1:{registry.port}"), "heartbeat", b"{}", options(ASKING, 10.0))
        assert registry.actors() == []
    finally:
        registry.shutdown()


def test_a_query_client_finds_the_newest_round_and_is_told_what_is_gone(actor: Actor) -> None:
    store = MemoryStore()
    with pytest.raises(Unavailable, match="no worker"):
        QueryClient(store)
    store.create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 1, 2))
    known = ReadPoint.record(Round(7, (3,), (0,), 1_000, 0))
    registry = registry_of({**known, "actors": {"0": actor.address, "1": None}, "parts": {}})
    endpoint = {"address": f"127.0.0.1:{registry.port}", "secret": ASKING, "certificate": None}
    QueryEndpoint.of(endpoint, WGS84, TermRule(frozenset({"the"}), 2, 9, properties=PROPERTIES, fields=("text",))).save(
        store
    )
    try:
        with QueryClient(store) as query_client:
            assert (query_client.query_endpoint.rule, query_client.query_endpoint.space) == (
                TermRule(frozenset({"the"}), 2, 9, properties=PROPERTIES, fields=("text",)),
                "wgs84",
            )
            assert ASKING not in repr(query_client.query_endpoint)
            read_point = query_client.newest(10.0)
            assert read_point is not None
            assert (read_point.round, read_point.clock) == ((7, 0), 1_000)
            query = Query("q", 0, Predicate(), Everything(), Lifetime(1))
            with pytest.raises(ActorLost, match=r"127\.0\.0\.1:1 does not answer"):  # the actor's driver
                list(query_client.ask(Request([AskedQuery(query)], 10.0)))
            registry.shutdown()
            with pytest.raises(Unavailable, match="worker does not answer"):
                query_client.newest(10.0)
    finally:
        registry.shutdown()
