"""Waiting with a timeout, and doing something at intervals."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable

__all__ = ["Every", "done_within"]

_LOOK_SECONDS = 0.05


def done_within(seconds: float, do: Callable[[], object], stopping: threading.Event) -> bool:
    """Call a function in a thread of its own, and wait for its end, a timeout, or a stop signal.

    Args:
        seconds: timeout.
        do: the function; if it is not done in time, its thread is left running.
        stopping: set to stop waiting.

    Returns:
        Whether the function has returned.

    Raises:
        Exception: what the function has raised.
    """
    outcome: queue.Queue[Exception | None] = queue.Queue()

    def run() -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - raised by the waiting thread
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=run, daemon=True).start()
    until = time.monotonic() + seconds
    while not stopping.is_set() and time.monotonic() < until:
        try:
            error = outcome.get(timeout=min(_LOOK_SECONDS, seconds))
        except queue.Empty:
            continue
        if error is not None:
            raise error
        return True
    return False


class Every:
    """A callable that returns True at most once per interval, to the first caller after it.

    Args:
        seconds: the interval, since it last returned True or was created; 0: it always returns True.
        now: a clock, seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._now, self._last = seconds, now, now()

    def __call__(self) -> bool:
        """Whether the interval is over; if so, the next one begins."""
        now = self._now()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True

    def hasten(self) -> None:
        """Return True on the next call."""
        self._last = -math.inf
