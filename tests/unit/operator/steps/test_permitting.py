"""Secrets that a stream names, and what is refused before anything is touched for it."""

import asyncio

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.controller import Controller
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.permitting import check_permissions
from tests.unit.operator.simulated import World, refusal

LABEL = {"spatialstream.dev/allowed": "true"}
SECURED = {"kafka": {"securitySecret": {"name": "user"}}}


@pytest.fixture
def world():
    return World()


def secret(world, name="user", **labels):
    world.cluster.put({"kind": "Secret", "metadata": {"name": name, "namespace": "geo", "labels": labels}})


def checked(world, memory=None, **spec):
    body = world.stream(metadata={"uid": "u"}, spec=spec)
    parsed = StreamSpec.parse(body["spec"], world.environment.defaults)
    names, memory = StreamNames("geo", "quakes"), memory or Memory()
    asyncio.run(check_permissions(ReconcileContext(world.environment, names, body, parsed, {}, memory, world.at)))


def test_a_secret_needs_its_label(world):
    with pytest.raises(SettingError, match=r"spec.kafka.securitySecret: there is no Secret user in the namespace geo"):
        checked(world, **SECURED)
    secret(world)
    with pytest.raises(SettingError, match=r"spec.kafka.securitySecret: streams may not use the Secret user"):
        checked(world, **SECURED)
    secret(world, **LABEL)
    checked(world, **SECURED)


def test_a_secret_that_the_installation_names_is_not_looked_at(world):
    world.config = OperatorConfig(image="spark:test", secrets=("us*",))

    async def fail(verb, kind):
        raise AssertionError("it is asked for")

    world.cluster.before = fail
    checked(world, **SECURED)


def test_a_label_counts_at_once_and_its_end_within_a_minute(world):
    memory = Memory()
    secret(world)
    for _ in range(2):
        with pytest.raises(SettingError):
            checked(world, memory, **SECURED)
    secret(world, **LABEL)
    checked(world, memory, **SECURED)
    secret(world)
    world.at += 59_999
    checked(world, memory, **SECURED)
    world.at += 1
    with pytest.raises(SettingError):
        checked(world, memory, **SECURED)


def test_without_the_right_to_look_a_secret_has_to_be_named(world):
    async def fail(verb, kind):
        if kind == "Secret":
            raise refusal(403, "forbidden")

    world.cluster.before = fail
    with pytest.raises(SettingError, match=r"has no permission to get the Secret user, .*streams.secrets"):
        checked(world, **SECURED)


def test_an_api_server_that_is_away_says_nothing_about_a_secret(world):
    async def fail(verb, kind):
        raise ClusterError("no answer")

    world.cluster.before = fail
    with pytest.raises(ClusterError):
        checked(world, **SECURED)


def test_what_is_refused_touches_nothing_that_runs_and_is_told(world):
    pods = ["quakes-router", "quakes-worker"]
    body = world.stream(metadata={"uid": "u"}, spec={"router": {"podTemplate": {"spec": {"nodeName": "theirs"}}}})
    for name in pods:
        owner = [{"kind": "SpatialStream", "name": "quakes", "uid": body["metadata"]["uid"]}]
        world.cluster.put({"kind": "Pod", "metadata": {"name": name, "namespace": "geo", "ownerReferences": owner}})

    asyncio.run(Controller(world.environment, "geo", "quakes").reconcile())

    assert {verb for verb, kind, _ in world.cluster.calls if kind != "Event"} == {"patch"}
    degraded = next(each for each in world.body()["status"]["conditions"] if each["type"] == "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "SpecRefused")
    assert degraded["message"].startswith("spec.router.podTemplate.spec.nodeName: ")
    assert "streams.podTemplate.allow: [nodeName]" in degraded["message"]
