"""SpatialQueries: what is registered, cancelled and said, whatever fails, and wherever an operator dies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from spatialstream.model.errors import Unavailable
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Refusal
from spatialstream_operator.queries import QueryController, remove_query
from tests.unit.operator.simulated import World

SPEC = {"stream": "quakes", "type": "CRQ", "region": {"circle": [139.7, 35.7, 300000]}, "keywords": ["m5"]}
HOUR = 3_600_000


class Died(Exception):  # noqa: N818 (it says what is)
    """The operator has died."""


@dataclass
class SimulatedGateway:
    """Streams behind a gateway: what stands in each, as registrations and cancellations have left it.

    Attributes:
        registered: by stream, by id: the query.
        sent: ids that were registered, in order; one that comes again as it was is passed over.
        had: rows of queries so far, and the t of the last one.
        rejected: what a stream has had to refuse, which people would be alarmed by.
        silent: what is sent is taken in only later, by :meth:`come`.
        problem: raised at each request.
        calls: requests so far; at the one of number ``dies_at`` the operator dies, before or after it is done.
    """

    registered: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: {"geo.quakes": {}})
    sent: list[str] = field(default_factory=list)
    had: dict[str, tuple[int, int]] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    over: set[tuple[str, int]] = field(default_factory=set)
    time: int = 1_000
    silent: bool = False
    waiting: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    problem: Exception | None = None
    calls: int = 0
    dies_at: int = -1
    afterwards: bool = False

    async def find(self, stream: str, query: str) -> dict[str, Any] | None:
        return await self._called(lambda: self._found(stream, query))

    async def clock(self, stream: str) -> int | None:
        return await self._called(lambda: (self._of(stream), self.time)[1])

    async def register(self, stream: str, record: dict[str, Any]) -> bool:
        return await self._called(lambda: self._send(stream, record))

    async def cancel(self, stream: str, query: str) -> bool:
        return await self._called(lambda: self._send(stream, {"id": query, "type": "CANCEL"}))

    def come(self) -> None:
        """The streams come to what was sent."""
        self.silent, waiting, self.waiting = False, self.waiting, []
        for stream, record in waiting:
            self._send(stream, record)

    def pass_by(self, ms: int) -> None:
        """The streams' clocks go on, and what has a duration ends."""
        self.time += ms
        for registered in self.registered.values():
            for query in list(registered.values()):
                if query.get("duration") == "1h" and query["t"] + HOUR <= self.time:
                    self.over.add((query["id"], query["t"]))
                    del registered[query["id"]]

    def _found(self, stream: str, query: str) -> dict[str, Any] | None:
        record, (rows, last) = self._of(stream).get(query), self.had.get(query, (0, None))
        return None if record is None else {"query": record, "so_far": {"rows": rows, "last_row": last}}

    def _of(self, stream: str) -> dict[str, dict[str, Any]]:
        if stream not in self.registered:
            raise Unavailable(f"the gateway reports: there is no stream {stream} here")
        return self.registered[stream]

    def _send(self, stream: str, record: dict[str, Any]) -> bool:
        registered = self._of(stream)
        if self.silent:
            self.waiting.append((stream, record))
            return False
        name = record["id"]
        if record["type"] == "CANCEL":
            if name not in registered:
                self.rejected.append(f"cancel {name}")
            elif (query := registered.pop(name)) is not None:
                self.over.add((name, query["t"]))
            return True
        if record["type"] == "CKQ":
            raise Refusal(400, "k: CKQ requires k")
        if name in registered and registered[name] != record:
            self.rejected.append(name)
            raise Refusal(409, f"id: {name!r} is in use")
        if name not in registered and (name, record["t"]) not in self.over:
            self.sent.append(name)
            registered[name] = record
        return True

    async def _called(self, work: Any) -> Any:
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
    """A world with a gateway, a stream and a SpatialQuery."""

    world: World = field(default_factory=World)
    gateway: SimulatedGateway = field(default_factory=SimulatedGateway)

    @property
    def environment(self) -> Environment:
        gateway: Any = self.gateway
        return replace(self.world.environment, gateway=gateway)

    def query(self, **spec: Any) -> dict[str, Any]:
        """The SpatialQuery is wished for."""
        old = self.world.cluster.objects.get(("SpatialQuery", "geo", "floods"), {})
        generation = old.get("metadata", {}).get("generation", 0) + 1
        about = {"name": "floods", "namespace": "geo", "generation": generation, "uid": "uid-query"}
        kind = {"apiVersion": "spatialstream.dev/v1alpha1", "kind": "SpatialQuery"}
        wanted = {name: value for name, value in {**SPEC, **spec}.items() if value is not None}
        return self.world.cluster.put(
            {**kind, "metadata": about, "spec": wanted, **({"status": old["status"]} if "status" in old else {})}
        )

    def look(self, times: int = 1) -> float | None:
        """An operator that has just begun looks so many times; the seconds until it would look again."""

        async def main() -> float | None:
            controller = QueryController(self.environment, "geo", "floods")
            controller.begun()
            pause = None
            for _ in range(times):
                pause = await controller.look()
            return pause

        return asyncio.run(main())

    def remove(self) -> bool:
        return asyncio.run(remove_query(self.environment, self.body))

    @property
    def body(self) -> dict[str, Any]:
        return self.world.cluster.objects["SpatialQuery", "geo", "floods"]

    @property
    def status(self) -> dict[str, Any]:
        return self.body["status"]

    @property
    def condition(self) -> tuple[str, str]:
        (condition,) = self.status["conditions"]
        return condition["status"], condition["reason"]

    @property
    def message(self) -> str:
        return str(self.status["conditions"][0]["message"])

    @property
    def registered(self) -> list[str]:
        return sorted(self.gateway.registered["geo.quakes"])

    def events(self) -> list[str]:
        return [each["reason"] for each in self.world.cluster.events()]


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.world.stream(metadata={"uid": "uid-stream"})
    made.query()
    return made


