import asyncio
from itertools import pairwise

import pytest

from spatialstream_operator import controller as module
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.controller import Controller
from spatialstream_operator.metrics import OperatorMetrics
from tests.unit.operator.simulated import World, refusal, simulate

LABELS = {"namespace": "geo", "stream": "quakes"}


def outcomes(world):
    """How often reconciliations have ended how."""
    name = "spatialstream_operator_reconciles_total"
    samples = [sample for metric in world.metrics.registry.collect() for sample in metric.samples]
    return {each.labels["outcome"]: each.value for each in samples if each.name == name}


def run_for(world, seconds, until=lambda: False):
    async def main():
        running = asyncio.create_task(Controller(world.environment, "geo", "quakes").run())
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            if running.done() or until():
                break
        ended = running.done()
        running.cancel()
        return ended

    return simulate(main)


@pytest.fixture
def world(monkeypatch):
    """A world in which a reconciliation of a stream does what a test says."""
    made = World()
    made.reconciliations = []
    made.fail = None

    async def step(context):
        made.reconciliations.append(asyncio.get_running_loop().time())
        if made.fail is not None:
            raise made.fail

    monkeypatch.setattr(module, "STEPS", (step,))
    return made


def test_it_ends_when_the_stream_is_gone_or_on_its_way(world):
    assert run_for(world, 5)
    world.stream(metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"})
    assert run_for(world, 5)
    assert world.reconciliations == []


def test_it_looks_again_and_again(world):
    world.stream()

    assert not run_for(world, 58)
    assert len(world.reconciliations) == 12
    assert outcomes(world)["done"] == 12


@pytest.mark.parametrize(
    ("error", "mistake"),
    [
        (ClusterError("no route"), False),
        (ClusterError("no answer"), False),
        (refusal(500), False),
        (OSError("no space"), False),
        (KeyError("a mistake"), True),
    ],
)
def test_whatever_fails_it_looks_again_later_and_later(world, caplog, error, mistake):
    world.stream()
    world.fail = error

    assert not run_for(world, 250)

    pauses = [later - sooner for sooner, later in pairwise(world.reconciliations)]
    assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0])
    assert outcomes(world)["failed"] == 10
    assert ("Traceback" in caplog.text) == mistake
    world.fail = None
    world.reconciliations.clear()
    run_for(world, 28)
    assert len(world.reconciliations) == 6


def driver(world, job, ready):
    """The pod of a driver that runs."""
    state = {"name": "driver", "ready": ready, "state": {"running": {"startedAt": "2027-01-15T07:00:00Z"}}}
    metadata = {"name": f"quakes-{job}", "namespace": "geo"}
    world.cluster.put({"kind": "Pod", "metadata": metadata, "status": {"containerStatuses": [state]}})


def test_a_job_that_ends_while_the_spec_is_refused_is_not_said_to_be_ready(world):
    world.stream(status={"conditions": [{"type": "Ready", "status": "True", "reason": "Running"}]})
    world.fail = module.SettingError("spec.kafka.topics.blocks", "is taken")
    for job in ("router", "worker"):
        driver(world, job, True)
    run_for(world, 8)
    driver(world, "worker", False)
    run_for(world, 8)

    ready, *_ = world.body()["status"]["conditions"]
    assert (ready["status"], ready["reason"]) == ("False", "WorkerNotReady")
    assert len(world.cluster.events()) == 1


def test_a_setting_that_a_step_refuses_is_told_once(world):
    for job in ("router", "worker"):
        driver(world, job, True)
    world.stream(status={"conditions": [{"type": "Ready", "status": "True", "reason": "Running"}]})
    world.fail = module.SettingError("spec.kafka.topics.blocks", "is taken")

    run_for(world, 28)

    conditions = {each["type"]: each for each in world.body()["status"]["conditions"]}
    assert conditions["Degraded"]["status"] == "True"
    assert conditions["Degraded"]["reason"] == "SpecRefused"
    assert "is taken" in conditions["Degraded"]["message"]
    assert conditions["Ready"]["status"] == "True", "what is not known to be otherwise stays"
    assert len(world.cluster.events()) == 1
    assert len(world.reconciliations) == 6


def test_a_setting_that_nobody_knows_is_refused_before_anything_is_done(world):
    world.stream(spec={"retension": "1d"})

    run_for(world, 8)

    conditions = {each["type"]: each for each in world.body()["status"]["conditions"]}
    told = "spec.retension: is not a field of a SpatialStream; did you mean spec.retention?"
    assert [conditions["Degraded"][name] for name in ("status", "reason", "message")] == ["True", "SpecRefused", told]
    assert [each["reason"] for each in world.cluster.events()] == ["SpecRefused"]
    assert world.reconciliations == []


def test_a_stream_that_is_refused_has_a_heartbeat_too(world):
    world.stream()
    world.fail = module.SettingError("spec.kafka.topics.blocks", "is taken")

    run_for(world, 8)
    assert world.body()["status"]["lastSeen"] == "2027-01-15T08:00:00Z"
    world.at += 60_000
    run_for(world, 1)

    assert world.body()["status"]["lastSeen"] == "2027-01-15T08:01:00Z"


def test_a_look_that_fails_is_no_heartbeat(world):
    world.stream()
    world.fail = OSError("no space")
    run_for(world, 10)
    assert "status" not in world.body()


def test_series_of_a_stream_come_and_go_with_it():
    metrics = OperatorMetrics()
    metrics.begin("geo", "quakes", ["Off", "Watching"])
    metrics.begin("geo", "other", ["Off", "Watching"])

    def series():
        return {
            (sample.labels["namespace"], sample.labels["stream"])
            for metric in metrics.registry.collect()
            for sample in metric.samples
            if "stream" in sample.labels
        }

    assert series() == {("geo", "quakes"), ("geo", "other")}
    samples = [each for metric in metrics.imbalance_limit.collect() for each in metric.samples]
    assert samples == [], "0 would be a limit that every load is above"
    metrics.imbalance_limit.labels("geo", "quakes").set(6.0)
    metrics.end("geo", "quakes")
    assert series() == {("geo", "other")}
