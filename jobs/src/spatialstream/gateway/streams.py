"""A stream behind the gateway: opened when it is first needed, and asked in threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from spatialstream.client.inlet import Inlet
from spatialstream.client.stream import Stream
from spatialstream.gateway.feed import Feed
from spatialstream.gateway.problems import Problem
from spatialstream.model.errors import Replaced, Unavailable

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
    """

    def __init__(self, name: str, opener: Callable[[], Stream], feed: Feed, inlet: Inlet) -> None:
        self.name, self.feed, self.inlet, self._opener = name, feed, inlet, opener
        self._threads = ThreadPoolExecutor(_THREADS, f"ask-{name}")
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._stream: Stream | None = None
        self._users: dict[Stream, int] = {}
        self._waiting = 0

    def _do(self, work: Callable[[Stream], T]) -> T:
        """Do something with the stream; if it has been begun anew, with the one that is there now."""
        with self._held() as stream:
            try:
                return work(stream)
            except Replaced:
                self._drop(stream)
        with self._held() as stream:
            return work(stream)

    @contextmanager
    def _held(self) -> Iterator[Stream]:
        """The stream, which is not closed as long as anybody has it.

        Raises:
            Unavailable: it cannot be reached.
        """
        with self._opening:
            if self._stream is None:
                self._stream = self._opener()
            stream = self._stream
            self._users[stream] = self._users.get(stream, 0) + 1
        try:
            yield stream
        finally:
            with self._opening:
                self._users[stream] -= 1
                if not self._users[stream]:
                    del self._users[stream]
                    if stream is not self._stream:
                        stream.close()

    def _drop(self, stream: Stream) -> None:
        """Have it closed, and opened anew."""
        with self._opening:
            if stream is self._stream:
                self._stream = None

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
        future = self._threads.submit(lambda: self._do(work))
        future.add_done_callback(self._done)  # whoever asked may have gone long before
        return await asyncio.wrap_future(future)

    def _done(self, _: object) -> None:
        with self._lock:
            self._waiting -= 1

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
