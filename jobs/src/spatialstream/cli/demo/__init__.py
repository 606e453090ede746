"""``spatialstream demo``: run queries of all types over a feed of real earthquakes, and write a page of the answers.

The feed and the queries are beside this module; ``README.md`` names their source.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spatialstream.cli import options as shared
from spatialstream.model.properties.declared import Properties
from spatialstream.model.terms import TermRule

__all__ = ["OBJECTS", "QUERIES", "RULE", "add_parser"]

_FOLDER = Path(__file__).parent
OBJECTS = _FOLDER / "earthquakes.jsonl"
QUERIES = _FOLDER / "queries.jsonl"
RULE = TermRule(
    ranking=True,
    properties=Properties.parse(["type:keyword", "magnitude:number", "depth_km:number"]),
    fields=("text", "magnitude", "depth_km"),
)
"""How the objects are read: with the properties of which the queries ask, with words counted for SBQs, and with what
rows show of them."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo",
        help="run all query types over real earthquakes, and write a page of the answers",
        description="Runs queries of all eight types over a week of the USGS earthquake feed, prints their answers, "
        "and writes one HTML page that opens offline.",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="DIR", help="where to write (default demo-output)"
    )
    parser.add_argument("--slots", type=shared.count, default=4, metavar="N", help="worker slots (default 4)")
    parser.add_argument(
        "--leaves", type=shared.count, default=32, metavar="N", help="leaves of the global index (default 32)"
    )
    parser.set_defaults(function=_demo)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _demo(options: argparse.Namespace) -> int:
    from spatialstream.cli.run import run_with_progress
    from spatialstream.cli.tree import leaf_table
    from spatialstream.model.objects import ObjectBatch, parse_object
    from spatialstream.model.space import WGS84
    from spatialstream.report import write_page
    from spatialstream.spark.run import RunSettings
    from spatialstream.stages.versions import load_version

    settings = RunSettings(
        (OBJECTS,),
        (QUERIES,),
        options.output,
        slots=options.slots,
        leaves=options.leaves,
        interval=3_600_000,
        rule=RULE,
        epoch_records=250,  # several epochs, as a stream would have
        overwrite=True,
    )
    summary = run_with_progress(settings)
    objects, queries = list(_records(OBJECTS)), list(_records(QUERIES))
    results = [row for path in sorted(settings.paths.results.glob("*.jsonl")) for row in _records(path)]
    _print(queries, results)
    page = options.output / "index.html"
    batch = ObjectBatch.of([parse_object(record, WGS84) for record in objects])
    write_page(
        page,
        "A week of earthquakes",
        WGS84,
        queries,
        objects,
        results,
        leaf_table(load_version(settings.paths.storage, 0), batch),
        {
            "objects": summary.objects,
            "queries": summary.queries,
            "results": summary.results,
            "rejected": summary.rejected,
            "seconds": summary.seconds,
        },
    )
    counts = f"{summary.objects:,} objects, {summary.queries} queries, {len(results):,} result rows"
    print(f"\n{counts} in {summary.seconds:.1f} s")
    print(f"rows   {settings.paths.results}/*.jsonl")
    print(f"page   {page.absolute()}")
    return 0


def _print(queries: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    """Print for every query its title, the number of its rows, and the last of them."""
    rows_of: dict[str, list[dict[str, Any]]] = {}
    for row in results:
        rows_of.setdefault(row["query"], []).append(row)
    for query in queries:
        if query["type"] == "CANCEL":
            continue
        rows = rows_of.get(query["id"], [])
        print(f"\n{query['type']}  {query['title']}: {len(rows)} row{'s' if len(rows) != 1 else ''}")
        for row in rows[-3:] if query["type"] in ("CRQ", "CTQ") else rows[-1:]:
            _print_row(row)
    sys.stdout.flush()


def _print_row(row: dict[str, Any]) -> None:
    if "terms" in row:
        print(f"   {_day(row['t'])}  " + ", ".join(f"{each['term']} {each['count']}" for each in row["terms"]))
        return
    objects = [row["object"]] if "object" in row else row["objects"]
    for each in objects[:5]:
        away = f"{each['distance_m'] / 1000:8.0f} km  " if "distance_m" in each else ""
        strong = f", magnitude {each['magnitude']}" if "magnitude" in each else ""
        print(f"   {_day(each['t'])}  {away}{each['text']}{strong}")
    if len(objects) > 5:
        print(f"   ... and {len(objects) - 5} more")


def _day(t: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(t / 1000, UTC).strftime("%Y-%m-%d %H:%M")
