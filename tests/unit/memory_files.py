"""Files of local structures, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt


class MemoryFiles:
    """Writes and reads files in memory, see :mod:`spatialstream.local.state`.

    Attributes:
        files: arrays and metadata of each, by name.
    """

    def __init__(self) -> None:
        self.files: dict[str, tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]] = {}

    def write(self, kind: str, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any] | None = None) -> str:
        name = f"{kind}-{len(self.files)}"
        self.files[name] = ({key: array.copy() for key, array in arrays.items()}, dict(meta or {}))
        return name

    def read(self, name: str) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        arrays, meta = self.files[name]
        return {key: array.copy() for key, array in arrays.items()}, meta
