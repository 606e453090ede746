"""Reading polygons from GeoJSON (RFC 7946): Polygon, MultiPolygon, or a Feature of one of them; lines with a margin.

This happens once, where a geometry enters. What no point could be tested against is refused with the place. Crossings
are found by GEOS (shapely), which is used for nothing else.

Many queries may have the same polygon: the latest that were read are kept, by their bytes, so that a repeated one costs
a comparison (:func:`known_polygon`).
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import shapely

from spatialstream.model.arrays import Floats
from spatialstream.model.errors import RecordError
from spatialstream.model.polygons.polygon import Polygon, without_repetition
from spatialstream.model.space import LARGEST, Space, check_number
from spatialstream.model.terms import POLYGON_VERTICES

__all__ = ["TURNS", "known_polygon", "parse_polygon"]

TURNS = 3.0
"""The largest longitude of a vertex, as a multiple of the space's: a polygon across the antimeridian may go on there.

So it is 540 degrees in magnitude."""

_KEPT = 512
"""How many of the latest polygons are kept."""

_LONGEST_KEPT = 1 << 16
"""Polygons of more bytes are not kept."""

_KINDS = ("Polygon", "MultiPolygon", "LineString", "MultiLineString", "Point", "MultiPoint")
"""Geometries; all but the first two have no inside, and need a margin."""

_FORM = "must be a GeoJSON Polygon, MultiPolygon, or Feature of one of them"
_PLACE = re.compile(r"(?P<reason>[^[]*)\[(?P<x>\S+) (?P<y>\S+)\]")
_PROBLEMS = {
    "Self-intersection": "has rings that cross or share an edge",
    "Hole lies outside shell": "has a hole that is not in the first ring",
    "Holes are nested": "has a hole in a hole",
}
"""What GEOS says of several rings together, in the words of this package."""

_WGS84_NAMES = ("CRS84", "EPSG::4326", "EPSG:4326")


def parse_polygon(
    value: object,
    space: Space,
    field: str = "region.polygon",
    most_vertices: int = POLYGON_VERTICES,
    within: float = 0.0,
) -> Polygon:
    """Read a polygon in its GeoJSON form; with a margin also a LineString, a MultiLineString, a Point or a MultiPoint.

    Either orientation is taken, and altitudes are ignored. In WGS84 a polygon may be cut at the antimeridian or have
    longitudes beyond 180. An edge is the straight line between the numbers as they are given: from longitude 179 to
    -179 it leads through 0.

    Args:
        value: the parsed JSON.
        space: the space of the coordinates.
        field: what is named in errors.
        most_vertices: how many distinct vertices in sequence there may be.
        within: the margin, at least 0.

    Raises:
        RecordError: the form is another, a position is out of range, or a ring has fewer than three distinct points, is
            not closed, or crosses or touches itself or crosses another ring of its part; the message says where.
    """
    geometry, field = _geometry(value, space, field, _KINDS if within else _KINDS[:2])
    coordinates, field = geometry.get("coordinates"), f"{field}.coordinates"
    count = 0
    if geometry["type"] not in _KINDS[:2]:
        lists = coordinates if geometry["type"] == "MultiLineString" else [coordinates]
        for each in lists if isinstance(lists, list) else []:
            count += len(each) if isinstance(each, list) else 0
        _check_size(count, most_vertices, field)
        lines = _lines(geometry["type"], coordinates, space, field)
        return Polygon.of_lines(lines, space.geographic, within)
    parts = _list(coordinates, field, "polygons") if geometry["type"] == "MultiPolygon" else [coordinates]
    names = [f"{field}[{i}]" for i in range(len(parts))] if geometry["type"] == "MultiPolygon" else [field]
    polygons = []
    for name, part in zip(names, parts, strict=True):
        rings = []
        for i, ring in enumerate(_list(part, name, "rings")):
            count += len(ring) - 1 if isinstance(ring, list) else 0
            _check_size(count, most_vertices, field)
            rings.append(_ring(ring, space, f"{name}[{i}]"))
        _check_part(rings, name)
        polygons.append(rings)
    return Polygon.of(polygons, space.geographic, within)


def _check_size(vertices: int, most: int, field: str) -> None:
    if vertices > most:
        raise RecordError(field, f"has more than {most} vertices (setting polygon-vertices)")


def _lines(kind: str, coordinates: object, space: Space, field: str) -> list[Floats]:
    """The vertices of each line, float64[v, 2]; a point is a line of one."""
    if kind == "Point":
        return [np.array([_position(coordinates, space, field)])]
    if kind == "LineString":
        return [_line(coordinates, space, field)]
    of = "positions" if kind == "MultiPoint" else "lines"
    given = [(f"{field}[{i}]", each) for i, each in enumerate(_list(coordinates, field, of))]
    if kind == "MultiPoint":
        return [np.array([_position(each, space, name)]) for name, each in given]
    return [_line(each, space, name) for name, each in given]


def _line(value: object, space: Space, field: str) -> Floats:
    positions = _list(value, field, "positions")
    if len(positions) < 2:
        raise RecordError(field, "has one position; a line has at least 2")
    line = np.array([_position(each, space, f"{field}[{i}]") for i, each in enumerate(positions)])
    _check_extent(line, space, field)
    return line


def known_polygon(
    value: Any, space: Space, field: str, most_vertices: int, area: str = "", within: float = 0.0
) -> Polygon:
    """As :func:`parse_polygon`, of an area; if the same JSON was read lately, it returns the same polygon."""
    try:
        form = marshal.dumps(value, 2)  # equal bytes are equal values: numbers are written as they are, with their kind
    except ValueError:  # nested too deeply, or no value of JSON
        return _of_area(parse_polygon(value, space, field, most_vertices, within), area)
    if len(form) > _LONGEST_KEPT:
        return _of_area(parse_polygon(value, space, field, most_vertices, within), area)
    return _known(form, space, field, most_vertices, area, within)


@lru_cache(_KEPT)
def _known(form: bytes, space: Space, field: str, most_vertices: int, area: str, within: float) -> Polygon:
    return _of_area(parse_polygon(marshal.loads(form), space, field, most_vertices, within), area)


def _of_area(polygon: Polygon, area: str) -> Polygon:
    return replace(polygon, area=area) if area else polygon


def _geometry(value: object, space: Space, field: str, kinds: Sequence[str]) -> tuple[dict[str, Any], str]:
    """The geometry, of a feature its own, and its name."""
    if not isinstance(value, dict):
        raise RecordError(field, _FORM)
    _check_system(value, space, field)
    if value.get("type") == "Feature":
        field, value = f"{field}.geometry", value.get("geometry")
        if not isinstance(value, dict):
            raise RecordError(field, "must be a GeoJSON Polygon or MultiPolygon")
    kind = value.get("type")
    if kind not in kinds:
        problem = f"{kind!r} is not a polygon" if isinstance(kind, str) else "is missing"
        if kind in _KINDS and field.startswith("region."):  # an area has no margin
            problem += ', and has no inside; give "within", a distance, beside it'
        raise RecordError(f"{field}.type", f"{problem}; it {_FORM}")
    return value, field


def _check_system(value: dict[str, Any], space: Space, field: str) -> None:
    """Refuse another coordinate system than WGS84, which GeoJSON before RFC 7946 could name."""
    system = value.get("crs")
    if system is None or not space.geographic:
        return
    properties = system.get("properties") if isinstance(system, dict) else None
    name = str(properties.get("name") if isinstance(properties, dict) else system)
    if not name.endswith(_WGS84_NAMES):
        raise RecordError(f"{field}.crs", f"{name!r} is not WGS84; give longitudes and latitudes (RFC 7946)")


def _list(value: object, field: str, what: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise RecordError(field, f"must be a list of {what}, at least one")
    return value


def _ring(value: object, space: Space, field: str) -> Floats:
    """The vertices of a ring, float64[v, 2], without the one that closes it."""
    positions = _list(value, field, "positions")
    points = [_position(position, space, f"{field}[{i}]") for i, position in enumerate(positions)]
    if len(set(points)) < 3:
        raise RecordError(field, f"has {len(set(points))} distinct points; a ring has at least 3")
    if points[0] != points[-1]:
        problem = f"is not closed: it begins at {list(points[0])} and ends at {list(points[-1])}"
        raise RecordError(field, f"{problem}; repeat the first position at the end")
    ring = without_repetition(np.array(points[:-1]))
    _check_extent(ring, space, field)
    return ring


def _check_extent(points: Floats, space: Space, field: str) -> None:
    west, east = float(points[:, 0].min()), float(points[:, 0].max())
    if space.geographic and east - west > space.east - space.west:
        raise RecordError(field, f"reaches from longitude {west:g} to {east:g}, more than once around the Earth")


def _position(value: object, space: Space, field: str) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) < 2:
        raise RecordError(field, f"must be a position, [{', '.join(space.axes)}]")
    x, y = (check_number(number, field) for number in value[:2])
    if not space.geographic:
        for number in (x, y):
            if abs(number) > LARGEST:
                raise RecordError(field, f"{number!r} is out of range; it must lie in [{-LARGEST:g}, {LARGEST:g}]")
        return x, y
    most = TURNS * space.east
    if abs(y) > space.north:
        problem = f"latitude {y!r} is out of range; it must lie in [{space.south:g}, {space.north:g}]"
        if abs(x) <= space.north and abs(y) <= most:
            problem += "; longitude and latitude look exchanged, GeoJSON has the longitude first"
        elif max(abs(x), abs(y)) > 2 * most:
            problem += "; these look like metres of a projection, so convert them to WGS84 (EPSG:4326)"
        raise RecordError(field, problem)
    if abs(x) > most:
        raise RecordError(field, f"longitude {x!r} is out of range; it must lie in [{-most:g}, {most:g}]")
    return x, y


def _check_part(rings: list[Floats], field: str) -> None:
    """Refuse rings that cross themselves or each other, and holes that are not in their shell."""
    for i, ring in enumerate(rings):
        _refuse(shapely.Polygon(ring), f"{field}[{i}]", alone=True)
    if len(rings) > 1:
        _refuse(shapely.Polygon(rings[0], rings[1:]), field, alone=False)


def _refuse(shape: shapely.Polygon, field: str, alone: bool) -> None:
    if shapely.is_valid(shape):
        return
    reason = str(shapely.is_valid_reason(shape))
    location = _PLACE.fullmatch(reason)
    place = f" at [{float(location['x']):.12g}, {float(location['y']):.12g}]" if location else ""
    kind = location["reason"].strip() if location else reason
    if alone:
        raise RecordError(field, f"crosses or touches itself{place}; give a ring that does not")
    if kind == "Interior is disconnected":
        return  # holes that touch cut the part in two; what lies in it is as clear as before
    problem = _PROBLEMS.get(kind, f"is not a polygon ({kind})")
    raise RecordError(field, f"{problem}{place}; the first ring is the border, and all others are holes in it")
