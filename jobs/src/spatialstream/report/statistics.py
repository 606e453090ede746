"""J, the statistics that trees are made from (SSTD, section 4.1.1), as a table and as a picture.

The picture has a map for the objects, and one for each type of query that came: cells are the darker, the more objects
or queries there are on their area. Cost: O(cells).
"""

from __future__ import annotations

from html import escape

import numpy as np

from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Floats
from spatialstream.model.kinds import STANDING, TYPES
from spatialstream.model.tables import aligned
from spatialstream.report.tree import _axes, _land_path, _picture, _View

__all__ = ["statistics_svg", "statistics_text"]

_SHADES = 12
_DECADES = 3.0
"""Powers of ten between the palest cells that are shaded and the darkest."""
_SMALLEST = 2.5
"""Pixels of a cell's side; where cells are smaller, those above them are drawn."""
_LEFT, _TOP, _GAP, _HEAD = 46, 40, 56, 48


def statistics_text(statistics: Statistics) -> str:
    """The types of query, and how deep J is, for a terminal."""
    whole = float(statistics.queries.sum()) or 1.0
    finest = statistics.cells.first < 0
    rows = []
    for code, kind in enumerate(TYPES):
        count = float(statistics.queries[code])
        if count == 0.0:
            continue
        lasts = float(statistics.duration_sums[code].sum()) / count / 1000.0
        words = float(statistics.lengths[code] @ np.arange(statistics.lengths.shape[1])) / count
        reached = float(statistics.reached[code, finest].sum()) / count
        stands = f"{lasts:,.0f} s" if STANDING[code] else ""
        part = f"{100 * count / whole:.1f} %"
        rows.append([kind.value, f"{count:,.0f}", part, f"{words:.1f}", stands, f"{reached:,.1f}"])
    head = ["type", "queries", "part", "keywords", "stands for", "cells reached"]
    lines = [*aligned(head, rows, right={1, 2, 3, 4, 5}), ""] if rows else ["no queries", ""]
    per_second = 1000.0 * float(statistics.objects[0]) / max(statistics.span, 1.0)
    lines.append(
        f"{len(statistics.cells):,} cells on {int(statistics.cells.level[-1]) + 1} levels, {int(finest.sum()):,} of "
        f"them not divided; {statistics.objects[0]:,.0f} objects, {per_second:,.1f} a second"
    )
    return "\n".join(lines) + "\n"


def statistics_svg(statistics: Statistics, width: int = 960) -> str:
    """A self-contained SVG of maps: where objects are, and where queries of each type look.

    Args:
        statistics: J.
        width: pixels, at least 480; the height follows from the space's proportions and the number of maps.
    """
    if width < 480:
        raise ValueError(f"width is {width}; the picture needs at least 480 pixels")
    maps = [("objects", float(statistics.objects[0]), statistics.objects)]
    maps += [
        (kind.value, float(statistics.queries[code]), statistics.shares[code])
        for code, kind in enumerate(TYPES)
        if statistics.queries[code]
    ]
    across = min(2, len(maps))
    each = (width - _LEFT - 20 - (across - 1) * _GAP) // across
    boxes = statistics.cells.boxes()
    parts, bottom = list[str](), _TOP
    for number, (name, count, values) in enumerate(maps):
        row, column = divmod(number, across)
        view = _View.fit(statistics.space.bounds, _LEFT + column * (each + _GAP), 0, each)
        view = _View(view.bounds, view.left, _TOP + 24 + row * (view.height + _HEAD + 24), view.width, view.height)
        bottom = view.bottom
        parts.append(
            f'<text x="{view.left}" y="{view.top - 8}"><tspan class="name">{escape(name)}</tspan>'
            f'<tspan class="soft" dx="6">{count:,.0f}</tspan></text>'
        )
        parts += _map(statistics, view, boxes, values)
    title = f"J: {len(statistics.cells):,} cells on {int(statistics.cells.level[-1]) + 1} levels"
    head = f'<text x="{_LEFT}" y="22" class="big">{escape(title)}</text>'
    return _picture(width, bottom + 70, title, [head, *parts, *_legend(_LEFT, bottom + 38)])


def _map(statistics: Statistics, view: _View, boxes: Floats, values: Array) -> list[str]:
    """Cells shaded by what there is on their area."""
    cells, space = statistics.cells, statistics.space
    left, top, wide, high = np.array([view.rect(box) for box in boxes.tolist()]).T
    small = np.minimum(wide, high) < _SMALLEST
    below = cells.first >= 0
    below[below] = small[cells.first[below]]
    drawn = ((cells.first < 0) | below) & (~small | (cells.level == 0)) & (values > 0.0)
    density = values[drawn] / (wide[drawn] * high[drawn])
    shade = np.log10(density / density.max(initial=1e-300)) / _DECADES + 1.0
    shade = np.clip(np.ceil(shade * _SHADES), 1, _SHADES).astype(np.int64)
    place = np.stack([left[drawn], top[drawn], wide[drawn], high[drawn]], axis=1)
    frame = f'x="{view.left}" y="{view.top}" width="{view.width}" height="{view.height}"'
    parts = [f'<rect {frame} fill="var(--qt-cell)" stroke="var(--qt-line)"/>']
    for step in range(1, _SHADES + 1):
        path = "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z" for x, y, w, h in place[shade == step].tolist())
        if path:
            parts.append(f'<path d="{path}" {_fill(step)} stroke="var(--qt-line)" stroke-width=".3"/>')
    if space.geographic and (shore := _land_path(view)):
        clip = f"qt-clip-{view.left}-{view.top}"
        parts.append(f'<clipPath id="{clip}"><rect {frame}/></clipPath>')
        parts.append(f'<path class="shore" clip-path="url(#{clip})" d="{shore}"/>')
    return [*parts, *_axes(space, view)]


def _fill(step: int) -> str:
    return f'fill="#2f6fd0" fill-opacity="{0.04 + 0.9 * step / _SHADES:.2f}"'


def _legend(x: int, y: int) -> list[str]:
    parts = [f'<text class="soft" x="{x}" y="{y + 9}">on an area: a thousandth of the most, and less</text>']
    x += 268
    parts += [f'<rect x="{x + 15 * i}" y="{y}" width="15" height="11" {_fill(i + 1)}/>' for i in range(_SHADES)]
    return [*parts, f'<text class="soft" x="{x + 15 * _SHADES + 6}" y="{y + 9}">the most</text>']
