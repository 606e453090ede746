"""A stream behind the gateway: opened when it is first needed, and asked in threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from spatialstream.client import Connection, Glimpse
from spatialstream.client.glimpse import DeadLetters, dead_letters
from spatialstream.client.history import Log, ResultsLog
from spatialstream.client.inlet import Inlet
from spatialstream.client.snapshots import MOST
from spatialstream.client.stream import Stream
from spatialstream.gateway.feed import Feed
from spatialstream.gateway.problems import Problem
from spatialstream.model.errors import Replaced, SettingError, SpatialStreamError, Unavailable

__all__ = ["ServedStream"]

T = TypeVar("T")

_THREADS = 16
_MOST_WAITING = 256
"""Calls that are under way or wait for a thread; more are told to come again."""
_READERS = 2
_MOST_READING = 16
"""Who reads what has been, or waits for it: it takes long, so it has threads of its own, and few."""
_READY_SECONDS = 2.0
_FEW = 16
"""Questions of a request that may be answered together with those of others."""
_TOGETHER = 4
"""Calls that answer requests together, at the same time at most."""
_PATIENCE = 0.05
"""Seconds for which requests wait for a call that is under way before there is another beside it: none waits for one
that takes long but its own, and as many as can be are answered together."""


Places = list[tuple[str, object]]
"""Questions of a request, each with how to call its place."""
Asked = asyncio.Future[tuple[bool, list[str]]]


def _lines(opened: Stream, places: Places, at_least: int | str | None, timeout: float) -> tuple[bool, list[str]]:
    return opened.space.geographic, list(opened.lines(places, at_least, timeout))


def _together(
    opened: Stream, asked: Sequence[tuple[Places, float, Asked]]
) -> list[tuple[bool, list[str]] | SettingError | Unavailable]:
    """The answers of several requests, or why there are none."""
    geographic = opened.space.geographic
    found = opened.together([(places, timeout) for places, timeout, _ in asked])
    return [(geographic, each) if isinstance(each, list) else each for each in found]


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
        self._readers, self._reading = ThreadPoolExecutor(_READERS, f"history-{name}"), 0
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._stream: Stream | None = None
        self._users: dict[Stream, int] = {}
        self._waiting = 0
        self._asked: deque[tuple[Places, float, Asked]] = deque()
        self._answering: set[asyncio.Task[None]] = set()
        self._patient = False

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

    async def ask(self, places: Places, at_least: int | str | None, timeout: float) -> tuple[bool, list[str]]:
        """Answer questions as of one round; also whether the stream is on the globe.

        What an answer costs is mostly the same for one question and for a hundred. So those of requests that wait for
        no time, and come while others are being answered, are answered together.

        Args:
            places: how to call the place of each question, and the question.
            at_least: see :meth:`~spatialstream.client.snapshots.SnapshotAsker.lines`.
            timeout: see there.

        Raises:
            Problem: too much is under way.
            SettingError, Unavailable: see there.
        """
        if at_least is not None or len(places) > _FEW:
            return await self.call(lambda opened: _lines(opened, places, at_least, timeout))
        if len(self._asked) >= _MOST_WAITING:
            raise Problem("try-again", f"{len(self._asked)} requests are under way", retry=1)
        future: Asked = asyncio.get_running_loop().create_future()
        self._asked.append((places, timeout, future))
        self._see_to()
        return await future

    def _see_to(self) -> None:
        """Have what waits answered, unless it is to wait for a call that is under way."""
        if self._asked and not self._patient and len(self._answering) < _TOGETHER:
            task = asyncio.create_task(self._answer())
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self) -> None:
        """Answer what waits, as much as fits together at a time."""
        while self._asked and not self._patient:
            some, questions = list[tuple[Places, float, Asked]](), 0
            while self._asked and questions + len(self._asked[0][0]) <= MOST:
                some.append(self._asked.popleft())
                questions += len(some[-1][0])
            with self._under_way():
                outcomes = await self._outcomes(some)
            for (_, _, future), outcome in zip(some, outcomes, strict=True):
                if future.done():  # whoever asked has gone
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """What comes now waits for this call, as long as it does not take long."""
        mine = True

        def end_of_patience() -> None:
            nonlocal mine
            mine = self._patient = False
            self._see_to()

        self._patient = True
        timer = asyncio.get_running_loop().call_later(_PATIENCE, end_of_patience)
        try:
            yield
        finally:
            timer.cancel()
            if mine:
                self._patient = False

    async def _outcomes(
        self, some: Sequence[tuple[Places, float, Asked]]
    ) -> Sequence[tuple[bool, list[str]] | Exception]:
        try:
            return await self.call(lambda opened: _together(opened, some))
        except (SpatialStreamError, Problem) as error:
            return [error] * len(some)
        except Exception as error:  # noqa: BLE001 -- a defect: it is told to whoever has asked what brings it about
            if len(some) == 1:
                return [error]
        return [outcome for one in some for outcome in await self._outcomes([one])]

    async def look_back(self, work: Callable[[Log], T]) -> T:
        """Do something with the results that there have been, in a thread.

        Raises:
            Problem: too many do.
            Exception: what the work raises.
        """
        with self._lock:
            if self._reading >= _MOST_READING:
                raise Problem("try-again", f"{self._reading} requests read what has been already", retry=1)
            self._reading += 1
        future = self._readers.submit(lambda: work(self.log()))
        future.add_done_callback(self._looked_back)
        return await asyncio.wrap_future(future)

    def _looked_back(self, _: object) -> None:
        with self._lock:
            self._reading -= 1

    def log(self) -> Log:
        """The results that there have been.

        Raises:
            Unavailable: it is not known where they are.
        """
        return ResultsLog(self._known_broker(), self.name)

    def glimpse(self) -> Glimpse:
        """Begin to look at the objects as they are sent.

        Raises:
            Unavailable: the broker cannot be reached.
        """
        return Glimpse(self._known_broker(), self.name, self._do(lambda opened: opened.space))

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
        for each in (self._threads, self._readers):
            each.shutdown(wait=False, cancel_futures=True)
        if self._stream is not None:
            self._stream.close()
