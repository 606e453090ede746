"""Regions: boxes, circles and polygons, one by one (as in records) and as columns (as kernels take them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spatialstream.model.arrays import Bytes, Floats
from spatialstream.model.batches import Batch
from spatialstream.model.errors import RecordError
from spatialstream.model.geometry import BOX, CIRCLE, EVERYWHERE, POLYGON, contains
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.margin import FARTHEST
from spatialstream.model.polygons.packing import table_of
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.space import LARGEST, WGS84, Space, check_number
from spatialstream.model.terms import POLYGON_VERTICES

__all__ = [
    "Box",
    "Circle",
    "Polygon",
    "Region",
    "Regions",
    "check_area_name",
    "check_margin",
    "parse_region",
    "shape_of",
]


@dataclass(frozen=True, slots=True)
class Box:
    """A closed box. In WGS84 ``west > east`` crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float


@dataclass(frozen=True, slots=True)
class Circle:
    """A closed circle; the radius is in metres (WGS84) or planar units."""

    x: float
    y: float
    radius: float


Region = Box | Circle | Polygon


_FORM = (
    'must be {"box": [west, south, east, north]}, {"circle": [x, y, radius]}, {"polygon": GeoJSON} or {"area": name}'
)
_NOT_HERE = (
    "clients, the gateway and the command line look areas up where a query is registered or asked; a record that is "
    "read as it is gives the polygon itself"
)
_LONGEST_AREA = 200
_TURN = 360.0


def check_area_name(value: object, field: str = "area") -> str:
    """Validate the name of an area.

    Raises:
        RecordError: it is not text of 1 to 200 bytes that can be printed, with no space at its ends.
    """
    if not isinstance(value, str):
        raise RecordError(field, f"{value!r} is not the name of an area")
    if not value.isprintable() or value != value.strip():
        raise RecordError(field, f"{value!r} is not a name: it has a control character, or a space at an end")
    if not 1 <= (size := len(value.encode(errors="replace"))) <= _LONGEST_AREA:
        raise RecordError(field, f"has {size} bytes; the name of an area has 1 to {_LONGEST_AREA}")
    return value


def parse_region(value: object, space: Space, field: str = "region", most_vertices: int = POLYGON_VERTICES) -> Region:
    """Parse a region in its JSON form.

    ``{"box": [w, s, e, n]}``, ``{"circle": [x, y, radius]}``, or ``{"polygon": ...}`` with a GeoJSON Polygon,
    MultiPolygon or Feature; with ``"within": distance`` beside it all that is this near to it, and it may be a
    LineString, MultiLineString, Point or MultiPoint, too. With ``"area": name`` beside it, it is that of an area.
    A name alone is refused: areas are looked up before (:mod:`spatialstream.model.areas`).

    Args:
        value: the parsed JSON.
        space: the space of the coordinates.
        field: what is named in errors.
        most_vertices: how many vertices a polygon may have.

    Raises:
        RecordError: the form is different, or a number is out of range; the message names the field.
    """
    if not isinstance(value, dict):
        raise RecordError(field, _FORM)
    area, within = "", 0.0
    if "within" in value:
        within = check_margin(value, space, f"{field}.within")
        value = {shape: numbers for shape, numbers in value.items() if shape != "within"}
    if "area" in value:
        area = check_area_name(value["area"], f"{field}.area")
        if value.keys() == {"area"}:
            raise RecordError(f"{field}.area", f"{area!r} has not been looked up; {_NOT_HERE}")
        value = {shape: numbers for shape, numbers in value.items() if shape != "area"}
        if value.keys() != {"polygon"}:
            raise RecordError(f"{field}.area", "names the geometry of a polygon; give it alone, or beside its polygon")
    if len(value) != 1 or not ({"box", "circle", "polygon"} & value.keys()):
        raise RecordError(field, _FORM)
    ((shape, numbers),) = value.items()
    name = f"{field}.{shape}"
    if shape == "polygon":
        from spatialstream.model.polygons.geojson import known_polygon  # with shapely, which not every reader has

        return known_polygon(numbers, space, name, most_vertices, area, within)
    wanted = 4 if shape == "box" else 3
    if not isinstance(numbers, list) or len(numbers) != wanted:
        raise RecordError(name, f"must be a list of {wanted} numbers")
    if shape == "circle":
        x, y = space.check_point(numbers[0], numbers[1], (name, name))
        radius = check_number(numbers[2], name)
        if radius < 0:
            raise RecordError(name, f"the radius {radius:g} is negative; it must be at least 0")
        return Circle(x, y, radius)
    if space.geographic:
        west, east = _longitudes(numbers[0], numbers[2], space, name)
        (_, south), (_, north) = (space.check_point(0.0, each, (name, name)) for each in (numbers[1], numbers[3]))
    else:
        west, south, east, north = (check_number(number, name) for number in numbers)
        if west > east:
            raise RecordError(name, f"west {west:g} is greater than east {east:g}")
    if south > north:
        raise RecordError(name, f"south {south:g} is greater than north {north:g}")
    return Box(west, south, east, north)


