"""Memory of a process: how much it has, and how the C library gets it.

glibc gives each thread a heap ("arena") of its own, up to eight for each processor, and keeps what has been freed in
it. In a process of many threads, each of which does a turn at some time, that is a multiple of what is in use. With two
arenas it is not, and nothing here is slower: what is large (arrays, Arrow's blocks) comes from elsewhere.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

__all__ = ["ARENAS", "few_arenas", "resident_bytes"]

ARENAS = 2
"""Of a process."""

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of ``mallopt``."""


def few_arenas(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have this process, its forks and what it starts make do with :data:`ARENAS` arenas, unless told otherwise.

    To be called before there are threads: arenas stay that are there.

    Args:
        environment: of this process, in which ``MALLOC_ARENA_MAX`` says otherwise.
    """
    if "MALLOC_ARENA_MAX" not in environment:
        environment["MALLOC_ARENA_MAX"] = str(ARENAS)
        with suppress(OSError, AttributeError):  # no glibc
            ctypes.CDLL(None).mallopt(_ARENA_MAX, ARENAS)


def resident_bytes(pid: int | str = "self") -> int:
    """Memory that a process has at the moment (its resident set), what it shares with others included.

    0 where the system does not say, or there is no such process.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
