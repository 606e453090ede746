"""Description of a proposal's changes and expected effects, as text for a terminal."""

from __future__ import annotations

import numpy as np

from spatialstream.balance.proposal import Proposal
from spatialstream.model.tables import aligned, counted, ratio

__all__ = ["explanation"]

_MOST_ROWS = 20
"""Maximum number of rows of the table of moves."""


def explanation(proposal: Proposal) -> str:
    """A headline, the slots before and after, and the leaves that move."""
    return "\n".join([*_headline(proposal), "", *_slot_table(proposal), *_move_table(proposal)]) + "\n"


def _headline(proposal: Proposal) -> list[str]:
    """The lines above the tables."""
    lines = [
        f"proposal {proposal.id}: {proposal.strategy}, from version {proposal.base} to {proposal.version.number}",
        f"Lmax/Lmin {ratio(proposal.imbalance_before)} -> {ratio(proposal.imbalance_after)} expected "
        f"({'within' if proposal.balanced else 'NOT within'} the threshold of {proposal.threshold:g})",
    ]
    if proposal.changes_index:
        rebuilt = ["the index is rebuilt"] if proposal.strategy == "rebuild" else []
        change = ", ".join([*rebuilt, *filter(None, [proposal.changes.text])])
        lines.append(f"{change}: {len(proposal.loads_before):,} -> {len(proposal.loads_after):,} leaves")
    if proposal.note:
        lines.append(proposal.note)
    moved = counted(len(np.unique(proposal.moves.leaf)), "leaf changes", "leaves change")
    lines.append(
        f"{moved} slot, with about {counted(proposal.queries_moved, 'continuous query', 'continuous queries')}"
    )
    return lines


def _slot_table(proposal: Proposal) -> list[str]:
    """The table of slots, with bars of their shares of the load before and after."""
    before, after = proposal.before, proposal.after
    totals = float(before.sum()) or 1.0, float(after.sum()) or 1.0
    peak = max(float(before.max(initial=0.0)) / totals[0], float(after.max(initial=0.0)) / totals[1]) or 1.0
    leaves = [np.bincount(version.mapping, minlength=len(before)) for version in (proposal.previous, proposal.version)]
    rows = []
    for slot in range(len(before)):
        row = [str(slot)]
        for loads, total, count in zip((before, after), totals, leaves, strict=True):
            share = float(loads[slot]) / total
            row += [f"{100 * share:.1f} %", "█" * round(16 * share / peak), str(count[slot])]
        rows.append(row)
    head = ["slot", "before", "", "leaves", "after", "", "leaves"]
    return aligned(head, rows, right={0, 1, 3, 4, 6})


def _move_table(proposal: Proposal) -> list[str]:
    """The table of the moves with the most continuous queries."""
    moves = proposal.moves
    if not len(moves):
        return []
    order = np.lexsort((moves.leaf, -moves.queries))[:_MOST_ROWS].tolist()
    adjusted = proposal.changes_index
    head = ["leaf", *(["was"] if adjusted else []), "from", "to", "queries"]
    rows = []
    for i in order:
        was = [str(moves.source[i])] if adjusted else []
        rows.append(
            [str(moves.leaf[i]), *was, str(moves.old_slot[i]), str(moves.new_slot[i]), f"{moves.queries[i]:,.0f}"]
        )
    lines = ["", *aligned(head, rows, right=range(len(head)))]
    if len(moves) > _MOST_ROWS:
        lines.append(
            f"and {len(moves) - _MOST_ROWS:,} more with {moves.queries.sum() - moves.queries[order].sum():,.0f}"
        )
    return lines
