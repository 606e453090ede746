"""SpatialQueries: what is registered, cancelled and said, whatever fails, and wherever an operator dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from spatialstream.model.errors import Unavailable
from spatialstream_operator.gateway import Refusal
from tests.unit.operator.stream_resources import HOUR, SPEC, Died, QueryScene, RegisteringGateway


@pytest.fixture
def scene() -> QueryScene:
    return QueryScene()


def test_a_query_is_registered_once_and_the_status_says_so(scene: QueryScene) -> None:
    assert scene.reconcile(3) == 30.0
    (name,) = scene.known
    assert name.startswith("geo.floods.")
    assert scene.gateway.sent == [name]
    assert scene.gateway.registered["geo.quakes"][name] == {
        "id": name,
        "t": 1_000,
        "by": "sq/geo/floods",
        **{field: value for field, value in SPEC.items() if field != "stream"},
    }
    assert scene.condition() == ("True", "Registered")
    assert (scene.status()["query"], scene.status()["since"]) == (name, "1970-01-01T00:00:01Z")
    assert scene.status()["observedGeneration"] == 1
    assert scene.events() == ["Registered"]
    (event,) = scene.world.cluster.events()
    assert event["regarding"]["kind"] == "SpatialQuery"
    value = scene.world.metrics.registry.get_sample_value
    assert value("spatialstream_operator_query_registered", {"namespace": "geo", "query": "floods"}) == 1.0


def test_its_rows_so_far_are_in_the_status(scene: QueryScene) -> None:
    def rows() -> tuple[Any, ...]:
        return scene.status().get("rows"), scene.status().get("lastRow")

    scene.reconcile()
    assert rows() == (None, None), "it has only been registered"
    scene.reconcile()
    assert rows() == (0, None)
    (name,) = scene.known
    scene.gateway.had[name] = 12, 1_500
    scene.reconcile()
    assert rows() == (12, "1970-01-01T00:00:01.500Z")
    scene.gateway.problem = Unavailable("no route")
    scene.reconcile()
    assert rows() == (12, "1970-01-01T00:00:01.500Z"), "what was known stays"
    scene.gateway.problem = None
    asyncio.run(scene.gateway.cancel("geo.quakes", name))
    scene.gateway.time = 2_000
    scene.reconcile()
    assert rows() == (None, None), "it is registered anew"
    scene.reconcile()
    scene.wish(keywords=["m6"])
    scene.reconcile()
    assert rows() == (None, None), "another query has its own"
    scene.wish(type="CKQ", region=None)
    scene.gateway.had[sorted(scene.known)[0]] = 3, 2_500
    scene.reconcile()
    assert scene.condition() == ("False", "Refused")
    assert rows() == (None, None), "the one before is registered, and is not read"
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    scene.reconcile()
    assert rows() == (None, None)


def test_who_has_registered_it_is_in_the_status_as_the_stream_says_it(scene: QueryScene) -> None:
    scene.reconcile()
    assert "by" not in scene.status(), "the stream has not been asked yet"
    scene.reconcile()
    assert scene.status()["by"] == "sq/geo/floods"
    (name,) = scene.known
    scene.gateway.registered["geo.quakes"][name]["by"] = "somebody who was first"
    scene.reconcile()
    assert scene.status()["by"] == "somebody who was first"
    scene.gateway.problem = Unavailable("no route")
    scene.reconcile()
    assert scene.status()["by"] == "somebody who was first"
    scene.gateway.problem = None
    del scene.gateway.registered["geo.quakes"][name]["by"]
    scene.reconcile()
    assert "by" not in scene.status()


def test_another_spec_is_another_query_and_the_old_one_is_cancelled(scene: QueryScene) -> None:
    scene.reconcile()
    (old,) = scene.known
    scene.wish(keywords=["m6"])
    scene.reconcile()
    (new,) = scene.known
    assert new != old
    assert scene.status()["query"] == new
    assert [each["query"] for each in scene.status()["registrations"]] == [new]
    scene.wish()
    scene.gateway.time += 5
    scene.reconcile()
    assert sorted(scene.known) == [old]
    assert scene.gateway.registered["geo.quakes"][old]["t"] == 1_005
    assert scene.gateway.rejected == []


def test_a_refusal_is_told_and_the_earlier_query_stays_registered(scene: QueryScene) -> None:
    scene.reconcile()
    (old,) = scene.known
    scene.wish(type="CKQ", region=None)
    scene.reconcile(2)
    assert scene.condition() == ("False", "Refused")
    assert scene.said()[2] == f"k: CKQ requires k; the previous query {old} is still registered."
    assert sorted(scene.known) == [old]
    assert scene.status()["query"] == old
    assert scene.events() == ["Registered", "Refused"]
    scene.wish(keywords=["m7"])
    scene.reconcile()
    assert scene.condition() == ("True", "Registered")
    assert sorted(scene.known) != [old]


def test_a_stream_that_is_made_anew_has_it_anew(scene: QueryScene) -> None:
    scene.wish(duration="1h")
    scene.reconcile()
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    scene.reconcile()
    assert scene.condition() == ("False", "StreamDeleted")
    assert "query" not in scene.status()
    scene.gateway = RegisteringGateway(time=9 * HOUR)
    scene.world.stream(metadata={"uid": "uid-other"})
    scene.reconcile()
    assert scene.condition() == ("True", "Registered")
    assert scene.gateway.registered["geo.quakes"][scene.status()["query"]]["t"] == 9 * HOUR


def test_what_somebody_else_has_cancelled_is_registered_anew(scene: QueryScene) -> None:
    scene.reconcile()
    (name,) = scene.known
    asyncio.run(scene.gateway.cancel("geo.quakes", name))
    scene.gateway.time = 2_000
    scene.reconcile()
    assert scene.gateway.registered["geo.quakes"][name]["t"] == 2_000


def test_a_query_whose_time_is_over_is_not_registered_anew(scene: QueryScene) -> None:
    scene.wish(duration="1h")
    scene.reconcile()
    scene.gateway.pass_by(HOUR)
    assert scene.reconcile(3) == 30.0
    assert scene.condition() == ("False", "Ended")
    assert len(scene.gateway.sent) == 1
    scene.wish(duration="1h", keywords=["m9"])
    scene.reconcile()
    assert scene.condition() == ("True", "Registered")


def test_a_registration_that_the_stream_has_not_come_to_is_sent_unchanged(
    scene: QueryScene,
) -> None:
    scene.gateway.silent = True
    scene.reconcile()
    assert scene.condition() == ("False", "Waiting")
    scene.gateway.time = 2_000
    scene.reconcile()
    scene.gateway.come()
    scene.reconcile()
    (name,) = scene.known
    assert scene.gateway.registered["geo.quakes"][name]["t"] == 1_000
    assert (scene.gateway.sent, scene.gateway.rejected) == ([name], [])


def test_a_registration_that_is_under_way_is_cancelled_too(scene: QueryScene) -> None:
    scene.gateway.silent = True
    scene.reconcile()
    scene.wish(keywords=["m6"])
    scene.reconcile()
    scene.gateway.come()
    scene.reconcile(3)
    assert sorted(scene.known) == [scene.status()["query"]]
    assert len(scene.status()["registrations"]) == 1


def test_what_may_have_been_sent_is_not_forgotten_for_a_refusal(scene: QueryScene) -> None:
    scene.gateway.silent = True
    scene.reconcile()
    scene.gateway.problem = Refusal(403, "no more")
    scene.reconcile()
    assert scene.condition() == ("False", "NotAllowed")
    scene.gateway.problem = None
    scene.gateway.come()
    assert scene.remove()
    assert sorted(scene.known) == []


@pytest.mark.parametrize(("status", "reason"), [(401, "NotAllowed"), (403, "NotAllowed"), (413, "Refused")])
def test_a_right_that_is_missing_is_said(scene: QueryScene, status: int, reason: str) -> None:
    scene.gateway.problem = Refusal(status, "the operator may not write")
    assert scene.reconcile() == (5.0 if reason == "NotAllowed" else 30.0)
    assert scene.condition() == ("False", reason)
    assert scene.said()[2] == "the operator may not write."
    scene.gateway.problem = None
    scene.reconcile()
    scene.gateway.problem = Refusal(status, "the operator may not watch")
    scene.reconcile()
    assert scene.condition() == ("Unknown", reason)
    assert scene.said()[2] == "the operator may not watch."


def test_a_removal_cancels_it(scene: QueryScene) -> None:
    scene.reconcile()
    assert scene.remove()
    assert sorted(scene.known) == []
    value = scene.world.metrics.registry.get_sample_value
    assert value("spatialstream_operator_query_registered", {"namespace": "geo", "query": "floods"}) is None
    assert scene.remove()
    assert scene.gateway.rejected == []


def test_a_removal_waits_for_a_stream_that_cannot_be_asked_and_says_so(scene: QueryScene) -> None:
    scene.reconcile()
    scene.gateway.problem = Unavailable("no route")
    assert not scene.remove()
    assert scene.condition() == ("Unknown", "Cancelling")
    assert scene.said()[2] == "no route."
    scene.gateway.problem = None
    scene.gateway.silent = True
    assert not scene.remove()
    scene.gateway.come()
    assert scene.remove()
    assert sorted(scene.known) == []


@pytest.mark.parametrize("place", ["gateway before", "gateway after", "cluster before", "cluster after"])
@pytest.mark.parametrize("at", range(1, 14))
def test_an_operator_that_dies_anywhere_leaves_what_the_next_one_mends(scene: QueryScene, place: str, at: int) -> None:
    where, when = place.split()

    def die(number: int) -> None:
        if where == "gateway":
            scene.gateway.calls, scene.gateway.dies_at, scene.gateway.afterwards = 0, number, when == "after"
            return
        calls = 0

        async def called(verb: str, kind: str) -> None:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Died

        scene.world.cluster.before = called if when == "before" else None
        scene.world.cluster.after = called if when == "after" else None

    def attempt(work: Any) -> Any:
        try:
            return work()
        except Died:
            return None

    die(at)
    attempt(lambda: scene.reconcile(2))
    scene.gateway.time += 7
    scene.wish(keywords=["m6"])
    attempt(lambda: scene.reconcile(2))
    scene.gateway.time += 7
    die(-1)
    scene.reconcile(2)
    assert scene.condition() == ("True", "Registered")
    assert sorted(scene.known) == [scene.status()["query"]]
    assert len(scene.gateway.sent) == len(set(scene.gateway.sent))
    assert len(scene.status()["registrations"]) == 1

    die(at)
    attempt(scene.remove)
    die(-1)
    assert scene.remove()
    assert sorted(scene.known) == []
    if (where, when) != ("gateway", "before"):  # what was never sent is cancelled all the same
        assert not [each for each in scene.gateway.rejected if not each.startswith("cancel")]
