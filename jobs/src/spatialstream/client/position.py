"""A place in the results of a stream, and the file that keeps it."""

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
    """The place after the last row that was *written out*, not after the last one that was read.

    It lies in the middle of a message where that row does, and before the first part of a row of which not all parts
    have come.

    Attributes:
        topic: its name.
        topic_id: what tells it from one of its name that was there before; None: not known.
        path: the file; None: the place is not kept.
        written: for each partition, which rows of the latest rounds have been written out.
        next: for each partition the offset of the first message that has rows after the place.
        held: for each partition and incarnation the offset where a row begins of which more parts are to come.
    """

    topic: str
    topic_id: str | None = None
    path: Path | None = None
    written: dict[int, Deduplicator] = field(default_factory=dict)
    next: dict[int, int] = field(default_factory=dict)
    held: Mapping[tuple[int, str], int] = field(default_factory=dict)
    _saved: float = field(default_factory=time.monotonic)

    def load(self) -> bool:
        """Take the place from its file, if there is one; whether the topic is still the one that it was in.

        Raises:
            SettingError: it is no such file, or that of another topic.
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
            raise SettingError("position", f"{self.path} is damaged, or no position file; give another") from None
        if topic != self.topic:
            raise SettingError("position", f"{self.path} is a position in {topic}, not in {self.topic}; give another")
        self.written = written
        same = None in (topic_id, self.topic_id) or topic_id == self.topic_id
        if same:
            self.next = offsets
        return same

    def save(self, every: float = 0.0) -> None:
        """Write the place down, unless that was done less than so many seconds ago.

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
