"""Places where streams are looked after: what becomes of them while rights, resource and connections come and go."""

import asyncio
import logging

import pytest

from spatialstream_operator import kind_watcher as posts_module
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.handlers import FINALIZER, QUERIES, STREAMS
from spatialstream_operator.health import Health
from spatialstream_operator.kind_watcher import KindWatcher
from spatialstream_operator.watch import Watch
from tests.unit.operator.simulated import World, refusal, simulate

MISSING_PATH = ClusterError("404 page not found", 404)


@pytest.fixture
def world():
    return World()


class Kept:
    """Posts that are kept for some seconds of simulated time; what Kopf would do is counted."""

    def __init__(self, world, monkeypatch, watch=None):
        self.world, self.monkeypatch = world, monkeypatch
        self.watch = Watch() if watch is None else watch
        self.begun, self.running, self.fails = [], set(), {}

    async def _kopf(self, watcher):
        if watcher.resource is not STREAMS:
            await asyncio.Event().wait()
        self.begun.append(watcher.namespace)
        self.running.add(watcher.namespace)
        try:
            if watcher.namespace in self.fails:
                raise self.fails[watcher.namespace]
            await asyncio.Event().wait()
        finally:
            self.running.discard(watcher.namespace)

    def keep(self, seconds, *namespaces, then=None):
        """Keep them; ``then`` is called in between, after half of the time."""

        async def main():
            now = asyncio.get_running_loop().time
            self.monkeypatch.setattr(posts_module.time, "monotonic", now)
            self.monkeypatch.setattr(KindWatcher, "_run", lambda watcher: self._kopf(watcher))
            health = Health(self.watch, now)
            environment = self.world.environment
            kept = [
                asyncio.create_task(KindWatcher(environment, self.watch, health, each, lambda: None, resource).keep())
                for each in namespaces or (None,)
                for resource in (STREAMS, QUERIES)
            ]
            try:
                await asyncio.sleep(seconds / 2)
                if then is not None:
                    then()
                await asyncio.sleep(seconds / 2)
                return health.problem(), set(self.running)
            finally:
                for each in kept:
                    each.cancel()
                await asyncio.wait(kept)

        return simulate(main)

    def refuse(self, **errors):
        """Lists of these namespaces are answered with an error."""
        listed = type(self.world.cluster).list

        async def listing(kind, namespace, labels=None):
            if error := errors.get(kind) or (kind == "SpatialStream" and errors.get(namespace or "everywhere")):
                raise error
            return await listed(self.world.cluster, kind, namespace, labels)

        self.world.cluster.list = listing


@pytest.fixture
def kept(world, monkeypatch):
    return Kept(world, monkeypatch)


GOING = frozenset({"get", "list", "watch", "delete", "deletecollection"})
"""What the API server says of a kind whose definition is being deleted."""


def without_kopf(world, monkeypatch, resource, *then):
    """Keep a watcher, and act each minute of simulated time; when Kopf was begun, in seconds, and whether the
    operator was healthy all the time.
    """
    spawned, problems = [], []

    async def spawn_tasks(**_):
        spawned.append(asyncio.get_running_loop().time())
        return [asyncio.create_task(asyncio.Event().wait())]

    monkeypatch.setattr(posts_module.kopf, "spawn_tasks", spawn_tasks)

    async def main():
        now = asyncio.get_running_loop().time
        monkeypatch.setattr(posts_module.time, "monotonic", now)
        begun, watch = now(), Watch()
        health = Health(watch, now)
        kept = asyncio.create_task(KindWatcher(world.environment, watch, health, "geo", lambda: None, resource).keep())
        for each in (*then, lambda: None):
            for _ in range(6):
                await asyncio.sleep(10)
                problems.append(health.problem())
            each()
        kept.cancel()
        await asyncio.wait({kept})
        return [at - begun for at in spawned], not any(problems)

    return simulate(main)


def served(world, namespace):
    return world.metrics.registry.get_sample_value(
        "spatialstream_operator_namespace_served", {"namespace": namespace, "kind": "SpatialStream"}
    )


def test_a_dead_watch_is_found_in_whichever_namespace(world, kept):
    for namespace in ("geo", "weather"):
        body = world.stream(metadata={"namespace": namespace, "kind": "SpatialStream"})
        if namespace == "weather":
            kept.watch.show(body)

    assert "the watch has been missing listed changes for" in kept.keep(200, "geo", "weather")[0]


def test_a_watch_that_shows_everything_is_alive(world, kept):
    kept.watch.show(world.stream())

    assert kept.keep(1000) == ("", {None})


@pytest.mark.parametrize("error", [refusal(500), refusal(401), ClusterError("no route")])
def test_no_answer_is_a_reason_to_start_again(kept, error):
    kept.refuse(everywhere=error)

    assert kept.keep(100) == ("", set())
    assert "resources have not been listed for" in kept.keep(200)[0]


