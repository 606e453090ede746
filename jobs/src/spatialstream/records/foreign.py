"""Files in layouts of others: GeoJSON, JSON arrays, nested JSON, and text with other separators than commas.

Each record is read by the standard library, its fields are taken by the expressions of their columns
(:mod:`~.columns`), and become a line of JSON, which is decoded as all such lines are (:mod:`~.decode`): so what an
object is, and what is refused, is the same as in all other files. A dead letter names the line of its record, or in a
JSON document the number of its element. Cost: 10 to 20 µs a record.

A document that breaks off, or is not JSON from some place on, gives the records before that place, and then one dead
letter that names it: what follows cannot be divided into records.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.times import in_milliseconds
from spatialstream.records.columns import columns_of, given_first, paths_of, steps_of
from spatialstream.records.commonest import commonest
from spatialstream.records.decode import decode_objects
from spatialstream.records.delimited import DelimitedRecords
from spatialstream.records.geojson import check_geometry, field_value, is_feature, member_names
from spatialstream.records.json_documents import json_document
from spatialstream.records.layout import InputLayout
from spatialstream.records.missing import missing_column, value_paths
from spatialstream.records.reasons import renamed
from spatialstream.records.reference import Decoded, csv_number, csv_property, json_value
from spatialstream.records.rejected import LONGEST_ECHO, REJECTED, printable

__all__ = ["ObjectReader", "Record", "check_foreign", "check_records", "decode_foreign", "open_input", "records_of"]

_BLOCK = 1 << 14
_LOOKED_AT = 1_000
_RECORD_SEPARATOR = b"\x1e"
_BOM = b"\xef\xbb\xbf"
_NOT_UTF8 = re.compile("[\udc80-\udcff]")

Record = tuple[int, object, RecordError | None]
"""Where a record is, its value, and what is wrong with it."""


def open_input(source: str, compression: str | None) -> BinaryIO:
    """The bytes of a file, which ``"gz"`` or ``"zst"`` may have compressed."""
    if compression == "zst":
        return io.BufferedReader(pa.input_stream(source, compression="zstd"))  # a file of lines
    return gzip.open(source, "rb") if compression == "gz" else Path(source).open("rb")  # type: ignore[return-value]


def records_of(file: BinaryIO, form: str, layout: InputLayout) -> Iterator[Record]:
    """The records of a file.

    Args:
        file: its bytes.
        form: ``"text"`` (columns), ``"lines"`` (JSON, a record a line) or ``"document"`` (one JSON value).
        layout: how its records are laid out.

    Raises:
        SettingError: the header of a text is no record.
    """
    if form == "text":
        return iter(DelimitedRecords(file, layout))
    return _lines(file) if form == "lines" else _elements(file)


def _lines(file: BinaryIO) -> Iterator[Record]:
    for number, raw in enumerate(file, 1):
        line = raw.removeprefix(_BOM) if number == 1 else raw
        line = line.lstrip(_RECORD_SEPARATOR).strip()
        if line:
            value, error, _ = json_value(line)
            yield number, value, error


def _elements(file: BinaryIO) -> Iterator[Record]:
    number = 0
    try:
        for number, value in enumerate(json_document(file), 1):
            yield number, value, None
    except ValueError as error:
        yield number + 1, None, RecordError("record", f"{error}; nothing after it is read")


# -------------------------------------------------------------------------------------------------------------- check


def check_foreign(
    source: str, form: str, compression: str | None, layout: InputLayout, columns: Mapping[str, str], space: Space
) -> tuple[str, ...]:
    """Check that the first record of a file has the columns of all fields; returns the names of a text file's columns.

    Raises:
        SettingError: a column is not there, and the error suggests those that are; or there is no first record,
            because the file is not what its name says.
    """
    with open_input(source, compression) as file:
        return check_records(source, file, form, layout, columns, space)


def check_records(
    source: str, file: BinaryIO, form: str, layout: InputLayout, columns: Mapping[str, str], space: Space
) -> tuple[str, ...]:
    """As :func:`check_foreign`, of the bytes of a file.

    Raises:
        SettingError: as there.
    """
    layout.check(columns)
    if form == "text":
        return _check_header(source, DelimitedRecords(file, layout).header, layout, columns, space)
    first = list(islice(records_of(file, form, layout), 1 if form == "document" else _LOOKED_AT))
    if form == "document" and first and first[0][2] is not None:
        raise SettingError(source, f"is not JSON: {first[0][2].problem}")
    record = next((value for _, value, error in first if error is None), None)
    if isinstance(record, dict):  # which may be without a property, so only the fields of every object are checked
        _check_record(source, record, columns_of(space, columns), layout, columns, space)
    return ()


def _check_header(
    source: str, header: tuple[str, ...], layout: InputLayout, columns: Mapping[str, str], space: Space
) -> tuple[str, ...]:
    read = {path for field, column in columns_of(space, columns).items() for path in (column, *paths_of(field, column))}
    double = next((name for name in header if name in read and header.count(name) > 1), None)
    if double is not None:
        raise SettingError(source, f"has the column {double!r} more than once")
    if header:  # an empty file has no columns, and no records
        fields = {**columns_of(space, columns), **columns}
        _check_record(source, dict.fromkeys(header), fields, layout, columns, space)
    return header


def _check_record(
    source: str,
    record: Mapping[str, object],
    fields: Mapping[str, str],
    layout: InputLayout,
    columns: Mapping[str, str],
    space: Space,
) -> None:
    for field, column in given_first(fields, columns):
        with_terms = "terms" in columns or field_value(record, "terms", {}, space)[0]
        optional = {"terms": True, "t": layout.at is not None, "id": is_feature(record), "text": with_terms}
        if optional.get(field, False) and field not in columns:
            continue
        if not _has(record, field, columns, space):
            raise missing_column(source, field, column, value_paths(record), space, columns, layout)


def _has(record: Mapping[str, object], field: str, columns: Mapping[str, str], space: Space) -> bool:
    try:
        return field_value(record, field, columns, space)[0]
    except RecordError:  # a part of a time has no value here, which is another matter
        return True


# ------------------------------------------------------------------------------------------------------------- decode


def decode_foreign(
    source: str,
    form: str,
    compression: str | None,
    layout: InputLayout,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Iterator[Decoded[ObjectBatch]]:
    """The objects of a file, block by block.

    Args:
        source: the file.
        form: as in :func:`records_of`.
        compression: ``"gz"``, ``"zst"`` or None.
        layout: how its records are laid out.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: our field -> the expression of its column.
        unit: of times that are numbers.

    Raises:
        SettingError: the header of a text is no record.
        OSError: the file cannot be read any more; or another error of its compression.
    """
    reader = ObjectReader(layout, space, rule, columns or {}, unit, cells=form == "text")
    with open_input(source, compression) as file:
        records = records_of(file, form, layout)
        while block := list(islice(records, _BLOCK)):
            yield reader.decode(block)


class ObjectReader:
    """Reads objects from records, by the columns of their fields.

    Args:
        layout: how the records are laid out.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: our field -> the expression of its column.
        unit: of times that are numbers.
        cells: whether all values are texts, as in text with columns.
    """

    def __init__(
        self, layout: InputLayout, space: Space, rule: TermRule, columns: Mapping[str, str], unit: str, *, cells: bool
    ) -> None:
        self._space, self._rule, self._layout, self._cells = space, rule, layout, cells
        self._unit = unit if layout.at is None else "ms"  # in which that time is
        self._given_unit = unit
        self._given, self._columns = columns, columns_of(space, columns, rule)
        self._types = rule.properties.type_of
        self._times = {field: layout.time_reader(field) for field in ("t", *rule.properties.times)}
        self._used = _names_used(self._columns)

    def decode(self, records: Sequence[Record]) -> Decoded[ObjectBatch]:
        """The objects of some records."""
        return self.read(records)[0]

    def read(self, records: Sequence[Record]) -> tuple[Decoded[ObjectBatch], bytes]:
        """The objects of some records, and as lines of JSON in our own layout those that are not refused before."""
        usable: list[Record] = []
        lines: list[str] = []
        refused: list[tuple[int, str, str]] = []
        for each in records:
            place, record, error = each
            try:
                if error is not None:
                    raise error
                lines.append(json.dumps(self._fields(record)))
                usable.append(each)
            except RecordError as problem:
                refused.append((place, str(problem), _echo(record)))
            except RecursionError:
                refused.append((place, "record: is nested too deeply", _echo(record)))
        content = "\n".join(lines).encode()
        decoded = decode_objects(content, 1, self._space, self._rule, unit=self._unit)
        for row in decoded.rejected.to_pylist():
            place, record, _ = usable[row["line"] - 1]
            refused.append((place, row["reason"], _echo(record)))
        accepted = [usable[line - 1] for line in decoded.line.tolist()]
        places = np.array([place for place, _, _ in accepted], np.int64)
        rejected, unknown = self._rejected(refused), self._unknown(accepted)
        return replace(decoded, line=places, rejected=rejected, unknown=unknown), content

    def _rejected(self, refused: Sequence[tuple[int, str, str]]) -> pa.RecordBatch:
        in_order = sorted(refused, key=lambda each: each[0])
        rows = [(place, printable(renamed(reason, self._given)), echo) for place, reason, echo in in_order]
        named = [dict(zip(REJECTED.names, row, strict=True)) for row in rows]
        return pa.RecordBatch.from_pylist(named, schema=REJECTED)

    def _unknown(self, accepted: Iterable[Record]) -> dict[str, int]:
        counts = Counter[str]()
        for _, record, _ in accepted:
            counts.update(printable(name) for name in member_names(record) if name not in self._used)
        return commonest([counts])

    def _fields(self, record: object) -> dict[str, object]:
        """The fields of an object, under our own names."""
        if not isinstance(record, dict):
            raise RecordError("record", "is not a JSON object")
        check_geometry(record, self._given, self._space)
        result: dict[str, object] = {}
        for field in self._columns:
            found, value = field_value(record, field, self._given, self._space)
            if found or value is not None:
                result[field] = self._value(field, value)
        if self._layout.at is not None:
            result["t"] = self._layout.at
        _check_text(record.values() if self._cells else result.values())
        return result

    def _value(self, field: str, value: object) -> object:
        if field in self._times:
            moment = self._times[field]((value.strip() or None) if self._cells and isinstance(value, str) else value)
            return moment if self._layout.at is None else in_milliseconds(moment, self._given_unit)
        if self._cells and field in self._space.axes:
            return csv_number(value if isinstance(value, str) else None)
        if self._cells and field in self._types:
            return csv_property(value if isinstance(value, str) else None, self._types[field])
        if self._cells and field == "terms" and value is not None:
            raise RecordError("terms", "cannot be given in text with columns; give text")
        return value


def _names_used(columns: Mapping[str, str]) -> set[str]:
    """The names of members (:func:`~.geojson.member_names`) that are read, whole or in part."""
    paths = {*columns.values(), *(path for field, column in columns.items() for path in paths_of(field, column))}
    firsts = {".".join(map(str, steps_of(path)[:most])) for path in paths for most in (1, 2)}
    return paths | firsts | {f"properties.{field}" for field, column in columns.items() if field == column}


def _check_text(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, str) and not value.isascii() and _NOT_UTF8.search(value):
            raise RecordError("record", "is not UTF-8 text")


def _echo(record: object) -> str:
    try:
        text = json.dumps(record, allow_nan=False)
    except (ValueError, RecursionError):
        text = json.dumps("(NaN, or nested too deeply)")
    return text if len(text) <= LONGEST_ECHO else json.dumps(text[:LONGEST_ECHO] + "…")
