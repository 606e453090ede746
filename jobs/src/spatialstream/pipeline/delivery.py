"""How result rows leave a live stream, and how a consumer drops repeated ones.

Transport is at least once: a round that is done again after a crash sends its rows again. They are the same rows under
the same keys, because a round is a function of its record. The key of a message says which rows it holds: round, phase
(0, or 1 for the second phase of SKQs), and number of its first row in them. A consumer that knows how many rows of the
latest rounds it has drops what it has seen (:class:`Deduplicator`).

Rows go out many to a message, as JSON Lines, so that a row costs no message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Deduplicator", "result_messages"]

_BYTES_PER_MESSAGE = 128 << 10


def result_messages(
    lines: pa.LargeStringArray, number: int, phase: int, rows_per_message: int
) -> Iterator[tuple[bytes, pa.Buffer]]:
    """The rows of a round as messages (key, value).

    Args:
        lines: the rows.
        number: of the round.
        phase: 0, or 1 for the second phase.
        rows_per_message: the most rows of a message; fewer where they are long.
    """
    if not len(lines):
        return
    text = pc.binary_join_element_wise(lines, pa.scalar("\n", pa.large_string()), pa.scalar("", pa.large_string()))
    _, offsets, data = text.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8)
    first = 0
    while first < len(text):
        fitting = int(np.searchsorted(bounds, bounds[first] + _BYTES_PER_MESSAGE, side="right")) - 1
        last = min(len(text), first + rows_per_message, max(first + 1, fitting))
        # without the last newline: a message is its lines, joined
        yield (
            f"{number} {phase} {first}".encode(),
            data.slice(int(bounds[first]), int(bounds[last] - bounds[first]) - 1),
        )
        first = last


class Deduplicator:
    """Tells which rows of results are new; one for each consumer.

    The rows of a round's phase come in order, so it is enough to know how many of them have come. They can only come
    again while the round may be done again, which ends soon after the next one; rows of much earlier rounds are
    therefore known to be repeated, and nothing need be kept of them.

    Args:
        rounds: how many rounds are kept.

    Attributes:
        repeated: rows that were not new.
    """

    def __init__(self, rounds: int = 256) -> None:
        self._rounds = rounds
        self._latest = -1
        self._next: dict[tuple[int, int], int] = {}
        self.repeated = 0

    def new_rows(self, key: bytes, value: bytes) -> list[bytes]:
        """The rows of a message that have not come before."""
        number, phase, first = (int(part) for part in key.split(b" "))
        rows = value.split(b"\n")
        if number > self._latest:
            self._latest = number
            for old in [each for each in self._next if each[0] <= number - self._rounds]:
                del self._next[old]
        if number <= self._latest - self._rounds:
            self.repeated += len(rows)
            return []
        known = self._next.get((number, phase), 0)
        self._next[number, phase] = max(known, first + len(rows))
        old_rows = min(len(rows), max(0, known - first))
        self.repeated += old_rows
        return rows[old_rows:]

    def to_record(self) -> dict[str, Any]:
        """JSON-able: what a consumer keeps beside its offsets to go on later."""
        return {"latest": self._latest, "next": [[*place, row] for place, row in sorted(self._next.items())]}

    @classmethod
    def from_record(cls, record: dict[str, Any], rounds: int = 256) -> Deduplicator:
        """What :meth:`to_record` gave."""
        self = cls(rounds)
        self._latest = record["latest"]
        self._next = {(number, phase): row for number, phase, row in record["next"]}
        return self
