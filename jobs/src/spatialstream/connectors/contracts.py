"""The contracts between the pipeline and its environment: source, sink, the channel between the jobs, and storage.

Four contracts, each with one suite of tests that every implementation passes (``tests/contracts``). Objects of the
first three are pickled into the tasks that use them, so they hold addresses and settings; they open connections where
they are used, once per process. (Implementations in memory are for one process, and are not pickled.)

A *partition* of a source has a name such as ``objects/0``: the kind of its records, and a number. It only grows.
*Offsets* count its messages; a range ``[start, end)`` of a partition gives the same messages whenever it is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from spatialstream.model.errors import Missing
from spatialstream.records.reference import Decoded

__all__ = ["MESSAGE", "Channel", "File", "Puts", "Ranges", "Records", "Sink", "Source", "Storage", "find"]

MESSAGE = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""Messages of one partition, in the order of their offsets; a key or a value may be null."""

Ranges = Mapping[str, tuple[int, int]]
"""Partition -> offsets [start, end)."""


File = tuple[str, Sequence[bytes | memoryview]]
"""A name, and the parts of the content, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """A block of records that are no messages, decoded by the source, which alone knows their form.

    Attributes:
        origin: of the records, such as the name of a file.
        decoded: the outcome of decoding; lines are those of the origin.
    """

    origin: str
    decoded: Decoded[Any]


class Storage(Hashable, Protocol):
    """Files that exist completely or not at all, by names such as ``epochs/000000017.json``.

    What is written under a name is a function of the name and of recorded decisions: writing again writes the same, so
    a late writer does no harm. Nothing else is required (no rename, append, lock or map of a remote file), so that an
    object store is as good as a folder.

    A name has parts of letters, digits and ``_ . = -``, separated by ``/``; no part begins with a dot. Objects of one
    process may be used by several threads, and are pickled into tasks.
    """

    @property
    def place(self) -> str:
        """Its location, as shown to a person; two objects with the same place are the same storage."""

    @property
    def is_far(self) -> bool:
        """Whether a request takes longer than a turn should."""

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """Write a complete file from its parts, one after the other, replacing an existing one.

        Raises:
            OSError: it cannot be written; the previous file is unchanged.
            NoStorage: the storage cannot be reached, or denies access; the file may have been written or not.
        """

    def begin_put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """Begin to put a file: it exists when this thread's next :meth:`await_puts` returns, at the latest.

        So several files take the time of one. They are put in any order. Until then nobody may read any of them, or
        change their parts.
        """

    def await_puts(self) -> None:
        """Wait until all puts that this thread has begun are complete.

        Raises:
            OSError, NoStorage: as :meth:`put`; then each of the files may exist or not, and no put is in progress.
        """

    def put_set(self, files: Sequence[File], seal: File, after: Puts | None = None) -> Puts:
        """Put files, and one more when all of them exist; if that takes long, concurrently with what follows.

        Retries until it succeeds, or until the process dies: then some of the files exist, or all of them, and the seal
        only with all. Until then nobody may change their parts.

        Args:
            files: name and parts of each file.
            seal: name and parts of the last file.
            after: a set that has to be complete before the seal.

        Raises:
            OSError, NoStorage: as :meth:`put`, unless it is put concurrently.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Put a file unless one with the name exists; of several concurrent calls one succeeds.

        Returns:
            Whether the file has the given content: nobody else has put other content before.

        Raises:
            OSError, NoStorage: as :meth:`put`.
        """

    def get(self, name: str) -> pa.Buffer:
        """A file's bytes, which stay valid if the file is replaced or deleted.

        They are the caller's own: writing to them changes neither the file nor what other callers get.

        Raises:
            Missing: there is no such file.
            OSError: it cannot be read.
            NoStorage: the storage cannot be reached, or denies access.
        """

    def list(self, prefix: str) -> list[str]:
        """The names that begin with a prefix, which ends with ``/`` or is empty, sorted."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored."""

    def put_later(self, name: str, data: bytes | pa.Buffer) -> None:
        """Put a file now or later, or never if the process dies; :meth:`get` returns it at once in this process.

        Files of the input, which never change, are visible at once in all processes of this machine that have a copy of
        this object, as long as there is room for a copy. Of several contents for a name the last one is put. If much
        remains to be put, this call waits.

        Raises:
            NoStorage: too much has remained to be put for too long.
        """

    def share(self, name: str, data: bytes | pa.Buffer) -> None:
        """Put an immutable file for processes of this machine only; it is lost when they have ended.

        Raises:
            OSError, NoStorage: as :meth:`put`.
        """

    def discard(self, names: Iterable[str]) -> None:
        """Remove files that nobody will read or put again: now or later, or never if the process dies."""


