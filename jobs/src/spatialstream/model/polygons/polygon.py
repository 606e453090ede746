"""A polygon as a value: columns of coordinates in a normal form, so that equal geometries have equal digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.polygons.margin import reach, widest
from spatialstream.model.polygons.orientation import TURN, orientation

__all__ = ["Polygon", "without_repetition"]

_MARGIN = 2

_LEAST_GAP = 1e-9
"""The least gap between longitudes that a box leaves out, in degrees: more than rounding can make."""


@dataclass(frozen=True, slots=True, eq=False)
class Polygon:
    """A union of parts, each a shell without its holes, in the normal form that :meth:`of` makes; and a margin.

    Two polygons are equal if their normal forms and margins are: the same rings, in whatever orientation and order. Of
    which area a polygon is makes no difference.

    With a margin there are *lines* and points, too (:meth:`of_lines`): a line is a ring there and back, which has no
    inside, and a point is a ring of one vertex.

    Attributes:
        points: float64[v, 2], the vertices, ring after ring; a ring's first vertex is not repeated at its end.
        rings: int32[r + 1], where each ring's vertices begin, and their number.
        parts: int32[p + 1], where each part's rings begin (the shell, then the holes), and their number.
        geographic: whether coordinates are degrees.
        area: the name of the area (:mod:`spatialstream.model.areas`) whose geometry it was when it was looked up; "" if
            it was given itself.
        within: the margin: what lies this near to the border also belongs to it, in metres or units of the plane.
        digest: of the normal form and the margin, 16 bytes as hexadecimal digits.
    """

    points: Floats
    rings: Codes
    parts: Codes
    geographic: bool = True
    area: str = ""
    within: float = 0.0
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for column, kind in ((self.parts, "<i4"), (self.rings, "<i4"), (self.points, "<f8")):
            digest.update(len(column).to_bytes(8, "little"))
            digest.update(column.astype(kind).tobytes())
        if self.within:
            digest.update(np.float64(self.within).astype("<f8").tobytes())
        object.__setattr__(self, "digest", digest.hexdigest())

    @classmethod
    def of(cls, parts: Sequence[Sequence[Floats]], geographic: bool = True, within: float = 0.0) -> Polygon:
        """Build from parts of rings, float64[v, 2] each, that :mod:`.geojson` has checked.

        In the normal form no vertex follows an equal one, -0.0 is 0.0, shells run counterclockwise and holes clockwise
        from their least vertex (by x, then y), and holes and parts are in ascending order.
        """
        normal = []
        for shell, *holes in parts:
            normal.append([_normal(shell, 1), *sorted((_normal(hole, -1) for hole in holes), key=np.ndarray.tolist)])
        normal.sort(key=lambda part: [ring.tolist() for ring in part])
        rings = [ring for part in normal for ring in part]
        offsets = _offsets(map(len, rings)), _offsets(map(len, normal))
        return cls(np.concatenate(rings), *offsets, geographic, within=within)

    @classmethod
    def of_lines(cls, lines: Sequence[Floats], geographic: bool, within: float) -> Polygon:
        """Build from lines, float64[v, 2] each, with a margin; one of a single distinct vertex is a point.

        In the normal form no vertex follows an equal one, -0.0 is 0.0, a line begins at the lesser of its ends, and
        lines are in ascending order.
        """
        rings = sorted((_there_and_back(line) for line in lines), key=np.ndarray.tolist)
        parts = _offsets([1] * len(rings))
        return cls(np.concatenate(rings), _offsets(map(len, rings)), parts, geographic, within=within)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polygon) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __len__(self) -> int:
        """The number of vertices."""
        return len(self.points)

    def to_bytes(self) -> bytes:
        """The form on the wire: numbers of offsets of rings and of parts, flags, and bytes of the area (int32).

        Flags are 1 for a geographic space and 2 for a margin. Offsets, points, the margin if there is one, and the area
        follow.
        """
        area = self.area.encode()
        flags = self.geographic | (_MARGIN if self.within else 0)
        head = np.array([len(self.rings), len(self.parts), flags, len(area)], "<i4")
        margin = np.array([self.within] if self.within else [], "<f8")
        return b"".join([*(each.tobytes() for each in (head, self.rings, self.parts, self.points, margin)), area])

    @classmethod
    def from_bytes(cls, data: bytes) -> Polygon:
        """Read :meth:`to_bytes`."""
        rings, parts, flags, area = np.frombuffer(data, "<i4", 4).tolist()
        begin, end = 4 * (4 + rings + parts), len(data) - area
        offsets = np.frombuffer(data, "<i4", rings + parts, 16)
        numbers = np.frombuffer(data, "<f8", (end - begin) // 8, begin)
        within = float(numbers[-1]) if flags & _MARGIN else 0.0
        points = numbers[: len(numbers) // 2 * 2].reshape(-1, 2)
        name = data[end:].decode()
        return cls(points.copy(), offsets[:rings].copy(), offsets[rings:].copy(), bool(flags & 1), name, within)

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east and north of a box that contains all of it; west > east across the antimeridian.

        A polygon that reaches 180 or -180 has both, which are one place. Of several parts, such as the two of a polygon
        that is cut at the antimeridian, the box leaves out the widest gap between their longitudes.
        """
        (west, south), (east, north) = self.points.min(axis=0).tolist(), self.points.max(axis=0).tolist()
        along = up = 0.0
        if self.within:
            up = along = float(reach(self.geographic, self.within, max(map(abs, (west, south, east, north)))))
            along = float(widest(self.within, max(abs(south), abs(north)))) if self.geographic else up
            south, north = south - up, north + up
        if not self.geographic:
            return west - along, south, east + along, north
        south, north = max(south, -90.0), min(north, 90.0)
        if west - along < -1.5 * TURN or east + along > 1.5 * TURN:
            return -180.0, south, 180.0, north
        if west - along <= -180.0 or east + along >= 180.0:
            shells = self.rings[self.parts]
            parts = (self.points[a:b, 0] for a, b in pairwise(shells.tolist()))
            west, east = _around([(float(each.min()) - along, float(each.max()) + along) for each in parts])
            along = 0.0
        return west - along, south, east + along, north

    def to_geojson(self) -> dict[str, Any]:
        """The geometry, of which :func:`~.geojson.parse_polygon` makes this one, with the margin."""
        if self.is_of_lines:
            return self._lines()
        rings = [self.points[a:b].tolist() for a, b in zip(self.rings[:-1], self.rings[1:], strict=True)]
        closed = [[*ring, ring[0]] for ring in rings]
        parts = [closed[a:b] for a, b in zip(self.parts[:-1], self.parts[1:], strict=True)]
        if len(parts) == 1:
            return {"type": "Polygon", "coordinates": parts[0]}
        return {"type": "MultiPolygon", "coordinates": parts}

    @property
    def is_of_lines(self) -> bool:
        """Whether it is lines or points."""
        ring = self.points[: self.rings[1]]
        return len(ring) < 3 or bool((ring[1:] == ring[:0:-1]).all())

    def _lines(self) -> dict[str, Any]:
        rings = [self.points[a:b].tolist() for a, b in pairwise(self.rings.tolist())]
        lines = [ring[: len(ring) // 2 + 1] if len(ring) > 1 else ring * 2 for ring in rings]
        if all(len(ring) == 1 for ring in rings):
            return {"type": "MultiPoint", "coordinates": [ring[0] for ring in rings]}
        if len(lines) == 1:
            return {"type": "LineString", "coordinates": lines[0]}
        return {"type": "MultiLineString", "coordinates": lines}

    def to_region(self) -> dict[str, Any]:
        """The region in its JSON form, with the margin and the name of the area, if it has them."""
        margin = {"within": self.within} if self.within else {}
        return {"polygon": self.to_geojson()} | margin | ({"area": self.area} if self.area else {})


def _around(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """West and east, in [-180, 180], of all these ranges of longitudes, which may lie beyond; west > east across 180.

    A longitude that is moved by a turn is the same number exactly, because both are of one magnitude (Sterbenz' lemma).
    """
    arcs = []  # from, to, and the latter as it is when it is not moved below the former, for comparisons only
    for west, east in spans:
        if east - west >= TURN:
            return -180.0, 180.0
        begin = west - TURN if west > 180.0 else west + TURN if west <= -180.0 else west
        end = east - TURN if east >= 180.0 else east + TURN if east < -180.0 else east
        arcs.append((begin, end, end if end >= begin else end + TURN))
    arcs.sort()
    (first, last, reached), gap, best = arcs[0], 0.0, (0.0, 0.0)
    for begin, end, upto in arcs[1:]:
        if begin - reached > gap:
            gap, best = begin - reached, (begin, last)
        if upto > reached:
            last, reached = end, upto
    if first + TURN - reached > gap:
        gap, best = first + TURN - reached, (first, last)
    return best if gap > _LEAST_GAP else (-180.0, 180.0)


def without_repetition(ring: Floats) -> Floats:
    """The ring, float64[v, 2], without vertices that equal the one before (the last one is before the first)."""
    kept: Floats = ring[(ring != np.roll(ring, 1, axis=0)).any(axis=1)]
    return kept


def _normal(ring: Floats, wanted: int) -> Floats:
    """A ring in normal form; ``wanted`` is 1 for counterclockwise, -1 for clockwise.

    A ring that does not touch itself is at its least vertex once, the two edges there are not on one line, and the turn
    from one to the other is that of the ring.
    """
    ring = without_repetition(ring) + 0.0
    ring = np.roll(ring, -int(np.lexsort((ring[:, 1], ring[:, 0]))[0]), axis=0)
    (hx, hy), (ax, ay), (bx, by) = ring[0].tolist(), ring[1].tolist(), ring[-1].tolist()
    if orientation(bx, by, hx, hy, ax, ay, 0.0) != wanted:
        ring = np.roll(ring[::-1], 1, axis=0)
    return np.ascontiguousarray(ring)


def _there_and_back(line: Floats) -> Floats:
    """A ring along a line and back, from the lesser of its ends; of one vertex if there is only one."""
    kept: Floats = line[np.append(True, (line[1:] != line[:-1]).any(axis=1))] + 0.0
    ring = min(kept, kept[::-1], key=lambda each: each.tolist())
    return np.ascontiguousarray(np.concatenate([ring, ring[-2:0:-1]]))


def _offsets(sizes: Any) -> Codes:
    return np.concatenate([[0], np.cumsum(list(sizes))]).astype(np.int32)
