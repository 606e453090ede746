"""Rate limits and fair shares, so that no single client exhausts the gateway.

Rates are limited by a *token bucket* in the form of the generic cell rate algorithm (ITU-T I.371): for each client one
number is kept, the time at which its requests so far would be paid off at its rate. A client for which that time is
ahead by more than the burst is refused, and told when to retry. An expensive request is admitted if the client is
within its burst, and paid off afterwards.

Scarce resources are shared, so that a client that takes all it can leaves something for the next one. Amounts (bytes,
waiting requests) are shared by *dynamic thresholds* (:class:`Shares`). Places for work are taken in turns: the client
with the fewest is next, and one that has held a place for long yields it if others wait (:class:`Turns`).

Source: A. K. Choudhury, E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM
Transactions on Networking 6 (1998).
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from spatialstream.gateway.problems import Problem

__all__ = ["RateLimits", "Rates", "Shares", "Taken", "Turn", "Turns"]

_REMEMBERED = 10_000
"""Number of clients above which those with nothing left to pay off are forgotten."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits of a client, which is the bearer of a token, or without tokens an address.

    Attributes:
        rate: requests a second, where each query of a batch counts as one; 0: unlimited.
        burst: requests at once, in seconds' worth of the rate.
        connections: concurrent connections that follow results, as events or polls, or objects as they are sent.
    """

    rate: float = 1_000.0
    burst: float = 2.0
    connections: int = 1_000


class Rates:
    """Enforces the limits of clients; used in the event loop only.

    Args:
        limits: limits of each client.
        clock: returns the time in s.
    """

    def __init__(self, limits: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._paid: dict[str, float] = {}
        self._connections: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of clients whose charges are remembered."""
        return len(self._paid)

    def take(self, client: str, cost: int = 1) -> None:
        """Charge requests to a client.

        Raises:
            Problem: it exceeds its rate.
        """
        limits, now = self._limits, self._clock()
        if not limits.rate:
            return
        paid = max(now, self._paid.get(client, now))
        if paid - now > limits.burst:
            told = f"{client} exceeds {limits.rate:g} requests a second"
            raise Problem("too-many", told, retry=max(1, math.ceil(paid - now - limits.burst)))
        if len(self._paid) >= _REMEMBERED:
            self._paid = {name: at for name, at in self._paid.items() if at > now}
        self._paid[client] = paid + cost / limits.rate

    @contextmanager
    def connected(self, client: str) -> Iterator[None]:
        """Count a connection of a client while the context is open.

        Raises:
            Problem: it has too many.
        """
        count = self._connections.get(client, 0)
        if count >= self._limits.connections:
            raise Problem("too-many", f"{client} has {count} connections of this kind, which is the limit", retry=5)
        self._connections[client] = count + 1
        try:
            yield
        finally:
            left = self._connections[client] - 1
            if left:
                self._connections[client] = left
            else:
                del self._connections[client]


class Shares:
    """An amount shared by clients: each may hold as much as is left free; safe for any thread.

    So one client alone may hold half, two a third each, and something is always left for one more.

    Args:
        most: amount for all clients together.
        what: name of the unit, for error messages.

    Attributes:
        taken: amount held by all clients.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what, self._lock = most, what, threading.Lock()
        self._held = Counter[str]()
        self.taken = 0

    def take(self, client: str, amount: int = 1, kind: str = "too-many", had: int | None = None) -> None:
        """Give a client an amount.

        Args:
            client: name of the client.
            amount: the amount.
            kind: kind of the problem if it is refused.
            had: amount that this request holds already: if nobody else holds any, the request may exceed the
                client's share, and the total; None: it may not.

        Raises:
            Problem: the client would exceed its share.
        """
        with self._lock:
            mine, free = self._held[client], self._most - self.taken
            alone = had is not None and self.taken == had
            if mine + amount > free - amount and not alone:
                others = self.taken - mine
                told = f"{client or 'the gateway'} has {mine} {self._what}, others have {others}, of {self._most}"
                raise Problem(kind, f"{told}: {amount} more are not available now", retry=1)
            self._held[client] += amount
            self.taken += amount

    def give(self, client: str, amount: int = 1) -> None:
        """Take back an amount from a client."""
        with self._lock:
            self.taken -= amount
            self._held[client] -= amount
            if not self._held[client]:
                del self._held[client]

    @contextmanager
    def held(self, client: str, amount: int = 1) -> Iterator[None]:
        """Give a client an amount while the context is open; errors as in :meth:`take`."""
        self.take(client, amount)
        try:
            yield
        finally:
            self.give(client, amount)


class Taken:
    """The amount of shares that one request holds during its life; safe for any thread.

    Args:
        shares: the shares.
        client: name of the request's client.
        kind: kind of the problem if more is refused.
    """

    def __init__(self, shares: Shares, client: str, kind: str = "too-many") -> None:
        self._shares, self._client, self._kind = shares, client, kind
        self._lock, self._amount, self._over = threading.Lock(), 0, False

    def more(self, amount: int) -> None:
        """Take more.

        Raises:
            Problem: its client would exceed its share.
        """
        with self._lock:
            if not self._over:
                self._shares.take(self._client, amount, self._kind, had=self._amount)
                self._amount += amount

    def less(self, amount: int) -> None:
        """Give back a part."""
        with self._lock:
            if not self._over:
                self._shares.give(self._client, amount)
                self._amount -= amount

    def give(self) -> None:
        """Give back everything: the request has ended, even if a thread still works on it."""
        with self._lock:
            self._over = True
            self._shares.give(self._client, self._amount)
            self._amount = 0


@dataclass(eq=False, slots=True)
class Turn:
    """A place that a client has or waits for; see :class:`Turns`."""

    client: str
    leave: Callable[[], object] | None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    long: bool = False


class Turns:
    """A limited number of places, given to the client with the fewest, then first come, first served.

    Used in the event loop only.

    Args:
        most: number of places.
        share: most places of one client.
        seconds: time for which a place need not be yielded.
    """

    def __init__(self, most: int, share: int, seconds: float = 0.0) -> None:
        self._most, self._share, self._seconds = most, share, seconds
        self._having, self._waiting = list[Turn](), list[Turn]()

    async def take(self, client: str, leave: Callable[[], object] | None = None) -> Turn:
        """Wait for a place.

        Args:
            client: name of the client.
            leave: called when the place is to be yielded to another client, and must give it back; None: the place is
                held only briefly.
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
        """Give a place back; does nothing if that has been done already."""
        for turns in (self._having, self._waiting):
            if turn in turns:
                turns.remove(turn)
        self._see_to()

    def _see_to(self) -> None:
        """Give free places to those waiting; if any still wait, have the oldest place held for long yielded."""
        had = Counter(turn.client for turn in self._having)
        while len(self._having) < self._most:
            turn = min(self._waiting, key=lambda each: had[each.client], default=None)  # the first of several
            if turn is None or had[turn.client] >= self._share:
                break
            self._waiting.remove(turn)
            self._having.append(turn)
            had[turn.client] += 1
            turn.begun.set()
            if turn.leave is not None:
                asyncio.get_running_loop().call_later(self._seconds, self._has_been_long, turn)
        for old in self._having:
            wanted = old.long and any(
                each.client == old.client or had[each.client] < self._share for each in self._waiting
            )
            if wanted and old.leave is not None:
                old.leave()  # it gives the place back, which calls this method again
                return

    def _has_been_long(self, turn: Turn) -> None:
        turn.long = True
        self._see_to()
