"""Batches: dataclasses whose fields are columns of equal length, and their common operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Array

__all__ = ["Batch", "joined"]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n rows as columns. A column is a numpy array, an Arrow array, another batch or term lists."""

    def __len__(self) -> int:
        return len(getattr(self, _names(type(self))[0]))

    def take(self, rows: Array) -> Self:
        """Select the rows at these positions."""
        return type(self)(**{name: _taken(getattr(self, name), rows) for name in _names(type(self))})

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the rows of ``parts`` (at least one) in order."""
        return joined(parts)


_Batch = TypeVar("_Batch", bound=Batch)


_known: dict[type, tuple[str, ...]] = {}


def _names(kind: type[Batch]) -> tuple[str, ...]:
    """Names of the columns, cached because ``dataclasses.fields`` costs more than reading the columns."""
    if kind not in _known:
        _known[kind] = tuple(field.name for field in fields(kind))
    return _known[kind]


def joined(parts: Sequence[_Batch]) -> _Batch:
    """Concatenate the rows of several batches of one class (at least one) in order."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: [getattr(part, name) for part in parts] for name in _names(type(parts[0]))}
    return type(parts[0])(**{name: _joined(column) for name, column in columns.items()})


def _taken(column: Any, rows: Array) -> Any:
    if isinstance(column, np.ndarray):
        return column[rows]
    return column.take(pa.array(rows) if isinstance(column, pa.Array) else rows)


def _joined(columns: Sequence[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return pa.concat_arrays(columns) if isinstance(columns[0], pa.Array) else type(columns[0]).concat(columns)
