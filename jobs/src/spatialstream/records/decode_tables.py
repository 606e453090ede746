"""Objects from Arrow tables in bulk; see :mod:`~.decode` for which rows are read one at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Flags, Floats, Ints, numpy_view, string_view
from spatialstream.model.errors import RecordError
from spatialstream.model.ids import EXACT_FLOATS
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import TEXT, stored_columns
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import TIME_LIMIT, TIME_UNITS, in_milliseconds
from spatialstream.records import values
from spatialstream.records.decode import fits, within
from spatialstream.records.properties import table_properties, whole_times
from spatialstream.records.reference import (
    Decoded,
    Reference,
    Row,
    names_of,
    object_fields,
)
from spatialstream.records.rejected import LONGEST_ECHO, quoted
from spatialstream.records.scan import ABSENT, STRING, Cells
from spatialstream.records.tokens import tokenise_slices

__all__ = ["decode_object_table"]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _milliseconds(column: pa.Array) -> pa.Array:
    """A timestamp or date column as int64 ms, rounded down."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    a_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[column.type.unit]
    ticks = numpy_view(pc.fill_null(column.cast(pa.int64()), 0))
    if a_second == 1:
        t = np.where(np.abs(ticks) > TIME_LIMIT, TIME_LIMIT + 1, ticks * 1_000)
    else:
        t = ticks // (a_second // 1_000)
    return pc.if_else(column.is_valid(), pa.array(t), pa.scalar(None, pa.int64()))


def _plain(column: pa.Array) -> pa.Array:
    """A column in the one type of what it holds: utf8, int64, float64, list<utf8>; or as it is."""
    kind = column.type
    if _is_text(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _milliseconds(column)
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64())
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type):
        return column.cast(pa.list_(pa.string()))
    return column


def _plain_ids(column: pa.Array) -> pa.Array:
    """A column of ids in its plain type: nothing that is no number becomes one, and a decimal keeps its digits.

    Floats are as in :func:`_plain_numbers`.
    """
    kind = column.type
    return column if pa.types.is_temporal(kind) or pa.types.is_decimal(kind) else _plain_numbers(column)


def _plain_numbers(column: pa.Array) -> pa.Array:
    """As :func:`_plain`, of a column that may hold whole numbers as floats.

    Of a float of fewer bits than 64, one that may stand for several whole numbers is infinite.
    """
    kind = column.type
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float64())
        most = 2.0 ** (1 + np.finfo(kind.to_pandas_dtype()).nmant)
        return pc.if_else(pc.greater_equal(pc.abs(column), most), math.inf, column)
    return _plain(column)


def _texts_of_ids(column: pa.Array) -> pa.Array:
    """Plain ids as the strings that they are, and null where the exact parser has to say."""
    if pa.types.is_integer(column.type) or (pa.types.is_decimal(column.type) and column.type.scale == 0):
        return column.cast(pa.string())
    if column.type == pa.float64():
        whole = pc.and_(pc.equal(pc.floor(column), column), pc.less(pc.abs(column), EXACT_FLOATS))
        return pc.if_else(whole, column, None).cast(pa.int64()).cast(pa.string())
    return column


def _plain_column(table: pa.Table, name: str, plain: Callable[[pa.Array], pa.Array] = _plain) -> pa.Array:
    """One column (of several with this name, the first), in its plain type."""
    chunks = table.column(table.column_names.index(name)).chunks
    kind = table.schema.types[table.column_names.index(name)]
    return plain(chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], kind))


def _text_cells(column: pa.StringArray) -> Cells:
    """A column of strings as the cells of one field."""
    offsets, data = string_view(column)
    n = len(column)
    kind = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.uint8(STRING), np.uint8(ABSENT))
    ends = offsets.astype(np.int64)
    return Cells(np.append(data, np.zeros(8, np.uint8)), np.ones(n, np.bool_), kind, ends[:-1], ends[1:])


def _valid(column: pa.Array, n: int) -> Flags:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False)) if column is not None else np.zeros(n, np.bool_)


