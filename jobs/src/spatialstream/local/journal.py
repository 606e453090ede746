"""Checkpoints of what changes a little: a base file and small deltas, after the log-structured merge idea.

A structure that changes a few rows per epoch writes those rows as a *delta*; when the deltas together outgrow half of
the base, or are too many, it writes everything anew as a *base*. So what is written is, amortised, within a constant
factor of what has changed (plus a base every ``_MOST`` epochs), and restoring reads one base and at most ``_MOST``
deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy.typing as npt

from spatialstream.local.state import Manifest, ReadFile, WriteFile

__all__ = ["Arrays", "Journal"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""Named arrays, as a file holds them."""

_MOST = 32


@dataclass(slots=True, eq=False)
class Journal:
    """Which files hold a structure's state, and whether the next one is a base or a delta.

    Attributes:
        kind: prefix of the files' names.
        base: the name of the base; None before the first.
        base_bytes: its size.
        deltas: the names of the deltas since, oldest first.
        delta_bytes: their size.
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
            delta: what has changed since the last call; None: nothing.
            everything: gives all there is; called only if a base is due.
            anew: a base is due in any case, because deltas cannot say what has happened.

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
        """The state of the journal, JSON-able."""
        return {name: each for name, each in asdict(self).items() if name != "kind"}

    @classmethod
    def open(cls, kind: str, manifest: Manifest, read: ReadFile) -> tuple[Journal, list[Arrays]]:
        """From :attr:`manifest`; and the arrays of the base and of each delta, oldest first."""
        journal = cls(kind, **(manifest | {"deltas": list(manifest["deltas"])}))
        return journal, [read(name)[0] for name in (manifest["base"], *journal.deltas)]
