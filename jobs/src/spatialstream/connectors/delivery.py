"""Delivery of result rows from a live stream: how a consumer gets each of them exactly once, and complete.

Transport is at least once: a round that is repeated after a crash sends its rows again. They are the same rows under
the same keys, because a round is a function of its record. The key of a message says which rows it contains: round,
phase (0, or 1 for the second phase of SKQs), number of its first row in them, and the incarnation of the stream: a
stream that is removed and created again counts its rounds from 0 again. A consumer that knows how many rows of the
latest rounds it has drops what it has seen (:class:`Deduplicator`).

A message contains many rows, as JSON Lines, so that a row costs no message. A row with a long list is sent in parts
(:mod:`~spatialstream.stages.rows`), consecutively and in order, each of which counts as a row here; a consumer
reassembles them (:class:`Assembler`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Assembler", "Deduplicator", "Place", "result_messages", "with_newlines"]

_BYTES_PER_MESSAGE = 128 << 10
_INCARNATIONS = 8
"""Maximum number of incarnations of a stream that are distinguished; one topic hardly holds more."""

_KEY = re.compile(rb"([0-9]{1,18}) ([0-9]{1,9}) ([0-9]{1,18})(?: ([0-9A-Za-z]+))?")
_PART = re.compile(rb', "part": ([0-9]+), "parts": ([0-9]+)(, "(?:objects|terms)": \[)')


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a message's rows.

    Attributes:
        round: number of the round.
        phase: 0, or 1 for the second phase.
        first: number of the first row among those of its round and phase.
        incarnation: of the stream; empty if it has no id.
    """

    round: int
    phase: int
    first: int
    incarnation: str = ""

    @property
    def key(self) -> bytes:
        """The key of the message."""
        return f"{self.round} {self.phase} {self.first} {self.incarnation}".rstrip().encode()

    @classmethod
    def of(cls, key: bytes | None) -> Self | None:
        """Parse :attr:`key`; None if it is invalid."""
        match = _KEY.fullmatch(key or b"")
        if match is None:
            return None
        number, phase, first = (int(match[group]) for group in (1, 2, 3))
        return cls(number, phase, first, (match[4] or b"").decode())


def result_messages(
    lines: Iterable[pa.LargeStringArray], number: int, phase: int, rows_per_message: int, incarnation: str = ""
) -> Iterator[tuple[bytes, pa.Buffer]]:
    """The rows of a round as messages (key, value).

    Args:
        lines: the rows, in pieces of any size, which does not affect the messages.
        number: of the round.
        phase: 0, or 1 for the second phase.
        rows_per_message: maximum rows of a message; fewer if they are long.
        incarnation: of the stream.
    """
    sent, remainder = 0, pa.array([], pa.large_string())
    for piece in lines:
        text = pa.concat_arrays([remainder, with_newlines(piece)])
        used = 0
        for first, last, value in _cut(text, rows_per_message):
            if last == len(text):  # the next piece may have rows that belong to the same message
                break
            yield Place(number, phase, sent + first, incarnation).key, value
            used = last
        sent, remainder = sent + used, text.slice(used)
    for first, _, value in _cut(remainder, rows_per_message):
        yield Place(number, phase, sent + first, incarnation).key, value


def with_newlines(lines: pa.LargeStringArray) -> pa.LargeStringArray:
    """Each line with its newline."""
    return pc.binary_join_element_wise(lines, pa.scalar("\n", pa.large_string()), pa.scalar("", pa.large_string()))


def _cut(text: pa.LargeStringArray, most: int) -> Iterator[tuple[int, int, pa.Buffer]]:
    """Lines cut into messages: first and last row (exclusive) of each, and its value."""
    if not len(text):
        return
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8)
    first = 0
    while first < len(text):
        fitting = int(np.searchsorted(bounds, bounds[first] + _BYTES_PER_MESSAGE, side="right")) - 1
        last = min(len(text), first + most, max(first + 1, fitting))
        # without the last newline: a message is its lines, joined
        yield first, last, data.slice(int(bounds[first]), int(bounds[last] - bounds[first]) - 1)
        first = last


@dataclass(slots=True)
class _Incarnation:
    """What is known of an incarnation: its latest round, and the number of rows received of each (round, phase)."""

    latest: int = -1
    rows: dict[tuple[int, int], int] = field(default_factory=dict)