def _table_times(column: pa.Array, unit: str, good: Flags) -> Ints:
    if column.type == pa.float64():  # as pandas has whole numbers where one is missing
        numbers = numpy_view(pc.fill_null(column, 0.0))
        whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < EXACT_FLOATS)
        good &= whole
        column = pa.array(np.where(whole, numbers, 0.0).astype(np.int64))
    if column.type == pa.int64():
        t = numpy_view(pc.fill_null(column, 0))
        most = TIME_LIMIT * TIME_UNITS["ms"] // TIME_UNITS[unit]
        good &= (t >= -most) & (t <= most)
        return t if unit == "ms" else np.where(good, t, 0) * TIME_UNITS[unit] // TIME_UNITS["ms"]
    if column.type == pa.string():
        cells = _text_cells(column)
        t = values.read_times(cells, unit)
        good &= cells.good
        return t
    good[:] = False
    return np.zeros(len(column), np.int64)


def _table_numbers(column: pa.Array, low: float, high: float, good: Flags) -> Floats:
    numbers: Floats = np.full(len(column), np.nan)
    if column.type == pa.int64():
        numbers = numpy_view(pc.fill_null(column, 0)).astype(np.float64)
    elif column.type == pa.float64():
        numbers = numpy_view(pc.fill_null(column, 0.0))
    good &= within(numbers, low, high)
    return numbers


def _table_texts(text: pa.Array | None, terms: pa.Array | None, good: Flags) -> tuple[pa.StringArray, Ints]:
    """(texts, groups) of the rows. Of a table that has both columns, rows that use the less used one become odd."""
    n = len(good)
    with_text, with_terms = _valid(text, n), _valid(terms, n)
    good &= with_text ^ with_terms
    if with_text.sum() >= with_terms.sum():
        good &= with_text
        if text is not None and text.type == pa.string():
            return pc.fill_null(text, ""), np.arange(n + 1)
    else:
        good &= with_terms
        if terms is not None and terms.type == pa.list_(pa.string()):
            lengths = numpy_view(pc.fill_null(pc.list_value_length(terms), 0))
            groups = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            strings = pc.list_flatten(terms)
            missing = np.flatnonzero(~_valid(strings, 0))
            good[np.searchsorted(groups, missing, side="right") - 1] = False
            return pc.fill_null(strings, ""), groups
    good[:] = False
    return pa.array([], pa.string()), np.zeros(n + 1, np.int64)


def _read_table(found: Mapping[str, pa.Array], space: Space, rule: TermRule, unit: str, good: Flags) -> ObjectBatch:
    """The good rows as objects; marks more of them as odd."""
    fields = ("id", "t", *space.axes)
    if "id" in found:
        found = {**found, "id": _texts_of_ids(found["id"])}
    if not found.keys() >= set(fields) or found["id"].type != pa.string() or not all(map(_is_utf8, found.values())):
        good[:] = False
        return ObjectBatch.of([])
    for field in fields:
        good &= _valid(found[field], len(good))
    t = _table_times(found["t"], unit, good)
    x = _table_numbers(found[space.axes[0]], space.west, space.east, good)
    y = _table_numbers(found[space.axes[1]], space.south, space.north, good)
    texts, groups = _table_texts(found.get("text"), found.get("terms"), good)
    offsets, data = string_view(texts)
    bounds = offsets.astype(np.int64)
    lists, _ = tokenise_slices(data, bounds[:-1].copy(), bounds[1:].copy(), groups, rule, counted=rule.counts)
    properties = PropertyColumns(len(good), table_properties(found, rule.properties, good))
    text = found.get("text")
    if TEXT not in (rule.fields or ()) or text is None or text.type != pa.string():
        text = pa.nulls(len(good), pa.string())
    good &= fits(text)
    stored = stored_columns(rule.fields or (), text, properties)
    batch = ObjectBatch(found["id"], t, x, y, lists, properties, stored)
    return batch if good.all() else batch.take(np.flatnonzero(good))