def test_a_query_is_registered_once_and_the_status_says_so(scene: Scene) -> None:
    assert scene.look(3) == 30.0
    (name,) = scene.registered
    assert name.startswith("geo.floods.")
    assert scene.gateway.sent == [name]
    assert scene.gateway.registered["geo.quakes"][name] == {
        "id": name,
        "t": 1_000,
        "by": "sq/geo/floods",
        **{field: value for field, value in SPEC.items() if field != "stream"},
    }
    assert scene.condition == ("True", "Registered")
    assert (scene.status["query"], scene.status["since"]) == (name, "1970-01-01T00:00:01Z")
    assert scene.status["observedGeneration"] == 1
    assert scene.events() == ["Registered"]
    (event,) = scene.world.cluster.events()
    assert event["regarding"]["kind"] == "SpatialQuery"
    value = scene.world.metrics.registry.get_sample_value
    assert value("spatialstream_operator_query_registered", {"namespace": "geo", "query": "floods"}) == 1.0


def test_its_rows_so_far_are_in_the_status(scene: Scene) -> None:
    def rows() -> tuple[Any, ...]:
        return scene.status.get("rows"), scene.status.get("lastRow")

    scene.look()
    assert rows() == (None, None), "it has only been registered"
    scene.look()
    assert rows() == (0, None)
    (name,) = scene.registered
    scene.gateway.had[name] = 12, 1_500
    scene.look()
    assert rows() == (12, "1970-01-01T00:00:01.500Z")
    scene.gateway.problem = Unavailable("no route")
    scene.look()
    assert rows() == (12, "1970-01-01T00:00:01.500Z"), "what was known stays"
    scene.gateway.problem = None
    asyncio.run(scene.gateway.cancel("geo.quakes", name))
    scene.gateway.time = 2_000
    scene.look()
    assert rows() == (None, None), "it is registered anew"
    scene.look()
    scene.query(keywords=["m6"])
    scene.look()
    assert rows() == (None, None), "another query has its own"
    scene.query(type="CKQ", region=None)
    scene.gateway.had[scene.registered[0]] = 3, 2_500
    scene.look()
    assert scene.condition == ("False", "Refused")
    assert rows() == (None, None), "the one before stands, and is not looked at"
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    scene.look()
    assert rows() == (None, None)


def test_who_has_registered_it_is_in_the_status_as_the_stream_says_it(scene: Scene) -> None:
    scene.look()
    assert "by" not in scene.status, "the stream has not been asked yet"
    scene.look()
    assert scene.status["by"] == "sq/geo/floods"
    (name,) = scene.registered
    scene.gateway.registered["geo.quakes"][name]["by"] = "somebody who was first"
    scene.look()
    assert scene.status["by"] == "somebody who was first"
    scene.gateway.problem = Unavailable("no route")
    scene.look()
    assert scene.status["by"] == "somebody who was first"
    scene.gateway.problem = None
    del scene.gateway.registered["geo.quakes"][name]["by"]
    scene.look()
    assert "by" not in scene.status


