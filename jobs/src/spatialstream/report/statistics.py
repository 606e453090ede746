"""J, the statistics from which trees are built (SSTD, section 4.1.1), as tables and as a picture.

The picture has a map of the objects, and one for each query type that occurs: the more objects or queries on the area
of a cell, the darker it is. If the queries of a type differ by region in their duration or number of keywords, another
map shows the averages, with outlines of the cells that have an average of their own. Cost: O(cells).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import numpy as np

from spatialstream.index.statistics import SKQ, SRQ, Statistics
from spatialstream.model.arrays import Codes, Flags, Floats, Ints
from spatialstream.model.kinds import IS_CONTINUOUS, TYPES
from spatialstream.model.space import Space
from spatialstream.model.tables import aligned
from spatialstream.report.map_view import View, axes, decimals, degrees, land_path, picture

__all__ = ["statistics_svg", "statistics_text"]

_SHADES = 12
_DECADES = 3.0
"""Powers of ten between the palest cells that are shaded and the darkest."""
_SMALLEST = 2.5
"""Pixels of a cell's side; where cells are smaller, those above them are drawn."""
_LEFT, _TOP, _GAP, _HEAD = 46, 40, 56, 48
_ALIKE = 1.05
"""Averages by region that differ by less than this factor are not worth a map."""
_UNITS = ((86_400_000.0, "d"), (3_600_000.0, "h"), (60_000.0, "min"), (1_000.0, "s"))


class _Ink(NamedTuple):
    """A colour, and how opaque its palest shade is."""

    colour: str
    palest: float


_DENSITY, _LASTING, _WORDS = _Ink("#2f6fd0", 0.04), _Ink("#b3541e", 0.18), _Ink("#23836b", 0.18)

