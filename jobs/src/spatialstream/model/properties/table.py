"""The properties of n objects as kernels take them: a row of 64-bit words for each property.

Words are ordered as their values are: a number is the bits of its double, with those of negative ones turned so that
integers compare as the doubles do; a time is its ms; a boolean 0 or 1. A keyword is where its bytes lie: each distinct
one once. A missing value is a word of its own.

Cost: 8 bytes a value, and the bytes of the distinct keywords.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Array, Bytes, Flags, Floats, Ints, numpy_view, string_view
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import ARROW, PropertyType

__all__ = ["MISSING", "LazyTable", "PropertyTable", "concat_columns", "number_words", "span"]

MISSING = np.int64(-(2**63))
"""The word of a missing value; no finite double, no time and no keyword has it."""

_SIZE_BITS = 16
"""Bits of a keyword's word that are its length in bytes; the others are where it begins."""

_REST = np.int64(2**63 - 1)


def number_words(numbers: Floats) -> Ints:
    """Words of finite doubles that are ordered as these are: int64[n]."""
    bits = (numbers + 0.0).view(np.int64)
    words: Ints = np.where(bits < 0, bits ^ _REST, bits)
    return words


def span(word: int) -> tuple[int, int]:
    """Where the keyword of a word begins and ends."""
    first: int = word >> _SIZE_BITS
    return first, first + word % (1 << _SIZE_BITS)


@dataclass(frozen=True, slots=True, eq=False)
class PropertyTable:
    """The properties of n objects.

    Attributes:
        types: name and type of each property.
        words: int64[properties, n].
        data: uint8, the bytes of the keywords.
    """

    types: tuple[tuple[str, PropertyType], ...]
    words: Ints
    data: Bytes

    @classmethod
    def of(cls, columns: PropertyColumns) -> PropertyTable:
        """Build from columns."""
        types = tuple((name, _TYPE_OF[column.type]) for name, column in columns.columns.items())
        words = np.empty((len(types), len(columns)), np.int64)
        pieces = [np.empty(0, np.uint8)]
        at = 0
        for row, (name, kind) in enumerate(types):
            column = columns.columns[name]
            if kind is PropertyType.KEYWORD:
                words[row], piece = _keywords(column, at)
                pieces.append(piece)
                at += len(piece)
            else:
                words[row] = np.where(_valid(column), _words(column, kind), MISSING)
        return cls(types, words, np.concatenate(pieces))

    def __len__(self) -> int:
        """Number of objects."""
        return int(self.words.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.words.nbytes + self.data.nbytes

    def take(self, rows: Array) -> PropertyTable:
        """Select the objects at these positions; the bytes of keywords are shared."""
        return PropertyTable(self.types, np.ascontiguousarray(self.words[:, rows]), self.data)

    def columns(self) -> PropertyColumns:
        """The columns of which the table can be built."""
        return PropertyColumns(
            len(self), {name: self._column(row, kind) for row, (name, kind) in enumerate(self.types)}
        )

    def _column(self, row: int, kind: PropertyType) -> pa.Array:
        words, missing = self.words[row], self.words[row] == MISSING
        if kind is PropertyType.KEYWORD:
            distinct, codes = np.unique(words[~missing], return_inverse=True)
            texts = [bytes(self.data[first:end]).decode() for first, end in map(span, distinct.tolist())]
            places = np.zeros(len(words), np.int32)
            places[~missing] = codes
            return pa.array(texts, pa.string()).take(pa.array(places, mask=missing))
        plain = np.where(missing, 0, words)
        match kind:
            case PropertyType.NUMBER:
                values = np.where(plain < 0, plain ^ _REST, plain).view(np.float64)
                return pa.array(values, mask=missing)
            case PropertyType.BOOLEAN:
                return pa.array(plain != 0, mask=missing)
        return pa.array(plain, mask=missing).cast(ARROW[kind])

    def to_arrays(self) -> dict[str, Array]:
        """Serialize as named arrays."""
        types = np.frombuffer(json.dumps(self.types).encode(), np.uint8)
        return {"property_types": types, "property_words": self.words, "property_data": self.data}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> PropertyTable:
        """Deserialize the result of :meth:`to_arrays`, without a copy."""
        types = tuple((name, PropertyType(kind)) for name, kind in json.loads(arrays["property_types"].tobytes()))
        return cls(types, arrays["property_words"], arrays["property_data"])

    @staticmethod
    def concat(parts: Sequence[PropertyTable | None], sizes: Sequence[int]) -> PropertyTable | None:
        """The table of several of so many objects one after the other; None if all are None."""
        columns = concat_columns(parts, sizes)
        return PropertyTable.of(columns) if columns.columns else None


def concat_columns(parts: Sequence[PropertyTable | None], sizes: Sequence[int]) -> PropertyColumns:
    """The columns of the tables of several of so many objects one after the other; none if all are None."""
    return PropertyColumns.concat(
        [
            PropertyColumns.none(size) if part is None else part.columns()
            for part, size in zip(parts, sizes, strict=True)
        ]
    )


class LazyTable:
    """Tables of some of the columns of objects, each built when it is first asked for.

    Args:
        columns: of the objects.
    """

    def __init__(self, columns: PropertyColumns) -> None:
        self._columns = columns
        self._tables: dict[tuple[str, ...], PropertyTable | None] = {}

    def of(self, names: tuple[str, ...]) -> PropertyTable | None:
        """The table of the columns of these names; None if there are none of them."""
        if names not in self._tables:
            columns = {name: self._columns.columns[name] for name in names if name in self._columns.columns}
            some = PropertyColumns(len(self._columns), columns)
            self._tables[names] = PropertyTable.of(some) if columns else None
        return self._tables[names]


_TYPE_OF = {kind: name for name, kind in ARROW.items()}


def _valid(column: pa.Array) -> Flags:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _words(column: pa.Array, kind: PropertyType) -> Ints:
    if kind is PropertyType.NUMBER:
        return number_words(numpy_view(pc.fill_null(column, 0.0)))
    plain: Ints = numpy_view(pc.fill_null(column.cast(pa.int64()), 0))
    return plain


def _keywords(column: pa.Array, at: int) -> tuple[Ints, Bytes]:
    """Words of a column of strings whose distinct ones lie from ``at`` on, and the bytes of these."""
    coded = column.dictionary_encode()
    offsets, data = string_view(coded.dictionary)
    first, last = int(offsets[0]), int(offsets[-1])
    begins, sizes = offsets[:-1].astype(np.int64) - first + at, np.diff(offsets).astype(np.int64)
    words = np.append((begins << _SIZE_BITS) | sizes, MISSING)
    codes = numpy_view(pc.fill_null(coded.indices, len(words) - 1))
    return words[codes], data[first:last]
