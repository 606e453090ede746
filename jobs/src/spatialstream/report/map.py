"""Objects and regions on a map for notebooks: one SVG over the outlines of land, without script or network.

The map is equirectangular, sized to its content, with its seam where there is the least content, so that content on
both sides of the antimeridian is drawn together. All text is escaped. Cost: O(objects + points of the land in view).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from spatialstream.model.errors import RecordError
from spatialstream.model.queries import Best, Nearest, Query, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import ANY_WORDS
from spatialstream.model.times import parse_time
from spatialstream.model.typed_queries import TypedQuery, as_record
from spatialstream.report.land import land_rings
from spatialstream.report.payload import moment
from spatialstream.report.shapes import Ring, clip, outline

__all__ = ["Map", "clean"]

MOST = 2_000
"""Most objects to draw; of more, the last ones."""

_WIDTH = 720.0
_FLATTEST, _HIGHEST = 2.4, 1.2
"""Largest and smallest ratio of width to height, unless the world's extent prevents it."""
_LEAST = 0.01
"""Least share of the space's width to show."""
_MARGIN = 0.08
_HARDLY = 0.7
"""Distance in pixels that is too small to see."""
_TURN = 360.0
_SEA, _LAND, _REGION, _OBJECT = "#dce8f0", "#f6f3ea", "#2b6cb0", "#c2410c"


def clean(text: object) -> str:
    """Escape a text for HTML and attributes, with unprintable characters replaced."""
    plain = "".join(each if each.isprintable() or each == " " else "�" for each in str(text))
    return escape(plain)


@dataclass(frozen=True, slots=True)
class Map:
    """A map, which a notebook displays as the value of a cell.

    Attributes:
        objects: records with coordinates, as sent or as in result rows; records without coordinates are left out.
        queries: queries, as dataclasses or records, whose regions and points are drawn; invalid ones are left out.
        space: the space of both.
        title: description of the picture for screen readers.
    """

    objects: Sequence[Mapping[str, Any]] = ()
    queries: Sequence[Mapping[str, Any] | TypedQuery] = ()
    space: Space = WGS84
    title: str = ""

    def svg(self) -> str:
        """The picture, as an element of HTML or a file of its own."""
        places = list(self._places())
        asked = list(self._asked())
        regions = [outline(self.space, q.predicate.region) for q in asked if q.predicate.region is not None]
        points = [(q.selection.x, q.selection.y) for q in asked if isinstance(q.selection, Nearest | Best)]
        view = _View.of(self.space, [*points, *((x, y) for x, y, _ in places)], [r for each in regions for r in each])
        told = clean(self.title or f"{len(places)} objects on a map")
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {view.width:g} {view.height:.0f}" role="img" '
            f'aria-label="{told}" width="100%" style="max-width:{view.width:g}px;display:block;background:{_SEA}">',
            f"<title>{told}</title>",
        ]
        if self.space.geographic:
            land = view.filled(land_rings())
            parts.append(f'<path d="{land}" fill="{_LAND}" stroke="{_LAND}" stroke-width="0.6" fill-rule="evenodd"/>')
        for rings in regions:
            parts.append(f'<path d="{view.filled(rings)}" fill="{_REGION}" fill-opacity="0.12" fill-rule="evenodd"/>')
            parts.append(f'<path d="{view.drawn(rings)}" fill="none" stroke="{_REGION}" stroke-width="1.5"/>')
        for x, y, about in places:
            px, py = view.at(x, y)
            dot = f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{_OBJECT}" fill-opacity="0.7"'
            parts.append(f'{dot} stroke="#fff" stroke-width="0.7"><title>{clean(about)}</title></circle>')
        for x, y in points:
            px, py = view.at(x, y)
            parts.append(f'<path d="M{px - 7:.1f} {py:.1f}h14M{px:.1f} {py - 7:.1f}v14" stroke="{_REGION}" />')
        return "".join([*parts, "</svg>"])

    def _repr_html_(self) -> str:
        many = f"the last {MOST:,} of {len(self.objects):,} objects" if len(self.objects) > MOST else ""
        told = ", ".join(clean(each) for each in (self.title, many) if each)
        return f'<figure style="margin:0">{self.svg()}<figcaption>{told}</figcaption></figure>'

    def _places(self) -> Iterator[tuple[float, float, str]]:
        """Position and description of each object."""
        x_name, y_name = self.space.axes
        for record in self.objects[-MOST:]:
            try:
                x, y = self.space.check_point(record.get(x_name), record.get(y_name), self.space.axes)
            except RecordError:
                continue
            yield x, y, " · ".join(self._said(record))

    def _said(self, record: Mapping[str, Any]) -> Iterator[str]:
        yield str(record.get("title") or record.get("text") or record.get("id", ""))
        with suppress(RecordError):
            yield moment(parse_time(record.get("t")))
        if (away := record.get(self.space.distance_field)) is not None:
            yield f"{away / 1000:,.1f} km" if self.space.geographic else f"{away:g}"

    def _asked(self) -> Iterator[Query]:
        for record in self.queries:
            with suppress(RecordError):
                query = parse_query({"id": "", **as_record(record)}, self.space, ANY_WORDS, timed=False)
                if isinstance(query, Query):
                    yield query


