"""How far a consumer has come in the results of a stream, as a word that it keeps and shows when it comes again.

Rows of a round's phase come in order, and those of a round that is done again are the same (see
:mod:`~spatialstream.sources.delivery`). So the last row of each phase says which rows have been had, whoever reads them
and however often they are sent; and an offset says where to read on. A word bears a few of the stream's lives, so that
rows of an earlier one that come late are told, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from spatialstream.client.results import Row
from spatialstream.model.errors import SettingError

__all__ = ["Cursor"]

_LIVES = 4
_PHASES = 2
_NOTHING = (-1, 0)
_LIFE = r"~([0-9A-Za-z]{0,64})" + r"\.([0-9]{0,18})\.([0-9]{1,18})" * _PHASES
_WORD = re.compile(rf"([0-9]{{1,18}})((?:{_LIFE}){{0,{_LIVES}}})")

_Seen = tuple[tuple[int, int], ...]
"""For each phase the round of the last row, and how many rows of it there have been."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place after some row.

    Attributes:
        offset: of the first message that has rows after it, or begins one.
        lives: for each life what has been had of it, the one that was seen first last.
    """

    offset: int
    lives: tuple[tuple[str, _Seen], ...] = ()

    def has(self, row: Row) -> bool:
        """Whether a row is before the place."""
        place = row.place
        for life, seen in self.lives:
            if life == place.life:
                return (place.round, row.upto) <= seen[place.phase]
        return False

    def after(self, row: Row) -> Cursor:
        """The place after a row that it has not."""
        place = row.place
        number = (place.round, row.upto)
        lives = dict(self.lives)
        before = lives.get(place.life, (_NOTHING,) * _PHASES)
        lives[place.life] = tuple(number if phase == place.phase else had for phase, had in enumerate(before))
        return Cursor(row.resume, tuple(lives.items())[-_LIVES:])

    def at(self, offset: int) -> Cursor:
        """The same rows, to be read on from another offset."""
        return self if offset == self.offset else Cursor(offset, self.lives)

    def joined(self, other: Cursor) -> Cursor:
        """The place that has what either has, of those who have had all up to there that is for them."""
        lives = dict(self.lives)
        for life, seen in other.lives:
            lives[life] = tuple(map(max, lives.get(life, seen), seen))
        return Cursor(max(self.offset, other.offset), tuple(lives.items())[-_LIVES:])

    def __str__(self) -> str:
        """The word."""
        word = str(self.offset)
        for life, seen in self.lives:
            word += f"~{life}" + "".join(f".{'' if round_ < 0 else round_}.{upto}" for round_, upto in seen)
        return word

    @classmethod
    def parse(cls, word: str) -> Self:
        """From its word.

        Raises:
            SettingError: it is none.
        """
        match = _WORD.fullmatch(word)
        if match is None:
            raise SettingError("position", "is not one that was given here; begin without it, or at oldest")
        lives = dict[str, _Seen]()
        for life, *numbers in re.findall(_LIFE, match[2]):
            rounds, rows = numbers[::2], numbers[1::2]
            lives[life] = tuple((int(each or -1), int(upto)) for each, upto in zip(rounds, rows, strict=True))
        return cls(int(match[1]), tuple(lives.items()))
