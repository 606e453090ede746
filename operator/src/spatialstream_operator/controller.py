"""The reconciliation of one stream.

A reconciliation is an ordered list of small steps (:mod:`spatialstream_operator.steps`). It is level-triggered: every
input is read again each time (the resource, its pods, the routing store, Prometheus). So it does not matter which
changes were missed, or how often the operator was restarted in between.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence

from spatialstream.model.errors import SettingError
from spatialstream_operator.cluster import ApiError, Object
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.known_fields import check_fields
from spatialstream_operator.decisions.rebalancing_state import Phase, State
from spatialstream_operator.environment import Environment
from spatialstream_operator.loop import Loop
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import KIND, StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.beating import beat
from spatialstream_operator.steps.checking import check_pods
from spatialstream_operator.steps.dependents import apply_dependents
from spatialstream_operator.steps.drivers import keep_drivers
from spatialstream_operator.steps.executors import miss_executors
from spatialstream_operator.steps.measuring import measure
from spatialstream_operator.steps.permitting import check_permissions
from spatialstream_operator.steps.rebalancing import rebalance
from spatialstream_operator.steps.refusing import refuse, unready
from spatialstream_operator.steps.rejects import watch_rejects
from spatialstream_operator.steps.routing import read_routing
from spatialstream_operator.steps.scaling import scale
from spatialstream_operator.steps.status import write_status
from spatialstream_operator.steps.topics import check_topics
from spatialstream_operator.steps.trying import try_image

__all__ = ["STEPS", "Controller"]

STEPS: Sequence[Callable[[ReconcileContext], Awaitable[None]]] = (
    check_permissions,
    check_topics,
    try_image,
    apply_dependents,
    check_pods,
    keep_drivers,
    read_routing,
    measure,
    scale,
    miss_executors,
    watch_rejects,
    rebalance,
    write_status,
)

_MOVING = frozenset({Phase.PROPOSING, Phase.PUBLISHING, Phase.ADOPTING, Phase.WITHDRAWING})
_BUSY = 2.0


class Controller(Loop):
    """Reconciles one stream until it is stopped, or the stream is gone."""

    def __init__(self, environment: Environment, namespace: str, name: str) -> None:
        super().__init__(environment, namespace, name)
        self._memory = Memory()

    def begun(self) -> None:
        """Begin the metrics of the stream."""
        self._environment.metrics.begin(self._namespace, self._name, [phase.value for phase in Phase])

    def _count(self, outcome: str, seconds: float) -> None:
        metrics = self._environment.metrics
        metrics.reconciles.labels(self._namespace, self._name, outcome).inc()
        metrics.seconds.observe(seconds)

    async def reconcile(self) -> float | None:
        """Reconcile the stream once; see :class:`~spatialstream_operator.loop.Loop`."""
        body = await self._environment.cluster.get(KIND, self._name, self._namespace)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        try:
            check_fields(KIND, body)
            spec = StreamSpec.parse(body["spec"], self._environment.defaults)
            context = self._begin(body, spec, StreamNames(self._namespace, self._name))
            for step in STEPS:
                await step(context)
        except SettingError as error:
            besides = await unready(self._environment, body)
            await refuse(self._environment, body, "SpecRefused", str(error), besides)
            await beat(self._environment, body)
            return self._environment.config.interval
        except ApiError as error:
            if error.is_forbidden:
                await refuse(self._environment, body, "Refused", f"The operator lacks a permission: {error}")
            raise
        busy = any(job.state not in ("running", "stuck") for job in context.jobs.values()) and not spec.suspend
        moving = State.from_status(context.part("rebalance")).phase in _MOVING
        soon = busy or moving or context.image is not None
        return min(_BUSY, self._environment.config.interval) if soon else self._environment.config.interval

    def _begin(self, body: Object, spec: StreamSpec, names: StreamNames) -> ReconcileContext:
        status = copy.deepcopy(body.get("status") or {})
        return ReconcileContext(self._environment, names, body, spec, status, self._memory, self._environment.now())
