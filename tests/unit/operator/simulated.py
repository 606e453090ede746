"""A cluster in memory, with the operator's client's methods, and a clock that runs only while everybody waits."""

from __future__ import annotations

import asyncio
import copy
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spatialstream_operator.cluster import ApiError
from spatialstream_operator.config import OperatorConfig
from spatialstream_operator.environment import Environment
from spatialstream_operator.metrics import OperatorMetrics
from spatialstream_operator.stores import Stores

T = TypeVar("T")
START = 1_800_000_000_000


def merge(base: Any, change: Any) -> Any:
    """RFC 7386, word by word."""
    if not isinstance(change, Mapping):
        return change
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _field(body: Any, path: str) -> Any:
    """The value of a field, as a field selector names it."""
    for name in path.split("."):
        body = body.get(name, {}) if isinstance(body, Mapping) else {}
    return body


def refusal(code: int, message: str = "no") -> ApiError:
    """What the API server's refusal raises."""
    return ApiError(message, code)


@dataclass
class SimulatedCluster:
    """Objects by (kind, namespace, name).

    Attributes:
        objects: what there is.
        calls: what was asked for: (verb, kind, name), reads left out.
        terminating: whether all namespaces are on their way out.
        unserved: kinds of which the API server says that no more than this may be done with their objects.
        before, after: awaited around each call, with the verb and the kind; they may wait or raise.
    """

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    before: Callable[[str, str], Awaitable[None]] | None = None
    after: Callable[[str, str], Awaitable[None]] | None = None
    counter: int = 0
    terminating: bool = False
    unserved: dict[str, frozenset[str]] = field(default_factory=dict)

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        """An object is there, or is another."""
        self.counter += 1
        metadata = body["metadata"]
        kept = copy.deepcopy(body)
        kept["metadata"].setdefault("uid", f"uid-{self.counter}")
        kept["metadata"]["resourceVersion"] = str(self.counter)
        self.objects[body["kind"], metadata["namespace"], metadata["name"]] = kept
        return kept

    async def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        await self._called("get", kind)
        found = copy.deepcopy(self.objects.get((kind, namespace, name)))
        await self._done("get", kind)
        return found

    async def labels(self, kind: str, name: str, namespace: str) -> Mapping[str, str] | None:
        await self._called("get", kind)
        found = self.objects.get((kind, namespace, name))
        return None if found is None else dict(found["metadata"].get("labels") or {})

    async def is_terminating(self, namespace: str) -> bool:
        await self._called("get", "Namespace")
        return self.terminating

    async def list(
        self,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        await self._called("list", kind)
        return [
            copy.deepcopy(body)
            for (its, where, _), body in self.objects.items()
            if its == kind
            and namespace in (None, where)
            and (labels or {}).items() <= body["metadata"].get("labels", {}).items()
            and all(_field(body, path) == value for path, value in (fields or {}).items())
        ]

    async def verbs(self, kind: str) -> frozenset[str]:
        await self._called("list", "APIResource")
        return self.unserved.get(kind, frozenset({"get", "list", "watch", "patch"}))

    async def apply(self, wanted: dict[str, Any]) -> None:
        await self._called("apply", wanted["kind"], wanted["metadata"]["name"])
        self.put(wanted)

    async def create(self, wanted: dict[str, Any], trial: bool = False) -> bool:
        metadata = wanted["metadata"]
        await self._called("try" if trial else "create", wanted["kind"], metadata["name"])
        if trial:
            return True
        taken = (wanted["kind"], metadata["namespace"], metadata["name"]) in self.objects
        if not taken:
            self.put(wanted)
        await self._done("create", wanted["kind"])
        return not taken

    async def check(self, wanted: dict[str, Any]) -> None:
        await self._called("check", wanted["kind"], wanted["metadata"]["name"])

    async def replace(self, wanted: dict[str, Any]) -> bool:
        metadata = wanted["metadata"]
        await self._called("replace", wanted["kind"], metadata["name"])
        found = self.objects.get((wanted["kind"], metadata["namespace"], metadata["name"]))
        same = found is not None and found["metadata"]["resourceVersion"] == metadata["resourceVersion"]
        if same:
            self.put(wanted)
        await self._done("replace", wanted["kind"])
        return same

    async def delete(self, kind: str, name: str, namespace: str) -> bool:
        await self._called("delete", kind, name)
        return self.objects.pop((kind, namespace, name), None) is not None

    async def force_delete(self, pod: dict[str, Any]) -> bool:
        metadata = pod["metadata"]
        await self._called("force_delete", "Pod", metadata["name"])
        found = self.objects.get(("Pod", metadata["namespace"], metadata["name"]))
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            return False
        del self.objects["Pod", metadata["namespace"], metadata["name"]]
        return True

    async def release(self, record: dict[str, Any], finalizer: str) -> None:
        metadata = record["metadata"]
        await self._called("release", record["kind"], metadata["name"])
        place = record["kind"], metadata["namespace"], metadata["name"]
        found = self.objects.get(place)
        if found is not None and found["metadata"]["resourceVersion"] == metadata["resourceVersion"]:
            found["metadata"]["finalizers"].remove(finalizer)
            if not found["metadata"]["finalizers"] and "deletionTimestamp" in found["metadata"]:
                del self.objects[place]

    async def patch_status(self, kind: str, name: str, namespace: str, change: dict[str, Any]) -> None:
        await self._called("patch", kind, name)
        found = self.objects.get((kind, namespace, name))
        if found is not None:
            self.put(merge(found, {"status": change}))

    async def _called(self, verb: str, kind: str, name: str = "") -> None:
        if verb not in ("get", "list"):
            self.calls.append((verb, kind, name))
        if self.before is not None:
            await self.before(verb, kind)

    async def _done(self, verb: str, kind: str) -> None:
        if self.after is not None:
            await self.after(verb, kind)

    def events(self) -> list[dict[str, Any]]:
        """The events that were made."""
        return [body for (kind, _, _), body in self.objects.items() if kind == "Event"]


@dataclass
class World:
    """A cluster, and an operator's environment in it; its clock is set by hand."""

    cluster: SimulatedCluster = field(default_factory=SimulatedCluster)
    at: int = START
    config: OperatorConfig = field(default_factory=lambda: OperatorConfig(image="spark:test"))

    @property
    def environment(self) -> Environment:
        """The environment."""
        cluster: Any = self.cluster
        return Environment(cluster, Stores(cluster), self.config, self.metrics, lambda: self.at)

    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)

    def stream(self, name: str = "quakes", **changes: Any) -> dict[str, Any]:
        """A SpatialStream, in the cluster."""
        spec = {
            "kafka": {"bootstrapServers": "kafka:9092"},
            "zookeeper": {"servers": "127.0.0.1:1"},
            "checkpoint": {"claimName": "checkpoints"},
        }
        body = {
            "apiVersion": "spatialstream.dev/v1alpha1",
            "kind": "SpatialStream",
            "metadata": {"name": name, "namespace": "geo", "generation": 1},
            "spec": spec,
        }
        return self.cluster.put(merge(body, changes))

    def body(self, name: str = "quakes") -> dict[str, Any]:
        """The SpatialStream as it is."""
        return self.cluster.objects["SpatialStream", "geo", name]


class _Instant(selectors.SelectSelector):
    """Does not wait: it lets the time pass instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is not None:
            self.now += max(timeout, 0.0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = _Instant()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now


def simulate(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in the loop's own time, which passes only while everybody waits."""
    loop = _Loop()
    try:
        return loop.run_until_complete(main())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
