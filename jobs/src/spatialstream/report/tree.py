"""The leaves of a global index as text and as a picture.

A leaf is a spatial cell, or a textual share of one: after a textual split, several leaves have one box, and a share
may be split by space again. On the picture such a cell is divided into tiles, one a share; shares that were
split further are drawn together, to scale, in a tile of their own. Where leaves are too small to
be told apart, an inset shows their quadrant larger. Cost: O(n log n) for n leaves.
"""

from __future__ import annotations

import math
from html import escape

import numpy as np

from spatialstream.index.boxes import quarter
from spatialstream.model.arrays import Flags, Floats, Ints
from spatialstream.model.space import Space
from spatialstream.model.tables import aligned, ratio
from spatialstream.report.leaf_map import SMALLEST_TYPE, LeafTable, leaf_map, slot_colour, tiles_of
from spatialstream.report.map_view import (
    MARGIN_LEFT,
    MARGIN_TOP,
    Points,
    Rect,
    View,
    axes,
    decimals,
    degrees,
    picture,
    place_of,
)

__all__ = ["tree_svg", "tree_text"]


def tree_text(table: LeafTable, space: Space, estimated: bool = False) -> str:
    """Format two tables for a terminal: the leaves in order, then the slots with their loads and Lmax/Lmin.

    Args:
        table: the leaves.
        space: the stream's space.
        estimated: whether to mark the leaves' object counts as estimated.
    """
    digits = decimals(space)
    share = table.share
    rows = [
        [
            str(i),
            *(f"{bound:.{digits}f}" for bound in table.boxes[i]),
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


_SIDE = 200
"""Width of the column with the slots' loads."""
_GAP = 14
_LABELLED = SMALLEST_TYPE / 0.62
"""Pixels of a side of the smallest tile that takes a label; smaller leaves get an inset."""
_MOST_BARS = 64


def tree_svg(table: LeafTable, space: Space, points: Points | None = None, width: int = 960) -> str:
    """A self-contained SVG: cells shaded by load and coloured by slot, and the slots' loads beside them.

    Args:
        table: the leaves.
        space: gives the axes; WGS84 is drawn over the outlines of land.
        points: float64[m, 2], a sample of the objects; at most 2,000, evenly picked, are drawn.
        width: pixels, at least 480; the height follows from the space's proportions.
    """
    if width < 480:
        raise ValueError(f"width is {width}; the picture needs at least 480 pixels")
    inner = width - MARGIN_LEFT - _SIDE
    view = View.fit(_bounds(table, space), MARGIN_LEFT, MARGIN_TOP, inner)
    everything = np.arange(len(table))
    insets = _inset_views(table, view)
    slots = table.slot_load
    below = max((inset.bottom for inset in insets), default=view.bottom + 24)
    height = max(below + 34, MARGIN_TOP + 52 + 26 * min(len(slots), _MOST_BARS) + 20)
    title = f"{table.kind}: {len(table):,} leaves on {len(slots):,} slots, Lmax/Lmin {ratio(table.imbalance)}"
    parts = [
        f'<text x="{view.left}" y="20" class="big">{escape(title)}</text>',
        *leaf_map(table, space, view, everything, points),
        *axes(space, view),
        *_insets(table, space, view, insets, points),
        *_legend(table, view.left, height - 22),
        *_slot_bars(table, view.left + view.width + 24, MARGIN_TOP, _SIDE - 24),
    ]
    return picture(width, height, title, parts)


def _bounds(table: LeafTable, space: Space) -> Rect:
    if not len(table):
        return space.bounds
    west, south = table.boxes[:, :2].min(axis=0).tolist()
    east, north = table.boxes[:, 2:].max(axis=0).tolist()
    return west, south, east, north


def _crowded(table: LeafTable, view: View, leaves: Ints) -> Floats:
    """float64[m, 4]: boxes of the leaves whose tiles are too small for a label."""
    tiles, _ = tiles_of(table, view, leaves)
    small = [tile.leaf for tile in tiles if min(tile.rect[2:]) < _LABELLED]
    return table.boxes[small]


def _inset_views(table: LeafTable, view: View) -> list[View]:
    """Choose up to two quadrants of the space to show larger, side by side.

    The first is the smallest one with most of the leaves that are too small for a label. The second is chosen likewise
    from the crowded leaves elsewhere, or from those that are still too small in the first inset.
    """
    half = (view.width - _GAP) // 2

    def place(bounds: list[Rect], width: int) -> list[View]:
        return [View.fit(box, view.left + i * (width + _GAP), view.bottom + 46, width) for i, box in enumerate(bounds)]

    crowded = _crowded(table, view, np.arange(len(table)))
    first = _densest(crowded, view.bounds)
    if first is None:
        return []
    second = _densest(crowded[~_inside(crowded, first)], view.bounds)
    if second is None:
        inner = np.flatnonzero(_inside(table.boxes, first))
        second = _densest(_crowded(table, place([first], half)[0], inner), first)
    return place([first], view.width) if second is None else place([first, second], half)


def _densest(crowded: Floats, start: Rect) -> Rect | None:
    """The smallest quadrant below ``start`` that holds 0.6 of the boxes; None if they are few or there is none."""
    if len(crowded) < 8:
        return None
    box = start
    while True:
        counts = [int(_inside(crowded, quarter(box, child)).sum()) for child in range(4)]
        if max(counts) < 0.6 * len(crowded):
            return None if box == start else box
        box = quarter(box, counts.index(max(counts)))


def _inside(boxes: Floats, box: Rect) -> Flags:
    """bool[n]: whether each of the boxes lies within ``box``."""
    slack = 1e-9 * (box[2] - box[0])
    low, high = np.array(box[:2]) - slack, np.array(box[2:]) + slack
    return np.logical_and(boxes[:, :2] >= low, boxes[:, 2:] <= high).all(axis=1).reshape(-1)


def _insets(table: LeafTable, space: Space, view: View, insets: list[View], points: Points | None) -> list[str]:
    parts = []
    for number, inset in enumerate(insets):
        name = "AB"[number]
        left, top, *_ = frame = view.rect(inset.bounds)
        parts.append(
            f'<rect class="frame" {place_of(*frame)}/>'
            f'<text class="name" x="{left - 3:.1f}" y="{top + 9:.1f}" text-anchor="end">{name}</text>'
        )
        west, south, east, north = inset.bounds
        where = f"{west:g} to {east:g}, {south:g} to {north:g}"
        if space.geographic:
            where = (
                f"{degrees(west, 'W', 'E')} to {degrees(east, 'W', 'E')}, "
                f"{degrees(south, 'S', 'N')} to {degrees(north, 'S', 'N')}"
            )
        parts.append(
            f'<text x="{inset.left}" y="{inset.top - 7}"><tspan class="name">{name}</tspan>'
            f'<tspan class="soft" dx="6">{where}</tspan></text>'
        )
        leaves = np.flatnonzero(_inside(table.boxes, inset.bounds))
        parts += leaf_map(table, space, inset, leaves, points)
        parts.append(
            f'<rect class="frame" x="{inset.left}" y="{inset.top}" width="{inset.width}" height="{inset.height}"/>'
        )
    return parts


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
