"""The values of n objects as columns in Arrow's types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spatialstream.model.arrays import Array, Ints
from spatialstream.model.properties.declared import ARROW, PropertyType, Value

__all__ = ["PropertyColumns"]

_TYPES: dict[type, pa.DataType] = {
    str: ARROW[PropertyType.KEYWORD],
    float: ARROW[PropertyType.NUMBER],
    int: ARROW[PropertyType.TIME],
    bool: ARROW[PropertyType.BOOLEAN],
}
"""The Arrow type of each type of value."""


@dataclass(frozen=True, slots=True, eq=False)
class PropertyColumns:
    """The properties of n objects; a missing value is null.

    Attributes:
        n: number of objects.
        columns: a column for each property, by name, each of n values of a type in :data:`~.declared.ARROW`; none for
            streams without properties.
    """

    n: int
    columns: Mapping[str, pa.Array]

    @classmethod
    def none(cls, n: int) -> PropertyColumns:
        """The columns of n objects without properties."""
        return cls(n, {})

    @classmethod
    def of(cls, values: Sequence[Iterable[tuple[str, Value]]]) -> PropertyColumns:
        """Build from the values of n objects; there is a column for each name that occurs."""
        rows = [dict(each) for each in values]
        types = {name: _TYPES[type(value)] for row in rows for name, value in row.items()}
        columns = {name: pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()}
        return cls(len(rows), columns)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[tuple[str, Value], ...]:
        """The values of one object, without missing ones."""
        found = ((name, _plain(column, index)) for name, column in self.columns.items())
        return tuple((name, value) for name, value in found if value is not None)

    def times(self) -> Iterator[tuple[str, Ints]]:
        """The properties that are times: the name, and the values in ms, without missing ones, int64[m]."""
        for name, column in self.columns.items():
            if pa.types.is_timestamp(column.type):
                yield name, column.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)

    def take(self, rows: Array) -> PropertyColumns:
        """Select the objects at these positions."""
        if not self.columns:
            return PropertyColumns(len(rows), self.columns)
        places = pa.array(rows)
        return PropertyColumns(len(rows), {name: column.take(places) for name, column in self.columns.items()})

    def slice(self, first: int, last: int) -> PropertyColumns:
        """The objects from ``first`` up to ``last`` (exclusive), without a copy."""
        n = last - first
        return PropertyColumns(n, {name: column.slice(first, n) for name, column in self.columns.items()})

    @staticmethod
    def concat(parts: Sequence[PropertyColumns]) -> PropertyColumns:
        """Concatenate in order; where a part does not have a column of another one, its values are missing."""
        types = {name: column.type for part in parts for name, column in part.columns.items()}
        columns = {
            name: pa.concat_arrays([part.columns.get(name, pa.nulls(part.n, kind)) for part in parts])
            for name, kind in types.items()
        }
        return PropertyColumns(sum(part.n for part in parts), columns)

    def to_arrow(self) -> pa.StructArray:
        """One column of structs."""
        fields = [pa.field(name, column.type) for name, column in self.columns.items()]
        return pa.StructArray.from_arrays([*self.columns.values()], fields=fields)

    @classmethod
    def from_arrow(cls, column: pa.StructArray) -> PropertyColumns:
        """Read :meth:`to_arrow`."""
        names = [field.name for field in column.type]
        return cls(len(column), dict(zip(names, column.flatten(), strict=True)))


def _plain(column: pa.Array, index: int) -> Any:
    """The value of a row; None if it is missing."""
    value = column[index]
    if pa.types.is_timestamp(column.type):
        return value.value
    return value.as_py()
