"""Persistence of local structures.

A structure writes its bulk data to immutable files of named arrays and returns a small JSON-serializable manifest that
names them. After every epoch the worker calls ``checkpoint`` and stores the manifest under the epoch; the next epoch,
in whichever process it runs, calls ``restore`` with it, which maps the files and rebuilds nothing. The worker deletes
files that no retained manifest names. A structure never deletes or rewrites a file.

The contract for every structure ``S`` in this package::

    manifest = s.checkpoint(write)      # write(kind, arrays, meta) -> name; only new data is written
    t = S.restore(space, manifest, read)    # read(name) -> (arrays, meta)

``t`` behaves as ``s`` did at the time of the checkpoint, and the same calls on equal structures write equal bytes, so
an epoch can be replayed safely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spatialstream.local.arrays import Array

__all__ = ["Manifest", "ReadFile", "WriteFile"]

Manifest = dict[str, Any]
"""A small JSON-serializable description of a structure's state, which names its files."""


class WriteFile(Protocol):
    """Write named arrays to a new immutable file."""

    def __call__(self, kind: str, arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> str:
        """Write the file and return its name. ``kind`` is a short prefix that makes names readable."""


class ReadFile(Protocol):
    """Map a file that was written through :class:`WriteFile`."""

    def __call__(self, name: str) -> tuple[dict[str, Array], dict[str, Any]]:
        """The file's arrays (shared, copy-on-write) and its ``meta``."""
