"""Fast decoding of input records: JSON Lines or CSV as bytes, and Arrow tables, to objects, queries and dead letters.

The meaning of a record is defined once, by :func:`~.objects.parse_object` and :func:`~.queries.parse_query`. The fast
path decodes the records that it certainly understands in bulk (:mod:`~.scan`, :mod:`~.values`, :mod:`~.tokens`), with
the same values as these two; every other record is passed to them alone, and accepted or rejected by them. So the
outcome of a record never depends on its neighbours. Cost: about a microsecond for a record on the fast path, ten for
others.

CSV has no types. There, an empty cell is absent, and a quoted empty cell an empty string; coordinates are JSON numbers;
there is no ``terms``. Spaces around coordinates and times are ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as defined
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Bytes, Flags, Floats, Ints, numpy_view, string_view
from spatialstream.model.errors import RecordError
from spatialstream.model.geometry import BOX, CIRCLE
from spatialstream.model.ids import EXACT_FLOATS
from spatialstream.model.kinds import CANCEL, IS_CONTINUOUS, KINDS, NAMES, having
from spatialstream.model.lifetimes import MOST_STEPS, endless_durations
from spatialstream.model.objects import ObjectBatch, SpatialObject, parse_object
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.queries import Cancellation, Query, QueryBatch, nobody, parse_query
from spatialstream.model.regions import Regions
from spatialstream.model.schema import LARGEST_K, LONGEST_BY, QUERY_FIELDS
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import LONGEST_TEXT, TEXT, stored_columns
from spatialstream.model.terms import DEFAULT_RULE, SUBSCRIPTIONS, TermRule
from spatialstream.model.times import TIME_LIMIT, TIME_UNITS, in_milliseconds
from spatialstream.records import scan, tokens, values
from spatialstream.records.commonest import commonest
from spatialstream.records.properties import declared_columns, read_properties, table_properties, whole_times
from spatialstream.records.scan import ABSENT, INTEGER, MINUS, NUMBER, STRING, Cells, Records, scan_csv, scan_json
from spatialstream.records.tokens import tokenise_slices

__all__ = [
    "LONGEST_ECHO",
    "REJECTED",
    "Decoded",
    "csv_cells",
    "csv_number",
    "csv_property",
    "decode_csv",
    "decode_object_table",
    "decode_objects",
    "decode_queries",
    "json_value",
    "object_fields",
    "prepare",
    "printable",
    "rejected_line",
]

REJECTED = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)
"""Rejected records: where, why, and what, the record as JSON text."""

LONGEST_ECHO = 2_000
"""Most characters of a rejected record (and of a reason) to keep, so that dead letters stay small."""

_DEEPEST_ECHO = 64
"""Deepest nesting of a record that is echoed unchanged: a deeper one may be too deep for a reader of dead letters."""

_MOST_NAMES = 1_000
"""Most names of unknown fields to count at a time."""

_LONGEST_RECORD = 6 * (LONGEST_ECHO + 1) + 2
"""Most characters of such an echo as JSON."""

_MOST_ESCAPED = 6
"""Maximum bytes that a byte of a text takes in JSON."""

_BOM = b"\xef\xbb\xbf"
_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)


def object_fields(space: Space, rule: TermRule = DEFAULT_RULE) -> tuple[str, ...]:
    """The fields of objects in a space: id, t, the two coordinates, text, terms; and the declared properties."""
    return ("id", "t", *space.axes, "text", "terms", *rule.properties.names)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded(Generic[_Batch]):
    """The outcome of decoding a block of records.

    Attributes:
        batch: the accepted records, in the order of the input.
        line: int64[n], the line (of a table: the row) at which each of them begins.
        rejected: the others, see :data:`REJECTED`.
        unknown: how many of the accepted ones have which fields that are not known, see :mod:`~.commonest`.
    """

    batch: _Batch
    line: Ints
    rejected: pa.RecordBatch
    unknown: Mapping[str, int] = defined(default_factory=dict)


def rejected_line(source: str, line: int, reason: str, record: str, offset: int | None = None) -> str:
    """The dead letter of one row of :attr:`Decoded.rejected`, as a line of JSON without its newline.

    It has a bounded length: of a long reason or record there is the beginning, of the record as a string.

    Args:
        source: the file or topic partition.
        line: the line in the file, or in the message.
        reason: which field is wrong, and what would be right.
        record: the record as JSON.
        offset: the message's offset in its topic partition.
    """
    place = (
        {"source": source} | ({} if offset is None else {"offset": offset}) | {"line": line, "reason": _shorten(reason)}
    )
    where = json.dumps(place, ensure_ascii=False)
    if len(record) > _LONGEST_RECORD:
        record = _quote(record)
    return f'{where[:-1]}, "record": {record}}}'


# ------------------------------------------------------------------------------------------------------- one at a time


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"


def printable(text: str) -> str:
    """Replace halves of surrogate pairs in a text."""
    return text.encode(errors="backslashreplace").decode()


def _quote(text: str) -> str:
    return json.dumps(_shorten(text), ensure_ascii=False)


_NOWHERE = "\n"
"""A name that cannot occur in any input."""


def _names(fields: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The input's name of each field; none where the name that it would have was given to another field."""
    taken = set(columns.values())
    return {field: columns.get(field, _NOWHERE if field in taken else field) for field in fields}


