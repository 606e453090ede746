import asyncio
import copy
import re

import pytest

from spatialstream.model.errors import SettingError
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.topics import check_topics, topics_of_others
from tests.unit.operator.simulated import World, merge


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
    context = ReconcileContext(environment, StreamNames("geo", name), body, spec, status, memory or Memory(), world.at)
    asyncio.run(check_topics(context))


def name_topic(world, kind, topic):
    world.cluster.put(merge(world.body(), {"spec": {"kafka": {"topics": {kind: topic}}}}))


def test_the_topic_of_another_stream_is_refused_with_its_name(world):
    check(world)
    name_topic(world, "queries", "geo.first.objects")
    said = "spec.kafka.topics.queries: geo.first.objects is the objects topic of the stream geo.first; name another"
    with pytest.raises(SettingError, match=re.escape(said)):
        check(world)
    check(world, name="first")


def test_a_name_that_cannot_be_had_is_refused(world):
    world.cluster.put(merge(world.body("first"), {"spec": {"kafka": {"topics": {"results": "geo.quakes.blocks"}}}}))
    with pytest.raises(SettingError, match=r"metadata\.name: geo\.quakes\.blocks is the results topic of the stream"):
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


def begin(world, name, cluster, **changes):
    status = {"router": {"templateHash": "abc"}, "kafka": {"cluster": cluster}}
    world.cluster.put(merge(world.body(name), {"status": status, **changes}))


def other_address(world, name):
    world.cluster.put(merge(world.body(name), {"spec": {"kafka": {"bootstrapServers": "elsewhere.infra:9092"}}}))


def test_one_kafka_under_two_addresses_is_known_by_its_id_once_it_has_been_asked(world):
    name_topic(world, "queries", "geo.first.objects")
    other_address(world, "first")
    check(world)
    begin(world, "first", "c1")
    begin(world, "quakes", "c2")
    check(world)
    begin(world, "quakes", "c1")
    memory = Memory()
    for _ in range(2):
        with pytest.raises(SettingError, match=r"is the objects topic of the stream geo\.first"):
            check(world, memory)
    check(world, name="first")


def test_the_long_name_of_a_service_is_its_name(world):
    name_topic(world, "queries", "geo.first.objects")
    full = {"spec": {"kafka": {"bootstrapServers": "KAFKA.geo.svc.cluster.local.:9092"}}}
    world.cluster.put(merge(world.body("first"), full))
    with pytest.raises(SettingError):
        check(world)


def test_a_name_of_another_namespace_is_refused_whatever_kafka_it_is_in(world):
    name_topic(world, "objects", "sea.ships.objects")
    check(world)
    theirs = {"metadata": {"namespace": "sea", "uid": "theirs"}}
    world.cluster.put(merge(world.body("first"), theirs))
    said = r"spec\.kafka\.topics\.objects: sea\.ships\.objects is reserved for streams in the namespace sea; name"
    with pytest.raises(SettingError, match=said):
        check(world)
    begin(world, "quakes", "c1")
    check(world)


@pytest.mark.parametrize("cluster", ["", "c1", "c2"])
def test_what_another_stream_names_is_spared(world, cluster):
    name_topic(world, "objects", "geo.first.objects")
    other_address(world, "quakes")
    begin(world, "first", "c1")
    begin(world, "quakes", cluster)

    found = asyncio.run(topics_of_others(world.environment, world.body("first")))

    assert found == ([] if cluster == "c2" else ["geo.first.objects"])


@pytest.mark.parametrize("topics", ["Keep", "Delete"])
def test_what_goes_with_another_stream_is_not_spared_for_it(world, topics):
    name_topic(world, "objects", "geo.first.objects")
    going = {"metadata": {"deletionTimestamp": "2026-11-22T13:00:00Z"}, "spec": {"deletion": {"topics": topics}}}
    world.cluster.put(merge(world.body(), going))

    found = asyncio.run(topics_of_others(world.environment, world.body("first")))

    assert found == (["geo.first.objects"] if topics == "Keep" else [])
