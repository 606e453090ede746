"""The base of storages in which writing and removing are fast: all their operations are synchronous."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import pyarrow as pa

from spatialstream.connectors.contracts import File, Puts

__all__ = ["SynchronousStorage"]


class SynchronousStorage(ABC):
    """A :class:`~spatialstream.connectors.contracts.Storage` in which every put is complete when it returns."""

    __slots__ = ()

    is_far = False

    @abstractmethod
    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""

    def begin_put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        self.put(name, *parts)

    def await_puts(self) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        return  # all puts are complete already

    def put_set(self, files: Sequence[File], seal: File, after: Puts | None = None) -> Puts:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        for name, parts in (*files, seal):
            self.put(name, *parts)
        return _Done()

    def put_later(self, name: str, data: bytes | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        self.put(name, data)

    def share(self, name: str, data: bytes | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        self.put(name, data)

    def discard(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        self.delete(names)


class _Done:
    """A set of files that has been put, see :class:`~spatialstream.connectors.contracts.Puts`."""

    trouble = None

    def wait(self, seconds: float) -> bool:
        return True
