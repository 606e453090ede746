import asyncio
import copy

from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.conditions import Job
from spatialstream_operator.decisions.records import moment_text
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.executors import count_executors, miss_executors
from tests.unit.operator.simulated import World

NAMES = StreamNames("geo", "quakes")
ROOM = "0/1 nodes are available: 1 Insufficient cpu."


def executor(world, number, ready, job="worker"):
    """The pod of an executor, which is ready, or finds no room."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": ROOM}
    conditions = [{"type": "Ready", "status": "True"}] if ready else [said]
    metadata = {
        "name": f"quakes-{job}-exec-{number}",
        "namespace": "geo",
        "labels": NAMES.selected(NAMES.executor(job)),
    }
    world.cluster.put({"kind": "Pod", "metadata": metadata, "status": {"conditions": conditions}})


def on_lost_node(world, number, job="worker"):
    """The node controller has said that an executor is not ready, and asked for its end."""
    pod = world.cluster.objects["Pod", "geo", f"quakes-{job}-exec-{number}"]
    pod["metadata"]["deletionTimestamp"] = moment_text(world.at + 30_000)
    said = {"Ready": "False", "ContainersReady": "True"}
    pod["status"]["conditions"] = [{"type": name, "status": status} for name, status in said.items()]


def reconcile(world, driver="running", wanted=2):
    """Reconcile executors; earlier reconciliations are known by the status alone."""
    body, environment = world.body(), world.environment
    spec = StreamSpec.parse(body["spec"], environment.defaults)
    context = ReconcileContext(
        environment, NAMES, body, spec, copy.deepcopy(body.get("status") or {}), Memory(), world.at
    )
    context.jobs["worker"], context.crews["worker"].desired = Job("worker", driver), wanted

    async def steps():
        await count_executors(context)
        await miss_executors(context)

    asyncio.run(steps())
    return context.crews["worker"]


def test_what_is_missing_is_remembered_and_told_when_it_has_lasted():
    world = World()
    world.stream()
    executor(world, 1, True)
    executor(world, 2, False)

    assert reconcile(world).missing is None
    assert world.body()["status"]["workers"]["missing"] == {"since": "2027-01-15T08:00:00Z", "most": 1}
    world.at += 299_000
    assert reconcile(world).missing is None
    world.at += 1_000
    crew = reconcile(world)

    assert crew.registered == 1
    assert (
        crew.missing.message
        == f"Executors of the worker missing since 2027-01-15T08:00:00Z: 1 of 2: Unschedulable: {ROOM}"
    )
    executor(world, 2, True)
    assert reconcile(world).missing is None
    assert world.body()["status"]["workers"] == {}


def test_an_executor_on_a_lost_node_makes_room_and_is_told_of_once():
    world = World()
    world.stream()
    executor(world, 1, True)
    executor(world, 2, True)
    on_lost_node(world, 2)

    assert reconcile(world).registered == 1
    reconcile(world)

    assert [call for call in world.cluster.calls if call[0] == "force_delete"] == [
        ("force_delete", "Pod", "quakes-worker-exec-2")
    ]
    (event,) = world.cluster.events()
    assert (event["reason"], event["type"]) == ("ExecutorLost", "Warning")
    assert "quakes-worker-exec-2" in event["note"]


def test_an_executor_that_ends_on_a_node_that_answers_is_left_to_it():
    world = World()
    world.stream()
    executor(world, 1, True)
    world.cluster.objects["Pod", "geo", "quakes-worker-exec-1"]["metadata"]["deletionTimestamp"] = moment_text(world.at)

    reconcile(world)

    assert [call for call in world.cluster.calls if call[0] == "force_delete"] == []


def test_without_a_driver_nothing_is_known_and_nothing_missing():
    world = World()
    world.stream(status={"workers": {"missing": {"since": "2027-01-15T07:00:00Z", "most": 0}}})

    crew = reconcile(world, "terminating")

    assert (crew.registered, crew.missing) == (None, None)
    assert "missing" not in world.body()["status"]["workers"]


def test_nothing_is_written_while_nothing_is_missing():
    world = World()
    world.stream(status={"workers": {"replicas": 1}})
    executor(world, 1, True)

    reconcile(world, wanted=1)

    assert world.cluster.calls == []


def test_executors_that_outlive_their_driver_hold_up_a_suspension():
    world = World()
    world.stream(spec={"suspend": True})
    executor(world, 1, True)
    executor(world, 2, True, "router")
    world.cluster.put({"kind": "Pod", "metadata": {"name": "x", "namespace": "geo", "labels": NAMES.labels("remover")}})

    def left():
        body, environment = world.body(), world.environment
        spec = StreamSpec.parse(body["spec"], environment.defaults)
        context = ReconcileContext(
            environment, NAMES, body, spec, copy.deepcopy(body.get("status") or {}), Memory(), world.at
        )
        context.jobs |= {job: Job(job, "absent") for job in ("router", "worker")}
        asyncio.run(count_executors(context))
        return context.left

    assert left() == 2
    del world.cluster.objects["Pod", "geo", "quakes-router-exec-2"]
    assert left() == 1
    world.cluster.put({**world.body(), "status": {"phase": "Suspended"}})
    assert left() == 0, "it is not asked any more"


def test_what_the_first_executor_waits_for_is_known_while_its_driver_is_not_ready():
    world = World()
    world.stream()
    executor(world, 1, False)

    crew = reconcile(world, "starting")
    assert crew.shortage == f"Unschedulable: {ROOM.rstrip('.')}"
    assert crew.missing is None
    executor(world, 1, True)
    assert reconcile(world, "starting").shortage == ""
