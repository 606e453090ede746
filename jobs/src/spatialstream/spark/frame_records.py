"""Rows of DataFrames as records of the stream: lines of JSON, with timestamps in ms.

The columns are those of the formats: for objects ``id``, ``t``, the two coordinates of the space, and ``text`` or
``terms``; for queries ``id``, ``type``, ``t`` and whatever a query of that type needs. Missing columns and columns of
an unsuitable type are an error before the stream starts; an unusable row becomes a dead letter later on. Ids may be
whole numbers, and counts and timestamps may be floats, which pandas uses if one is missing.

Cost: Spark writes the JSON, in the JVM, as part of the job that decodes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import abs as spark_abs
from pyspark.sql.functions import (
    col,
    concat,
    expr,
    floor,
    lit,
    struct,
    to_json,
    try_parse_json,
    unix_date,
    unix_millis,
    when,
)
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    FractionalType,
    IntegralType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from spatialstream.model.errors import SettingError
from spatialstream.model.ids import EXACT_FLOATS
from spatialstream.model.properties.declared import NO_PROPERTIES, Properties, PropertyType
from spatialstream.model.space import Space
from spatialstream.model.times import TIME_UNITS
from spatialstream.spark.pandas_records import check_columns, check_query_columns

__all__ = ["object_lines", "query_lines"]

_DAY = 86_400_000
_EXACT_FLOATS = 2.0**24
"""A 32-bit float below this value represents exactly one whole number."""
_COUNTS = {"k", "duration", "window", "step"}
_MICROS = "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {})"


def object_lines(
    objects: DataFrame,
    space: Space,
    setting: str = "objects",
    unit: str = "ms",
    properties: Properties = NO_PROPERTIES,
) -> DataFrame:
    """Objects as rows of (kind string, value binary), one line of JSON each.

    Args:
        objects: with the columns ``id`` (string or whole number), ``t`` (ms, timestamp, date, or ISO 8601), the two
            coordinates (numbers), ``text`` (string) or ``terms`` (array of strings), and those of the properties, each
            of the type that is declared; others are ignored.
        space: the space of the coordinates.
        setting: name of the argument in errors.
        unit: of numeric times.
        properties: those that are declared.

    Raises:
        SettingError: a column is missing, duplicate, or of an unsuitable type.
    """
    checks = {"id": _is_id, "t": _is_time, **dict.fromkeys(space.axes, _is_number)}
    words = {"text": _is_string, "terms": _are_strings}
    check_columns(objects.columns, setting, (*checks, *properties.names), tuple(words), str.casefold)
    there = [name for name in words if name in objects.columns]
    of_types = {name: _OF_TYPE[kind] for name, kind in properties.types}
    _check_types(objects, setting, checks | {name: words[name] for name in there} | of_types)
    axes = [col(name).cast("double").alias(name) for name in space.axes]
    others = [_property(objects, name, kind, unit) for name, kind in properties.types]
    return _lines(objects, "objects", [_id(objects), _millis(objects, unit), *axes, *map(col, there), *others])


def query_lines(queries: DataFrame, setting: str = "queries", unit: str = "ms") -> DataFrame:
    """Queries and cancellations as rows of (kind string, value binary), one line of JSON each.

    Args:
        queries: with the columns ``id``, ``type`` (a string) and ``t`` (``id`` and ``t`` as in :func:`object_lines`),
            and those of the other fields of queries that are used, in the form of their JSON; nulls are absent
            fields.
        setting: name of the argument in errors.
        unit: of numeric times.

    Raises:
        SettingError: a column is missing, duplicate, no field of a query, or of an unsuitable type.
    """
    wanted = {"id": _is_id, "type": _is_string, "t": _is_time}
    check_columns(queries.columns, setting, tuple(wanted), (), str.casefold)
    check_query_columns(queries.columns, setting)
    _check_types(queries, setting, wanted)
    columns = [
        _whole(queries, name) if name in _COUNTS else col(f"`{name}`")
        for name in queries.columns
        if name not in ("id", "t")
    ]
    return _lines(queries, "queries", [_id(queries), _millis(queries, unit), *columns])


def _lines(frame: DataFrame, kind: str, columns: list[Column]) -> DataFrame:
    line = to_json(struct(*columns), {"ignoreNullFields": "true"})
    return frame.select(lit(kind).alias("kind"), line.cast("binary").alias("value"))


def _id(frame: DataFrame) -> Column:
    """Column ``id``; a whole number becomes its decimal digits."""
    kind = frame.schema["id"].dataType
    if isinstance(kind, IntegralType):
        return col("id").cast("string").alias("id")
    return _whole(frame, "id", '"', below=_EXACT_FLOATS if isinstance(kind, FloatType) else EXACT_FLOATS)


def _property(frame: DataFrame, name: str, kind: PropertyType, unit: str) -> Column:
    """The column of a property; NaN is absent."""
    if kind is PropertyType.TIME:
        return _millis(frame, unit, name)
    column = col(f"`{name}`")
    if kind is PropertyType.NUMBER:
        column = column.cast("double")
        column = when(column != float("nan"), column)
    return column.alias(name)


def _millis(frame: DataFrame, unit: str, name: str = "t") -> Column:
    """A column of times in ms, rounded down; a timestamp without a zone is UTC, and a number is in the given unit."""
    kind, t = frame.schema[name].dataType, col(f"`{name}`")
    if isinstance(kind, TimestampType):
        t = unix_millis(t)
    elif isinstance(kind, TimestampNTZType):
        micros = _MICROS.format(f"`{name}`")
        t = expr(f"({micros} - pmod({micros}, 1000)) div 1000")
    elif isinstance(kind, DateType):
        t = unix_date(t).cast("long") * _DAY
    elif unit == "ms":
        t = _whole(frame, name)
    else:
        t = _scaled(t, kind, TIME_UNITS[unit])
    return t.alias(name)


def _scaled(t: Column, kind: DataType, micros: int) -> Column:
    """Whole numbers, and strings of their digits, in a unit given in microseconds: as digits of ms, rounded down.

    NaN is absent, and anything else that is no whole number is passed on as text, which is no time or one in ISO 8601.
    """
    whole = t.try_cast("decimal(20,0)")
    is_whole = t.rlike(r"^-?[0-9]{1,20}$") if isinstance(kind, StringType) else whole == t
    scaled = floor(whole * micros / 1000).cast("string")
    number = when(is_whole, scaled)
    if isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
        number = number.when(t == float("nan"), None)
    return number.otherwise(t.cast("string"))


def _whole(frame: DataFrame, name: str, quote: str = "", below: float = math.inf) -> Column:
    """A column of whole numbers; of floats or decimals those with whole values, between quotes if asked.

    NaN is absent, and another number is passed on unchanged, so that the record is rejected with it. So are floats that
    are not below a limit; 32-bit floats are passed on in an object, because as 64-bit numbers they would be below it.
    """
    column, kind = col(f"`{name}`"), frame.schema[name].dataType
    if not isinstance(kind, FractionalType):
        return column
    whole = column.try_cast("bigint")
    is_whole, text = whole == column, column.cast("string")
    if not isinstance(kind, DecimalType):
        is_whole &= spark_abs(column) < below
    number = when(is_whole, concat(lit(quote), whole.cast("string"), lit(quote)))
    if not isinstance(kind, DecimalType):
        number = number.when(column == float("nan"), None)
    if isinstance(kind, FloatType) and quote:
        text = concat(lit('{"float": "'), text, lit('"}'))
    return try_parse_json(number.otherwise(text)).alias(name)


# --------------------------------------------------------------------------------------------------------------- checks


def _is_string(kind: DataType) -> str:
    return "" if isinstance(kind, StringType) else "a string"


def _is_id(kind: DataType) -> str:
    return "" if isinstance(kind, StringType | NumericType) else "a string or a whole number"


def _is_number(kind: DataType) -> str:
    return "" if isinstance(kind, NumericType) else "a number"


def _is_time(kind: DataType) -> str:
    fits = isinstance(kind, NumericType | TimestampType | TimestampNTZType | DateType | StringType)
    return "" if fits else "a timestamp, a whole number of ms, or a string in the form of ISO 8601"


def _is_boolean(kind: DataType) -> str:
    return "" if isinstance(kind, BooleanType) else "a boolean"


_OF_TYPE = {
    PropertyType.KEYWORD: _is_string,
    PropertyType.NUMBER: _is_number,
    PropertyType.TIME: _is_time,
    PropertyType.BOOLEAN: _is_boolean,
}


def _are_strings(kind: DataType) -> str:
    fits = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    return "" if fits else "an array of strings"


def _check_types(frame: DataFrame, setting: str, wanted: Mapping[str, Callable[[DataType], str]]) -> None:
    for name, problem_of in wanted.items():
        kind = frame.schema[name].dataType
        if right := problem_of(kind):
            raise SettingError(setting, f"column {name!r} is of type {kind.simpleString()}; it must be {right}")
