"""The newest round, as a seat knows it without asking the driver for each question.

A round is done when every slot has done it, and a slot that has done a round has a view of it. So what the driver has
told of the newest round holds as long as a slot of this seat has no view of another one: none can be done meanwhile.
One case is left, that the slot is another seat's by now. Therefore a seat is *trusted* for a time with each hello
(:func:`trust`), as with a lease; and after a seat has gone, or has not let go of a slot that has moved, the driver
tells of no further round before that time is over (:class:`~spatialstream.seats.desk.Desk`). So a seat says what the
driver would have said, at some moment while it was asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from spatialstream.stages.questions import Directory
from spatialstream.stages.tasks import World
from spatialstream.stages.versions import load_version
from spatialstream.stages.views import newest_view

__all__ = ["Known", "Newest", "Published", "hello_pause", "trust"]

_HELLO_SECONDS = 1.0


def hello_pause(silence: float) -> float:
    """Seconds between two hellos of a seat, of those after which one that says nothing is lost."""
    return min(_HELLO_SECONDS, silence / 10)


def trust(silence: float) -> float:
    """Seconds for which a seat is trusted with a hello: it says the next one before they are over."""
    return 1.5 * hello_pause(silence)


class Published:
    """What the driver tells of the newest round; any number of threads may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Mapping[str, Any] | None = None
        self._next: tuple[float, Mapping[str, Any]] | None = None

    def tell(self, record: Mapping[str, Any], after: float) -> None:
        """Tell this from then on, s of the monotonic clock; nothing that was to be told before is told any more."""
        with self._lock:
            self._settle()
            self._next = after, record

    @property
    def now(self) -> Mapping[str, Any] | None:
        """What is told; None: no round is done."""
        with self._lock:
            self._settle()
            return self._now

    def _settle(self) -> None:
        if self._next is not None and time.monotonic() >= self._next[0]:
            self._now, self._next = self._next[1], None


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What the driver has told.

    Attributes:
        directory: of the newest round.
        seats: the address of the seat of each slot; not of those that are moving.
    """

    directory: Directory
    seats: Mapping[int, str]

    @classmethod
    def of(cls, told: Mapping[str, Any], world: World) -> Known:
        """From what :class:`~spatialstream.seats.desk.Desk` tells."""
        seats = {int(slot): address for slot, address in told["seats"].items() if address}
        return cls(Directory.of(told, partial(load_version, world.storage)), seats)


class Newest:
    """Tells the newest round; any number of threads may ask.

    Args:
        world: of the seat.
        address: of the seat.
        ask: asks the driver, within so many seconds; None: no round is done.
        trusted: until when the seat is trusted, s of the monotonic clock.
    """

    def __init__(
        self,
        world: World,
        address: str,
        ask: Callable[[float], Mapping[str, Any] | None],
        trusted: Callable[[], float],
    ) -> None:
        self._world, self._address, self._ask, self._trusted = world, address, ask, trusted
        self._known: Known | None = None

    def __call__(self, seconds: float) -> Known | None:
        """What the driver tells, or would tell; None: no round is done.

        Args:
            seconds: within which it has to say so.

        Raises:
            Unavailable: it does not.
        """
        known = self._known
        if known is not None and self._holds(known):
            return known
        told = self._ask(seconds)
        self._known = known = None if told is None else Known.of(told, self._world)
        return known

    def doubt(self) -> None:
        """Ask the driver the next time: something was not where it should have been."""
        self._known = None

    def _holds(self, known: Known) -> bool:
        """Whether no other round can have been done since."""
        mine = next((slot for slot, address in known.seats.items() if address == self._address), None)
        if mine is None or newest_view(self._world.storage.place, mine) != known.directory.round:
            return False
        return time.monotonic() < self._trusted()  # the clock last: it was so when the view was looked at
