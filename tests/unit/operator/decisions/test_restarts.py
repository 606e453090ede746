"""Restarts of drivers: what a pod says, how long to wait, what does not count."""

import json
from dataclasses import dataclass, field, replace

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
    may_run,
    ran,
    report,
)

T = 1_800_000_000_000
SETTINGS = RestartSettings()
CRASH = Failure("RunFailed", "it failed")


def pod(uid="a", state="running", template="t1", started=T, **more):
    return PodReport(uid, state, template, started, **more)


def crash(uid="a", lasted=1_000, at=T, failure=CRASH):
    return PodReport(uid, "failed", "t1", at - lasted, at, failure=failure)


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

    unseen = decide(state, crash(lasted=120_000), "t1", T, SETTINGS).state
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


def test_a_driver_whose_node_is_lost_makes_room_and_comes_again_at_once():
    lost = pod(state="terminating", lost=True)
    step = decide(RestartState("a", "t1", failures=2), lost, "t1", T, SETTINGS)
    assert (step.action, step.failure.reason, step.state.failures) == ("force_delete", "NodeLost", 2)
    step = decide(step.state, None, "t1", T + 1, SETTINGS)
    assert (step.action, step.restarted, step.failure) == ("create", True, None)
    assert (step.state.last.reason, step.state.restarts, step.state.failures) == ("NodeLost", 1, 2)


def test_a_driver_on_a_lost_node_that_is_not_to_come_again_is_waited_for():
    assert decide(RestartState("a", "t1"), pod(state="terminating", lost=True), None, T, SETTINGS).action == "keep"


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
    st.just(True),
    st.booleans(),
)


@given(st.lists(st.tuples(reports, st.sampled_from(["t1", "t2", None]), st.integers(0, 200_000)), max_size=30))
def test_whatever_happens_pods_are_made_only_where_there_is_none(reconciliations):
    state, now = RestartState(), T
    for seen, wanted, passed in reconciliations:
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
    stuck = report(leaving, T + 60_001)
    assert (stuck.failure.reason, stuck.lost) == ("TerminationStuck", True)


def test_a_driver_that_the_node_controller_speaks_for_is_not_ready():
    silent = {"conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]}
    begun = {"running": {"startedAt": moment_text(T)}}
    running = kube("Running", begun, status=silent, ready=True)
    leaving = kube("Running", begun, status=silent, ready=True, meta={"deletionTimestamp": moment_text(T + 60_000)})

    assert (report(running, T).state, report(running, T).ready, report(running, T).lost) == ("running", False, False)
    assert (report(leaving, T).state, report(leaving, T).lost) == ("terminating", True)


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


# ------------------------------------------------------------------------------------------------ whether it ever ran


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (kube("Pending"), False),
        (kube("Pending", {"waiting": {"reason": "ContainerCreating"}}), False),
        (kube("Pending", {"waiting": {}}, meta={"deletionTimestamp": moment_text(T)}), False),
        (kube("Running", {"waiting": {"reason": "ImagePullBackOff"}}), False),  # a sidecar runs
        (kube("Running", {"running": {}}), True),
        (kube("Running", {"running": {}}, meta={"deletionTimestamp": moment_text(T)}), True),
        (ended(1), True),
        (kube("Failed", status={"reason": "Evicted"}), True),  # perhaps
        (kube("Running"), True),  # perhaps
        (
            kube(
                "Pending",
                status={"containerStatuses": [{"name": "driver", "state": {"waiting": {}}, "restartCount": 1}]},
            ),
            True,
        ),
    ],
)
def test_only_a_driver_that_waits_has_surely_not_run(seen, expected):
    assert report(seen, T).ran is expected


def test_what_was_remembered_before_there_was_such_a_mark_counts_as_having_run():
    assert ran({"templateHash": "t1"}, None) == "yes"
    assert ran({}, pod(ran=False)) == "yes"
    assert ran({}, None) == "no"


@dataclass
class Life:
    """A router's pod and what becomes of it, as the cluster knows it; and what the operator has written down."""

    status: dict = field(default_factory=dict)
    refused: bool = False
    pod: PodReport | None = None
    has_run: bool = False
    number: int = 0
    template: str = "t1"

    def reconcile(self, crash="", refuse=False):
        """As in steps/drivers.py; the operator dies before or after it has made the pod."""
        known = ran(self.status, self.pod)
        decision = decide(RestartState.from_status(self.status), self.pod, self.template, T, SETTINGS)
        if decision.action == "create":
            known = may_run(known, self.refused)
        self.status = {**decision.state.to_status(), "ran": known}
        if decision.action == "delete":
            self.pod = None
        elif decision.action == "create" and crash != "before":
            self.refused = refuse
            if not refuse:
                self.number += 1
                self.pod = PodReport(f"uid-{self.number}", "pending", self.template, ran=False)
        if crash:
            self.refused = False

    def start(self):
        """The kubelet starts the driver."""
        if self.pod is not None:
            self.pod, self.has_run = replace(self.pod, state="running", ran=True), True

    def vanish(self):
        """Somebody removes the pod, or it goes with its node."""
        self.pod = None

    def change(self):
        """The spec asks for another pod."""
        self.template += "'"

    def nothing_made(self):
        """As in steps/removing.py: what is left of the pod is read before it is removed."""
        if self.pod is not None:
            self.status |= {"ran": ran(self.status, self.pod), "podUid": ""}
        return self.status.get("ran") == "no" and not self.status["podUid"]


STEPS = {
    "reconcile": Life.reconcile,
    "dies before": lambda life: life.reconcile("before"),
    "dies after": lambda life: life.reconcile("after"),
    "refused": lambda life: life.reconcile(refuse=True),
    "start": Life.start,
    "vanish": Life.vanish,
    "change": Life.change,
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=14))
def test_a_router_that_has_run_is_never_taken_for_one_that_has_not(steps):
    life = Life()
    for step in steps:
        STEPS[step](life)

    assert not (life.has_run and life.nothing_made()), life


@pytest.mark.parametrize(
    "steps",
    [
        ["reconcile", "reconcile"],
        ["refused", "refused", "reconcile", "reconcile"],
        ["reconcile", "reconcile", "change", "reconcile", "reconcile", "reconcile"],
    ],
)
def test_one_that_has_only_waited_is_known_not_to_have_run(steps):
    life = Life()
    for step in steps:
        STEPS[step](life)

    assert life.nothing_made()
