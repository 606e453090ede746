"""The newest round, as an actor knows it without asking the driver for each query.

A round is done when every slot has done it, and a slot that has done a round has a view of it. So the read point that
the driver has published stays valid as long as some slot of this actor has no view of another round: no other round can
be done meanwhile. There is one exception: another actor may have got the slot by now. Therefore an actor is *trusted*
for a limited time after each heartbeat (:func:`trust`), as with a lease; and after an actor has gone, or has not
released a slot that has moved, the driver publishes no further round before that time is over
(:class:`~spatialstream.actors.registry.ActorRegistry`). So an actor answers what the driver would have answered at some
moment during the query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import Gone, Missing
from spatialstream.stages.routing import PastVersion, Routing
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import NEVER, Round
from spatialstream.stages.versions import load_version
from spatialstream.stages.views import RoundId, newest_view

__all__ = ["LocatedReadPoint", "PublishedReadPoint", "ReadPoint", "ReadPoints", "heartbeat_interval", "trust"]

_HEARTBEAT_SECONDS = 1.0


def heartbeat_interval(heartbeat_timeout: float) -> float:
    """Seconds between two heartbeats of an actor, given the heartbeat timeout."""
    return min(_HEARTBEAT_SECONDS, heartbeat_timeout / 10)


def trust(heartbeat_timeout: float) -> float:
    """Seconds for which an actor is trusted after a heartbeat: its next heartbeat comes earlier."""
    return 1.5 * heartbeat_interval(heartbeat_timeout)


@dataclass(frozen=True, slots=True, eq=False)
class ReadPoint:
    """What is needed to query a stream: the newest round that is done.

    Attributes:
        round: its number and revision.
        clock: the watermark: all records with this timestamp or an earlier one have arrived.
        routing: where objects are.
    """

    round: RoundId
    clock: int
    routing: Routing

    @property
    def begun(self) -> bool:
        """Whether the watermark has a value: before, nothing is known of any time."""
        return self.clock > NEVER

    @property
    def as_of(self) -> dict[str, int]:
        """As answers say it."""
        return {"round": self.round[0], "clock": self.clock}

    @staticmethod
    def record(turn: Round) -> dict[str, Any]:
        """A round that is done, as JSON, for :meth:`of`."""
        return {
            "round": [turn.number, turn.revision],
            "clock": turn.watermark,
            "version": turn.version,
            "past": [list(each) for each in turn.past],
        }

    @classmethod
    def of(cls, record: Mapping[str, Any], load: Callable[[int], RoutingVersion]) -> ReadPoint:
        """From :meth:`record`, and a function that loads a version by its number."""
        past = tuple(PastVersion(load(number), first, last) for number, first, last in record["past"])
        number, revision = record["round"]
        return cls((number, revision), record["clock"], Routing(load(record["version"]), past=past, two_phase=True))


class PublishedReadPoint:
    """The read point that the driver publishes; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Mapping[str, Any] | None = None
        self._next: tuple[float, Mapping[str, Any]] | None = None

    def tell(self, record: Mapping[str, Any], after: float) -> None:
        """Publish a read point from a time on, s of the monotonic clock; replaces one that is not published yet."""
        with self._lock:
            self._settle()
            self._next = after, record

    @property
    def now(self) -> Mapping[str, Any] | None:
        """The published read point; None: no round is done."""
        with self._lock:
            self._settle()
            return self._now

    def _settle(self) -> None:
        if self._next is not None and time.monotonic() >= self._next[0]:
            self._now, self._next = self._next[1], None


@dataclass(frozen=True, slots=True, eq=False)
class LocatedReadPoint:
    """A read point, and where the slots are.

    Attributes:
        read_point: of the newest round.
        actors: the address of the actor of each slot, without slots that are moving.
    """

    read_point: ReadPoint
    actors: Mapping[int, str]

    @classmethod
    def of(cls, record: Mapping[str, Any], world: World) -> LocatedReadPoint:
        """From the answer of :class:`~spatialstream.actors.registry.ActorRegistry`."""
        actors = {int(slot): address for slot, address in record["actors"].items() if address}
        return cls(ReadPoint.of(record, partial(load_version, world.storage)), actors)


class ReadPoints:
    """Provides the newest read point; thread-safe.

    Args:
        world: of the actor.
        address: of the actor.
        ask: asks the driver, with a timeout in seconds; None: no round is done.
        trusted: until when the actor is trusted, s of the monotonic clock.
    """

    def __init__(
        self,
        world: World,
        address: str,
        ask: Callable[[float], Mapping[str, Any] | None],
        trusted: Callable[[], float],
    ) -> None:
        self._world, self._address, self._ask, self._trusted = world, address, ask, trusted
        self._known: LocatedReadPoint | None = None

    def __call__(self, seconds: float) -> LocatedReadPoint | None:
        """The read point that the driver publishes, or would publish; None: no round is done.

        Args:
            seconds: timeout of the driver's answer.

        Raises:
            Unavailable: the driver does not answer, or a version has been removed after it had.
        """
        located = self.certain()
        if located is not None:
            return located
        told = self._ask(seconds)
        try:
            self._known = located = None if told is None else LocatedReadPoint.of(told, self._world)
        except Missing:
            raise Gone("the stream has advanced meanwhile: try again") from None
        return located

    def certain(self) -> LocatedReadPoint | None:
        """The read point, if it is certain without the driver that no other round has been done since."""
        known = self._known
        return known if known is not None and self._holds(known) else None

    def doubt(self) -> None:
        """Ask the driver next time: something was not where the read point said."""
        self._known = None

    def _holds(self, known: LocatedReadPoint) -> bool:
        """Whether no other round can have been done since."""
        mine = next((slot for slot, address in known.actors.items() if address == self._address), None)
        if mine is None or newest_view(self._world.storage.place, mine) != known.read_point.round:
            return False
        return time.monotonic() < self._trusted()  # the clock last: it was so when the view was looked at
