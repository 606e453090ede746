"""Watchers of one kind of resource in one namespace, each with its own instance of Kopf, so that failures are isolated.

Permissions, namespaces and the custom resource definitions may come and go while the operator runs, and that ends a
whole Kopf instance. So there is one instance for each kind and each configured namespace (or the whole cluster). It is
started once the resources can be listed, stopped when listing is refused, and restarted when it has ended by itself.
The same lists show whether its watch is alive (:mod:`spatialstream_operator.watch`); if not, the instance is restarted.
If that does not help, the process becomes unhealthy (:mod:`spatialstream_operator.health`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import kopf

from spatialstream_operator.cluster import ClusterError, Object
from spatialstream_operator.environment import Environment
from spatialstream_operator.handlers import STREAMS, Handlers, ResourceKind, settings
from spatialstream_operator.health import Health
from spatialstream_operator.watch import Watch

__all__ = ["KindWatcher"]

_log = logging.getLogger(__name__)

_INTERVALS = 4
"""Number of reconciliation intervals between two lists."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 20.0
_HEALTHY = 60.0
DEAD = 60.0
"""Seconds for which a watch may miss a listed change before its Kopf is restarted."""
_UNSERVED_PAUSE = 1.0
_REFUSALS = frozenset({403, 404, 410})
"""Statuses of the API server if permissions, or the kind, are missing. It is reachable, so a restart would not help."""


@dataclass(slots=True)
class KindWatcher:
    """The watcher of one kind in one namespace.

    Attributes:
        environment: shared clients and settings.
        watch: records what lists and watches show.
        health: records when the resources have been listed.
        namespace: the namespace; None: the whole cluster.
        spawned: called after Kopf has been started, because Kopf installs its own signal handlers.
        resource: the kind of resource.
    """

    environment: Environment
    watch: Watch
    health: Health
    namespace: str | None
    spawned: Callable[[], None]
    resource: ResourceKind = STREAMS
    _kopf: asyncio.Task[None] | None = None
    _begun: float = 0.0
    _pause: float = _FIRST_PAUSE
    _unlisted: str = ""
    _ended: str = ""
    _left: bool = False

    async def keep(self) -> None:
        """Manage the resources of this kind and namespace until cancelled."""
        self.health.checked(self._place)  # starts the health timeout
        try:
            while True:
                if await self._listed():
                    await self._give_up_if_dead()
                    self._begin()
                await self._wait()
        finally:
            await self._end()

    async def _listed(self) -> bool:
        """List the resources and compare them with what the watch has shown; True if they can be listed."""
        environment, now = self.environment, time.monotonic()
        bodies: list[Object] = []
        problem = ""
        try:
            bodies = await environment.cluster.list(self.resource.kind, self.namespace)
        except ClusterError as error:
            problem = str(error)
            if error.code not in _REFUSALS:
                self._say(problem)
                return False
        self._say(problem)
        if problem:
            await self._leave()
        else:
            self._left = False
            environment.metrics.served.labels(self.namespace or "*", self.resource.kind).set(1)
        self.watch.list(bodies, now, self._place)
        self.health.checked(self._place)
        environment.metrics.watch_lag.set(self.watch.lag(time.monotonic()))
        return not problem

    def _say(self, problem: str) -> None:
        """Log the reason why listing fails when it begins, changes or ends, not each time."""
        if problem and problem != self._unlisted:
            _log.warning("%s: %s cannot be listed: %s", self._where, self.resource.plural, problem)
        if self._unlisted and not problem:
            _log.info("%s: %s can be listed again", self._where, self.resource.plural)
        self._unlisted = problem

    @property
    def _place(self) -> tuple[str, str | None]:
        return self.resource.kind, self.namespace

    @property
    def _where(self) -> str:
        return self.namespace or "all namespaces"

    async def _leave(self) -> None:
        """Stop Kopf, and release what is held for the resources, because they cannot be listed for now."""
        if self._left:
            return
        self._left = True
        await self._end()
        await self.resource.leave(self.environment, self.namespace)
        self.environment.metrics.served.labels(self.namespace or "*", self.resource.kind).set(0)

    # -------------------------------------------------------------------------------------------------------- its Kopf

    async def _give_up_if_dead(self) -> None:
        """Stop a Kopf whose watch misses listed changes; it may have shown nothing since it was started."""
        now = time.monotonic()
        lag = self.watch.lag(now, self._place)
        if self._kopf is not None and min(lag, now - self._begun) > DEAD:
            where, what = self._where, self.resource.plural
            _log.warning(
                "%s: the watch has been missing listed changes for %.0f s: restarting the watch of %s", where, lag, what
            )
            await self._end()

    def _begin(self) -> None:
        if self._kopf is None:
            self._begun = time.monotonic()
            self._kopf = asyncio.create_task(self._run(), name=f"kopf of {self.resource.plural} of {self._where}")

    async def _wait(self) -> None:
        """Wait until the next list is due, or until Kopf ends, so that it is restarted."""
        pause = _INTERVALS * self.environment.config.interval
        if self._kopf is None:
            await asyncio.sleep(pause)
            return
        done, _ = await asyncio.wait({self._kopf}, timeout=pause)
        if time.monotonic() - self._begun > _HEALTHY:
            self._ended, self._pause = "", _FIRST_PAUSE
        if done:
            why, self._kopf = _cause(self._kopf), None
            if why != self._ended:
                self._ended = why
                where, what = self._where, self.resource.plural
                _log.warning("%s: the watch of %s has ended, restarting it: %s", where, what, why)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _end(self) -> None:
        if self._kopf is not None:
            ended, self._kopf = self._kopf, None
            ended.cancel()
            await asyncio.wait({ended})
            _cause(ended)  # retrieves the exception, which does not matter here

    async def _run(self) -> None:
        """Run Kopf until it fails.

        This does not use Kopf's ``run_tasks``, which finally cancels all tasks that were created meanwhile, including
        those of other watchers. Kopf discovers resources only once; if its kind were not served then, it would watch
        nothing, forever and without an error. So this waits until the kind is served.
        """
        handlers = Handlers(self.environment, self.watch, self.resource)
        while "patch" not in (verbs := await self.environment.cluster.verbs(self.resource.kind)):
            if verbs:
                await handlers.remove_without_kopf(self.namespace)
            await asyncio.sleep(_UNSERVED_PAUSE)
        tasks: Collection[asyncio.Task[Any]] = await kopf.spawn_tasks(
            registry=handlers.registry(),
            settings=settings(),
            clusterwide=self.namespace is None,
            namespaces=() if self.namespace is None else (self.namespace,),
            standalone=True,
        )
        self.spawned()
        try:
            finished, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
        for task in finished:
            task.result()


def _cause(ended: asyncio.Task[None]) -> str:
    """Why a Kopf instance has ended."""
    error = None if ended.cancelled() else ended.exception()
    return "" if error is None else f"{type(error).__name__}: {error}"
