"""``spatialstream queries``: the registered queries of a live stream, and those of areas that have changed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from spatialstream.cli import kubernetes, live
from spatialstream.cli import options as shared
from spatialstream.connectors.program import program
from spatialstream.model.areas import GeometryState
from spatialstream.model.tables import aligned

if TYPE_CHECKING:
    from spatialstream.client import Stream
    from spatialstream.client.area_queries import AreaQuery

__all__ = ["add_parser", "area_lines", "outdated"]

_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "queries",
        help="list the queries of areas of a live stream, and register them anew",
        description="A registered query of an area keeps the geometry that the area had then. This lists the queries "
        "of areas, and registers those anew whose area has another geometry now.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listed = _verb(verbs, "list", "list the registered queries of areas", _list)
    listed.add_argument("--area", metavar="NAME", help="only queries of this area")
    listed.add_argument("--outdated", action="store_true", help="only those whose area has changed, or is deleted")
    listed.add_argument("--json", action="store_true", help="print JSON Lines")
    told = "register the queries of an area anew that have another geometry than it has now"
    refresh = _verb(verbs, "refresh", told, _refresh)
    refresh.add_argument("--area", metavar="NAME", required=True, help="the area")
    text = "how long it may take (default 1m)"
    refresh.add_argument("--timeout", type=shared.duration, default=60_000, metavar="TIME", help=text)


def _verb(verbs: Any, name: str, text: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    live.add_broker(parser)
    live.add_store(parser)
    kubernetes.add_cluster(parser)
    parser.add_argument("--quiet", action="store_true", help="print only what was asked for, and errors")
    parser.set_defaults(function=function)
    return parser


def _list(options: argparse.Namespace) -> int:
    if kubernetes.asked(options):
        return kubernetes.run_in_pod(options, ["list", *kubernetes.again(options, "area", "outdated", "json")])
    with live.stream(options) as stream:
        listed = [
            _record(each)
            for each in stream.area_queries()
            if options.area in (None, each.area) and not (options.outdated and each.geometry is GeometryState.CURRENT)
        ]
    if options.json:
        for each in listed:
            print(json.dumps(each, ensure_ascii=False))
    elif listed:
        print("\n".join(_table(listed)))
    return 0


def _refresh(options: argparse.Namespace) -> int:
    if kubernetes.asked(options):
        return kubernetes.run_in_pod(options, ["refresh", *kubernetes.again(options, "area", "timeout")])
    with live.stream(options) as stream:
        done = stream.refresh(options.area, timeout=options.timeout / 1000)
    for name, reason in done.refused.items():
        live.say(options, f"not registered anew: {name!r}: {reason}")
    live.say(options, f"registered anew: {len(done.queries)} queries of {options.area}")
    return 1 if done.refused else 0


def outdated(stream: Stream) -> list[dict[str, Any]]:
    """The queries whose area has changed, or is deleted."""
    return [_record(each) for each in stream.area_queries() if each.geometry is not GeometryState.CURRENT]


def area_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """What ``status`` says of the queries of :func:`outdated`; nothing if there are none."""
    if not found:
        return []
    lines = [f"{len(found):,} queries have another geometry than their area has now:"]
    lines += aligned(["query", "area", "geometry"], [[each[name] for name in _COLUMNS] for each in found[:_SHOWN]])
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN:,} more, see {program()} queries list --outdated")
    return [*lines, f"{program()} queries refresh --area AREA registers them anew"]


_COLUMNS = ("query", "area", "geometry")


def _record(each: AreaQuery) -> dict[str, Any]:
    told = {"query": each.id, "type": each.record["type"], "area": each.area, "geometry": each.geometry.value}
    return told | ({"by": each.record["by"]} if "by" in each.record else {})


def _table(found: Iterable[dict[str, Any]]) -> list[str]:
    columns = ["query", "type", "area", "geometry"]
    return aligned(columns, [[str(each[name]) for name in columns] for each in found])
