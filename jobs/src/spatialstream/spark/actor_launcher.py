"""Launches actors as the tasks of one long-running Spark job.

Spark starts them where a core is free, and replaces those that have gone.

The job has as many tasks as the stream may ever have actors. Tasks without a core wait in Spark's queue, so a new
executor gets one at once. If the job fails as a whole, because a local session does not retry tasks, it is started
again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spatialstream.actors.actor import ActorSpec, run_actor
from spatialstream.model.errors import RunError
from spatialstream.spark.failures import explained
from spatialstream.stages import views
from spatialstream.stages.state import forget

__all__ = ["SparkActorLauncher", "spark_ended", "stop_spark"]

_DRIVER, _OPTION = "driver", "--executor-id"
_END_SECONDS = 3.0
_AGAIN_SECONDS = 0.2
_SOON_SECONDS, _PATIENCE = 10.0, 4
"""A job that fails so soon after its start, so often in a row, is given up."""


class SparkActorLauncher:
    """See :class:`~spatialstream.actors.engine.ActorLauncher`.

    Args:
        session: the Spark session.
        count: number of actors; None: one for each core.
        name: of the job, as shown to people.
    """

    def __init__(self, session: SparkSession, count: int | None = None, name: str = "actors") -> None:
        self._session, self._name = session, name
        self._count = count or session.sparkContext.defaultParallelism
        self._tag = f"spatialstream-actors-{id(self)}"
        self._ending = threading.Event()
        self._job: threading.Thread | None = None
        self._failures, self._failure = 0, ""

    @property
    def host(self) -> str:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        return str(self._session.sparkContext.getConf().get("spark.driver.host"))

    @property
    def count(self) -> int:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        return self._count

    def begin(self, spec: ActorSpec) -> None:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        self._job = threading.Thread(target=self._keep, args=(spec,), name="actors", daemon=True)
        self._job.start()

    def _keep(self, spec: ActorSpec) -> None:
        """Run the job, and start it again when it has failed."""

        def actor(number: int, nothing: Iterable[int]) -> Iterable[int]:
            try:
                run_actor(spec, number, _executor())
            finally:  # Spark may use this process for other work
                forget(spec.world.storage)
                views.forget(spec.world.storage.place)
            return ()

        context = self._session.sparkContext
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                context.addJobTag(self._tag)
                context.setJobDescription(f"{self._name}: processes that stay until the stream ends")
                context.parallelize(range(self._count), self._count).mapPartitionsWithIndex(actor).count()
                return  # the actors have been told to exit
            except (Py4JError, PySparkException, OSError) as error:
                if self._ending.is_set() or spark_ended(self._session):
                    return
                soon = time.monotonic() - began < _SOON_SECONDS
                self._failures, self._failure = self._failures + 1 if soon else 1, str(error)
                self._ending.wait(_AGAIN_SECONDS)

    def check(self) -> None:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        if spark_ended(self._session):
            raise RunError("lost Spark: its process or its context has ended")
        if self._failures >= _PATIENCE:
            raise explained(self._failure)

    def end(self) -> None:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        self._ending.set()
        if self._job is not None and not spark_ended(self._session):
            self._job.join(_END_SECONDS)
            if self._job.is_alive():
                self._session.sparkContext.cancelJobsWithTag(self._tag)
                self._job.join(_END_SECONDS)


def _executor() -> str:
    """The id of the executor of this process; "driver" if there is none but the driver.

    Spark does not tell its Python tasks. In a pod the id is in the environment. Elsewhere the executor is the parent of
    the daemon from which this process was forked, and has the id in its command line.
    """
    if known := os.environ.get("SPARK_EXECUTOR_ID"):
        return known
    try:
        _, _, parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")
        words = Path(f"/proc/{parent.split()[1]}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # there is no /proc
        return _DRIVER
    return words[words.index(_OPTION) + 1] if _OPTION in words else _DRIVER


def spark_ended(session: SparkSession) -> bool:
    """Whether a session's JVM has exited, or its context was stopped, which Spark does by itself after some errors."""
    context: Any = session.sparkContext
    process = getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def stop_spark(session: SparkSession) -> None:
    """Stop a session, unless it has ended already: the resulting error would hide why the job ends."""
    if not spark_ended(session):
        session.stop()
