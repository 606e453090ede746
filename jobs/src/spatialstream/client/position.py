"""A position in the results of a stream, and the file that stores it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spatialstream.connectors.delivery import Deduplicator
from spatialstream.connectors.disk import write_whole
from spatialstream.model.errors import SettingError

__all__ = ["Position"]


@dataclass(slots=True)
class Position:
    """The position after the last row that the consumer has *processed*, not after the last one read.

    It may be in the middle of a message, if that row is, and it is before the first part of a row that is not complete
    yet.

    Attributes:
        topic: name of the topic.
        topic_id: the topic's id, which differs from that of a deleted topic of the same name; None: not known.
        path: the file; None: the position is not stored.
        written: for each partition, which rows of the latest rounds have been processed.
        next: for each partition the offset of the first message that contains rows after the position.
        held: for each partition and incarnation the offset at which an incomplete row begins.
    """

    topic: str
    topic_id: str | None = None
    path: Path | None = None
    written: dict[int, Deduplicator] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    held: Mapping[tuple[int, str], int] = field(default_factory=dict)
    _saved: float = field(default_factory=time.monotonic)

    def load(self) -> bool:
        """Load the position from its file, if there is one; return whether it is still of the same topic.

        Raises:
            SettingError: it is not a position file, or of another topic.
        """
        if self.path is None or not self.path.exists():
            return True
        try:
            record = json.loads(self.path.read_bytes())
            written = {int(partition): Deduplicator.from_record(each) for partition, each in record["known"].items()}
            offsets = {int(partition): int(offset) for partition, offset in record["next"].items()}
            topic, topic_id = record["topic"], record["id"]
        except OSError as error:
            raise SettingError("position", f"{self.path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise SettingError("position", f"{self.path} is damaged or not a position file; give another") from None
        if topic != self.topic:
            raise SettingError("position", f"{self.path} is a position in {topic}, not in {self.topic}; give another")
        self.written = written
        same = None in (topic_id, self.topic_id) or topic_id == self.topic_id
        if same:
            self.next = offsets
        return same

    def save(self, every: float = 0.0) -> None:
        """Store the position, unless that was done less than ``every`` seconds ago.

        Raises:
            SettingError: it cannot be written.
        """
        if self.path is None or time.monotonic() - self._saved < every:
            return
        self._saved = time.monotonic()
        next_ = dict(self.next)
        for (partition, _), offset in self.held.items():
            next_[partition] = min(next_[partition], offset)
        known = {partition: written.to_record() for partition, written in self.written.items()}
        record = {"topic": self.topic, "id": self.topic_id, "known": known, "next": next_}
        try:
            write_whole(self.path, json.dumps(record).encode())
        except OSError as error:
            raise SettingError("position", f"{self.path} cannot be written: {error.strerror}") from None
