"""Incremental checkpoints: a base file and small deltas, as in log-structured merge trees.

A structure that changes a few rows per epoch writes those rows as a *delta*. If the total size of the deltas exceeds
half of the base, or there are too many of them, it writes its complete state as a new *base*. So the amortised amount
of data written is within a constant factor of the amount of change (plus a base every ``_MOST`` epochs), and restoring
reads one base and at most ``_MOST`` deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy.typing as npt

from spatialstream.local.state import Manifest, ReadFile, WriteFile

__all__ = ["Arrays", "Journal"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""Named arrays, the contents of a file."""

_MOST = 32


@dataclass(slots=True, eq=False)
class Journal:
    """The files of a structure's state. Decides whether the next file is a base or a delta.

    Attributes:
        kind: prefix of the names of the files.
        base: name of the base; None before the first one is written.
        base_bytes: size of the base.
        deltas: names of the deltas since the base, oldest first.
        delta_bytes: total size of the deltas.
    """

    kind: str
    base: str | None = None
    base_bytes: int = 0
    deltas: list[str] = field(default_factory=list)
    delta_bytes: int = 0

    def save(
        self, write: WriteFile, delta: Arrays | None, everything: Callable[[], Arrays], *, anew: bool = False
    ) -> bool:
        """Write what has changed.

        Args:
            write: see :class:`~spatialstream.local.state.WriteFile`.
            delta: the changes since the last call; None: there are none.
            everything: returns the complete state; called only if a base is written.
            anew: always write a base, because the changes cannot be expressed as a delta.

        Returns:
            Whether a base was written.
        """
        size = sum(array.nbytes for array in delta.values()) if delta else 0
        full = self.delta_bytes + size > self.base_bytes // 2 or len(self.deltas) >= _MOST
        if self.base is None or anew or (delta is not None and full):
            arrays = everything()
            self.base = write(self.kind, arrays)
            self.base_bytes = sum(array.nbytes for array in arrays.values())
            self.deltas, self.delta_bytes = [], 0
            return True
        if delta is not None:
            self.deltas.append(write(f"{self.kind}-delta", delta))
            self.delta_bytes += size
        return False

    @property
    def manifest(self) -> Manifest:
        """The state of the journal, JSON-serializable."""
        return {name: each for name, each in asdict(self).items() if name != "kind"}

    @classmethod
    def open(cls, kind: str, manifest: Manifest, read: ReadFile) -> tuple[Journal, list[Arrays]]:
        """Open the journal of a :attr:`manifest`: (journal, arrays of the base and of each delta, oldest first)."""
        journal = cls(kind, **(manifest | {"deltas": list(manifest["deltas"])}))
        return journal, [read(name)[0] for name in (manifest["base"], *journal.deltas)]
