"""Storage in memory: for tests, and for rehearsals."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.folder import checked
from spatialstream.connectors.synchronous_storage import SynchronousStorage
from spatialstream.model.errors import Missing

__all__ = ["MemoryStorage", "Overlay"]

_numbers = itertools.count()


class MemoryStorage(SynchronousStorage):
    """A storage that is lost with the process. A pickle of it is the same storage, in this process only."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self.place = f"memory:{os.getpid()}-{next(_numbers)}"
        _storages[self.place] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """By place: content in memory is not copied."""
        return _of_place, (self.place,)

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        self._files[checked(name)] = b"".join(parts)

    def create(self, name: str, data: bytes) -> bool:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        return self._files.setdefault(checked(name), bytes(data)) == data

    def get(self, name: str) -> pa.Buffer:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        data = self._files.get(checked(name))
        if data is None:
            raise Missing(f"{self.place}/{name} is missing")
        return pa.py_buffer(bytearray(data))

    def list(self, prefix: str) -> list[str]:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        return sorted(name for name in tuple(self._files) if name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        for name in names:
            self._files.pop(checked(name), None)


_storages: WeakValueDictionary[str, MemoryStorage] = WeakValueDictionary()


def _of_place(place: str) -> MemoryStorage:
    return _storages[place]


class Overlay(SynchronousStorage):
    """Another storage's content, plus what has been written and deleted since, which stays in this process's memory.

    Args:
        base: the other storage, which is only read.
    """

    def __init__(self, base: Storage) -> None:
        self._base = base
        self.place = f"over:{os.getpid()}-{next(_numbers)}:{base.place}"
        self.renew()

    def renew(self) -> None:
        """Discard all that has been written or deleted."""
        self._above = MemoryStorage()
        self._deleted: set[str] = set()

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        self._above.put(name, *parts)

    def create(self, name: str, data: bytes) -> bool:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        if (known := find(self, name)) is not None:
            return bool(known.to_pybytes() == data)
        return self._above.create(name, data)

    def get(self, name: str) -> pa.Buffer:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        try:
            return self._above.get(name)
        except Missing:
            if name in self._deleted:
                raise
            return self._base.get(name)

    def list(self, prefix: str) -> list[str]:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        below = set(self._base.list(prefix)) - self._deleted
        return sorted(below.union(self._above.list(prefix)))

    def delete(self, names: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Storage`."""
        gone = [checked(name) for name in names]
        self._above.delete(gone)
        self._deleted.update(gone)
