"""The blocks of one task, divided among several readers, each of which reads the blocks of one part.

No block is made ahead of the readers. A reader that finds no block of its part makes the next ones, and sets those of
other parts aside for their readers. What is set aside is bounded by bytes; at the bound a reader waits for the others,
so all parts have to be read at the same time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator

from spatialstream.stages.division import PartBlock
from spatialstream.stages.messages import Block

__all__ = ["BlockParts"]

_ROOM = 64 << 20
_LOOK_SECONDS = 0.1


class BlockParts:
    """The blocks of a task, by part.

    Args:
        make: makes the next block, None after the last; called by one thread at a time.
        check: called while a reader waits; raises if no more blocks are wanted.
        room: bytes set aside at which no more blocks are made.
    """

    def __init__(self, make: Callable[[], PartBlock | None], check: Callable[[], None], room: int = _ROOM) -> None:
        self._make, self._check, self._room = make, check, room
        self._aside: dict[int, deque[Block]] = {}
        self._bytes = 0
        self._making = self._over = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()

    def of(self, part: int) -> Generator[Block]:
        """The blocks of a part, for one reader.

        Raises:
            Exception: what :meth:`make` has raised (raised in all readers), or the failure passed to :meth:`end`.
        """
        while (block := self._next(part)) is not None:
            yield block

    def end(self, failure: Exception) -> None:
        """Make no more blocks; readers raise the failure."""
        with self._changed:
            self._over, self._failure = True, self._failure or failure
            self._aside.clear()
            self._changed.notify_all()

    def _next(self, part: int) -> Block | None:
        with self._changed:
            mine = self._aside.setdefault(part, deque())
        while True:
            with self._changed:
                while not self._changed.wait_for(lambda: mine or self._over or self._may_make(), _LOOK_SECONDS):
                    self._check()
                if self._failure is not None:
                    raise self._failure
                if mine:
                    block = mine.popleft()
                    self._bytes -= block[2].nbytes
                    self._changed.notify_all()
                    return block
                if self._over:
                    return None
                self._making = True
            self._put_aside()

    def _may_make(self) -> bool:
        return not self._making and self._bytes < self._room

    def _put_aside(self) -> None:
        produced, failure = None, None
        try:
            produced = self._make()
        except Exception as error:  # noqa: BLE001 - raised again in each reader
            failure = error
        with self._changed:
            self._making = False
            if produced is None:
                self._over, self._failure = True, self._failure or failure
            else:
                part, block = produced
                self._aside.setdefault(part, deque()).append(block)
                self._bytes += block[2].nbytes
            self._changed.notify_all()
