"""The oracle's reader of files in other layouts: a whole file at a time, with ``json``, ``csv`` and ``to_pylist``.

What an expression, a feature and a local time mean is defined once (:mod:`~spatialstream.records.columns`,
:mod:`~spatialstream.records.geojson`, :mod:`~spatialstream.records.layout`); how files become records is written a
second time here, as simply as possible.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records.columns import columns_of, is_expression
from spatialstream.records.geojson import check_geometry, field_value, is_feature
from spatialstream.records.layout import SEPARATORS, InputLayout

__all__ = ["content_of", "csv_number", "csv_value", "is_laid_out", "laid_out", "whole"]

_INTEGER = re.compile(r"-?\d{1,3999}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LINES = (".jsonl", ".ndjson", ".geojsonl", ".geojsons", ".geojsonseq")
_DOCUMENTS = (".json", ".geojson")
_TEXTS = (".csv", ".txt", ".tsv", ".psv")
_UNREADABLE = b"no record"
"""What no parser accepts."""


def content_of(path: Path) -> bytes:
    """The bytes of a file, unpacked.

    Raises:
        SettingError: it is not packed as its name says.
    """
    content = path.read_bytes()
    try:
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
        elif path.suffix.lower() == ".zst":
            import pyarrow as pa

            content = pa.CompressedInputStream(io.BytesIO(content), "zstd").read()
    except (OSError, EOFError, zlib.error) as error:
        raise SettingError("file", f"{path} cannot be unpacked: {error}") from None
    return content.removeprefix(b"\xef\xbb\xbf")


def is_laid_out(path: Path, columns: Mapping[str, str], layout: InputLayout) -> bool:
    """Whether a file of objects is in another layout than ours.

    Raises:
        SettingError: it cannot be read as what its suffix says.
    """
    suffix = _suffix(path)
    expressions = [column for column in columns.values() if is_expression(column)]
    if suffix == ".parquet":
        table = _table(path)
        return not layout.plain or bool(set(expressions) - set(table.column_names)) or b"geo" in _metadata(table)
    if not layout.plain or path.suffix.lower() == ".zst":
        return True
    first = content_of(path).partition(b"\n")[0]
    if suffix == ".csv":
        header = first.decode(errors="replace").rstrip("\r")
        return ("," not in header and any(mark in header for mark in SEPARATORS)) or not all(
            column in next(csv.reader([header]), []) for column in expressions
        )
    if suffix in (".jsonl", ".ndjson", ".json"):
        document = suffix == ".json" and _is_document(path)
        return bool(expressions) or document or is_feature(_json(first.strip(b"\x1e")))
    return suffix in (*_LINES, *_DOCUMENTS, *_TEXTS)


def laid_out(
    path: Path, columns: Mapping[str, str], layout: InputLayout, space: Space, rule: TermRule = DEFAULT_RULE
) -> Iterator[tuple[int, object]]:
    """(line, row or number from 1; fields of an object by our own names) of the records of a file.

    What is no record comes as bytes, which no parser accepts.

    Raises:
        SettingError: the file cannot be read as what its suffix says.
    """
    suffix = _suffix(path)
    cells = suffix in _TEXTS
    read = {field: layout.time_reader(field) for field in ("t", *rule.properties.times)}
    fields = [field for field in columns_of(space, columns, rule) if not (cells and field == "terms")]
    types = rule.properties.type_of

    def value(record: object, field: str) -> object:
        cell = field_value(record, field, columns, space)[1]
        if cells and field in types:
            cell = csv_value(cell, types[field]) if isinstance(cell, str) else cell
        if types.get(field) is PropertyType.TIME and suffix == ".parquet":
            cell = whole(cell)
        if cells and isinstance(cell, str) and field in (*space.axes, "t"):
            cell = csv_number(cell) if field in space.axes else cell.strip() or None
        return read[field](cell) if field in read else cell

    for place, record in _records(path, suffix, layout, columns, space):
        try:
            if not isinstance(record, dict):
                raise RecordError("record", "is none")
            check_geometry(record, columns, space)
            result = {field: value(record, field) for field in fields}
        except RecordError:
            yield place, _UNREADABLE
        else:
            yield place, result if layout.at is None else result | {"t": layout.at}


def _suffix(path: Path) -> str:
    inner = path.with_suffix("") if path.suffix.lower() in (".gz", ".zst") else path
    return inner.suffix.lower()


def _records(
    path: Path, suffix: str, layout: InputLayout, columns: Mapping[str, str], space: Space
) -> Iterator[tuple[int, object]]:
    if suffix == ".parquet":
        return _rows(path, layout, columns, space)
    if suffix in _TEXTS:
        return _cells(content_of(path), layout)
    if suffix in _DOCUMENTS and _is_document(path):
        return _elements(content_of(path).decode(errors="surrogateescape"))
    return _json_lines(content_of(path))


# ---------------------------------------------------------------------------------------------------------------- JSON


def _json(text: bytes) -> object:
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError):
        return _UNREADABLE


def _json_lines(content: bytes) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if bare := line.strip(b" \t\r\x1e"):
            yield number, _json(bare)


def _is_document(path: Path) -> bool:
    """Whether a file is one value of JSON (or the beginning of one), and not a record a line."""
    text = content_of(path).strip()
    first = _json(text.partition(b"\n")[0].strip(b" \t\r\x1e"))
    whole = isinstance(first, list) or (isinstance(first, dict) and "features" in first)
    return text[:1] in (b"[", b"{") and (whole or not isinstance(first, dict))


def _elements(text: str) -> Iterator[tuple[int, object]]:
    """The elements of an array, or of the features of a collection, as far as they can be read."""
    decoder = json.JSONDecoder()
    document = _whole(text)
    if isinstance(document, list):
        yield from enumerate(map(_checked, document), 1)
        return
    if isinstance(document, dict):
        features = document.get("features")
        yield from enumerate(map(_checked, features if isinstance(features, list) else [document]), 1)
        return
    at = text.index("[", 0 if text.lstrip().startswith("[") else max(0, text.find('"features"'))) + 1
    number = 0
    while True:
        at = len(text) - len(text[at:].lstrip())
        if number and not text.startswith(",", at):
            break
        number += 1
        begin = at + (1 if number > 1 else 0)
        begin = len(text) - len(text[begin:].lstrip())
        try:
            value, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            yield number, _UNREADABLE
            return
        yield number, _checked(value)
    yield number + 1, _UNREADABLE


def _whole(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _checked(record: object) -> object:
    """A record, unless one of its texts was not UTF-8."""
    texts = json.dumps(record, ensure_ascii=False)
    return _UNREADABLE if any("\udc80" <= each <= "\udcff" for each in texts) else record


# ------------------------------------------------------------------------------------------------------------- columns


def _cells(content: bytes, layout: InputLayout) -> Iterator[tuple[int, object]]:
    text = content.decode(errors="surrogateescape")
    lines = [line for line in text.split("\n")[:20] if line.strip()]
    separator = layout.separator or _separator(lines, header=layout.header)
    plain = layout.quotes is False or (layout.quotes is None and separator == "\t")
    quoting = {"quoting": csv.QUOTE_NONE} if plain else {}
    lines_of = io.StringIO(text, newline="\n")
    reader = csv.reader(lines_of, delimiter=separator, strict=True, **quoting)  # type: ignore[arg-type]
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield line, _UNREADABLE
            continue
        if header is None and row:
            header = row if layout.header else [str(i + 1) for i in range(len(row))]
            if layout.header:
                continue
        if row and header is not None:
            whole = len(row) == len(header) and not any("\udc80" <= each <= "\udcff" for cell in row for each in cell)
            yield line, {name: cell or None for name, cell in zip(header, row, strict=True)} if whole else _UNREADABLE


def _separator(lines: list[str], *, header: bool) -> str:
    counts = {mark: [line.count(mark) for line in (lines[:1] if header else lines)] or [0] for mark in SEPARATORS}
    even = [mark for mark in SEPARATORS if len(set(counts[mark])) == 1 and counts[mark][0]]
    return max(even or SEPARATORS, key=lambda mark: counts[mark][0])


def csv_value(cell: str | None, kind: PropertyType) -> object:
    """The value of a property that a cell holds; the cell itself if it holds none of the type."""
    if kind is PropertyType.KEYWORD or cell is None:
        return cell
    if kind is PropertyType.BOOLEAN:
        return {"true": True, "false": False}.get(cell.strip().lower(), cell)
    return csv_number(cell) if kind is PropertyType.NUMBER else cell.strip() or None


def whole(value: object) -> object:
    """A float that is certainly one whole number, as an integer; others as they are."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53 else value


