"""Results in memory with when each message came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spatialstream.model.errors import Gone
from tests.unit.client.broker import Message


@dataclass
class MemoryLog:
    """Stands for :class:`~spatialstream.client.history.ResultsLog`.

    Attributes:
        partitions: messages: when it came, key, value. What is None was a message before.
        first: of each partition, the offset of the first message that is kept.
        read_bytes: of all messages that have been read.
    """

    partitions: list[list[tuple[int, bytes | None, bytes | None] | None]] = field(default_factory=lambda: [[]])
    first: int = 0
    read_bytes: int = 0

    def bounds(self) -> tuple[list[int], list[int]]:
        return [self.first] * len(self.partitions), [len(each) for each in self.partitions]

    def at(self, t: int) -> list[int]:
        def first_of(messages: list[Any]) -> int:
            later = (i for i, each in enumerate(messages) if i >= self.first and each is not None and each[0] >= t)
            return next(later, -1)

        return list(map(first_of, self.partitions))

    def read(self, partition: int, start: int, end: int) -> Sequence[Any]:
        if start < self.first:
            raise Gone(f"offset {start}")
        assert end <= len(self.partitions[partition])
        given = enumerate(self.partitions[partition][start:end], start)
        found = [Message(offset, *each[1:], at=each[0]) for offset, each in given if each is not None]
        self.read_bytes += sum(len(each.content or b"") for each in found)
        return found

    def add(self, at: int, messages: Sequence[tuple[bytes, bytes]], partition: int = 0) -> None:
        """Messages that came at a time."""
        self.partitions[partition] += [(at, *each) for each in messages]
