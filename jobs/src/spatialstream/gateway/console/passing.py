"""A random sample of the objects as they are sent, with their number, for the console.

One thread per stream reads for all pages, and only while there are any. If a page does not read an interval before its
queue is full, the interval's objects are dropped for it, and only counted.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from functools import partial

from spatialstream.client import LiveSample
from spatialstream.client.live_sample import Seen
from spatialstream.gateway import logs
from spatialstream.gateway.problems import Problem
from spatialstream.model.errors import SpatialStreamError

__all__ = ["Passing"]

_MOMENT = 0.25
"""Length of an interval in seconds."""
_SHOWN = 100
"""Most objects shown of an interval."""
_SILENT = 15.0
"""Seconds without objects after which a comment is sent, to keep the connection open."""
_WAITING = 8
_MOST = 200


class Passing:
    """Shows the objects of one stream.

    Args:
        name: name of the stream.
        opener: starts the sampling.

    Attributes:
        reader: the thread that reads now; None while nobody looks.
    """

    def __init__(self, name: str, opener: Callable[[], LiveSample]) -> None:
        self._name, self._opener = name, opener
        self._queues: set[asyncio.Queue[Seen | None]] = set()
        self.reader: _Reader | None = None
        self._over = False

    def end(self) -> None:
        """End all connections."""
        self._over = True
        self._stop()

    async def events(self) -> AsyncIterator[bytes]:
        """Intervals as Server-Sent Events: ``count`` objects arrived before ``at``, some given as [id, t, x, y, text].

        Raises:
            Problem: there are too many connections.
        """
        if self._over or len(self._queues) >= _MOST:
            raise Problem("try-again", f"{len(self._queues)} pages show the objects, which is the limit", retry=5)
        return self._events()

    async def _events(self) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[Seen | None] = asyncio.Queue(_WAITING)
        self._queues.add(queue)
        try:
            if self.reader is None:
                self.reader = _Reader(self, self._opener, self._name)
            yield b"retry: 1000\n\n"
            while True:
                try:
                    async with asyncio.timeout(_SILENT):
                        sample = await queue.get()
                except TimeoutError:
                    yield b": nothing now\n\n"
                    continue
                if sample is None:
                    return
                yield _event(sample)
        finally:
            self._queues.discard(queue)
            if not self._queues:
                self._stop()

    def publish(self, reader: _Reader, seen: Seen) -> None:
        """Queue the sample of an interval for all pages."""
        if reader is not self.reader:
            return
        for queue in self._queues:
            if queue.full():  # drop the oldest interval, but count its objects
                late = queue.get_nowait()
                assert late is not None
                seen_now = Seen(seen.objects, seen.count + late.count, seen.exact and late.exact)
                queue.put_nowait(seen_now)
            else:
                queue.put_nowait(seen)

    def fail(self, reader: _Reader) -> None:
        """Handle a failure of reading: end all connections. The next page to connect starts it again."""
        if reader is self.reader:
            self._stop()

    def _stop(self) -> None:
        if self.reader is not None:
            self.reader.stop.set()
            self.reader = None
        for queue in self._queues:
            while not queue.empty():
                queue.get_nowait()
            queue.put_nowait(None)
        self._queues.clear()  # pages that connect from now on have another reader


def _event(seen: Seen) -> bytes:
    objects = [[each.id, each.t, each.x, each.y, text] for each, text in seen.objects]
    said = {"at": time.time_ns() // 1_000_000, "count": seen.count, "exact": seen.exact, "objects": objects}
    return b"data: %s\n\n" % json.dumps(said, ensure_ascii=False).encode(errors="replace")


class _Reader:
    """The thread that reads."""

    def __init__(self, passing: Passing, opener: Callable[[], LiveSample], name: str) -> None:
        self.stop = threading.Event()
        self._passing, self._opener, self._loop = passing, opener, asyncio.get_running_loop()
        threading.Thread(target=self._run, name=f"objects-{name}", daemon=True).start()

    def _run(self) -> None:
        try:
            with closing(self._opener()) as live_sample:
                while not self.stop.is_set():
                    seen = live_sample.take(_MOMENT, _SHOWN)
                    if seen.count:
                        self._tell(partial(self._passing.publish, self, seen))
        except SpatialStreamError as error:
            logs.event("objects", message=str(error))
        except Exception:  # noqa: BLE001 -- a defect; pages must reconnect
            logs.LOGGER.exception("failed", extra={"fields": {"reading": "objects"}})
        self._tell(partial(self._passing.fail, self))

    def _tell(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(what)
