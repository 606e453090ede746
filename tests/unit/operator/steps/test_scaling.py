"""The number of executors of both jobs: decided, remembered, asked for, told."""

import asyncio
import copy

import pytest

from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import asked_executors
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.autoscaling import Use
from spatialstream_operator.decisions.conditions import Job
from spatialstream_operator.load_metrics import LoadMetrics
from spatialstream_operator.memory import Memory
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.scaling import scale
from tests.unit.operator.resource import NAMES, defaulted
from tests.unit.operator.simulated import World
from tests.unit.operator.steps.test_executors import executor

QUICK = {"enabled": True, "scaleUpStabilisation": "1s", "scaleDownStabilisation": "1s"}


def reconcile(world, store, router=None, worker=None):
    """What a context makes of how much the jobs' executors are used; it knows of earlier ones by the status alone."""
    body, environment = world.body(), world.environment
    spec = StreamSpec.parse(defaulted(body["spec"]), environment.defaults)
    context = ReconcileContext(
        environment, NAMES, body, spec, copy.deepcopy(body.get("status") or {}), Memory(), world.at
    )
    context.jobs = {job: Job(job, "running") for job in ("router", "worker")}
    context.store, context.routing = store, True
    context.load_metrics = LoadMetrics(world.at, use=worker, router=router)
    asyncio.run(scale(context))
    world.at += 2_000
    return context


def use(world, utilisation, delay=100):
    return Use(world.at, utilisation, delay, 0.0, 100.0)


@pytest.fixture
def world():
    world = World()
    for job in ("router", "worker"):
        executor(world, 1, True, job)
    return world


def test_each_job_is_scaled_by_its_own_load(world):
    world.stream(spec={"router": {"max": 2}, "autoscaling": QUICK})
    store = MemoryStore()
    for _ in range(4):
        context = reconcile(world, store, use(world, 0.9), use(world, 0.5))

    assert {job: crew.desired for job, crew in context.crews.items()} == {"router": 2, "worker": 1}
    assert [asked_executors(store, job) for job in ("router", "worker")] == [2, 1]
    status = world.body()["status"]
    assert status["router"]["autoscaling"]["desired"] == 2
    assert status["autoscaling"]["desired"] == 1
    (event,) = [each for (kind, _, _), each in world.cluster.objects.items() if kind == "Event"]
    assert event["note"].startswith("1 -> 2 executors of the router: ")


def test_records_that_wait_for_the_router_are_a_reason(world):
    world.stream(spec={"router": {"max": 2}, "autoscaling": QUICK})
    store = MemoryStore()
    for _ in range(4):
        reconcile(world, store, use(world, 0.5, delay=60_000), use(world, 0.5))

    assert asked_executors(store, "router") == 2
    assert world.body()["status"]["router"]["autoscaling"]["message"].startswith("Records wait too long ")


def test_a_router_of_one_pod_is_asked_nothing_and_forgets_that_it_had_executors(world):
    known = {"pod": "quakes-router", "desired": 2, "ready": "1/2", "autoscaling": {"desired": 2}}
    world.stream(spec={"autoscaling": QUICK}, status={"router": known})
    store = MemoryStore()

    context = reconcile(world, store, None, use(world, 0.5))

    assert set(context.crews) == {"worker"}
    assert asked_executors(store, "router") is None
    assert world.body()["status"]["router"] == {"pod": "quakes-router"}


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        (12, "The desired number of executors is 4: workers.replicas is 12, but workers.max allows 4."),
        (1, "The desired number of executors is 2: workers.replicas is 1, but workers.min is 2."),
        (3, ""),
    ],
)
def test_replicas_beyond_the_bounds_are_told_of_once(world, replicas, said):
    world.stream(spec={"workers": {"min": 2, "max": 4, "replicas": replicas}})
    store = MemoryStore()
    for _ in range(3):
        context = reconcile(world, store)

    assert context.crews["worker"].beyond == said
    assert [each["note"] for each in world.cluster.events()] == ([said] if said else [])
    assert (world.body()["status"]["autoscaling"]["message"] == said) == bool(said)
