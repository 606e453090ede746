"""What is said of resources of a stream, whatever their kind: streams and gateways that are away, and removals."""

from __future__ import annotations

import pytest

from spatialstream.model.errors import Unavailable
from spatialstream_operator.gateway import Refusal
from tests.unit.operator.stream_resources import AreaScene, QueryScene, Scene

DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
SKIP = {"spatialstream.dev/skip-cleanup": "true"}


@pytest.fixture(params=[QueryScene, AreaScene])
def scene(request: pytest.FixtureRequest) -> Scene:
    made: Scene = request.param()
    return made


def test_a_stream_that_comes_later_is_waited_for(scene: Scene) -> None:
    del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    assert scene.reconcile() == 5.0
    assert scene.condition() == ("False", "NoStream")
    scene.world.stream(spec={"suspend": True})
    scene.reconcile()
    assert scene.condition() == ("False", "StreamSuspended")
    scene.world.stream(spec={"suspend": False})
    scene.gateway.problem = Unavailable("the gateway reports: the stream has not begun")
    scene.reconcile()
    assert scene.said() == ("False", "Unavailable", "the gateway reports: the stream has not begun.")
    scene.gateway.problem = None
    scene.reconcile()
    assert scene.condition() == ("True", scene.done)
    assert len(scene.sent) == 1


def test_a_stream_that_rests_or_cannot_be_reached_makes_it_unknown_and_no_news(scene: Scene) -> None:
    scene.reconcile()
    scene.world.stream(metadata={"uid": "uid-stream"}, spec={"suspend": True})
    scene.reconcile()
    assert scene.condition() == ("Unknown", "StreamSuspended")
    scene.world.stream(metadata={"uid": "uid-stream"})
    for problem, reason in ((Unavailable("no route"), "Unavailable"), (Refusal(403, "may not"), "NotAllowed")):
        scene.gateway.problem = problem
        scene.reconcile()
        assert scene.condition() == ("Unknown", reason)
        assert scene.measured() == 0.0
    scene.gateway.problem = None
    scene.reconcile()
    assert scene.condition() == ("True", scene.done)
    assert scene.measured() == 1.0
    assert len(scene.sent) == 1
    assert scene.events() == [scene.done]


@pytest.mark.parametrize("status", [401, 403])
def test_a_right_that_is_missing_is_said(scene: Scene, status: int) -> None:
    scene.gateway.problem = Refusal(status, "the operator may not write")
    assert scene.reconcile() == 5.0
    assert scene.said() == ("False", "NotAllowed", "the operator may not write.")
    (event,) = scene.world.cluster.events()
    assert (event["reason"], event["type"]) == ("NotAllowed", "Warning")


def test_without_a_gateway_it_says_what_is_missing_and_is_removed_all_the_same(scene: Scene) -> None:
    scene.gateway = None
    scene.reconcile()
    assert scene.condition() == ("False", "NoGateway")
    assert "gateway.enabled" in scene.said()[2]
    assert scene.remove(), "nothing has been sent"


def test_a_removal_waits_for_the_stream(scene: Scene) -> None:
    scene.reconcile()
    for problem, said in ((Unavailable("no route."), "no route."), (Refusal(403, "may not write"), "may not write.")):
        scene.gateway.problem = problem
        assert not scene.remove()
        assert scene.said() == ("Unknown", scene.going, said)
    gateway, scene.gateway = scene.gateway, None
    assert not scene.remove()
    assert "gateway.enabled" in scene.said()[2]
    scene.gateway = gateway
    gateway.problem = None
    assert scene.remove()
    assert not scene.known
    assert scene.measured() is None


@pytest.mark.parametrize("how", ["skipped", "stream deleted", "stream gone"])
def test_a_removal_does_not_wait_for_what_nobody_has(scene: Scene, how: str) -> None:
    scene.reconcile()
    scene.gateway.problem = Unavailable("no route")
    if how == "skipped":
        scene.body()["metadata"]["annotations"] = SKIP
    elif how == "stream deleted":
        scene.world.stream(metadata=DELETED)
    else:
        del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    assert scene.remove()
    assert scene.measured() is None


def test_one_that_is_being_deleted_or_gone_is_looked_after_no_more(scene: Scene) -> None:
    scene.body()["metadata"] |= DELETED
    assert scene.reconcile() is None
    del scene.world.cluster.objects[scene.kind, "geo", scene.resource]
    assert scene.reconcile() is None
    assert scene.sent == []


def test_a_field_that_nobody_knows_is_refused_and_nothing_is_sent(scene: Scene) -> None:
    spec = scene.body()["spec"]
    scene.put(scene.resource, {**spec, "streem": "quakes"})
    stream = scene.world.cluster.objects.pop(("SpatialStream", "geo", "quakes"))
    scene.reconcile()
    assert scene.condition() == ("False", "Refused"), "it is told before there is a stream"
    scene.world.cluster.put(stream)
    scene.reconcile()
    told = f"spec.streem: is not a field of a {scene.kind}; did you mean spec.stream?"
    assert scene.said() == ("False", "Refused", told)
    assert scene.events() == ["Refused"]
    assert scene.sent == []
    scene.world.stream(metadata={"uid": "uid-stream"}, spec={"suspend": True})
    scene.reconcile()
    assert scene.condition() == ("False", "Refused"), "it is told before there is anybody to send it to"
    scene.world.stream(metadata={"uid": "uid-stream"})
    scene.put(scene.resource, spec)
    scene.reconcile()
    assert scene.condition() == ("True", scene.done)
    scene.put(scene.resource, {**spec, "streem": "quakes"})
    scene.reconcile()
    assert scene.condition() == ("False", "Refused")
    assert "still" in scene.said()[2], "what was registered stays"
    assert (len(scene.sent), len(scene.known)) == (1, 1)
    assert scene.remove() or scene.remove()
    assert len(scene.known) == 0


def test_of_a_resource_with_an_unknown_field_nothing_is_said_to_be_left_without_the_stream(scene: Scene) -> None:
    scene.reconcile()
    scene.put(scene.resource, {**scene.body()["spec"], "streem": "quakes"})
    del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    scene.reconcile()
    assert scene.condition()[0] == "False"
    assert "still" not in scene.said()[2], "it is gone with its stream"
    assert "query" not in scene.status()