def _is_utf8(column: pa.Array) -> bool:
    """Whether what says it is text is UTF-8, which no reader of Parquet checks."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _row_value(table: pa.Table, columns: Mapping[str, pa.Array], times: str, row: int) -> Row:
    """(plain values of the fields' columns, what is wrong, its echo) of one row of a table.

    In the column of ``times`` a float that is certainly one whole number is that number.
    """
    error, value, everything = None, {}, {}
    for i, name in enumerate(table.column_names):
        column = columns.get(name, table.column(i))
        try:
            everything[name] = column[row].as_py()
        except (OverflowError, ValueError):  # a time that Python does not have, or text that is not UTF-8
            everything[name] = None
            if name in columns:
                error = RecordError("record", "is not UTF-8 text")
        if name in columns:
            value[name] = _whole_time(everything[name]) if name == times else everything[name]
    try:
        echo = json.dumps(everything, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        echo = quoted(str(everything))
    return value, error, echo if len(echo) <= LONGEST_ECHO else quoted(echo)


def _property_times(table: pa.Table, name: str, unit: str) -> pa.Array:
    """A column of times in ms, where it is one of whole numbers or timestamps; or in its plain type."""
    kind = table.schema.types[table.column_names.index(name)]
    column = whole_times(_plain_column(table, name, _plain_numbers))
    if column.type != pa.int64() or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or unit == "ms":
        return column
    ticks = numpy_view(pc.fill_null(column, 0))
    most = TIME_LIMIT * TIME_UNITS["ms"] // TIME_UNITS[unit]
    ms = np.where(np.abs(ticks) <= most, ticks, 0) * TIME_UNITS[unit] // TIME_UNITS["ms"]
    return pa.array(np.where(np.abs(ticks) <= most, ms, TIME_LIMIT + 1), mask=~_valid(column, len(column)))


def _of_row(unit: str, of_properties: str) -> Callable[[object, Space, TermRule], Any]:
    """The parser of rows, whose times are of a unit, of ``t`` and of properties, but of whole ones in ms already."""

    def parsed(value: object, space: Space, rule: TermRule) -> Any:
        if isinstance(value, dict):
            times = [name for name, kind in rule.properties.types if kind is PropertyType.TIME]
            others = [name for name in times if not isinstance(value.get(name), int)]
            given = {name: in_milliseconds(_whole_time(value.get(name)), of_properties) for name in others}
            value = value | given | {"t": in_milliseconds(value.get("t"), unit)}
        return parse_object(value, space, rule)

    return parsed


def _whole_time(value: object) -> object:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < EXACT_FLOATS
    return int(value) if whole else value  # type: ignore[call-overload]  # it is a float


def decode_object_table(
    table: pa.Table,
    first_row: int = 1,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Decoded[ObjectBatch]:
    """Objects from the rows of a table, as :func:`~.objects.parse_object` reads the values of each.

    ``t`` may also be a column of timestamps or dates of any unit and zone (rounded down to ms; without a zone, UTC), or
    of floats that are whole numbers, which pandas writes where a time is missing; ids any column of strings or of whole
    numbers, coordinates any column of numbers, decimal ones too, and texts any column of strings, dictionary-encoded
    ones too.

    Args:
        table: the rows.
        first_row: the number of the first of them.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: names in the table of those fields that have another than their own.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.
    """
    columns = columns or {}
    fields = object_fields(space, rule)
    names = names_of(fields, columns)
    plain = {name: _plain_column(table, name) for name in names.values() if name in table.column_names}
    if names["id"] in plain and [*names.values()].count(names["id"]) == 1:
        plain[names["id"]] = _plain_column(table, names["id"], _plain_ids)
    for field, kind in rule.properties.types:
        if kind is PropertyType.TIME and names[field] in plain:
            plain[names[field]] = _property_times(table, names[field], unit)
    times = names["t"] if [*names.values()].count(names["t"]) == 1 else ""
    if times in plain:
        plain[times] = _plain_column(table, times, _plain_numbers)
    good, of_properties = np.ones(table.num_rows, np.bool_), unit
    t = table.column(table.column_names.index(names["t"])).type if names["t"] in plain else None
    if t is not None and (pa.types.is_timestamp(t) or pa.types.is_date(t)):
        unit = "ms"  # these are no numbers, and have become such as are in ms
    found = {field: plain[name] for field, name in names.items() if name in plain}
    batch = _read_table(found, space, rule, unit, good)
    reference = Reference(_of_row(unit, of_properties), ObjectBatch, fields, columns, space, rule)
    line = np.arange(first_row, first_row + len(good))
    return reference.finish(batch, line, good, lambda row: _row_value(table, plain, times, row))
