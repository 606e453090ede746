"""Leaves on a map: a tile for each, in the colour of its slot, in a depth of colour that grows with its load."""

from __future__ import annotations

import colorsys
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spatialstream.index.boxes import quarter
from spatialstream.index.kinds import DEFAULT
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.space import Space
from spatialstream.report.map_view import Points, Rect, View, land_path, place_of, points_path

__all__ = ["SMALLEST_TYPE", "LeafTable", "Tile", "leaf_map", "slot_colour", "tiles_of"]

SMALLEST_TYPE = 6.5
"""Pixels of the smallest label."""

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


def slot_colour(slot: int) -> str:
    """A colour for a slot: ten chosen ones, then hues by the golden angle."""
    if slot < len(_PALETTE):
        return _PALETTE[slot]
    red, green, blue = colorsys.hls_to_rgb((slot * 0.618034) % 1.0, 0.46, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


@dataclass(frozen=True, slots=True)
class Tile:
    """Where one leaf is drawn (left, top, width, height in pixels)."""

    leaf: int
    rect: Rect


def tiles_of(table: LeafTable, view: View, leaves: Ints) -> tuple[list[Tile], list[Rect]]:
    """A tile for each of the leaves, and the frames of the cells that hold textual shares."""
    tiles: list[Tile] = []
    frames: list[Rect] = []
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
            tiles += [Tile(int(leaf), place) for leaf, place in zip(shares, places, strict=False)]
            if count > 1:
                frames.append(rect)
            if not len(inner):
                continue
            rect = places[-1]
        stack += _quarters(table, box, rect, inner, tiles)
    return tiles, frames


def _quarters(
    table: LeafTable, box: Rect, rect: Rect, leaves: Ints, tiles: list[Tile]
) -> list[tuple[Rect, Rect, Ints]]:
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
        tiles.append(Tile(int(leaf), place))
    half_w, half_h = rect[2] / 2, rect[3] / 2
    result = []
    for to_east in (False, True):
        for to_north in (False, True):
            place = (rect[0] + half_w * to_east, rect[1] + half_h * (not to_north), half_w, half_h)
            inside = leaves[(east == to_east) & (north == to_north) & ~astride]
            result.append((quarter(box, to_east + 2 * to_north), place, inside))
    return result


def _grid(rect: Rect, count: int) -> list[Rect]:
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


def leaf_map(table: LeafTable, space: Space, view: View, leaves: Ints, points: Points | None) -> list[str]:
    """The leaves over the outlines of land, with their slots as labels, and points, within the frame of a view."""
    shore = land_path(view) if space.geographic else ""
    clip = f"qt-clip-{view.left}-{view.top}"
    frame = f'x="{view.left}" y="{view.top}" width="{view.width}" height="{view.height}"'
    parts = [
        f'<clipPath id="{clip}"><rect {frame}/></clipPath>',
        f'<rect {frame} fill="var(--qt-cell)" stroke="var(--qt-line)"/>',
        f'<g clip-path="url(#{clip})">',
    ]
    if shore:
        parts.append(f'<path class="land" d="{shore}"/>')
    tiles, frames = tiles_of(table, view, leaves)
    peak = float(table.load.max(initial=0.0)) or 1.0
    share = table.share
    by_slot: dict[int, list[str]] = {}
    labels: list[str] = []
    for tile in tiles:
        leaf, (left, top, width, height) = tile.leaf, tile.rect
        slot = int(table.slot[leaf])
        depth = 0.14 + 0.74 * math.sqrt(float(table.load[leaf]) / peak)
        kind = "textual share" if table.textual[leaf] else "cell"
        place = place_of(*tile.rect)
        drawn = by_slot.setdefault(slot, [])
        drawn.append(
            f'<rect class="{"share" if table.textual[leaf] else "leaf"}" {place} fill="{slot_colour(slot)}" '
            f'fill-opacity="{depth:.2f}"><title>leaf {leaf} ({kind}) · slot {slot} · {100 * share[leaf]:.2f} % of the '
            f"load · {table.objects[leaf]:,} objects</title></rect>"
        )
        if table.textual[leaf]:
            drawn.append(f'<rect class="hatch" {place} fill="url(#qt-hatch)"/>')
        size = min(15.0, 0.62 * height, width / (0.75 * len(str(slot)) + 0.5))
        if size >= SMALLEST_TYPE:
            middle = f'x="{left + width / 2:.1f}" y="{top + height / 2 + 0.36 * size:.1f}"'
            labels.append(f'<text class="label" {middle} style="font-size:{size:.1f}px">{slot}</text>')
    parts += [f'<g data-slot="{slot}">{"".join(drawn)}</g>' for slot, drawn in sorted(by_slot.items())]
    parts += [f'<rect class="cell" {place_of(*frame)}/>' for frame in frames]
    if shore:
        parts.append(f'<path class="shore" d="{shore}"/>')
    if points is not None and len(points):
        parts.append(f'<path class="points" d="{points_path(np.asarray(points, np.float64), view)}"/>')
    return [*parts, *labels, "</g>"]