def test_another_spec_is_another_query_and_the_old_one_is_cancelled(scene: Scene) -> None:
    scene.look()
    (old,) = scene.registered
    scene.query(keywords=["m6"])
    scene.look()
    (new,) = scene.registered
    assert new != old
    assert scene.status["query"] == new
    assert [each["query"] for each in scene.status["registrations"]] == [new]
    scene.query()
    scene.gateway.time += 5
    scene.look()
    assert scene.registered == [old]
    assert scene.gateway.registered["geo.quakes"][old]["t"] == 1_005
    assert scene.gateway.rejected == []


def test_a_refusal_is_told_and_the_earlier_query_stays_registered(scene: Scene) -> None:
    scene.look()
    (old,) = scene.registered
    scene.query(type="CKQ", region=None)
    scene.look(2)
    assert scene.condition == ("False", "Refused")
    assert scene.message == f"k: CKQ requires k; the previous query {old} is still registered."
    assert scene.registered == [old]
    assert scene.status["query"] == old
    assert scene.events() == ["Registered", "Refused"]
    scene.query(keywords=["m7"])
    scene.look()
    assert scene.condition == ("True", "Registered")
    assert scene.registered != [old]


def test_a_stream_that_comes_later_is_waited_for(scene: Scene) -> None:
    del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    assert scene.look() == 5.0
    assert scene.condition == ("False", "NoStream")
    scene.world.stream(spec={"suspend": True})
    scene.look()
    assert scene.condition == ("False", "StreamSuspended")
    scene.world.stream(spec={"suspend": False})
    scene.gateway.problem = Unavailable("the gateway reports: the stream has not begun")
    scene.look()
    assert scene.condition == ("False", "Unavailable")
    assert "not begun" in scene.message
    scene.gateway.problem = None
    scene.look()
    assert scene.condition == ("True", "Registered")


def test_a_stream_that_rests_or_cannot_be_asked_makes_it_unknown_and_no_news(scene: Scene) -> None:
    scene.look()
    scene.world.stream(metadata={"uid": "uid-stream"}, spec={"suspend": True})
    scene.look()
    assert scene.condition == ("Unknown", "StreamSuspended")
    scene.world.stream(metadata={"uid": "uid-stream"})
    scene.gateway.problem = Unavailable("no route")
    scene.look()
    assert scene.condition == ("Unknown", "Unavailable")
    scene.gateway.problem = None
    scene.look()
    assert scene.condition == ("True", "Registered")
    assert len(scene.gateway.sent) == 1
    assert scene.events() == ["Registered"]


def test_a_stream_that_is_made_anew_has_it_anew(scene: Scene) -> None:
    scene.query(duration="1h")
    scene.look()
    scene.world.stream(metadata={"uid": "uid-stream", "deletionTimestamp": "2026-11-21T12:00:00Z"})
    scene.look()
    assert scene.condition == ("False", "StreamDeleted")
    assert "query" not in scene.status
    scene.gateway = SimulatedGateway(time=9 * HOUR)
    scene.world.stream(metadata={"uid": "uid-other"})
    scene.look()
    assert scene.condition == ("True", "Registered")
    assert scene.gateway.registered["geo.quakes"][scene.status["query"]]["t"] == 9 * HOUR


def test_what_somebody_else_has_cancelled_is_registered_anew(scene: Scene) -> None:
    scene.look()
    (name,) = scene.registered
    asyncio.run(scene.gateway.cancel("geo.quakes", name))
    scene.gateway.time = 2_000
    scene.look()
    assert scene.gateway.registered["geo.quakes"][name]["t"] == 2_000


def test_a_query_whose_time_is_over_is_not_registered_anew(scene: Scene) -> None:
    scene.query(duration="1h")
    scene.look()
    scene.gateway.pass_by(HOUR)
    assert scene.look(3) == 30.0
    assert scene.condition == ("False", "Ended")
    assert len(scene.gateway.sent) == 1
    scene.query(duration="1h", keywords=["m9"])
    scene.look()
    assert scene.condition == ("True", "Registered")


def test_a_registration_that_the_stream_has_not_come_to_is_sent_unchanged_and_registered_once(scene: Scene) -> None:
    scene.gateway.silent = True
    scene.look()
    assert scene.condition == ("False", "Waiting")
    scene.gateway.time = 2_000
    scene.look()
    scene.gateway.come()
    scene.look()
    (name,) = scene.registered
    assert scene.gateway.registered["geo.quakes"][name]["t"] == 1_000
    assert (scene.gateway.sent, scene.gateway.rejected) == ([name], [])


