"""How who has work done in other processes learns that it gets on.

What takes long is done in pieces. After each :func:`made` is called, by whatever does the piece, however deep; who has
begun the work in this thread, with :func:`watched`, is told. It may raise, and so breaks the work off between two
pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["made", "watched"]

_watching = threading.local()


def made() -> None:
    """A piece of what this thread does is done.

    Raises:
        Exception: what it is of is not wanted any more.
    """
    told: Callable[[], None] | None = getattr(_watching, "told", None)
    if told is not None:
        told()


@contextmanager
def watched(told: Callable[[], None]) -> Iterator[None]:
    """What this thread does within is watched: after each piece ``told`` is called."""
    before = getattr(_watching, "told", None)
    _watching.told = told
    try:
        yield
    finally:
        _watching.told = before
