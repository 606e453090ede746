"""The leaves of a global index as text and as a picture.

A leaf is a spatial cell, or a textual share of one: after a textual split, several leaves have one box, and a share
may be split by space again. On the picture such a cell is divided into tiles, one a share; shares that were
split further are drawn together, to scale, in a tile of their own. Where leaves are too small to
be told apart, an inset shows their quadrant larger. Cost: O(n log n) for n leaves.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from spatialstream.index.boxes import quarter
from spatialstream.index.kinds import DEFAULT
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.space import Space
from spatialstream.model.tables import aligned, ratio
from spatialstream.report.land import land_rings

__all__ = ["LeafTable", "slot_colour", "tree_svg", "tree_text"]


@dataclass(frozen=True, slots=True, eq=False)
class LeafTable:
    """n leaves as columns.

    Attributes:
        boxes: float64[n, 4]: (west, south, east, north) of the cell; shares of one cell have the same box.
        textual: bool[n]: whether the leaf is a textual share of its cell.
        load: float64[n]: workload by the cost model, in its unit; at least 0.
        slot: int32[n]: the worker slot that serves the leaf, from 0.
        objects: int64[n]: objects counted in the leaf.
        slots: number of slots, where there may be some without a leaf; 0: up to the largest that has one.
        kind: kind of the global index.
    """

    boxes: Floats
    textual: Flags
    load: Floats
    slot: Codes
    objects: Ints
    slots: int = 0
    kind: str = DEFAULT

    @classmethod
    def of(cls, version: RoutingVersion, load: Floats, objects: npt.NDArray[np.float64 | np.int64]) -> LeafTable:
        """Build the table of a routing version's leaves, with n loads and n object counts."""
        leaves = version.index.leaves
        counts = np.rint(objects).astype(np.int64)
        return cls(leaves.box, leaves.textual, load, version.mapping, counts, version.slots, version.index.kind)

    def __len__(self) -> int:
        """Number of leaves."""
        return len(self.load)

    @property
    def share(self) -> Floats:
        """float64[n]: each leaf's share of the total load."""
        total = float(self.load.sum())
        return self.load / total if total > 0.0 else np.zeros(len(self))

    @property
    def slot_load(self) -> Floats:
        """float64[s]: the load of each slot; those without a leaf have 0."""
        return np.bincount(self.slot, weights=self.load, minlength=self.slots).astype(np.float64)

    @property
    def imbalance(self) -> float:
        """Lmax / Lmin over the slots (SSTD, section 5.1); infinite when a slot has no load."""
        loads = self.slot_load
        low = float(loads.min()) if len(loads) else 0.0
        return float(loads.max()) / low if low > 0.0 else math.inf


def tree_text(table: LeafTable, space: Space, estimated: bool = False) -> str:
    """Format two tables for a terminal: the leaves in order, then the slots with their loads and Lmax/Lmin.

    Args:
        table: the leaves.
        space: the stream's space.
        estimated: whether to mark the leaves' object counts as estimated.
    """
    decimals = _decimals(space)
    share = table.share
    rows = [
        [
            str(i),
            *(f"{bound:.{decimals}f}" for bound in table.boxes[i]),
            "textual" if table.textual[i] else "spatial",
            f"{table.objects[i]:,}",
            f"{100 * share[i]:.2f} %",
            str(table.slot[i]),
        ]
        for i in range(len(table))
    ]
    head = [
        "leaf",
        "west",
        "south",
        "east",
        "north",
        "kind",
        "objects (estimated)" if estimated else "objects",
        "load",
        "slot",
    ]
    lines = aligned(head, rows, right={0, 1, 2, 3, 4, 6, 7, 8})
    slots = table.slot_load
    total = float(slots.sum()) or 1.0
    peak = float(slots.max(initial=0.0)) or 1.0
    leaves = np.bincount(table.slot, minlength=len(slots))
    counts = np.bincount(table.slot, weights=table.objects, minlength=len(slots))
    rows = [
        [
            str(i),
            str(leaves[i]),
            f"{int(counts[i]):,}",
            f"{100 * slots[i] / total:.2f} %",
            "█" * round(24 * slots[i] / peak),
        ]
        for i in range(len(slots))
    ]
    lines += ["", *aligned(["slot", "leaves", "objects", "load", ""], rows, right={0, 1, 2, 3})]
    textual = int(table.textual.sum())
    kinds = f"{len(table):,} leaves, {textual:,} of them textual shares" if textual else f"{len(table):,} leaves"
    lines += ["", f"{kinds}, on {len(slots):,} slots; Lmax/Lmin = {ratio(table.imbalance)}"]
    return "\n".join(lines) + "\n"


