"""SpatialAreas: what a stream knows and forgets and what is said, whatever fails, and wherever an operator dies."""

from __future__ import annotations

import pytest

from spatialstream.model.errors import Unavailable
from spatialstream_operator.gateway import Refusal
from tests.unit.operator.stream_resources import SQUARE, AreaScene, Died, LoadingGateway

TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 0]]]}
CROSSED = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
OWNER = "sa/geo/mitte"


@pytest.fixture
def scene() -> AreaScene:
    return AreaScene()


def test_an_area_is_loaded_once_and_the_status_says_so(scene: AreaScene) -> None:
    assert scene.reconcile() == scene.reconcile() == 120.0
    assert scene.gateway.written == ["mitte"]
    assert scene.known == {"mitte": OWNER}
    assert scene.said() == ("True", "Loaded", "The stream knows the area 'mitte', with 4 vertices.")
    shown = {name: scene.status()[name] for name in ("stream", "area", "revision", "vertices", "observedGeneration")}
    told = {"stream": "geo.quakes", "area": "mitte", "revision": 0, "vertices": 4, "observedGeneration": 1}
    assert shown == told
    assert scene.status()["digest"] == scene.gateway.areas["geo.quakes"]["mitte"].polygon.digest
    assert scene.events() == ["Loaded"]
    (event,) = scene.world.cluster.events()
    assert event["regarding"]["kind"] == "SpatialArea"
    assert scene.measured() == 1.0


def test_another_geometry_is_loaded_in_its_place_and_queries_are_told_of(scene: AreaScene) -> None:
    scene.reconcile()
    scene.wish(geometry=TRIANGLE)
    scene.reconcile()
    assert scene.gateway.written == ["mitte", "mitte"]
    assert (scene.status()["revision"], scene.status()["vertices"]) == (1, 3)
    assert scene.status()["observedGeneration"] == 2
    assert scene.events() == ["Loaded", "GeometryChanged"]
    assert "`queries refresh` registers them anew" in scene.world.cluster.events()[1]["note"]


def test_a_name_that_kubernetes_would_not_take_is_given_in_the_spec(scene: AreaScene) -> None:
    scene.wish("tempelhof", name="Tempelhof-Schöneberg")
    scene.reconcile(name="tempelhof")
    assert scene.known == {"Tempelhof-Schöneberg": "sa/geo/tempelhof"}
    assert scene.status("tempelhof")["area"] == "Tempelhof-Schöneberg"
    assert scene.remove("tempelhof")
    assert scene.known == {}


def test_a_geometry_that_is_none_is_refused_and_the_one_before_stays(scene: AreaScene) -> None:
    scene.wish(geometry=CROSSED)
    assert scene.reconcile() == 30.0
    status, reason, message = scene.said()
    assert (status, reason) == ("False", "Refused")
    assert "crosses or touches itself at [1, 1]" in message
    assert "still loaded" not in message
    assert "area" not in scene.status(), "there is nothing to remove"
    assert scene.measured() == 0.0
    scene.wish()
    scene.reconcile()
    scene.wish(geometry=CROSSED)
    scene.reconcile()
    assert scene.condition() == ("False", "Refused")
    assert scene.said()[2].endswith("; revision 0 is still loaded.")
    assert scene.known == {"mitte": OWNER}
    assert scene.events() == ["Refused", "Loaded", "Refused"]
    assert scene.remove()
    assert scene.known == {}


def test_an_area_that_somebody_has_loaded_is_not_taken_over(scene: AreaScene) -> None:
    scene.gateway.load("mitte", SQUARE)
    assert scene.reconcile() == 30.0
    assert scene.condition() == ("False", "NameInUse")
    assert scene.said()[2] == "'mitte' is an area that anna has loaded; delete it there, or give another name."
    (event,) = scene.world.cluster.events()
    assert (event["reason"], event["type"]) == ("NameInUse", "Warning")
    assert scene.remove()
    assert scene.known == {"mitte": "anna"}, "nor removed"
    del scene.gateway.areas["geo.quakes"]["mitte"]
    scene.reconcile()
    assert scene.condition() == ("True", "Loaded")


def test_of_two_with_one_name_the_first_has_it_until_it_is_deleted(scene: AreaScene) -> None:
    scene.reconcile()
    scene.wish("other", name="mitte", geometry=TRIANGLE)
    scene.reconcile(name="other")
    assert scene.said("other") == (
        *("False", "NameInUse"),
        "'mitte' is kept by the SpatialArea geo/mitte; change that resource.",
    )
    assert scene.remove("other")
    assert scene.known == {"mitte": OWNER}
    assert scene.remove()
    scene.reconcile(name="other")
    assert scene.known == {"mitte": "sa/geo/other"}


@pytest.mark.parametrize("problem", [Unavailable("no route"), Refusal(403, "may not write")])
def test_what_was_loaded_stays_in_the_status_while_the_stream_cannot_be_reached(
    scene: AreaScene, problem: Exception
) -> None:
    scene.reconcile()
    scene.gateway.problem = problem
    scene.reconcile()
    assert scene.status()["revision"] == 0


def test_one_that_is_taken_over_by_force_is_said_to_be_in_use(scene: AreaScene) -> None:
    scene.reconcile()
    scene.gateway.load("mitte", TRIANGLE, by="")
    scene.reconcile()
    assert scene.condition() == ("False", "NameInUse")
    assert "revision" not in scene.status()
    assert scene.remove()
    assert scene.known == {"mitte": ""}


def test_one_that_is_deleted_by_force_is_loaded_again(scene: AreaScene) -> None:
    scene.reconcile()
    scene.gateway.areas["geo.quakes"].clear()
    scene.reconcile()
    assert scene.known == {"mitte": OWNER}


def test_a_stream_that_goes_takes_its_areas_along_and_one_made_anew_has_them_anew(scene: AreaScene) -> None:
    scene.reconcile()
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    scene.reconcile()
    assert scene.condition() == ("False", "StreamDeleted")
    assert scene.status().keys() == {"conditions", "observedGeneration"}
    scene.gateway = LoadingGateway()
    scene.world.stream(metadata={"uid": "uid-other"})
    scene.reconcile()
    assert scene.known == {"mitte": OWNER}


@pytest.mark.parametrize("afterwards", [False, True])
def test_wherever_an_operator_dies_nothing_is_left_behind(scene: AreaScene, afterwards: bool) -> None:
    scene.gateway.dies_at, scene.gateway.afterwards = 1, afterwards
    with pytest.raises(Died):
        scene.reconcile()
    assert scene.status()["area"] == "mitte", "it is written before it is sent"
    assert scene.known == ({"mitte": OWNER} if afterwards else {})
    scene.gateway.dies_at = scene.gateway.calls + 1
    with pytest.raises(Died):
        scene.remove()
    assert scene.remove()
    assert scene.known == {}


def test_a_namespace_that_is_left_has_no_metrics_of_areas(scene: AreaScene) -> None:
    scene.reconcile()
    scene.world.metrics.leave_areas("other")
    assert scene.measured() == 1.0
    scene.world.metrics.leave_areas("geo")
    assert scene.measured() is None
