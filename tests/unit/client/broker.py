"""Topics in memory with the parts of librdkafka's clients that ask and read results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from spatialstream.connectors.kafka import Topics


@dataclass
class Topic:
    """A partition; ``first`` is the offset of the first message that is still there."""

    messages: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    first: int = 0
    id: str = "one"


@dataclass
class Message:
    """Stands for a message of librdkafka; ``at`` is when it came, in ms."""

    place: int
    name: bytes | None
    content: bytes | None
    number: int = 0
    at: int = 0

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.place

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def timestamp(self) -> tuple[int, int]:
        return 1, self.at


class Broker:
    """Stands for a :class:`~spatialstream.connectors.kafka.Connection`, and for its clients.

    Args:
        topic: of the results; several are the partitions of one.
        rejected: of the dead letters.
        hear: is told each record that is sent to the topic of queries, and its offset.
    """

    bootstrap, shown = "nowhere:1", None

    def __init__(
        self,
        topic: Topic | Sequence[Topic],
        rejected: Topic | None = None,
        hear: Callable[[dict[str, Any], int], None] = lambda record, offset: None,
    ) -> None:
        self.topic, self.letters, self.hear = topic, rejected or Topic(), hear
        self.sent: list[dict[str, Any]] = []
        self._read: Sequence[Topic] = []
        self._at: list[int] = []
        self._turn = 0

    def topics(self, stream: str) -> Topics:
        return Topics(stream)

    def why(self, problem: str) -> str:
        return problem

    def consumer(self, group: str) -> Broker:
        return Broker(self.topic, self.letters)

    def admin(self) -> Broker:
        return self

    def producer(self) -> Broker:
        return self

    def produce(self, topic: str, value: bytes, on_delivery: Callable[[None, Message], None]) -> None:
        assert topic.endswith(".queries")
        self.sent.append(json.loads(value))
        on_delivery(None, Message(len(self.sent) - 1, None, value))

    def flush(self, timeout: float) -> int:
        for offset, record in enumerate(self.sent):
            self.hear(record, offset)
        return 0

    def _of(self, name: str) -> Sequence[Topic]:
        topic = self.letters if name.endswith(".rejected") else self.topic
        return [topic] if isinstance(topic, Topic) else topic

    def describe_topics(self, asked: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_id=self._of("results")[0].id))
        return defaultdict(lambda: answer)

    def list_topics(self, name: str, timeout: float) -> Any:
        partitions = dict.fromkeys(range(len(self._of(name))))
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions=partitions)})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        topic = self._of(place.topic)[place.partition]
        return topic.first, len(topic.messages)

    def assign(self, places: list[Any]) -> None:
        self._read, self._at = self._of(places[0].topic), [place.offset for place in places]
        assert [place.partition for place in places] == list(range(len(self._read)))
        for read, at in zip(self._read, self._at, strict=True):
            assert read.first <= at <= len(read.messages)

    def poll(self, timeout: float) -> Message | None:
        """The next message, of one partition after the other."""
        for _ in self._read:
            self._turn = turn = (self._turn + 1) % len(self._read)
            at, messages = self._at[turn], self._read[turn].messages
            if at < len(messages):
                self._at[turn] += 1
                return Message(at, *messages[at], turn)
        return None

    def close(self) -> None:
        pass
