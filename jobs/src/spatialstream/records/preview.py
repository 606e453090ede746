"""A look at the first objects of a file, as they would be read, and at what is not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from spatialstream.model.objects import SpatialObject
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records.columns import columns_of
from spatialstream.records.delimited import DelimitedRecords
from spatialstream.records.files import Chunk, decode_chunk, plan
from spatialstream.records.foreign import open_input, records_of
from spatialstream.records.geojson import is_feature
from spatialstream.records.layout import InputLayout

__all__ = ["Preview", "preview"]

_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_FORMS = {"jsonl": "JSON Lines", "csv": "CSV", "parquet": "Parquet", "lines": "JSON, a record a line"}


@dataclass(frozen=True, slots=True)
class Preview:
    """The first records of a file.

    Attributes:
        source: the file.
        form: its format, in words.
        guesses: what was not said and is guessed, in words.
        columns: where each field is read from; of those that are.
        objects: the first objects, as JSON values, with their properties; their words in place of the text.
        read: number of records that were looked at.
        refused: (line, reason) of those that are refused.
        unused: columns that are not read, of those that occur.
    """

    source: str
    form: str
    guesses: tuple[str, ...]
    columns: Mapping[str, str]
    objects: tuple[dict[str, Any], ...]
    read: int
    refused: tuple[tuple[int, str], ...]
    unused: tuple[str, ...]


def preview(
    path: Path,
    columns: Mapping[str, str] | None = None,
    layout: InputLayout | None = None,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    unit: str | None = None,
    most: int = 3,
) -> Preview:
    """Look at the first block of a file of objects.

    Args:
        path: the file.
        columns: our field -> the expression of its column.
        layout: how its records are laid out.
        space: in which the objects lie.
        rule: which terms count.
        unit: of times that are numbers; None: not said, so ms.
        most: objects to show.

    Raises:
        SettingError: the file cannot be read, or lacks a column.
    """
    columns, layout = columns or {}, layout or InputLayout()
    chunks = plan([path], columns, space=space, layout=layout)
    if not chunks:
        return Preview(str(path), "empty", (), {}, (), 0, (), ())
    chunk = chunks[0]
    form, guesses, feature = _described(chunk, layout)
    decoded = next(decode_chunk(chunk, "objects", space, rule, columns, unit or "ms"), None)
    if decoded is None:
        return Preview(str(path), form, guesses, {}, (), 0, (), ())
    batch, refused = decoded.batch, decoded.rejected.to_pylist()
    if unit is None and len(batch) and layout.at is None:
        guesses = (*guesses, "times that are numbers are milliseconds")
    return Preview(
        str(path),
        form,
        guesses,
        _read_from(columns, layout, space, rule, feature=feature),
        tuple(_shown(batch[i], space, rule.properties) for i in range(min(most, len(batch)))),
        len(batch) + len(refused),
        tuple((each["line"], each["reason"]) for each in refused),
        tuple(name for name in decoded.unknown if name),
    )


def _described(chunk: Chunk, layout: InputLayout) -> tuple[str, tuple[str, ...], bool]:
    """(format, guesses, whether the first record is a feature)."""
    if chunk.layout is None or chunk.format == "parquet":
        return _FORMS[chunk.format], (), False
    with open_input(chunk.source, chunk.compression) as file:
        if chunk.format != "text":
            first = next((value for _, value, _ in islice(records_of(file, chunk.format, layout), 1)), None)
            kind = "GeoJSON" if is_feature(first) else "JSON"
            return kind + (", a record a line" if chunk.format == "lines" else ""), (), is_feature(first)
        records = DelimitedRecords(file, layout)
    guesses = [
        *([f"{_MARKS[records.separator]} separate the columns"] if layout.separator is None else []),
        *(["the first line names the columns"] if layout.header else []),
        *([f"quotes {'enclose cells' if records.quoted else 'are plain characters'}"] if layout.quotes is None else []),
    ]
    header = f"{len(records.header)} columns, " + ("with" if layout.header else "without") + " a header"
    return f"text with {header}", tuple(guesses), False


def _read_from(
    columns: Mapping[str, str], layout: InputLayout, space: Space, rule: TermRule, *, feature: bool
) -> dict[str, str]:
    given = {field: column for field, column in columns_of(space, columns, rule).items() if field != "terms"}
    if feature:
        own = {axis: f"geometry.coordinates[{i}]" for i, axis in enumerate(space.axes)} | {"id": "id"}
        given = {field: columns.get(field) or own.get(field, f"properties.{field}") for field in given}
    return given if layout.at is None else given | {"t": "--at"}


def _shown(each: SpatialObject, space: Space, properties: Properties) -> dict[str, Any]:
    place = dict(zip(space.axes, (each.x, each.y), strict=True))
    said = {name: _moment(int(value)) if name in properties.times else value for name, value in each.properties}
    return {"id": each.id, "t": _moment(each.t), **place, "terms": list(each.said), **said}


def _moment(t: int) -> str | int:
    """A time as RFC 3339, or in ms where that has no form."""
    try:
        return datetime.fromtimestamp(t / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return t