def check_margin(region: Mapping[str, object], space: Space, field: str = "region.within") -> float:
    """The distance up to which a region in its JSON form also has what lies near to it; 0 if it has none.

    Raises:
        RecordError: it is no distance, or the region is neither a polygon nor an area.
    """
    if "within" not in region:
        return 0.0
    if not ({"polygon", "area"} & region.keys()):
        raise RecordError(field, "is a margin around a polygon or an area; a circle has a radius, a box has none")
    within = check_number(region["within"], field)
    most, unit = (FARTHEST, " m") if space == WGS84 else (LARGEST, "")
    if not 0.0 <= within <= most:
        raise RecordError(field, f"{within:g} is out of range; give a distance of 0 to {most:g}{unit}")
    return within + 0.0


def _longitudes(first: object, last: object, space: Space, field: str) -> tuple[float, float]:
    """West and east of a box, within the space; a box that is given with longitudes beyond 180 is moved there.

    The differences are exact (Sterbenz' lemma), so that the box is the same one.
    """
    west, east = check_number(first, field), check_number(last, field)
    if space.west <= west <= space.east and space.west <= east <= space.east:
        return west, east
    for number, given in ((west, first), (east, last)):
        if abs(number) > 1.5 * _TURN:
            problem = f"longitude {given!r} is out of range; it must lie in [{space.west:g}, {space.east:g}]"
            raise RecordError(field, f"{problem}, or beyond that by at most {_TURN:g} in a box across the antimeridian")
    if west > east:
        raise RecordError(field, f"west {west:g} is greater than east {east:g}, and one of them is beyond 180")
    from_west, to_east = _turned(west), _turned(east)
    beyond = (west > space.east) + (west < space.west) - (east > space.east) - (east < space.west)
    if (west < space.west and east > space.east) or (beyond and to_east >= from_west):
        return space.west, space.east  # once around, or more
    # a border on the antimeridian is at -180 and at 180, and in the box by both names
    return _TURN / 2 if from_west == -_TURN / 2 else from_west, -_TURN / 2 if to_east == _TURN / 2 else to_east


def _turned(longitude: float) -> float:
    """A longitude of at most 540 in magnitude, within [-180, 180]."""
    if longitude > _TURN / 2:
        return longitude - _TURN
    return longitude + _TURN if longitude < -_TURN / 2 else longitude


def shape_of(region: Region | None) -> tuple[int, tuple[float, float, float, float]]:
    """The kind and the numbers of a region, which are its row of :class:`Regions`.

    Raises:
        TypeError: it is no region.
    """
    match region:
        case None:
            return EVERYWHERE, (0.0, 0.0, 0.0, 0.0)
        case Box():
            return BOX, (region.west, region.south, region.east, region.north)
        case Circle():
            return CIRCLE, (region.x, region.y, region.radius, 0.0)
        case Polygon():
            return POLYGON, region.box
    raise TypeError(f"{region!r} is not a region")


@dataclass(frozen=True, slots=True, eq=False)
class Regions(Batch):
    """n regions as columns.

    Attributes:
        kind: uint8[n]: ``geometry.EVERYWHERE``, ``BOX``, ``CIRCLE`` or ``POLYGON``.
        shape: float64[n, 4]: (west, south, east, north) of a box, (x, y, radius, 0) of a circle, and of a polygon the
            box that contains it.
        polygons: n polygons or none.
    """

    kind: Bytes
    shape: Floats
    polygons: PolygonColumn

    @classmethod
    def plain(cls, kind: Bytes, shape: Floats) -> Regions:
        """Regions of which none is a polygon."""
        return cls(kind, shape, PolygonColumn.none(len(kind)))

    def __getitem__(self, index: int) -> Region | None:
        """The region at ``index``; None if unbounded."""
        a, b, c, d = self.shape[index].tolist()
        match int(self.kind[index]):
            case 1:
                return Box(a, b, c, d)
            case 2:
                return Circle(a, b, c)
            case 3:
                return self.polygons[index]
        return None

    @classmethod
    def of(cls, regions: Sequence[Region | None]) -> Regions:
        """Build the columns of a sequence; None is an unbounded region."""
        rows = [shape_of(region) for region in regions]
        kind = np.array([row[0] for row in rows], np.uint8)
        shape = np.array([row[1] for row in rows], np.float64).reshape(-1, 4)
        if not any(row[0] == POLYGON for row in rows):
            return cls.plain(kind, shape)
        return cls(kind, shape, PolygonColumn.of([each if isinstance(each, Polygon) else None for each in regions]))

    def contain(self, space: Space, index: int, x: float, y: float) -> bool:
        """Whether the region at ``index`` contains the point (x, y)."""
        a, b, c, d = self.shape[index].tolist()
        if not contains(space.geographic, int(self.kind[index]), a, b, c, d, x, y):
            return False
        polygon = int(self.polygons.codes[index])
        return polygon < 0 or table_of(self.polygons.packed).contain(space.geographic, polygon, x, y)
