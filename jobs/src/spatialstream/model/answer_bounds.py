"""How much the answers to queries may take.

It is counted while they are found and made, so that what is too large is given up then, and not when all of it is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from spatialstream.model.errors import TooLarge

__all__ = ["UNBOUNDED", "AnswerBounds", "Counted"]

_SHORTEST = 0.75
"""Bytes that an object has in a row, at least, for each that it takes as columns: 36 and its id, where all its numbers
have one digit, for 44 and its id."""

_MUCH = 4 << 20
"""Bytes that are held for what was found, from which on it is much."""

_MAKING = 4
"""Bytes that a byte of what is found takes while rows are made of it, about: sorted, and its numbers as texts."""


def _anything(more: int) -> None:
    """There is room for all."""


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """What the answers of one call may take.

    Attributes:
        largest: bytes of their rows together; None: any number.
        hold: is told how many bytes more are held for them, or, below 0, how many fewer. What it raises where there is
            no room for them ends the call.
        making: is entered while rows are made of much that was found: of several calls one at a time, if it is a lock,
            so that what this takes for a moment is not taken several times.
    """

    largest: int | None = None
    hold: Callable[[int], object] = _anything
    making: AbstractContextManager[object] = field(default_factory=nullcontext)


UNBOUNDED = AnswerBounds()


class Counted:
    """What the answers of a call take, as it is made.

    Args:
        bounds: what they may take.
    """

    def __init__(self, bounds: AnswerBounds) -> None:
        self._bounds = bounds
        self._found = self._listed = self._made = 0

    def found(self, size: int, *, listed: bool) -> None:
        """More has been found.

        Args:
            size: bytes.
            listed: whether it is objects that all stand in the rows.

        Raises:
            TooLarge: the rows will be larger than they may be.
            Exception: there is no room.
        """
        self._bounds.hold(_MAKING * size)
        self._found += _MAKING * size
        if listed:
            self._listed += size
            self._check(int(self._listed * _SHORTEST), "more than ")

    @contextmanager
    def making(self) -> Iterator[bool]:
        """While some rows are made; whether that is of much."""
        if self._found < _MUCH:
            yield False
        else:
            with self._bounds.making:
                yield True

    def made(self, size: int) -> None:
        """A row has been made, of so many bytes; errors as in :meth:`found`."""
        self._bounds.hold(size)
        self._made += size
        self._check(self._made, "")

    def _check(self, size: int, about: str) -> None:
        most = self._bounds.largest
        if most is not None and size > most:
            raise TooLarge(f"the answer would have {about}{size} bytes, and the most is {most}")

    def end(self, *, kept: bool) -> None:
        """Nothing of what was found is held any more; of the rows neither, unless they are kept."""
        self._bounds.hold(-self._found if kept else -(self._found + self._made))
