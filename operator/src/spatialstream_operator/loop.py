"""The reconciliation loop of one resource: reconcile, wait, repeat."""

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
    """Reconciles one resource until it is stopped, or the resource is gone.

    Args:
        environment: shared clients and settings.
        namespace: namespace of the resource.
        name: name of the resource.
    """

    def __init__(self, environment: Environment, namespace: str, name: str) -> None:
        self._environment = environment
        self._namespace, self._name = namespace, name
        self._wake = asyncio.Event()
        self._stopping = False
        self._said = ""

    def wake(self) -> None:
        """Request a reconciliation at once."""
        self._wake.set()

    def stop(self) -> None:
        """Request that :meth:`run` returns once the reconciliation under way has ended."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Reconcile repeatedly; returns when stopped, or when the resource is gone or being deleted."""
        environment, failures = self._environment, 0
        self.begun()
        while not self._stopping:
            began = time.monotonic()
            self._wake.clear()
            try:
                pause = await self.reconcile()
            except Exception as error:  # noqa: BLE001 (whatever fails, the resource is reconciled again)
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
            if not self._stopping:
                await self._wait(pause)

    @abstractmethod
    async def reconcile(self) -> float | None:
        """Reconcile once; return the seconds until the next reconciliation, None if there is none."""

    @abstractmethod
    def begun(self) -> None:
        """Called when the loop starts, to initialise metrics."""

    @abstractmethod
    def _count(self, outcome: str, seconds: float) -> None:
        """Count a reconciliation with one of :data:`~spatialstream_operator.metrics.OUTCOMES`."""

    def _log(self, error: Exception) -> None:
        """Log an expected error on one line, a bug with its traceback; repeated errors only once."""
        message = f"{self._namespace}/{self._name}: {type(error).__name__}: {error}"
        if message == self._said:
            return
        self._said = message
        expected = isinstance(error, ClusterError | SpatialStreamError | OSError)
        _log.log(logging.WARNING if expected else logging.ERROR, message, exc_info=None if expected else error)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def _pause(failures: int) -> float:
    """Seconds until the next reconciliation, after a number of consecutive failures."""
    return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, 16)))
