"""Probes: ``/healthz``: whether the operator is healthy; ``/readyz``: whether it reconciles streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from aiohttp import web

from spatialstream_operator.watch import Watch

__all__ = ["Health"]

_DEAD = 120.0
_STALLED = 180.0


class Health:
    """The state that the probes report.

    Args:
        watch: the watch that must be alive.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, watch: Watch, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch, self._clock = watch, clock
        self._checked: dict[Hashable, float] = {}
        self.ready = False

    def checked(self, place: Hashable = None) -> None:
        """Record that the API server has just listed the resources of a place, or refused to.

        A refusal counts too: a restart would not bring missing permissions back.
        """
        self._checked[place] = self._clock()

    def problem(self) -> str:
        """Why the operator should be restarted; "" if there is no reason."""
        lag = self._watch.lag(self._clock())
        if lag > _DEAD:
            return f"the watch has been missing listed changes for {lag:.0f} s"
        silent = self._clock() - min(self._checked.values(), default=self._clock())
        return f"resources have not been listed for {silent:.0f} s" if silent > _STALLED else ""

    async def serve(self, port: int) -> web.AppRunner:
        """Serve both endpoints until the runner is cleaned up."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, None, port).start()
        return runner

    async def _healthz(self, _: web.Request) -> web.Response:
        problem = self.problem()
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        problem = self.problem() or ("" if self.ready else "waiting for the lease")
        return web.Response(status=503 if problem else 200, text=f"{problem or 'ok'}\n")