def json_value(raw: bytes) -> _Row:
    """(value, what is wrong with it, its echo) of a line of JSON, whatever bytes it is.

    The echo is JSON that any reader takes: of bounded length and depth, without NaN or infinities.
    """
    try:
        text = raw.decode().strip(" \t\r")
    except UnicodeDecodeError:
        return None, RecordError("record", "is not UTF-8 text"), _quote(raw.decode(errors="replace"))
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return None, RecordError("record", f"is not JSON: {error.msg} at character {error.pos + 1}"), _quote(text)
    except RecursionError:
        return None, RecordError("record", "is nested too deeply"), _quote(text)
    except ValueError:
        return None, RecordError("record", "holds an integer of too many digits"), _quote(text)
    flat = text.count("[") + text.count("{") <= _DEEPEST_ECHO
    strict = flat and len(text) <= LONGEST_ECHO and "NaN" not in text and "Infinity" not in text
    return value, None, text if strict else _quote(text)


_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


_QUOTED = re.compile(r'"((?:[^"]|"")*)"(?=,|\Z)')


def csv_cells(text: str) -> list[str | None] | None:
    """The cells of one CSV record; None where it is not well-formed."""
    result: list[str | None] = []
    at = 0
    while True:
        if text.startswith('"', at):
            match = _QUOTED.match(text, at)
            if match is None:
                return None
            result.append(match[1].replace('""', '"'))
            at = match.end()
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            result.append(text[at:end] or None)
            at = end
        if at == len(text):
            return result
        at += 1


def csv_number(cell: str | None) -> object:
    """A cell as a number, if it is one; spaces around it are ignored."""
    stripped = (cell or "").strip()
    if _INTEGER.fullmatch(stripped) and len(stripped) < 4_000:
        return int(stripped)
    return float(stripped) if _DECIMAL.fullmatch(stripped) else cell


