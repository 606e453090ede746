"""What Kopf calls; and the comparison of lists that the operator makes beside it."""

import asyncio

import httpx2
import kopf
import pytest

from spatialstream_operator import __main__ as main_module
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.environment import Environment
from spatialstream_operator.handlers import Handlers
from spatialstream_operator.health import Health
from spatialstream_operator.watch import Watch
from tests.unit.operator.shell.simulated import World, refusal, simulate


@pytest.fixture
def world():
    return World()


def test_a_stream_that_is_looked_after_is_woken_by_what_people_wish_alone(world):
    watch = Watch()
    handlers = Handlers(world.environment, watch)
    woken = []
    handlers._controllers["uid-1"] = type("Woken", (), {"wake": lambda self: woken.append(len(woken))})()
    body = world.stream()

    async def seen(kind, **metadata):
        body["metadata"].update(metadata)
        await handlers.seen(type=kind, body=body, uid="uid-1")

    async def main():
        await seen("ADDED")
        await seen("MODIFIED", resourceVersion="2")
        await seen("MODIFIED", generation=2)
        await seen("MODIFIED", annotations={"spatialstream.dev/approve": "x"})
        await seen("MODIFIED", resourceVersion="3")
        await seen("DELETED", resourceVersion="4")

    asyncio.run(main())
    assert len(woken) == 3


def test_a_removal_that_is_not_done_is_asked_for_again(world):
    handlers = Handlers(world.environment, Watch())
    body = world.stream(status={"router": {"templateHash": "a"}})

    with pytest.raises(kopf.TemporaryError, match="being removed"):
        asyncio.run(handlers.remove(body=body))

    world.cluster.objects.clear()
    asyncio.run(handlers.remove(body=body))


@pytest.mark.parametrize("error", [refusal(500, "out of order"), httpx2.ConnectError("out of order")])
def test_a_removal_goes_on_when_the_api_server_is_back(world, error):
    async def fail(verb, kind):
        raise error

    body = world.stream()
    world.cluster.before = fail

    with pytest.raises(kopf.TemporaryError, match="out of order") as caught:
        asyncio.run(Handlers(world.environment, Watch()).remove(body=body))
    assert caught.value.delay <= 5.0


def compare_for(world, watch, seconds, namespaces=()):
    environment = world.environment
    config = OperatorConfig(namespaces=namespaces)
    environment = Environment(environment.cluster, environment.stores, config, environment.metrics, environment.now)

    async def main():
        now = asyncio.get_running_loop().time
        health = Health(watch, now)
        original, main_module.time.monotonic = main_module.time.monotonic, now
        try:
            comparing = asyncio.create_task(main_module._compare(environment, watch, health))
            await asyncio.sleep(seconds)
            comparing.cancel()
            return health.problem()
        finally:
            main_module.time.monotonic = original

    return simulate(main)


def test_a_dead_watch_is_found_in_whichever_namespace(world):
    watch = Watch()
    for namespace in ("geo", "weather"):
        body = world.stream(metadata={"namespace": namespace})
        if namespace == "weather":
            watch.show(body)

    assert "the watch has not shown for" in compare_for(world, watch, 200, ("geo", "weather"))


def test_a_watch_that_shows_everything_is_alive(world):
    watch = Watch()
    watch.show(world.stream())

    assert compare_for(world, watch, 1000) == ""


@pytest.mark.parametrize("error", [refusal(403), httpx2.ConnectError("no route")])
def test_streams_that_can_never_be_listed_are_a_reason_to_start_again(world, error):
    async def fail(verb, kind):
        raise error

    world.cluster.before = fail

    assert compare_for(world, Watch(), 100) == ""
    assert "streams have not been listed for" in compare_for(world, Watch(), 200)
