"""How much a client may have done in a time, so that one alone does not take what is there for all.

A *token bucket* in the form of the generic cell rate algorithm (ITU-T I.371): of each client one number is kept, the
time at which all that it has had would be paid for at its rate. Who is ahead of that by more than the burst is refused,
and told when to come again. What costs much may be had by whoever is not behind, and is paid for afterwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spatialstream.gateway.problems import Problem

__all__ = ["RateLimits", "Rates"]

_REMEMBERED = 10_000
"""Clients; beyond them those are forgotten that have nothing to pay."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What a client may have: whoever bears a token, or without tokens an address.

    Attributes:
        rate: requests a second, of which each question of a batch is one; 0: any number.
        burst: seconds' worth of them at once.
        connections: that follow results, by events or polls, at the same time.
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
        """A client follows results.

        Raises:
            Problem: it does so too often.
        """
        count = self._connections.get(client, 0)
        if count >= self._limits.connections:
            raise Problem("too-many", f"{client} has {count} connections that follow results", retry=5)
        self._connections[client] = count + 1
        try:
            yield
        finally:
            left = self._connections[client] - 1
            if left:
                self._connections[client] = left
            else:
                del self._connections[client]
