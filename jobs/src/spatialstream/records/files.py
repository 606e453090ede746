"""Input files to decoded batches: files are split into chunks that can be read independently.

JSON Lines (``.jsonl``, ``.ndjson``, ``.json``), CSV (``.csv``) and Parquet (``.parquet``); the first two also as
``.gz``. :func:`plan` splits plain text between records and Parquet between row groups; a compressed file is one chunk.
Every chunk knows its first line, so a dead letter names the right line, whichever process reads it. Splits are exact:
in CSV a newline within quotes does not end a record, which takes one pass over the file.

Cost: planning reads plain files once, to count lines, at more than 1 GB/s (CSV: 350 MB/s); reading holds one block of
about 8 MB, or one record if that is longer, at a time.

Files of objects in other layouts (GeoJSON, JSON arrays, nested JSON, other separators than commas, ``.zst``) are one
chunk each, which :mod:`~spatialstream.records.foreign` reads; Parquet in other layouts is read by
:mod:`~spatialstream.records.tables`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spatialstream.model.arrays import Ints
from spatialstream.model.errors import SettingError
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records.columns import columns_of, given_first
from spatialstream.records.commonest import commonest
from spatialstream.records.decode import decode_csv, decode_objects
from spatialstream.records.decode_queries import decode_queries
from spatialstream.records.decode_tables import decode_object_table
from spatialstream.records.delimited import DelimitedRecords
from spatialstream.records.foreign import check_foreign, decode_foreign, open_input
from spatialstream.records.formats import Kind, check_start, foreign_form, own_format
from spatialstream.records.layout import InputLayout
from spatialstream.records.missing import missing_column, missing_property
from spatialstream.records.reference import Decoded, csv_cells, object_fields
from spatialstream.records.scan import csv_borders
from spatialstream.records.tables import TableReader, check_table, column_paths, has_path, is_own

__all__ = ["Chunk", "Kind", "decode_chunk", "plan", "read", "without_column"]

_BLOCK = 8 << 20
_ROWS = 1 << 16
_CHUNK = 64 << 20
_NEWLINE = 0x0A
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of an input file, which any process can read.

    Attributes:
        source: the file, as it was given.
        format: ``"jsonl"``, ``"csv"`` or ``"parquet"``; in another layout ``"text"``, ``"lines"`` or ``"document"``.
        compressed: whether the file is gzip; then the piece is the whole file.
        start, end: the piece: bytes of a plain file, row groups of a Parquet file.
        first_line: number of its first line, or of its first row in Parquet; from 1.
        header: names of the columns of a CSV file.
        size: its bytes on disk, for telling progress.
        layout: how its records are laid out, if another reader than that of our own layouts is needed.
        compression: of such a file: ``"gz"``, ``"zst"`` or None.
    """

    source: str
    format: str
    compressed: bool
    start: int
    end: int
    first_line: int
    header: tuple[str, ...]
    size: int
    layout: InputLayout | None = None
    compression: str | None = None


# ---------------------------------------------------------------------------------------------------------------- plan