def csv_number(cell: str | None) -> object:
    """The number that a cell holds; the cell itself if it is none, such as a time in ISO 8601."""
    if cell is None:
        return None
    cell = cell.strip()
    if _INTEGER.fullmatch(cell):
        return int(cell)
    if _DECIMAL.fullmatch(cell):
        return float(cell)
    return cell or None


# ------------------------------------------------------------------------------------------------------------- Parquet


def _table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except pa.ArrowException as error:
        raise SettingError("file", f"{path} is not a Parquet file: {error}") from None


def _metadata(table: Any) -> Mapping[bytes, bytes]:
    return table.schema.metadata or {}


def _rows(path: Path, layout: InputLayout, columns: Mapping[str, str], space: Space) -> Iterator[tuple[int, object]]:
    table = _table(path)
    placed = any(axis in columns or axis in table.column_names for axis in space.axes)
    geometry = None if placed else json.loads(_metadata(table).get(b"geo", b"{}")).get("primary_column")
    for number, row in enumerate(table.to_pylist(), 1):
        point = _point(row.get(geometry)) if geometry else None
        if geometry and point is None:
            yield number, _UNREADABLE
        else:
            yield number, _plain(row) | dict(zip(space.axes, point or (), strict=False))


def _point(value: object) -> tuple[float, float] | None:
    """A point as WKB or as a structure; None of all others."""
    import shapely

    if isinstance(value, dict):
        return value["x"], value["y"]
    if not isinstance(value, bytes):
        return None
    shape = shapely.from_wkb(value, on_invalid="ignore")
    return (shape.x, shape.y) if isinstance(shape, shapely.Point) and not shape.is_empty else None


def _plain(value: Any) -> Any:
    """A value of Parquet as JSON would have it."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else float(value)
    return value
