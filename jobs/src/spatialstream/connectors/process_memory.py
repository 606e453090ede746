"""Memory of a process: its size, and how the C library allocates it.

glibc gives each thread a heap ("arena") of its own, up to eight per processor, and keeps freed memory in it. In a
process with many threads, each of which executes a turn at some time, that is a multiple of the memory in use. With two
arenas it is not, and nothing here is slower: large allocations (arrays, Arrow's blocks) come from elsewhere.

An arena that has been full once also keeps the pages of what retention has freed between what is still in use; those
are returned to the system now and then.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["ARENAS", "few_arenas", "free_pages_released", "resident_bytes"]

ARENAS = 2
"""Number of arenas of a process."""

RELEASE_SECONDS = 60.0
"""Seconds between two releases of free pages: retention drops objects in units of minutes."""

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of ``mallopt``."""


def few_arenas(environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit this process, its forks and child processes to :data:`ARENAS` arenas, unless configured otherwise.

    To be called before threads are started: existing arenas stay.

    Args:
        environment: of this process, in which ``MALLOC_ARENA_MAX`` takes precedence.
    """
    if "MALLOC_ARENA_MAX" not in environment:
        environment["MALLOC_ARENA_MAX"] = str(ARENAS)
        with suppress(OSError, AttributeError):  # no glibc
            ctypes.CDLL(None).mallopt(_ARENA_MAX, ARENAS)


@contextmanager
def free_pages_released(every: float = RELEASE_SECONDS) -> Iterator[None]:
    """While this is entered, a thread returns free pages of this process's arenas to the system, between used ones too.

    Each time takes some 10 ms for 100 MB of small allocations; other threads may wait for memory then. Does nothing
    without glibc.

    Args:
        every: seconds between two releases.
    """
    over = threading.Event()

    def release() -> None:
        with suppress(OSError, AttributeError):  # no glibc
            trim = ctypes.CDLL(None).malloc_trim
            while not over.wait(every):
                trim(0)

    threading.Thread(target=release, name="free-pages", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def resident_bytes(pid: int | str = "self") -> int:
    """The current resident set size of a process, including memory shared with others.

    0 if the system does not report it, or there is no such process.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