def plan(
    paths: Sequence[str | Path],
    columns: Mapping[str, str] | None = None,
    kind: Kind = "objects",
    chunk_bytes: int = _CHUNK,
    space: Space | None = None,
    layout: InputLayout | None = None,
) -> list[Chunk]:
    """Cut input files into chunks of about ``chunk_bytes``, in the order of the files and of their records.

    Args:
        paths: the files.
        columns: names in the input of those fields that have another than their own, which CSV and Parquet must have;
            or expressions (:mod:`~spatialstream.records.columns`).
        kind: what the files hold. Queries are JSON Lines only.
        chunk_bytes: cut where a chunk has at least this many bytes.
        space: the space of the objects; if it is given, CSV and Parquet must have the columns of all fields.
        layout: how the records of objects are laid out; None: as we write them, or as the file shows.

    Raises:
        SettingError: a file is missing, of another kind than its name says, damaged, lacks a column, or has one twice.
    """
    chunks: list[Chunk] = []
    layout = layout or InputLayout()
    for path in paths:
        source = str(path)
        if not Path(path).is_file():
            raise SettingError(source, "is a folder; give files" if Path(path).exists() else "does not exist")
        try:
            found = foreign_form(source, columns or {}, layout) if kind == "objects" else None
            if found is not None:
                chunks.append(_plan_foreign(source, *found, layout, columns or {}, space or WGS84))
                continue
            kind_of_file, compressed = own_format(Path(path), kind)
            check_start(source, kind_of_file, compressed)
            if kind_of_file == "parquet":
                chunks += _plan_parquet(source, columns or {}, chunk_bytes, space, layout)
            else:
                chunks += _plan_file(source, kind_of_file, compressed, columns or {}, chunk_bytes, space)
        except (OSError, EOFError, zlib.error) as error:
            raise SettingError(source, f"cannot be read: {error}") from None
    return chunks


def _plan_foreign(
    source: str, form: str, compression: str | None, layout: InputLayout, columns: Mapping[str, str], space: Space
) -> Chunk:
    header = check_foreign(source, form, compression, layout, columns, space)
    size = Path(source).stat().st_size
    return Chunk(source, form, compression is not None, 0, 0, 1, header, size, layout, compression)


def _plan_file(
    source: str, kind: str, compressed: bool, columns: Mapping[str, str], chunk_bytes: int, space: Space | None
) -> Iterator[Chunk]:
    size = Path(source).stat().st_size
    header: tuple[str, ...] = ()
    start, line = 0, 1
    if kind == "csv":
        with _open(source, compressed) as file:
            header, start, line = _header(source, file)
        if any(header):
            _check_fields(source, kind, header, columns, space)
    if compressed:
        return iter([Chunk(source, kind, True, start, 0, line, header, size)])
    return _plan_plain(source, kind, start, line, header, chunk_bytes)


def _open(source: str, compressed: bool) -> BinaryIO:
    return gzip.open(source, "rb") if compressed else Path(source).open("rb")  # type: ignore[return-value]


def _check_fields(
    source: str, kind: str, header: Sequence[str], columns: Mapping[str, str], space: Space | None
) -> None:
    """Refuse a table that lacks the column of a field, or has it twice: each of its records would be rejected.

    Of the columns that are not given, only with a space, since it has the names of the coordinates.
    """
    fields = object_fields(space or WGS84)
    names = {field: columns.get(field, field) for field in fields}
    for name in names.values():
        if header.count(name) > 1:
            raise SettingError(source, f"has the column {name!r} more than once")
    words = ("text",) if kind == "csv" else ("text", "terms")
    with_words = any(names[field] in header for field in words)
    for field, name in given_first({**names, **columns}, columns):
        needed = field in fields[:4] or (field == "text" and not with_words)
        if name not in header and (field in columns or (needed and space is not None)):
            raise missing_column(source, field, name, header, space or WGS84, columns, InputLayout())


def _header(source: str, file: BinaryIO) -> tuple[tuple[str, ...], int, int]:
    """(names of the columns, where the first record begins, its line) of a CSV file."""
    raw = bytearray()
    progress = np.zeros(2, np.int64)
    start = lines = 0
    text = ""
    while not text and (piece := file.readline()):
        raw += piece
        lines += 1
        if len(csv_borders(piece, progress, 1)[0]) or not piece.endswith(b"\n"):
            text = raw.removeprefix(_BOM).decode(errors="replace").rstrip("\r\n")
            start += len(raw)
            raw.clear()
    cells = csv_cells(text)
    if cells is None:
        raise SettingError(source, "has a header that is not CSV")
    return tuple(cell or "" for cell in cells), start, lines + 1


