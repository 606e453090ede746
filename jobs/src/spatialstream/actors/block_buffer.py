"""A buffer of blocks from several writer threads to one reader, bounded by bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from spatialstream.stages.messages import Block

__all__ = ["BlockBuffer"]

_ROOM = 64 << 20
"""Bytes at which writers start to wait."""

_OVERHEAD = 1_000
"""Bytes counted per block in addition to its content."""

_LOOK_SECONDS = 0.1


class BlockBuffer:
    """A bounded buffer of blocks; a writer waits while the buffer is full.

    Args:
        writers: number of writer threads, each of which calls :meth:`end` when it has finished or failed.
        check: called while the reader waits and with each block; raises if no more blocks are wanted.
    """

    def __init__(self, writers: int, check: Callable[[], None]) -> None:
        self._left, self._check = writers, check
        self._blocks: deque[tuple[Block, int]] = deque()
        self._bytes = 0
        self._failure: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()

    @property
    def closed(self) -> bool:
        """Whether the reader takes no more blocks."""
        return self._closed

    def write(self, block: Block) -> None:
        """Append a block as soon as there is room."""
        size = block[2].nbytes + _OVERHEAD
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._bytes < _ROOM)
            self._blocks.append((block, size))
            self._bytes += size
            self._changed.notify_all()

    def end(self, failure: Exception | None = None) -> None:
        """Called by a writer that has written all its blocks, or has failed."""
        with self._changed:
            self._left -= 1
            self._failure = self._failure or failure
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Block]:
        """All blocks in order of arrival; raises as soon as a writer has failed."""
        while (block := self._next()) is not None:
            self._check()
            yield block

    def _next(self) -> Block | None:
        with self._changed:
            while not self._changed.wait_for(lambda: self._blocks or self._failure or not self._left, _LOOK_SECONDS):
                self._check()
            if self._failure is not None:
                raise self._failure
            if not self._blocks:
                return None
            block, size = self._blocks.popleft()
            self._bytes -= size
            self._changed.notify_all()
            return block

    def close(self) -> None:
        """Stop reading: waiting writers continue at once, and find the buffer closed."""
        with self._changed:
            self._closed = True
            self._blocks.clear()
            self._changed.notify_all()
