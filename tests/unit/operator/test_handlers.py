"""What Kopf calls."""

import asyncio

import kopf
import pytest

from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.handlers import Handlers, settings
from spatialstream_operator.watch import Watch
from tests.unit.operator.simulated import World, refusal


@pytest.fixture
def world():
    return World()


def test_a_stream_that_is_looked_after_is_woken_by_what_people_wish_alone(world):
    watch = Watch()
    handlers = Handlers(world.environment, watch)
    woken = []
    handlers.controllers["uid-1"] = type("Woken", (), {"wake": lambda self: woken.append(len(woken))})()
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


def test_no_copy_of_a_spec_is_kept_in_an_annotation(world):
    """An annotation has 256 KiB, and a polygon of 10,000 vertices more."""
    body = world.stream() | {"metadata": {"labels": {"a": "b"}}}
    assert settings().persistence.diffbase_storage.build(body=kopf.Body(body)) == {"metadata": {"labels": {"a": "b"}}}


def test_a_removal_that_is_not_done_is_asked_for_again(world):
    handlers = Handlers(world.environment, Watch())
    body = world.stream(status={"router": {"templateHash": "a"}})

    with pytest.raises(kopf.TemporaryError, match="being removed"):
        asyncio.run(handlers.remove(body=body))

    world.cluster.objects.clear()
    asyncio.run(handlers.remove(body=body))


@pytest.mark.parametrize("error", [refusal(500, "out of order"), ClusterError("out of order")])
def test_a_removal_goes_on_when_the_api_server_is_back(world, error):
    async def fail(verb, kind):
        raise error

    body = world.stream()
    world.cluster.before = fail

    with pytest.raises(kopf.TemporaryError, match="out of order") as caught:
        asyncio.run(Handlers(world.environment, Watch()).remove(body=body))
    assert caught.value.delay <= 5.0


def test_why_a_removal_cannot_go_on_is_logged_once_with_the_streams_name(world, caplog):
    said = ["a right is missing"]

    async def fail(verb, kind):
        raise refusal(403, said[-1])

    body = world.stream()
    world.cluster.before = fail
    handlers = Handlers(world.environment, Watch())
    for _ in range(5):
        with pytest.raises(kopf.TemporaryError):
            asyncio.run(handlers.remove(body=body))
    said.append("another one is")
    with pytest.raises(kopf.TemporaryError):
        asyncio.run(handlers.remove(body=body))

    lines = [each.getMessage() for each in caplog.records]
    assert lines == [
        "geo/quakes: removal is blocked: a right is missing",
        "geo/quakes: removal is blocked: another one is",
    ]


def test_kopf_kills_no_process_in_which_others_go_on():
    assert settings().process.ultimate_exiting_timeout is None
