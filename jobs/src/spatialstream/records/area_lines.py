"""Queries in files that name areas: the polygons are put in their place before the files are read.

So the decoders, the checkpoint and the oracle see polygons only.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from spatialstream.model.areas import AreaTable, with_area
from spatialstream.model.errors import RecordError, SettingError

__all__ = ["lines_with_areas", "with_areas"]

_HASH = re.compile("-[0-9a-f]{16}$")
_NAMES_ONE = b'"area"'


def lines_with_areas(lines: Iterable[bytes], areas: Callable[[], AreaTable], source: str) -> Iterator[bytes]:
    """Lines of queries, of which those that name an area have its polygon; others are as they were.

    Args:
        lines: lines of JSON; what is none is left to the decoder.
        areas: called only if an area is named.
        source: of the lines, for errors.

    Raises:
        SettingError: there is no such area; names the line.
    """
    for number, line in enumerate(lines, 1):
        if _NAMES_ONE not in line:
            yield line
            continue
        try:
            given = json.loads(line)
        except (ValueError, RecursionError):
            yield line
            continue
        try:
            record = with_area(given, areas)
        except RecordError as error:
            raise SettingError(f"{source} line {number}", str(error)) from None
        yield line if record is given else json.dumps(record, ensure_ascii=False).encode(errors="replace") + b"\n"


def with_areas(path: Path, areas: Callable[[], AreaTable], folder: Path) -> Path:
    """A file of queries with the polygons of the areas that it names: itself if it names none, or else a copy.

    The copy has the lines of the file, and a name that its content determines.

    Args:
        path: JSON Lines, may be compressed (``.gz``).
        areas: called only if an area is named.
        folder: for the copy; it is created if needed.

    Raises:
        SettingError: the file cannot be read, or there is no such area; names the line.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = file.readlines()
        found = list(lines_with_areas(lines, areas, str(path)))
    except (OSError, EOFError) as error:
        raise SettingError("queries", f"{path} cannot be read: {error}") from None
    if found == lines:
        return path
    content = b"".join(found)
    folder.mkdir(parents=True, exist_ok=True)
    stem = _HASH.sub("", path.name.removesuffix(".gz").removesuffix(".jsonl"))
    copy = folder / f"{stem}-{hashlib.blake2b(content, digest_size=8).hexdigest()}.jsonl"
    copy.write_bytes(content)
    return copy
