"""The loop of one resource: look, do what is next, wait, look again."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod

from spatialstream.model.errors import SpatialStreamError
from spatialstream_operator.cluster import ClusterError
from spatialstream_operator.environment import Environment

__all__ = ["Loop"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Loop(ABC):
    """Looks after one resource until it is stopped, or the resource is gone.

    Args:
        environment: what the operator works with.
        namespace: of the resource.
        name: of the resource.
    """

    def __init__(self, environment: Environment, namespace: str, name: str) -> None:
        self._environment = environment
        self._namespace, self._name = namespace, name
        self._wake = asyncio.Event()
        self._said = ""

    def wake(self) -> None:
        """There is a reason to look at once."""
        self._wake.set()

    async def run(self) -> None:
        """ReconcileContext again and again; returns when the resource is gone or being deleted."""
        environment, failures = self._environment, 0
        self._begun()
        while True:
            began = time.monotonic()
            self._wake.clear()
            try:
                pause = await self._look()
            except Exception as error:  # noqa: BLE001 (whatever is wrong with one resource, it is looked at again)
                failures += 1
                pause = _pause(failures)
                self._log(error)
                outcome = "failed"
            else:
                failures, self._said = 0, ""
                if pause is None:
                    return
                outcome = "waiting" if pause < environment.config.interval else "done"
            self._count(outcome, time.monotonic() - began)
            await self._wait(pause)

    @abstractmethod
    async def _look(self) -> float | None:
        """One look; the seconds until the next one, None if there is to be none."""

    @abstractmethod
    def _begun(self) -> None:
        """The resource is looked after from now on: for the metrics."""

    @abstractmethod
    def _count(self, outcome: str, seconds: float) -> None:
        """A look has ended in one of :data:`~spatialstream_operator.metrics.OUTCOMES`: for the metrics."""

    def _log(self, error: Exception) -> None:
        """What was to be expected in a line, a mistake of the operator's own with where it was made; once each."""
        what = f"{self._namespace}/{self._name}: {type(error).__name__}: {error}"
        if what == self._said:
            return
        self._said = what
        expected = isinstance(error, ClusterError | SpatialStreamError | OSError)
        _log.log(logging.WARNING if expected else logging.ERROR, what, exc_info=None if expected else error)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def _pause(failures: int) -> float:
    """Seconds until the next look, after so many in a row that have failed."""
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, 16)))
