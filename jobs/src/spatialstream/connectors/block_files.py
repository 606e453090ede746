"""A channel of files in a storage, for router and worker in one process.

The blocks of a router partition of an epoch are one file, under a name made from their keys: sending them again writes
the same file. So offsets count epochs here, and no block is read twice. There is one incarnation, that of the storage.

Layout::

    blocks/000000017-0001.ipc    blocks one after the other, then [[slot, key, first byte, bytes], ...] as JSON, and
                                 its size in eight bytes
    announced/000000017.json     an announcement
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spatialstream.connectors.contracts import Storage

__all__ = ["BlockFiles"]

_BLOCKS, _ANNOUNCED = "blocks/", "announced/"
_SIZE = 8


@dataclass(frozen=True, slots=True)
class BlockFiles:
    """See :class:`~spatialstream.connectors.contracts.Channel`.

    Attributes:
        storage: of the files.
        slots: number of slots.
    """

    storage: Storage
    slots: int

    def send(self, blocks: Iterable[tuple[int, bytes, pa.Buffer]]) -> dict[int, int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`.

        All blocks are of one router partition of an epoch.
        """
        parts: list[pa.Buffer] = []
        index: list[tuple[int, str, int, int]] = []
        size = 0
        for slot, key, content in blocks:
            index.append((slot, key.decode(), size, content.size))
            parts.append(content)
            size += content.size
        if not index:
            return {}
        epoch, partition = map(int, index[0][1].split()[:2])
        listed = json.dumps(index).encode()
        self.storage.put(
            f"{_BLOCKS}{epoch:09d}-{partition:04d}.ipc", *parts, listed, len(listed).to_bytes(_SIZE, "little")
        )
        return dict.fromkeys((slot for slot, *_ in index), epoch + 1)

    def ends(self) -> list[int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        return [max(map(_epoch_of, self.storage.list(_BLOCKS)), default=-1) + 1] * self.slots

    def announce(self, announcement: Mapping[str, Any]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`. Removes all but this announcement and the last."""
        epoch = announcement["epoch"]
        self.storage.put(f"{_ANNOUNCED}{epoch:09d}.json", json.dumps(announcement).encode())
        self.storage.delete(self.storage.list(_ANNOUNCED)[:-2])

    def announced(self, after: int | None, most: int, patience: float) -> tuple[list[dict[str, Any] | None], int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        start = 0 if after is None else after
        names = [name for name in self.storage.list(_ANNOUNCED) if _epoch_of(name) >= start][:most]
        if not names:
            time.sleep(patience)
            return [], start
        return [json.loads(self.storage.get(name).to_pybytes()) for name in names], _epoch_of(names[-1]) + 1

    def cut(self, before: int) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        self.storage.delete(name for name in self.storage.list(_ANNOUNCED) if _epoch_of(name) < before)

    def begins(self) -> list[int]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        return [min(map(_epoch_of, self.storage.list(_BLOCKS)), default=0)] * self.slots

    def blocks(self, slot: int, start: int, end: int) -> Iterator[tuple[bytes, pa.Buffer]]:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        for name in self.storage.list(_BLOCKS):
            if start <= _epoch_of(name) < end:
                file = self.storage.get(name)
                last = file.size - _SIZE
                listed = last - int.from_bytes(file.slice(last), "little")
                for of_slot, key, first, size in json.loads(file.slice(listed, last - listed).to_pybytes()):
                    if of_slot == slot:
                        yield key.encode(), file.slice(first, size)

    def release(self, ends: Sequence[int]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Channel`."""
        self.storage.delete(name for name in self.storage.list(_BLOCKS) if _epoch_of(name) < min(ends))


def _epoch_of(name: str) -> int:
    return int(name.partition("/")[2][:9])
