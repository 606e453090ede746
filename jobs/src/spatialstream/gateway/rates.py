"""How much a client may have done in a time, so that one alone does not take what is there for all.

A *token bucket* in the form of the generic cell rate algorithm (ITU-T I.371): of each client one number is kept, the
time at which all that it has had would be paid for at its rate. Who is ahead of that by more than the burst is refused,
and told when to come again. What costs much may be had by whoever is not behind, and is paid for afterwards.

Of what there are few of, a client has a part, and who has had one for long gives it to who waits (:class:`Turns`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from spatialstream.gateway.problems import Problem

__all__ = ["RateLimits", "Rates", "Turn", "Turns"]

_REMEMBERED = 10_000
"""Clients; beyond them those are forgotten that have nothing to pay."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What a client may have: whoever bears a token, or without tokens an address.

    Attributes:
        rate: requests a second, of which each question of a batch is one; 0: any number.
        burst: seconds' worth of them at once.
        connections: that follow results, by events or polls, or objects as they pass, at the same time.
    """

    rate: float = 1_000.0
    burst: float = 2.0
    connections: int = 1_000


class Rates:
    """Counts what clients do; used in the event loop alone.

    Args:
        limits: what each may have.
        clock: s.
    """

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._paid: dict[str, float] = {}
        self._connections: dict[str, int] = {}

    def take(self, client: str, cost: int = 1) -> None:
        """Have a client do something.

        Raises:
            Problem: it has done too much lately.
        """
        limits, now = self._limits, self._clock()
        if not limits.rate:
            return
        paid = max(now, self._paid.get(client, now))
        if paid - now > limits.burst:
            told = f"{client} does more than {limits.rate:g} requests a second"
            raise Problem("too-many", told, retry=max(1, math.ceil(paid - now - limits.burst)))
        if len(self._paid) >= _REMEMBERED:
            self._paid = {name: at for name, at in self._paid.items() if at > now}
        self._paid[client] = paid + cost / limits.rate

    @contextmanager
    def connected(self, client: str) -> Iterator[None]:
        """A client follows something.

        Raises:
            Problem: it does so too often.
        """
        count = self._connections.get(client, 0)
        if count >= self._limits.connections:
            raise Problem("too-many", f"{client} has {count} connections of this kind", retry=5)
        self._connections[client] = count + 1
        try:
            yield
        finally:
            left = self._connections[client] - 1
            if left:
                self._connections[client] = left
            else:
                del self._connections[client]


@dataclass(eq=False, slots=True)
class Turn:
    """A place that somebody has or waits for; see :class:`Turns`."""

    client: str
    leave: Callable[[], object]
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    long: bool = False


class Turns:
    """Places for a few at a time, for those who came first; used in the event loop alone.

    Args:
        most: places.
        share: of them, for one client.
        seconds: for which nobody need leave one.
    """

    def __init__(self, most: int, share: int, seconds: float) -> None:
        self._most, self._share, self._seconds = most, share, seconds
        self._having, self._waiting = list[Turn](), list[Turn]()

    async def take(self, client: str, leave: Callable[[], object]) -> Turn:
        """Wait for a place.

        Args:
            client: who wants it.
            leave: is called when somebody else is to have it, and has to give it back.
        """
        turn = Turn(client, leave)
        self._waiting.append(turn)
        self._see_to()
        try:
            await turn.begun.wait()
        except BaseException:
            self.give(turn)
            raise
        return turn

    def give(self, turn: Turn) -> None:
        """Give a place back; if that has been done already, nothing."""
        for turns in (self._having, self._waiting):
            if turn in turns:
                turns.remove(turn)
        self._see_to()

    def _see_to(self) -> None:
        """Let those have places who can. If somebody waits, who has had one for longest leaves it, if that is long."""
        had = Counter(turn.client for turn in self._having)
        for turn in list(self._waiting):
            if len(self._having) < self._most and had[turn.client] < self._share:
                self._waiting.remove(turn)
                self._having.append(turn)
                had[turn.client] += 1
                turn.begun.set()
                asyncio.get_running_loop().call_later(self._seconds, self._has_been_long, turn)
        for old in self._having:
            if old.long and any(each.client == old.client or had[each.client] < self._share for each in self._waiting):
                old.leave()  # it gives it back, and this is done again
                return

    def _has_been_long(self, turn: Turn) -> None:
        turn.long = True
        self._see_to()
