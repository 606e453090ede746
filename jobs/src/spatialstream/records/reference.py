"""One record at a time: the exact parser of a format, and how records pass to it that the fast path leaves.

The meaning of a record is defined once, by :func:`~.objects.parse_object` and :func:`~.queries.parse_query`. The fast
path (:mod:`~.decode`) decodes the records that it certainly understands in bulk, with the same values as these two;
every other record is passed to them alone, and accepted or rejected by them. So the outcome of a record never depends
on its neighbours.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as defined
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Flags, Ints
from spatialstream.model.errors import RecordError
from spatialstream.model.objects import ObjectBatch, SpatialObject, parse_object
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import in_milliseconds
from spatialstream.records.commonest import commonest
from spatialstream.records.properties import declared_columns
from spatialstream.records.rejected import LONGEST_ECHO, printable, quoted, rejected_rows
from spatialstream.records.scan import Cells, Records

__all__ = [
    "Decoded",
    "Reference",
    "Row",
    "csv_cells",
    "csv_number",
    "csv_object",
    "csv_property",
    "csv_value",
    "in_unit",
    "json_value",
    "names_of",
    "object_fields",
]

_DEEPEST_ECHO = 64
"""Deepest nesting of a record that is echoed unchanged: a deeper one may be too deep for a reader of dead letters."""

_MOST_NAMES = 1_000
"""Most names of unknown fields to count at a time."""

_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)


Row = tuple[object, RecordError | None, str]
"""A record's value, what is wrong with it, and its echo."""


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


_NOWHERE = "\n"
"""A name that cannot occur in any input."""


def names_of(fields: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """The input's name of each field; none where the name that it would have was given to another field."""
    taken = set(columns.values())
    return {field: columns.get(field, _NOWHERE if field in taken else field) for field in fields}


def json_value(raw: bytes) -> Row:
    """(value, what is wrong with it, its echo) of a line of JSON, whatever bytes it is.

    The echo is JSON that any reader takes: of bounded length and depth, without NaN or infinities.
    """
    try:
        text = raw.decode().strip(" \t\r")
    except UnicodeDecodeError:
        return None, RecordError("record", "is not UTF-8 text"), quoted(raw.decode(errors="replace"))
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return None, RecordError("record", f"is not JSON: {error.msg} at character {error.pos + 1}"), quoted(text)
    except RecursionError:
        return None, RecordError("record", "is nested too deeply"), quoted(text)
    except ValueError:
        return None, RecordError("record", "holds an integer of too many digits"), quoted(text)
    flat = text.count("[") + text.count("{") <= _DEEPEST_ECHO
    strict = flat and len(text) <= LONGEST_ECHO and "NaN" not in text and "Infinity" not in text
    return value, None, text if strict else quoted(text)


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


def csv_value(raw: bytes, header: Sequence[str]) -> Row:
    """(cells by column, what is wrong, its echo) of a CSV record."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None, RecordError("record", "is not UTF-8 text"), quoted(raw.decode(errors="replace"))
    cells = csv_cells(text)
    if cells is None:
        return None, RecordError("record", "is not CSV: a quoted cell must end before the next comma"), quoted(text)
    if len(cells) != len(header):
        return None, RecordError("record", f"has {len(cells)} cells; the header has {len(header)}"), quoted(text)
    value = dict(zip(header, cells, strict=True))
    echo = json.dumps(value, ensure_ascii=False)
    return value, None, echo if len(echo) <= LONGEST_ECHO else quoted(text)


def csv_object(value: object, space: Space, rule: TermRule, unit: str) -> SpatialObject:
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


def in_unit(parse: Callable[[object, Space, TermRule], Any], unit: str) -> Callable[[object, Space, TermRule], Any]:
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


@dataclass(frozen=True, slots=True)
class Reference(Generic[_Batch]):
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
            value = {field: value.get(name) for field, name in names_of(self.fields, self.columns).items()}
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
        value_of: Callable[[bytes], Row],
    ) -> Decoded[_Batch]:
        """The records that a scanner finds in a block under the names of the fields.

        Args:
            block: the bytes.
            scan_names: the scanner; it is given distinct names, because several fields may have the same column.
            read: makes a batch of the good records, and marks more of them as odd.
            value_of: reads the bytes of an odd one.
        """
        names = names_of(self.fields, self.columns)
        distinct = list(dict.fromkeys(names.values()))
        line, start, end, cells, others = scan_names(distinct)
        if self.strict:
            cells.good[others.rows != 0] = False
        batch = read({field: cells.field(distinct.index(name)) for field, name in names.items()}, self.space, self.rule)
        unknown = others.records(cells.data, cells.good)

        def row_value(row: int) -> Row:
            return value_of(bytes(block[start[row] : end[row]]))

        return self.finish(batch, line, cells.good, row_value, () if value_of is not json_value else distinct, unknown)

    def finish(
        self,
        batch: _Batch,
        line: Ints,
        good: Flags,
        row_value: Callable[[int], Row],
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
        return Decoded(batch, line[kept], rejected_rows(rejected), commonest([others]))
