"""The oracle over the files of a run: inputs, results and rejected records read line by line, and compared.

Inputs are JSON Lines (objects also CSV and Parquet, told by the suffix), each possibly ``.gz``. This reader is as plain
as the oracle: one line, one ``json.loads``, one record; blank lines are passed over. In CSV, ``t`` and coordinates are
the numbers that their cells hold, and missing where a cell is empty. Parquet timestamps without a zone are UTC.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.objects import SpatialObject, parse_object
from spatialstream.model.queries import Cancellation, Query, QueryType, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.oracle.comparison import Difference, check
from spatialstream.oracle.semantics import Row, answers

__all__ = ["Check", "Place", "check_files", "read_objects", "read_queries", "read_rows"]

Place = tuple[str, int]
"""Where a record stands: the file's name without its folder, and its line or row, from 1."""

_INTEGER = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

_T = TypeVar("_T", SpatialObject, Query | Cancellation)


@dataclass(frozen=True, slots=True)
class Check:
    """What a comparison of a run with the oracle found.

    Attributes:
        objects, queries: how many were read and accepted by the parsers.
        rows: number of expected rows of each query type.
        differences: how the results differ; empty if they are exact.
        rejected: number of records that should be rejected.
        rejected_compared: whether the run's rejected records were there to compare.
        wrongly_rejected, wrongly_accepted: records (file, line) that only the run, or only the oracle, rejects.
    """

    objects: int
    queries: int
    rows: dict[str, int]
    differences: list[Difference]
    rejected: int
    rejected_compared: bool
    wrongly_rejected: list[Place]
    wrongly_accepted: list[Place]

    @property
    def exact(self) -> bool:
        """Whether the run gave the right rows, and rejected the right records."""
        return not (self.differences or self.wrongly_rejected or self.wrongly_accepted)

    def lines(self, at_most: int = 20) -> Iterator[str]:
        """The summary for a person, with at most ``at_most`` differences of each sort."""
        yield f"{self.objects} objects, {self.queries} queries, {sum(self.rows.values())} expected rows: " + ", ".join(
            f"{name} {count}" for name, count in self.rows.items()
        )
        compared = "compared" if self.rejected_compared else "not compared: the run has no folder of rejected records"
        yield f"{self.rejected} records to reject ({compared})"
        yield from _some([str(difference) for difference in self.differences], at_most)
        yield from _some([f"rejected without need: {name}:{line}" for name, line in self.wrongly_rejected], at_most)
        yield from _some([f"should be rejected: {name}:{line}" for name, line in self.wrongly_accepted], at_most)
        yield "exact" if self.exact else f"{len(self.differences)} rows differ"


def check_files(
    objects: Sequence[Path],
    queries: Sequence[Path],
    results: Path,
    space: Space,
    *,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
) -> Check:
    """Compare the results of a run with the oracle's answers to the same files.

    Args:
        objects: files of objects, in the order in which they were given to the run.
        queries: files of queries, likewise.
        results: the run's folder of results; its sibling ``rejected``, if it exists, is compared too.
        space: the stream's space.
        rule: how texts become terms.
        columns: names of the objects' fields in their files, where they differ: ``{"id": "event"}``.

    Raises:
        SettingError: a file or the folder does not exist, or cannot be read as what its suffix says.
    """
    rejected: set[Place] = set()
    known_objects = list(read_objects(objects, space, rule, columns, rejected.add))
    placed_queries = list(read_queries(queries, space, rule, rejected.add))
    rows, refused = answers((o for _, o in known_objects), (query for _, query in placed_queries), space)
    rejected.update(placed_queries[position][0] for position, _ in refused)

    torn: list[Difference] = []
    found = read_rows(results, lambda row: torn.append(Difference("unexpected", None, row)))
    differences = torn + check(found, rows)
    counts = Counter(row["type"] for row in rows)
    given = _rejected_by_run(results.parent / "rejected")
    return Check(
        objects=len(known_objects),
        queries=len(placed_queries),
        rows={kind.value: counts[kind.value] for kind in QueryType},
        differences=differences,
        rejected=len(rejected),
        rejected_compared=given is not None,
        wrongly_rejected=sorted((given or set()) - rejected),
        wrongly_accepted=[] if given is None else sorted(rejected - given),
    )


