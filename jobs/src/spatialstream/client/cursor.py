"""A consumer's position in the results of a stream, as a string with which the consumer can resume.

Rows of a round's phase arrive in order, and a repeated round gives the same rows (see
:mod:`~spatialstream.connectors.delivery`). So in each partition the last row of each phase determines which rows the
consumer has received, regardless of the consumer and of repeated sending, and an offset says where to continue reading.
A cursor covers the latest few incarnations of the stream, so that late rows of an earlier incarnation are recognized as
well, and holds a fingerprint of the topic, so that a position in a deleted topic of the same name is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from spatialstream.client.results import Row
from spatialstream.model.errors import Gone, SettingError

__all__ = ["PATTERN", "Cursor", "Reached"]

_INCARNATIONS = 4
_PHASES = 2
_NOTHING = (-1, 0)
_INCARNATION = r"~([0-9A-Za-z]{0,64})" + r"\.([0-9]{0,18})\.([0-9]{1,18})" * _PHASES
_PART = re.compile(rf"([0-9]{{1,18}})((?:{_INCARNATION}){{0,{_INCARNATIONS}}})")
_MARK = re.compile(r"[0-9a-f]{0,16}")
_MOST_PARTS = 64
PATTERN = r"^[0-9a-f]{0,16}(-[0-9]{1,18}[0-9A-Za-z~.]*){1,64}$"
"""Pattern of cursors as strings, for interfaces that pass them on."""

_Seen = tuple[tuple[int, int], ...]
"""For each phase the round of the last row, and the number of its rows seen."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A position in one partition.

    Attributes:
        offset: offset of the first message that contains, or begins, a row after the position.
        incarnations: ids of the latest incarnations with the rows seen of each, in the order of first appearance.
    """

    offset: int
    incarnations: tuple[tuple[str, _Seen], ...] = ()

    def has(self, row: Row) -> bool:
        """Whether a row is before the position."""
        place = row.place
        for incarnation, seen in self.incarnations:
            if incarnation == place.incarnation:
                return (place.round, row.upto) <= seen[place.phase]
        return False

    def after(self, row: Row) -> Reached:
        """Return the position after a row that it does not have yet."""
        place, incarnations = row.place, self.incarnations
        at = next(
            (i for i, (incarnation, _) in enumerate(incarnations) if incarnation == place.incarnation),
            len(incarnations),
        )
        seen = incarnations[at][1] if at < len(incarnations) else (_NOTHING,) * _PHASES
        seen = (*seen[: place.phase], (place.round, row.upto), *seen[place.phase + 1 :])
        return Reached(
            row.resume, (*incarnations[:at], (place.incarnation, seen), *incarnations[at + 1 :])[-_INCARNATIONS:]
        )

    def joined(self, other: Reached) -> Reached:
        """Return the position that has the rows of both; each consumer must have all its rows up to its position."""
        incarnations = dict(self.incarnations)
        for incarnation, seen in other.incarnations:
            incarnations[incarnation] = tuple(map(max, incarnations.get(incarnation, seen), seen))
        return Reached(max(self.offset, other.offset), tuple(incarnations.items())[-_INCARNATIONS:])

    def __str__(self) -> str:
        """Its part of the cursor's string."""
        word = str(self.offset)
        for incarnation, seen in self.incarnations:
            word += f"~{incarnation}" + "".join(f".{'' if round_ < 0 else round_}.{upto}" for round_, upto in seen)
        return word

    @classmethod
    def parse(cls, word: str) -> Self | None:
        """Parse the result of :meth:`__str__`; None if the string is invalid."""
        match = _PART.fullmatch(word)
        if match is None:
            return None
        incarnations = dict[str, _Seen]()
        for incarnation, *numbers in re.findall(_INCARNATION, match[2]):
            rounds, rows = numbers[::2], numbers[1::2]
            incarnations[incarnation] = tuple(
                (int(each or -1), int(upto)) for each, upto in zip(rounds, rows, strict=True)
            )
        return cls(int(match[1]), tuple(incarnations.items()))


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in all partitions, after some row.

    Attributes:
        parts: the position in each partition.
        topic: fingerprint of the topic, which differs from that of a deleted topic of its name; empty: not known.
    """

    parts: tuple[Reached, ...]
    topic: str = ""

    @classmethod
    def of(cls, offsets: Iterable[int], topic: str = "") -> Self:
        """Return the position before the messages of these offsets, one for each partition."""
        return cls(tuple(map(Reached, offsets)), topic)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offset from which to continue reading, in each partition."""
        return tuple(part.offset for part in self.parts)

    def has(self, row: Row) -> bool:
        """Whether a row is before the position."""
        return self.parts[row.partition].has(row)

    def after(self, row: Row) -> Cursor:
        """Return the position after a row that it does not have yet."""
        return self._with(row.partition, self.parts[row.partition].after(row))

    def at(self, partition: int, offset: int) -> Cursor:
        """Return the cursor with the same rows, and another offset for a partition."""
        part = self.parts[partition]
        return self if offset == part.offset else self._with(partition, replace(part, offset=offset))

    def _with(self, partition: int, part: Reached) -> Cursor:
        return Cursor((*self.parts[:partition], part, *self.parts[partition + 1 :]), self.topic)

    def joined(self, other: Cursor) -> Cursor:
        """See :meth:`Reached.joined`; both must be of one topic."""
        if self == other:
            return self
        parts = zip(self.parts, other.parts, strict=True)
        return Cursor(tuple(mine.joined(its) for mine, its in parts), other.topic)

    def check(self, other: Cursor) -> None:
        """Check that another cursor is of the same topic.

        Raises:
            Gone: it is not.
        """
        if len(self.parts) != len(other.parts) or len({self.topic, other.topic} - {""}) > 1:
            problem = "the topic of results has been recreated since this position was issued"
            raise Gone(f"{problem}; start without it, or at oldest")

    def __str__(self) -> str:
        """The cursor as a string."""
        return "-".join((self.topic, *map(str, self.parts)))

    @classmethod
    def parse(cls, word: str) -> Self:
        """Parse a cursor.

        Raises:
            SettingError: the string is invalid.
        """
        topic, *words = word.split("-", _MOST_PARTS + 1)
        parts = [part for each in words if (part := Reached.parse(each)) is not None]
        if not parts or not len(parts) == len(words) <= _MOST_PARTS or not _MARK.fullmatch(topic):
            raise SettingError("position", "is not a valid position; start without it, or at oldest")
        return cls(tuple(parts), topic)
