"""Results in memory with when each message came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spatialstream.model.errors import Gone


@dataclass
class Message:
    place: int
    at: int
    name: bytes | None
    content: bytes | None

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at


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
        found = [Message(offset, *each) for offset, each in given if each is not None]
        self.read_bytes += sum(len(each.content or b"") for each in found)
        return found

    def add(self, at: int, messages: Sequence[tuple[bytes, bytes]], partition: int = 0) -> None:
        """Messages that came at a time."""
        self.partitions[partition] += [(at, *each) for each in messages]