def _csv_value(raw: bytes, header: Sequence[str]) -> _Row:
    """(cells by column, what is wrong, its echo) of a CSV record."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None, RecordError("record", "is not UTF-8 text"), _quote(raw.decode(errors="replace"))
    cells = csv_cells(text)
    if cells is None:
        return None, RecordError("record", "is not CSV: a quoted cell must end before the next comma"), _quote(text)
    if len(cells) != len(header):
        return None, RecordError("record", f"has {len(cells)} cells; the header has {len(header)}"), _quote(text)
    value = dict(zip(header, cells, strict=True))
    echo = json.dumps(value, ensure_ascii=False)
    return value, None, echo if len(echo) <= LONGEST_ECHO else _quote(text)


def _csv_object(value: object, space: Space, rule: TermRule, unit: str) -> SpatialObject:
    """An object from the cells of its fields."""
    assert isinstance(value, dict)
    record = dict(value)
    if record.get("terms") is not None:
        raise RecordError("terms", "cannot be given in CSV; give text")
    for axis in space.axes:
        record[axis] = csv_number(record.get(axis))
    record["t"] = in_milliseconds((record.get("t") or "").strip() or None, unit)
    for name, kind in rule.properties.types:
        record[name] = csv_property(record.get(name), kind, unit)
    return parse_object(record, space, rule)


_BOOLEANS = {"true": True, "false": False}


def csv_property(cell: str | None, kind: PropertyType, unit: str = "ms") -> object:
    """The value that the cell of a property spells; the cell itself where it spells none."""
    match kind:
        case PropertyType.NUMBER:
            return csv_number(cell) if (cell or "").strip() else None
        case PropertyType.TIME:
            return in_milliseconds((cell or "").strip() or None, unit)
        case PropertyType.BOOLEAN if cell is not None:
            return _BOOLEANS.get(cell.strip().lower(), cell)
    return cell


def _in_unit(parse: Callable[[object, Space, TermRule], Any], unit: str) -> Callable[[object, Space, TermRule], Any]:
    """The parser of records whose times are of a unit where they are numbers."""

    def parsed(value: object, space: Space, rule: TermRule) -> Any:
        if isinstance(value, dict):
            names = ("t", *(name for name, kind in rule.properties.types if kind is PropertyType.TIME))
            value = value | {name: in_milliseconds(value[name], unit) for name in names if name in value}
            if isinstance(times := value.get("between"), list):
                value = value | {"between": [in_milliseconds(each, unit) for each in times]}
        return parse(value, space, rule)

    return parse if unit == "ms" else parsed


def _check_id(name: str) -> None:
    """Reject the one kind of JSON string that is no text and cannot be passed on."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise RecordError("id", f"{name!r} holds half of a surrogate pair; give Unicode text") from None


_Row = tuple[object, RecordError | None, str]
"""A record's value, what is wrong with it, and its echo."""


@dataclass(frozen=True, slots=True)
class _Reference(Generic[_Batch]):
    """How one record is parsed: the exact parser, for which batch, under what names, space and rule."""

    parse: Callable[[object, Space, TermRule], Any]
    kind: type[_Batch]
    fields: Sequence[str]
    columns: Mapping[str, str]
    space: Space
    rule: TermRule

    @property
    def strict(self) -> bool:
        """Whether a record with a field that is not known is no record: a query without it would be another one."""
        return self.kind is QueryBatch

    def __call__(self, value: object) -> SpatialObject | Query | Cancellation | RecordError:
        """The object or query, or the error, its field named as in the input."""
        if self.columns and isinstance(value, dict):
            value = {field: value.get(name) for field, name in _names(self.fields, self.columns).items()}
        try:
            result: SpatialObject | Query | Cancellation = self.parse(value, self.space, self.rule)
            _check_id(result.id)
        except RecordError as error:
            field, dot, rest = error.field.partition(".")
            return RecordError(self.columns.get(field, field) + dot + rest, error.problem)
        except RecursionError:
            return RecordError("record", "is nested too deeply")
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a record makes the parser do, it is its own fate alone
            return RecordError("record", f"cannot be read ({type(error).__name__}: {error})")
        return result

    def decode(
        self,
        block: memoryview,
        scan_names: Callable[[list[str]], Records],
        read: Callable[[Mapping[str, Cells], Space, TermRule], _Batch],
        value_of: Callable[[bytes], _Row],
    ) -> Decoded[_Batch]:
        """The records that a scanner finds in a block under the names of the fields.

        Args:
            block: the bytes.
            scan_names: the scanner; it is given distinct names, because several fields may have the same column.
            read: makes a batch of the good records, and marks more of them as odd.
            value_of: reads the bytes of an odd one.
        """
        names = _names(self.fields, self.columns)
        distinct = list(dict.fromkeys(names.values()))
        line, start, end, cells, others = scan_names(distinct)
        if self.strict:
            cells.good[others.rows != 0] = False
        batch = read({field: cells.field(distinct.index(name)) for field, name in names.items()}, self.space, self.rule)
        unknown = others.records(cells.data, cells.good)

        def row_value(row: int) -> _Row:
            return value_of(bytes(block[start[row] : end[row]]))

        return self.finish(batch, line, cells.good, row_value, () if value_of is not json_value else distinct, unknown)

    def finish(
        self,
        batch: _Batch,
        line: Ints,
        good: Flags,
        row_value: Callable[[int], _Row],
        names: Sequence[str] = (),
        unknown: Mapping[str, int] | None = None,
    ) -> Decoded[_Batch]:
        """Send the odd rows through the exact parser, and put what it accepts between the good ones of ``batch``.

        Args:
            batch: the good rows.
            line: of all rows.
            good: which are those of the batch.
            row_value: reads a row.
            names: those of the fields in a row's value, if each row has names of its own.
            unknown: how many of the good rows have which other names.
        """
        others = Counter(unknown)
        accepted: list[Any] = []
        rows: list[int] = []
        rejected: list[tuple[int, RecordError, str]] = []
        for row in np.flatnonzero(~good).tolist():
            value, error, echo = row_value(row)
            result = error or self(value)
            if isinstance(result, RecordError):
                rejected.append((int(line[row]), result, echo))
            else:
                accepted.append(result)
                rows.append(row)
                if names and not self.strict and isinstance(value, dict):
                    others.update(printable(name) for name in value if name not in names)
                    if len(others) > _MOST_NAMES:
                        others = Counter(commonest([others]))
        kept = np.flatnonzero(good)
        if accepted:
            kept = np.concatenate([kept, np.array(rows, np.int64)])
            order = np.argsort(kept, kind="stable")
            kept = kept[order]
            batch = self.kind.concat([batch, self.kind.of(accepted)]).take(order)
        if isinstance(batch, ObjectBatch):
            properties = declared_columns(batch.properties, self.rule.properties)
            stored, terms = batch.stored.kept(bool(self.rule.fields)), batch.terms.counted(self.rule.counts)
            batch = replace(batch, properties=properties, stored=stored, terms=terms)
        return Decoded(batch, line[kept], _rejected(rejected), commonest([others]))


