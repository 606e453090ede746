"""Values of pandas, NumPy and Python as records of the stream: lines of JSON, with timestamps in ms.

Values are converted to what they mean: whole numbers as ids, whole numbers that pandas holds as floats because one is
missing, NumPy's scalars and arrays, dates, times and time differences; NaN, NaT and NA are absent fields. A time
without a zone is UTC, everywhere and in whatever zone Python, Spark or the machine is. A value without a meaning is
passed on in a form that no field accepts, so the record becomes a dead letter that shows it.

Cost: some microseconds per record, on the driver, where the values are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
from pyspark.sql import Row

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.ids import EXACT_FLOATS
from spatialstream.model.properties.declared import NO_PROPERTIES, Properties, PropertyType
from spatialstream.model.query_fields import check_fields
from spatialstream.model.schema import QUERY_FIELDS
from spatialstream.model.space import Space
from spatialstream.model.times import in_milliseconds
from spatialstream.model.typed_queries import TypedQuery, as_region
from spatialstream.records.reference import object_fields

__all__ = ["check_columns", "check_query_columns", "object_records", "query_records"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_COUNTS = {"t", "k", "duration", "window", "step", "halfLife", "expansions"}
_DURATIONS = {"duration", "window", "step", "halfLife"}
_LONGEST_BITS = 10_000
_MOST = Decimal(10) ** 76
_REQUIRED_OF_QUERIES = ("id", "type", "t")


def object_records(
    objects: pd.DataFrame,
    space: Space,
    setting: str = "objects",
    unit: str = "ms",
    properties: Properties = NO_PROPERTIES,
) -> Iterator[bytes]:
    """Objects as lines of JSON, without their newlines; columns that are no fields of objects are ignored.

    Args:
        objects: with the columns ``id``, ``t``, the two coordinates of the space, ``text`` or ``terms``, and those of
            the properties.
        space: the space of the coordinates.
        setting: name of the argument in errors.
        unit: of numeric times.
        properties: those that are declared.

    Raises:
        SettingError: a column is missing or duplicate.
    """
    fields = object_fields(space)
    if _holds_something(objects):
        check_columns(list(objects.columns), setting, (*fields[:4], *properties.names), ("text", "terms"))
    names = [name for name in (*fields, *properties.names) if name in objects.columns]
    times = [name for name, kind in properties.types if kind is PropertyType.TIME]
    return _frame_lines(objects, names, unit, dict.fromkeys(times, "t"))


def query_records(
    queries: pd.DataFrame | Iterable[Mapping[str, Any] | TypedQuery] | Mapping[str, Any] | TypedQuery, unit: str = "ms"
) -> Iterator[bytes]:
    """Queries and cancellations likewise.

    Args:
        queries: one or several, as dataclasses or in the form of their JSON; or a frame with the fields as columns, of
            which ``id``, ``type`` and ``t`` are required.
        unit: of numeric times.

    Raises:
        SettingError: it is something else; a column is missing, duplicate, or no field of a query.
    """
    if isinstance(queries, pd.DataFrame):
        if _holds_something(queries):
            check_columns(list(queries.columns), "queries", _REQUIRED_OF_QUERIES)
            check_query_columns(queries.columns, "queries")
        return _frame_lines(queries, list(queries.columns), unit)
    if isinstance(queries, Mapping | TypedQuery):
        queries = [queries]
    given: Any = queries
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise SettingError("queries", f"is of type {type(given).__name__}; give records, or a DataFrame")
    return _query_lines(given, unit)


def check_columns(
    columns: Sequence[Any],
    setting: str,
    required: Sequence[str],
    one_of: Sequence[str] = (),
    key: Callable[[Any], Any] = lambda name: name,
) -> None:
    """Check that columns can be records.

    Args:
        columns: names of the columns.
        setting: name of the argument in errors.
        required: columns that have to exist.
        one_of: columns of which at least one has to exist.
        key: two columns are the same one if this is equal for their names.

    Raises:
        SettingError: names the wrong column, and the existing ones.
    """
    there = ", ".join(map(repr, columns))
    for name in required:
        if name not in columns:
            raise SettingError(setting, f"has no column {name!r}; it has {there}")
    if one_of and not any(name in columns for name in one_of):
        names = " nor ".join(map(repr, one_of))
        raise SettingError(setting, f"has neither a column {names}; it has {there}")
    keys = [key(name) for name in columns]
    for name in (*required, *one_of):
        if keys.count(key(name)) > 1:
            raise SettingError(setting, f"has the column {name!r} more than once; it has {there}")


def check_query_columns(columns: Iterable[Any], setting: str) -> None:
    """Check that columns are fields of queries.

    Raises:
        SettingError: names the first one that is not, and the most similar field.
    """
    try:
        check_fields(columns)
    except RecordError as error:
        raise SettingError(setting, f"column {error.field!r} {error.problem}") from None


def _holds_something(frame: pd.DataFrame) -> bool:
    """Whether a frame has rows or columns: an empty frame lacks no columns."""
    return len(frame) > 0 or len(frame.columns) > 0


def _frame_lines(
    frame: pd.DataFrame, names: Sequence[Any], unit: str, like: Mapping[str, str] = MappingProxyType({})
) -> Iterator[bytes]:
    """The rows of a frame; ``like`` names the fields as which other columns are read."""
    columns = [(str(name), _values(like.get(str(name), str(name)), frame[name], unit)) for name in names]
    for row in range(len(frame)):
        yield _line({name: values[row] for name, values in columns if values[row] is not None})


def _values(field: str, column: pd.Series[Any], unit: str) -> list[Any]:
    kind, values = getattr(column.dtype, "numpy_dtype", column.dtype), column.tolist()
    if field == "id" and kind in (np.float16, np.float32):
        values = [value if pd.isna(value) else kind.type(value) for value in values]
    return [_meant(field, value, unit) for value in values]


def _query_lines(queries: Iterable[Any], unit: str) -> Iterator[bytes]:
    for number, each in enumerate(queries, 1):
        record = each.to_record() if isinstance(each, TypedQuery) else each
        if isinstance(record, Row):
            record = record.asDict()
        if not isinstance(record, Mapping):
            raise SettingError("queries", f"record {number} is of type {type(record).__name__}; give a dict")
        meant = {str(field): _meant(str(field), value, unit) for field, value in record.items()}
        # what is no field of a query is reported where the line is decoded
        yield _line({name: value for name, value in meant.items() if value is not None or name not in QUERY_FIELDS})


def _line(record: dict[str, Any]) -> bytes:
    # half of a surrogate pair is invalid text, which is detected where the line is decoded
    return json.dumps(record, ensure_ascii=False).encode(errors="surrogatepass")


# -------------------------------------------------------------------------------------------------------------- values


def _meant(field: str, value: Any, unit: str) -> Any:
    """A field's value in the form of JSON; None if it is absent. Numeric times are in the given unit."""
    if field == "between" and isinstance(value, list | tuple | np.ndarray):
        return [_meant("t", each, unit) for each in value]
    if field == "t" and isinstance(value, date | np.datetime64):
        return _time(value)
    if field in _DURATIONS and isinstance(value, timedelta | np.timedelta64):
        return _duration(value)
    if field == "region":
        value = _region(value)
    if field == "id" and isinstance(value, np.float16 | np.float32) and _may_be_several(value):
        return _nothing_meant(value)
    plain = _plain(value)
    is_exact_id = field == "id" and isinstance(plain, float) and abs(plain) < EXACT_FLOATS
    if isinstance(plain, float) and plain.is_integer() and (field in _COUNTS or is_exact_id):
        plain = int(plain)
    if field == "t" and unit != "ms":
        return in_milliseconds(plain, unit)
    if field == "id" and isinstance(plain, int) and not isinstance(plain, bool):
        return str(plain)
    return str(plain) if isinstance(plain, UUID) else plain


