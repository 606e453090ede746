"""Errors about columns that are not there: they list those that are, and suggest which could be meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from spatialstream.model.errors import SettingError
from spatialstream.model.space import Space
from spatialstream.records.layout import InputLayout
from spatialstream.records.reference import object_fields

__all__ = ["missing_column", "missing_property", "value_paths"]

_OFTEN = {
    "id": ("id", "identifier", "uuid", "key", "code", "event_id", "stop_id", "gbifid"),
    "t": ("t", "time", "timestamp", "datetime", "date", "created_at", "created", "updated", "eventdate"),
    "lon": ("lon", "lng", "long", "longitude", "decimallongitude", "stop_lon", "begin_lon", "x"),
    "lat": ("lat", "latitude", "decimallatitude", "stop_lat", "begin_lat", "y"),
    "x": ("x",),
    "y": ("y",),
    "text": ("text", "title", "name", "body", "description", "place", "summary", "stop_name", "species"),
}
"""Names that columns of a field often have. They are suggested in errors, and never read without being asked for."""
_SHOWN = 60


def missing_column(
    setting: str,
    field: str,
    column: str,
    there: Sequence[str],
    space: Space,
    columns: Mapping[str, str],
    layout: InputLayout,
) -> SettingError:
    """The error of a file that lacks the column of a field.

    Args:
        setting: what is wrong: the file.
        field: the field.
        column: its column.
        there: the columns that the file has.
        space: in which the objects lie.
        columns: those that are given.
        layout: how the file is laid out.
    """
    meant = "" if field == column else f" for {field}"
    near = get_close_matches(column, there, 1) if field in columns else []
    hint = f"did you mean {near[0]!r}?" if near else _suggestion(there, space, columns, layout)
    return SettingError(setting, f"has no column {column!r}{meant}; it has {_listed(there)}; {hint}")


def missing_property(name: str, column: str, there: Sequence[str]) -> str:
    """What is told of a declared property whose column no file has.

    Args:
        name: the property.
        column: its column.
        there: the columns that the files have.
    """
    meant = "" if name == column else f" for {name}"
    near = get_close_matches(column, there, 1)
    hint = f"did you mean --columns {name}={near[0]}?" if near else f"give --columns {name}=NAME"
    lost = f"so no object has the property {name}"
    return f"no file of objects has a column {column!r}{meant}, {lost}; the files have {_listed(there)}; {hint}"


def _listed(there: Sequence[str]) -> str:
    more = [f"and {len(there) - _SHOWN} more"] if len(there) > _SHOWN else []
    return ", ".join([*map(repr, there[:_SHOWN]), *more])


def _suggestion(there: Sequence[str], space: Space, columns: Mapping[str, str], layout: InputLayout) -> str:
    """A ``--columns`` for what is there: of each field the likeliest name, if one column alone has it."""
    guessed = dict(columns)
    last = {path: path.rpartition(".")[2].lower() for path in there}
    for field in object_fields(space)[:5]:
        known = field in space.axes and "geometry.coordinates" in there  # of a feature
        if known or field in columns or (field == "t" and layout.at is not None):
            continue
        found = next((paths for name in _OFTEN[field] if (paths := [p for p in there if last[p] == name])), [])
        if len(found) == 1 and found[0] != field:
            guessed[field] = found[0]
    timed = layout.at is not None or "t" in guessed or "t" in there
    at = "" if timed else ", and --at TIME if it has no times"
    given = ",".join(f"{field}={column}" for field, column in guessed.items())
    return f"maybe --columns {given}{at}" if guessed != dict(columns) else f"give --columns FIELD=NAME,...{at}"


def value_paths(value: object, prefix: str = "") -> list[str]:
    """The paths of all values in a record that are no objects."""
    if not isinstance(value, dict):
        return [prefix] if prefix else []
    return [each for name, part in value.items() for each in value_paths(part, f"{prefix}.{name}" if prefix else name)]