@pytest.mark.parametrize(
    "error", [refusal(403), refusal(404), refusal(410), MISSING_PATH], ids=["403", "404", "410", "path"]
)
def test_a_refusal_is_none_and_others_are_looked_after(world, kept, caplog, error):
    caplog.set_level(logging.INFO)
    kept.refuse(geo=error)

    assert kept.keep(1000, "geo", "weather") == ("", {"weather"})
    assert (served(world, "geo"), served(world, "weather")) == (0.0, 1.0)
    assert [each.getMessage()[:42] for each in caplog.records] == [
        "geo: spatialstreams cannot be listed: " + str(error)[:4]
    ]


def test_streams_are_looked_after_where_there_are_no_queries(world, kept, caplog):
    kept.refuse(SpatialQuery=MISSING_PATH)

    assert kept.keep(1000, "geo") == ("", {"geo"})
    labels = {"namespace": "geo", "kind": "SpatialQuery"}
    assert world.metrics.registry.get_sample_value("spatialstream_operator_namespace_served", labels) == 0.0
    (line,) = [each.getMessage() for each in caplog.records]
    assert line == "geo: spatialqueries cannot be listed: 404 page not found"


def test_rights_that_go_and_come_end_and_begin_it(world, kept, caplog):
    caplog.set_level(logging.INFO)
    body = world.stream()
    world.metrics.begin("geo", "quakes", ["Off"])
    errors = {}
    kept.refuse(**errors)

    def lose():
        kept.refuse(geo=refusal(403, "not you"))

    assert kept.keep(100, "geo", "weather", then=lose) == ("", {"weather"})
    labels = {"namespace": "geo", "stream": "quakes"}
    assert world.metrics.registry.get_sample_value("spatialstream_operator_desired_workers", labels) is None
    kept.watch.show(body)

    assert kept.keep(100, "geo", "weather", then=kept.refuse) == ("", {"geo", "weather"})
    assert served(world, "geo") == 1.0
    assert [each.getMessage() for each in caplog.records][-1] == "geo: spatialstreams can be listed again"


def test_a_watch_that_fails_begins_again_and_is_told_once(kept, caplog):
    kept.fails["geo"] = refusal(403, "not to be watched")

    assert kept.keep(300, "geo", "weather") == ("", {"weather"})

    assert kept.begun.count("weather") == 1
    assert 10 <= kept.begun.count("geo") <= 25
    (line,) = [each.getMessage() for each in caplog.records]
    assert line == "geo: the watch of spatialstreams has ended, restarting it: ApiError: not to be watched"


def test_a_watch_that_shows_nothing_begins_again_long_before_the_process_does(world, kept, caplog):
    """As one that was begun where its resource was not known yet: it watches nothing, and says nothing of it."""
    world.stream(metadata={"namespace": "geo"})
    kept.watch.show(world.stream("other", metadata={"namespace": "weather"}))

    assert kept.keep(119, "geo", "weather") == ("", {"geo", "weather"})

    assert (kept.begun.count("geo"), kept.begun.count("weather")) == (2, 1)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line == "geo: the watch has been missing listed changes for 80 s: restarting the watch of spatialstreams"


def test_one_that_has_begun_again_has_its_time_to_show_what_there_is(world, kept):
    world.stream(metadata={"namespace": "geo"})

    kept.keep(1000, "geo")

    assert 10 <= kept.begun.count("geo") <= 1000 / posts_module.DEAD


@pytest.mark.parametrize("resource", [STREAMS, QUERIES], ids=["streams", "queries"])
def test_nothing_is_watched_before_who_asks_is_told_of_the_resource(world, monkeypatch, resource):
    """Kopf asks once: a resource that can be listed, and of which nobody is told yet, would never be watched."""
    world.cluster.unserved[resource.kind] = frozenset()

    (at,), healthy = without_kopf(world, monkeypatch, resource, world.cluster.unserved.clear)

    assert 60 <= at <= 61
    assert healthy


def test_streams_go_with_their_definition_though_kopf_does_not_begin(world, monkeypatch):
    """Such as those that an operator finds which comes while it is being deleted."""
    names = ("quakes", "posts")
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER, "somebody/else"]}
    skipped = {"annotations": {"spatialstream.dev/skip-cleanup": "true"}}
    for name in names:
        ran = {"router": {"templateHash": "a"}}
        world.stream(name, metadata={**gone, **(skipped if name == "quakes" else {})}, status=ran)
    world.stream("stays", metadata={"finalizers": [FINALIZER]})
    world.cluster.unserved["SpatialStream"] = GOING

    spawned, healthy = without_kopf(world, monkeypatch, STREAMS, lambda: None, lambda: None)

    kept = {name: world.body(name)["metadata"]["finalizers"] for name in (*names, "stays")}
    assert kept == {"quakes": ["somebody/else"], "posts": [FINALIZER, "somebody/else"], "stays": [FINALIZER]}
    assert spawned == []
    assert healthy
    assert ("create", "Pod", "posts-remover") in world.cluster.calls
