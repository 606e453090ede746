"""A stream behind the gateway: opened when it is first needed, and asked in threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from spatialstream.client import Connection, Glimpse
from spatialstream.client.glimpse import DeadLetters, dead_letters
from spatialstream.client.inlet import Inlet
from spatialstream.client.stream import Stream
from spatialstream.gateway.feed import Feed
from spatialstream.gateway.problems import Problem
from spatialstream.model.errors import Unavailable

__all__ = ["ServedStream"]

T = TypeVar("T")

_THREADS = 16
_MOST_WAITING = 256
"""Calls that are under way or wait for a thread; more are told to come again."""
_READY_SECONDS = 2.0


class ServedStream:
    """One stream.

    Args:
        name: its name.
        opener: reaches it. Its errors are Unavailable; then it is tried again with the next request.
        feed: its results.
        inlet: what is sent to it.
        broker: where its topics are; None: nobody can look at what is sent.
    """

    def __init__(
        self, name: str, opener: Callable[[], Stream], feed: Feed, inlet: Inlet, broker: Connection | None = None
    ) -> None:
        self.name, self.feed, self.inlet, self._opener, self._broker = name, feed, inlet, opener, broker
        self._threads = ThreadPoolExecutor(_THREADS, f"ask-{name}")
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._stream: Stream | None = None
        self._waiting = 0

    def opened(self) -> Stream:
        """The stream.

        Raises:
            Unavailable: it cannot be reached.
        """
        with self._opening:
            if self._stream is None:
                self._stream = self._opener()
            return self._stream

    async def call(self, work: Callable[[Stream], T]) -> T:
        """Do something with the stream in a thread.

        Raises:
            Problem: too much is under way.
            Exception: what the work raises, or Unavailable.
        """
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise Problem("try-again", f"{self._waiting} requests are under way", retry=1)
            self._waiting += 1
        future = self._threads.submit(lambda: work(self.opened()))
        future.add_done_callback(self._done)  # whoever asked may have gone long before
        return await asyncio.wrap_future(future)

    def _done(self, _: object) -> None:
        with self._lock:
            self._waiting -= 1

    def glimpse(self) -> Glimpse:
        """Begin to look at the objects as they are sent.

        Raises:
            Unavailable: the broker cannot be reached.
        """
        return Glimpse(self._known_broker(), self.name, self.opened().space)

    def dead_letters(self, most: int) -> DeadLetters:
        """The newest records that the stream could not use.

        Raises:
            Unavailable: the broker cannot be reached.
        """
        return dead_letters(self._known_broker(), self.name, most)

    def _known_broker(self) -> Connection:
        if self._broker is None:
            raise Unavailable("this gateway knows no broker")
        return self._broker

    async def ready(self) -> bool:
        """Whether it can be asked."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self.call(lambda opened: opened.as_of())
                return True
        except (TimeoutError, Unavailable, Problem):
            return False

    def close(self) -> None:
        """Let go of it; calls under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._stream is not None:
            self._stream.close()
