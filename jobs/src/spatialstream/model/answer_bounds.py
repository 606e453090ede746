"""How much the answers to queries may take of the process that receives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["UNBOUNDED", "AnswerBounds"]


def _anything(more: int) -> None:
    """There is room for all."""


@dataclass(frozen=True, slots=True)
class AnswerBounds:
    """What the answers of one call may take.

    Attributes:
        largest: bytes of their rows together; None: any number.
        hold: is told how many bytes more are held for them, or, below 0, how many fewer. What it raises where there is
            no room for them ends the call.
    """

    largest: int | None = None
    hold: Callable[[int], object] = _anything


UNBOUNDED = AnswerBounds()