def _plan_plain(
    source: str, kind: str, start: int, line: int, header: tuple[str, ...], chunk_bytes: int
) -> Iterator[Chunk]:
    """Chunks of a plain text file whose records begin at byte ``start``, which is on line ``line``."""
    end = start
    with Path(source).open("rb") as file:
        file.seek(start)
        for block, first_line in _blocks(file, kind, line, min(_BLOCK, chunk_bytes)):
            if end - start >= chunk_bytes:
                yield Chunk(source, kind, False, start, end, line, header, end - start)
                line, start = first_line, end
            end += len(block)
    if end > start:
        yield Chunk(source, kind, False, start, end, line, header, end - start)


def _plan_parquet(
    source: str, columns: Mapping[str, str], chunk_bytes: int, space: Space | None, layout: InputLayout
) -> Iterator[Chunk]:
    try:
        metadata, schema = pq.read_metadata(source), pq.read_schema(source)
    except pa.ArrowException as error:
        raise SettingError(source, f"is not a Parquet file: {error}") from None
    header = tuple(schema.names)
    own = is_own(schema, columns, layout, space or WGS84)
    if own:
        _check_fields(source, "parquet", header, columns, space)
    else:
        check_table(source, schema, columns, layout, space or WGS84)
    start = row = rows = size = 0
    for group in range(metadata.num_row_groups):
        part = metadata.row_group(group)
        rows += part.num_rows
        size += sum(part.column(i).total_compressed_size for i in range(part.num_columns))
        if size >= chunk_bytes or group == metadata.num_row_groups - 1:
            yield Chunk(source, "parquet", False, start, group + 1, row + 1, header, size, None if own else layout)
            start, row, rows, size = group + 1, row + rows, 0, 0


def without_column(
    paths: Sequence[str | Path], rule: TermRule, columns: Mapping[str, str], layout: InputLayout, space: Space
) -> list[str]:
    """What is to be told of each declared property whose column is in no file, so that all objects lack it.

    Nothing if one of the files holds JSON, whose records each have names of their own, or cannot be read, which
    :func:`plan` says. Cost: the headers.
    """
    there: dict[str, None] = {}
    absent = {name: columns_of(space, columns, rule).get(name, name) for name in rule.properties.names}
    try:
        for path in map(Path, paths) if absent else ():
            if (found := _columns_in(path, columns, layout)) is None:
                return []
            names, schema = found
            there |= dict.fromkeys(names)
            absent = {
                name: column
                for name, column in absent.items()
                if column not in names and not (schema is not None and has_path(schema, column))
            }
    except (SettingError, OSError, EOFError, zlib.error, pa.ArrowException):
        return []
    return [missing_property(name, column, list(there)) for name, column in absent.items() if there]


def _columns_in(
    path: Path, columns: Mapping[str, str], layout: InputLayout
) -> tuple[Sequence[str], pa.Schema | None] | None:
    """(names of the columns, schema of a Parquet file) of a file with columns; None of one with JSON."""
    source = str(path)
    found = foreign_form(source, columns, layout)
    if found is not None:
        form, compression = found
        if form != "text":
            return None
        with open_input(source, compression) as file:
            return DelimitedRecords(file, layout).header, None
    kind, compressed = own_format(path, "objects")
    if kind == "parquet":
        schema = pq.read_schema(source)
        return column_paths(schema), schema
    if kind == "jsonl":
        return None
    with _open(source, compressed) as file:
        return _header(source, file)[0], None


# ---------------------------------------------------------------------------------------------------------------- read


def _blocks(
    file: BinaryIO, kind: str, first_line: int, block_bytes: int, length: int | None = None
) -> Iterator[tuple[bytes, int]]:
    """Whole records in blocks of about ``block_bytes``, each with the number of its first line."""
    progress = np.zeros(2, np.int64)
    pending: list[bytes] = []
    while piece := file.read(block_bytes if length is None else min(block_bytes, length)):
        length = None if length is None else length - len(piece)
        begin = 0
        for border in _borders(piece, kind, progress, block_bytes):
            block = b"".join([*pending, piece[begin:border]])
            yield block, first_line
            first_line += int(np.count_nonzero(np.frombuffer(block, np.uint8) == _NEWLINE))
            pending, begin = [], border
        pending.append(piece[begin:])
    block = b"".join(pending)
    if block:
        yield block, first_line


