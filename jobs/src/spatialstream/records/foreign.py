"""Files as their owners publish them: GeoJSON, JSON arrays, nested JSON, and text files with other marks than commas.

Each record is read by the standard library, its fields are taken by the expressions of their columns
(:mod:`~spatialstream.records.layout`), and the objects are decoded as lines of JSON (:mod:`~.decode`), so what an
object is, and what is refused, is the same as in all other files. A JSON document is read feature by feature, a text
file record by record; a dead letter names its line, or in a JSON document the number of the feature. Cost: some 20 µs a
record.

GeoJSON (RFC 7946): longitude and latitude are those of the geometry, which must be a point; ``id`` is that of the
feature or, without one, its property ``id``; ``t`` and ``text`` are properties of these names, unless columns say
otherwise.
A quoted empty cell of a text file is absent, as one without quotes is.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records.decode import LONGEST_ECHO, REJECTED, Decoded, decode_objects, json_value, object_fields
from spatialstream.records.layout import SEPARATORS, InputLayout, lookup, value_of

__all__ = ["check_foreign", "decode_foreign", "found_separator", "json_document", "open_input"]

_RECORDS = 1 << 14
_LOOKED_AT = 20
_PIECE = 1 << 20
_SPACES = " \t\r\n"
_RECORD_SEPARATOR = b"\x1e"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

_GUESSES = {
    "id": ("id", "identifier", "code", "key", "uuid"),
    "t": ("t", "time", "timestamp", "datetime", "date", "created_at", "created", "updated"),
    "lon": ("lon", "lng", "longitude", "decimallongitude", "stop_lon", "x"),
    "lat": ("lat", "latitude", "decimallatitude", "stop_lat", "y"),
    "x": ("x",),
    "y": ("y",),
    "text": ("text", "title", "name", "body", "description", "place", "summary", "stop_name"),
}
"""Names that columns of a field often have. They are suggested in errors, and never read without being asked for."""

_Record = tuple[int, object, RecordError | None]
"""Where a record is, its value, and what is wrong with it."""


def open_input(source: str, compression: str | None) -> BinaryIO:
    """The bytes of a file, which ``"gz"`` or ``"zst"`` may have compressed."""
    if compression == "zst":
        return io.BufferedReader(pa.input_stream(source, compression="zstd"))  # a file of lines
    return gzip.open(source, "rb") if compression == "gz" else Path(source).open("rb")  # type: ignore[return-value]


# --------------------------------------------------------------------------------------------------- JSON documents


class _Text:
    """A JSON text that is read piece by piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decode = file, codecs.getincrementaldecoder("utf-8-sig")().decode
        self._decoder = json.JSONDecoder()
        self._text, self._at, self._size = "", 0, _PIECE

    def _more(self) -> bool:
        piece = self._file.read(self._size)
        self._text, self._at = self._text[self._at :] + self._decode(piece, not piece), 0
        self._size = max(_PIECE, len(self._text))  # so that a long value is not tried again and again
        return bool(piece)

    def peek(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACES:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, wanted: str) -> str:
        """Read one of the wanted characters."""
        found = self.peek()
        if not found or found not in wanted:
            raise ValueError(f"{found or 'the end'!r} stands where one of {wanted!r} would be right")
        self._at += 1
        return found

    def value(self) -> object:
        """Read a whole value."""
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._more():
                    raise
                continue
            if end == len(self._text) and self._more():  # a number may go on
                continue
            self._at = end
            return value


def json_document(file: BinaryIO) -> Iterator[object]:
    """The elements of a JSON array, the features of a FeatureCollection, or a single object of a file.

    Raises:
        ValueError: it is not JSON.
    """
    text = _Text(file)
    if text.peek() == "[":
        yield from _elements(text)
    else:
        yield from _features(text)
    if text.peek():
        raise ValueError(f"{text.peek()!r} follows the end of the document")


def _elements(text: _Text) -> Iterator[object]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    while True:
        yield text.value()
        if text.take(",]") == "]":
            return


