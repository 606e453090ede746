"""The properties of DataFrames: which columns they may be, where queries ask of some and none are declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from spatialstream.model.errors import SettingError
from spatialstream.model.properties.declared import MOST_PROPERTIES, Properties, PropertyType
from spatialstream.model.space import Space
from spatialstream.model.typed_queries import TypedQuery, as_record
from spatialstream.records.reference import object_fields

__all__ = ["ask_properties", "properties_of"]


def ask_properties(queries: DataFrame | pd.DataFrame | Iterable[Any] | Mapping[str, Any] | TypedQuery) -> bool:
    """Whether some queries may have a condition on properties; an iterable has to be one that can be read again."""
    if isinstance(queries, DataFrame | pd.DataFrame):
        return "where" in queries.columns
    each = [queries] if isinstance(queries, Mapping | TypedQuery) else queries
    given = (as_record(query) for query in each if isinstance(query, Mapping | TypedQuery))
    return any(record.get("where") is not None for record in given)


def properties_of(objects: DataFrame | pd.DataFrame, space: Space) -> Properties:
    """The columns of objects whose type is that of a property, and that are no fields of objects.

    At most the first :data:`~spatialstream.model.properties.declared.MOST_PROPERTIES`.
    """
    types = _pandas_types(objects) if isinstance(objects, pd.DataFrame) else _spark_types(objects)
    declarations: list[str] = []
    for name, kind in types.items():
        if kind is not None and name not in object_fields(space) and len(declarations) < MOST_PROPERTIES:
            try:
                declarations += Properties.parse([f"{name}:{kind}"]).declarations
            except SettingError:  # its name is not that of a property
                continue
    return Properties.parse(declarations)


def _pandas_types(frame: pd.DataFrame) -> dict[str, PropertyType | None]:
    return {str(name): _pandas_type(frame[name]) for name in frame.columns if list(frame.columns).count(name) == 1}


def _pandas_type(column: pd.Series[Any]) -> PropertyType | None:
    types = pd.api.types
    if types.is_bool_dtype(column.dtype):
        return PropertyType.BOOLEAN
    if types.is_numeric_dtype(column.dtype):
        return PropertyType.NUMBER
    if types.is_datetime64_any_dtype(column.dtype):
        return PropertyType.TIME
    kinds = {type(value) for value in column.dropna().unique().tolist()}
    known = {str: PropertyType.KEYWORD, bool: PropertyType.BOOLEAN}
    return known.get(kinds.pop()) if len(kinds) == 1 else None


def _spark_types(frame: DataFrame) -> dict[str, PropertyType | None]:
    return {field.name: _spark_type(field.dataType) for field in frame.schema.fields}


def _spark_type(kind: DataType) -> PropertyType | None:
    match kind:
        case StringType():
            return PropertyType.KEYWORD
        case NumericType():
            return PropertyType.NUMBER
        case BooleanType():
            return PropertyType.BOOLEAN
        case TimestampType() | TimestampNTZType() | DateType():
            return PropertyType.TIME
    return None
