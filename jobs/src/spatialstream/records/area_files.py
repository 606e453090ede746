"""Files of areas: GeoJSON, or features, one a line (RFC 8142); ``.gz`` or ``.zst`` may have compressed them."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

from spatialstream.model.areas import AreaTable, read_areas
from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule

__all__ = ["areas_of_file", "read_geojson"]

_SEPARATOR = "\x1e"
"""Before each feature of a GeoJSON text sequence."""


def areas_of_file(file: Path | str, name_from: str | None, space: Space, rule: TermRule) -> AreaTable:
    """The areas of a GeoJSON file, see :func:`~spatialstream.model.areas.read_areas`.

    Raises:
        SettingError: the file cannot be read, or an area is invalid; names the feature.
    """
    try:
        return AreaTable(read_areas(read_geojson(file), name_from, space, rule))
    except RecordError as error:
        raise SettingError(f"areas {file}", str(error)) from None


def read_geojson(file: Path | str) -> Any:
    """The JSON of a file; ``-`` is the standard input. Features, one a line, are a FeatureCollection of them.

    Raises:
        SettingError: it cannot be read, or is not JSON.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else _content(str(file)).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SettingError("areas", f"{file} cannot be read: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.replace(_SEPARATOR, "").splitlines() if line.strip()]
        if len(lines) < 2 or not lines[0].rstrip().endswith("}"):
            raise SettingError("areas", f"{file} is not JSON: {error}") from None
    return {"type": "FeatureCollection", "features": [_line(file, *each) for each in enumerate(lines, 1)]}


def _line(file: Path | str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SettingError("areas", f"{file} line {number} is not JSON: {error}") from None


def _content(file: str) -> bytes:
    from spatialstream.records.foreign import open_input  # with pyarrow, which takes its time to load

    with open_input(file, file.rpartition(".")[2] if file.endswith((".gz", ".zst")) else None) as opened:
        return opened.read()
