"""What of a turn takes how long."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["ROUTER_PARTS", "WORKER_PARTS", "Parts"]

ROUTER_PARTS = ("look", "ingest", "decide", "again", "route", "announce", "checkpoint", "finish")
"""Of an epoch: what is new; INGEST; the record; epochs since the last checkpoint, where memory is lost; ROUTE; the
announcement; the state, if the epoch ends with a checkpoint; what is not needed any more."""

WORKER_PARTS = ("wait", "decide", "again", "work", "second", "checkpoint", "finish", "confirm")
"""Of a round: the wait for an announcement; the record; rounds since the last checkpoint, where memory is lost; WORK
and MERGE; a second phase; the state, if the round ends with a checkpoint; progress; what slots have prepared."""


@dataclass(slots=True)
class Parts:
    """Clocks the parts of a turn, one after the other.

    Attributes:
        clock: gives seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _taken: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _name: str = ""
    _since: float = 0.0

    def begin(self, name: str) -> None:
        """Begin a turn, with a part of it."""
        self._taken.clear()
        self._name = ""
        self.step(name)

    def step(self, name: str) -> None:
        """The part before ends, and this one begins."""
        now = self.clock()
        if self._name:
            self._taken[self._name] += now - self._since
        self._name, self._since = name, now

    def end(self) -> Mapping[str, float]:
        """The turn is over; seconds of each of its parts."""
        self.step("")
        return dict(self._taken)
