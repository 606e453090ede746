"""What is worth waiting for, but not for ever; and what is done again after a time."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable

__all__ = ["Every", "done_within"]

_LOOK_SECONDS = 0.05


def done_within(seconds: float, do: Callable[[], object], stopping: threading.Event) -> bool:
    """Do something in a thread of its own, and wait until it is done, its time is over, or all is to stop.

    Args:
        seconds: its time.
        do: what to do; if it is not done by then, it is left to itself.
        stopping: is set when all is to stop.

    Returns:
        Whether it is done.

    Raises:
        Exception: what it has raised.
    """
    outcome: queue.Queue[Exception | None] = queue.Queue()

    def run() -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - it is raised by the thread that waits
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
    """Says yes to who asks first after so many seconds, and then anew; else no.

    Args:
        seconds: since it has said yes, or since it was made; 0: it always says yes.
        now: a clock, seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._now, self._last = seconds, now, now()

    def __call__(self) -> bool:
        """Whether it is time."""
        now = self._now()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True

    def hasten(self) -> None:
        """Say yes to who asks next."""
        self._last = -math.inf