def _rejected(rows: Sequence[tuple[int, RecordError, str]]) -> pa.RecordBatch:
    reasons = [printable(_shorten(str(error))) for _, error, _ in rows]
    columns = [row[0] for row in rows], reasons, [row[2] for row in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, REJECTED, strict=True)], schema=REJECTED
    )


# ------------------------------------------------------------------------------------------------------------ objects


def _within(numbers: Floats, low: float, high: float) -> Flags:
    return (numbers >= low) & (numbers <= high)


def _whole_ids(ids: Cells) -> None:
    """Take ids that are integers as the digits that stand there; JSON's ``-0`` is left to the exact parser."""
    whole = np.flatnonzero(ids.kind == INTEGER)
    if len(whole):
        first = ids.first[whole]
        zero = (ids.data[first] == MINUS) & (ids.data[first + 1] == ord("0"))
        ids.kind[whole[~zero]] = STRING


def _read_objects(
    cells: Mapping[str, Cells], space: Space, rule: TermRule, unit: str, csv: bool = False
) -> ObjectBatch:
    """The good records as objects, from the cells of each field; marks more of them as odd."""
    name, text, terms = cells["id"], cells["text"], cells["terms"]
    data, good = name.data, name.good
    for field in ("id", "t", *space.axes):
        good &= cells[field].kind != ABSENT
    if not csv:
        for axis in space.axes:
            good &= (cells[axis].kind == INTEGER) | (cells[axis].kind == NUMBER)
    good &= (text.kind != ABSENT) ^ (terms.kind != ABSENT)
    t = values.read_times(cells["t"], unit)
    x, y = (values.read_numbers(cells[axis]) for axis in space.axes)
    good &= _within(x, space.west, space.east) & _within(y, space.south, space.north)
    _whole_ids(name)
    values.read_strings(name, csv)
    values.read_strings(text, csv)
    properties = PropertyColumns(len(good), read_properties(cells, rule.properties, unit, csv))
    groups, starts, ends = values.read_lists(terms, text)
    lists, _ = tokenise_slices(data, starts, ends, groups, rule, counted=rule.counts)
    kept = _kept_texts(text, rule)
    rows: Any = slice(None)
    if not good.all():
        rows = np.flatnonzero(good)
        lists, properties = lists.take(rows), properties.take(rows)
        kept = kept.take(pa.array(rows))
    ids = values.gather(data, name.first[rows], name.last[rows])
    stored = stored_columns(rule.fields or (), kept, properties)
    return ObjectBatch(ids, t[rows], x[rows], y[rows], lists, properties, stored)


