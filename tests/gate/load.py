"""Processes that keep the machine busy: ``python -m tests.gate.load [PROCESSES]``, until it is interrupted.

The gate has to pass on a loaded machine, and flaky tests fail more often under load.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def _work() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while True:
        sum(range(100_000))


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Run this many busy processes; they end with the block, or with this process."""
    began = [multiprocessing.get_context("spawn").Process(target=_work, daemon=True) for _ in range(processes)]
    for each in began:
        each.start()
    try:
        yield
    finally:
        for each in began:
            each.kill()
            each.join()


if __name__ == "__main__":
    with load(int(sys.argv[1]) if len(sys.argv) > 1 else 2):
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
