"""Missing executors: from when they count, what is progress, what ends it, and what is said."""

import itertools
import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions.executors import (
    REASON,
    SOON,
    Cause,
    Shortage,
    cause,
    is_ready,
    problem,
    refused,
    shortage,
)
from spatialstream_operator.decisions.records import moment_text

T = 1_800_000_000_000
INTERVAL = 5_000
MINUTE = 60_000
GRACE = 5 * MINUTE
NO_ROOM = Cause("no room")


@dataclass
class Watched:
    """Looks at a stream, each by another operator: what is remembered goes through the status each time."""

    now: int = T
    status: dict | None = None
    told: str | None = None

    def reconcile(self, ready, wanted, driver="running"):
        self.now += INTERVAL
        before = Shortage.from_status(self.status or {})
        found = shortage(before, self.now, ready, wanted, driver)
        self.status = None if found is None else json.loads(json.dumps(found.to_status()))
        failure = problem("worker", found, self.now, ready or 0, wanted, GRACE, NO_ROOM)
        self.told = None if failure is None else failure.message
        return self.told is not None

    def minutes(self, count, ready, wanted, driver="running"):
        """Whether it was told in any reconciliation of that many minutes."""
        told = [self.reconcile(ready, wanted, driver) for _ in range(count * MINUTE // INTERVAL)]
        return any(told)


def test_a_shortage_is_told_after_the_grace_time_and_ends_with_it():
    watched = Watched()
    assert not watched.minutes(60, 2, 2)
    assert not watched.minutes(5, 1, 2)
    assert watched.reconcile(1, 2)
    assert (
        watched.told
        == f"Executors of the worker missing since {moment_text(T + 60 * MINUTE + INTERVAL)}: 1 of 2: no room."
    )
    assert watched.reconcile(0, 2)
    assert ": 2 of 2: no room." in watched.told
    assert not watched.reconcile(2, 2)
    assert watched.status is None
    assert not watched.minutes(5, 1, 2)


def test_the_limit_is_a_time_not_a_number_of_reconciliations():
    found = Shortage(T, 1)
    assert problem("worker", found, T + GRACE - 1, 1, 2, GRACE, NO_ROOM) is None
    failure = problem("worker", found, T + GRACE, 1, 2, GRACE, NO_ROOM)
    assert (failure.reason, failure.retry) == (REASON, "slow")
    assert problem("worker", None, T, 1, 2, GRACE, NO_ROOM) is None


def test_a_cause_that_no_time_removes_is_told_soon():
    found, why = Shortage(T, 1), Cause("no such image", lasting=True)
    assert problem("worker", found, T + SOON - 1, 1, 2, GRACE, why) is None
    assert problem("worker", found, T + SOON, 1, 2, GRACE, why).message.endswith(": 1 of 2: no such image.")
    assert SOON < 30_000 < GRACE


def test_a_start_however_long_does_not_count():
    watched = Watched()
    for driver, ready in (("absent", None), ("pending", None), ("starting", 0)):
        assert not watched.minutes(20, ready, 2, driver)
        assert watched.status is None
    assert not watched.minutes(4, 0, 2)
    assert not watched.minutes(4, 1, 2)
    assert not watched.reconcile(2, 2)


@pytest.mark.parametrize("driver", ["absent", "pending", "stuck", "backoff", "terminating"])
def test_a_driver_that_is_gone_makes_forget(driver):
    watched = Watched()
    assert watched.minutes(6, 1, 2)
    assert not watched.reconcile(None, 2, driver)
    assert watched.status is None
    assert not watched.minutes(4, 0, 2)


def test_turns_that_fail_do_not_hide_a_shortage():
    watched = Watched()
    assert not watched.minutes(4, 1, 2)
    assert watched.minutes(2, 1, 2, "starting")


def test_executors_that_come_one_after_another_are_progress():
    watched = Watched()
    for ready in range(1, 6):
        assert not watched.minutes(4, ready, 6)
    assert watched.minutes(2, 5, 6)


def test_executors_that_come_and_go_are_none():
    watched = Watched()
    assert not watched.minutes(3, 1, 3)
    assert not watched.minutes(1, 2, 3)
    told = [watched.reconcile(1 + number % 2, 3) for number in range(6 * MINUTE // INTERVAL)]
    assert told[-1]


def test_more_that_are_wanted_meanwhile_change_nothing_for_those_that_were_missing():
    watched = Watched()
    assert not watched.minutes(4, 1, 2)
    assert watched.minutes(2, 1, 4)
    assert "3 of 4" in watched.told
    assert not watched.reconcile(1, 1)


def test_a_clock_that_is_set_back_begins_anew():
    assert shortage(Shortage(T + MINUTE, 1), T, 1, 2, "running") == Shortage(T, 1)


reconciliations = st.tuples(
    st.none() | st.integers(0, 4),
    st.integers(1, 4),
    st.sampled_from(["absent", "pending", "stuck", "starting", "running", "backoff", "terminating"]),
)


@given(st.lists(reconciliations, max_size=150))
def test_it_is_told_only_of_what_was_missing_all_the_time(history):
    watched, missing = Watched(), 0
    for ready, wanted, driver in history:
        short = ready is not None and ready < wanted and driver in ("starting", "running")
        missing = missing + INTERVAL if short else 0
        assert not watched.reconcile(ready, wanted, driver) or missing > GRACE
        assert watched.status is None or short


@given(st.lists(st.integers(0, 2), min_size=61, max_size=100))
def test_whatever_some_do_one_that_never_comes_is_told(ready):
    """Each number of executors can be progress once."""
    watched = Watched()
    told = [watched.reconcile(each, 3) for each in itertools.chain.from_iterable([ready] * 4)]
    assert any(told)


@pytest.mark.parametrize("status", [{}, {"since": "x", "most": 1}, {"since": moment_text(T)}, {"since": 1, "most": 1}])
def test_what_is_not_understood_begins_anew(status):
    assert Shortage.from_status(status) is None


# ------------------------------------------------------------------------------------------------------------ its cause


def pod(phase="Pending", waiting=None, unscheduled=None, ready=False, name="e1", **metadata):
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    if unscheduled is not None:
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unscheduled}
        )
    containers = [] if waiting is None else [{"name": "executor", "state": {"waiting": waiting}}]
    return {
        "metadata": {"uid": name, "name": name, **metadata},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": containers},
    }


def why(*pods):
    return cause(pods, T, "executor").text


def test_the_cause_is_what_kubernetes_says_of_most_pods():
    room = "0/1 nodes are available: 1 Insufficient cpu."
    pulling = {"reason": "ImagePullBackOff", "message": "no such image"}
    assert why(pod(unscheduled=room)) == "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu"
    assert why(pod(waiting=pulling)) == "ImagePullBackOff: no such image"
    pods = [pod(unscheduled=room), pod(waiting=pulling, name="e2"), pod(unscheduled=room, name="e3")]
    assert all(why(*each).startswith("Unschedulable") for each in itertools.permutations(pods))


def test_pods_that_are_ready_are_no_cause():
    assert why(pod("Running", ready=True)) == why()
    assert (
        why(pod("Running", ready=True), pod(waiting={"reason": "ContainerCreating"})) == "their pods are being started"
    )


def test_without_pods_it_is_somebody_who_refuses_them():
    assert "a quota or a policy may reject them" in why()


def test_only_of_a_node_with_room_time_may_be_the_cure():
    assert not cause([pod(unscheduled="0/1 nodes are available.")], T, "executor").lasting
    assert cause([pod(waiting={"reason": "ImagePullBackOff"})], T, "executor").lasting
    assert refused("exceeded quota").lasting
    assert refused("pods is forbidden: exceeded quota: small.").text == (
        "their pods are rejected: pods is forbidden: exceeded quota: small"
    )


def test_what_is_not_known_is_not_said_as_a_cause():
    assert not cause([], T, "executor").known
    assert not cause([pod(waiting={"reason": "ContainerCreating"})], T, "executor").known
    assert cause([pod("Failed")], T, "executor").known


def test_events_tell_what_the_status_does_not():
    made = moment_text(T - MINUTE)
    stuck = pod(waiting={"reason": "ContainerCreating"}, creationTimestamp=made)
    event = {"type": "Warning", "reason": "FailedMount", "note": 'secret "kafka" not found', "eventTime": made}

    found = cause([stuck], T, "executor", {"e1": [event]})

    assert (found.text, found.lasting) == ('FailedMount: secret "kafka" not found', True)


def test_executors_that_end_are_told_of():
    assert why(pod("Failed")).startswith("executors exit and are recreated")


def test_a_long_cause_is_cut_and_has_one_line():
    said = why(pod(unscheduled="0/900 nodes are available:\n" + "1 node has no room, " * 99))
    assert len(said) == 300
    assert "\n" not in said
    assert said.endswith("…")


def test_a_pod_that_leaves_is_not_ready():
    assert is_ready(pod("Running", ready=True))
    assert not is_ready(pod("Running", ready=True, deletionTimestamp=moment_text(T)))
    assert not is_ready({})
