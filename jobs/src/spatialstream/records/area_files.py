"""Files of areas: GeoJSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spatialstream.model.areas import AreaTable, read_areas
from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule

__all__ = ["areas_of_file", "read_geojson"]


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
    """The JSON of a file; ``-`` is the standard input.

    Raises:
        SettingError: it cannot be read, or is not JSON.
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else Path(file).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("areas", f"{file} cannot be read: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError("areas", f"{file} is not JSON: {error}") from None
