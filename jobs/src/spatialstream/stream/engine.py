"""Where the stages are run: an engine does tasks in whatever processes it has."""

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
"""A method of one of :data:`~spatialstream.stages.tasks.TASKS` that gives lines of text; there are few of them."""

Work = Callable[[World, T], Iterable[PartBlock]]
"""One that gives rows, each for one of the parts that they are gathered in."""

Merge = Callable[[World, int, Iterable[Block]], Iterable[str]]
"""One that makes lines of the rows of all for a part."""


class StageError(Exception):
    """A task has raised something by itself: of what type, and what it says, is at the end of the text."""


class Engine(Protocol):
    """Does tasks over items, which are numbers, texts, or tuples of them.

    What tasks of :meth:`map` have begun to put is there when it returns; so those of one process take the time of one.

    A task that fails fails the whole: with :class:`StageError` where a stage has raised something by itself, with the
    error itself where it is of :data:`~spatialstream.stages.quarantine.AMBIENT`. What others have done by then is done,
    and is done again with the next try.
    """

    @property
    def world(self) -> World:
        """What tasks have to do with."""

    @property
    def is_near(self) -> bool:
        """Whether all tasks are done on this machine."""

    @property
    def width(self) -> int:
        """How many tasks are done at a time; 1 or more."""

    def map(self, do: Task[T], items: Sequence[T], *, anywhere: bool = False) -> list[str]:
        """``do(world, item)`` for every item; what that gives, in the order of the items.

        The items are numbers of partitions or slots, each of which has a process of its own that may remember it, or
        with ``anywhere`` are done where there is time.
        """

    def gather(self, do: Work[T], items: Sequence[T], merge: Merge, parts: Sequence[int] = (0,)) -> list[str]:
        """``do(world, item)`` for every item, as with :meth:`map`, and for each part ``merge`` of all rows for it.

        Each part has a process of its own that may remember it. The rows of an item come in their order; those of
        several items in any. All rows are for one of these parts.

        Returns:
            What that gives, in the order of the parts.
        """

    @property
    def moves(self) -> int:
        """How often items have got another process than they had."""

    @property
    def unsettled(self) -> bool:
        """Whether items would move if it were :meth:`settled`."""

    @property
    def would_move(self) -> bool:
        """Likewise, where they would only be more even, too."""

    def settled(self) -> None:
        """Is told between turns when nothing is remembered that could not be read anew: now items may move."""

    def check(self) -> None:
        """Make sure that there is still somebody who does tasks.

        Raises:
            RunError: there is nobody, and no repetition changes that.
        """

    def cancel(self) -> None:
        """Break off what other threads are having done; that then fails for them."""


@dataclass(slots=True)
class Inline:
    """An engine that is this thread: for tests, and for measuring the stages alone.

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
    """What a stage raises by itself, as :class:`StageError`."""
    try:
        yield
    except AMBIENT:
        raise
    except Exception as error:
        raise StageError(f"{type(error).__name__}: {error}") from error
