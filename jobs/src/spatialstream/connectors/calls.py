"""Calls in daemon threads, which do not delay the exit of the process.

A thread that has finished its call executes others. Starting one takes a tenth of a millisecond, and on busy processors
some milliseconds, because the starter waits until the thread runs: with each command to an actor that would be most of
the time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

__all__ = ["THREADS", "CallThreads", "called"]

T = TypeVar("T")


class CallThreads:
    """Daemon threads that execute calls.

    Args:
        idle: seconds for which a thread waits for the next call.
    """

    def __init__(self, idle: float = 10.0) -> None:
        self._idle = idle
        # The queues through which waiting threads get their next call. A thread that takes one out puts a call into it.
        # Taking one out is atomic in the interpreter, so it needs no lock.
        self._free: list[SimpleQueue[Callable[[], None]]] = []

    @property
    def waiting(self) -> int:
        """The number of threads that wait for a call."""
        return len(self._free)

    def called(self, do: Callable[[], T]) -> Future[T]:
        """Call a function in one of the threads, immediately; returns the future of its result."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = do()
            except BaseException as error:  # noqa: BLE001 - raised where the result is requested
                future.set_exception(error)
            else:
                future.set_result(result)

        try:
            calls = self._free.pop()
        except IndexError:
            calls = SimpleQueue()
            threading.Thread(target=self._serve, args=(calls,), name="calls", daemon=True).start()
        calls.put(run)
        return future

    def forget(self) -> None:
        """Forget all threads, as a process must that has been forked: it has none of them."""
        self._free.clear()

    def _serve(self, calls: SimpleQueue[Callable[[], None]]) -> None:
        """Execute calls, until there has been none for a while."""
        while True:
            try:
                run = calls.get(timeout=self._idle)
            except Empty:
                try:
                    self._free.remove(calls)
                except ValueError:  # another thread has just taken it
                    run = calls.get()
                else:
                    return
            run()
            del run  # and with it what it references
            self._free.append(calls)


THREADS = CallThreads()
"""The threads of this process."""

os.register_at_fork(after_in_child=THREADS.forget)


def called(do: Callable[[], T]) -> Future[T]:
    """Call a function in a thread of this process, immediately; returns the future of its result."""
    return THREADS.called(do)