def _features(text: _Text) -> Iterator[object]:
    members: dict[str, object] = {}
    text.take("{")
    streamed = False
    while text.peek() != "}":
        name = text.value()
        text.take(":")
        if name == "features" and text.peek() == "[":
            streamed = True
            yield from _elements(text)
        else:
            members[str(name)] = text.value()
        if text.peek() != "}":
            text.take(",")
    text.take("}")
    if not streamed:
        yield members


# ------------------------------------------------------------------------------------------------------------ records


def found_separator(lines: Sequence[str], header: bool = True) -> str:
    """The mark that separates the columns of a text file: the commonest of its header.

    Without a header, of those that are as often in each of the first lines.
    """
    filled = [line for line in lines if line.strip()][: 1 if header else _LOOKED_AT] or [""]
    counts = {mark: [line.count(mark) for line in filled] for mark in SEPARATORS}
    even = {mark: each[0] for mark, each in counts.items() if min(each) == max(each) > 0}
    chosen = even or {mark: each[0] for mark, each in counts.items()}
    return max(SEPARATORS, key=lambda mark: chosen.get(mark, 0))


class _Rows:
    """The records of a text file, each with the line at which it begins."""

    def __init__(self, file: BinaryIO, layout: InputLayout) -> None:
        text = (raw.decode(errors="surrogateescape").removeprefix("\ufeff") for raw in file)
        first = list(islice(text, _LOOKED_AT))
        self.separator = layout.separator or found_separator(first, layout.header)
        quotes = self.separator != "\t" if layout.quotes is None else layout.quotes
        lines = chain(first, text)
        if quotes:
            self._reader = csv.reader(lines, delimiter=self.separator, strict=True)
        else:
            self._reader = csv.reader(lines, delimiter=self.separator, strict=True, quoting=csv.QUOTE_NONE)
        self._ahead: list[tuple[int, list[str] | RecordError]] = []
        self._rows = self._read()
        start = next(self._rows, None)
        cells = start[1] if start else []
        if isinstance(cells, RecordError):
            raise SettingError("header", cells.problem)
        self.header = tuple(cells) if layout.header else tuple(str(i + 1) for i in range(len(cells)))
        if not layout.header and start is not None:
            self._ahead.append(start)

    def _read(self) -> Iterator[tuple[int, list[str] | RecordError]]:
        while True:
            line = self._reader.line_num + 1
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, RecordError("record", f"is not a record of columns: {error}")
                continue
            if cells:
                yield line, cells

    def __iter__(self) -> Iterator[_Record]:
        for line, cells in chain(self._ahead, self._rows):
            if isinstance(cells, RecordError):
                yield line, None, cells
            elif len(cells) != len(self.header):
                there = f"has {len(cells)} cells; the file has {len(self.header)} columns"
                yield line, cells, RecordError("record", there)
            else:
                yield line, {name: cell or None for name, cell in zip(self.header, cells, strict=True)}, None


def _lines(file: BinaryIO) -> Iterator[_Record]:
    for number, raw in enumerate(file, 1):
        line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        line = line.lstrip(_RECORD_SEPARATOR).strip()
        if line:
            value, error, _ = json_value(line)
            yield number, value, error


def _records(file: BinaryIO, form: str, layout: InputLayout) -> Iterator[_Record]:
    if form == "text":
        return iter(_Rows(file, layout))
    if form == "lines":
        return _lines(file)
    return ((number, value, None) for number, value in enumerate(json_document(file), 1))


# -------------------------------------------------------------------------------------------------------------- check


def check_foreign(
    source: str, form: str, compression: str | None, layout: InputLayout, columns: Mapping[str, str], space: Space
) -> tuple[str, ...]:
    """Check that the first record of a file has the columns of all fields; returns the names of a text file's columns.

    Raises:
        SettingError: a column is not there; the error suggests those that are.
    """
    layout.check(columns)
    try:
        with open_input(source, compression) as file:
            rows = _Rows(file, layout) if form == "text" else None
            header = rows.header if rows else ()
            record: object = dict.fromkeys(header) if rows else None
            if rows is None:
                record = next((value for _, value, error in _records(file, form, layout) if error is None), None)
    except (ValueError, RecursionError) as error:
        raise SettingError(source, f"is not JSON: {error}") from None
    double = next((name for name in header if name in columns.values() and header.count(name) > 1), None)
    if double is not None:
        raise SettingError(source, f"has the column {double!r} more than once")
    if isinstance(record, dict) and (record or form != "text"):  # an empty file has no columns, and no records
        _check_record(source, record, layout, columns, space)
    return header


