"""Conditions, phase and events."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import TYPES, Crew, Job, Summary, conditions, phase, transitions
from spatialstream_operator.decisions.rebalancing_state import Phase
from spatialstream_operator.decisions.restarts import Failure

T = 1_800_000_000_000
BALANCED = Verdict("True", "Balanced", "Load is in balance.")
CRASH = Failure("RunFailed", "The streaming query failed.")
MISSING = Failure("ExecutorsMissing", "Executors missing since then: 1 of 2: no room.", "slow")
REJECTING = Failure("RecordsRejected", "100 % of the queries are rejected.", "slow")
RUNNING = Summary(
    T, 3, Job("router", "running"), Job("worker", "running"), BALANCED, Phase.WATCHING, {"worker": Crew(2, 2)}
)


def truth(summary):
    return {each["type"]: each["status"] for each in conditions(summary)}


def reasons(summary):
    return {each["type"]: each["reason"] for each in conditions(summary)}


GONE = "the broker has no topic geo.quakes.objects"


def message(summary, name):
    return next(each["message"] for each in conditions(summary) if each["type"] == name)


def test_why_a_driver_cannot_go_on_is_told_at_once_though_its_pod_is_still_ready():
    router = Job("router", "running", trouble=GONE, since=T - 3_000)
    summary = replace(RUNNING, router=router)
    assert truth(summary)["Ready"] == "False"
    assert reasons(summary)["Ready"] == "RouterNotReady"
    assert message(summary, "Ready") == f"The router is not ready: it cannot continue, and retries: {GONE}."
    assert truth(summary)["Degraded"] == "False"
    later = replace(summary, now=T + 27_000)
    assert (truth(later)["Degraded"], reasons(later)["Degraded"]) == ("True", "RouterHindered")
    assert GONE in message(later, "Degraded")
    assert phase(later) == "Degraded"


def test_a_driver_that_starts_says_what_the_one_before_could_not_do():
    router = Job("router", "starting", trouble=GONE, since=T - 60_000, before=True)
    summary = replace(RUNNING, router=router)
    said = f"its driver is starting; the previous one could not continue: {GONE}."
    assert message(summary, "Ready") == f"The router is not ready: {said}"
    assert truth(summary)["Degraded"] == "False"


def test_an_image_that_cannot_be_used_leaves_the_stream_ready_and_degraded():
    wrong = Failure("ImageUnusable", "The image a:1 cannot be used: no such image.", "slow")
    summary = replace(RUNNING, image=wrong)
    assert truth(summary) == {"Ready": "True", "Progressing": "False", "Balanced": "True", "Degraded": "True"}
    assert reasons(summary)["Degraded"] == reasons(summary)["Progressing"] == "ImageUnusable"
    trying = replace(RUNNING, image=Failure("TryingImage", "The image a:1 is being tried."))
    assert truth(trying) == {"Ready": "True", "Progressing": "True", "Balanced": "True", "Degraded": "False"}


def test_all_is_well():
    assert truth(RUNNING) == {"Ready": "True", "Progressing": "False", "Balanced": "True", "Degraded": "False"}
    assert phase(RUNNING) == "Running"
    assert all(each["observedGeneration"] == 3 for each in conditions(RUNNING))


@pytest.mark.parametrize(
    ("changes", "word", "ready", "progressing", "degraded"),
    [
        ({"worker": Job("worker", "absent"), "router": Job("router", "absent")}, "Pending", "False", "True", "False"),
        ({"worker": Job("worker", "starting")}, "Starting", "False", "True", "False"),
        ({"router": Job("router", "backoff", failures=1, failure=CRASH)}, "Starting", "False", "False", "False"),
        ({"router": Job("router", "backoff", True, 10, CRASH)}, "Degraded", "False", "False", "True"),
        ({"router": Job("router", "running", True, 10, CRASH)}, "Degraded", "True", "False", "True"),
        (
            {"worker": Job("worker", "stuck", failure=Failure("ErrImagePull", "No such image.", "slow"))},
            "Degraded",
            "False",
            "False",
            "True",
        ),
        ({"crews": {"worker": Crew(0, 2)}}, "Starting", "False", "True", "False"),
        ({"crews": {"worker": Crew(1, 2)}}, "Running", "True", "True", "False"),
        ({"crews": {"worker": Crew(None, 2)}}, "Running", "True", "False", "False"),
        ({"crews": {"router": Crew(0, 1), "worker": Crew(2, 2)}}, "Starting", "False", "True", "False"),
        ({"crews": {"router": Crew(1, 2), "worker": Crew(2, 2)}}, "Running", "True", "True", "False"),
        ({"crews": {"router": Crew(2, 2), "worker": Crew(2, 2)}}, "Running", "True", "False", "False"),
        ({"crews": {"router": Crew(1, 2, MISSING), "worker": Crew(2, 2)}}, "Degraded", "True", "False", "True"),
        ({"rebalance": Phase.ADOPTING}, "Rebalancing", "True", "True", "False"),
        ({"rebalance": Phase.AWAITING_APPROVAL}, "Running", "True", "False", "False"),
        ({"suspended": True}, "Suspending", "False", "True", "False"),
        ({"deleting": True}, "Deleting", "False", "True", "False"),
        ({"problem": Failure("KafkaUnreachable", "No answer.")}, "Running", "True", "False", "False"),
        ({"problem": Failure("SecretMissing", "There is none.", "slow")}, "Degraded", "True", "False", "True"),
        ({"crews": {"worker": Crew(1, 2, MISSING)}}, "Degraded", "True", "False", "True"),
        ({"crews": {"worker": Crew(0, 2, MISSING)}}, "Degraded", "False", "False", "True"),
        ({"rejecting": REJECTING}, "Degraded", "True", "False", "True"),
        ({"suspended": True, "rejecting": REJECTING}, "Suspending", "False", "True", "False"),
    ],
)
def test_how_things_are_said(changes, word, ready, progressing, degraded):
    summary = replace(RUNNING, **changes)
    found = truth(summary)
    assert (phase(summary), found["Ready"], found["Progressing"], found["Degraded"]) == (
        word,
        ready,
        progressing,
        degraded,
    )


def test_suspended_is_done_when_nothing_runs():
    gone = replace(RUNNING, suspended=True, router=Job("router", "absent"), worker=Job("worker", "absent"))
    assert reasons(gone) == {
        "Ready": "Suspended",
        "Progressing": "Suspended",
        "Balanced": "NotRunning",
        "Degraded": "AsExpected",
    }
    leaving = conditions(replace(gone, worker=Job("worker", "terminating"), router=Job("router", "terminating")))
    assert leaving[1]["message"] == "The router and the worker are terminating."


ABSENT = {"router": Job("router", "absent"), "worker": Job("worker", "absent")}


@pytest.mark.parametrize(
    ("lagging", "message"),
    [
        ({}, "The router and the worker are terminating."),
        ({"router": Job("router", "absent")}, "The worker is terminating."),
        ({"router": Job("router", "absent"), "left": 2}, "The worker and 2 executors are terminating."),
        ({**ABSENT, "left": 1}, "1 executor is terminating."),
        ({**ABSENT, "left": 3}, "3 executors are terminating."),
        ({"worker": Job("worker", "terminating"), "router": Job("router", "absent")}, "The worker is terminating."),
    ],
)
def test_a_stream_is_not_suspended_before_all_pods_are_gone(lagging, message):
    """Whoever makes a copy of its state then has one that nobody is writing to."""
    summary = replace(RUNNING, suspended=True, **lagging)
    assert phase(summary) == "Suspending"
    assert reasons(summary)["Ready"] == "Suspending"
    assert conditions(summary)[1]["message"] == message
    assert phase(replace(summary, **ABSENT, left=0)) == "Suspended"


def test_a_stream_that_failed_before_it_was_suspended_is_suspended():
    failed = replace(RUNNING, suspended=True, **{**ABSENT, "router": Job("router", "absent", True, 10, CRASH)})
    assert phase(failed) == "Suspended"


def test_a_suspension_that_is_wished_for_is_no_warning():
    before = conditions(RUNNING)
    (note,) = transitions(before, conditions(replace(RUNNING, suspended=True), before))
    assert (note.reason, note.warning) == ("NotReady", False)
    (note,) = transitions(before, conditions(replace(RUNNING, deleting=True), before))
    assert not note.warning


def test_the_time_of_a_transition_is_that_of_the_status():
    first = conditions(RUNNING)
    other = replace(RUNNING, now=T + 60_500, crews={"worker": Crew(0, 2)})
    second = conditions(other, first)
    assert {each["type"]: each["lastTransitionTime"] != first[0]["lastTransitionTime"] for each in second} == {
        "Ready": True,
        "Progressing": True,
        "Balanced": False,
        "Degraded": False,
    }
    assert second[0]["lastTransitionTime"] == "2027-01-15T08:01:00Z"
    assert conditions(replace(other, now=T + 90_000), second) == second


def test_conditions_of_others_are_kept():
    foreign = {"type": "Audited", "status": "True"}
    assert conditions(RUNNING, [foreign])[-1] == foreign


def test_events_come_with_transitions_alone():
    before = conditions(RUNNING)
    broken = conditions(
        replace(RUNNING, router=Job("router", "backoff", True, 10, CRASH), balance=replace(BALANCED, status="Unknown")),
        before,
    )
    assert [(each.reason, each.warning) for each in transitions(before, broken)] == [
        ("NotReady", True),
        ("Degraded", True),
    ]
    assert transitions(broken, broken) == []
    assert [each.reason for each in transitions(broken, before)] == ["Ready", "Recovered"]
    assert transitions([], before) == []
    assert [each.reason for each in transitions([], broken)] == ["Degraded"]


failures = st.none() | st.builds(
    Failure, st.sampled_from(["OOMKilled", "Error"]), st.just("It ended."), st.sampled_from(["quick", "slow"])
)
job_states = st.sampled_from(["absent", "pending", "stuck", "starting", "running", "backoff", "terminating"])


def jobs(name):
    return st.builds(Job, st.just(name), job_states, st.booleans(), st.integers(0, 20), failures)


crews = st.builds(Crew, st.none() | st.integers(0, 4), st.integers(1, 4), st.none() | st.just(MISSING))
summaries = st.builds(
    Summary,
    st.integers(T, T + 10**9),
    st.integers(1, 9),
    jobs("router"),
    jobs("worker"),
    st.sampled_from([BALANCED, Verdict("False", "Rebalancing", "Load is out of balance.")]),
    st.sampled_from(Phase),
    st.fixed_dictionaries({"worker": crews}, optional={"router": crews}),
    st.booleans(),
    st.booleans(),
    failures,
)


@given(st.lists(summaries, min_size=1, max_size=6))
def test_whatever_happens_conditions_are_well_formed(history):
    before = []
    for summary in history:
        after = conditions(summary, before)
        assert tuple(each["type"] for each in after) == TYPES
        for each in after:
            assert re.fullmatch(r"[A-Z][A-Za-z]+", each["reason"])
            assert re.fullmatch(r"[A-Z].*\.", each["message"])
            old = next((one for one in before if one["type"] == each["type"]), None)
            same = old is not None and old["status"] == each["status"]
            assert not same or old["lastTransitionTime"] == each["lastTransitionTime"]
        changed = {
            each["type"]
            for each in after
            if each["status"] not in [o["status"] for o in before if o["type"] == each["type"]]
        }
        assert len(transitions(before, after)) <= len(changed)
        ready = after[0]["status"] == "True"
        assert not ready or (summary.router.state == summary.worker.state == "running" and not summary.suspended)
        assert (phase(summary) == "Deleting") == summary.deleting
        if phase(summary) == "Suspended":
            assert summary.router.state == summary.worker.state == "absent"
        before = after


def test_missing_executors_are_said_with_their_cause_and_once():
    before = conditions(RUNNING)
    short = replace(RUNNING, crews={"worker": Crew(1, 2, MISSING)})
    first = conditions(short, before)
    told = {each["type"]: (each["reason"], each["message"]) for each in first}
    assert told["Degraded"] == (MISSING.reason, MISSING.message)
    assert told["Progressing"] == ("Waiting", MISSING.message)
    worse = replace(MISSING, message="Executors missing since then: 2 of 2: no room.")
    other = conditions(replace(short, crews={"worker": Crew(0, 2, worse)}), first)
    assert [each.reason for each in transitions(before, first)] == ["Degraded"]
    assert [each.reason for each in transitions(first, other)] == ["NotReady"]
    assert [each.reason for each in transitions(other, conditions(RUNNING, other))] == ["Ready", "Recovered"]


def test_what_is_wrong_with_a_job_is_told_before_missing_executors():
    summary = replace(RUNNING, crews={"worker": Crew(1, 2, MISSING)}, router=Job("router", "backoff", True, 10, CRASH))
    assert reasons(summary)["Degraded"] == "RouterFailing"


def test_a_pod_that_does_not_end_is_told():
    stuck = Failure("TerminationStuck", "The pod does not terminate; its node may be lost.", "slow")
    summary = replace(RUNNING, worker=Job("worker", "terminating", failure=stuck))
    assert truth(summary)["Degraded"] == "True"
    assert truth(replace(RUNNING, worker=Job("worker", "terminating")))["Degraded"] == "False"


def test_a_driver_that_waits_for_its_first_executor_says_what_for():
    room = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu"
    starting = replace(RUNNING, worker=Job("worker", "starting"), crews={"worker": Crew(0, 2, shortage=room)})
    ready, progressing, *_ = conditions(starting)
    assert ready["message"] == f"The worker is not ready: its driver is running, and waits for an executor: {room}."
    assert progressing["message"] == f"The worker: its driver is running, and waits for an executor: {room}."
    ready, *_ = conditions(replace(starting, crews={"worker": Crew(None, 2)}))
    assert ready["message"] == "The worker is not ready: its driver is starting."


def test_a_wish_beyond_the_bounds_is_said():
    beyond = "The desired number of executors is 4: workers.replicas is 12, but workers.max allows 4."
    _, progressing, *_ = conditions(replace(RUNNING, crews={"worker": Crew(4, 4, beyond=beyond)}))
    assert (progressing["status"], progressing["reason"]) == ("False", "ReplicasOutOfBounds")
    assert progressing["message"] == beyond
