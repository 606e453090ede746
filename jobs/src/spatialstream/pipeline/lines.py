"""Rows of DataFrames as records of the stream: lines of JSON, with timestamps in ms.

The columns are those of the formats: for objects ``id``, ``t``, the two coordinates of the space, and ``text`` or
``terms``; for queries ``id``, ``type``, ``t`` and whatever a query of that type needs. Columns that are missing or of a
type that cannot be meant are refused before the stream starts; a row that is unusable becomes a dead letter later on.

Cost: Spark writes the JSON, in the JVM, as part of the job that decodes it.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, lit, struct, to_json, unix_date, unix_millis
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegralType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from spatialstream.model.errors import SettingError
from spatialstream.model.space import Space

__all__ = ["object_lines", "query_lines"]

_DAY = 86_400_000
_MICROS = "timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', t)"


def object_lines(objects: DataFrame, space: Space, setting: str = "objects") -> DataFrame:
    """Objects as rows of (kind string, value binary), one line of JSON each.

    Args:
        objects: with the columns ``id`` (string), ``t`` (ms, timestamp, date, or ISO 8601), the two coordinates
            (numbers), and ``text`` (string) or ``terms`` (array of strings); others are left out.
        space: the space in which they lie.
        setting: how errors call it.

    Raises:
        SettingError: a column is missing, or of a type that cannot be meant.
    """
    axes = {name: col(name).cast("double").alias(name) for name in space.axes}
    _check(objects, setting, {"id": _is_string, "t": _is_time, **dict.fromkeys(axes, _is_number)})
    words = [name for name in ("text", "terms") if name in objects.columns]
    if not words:
        raise SettingError(setting, f"has neither a column 'text' nor 'terms'; it has {_names(objects)}")
    _check(objects, setting, {name: _is_string if name == "text" else _are_strings for name in words})
    return _lines(objects, "objects", [col("id"), _millis(objects), *axes.values(), *map(col, words)])


def query_lines(queries: DataFrame, setting: str = "queries") -> DataFrame:
    """Queries and cancellations as rows of (kind string, value binary), one line of JSON each.

    Args:
        queries: with the columns ``id``, ``type`` (strings) and ``t`` (as in :func:`object_lines`), and those of the
            other fields of queries that are used, in the form of their JSON; nulls are fields that are absent.
        setting: how errors call it.

    Raises:
        SettingError: a column is missing, or of a type that cannot be meant.
    """
    _check(queries, setting, {"id": _is_string, "type": _is_string, "t": _is_time})
    others = [col(f"`{name}`") for name in queries.columns if name != "t"]
    return _lines(queries, "queries", [_millis(queries), *others])


def _lines(frame: DataFrame, kind: str, columns: list[Column]) -> DataFrame:
    line = to_json(struct(*columns), {"ignoreNullFields": "true"})
    return frame.select(lit(kind).alias("kind"), line.cast("binary").alias("value"))


def _millis(frame: DataFrame) -> Column:
    """Column ``t`` in ms, rounded down; a timestamp without a zone is UTC."""
    kind, t = frame.schema["t"].dataType, col("t")
    if isinstance(kind, TimestampType):
        t = unix_millis(t)
    elif isinstance(kind, TimestampNTZType):
        t = expr(f"({_MICROS} - pmod({_MICROS}, 1000)) div 1000")
    elif isinstance(kind, DateType):
        t = unix_date(t).cast("long") * _DAY
    return t.alias("t")


# --------------------------------------------------------------------------------------------------------------- checks


def _is_string(kind: DataType) -> str:
    return "" if isinstance(kind, StringType) else "a string"


def _is_number(kind: DataType) -> str:
    return "" if isinstance(kind, NumericType) else "a number"


def _is_time(kind: DataType) -> str:
    fits = isinstance(kind, IntegralType | TimestampType | TimestampNTZType | DateType | StringType)
    return "" if fits else "a timestamp, a whole number of ms, or a string in the form of ISO 8601"


def _are_strings(kind: DataType) -> str:
    fits = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    return "" if fits else "an array of strings"


def _check(frame: DataFrame, setting: str, wanted: dict[str, Callable[[DataType], str]]) -> None:
    for name, problem_of in wanted.items():
        if name not in frame.columns:
            raise SettingError(setting, f"has no column {name!r}; it has {_names(frame)}")
        kind = frame.schema[name].dataType
        if right := problem_of(kind):
            raise SettingError(setting, f"column {name!r} is of type {kind.simpleString()}; it has to be {right}")


def _names(frame: DataFrame) -> str:
    return ", ".join(map(repr, frame.columns))
