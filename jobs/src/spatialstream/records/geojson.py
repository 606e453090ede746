"""GeoJSON (RFC 7946): what a feature says of an object.

Longitude and latitude are those of its geometry, which must be a point; ``id`` is its own or, where it has none, its
property ``id``; ``t``, ``text`` and ``terms`` are properties of these names. Columns that are given come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spatialstream.model.errors import RecordError
from spatialstream.model.space import Space
from spatialstream.records.columns import lookup, value_of

__all__ = ["check_geometry", "field_value", "is_feature", "member_names"]

_MEMBERS = {"type", "geometry", "id", "properties", "bbox"}


def is_feature(record: object) -> bool:
    """Whether a record is a feature."""
    return isinstance(record, dict) and record.get("type") == "Feature" and "geometry" in record


def field_value(record: object, field: str, columns: Mapping[str, str], space: Space) -> tuple[bool, object]:
    """(whether it is there, the value) of a field of an object in a record, whether or not that is a feature.

    Args:
        record: the record.
        field: the field.
        columns: those that are given; other fields have columns of their own names.
        space: in which the object lies.

    Raises:
        RecordError: a part of a time has no value.
    """
    if field in columns or not is_feature(record):
        return value_of(record, field, columns.get(field, field))
    if field in space.axes:
        return True, lookup(record, f"geometry.coordinates[{space.axes.index(field)}]")[1]
    if field == "id":
        found, value = lookup(record, "id")
        return (found, value) if value is not None else lookup(record, "properties.id")
    return lookup(lookup(record, "properties")[1], field)


def check_geometry(record: object, columns: Mapping[str, str], space: Space) -> None:
    """Refuse a feature that is no point, if its coordinates would be read.

    Raises:
        RecordError: it is none.
    """
    if not is_feature(record) or all(axis in columns for axis in space.axes):
        return
    kind = lookup(record, "geometry.type")[1]
    if kind != "Point":
        raise RecordError("geometry", f"is {'null' if kind is None else kind}; an object has a Point")


def member_names(record: object) -> Iterator[str]:
    """The names under which a record has values: of a feature, those of its properties."""
    if not isinstance(record, dict):
        return
    if not is_feature(record):
        yield from record
        return
    properties = record.get("properties")
    yield from (f"properties.{name}" for name in properties) if isinstance(properties, dict) else ()
    yield from (name for name in record if name not in _MEMBERS)
