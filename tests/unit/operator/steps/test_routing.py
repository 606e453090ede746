"""What is remembered of the routing store while the router is ready."""

import asyncio
import copy
from types import SimpleNamespace

import pytest

from spatialstream.model.errors import StateError, Unavailable
from spatialstream.store.reports import Trouble, UsedTopics
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.conditions import Job
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps import routing
from spatialstream_operator.stores import Stores
from tests.unit.operator.resource import SCHEMA
from tests.unit.operator.simulated import World


@pytest.fixture
def world(monkeypatch):
    made = World()
    made.stream()
    made.used = UsedTopics("c1")

    async def of(*_):
        return SimpleNamespace(state=lambda: SimpleNamespace(incarnation="l1"))

    monkeypatch.setattr(Stores, "of", of)
    made.suspended, made.told = False, []
    monkeypatch.setattr(routing, "read_suspended", lambda store: made.suspended)
    monkeypatch.setattr(routing, "save_suspended", lambda store, suspended: made.told.append(suspended))
    made.troubles = {}
    monkeypatch.setattr(routing, "read_trouble", lambda store, job: made.troubles.get(job, Trouble()))
    monkeypatch.setattr(routing, "read_topics", lambda store: made.used)
    monkeypatch.setattr(routing, "read_balance", lambda store: None)
    monkeypatch.setattr(routing, "save_balance", lambda store, wanted: None)
    return made


def reconcile(world, state="running", memory=None):
    body, environment = world.body(), world.environment
    spec = StreamSpec.parse(body["spec"], environment.defaults)
    status = copy.deepcopy(body.get("status") or {})
    context = ReconcileContext(
        environment, StreamNames("geo", "quakes"), body, spec, status, memory or Memory(), world.at
    )
    context.jobs["router"] = Job("router", state)
    asyncio.run(routing.read_routing(context))
    return context


def read(world, state="running", memory=None):
    reconcile(world, state, memory)
    return world.body().get("status", {})


@pytest.mark.parametrize(
    ("state", "started", "at", "trouble", "before"),
    [
        ("running", 100, 100, "no topic", False),
        ("running", 100, 99, "", False),  # of the one before: this one is ready
        ("starting", 100, 100, "no topic", False),
        ("starting", 100, 99, "no topic", True),
        ("backoff", None, 100, "", False),
        ("absent", None, 100, "", False),
    ],
)
def test_what_a_driver_says_of_itself_is_heard_while_it_runs(world, state, started, at, trouble, before):
    world.troubles["router"] = Trouble("no topic", 50, at)
    body, environment = world.body(), world.environment
    spec = StreamSpec.parse(body["spec"], environment.defaults)
    context = ReconcileContext(environment, StreamNames("geo", "quakes"), body, spec, {}, Memory(), world.at)
    context.jobs["router"] = Job("router", state, started=started)
    asyncio.run(routing.read_routing(context))
    job = context.jobs["router"]
    assert (job.trouble, job.before) == (trouble, before)
    assert job.is_ready == (state == "running" and not trouble)


def test_the_routing_store_is_told_once_that_the_stream_is_suspended(world):
    memory = Memory()
    read(world, memory=memory)
    assert world.told == []
    for suspend, told in ((True, [True]), (True, [True]), (False, [True, False])):
        world.stream(metadata={"uid": "u"}, spec={"suspend": suspend})
        world.suspended = world.told[-1] if world.told else False
        read(world, memory=memory)
        assert world.told == told


def test_which_kafka_and_which_incarnation_it_is_are_remembered_in_declared_fields(world):
    told = read(world)
    for part in ("kafka", "routing"):
        assert set(told[part]) <= set(SCHEMA["properties"]["status"]["properties"][part]["properties"])

    assert told["kafka"] == {"cluster": "c1"}
    assert told["routing"] == {"incarnation": "l1"}


def test_another_kafka_is_seen_in_time(world):
    memory = Memory()
    read(world, memory=memory)
    world.used = UsedTopics("c2")
    assert read(world, memory=memory)["kafka"] == {"cluster": "c1"}
    world.at += 60_000
    assert read(world, memory=memory)["kafka"] == {"cluster": "c2"}


def test_a_router_that_is_not_ready_may_see_the_state_of_another_stream(world):
    assert read(world, "starting") == {}


def test_a_router_of_an_earlier_release_says_nothing_of_topics(world):
    world.used = None
    assert read(world) == {"routing": {"incarnation": "l1"}}


@pytest.mark.parametrize(
    ("status", "error", "uncreated"),
    [
        ({}, StateError("there is no stream"), True),
        ({"routing": {"version": 3}}, StateError("there is no stream"), False),
        ({}, Unavailable("no answer"), False),
    ],
)
def test_a_store_in_which_the_router_has_written_nothing_yet_is_known(world, monkeypatch, status, error, uncreated):
    def fail():
        raise error

    async def of(*_):
        return SimpleNamespace(state=fail)

    monkeypatch.setattr(Stores, "of", of)
    world.cluster.put({**world.body(), "status": status})
    assert reconcile(world, "starting").uncreated == uncreated
