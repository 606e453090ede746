"""``spatialstream check``: compare the results of a run with the oracle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spatialstream.cli import options as shared

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "check",
        help="compare a run's results with a brute-force oracle",
        description="Answers all queries again by brute force, in plain Python without any index, and compares every "
        "row. Time and memory are proportional to objects times queries.",
    )
    shared.add_input(parser)
    shared.add_areas(parser)
    shared.add_layout(parser)
    shared.add_time_unit(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the run's output folder")
    parser.add_argument("--retention", type=shared.duration, metavar="TIME", help="the run's --retention")
    text = "the run's --interval, by which it counted words (default 5m)"
    parser.add_argument("--interval", type=shared.duration, default=300_000, metavar="TIME", help=text)
    shared.add_space(parser)
    shared.add_terms(parser)
    parser.set_defaults(function=_check)


def _check(options: argparse.Namespace) -> int:
    from spatialstream.oracle import check_files

    outcome = check_files(
        shared.input_files(options, options.objects),
        shared.query_files(options),
        options.output / "results",
        options.space,
        rule=shared.term_rule(options),
        columns=options.columns,
        unit=options.time_unit or "ms",
        retention=options.retention,
        layout=shared.layout(options),
        interval=options.interval,
    )
    for line in outcome.lines():
        print(line)
    return 0 if outcome.exact else 1
