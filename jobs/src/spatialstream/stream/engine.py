"""Where the stages are run: an engine does functions in whatever processes it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from spatialstream.stages.leaving import AMBIENT
from spatialstream.stages.route import Row

__all__ = ["Engine", "Inline", "StageError"]

T = TypeVar("T")


class StageError(Exception):
    """A function has raised something by itself: of what type, and what it says, is at the end of the text."""


class Engine(Protocol):
    """Does functions over items. Functions and items are pickled, and what they return is small: text, a line each.

    A function that fails fails the whole, with :class:`StageError` where it has raised something by itself; what others
    have done by then is done, and is done again with the next try.
    """

    @property
    def width(self) -> int:
        """How many functions are done at a time; 1 or more."""

    def map(self, do: Callable[[T], Iterable[str]], items: Sequence[T], *, light: bool = False) -> list[str]:
        """``do(item)`` for every item; what that gives, in the order of the items.

        With ``light``, there is so little to do that beginning counts for more than an even distribution.
        """

    def gather(
        self,
        do: Callable[[T], Iterable[Row]],
        items: Sequence[T],
        merge: Callable[[Iterable[Row]], Iterable[str]],
        *,
        light: bool = False,
    ) -> list[str]:
        """``do(item)`` for every item, and in one place ``merge`` of all the rows that this gives.

        The rows of an item come in their order; those of several items in any.
        """

    def check(self) -> None:
        """Make sure that there is still somebody who does functions.

        Raises:
            RunError: there is nobody, and no repetition changes that.
        """

    def cancel(self) -> None:
        """Break off what other threads are having done; that then fails for them."""


class Inline:
    """An engine that is this thread: for tests, and for measuring the stages alone."""

    width = 1

    def map(self, do: Callable[[T], Iterable[str]], items: Sequence[T], *, light: bool = False) -> list[str]:
        """See :class:`Engine`."""
        with _told():
            return [line for item in items for line in do(item)]

    def gather(
        self,
        do: Callable[[T], Iterable[Row]],
        items: Sequence[T],
        merge: Callable[[Iterable[Row]], Iterable[str]],
        *,
        light: bool = False,
    ) -> list[str]:
        """See :class:`Engine`."""
        with _told():
            return list(merge(row for item in items for row in do(item)))

    def check(self) -> None:
        """See :class:`Engine`."""

    def cancel(self) -> None:
        """See :class:`Engine`."""


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except AMBIENT:
        raise
    except Exception as error:
        raise StageError(f"{type(error).__name__}: {error}") from error
