"""How much a client may have done in a time, so that one alone does not take what is there for all.

A *token bucket* in the form of the generic cell rate algorithm (ITU-T I.371): of each client one number is kept, the
time at which all that it has had would be paid for at its rate. Who is ahead of that by more than the burst is refused,
and told when to come again. What costs much may be had by whoever is not behind, and is paid for afterwards.

What there is little of is shared, so that whoever takes all that they can leaves something for who comes next. Amounts
(bytes, requests that wait) go by *dynamic thresholds* (:class:`Shares`), places for work by turns: who has fewest is
next, and who has had one for long gives it to who waits (:class:`Turns`).

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
"""Clients; beyond them those are forgotten that have nothing to pay."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What a client may have: whoever bears a token, or without tokens an address.

    Attributes:
        rate: requests a second, of which each query of a batch is one; 0: any number.
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


class Shares:
    """An amount that clients share: each may have as much as is left free; for any thread.

    So one client alone may have half, two a third each, and there is always something for one more.

    Args:
        most: of all clients together.
        what: it is, for those who are refused.

    Attributes:
        taken: how much is.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what, self._lock = most, what, threading.Lock()
        self._held = Counter[str]()
        self.taken = 0

    def take(self, client: str, amount: int = 1, kind: str = "too-many", had: int | None = None) -> None:
        """Have a client take some.

        Args:
            client: who.
            amount: how much.
            kind: of the problem that a refusal is.
            had: how much of it what it is for has already: if nothing else has any it may have more than its share, or
                than there is; None: it may not.

        Raises:
            Problem: it has its share.
        """
        with self._lock:
            mine, free = self._held[client], self._most - self.taken
            alone = had is not None and self.taken == had
            if mine + amount > free - amount and not alone:
                others = self.taken - mine
                told = f"{client or 'the gateway'} has {mine} {self._what}, others have {others}, of {self._most}"
                raise Problem(kind, f"{told}: {amount} more are not to be had now", retry=1)
            self._held[client] += amount
            self.taken += amount

    def give(self, client: str, amount: int = 1) -> None:
        """A client gives some back."""
        with self._lock:
            self.taken -= amount
            self._held[client] -= amount
            if not self._held[client]:
                del self._held[client]

    @contextmanager
    def held(self, client: str, amount: int = 1) -> Iterator[None]:
        """A client has some for a time; errors as in :meth:`take`."""
        self.take(client, amount)
        try:
            yield
        finally:
            self.give(client, amount)


class Taken:
    """What one request has of shares, from when it comes until it is done with; for any thread.

    Args:
        shares: of which.
        client: whose request it is.
        kind: of the problem that a refusal is.
    """

    def __init__(self, shares: Shares, client: str, kind: str = "too-many") -> None:
        self._shares, self._client, self._kind = shares, client, kind
        self._lock, self._amount, self._over = threading.Lock(), 0, False

    def more(self, amount: int) -> None:
        """Take more.

        Raises:
            Problem: its client has its share.
        """
        with self._lock:
            if not self._over:
                self._shares.take(self._client, amount, self._kind, had=self._amount)
                self._amount += amount

    def less(self, amount: int) -> None:
        """Give some of it back."""
        with self._lock:
            if not self._over:
                self._shares.give(self._client, amount)
                self._amount -= amount

    def give(self) -> None:
        """It is done with, whoever may still be at it."""
        with self._lock:
            self._over = True
            self._shares.give(self._client, self._amount)
            self._amount = 0


@dataclass(eq=False, slots=True)
class Turn:
    """A place that somebody has or waits for; see :class:`Turns`."""

    client: str
    leave: Callable[[], object] | None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    long: bool = False


class Turns:
    """Places for a few at a time: for who has fewest, and of those for who came first; in the event loop alone.

    Args:
        most: places.
        share: of them, for one client.
        seconds: for which nobody need leave one.
    """

    def __init__(self, most: int, share: int, seconds: float = 0.0) -> None:
        self._most, self._share, self._seconds = most, share, seconds
        self._having, self._waiting = list[Turn](), list[Turn]()

    async def take(self, client: str, leave: Callable[[], object] | None = None) -> Turn:
        """Wait for a place.

        Args:
            client: who wants it.
            leave: is called when somebody else is to have it, and has to give it back; None: it is given back soon.
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
                old.leave()  # it gives it back, and this is done again
                return

    def _has_been_long(self, turn: Turn) -> None:
        turn.long = True
        self._see_to()
