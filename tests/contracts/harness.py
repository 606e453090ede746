"""What the contract suites need of an implementation besides the contract: writing into it, and inspecting it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from spatialstream.connectors.contracts import Channel, Sink, Source
from spatialstream.connectors.delivery import Place
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink, MemorySource, Message
from spatialstream.connectors.result_files import ResultFiles


class Sources(Protocol):
    """A source with the partitions ``objects/0``, ``objects/1`` and ``queries/0``."""

    source: Source

    def append(self, partition: str, messages: Sequence[Message], *, abort: bool = False) -> None:
        """Append messages, which are visible to all when this returns; or aborted ones, which are never delivered."""

    def remove(self, partition: str, before: int) -> None:
        """Remove the messages before an offset."""


class Channels(Protocol):
    """Channels of two slots over the same logs."""

    def of(self, incarnation: str) -> Channel:
        """The channel of an incarnation of the stream."""

    def write(self, slot: int, key: bytes | None, value: bytes | None) -> None:
        """Write foreign messages among the blocks of a slot."""

    def write_announcement(self, value: bytes | None) -> None:
        """Write foreign messages among the announcements."""

    def remove(self, slot: int, before: int) -> None:
        """Remove the blocks of a slot before an offset."""

    def remove_announcements(self, before: int) -> None:
        """Remove the announcements before an offset."""


class Sinks(Protocol):
    """A sink with at most three rows per message, and access to its content."""

    def of(self, incarnation: str) -> Sink:
        """The sink of an incarnation of the stream."""

    def results(self) -> list[tuple[bytes, bytes]]:
        """The messages of results in order."""

    def letters(self) -> list[str]:
        """The dead letters in order."""


class FileSinks:
    """A folder for each incarnation, because a folder has only one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incarnations: list[str] = []

    def of(self, incarnation: str) -> Sink:
        if incarnation not in self._incarnations:
            self._incarnations.append(incarnation)
        return ResultFiles(self._of(incarnation, "results"), self._of(incarnation, "rejected"))

    def _of(self, incarnation: str, name: str) -> Path:
        return self._folder / f"incarnation-{incarnation}" / name

    def results(self) -> list[tuple[bytes, bytes]]:
        return [
            (Place(int(turn), int(phase or 0), 0, incarnation).key, path.read_bytes().removesuffix(b"\n"))
            for incarnation in self._incarnations
            for path in sorted(self._of(incarnation, "results").glob("*.jsonl"))
            for turn, phase in re.findall(r"^epoch-(\d+)(?:_(\d))?\.jsonl$", path.name)
        ]

    def letters(self) -> list[str]:
        def place(path: Path) -> tuple[str, bool]:
            stage, _, turn = path.stem.partition("-")
            return turn, stage != "input"

        files = [
            path
            for incarnation in self._incarnations
            for path in sorted(self._of(incarnation, "rejected").glob("*"), key=place)
        ]
        return [line for path in files for line in path.read_text("utf-8").splitlines()]


class MemorySources:
    def __init__(self) -> None:
        self.source = MemorySource(["objects/0", "objects/1", "queries/0"])

    def append(self, partition: str, messages: Sequence[Message], *, abort: bool = False) -> None:
        if not abort:
            self.source.logs[partition].append(*messages)

    def remove(self, partition: str, before: int) -> None:
        self.source.logs[partition].remove(before)


class MemoryChannels:
    def __init__(self) -> None:
        self._logs, self._epochs = [MemoryLog(), MemoryLog()], MemoryLog()

    def of(self, incarnation: str) -> Channel:
        return MemoryChannel(self._logs, self._epochs, incarnation)

    def write(self, slot: int, key: bytes | None, value: bytes | None) -> None:
        self._logs[slot].append((key, value))

    def write_announcement(self, value: bytes | None) -> None:
        self._epochs.append((None, value))

    def remove(self, slot: int, before: int) -> None:
        self._logs[slot].remove(before)

    def remove_announcements(self, before: int) -> None:
        self._epochs.remove(before)


class MemorySinks:
    def __init__(self) -> None:
        self._results, self._dead = MemoryLog(), MemoryLog()

    def of(self, incarnation: str) -> Sink:
        return MemorySink([self._results], self._dead, 3, incarnation)

    def results(self) -> list[tuple[bytes, bytes]]:
        return [(key or b"", value or b"") for key, value in self._results.read(*self._results.bounds)]

    def letters(self) -> list[str]:
        return [(value or b"").decode() for _, value in self._dead.read(*self._dead.bounds)]
