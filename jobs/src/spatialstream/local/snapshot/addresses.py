"""The columns of several segments, as one argument of a kernel.

A kernel call costs a fraction of a microsecond for every array passed, and a query searches about a dozen segments of
twenty arrays each. So a *table* stores the address and length of each array in a row of numbers; a kernel takes all
rows at once and creates the arrays of a row itself: one call per query, regardless of the number of segments. A row is
created once per segment, and a table is a concatenation of rows. A table does not keep the segments alive: its user
must hold references to them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from spatialstream.local.arrays import Array, Bytes, Codes, Floats, Ints
from spatialstream.model.kernels import kernel

__all__ = ["ARRAYS", "Columns", "array_at", "columns_at", "place_of", "row_of"]


class Columns(NamedTuple):
    """All data of a segment, as kernels see it; n objects, v terms.

    Attributes:
        t: int64[n], ms.
        x: float64[n].
        y: float64[n].
        id_offsets: int32[n + 1].
        ids: uint8, utf8.
        unit_offsets: int32[n + 1], of the objects' term sets.
        units: uint16, see :mod:`spatialstream.local.snapshot.termlists`.
        word_offsets: int32[v + 1], of the vocabulary; the most frequent term first.
        words: uint8, utf8.
        slots: int32, the vocabulary's table with its seed, see :mod:`spatialstream.local.wordtable`.
        posting_offsets: int32[v + 1].
        postings: int32, ascending positions of each term's objects.
        grid: float64[types], see :func:`spatialstream.local.snapshot.zorder.grid_of`.
        directory: int32[4^depth + 1], first position of each node of a level.
        table_keys: int64[m], see :mod:`spatialstream.local.snapshot.termtables`.
        table_offsets: int64[m + 1].
        tables: uint16.
        counts: uint8, how often an object's text has a term, at the first unit of the term; empty: it is not counted.
        numbers: int32[v] or empty, see :class:`~spatialstream.local.snapshot.views.TermNumbers`; not of the segment.
        depth: level of the directory's nodes.
        t_min: least t.
        t_max: greatest t; less than ``t_min`` if there are no objects.
    """

    t: Ints
    x: Floats
    y: Floats
    id_offsets: Codes
    ids: Bytes
    unit_offsets: Codes
    units: npt.NDArray[np.uint16]
    word_offsets: Codes
    words: Bytes
    slots: Codes
    posting_offsets: Codes
    postings: Codes
    grid: Floats
    directory: Codes
    table_keys: Ints
    table_offsets: Ints
    tables: npt.NDArray[np.uint16]
    counts: Bytes
    numbers: Codes
    depth: int
    t_min: int
    t_max: int

    @classmethod
    def times_only(cls, t_min: int, t_max: int) -> Columns:
        """The columns of a segment that is not loaded: kernels read no arrays outside the requested time range."""
        return cls._make([*(np.empty(0, dtype) for dtype in _DTYPES.values()), 0, t_min, t_max])


ARRAYS = Columns._fields[:17]
"""Names of the arrays of a segment, without ``counts``, which not every one has."""

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(get_args(get_args(hint)[1])[0])
    for name, hint in get_type_hints(Columns).items()
    if name in (*ARRAYS, "counts", "numbers")
}

_ROW = np.dtype([(name, np.int64, 2) if name in _DTYPES else (name, np.int64) for name in Columns._fields])
"""A row of a table: address and length of each array, and the plain numbers."""


def row_of(columns: Columns) -> npt.NDArray[np.void]:
    """Create a table of one segment. It contains only addresses: the caller must keep the columns alive."""
    rows: npt.NDArray[np.void] = np.zeros(1, _ROW)
    for name, value in columns._asdict().items():
        if name in _DTYPES:
            assert value.dtype == _DTYPES[name]
            assert value.flags.c_contiguous
            value = place_of(value)
        rows[0][name] = value
    return rows


def place_of(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Address and length of an array."""
    return array.__array_interface__["data"][0], len(array)


def _convert(context: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), code


_pointer: Any = intrinsic(_convert)
"""An address as a pointer, in kernels."""


@kernel
def array_at(place: Array, dtype: Any) -> Any:
    """The array whose address and length are in a field of a row, see :func:`place_of`."""
    return carray(_pointer(place[0]), place[1], dtype)


@kernel
def columns_at(rows: Array, i: int) -> Columns:
    """The columns of one row of a table; only columns that are used have a cost."""
    row = rows[i]
    return Columns(
        array_at(row.t, np.int64),
        array_at(row.x, np.float64),
        array_at(row.y, np.float64),
        array_at(row.id_offsets, np.int32),
        array_at(row.ids, np.uint8),
        array_at(row.unit_offsets, np.int32),
        array_at(row.units, np.uint16),
        array_at(row.word_offsets, np.int32),
        array_at(row.words, np.uint8),
        array_at(row.slots, np.int32),
        array_at(row.posting_offsets, np.int32),
        array_at(row.postings, np.int32),
        array_at(row.grid, np.float64),
        array_at(row.directory, np.int32),
        array_at(row.table_keys, np.int64),
        array_at(row.table_offsets, np.int64),
        array_at(row.tables, np.uint16),
        array_at(row.counts, np.uint8),
        array_at(row.numbers, np.int32),
        row.depth,
        row.t_min,
        row.t_max,
    )
