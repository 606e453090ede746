"""The oracle over the files of a run: reads inputs, results and rejected records line by line, and compares them.

Inputs are JSON Lines (objects also CSV and Parquet, by the suffix; other layouts in :mod:`~.layouts`), text also as
``.gz``. This reader is as simple as
the oracle: one line, one ``json.loads``, one record; blank lines are skipped. In CSV, an empty cell is absent and a
quoted empty one is an empty string; ``t`` and coordinates are the numbers in their cells; a record with more or fewer
cells than the header, or with text after a closing quote, is invalid. Parquet timestamps are UTC.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.kinds import TYPES
from spatialstream.model.objects import SpatialObject, parse_object
from spatialstream.model.queries import Cancellation, Query, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.oracle.comparison import Difference, check
from spatialstream.oracle.layouts import content_of, csv_number, csv_value, is_laid_out, laid_out, whole
from spatialstream.oracle.semantics import Row, answers
from spatialstream.records.layout import InputLayout

__all__ = ["Check", "Place", "check_files", "read_objects", "read_queries", "read_rows"]

Place = tuple[str, int]
"""Position of a record: the file's name without its folder, and its line or row, from 1."""

_INTEGER = re.compile(r"-?\d{1,3999}", re.ASCII)

_T = TypeVar("_T", SpatialObject, Query | Cancellation)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of comparing a run with the oracle.

    Attributes:
        objects, queries: number of objects and queries accepted by the parsers.
        rows: number of expected rows of each query type.
        differences: how the results differ; empty if they are exact.
        rejected: number of records that should be rejected.
        rejected_compared: whether the run's rejected records exist and were compared.
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
        """Yield the lines of a summary, with at most ``at_most`` differences of each sort."""
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
    retention: int | None = None,
    interval: int = 300_000,
    unit: str = "ms",
    layout: InputLayout | None = None,
) -> Check:
    """Compare the results of a run with the oracle's answers to the same files.

    Args:
        objects: files of objects, in the order in which they were given to the run.
        queries: files of queries, likewise.
        results: the run's folder of results; its sibling ``rejected``, if it exists, is compared too.
        space: the stream's space.
        rule: how texts become terms.
        columns: names of the objects' fields in their files, where they differ: ``{"id": "event"}``.
        retention: how far the run's snapshot queries could look back, in ms; None: without limit.
        interval: Δ of the run, ms.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.
        layout: how the records of objects are laid out, where the files do not show it.

    Raises:
        SettingError: a file or the folder does not exist, or cannot be read as what its suffix says.
    """
    rejected: set[Place] = set()
    known_objects = list(read_objects(objects, space, rule, columns, rejected.add, unit, layout))
    placed_queries = list(read_queries(queries, space, rule, rejected.add, unit))
    asked = (query for _, query in placed_queries)
    rows, refused = answers((o for _, o in known_objects), asked, space, retention, interval)
    rejected.update(placed_queries[position][0] for position, _ in refused)

    torn: list[Difference] = []
    found = read_rows(results, lambda row: torn.append(Difference("unexpected", None, row)))
    differences = torn + check(found, rows)
    counts = Counter(row["type"] for row in rows)
    rejected_by_run = _rejected_by_run(results.parent / "rejected")
    return Check(
        objects=len(known_objects),
        queries=len(placed_queries),
        rows={kind: counts[kind] for kind in TYPES},
        differences=differences,
        rejected=len(rejected),
        rejected_compared=rejected_by_run is not None,
        wrongly_rejected=sorted((rejected_by_run or set()) - rejected),
        wrongly_accepted=[] if rejected_by_run is None else sorted(rejected - rejected_by_run),
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
    unit: str = "ms",
    layout: InputLayout | None = None,
) -> Iterator[tuple[Place, SpatialObject]]:
    """Yield the valid objects of the files with their positions; ``reject`` is called with those of the others.

    Raises:
        SettingError: a file does not exist, or cannot be read as what its suffix says.
    """
    names = {field: field for field in ("id", "t", *space.axes, "text", "terms", *rule.properties.names)}
    times = ("t", *rule.properties.times)
    if columns:  # a column assigned to another field is not read as the field of its own name
        names = {field: columns.get(field, "" if field in columns.values() else field) for field in names}

    def parse(record: object) -> SpatialObject:
        if isinstance(record, dict):
            record = {field: record.get(name) for field, name in names.items()}
            for field, kind in rule.properties.types if from_csv else ():
                record[field] = csv_value(record[field], kind)
            for field in times[1:] if from_table else ():
                record[field] = whole(record[field])
        return parse_object(_in_ms(record, unit, times), space, rule)

    layout, columns = layout or InputLayout(), columns or {}
    times_there = times if layout.at is None else times[1:]  # that time is in ms

    def parse_there(record: object) -> SpatialObject:
        return parse_object(_in_ms(record, unit, times_there), space, rule)

    for path in paths:
        if path.is_file() and is_laid_out(path, columns, layout):
            records = laid_out(path, columns, layout, space, rule)
            yield from _parsed(path, records, parse_there, reject)
        else:
            from_csv, from_table = (_format(path) == kind for kind in (".csv", ".parquet"))
            yield from _parsed(path, _records(path, names, rule, columns), parse, reject)


