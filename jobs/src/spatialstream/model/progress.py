"""Progress reports of long-running work, and cancellation between two pieces of it.

Long-running work is done in pieces. The code that does a piece, at any depth of the call stack, calls :func:`made`
after it. This calls the callback that the caller of the work has set for this thread with :func:`watched`. The callback
may raise, which aborts the work between two pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["made", "watched"]

_watching = threading.local()


def made() -> None:
    """Report that a piece of this thread's work is done.

    Raises:
        Exception: any exception of the callback, which aborts the work.
    """
    report: Callable[[], None] | None = getattr(_watching, "report", None)
    if report is not None:
        report()


@contextmanager
def watched(report: Callable[[], None]) -> Iterator[None]:
    """Call ``report`` after each piece of work that this thread does within the context."""
    before = getattr(_watching, "report", None)
    _watching.report = report
    try:
        yield
    finally:
        _watching.report = before