def _rejected_by_run(folder: Path) -> set[Place] | None:
    if not folder.is_dir():
        return None
    return {(Path(str(row.get("source"))).name, int(row.get("line", 0))) for row in read_rows(folder)}


def read_objects(
    paths: Iterable[Path],
    space: Space,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    reject: Callable[[Place], object] = lambda place: None,
) -> Iterator[tuple[Place, SpatialObject]]:
    """The usable objects of the files with their places; ``reject`` is told the places of the others.

    Raises:
        SettingError: a file does not exist, or cannot be read as what its suffix says.
    """

    def parse(record: object) -> SpatialObject:
        if columns and isinstance(record, dict):
            record = record | {field: record.get(column) for field, column in columns.items()}
        return parse_object(record, space, rule)

    return _parsed(paths, parse, reject, columns)


def read_queries(
    paths: Iterable[Path],
    space: Space,
    rule: TermRule = DEFAULT_RULE,
    reject: Callable[[Place], object] = lambda place: None,
) -> Iterator[tuple[Place, Query | Cancellation]]:
    """The usable queries of the files with their places; ``reject`` is told the places of the others.

    Raises:
        SettingError: a file does not exist, or cannot be read as what its suffix says.
    """
    return _parsed(paths, lambda record: parse_query(record, space, rule), reject)


def read_rows(folder: Path, torn: Callable[[Row], object] = lambda row: None) -> list[Row]:
    """All rows of a folder of JSON Lines; hidden files and those that begin with ``_`` are not results.

    ``torn`` is told of each line that is no JSON object, as ``{"source", "line", "text"}``.

    Raises:
        SettingError: the folder does not exist.
    """
    if not folder.is_dir():
        raise SettingError("results", f"{folder} is not a folder")
    rows = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts):
            for line, record in _json_lines(path):
                if isinstance(record, dict):
                    rows.append(record)
                else:
                    torn({"source": path.name, "line": line, "text": repr(record)})
    return rows


def _parsed(
    paths: Iterable[Path],
    parse: Callable[[object], _T],
    reject: Callable[[Place], object],
    columns: Mapping[str, str] | None = None,
) -> Iterator[tuple[Place, _T]]:
    for path in paths:
        for line, record in _records(path, columns or {}):
            try:
                yield (path.name, line), parse(record)
            except RecordError:
                reject((path.name, line))


# -------------------------------------------------------------------------------------------------------------- formats


def _records(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, object]]:
    """(line or row from 1, record) of a file; a line that is not JSON comes as its bytes, which no parser accepts."""
    if not path.is_file():
        raise SettingError("file", f"{path} does not exist")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    match suffixes[-1:]:
        case [".csv"]:
            return _csv_rows(path, columns)
        case [".parquet"]:
            return _parquet_rows(path)
    return _json_lines(path)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise SettingError("file", f"{path} is not a gzip file: {error}") from None


def _json_lines(path: Path) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(_content(path).split(b"\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line.decode())
            except (ValueError, RecursionError):
                yield number, line


def _csv_rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, object]]:
    """The rows of a CSV file with a header, each under the line where it begins."""
    reader = csv.reader(io.StringIO(_content(path).decode(errors="surrogateescape"), newline=""))
    header = next(reader, [])
    numbers = {columns.get(field, field) for field in ("t", "lon", "lat", "x", "y")}
    line = reader.line_num + 1
    for cells in reader:
        if cells:
            named = zip(header, cells, strict=False)
            yield line, {name: _csv_number(cell) if name in numbers else cell for name, cell in named}
        line = reader.line_num + 1


def _csv_number(cell: str) -> object:
    """The number that a cell holds; the cell itself if it is none (a time in ISO 8601), None if it is empty."""
    if _INTEGER.fullmatch(cell):
        return int(cell)
    if _DECIMAL.fullmatch(cell):
        return float(cell)
    return cell or None


def _parquet_rows(path: Path) -> Iterator[tuple[int, object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table: Any = pq.read_table(pa.BufferReader(_content(path)))
    except pa.ArrowInvalid as error:
        raise SettingError("file", f"{path} is not a Parquet file: {error}") from None
    for number, row in enumerate(table.to_pylist(), 1):
        yield number, {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _some(lines: Sequence[str], at_most: int) -> Iterator[str]:
    yield from lines[:at_most]
    if len(lines) > at_most:
        yield f"... and {len(lines) - at_most} more"
