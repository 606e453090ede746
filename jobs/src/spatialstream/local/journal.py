"""Checkpoints of what changes a little: a base file and small deltas, after the log-structured merge idea.

A structure that changes a few rows per epoch writes those rows as a *delta*; when the deltas together outgrow half of
the base, or are too many, it writes everything anew as a *base*. So what is written is, amortised, within a constant
factor of what has changed (plus a base every ``_MOST`` epochs), and restoring reads one base and at most ``_MOST``
deltas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy.typing as npt

from spatialstream.local.state import Manifest, ReadFile, WriteFile

__all__ = ["Arrays", "Journal"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""Named arrays, as a file holds them."""

_MOST = 32


class Journal:
    """Which files hold a structure's state, and whether the next one is a base or a delta.

    Args:
        kind: prefix of the files' names.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._base: str | None = None
        self._base_bytes = 0
        self._deltas: list[str] = []
        self._delta_bytes = 0

    def save(self, write: WriteFile, delta: Arrays | None, base: Callable[[], Arrays], *, anew: bool = False) -> bool:
        """Write what has changed.

        Args:
            write: see :class:`~spatialstream.local.state.WriteFile`.
            delta: what has changed since the last call; None: nothing.
            base: gives everything; called only if a base is due.
            anew: a base is due in any case, because deltas cannot say what has happened.

        Returns:
            Whether a base was written.
        """
        size = sum(array.nbytes for array in delta.values()) if delta else 0
        full = self._delta_bytes + size > self._base_bytes // 2 or len(self._deltas) >= _MOST
        if self._base is None or anew or (delta is not None and full):
            arrays = base()
            self._base = write(self._kind, arrays)
            self._base_bytes = sum(array.nbytes for array in arrays.values())
            self._deltas, self._delta_bytes = [], 0
            return True
        if delta is not None:
            self._deltas.append(write(f"{self._kind}-delta", delta))
            self._delta_bytes += size
        return False

    @property
    def manifest(self) -> Manifest:
        """The state of the journal, JSON-able."""
        return {
            "base": self._base,
            "base_bytes": self._base_bytes,
            "deltas": list(self._deltas),
            "delta_bytes": self._delta_bytes,
        }

    @classmethod
    def open(cls, kind: str, manifest: Manifest) -> Journal:
        """From :attr:`manifest`."""
        self = cls(kind)
        self._base, self._base_bytes = manifest["base"], manifest["base_bytes"]
        self._deltas, self._delta_bytes = list(manifest["deltas"]), manifest["delta_bytes"]
        return self

    def base(self, read: ReadFile) -> Arrays:
        """The arrays of the base."""
        if self._base is None:
            raise ValueError("nothing has been saved")
        return read(self._base)[0]

    def deltas(self, read: ReadFile) -> Iterator[Arrays]:
        """The arrays of the deltas, oldest first."""
        for name in self._deltas:
            yield read(name)[0]
