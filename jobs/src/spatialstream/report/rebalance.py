"""A proposal of rebalancing as a picture: the leaves on their slots before and after, and the slots' loads (SSTD, 5).

The two maps are as in :mod:`spatialstream.report.leaf_map`: a leaf has the colour and number of its slot, in a depth
of colour that grows with its load. Leaves that do not move are pale. A leaf that moves has a frame, dashed before and
solid after, and after the move a corner in the colour of its previous slot. Below, each slot has a pale bar for its
load before and a strong one for its load after, in percent of the total load before, so that load saved by a better
tree is visible too. Cost: O(n log n) for n leaves.
"""

from __future__ import annotations

from html import escape

import numpy as np

from spatialstream.balance.proposal import Proposal
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Codes, Floats
from spatialstream.model.space import Space
from spatialstream.model.tables import ratio
from spatialstream.report.leaf_map import LeafTable, leaf_map, slot_colour, tiles_of
from spatialstream.report.map_view import MARGIN_LEFT, View, axes, picture, place_of

__all__ = ["rebalance_svg"]

_TOP = 84
_GAP = 56
_CHART = 170
"""Pixels of the bars' full height."""
_MOST_SLOTS = 128

_MORE_STYLE = """
.qt .still{fill:var(--qt-paper);fill-opacity:.62;pointer-events:none}
.qt .leaves{fill:none;stroke:var(--qt-ink);stroke-dasharray:4 2.5;pointer-events:none}
.qt .comes{fill:none;stroke:var(--qt-ink);pointer-events:none}
.qt .from{stroke:var(--qt-ink);stroke-width:.8;pointer-events:none}
.qt .mean{stroke:var(--qt-soft);stroke-width:1;stroke-dasharray:3 3}.qt .base{stroke:var(--qt-line)}
"""


def rebalance_svg(proposal: Proposal, space: Space, width: int = 1200) -> str:
    """A self-contained SVG of a proposal.

    Args:
        proposal: the proposal.
        space: gives the axes; WGS84 is drawn over the outlines of land.
        width: pixels, at least 720; the height follows from the space's proportions.

    Raises:
        ValueError: the width leaves no room.
    """
    if width < 720:
        raise ValueError(f"width is {width}; the picture needs at least 720 pixels")
    inner = (width - MARGIN_LEFT - _GAP - 16) // 2
    before = View.fit(space.bounds, MARGIN_LEFT, _TOP, inner)
    after = View.fit(space.bounds, MARGIN_LEFT + inner + _GAP, _TOP, inner)
    chart = before.bottom + 96
    height = chart + _CHART + 30
    title = _title(proposal)
    parts = [
        f'<text x="{before.left}" y="22" class="big">{escape(title)}</text>',
        f'<text x="{before.left}" y="41" class="soft">{escape(_subtitle(proposal))}</text>',
        *_side(proposal.previous, proposal.loads_before, proposal.moves.source, space, before, None),
        *_side(proposal.version, proposal.loads_after, proposal.moves.leaf, space, after, _arrivals(proposal)),
        f'<text x="{before.left}" y="{before.bottom + 34}" class="soft">number and colour: slot; strength: load; '
        "framed: leaves that change slot; the corner has the colour of the slot that they come from</text>",
        *_bars(proposal, before.left, chart, width - before.left - 16),
    ]
    return picture(width, height, title, parts, _MORE_STYLE)


def _title(proposal: Proposal) -> str:
    return (
        f"{proposal.strategy}: Lmax/Lmin {ratio(proposal.imbalance_before)} → {ratio(proposal.imbalance_after)} "
        f"(threshold {proposal.threshold:g})"
    )


def _subtitle(proposal: Proposal) -> str:
    moved = len(np.unique(proposal.moves.leaf))
    parts = [
        f"proposal {proposal.id}, version {proposal.base} to {proposal.version.number}",
        f"{moved:,} {'leaf changes' if moved == 1 else 'leaves change'} slot",
        f"about {proposal.queries_moved:,.0f} continuous queries move",
    ]
    if proposal.changes.text:
        parts.append(proposal.changes.text)
    return " · ".join(parts)


def _arrivals(proposal: Proposal) -> dict[int, int]:
    """For each leaf that moves, the slot before of the part with the most continuous queries."""
    moves = proposal.moves
    by_queries = np.argsort(moves.queries, kind="stable").tolist()
    return {int(moves.leaf[i]): int(moves.old_slot[i]) for i in by_queries}


