"""SpatialAreas: what a stream knows and forgets and what is said, whatever fails, and wherever an operator dies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from spatialstream.model.areas import AreaTable, read_areas
from spatialstream.model.errors import RecordError, Unavailable
from spatialstream_operator.areas import AreaController, remove_area
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Refusal
from tests.unit.operator.simulated import World

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
TRIANGLE = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 0]]]}
CROSSED = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}
OWNER = "sa/geo/mitte"
SKIP = {"spatialstream.dev/skip-cleanup": "true"}


class Died(Exception):  # noqa: N818 (it says what is)
    """The operator has died."""


@dataclass
class SimulatedGateway:
    """The areas of streams behind a gateway.

    Attributes:
        areas: by stream, by name.
        written: names that were written, in order.
        problem: raised at each request.
        calls: requests so far; at the one of number ``dies_at`` the operator dies, before or after it is done.
    """

    areas: dict[str, dict[str, Any]] = field(default_factory=lambda: {"geo.quakes": {}})
    written: list[str] = field(default_factory=list)
    problem: Exception | None = None
    calls: int = 0
    dies_at: int = -1
    afterwards: bool = False

    async def keep_area(self, stream: str, name: str, by: str, geometry: dict[str, Any]) -> dict[str, Any]:
        return self._called(lambda: self._kept(stream, name, by, geometry))

    async def delete_area(self, stream: str, name: str, by: str) -> None:
        def work() -> None:
            if not self._table(stream).conflict([name], by):
                self.areas[stream].pop(name, None)

        self._called(work)

    def load(self, name: str, geometry: Mapping[str, Any], by: str = "anna") -> None:
        """Somebody loads an area."""
        (area,) = read_areas(geometry, name=name)
        self.areas["geo.quakes"][name] = replace(area, by=by, revision=len(self.written))
        self.written.append(name)

    def _table(self, stream: str) -> AreaTable:
        if stream not in self.areas:
            raise Unavailable(f"the gateway reports: there is no stream {stream} here")
        return AreaTable(self.areas[stream].values())

    def _kept(self, stream: str, name: str, by: str, geometry: dict[str, Any]) -> dict[str, Any]:
        table = self._table(stream)
        if conflict := table.conflict([name], by):
            raise Refusal(409, conflict)
        try:
            (area,) = read_areas(geometry, name=name)
        except RecordError as error:
            raise Refusal(400, str(error)) from None
        before = table.get(name)
        if before is None or before.polygon != area.polygon:
            self.load(name, geometry, by)
        changed = [name] if before is not None and before.polygon != area.polygon else []
        return {"area": self.areas[stream][name].to_record(), "changed": changed}

    def _called(self, work: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        self.calls += 1
        dies = self.calls == self.dies_at
        if dies and not self.afterwards:
            raise Died
        answer = work()
        if dies:
            raise Died
        return answer


@dataclass
class Scene:
    """A world with a gateway, a stream and SpatialAreas."""

    world: World = field(default_factory=World)
    gateway: SimulatedGateway | None = field(default_factory=SimulatedGateway)

    @property
    def environment(self) -> Environment:
        gateway: Any = self.gateway
        return replace(self.world.environment, gateway=gateway)

    @property
    def there(self) -> SimulatedGateway:
        assert self.gateway is not None
        return self.gateway

    def area(self, resource: str = "mitte", /, **spec: Any) -> dict[str, Any]:
        """The SpatialArea is wished for."""
        old = self.world.cluster.objects.get(("SpatialArea", "geo", resource), {})
        generation = old.get("metadata", {}).get("generation", 0) + 1
        about = {"name": resource, "namespace": "geo", "generation": generation, "uid": f"uid-{resource}"}
        kind = {"apiVersion": "spatialstream.dev/v1alpha1", "kind": "SpatialArea"}
        wanted = {"stream": "quakes", "geometry": SQUARE, **spec}
        status = {"status": old["status"]} if "status" in old else {}
        return self.world.cluster.put({**kind, "metadata": about, "spec": wanted, **status})

    def look(self, name: str = "mitte") -> float | None:
        """An operator that has just begun looks once; the seconds until it would look again."""

        async def main() -> float | None:
            controller = AreaController(self.environment, "geo", name)
            controller.begun()
            return await controller.look()

        return asyncio.run(main())

    def remove(self, name: str = "mitte") -> bool:
        return asyncio.run(remove_area(self.environment, self.body(name)))

    def body(self, name: str = "mitte") -> dict[str, Any]:
        return self.world.cluster.objects["SpatialArea", "geo", name]

    def status(self, name: str = "mitte") -> dict[str, Any]:
        status: dict[str, Any] = self.body(name)["status"]
        return status

    def said(self, name: str = "mitte") -> tuple[str, str, str]:
        (told,) = self.status(name)["conditions"]
        return told["status"], told["reason"], told["message"]

    def condition(self, name: str = "mitte") -> tuple[str, str]:
        return self.said(name)[:2]

    @property
    def known(self) -> dict[str, str]:
        """Areas that the stream knows, and who keeps each."""
        return {name: area.by for name, area in self.there.areas["geo.quakes"].items()}

    def events(self) -> list[str]:
        return [each["reason"] for each in self.world.cluster.events()]

    def metric(self, name: str = "mitte") -> float | None:
        value = self.world.metrics.registry.get_sample_value
        return value("spatialstream_operator_area_loaded", {"namespace": "geo", "area": name})


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.world.stream(metadata={"uid": "uid-stream"})
    made.area()
    return made


def test_an_area_is_loaded_once_and_the_status_says_so(scene: Scene) -> None:
    assert scene.look() == scene.look() == 120.0
    assert scene.there.written == ["mitte"]
    assert scene.known == {"mitte": OWNER}
    assert scene.said() == ("True", "Loaded", "The stream knows the area 'mitte', with 4 vertices.")
    shown = {name: scene.status()[name] for name in ("stream", "area", "revision", "vertices", "observedGeneration")}
    told = {"stream": "geo.quakes", "area": "mitte", "revision": 0, "vertices": 4, "observedGeneration": 1}
    assert shown == told
    assert scene.status()["digest"] == scene.there.areas["geo.quakes"]["mitte"].polygon.digest
    assert scene.events() == ["Loaded"]
    (event,) = scene.world.cluster.events()
    assert event["regarding"]["kind"] == "SpatialArea"
    assert scene.metric() == 1.0


def test_another_geometry_is_loaded_in_its_place_and_queries_are_told_of(scene: Scene) -> None:
    scene.look()
    scene.area(geometry=TRIANGLE)
    scene.look()
    assert scene.there.written == ["mitte", "mitte"]
    assert (scene.status()["revision"], scene.status()["vertices"]) == (1, 3)
    assert scene.status()["observedGeneration"] == 2
    assert scene.events() == ["Loaded", "GeometryChanged"]
    assert "`queries refresh` registers them anew" in scene.world.cluster.events()[1]["note"]


def test_a_name_that_kubernetes_would_not_take_is_given_in_the_spec(scene: Scene) -> None:
    scene.area("tempelhof", name="Tempelhof-Schöneberg")
    scene.look("tempelhof")
    assert scene.known == {"Tempelhof-Schöneberg": "sa/geo/tempelhof"}
    assert scene.status("tempelhof")["area"] == "Tempelhof-Schöneberg"
    assert scene.remove("tempelhof")
    assert scene.known == {}


def test_a_geometry_that_is_none_is_refused_and_the_one_before_stays(scene: Scene) -> None:
    scene.area(geometry=CROSSED)
    assert scene.look() == 30.0
    status, reason, message = scene.said()
    assert (status, reason) == ("False", "Refused")
    assert "crosses or touches itself at [1, 1]" in message
    assert "still loaded" not in message
    assert "area" not in scene.status(), "there is nothing to remove"
    assert scene.metric() == 0.0
    scene.area()
    scene.look()
    scene.area(geometry=CROSSED)
    scene.look()
    assert scene.condition() == ("False", "Refused")
    assert scene.said()[2].endswith("; revision 0 is still loaded.")
    assert scene.known == {"mitte": OWNER}
    assert scene.events() == ["Refused", "Loaded", "Refused"]
    assert scene.remove()
    assert scene.known == {}


def test_an_area_that_somebody_has_loaded_is_not_taken_over(scene: Scene) -> None:
    scene.there.load("mitte", SQUARE)
    assert scene.look() == 30.0
    assert scene.condition() == ("False", "NameInUse")
    assert scene.said()[2] == "'mitte' is an area that anna has loaded; delete it there, or give another name."
    (event,) = scene.world.cluster.events()
    assert (event["reason"], event["type"]) == ("NameInUse", "Warning")
    assert scene.remove()
    assert scene.known == {"mitte": "anna"}, "nor removed"
    del scene.there.areas["geo.quakes"]["mitte"]
    scene.look()
    assert scene.condition() == ("True", "Loaded")


def test_of_two_with_one_name_the_first_has_it_until_it_is_deleted(scene: Scene) -> None:
    scene.look()
    scene.area("other", name="mitte", geometry=TRIANGLE)
    scene.look("other")
    assert scene.said("other") == (
        *("False", "NameInUse"),
        "'mitte' is kept by the SpatialArea geo/mitte; change that resource.",
    )
    assert scene.remove("other")
    assert scene.known == {"mitte": OWNER}
    assert scene.remove()
    scene.look("other")
    assert scene.known == {"mitte": "sa/geo/other"}


def test_one_that_is_taken_over_by_force_is_said_to_be_in_use(scene: Scene) -> None:
    scene.look()
    scene.there.load("mitte", TRIANGLE, by="")
    scene.look()
    assert scene.condition() == ("False", "NameInUse")
    assert "revision" not in scene.status()
    assert scene.remove()
    assert scene.known == {"mitte": ""}


def test_one_that_is_deleted_by_force_is_loaded_again(scene: Scene) -> None:
    scene.look()
    scene.there.areas["geo.quakes"].clear()
    scene.look()
    assert scene.known == {"mitte": OWNER}


def test_a_stream_that_comes_later_is_waited_for(scene: Scene) -> None:
    del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    assert scene.look() == 5.0
    assert scene.condition() == ("False", "NoStream")
    scene.world.stream(spec={"suspend": True})
    scene.look()
    assert scene.condition() == ("False", "StreamSuspended")
    scene.world.stream(spec={"suspend": False})
    scene.there.problem = Unavailable("the gateway reports: the broker has no topic")
    scene.look()
    assert scene.condition() == ("False", "Unavailable")
    scene.there.problem = None
    scene.look()
    assert scene.condition() == ("True", "Loaded")
    assert scene.there.written == ["mitte"]


def test_a_stream_that_rests_or_cannot_be_asked_makes_it_unknown_and_no_news(scene: Scene) -> None:
    scene.look()
    scene.world.stream(metadata={"uid": "uid-stream"}, spec={"suspend": True})
    scene.look()
    assert scene.condition() == ("Unknown", "StreamSuspended")
    scene.world.stream(metadata={"uid": "uid-stream"})
    for problem, reason in ((Unavailable("no route"), "Unavailable"), (Refusal(403, "may not write"), "NotAllowed")):
        scene.there.problem = problem
        scene.look()
        assert scene.condition() == ("Unknown", reason)
        assert scene.status()["revision"] == 0, "what was known stays"
    scene.there.problem = None
    scene.look()
    assert scene.condition() == ("True", "Loaded")
    assert scene.events() == ["Loaded"]


def test_a_stream_that_goes_takes_its_areas_along_and_one_made_anew_has_them_anew(scene: Scene) -> None:
    scene.look()
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    scene.look()
    assert scene.condition() == ("False", "StreamDeleted")
    assert scene.status().keys() == {"conditions", "observedGeneration"}
    scene.gateway = SimulatedGateway()
    scene.world.stream(metadata={"uid": "uid-other"})
    scene.look()
    assert scene.known == {"mitte": OWNER}


def test_without_a_gateway_it_says_what_is_missing_and_is_removed_all_the_same(scene: Scene) -> None:
    scene.gateway = None
    scene.look()
    assert scene.condition() == ("False", "NoGateway")
    assert "gateway.enabled" in scene.said()[2]
    assert scene.remove(), "nothing has been sent"


def test_a_removal_waits_for_the_stream_unless_it_is_gone_or_told_not_to(scene: Scene) -> None:
    scene.look()
    for problem, told in ((Unavailable("no route."), "no route."), (Refusal(403, "may not write"), "may not write.")):
        scene.there.problem = problem
        assert not scene.remove()
        assert scene.said() == ("Unknown", "Deleting", told)
    scene.body()["metadata"]["annotations"] = SKIP
    assert scene.remove()
    scene.body()["metadata"]["annotations"] = {}
    gateway, scene.gateway = scene.gateway, None
    assert not scene.remove()
    scene.gateway = gateway
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    assert scene.remove()
    del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    assert scene.remove()
    assert scene.metric() is None


@pytest.mark.parametrize("afterwards", [False, True])
def test_wherever_an_operator_dies_nothing_is_left_behind(scene: Scene, afterwards: bool) -> None:
    scene.there.dies_at, scene.there.afterwards = 1, afterwards
    with pytest.raises(Died):
        scene.look()
    assert scene.status()["area"] == "mitte", "it is written before it is sent"
    assert scene.known == ({"mitte": OWNER} if afterwards else {})
    scene.there.dies_at = scene.there.calls + 1
    with pytest.raises(Died):
        scene.remove()
    assert scene.remove()
    assert scene.known == {}


def test_one_that_is_being_deleted_or_gone_is_looked_after_no_more(scene: Scene) -> None:
    scene.body()["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    assert scene.look() is None
    del scene.world.cluster.objects["SpatialArea", "geo", "mitte"]
    assert scene.look() is None
    assert scene.there.written == []


def test_a_namespace_that_is_left_has_no_metrics_of_areas(scene: Scene) -> None:
    scene.look()
    scene.world.metrics.leave_areas("other")
    assert scene.metric() == 1.0
    scene.world.metrics.leave_areas("geo")
    assert scene.metric() is None