def test_a_registration_that_is_under_way_is_cancelled_too(scene: Scene) -> None:
    scene.gateway.silent = True
    scene.look()
    scene.query(keywords=["m6"])
    scene.look()
    scene.gateway.come()
    scene.look(3)
    assert scene.registered == [scene.status["query"]]
    assert len(scene.status["registrations"]) == 1


def test_what_may_have_been_sent_is_not_forgotten_for_a_refusal(scene: Scene) -> None:
    scene.gateway.silent = True
    scene.look()
    scene.gateway.problem = Refusal(403, "no more")
    scene.look()
    assert scene.condition == ("False", "NotAllowed")
    scene.gateway.problem = None
    scene.gateway.come()
    assert scene.remove()
    assert scene.registered == []


def test_without_a_gateway_it_says_so(scene: Scene) -> None:
    environment = scene.world.environment
    asyncio.run(QueryController(environment, "geo", "floods").look())
    assert scene.condition == ("False", "NoGateway")
    assert "gateway.enabled" in scene.message
    assert asyncio.run(remove_query(environment, scene.body))


@pytest.mark.parametrize(("status", "reason"), [(401, "NotAllowed"), (403, "NotAllowed"), (413, "Refused")])
def test_a_right_that_is_missing_is_said(scene: Scene, status: int, reason: str) -> None:
    scene.gateway.problem = Refusal(status, "the operator may not write")
    assert scene.look() == (5.0 if reason == "NotAllowed" else 30.0)
    assert scene.condition == ("False", reason)
    assert scene.message == "the operator may not write."
    scene.gateway.problem = None
    scene.look()
    scene.gateway.problem = Refusal(status, "the operator may not watch")
    scene.look()
    assert scene.condition == ("Unknown", reason)
    assert scene.message == "the operator may not watch."


def test_a_removal_cancels_it(scene: Scene) -> None:
    scene.look()
    assert scene.remove()
    assert scene.registered == []
    value = scene.world.metrics.registry.get_sample_value
    assert value("spatialstream_operator_query_registered", {"namespace": "geo", "query": "floods"}) is None
    assert scene.remove()
    assert scene.gateway.rejected == []


def test_a_removal_waits_for_a_stream_that_cannot_be_asked_and_says_so(scene: Scene) -> None:
    scene.look()
    scene.gateway.problem = Unavailable("no route")
    assert not scene.remove()
    assert scene.condition == ("Unknown", "Cancelling")
    assert scene.message == "no route"
    scene.gateway.problem = None
    scene.gateway.silent = True
    assert not scene.remove()
    scene.gateway.come()
    assert scene.remove()
    assert scene.registered == []


@pytest.mark.parametrize("how", ["skipped", "stream deleted", "stream gone"])
def test_a_removal_does_not_wait_for_what_nobody_has(scene: Scene, how: str) -> None:
    scene.look()
    scene.gateway.problem = Unavailable("no route")
    if how == "skipped":
        scene.body["metadata"]["annotations"] = {"spatialstream.dev/skip-cleanup": "true"}
    elif how == "stream deleted":
        scene.world.stream(metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"})
    else:
        del scene.world.cluster.objects["SpatialStream", "geo", "quakes"]
    assert scene.remove()


@pytest.mark.parametrize("place", ["gateway before", "gateway after", "cluster before", "cluster after"])
@pytest.mark.parametrize("at", range(1, 14))
def test_an_operator_that_dies_anywhere_leaves_what_the_next_one_mends(scene: Scene, place: str, at: int) -> None:
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
    attempt(lambda: scene.look(2))
    scene.gateway.time += 7
    scene.query(keywords=["m6"])
    attempt(lambda: scene.look(2))
    scene.gateway.time += 7
    die(-1)
    scene.look(2)
    assert scene.condition == ("True", "Registered")
    assert scene.registered == [scene.status["query"]]
    assert len(scene.gateway.sent) == len(set(scene.gateway.sent))
    assert len(scene.status["registrations"]) == 1

    die(at)
    attempt(scene.remove)
    die(-1)
    assert scene.remove()
    assert scene.registered == []
    if (where, when) != ("gateway", "before"):  # what was never sent is cancelled all the same
        assert not [each for each in scene.gateway.rejected if not each.startswith("cancel")]
