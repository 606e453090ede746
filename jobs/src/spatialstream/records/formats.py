"""The format of an input file, by its name and its first bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from spatialstream.model.errors import SettingError
from spatialstream.records.columns import is_expression
from spatialstream.records.foreign import open_input
from spatialstream.records.layout import InputLayout
from spatialstream.records.reference import csv_cells

__all__ = ["Kind", "check_start", "foreign_form", "is_collection", "is_known", "own_format"]

Kind = Literal["objects", "queries"]
"""Kind of the records in a file."""

_OWN = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}
_FOREIGN = {
    ".geojson": "document",
    ".geojsonl": "lines",
    ".geojsons": "lines",
    ".geojsonseq": "lines",
    ".txt": "text",
    ".tsv": "text",
    ".psv": "text",
}
"""What files of objects hold that are read by :mod:`~spatialstream.records.foreign`, by the ends of their names."""
_KNOWN = ".jsonl, .ndjson, .json, .geojson, .geojsonl, .csv, .tsv, .txt (each also with .gz or .zst) and .parquet"
_KNOWN_QUERIES = ".jsonl, .ndjson and .json, each also with .gz"
_COLLECTION = re.compile(rb'"type"\s*:\s*"FeatureCollection"|"features"\s*:\s*\[')
_LONGEST_LINE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_UTF16 = b"\xff\xfe", b"\xfe\xff"


def own_format(path: Path, kind: Kind) -> tuple[str, bool]:
    """(``"jsonl"``, ``"csv"`` or ``"parquet"``; whether gzipped) of a file in one of our own layouts, by its name.

    Raises:
        SettingError: the name says none.
    """
    suffix = path.suffix.lower()
    compressed = suffix == ".gz"
    if compressed:
        suffix = Path(path.stem).suffix.lower()
    found = _OWN.get(suffix)
    if kind == "queries" and found not in (None, "jsonl"):
        raise SettingError(str(path), "holds queries, which are read from JSON Lines only (.jsonl, also with .gz)")
    if found is None or (compressed and found == "parquet"):
        known = _KNOWN_QUERIES if kind == "queries" else _KNOWN
        raise SettingError(str(path), f"has an unknown format; the name must end in {known}")
    return found, compressed


def check_start(source: str, kind: str, compressed: bool) -> None:
    """Refuse a file whose first bytes contradict its name.

    Raises:
        SettingError: they do.
    """
    with Path(source).open("rb") as file:
        start = file.read(len(_PARQUET))
    if compressed and start and not start.startswith(_GZIP):
        raise SettingError(source, "is not a gzipped file; take the .gz off its name")
    if not compressed and start.startswith(_GZIP):
        raise SettingError(source, "is a gzipped file; put .gz at the end of its name")
    if kind != "parquet" and start == _PARQUET:
        raise SettingError(source, "is a Parquet file; its name must end in .parquet")
    if start.startswith(_UTF16):
        raise SettingError(source, "is text in UTF-16; save it as UTF-8")


def foreign_form(source: str, columns: Mapping[str, str], layout: InputLayout) -> tuple[str, str | None] | None:
    """(what it holds, compression) of a file of objects that is in another layout than ours; None of the others.

    Args:
        source: the file.
        columns: our field -> the expression of its column.
        layout: the layout that the user gives.

    Raises:
        SettingError: its first bytes contradict its name.
    """
    path = Path(source)
    suffix = path.suffix.lower()
    compression = suffix[1:] if suffix in (".gz", ".zst") else None
    suffix = Path(path.stem).suffix.lower() if compression else suffix
    own_form = _OWN.get(suffix)
    if own_form == "parquet" or (own_form is None and suffix not in _FOREIGN):
        return None
    check_start(source, "", compression == "gz")
    with open_input(source, compression) as file:
        start = file.readline(_LONGEST_LINE).removeprefix(_BOM)
    form = _FOREIGN.get(suffix) or ("text" if own_form == "csv" else "lines")
    if own_form == "csv":
        own = _is_own_header(start, columns)
    elif form == "text":
        own = False
    else:
        form, own = _json_form(start, form, suffix)
        own = own and own_form is not None and not any(map(is_expression, columns.values()))
    return None if own and layout.plain and compression != "zst" else (form, compression)


def _is_own_header(line: bytes, columns: Mapping[str, str]) -> bool:
    """Whether a header is of CSV with commas, and names all columns that are more than names."""
    cells = csv_cells(line.decode(errors="replace").rstrip("\r\n")) or []
    others = len(cells) == 1 and any(mark in (cells[0] or "") for mark in ";\t|")
    return not others and all(name in cells for name in columns.values() if is_expression(name))


def _json_form(line: bytes, form: str, suffix: str) -> tuple[str, bool]:
    """(what a file of JSON holds, whether that may be our own lines of objects), by its first line."""
    text = line.strip()
    if text.startswith(b"\x1e"):
        return "lines", False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.get("type") == "Feature" and "geometry" in value:
        return "lines", False
    if suffix in (".json", ".geojson"):
        whole = text.startswith(b"[") or text == b"{" or is_collection(text)
        if whole or (form == "document" and value is None):
            return "document", False
    return "lines", True


def is_collection(start: bytes) -> bool:
    """Whether JSON that begins so is an object with features."""
    return _COLLECTION.search(start) is not None


def is_known(path: Path) -> bool:
    """Whether the name of a file ends as one of objects does."""
    suffix = path.suffix.lower()
    inner = Path(path.stem).suffix.lower() if suffix in (".gz", ".zst") else suffix
    return inner in _FOREIGN or (inner in _OWN and (inner == suffix or inner != ".parquet"))
