"""What the pipeline asks of the world: where records come from, where rows go, what lies between the jobs, and state.

Four contracts, each with one suite of tests that every implementation passes (``tests/contracts``). Objects of the
first three are pickled into the tasks that use them, so they hold addresses and settings; what they open, they open
where they are used, once a process. (Those in memory are for one process, and are not pickled.)

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
from spatialstream.records.decode import Decoded

__all__ = ["MESSAGE", "Channel", "File", "Puts", "Ranges", "Records", "Sink", "Source", "Storage", "find"]

MESSAGE = pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
"""Messages of one partition, in the order of their offsets; a key or a value may be null."""

Ranges = Mapping[str, tuple[int, int]]
"""Partition -> offsets [start, end)."""


File = tuple[str, Sequence[bytes | memoryview]]
"""A name, and the parts of a content, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """A block of records that are no messages, decoded by the source, which alone knows their form.

    Attributes:
        origin: where they stood, such as the name of a file.
        decoded: what became of them; lines are those of the origin.
    """

    origin: str
    decoded: Decoded[Any]


class Storage(Hashable, Protocol):
    """Files that are there whole or not at all, by names such as ``epochs/000000017.json``.

    What is written under a name is a function of the name and of recorded decisions: writing again writes the same, so
    whoever is late does no harm. Nothing else is asked (no rename, append, lock or map of a remote file), so that an
    object store does as well as a folder.

    A name has parts of letters, digits and ``_ . = -``, separated by ``/``; no part begins with a dot. Objects of one
    process may be used by several threads, and are pickled into tasks.
    """

    @property
    def place(self) -> str:
        """Where it is, as a person would say it; two objects of one place are the same storage."""

    @property
    def is_far(self) -> bool:
        """Whether a request takes longer than a turn should."""

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """Write a file whole, over one that is there, from its parts, one after the other.

        Raises:
            OSError: it cannot be written; then what was there before still is.
            NoStorage: the storage cannot be reached, or denies; then it may be there or not.
        """

    def begin_put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """Begin to put a file: it is there when this thread's next :meth:`await_puts` returns, or not yet.

        So several files take the time of one. They are put in any order, and until then nobody may ask for one of them,
        nor change its parts.
        """

    def await_puts(self) -> None:
        """Wait until all is there that this thread has begun to put.

        Raises:
            OSError, NoStorage: as :meth:`put`; then each of the files may be there or not, and none is under way.
        """

    def put_set(self, files: Sequence[File], seal: File, after: Puts | None = None) -> Puts:
        """Put files, and one more when all of them are there; where that takes long, beside what follows.

        It is tried until it has succeeded, or the process has died: then some of the files are there, or all of them,
        and the seal only with all. Until then nobody may change their parts.

        Args:
            files: name and parts of each.
            seal: of one more.
            after: a set that has to be there before the seal.

        Raises:
            OSError, NoStorage: as :meth:`put`, where it is not put beside.
        """

    def create(self, name: str, data: bytes) -> bool:
        """Put a file unless there is one of the name; of several who do so at once one succeeds.

        Returns:
            Whether the file is what has been given: nobody else has put another one before.

        Raises:
            OSError, NoStorage: as :meth:`put`.
        """

    def get(self, name: str) -> pa.Buffer:
        """A file's bytes, which stay valid whatever becomes of the file.

        They are the caller's own: whoever writes into them changes neither the file nor what others get.

        Raises:
            Missing: there is none.
            OSError: it cannot be read.
            NoStorage: the storage cannot be reached, or denies.
        """

    def list(self, prefix: str) -> list[str]:
        """The names that begin with a prefix, which ends with ``/`` or is empty, sorted."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are gone already."""

    def put_later(self, name: str, data: bytes | pa.Buffer) -> None:
        """Put a file at once or some time, or never if the process dies; :meth:`get` gives it at once in this process.

        Those of the input, which never change, it gives at once in all processes of this machine that have a copy of
        this object, as long as there is room for a copy. Of several contents the last one is put. Where much is still
        to be put, this waits.

        Raises:
            NoStorage: what is still to be put has been too much for too long.
        """

    def share(self, name: str, data: bytes | pa.Buffer) -> None:
        """Put a file for processes of this machine alone, which never changes, and is lost when they have ended.

        Raises:
            OSError, NoStorage: as :meth:`put`.
        """

    def discard(self, names: Iterable[str]) -> None:
        """Remove files that nobody will ask for, nor put again: at once or some time, or never if the process dies."""


