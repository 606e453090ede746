"""A part of the space on an SVG picture: the frame, axes, land, and points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from spatialstream.model.arrays import Floats
from spatialstream.model.space import Space
from spatialstream.report.land import land_rings

__all__ = [
    "MARGIN_LEFT",
    "MARGIN_TOP",
    "Points",
    "Rect",
    "View",
    "axes",
    "decimals",
    "degrees",
    "land_path",
    "picture",
    "place_of",
    "points_path",
]

MARGIN_LEFT = 46
MARGIN_TOP = 34
_MOST_POINTS = 2_000

Rect = tuple[float, float, float, float]
"""West, south, east, north; or left, top, width, height in pixels."""

Points = Floats | Sequence[tuple[float, float]]

_STYLE = """
.qt{--qt-paper:#fff;--qt-ink:#1c2430;--qt-soft:#5d6878;--qt-line:#c9d0da;--qt-cell:#fff;--qt-land:#eceff3;--qt-label:#0d1420}
@media(prefers-color-scheme:dark){.qt{--qt-paper:#12161d;--qt-ink:#e6eaf0;--qt-soft:#97a3b4;--qt-line:#39424f;
--qt-cell:#12161d;--qt-land:#212833;--qt-label:#fff}}
.qt{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}.qt text{fill:var(--qt-ink)}
.qt .soft{fill:var(--qt-soft);font-size:11px}.qt .label{font-weight:600;text-anchor:middle;fill:var(--qt-label);
stroke:var(--qt-paper);stroke-width:2.5px;stroke-opacity:.6;paint-order:stroke;pointer-events:none}
.qt .leaf{stroke:var(--qt-paper);stroke-width:1}.qt .share{stroke:var(--qt-paper);stroke-width:.75}
.qt .hatch{pointer-events:none}.qt .cell{fill:none;stroke:var(--qt-ink);stroke-width:1.1;pointer-events:none}
.qt .points{fill:none;stroke:var(--qt-ink);stroke-width:2.2;stroke-linecap:round;stroke-opacity:.5;pointer-events:none}
.qt .land{fill:var(--qt-land);stroke:var(--qt-line);stroke-width:.5}
.qt .shore{fill:none;stroke:var(--qt-ink);stroke-width:.6;stroke-opacity:.4;pointer-events:none}
.qt .frame{fill:none;stroke:var(--qt-ink);stroke-width:1.4;stroke-dasharray:4 2;pointer-events:none}
.qt .name{font-weight:700}.qt .track{fill:var(--qt-land)}.qt .bar{rx:2px}.qt .big{font-size:15px;font-weight:650}
.qt g.on .leaf,.qt g.on .share{stroke:var(--qt-ink);stroke-width:1.6}
"""


def picture(width: int, height: int, title: str, parts: Sequence[str], style: str = "") -> str:
    """A self-contained SVG of elements, drawn one over the other; ``style`` adds to the styles of this module."""
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="qt" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}{style}</style>",
        '<defs><pattern id="qt-hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<path d="M0 0V5" stroke="var(--qt-paper)" stroke-width="1.7" stroke-opacity=".5"/></pattern></defs>',
        f'<rect width="{width}" height="{height}" fill="var(--qt-paper)"/>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class View:
    """Where the space lies on the picture: pixels of its left top corner and pixels per unit."""

    bounds: Rect
    left: int
    top: int
    width: int
    height: int

    @classmethod
    def fit(cls, bounds: Rect, left: int, top: int, width: int) -> View:
        """A view of this width; its height follows from the proportions of the bounds."""
        ratio = (bounds[3] - bounds[1]) / (bounds[2] - bounds[0])
        return cls(bounds, left, top, width, round(width * min(1.2, max(0.35, ratio))))

    @property
    def bottom(self) -> int:
        """The pixel below it."""
        return self.top + self.height

    def x(self, x: float) -> float:
        """Pixels from the left of a coordinate."""
        return self.left + (x - self.bounds[0]) / (self.bounds[2] - self.bounds[0]) * self.width

    def y(self, y: float) -> float:
        """Pixels from the top of a coordinate."""
        return self.top + (self.bounds[3] - y) / (self.bounds[3] - self.bounds[1]) * self.height

    def rect(self, box: Sequence[float]) -> Rect:
        """Left, top, width, height in pixels."""
        left, top = self.x(box[0]), self.y(box[3])
        return left, top, self.x(box[2]) - left, self.y(box[1]) - top


def decimals(space: Space) -> int:
    """Decimals that tell apart the cells of a tree over the space, twelve levels deep."""
    extent = max(space.east - space.west, space.north - space.south)
    return max(0, min(9, 4 - math.floor(math.log10(extent)))) if extent < 100 else 2


def place_of(left: float, top: float, width: float, height: float) -> str:
    """Where a rectangle is, as attributes; the smallest can still be seen."""
    return f'x="{left:.1f}" y="{top:.1f}" width="{max(width, 0.1):.1f}" height="{max(height, 0.1):.1f}"'


def points_path(points: Floats, view: View) -> str:
    """Dots as one path of moves and zero-length lines, each pixel once."""
    west, south, east, north = view.bounds
    points = points[(points >= (west, south)).all(axis=1) & (points <= (east, north)).all(axis=1)]
    if len(points) > _MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, _MOST_POINTS).astype(np.int64)]
    dots = {(round(view.x(x)), round(view.y(y))) for x, y in points.tolist()}
    return "".join(f"M{x} {y}h0" for x, y in sorted(dots))


def land_path(view: View) -> str:
    """Land at the picture's resolution: points within 1.5 pixels are dropped, and so are tiny islands."""
    west, south, east, north = view.bounds
    parts = []
    for ring in land_rings():
        xs, ys = zip(*ring, strict=True)
        if max(xs) < west or min(xs) > east or max(ys) < south or min(ys) > north:
            continue
        steps: list[str] = []
        previous: tuple[float, float] | None = None
        for x, y in ring:
            point = (round(2 * view.x(x)) / 2, round(2 * view.y(y)) / 2)
            if previous is None or abs(point[0] - previous[0]) + abs(point[1] - previous[1]) >= 1.5:
                steps.append(f"{point[0]:g} {point[1]:g}")
                previous = point
        if len(steps) >= 4:
            parts.append("M" + "L".join(steps) + "Z")
    return "".join(parts)


def axes(space: Space, view: View) -> list[str]:
    """Ticks and their labels below and on the left."""
    west, south, east, north = view.bounds
    step = _nice_step(max(east - west, north - south), geographic=space.geographic)
    parts = []
    for x in _ticks(west, east, step):
        at = view.x(x)
        parts.append(f'<path d="M{at:.1f} {view.bottom}v4" stroke="var(--qt-line)"/>')
        label = degrees(x, "W", "E") if space.geographic else f"{x:g}"
        parts.append(f'<text class="soft" x="{at:.1f}" y="{view.bottom + 15}" text-anchor="middle">{label}</text>')
    for y in _ticks(south, north, step):
        at = view.y(y)
        parts.append(f'<path d="M{view.left} {at:.1f}h-4" stroke="var(--qt-line)"/>')
        label = degrees(y, "S", "N") if space.geographic else f"{y:g}"
        parts.append(f'<text class="soft" x="{view.left - 7}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    return parts


def _nice_step(extent: float, *, geographic: bool) -> float:
    """A round distance of ticks: six to twelve of them."""
    if geographic and extent > 40:
        return 60.0 if extent > 200 else 30.0 if extent > 100 else 10.0
    power = 10.0 ** math.floor(math.log10(extent / 5))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= extent / 8)


def _ticks(low: float, high: float, step: float) -> list[float]:
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def degrees(value: float, negative: str, positive: str) -> str:
    """Degrees with the letter of their side."""
    side = negative if value < 0 else positive if value > 0 else ""
    if abs(value) == 180.0:
        side = ""
    return f"{abs(value):g}°{side}"
