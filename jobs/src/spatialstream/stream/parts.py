"""Time of each phase of a turn."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["ROUTER_PARTS", "WORKER_PARTS", "Parts"]

ROUTER_PARTS = ("poll", "ingest", "decide", "again", "route", "announce", "checkpoint", "finish")
"""Phases of an epoch: poll for new records; INGEST; write the record; redo the epochs since the last checkpoint, if
memory is lost; ROUTE; announce; checkpoint the state, if the epoch ends with a checkpoint; delete what is not needed
any more."""

WORKER_PARTS = ("wait", "decide", "again", "work", "second", "checkpoint", "finish", "confirm")
"""Phases of a round: wait for an announcement; write the record; redo the rounds since the last checkpoint, if memory
is lost; WORK and MERGE; a second phase; checkpoint the state, if the round ends with a checkpoint; save the progress;
confirm what slots have prepared."""


@dataclass(slots=True)
class Parts:
    """Measures the phases of a turn, one after the other.

    Attributes:
        clock: returns seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _taken: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _name: str = ""
    _since: float = 0.0

    def begin(self, name: str) -> None:
        """Begin a turn with its first phase."""
        self._taken.clear()
        self._name = ""
        self.step(name)

    def step(self, name: str) -> None:
        """End the current phase, and begin this one."""
        now = self.clock()
        if self._name:
            self._taken[self._name] += now - self._since
        self._name, self._since = name, now

    def end(self) -> Mapping[str, float]:
        """End the turn; returns the seconds of each phase."""
        self.step("")
        return dict(self._taken)
