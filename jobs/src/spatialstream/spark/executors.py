"""The executors of a job: as many as the routing store requests.

More executors are requested from the cluster manager; their actors get slots between two rounds. If fewer are wanted,
the newest ones are removed, once their actors hold nothing any more.

Only where Spark runs on a cluster manager; a local session has a fixed number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spatialstream.actors.engine import ActorEngine
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.spark.session import jvm_of
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import asked_executors

__all__ = ["Executors"]


@dataclass(slots=True)
class Executors:
    """Keeps the number of executors at the requested value.

    Attributes:
        session: the Spark session.
        job: ``router`` or ``worker``.
        engine: has the actors that are in the executors.
        store: holds the requested number.
        cores: of one executor.
        observe: called with the number of registered executors, the number of their cores, and the seconds of
            processor time that all have spent on tasks since the last call.
        report: called with messages about changes.
        every: seconds between two checks.
    """

    session: SparkSession
    job: str
    engine: ActorEngine
    store: RoutingStore
    cores: int
    observe: Callable[[int, int, float], object]
    report: Callable[[str], None]
    every: float = 2.0
    _wanted: int | None = None
    _next: float = field(default=0.0)
    _worked: dict[str, float] = field(default_factory=dict)

    def follow(self) -> None:
        """Check, if that is due, and ask the cluster manager for the requested number."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.every
        registered = self._registered()
        self.observe(len(registered), len(registered) * self.cores, self._worked_lately())
        try:
            wanted = asked_executors(self.store, self.job)
        except (StateError, Unavailable):
            return
        if wanted is not None and (wanted != self._wanted or len(registered) > wanted):
            self._scale(wanted, registered)

    def _scale(self, wanted: int, registered: list[str]) -> None:
        spark, surplus = self._context(), registered[wanted:]
        if wanted != self._wanted:
            self.report(f"{wanted} executors are requested, {len(registered)} are registered")
        free = self.engine.retire(surplus)
        try:
            spark.requestTotalExecutors(wanted, 0, jvm_of(self.session).scala.collection.immutable.HashMap())
            if surplus and free:
                names = jvm_of(self.session).java.util.ArrayList()
                for name in surplus:
                    names.add(name)
                spark.killExecutors(jvm_of(self.session).scala.jdk.javaapi.CollectionConverters.asScala(names).toSeq())
                spark.requestTotalExecutors(wanted, 0, jvm_of(self.session).scala.collection.immutable.HashMap())
        except Py4JJavaError as error:
            self.report(f"the number of executors could not be changed: {error.java_exception.getMessage()}")
            return
        self._wanted = wanted

    def _registered(self) -> list[str]:
        """Ids of the executors, oldest first."""
        ids = self._context().getExecutorIds()
        return sorted((ids.apply(i) for i in range(ids.size())), key=int)

    def _worked_lately(self) -> float:
        """Seconds of processor time of actors since the last check."""
        known = {actor.name: sum(actor.worked.values()) for actor in self.engine.observed()}
        new = sum(max(0.0, total - self._worked.get(name, 0.0)) for name, total in known.items())
        self._worked = known
        return new

    def _context(self) -> Any:
        return self.session.sparkContext._jsc.sc()