def _decimals(space: Space) -> int:
    """Decimals that tell apart the cells of a tree over the space, twelve levels deep."""
    extent = max(space.east - space.west, space.north - space.south)
    return max(0, min(9, 4 - math.floor(math.log10(extent)))) if extent < 100 else 2


_PALETTE = (
    "#2f6fd0",
    "#e07a1f",
    "#23936b",
    "#c2418f",
    "#8458c9",
    "#b3891a",
    "#1b93ab",
    "#d2473f",
    "#6b8e23",
    "#7a6a5a",
)
_SIDE = 200
"""Width of the column with the slots' loads."""
_MARGIN_LEFT = 46
_MARGIN_TOP = 34
_GAP = 14
_MOST_POINTS, _MOST_BARS = 2_000, 64
_SMALLEST_TYPE = 6.5
"""Pixels of a label's type; leaves whose tiles take no such label get an inset."""
_LABELLED = _SMALLEST_TYPE / 0.62

_Points = Floats | Sequence[tuple[float, float]]

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


def slot_colour(slot: int) -> str:
    """A colour for a slot: ten chosen ones, then hues by the golden angle."""
    if slot < len(_PALETTE):
        return _PALETTE[slot]
    red, green, blue = colorsys.hls_to_rgb((slot * 0.618034) % 1.0, 0.46, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def tree_svg(table: LeafTable, space: Space, points: _Points | None = None, width: int = 960) -> str:
    """A self-contained SVG: cells shaded by load and coloured by slot, and the slots' loads beside them.

    Args:
        table: the leaves.
        space: gives the axes; WGS84 is drawn over the outlines of land.
        points: float64[m, 2], a sample of the objects; at most 2,000, evenly picked, are drawn.
        width: pixels, at least 480; the height follows from the space's proportions.
    """
    if width < 480:
        raise ValueError(f"width is {width}; the picture needs at least 480 pixels")
    inner = width - _MARGIN_LEFT - _SIDE
    view = _View.fit(_bounds(table, space), _MARGIN_LEFT, _MARGIN_TOP, inner)
    everything = np.arange(len(table))
    insets = _inset_views(table, view)
    slots = table.slot_load
    below = max((inset.bottom for inset in insets), default=view.bottom + 24)
    height = max(below + 34, _MARGIN_TOP + 52 + 26 * min(len(slots), _MOST_BARS) + 20)
    title = f"{table.kind}: {len(table):,} leaves on {len(slots):,} slots, Lmax/Lmin {ratio(table.imbalance)}"
    parts = [
        f'<text x="{view.left}" y="20" class="big">{escape(title)}</text>',
        *_map(table, space, view, everything, points),
        *_axes(space, view),
        *_insets(table, space, view, insets, points),
        *_legend(table, view.left, height - 22),
        *_slot_bars(table, view.left + view.width + 24, _MARGIN_TOP, _SIDE - 24),
    ]
    return _picture(width, height, title, parts)


def _picture(width: int, height: int, title: str, parts: Sequence[str], style: str = "") -> str:
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


_Rect = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class _View:
    """Where the space lies on the picture: pixels of its left top corner and pixels per unit."""

    bounds: _Rect
    left: int
    top: int
    width: int
    height: int

    @classmethod
    def fit(cls, bounds: _Rect, left: int, top: int, width: int) -> _View:
        ratio = (bounds[3] - bounds[1]) / (bounds[2] - bounds[0])
        return cls(bounds, left, top, width, round(width * min(1.2, max(0.35, ratio))))

    @property
    def bottom(self) -> int:
        return self.top + self.height

    def x(self, x: float) -> float:
        return self.left + (x - self.bounds[0]) / (self.bounds[2] - self.bounds[0]) * self.width

    def y(self, y: float) -> float:
        return self.top + (self.bounds[3] - y) / (self.bounds[3] - self.bounds[1]) * self.height

    def rect(self, box: Sequence[float]) -> _Rect:
        """Left, top, width, height in pixels."""
        left, top = self.x(box[0]), self.y(box[3])
        return left, top, self.x(box[2]) - left, self.y(box[1]) - top


def _bounds(table: LeafTable, space: Space) -> _Rect:
    if not len(table):
        return space.bounds
    west, south = table.boxes[:, :2].min(axis=0).tolist()
    east, north = table.boxes[:, 2:].max(axis=0).tolist()
    return west, south, east, north


@dataclass(frozen=True, slots=True)
class _Tile:
    """Where one leaf is drawn (left, top, width, height in pixels)."""

    leaf: int
    rect: _Rect


def _tiles(table: LeafTable, view: _View, leaves: Ints) -> tuple[list[_Tile], list[_Rect]]:
    """A tile for each of the leaves, and the frames of the cells that hold textual shares."""
    tiles: list[_Tile] = []
    frames: list[_Rect] = []
    stack = [(view.bounds, view.rect(view.bounds), leaves)]
    while stack:
        box, rect, leaves = stack.pop()
        if not len(leaves):
            continue
        whole = np.isclose(table.boxes[leaves], box, rtol=0.0, atol=1e-9 * (abs(box[2] - box[0]) or 1.0)).all(axis=1)
        shares, inner = leaves[whole], leaves[~whole]
        if len(shares):
            count = len(shares) + bool(len(inner))
            places = _grid(rect, count) if count > 1 else [rect]
            tiles += [_Tile(int(leaf), place) for leaf, place in zip(shares, places, strict=False)]
            if count > 1:
                frames.append(rect)
            if not len(inner):
                continue
            rect = places[-1]
        stack += _quarters(table, box, rect, inner, tiles)
    return tiles, frames


def _quarters(
    table: LeafTable, box: _Rect, rect: _Rect, leaves: Ints, tiles: list[_Tile]
) -> list[tuple[_Rect, _Rect, Ints]]:
    """The four quarters of a cell with the leaves in each; leaves that lie in no quarter become tiles as they are."""
    middle_x, middle_y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    slack_x, slack_y = 1e-9 * (box[2] - box[0]), 1e-9 * (box[3] - box[1])
    boxes = table.boxes[leaves]
    east, north = boxes[:, 0] >= middle_x - slack_x, boxes[:, 1] >= middle_y - slack_y
    astride = (~east & (boxes[:, 2] > middle_x + slack_x)) | (~north & (boxes[:, 3] > middle_y + slack_y))
    scale_x, scale_y = rect[2] / (box[2] - box[0]), rect[3] / (box[3] - box[1])
    for leaf, (w, s, e, n) in zip(leaves[astride], boxes[astride].tolist(), strict=True):
        place = (
            rect[0] + (w - box[0]) * scale_x,
            rect[1] + (box[3] - n) * scale_y,
            (e - w) * scale_x,
            (n - s) * scale_y,
        )
        tiles.append(_Tile(int(leaf), place))
    half_w, half_h = rect[2] / 2, rect[3] / 2
    result = []
    for to_east in (False, True):
        for to_north in (False, True):
            place = (rect[0] + half_w * to_east, rect[1] + half_h * (not to_north), half_w, half_h)
            inside = leaves[(east == to_east) & (north == to_north) & ~astride]
            result.append((quarter(box, to_east + 2 * to_north), place, inside))
    return result


def _grid(rect: _Rect, count: int) -> list[_Rect]:
    """``count`` tiles in rows, two by two for four, within a small border."""
    left, top, width, height = rect
    border = min(2.0, 0.06 * min(width, height))
    left, top, width, height = left + border, top + border, width - 2 * border, height - 2 * border
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    tiles = []
    for row in range(rows):
        across = min(columns, count - row * columns)
        tiles += [
            (left + width * i / across, top + height * row / rows, width / across, height / rows) for i in range(across)
        ]
    return tiles


def _crowded(table: LeafTable, view: _View, leaves: Ints) -> Floats:
    """float64[m, 4]: boxes of the leaves whose tiles are too small for a label."""
    tiles, _ = _tiles(table, view, leaves)
    small = [tile.leaf for tile in tiles if min(tile.rect[2:]) < _LABELLED]
    return table.boxes[small]


def _inset_views(table: LeafTable, view: _View) -> list[_View]:
    """Choose up to two quadrants of the space to show larger, side by side.

    The first is the smallest one with most of the leaves that are too small for a label. The second is chosen likewise
    from the crowded leaves elsewhere, or from those that are still too small in the first inset.
    """
    half = (view.width - _GAP) // 2

    def place(bounds: list[_Rect], width: int) -> list[_View]:
        return [_View.fit(box, view.left + i * (width + _GAP), view.bottom + 46, width) for i, box in enumerate(bounds)]

    crowded = _crowded(table, view, np.arange(len(table)))
    first = _densest(crowded, view.bounds)
    if first is None:
        return []
    second = _densest(crowded[~_inside(crowded, first)], view.bounds)
    if second is None:
        inner = np.flatnonzero(_inside(table.boxes, first))
        second = _densest(_crowded(table, place([first], half)[0], inner), first)
    return place([first], view.width) if second is None else place([first, second], half)


def _densest(crowded: Floats, start: _Rect) -> _Rect | None:
    """The smallest quadrant below ``start`` that holds 0.6 of the boxes; None if they are few or there is none."""
    if len(crowded) < 8:
        return None
    box = start
    while True:
        counts = [int(_inside(crowded, quarter(box, child)).sum()) for child in range(4)]
        if max(counts) < 0.6 * len(crowded):
            return None if box == start else box
        box = quarter(box, counts.index(max(counts)))


def _inside(boxes: Floats, box: _Rect) -> Flags:
    """bool[n]: whether each of the boxes lies within ``box``."""
    slack = 1e-9 * (box[2] - box[0])
    low, high = np.array(box[:2]) - slack, np.array(box[2:]) + slack
    return np.logical_and(boxes[:, :2] >= low, boxes[:, 2:] <= high).all(axis=1).reshape(-1)


def _insets(table: LeafTable, space: Space, view: _View, insets: list[_View], points: _Points | None) -> list[str]:
    parts = []
    for number, inset in enumerate(insets):
        name = "AB"[number]
        left, top, *_ = frame = view.rect(inset.bounds)
        parts.append(
            f'<rect class="frame" {_place(*frame)}/>'
            f'<text class="name" x="{left - 3:.1f}" y="{top + 9:.1f}" text-anchor="end">{name}</text>'
        )
        west, south, east, north = inset.bounds
        where = f"{west:g} to {east:g}, {south:g} to {north:g}"
        if space.geographic:
            where = (
                f"{_degrees(west, 'W', 'E')} to {_degrees(east, 'W', 'E')}, "
                f"{_degrees(south, 'S', 'N')} to {_degrees(north, 'S', 'N')}"
            )
        parts.append(
            f'<text x="{inset.left}" y="{inset.top - 7}"><tspan class="name">{name}</tspan>'
            f'<tspan class="soft" dx="6">{where}</tspan></text>'
        )
        leaves = np.flatnonzero(_inside(table.boxes, inset.bounds))
        parts += _map(table, space, inset, leaves, points)
        parts.append(
            f'<rect class="frame" x="{inset.left}" y="{inset.top}" width="{inset.width}" height="{inset.height}"/>'
        )
    return parts


def _map(table: LeafTable, space: Space, view: _View, leaves: Ints, points: _Points | None) -> list[str]:
    shore = _land_path(view) if space.geographic else ""
    clip = f"qt-clip-{view.left}-{view.top}"
    frame = f'x="{view.left}" y="{view.top}" width="{view.width}" height="{view.height}"'
    parts = [
        f'<clipPath id="{clip}"><rect {frame}/></clipPath>',
        f'<rect {frame} fill="var(--qt-cell)" stroke="var(--qt-line)"/>',
        f'<g clip-path="url(#{clip})">',
    ]
    if shore:
        parts.append(f'<path class="land" d="{shore}"/>')
    tiles, frames = _tiles(table, view, leaves)
    peak = float(table.load.max(initial=0.0)) or 1.0
    share = table.share
    by_slot: dict[int, list[str]] = {}
    labels: list[str] = []
    for tile in tiles:
        leaf, (left, top, width, height) = tile.leaf, tile.rect
        slot = int(table.slot[leaf])
        depth = 0.14 + 0.74 * math.sqrt(float(table.load[leaf]) / peak)
        kind = "textual share" if table.textual[leaf] else "cell"
        place = _place(*tile.rect)
        drawn = by_slot.setdefault(slot, [])
        drawn.append(
            f'<rect class="{"share" if table.textual[leaf] else "leaf"}" {place} fill="{slot_colour(slot)}" '
            f'fill-opacity="{depth:.2f}"><title>leaf {leaf} ({kind}) · slot {slot} · {100 * share[leaf]:.2f} % of the '
            f"load · {table.objects[leaf]:,} objects</title></rect>"
        )
        if table.textual[leaf]:
            drawn.append(f'<rect class="hatch" {place} fill="url(#qt-hatch)"/>')
        size = min(15.0, 0.62 * height, width / (0.75 * len(str(slot)) + 0.5))
        if size >= _SMALLEST_TYPE:
            middle = f'x="{left + width / 2:.1f}" y="{top + height / 2 + 0.36 * size:.1f}"'
            labels.append(f'<text class="label" {middle} style="font-size:{size:.1f}px">{slot}</text>')
    parts += [f'<g data-slot="{slot}">{"".join(drawn)}</g>' for slot, drawn in sorted(by_slot.items())]
    parts += [f'<rect class="cell" {_place(*frame)}/>' for frame in frames]
    if shore:
        parts.append(f'<path class="shore" d="{shore}"/>')
    if points is not None and len(points):
        parts.append(f'<path class="points" d="{_points_path(np.asarray(points, np.float64), view)}"/>')
    return [*parts, *labels, "</g>"]


def _place(left: float, top: float, width: float, height: float) -> str:
    """Where a rectangle is, as attributes; the smallest can still be seen."""
    return f'x="{left:.1f}" y="{top:.1f}" width="{max(width, 0.1):.1f}" height="{max(height, 0.1):.1f}"'


def _points_path(points: Floats, view: _View) -> str:
    """Dots as one path of moves and zero-length lines, each pixel once."""
    west, south, east, north = view.bounds
    points = points[(points >= (west, south)).all(axis=1) & (points <= (east, north)).all(axis=1)]
    if len(points) > _MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, _MOST_POINTS).astype(np.int64)]
    dots = {(round(view.x(x)), round(view.y(y))) for x, y in points.tolist()}
    return "".join(f"M{x} {y}h0" for x, y in sorted(dots))


