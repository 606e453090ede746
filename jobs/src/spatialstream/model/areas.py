"""Areas: polygons that a stream knows by name, such as the districts of a city.

A query may give ``{"area": name}`` as its region. The name is looked up once, where the query is registered or asked:
from then on the query has the polygon itself, with the name beside it (:meth:`Polygon.to_region
<spatialstream.model.polygons.polygon.Polygon.to_region>`), so that what it answers does not depend on what becomes of
the area. A query that has another geometry than its area has now is *outdated*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.queries import Cancellation
from spatialstream.model.regions import check_area_name, parse_region
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import ANY_WORDS, DEFAULT_RULE, TermRule

__all__ = ["RESOURCE", "Area", "AreaTable", "GeometryState", "asked_area", "read_areas", "renewed", "with_area"]

RESOURCE = "sa/"
"""What the owner of an area begins with if a SpatialArea keeps it; its namespace and name follow."""

_SHOWN = 5
_UNSAID = object()


@dataclass(frozen=True, slots=True)
class Area:
    """A polygon with a name.

    Attributes:
        name: its name.
        polygon: its geometry; two areas may have the same.
        revision: grows whenever the geometry changes; -1 for one that is not kept anywhere.
        by: who keeps it: a caller of the gateway, or a resource, ``sa/NAMESPACE/NAME``; empty: not known.
    """

    name: str
    polygon: Polygon
    revision: int = -1
    by: str = ""

    def to_region(self) -> dict[str, Any]:
        """The region of a query of this area: the polygon, and the name."""
        return replace(self.polygon, area=self.name).to_region()

    def to_record(self) -> dict[str, Any]:
        """What there is to say of it beside its geometry, as JSON values."""
        return {
            "name": self.name,
            "revision": self.revision,
            "digest": self.polygon.digest,
            "vertices": len(self.polygon),
            "box": list(self.polygon.box),
        } | ({"by": self.by} if self.by else {})

    def to_feature(self) -> dict[str, Any]:
        """A GeoJSON Feature: its id is the name, and its properties are :meth:`to_record`."""
        return {
            "type": "Feature",
            "id": self.name,
            "geometry": self.polygon.to_geojson(),
            "properties": self.to_record(),
        }


class GeometryState(Enum):
    """Whether a query has the geometry that its area has now."""

    CURRENT = "current"
    OUTDATED = "outdated"
    """The area has another geometry now."""
    DELETED = "deleted"
    """There is no such area any more."""


class AreaTable:
    """Areas by name.

    Args:
        areas: of several with one name the last counts.
        unusable: names of areas whose geometry cannot be used, and why.
    """

    def __init__(self, areas: Iterable[Area] = (), unusable: Mapping[str, str] | None = None) -> None:
        self._areas = {each.name: each for each in areas}
        self.unusable = dict(unusable or {})

    @cached_property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._areas)

    def __len__(self) -> int:
        return len(self._areas)

    def __contains__(self, name: object) -> bool:
        return name in self._areas

    def __iter__(self) -> Any:
        """The areas, by name."""
        return (self._areas[name] for name in self.names)

    def get(self, name: str) -> Area | None:
        """The area of a name; None if there is none."""
        return self._areas.get(name)

    def find(self, name: str, field: str = "area") -> Area:
        """The area of a name.

        Raises:
            RecordError: there is none; the message has the nearest names, or those that there are.
        """
        area = self._areas.get(name)
        if area is not None:
            return area
        if name in self.unusable:
            raise RecordError(field, f"{name!r} has no usable geometry: {self.unusable[name]}")
        raise RecordError(field, f"{name!r} is not an area of the stream; {self._meant(name)}")

    def conflict(self, names: Iterable[str], by: str) -> str:
        """Why somebody may not write or delete the areas of these names; empty if they may.

        What a resource keeps is its own, because it would write it again; and a resource does not take over what
        somebody else has loaded.

        Args:
            names: of areas, which need not exist.
            by: who would write them; empty: not known.
        """
        for name in names:
            area = self._areas.get(name)
            if area is None or area.by == by:
                continue
            if area.by.startswith(RESOURCE):
                return f"{name!r} is kept by the SpatialArea {area.by.removeprefix(RESOURCE)}; change that resource"
            if by.startswith(RESOURCE):
                who = f"{area.by} has" if area.by else "somebody has"
                return f"{name!r} is an area that {who} loaded; delete it there, or give another name"
        return ""

    def _meant(self, name: str) -> str:
        by_folded = {each.casefold(): each for each in self._areas}
        near = [by_folded[each] for each in get_close_matches(name.casefold(), by_folded, 3)]
        if near:
            return f"did you mean {' or '.join(near)}?"
        if not self._areas:
            return "it has none; load some first"
        more = f" and {len(self) - _SHOWN} more" if len(self) > _SHOWN else ""
        return f"its areas are {', '.join(self.names[:_SHOWN])}{more}"

    def geometry_state(self, record: Mapping[str, Any], space: Space) -> tuple[str, GeometryState] | None:
        """The area of a registered query, and whether its geometry is that of the area; None if it is of no area."""
        region = record.get("region")
        if not isinstance(region, Mapping) or "area" not in region:
            return None
        polygon = parse_region(region, space, "region", ANY_WORDS.polygon_vertices)
        assert isinstance(polygon, Polygon)
        area = self._areas.get(polygon.area)
        if area is None:
            return polygon.area, GeometryState.DELETED
        return area.name, GeometryState.CURRENT if area.polygon == polygon else GeometryState.OUTDATED


def asked_area(record: object) -> str | None:
    """The name of the area that a query gives as its region, and that is to be looked up; None if it gives none.

    Raises:
        RecordError: it gives one that is no name.
    """
    region = record.get("region") if isinstance(record, Mapping) else None
    if not isinstance(region, Mapping) or region.keys() != {"area"}:
        return None
    return check_area_name(region["area"], "region.area")


def with_area(record: Any, areas: Callable[[], AreaTable]) -> Any:
    """The record of a query with the polygon of the area that it names; any other record is returned as it is.

    Args:
        record: of a query, which need not be valid otherwise.
        areas: called only if an area is named.

    Raises:
        RecordError: there is no such area.
    """
    name = asked_area(record)
    return record if name is None else {**record, "region": areas().find(name, "region.area").to_region()}


def renewed(record: Mapping[str, Any], area: Area, now: int) -> list[dict[str, Any]]:
    """The records that give a registered continuous query of an area its present geometry: its end, and its beginning.

    Both have the time ``now``, so that each object is matched by one of the two. The query ends when it would have.

    Args:
        record: the registered query.
        area: its area as it is now.
        now: ms, not before the query's time.
    """
    query = {**record, "t": now, "region": area.to_region()}
    if "duration" in record:
        query["duration"] = record["t"] + record["duration"] - now
    return [Cancellation(record["id"], now).to_record(), query]


# ------------------------------------------------------------------------------------------------------------- reading


def read_areas(
    value: object,
    name_from: str | None = None,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    name: str | None = None,
) -> list[Area]:
    """Read areas from GeoJSON: a FeatureCollection, a Feature, a Polygon or a MultiPolygon.

    Args:
        value: the parsed JSON.
        name_from: the property that has a feature's name, or ``id``, which may be the feature's own; None: its own id.
        space: of the stream.
        rule: of the stream: how many vertices a polygon may have.
        name: of the only area; then the features need none.

    Raises:
        RecordError: it is something else, a feature has no name or the name of another one, or its geometry is not a
            valid polygon; names the feature and the place.
    """
    from spatialstream.model.polygons.geojson import parse_polygon  # with shapely, which not every reader has

    features = _features(value)
    if name is not None and len(features) != 1:
        raise RecordError("name", f"is given for one area, and there are {len(features)} features; leave it out")
    by_name: dict[str, tuple[str, Area]] = {}
    for place, feature in features:
        called = check_area_name(name, "name") if name is not None else _name_of(feature, place, name_from)
        if called in by_name:
            raise RecordError(place, f"has the name {called!r}, as {by_name[called][0]} has; an area has one geometry")
        try:
            polygon = parse_polygon(feature, space, "geometry", rule.polygon_vertices)
        except RecordError as error:
            where = error.field.removeprefix("geometry.geometry").removeprefix("geometry").removeprefix(".")
            raise RecordError(f"{place} ({called})", f"{where}: {error.problem}" if where else error.problem) from None
        by_name[called] = place, Area(called, polygon)
    return [area for _, area in by_name.values()]


def _features(value: object) -> Sequence[tuple[str, Any]]:
    """The features of a GeoJSON value, or its only one, each with its place."""
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise RecordError("geojson", "must be a GeoJSON FeatureCollection, Feature, Polygon or MultiPolygon")
    if value["type"] != "FeatureCollection":
        return [("feature 1", value)]
    features = value.get("features")
    if not isinstance(features, list) or not features:
        raise RecordError("features", "must be a list of features, at least one")
    if "crs" in value:  # of all of them, in GeoJSON before RFC 7946
        features = [{"crs": value["crs"], **each} if isinstance(each, Mapping) else each for each in features]
    for number, feature in enumerate(features, 1):
        if not isinstance(feature, Mapping) or feature.get("type") != "Feature":
            raise RecordError(f"feature {number}", "is not a GeoJSON Feature")
    return [(f"feature {number}", feature) for number, feature in enumerate(features, 1)]


def _name_of(feature: Mapping[str, Any], place: str, name_from: str | None) -> str:
    properties = feature.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    property_name = "id" if name_from is None else name_from
    value = _UNSAID if name_from is None else properties.get(property_name, _UNSAID)
    if value is _UNSAID and property_name == "id":
        value = feature.get("id", _UNSAID)
    if value is _UNSAID:
        texts = [name for name, said in properties.items() if isinstance(said, str | int) and said not in (True, False)]
        has = f"its properties are {', '.join(texts)}" if texts else "it has no property that could be one"
        problem = (
            "has no id; say which property has the name" if name_from is None else f"has no property {property_name!r}"
        )
        raise RecordError(place, f"{problem}: {has}")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    elif isinstance(value, str):
        value = value.strip(" ")  # as tables pad their columns
    return check_area_name(value, f"{place}, {property_name}")
