"""Growing tables of numpy columns, and growing columns of strings.

Kernels work on plain arrays, and continuous queries arrive one at a time or by the million. Both classes keep columns
in buffers that double when full, so appending costs amortised O(rows appended), and every column is one contiguous
array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.arrays import Array, Bytes, Ints
from spatialstream.local.wordtable import from_arrow, gather, to_arrow
from spatialstream.model.arrays import numpy_view
from spatialstream.model.hashing import distinct

__all__ = ["Strings", "Table", "earliest", "join", "rank_strings", "writable"]

_LEAST = 16

_Columns = TypeVar("_Columns", bound=NamedTuple)


def _room(buffer: Array, used: int, more: int) -> Array:
    """Ensure room for ``more`` elements: the buffer itself, or a copy of at least twice its size."""
    if used + more <= len(buffer):
        return buffer
    larger = np.empty(max(used + more, 2 * len(buffer), _LEAST), buffer.dtype)
    larger[:used] = buffer[:used]
    return larger


def join(parts: Sequence[Array]) -> Array:
    """Concatenate arrays (at least one); a single one, which may be memory-mapped, is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def writable(array: Array) -> Array:
    """The array, or a copy if it is not C-contiguous and writable, the only type that kernels are compiled for."""
    return np.require(array, requirements=["C", "W"])


class Table:
    """Rows of named columns of one dtype each.

    Args:
        dtypes: the dtype of each column, by name.
    """

    def __init__(self, dtypes: Mapping[str, npt.DTypeLike]) -> None:
        self._rows = 0
        self._columns = {name: np.empty(0, dtype) for name, dtype in dtypes.items()}

    def __len__(self) -> int:
        return self._rows

    @property
    def nbytes(self) -> int:
        """Memory of the rows in bytes, without the free space of buffers."""
        return sum(column.itemsize for column in self._columns.values()) * self._rows

    def __getitem__(self, name: str) -> Array:
        """A column: a view, valid (and writable) until rows are appended or dropped."""
        return self._columns[name][: self._rows]

    def view(self, kind: type[_Columns]) -> _Columns:
        """The columns named by the fields of a named tuple, as kernels take them; valid as long as a column."""
        return kind._make(self[name] for name in kind._fields)

    def append(self, columns: Mapping[str, Array | int]) -> int:
        """Append rows and return the position of the first.

        Args:
            columns: columns of the rows, the first of which is an array; a scalar is repeated in every row, and omitted
                columns are 0.
        """
        first, more = self._rows, np.size(next(iter(columns.values())))
        for name, buffer in self._columns.items():
            roomy = _room(buffer, first, more)
            roomy[first : first + more] = columns.get(name, 0)
            self._columns[name] = roomy
        self._rows += more
        return first

    def take(self, rows: Array) -> None:
        """Keep only the given rows (positions or a mask), in the given order."""
        for name in self._columns:
            self._columns[name] = self[name][rows]
        self._rows = len(next(iter(self._columns.values())))


class Strings:
    """A growing column of strings."""

    def __init__(self) -> None:
        self._ends = Table({"end": np.int64})
        self._ends.append({"end": np.zeros(1, np.int64)})
        self._data = np.empty(0, np.uint8)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def nbytes(self) -> int:
        """Memory of the strings in bytes, without the free space of buffers."""
        return self._ends.nbytes + int(self.offsets[-1])

    @property
    def offsets(self) -> Ints:
        """int64[n + 1]; string i is ``data[offsets[i]:offsets[i + 1]]``."""
        return self._ends["end"]

    @property
    def data(self) -> Bytes:
        """The bytes of all strings."""
        return self._data[: self.offsets[-1]]

    def append(self, strings: pa.StringArray) -> None:
        """Append an Arrow array without nulls."""
        offsets, data = from_arrow(strings)
        self.extend(offsets.astype(np.int64), data)

    def extend(self, offsets: Ints, data: Bytes) -> None:
        """Append strings given as offsets into bytes."""
        first, last = int(offsets[0]), int(offsets[-1])
        used = int(self.offsets[-1])
        self._data = _room(self._data, used, last - first)
        self._data[used : used + last - first] = data[first:last]
        self._ends.append({"end": offsets[1:] - first + used})

    def arrow(self, rows: Ints) -> pa.StringArray:
        """The strings at ``rows`` as an Arrow array."""
        return to_arrow(*gather(self.offsets, self.data, rows))

    def take(self, rows: Ints) -> None:
        """Keep only the strings at ``rows``, in the given order."""
        offsets, data = gather(self.offsets, self.data, rows)
        self._ends.take(np.zeros(1, np.int64))
        self._data = np.empty(0, np.uint8)
        self.extend(offsets.astype(np.int64), data)

    def part(self, first: int) -> tuple[Ints, Bytes]:
        """Offsets (from 0) and bytes of the strings from position ``first`` on, for :meth:`extend`."""
        offsets = self.offsets[first:]
        return offsets - offsets[0], self.data[offsets[0] :]


def earliest(column: Ints, wanted: Ints, t: Ints) -> tuple[Ints, Ints]:
    """Rows of a column with a wanted number, and for each the position in ``wanted`` of its entry with the least t."""
    if not len(wanted):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.lexsort((t, wanted))
    rows = np.flatnonzero(np.isin(column, wanted))
    return rows, order[np.searchsorted(wanted[order], column[rows])]


def rank_strings(strings: pa.StringArray) -> Ints:
    """Rank of each string: the number of distinct smaller strings."""
    codes, firsts = distinct(strings)
    order = numpy_view(pc.array_sort_indices(strings.take(pa.array(firsts))))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    of_each: Ints = rank[codes]
    return of_each
