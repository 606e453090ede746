"""An image is tried before what runs is stopped for it."""

import asyncio

import pytest

from spatialstream_operator import manifests
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.trying import try_image
from tests.unit.operator.simulated import World, refusal

NAMES = StreamNames("geo", "quakes")
PULLED = {"name": "image", "state": {"running": {"startedAt": "2027-01-15T08:00:00Z"}}}


@pytest.fixture
def world():
    made = World()
    made.memory = Memory()
    made.stream(metadata={"uid": "u"})
    return made


def runs(world, job, image="spark:test", phase="Running"):
    owner = [{"kind": "SpatialStream", "name": "quakes", "uid": "u"}]
    metadata = {"name": f"quakes-{job}", "namespace": "geo", "ownerReferences": owner}
    spec = {"containers": [{"name": "driver", "image": image, "imagePullPolicy": "IfNotPresent"}]}
    world.cluster.put({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}})


def reconciled(world, image="spark:new", **spec):
    body = world.stream(metadata={"uid": "u"}, spec={"image": image, **spec})
    parsed = StreamSpec.parse(body["spec"], world.environment.defaults)
    context = ReconcileContext(world.environment, NAMES, body, parsed, {}, world.memory, world.at)
    asyncio.run(try_image(context))
    return context


def trial(world):
    return world.cluster.objects.get(("Pod", "geo", "quakes-image"))


def says(world, phase, *containers, conditions=()):
    pod = trial(world)
    pod["status"] = {"phase": phase, "containerStatuses": list(containers), "conditions": list(conditions)}


def waiting(reason, message=""):
    return {"name": "image", "state": {"waiting": {"reason": reason, "message": message}}}


def test_what_runs_goes_on_with_its_image_until_the_new_one_has_begun(world):
    runs(world, "router")
    runs(world, "worker")
    context = reconciled(world)

    assert context.spec.image == "spark:test"
    assert (context.image.reason, context.image.retry) == ("TryingImage", "quick")
    pod = trial(world)
    assert pod["spec"]["containers"][0]["image"] == "spark:new"
    assert pod["spec"]["containers"][0]["args"] == ["spatialstream", "--version"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "volumes" not in pod["spec"]
    says(world, "Succeeded")
    context = reconciled(world)
    assert (context.spec.image, context.image, trial(world)) == ("spark:new", None, None)
    calls = len(world.cluster.calls)
    assert reconciled(world).spec.image == "spark:new"
    assert len(world.cluster.calls) == calls, "it is tried once"


@pytest.mark.parametrize(
    ("phase", "container", "why"),
    [
        ("Pending", waiting("ImagePullBackOff", "no such image"), "ImagePullBackOff: no such image"),
        ("Pending", waiting("ErrImagePull", "denied"), "ErrImagePull: denied"),
        ("Pending", waiting("InvalidImageName", "x"), "InvalidImageName: x"),
        (
            "Failed",
            {
                "name": "image",
                "state": {"terminated": {"exitCode": 128, "message": 'exec: "spatialstream": not found'}},
            },
            'exec: "spatialstream": not found',
        ),
    ],
)
def test_an_image_that_cannot_be_used_stops_nothing_and_is_told(world, phase, container, why):
    runs(world, "router")
    reconciled(world)
    says(world, phase, container)
    context = reconciled(world)

    assert context.spec.image == "spark:test"
    assert (context.image.reason, context.image.retry) == ("ImageUnusable", "slow")
    assert context.image.message == f"The image spark:new cannot be used: {why}. The running pods keep spark:test."
    context = reconciled(world, "spark:newer")  # it is corrected
    assert context.image.reason == "TryingImage"
    assert trial(world) is None
    reconciled(world, "spark:newer")
    assert trial(world)["spec"]["containers"][0]["image"] == "spark:newer"
    context = reconciled(world, "spark:test")  # or taken back
    assert (context.image, trial(world)) == (None, None)


def test_the_secrets_of_what_runs_stay_with_its_image(world):
    runs(world, "router")
    context = reconciled(world, imagePullSecrets=[{"name": "new"}])

    assert context.spec.image_pull_secrets == ()
    assert trial(world)["spec"]["imagePullSecrets"] == [{"name": "new"}]


def test_nothing_is_tried_where_nothing_runs(world):
    assert reconciled(world).spec.image == "spark:new"
    runs(world, "router", phase="Failed")
    world.memory.tried = ""
    assert reconciled(world).spec.image == "spark:new"
    runs(world, "router")
    world.memory.tried = ""
    assert reconciled(world, suspend=True).spec.image == "spark:new"
    assert trial(world) is None


def test_where_no_pod_may_be_made_the_image_is_taken_untried(world):
    async def fail(verb, kind):
        if verb == "create":
            raise refusal(403, "exceeded quota")

    runs(world, "router")
    world.cluster.before = fail
    context = reconciled(world)
    assert (context.spec.image, context.image) == ("spark:new", None)


def test_where_no_node_has_room_it_is_taken_untried_after_a_minute(world):
    runs(world, "router")
    reconciled(world)
    full = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
    trial(world)["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"  # START
    says(world, "Pending", conditions=full)
    world.at += 60_000
    assert reconciled(world).image.reason == "TryingImage"
    world.at += 1
    context = reconciled(world)
    assert (context.spec.image, context.image, trial(world)) == ("spark:new", None, None)


def test_what_does_not_end_is_no_image_of_ours(world):
    runs(world, "router")
    reconciled(world)
    says(world, "Running", PULLED)
    assert reconciled(world).image.reason == "TryingImage"
    world.at += 120_001
    assert "does not terminate" in reconciled(world).image.message


def test_a_pod_of_somebody_else_that_has_the_name_keeps_nothing(world):
    runs(world, "router")
    world.cluster.put({"kind": "Pod", "metadata": {"name": "quakes-image", "namespace": "geo"}})
    assert reconciled(world).spec.image == "spark:new"
    assert trial(world) is not None


def test_the_pod_is_within_the_restricted_profile_and_where_the_router_is():
    template = {"spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "a"}]}}
    raw = {
        "kafka": {"bootstrapServers": "kafka:9092"},
        "zookeeper": {"servers": "zk:2181"},
        "checkpoint": {"claimName": "checkpoints"},
        "router": {"podTemplate": template},
    }
    pod = manifests.trial_pod(StreamSpec.parse(raw, World().environment.defaults), NAMES, "u")

    (container,) = pod["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert {"key": "a"} in pod["spec"]["tolerations"]
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u"