class Puts(Protocol):
    """A set of files that is being put."""

    @property
    def trouble(self) -> BaseException | None:
        """Why it has not succeeded yet; None if nothing has failed since the last success."""

    def wait(self, seconds: float) -> bool:
        """Wait until all is there, so long at most; whether it is."""


def find(storage: Storage, name: str) -> pa.Buffer | None:
    """A file's bytes; None if there is none."""
    try:
        return storage.get(name)
    except Missing:
        return None


@contextmanager
def all_put(storage: Storage) -> Iterator[None]:
    """What is begun to be put within is there after it; where that fails, nothing of it is under way any more."""
    try:
        yield
    finally:
        storage.await_puts()


class Source(Protocol):
    """Where the records of a stream come from."""

    def bounds(self) -> Ranges:
        """For each partition that there is now: the first offset that can be read, and the end, as of now.

        Raises:
            Unavailable: the source cannot be reached.
        """

    def read(self, partition: str, start: int, end: int) -> Iterator[pa.RecordBatch | Records]:
        """What a range holds, in any process: messages as batches of :data:`MESSAGE` of any size, or blocks of records.

        Raises:
            Unavailable: the source cannot be reached.
            StateError: messages of the range are gone.
        """


class Channel(Protocol):
    """What lies between router and worker: a log of blocks for each slot, and a log of announcements.

    Blocks that are sent again come again, with the same keys; who reads knows them by these. What another incarnation
    of the stream has left in the logs is never given: the incarnation is among the settings of an implementation, which
    adds it to what it sends. Whoever else writes into the logs is not trusted: what is none of the stream's is told as
    such.
    """

    def send(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> dict[int, int]:
        """Append blocks (slot, key, content) in any process; once this returns, they are kept.

        Returns:
            The offset after the last of them, of each slot that any were for.

        Raises:
            Unavailable: they may not be.
        """

    def ends(self) -> list[int]:
        """The offset after the last block of each slot, or one before it.

        A server that was away does not know at once what the others have taken meanwhile. Whoever has sent blocks knows
        where they are by :meth:`send`.
        """

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """Append an announcement (JSON-able); once this returns, it is kept.

        Raises:
            Unavailable: it may not be.
        """

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """The announcements from an offset on.

        Args:
            after: offset of the first; None for the oldest that is kept.
            most: how many, at most.
            patience: seconds to wait where there are none.

        Returns:
            The announcements, None for each foreign message among them, and the offset after the last one that was
            looked at.

        Raises:
            StateError: announcements from the offset on are gone.
        """

    def cut(self, before: int) -> None:
        """Nobody will read the announcements before this offset any more: they may go.

        Raises:
            Unavailable: they cannot be removed now.
        """

    def begins(self) -> list[int]:
        """The offset of the first block of each slot that is still there."""

    def blocks(self, slot: int, start: int, end: int) -> Iterator[tuple[bytes, pa.Buffer | None]]:
        """(key, content) of a slot's blocks between two offsets, in any process.

        Keys are those that they were sent with. Foreign messages come as they are, under an empty key.

        Raises:
            Unavailable: the logs cannot be reached.
            StateError: blocks of the range are gone.
        """

    def release(self, ends: Sequence[int]) -> None:
        """Nobody will read the blocks before these offsets any more, one for each slot: they may go."""


class Sink(Protocol):
    """Where rows and dead letters go."""

    def rows(self, turn: int, phase: int, lines: Iterable[pa.LargeStringArray], part: int = 0) -> int:
        """Publish the result rows of a phase of a round, in their order; once this returns, they are kept.

        Rows of one part of MERGE have an order; those of several, which may be published at once, have none among them.
        A round that is repeated publishes the same rows: a consumer that drops what it has seen has each of them once.

        Returns:
            How many rows there were.

        Raises:
            Unavailable: they may not be kept.
        """

    def rejected(self, turn: int, stage: str, letters: Iterable[str]) -> None:
        """Publish the dead letters of a stage (``input`` or ``round``) of a turn, lines of JSON.

        A turn that is repeated publishes the same letters, which may then be there more than once.

        Raises:
            Unavailable: they may not be kept.
        """