def _borders(piece: bytes, kind: str, progress: Ints, block_bytes: int) -> list[int]:
    """Where between two records to cut a piece of a file, which follows those before it."""
    if kind == "jsonl":
        border = piece.rfind(b"\n") + 1
        return [border] if border else []
    borders: list[int] = csv_borders(piece, progress, block_bytes // 2 + 1)[0].tolist()
    return borders


def read(chunk: Chunk, columns: Sequence[str] | None = None) -> Iterator[tuple[bytes | pa.Table, int]]:
    """The blocks of a chunk, each with the number of its first line or row: whole lines, CSV records, or a table.

    Args:
        chunk: a piece of :func:`plan`.
        columns: of a Parquet file, the columns to read; all by default.

    Raises:
        SettingError: the file cannot be read any more, or is damaged.
    """
    try:
        if chunk.format == "parquet":
            yield from _read_parquet(chunk, columns)
            return
        with _open(chunk.source, chunk.compressed) as file:
            file.seek(chunk.start)
            length = None if chunk.compressed else chunk.end - chunk.start
            yield from _blocks(file, chunk.format, chunk.first_line, _BLOCK, length)
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise SettingError(chunk.source, f"cannot be read: {error}") from None


def _read_parquet(chunk: Chunk, columns: Sequence[str] | None) -> Iterator[tuple[pa.Table, int]]:
    row = chunk.first_line
    with pq.ParquetFile(chunk.source) as file:
        groups = list(range(chunk.start, chunk.end))
        wanted = None if columns is None else [name for name in chunk.header if name in columns]
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=wanted, use_threads=False):
            yield pa.Table.from_batches([batch]), row
            row += batch.num_rows


def decode_chunk(
    chunk: Chunk,
    kind: Kind,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Iterator[Decoded[Any]]:
    """The records of a chunk, block by block: batches of objects or of queries.

    Args:
        chunk: a piece of :func:`plan`.
        kind: what it holds.
        space: the space in which it lies.
        rule: which terms count.
        columns: as in :func:`plan`.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.

    Raises:
        SettingError: the file cannot be read any more, or is damaged.
    """
    if chunk.layout is not None and chunk.format == "parquet":
        with pq.ParquetFile(chunk.source) as file:
            reader = TableReader(file.schema_arrow, chunk.layout, space, rule, columns or {}, unit)
        for table, row in read(chunk, reader.wanted):
            yield reader.decode(table, row)
        return
    if chunk.layout is not None:
        given = chunk.source, chunk.format, chunk.compression, chunk.layout, space, rule, columns, unit
        try:
            yield from decode_foreign(*given)
        except (OSError, EOFError, zlib.error) as error:
            raise SettingError(chunk.source, f"cannot be read: {error}") from None
        return
    known = [(columns or {}).get(field, field) for field in object_fields(space, rule)]
    unread = [name for name in chunk.header if name not in known]  # of a table, each record has all
    for block, line in read(chunk, known):
        if kind == "queries":
            yield decode_queries(block, line, space, rule, unit)
        elif isinstance(block, pa.Table):
            decoded = decode_object_table(block, line, space, rule, columns, unit)
            yield replace(decoded, unknown=_counted(unread, len(decoded.batch)))
        elif chunk.format == "csv":
            decoded = decode_csv(block, chunk.header, line, space, rule, columns, unit)
            yield replace(decoded, unknown=_counted(unread, len(decoded.batch)))
        else:
            yield decode_objects(block, line, space, rule, columns, unit)


def _counted(names: Sequence[str], records: int) -> dict[str, int]:
    return commonest([dict.fromkeys(names, records)]) if records else {}
