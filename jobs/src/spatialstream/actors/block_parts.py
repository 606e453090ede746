"""Blocks of one task on their way to several readers, each of which wants those of a part.

Nobody makes blocks ahead of the readers: one that finds no block of its part has the next ones made, and puts those of
other parts aside for theirs. What is put aside is bounded by bytes, beyond which it waits for the others; all have to
read at the same time.
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
        make: makes the next block, and is called by one thread at a time; None when there are no more.
        check: is called while others are waited for; raises where no more blocks are wanted.
        room: bytes put aside from which on no more blocks are made.
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
            Exception: what making a block has raised, for all readers, or what :meth:`end` was given.
        """
        while (block := self._next(part)) is not None:
            yield block

    def end(self, failure: Exception) -> None:
        """No more blocks are made; readers get the failure."""
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
        made, failure = None, None
        try:
            made = self._make()
        except Exception as error:  # noqa: BLE001 - it is raised for each reader
            failure = error
        with self._changed:
            self._making = False
            if made is None:
                self._over, self._failure = True, self._failure or failure
            else:
                part, block = made
                self._aside.setdefault(part, deque()).append(block)
                self._bytes += block[2].nbytes
            self._changed.notify_all()
