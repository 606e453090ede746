"""Why pods do not start: pods and events in the form in which kubelets and schedulers leave them."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions.records import moment_text
from spatialstream_operator.decisions.restarts import report
from spatialstream_operator.decisions.starting import PATIENCE, beside, hindrance

T = 1_800_000_000_000
MADE = T - 30_000

CREATING = {"name": "driver", "ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}}
INITIALIZING = {"name": "driver", "ready": False, "state": {"waiting": {"reason": "PodInitializing"}}}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def pod(*statuses, init=(), node="n1", conditions=(SCHEDULED,), phase="Pending", sidecars=(), made=MADE):
    spec = {"containers": [{"name": "driver"}], "initContainers": [{"name": each["name"]} for each in init]}
    for each in spec["initContainers"]:
        if each["name"] in sidecars:
            each["restartPolicy"] = "Always"
    if node:
        spec["nodeName"] = node
    status = {
        "phase": phase,
        "conditions": list(conditions),
        "containerStatuses": list(statuses),
        "initContainerStatuses": list(init),
    }
    return {"metadata": {"uid": "u", "creationTimestamp": moment_text(made)}, "spec": spec, "status": status}


def waits(reason, message="", name="driver"):
    return {"name": name, "ready": False, "state": {"waiting": {"reason": reason, "message": message}}}


def kubelet(reason, note, at=T - 5_000, type="Warning"):
    """As a kubelet's event of the old form reads in events.k8s.io/v1."""
    seen = moment_text(at // 1000 * 1000)
    return {
        "reason": reason,
        "note": note,
        "type": type,
        "eventTime": None,
        "reportingController": "kubelet",
        "deprecatedFirstTimestamp": moment_text(MADE),
        "deprecatedLastTimestamp": seen,
        "deprecatedCount": 6,
        "deprecatedSource": {"component": "kubelet", "host": "n1"},
    }


def scheduler(reason="Scheduled", note="Successfully assigned geo/quakes-router to n1", type="Normal", at=MADE):
    """An event of the new form, of which only the first and the last time are told."""
    return {"reason": reason, "note": note, "type": type, "eventTime": moment_text(at), "reportingController": "s"}


NO_SECRET = kubelet("FailedMount", 'MountVolume.SetUp failed for volume "kafka" : secret "kafka" not found')
NO_DISK = kubelet(
    "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node'
)
NO_NETWORK = kubelet("FailedCreatePodSandBox", "Failed to create pod sandbox: no IP addresses available in range")
PULLING = kubelet("Pulling", 'Pulling image "spark:1"', T - 20_000, "Normal")


def why(pod, *events, now=T):
    found = hindrance(pod, "driver", now, events)
    return None if found is None else (found.reason, found.message, found.retry)


@pytest.mark.parametrize("event", [NO_SECRET, NO_DISK, NO_NETWORK], ids=lambda each: each["reason"])
def test_what_only_events_tell(event):
    assert why(pod(CREATING), scheduler(), event) == (event["reason"], event["note"], "slow")
    assert report(pod(CREATING), T, events=[scheduler(), event]).state == "stuck"


@pytest.mark.parametrize(
    "reason",
    [
        "CreateContainerConfigError",
        "CreateContainerError",
        "CrashLoopBackOff",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
        "SomethingThatALaterKubeletSays",
    ],
)
def test_a_container_that_waits_for_somebody(reason):
    assert why(pod(waits(reason, "no such\n  thing"))) == (reason, "no such thing", "slow")
    assert why(pod(waits(reason, "no such thing"), made=T)) is not None, "this needs no patience"
    assert why(pod(waits(reason))) == (reason, f"The container cannot start: {reason}.", "slow")


def test_containers_of_a_template_are_named():
    image = waits("ImagePullBackOff", "no such image", "proxy")
    assert why(pod(CREATING, image)) == ("ImagePullBackOff", "Container proxy: no such image", "slow")
    assert why(pod(INITIALIZING, init=[image]))[1] == "Container proxy: no such image"
    both = pod(image, waits("CreateContainerConfigError", 'secret "x" not found'))
    assert why(both)[1] == 'secret "x" not found', "the driver's own cause is told first"


def test_a_driver_that_runs_beside_a_container_that_cannot():
    running = {"name": "driver", "ready": True, "state": {"running": {"startedAt": moment_text(MADE)}}}
    found = report(pod(running, waits("ImagePullBackOff", "no such image", "proxy")), T)
    assert (found.state, found.ready, found.failure.message) == ("running", True, "Container proxy: no such image")
    assert report(pod(running), T).failure is None
    assert beside(pod(waits("ImagePullBackOff")), "driver") is None


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
def test_a_pod_without_a_node(reason):
    said = 'persistentvolumeclaim "checkpoints" not found'
    refused = {"type": "PodScheduled", "status": "False", "reason": reason, "message": said}
    assert why(pod(node="", conditions=[refused])) == (reason, said, "slow")
    assert why(pod(node="", conditions=[]))[::2] == ("NotScheduled", "quick")


def test_what_a_pod_waits_for_by_itself():
    running = {"name": "fetch", "state": {"running": {}}}
    assert why(pod(INITIALIZING, init=[running]))[1] == "The pod waits until its init container fetch has terminated."
    sidecar = pod(INITIALIZING, init=[{**running, "started": False}], sidecars=["fetch"])
    assert why(sidecar)[1] == "The pod waits until its init container fetch has started."
    begun = pod(CREATING, init=[{**running, "started": True}], sidecars=["fetch"])
    assert why(begun)[0] == "NodeSilent"
    assert why(pod(CREATING), scheduler(), PULLING) == ("Pulling", 'Pulling image "spark:1"', "quick")
    assert report(pod(CREATING), T, events=[PULLING]).state == "pending"


def test_nothing_is_said_of_a_pod_that_has_only_begun():
    young = pod(CREATING, made=T - PATIENCE + 1)
    assert why(young, NO_SECRET) is None
    assert report(young, T).state == "pending"


def test_what_failed_once_and_went_on_is_past():
    once = {**NO_SECRET, "deprecatedLastTimestamp": moment_text(T - 25_000)}
    assert why(pod(CREATING), once, PULLING)[0] == "Pulling"
    assert why(pod(CREATING), PULLING, NO_SECRET)[0] == "FailedMount"
    again = {**scheduler(**{"reason": "FailedMount", "note": "x", "type": "Warning"}), "series": {"count": 3}}
    again["series"]["lastObservedTime"] = moment_text(T)
    assert why(pod(CREATING), PULLING, again)[0] == "FailedMount"


def test_in_the_same_second_what_fails_is_the_later():
    at = T - 5_000
    both = scheduler(at=at + 400), {**NO_SECRET, "deprecatedLastTimestamp": moment_text(at)}
    assert {why(pod(CREATING), *each)[0] for each in (both, both[::-1])} == {"FailedMount"}


def test_a_hint_keeps_nothing_from_starting():
    hint = kubelet("FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (x)")
    assert why(pod(CREATING), hint)[2] == "quick"
    assert why(pod(CREATING), kubelet("DNSConfigForming", "Search Line limits were exceeded"))[2] == "quick"


KEYS = st.sampled_from(["series", "eventTime", "reason", "type", "note", "state"])
junk = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(KEYS, below, max_size=4),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(KEYS, junk), max_size=4))
def test_events_of_another_form_are_read_all_the_same(events):
    body = pod(CREATING)
    before = copy.deepcopy(body)
    assert hindrance(body, "driver", T, events) is not None
    assert body == before
