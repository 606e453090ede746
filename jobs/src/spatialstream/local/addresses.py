"""The columns of several segments, as one argument of a kernel.

A kernel call costs a fraction of a microsecond for every array passed, and a query asks some dozen segments of twenty
arrays each. So a segment is a row of numbers, the address and length of each array, and a kernel takes a table of such
rows and makes the arrays of a row itself: one call a query, whatever the number of segments.

Whoever makes a row keeps the arrays alive as long as the row is in use.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from spatialstream.model.kernels import kernel

__all__ = ["ARRAYS", "NUMBERS_LENGTH", "ROW", "T_MAX", "T_MIN", "Columns", "columns_at", "row_of"]


class Columns(NamedTuple):
    """Everything of a segment, as its kernels see it; n objects, v terms.

    Attributes:
        t: int64[n], ms.
        x: float64[n].
        y: float64[n].
        id_offsets: int32[n + 1].
        ids: uint8, utf8.
        unit_offsets: int32[n + 1], of the objects' term sets.
        units: uint16, see :mod:`spatialstream.local.termlists`.
        word_offsets: int32[v + 1], of the vocabulary; the most frequent term first.
        words: uint8, utf8.
        slots: int32, the vocabulary's table with its seed, see :mod:`spatialstream.local.wordtable`.
        posting_offsets: int32[v + 1].
        postings: int32, ascending positions of each term's objects.
        grid: float64[6], see :func:`spatialstream.local.zorder.grid_of`.
        directory: int32[4^depth + 1], first position of each node of a level.
        table_keys: int64[m], see :mod:`spatialstream.local.termtables`.
        table_offsets: int64[m + 1].
        tables: uint16.
        numbers: int32[v] or empty, see :class:`spatialstream.local.termtables.TermNumbers`; not part of the segment.
        depth: level of the directory's nodes.
        t_min: least t.
        t_max: greatest t; less than ``t_min`` if there are no objects.
    """

    t: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    id_offsets: npt.NDArray[np.int32]
    ids: npt.NDArray[np.uint8]
    unit_offsets: npt.NDArray[np.int32]
    units: npt.NDArray[np.uint16]
    word_offsets: npt.NDArray[np.int32]
    words: npt.NDArray[np.uint8]
    slots: npt.NDArray[np.int32]
    posting_offsets: npt.NDArray[np.int32]
    postings: npt.NDArray[np.int32]
    grid: npt.NDArray[np.float64]
    directory: npt.NDArray[np.int32]
    table_keys: npt.NDArray[np.int64]
    table_offsets: npt.NDArray[np.int64]
    tables: npt.NDArray[np.uint16]
    numbers: npt.NDArray[np.int32]
    depth: int
    t_min: int
    t_max: int


ARRAYS = Columns._fields[:17]
"""Names of the arrays that are a segment."""

NUMBERS_LENGTH = 35
"""Where a row has the length of ``numbers``."""

_DEPTH = 36

T_MIN, T_MAX = 37, 38
"""Where a row has the time of its objects. Kernels read no arrays of a row whose time they are not asked for."""

ROW = 39
"""Numbers of a row."""

_TYPES = [
    np.dtype(name)
    for name in [
        "i8",
        "f8",
        "f8",
        "i4",
        "u1",
        "i4",
        "u2",
        "i4",
        "u1",
        "i4",
        "i4",
        "i4",
        "f8",
        "i4",
        "i8",
        "i8",
        "u2",
        "i4",
    ]
]


def row_of(columns: Columns) -> npt.NDArray[np.int64]:
    """The row int64[ROW] of a segment."""
    row = np.zeros(ROW, np.int64)
    arrays: tuple[Any, ...] = columns[:18]
    for i, (array, dtype) in enumerate(zip(arrays, _TYPES, strict=True)):
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        row[2 * i], row[2 * i + 1] = array.ctypes.data, len(array)
    row[_DEPTH], row[T_MIN], row[T_MAX] = columns.depth, columns.t_min, columns.t_max
    return row


def _convert(context: Any, address: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), code


_pointer: Any = intrinsic(_convert)
"""An address as a pointer, in kernels."""


@kernel
def columns_at(table: npt.NDArray[Any], row: int) -> Columns:
    """The columns of one row; costs nothing but for what is used of them."""
    a = table[row]
    return Columns(
        carray(_pointer(a[0]), a[1], np.int64),
        carray(_pointer(a[2]), a[3], np.float64),
        carray(_pointer(a[4]), a[5], np.float64),
        carray(_pointer(a[6]), a[7], np.int32),
        carray(_pointer(a[8]), a[9], np.uint8),
        carray(_pointer(a[10]), a[11], np.int32),
        carray(_pointer(a[12]), a[13], np.uint16),
        carray(_pointer(a[14]), a[15], np.int32),
        carray(_pointer(a[16]), a[17], np.uint8),
        carray(_pointer(a[18]), a[19], np.int32),
        carray(_pointer(a[20]), a[21], np.int32),
        carray(_pointer(a[22]), a[23], np.int32),
        carray(_pointer(a[24]), a[25], np.float64),
        carray(_pointer(a[26]), a[27], np.int32),
        carray(_pointer(a[28]), a[29], np.int64),
        carray(_pointer(a[30]), a[31], np.int64),
        carray(_pointer(a[32]), a[33], np.uint16),
        carray(_pointer(a[34]), a[35], np.int32),
        a[36],
        a[37],
        a[38],
    )
