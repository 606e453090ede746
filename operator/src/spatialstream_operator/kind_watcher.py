"""The places where resources are looked after, each by a Kopf of its own: what fails in one is nothing to the others.

Rights, namespaces and the custom resources themselves come and go while the operator runs, and Kopf as a whole ends by
that. So there is one Kopf for each kind and each namespace that the operator was told of, or for the whole cluster. It
is begun where the resources can be listed, ended where listing them is refused, and begun again when it has ended by
itself. The same lists tell whether its watch is alive (:mod:`spatialstream_operator.watch`); if it is not, it is ended,
and begun again. Should that be no help, the process is found unhealthy (:mod:`spatialstream_operator.health`).
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
"""Looks at a stream between two lists."""
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 20.0
_HEALTHY = 60.0
_DEAD = 60.0
"""Seconds after which a watch that has not shown what is listed is given up."""
_UNSERVED_PAUSE = 1.0
_REFUSALS = frozenset({403, 404, 410})
"""What the API server says where rights, or the resource, are gone. It has answered: starting again would not help."""


@dataclass(slots=True)
class KindWatcher:
    """One place.

    Attributes:
        environment: what the operator works with.
        watch: is told what lists and watches show.
        health: is told when the resources have been listed.
        namespace: the place; None: the whole cluster.
        spawned: called when a Kopf has been begun, which takes the process's signals for itself.
        charge: what is looked after there.
    """

    environment: Environment
    watch: Watch
    health: Health
    namespace: str | None
    spawned: Callable[[], None]
    charge: ResourceKind = STREAMS
    _kopf: asyncio.Task[None] | None = None
    _begun: float = 0.0
    _pause: float = _FIRST_PAUSE
    _unlisted: str = ""
    _ended: str = ""
    _left: bool = False

    async def keep(self) -> None:
        """ReconcileContext after the resources of this place until cancelled, whatever becomes of it meanwhile."""
        self.health.checked(self._place)  # from now on it may not take too long
        try:
            while True:
                if await self._listed():
                    await self._give_up_if_dead()
                    self._begin()
                await self._wait()
        finally:
            await self._end()

    async def _listed(self) -> bool:
        """Compare a list with what the watch has shown; whether Kopf has something to do here."""
        environment, now = self.environment, time.monotonic()
        bodies: list[Object] = []
        problem = ""
        try:
            bodies = await environment.cluster.list(self.charge.kind, self.namespace)
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
            environment.metrics.served.labels(self.namespace or "*", self.charge.kind).set(1)
        self.watch.list(bodies, now, self._place)
        self.health.checked(self._place)
        environment.metrics.watch_lag.set(self.watch.lag(time.monotonic()))
        return not problem

    def _say(self, problem: str) -> None:
        """Log why nothing can be listed when that begins, changes or ends, not each time that it is met."""
        if problem and problem != self._unlisted:
            _log.warning("%s: %s cannot be listed: %s", self._where, self.charge.plural, problem)
        if self._unlisted and not problem:
            _log.info("%s: %s can be listed again", self._where, self.charge.plural)
        self._unlisted = problem

    @property
    def _place(self) -> tuple[str, str | None]:
        return self.charge.kind, self.namespace

    @property
    def _where(self) -> str:
        return self.namespace or "all namespaces"

    async def _leave(self) -> None:
        """There is nothing to be done here for now: end Kopf, and let go of what is held for the resources."""
        if self._left:
            return
        self._left = True
        await self._end()
        await self.charge.leave(self.environment, self.namespace)
        self.environment.metrics.served.labels(self.namespace or "*", self.charge.kind).set(0)

    # -------------------------------------------------------------------------------------------------------- its Kopf

    async def _give_up_if_dead(self) -> None:
        """End a Kopf whose watch does not show what is listed; it may have shown nothing ever since it was begun."""
        now = time.monotonic()
        lag = self.watch.lag(now, self._place)
        if self._kopf is not None and min(lag, now - self._begun) > _DEAD:
            where, what = self._where, self.charge.plural
            _log.warning(
                "%s: the watch has not shown for %.0f s what a list of %s shows: it begins again", where, lag, what
            )
            await self._end()

    def _begin(self) -> None:
        if self._kopf is None:
            self._begun = time.monotonic()
            self._kopf = asyncio.create_task(self._run(), name=f"kopf of {self.charge.plural} of {self._where}")

    async def _wait(self) -> None:
        """Until it is time for another list; sooner if Kopf ends, to begin it again."""
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
                where, what = self._where, self.charge.plural
                _log.warning("%s: watching %s has ended, and begins again: %s", where, what, why)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _end(self) -> None:
        if self._kopf is not None:
            ended, self._kopf = self._kopf, None
            ended.cancel()
            await asyncio.wait({ended})
            _cause(ended)  # which does not matter: it was to end

    async def _run(self) -> None:
        """Run Kopf until it fails.

        Not by its own ``run_tasks``, which in the end cancels all tasks that have come into being meanwhile: those of
        other places among them. Kopf asks once which resources there are, and would watch nothing, for ever and without
        an error, if it were not told then of the one that it is for.
        """
        handlers = Handlers(self.environment, self.watch, self.charge)
        while "patch" not in (verbs := await self.environment.cluster.verbs(self.charge.kind)):
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
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()


def _cause(ended: asyncio.Task[None]) -> str:
    """Why a Kopf has ended."""
    error = None if ended.cancelled() else ended.exception()
    return "" if error is None else f"{type(error).__name__}: {error}"
