"""Threads for what blocks, of which each client has a share; and for whom something is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import Shares, Turns

__all__ = ["CLIENT", "Threads", "as_gateway"]

T = TypeVar("T")

CLIENT: ContextVar[str] = ContextVar("client", default="")
"""Who a request comes from, in whose task something is done: a token's name, else an address. Empty: the gateway."""

_MOST_WAITING = 1_024
"""Calls that are under way or wait for a thread, of all clients."""
_PATIENCE = 10.0


@contextmanager
def as_gateway() -> Iterator[None]:
    """What is done here is for all, and has a share of its own."""
    before = CLIENT.set("")
    try:
        yield
    finally:
        CLIENT.reset(before)


class Threads:
    """Does what blocks, for many clients; used in the event loop alone.

    Args:
        most: threads.
        share: of them, for one client.
        name: of the threads.
        waiting: calls that may be under way or wait, of all clients.
    """

    def __init__(self, most: int, share: int, name: str, waiting: int = _MOST_WAITING) -> None:
        self._pool, self._turns = ThreadPoolExecutor(most, name), Turns(most, share)
        self._calls = Shares(waiting, "calls under way")

    async def run(
        self, work: Callable[[], T], seconds: float = _PATIENCE, over: Callable[[], object] = lambda: None
    ) -> T:
        """Do something in a thread.

        Args:
            work: what.
            seconds: within which it has to begin.
            over: is called, once, when it is over or will not begin: whoever asked may have gone long before.

        Raises:
            Problem: too much of this client is under way, so it has not begun.
            Exception: what the work raises.
        """
        client, loop = CLIENT.get(), asyncio.get_running_loop()
        with ExitStack() as held:
            held.callback(over)
            self._calls.take(client)
            held.callback(self._calls.give, client)
            try:
                async with asyncio.timeout(max(0.0, seconds)):
                    turn = await self._turns.take(client)
            except TimeoutError:
                told = f"{client or 'the gateway'} has waited {seconds:g} s for its turn: much is under way"
                raise Problem("try-again", told, retry=1) from None
            held.callback(self._turns.give, turn)
            try:
                future = self._pool.submit(work)
            except RuntimeError:
                raise Problem("try-again", "the stream is not served here any more", retry=1) from None
            done = held.pop_all().close

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(done)

        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin nothing more; what is under way is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
