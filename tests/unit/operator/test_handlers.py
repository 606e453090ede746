"""What Kopf calls."""

import asyncio
from dataclasses import dataclass, field

import kopf
import pytest

from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.handlers import AREAS, QUERIES, Handlers, settings
from spatialstream_operator.watch import Watch
from tests.unit.operator.simulated import World, refusal
from tests.unit.operator.stream_resources import AreaScene, QueryScene


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


class Stopped:
    """What tells a daemon of Kopf to stop."""

    def __init__(self):
        self._set, self.reason = asyncio.Event(), None

    async def wait(self):
        await self._set.wait()

    def set(self, reason):
        self.reason = reason
        self._set.set()


@dataclass
class Slow:
    """A gateway that does what it was asked only when it may, whether or not the caller is still there."""

    gateway: object
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    may: asyncio.Event = field(default_factory=asyncio.Event)
    late: list = field(default_factory=list)

    def __getattr__(self, name):
        ask = getattr(self.gateway, name)
        if name not in ("register", "keep_area"):
            return ask

        async def later(*given):
            self.asked.set()
            await self.may.wait()
            return await ask(*given)

        async def shielded(*given):
            self.late.append(asyncio.ensure_future(later(*given)))
            return await asyncio.shield(self.late[-1])

        return shielded


@pytest.fixture(params=[(QueryScene, QUERIES), (AreaScene, AREAS)], ids=["query", "area"])
def deleted_early(request):
    """A resource that is deleted while the gateway is at what it was sent."""
    scene, kind = request.param[0](), request.param[1]
    scene.body()["metadata"]["finalizers"] = ["spatialstream.dev/cleanup"]
    uid = scene.body()["metadata"]["uid"]

    def run(then):
        async def main():
            scene.gateway, plain = Slow(scene.gateway), scene.gateway
            handlers, stopped = Handlers(scene.environment, Watch(), kind), Stopped()
            work = handlers.look_after(stopped=stopped, namespace="geo", name=scene.resource, uid=uid)
            daemon = asyncio.create_task(work)
            await scene.gateway.asked.wait()
            scene.body()["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
            await then(scene, handlers, stopped, daemon)
            await asyncio.gather(*scene.gateway.late)
            scene.gateway = plain
            return scene.known

        return asyncio.run(main())

    return run


def test_a_resource_is_removed_after_what_was_sent_for_it_has_been_processed(deleted_early):
    async def delete(scene, handlers, stopped, daemon):
        stopped.set(kopf.DaemonStoppingReason.RESOURCE_DELETED)
        with pytest.raises(kopf.TemporaryError, match="under way"):
            await handlers.remove(body=scene.body())
        await asyncio.wait({daemon}, timeout=0.05)
        assert not daemon.done(), "it is not interrupted"
        scene.gateway.may.set()
        await daemon
        await handlers.remove(body=scene.body())

    assert deleted_early(delete) == {}


def test_a_reconciliation_that_hangs_blocks_no_removal_forever(deleted_early):
    async def delete(scene, handlers, stopped, daemon):
        stopped.set(kopf.DaemonStoppingReason.RESOURCE_DELETED)
        await asyncio.sleep(0)
        daemon.cancel()  # as Kopf does after a while
        await asyncio.wait({daemon})
        await handlers.remove(body=scene.body())
        assert handlers.controllers == {}
        for late in scene.gateway.late:
            late.cancel()
        scene.gateway.late.clear()

    assert deleted_early(delete) == {}


def test_an_operator_that_exits_waits_for_nothing(deleted_early):
    async def exit_(scene, handlers, stopped, daemon):
        stopped.set(kopf.DaemonStoppingReason.OPERATOR_EXITING)
        await daemon
        assert handlers.controllers == {}
        scene.gateway.may.set()

    assert len(deleted_early(exit_)) == 1, "the next operator finds it in the status"


def test_kopf_waits_for_a_reconciliation_before_it_cancels_it():
    assert settings().background.instant_exit_timeout >= 30.0
