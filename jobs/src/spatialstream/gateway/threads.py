"""Threads for blocking calls, shared fairly by clients; and the current client."""

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
"""The client of the current task's request: the name of its token, else its address. Empty: the gateway itself."""

_MOST_WAITING = 1_024
"""Most calls that are under way or wait for a thread, of all clients."""
_PATIENCE = 10.0


@contextmanager
def as_gateway() -> Iterator[None]:
    """Do the enclosed work as the gateway itself, which has a share of its own."""
    before = CLIENT.set("")
    try:
        yield
    finally:
        CLIENT.reset(before)


class Threads:
    """Runs blocking calls of many clients; used in the event loop only.

    Args:
        most: number of threads.
        share: most threads of one client.
        name: name of the threads.
        waiting: most calls that may be under way or wait, of all clients.
    """

    def __init__(self, most: int, share: int, name: str, waiting: int = _MOST_WAITING) -> None:
        self._pool, self._turns = ThreadPoolExecutor(most, name), Turns(most, share)
        self._calls = Shares(waiting, "calls under way")

    async def run(
        self, work: Callable[[], T], seconds: float = _PATIENCE, over: Callable[[], object] = lambda: None
    ) -> T:
        """Run a call in a thread.

        Args:
            work: the call.
            seconds: time within which it must start.
            over: called once when it has ended or will not start; the caller may have gone long before.

        Raises:
            Problem: too many calls of this client are under way, so it has not started.
            Exception: whatever the call raises.
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
                told = f"{client or 'the gateway'} has waited {seconds:g} s for its turn: too many calls are under way"
                raise Problem("try-again", told, retry=1) from None
            held.callback(self._turns.give, turn)
            try:
                future = self._pool.submit(work)
            except RuntimeError:
                raise Problem("try-again", "the stream is no longer served here", retry=1) from None
            done = held.pop_all().close

        def ended(_: object) -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(done)

        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Start no more calls; those under way are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
