"""A topic of areas in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from spatialstream.client import areas
from spatialstream.connectors.kafka import Connection
from tests.unit.client.broker import Message

__all__ = ["AreaLog"]


class AreaLog:
    """The topic of areas.

    Args:
        stream: name of the stream.

    Attributes:
        topic: name of the topic.
        messages: keys and values.
        reads: the ranges that were read.
    """

    def __init__(self, stream: str = "s") -> None:
        self.topic = f"{stream}.areas"
        self.messages: list[tuple[bytes, bytes | None]] = []
        self.reads: list[tuple[int, int]] = []
        self.there = True

    def offsets(self, connection: Connection) -> AreaLog:
        return self

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1) if self.there else {}

    def bounds(self, partitions: dict[str, int]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        assert list(partitions) == [self.topic]
        return {self.topic: [0]}, {self.topic: [len(self.messages)]}

    def read(self, connection: Connection, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        self.reads.append((start, end))
        for offset in range(start, end):
            yield [Message(offset, *self.messages[offset])]

    def send(self, connection: Connection, messages: Iterable[tuple[str, int, bytes, Any]]) -> None:
        for topic, partition, key, value in messages:
            assert (topic, partition) == (self.topic, 0)
            self.messages.append((key, value))

    def stand_for_the_broker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have clients of areas read and write it."""
        for name in ("offsets", "read", "send"):
            monkeypatch.setattr(areas, name, getattr(self, name))
