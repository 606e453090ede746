"""A topic in memory with the part of librdkafka's consumer that reads results."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from spatialstream.sources.kafka import Topics


@dataclass
class Topic:
    """One partition; ``first`` is the offset of the first message that is still there."""

    messages: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    first: int = 0
    id: str = "one"


@dataclass
class _Message:
    place: int
    name: bytes | None
    content: bytes | None

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content


class Broker:
    """Stands for a :class:`~spatialstream.sources.kafka.Connection`, and for its consumers."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self._at = 0

    def topics(self, stream: str) -> Topics:
        return Topics(stream)

    def consumer(self, group: str) -> Broker:
        return Broker(self.topic)

    def admin(self) -> Broker:
        return self

    def describe_topics(self, asked: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_id=self.topic.id))
        return defaultdict(lambda: answer)

    def list_topics(self, name: str, timeout: float) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return self.topic.first, len(self.topic.messages)

    def assign(self, places: list[Any]) -> None:
        (place,) = places
        assert self.topic.first <= place.offset <= len(self.topic.messages)
        self._at = place.offset

    def poll(self, timeout: float) -> _Message | None:
        if self._at == len(self.topic.messages):
            return None
        self._at += 1
        return _Message(self._at - 1, *self.topic.messages[self._at - 1])

    def close(self) -> None:
        pass
