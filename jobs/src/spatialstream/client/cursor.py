"""How far a consumer has come in the results of a stream, as a word that it keeps and shows when it comes again.

Rows of a round's phase come in order, and those of a round that is done again are the same (see
:mod:`~spatialstream.connectors.delivery`). So in each partition the last row of each phase says which rows have been
had, whoever reads them and however often they are sent; and an offset says where to read on. A word bears a few of the
stream's incarnations, so that rows of an earlier one that come late are told, too; and a mark of the topic, so that a
place in one that was there before under the same name is known to be none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from spatialstream.client.results import Row
from spatialstream.model.errors import Gone, SettingError

__all__ = ["PATTERN", "Cursor", "Reached"]

_LIVES = 4
_PHASES = 2
_NOTHING = (-1, 0)
_LIFE = r"~([0-9A-Za-z]{0,64})" + r"\.([0-9]{0,18})\.([0-9]{1,18})" * _PHASES
_PART = re.compile(rf"([0-9]{{1,18}})((?:{_LIFE}){{0,{_LIVES}}})")
_MARK = re.compile(r"[0-9a-f]{0,16}")
_MOST_PARTS = 64
PATTERN = r"^[0-9a-f]{0,16}(-[0-9]{1,18}[0-9A-Za-z~.]*){1,64}$"
"""What words look like, for those who pass them on."""

_Seen = tuple[tuple[int, int], ...]
"""For each phase the round of the last row, and how many rows of it there have been."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A place in one partition.

    Attributes:
        offset: of the first message that has rows after it, or begins one.
        incarnations: for each incarnation what has been had of it, the one that was seen first last.
    """

    offset: int
    incarnations: tuple[tuple[str, _Seen], ...] = ()

    def has(self, row: Row) -> bool:
        """Whether a row is before the place."""
        place = row.place
        for incarnation, seen in self.incarnations:
            if incarnation == place.incarnation:
                return (place.round, row.upto) <= seen[place.phase]
        return False

    def after(self, row: Row) -> Reached:
        """The place after a row that it has not."""
        place, incarnations = row.place, self.incarnations
        at = next(
            (i for i, (incarnation, _) in enumerate(incarnations) if incarnation == place.incarnation),
            len(incarnations),
        )
        seen = incarnations[at][1] if at < len(incarnations) else (_NOTHING,) * _PHASES
        seen = (*seen[: place.phase], (place.round, row.upto), *seen[place.phase + 1 :])
        return Reached(row.resume, (*incarnations[:at], (place.incarnation, seen), *incarnations[at + 1 :])[-_LIVES:])

    def joined(self, other: Reached) -> Reached:
        """The place that has what either has, of those who have had all up to there that is for them."""
        incarnations = dict(self.incarnations)
        for incarnation, seen in other.incarnations:
            incarnations[incarnation] = tuple(map(max, incarnations.get(incarnation, seen), seen))
        return Reached(max(self.offset, other.offset), tuple(incarnations.items())[-_LIVES:])

    def __str__(self) -> str:
        """As in the word."""
        word = str(self.offset)
        for incarnation, seen in self.incarnations:
            word += f"~{incarnation}" + "".join(f".{'' if round_ < 0 else round_}.{upto}" for round_, upto in seen)
        return word

    @classmethod
    def parse(cls, word: str) -> Self | None:
        """What :meth:`__str__` gave; None if it is none of these."""
        match = _PART.fullmatch(word)
        if match is None:
            return None
        incarnations = dict[str, _Seen]()
        for incarnation, *numbers in re.findall(_LIFE, match[2]):
            rounds, rows = numbers[::2], numbers[1::2]
            incarnations[incarnation] = tuple(
                (int(each or -1), int(upto)) for each, upto in zip(rounds, rows, strict=True)
            )
        return cls(int(match[1]), tuple(incarnations.items()))


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in all partitions, after some row.

    Attributes:
        parts: the place in each partition.
        topic: what tells the topic from others of its name; empty: not known.
    """

    parts: tuple[Reached, ...]
    topic: str = ""

    @classmethod
    def of(cls, offsets: Iterable[int], topic: str = "") -> Self:
        """The place before the messages of these offsets, one for each partition."""
        return cls(tuple(map(Reached, offsets)), topic)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where to read on, in each partition."""
        return tuple(part.offset for part in self.parts)

    def has(self, row: Row) -> bool:
        """Whether a row is before the place."""
        return self.parts[row.partition].has(row)

    def after(self, row: Row) -> Cursor:
        """The place after a row that it has not."""
        return self._with(row.partition, self.parts[row.partition].after(row))

    def at(self, partition: int, offset: int) -> Cursor:
        """The same rows, a partition to be read on from another offset."""
        part = self.parts[partition]
        return self if offset == part.offset else self._with(partition, replace(part, offset=offset))

    def _with(self, partition: int, part: Reached) -> Cursor:
        return Cursor((*self.parts[:partition], part, *self.parts[partition + 1 :]), self.topic)

    def joined(self, other: Cursor) -> Cursor:
        """See :meth:`Reached.joined`; both are of one topic."""
        if self == other:
            return self
        parts = zip(self.parts, other.parts, strict=True)
        return Cursor(tuple(mine.joined(its) for mine, its in parts), other.topic)

    def check(self, other: Cursor) -> None:
        """Make sure that another one is of the same topic.

        Raises:
            Gone: it is not.
        """
        if len(self.parts) != len(other.parts) or len({self.topic, other.topic} - {""}) > 1:
            raise Gone("the results have been made anew since this position was given; begin without it, or at oldest")

    def __str__(self) -> str:
        """The word."""
        return "-".join((self.topic, *map(str, self.parts)))

    @classmethod
    def parse(cls, word: str) -> Self:
        """From its word.

        Raises:
            SettingError: it is none.
        """
        topic, *words = word.split("-", _MOST_PARTS + 1)
        parts = [part for each in words if (part := Reached.parse(each)) is not None]
        if not parts or not len(parts) == len(words) <= _MOST_PARTS or not _MARK.fullmatch(topic):
            raise SettingError("position", "is not one that was given here; begin without it, or at oldest")
        return cls(tuple(parts), topic)