def _check_record(
    source: str, record: dict[str, object], layout: InputLayout, columns: Mapping[str, str], space: Space
) -> None:
    there = _paths(record)
    for field, column in _columns(space, columns).items():
        known = field == "terms" or (field == "t" and layout.at is not None) or (_is_feature(record) and field == "id")
        if field == "text" and "text" not in columns and ("terms" in columns or _value(record, "terms", "terms")[0]):
            continue
        if known and field not in columns:
            continue
        if _value(record, field, column, field in columns, space)[0]:
            continue
        near = get_close_matches(column, there, 1)
        hint = f"; did you mean {near[0]!r}?" if near else _suggestion(there, space, columns, layout)
        raise SettingError(source, f"has no column {column!r} for {field}; it has {', '.join(there)}{hint}")


def _suggestion(there: Sequence[str], space: Space, columns: Mapping[str, str], layout: InputLayout) -> str:
    """A ``--columns`` for what is there; only where one column alone has a name that a field often has."""
    guessed = dict(columns)
    for field in object_fields(space)[:5]:
        last = {path: path.rpartition(".")[2].lower() for path in there}
        found = next((paths for name in _GUESSES[field] if (paths := [p for p in there if last[p] == name])), [])
        if field not in columns and len(found) == 1 and found[0] != field and (field != "t" or layout.at is None):
            guessed[field] = found[0]
    at = "" if "t" in guessed or "t" in there or layout.at is not None else ", and --at TIME if it has no times"
    given = ",".join(f"{field}={column}" for field, column in guessed.items())
    return f"; maybe --columns {given}{at}" if guessed != dict(columns) else f"; give --columns FIELD=NAME,...{at}"


def _paths(value: object, prefix: str = "") -> list[str]:
    """The paths of all values that are no objects, in a record."""
    if not isinstance(value, dict):
        return [prefix] if prefix else []
    return [each for name, part in value.items() for each in _paths(part, f"{prefix}.{name}" if prefix else name)]


# ------------------------------------------------------------------------------------------------------------- decode


def _columns(space: Space, columns: Mapping[str, str]) -> dict[str, str]:
    """The column of each field; none of those whose name is another field's column."""
    taken = set(columns.values())
    fields = object_fields(space)
    return {each: columns.get(each, each) for each in fields if each in columns or each not in taken}


def _is_feature(record: object) -> bool:
    return isinstance(record, dict) and record.get("type") == "Feature" and "geometry" in record


def _value(record: object, field: str, column: str, given: bool = True, space: Space = WGS84) -> tuple[bool, object]:
    """(whether it is there, the value) of a field; of a feature by the meaning of GeoJSON if no column is given."""
    if given or not _is_feature(record):
        return value_of(record, field, column)
    if field in space.axes:
        return True, lookup(record, f"geometry.coordinates[{space.axes.index(field)}]")[1]
    if field == "id":
        found, value = lookup(record, "id")
        return (found, value) if value is not None else lookup(record, "properties.id")
    return lookup(record, f"properties.{field}")


def _check_geometry(record: object, columns: Mapping[str, str], space: Space) -> None:
    """Refuse a feature that is no point, whose coordinates would be read."""
    if not _is_feature(record) or all(axis in columns for axis in space.axes):
        return
    kind = lookup(record, "geometry.type")[1]
    if kind != "Point":
        raise RecordError("geometry", f"is {'null' if kind is None else kind}; an object has a Point")


