"""Source, channel and sink in the memory of this process: logs that only grow, as topics of a broker do.

They fulfil the contracts among the threads of one process. They must not be pickled: a copy would have other logs.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spatialstream.connectors.announcements import announcements_within
from spatialstream.connectors.contracts import MESSAGE, Ranges
from spatialstream.connectors.delivery import result_messages
from spatialstream.connectors.keys import key_of_incarnation, key_within
from spatialstream.model.errors import StateError

__all__ = ["MemoryChannel", "MemoryLog", "MemorySink", "MemorySource", "Message"]

Message = tuple[bytes | None, bytes | None]
"""Key and value."""

_MESSAGES = 1_000
"""Maximum messages of a batch."""


class MemoryLog:
    """Messages by their offsets: appended at the end, removed at the beginning."""

    def __init__(self) -> None:
        self._begin = 0
        self._messages: list[Message] = []
        self._changed = threading.Condition()

    @property
    def bounds(self) -> tuple[int, int]:
        """The offset of the first remaining message, and the one after the last."""
        with self._changed:
            return self._begin, self._begin + len(self._messages)

    def append(self, *messages: Message) -> int:
        """Append messages; returns the offset after them."""
        with self._changed:
            self._messages += messages
            self._changed.notify_all()
            return self._begin + len(self._messages)

    def remove(self, before: int) -> None:
        """Remove the messages before an offset."""
        with self._changed:
            del self._messages[: max(0, before - self._begin)]
            self._begin = max(before, self._begin)

    def read(self, start: int, end: int) -> list[Message]:
        """The messages of a range.

        Raises:
            StateError: some of them do not exist.
        """
        with self._changed:
            begin, last = self._begin, self._begin + len(self._messages)
            if start < end and not begin <= start < end <= last:
                raise StateError(f"messages {start} to {end} do not exist, only {begin} to {last}")
            return self._messages[start - begin : end - begin] if start < end else []

    def wait(self, offset: int, patience: float) -> None:
        """Wait until there is a message at an offset, with a timeout in seconds."""
        until = time.monotonic() + patience
        with self._changed:
            while self._begin + len(self._messages) <= offset and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)


class MemorySource:
    """See :class:`~spatialstream.connectors.contracts.Source`.

    Args:
        partitions: such as ``objects/0``.

    Attributes:
        logs: the log of each partition.
    """

    def __init__(self, partitions: Iterable[str]) -> None:
        self.logs = {name: MemoryLog() for name in partitions}

    def bounds(self) -> Ranges:
        """See :class:`~spatialstream.connectors.contracts.Source`."""
        return {name: log.bounds for name, log in self.logs.items()}

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """See :class:`~spatialstream.connectors.contracts.Source`."""
        messages = self.logs[partition].read(start, end)
        for i in range(0, len(messages), _MESSAGES):
            keys, values = zip(*messages[i : i + _MESSAGES], strict=True)
            offsets = range(start + i, start + i + len(keys))
            yield pa.RecordBatch.from_arrays(
                [pa.array(offsets, pa.int64()), pa.array(keys, pa.binary()), pa.array(values, pa.binary())],
                schema=MESSAGE,
            )


class MemoryChannel:
    """See :class:`~spatialstream.connectors.contracts.Channel`.

    Args:
        logs: one for each slot.
        epochs: the log of announcements.
        incarnation: id of the stream's incarnation.
    """

    def __init__(self, logs: Sequence[MemoryLog], epochs: MemoryLog, incarnation: str = "") -> None:
        self._logs, self._epochs, self._incarnation = logs, epochs, incarnation

    def send(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> dict[int, int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        ends = {}
        for slot, key, content in blocks:
            ends[slot] = self._logs[slot].append((key_of_incarnation(key, self._incarnation), content.to_pybytes()))
        return ends

    def ends(self) -> list[int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        return [log.bounds[1] for log in self._logs]

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        self._epochs.append((None, json.dumps({**announcement, "incarnation": self._incarnation}).encode()))

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        start = self._epochs.bounds[0] if after is None else after
        self._epochs.wait(start, patience)
        begin, last = self._epochs.bounds
        if start < begin:
            raise StateError(f"announcements {start} to {begin} have been removed")
        end = max(start, min(start + most, last))
        return announcements_within((value for _, value in self._epochs.read(start, end)), self._incarnation), end

    def cut(self, before: int) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        self._epochs.remove(before)

    def begins(self) -> list[int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        return [log.bounds[0] for log in self._logs]

    def blocks(self, slot: int, start: int, end: int) -> Iterator[tuple[bytes, pa.Buffer | None]]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        for key, value in self._logs[slot].read(start, end):
            if (name := key_within(key, self._incarnation)) is not None:
                yield name, None if value is None else pa.py_buffer(value)

    def release(self, ends: Sequence[int]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        for log, end in zip(self._logs, ends, strict=True):
            log.remove(end)


class MemorySink:
    """See :class:`~spatialstream.connectors.contracts.Sink`.

    Args:
        results: the logs of messages of :mod:`~spatialstream.connectors.delivery`, one for each part of MERGE.
        dead: the log of dead letters, one per message.
        rows_per_message: maximum rows of a message.
        incarnation: id of the stream's incarnation.
    """

    def __init__(
        self, results: Sequence[MemoryLog], dead: MemoryLog, rows_per_message: int = 500, incarnation: str = ""
    ) -> None:
        self._results, self._dead, self._most, self._incarnation = results, dead, rows_per_message, incarnation

    def rows(self, turn: int, phase: int, lines: Iterable[pa.LargeStringArray], part: int = 0) -> int:
        """See :class:`~spatialstream.connectors.contracts.Sink`."""
        count = 0
        for key, value in result_messages(lines, turn, phase, self._most, self._incarnation):
            content = value.to_pybytes()
            self._results[part].append((key, content))
            count += content.count(b"\n") + 1
        return count

    def rejected(self, turn: int, stage: str, letters: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Sink`."""
        self._dead.append(*((None, letter.encode()) for letter in letters))
