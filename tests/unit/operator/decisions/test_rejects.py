"""When rejected records are too many, and what is said of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream_operator.decisions.records import moment_text
from spatialstream_operator.decisions.rejects import AFTER, LEAST, Inflow, Rejecting, judge, problem

T = 1_800_000_000_000
INTERVAL = 5_000
LIMIT = 0.1
TOPIC = "geo.quakes.rejected"


class Watched:
    """Looks at a stream, each by another operator."""

    def __init__(self):
        self.now, self.status = T, None

    def reconcile(self, *inflows, known=True):
        self.now += INTERVAL
        before = Rejecting.from_status(self.status or {})
        found = judge(before, self.now, inflows if known else None, LIMIT)
        self.status = None if found is None else json.loads(json.dumps(found.to_status()))
        failure = problem(found, self.now, TOPIC)
        return None if failure is None else failure.message

    def seconds(self, count, *inflows, **more):
        """What was said last."""
        return [self.reconcile(*inflows, **more) for _ in range(count * 1000 // INTERVAL)][-1]


def objects(rejected, accepted=900.0, reason="late", **others):
    return Inflow("objects", accepted, {reason: rejected, **others})


WRONG_TOPIC = Inflow("queries", 0.0, {"type": 84_000.0})
FINE = Inflow("objects", 84_000.0, {})


def test_a_topic_of_queries_that_holds_objects():
    watched = Watched()
    assert watched.seconds(30, FINE, WRONG_TOPIC) is None
    assert watched.seconds(10, FINE, WRONG_TOPIC) == (
        "100 % of the queries are rejected, mostly because their field type is missing or invalid. "
        "They are in geo.quakes.rejected, with the reason."
    )
    assert watched.status == {"since": moment_text(T + INTERVAL), "kind": "queries", "reason": "type", "share": 100}


def test_a_few_are_nothing_unusual():
    assert Watched().seconds(600, objects(90.0)) is None
    assert Watched().seconds(600, objects(LEAST - 1.0, 0.0)) is None
    assert Watched().seconds(600, Inflow("objects", 0.0, {}), Inflow("queries", 5.0, {})) is None


def test_what_lasts_only_for_a_moment_is_not_told():
    watched = Watched()
    assert watched.seconds(25, objects(900.0)) is None
    assert watched.reconcile(FINE) is None
    assert watched.status is None
    assert watched.seconds(25, objects(900.0)) is None


def test_it_ends_below_half_of_the_limit():
    watched = Watched()
    assert watched.seconds(60, objects(200.0)) is not None
    assert watched.seconds(600, objects(60.0)) is not None
    assert watched.seconds(5, objects(40.0)) is None
    assert watched.seconds(600, objects(60.0)) is None


def test_the_commonest_reason_of_the_worse_kind_is_told():
    watched = Watched()
    both = objects(200.0, json=300.0), Inflow("queries", 10.0, {"k": 20.0, "region": 5.0})
    assert "25" not in watched.seconds(60, *both) or "queries" in watched.seconds(60, *both)
    assert watched.status["kind"] == "queries"
    assert "their field k is" in watched.seconds(60, *both)
    assert "they are not JSON objects" in watched.seconds(60, both[0])


@pytest.mark.parametrize("reason", ["late", "future", "json", "size", "clock", "place", "admission", "other", "region"])
def test_it_is_a_sentence_whatever_the_reason(reason):
    said = problem(Rejecting(T, "objects", reason, 50), T + AFTER, TOPIC).message
    assert said.startswith("50 % of the objects are rejected, mostly because ")


def test_without_figures_what_was_said_stays():
    watched = Watched()
    said = watched.seconds(60, objects(900.0))
    assert said is not None
    assert watched.seconds(600, known=False) == said


def test_a_share_that_wavers_does_not_change_the_status():
    watched = Watched()
    watched.seconds(60, objects(900.0))
    before = dict(watched.status)
    for rejected in (930.0, 870.0, 980.0):
        watched.reconcile(objects(rejected))
        assert watched.status == before


@given(st.lists(st.none() | st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=60))
def test_it_is_told_only_of_what_was_too_much_for_long_enough(history):
    watched, above = Watched(), 0
    for each in history:
        if each is None:
            watched.reconcile(known=False)
            above += INTERVAL if above else 0
            continue
        inflow = objects(each[0], each[1])
        told = watched.reconcile(inflow)
        above = above + INTERVAL if inflow.share >= LIMIT / 2 and each[0] >= LEAST / 2 else 0
        assert told is None or above > AFTER
