"""n polygons or none as a column: each distinct geometry once, and a code for each row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Array, Codes, Floats
from spatialstream.model.polygons.packing import packed_polygons
from spatialstream.model.polygons.polygon import Polygon

__all__ = ["PolygonColumn", "PolygonSet"]


class PolygonColumn:
    """A column of n polygons, of which many may be equal, or none.

    Attributes:
        codes: int32[n], the row's polygon in ``distinct``; -1 for none.
        distinct: polygons, each once; equal ones of several areas are several.
    """

    __slots__ = ("codes", "distinct")

    def __init__(self, codes: Codes, distinct: tuple[Polygon, ...]) -> None:
        self.codes = codes
        self.distinct = distinct

    @classmethod
    def none(cls, n: int) -> PolygonColumn:
        """N rows without a polygon."""
        return cls(np.full(n, -1, np.int32), ())

    @classmethod
    def of(cls, rows: Sequence[Polygon | None]) -> PolygonColumn:
        """Build from a sequence."""
        distinct = _Distinct()
        codes = [-1 if each is None else distinct.number(each) for each in rows]
        return cls(np.array(codes, np.int32), distinct.polygons)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> Polygon | None:
        """The polygon of a row."""
        return self.distinct[self.codes[row]] if self.codes[row] >= 0 else None

    def to_arrow(self) -> pa.DictionaryArray:
        """The form on the wire: each distinct polygon once, null for none."""
        codes = pa.array(self.codes, mask=self.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, pa.array([each.to_bytes() for each in self.distinct], pa.binary()))

    @classmethod
    def from_arrow(cls, column: pa.DictionaryArray) -> PolygonColumn:
        """Read :meth:`to_arrow`."""
        codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        return cls(codes, tuple(Polygon.from_bytes(each) for each in column.dictionary.to_pylist()))

    @property
    def packed(self) -> Floats:
        """The distinct polygons as kernels take them, see :mod:`.packing`; the last ones that were made are kept."""
        return _packed(self.distinct) if self.distinct else np.empty(0)

    def take(self, rows: Array) -> PolygonColumn:
        """Select the rows at these positions; keeps the polygons that they have."""
        codes = self.codes[rows]
        if not self.distinct:
            return PolygonColumn(codes, ())
        used = np.unique(codes[codes >= 0])
        number = np.full(len(self.distinct) + 1, -1, np.int32)  # the last is that of -1, no polygon
        number[used] = np.arange(len(used), dtype=np.int32)
        return PolygonColumn(number[codes], tuple(self.distinct[each] for each in used.tolist()))

    @classmethod
    def concat(cls, parts: Sequence[PolygonColumn]) -> PolygonColumn:
        """Concatenate the rows; a polygon of several parts is kept once."""
        if not any(part.distinct for part in parts):
            return cls(np.concatenate([part.codes for part in parts]), ())
        distinct = _Distinct()
        codes = []
        for part in parts:
            places = [distinct.number(each) for each in part.distinct]
            codes.append(np.array([*places, -1], np.int32)[part.codes])
        return cls(np.concatenate(codes), distinct.polygons)


class _Distinct:
    """Polygons, each once for each area of which it is, in the order in which they come."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, Polygon]] = {}

    def number(self, polygon: Polygon) -> int:
        """The polygon's number."""
        return self._found.setdefault((polygon.digest, polygon.area), (len(self._found), polygon))[0]

    @property
    def polygons(self) -> tuple[Polygon, ...]:
        """The polygons by their numbers."""
        return tuple(polygon for _, polygon in self._found.values())


@lru_cache(64)
def _packed(distinct: tuple[Polygon, ...]) -> Floats:
    return packed_polygons(distinct)


class PolygonSet:
    """A growing set of polygons, numbered in the order in which they come; equal ones are one."""

    def __init__(self, polygons: Iterable[Polygon] = ()) -> None:
        self._number: dict[Polygon, int] = {}
        self.add(polygons)

    def __len__(self) -> int:
        return len(self._number)

    @property
    def polygons(self) -> tuple[Polygon, ...]:
        """The polygons by their numbers."""
        return tuple(self._number)

    @property
    def nbytes(self) -> int:
        """Bytes of the vertices, O(polygons)."""
        return sum(each.points.nbytes for each in self._number)

    def add(self, polygons: Iterable[Polygon]) -> list[int]:
        """Add polygons; returns their numbers."""
        return [self._number.setdefault(each, len(self._number)) for each in polygons]

    def codes(self, column: PolygonColumn) -> Codes:
        """The numbers of a column's polygons, int32[n], -1 for none; adds those that are new."""
        places: Codes = np.array([*self.add(column.distinct), -1], np.int32)[column.codes]
        return places

    def column(self, codes: Codes) -> PolygonColumn:
        """The polygons of these numbers; -1 is none."""
        return PolygonColumn(codes, self.polygons if (codes >= 0).any() else ()).take(np.arange(len(codes)))

    def keep(self, codes: Codes) -> Codes:
        """Drop the polygons that are not among these numbers; returns the new numbers of the rest."""
        column = self.column(codes)
        self._number = {each: i for i, each in enumerate(column.distinct)}
        return column.codes
