"""The state of one reconciliation of a stream: the resource, what the steps observe, and the resulting status.

A reconciliation runs the steps of :mod:`spatialstream_operator.steps` in order; each step finds here the results of
those before it. Decisions are written to the status before they are carried out, so an operator that is restarted at
any moment continues from its last decision.
"""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spatialstream.store.base import RoutingState, RoutingStore
from spatialstream_operator.cluster import MANAGER, ClusterError, Object
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.conditions import Crew, Job
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.restarts import Failure
from spatialstream_operator.environment import Environment
from spatialstream_operator.load_metrics import LoadMetrics
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import GROUP, KIND, VERSION, StreamNames
from spatialstream_operator.spec import StreamSpec

__all__ = ["PARTS", "ReconcileContext", "changes", "emit"]

_log = logging.getLogger(__name__)

PARTS = {"router": "router", "worker": "workers"}
"""Field of the status that holds the state of each job."""
_LONGEST_NOTE = 1024
"""Maximum length of an event's note in bytes, by the API server's validation."""


@dataclass(slots=True)
class ReconcileContext:
    """A reconciliation in progress.

    Attributes:
        environment: shared clients and settings.
        names: names of the stream and its objects.
        body: the SpatialStream resource.
        spec: its parsed spec.
        status: its status, including what has been written in this reconciliation.
        memory: what this process remembers from earlier reconciliations; a cache that may be lost.
        now: when the reconciliation began, in ms since 1970-01-01 UTC.
        jobs: router and worker, once they have been observed.
        crews: the executors of each job that has any by its spec.
        executors: executor pods by job, for jobs whose driver can have executors.
        left: number of executor pods that still exist although the stream is being suspended.
        rejecting: the failure to report if too many records are rejected; None otherwise.
        store: the routing store; None if it cannot be used.
        routing: its state; None if it cannot be read.
        uncreated: whether the routing store is reachable but holds nothing of the stream yet.
        load_metrics: load metrics from Prometheus.
        problem: what prevents the stream from reaching the state of its spec; None if nothing does.
        image: that another image is being tried, or cannot be used.
    """

    environment: Environment
    names: StreamNames
    body: Object
    spec: StreamSpec
    status: Object
    memory: Memory
    now: int
    jobs: dict[str, Job] = field(default_factory=dict)
    crews: dict[str, Crew] = field(default_factory=dict)
    executors: dict[str, list[Object]] = field(default_factory=dict)
    left: int = 0
    rejecting: Failure | None = None
    store: RoutingStore | None = None
    routing: RoutingState | None = None
    uncreated: bool = False
    load_metrics: LoadMetrics = field(default_factory=LoadMetrics)
    problem: Failure | None = None
    image: Failure | None = None

    def __post_init__(self) -> None:
        """Add a crew for each job that has executors by its spec."""
        self.crews = {job: Crew() for job in PARTS if self.spec.job(job).executors is not None}

    @property
    def generation(self) -> int:
        """Generation of the spec."""
        return int(self.body["metadata"].get("generation", 0))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the resource."""
        return self.body["metadata"].get("annotations") or {}

    def part(self, name: str) -> Mapping[str, Any]:
        """A mapping in the status; an empty one if it is absent."""
        found = self.status.get(name)
        return found if isinstance(found, Mapping) else {}

    def scaling(self, job: str) -> Mapping[str, Any]:
        """The autoscaling state of a job, from the status."""
        return self.part("autoscaling") if job == "worker" else records.part(self.part("router"), "autoscaling")

    async def remember(self, **parts: Any) -> None:
        """Write parts of the status if they differ from what it holds.

        Mappings are merged, all other values replaced; None removes a field, as in a JSON merge patch (RFC 7386).
        """
        change, after = changes(self.status, parts)
        if change:
            names = self.names
            await self.environment.cluster.patch_status(KIND, names.name, names.namespace, change)
            self.status = after

    async def emit(self, note: Note) -> None:
        """Create an event about the stream."""
        await emit(self.environment, self.body, note)


def changes(status: Mapping[str, Any], parts: Mapping[str, Any]) -> tuple[Object, Object]:
    """The merge patch (RFC 7386) that gives a status these parts (empty if it has them), and the patched status."""
    change = _news(status, parts)
    return change, _merged(status, change)


def _news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """The merge patch that makes ``before`` contain ``after``; empty if it does already."""
    news: Object = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping):
            below = _news(old if isinstance(old, Mapping) else {}, value)
            if below or not isinstance(old, Mapping):
                news[key] = below
        elif old != value:
            news[key] = value
    return news


def _merged(before: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """The result of applying a merge patch to ``before``."""
    after = {key: value for key, value in before.items() if key not in change}
    for key, value in change.items():
        known = before.get(key)
        if isinstance(value, Mapping):
            after[key] = _merged(known if isinstance(known, Mapping) else {}, value)
        elif value is not None:
            after[key] = copy.deepcopy(value)
    return after


async def emit(environment: Environment, body: Object, note: Note) -> None:
    """Create an event about a resource. A failure is logged and otherwise ignored."""
    metadata = body["metadata"]
    level = logging.WARNING if note.warning else logging.INFO
    _log.log(level, "%s/%s: %s: %s", metadata["namespace"], metadata["name"], note.reason, note.message)
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": MANAGER,
        "reportingInstance": environment.config.pod[:128],
        "action": "Reconcile",
        "reason": note.reason,
        "note": note.message.encode()[:_LONGEST_NOTE].decode(errors="ignore"),
        "type": "Warning" if note.warning else "Normal",
        "regarding": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": body["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
    try:
        await environment.cluster.create(event)
    except ClusterError as error:
        _log.warning("%s/%s: cannot create the event: %s", metadata["namespace"], metadata["name"], error)
