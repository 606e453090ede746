"""The coordinate space of a stream: WGS84 degrees, or a plane with given bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.model.geometry import distance

__all__ = ["LARGEST", "SMALLEST", "WGS84", "Space"]

LARGEST = 1e150
"""Largest absolute coordinate of a plane: keeps squared distances and areas finite."""

SMALLEST = 1e-140
"""Shortest side of a plane: keeps densities (numbers of objects divided by areas) finite."""


@dataclass(frozen=True, slots=True)
class Space:
    """Bounds and metric of a stream's space.

    Attributes:
        geographic: WGS84 degrees and haversine metres; otherwise planar coordinates and Euclidean distances.
        west, south, east, north: closed bounds; objects outside are rejected.
    """

    geographic: bool
    west: float
    south: float
    east: float
    north: float

    @classmethod
    def planar(cls, west: float, south: float, east: float, north: float) -> Space:
        """Create a plane with closed bounds.

        Raises:
            SettingError: a bound is not finite or too large, or the enclosed area is empty or too small.
        """
        bounds = west, south, east, north
        if not all(map(math.isfinite, bounds)) or west >= east or south >= north:
            raise SettingError("space", "planar bounds are x0,y0,x1,y1 with x0 < x1 and y0 < y1")
        if max(map(abs, bounds)) > LARGEST:
            raise SettingError(
                "space", f"planar bounds must lie in [{-LARGEST:g}, {LARGEST:g}]: larger values overflow"
            )
        if min(east - west, north - south) < SMALLEST:
            raise SettingError("space", f"planar sides must be at least {SMALLEST:g}: smaller areas underflow")
        return cls(False, west, south, east, north)

    @classmethod
    def parse(cls, text: str) -> Space:
        """Parse ``"wgs84"`` or ``"planar:x0,y0,x1,y1"``.

        Raises:
            SettingError: the text is neither.
        """
        if text == "wgs84":
            return WGS84
        name, _, bounds = text.partition(":")
        try:
            west, south, east, north = (float(bound) for bound in bounds.split(","))
        except ValueError:
            name = ""
        if name != "planar":
            raise SettingError("space", f'{text!r} is not a space; give "wgs84" or "planar:x0,y0,x1,y1"')
        return cls.planar(west, south, east, north)

    @classmethod
    def of(cls, value: Space | str) -> Space:
        """Convert the value of a setting: a space, or a text that :meth:`parse` reads.

        Raises:
            SettingError: ``value`` is neither.
        """
        if isinstance(value, Space):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        raise SettingError("space", f'{value!r} is not a space; give a Space, "wgs84" or "planar:x0,y0,x1,y1"')

    def __str__(self) -> str:
        """The text that :meth:`parse` reads."""
        if self.geographic:
            return "wgs84"
        return f"planar:{self.west!r},{self.south!r},{self.east!r},{self.north!r}"

    @property
    def axes(self) -> tuple[str, str]:
        """Names of the two coordinates in records and results: ``("lon", "lat")`` or ``("x", "y")``."""
        return ("lon", "lat") if self.geographic else ("x", "y")

    @property
    def distance_field(self) -> str:
        """Name of the distance in results: ``distance_m`` (metres) or ``distance`` (planar units)."""
        return "distance_m" if self.geographic else "distance"

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """(west, south, east, north)."""
        return self.west, self.south, self.east, self.north

    def distance(self, x1: float, y1: float, x2: float, y2: float) -> float:
        """Distance of two points, in metres or planar units."""
        return float(distance(self.geographic, x1, y1, x2, y2))

    def check_point(self, x: object, y: object, fields: tuple[str, str]) -> tuple[float, float]:
        """Convert two JSON values to a point of this space.

        Raises:
            RecordError: a value is missing, not a finite number, or out of range; the message names its field.
        """
        low_high = ((self.west, self.east), (self.south, self.north))
        result = []
        for value, field, (low, high) in zip((x, y), fields, low_high, strict=True):
            number = check_number(value, field)
            if not low <= number <= high:
                raise RecordError(field, f"{value!r} is out of range; it must lie in [{low:g}, {high:g}]")
            result.append(number)
        return result[0], result[1]


def check_number(value: object, field: str) -> float:
    """Convert a JSON value to a finite float.

    Raises:
        RecordError: it is missing or not a finite number.
    """
    if value is None:
        raise RecordError(field, "is required; give a number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(field, f"{value!r} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RecordError(field, f"{value!r} is not a finite number")
    return number


WGS84 = Space(True, -180.0, -90.0, 180.0, 90.0)
"""The default space: longitude and latitude in degrees."""
