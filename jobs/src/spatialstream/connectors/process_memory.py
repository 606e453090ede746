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
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

__all__ = ["ARENAS", "few_arenas", "release_free_pages", "resident_bytes"]

ARENAS = 2
"""Number of arenas of a process."""

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


def release_free_pages() -> None:
    """Return the pages to the system that are wholly free in this process's arenas, between others too.

    It takes some 10 ms for each 100 MB of small allocations, in which other threads may wait for memory. Does nothing
    without glibc.
    """
    with suppress(OSError, AttributeError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes(pid: int | str = "self") -> int:
    """The current resident set size of a process, including memory shared with others.

    0 if the system does not report it, or there is no such process.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
