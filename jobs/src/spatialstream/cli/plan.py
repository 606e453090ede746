"""``spatialstream plan``: which kind of global index suits the objects and queries of files, and why."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from spatialstream.cli import options as shared

if TYPE_CHECKING:
    from spatialstream.balance.planner import Option, Plan

__all__ = ["add_parser"]

_MOST_LEAVES = 1_024


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="say which kind of global index suits files of objects and queries",
        description="Builds the kinds of global index with several numbers of leaves from one half of a sample of the "
        "files, routes the other half with each, and says which one keeps the slowest slot busy for the least time. "
        "run, tree and router --index auto, and rebalance --strategy rebuild --index auto choose so.",
    )
    shared.add_input(parser)
    shared.add_areas(parser)
    shared.add_layout(parser)
    shared.add_time_unit(parser)
    shared.add_space(parser)
    shared.add_terms(parser)
    add = parser.add_argument
    add("--slots", type=shared.count, default=8, metavar="N", help="worker slots (default 8)")
    text = f"most leaves of an index (default {_MOST_LEAVES})"
    add("--max-leaves", type=shared.count, default=_MOST_LEAVES, metavar="N", help=text)
    text = (
        "where CKQs may be: settle, or each on one slot (dkm), as --nearest of router and worker; auto: try both, if "
        "there are 40 CKQs for each slot (default auto)"
    )
    add("--nearest", choices=("settle", "dkm", "auto"), default="auto", help=text)
    text = "largest number of objects, and of queries, to read for the sample (default 50000)"
    add("--sample", type=shared.count, default=50_000, metavar="N", help=text)
    add("--json", action="store_true", help="print the plan as JSON")
    add("--quiet", action="store_true", help="print only the plan and errors")
    parser.set_defaults(function=_plan)


def _plan(options: argparse.Namespace) -> int:
    from spatialstream.balance.planner import plan, whole
    from spatialstream.balance.settings import BalanceSettings
    from spatialstream.cli.sampling import sampled

    options.queries = shared.query_files(options)
    sample = whole(options.space, *sampled(options, shared.term_rule(options), options.time_unit or "ms"))
    placements = ("settle", "dkm") if options.nearest == "auto" else (options.nearest,)
    found = plan(sample, options.slots, BalanceSettings(leaves=options.max_leaves), nearest=placements)
    print(json.dumps(found.to_record()) if options.json else _text(found))
    return 0


def _text(found: Plan) -> str:
    from spatialstream.model.tables import aligned

    figures = ["slowest slot", "mean", "objects", "copies", "continuous", "matches", "CKQ matches", "asked"]
    head = ["", "kind", "CKQs", "leaves", *figures]
    table = aligned(head, [_row(each, found) for each in found.table], right=range(3, len(head)))
    said = f"{found.reason[0].upper()}{found.reason[1:]}."
    placed = f" --nearest {found.nearest}" if len({each.nearest for each in found.table}) > 1 else ""
    return "\n".join([f"--index {found.kind} --leaves {found.leaves}{placed}", "", said, "", *table])


def _row(option: Option, found: Plan) -> list[str]:
    taken = (option.kind, option.wanted, option.nearest) == (found.kind, found.leaves, found.nearest)
    times = [f"{1e3 * seconds:,.1f} ms" for seconds in (option.seconds, option.mean)]
    counts = option.objects, option.copies, option.entries, option.matches, option.candidates, option.asks
    shown = [f"{count:,.0f}" for count in counts]
    return ["*" if taken else "", option.kind, option.nearest, f"{option.wanted:,}", *times, *shown]
