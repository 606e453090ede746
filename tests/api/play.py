"""A stream whose pods a test plays: it says what the kubelet would say of them, and does to the store what jobs do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from spatialstream.balance.loads import LeafCounts
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.store.reports import LoadReport, save_load, save_sample
from spatialstream.store.zookeeper import ZooKeeperStore
from tests.api.client import PATIENCE, Api, RefusalError, eventually
from tests.api.resources import merged, stream, streams
from tests.unit.index.samples import PLANE, obj, query

__all__ = ["SLOTS", "Played", "first_version", "report_skew"]

SLOTS = 4
HASH = "spatialstream.dev/template-hash"
QUICK = {
    "restart": {"backoff": "1s", "maxBackoff": "2s", "maxFailures": 3, "healthyAfter": "2s"},
    "rebalance": {"interval": "1s", "stabilisation": "1s", "cooldown": "1s", "timeout": "20s"},
    "space": "planar:0,0,4,4",
}


@dataclass
class Played:
    """A stream.

    Attributes:
        api: a client that may do everything.
        namespace: of the stream.
        name: of the stream.
        servers: of ZooKeeper.
    """

    api: Api
    namespace: str
    name: str
    servers: str

    # ---------------------------------------------------------------------------------------------------- the resource

    @property
    def path(self) -> str:
        """Where the resource is."""
        return streams(self.namespace, self.name)

    def create(self, **spec: Any) -> Played:
        """Make the resource."""
        usual = {**QUICK, "zookeeper": {"servers": self.servers}, "workers": {"max": SLOTS}}
        self.api.post(streams(self.namespace), stream(self.namespace, self.name, merged(usual, spec)))
        return self

    def edit(self, **spec: Any) -> None:
        """Change the spec."""
        self.api.patch(self.path, {"spec": spec})

    def annotate(self, **annotations: str | None) -> None:
        """Change annotations; their prefix is the project's."""
        changed = {f"spatialstream.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
        self.api.patch(self.path, {"metadata": {"annotations": changed}})

    @property
    def body(self) -> dict[str, Any]:
        """The resource."""
        found: dict[str, Any] = self.api.get(self.path)
        return found

    @property
    def status(self) -> dict[str, Any]:
        """Its status."""
        found: dict[str, Any] = self.body.get("status") or {}
        return found

    def condition(self, name: str) -> dict[str, Any]:
        """One of its conditions; an empty one if there is none."""
        return next((each for each in self.status.get("conditions", []) if each["type"] == name), {})

    def says(self, name: str, status: str, reason: str | None = None, within: float = PATIENCE) -> dict[str, Any]:
        """Wait for what a condition says."""

        def found() -> dict[str, Any] | None:
            each = self.condition(name)
            fits = each.get("status") == status and reason in (None, each.get("reason"))
            return each if fits else None

        said: dict[str, Any] = eventually(found, f"{name} is {status} {reason or ''}", within, lambda: self.status)
        return said

    def until(self, condition: Callable[[dict[str, Any]], Any], what: str, within: float = PATIENCE) -> Any:
        """Wait for something about the status."""
        return eventually(lambda: condition(self.status), what, within, lambda: self.status)

    def rebalances(self, phase: str, within: float = PATIENCE) -> dict[str, Any]:
        """Wait for a phase of rebalancing."""

        def found(status: Mapping[str, Any]) -> Any:
            part = status.get("rebalance", {})
            return part if part.get("phase") == phase else None

        said: dict[str, Any] = self.until(found, f"rebalancing is {phase}", within)
        return said

    def tells(self, reason: str, times: int = 1) -> None:
        """It has made so many events of a reason: an event comes after the status that says the same."""
        eventually(lambda: len(self.events(reason)) >= times, f"there are {times} events {reason}")
        assert len(self.events(reason)) == times, reason

    def events(self, reason: str | None = None) -> list[dict[str, Any]]:
        """What has been said about it."""
        found = self.api.list(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [
            each for each in found if each["regarding"].get("name") == self.name and reason in (None, each["reason"])
        ]

    def kubelet_says(self, job: str, reason: str, note: str) -> None:
        """Make an event about the pod of a job, in the old form, as a kubelet does."""
        pod = self.api.get(self.pod_path(job))["metadata"]
        about = {"kind": "Pod", "namespace": self.namespace, "name": pod["name"], "uid": pod["uid"], "apiVersion": "v1"}
        event = {"involvedObject": about, "reason": reason, "message": note, "type": "Warning", "count": 1}
        times = {"firstTimestamp": _now(), "lastTimestamp": _now()}
        name = {"metadata": {"name": f"{pod['name']}.{reason.lower()}"}, "source": {"component": "kubelet"}}
        self.api.post(f"/api/v1/namespaces/{self.namespace}/events", {**event, **times, **name})

    # -------------------------------------------------------------------------------------------------------- the pods

    def pod_path(self, job: str) -> str:
        """Where the pod of a job is."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}-{job}"

    def pod(self, job: str) -> dict[str, Any] | None:
        """The pod of a job, if there is one."""
        found: dict[str, Any] | None = self.api.find(self.pod_path(job))
        return found

    def hash(self, job: str) -> str:
        """The template that the pod of a job was made from."""
        found = self.pod(job)
        return "" if found is None else found["metadata"]["annotations"][HASH]

    def made(self, job: str, other_than: str = "", within: float = PATIENCE) -> str:
        """Wait for the pod of a job that is not the one with this uid; its uid."""

        def found() -> str | None:
            pod = self.pod(job)
            uid = "" if pod is None else pod["metadata"]["uid"]
            return uid if uid not in ("", other_than) else None

        uid: str = eventually(found, f"there is a (new) pod of the {job}", within, lambda: self.status)
        return uid

    def placed(self, job: str, other_than: str = "") -> str:
        """Wait for the pod of a job, and put it on a node that does not exist: from now on its end takes time."""
        uid = self.made(job, other_than)
        binding = {"metadata": {"name": f"{self.name}-{job}"}, "target": {"kind": "Node", "name": "nowhere"}}
        self.api.post(f"{self.pod_path(job)}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
        return uid

    def runs(self, job: str, other_than: str = "", ready: bool = True) -> str:
        """The pod of a job gets a node, runs and is ready."""
        uid = self.placed(job, other_than)
        self.tell_of(job, {"running": {"startedAt": _now()}}, "Running", ready)
        return uid

    def tell_of(self, job: str, state: Mapping[str, Any], phase: str, ready: bool = False) -> None:
        """Say of a pod what its kubelet would."""
        container = {
            "name": "image" if job == "image" else "driver",
            "image": "spark:test",
            "imageID": "",
            "restartCount": 0,
            "ready": ready,
            "state": state,
        }
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"phase": phase, "containerStatuses": [container], "conditions": conditions}
        self.api.patch(f"{self.pod_path(job)}/status", {"status": status})

    def fails(self, job: str, code: int = 1, message: str = "", ran: float = 0.0) -> None:
        """The driver of a pod ends."""
        ended = {"exitCode": code, "startedAt": _now(-ran), "finishedAt": _now(), "message": message}
        self.tell_of(job, {"terminated": ended}, "Failed")

    def ends(self, job: str) -> None:
        """Wait until a pod has been told to end, and end it."""

        def told() -> bool:
            pod = self.pod(job)
            return pod is None or "deletionTimestamp" in pod["metadata"]

        eventually(told, f"the pod of the {job} is told to end", now=lambda: self.status)
        self.vanishes(job)

    def vanishes(self, job: str) -> None:
        """A pod is gone at once."""
        try:
            self.api.delete(self.pod_path(job), gracePeriodSeconds=0)
        except RefusalError as refusal:
            if refusal.code != 404:
                raise

    def loses_node(self, job: str) -> None:
        """The node of a pod has gone silent: the node controller says that it is not ready, and asks for its end."""
        said = {"Ready": "False", "ContainersReady": "True"}
        conditions = [{"type": name, "status": status} for name, status in said.items()]
        self.api.patch(f"{self.pod_path(job)}/status", {"status": {"conditions": conditions}})
        self.api.delete(self.pod_path(job))

    def executor(self, number: int, job: str = "worker") -> None:
        """A driver has an executor, which is ready."""
        self.asks_for(number, job=job)
        self.runs(f"{job}-exec-{number}")

    def asks_for(self, number: int, unscheduled: str = "", job: str = "worker") -> None:
        """A driver makes the pod of an executor.

        Args:
            number: of the executor.
            unscheduled: what the scheduler says of it, if no node has room; "" if there is no scheduler.
            job: whose driver.
        """
        name = f"{job}-exec-{number}"
        component = {"worker": "executor", "router": "router-executor"}[job]
        labels = {"spatialstream.dev/stream": self.name, "app.kubernetes.io/component": component}
        secure = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        container = {"name": "driver", "image": "spark:test", "securityContext": secure}
        pod = {
            "metadata": {"name": f"{self.name}-{name}", "labels": labels},
            "spec": {"serviceAccountName": f"{self.name}-executor", "containers": [container]},
        }
        self.api.post(f"/api/v1/namespaces/{self.namespace}/pods", {"apiVersion": "v1", "kind": "Pod", **pod})
        if unscheduled:
            said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unscheduled}
            self.api.patch(f"{self.pod_path(name)}/status", {"status": {"conditions": [said]}})

    def start(self, executors: int = 1, routers: int = 0) -> Played:
        """Both jobs run, with executors."""
        self.runs("router")
        for number in range(1, routers + 1):
            self.executor(number, "router")
        self.runs("worker")
        for number in range(1, executors + 1):
            self.executor(number)
        self.says("Ready", "True")
        return self

    def vanish(self) -> None:
        """It is gone at once, and nobody is asked to remove anything."""
        self.api.vanish(self.path)

    def gone(self, within: float = PATIENCE) -> None:
        """Wait until there is no such stream."""
        eventually(lambda: self.api.find(self.path) is None, "the stream is gone", within, lambda: self.body)

    # ------------------------------------------------------------------------------------------------------- the store

    def store(self) -> ZooKeeperStore:
        """Its routing store."""
        return ZooKeeperStore(self.servers, f"{self.namespace}.{self.name}")


def first_version(slots: int = SLOTS) -> RoutingVersion:
    """A version whose first slot gets nearly everything if load comes as :func:`report_skew` says."""
    sample = ObjectBatch.of([obj(f"o{i}", i % 8 * 0.5, i % 7 * 0.5, "abcd"[i % 4 :]) for i in range(64)])
    asked = QueryBatch.of([query("SRQ", None, "ab"), query("CRQ", None, "cd")])
    return build(PLANE, sample, asked, 16, slots, number=0)


def report_skew(store: ZooKeeperStore, version: RoutingVersion, objects: int = 64) -> None:
    """Write down counts by which the leaves of the first slot get a hundred times what others get, and J.

    Args:
        store: of the stream.
        version: the active one.
        objects: how many there are in the sample, of which there were no more.
    """
    hot = np.asarray(version.mapping) == 0
    loads = np.where(hot, 1000.0, 10.0)
    counts = LeafCounts(loads, loads, np.full(len(loads), 5.0), 600_000.0)
    save_load(store, LoadReport(version.number, counts, np.zeros(len(loads)), int(time.time() * 1000)))
    sample = ObjectBatch.of([obj(f"o{i}", i % 8 * 0.5, i % 7 * 0.5, "abcd"[i % 4 :]) for i in range(objects)])
    save_sample(store, Sample.of(PLANE, sample, QueryBatch.of([query("CRQ", None, "cd")]), 600_000.0))


def _now(offset: float = 0.0) -> str:
    return datetime.fromtimestamp(time.time() + offset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
