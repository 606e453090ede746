"""A consumer of results: rows in the order in which they come, repeated ones dropped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from spatialstream.model.errors import Unavailable
from spatialstream.pipeline.delivery import Deduplicator
from spatialstream.pipeline.files import write_whole
from spatialstream.pipeline.kafka import Connection

__all__ = ["Results"]

_FATAL = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


class Results:
    """Reads the results of a stream, from a place on.

    With a ``position`` file, it begins where the last use of that file ended: the file holds the offsets, and how
    many rows of the latest rounds have come, by which repeated ones are told.

    Args:
        connection: how to reach the broker.
        stream: its name.
        newest: begin with what comes from now on, and not with the oldest that is kept.
        position: see above.
    """

    def __init__(
        self, connection: Connection, stream: str, *, newest: bool = False, position: Path | None = None
    ) -> None:
        self._topic = connection.topics(stream).results
        self._consumer: Consumer = connection.consumer(f"{stream}-results")
        self._position = position
        self._known = Deduplicator()
        self._next: dict[int, int] = {}
        self._assign(newest)

    @property
    def repeated(self) -> int:
        """Rows that have been dropped."""
        return self._known.repeated

    def _assign(self, newest: bool) -> None:
        metadata = self._consumer.list_topics(self._topic, timeout=30).topics.get(self._topic)
        if metadata is None or metadata.error is not None:
            raise Unavailable(f"the broker has no topic {self._topic}")
        if self._position is not None and self._position.exists():
            record = json.loads(self._position.read_bytes())
            self._known = Deduplicator.from_record(record["known"])
            self._next = {int(partition): offset for partition, offset in record["next"].items()}
        places = []
        for partition in metadata.partitions:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=30)
            start = self._next.get(partition, high if newest else low)
            places.append(TopicPartition(self._topic, partition, max(start, low)))
        self._consumer.assign(places)

    def messages(self, stop: Callable[[], bool], patience: float | None = None) -> Iterator[bytes]:
        """The values of new messages: rows as JSON Lines.

        Args:
            stop: is asked between messages.
            patience: seconds without a message after which it ends; None: never.

        Raises:
            Unavailable: the topic is gone.
        """
        heard = time.monotonic()
        while not stop():
            message = self._consumer.poll(0.2)
            error = None if message is None else message.error()
            if error is not None and error.code() in _FATAL:
                raise Unavailable(f"the broker has no topic {self._topic}")
            if message is None or error is not None:
                if patience is not None and time.monotonic() - heard > patience:
                    return
                continue
            heard = time.monotonic()
            partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
            assert partition is not None
            assert offset is not None
            self._next[partition] = offset + 1
            if value is not None and key is not None and (rows := self._known.new_rows(key, value)):
                yield b"\n".join(rows)

    def rows(self, stop: Callable[[], bool], patience: float | None = None) -> Iterator[dict[str, Any]]:
        """Row by row; see :meth:`messages`."""
        for value in self.messages(stop, patience):
            for line in value.split(b"\n"):
                yield json.loads(line)

    def close(self) -> None:
        """Let go of the broker, and write the position down."""
        self._consumer.close()
        if self._position is not None:
            record = {"known": self._known.to_record(), "next": {str(p): o for p, o in self._next.items()}}
            write_whole(self._position, json.dumps(record).encode())