def _land_path(view: _View) -> str:
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


def _axes(space: Space, view: _View) -> list[str]:
    west, south, east, north = view.bounds
    step = _nice_step(max(east - west, north - south), geographic=space.geographic)
    parts = []
    for x in _ticks(west, east, step):
        at = view.x(x)
        parts.append(f'<path d="M{at:.1f} {view.bottom}v4" stroke="var(--qt-line)"/>')
        label = _degrees(x, "W", "E") if space.geographic else f"{x:g}"
        parts.append(f'<text class="soft" x="{at:.1f}" y="{view.bottom + 15}" text-anchor="middle">{label}</text>')
    for y in _ticks(south, north, step):
        at = view.y(y)
        parts.append(f'<path d="M{view.left} {at:.1f}h-4" stroke="var(--qt-line)"/>')
        label = _degrees(y, "S", "N") if space.geographic else f"{y:g}"
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


def _degrees(value: float, negative: str, positive: str) -> str:
    side = negative if value < 0 else positive if value > 0 else ""
    if abs(value) == 180.0:
        side = ""
    return f"{abs(value):g}°{side}"


def _legend(table: LeafTable, x: int, y: int) -> list[str]:
    steps = 8
    peak = 100 * float(table.share.max(initial=0.0))
    parts = [
        f'<text class="soft" x="{x}" y="{y + 9}">leaf load</text>',
        f'<text class="soft" x="{x + 60}" y="{y + 9}">0</text>',
    ]
    for i in range(steps):
        depth = 0.14 + 0.74 * math.sqrt((i + 0.5) / steps)
        parts.append(
            f'<rect x="{x + 72 + 15 * i}" y="{y}" width="15" height="11" fill="{slot_colour(0)}" '
            f'fill-opacity="{depth:.2f}"/>'
        )
    x += 72 + 15 * steps + 6
    parts.append(f'<text class="soft" x="{x}" y="{y + 9}">{peak:.1f} % of all</text>')
    x += 92
    parts += [
        f'<text class="soft" x="{x}" y="{y + 9}">number and colour: slot</text>',
    ]
    if table.textual.any():
        x += 150
        parts += [
            f'<rect x="{x}" y="{y}" width="18" height="11" fill="{slot_colour(0)}" fill-opacity=".6"/>',
            f'<rect x="{x}" y="{y}" width="18" height="11" fill="url(#qt-hatch)"/>',
            f'<rect class="cell" x="{x}" y="{y}" width="18" height="11"/>',
            f'<text class="soft" x="{x + 24}" y="{y + 9}">textual shares of a cell</text>',
        ]
    return parts


