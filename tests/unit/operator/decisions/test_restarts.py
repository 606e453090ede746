"""Restarts of drivers: what a pod says, how long to wait, what does not count."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions.records import moment_text
from spatialstream_operator.decisions.restarts import (
    Failure,
    PodReport,
    RestartSettings,
    RestartState,
    decide,
    is_degraded,
    report,
)

T = 1_800_000_000_000
SETTINGS = RestartSettings()
CRASH = Failure("RunFailed", "it failed")


def pod(uid="a", state="running", template="t1", started=T, **more):
    return PodReport(uid, state, template, started, **more)


def crash(uid="a", ran=1_000, at=T, failure=CRASH):
    return PodReport(uid, "failed", "t1", at - ran, at, failure=failure)


def run_of_failures(count, failure=CRASH):
    """Pauses between a failure and the next pod, of drivers that die at once."""
    state, now, pauses = RestartState(template="t1"), T, []
    for number in range(count):
        dead = crash(str(number), at=now, failure=failure)
        step = decide(state, dead, "t1", now, SETTINGS)
        assert (step.failure, step.action) == (failure, "keep")
        again = decide(step.state, dead, "t1", now + 1, SETTINGS)
        assert (again.failure, again.action) == (None, "keep")
        pauses.append(step.state.attempt - now)
        now = step.state.attempt
        step = decide(again.state, dead, "t1", now, SETTINGS)
        assert step.action == "delete"
        step = decide(step.state, None, "t1", now + 1, SETTINGS)
        assert (step.action, step.restarted) == ("create", True)
        state = step.state
    return state, pauses


def test_pauses_double_to_a_bound_and_it_never_gives_up():
    state, pauses = run_of_failures(12)

    assert pauses == [5_000, 10_000, 20_000, 40_000, 80_000, 160_000] + [300_000] * 6
    assert (state.failures, state.restarts) == (12, 12)
    assert is_degraded(state, SETTINGS)
    assert not is_degraded(replace(state, failures=9), SETTINGS)


def test_what_is_unlikely_to_help_is_tried_more_slowly():
    assert run_of_failures(3, Failure("SettingsRefused", "no", "slow"))[1] == [40_000, 80_000, 160_000]


def test_from_the_last_failure_allowed_only_the_longest_pause_counts():
    quick = replace(SETTINGS, failures=2)
    step = decide(RestartState(template="t1", failures=1), crash(), "t1", T, quick)
    assert step.state.attempt == T + quick.longest


def test_a_driver_that_ran_long_enough_is_forgiven():
    state = RestartState(template="t1", failures=7)
    early = decide(state, pod(), "t1", T + 119_999, SETTINGS).state
    assert early.failures == 7
    assert decide(early, pod(), "t1", T + 120_000, SETTINGS).state.failures == 0

    unseen = decide(state, crash(ran=120_000), "t1", T, SETTINGS).state
    assert unseen.failures == 1


def test_a_planned_restart_does_not_count():
    state = decide(RestartState(template="t1"), pod(), "t1", T, SETTINGS).state
    step = decide(state, pod(), "t2", T + 1, SETTINGS)
    assert step.action == "delete"
    step = decide(step.state, pod(state="terminating"), "t2", T + 2, SETTINGS)
    assert step.action == "keep"
    step = decide(step.state, None, "t2", T + 3, SETTINGS)
    assert (step.action, step.restarted, step.failure) == ("create", False, None)
    assert (step.state.failures, step.state.restarts) == (0, 0)


def test_a_changed_template_is_tried_at_once():
    waiting = decide(RestartState(template="t1", failures=9), crash(), "t1", T, SETTINGS).state
    step = decide(waiting, crash(), "t2", T + 1, SETTINGS)
    assert step.action == "delete"
    assert decide(step.state, None, "t2", T + 2, SETTINGS).action == "create"
    assert step.state.failures == 0


def test_a_pod_that_somebody_removes_comes_again_and_is_no_failure_in_a_row():
    state = decide(RestartState(template="t1"), pod(), "t1", T, SETTINGS).state
    step = decide(state, None, "t1", T + 1, SETTINGS)
    assert (step.action, step.failure.reason, step.state.failures) == ("wait", "PodDeleted", 0)
    assert decide(step.state, None, "t1", T + 5_001, SETTINGS).action == "create"


def test_suspended_there_is_no_pod():
    step = decide(RestartState(template="t1"), pod(), None, T, SETTINGS)
    assert step.action == "delete"
    assert decide(step.state, None, None, T, SETTINGS).action == "wait"


def test_a_pod_that_cannot_start_is_left_to_kubernetes():
    stuck = pod(state="stuck", started=None, failure=Failure("ImagePullBackOff", "no", "slow"))
    step = decide(RestartState(template="t1"), stuck, "t1", T, SETTINGS)
    assert (step.action, step.state.failures) == ("keep", 0)


reports = st.none() | st.builds(
    PodReport,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["pending", "stuck", "running", "failed", "terminating"]),
    st.sampled_from(["t1", "t2"]),
    st.none() | st.just(T),
    st.none() | st.integers(T, T + 10**6),
    st.booleans(),
    st.none() | st.just(CRASH),
)


@given(st.lists(st.tuples(reports, st.sampled_from(["t1", "t2", None]), st.integers(0, 200_000)), max_size=30))
def test_whatever_happens_pods_are_made_only_where_there_is_none(looks):
    state, now = RestartState(), T
    for seen, wanted, passed in looks:
        now += passed
        step = decide(state, seen, wanted, now, SETTINGS)
        state = step.state
        assert (step.action in ("create", "wait")) == (seen is None)
        assert step.action != "create" or wanted is not None
        assert state.attempt is None or state.attempt <= now + SETTINGS.longest
        status = json.loads(json.dumps(state.to_status()))
        assert RestartState.from_status({key: each for key, each in status.items() if each is not None}) == state


# ------------------------------------------------------------------------------------------------------ reading a pod


def kube(phase, state=None, *, status=None, meta=None, ready=False):
    containers = [] if state is None else [{"name": "driver", "ready": ready, "state": state}]
    return {
        "metadata": {"uid": "u", "annotations": {"spatialstream.dev/template-hash": "t1"}} | (meta or {}),
        "status": {"phase": phase, "containerStatuses": containers} | (status or {}),
    }


def ended(code, **more):
    times = {"startedAt": moment_text(T - 5_000), "finishedAt": moment_text(T)}
    return kube("Failed", {"terminated": {"exitCode": code} | times | more})


@pytest.mark.parametrize(
    ("seen", "reason", "retry"),
    [
        (ended(2, message="lambda: 0.5 is no threshold\n"), "SettingsRefused", "slow"),
        (ended(3), "RunFailed", "quick"),
        (ended(1), "Error", "quick"),
        (ended(0), "Ended", "quick"),
        (ended(137, reason="OOMKilled"), "OOMKilled", "quick"),
        (ended(137, reason="Error"), "Killed", "quick"),
        (ended(143), "Terminated", "quick"),
        (kube("Failed", status={"reason": "Evicted", "message": "no disk"}), "Evicted", "quick"),
        (
            kube(
                "Failed",
                {"terminated": {"exitCode": 143}},
                status={"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preemption"}]},
            ),
            "Preemption",
            "quick",
        ),
        (kube("Failed"), "Error", "quick"),
        (kube("Succeeded"), "Error", "quick"),
    ],
)
def test_why_a_pod_has_ended(seen, reason, retry):
    found = report(seen, T)
    assert (found.state, found.failure.reason, found.failure.retry) == ("failed", reason, retry)
    assert found.failure.message


def test_a_driver_s_last_words_are_handed_on():
    assert report(ended(2, message="lambda: 0.5 is no threshold\n"), T).failure.message == "lambda: 0.5 is no threshold"
    assert report(ended(3), T).ended == T


def test_why_a_pod_does_not_start():
    pulling = report(kube("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}), T)
    assert (pulling.state, pulling.failure.message) == ("stuck", "no such image")
    room = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]}
    assert report(kube("Pending", status=room), T).failure == Failure("Unschedulable", "0/1", "slow")
    assert report(kube("Pending", {"waiting": {"reason": "ContainerCreating"}}), T).state == "pending"


def test_a_pod_that_runs_or_leaves():
    running = report(kube("Running", {"running": {"startedAt": moment_text(T)}}, ready=True), T)
    assert (running.state, running.started, running.ready, running.template) == ("running", T, True, "t1")
    leaving = kube("Running", {"running": {}}, meta={"deletionTimestamp": moment_text(T)})
    assert report(leaving, T) == PodReport("u", "terminating", "t1")
    assert report(leaving, T + 60_001).failure.reason == "TerminationStuck"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    ["metadata", "status", "phase", "containerStatuses", "state", "terminated", "conditions", "name"]
                ),
                inner,
            )
        ),
        max_leaves=8,
    ).filter(lambda value: isinstance(value, dict))
)
def test_a_pod_of_another_form_is_read_all_the_same(value):
    assert report(value, T).state in ("pending", "failed", "stuck", "terminating")
