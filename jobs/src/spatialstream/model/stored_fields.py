"""What an object said: the fields that a stream keeps, to show them in rows (stored fields, as Lucene has them).

A stream may keep the text of its objects and properties that it declares (``--fields``). Those of an object are one
JSON text, the members of an object without the braces (``"text": "Fire!", "priority": 3``), in the order in which the
stream names them; a missing value is not there. It is made once, where the record is decoded, and nothing after that
looks into it: it is part of an object's columns, of segments (compressed), and of rows.

Texts and keywords are as they were sent. A number is the double that the property is, a whole one below 2^53 without
a fraction; a time is in ms, as all times of rows are.

Cost: about 0.3 us an object to make, more with escapes; choosing some of the fields costs 1 us an object.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Array, Flags, numpy_view
from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.json_columns import joined, quoted
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import Properties, Value

__all__ = [
    "LONGEST_TEXT",
    "TEXT",
    "StoredFields",
    "check_text",
    "chosen",
    "continued",
    "fragment",
    "parse_chosen",
    "parse_fields",
    "stored_columns",
]

TEXT = "text"
"""The name of the field that is no property."""

LONGEST_TEXT = 1 << 20
"""Maximum length of a text that is kept, in bytes as JSON: a row has to fit into a message, with others."""

_TAKEN = frozenset(("score",))
"""Names of properties that are also those of what rows say of an object."""

_EXACT = 2.0**53
_decode = json.JSONDecoder().raw_decode
_NONE = pa.array([], pa.large_string())


def parse_fields(names: Iterable[str], properties: Properties, setting: str = "fields") -> tuple[str, ...]:
    """Read the names of the fields that a stream keeps.

    Raises:
        SettingError: one is neither ``text`` nor a declared property, is there twice, or cannot be shown in rows.
    """
    chosen: dict[str, None] = {}
    for name in names:
        if name != TEXT and name not in properties.type_of:
            near = get_close_matches(name, (TEXT, *properties.names), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"give {TEXT!r}, or declare it as a property"
            raise SettingError(setting, f"{name!r} is neither {TEXT!r} nor a property that is declared; {hint}")
        if name in chosen:
            raise SettingError(setting, f"{name!r} is there twice")
        if name in _TAKEN:
            raise SettingError(setting, f"rows have a {name!r} of their own; declare the property under another name")
        chosen[name] = None
    return tuple(chosen)


def parse_chosen(value: object, kept: tuple[str, ...] | None) -> tuple[str, ...]:
    """Read the fields that a query wants in its rows, in the order of the stream.

    Args:
        value: a list of names.
        kept: those of the stream; None: they are not known, and all names are taken.

    Raises:
        RecordError: it is no list of names, or the stream does not keep one; the message says how it would.
    """
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise RecordError("fields", f"{value!r} is not a list of names")
    if kept is None:
        return tuple(dict.fromkeys(value))
    for name in value:
        if name not in kept:
            short = name[:128]
            near = get_close_matches(short, kept, 1)
            meant = f"did you mean {near[0]!r}? " if near else f"it keeps {', '.join(kept) or 'none'}; "
            more = f"a stream with --fields {','.join((*kept, short))} does"
            raise RecordError("fields", f"{short!r} is not kept by the stream; {meant}{more}")
    return tuple(name for name in kept if name in value)


def check_text(text: str) -> str:
    """A text that can be kept.

    Raises:
        RecordError: it is too long, or no Unicode text.
    """
    try:
        size = len(json.dumps(text, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise RecordError(TEXT, "holds half of a surrogate pair; give Unicode text") from None
    if size > LONGEST_TEXT:
        most = f"a stream that keeps it (setting fields) takes at most {LONGEST_TEXT}"
        raise RecordError(TEXT, f"has {size} bytes as JSON; {most}")
    return text


def fragment(fields: Iterable[str], text: str | None, properties: Iterable[tuple[str, Value]]) -> str:
    """The fields of one object; see the module."""
    values: dict[str, Value | None] = {**dict(properties), TEXT: text}
    shown = ((name, values.get(name)) for name in fields)
    return ", ".join(f"{_quoted(name)}: {_value(value)}" for name, value in shown if value is not None)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _value(value: Value) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, slots=True, eq=False)
class StoredFields:
    """The fields of n objects that the stream keeps.

    Attributes:
        n: number of objects.
        column: Arrow large_utf8[n], those of each; None if the stream keeps none.
    """

    n: int
    column: pa.LargeStringArray | None

    @classmethod
    def none(cls, n: int) -> StoredFields:
        """Those of n objects of a stream that keeps none."""
        return cls(n, None)

    @classmethod
    def of(cls, fields: Sequence[str | None]) -> StoredFields:
        """Those of n objects; None: it is of a stream that keeps none."""
        if all(each is None for each in fields):
            return cls(len(fields), None)
        return cls(len(fields), pa.array([each or "" for each in fields], pa.large_string()))

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> str | None:
        """Those of one object."""
        return None if self.column is None else self.column[index].as_py()

    def take(self, rows: Array) -> StoredFields:
        """Select the objects at these positions."""
        return StoredFields(len(rows), None if self.column is None else self.column.take(pa.array(rows)))

    def slice(self, first: int, last: int) -> StoredFields:
        """The objects from ``first`` up to ``last`` (exclusive), without a copy."""
        return StoredFields(last - first, None if self.column is None else self.column.slice(first, last - first))

    def kept(self, there: bool) -> StoredFields:
        """These, or empty ones of a stream that keeps some, where there are no objects of which to tell it."""
        return self if self.column is not None or not there else StoredFields(self.n, _empty(self.n))

    @staticmethod
    def concat(parts: Sequence[StoredFields]) -> StoredFields:
        """Concatenate in order."""
        n = sum(part.n for part in parts)
        if all(part.column is None for part in parts):
            return StoredFields(n, None)
        return StoredFields(n, pa.concat_arrays([part.kept(True).column for part in parts]))


def _empty(n: int) -> pa.LargeStringArray:
    return pa.array(np.zeros(n, "U1"), pa.large_string()) if n else _NONE


def stored_columns(fields: Sequence[str], texts: pa.StringArray, properties: PropertyColumns) -> StoredFields:
    """The fields of n objects, from their columns: what :func:`fragment` makes of each.

    Args:
        fields: those that the stream keeps.
        texts: utf8[n], null where there is none.
        properties: of the objects.
    """
    n = len(texts)
    if not fields:
        return StoredFields.none(n)
    columns = [_member(name, texts if name == TEXT else properties.columns.get(name)) for name in fields]
    there = [each for each in columns if each is not None]
    if not n or not there:
        return StoredFields(n, _empty(n))
    return StoredFields(n, pc.binary_replace_slice(joined(*there), 0, len(", "), ""))


def _member(name: str, column: pa.Array | None) -> pa.LargeStringArray | None:
    """A field with its name, after a comma; empty where it is missing. None if it is everywhere."""
    if column is None or column.null_count == len(column):
        return None
    text = joined(f", {_quoted(name)}: ", _values(column)).cast(pa.large_string())
    return text if not column.null_count else pc.if_else(column.is_valid(), text, pa.scalar("", pa.large_string()))


def _values(column: pa.Array) -> pa.Array:
    """The values as JSON; where there is none, any text."""
    if pa.types.is_string(column.type):
        return quoted(pc.fill_null(column, ""))
    if not pa.types.is_floating(column.type):
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        return pc.fill_null(plain.cast(pa.string()), "")
    numbers = numpy_view(pc.fill_null(column, 0.0))
    whole: Flags = (np.floor(numbers) == numbers) & (np.abs(numbers) < _EXACT)
    texts = pa.array(np.where(whole, numbers, 0.0).astype(np.int64)).cast(pa.string())
    if whole.all():
        return texts
    return pc.replace_with_mask(texts, pa.array(~whole), pa.array(map(repr, numbers[~whole].tolist()), pa.string()))


def chosen(column: pa.LargeStringArray, wanted: Collection[str] | None) -> pa.LargeStringArray:
    """Of the fields of n objects those that a query wants; None: all."""
    if wanted is None:
        return column
    if not wanted:
        return _empty(len(column))
    return pa.array([_chosen(each, wanted) for each in column.to_pylist()], pa.large_string())


def _chosen(fields: str, wanted: Collection[str]) -> str:
    parts, at = [], 0
    while at < len(fields):
        name, end = _decode(fields, at)
        _, end = _decode(fields, end + len(": "))
        if name in wanted:
            parts.append(fields[at:end])
        at = end + len(", ")
    return ", ".join(parts)


def continued(column: pa.LargeStringArray) -> pa.LargeStringArray:
    """The fields as they follow others in a JSON object: with a comma before them, if there are any."""
    there = pc.greater(pc.binary_length(column), 0)
    return pc.if_else(there, joined(", ", column), pa.scalar("", pa.large_string()))
