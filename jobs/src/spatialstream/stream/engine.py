"""The engine interface: executes tasks of the stages in its processes; and an engine that is the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from spatialstream.connectors.contracts import all_put
from spatialstream.stages.division import PartBlock
from spatialstream.stages.messages import Block
from spatialstream.stages.quarantine import AMBIENT
from spatialstream.stages.tasks import World

__all__ = ["Engine", "Inline", "Merge", "StageError", "Task", "Work", "stage_errors"]

T = TypeVar("T")

Task = Callable[[World, T], Iterable[str]]
"""A method of one of :data:`~spatialstream.stages.tasks.TASKS` that returns a few lines of text."""

Work = Callable[[World, T], Iterable[PartBlock]]
"""A task that generates rows, each for one of the parts in which they are gathered."""

Merge = Callable[[World, int, Iterable[Block]], Iterable[str]]
"""A task that merges all rows for a part into lines."""


class StageError(Exception):
    """A stage has failed with an unexpected exception, whose type and message are at the end of the text."""


class Engine(Protocol):
    """Executes tasks over items, which are numbers, texts, or tuples of them.

    When :meth:`map` returns, all puts that its tasks have started are complete; so the puts of one process take the
    time of one.

    If a task fails, the whole call fails: with :class:`StageError` for an unexpected exception in a stage, with the
    error itself if it is in :data:`~spatialstream.stages.quarantine.AMBIENT`. What other tasks have done by then
    remains, and is done again by the next try.
    """

    @property
    def world(self) -> World:
        """The environment of the tasks."""

    @property
    def is_near(self) -> bool:
        """Whether all tasks are executed on this machine."""

    @property
    def width(self) -> int:
        """How many tasks are executed at a time; 1 or more."""

    def map(self, do: Task[T], items: Sequence[T], *, anywhere: bool = False) -> list[str]:
        """Call ``do(world, item)`` for every item; return the lines in the order of the items.

        The items are numbers of partitions or slots, each of which has one process, which may keep its state; with
        ``anywhere`` each is done by any idle process.
        """

    def gather(self, do: Work[T], items: Sequence[T], merge: Merge, parts: Sequence[int] = (0,)) -> list[str]:
        """Call ``do(world, item)`` for every item, as :meth:`map` does, and for each part ``merge`` of all its rows.

        Each part has one process, which may keep its state. The rows of an item arrive in order; those of different
        items are interleaved. All rows are for one of these parts.

        Returns:
            The lines of the merges, in the order of the parts.
        """

    @property
    def moves(self) -> int:
        """How often the assignment of items to processes has changed."""

    @property
    def unsettled(self) -> bool:
        """Whether items would move on :meth:`settled`."""

    @property
    def would_move(self) -> bool:
        """Whether items would move, including moves that only even the load."""

    def settled(self) -> None:
        """Called between turns when all state in memory can be read from the storage: items may move now."""

    def check(self) -> None:
        """Make sure that there is something left to execute tasks.

        Raises:
            RunError: there is nothing, and no retry changes that.
        """

    def cancel(self) -> None:
        """Abort what other threads are having done; their calls fail."""


@dataclass(slots=True)
class Inline:
    """An engine that executes tasks in the calling thread: for tests, and for measuring the stages alone.

    Attributes:
        world: see :class:`Engine`.
    """

    world: World

    is_near = True
    width = 1
    moves = 0
    unsettled = would_move = False

    def map(self, do: Task[T], items: Sequence[T], *, anywhere: bool = False) -> list[str]:
        """See :class:`Engine`."""
        with stage_errors(), all_put(self.world.storage):
            return [line for item in items for line in do(self.world, item)]

    def gather(self, do: Work[T], items: Sequence[T], merge: Merge, parts: Sequence[int] = (0,)) -> list[str]:
        """See :class:`Engine`."""
        rows: Iterable[PartBlock] = (row for item in items for row in do(self.world, item))
        with stage_errors():
            if len(parts) > 1:
                rows = list(rows)
            return [line for part in parts for line in merge(self.world, part, (row for of, row in rows if of == part))]

    def settled(self) -> None:
        """See :class:`Engine`."""

    def check(self) -> None:
        """See :class:`Engine`."""

    def cancel(self) -> None:
        """See :class:`Engine`."""


@contextmanager
def stage_errors() -> Iterator[None]:
    """Turns unexpected exceptions of a stage into :class:`StageError`."""
    try:
        yield
    except AMBIENT:
        raise
    except Exception as error:
        raise StageError(f"{type(error).__name__}: {error}") from error