@dataclass(frozen=True, slots=True)
class _View:
    """The part of a space shown in the picture; ``west`` to ``east`` may extend beyond the antimeridian."""

    space: Space
    west: float
    south: float
    east: float
    north: float
    width: float
    height: float

    @classmethod
    def of(cls, space: Space, points: Sequence[tuple[float, float]], rings: Sequence[Ring]) -> _View:
        """The view of all points and rings with a margin; without any, of the whole space."""
        if not points and not rings:
            west, south, east, north = space.bounds
            rings = [[(west, south), (east, south), (east, north), (west, north)]]
        ys = [y for _, y in points] + [y for ring in rings for _, y in ring]
        spans = [(x, x) for x, _ in points] + [(min(x for x, _ in r), max(x for x, _ in r)) for r in rings]
        west, east = _extent(spans) if space.geographic else (min(a for a, _ in spans), max(b for _, b in spans))
        south, north = min(ys), max(ys)
        flat = max(0.2, math.cos(math.radians((south + north) / 2))) if space.geographic else 1.0
        margin = 1 + 2 * _MARGIN
        wide = max((east - west) * margin, _LEAST * (space.east - space.west)) * flat
        high = max((north - south) * margin, wide / _FLATTEST)
        wide = max(wide, high * _HIGHEST) / flat
        if space.geographic:
            wide, high = min(wide, _TURN), min(high, 180.0)
        middle_x, middle_y = (west + east) / 2, (south + north) / 2
        if space.geographic:  # nothing is beyond the poles
            middle_y = min(max(middle_y, -90.0 + high / 2), 90.0 - high / 2)
            middle_x = 0.0 if wide == _TURN and abs(middle_x) < 90.0 else middle_x
        left, below = middle_x - wide / 2, middle_y - high / 2
        return cls(space, left, below, left + wide, below + high, _WIDTH, _WIDTH * high / (wide * flat))

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The position of a place in the picture."""
        if self.space.geographic:
            x += _TURN * math.ceil((self.west - x) / _TURN)
        return self._put(x, y)

    def _put(self, x: float, y: float) -> tuple[float, float]:
        return (
            (x - self.west) / (self.east - self.west) * self.width,
            (self.north - y) / (self.north - self.south) * self.height,
        )

    def filled(self, rings: Iterable[Ring]) -> str:
        """A path whose even-odd interior is that of the rings."""
        return "".join(
            "M" + "L".join(points) + "Z"
            for ring in self._shown(rings)
            if len(points := _words(self._put(x, y) for x, y in clip(ring, *self._around))) > 2
        )

    def drawn(self, rings: Iterable[Ring]) -> str:
        """A path of the rings' borders, without the edges that only result from cutting at antimeridian and poles."""
        lines = list[str]()
        for ring in self._shown(rings):
            for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
                if not (self.space.geographic and _is_cut(a, b)):
                    (ax, ay), (bx, by) = self._put(*a), self._put(*b)
                    lines.append(f"M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}")
        return "".join(lines)

    @property
    def _around(self) -> tuple[float, float, float, float]:
        """Somewhat more than the visible part, so that clipped edges are not visible."""
        dx, dy = 0.02 * (self.east - self.west), 0.02 * (self.north - self.south)
        return self.west - dx, self.south - dy, self.east + dx, self.north + dy

    def _shown(self, rings: Iterable[Ring]) -> Iterator[Ring]:
        """The rings that are in view, on each turn around the globe on which they are."""
        west, south, east, north = self._around
        for ring in rings:
            if min(y for _, y in ring) > north or max(y for _, y in ring) < south:
                continue
            low, high = min(x for x, _ in ring), max(x for x, _ in ring)
            for turn in (-_TURN, 0.0, _TURN) if self.space.geographic else (0.0,):
                if low + turn <= east and high + turn >= west:
                    yield [(x + turn, y) for x, y in ring]


def _extent(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The longitudes from west to east that hold some spans; beyond 180 where half the globe is enough then."""
    steps = [np.linspace(a, b, 2 + int((b - a) / 2)) for a, b in spans]
    xs = np.unique(np.concatenate(steps))
    gaps = np.diff(xs)
    widest = int(gaps.argmax()) if len(gaps) else 0
    if xs[-1] - xs[0] <= _TURN / 2 or gaps[widest] < _TURN / 2:
        return float(xs[0]), float(xs[-1])
    return float(xs[widest + 1]), float(xs[widest]) + _TURN


def _is_cut(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether a side of a ring lies along the antimeridian, on whichever turn, or along a pole."""
    return (a[0] == b[0] and abs(a[0]) % _TURN == _TURN / 2) or (a[1] == b[1] and abs(a[1]) == 90.0)


def _words(points: Iterable[tuple[float, float]]) -> list[str]:
    """The points as a path names them, those left out that are hardly told from the one before."""
    words, last = list[str](), (math.inf, math.inf)
    for x, y in points:
        if max(abs(x - last[0]), abs(y - last[1])) > _HARDLY:
            words.append(f"{x:.1f} {y:.1f}")
            last = x, y
    return words
