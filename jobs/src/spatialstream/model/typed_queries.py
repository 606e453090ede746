"""The types of query, and regions, as frozen dataclasses: the form in which Python programs write queries.

Each class has the fields that its type takes, named as in the JSON form, and is checked when it is made: by
:func:`~spatialstream.model.queries.parse_query` itself, so its rules and error texts are those of the JSON form. What
depends on a stream (the bounds of its space, its term rule) is checked when the query is used there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol

import numpy as np

from spatialstream.model.properties.condition import text_of
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.properties.declared import ANY_PROPERTIES
from spatialstream.model.queries import parse_query
from spatialstream.model.regions import check_area_name, parse_region
from spatialstream.model.space import LARGEST, Space
from spatialstream.model.terms import ANY_WORDS

__all__ = [
    "CBQ",
    "CKQ",
    "CRQ",
    "CTQ",
    "SBQ",
    "SKQ",
    "SRQ",
    "STQ",
    "Area",
    "Box",
    "Cancel",
    "Circle",
    "ContinuousQuery",
    "Geometry",
    "Polygon",
    "SnapshotQuery",
    "TypedQuery",
    "as_record",
    "as_region",
]

_ANYWHERE = Space(True, -LARGEST, -LARGEST, LARGEST, LARGEST)
"""Contains the points of all spaces, and boxes across the antimeridian."""
_SOMEWHERE = {"box": [0, 0, 0, 0]}
"""In place of an area that has not been looked up."""
_SEQUENCES = ("at", "keywords", "any", "none", "words", "between", "fields")
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Box:
    """A closed box. In WGS84 ``west > east`` crosses the antimeridian.

    Raises:
        RecordError: a number is not finite, or ``south > north``.
    """

    west: float
    south: float
    east: float
    north: float

    def __post_init__(self) -> None:
        parse_region(self.to_record(), _ANYWHERE)

    def to_record(self) -> dict[str, Any]:
        """The JSON form: ``{"box": [west, south, east, north]}``."""
        return {"box": [_plain(each) for each in (self.west, self.south, self.east, self.north)]}


@dataclass(frozen=True, slots=True)
class Circle:
    """A closed circle around (x, y), longitude and latitude in WGS84; the radius is in metres or planar units.

    Raises:
        RecordError: a number is not finite, or the radius is negative.
    """

    x: float
    y: float
    radius: float

    def __post_init__(self) -> None:
        parse_region(self.to_record(), _ANYWHERE)

    def to_record(self) -> dict[str, Any]:
        """The JSON form: ``{"circle": [x, y, radius]}``."""
        return {"circle": [_plain(each) for each in (self.x, self.y, self.radius)]}


class Geometry(Protocol):
    """What says which GeoJSON it is, such as geometries of shapely and rows of geopandas."""

    @property
    def __geo_interface__(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Polygon:
    """A union of polygons with holes, whose edges are straight in longitude and latitude; borders belong to it.

    Attributes:
        geometry: a GeoJSON Polygon, MultiPolygon, or Feature of one of them: as a dictionary, or what has a
            ``__geo_interface__``, such as a geometry of shapely.

    Raises:
        RecordError: it is something else, or a ring has fewer than three distinct points, is not closed, or crosses or
            touches itself; names the place.
    """

    geometry: Mapping[str, Any] | Geometry = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "geometry", _geojson(self.geometry))
        parse_region(self.to_record(), _ANYWHERE, "region", ANY_WORDS.polygon_vertices)

    def to_record(self) -> dict[str, Any]:
        """The JSON form: ``{"polygon": {"type": "Polygon", "coordinates": [...]}}``."""
        return {"polygon": self.geometry}


@dataclass(frozen=True, slots=True)
class Area:
    """An area that the stream knows by name; it is looked up where a query of it is registered or asked.

    Raises:
        RecordError: it is no name.
    """

    name: str

    def __post_init__(self) -> None:
        check_area_name(self.name, "region.area")

    def to_record(self) -> dict[str, Any]:
        """The JSON form: ``{"area": name}``."""
        return {"area": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedQuery:
    """What all queries, and cancellations, have in common.

    Attributes:
        id: the query's id; None: it gets one where it is asked or registered (a run requires one).
        t: time of issue: ms, text in ISO 8601, or a datetime, which is UTC unless it has a zone; None: the stream's
            clock then (a run requires a time).

    Raises:
        RecordError: a field is unusable; the text is that of the same mistake in the JSON form.
    """

    _type: ClassVar[str]
    _assumed: ClassVar[Mapping[str, Any]] = {"id": "q"}
    """Fields that may be added later, as they are checked until then."""
    _names: ClassVar[Mapping[str, str]] = {}
    """Names in the JSON form of fields that have another one here."""

    id: str | int | None = None
    t: int | str | datetime | None = None

    def __post_init__(self) -> None:
        for name in _SEQUENCES:
            if isinstance(given := getattr(self, name, None), list | np.ndarray):
                object.__setattr__(self, name, _frozen(given))
        if isinstance(weights := getattr(self, "weights", None), dict):
            object.__setattr__(self, "weights", _Weights(weights))
        region: Any = getattr(self, "region", None)
        if hasattr(region, "__geo_interface__"):
            object.__setattr__(self, "region", Polygon(region))
        if isinstance(where := getattr(self, "where", None), Mapping):  # as text, so that a query is a value
            object.__setattr__(self, "where", text_of(parse_where(where, ANY_PROPERTIES)))
        record = {**self._assumed, **self.to_record()}
        if isinstance(getattr(self, "region", None), Area):
            record["region"] = _SOMEWHERE
        parse_query(record, _ANYWHERE, ANY_WORDS, timed=False)

    def to_record(self) -> dict[str, Any]:
        """The JSON form: the fields that are given, and the type."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("keywords", "none"):  # without conditions they are absent; ``any`` without groups is an error
            given[name] = given.get(name) or None
        named = ((self._names.get(name, name), each) for name, each in given.items())
        return {"type": self._type} | {name: _plain(each) for name, each in named if each is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worded(TypedQuery):
    """A query with conditions on the text.

    Attributes:
        keywords: terms that an object must have.
        any: groups of terms, of one of which it must have all; not together with ``keywords``.
        none: terms that it must not have.
    """

    keywords: Sequence[str] = ()
    any: Sequence[Sequence[str]] | None = None
    none: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotQuery(_Worded):
    """A query that is answered once: :class:`SRQ`, :class:`SKQ`, :class:`STQ` or :class:`SBQ`.

    Attributes:
        where: a condition on the objects' properties, in CQL2 text or CQL2 JSON, which becomes text.
    """

    where: str | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LookingBack(SnapshotQuery):
    """A snapshot query that says how far it looks back.

    Attributes:
        duration: τ; objects of (t-τ, t] are considered: ms, text such as ``"1h"``, or a timedelta.
    """

    duration: int | str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousQuery(_Worded):
    """A query that stays registered: :class:`CRQ`, :class:`CKQ` or :class:`CTQ`.

    Attributes:
        duration: τ; the query is active in [t, t+τ): ms, text, or a timedelta; None: until it is cancelled.
        by: who registers it; None: it is not said.
        where: a condition on the objects' properties, in CQL2 text or CQL2 JSON, which becomes text.
    """

    duration: int | str | timedelta | None = None
    by: str | None = None
    where: str | Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SRQ(_LookingBack):
    """Snapshot range-keyword query: all matching objects in a region.

    Attributes:
        region: the region.
        fields: which of the fields that the stream keeps rows show of an object; None: all.
    """

    _type: ClassVar[str] = "SRQ"

    region: Box | Circle | Polygon | Area | Geometry
    fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SKQ(_LookingBack):
    """Snapshot k-nearest query: the k matching objects nearest to the point ``at``.

    Attributes:
        at: the point.
        k: number of objects.
        fields: which of the fields that the stream keeps rows show of an object; None: all.
    """

    _type: ClassVar[str] = "SKQ"

    at: Sequence[float]
    k: int
    fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class STQ(_LookingBack):
    """Snapshot top-k-terms query: the k terms of most matching objects in a region."""

    _type: ClassVar[str] = "STQ"

    region: Box | Circle | Polygon | Area | Geometry
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SBQ(SnapshotQuery):
    """Snapshot best query: the k objects with the least scores by place, text and time, near the point ``at``.

    Only in a stream that counts words (``ranking``).

    Attributes:
        at: the point.
        k: number of objects.
        words: by which it ranks; an object has to have one of them.
        radius: of the search disk, in metres or planar units; it grows to 2, 3, ... times that until it has k objects.
        half_life: time in which the text comes to matter half as much: ms, text, or a timedelta; or ``between``.
        between: first and last time of the objects, which then rank by their place in between.
        weights: ``{"space": α}``, or with ``between`` that of space, time and text.
        expansions: greatest multiple of the radius.
        weighting: ``"static"``: all words of an object weigh alike.
        duration: τ; None: all objects that are kept are considered.
        fields: which of the fields that the stream keeps rows show of an object; None: all.
    """

    _type: ClassVar[str] = "SBQ"
    _names: ClassVar[Mapping[str, str]] = {"half_life": "halfLife"}

    at: Sequence[float]
    k: int
    words: Sequence[str]
    radius: float
    half_life: int | str | timedelta | None = None
    between: Sequence[int | str | datetime] | None = None
    weights: Mapping[str, float] | None = None
    expansions: int | None = None
    weighting: str | None = None
    duration: int | str | timedelta | None = None
    fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CRQ(ContinuousQuery):
    """Continuous range-keyword query: each matching object in a region, as it arrives.

    Attributes:
        region: the region.
        fields: which of the fields that the stream keeps rows show of an object; None: all.
    """

    _type: ClassVar[str] = "CRQ"

    region: Box | Circle | Polygon | Area | Geometry
    fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CKQ(ContinuousQuery):
    """Continuous k-nearest query: the k matching objects nearest to ``at``, at each change.

    Attributes:
        window: for how long an object counts; None: until the query ends.
        fields: which of the fields that the stream keeps rows show of an object; None: all.
    """

    _type: ClassVar[str] = "CKQ"

    at: Sequence[float]
    k: int
    window: int | str | timedelta | None = None
    fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CTQ(ContinuousQuery):
    """Continuous top-k-terms query: the k terms of most matching objects in a region, at each step.

    Attributes:
        window: for how long an object counts.
        step: interval between two rows.
    """

    _type: ClassVar[str] = "CTQ"

    region: Box | Circle | Polygon | Area | Geometry
    k: int
    window: int | str | timedelta
    step: int | str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CBQ(ContinuousQuery):
    """Continuous best query: the k best objects by place, text and time, near the point ``at``, at each change.

    Only in a stream that counts words (``ranking``).

    Attributes:
        at: the point.
        k: number of objects.
        words: by which it ranks; an object has to have one of them.
        radius: of the disk, in metres or planar units.
        half_life: time in which an object loses half of its weight: ms, text, or a timedelta.
        weights: ``{"space": α}``.
        window: for how long an object counts; None: until the query ends.
        duration: τ, at most 65,536 half-lives; None: 65,536 of them, of at least an hour each.
        fields: which of the fields that the stream keeps rows show of an object; None: all.
    """

    _type: ClassVar[str] = "CBQ"
    _names: ClassVar[Mapping[str, str]] = {"half_life": "halfLife"}

    at: Sequence[float]
    k: int
    words: Sequence[str]
    radius: float
    half_life: int | str | timedelta
    weights: Mapping[str, float] | None = None
    window: int | str | timedelta | None = None
    fields: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel(TypedQuery):
    """The end of the continuous query of an id, among the queries of a run; a running stream has ``cancel``."""

    _type: ClassVar[str] = "CANCEL"
    _assumed: ClassVar[Mapping[str, Any]] = {}


class _Weights(dict[str, float]):
    """Weights of a query, which is a value: it can be hashed, and so can what it has."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def as_record(query: TypedQuery | Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON form of a query; what is not one of the classes here is returned as it is, but for a region that is."""
    if isinstance(query, TypedQuery):
        return query.to_record()
    given: Any = query  # which may be anything, and is told where records are checked
    if isinstance(given, Mapping) and (plain := as_region(given.get("region"))) is not given.get("region"):
        return {**given, "region": plain}
    return query


def as_region(region: Any) -> Any:
    """The JSON form of a region of the classes here, or of what has a ``__geo_interface__``; all else as it is.

    Raises:
        RecordError: it has a geometry that is no polygon, or not a valid one.
    """
    if isinstance(region, Box | Circle | Polygon | Area):
        return region.to_record()
    return Polygon(region).to_record() if hasattr(region, "__geo_interface__") else region


def _frozen(value: Any) -> Any:
    """Lists as tuples, at all depths."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple | np.ndarray) else value


def _plain(value: Any) -> Any:
    """A value of a field as JSON has it."""
    match value:
        case Box() | Circle() | Polygon() | Area():
            return value.to_record()
        case tuple() | list():
            return [_plain(each) for each in value]
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case datetime():
            return value.isoformat()
        case timedelta():
            return value // _MILLISECOND
        case np.generic():
            return value.item()
    return value


def _geojson(given: Any) -> Any:
    """A geometry or feature as plain JSON, of a feature without its properties; what is neither is left as it is."""
    if hasattr(given, "__geo_interface__"):
        given = given.__geo_interface__
    if not isinstance(given, Mapping):
        return given
    result = {name: given[name] for name in ("type", "crs") if name in given}
    if "geometry" in given:
        return result | {"geometry": _geojson(given["geometry"])}
    return result | ({"coordinates": _plain_numbers(given["coordinates"])} if "coordinates" in given else {})


def _plain_numbers(value: Any) -> Any:
    """Numbers in lists, at all depths."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain_numbers(each) for each in value] if isinstance(value, list | tuple) else _plain(value)
