import asyncio
import copy
import re

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.look import Look
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.topics import check_topics
from tests.unit.operator.shell.simulated import World, merge


@pytest.fixture
def world():
    made = World()
    for number, name in enumerate(["first", "quakes"]):
        made.stream(name, metadata={"name": name, "creationTimestamp": f"2026-11-22T12:00:0{number}Z"})
    return made


def check(world, memory=None, name="quakes"):
    body, environment = world.body(name), world.environment
    spec = StreamSpec.parse(body["spec"], environment.defaults)
    status = copy.deepcopy(body.get("status") or {})
    look = Look(environment, StreamNames("geo", name), body, spec, status, memory or Memory(), world.at)
    asyncio.run(check_topics(look))


def name_topic(world, kind, topic):
    world.cluster.put(merge(world.body(), {"spec": {"kafka": {"topics": {kind: topic}}}}))


def test_the_topic_of_another_stream_is_refused_with_its_name(world):
    check(world)
    name_topic(world, "queries", "geo.first.objects")
    said = "spec.kafka.topics.queries: geo.first.objects is the topic of objects of the stream geo.first; name another"
    with pytest.raises(SettingError, match=re.escape(said)):
        check(world)
    check(world, name="first")


def test_a_name_that_cannot_be_had_is_refused(world):
    world.cluster.put(merge(world.body("first"), {"spec": {"kafka": {"topics": {"results": "geo.quakes.blocks"}}}}))
    with pytest.raises(
        SettingError, match=r"metadata\.name: geo\.quakes\.blocks is the topic of results of the stream"
    ):
        check(world)


def test_servers_without_a_namespace_are_those_of_the_streams_own(world):
    name_topic(world, "queries", "geo.first.objects")
    full = {"spec": {"kafka": {"bootstrapServers": "other.infra:9092,kafka.geo.svc:9092"}}}
    world.cluster.put(merge(world.body("first"), full))
    with pytest.raises(SettingError):
        check(world)


def test_a_stream_that_has_begun_is_not_asked_any_more(world):
    name_topic(world, "queries", "geo.first.objects")
    world.cluster.put(merge(world.body(), {"status": {"router": {"templateHash": "abc"}}}))
    check(world)


def test_while_it_may_not_begin_the_streams_are_listed_now_and_then(world):
    name_topic(world, "queries", "geo.first.objects")
    memory, asked = Memory(), []

    async def before(verb, kind):
        asked.append((verb, kind))

    world.cluster.before = before
    for _ in range(12):
        with pytest.raises(SettingError):
            check(world, memory)
        world.at += 5_000
    assert asked == [("list", "SpatialStream")] * 2
    del world.cluster.objects["SpatialStream", "geo", "first"]
    world.at += 30_000
    check(world, memory)