class Puts(Protocol):
    """A set of files that is being put."""

    @property
    def trouble(self) -> BaseException | None:
        """The error that delays it; None if nothing has failed since the last success."""

    def wait(self, seconds: float) -> bool:
        """Wait until all files exist, with a timeout; returns whether they do."""


def find(storage: Storage, name: str) -> pa.Buffer | None:
    """A file's bytes; None if there is no such file."""
    try:
        return storage.get(name)
    except Missing:
        return None


@contextmanager
def all_put(storage: Storage) -> Iterator[None]:
    """Completes the puts begun within; if that fails, none of them is in progress any more."""
    try:
        yield
    finally:
        storage.await_puts()


class Source(Protocol):
    """The origin of a stream's records."""

    def bounds(self) -> Ranges:
        """For each partition that exists now: the first offset that can be read, and the current end.

        Raises:
            Unavailable: the source cannot be reached.
        """

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch | Records]:
        """The content of a range, in any process: messages as batches of :data:`MESSAGE`, or blocks of records.

        Batches may have any size.

        Raises:
            Unavailable: the source cannot be reached.
            StateError: messages of the range have been removed.
        """


class Channel(Protocol):
    """The connection from router to worker: a log of blocks for each slot, and a log of announcements.

    Blocks that are sent again appear again, with the same keys, by which readers recognize them. What another
    incarnation of the stream has left in the logs is never returned: the incarnation is among the settings of an
    implementation, which adds it to what it sends. Other writers are not trusted: messages that are not the stream's
    are returned as such.
    """

    def send(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> dict[int, int]:
        """Append blocks (slot, key, content) in any process; when this returns, they are durable.

        Returns:
            The offset after the last of them, for each slot that any were for.

        Raises:
            Unavailable: they may not be.
        """

    def ends(self) -> list[int]:
        """The offset after the last block of each slot, or an earlier one.

        A server that was away does not know at once what the others have accepted meanwhile. The sender of blocks knows
        their offsets from :meth:`send`.
        """

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """Append an announcement (JSON-able); when this returns, it is durable.

        Raises:
            Unavailable: it may not be.
        """

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """The announcements from an offset on.

        Args:
            after: offset of the first; None for the oldest that is kept.
            most: maximum number.
            patience: seconds to wait if there are none.

        Returns:
            The announcements, None for each foreign message among them, and the offset after the last message read.

        Raises:
            StateError: announcements from the offset on have been removed.
        """

    def cut(self, before: int) -> None:
        """Announcements before this offset are not needed any more, and may be removed.

        Raises:
            Unavailable: they cannot be removed at present.
        """

    def begins(self) -> list[int]:
        """The offset of the first remaining block of each slot."""

    def blocks(self, slot: int, start: int, end: int) -> Iterator[tuple[bytes, pa.Buffer | None]]:
        """(key, content) of a slot's blocks between two offsets, in any process.

        Keys are those with which they were sent. Foreign messages are returned unchanged, under an empty key.

        Raises:
            Unavailable: the logs cannot be reached.
            StateError: blocks of the range have been removed.
        """

    def release(self, ends: Sequence[int]) -> None:
        """Blocks before these offsets, one for each slot, are not needed any more, and may be removed."""


class Sink(Protocol):
    """The destination of rows and dead letters."""

    def rows(self, turn: int, phase: int, lines: Iterable[pa.LargeStringArray], part: int = 0) -> int:
        """Publish the result rows of a phase of a round, in order; when this returns, they are durable.

        Rows of one part of MERGE are ordered; those of several parts, which may be published concurrently, are not
        ordered among each other. A round that is repeated publishes the same rows: a consumer that drops what it has
        seen has each of them once.

        Returns:
            The number of rows.

        Raises:
            Unavailable: they may not be durable.
        """

    def rejected(self, turn: int, stage: str, letters: Iterable[str]) -> None:
        """Publish the dead letters of a stage (``input`` or ``round``) of a turn, lines of JSON.

        A turn that is repeated publishes the same letters, which may then appear more than once.

        Raises:
            Unavailable: they may not be durable.
        """