def _region(value: Any) -> Any:
    """A region, in the form of JSON if it is a geometry; one that is no polygon says so where the line is decoded."""
    try:
        return as_region(value)
    except RecordError:
        return {"polygon": value.__geo_interface__}


def _may_be_several(value: Any) -> bool:
    """Whether a float may represent several whole numbers."""
    return bool(abs(value) >= 2.0 ** (1 + np.finfo(value.dtype).nmant))


def _time(value: Any) -> Any:
    """Milliseconds since 1970, rounded down; a time without a zone is UTC."""
    if pd.isna(value):
        return None
    try:
        if isinstance(value, np.datetime64):
            return int(value.astype("datetime64[ms]").astype(np.int64))
        if not isinstance(value, datetime):
            value = datetime.combine(value, time())
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return (moment - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError, ArithmeticError):
        return _nothing_meant(value)


def _duration(value: Any) -> Any:
    """ms, rounded down."""
    if pd.isna(value):
        return None
    if isinstance(value, np.timedelta64):
        return int(value.astype("timedelta64[ms]").astype(np.int64))
    return value // _MILLISECOND


def _plain(value: Any) -> Any:
    """A value in the form of JSON (or a UUID, which only an id can be); None where it is absent."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, np.datetime64 | np.timedelta64):
        return None if np.isnat(value) else _nothing_meant(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)  # for enumerations too
    if isinstance(value, int):
        return value if value.bit_length() <= _LONGEST_BITS else _nothing_meant(math.inf)
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, Mapping):
        items = {str(name): _inner(each) for name, each in value.items()}
        return {name: each for name, each in items.items() if each is not None}
    if isinstance(value, set | frozenset):
        return sorted(map(_inner, value), key=repr)
    if isinstance(value, list | tuple | np.ndarray | pd.Series | pd.Index):
        return [_inner(each) for each in value]
    return value if isinstance(value, UUID) else _nothing_meant(value)


def _number(value: Decimal) -> int | float | None:
    if value.is_nan():
        return None
    if -_MOST < value < _MOST and value == value.to_integral_value():
        return int(value)
    return float(value)


def _inner(value: Any) -> Any:
    plain = _plain(value)
    return _nothing_meant(plain) if isinstance(plain, UUID) else plain


def _nothing_meant(value: Any) -> dict[str, str]:
    """Represents a value that has no form in JSON; no field of a record accepts it."""
    return {type(value).__name__: str(value)}
