"""One look at a stream: the resource as it is, what is learned on the way, and what the status says in the end.

A look goes through the steps of :mod:`spatialstream_operator.steps` in their order. Each step finds here what those
before it have learned. What has to be remembered is written to the status at once, before it is acted on; so an
operator that dies at any moment goes on from what it had decided.
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
"""Where the status has what is remembered of a job."""
_LONGEST_NOTE = 1024
"""Bytes; the API server refuses events with longer ones."""


@dataclass(slots=True)
class ReconcileContext:
    """A look that is under way.

    Attributes:
        environment: what the operator works with.
        names: of the stream.
        body: the resource.
        spec: its spec.
        status: its status, with what has been remembered so far.
        memory: what this operator knows of the stream from earlier looks, without which it could go on.
        now: when the look began, in ms since 1970-01-01 UTC.
        jobs: router and worker, once they have been looked at.
        crews: the executors of the jobs that are to have any.
        executors: their pods, of each job whose driver could have any.
        left: executors that are still there though the stream is to be suspended.
        rejecting: that too many records are rejected, and why; None if they are not.
        store: the routing store; None if it cannot be used.
        routing: its state; None if it cannot be read.
        uncreated: whether the routing store can be asked, and holds nothing of the stream yet.
        figures: what Prometheus says.
        problem: what keeps the stream from being as it is wanted; None if nothing.
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
    figures: LoadMetrics = field(default_factory=LoadMetrics)
    problem: Failure | None = None
    image: Failure | None = None

    def __post_init__(self) -> None:
        """See which jobs are to have executors."""
        self.crews = {job: Crew() for job in PARTS if self.spec.job(job).executors is not None}

    @property
    def generation(self) -> int:
        """Of the spec."""
        return int(self.body["metadata"].get("generation", 0))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the resource."""
        return self.body["metadata"].get("annotations") or {}

    def part(self, name: str) -> Mapping[str, Any]:
        """A part of the status; an empty one if it is not there."""
        found = self.status.get(name)
        return found if isinstance(found, Mapping) else {}

    def scaling(self, job: str) -> Mapping[str, Any]:
        """What is remembered of the number of a job's executors."""
        return self.part("autoscaling") if job == "worker" else records.part(self.part("router"), "autoscaling")

    async def remember(self, **parts: Any) -> None:
        """Write parts of the status, if they say anything new.

        Mappings are merged, everything else is replaced; None removes, as in a JSON merge patch (RFC 7386).
        """
        change, after = changes(self.status, parts)
        if change:
            names = self.names
            await self.environment.cluster.patch_status(KIND, names.name, names.namespace, change)
            self.status = after

    async def tell(self, note: Note) -> None:
        """Say something as an event of the stream."""
        await emit(self.environment, self.body, note)


def changes(status: Mapping[str, Any], parts: Mapping[str, Any]) -> tuple[Object, Object]:
    """The merge patch (RFC 7386) with which a status has these parts, empty if it has them, and the status then."""
    change = _news(status, parts)
    return change, _merged(status, change)


def _news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """The merge patch with which ``before`` says what ``after`` does; empty if it does already."""
    news: Object = {}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(value, Mapping):
            below = _news(known if isinstance(known, Mapping) else {}, value)
            if below or not isinstance(known, Mapping):
                news[key] = below
        elif known != value:
            news[key] = value
    return news


def _merged(before: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """What a merge patch makes of ``before``."""
    after = {key: value for key, value in before.items() if key not in change}
    for key, value in change.items():
        known = before.get(key)
        if isinstance(value, Mapping):
            after[key] = _merged(known if isinstance(known, Mapping) else {}, value)
        elif value is not None:
            after[key] = copy.deepcopy(value)
    return after


async def emit(environment: Environment, body: Object, note: Note) -> None:
    """Make an event about a resource. That it cannot be made is logged, and no reason to stop."""
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
        _log.warning("%s/%s: the event cannot be made: %s", metadata["namespace"], metadata["name"], error)
