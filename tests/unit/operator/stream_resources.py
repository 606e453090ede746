"""SpatialQueries and SpatialAreas in a world of their own: what the tests of their controllers have in common."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from spatialstream.model.areas import AreaTable, read_areas
from spatialstream.model.errors import RecordError, Unavailable
from spatialstream_operator.areas import AreaController, remove_area
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Refusal
from spatialstream_operator.queries import QueryController, remove_query
from spatialstream_operator.stream_resource import ResourceController
from tests.unit.operator.simulated import World

SPEC = {"stream": "quakes", "type": "CRQ", "region": {"circle": [139.7, 35.7, 300000]}, "keywords": ["m5"]}
SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
HOUR = 3_600_000


class Died(Exception):  # noqa: N818 (it says what is)
    """The operator has died."""


@dataclass
class SimulatedGateway:
    """Streams behind a gateway.

    Attributes:
        problem: raised at each request.
        calls: requests so far; at the one of number ``dies_at`` the operator dies, before or after it is done.
    """

    problem: Exception | None = None
    calls: int = 0
    dies_at: int = -1
    afterwards: bool = False

    def called(self, work: Any) -> Any:
        """What a request does, unless there is a problem."""
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
class RegisteringGateway(SimulatedGateway):
    """The queries of streams behind a gateway, as registrations and cancellations have left them.

    Attributes:
        registered: by stream, by id: the query.
        sent: ids that were registered, in order; one that comes again as it was is passed over.
        had: rows of queries so far, and the t of the last one.
        rejected: what a stream has had to refuse, which people would be alarmed by.
        silent: what is sent is taken in only later, by :meth:`come`.
    """

    registered: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: {"geo.quakes": {}})
    sent: list[str] = field(default_factory=list)
    had: dict[str, tuple[int, int]] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    over: set[tuple[str, int]] = field(default_factory=set)
    time: int = 1_000
    silent: bool = False
    waiting: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def find(self, stream: str, query: str) -> dict[str, Any] | None:
        return self.called(lambda: self._found(stream, query))

    async def clock(self, stream: str) -> int | None:
        return self.called(lambda: (self._of(stream), self.time)[1])

    async def register(self, stream: str, record: dict[str, Any]) -> bool:
        return self.called(lambda: self._send(stream, record))

    async def cancel(self, stream: str, query: str) -> bool:
        return self.called(lambda: self._send(stream, {"id": query, "type": "CANCEL"}))

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


@dataclass
class LoadingGateway(SimulatedGateway):
    """The areas of streams behind a gateway.

    Attributes:
        areas: by stream, by name.
        written: names that were written, in order.
    """

    areas: dict[str, dict[str, Any]] = field(default_factory=lambda: {"geo.quakes": {}})
    written: list[str] = field(default_factory=list)

    async def keep_area(self, stream: str, name: str, by: str, geometry: dict[str, Any]) -> dict[str, Any]:
        return self.called(lambda: self._kept(stream, name, by, geometry))

    async def delete_area(self, stream: str, name: str, by: str) -> None:
        def work() -> None:
            if not self._table(stream).conflict([name], by):
                self.areas[stream].pop(name, None)

        self.called(work)

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


@dataclass
class Scene(ABC):
    """A world with a gateway, a stream and resources of one kind."""

    kind: ClassVar[str]
    resource: ClassVar[str]
    """Name of the first resource."""
    controller: ClassVar[type[ResourceController]]
    removal: ClassVar[Any]
    """The function that removes one."""
    metric: ClassVar[str]
    done: ClassVar[str]
    """Reason of the condition of a resource that the stream has."""
    going: ClassVar[str]
    """The same while a resource is being removed."""

    world: World = field(default_factory=World)
    gateway: Any = None

    def __post_init__(self) -> None:
        self.gateway = self.new_gateway()
        self.world.stream(metadata={"uid": "uid-stream"})
        self.wish()

    @abstractmethod
    def new_gateway(self) -> SimulatedGateway:
        """A gateway whose streams have nothing."""

    @abstractmethod
    def wish(self) -> dict[str, Any]:
        """The first resource is wished for."""

    @property
    @abstractmethod
    def known(self) -> Mapping[str, Any]:
        """What the stream has."""

    @property
    @abstractmethod
    def sent(self) -> list[str]:
        """What was sent, in order."""

    @property
    def environment(self) -> Environment:
        return replace(self.world.environment, gateway=self.gateway)

    def put(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """A resource has another spec, and the status that it had."""
        old = self.world.cluster.objects.get((self.kind, "geo", name), {})
        generation = old.get("metadata", {}).get("generation", 0) + 1
        about = {"name": name, "namespace": "geo", "generation": generation, "uid": f"uid-{name}"}
        status = {"status": old["status"]} if "status" in old else {}
        kind = {"apiVersion": "spatialstream.dev/v1alpha1", "kind": self.kind}
        return self.world.cluster.put({**kind, "metadata": about, "spec": dict(spec), **status})

    def reconcile(self, times: int = 1, name: str | None = None) -> float | None:
        """Reconcile some times as an operator that has just begun; the seconds until the next time."""

        async def main() -> float | None:
            controller = self.controller(self.environment, "geo", name or self.resource)
            controller.begun()
            pause = None
            for _ in range(times):
                pause = await controller.reconcile()
            return pause

        return asyncio.run(main())

    def remove(self, name: str | None = None) -> bool:
        async def main() -> bool:
            removed: bool = await self.removal(self.environment, self.body(name))
            return removed

        return asyncio.run(main())

    def body(self, name: str | None = None) -> dict[str, Any]:
        return self.world.cluster.objects[self.kind, "geo", name or self.resource]

    def status(self, name: str | None = None) -> dict[str, Any]:
        status: dict[str, Any] = self.body(name)["status"]
        return status

    def said(self, name: str | None = None) -> tuple[str, str, str]:
        (condition,) = self.status(name)["conditions"]
        return condition["status"], condition["reason"], condition["message"]

    def condition(self, name: str | None = None) -> tuple[str, str]:
        return self.said(name)[:2]

    def events(self) -> list[str]:
        return [each["reason"] for each in self.world.cluster.events()]

    def measured(self) -> float | None:
        labels = {"namespace": "geo", type(self).metric: self.resource}
        value = self.world.metrics.registry.get_sample_value
        return value(f"spatialstream_operator_{type(self).metric}_{self.done.lower()}", labels)


class QueryScene(Scene):
    """SpatialQueries."""

    kind, resource, metric, done, going = "SpatialQuery", "floods", "query", "Registered", "Cancelling"
    controller = QueryController
    removal = staticmethod(remove_query)

    def new_gateway(self) -> SimulatedGateway:
        return RegisteringGateway()

    def wish(self, **spec: Any) -> dict[str, Any]:
        return self.put(self.resource, {name: value for name, value in {**SPEC, **spec}.items() if value is not None})

    @property
    def known(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.gateway.registered["geo.quakes"]
        return found

    @property
    def sent(self) -> list[str]:
        names: list[str] = self.gateway.sent
        return names


class AreaScene(Scene):
    """SpatialAreas."""

    kind, resource, metric, done, going = "SpatialArea", "mitte", "area", "Loaded", "Deleting"
    controller = AreaController
    removal = staticmethod(remove_area)

    def new_gateway(self) -> SimulatedGateway:
        return LoadingGateway()

    def wish(self, resource: str = "mitte", /, **spec: Any) -> dict[str, Any]:
        return self.put(resource, {"stream": "quakes", "geometry": SQUARE, **spec})

    @property
    def known(self) -> Mapping[str, Any]:
        return {name: area.by for name, area in self.gateway.areas["geo.quakes"].items()}

    @property
    def sent(self) -> list[str]:
        names: list[str] = self.gateway.written
        return names
