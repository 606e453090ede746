"""Which pods nobody will end any more."""

import pytest

from spatialstream_operator.decisions.lost import OVERDUE, is_lost, is_out_of_reach
from spatialstream_operator.decisions.records import moment_text

T = 1_800_000_000_000
MARKED = {"Ready": ("False", ""), "ContainersReady": ("True", "")}


def pod(conditions, ends=None):
    """A pod with these conditions, and the time at which its grace period ends."""
    said = [
        {"type": name, "status": status} | ({"reason": reason} if reason else {})
        for name, (status, reason) in conditions.items()
    ]
    metadata = {} if ends is None else {"deletionTimestamp": moment_text(ends)}
    return {"metadata": metadata, "status": {"conditions": said}}


@pytest.mark.parametrize(
    ("conditions", "silent"),
    [
        (MARKED, True),
        ({"Ready": ("True", ""), "ContainersReady": ("True", "")}, False),
        # what kubelets say of a pod that starts or ends, of one that is done, of one that waits for somebody else
        ({"Ready": ("False", "ContainersNotReady"), "ContainersReady": ("False", "ContainersNotReady")}, False),
        ({"Ready": ("False", "PodCompleted"), "ContainersReady": ("False", "PodCompleted")}, False),
        ({"Ready": ("False", "ReadinessGatesNotReady"), "ContainersReady": ("True", "")}, False),
        ({"Ready": ("False", "")}, False),
        ({}, False),
    ],
)
def test_only_the_node_controller_gives_no_reason(conditions, silent):
    assert is_out_of_reach(pod(conditions)) is silent
    assert is_lost(pod(conditions, T + 60_000), T) is silent


def test_a_pod_that_is_not_to_end_is_not_lost():
    assert not is_lost(pod(MARKED), T)


def test_a_pod_that_is_there_long_after_its_end_is_lost():
    ready = {"Ready": ("True", ""), "ContainersReady": ("True", "")}

    assert not is_lost(pod(ready, T), T + OVERDUE)
    assert is_lost(pod(ready, T), T + OVERDUE + 1)
    assert is_lost(pod({}, T), T + OVERDUE + 1)


@pytest.mark.parametrize("conditions", [7, "text", None, {"type": "Ready"}, [7], [{"type": "Ready", "status": 7}]])
def test_a_pod_of_another_form_is_not_lost(conditions):
    assert not is_lost({"metadata": {"deletionTimestamp": moment_text(T)}, "status": {"conditions": conditions}}, T)
