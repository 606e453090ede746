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

__all__ = ["called"]

T = TypeVar("T")

_IDLE_SECONDS = 10.0
"""For how long a thread waits for the next call."""

_free: list[SimpleQueue[Callable[[], None]]] = []
"""The queues through which waiting threads get their next call. Whoever takes one out puts a call into it. Taking one
out is atomic in the interpreter, so it needs no lock."""


def called(do: Callable[[], T]) -> Future[T]:
    """Call a function in another thread, immediately; returns the future of its result."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = do()
        except BaseException as error:  # noqa: BLE001 - raised where the result is requested
            future.set_exception(error)
        else:
            future.set_result(result)

    try:
        calls = _free.pop()
    except IndexError:
        calls = SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name="calls", daemon=True).start()
    calls.put(run)
    return future


def _serve(calls: SimpleQueue[Callable[[], None]]) -> None:
    """Execute calls, until there has been none for a while."""
    while True:
        try:
            run = calls.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _free.remove(calls)
            except ValueError:  # another thread has just taken it
                run = calls.get()
            else:
                return
        run()
        del run  # and with it what it references
        _free.append(calls)


os.register_at_fork(after_in_child=_free.clear)  # a child has none of the threads
