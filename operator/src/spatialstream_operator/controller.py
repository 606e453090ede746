"""The loop of one stream: look, do what is next, wait, look again.

A look is an ordered list of small steps (:mod:`spatialstream_operator.steps`). All that it decides by is read anew each
time: the resource, its pods, the routing store, Prometheus. So it does not matter which changes were seen and which
were not, or how often an operator has been started in between.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from spatialstream.model.errors import SettingError, SpatialStreamError
from spatialstream_operator.cluster import ApiError, ClusterError, Object
from spatialstream_operator.decisions.rebalancing_state import Phase, State
from spatialstream_operator.environment import Environment
from spatialstream_operator.look import Look
from spatialstream_operator.memory import Memory
from spatialstream_operator.names import KIND, StreamNames
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.beating import beat
from spatialstream_operator.steps.belongings import apply_belongings
from spatialstream_operator.steps.checking import check_pods
from spatialstream_operator.steps.drivers import keep_drivers
from spatialstream_operator.steps.executors import miss_executors
from spatialstream_operator.steps.measuring import measure
from spatialstream_operator.steps.rebalancing import rebalance
from spatialstream_operator.steps.refusing import refuse
from spatialstream_operator.steps.rejects import watch_rejects
from spatialstream_operator.steps.routing import read_routing
from spatialstream_operator.steps.scaling import scale
from spatialstream_operator.steps.telling import tell
from spatialstream_operator.steps.topics import check_topics

__all__ = ["STEPS", "Controller"]

_log = logging.getLogger(__name__)

STEPS: Sequence[Callable[[Look], Awaitable[None]]] = (
    check_topics,
    apply_belongings,
    check_pods,
    keep_drivers,
    read_routing,
    measure,
    scale,
    miss_executors,
    watch_rejects,
    rebalance,
    tell,
)

_MOVING = frozenset({Phase.PROPOSING, Phase.PUBLISHING, Phase.ADOPTING, Phase.WITHDRAWING})
_BUSY = 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Controller:
    """Looks after one stream until it is stopped, or the stream is gone.

    Args:
        environment: what the operator works with.
        namespace: of the SpatialStream.
        name: of the SpatialStream.
    """

    def __init__(self, environment: Environment, namespace: str, name: str) -> None:
        self._environment = environment
        self._namespace, self._name = namespace, name
        self._memory = Memory()
        self._said = ""

    def wake(self) -> None:
        """There is a reason to look at once."""
        self._memory.wake.set()

    async def run(self) -> None:
        """Look again and again; returns when the stream is gone or being deleted."""
        environment, failures = self._environment, 0
        environment.metrics.begin(self._namespace, self._name, [phase.value for phase in Phase])
        while True:
            began = time.monotonic()
            self._memory.wake.clear()
            try:
                pause = await self._look()
            except Exception as error:  # noqa: BLE001 (whatever is wrong with one stream, it is looked at again)
                failures += 1
                pause = _pause(failures)
                self._log(error)
                self._count("failed")
            else:
                failures, self._said = 0, ""
                if pause is None:
                    return
                self._count("waiting" if pause < environment.config.interval else "done")
            environment.metrics.seconds.observe(time.monotonic() - began)
            await self._wait(pause)

    def _log(self, error: Exception) -> None:
        """What was to be expected in a line, a mistake of the operator's own with where it was made; once each."""
        what = f"{self._namespace}/{self._name}: {type(error).__name__}: {error}"
        if what == self._said:
            return
        self._said = what
        expected = isinstance(error, ClusterError | SpatialStreamError | OSError)
        _log.log(logging.WARNING if expected else logging.ERROR, what, exc_info=None if expected else error)

    def _count(self, outcome: str) -> None:
        self._environment.metrics.reconciles.labels(self._namespace, self._name, outcome).inc()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._memory.wake.wait()
        except TimeoutError:
            return

    async def _look(self) -> float | None:
        """One look; the seconds until the next one, None if there is to be none."""
        body = await self._environment.cluster.get(KIND, self._name, self._namespace)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        try:
            spec = StreamSpec.parse(body["spec"], self._environment.defaults)
            look = self._begin(body, spec, StreamNames(self._namespace, self._name))
            for step in STEPS:
                await step(look)
        except SettingError as error:
            await refuse(self._environment, body, "SpecRefused", str(error))
            await beat(self._environment, body)
            return self._environment.config.interval
        except ApiError as error:
            if error.is_forbidden:
                await refuse(self._environment, body, "Refused", f"A right of the operator is missing: {error}")
            raise
        busy = any(job.state not in ("running", "stuck") for job in look.jobs.values()) and not spec.suspend
        moving = State.from_status(look.part("rebalance")).phase in _MOVING
        return min(_BUSY, self._environment.config.interval) if busy or moving else self._environment.config.interval

    def _begin(self, body: Object, spec: StreamSpec, names: StreamNames) -> Look:
        status = copy.deepcopy(body.get("status") or {})
        return Look(self._environment, names, body, spec, status, self._memory, self._environment.now())


def _pause(failures: int) -> float:
    """Seconds until the next look, after so many in a row that have failed."""
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, 16)))