def read_queries(
    paths: Iterable[Path],
    space: Space,
    rule: TermRule = DEFAULT_RULE,
    reject: Callable[[Place], object] = lambda place: None,
    unit: str = "ms",
) -> Iterator[tuple[Place, Query | Cancellation]]:
    """Yield the valid queries of the files with their positions; ``reject`` is called with those of the others.

    Raises:
        SettingError: a file does not exist, or cannot be read as what its suffix says.
    """
    for path in paths:
        if _format(path) != ".jsonl":
            raise SettingError("queries", f"{path} is not JSON Lines")
        yield from _parsed(
            path, _json_lines(path), lambda record: parse_query(_in_ms(record, unit), space, rule), reject
        )


def _in_ms(record: object, unit: str, fields: Iterable[str] = ("t",)) -> object:
    """Convert the times of a record to ms, if they are numbers in ``unit`` or their digits."""
    if not isinstance(record, dict):
        return record
    for field in fields:
        t = record.get(field)
        if isinstance(t, str) and _INTEGER.fullmatch(t):
            t = int(t)
        if isinstance(t, int) and not isinstance(t, bool):
            t = {"s": t * 1000, "ms": t, "us": t // 1000}[unit]
        record = record | {field: t}
    return record


def read_rows(folder: Path, torn: Callable[[Row], object] = lambda row: None) -> list[Row]:
    """All rows of a folder of JSON Lines; hidden files and those that begin with ``_`` are not results.

    ``torn`` is called for each line that is not a JSON object, with ``{"source", "line", "text"}``.

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
    path: Path, records: Iterable[tuple[int, object]], parse: Callable[[object], _T], reject: Callable[[Place], object]
) -> Iterator[tuple[Place, _T]]:
    for line, record in records:
        try:
            parsed = parse(record)
            parsed.id.encode()
        except (RecordError, UnicodeEncodeError):  # half of a surrogate pair is not text
            reject((path.name, line))
        else:
            yield (path.name, line), parsed


# -------------------------------------------------------------------------------------------------------------- formats


def _format(path: Path) -> str:
    """``".jsonl"``, ``".csv"`` or ``".parquet"``, by the file's name."""
    if not path.is_file():
        raise SettingError("file", f"{path} does not exist")
    name = path.name.lower()
    packed = name.endswith(".gz")
    suffix = Path(name.removesuffix(".gz")).suffix
    if suffix in (".jsonl", ".ndjson", ".json"):
        return ".jsonl"
    if suffix == ".csv" or (suffix == ".parquet" and not packed):
        return suffix
    raise SettingError("file", f"{path} is of no known kind")


def _records(
    path: Path, names: Mapping[str, str], rule: TermRule, columns: Mapping[str, str]
) -> Iterator[tuple[int, object]]:
    """(line or row from 1, record) of a file; what is no record comes as its bytes, which no parser accepts."""
    match _format(path):
        case ".csv":
            plain = ("id", "text", "terms", *rule.properties.names)
            return _csv_records(path, {names[field] for field in names if field not in plain}, columns)
        case ".parquet":
            return _parquet_rows(path, columns)
    return _json_lines(path)


def _json_lines(path: Path) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(content_of(path).split(b"\n"), 1):
        if line.strip(b" \t\r"):
            try:
                yield number, json.loads(line.decode())
            except (ValueError, RecursionError):
                yield number, line


def _check_columns(path: Path, header: Iterable[str | None], columns: Mapping[str, str]) -> None:
    missing = sorted(set(columns.values()) - set(header))
    if missing:
        raise SettingError("columns", f"{path} has no column {missing[0]!r}")


def _csv_records(path: Path, numbers: Container[str], columns: Mapping[str, str]) -> Iterator[tuple[int, object]]:
    """The records of a CSV file with a header; ``numbers`` are the columns that hold numbers."""
    header: list[str | None] | None = None
    for line, raw, cells in _csv_cells(content_of(path).decode(errors="surrogateescape")):
        if header is None:
            header = cells or []
            _check_columns(path, header, columns)
        elif cells is None or len(cells) != len(header) or not _is_text(raw):
            yield line, raw
        else:
            record = {name or "": cell for name, cell in zip(header, cells, strict=True)}
            yield line, {name: csv_number(cell) if name in numbers else cell for name, cell in record.items()}


def _csv_cells(text: str) -> Iterator[tuple[int, str, list[str | None] | None]]:
    """(first line, text, cells) of each record that is not blank; the cells are None if its quotes are misplaced."""
    begin, line = 0, 1
    while begin < len(text):
        cells, end = _csv_record(text, begin)
        raw = text[begin:end]
        if cells != [None]:
            yield line, raw, cells
        begin, line = end, line + raw.count("\n")


def _csv_record(text: str, at: int) -> tuple[list[str | None] | None, int]:
    """The cells of the record that begins at ``at``, and where the next one begins."""
    cells: list[str | None] = []
    proper = True
    while True:
        opening = at
        quoted = text.startswith('"', at)
        if quoted:
            at = _closing_quote(text, at + 1) + 1
        end = at
        while end < len(text) and text[end] not in ",\n":
            end += 1
        continues = text.startswith(",", end)
        cell = text[at:end] if continues else text[at:end].removesuffix("\r")
        if quoted:
            proper = proper and cell == "" and at <= len(text)
            cells.append(text[opening + 1 : at - 1].replace('""', '"'))
        else:
            cells.append(cell or None)
        at = end + 1
        if not continues:
            return cells if proper else None, at


def _closing_quote(text: str, at: int) -> int:
    """Where the quotes close that were opened before ``at``; the end of the text if they do not."""
    while True:
        at = text.find('"', at)
        if at < 0:
            return len(text)
        if not text.startswith('""', at):
            return at
        at += 2


def _is_text(raw: str) -> bool:
    try:
        raw.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_rows(path: Path, columns: Mapping[str, str]) -> Iterator[tuple[int, object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table: Any = pq.read_table(path)
    except pa.ArrowException as error:
        raise SettingError("file", f"{path} is not a Parquet file: {error}") from None
    _check_columns(path, table.column_names, columns)
    ids, times = columns.get("id", "id"), columns.get("t", "t")
    kinds = {name: table.schema.field(name).type for name in (ids, times) if name in table.column_names}
    exact, exact_time = (
        {pa.float16(): 2.0**11, pa.float32(): 2.0**24}.get(kinds.get(n), 2.0**53) for n in (ids, times)
    )
    for number, row in enumerate(table.to_pylist(), 1):
        record = {name: _plain(value) for name, value in row.items() if name != ids}
        t = record.get(times)
        if isinstance(t, float) and t.is_integer() and abs(t) < exact_time:
            record[times] = int(t)
        if isinstance(row.get(ids), float) and abs(row[ids]) >= exact:
            yield number, record  # without an id: digits may be lost
        else:
            yield number, record | ({ids: row[ids]} if ids in row else {})


def _plain(value: object) -> object:
    """A value of Parquet as JSON would have it."""
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def _some(lines: Sequence[str], at_most: int) -> Iterator[str]:
    yield from lines[:at_most]
    if len(lines) > at_most:
        yield f"... and {len(lines) - at_most} more"