class Deduplicator:
    """Tells which rows of results are new; one instance per consumer.

    The rows of a round's phase come in order, so it is enough to know how many of them have come. They can only come
    again while the round may be repeated, which ends soon after the next one; rows of much earlier rounds are therefore
    known to be repetitions, and nothing is kept of them.

    For an unknown incarnation of the stream, all rows are new. Rows of an earlier incarnation that come between those
    of a later one are checked against what is known of theirs, each incarnation by itself.

    Args:
        rounds: number of rounds kept for each incarnation.

    Attributes:
        repeated: number of rows that were not new.
        incarnation: the incarnation that appeared last; None before there is any.
    """

    def __init__(self, rounds: int = 256) -> None:
        self._rounds = rounds
        self._incarnations: dict[str, _Incarnation] = {}
        self.repeated = 0

    @property
    def incarnation(self) -> str | None:
        """See above."""
        return next(reversed(self._incarnations), None)

    def new_rows(self, key: bytes, value: bytes) -> list[bytes]:
        """The rows of a message that have not come before.

        Raises:
            ValueError: the key is not that of a message of results.
        """
        place = Place.of(key)
        if place is None:
            raise ValueError(f"{key!r} is not the key of a message of results")
        rows = value.split(b"\n")
        old = self.old_rows(place, len(rows))
        self.note(place, place.first + len(rows))
        self.repeated += old
        return rows[old:]

    def old_rows(self, place: Place, rows: int) -> int:
        """How many of a message's first rows have come before."""
        incarnation = self._incarnations.get(place.incarnation, _Incarnation())
        if place.round <= incarnation.latest - self._rounds:
            return rows
        return min(rows, max(0, incarnation.rows.get((place.round, place.phase), 0) - place.first))

    def note(self, place: Place, upto: int) -> None:
        """Record that the first ``upto`` rows of a place's round and phase have come."""
        incarnation = self._incarnations.get(place.incarnation)
        if incarnation is None:
            incarnation = self._incarnations[place.incarnation] = _Incarnation()
            while len(self._incarnations) > _INCARNATIONS:
                del self._incarnations[next(iter(self._incarnations))]
        if place.round > incarnation.latest:
            incarnation.latest = place.round
            for old in [each for each in incarnation.rows if each[0] <= place.round - self._rounds]:
                del incarnation.rows[old]
        if place.round > incarnation.latest - self._rounds:
            part = place.round, place.phase
            incarnation.rows[part] = max(incarnation.rows.get(part, 0), upto)

    def to_record(self) -> dict[str, Any]:
        """JSON-able: what a consumer saves with its offsets to continue later."""
        incarnations = []
        for name, incarnation in self._incarnations.items():
            counts = [[*part, rows] for part, rows in sorted(incarnation.rows.items())]
            incarnations.append({"incarnation": name, "latest": incarnation.latest, "next": counts})
        return {"incarnations": incarnations}

    @classmethod
    def from_record(cls, record: dict[str, Any], rounds: int = 256) -> Deduplicator:
        """The inverse of :meth:`to_record`."""
        self = cls(rounds)
        for each in record["incarnations"]:
            counts = {(int(number), int(phase)): int(row) for number, phase, row in each["next"]}
            if counts:
                self._incarnations[str(each["incarnation"])] = _Incarnation(int(each["latest"]), counts)
        return self


class Assembler:
    """Reassembles rows that come in parts.

    Parts that cannot be reassembled, because those before or after them were never there to be read, are returned as
    they are: they contain their part number.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._head = b""
        self._parts = 0
        self._lists: list[int] = []

    @property
    def waiting(self) -> bool:
        """Whether parts of a row have come, and more are to come."""
        return bool(self._lines)

    def add(self, line: bytes) -> list[bytes]:
        """Add the next row, or part of a row; returns the rows that are complete now, in order."""
        at = line.find(b', "part": ')  # quotes within strings are escaped, so this is nothing else
        match = None if at < 0 else _PART.match(line, at)
        if match is None:
            return [*self._left(), line]
        number, parts = int(match[1]), int(match[2])
        complete = []
        if (number, parts, line[:at]) != (len(self._lines), self._parts, self._head):
            complete = self._left()
            if number != 0:
                return [*complete, line]
            self._head, self._parts = line[:at], parts
        self._lines.append(line)
        self._lists.append(match.end())
        if number + 1 < parts:
            return complete
        lists = b", ".join(part[start:-2] for part, start in zip(self._lines, self._lists, strict=True))
        whole = b"".join((self._head, match[3], lists, b"]}"))
        self._left()
        return [*complete, whole]

    def _left(self) -> list[bytes]:
        left, self._lines, self._lists = self._lines, [], []
        self._head, self._parts = b"", 0
        return left
