"""Calls in threads that nobody waits for when the process ends.

A thread that has done its call does others. To start one takes a tenth of a millisecond, and where processors are busy
some milliseconds, for whoever starts a thread waits until it runs: with every command to an actor that is most of it.
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
"""For which a thread waits for the next call."""

_free: list[SimpleQueue[Callable[[], None]]] = []
"""By which threads that wait are given their next call. Who takes one out gives it a call. To take one out is one step
of the interpreter's, so it needs no lock."""


def called(do: Callable[[], T]) -> Future[T]:
    """Do something in another thread, at once; what comes of it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = do()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
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
    """Do calls, until there has been none for a while."""
    while True:
        try:
            run = calls.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _free.remove(calls)
            except ValueError:  # somebody has just taken it
                run = calls.get()
            else:
                return
        run()
        del run  # and with it what it holds
        _free.append(calls)


os.register_at_fork(after_in_child=_free.clear)  # a child has none of the threads
