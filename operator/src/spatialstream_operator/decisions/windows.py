"""Minimum and maximum over a sliding time window, in bounded space.

Values are aggregated in at most :data:`PIECES` + 1 pieces of the window, each with its minimum and maximum, so that a
window of any length fits into a status. A value counts for at most one piece longer than the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spatialstream_operator.decisions import records

__all__ = ["EMPTY", "PIECES", "Piece", "Window"]

PIECES = 12
"""Number of pieces of a full window."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Values of one part of a window.

    Attributes:
        first, last: times of its first and last value, in ms.
        low, high: its lowest and highest value.
    """

    first: int
    last: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Window:
    """Integers of at least 0, by arrival time.

    Attributes:
        pieces: in ascending order of time.
        began: since when values have arrived without a gap, in ms; None if there are none.
    """

    pieces: tuple[Piece, ...] = ()
    began: int | None = None

    def add(self, now: int, value: int, length: int, hole: int) -> Window:
        """The window with one more value.

        Args:
            now: time of the value; not before the last one.
            value: the value.
            length: length of the window, in ms.
            hole: maximum gap between two values, in ms; after a longer one the window starts anew.
        """
        if self.began is None or not 0 <= now - self.pieces[-1].last <= hole:
            return Window((Piece(now, now, value, value),), now)
        last = self.pieces[-1]
        if now - last.first < max(1, length // PIECES):
            earlier, newest = self.pieces[:-1], Piece(last.first, now, min(last.low, value), max(last.high, value))
        else:
            earlier, newest = self.pieces, Piece(now, now, value, value)
        return Window((*(piece for piece in earlier if piece.last > now - length), newest), self.began)

    def covers(self, now: int, length: int) -> bool:
        """Whether the values cover the whole window."""
        return self.began is not None and self.began <= now - length

    @property
    def lowest(self) -> int:
        """The lowest value; the window must not be empty."""
        return min(piece.low for piece in self.pieces)

    @property
    def highest(self) -> int:
        """The highest value; the window must not be empty."""
        return max(piece.high for piece in self.pieces)

    def to_status(self) -> dict[str, Any]:
        """Convert to the form in a status."""
        pieces = [
            {
                "first": records.moment_text(piece.first),
                "last": records.moment_text(piece.last),
                "low": piece.low,
                "high": piece.high,
            }
            for piece in self.pieces
        ]
        return {"since": records.moment_text(self.began), "pieces": pieces}

    @classmethod
    def from_status(cls, record: Mapping[str, Any]) -> Window:
        """Read from a status; empty if it is not in the form of :meth:`to_status`."""
        began, value = records.moment(record, "since"), record.get("pieces")
        pieces = [_piece(each) for each in value] if isinstance(value, list | tuple) else []
        known = tuple(each for each in pieces if each is not None)
        ordered = all(one.last <= other.first for one, other in pairwise(known))
        return cls(known, began) if began is not None and known and len(known) == len(pieces) and ordered else cls()


def _piece(record: object) -> Piece | None:
    if not isinstance(record, Mapping):
        return None
    first, last = records.moment(record, "first"), records.moment(record, "last")
    low, high = records.whole(record, "low"), records.whole(record, "high")
    if first is None or last is None or low is None or high is None:
        return None
    return Piece(first, last, low, high)


EMPTY = Window()
"""A window without values."""
