"""The lowest and the highest of some values over the time that just passed, in a few numbers.

Values are kept in at most :data:`PIECES` + 1 pieces of the window, each with its lowest and highest value, so that a
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
"""How many pieces a full window has."""


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
    """Whole numbers of at least 0, by the time at which they came.

    Attributes:
        pieces: ascending in time.
        began: since when values have come without a hole, in ms; None if none has.
    """

    pieces: tuple[Piece, ...] = ()
    began: int | None = None

    def add(self, now: int, value: int, length: int, hole: int) -> Window:
        """With one more value.

        Args:
            now: its time; not before that of the last one.
            value: the value.
            length: of the window, in ms.
            hole: if nothing came for longer than this, in ms, what was before does not count.
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
        """Whether values have come for all of the window."""
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
        """As it stands in a status."""
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
        """From a status; empty if it is not what :meth:`to_status` gives."""
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