def _kept_texts(text: Cells, rule: TermRule) -> pa.Array:
    """The texts of good records, null where there is none, if the stream keeps them; marks more records as odd."""
    n = len(text.good)
    if TEXT not in (rule.fields or ()):
        return pa.nulls(n, pa.string())
    there = text.good & (text.kind != ABSENT)
    texts = values.gather(text.data, *(np.where(there, each, 0) for each in (text.first, text.last)))
    text.good[:] &= _fits(texts)
    return pc.if_else(pa.array(there), texts, pa.scalar(None, pa.string()))


def _fits(texts: pa.StringArray) -> Flags:
    """Which texts are certainly short enough to be kept."""
    fits: Flags = numpy_view(pc.fill_null(pc.binary_length(texts), 0)) <= LONGEST_TEXT // _MOST_ESCAPED - 2
    return fits


def _block(data: bytes | pa.Buffer, first_line: int) -> memoryview:
    block = memoryview(data)
    return block[len(_BOM) :] if first_line == 1 and block[: len(_BOM)] == _BOM else block


def decode_objects(
    data: bytes | pa.Buffer,
    first_line: int = 1,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Decoded[ObjectBatch]:
    """Objects from whole lines of JSON, as :func:`~.objects.parse_object` reads each. Blank lines are skipped.

    Args:
        data: the lines; below 2 GiB.
        first_line: the number of the first of them.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: names in the input of those fields that have another than their own.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.
    """
    block = _block(data, first_line)
    parse, read = _in_unit(parse_object, unit), partial(_read_objects, unit=unit)
    reference = _Reference(parse, ObjectBatch, object_fields(space, rule), columns or {}, space, rule)
    return reference.decode(block, lambda names: scan_json(block, names, first_line), read, json_value)


def decode_csv(
    data: bytes | pa.Buffer,
    header: Sequence[str],
    first_line: int = 2,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Decoded[ObjectBatch]:
    """Objects from whole CSV records (RFC 4180) without the header line; see the module for how cells are read.

    Args:
        data: the records; below 2 GiB.
        header: names of the columns.
        first_line: the number of the first line.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: names in the header of those fields that have another than their own.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.
    """
    block, fields = memoryview(data), object_fields(space, rule)
    # always by name, so that only the cells of fields are looked at
    reference = _Reference(
        partial(_csv_object, unit=unit), ObjectBatch, fields, _names(fields, columns or {}), space, rule
    )
    return reference.decode(
        block,
        lambda names: scan_csv(block, header, names, first_line),
        partial(_read_objects, unit=unit, csv=True),
        lambda raw: _csv_value(raw, header),
    )


# -------------------------------------------------------------------------------------------------------------- tables


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
    good &= _within(numbers, low, high)
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
    good &= _fits(text)
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


def _row_value(table: pa.Table, columns: Mapping[str, pa.Array], times: str, row: int) -> _Row:
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
        echo = _quote(str(everything))
    return value, error, echo if len(echo) <= LONGEST_ECHO else _quote(echo)


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
    names = _names(fields, columns)
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
    reference = _Reference(_of_row(unit, of_properties), ObjectBatch, fields, columns, space, rule)
    line = np.arange(first_row, first_row + len(good))
    return reference.finish(batch, line, good, lambda row: _row_value(table, plain, times, row))


# ------------------------------------------------------------------------------------------------------------- queries

_GIVEN = QUERY_FIELDS[3:]


def _bits(fields: Iterable[Sequence[str]]) -> npt.NDArray[np.uint32]:
    """For each code: its fields, as bits in the order of ``_GIVEN``; a cancellation has none."""
    return np.array([*(sum(1 << _GIVEN.index(field) for field in each) for each in fields), 0], np.uint32)


_RANKED = having(lambda kind: kind.is_ranked)
_SERVED = IS_CONTINUOUS | (np.arange(len(IS_CONTINUOUS)) == CANCEL)
_REQUIRED_BITS, _OPTIONAL_BITS = _bits(kind.required for kind in KINDS), _bits(kind.optional for kind in KINDS)


def _check_regions(kind: Bytes, shape: Floats, space: Space) -> Flags:
    """Which regions are valid, as :func:`~.regions.parse_region` says."""
    a, b, c, d = shape.T
    point = _within(a, space.west, space.east) & _within(b, space.south, space.north)
    if space.geographic:
        box = point & _within(c, space.west, space.east) & _within(d, space.south, space.north)
    else:
        box = a <= c
    return np.select([kind == BOX, kind == CIRCLE], [box & (b <= d), point & (c >= 0.0)], True)


def _read_queries(cells: Mapping[str, Cells], space: Space, rule: TermRule, unit: str) -> QueryBatch:
    """The good records as queries, from the cells of each field; marks more of them as odd."""
    name = cells["id"]
    data, good = name.data, name.good
    for field in ("id", "type", "t"):
        good &= cells[field].kind != ABSENT
    code = values.read_choices(cells["type"], NAMES)
    given = np.zeros(len(good), np.uint32)
    for bit, field in enumerate(_GIVEN):
        given |= (cells[field].kind != ABSENT).astype(np.uint32) << np.uint32(bit)
    for field in ("any", "none", "where", "fields"):  # what is nested is read one by one
        good &= cells[field].kind == ABSENT
    good &= ~_RANKED[code]  # and so are queries that rank
    if rule.serves == SUBSCRIPTIONS:  # and those that are refused
        good &= _SERVED[code]
    code[~good] = CANCEL
    required = _REQUIRED_BITS[code]
    good &= (given & ~_OPTIONAL_BITS[code]) == required
    t = values.read_times(cells["t"], unit)
    duration = values.read_durations(cells["duration"], absent=-1)
    window, step = (values.read_durations(cells[field], absent=-1) for field in ("window", "step"))
    duration = np.where(duration >= 0, duration, np.where(IS_CONTINUOUS[code], endless_durations(step), 0))
    k = values.read_counts(cells["k"])
    at = values.read_points(cells["at"])
    kind, shape = values.read_regions(cells["region"])
    _whole_ids(name)
    values.read_strings(name)
    good &= (k >= ((required >> np.uint32(_GIVEN.index("k"))) & 1)) & (k <= LARGEST_K) & (step != 0)
    good &= (step < 0) | (duration // np.maximum(step, 1) <= MOST_STEPS)
    with_at = cells["at"].kind != ABSENT
    good &= ~with_at | (_within(at[:, 0], space.west, space.east) & _within(at[:, 1], space.south, space.north))
    good &= _check_regions(kind, shape, space)
    groups, starts, ends = values.read_lists(cells["keywords"])
    keywords, has_term = tokenise_slices(data, starts, ends, groups, rule)
    good[np.searchsorted(groups, np.flatnonzero(~has_term), side="right") - 1] = False
    good &= np.diff(keywords.offsets) <= rule.query_words
    by = cells["by"]
    values.read_strings(by)
    said = by.kind != ABSENT
    begin, end = (np.where(said, each, 0) for each in (by.first, by.last))
    good &= ~said | ((end > begin) & (end - begin <= LONGEST_BY))
    good &= cells["title"].kind <= scan.ESCAPED
    rows: Any = slice(None)
    if not good.all():
        rows = np.flatnonzero(good)
        keywords = keywords.take(rows)
    return QueryBatch(
        values.gather(data, name.first[rows], name.last[rows]),
        code[rows],
        t[rows],
        duration[rows],
        window[rows],
        step[rows],
        k[rows].astype(np.int32),
        at[rows],
        Regions.plain(kind[rows], shape[rows]),
        keywords,
        values.gather(data, begin[rows], end[rows]),
        nobody(len(t[rows])),
    )


def decode_queries(
    data: bytes | pa.Buffer,
    first_line: int = 1,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    unit: str = "ms",
) -> Decoded[QueryBatch]:
    """Queries and cancellations from whole lines of JSON, as :func:`~.queries.parse_query` reads each.

    The arguments are those of :func:`decode_objects`.
    """
    block = _block(data, first_line)
    parse, read = _in_unit(parse_query, unit), partial(_read_queries, unit=unit)
    reference = _Reference(parse, QueryBatch, (*QUERY_FIELDS, "title"), {}, space, rule)
    return reference.decode(block, lambda names: scan_json(block, names, first_line), read, json_value)


def prepare() -> None:
    """Compile every kernel that decoding runs."""
    tokens.prepare()
    scan.prepare()
    values.prepare()