def _side(
    version: RoutingVersion, loads: Floats, moved: Codes, space: Space, view: View, arrivals: dict[int, int] | None
) -> list[str]:
    """One of the two maps; ``arrivals`` says where leaves come from, and is None for the map before."""
    table = LeafTable.of(version, loads, version.index.leaves.objects)
    everything = np.arange(len(table))
    tiles, _ = tiles_of(table, view, everything)
    moving = set(moved.tolist())
    name = "before" if arrivals is None else "after"
    heading = f"{name}: {len(table):,} leaves, Lmax/Lmin {ratio(table.imbalance)}"
    marks = []
    for tile in sorted(tiles, key=lambda each: each.leaf in moving):
        left, top, wide, high = tile.rect
        inset = min(1.0, 0.1 * min(wide, high)) if tile.leaf in moving else 0.0
        place = place_of(left + inset, top + inset, wide - 2 * inset, high - 2 * inset)
        line = min(2.2, 0.5 + 0.06 * min(wide, high))
        if tile.leaf not in moving:
            marks.append(f'<rect class="still" {place}/>')
        elif arrivals is None:
            marks.append(f'<rect class="leaves" data-leaf="{tile.leaf}" {place} stroke-width="{0.8 * line:.1f}"/>')
        else:
            size = min(14.0, 0.45 * min(wide, high))
            corner = f"M{left + inset:.1f} {top + inset:.1f}h{size:.1f}l{-size:.1f} {size:.1f}z"
            slot = arrivals[tile.leaf]
            marks.append(f'<path class="from" d="{corner}" fill="{slot_colour(slot)}"/>')
            frame = f'data-from="{slot}" {place} stroke-width="{line:.1f}"'
            marks.append(f'<rect class="comes" data-leaf="{tile.leaf}" {frame}/>')
    return [
        f'<text x="{view.left}" y="{view.top - 12}" style="font-weight:600">{escape(heading)}</text>',
        f'<g id="qt-{name}">',
        *leaf_map(table, space, view, everything, None),
        *marks,
        "</g>",
        *axes(space, view),
    ]


def _bars(proposal: Proposal, left: int, top: int, width: int) -> list[str]:
    """Two bars for each slot, and the mean load after."""
    before, after = proposal.before, proposal.after
    total = float(before.sum()) or 1.0
    slots = min(len(before), _MOST_SLOTS)
    peak = max(float(before.max(initial=0.0)), float(after.max(initial=0.0))) or 1.0
    step = width / slots
    wide = min(26.0, 0.4 * step)
    base = top + _CHART
    more = "" if slots == len(before) else f", the first {slots} of {len(before):,}"
    parts = [
        f'<text x="{left}" y="{top - 30}" style="font-weight:600">Load by slot</text>',
        f'<text x="{left + 92}" y="{top - 30}" class="soft">pale: before, strong: after; percent of the whole load '
        f"before{more}; dashed: the mean after</text>",
        f'<path class="base" d="M{left} {base}h{width}"/>',
    ]
    for slot in range(slots):
        middle = left + (slot + 0.5) * step
        was, will = 100 * before[slot] / total, 100 * after[slot] / total
        drawn = [f"<title>slot {slot}: {was:.2f} % before, {will:.2f} % after</title>"]
        for load, x, opacity in ((before[slot], middle - wide - 0.5, 0.32), (after[slot], middle + 0.5, 0.95)):
            high = max(float(load) / peak * _CHART, 1.0)
            drawn.append(
                f'<rect class="bar" x="{x:.1f}" y="{base - high:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill="{slot_colour(slot)}" fill-opacity="{opacity}"/>'
            )
            if step >= 62:
                drawn.append(
                    f'<text class="soft" x="{x + wide / 2:.1f}" y="{base - high - 4:.1f}" text-anchor="middle" '
                    f'style="font-size:10px">{100 * load / total:.1f}</text>'
                )
        if step >= 11 or slot % 8 == 0:
            drawn.append(f'<text x="{middle:.1f}" y="{base + 16}" text-anchor="middle">{slot}</text>')
        parts.append(f'<g data-slot="{slot}">{"".join(drawn)}</g>')
    mean = base - float(after.mean()) / peak * _CHART
    parts.append(f'<path class="mean" d="M{left} {mean:.1f}h{width}"/>')
    parts.append(f'<text class="soft" x="{left - 7}" y="{base + 16}" text-anchor="end">slot</text>')
    return parts
