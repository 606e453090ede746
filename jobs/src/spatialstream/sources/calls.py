"""Calls in threads that nobody waits for when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["called"]

T = TypeVar("T")


def called(do: Callable[[], T]) -> Future[T]:
    """Do something in a thread of its own; what comes of it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(do())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