def _slot_bars(table: LeafTable, x: float, y: float, width: float) -> list[str]:
    slots = table.slot_load
    total, peak = float(slots.sum()) or 1.0, float(slots.max(initial=0.0)) or 1.0
    leaves = np.bincount(table.slot, minlength=len(slots))
    parts: list[str] = [
        f'<text x="{x}" y="{y + 12}" style="font-weight:600">Load by slot</text>',
        f'<text class="soft" x="{x}" y="{y + 29}">Lmax/Lmin = {ratio(table.imbalance)}</text>',
    ]
    for i, load in enumerate(slots[:_MOST_BARS].tolist()):
        top = y + 42 + 26 * i
        count = f"{leaves[i]} {'leaf' if leaves[i] == 1 else 'leaves'}"
        parts.append(
            f'<g data-slot="{i}"><title>slot {i}: {count}, {100 * load / total:.2f} % of the load</title>'
            f'<text x="{x}" y="{top + 9}" style="font-size:11px">slot {i}</text>'
            f'<text class="soft" x="{x + width}" y="{top + 9}" text-anchor="end">'
            f"{100 * load / total:.1f} % · {count}</text>"
            f'<rect class="track" x="{x}" y="{top + 13}" width="{width}" height="6" rx="2"/>'
            f'<rect x="{x}" y="{top + 13}" width="{max(1.0, width * load / peak):.1f}" height="6" rx="2" '
            f'fill="{slot_colour(i)}"/></g>'
        )
    if len(slots) > _MOST_BARS:
        parts.append(
            f'<text class="soft" x="{x}" y="{y + 52 + 26 * _MOST_BARS}">and {len(slots) - _MOST_BARS:,} more</text>'
        )
    return parts