def _number(value: object) -> object:
    """A cell as a number, if it is one."""
    text = value.strip() if isinstance(value, str) else ""
    if _NUMBER.fullmatch(text) and len(text) < LONGEST_ECHO:
        return json.loads(text)
    return float(text) if _DECIMAL.fullmatch(text) else value


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
        form: ``"text"`` (columns), ``"lines"`` (JSON, a record a line) or ``"document"`` (one JSON value).
        compression: ``"gz"``, ``"zst"`` or None.
        layout: how its records are laid out.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: our field -> the expression of its column.
        unit: of times that are numbers.

    Raises:
        SettingError: the file cannot be read.
    """
    reader = _Reader(layout, space, rule, columns or {}, unit, form == "text")
    done = 0
    try:
        with open_input(source, compression) as file:
            records = _records(file, form, layout)
            while block := list(islice(records, _RECORDS)):
                done = block[-1][0]
                yield reader.decode(block)
    except (ValueError, RecursionError) as error:
        raise SettingError(source, f"cannot be read after record {done}: {error}") from None


class _Reader:
    """Reads objects from the records of one file."""

    def __init__(
        self, layout: InputLayout, space: Space, rule: TermRule, columns: Mapping[str, str], unit: str, cells: bool
    ) -> None:
        self._space, self._rule, self._layout = space, rule, layout
        self._unit = unit if layout.at is None else "ms"  # in which that time is
        self._given, self._columns, self._cells = columns, _columns(space, columns), cells
        self._time = layout.time()
        distinct = len({*columns.values()}) == len(columns) and "t" not in columns.values()
        self._names = {field: name if distinct else field for field, name in self._columns.items()}

    def decode(self, block: Sequence[_Record]) -> Decoded[ObjectBatch]:
        """The objects of some records."""
        places: list[int] = []
        texts: list[str] = []
        refused: list[tuple[int, str, str]] = []
        for place, record, error in block:
            try:
                if error is not None:
                    raise error
                texts.append(json.dumps(self._fields(record)))
                places.append(place)
            except RecordError as problem:
                refused.append((place, str(problem), _echo(record)))
        lines = np.array([0, *places], np.int64)
        named = {field: name for field, name in self._names.items() if field != name}
        decoded = decode_objects("\n".join(texts).encode(), 1, self._space, self._rule, named, self._unit)
        for row in decoded.rejected.to_pylist():
            refused.append((int(lines[row["line"]]), row["reason"], row["record"]))
        refused.sort(key=lambda each: each[0])
        rejected = pa.RecordBatch.from_pylist(
            [dict(zip(REJECTED.names, each, strict=True)) for each in refused], schema=REJECTED
        )
        return replace(decoded, line=lines[decoded.line], rejected=rejected, unknown={})

    def _fields(self, record: object) -> dict[str, object]:
        """The fields of an object, under the names that its errors shall have."""
        if not isinstance(record, dict):
            raise RecordError("record", "is not a JSON object")
        _check_geometry(record, self._given, self._space)
        result: dict[str, object] = {}
        for field, column in self._columns.items():
            found, value = _value(record, field, column, field in self._given, self._space)
            if found or value is not None:
                result[self._names[field]] = self._read(field, value)
        if self._layout.at is not None:
            result["t"] = self._layout.at
        if any(isinstance(value, str) and not _is_text(value) for value in record.values() if self._cells):
            raise RecordError("record", "is not UTF-8 text")
        return result

    def _read(self, field: str, value: object) -> object:
        if field == "t":
            return self._time_of(value)
        if self._cells and field in self._space.axes:
            return _number(value)
        if self._cells and field == "terms" and value is not None:
            raise RecordError("terms", "cannot be given in CSV; give text")
        return value

    def _time_of(self, value: object) -> object:
        try:
            return self._time(value.strip() if self._cells and isinstance(value, str) else value)
        except RecordError as error:
            raise RecordError(self._names["t"], error.problem) from None


def _is_text(value: str) -> bool:
    return not any("\udc80" <= character <= "\udcff" for character in value)


def _echo(record: object) -> str:
    try:
        text = json.dumps(record, allow_nan=False)
    except (ValueError, RecursionError):
        text = json.dumps("(NaN, or nested too deeply)")
    return text if len(text) <= LONGEST_ECHO else json.dumps(text[:LONGEST_ECHO] + "…")
