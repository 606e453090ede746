"""The properties of records, field by field: from the cells of text, and from the columns of tables.

As :mod:`~.values` does, these functions read what is certainly of the declared type, and mark each other record as odd:
:func:`~spatialstream.model.properties.declared.parse_value` says of these what they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Array, Flags, numpy_view
from spatialstream.model.ids import EXACT_FLOATS
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import ARROW, LONGEST_KEYWORD, Properties, PropertyType
from spatialstream.model.times import TIME_LIMIT
from spatialstream.records import values
from spatialstream.records.scan import ABSENT, INTEGER, NUMBER, OTHER, Cells

__all__ = ["declared_columns", "read_properties", "table_properties", "whole_times"]

_TRUE = ord("t")


def read_properties(cells: Mapping[str, Cells], properties: Properties, unit: str, csv: bool) -> dict[str, pa.Array]:
    """Columns of all records, those of odd ones undefined; marks more of them as odd.

    Args:
        cells: of each field.
        properties: those that are declared.
        unit: of times that are numbers.
        csv: whether all cells are text.
    """
    return {name: _column(cells[name], kind, unit, csv) for name, kind in properties.types}


def _column(cells: Cells, kind: PropertyType, unit: str, csv: bool) -> pa.Array:
    there, good = cells.kind != ABSENT, cells.good
    match kind:
        case PropertyType.KEYWORD:
            values.read_strings(cells, csv)
            good &= ~there | (cells.last - cells.first <= LONGEST_KEYWORD)
            return pc.if_else(pa.array(there), _texts(cells, there & good), pa.scalar(None, pa.string()))
        case PropertyType.NUMBER:
            if not csv:
                good &= ~there | (cells.kind == INTEGER) | (cells.kind == NUMBER)
            return pa.array(values.read_numbers(cells) + 0.0, mask=~there)
        case PropertyType.TIME:
            return pa.array(values.read_times(cells, unit), mask=~there).cast(ARROW[kind])
    if csv:
        text = _texts(cells, there & good)
        true, false = (pc.equal(text, word).to_numpy(zero_copy_only=False) for word in ("true", "false"))
        good &= ~there | true | false
        return pa.array(true, mask=~there)
    good &= ~there | (cells.kind == OTHER)
    return pa.array(cells.data[np.where(there & good, cells.first, 0)] == _TRUE, mask=~there)


def _texts(cells: Cells, rows: Flags) -> pa.StringArray:
    """The text of each cell; of the others an empty one."""
    return values.gather(cells.data, *(np.where(rows, each, 0) for each in (cells.first, cells.last)))


def declared_columns(columns: PropertyColumns, properties: Properties) -> PropertyColumns:
    """The columns of all declared properties in their order, each with values or without."""
    if not properties:
        return columns
    found = {name: columns.columns.get(name) for name in properties.names}
    missing = {name: pa.nulls(len(columns), ARROW[kind]) for name, kind in properties.types if found[name] is None}
    return PropertyColumns(len(columns), found | missing)


# -------------------------------------------------------------------------------------------------------------- tables


def whole_times(column: pa.Array) -> pa.Array:
    """Floats that are whole numbers, which pandas writes where a time is missing, as integers; others as they are."""
    if column.type != pa.float64():
        return column
    numbers = numpy_view(pc.fill_null(column, 0.0))
    whole = (np.floor(numbers) == numbers) & (np.abs(numbers) < EXACT_FLOATS)
    return column.cast(pa.int64()) if whole.all() else column


def table_properties(found: Mapping[str, pa.Array], properties: Properties, good: Flags) -> dict[str, pa.Array]:
    """Columns of all rows of a table, those of odd ones undefined; marks more of them as odd.

    Args:
        found: the columns that there are, in plain types: utf8, int64 (of times ms), float64 or bool.
        properties: those that are declared.
        good: bool[n], which rows are not odd.
    """
    n = len(good)
    return {name: _of_table(found.get(name, pa.nulls(n)), kind, good) for name, kind in properties.types}


def _of_table(column: pa.Array, kind: PropertyType, good: Flags) -> pa.Array:
    missing: Array = ~np.asarray(column.is_valid().to_numpy(zero_copy_only=False))
    if missing.all():
        return pa.nulls(len(column), ARROW[kind])
    fits = np.zeros(len(column), np.bool_)
    match kind:
        case PropertyType.KEYWORD if column.type == pa.string():
            fits = numpy_view(pc.fill_null(pc.binary_length(column), 0)) <= LONGEST_KEYWORD
        case PropertyType.NUMBER if column.type in (pa.int64(), pa.float64()):
            numbers = numpy_view(pc.fill_null(column, 0)).astype(np.float64) + 0.0
            fits, column = np.isfinite(numbers), pa.array(numbers, mask=missing)
        case PropertyType.TIME if column.type == pa.int64():
            fits = np.abs(numpy_view(pc.fill_null(column, 0))) <= TIME_LIMIT
        case PropertyType.BOOLEAN if column.type == pa.bool_():
            fits = ~missing
    good &= missing | fits
    return column.cast(ARROW[kind]) if fits.any() else pa.nulls(len(column), ARROW[kind])