_STYLE = """
.qt .own{fill:none;stroke:var(--qt-ink);stroke-width:.8;stroke-opacity:.75;pointer-events:all}
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Regional:
    """A quantity of the queries of a type that differs by region.

    Attributes:
        name: the query type.
        what: name of the quantity in a table.
        title: name of the quantity above a map.
        value: float64[n], its average over the queries that reach each cell.
        basis: int32[n], the cell from which the average is taken.
        asked: bool[n], whether any query reaches the cell.
        finest: int64[m], the cells among these that are not divided.
        form: formats an average.
        ink: ink of the map.
    """

    name: str
    what: str
    title: str
    value: Floats
    basis: Codes
    asked: Flags
    finest: Ints
    form: Callable[[float], str]
    ink: _Ink

    @property
    def usual(self) -> float:
        """The average over all queries."""
        return float(self.value[0])

    @property
    def lowest(self) -> float:
        """The lowest average of a cell that is not divided."""
        return float(self.value[self.finest].min(initial=math.inf))

    @property
    def highest(self) -> float:
        """The highest average of a cell that is not divided."""
        return float(self.value[self.finest].max(initial=0.0))


def _regional(statistics: Statistics) -> list[_Regional]:
    """The quantities that differ by region."""
    regional = []
    for code, kind in enumerate(TYPES):
        asked = statistics.reached[code] > 0.0
        cells = asked, np.flatnonzero(asked & (statistics.cells.first < 0))
        if IS_CONTINUOUS[code]:
            numbers = statistics.lifetimes[code], statistics.basis[code]
            regional.append(_Regional(kind, "duration", "duration of queries", *numbers, *cells, _lasting, _LASTING))
        if code in (SRQ, SKQ):
            numbers = statistics.keywords(code)
            regional.append(_Regional(kind, "keywords", "number of keywords", *numbers, *cells, _number, _WORDS))
    return [each for each in regional if each.highest > _ALIKE * each.lowest]


def _lasting(ms: float) -> str:
    """A duration to two digits, in the largest unit that it reaches."""
    size, unit = next((each for each in _UNITS if ms >= 0.995 * each[0]), (1.0, "ms"))
    value = ms / size
    return f"{value:.1f} {unit}" if value < 9.95 and f"{value:.1f}"[-1] != "0" else f"{value:,.0f} {unit}"


def _number(value: float) -> str:
    return f"{value:.1f}"


def statistics_text(statistics: Statistics) -> str:
    """Format the query types, the quantities that differ by region, and the depth of J, for a terminal."""
    total = float(statistics.queries.sum()) or 1.0
    finest = statistics.cells.first < 0
    rows = []
    for code, kind in enumerate(TYPES):
        count = float(statistics.queries[code])
        if count == 0.0:
            continue
        lasts = float(statistics.duration_sums[code].sum()) / count
        words = float(statistics.lengths[code] @ np.arange(statistics.lengths.shape[1])) / count
        reached = float(statistics.reached[code, finest].sum()) / count
        stands = _lasting(lasts) if IS_CONTINUOUS[code] else ""
        part = f"{100 * count / total:.1f} %"
        rows.append([kind, f"{count:,.0f}", part, _number(words), stands, f"{reached:,.1f}"])
    head = ["type", "queries", "part", "keywords", "duration", "cells reached"]
    lines = [*aligned(head, rows, right={1, 2, 3, 4, 5}), ""] if rows else ["no queries", ""]
    lines += _regions_text(statistics)
    per_second = 1000.0 * float(statistics.objects[0]) / max(statistics.span, 1.0)
    lines.append(
        f"{len(statistics.cells):,} cells on {int(statistics.cells.level[-1]) + 1} levels, {int(finest.sum()):,} of "
        f"them not divided; {statistics.objects[0]:,.0f} objects, {per_second:,.1f} a second"
    )
    return "\n".join(lines) + "\n"


def _regions_text(statistics: Statistics) -> list[str]:
    """Format for each quantity that differs by region its number of regions, and where it is lowest and highest."""
    boxes, rows = statistics.cells.boxes(), []
    for each in _regional(statistics):
        averages = each.value[each.finest]
        ends = each.basis[each.finest[[np.argmin(averages), np.argmax(averages)]]]
        least, most = (_place(statistics.space, box) for box in boxes[ends])
        regions = f"{len(np.unique(each.basis[each.finest])):,}"
        low, usual, high = map(each.form, (each.lowest, each.usual, each.highest))
        rows.append([each.name, each.what, regions, usual, low, least, high, most])
    if not rows:
        told = "keywords and durations do not differ by region, as far as is known"
        return [told, ""] if statistics.queries.any() else []
    head = ["type", "by region", "regions", "on average", "least", "around", "most", "around"]
    return [*aligned(head, rows, right={2, 3, 4, 6}), ""]


def _place(space: Space, box: Floats) -> str:
    """The middle of a cell."""
    x, y = 0.5 * (box[0] + box[2]), 0.5 * (box[1] + box[3])
    if space.geographic:
        return f"{degrees(round(y, 1), 'S', 'N')} {degrees(round(x, 1), 'W', 'E')}"
    digits = decimals(space)
    return f"{x:.{digits}f}, {y:.{digits}f}"


# ------------------------------------------------------------------------------------------------------------- picture


@dataclass(frozen=True, slots=True, eq=False)
class _Panel:
    """A map, and what is written above it.

    Attributes:
        name, said: what it shows.
        shown: the cells to be drawn, of those that are not too small.
        shade: from 0.0 to 1.0, where each cell's value is between the least and the most.
        ink: of all shades.
        ends: what the palest and the darkest shade mean; None where the legend of the whole picture says it.
        own: cells to be outlined, with a text for each; None: none are, but all have thin borders.
    """

    name: str
    said: str
    shown: Flags
    shade: Callable[[_Sides, Ints], Floats]
    ink: _Ink
    ends: tuple[str, str] | None = None
    own: tuple[Ints, Callable[[int], str]] | None = None


_Sides = Floats
"""float64[n, 4]: left, top, width and height of each cell in pixels."""


def _density(name: str, count: float, values: Floats) -> _Panel:
    """Shaded by what there is on an area, from a thousandth of the most on."""

    def shade(sides: _Sides, cells: Ints) -> Floats:
        density = values[cells] / (sides[cells, 2] * sides[cells, 3])
        result: Floats = np.log10(density / density.max(initial=1e-300)) / _DECADES + 1.0
        return result

    return _Panel(name, f"{count:,.0f}", values > 0.0, shade, _DENSITY)


def _averages(each: _Regional) -> _Panel:
    """Shaded by an average, from the least, or a thousandth of the most, to the most."""
    low, high = max(each.lowest, 1e-3 * each.highest), each.highest

    def shade(_: _Sides, cells: Ints) -> Floats:
        result: Floats = np.log(np.maximum(each.value[cells], low) / low) / math.log(high / low)
        return result

    bases = np.unique(each.basis)
    return _Panel(
        f"{each.name}: {each.title}",
        f"{each.form(each.usual)} on average",
        each.asked,
        shade,
        each.ink,
        (each.form(each.lowest), each.form(high)),
        (bases[bases > 0].astype(np.int64), lambda cell: each.form(float(each.value[cell]))),
    )


def statistics_svg(statistics: Statistics, width: int = 960) -> str:
    """Draw a self-contained SVG of maps: the objects, the queries of each type, and what differs by region.

    Args:
        statistics: J.
        width: pixels, at least 480; the height follows from the space's proportions and the number of maps.
    """
    if width < 480:
        raise ValueError(f"width is {width}; the picture needs at least 480 pixels")
    panels = [_density("objects", float(statistics.objects[0]), statistics.objects)]
    panels += [
        _density(kind, float(statistics.queries[code]), statistics.shares[code])
        for code, kind in enumerate(TYPES)
        if statistics.queries[code]
    ]
    regional = [_averages(each) for each in _regional(statistics)]
    across = min(2, len(panels))
    panel_width = (width - _LEFT - 20 - (across - 1) * _GAP) // across
    parts, bottom = _rows(statistics, panels, across, panel_width, _TOP)
    parts += _legend(_LEFT, bottom + 38)
    bottom += 70
    if regional:
        parts.append(f'<text x="{_LEFT}" y="{bottom + 20}" class="big">Differences by region</text>')
        more, bottom = _rows(statistics, regional, across, panel_width, bottom + 38)
        note = (
            "outlined: cells with enough queries for an average of their own; other cells have that of the cell around"
        )
        parts += [*more, f'<text class="soft" x="{_LEFT}" y="{bottom + 62}">{note}</text>']
        bottom += 84
    title = f"J: {len(statistics.cells):,} cells on {int(statistics.cells.level[-1]) + 1} levels"
    head = f'<text x="{_LEFT}" y="22" class="big">{escape(title)}</text>'
    return picture(width, bottom, title, [head, *parts], _STYLE)


def _rows(statistics: Statistics, panels: list[_Panel], across: int, each: int, top: int) -> tuple[list[str], int]:
    """Draw maps in rows of ``across``, each ``each`` pixels wide; also returns the bottom of the last row."""
    boxes = statistics.cells.boxes()
    parts, bottom = list[str](), top
    for number, panel in enumerate(panels):
        row, column = divmod(number, across)
        view = View.fit(statistics.space.bounds, _LEFT + column * (each + _GAP), 0, each)
        view = View(view.bounds, view.left, top + 24 + row * (view.height + _HEAD + 24), view.width, view.height)
        bottom = view.bottom
        parts.append(
            f'<text x="{view.left}" y="{view.top - 8}"><tspan class="name">{escape(panel.name)}</tspan>'
            f'<tspan class="soft" dx="6">{panel.said}</tspan></text>'
        )
        if panel.ends is not None:
            parts += _scale(panel.ink, *panel.ends, view)
        parts += _map(statistics, view, boxes, panel)
    return parts, bottom


def _map(statistics: Statistics, view: View, boxes: Floats, panel: _Panel) -> list[str]:
    """Draw cells in their shades, with outlines of those that have an average of their own."""
    cells, space = statistics.cells, statistics.space
    sides = np.array([view.rect(box) for box in boxes.tolist()])
    small = sides[:, 2:].min(axis=1) < _SMALLEST
    below = cells.first >= 0
    below[below] = small[cells.first[below]]
    drawn = np.flatnonzero(((cells.first < 0) | below) & (~small | (cells.level == 0)) & panel.shown)
    shade = np.clip(np.ceil(panel.shade(sides, drawn) * _SHADES), 1, _SHADES).astype(np.int64)
    frame = f'x="{view.left}" y="{view.top}" width="{view.width}" height="{view.height}"'
    parts = [f'<rect {frame} fill="var(--qt-cell)" stroke="var(--qt-line)"/>']
    line = "" if panel.own else ' stroke="var(--qt-line)" stroke-width=".3"'
    for step in range(1, _SHADES + 1):
        if path := _path(sides[drawn[shade == step]]):
            parts.append(f'<path d="{path}" {_fill(panel.ink, step)}{line}/>')
    if space.geographic and (shore := land_path(view)):
        clip = f"qt-clip-{view.left}-{view.top}"
        parts.append(f'<clipPath id="{clip}"><rect {frame}/></clipPath>')
        parts.append(f'<path class="shore" clip-path="url(#{clip})" d="{shore}"/>')
    if panel.own:
        own, text = panel.own
        parts += [
            f'<path class="own" d="{_path(sides[[cell]])}"><title>{escape(text(cell))}</title></path>'
            for cell in own[~small[own]].tolist()
        ]
    return [*parts, *axes(space, view)]


def _path(sides: _Sides) -> str:
    return "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z" for x, y, w, h in sides.tolist())


def _fill(ink: _Ink, step: int) -> str:
    return f'fill="{ink.colour}" fill-opacity="{ink.palest + (0.94 - ink.palest) * step / _SHADES:.2f}"'


def _scale(ink: _Ink, low: str, high: str, view: View) -> list[str]:
    """What the shades of one map mean, below it."""
    x, y = view.left + 80, view.bottom + 25
    return [
        f'<text class="soft" x="{x - 6}" y="{y + 9}" text-anchor="end">{escape(low)}</text>',
        *_shades(ink, x, y, 15),
        f'<text class="soft" x="{x + 15 * _SHADES + 6}" y="{y + 9}">{escape(high)}</text>',
    ]


def _shades(ink: _Ink, x: int, y: int, step: int) -> list[str]:
    return [
        f'<rect x="{x + step * i}" y="{y}" width="{step}" height="11" {_fill(ink, i + 1)}/>' for i in range(_SHADES)
    ]


def _legend(x: int, y: int) -> list[str]:
    text = f'<text class="soft" x="{x}" y="{y + 9}">on an area: a thousandth of the most, and less</text>'
    end = f'<text class="soft" x="{x + 274 + 15 * _SHADES}" y="{y + 9}">the most</text>'
    return [text, *_shades(_DENSITY, x + 268, y, 15), end]
