"""``spatialstream load``: send a file or a generated stream to a live stream, and measure its latencies."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import dry_run, live, stored_settings
from spatialstream.cli import options as shared
from spatialstream.cli.areas import areas_of
from spatialstream.cli.run import unknown_text
from spatialstream.model.areas import AreaTable
from spatialstream.model.errors import AllRejected, SettingError, StateError, Unavailable
from spatialstream.model.kinds import KINDS
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.stored_fields import TEXT
from spatialstream.model.times import check_times
from spatialstream.records.reasons import all_rejected, told_reasons

if TYPE_CHECKING:
    from spatialstream.connectors.kafka import Connection
    from spatialstream.stream.bootstrap import Refused

__all__ = ["add_parser", "own_rows"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "load",
        help="send a stream to a live stream at a rate, and measure latencies",
        description="Sends objects and queries from files unchanged (in the order of time, with watermarks) or, with "
        "--now, stamped with the current time; then reports how old the results of its queries were on arrival. With "
        "--now and without --objects it sends a generated stream. If every object or every query of a file is "
        "rejected, nothing is sent, and the exit status is 4.",
    )
    live.add_broker(parser)
    shared.add_space(parser)
    shared.add_terms(parser)
    add = parser.add_argument
    text = "objects to send, as for run; or - for the standard input (default with --now: a generated stream)"
    add("--objects", type=Path, metavar="FILE", help=text)
    text = "queries to send (default with a generated stream: queries around its objects)"
    add("--queries", type=Path, metavar="FILE", help=text)
    shared.add_areas(parser)
    shared.add_columns(parser)
    shared.add_layout(parser)
    dry_run.add_dry_run(parser)
    shared.add_time_unit(parser)
    text = "kind of the generated stream (default %(default)s)"
    add("--kind", choices=("social", "uniform", "gaussian", "clusters"), default="clusters", help=text)
    add("--continuous", type=int, default=1000, metavar="N", help="generated CRQs, registered first (default 1000)")
    add("--rate", type=float, default=0.0, metavar="R", help="objects a second (default: as fast as possible)")
    add("--seconds", type=float, default=60.0, metavar="S", help="with --now: how long to send (default 60)")
    add("--snapshots", type=float, default=1.0, metavar="R", help="with --now: snapshot queries a second (default 1)")
    add("--now", action="store_true", help="stamp records with the current time and measure latencies")
    add("--batch", type=shared.count, default=100, metavar="N", help="objects a message (default 100)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the generated stream (default 0)")
    add("--no-watermarks", action="store_true", help="send no watermarks: the router waits for silent partitions")
    text = "at the end, wait until no result has arrived for S seconds (default 5)"
    add("--settle", type=float, default=5.0, metavar="S", help=text)
    add("--json", type=Path, metavar="FILE", help="write the report to this file too")
    add("--quiet", action="store_true", help="print only the report and errors")
    stored_settings.add_store(parser)
    parser.set_defaults(function=_load)


def _load(options: argparse.Namespace) -> int:
    import json

    from_stream = stored_settings.complete(options)
    files = [] if options.objects is None else shared.input_files(options, [options.objects])
    if options.dry_run and files:
        return dry_run.show(options, files)
    if options.dry_run:
        raise SettingError("objects", "is required with --dry-run; give a file")
    from spatialstream.client import Latencies, Sender, Watch, with_own_ids
    from spatialstream.stream.bootstrap import Refused, read_objects, read_queries
    from spatialstream.stream.settings import StreamSettings

    if options.objects is None and options.queries is None and not options.now:
        raise SettingError("objects", "give a file, or --queries, or --now for a generated stream")
    if options.now and not options.rate:
        raise SettingError("rate", "--now requires a rate of objects a second")
    connection = live.connection(options)
    rule = shared.term_rule(options)
    fields = rule.fields if from_stream else rule.fields or None
    settings = StreamSettings(options.stream, space=options.space, rule=replace(rule, fields=fields))
    of_objects = replace(settings, rule=replace(rule, fields=(TEXT,)))  # so that texts are sent as they are
    watermarks = not options.no_watermarks
    sender = Sender(connection, options.stream, options.space, options.rate, options.batch, watermarks=watermarks)
    generated = options.now and options.objects is None
    objects, queries = _generated(options) if generated else (ObjectBatch.of([]), QueryBatch.of([]))
    layout = shared.layout(options)
    unit, refused = options.time_unit or "ms", dict[str, Refused]()
    if files:
        shared.tell_missing(options, files, rule)
        objects, refused["objects"] = read_objects(files, of_objects, options.columns, unit, layout)
    if options.queries is not None:
        options.queries = _with_areas(options, options.queries)
        queries, refused["queries"] = read_queries(options.queries, settings, unit)
    _tell_refused(options, refused, {"objects": len(objects), "queries": len(queries)})
    unknown = refused["objects"].unknown if files else {}
    if unread := unknown_text(unknown):
        live.say(options, f"fields that are not read: {unread}")
    if options.time_unit is None and not options.now:  # --now replaces the times, so they may be anything
        check_times(objects.t, "objects")
        for name, t in objects.properties.times():
            check_times(t, "objects", name=name)
        check_times(queries.t, "queries")
    if options.now:
        queries = with_own_ids(queries, secrets.token_hex(4))
    reached = _look(options, connection, objects)
    latencies = Latencies(int(time.time() * 1000), own=own_rows(queries))
    with live.stopping(options) as stop, Watch(connection, options.stream, latencies) as watch:
        began = time.monotonic()
        if options.now:
            count = int(options.rate * options.seconds) + 1 if options.objects is None else None
            sender.live(objects, queries, options.snapshots, options.seconds, stop, count)
        else:
            sender.replay(objects, queries, stop)
        seconds = time.monotonic() - began
        live.say(options, f"sent {sender.sent:,} objects and {sender.queries_sent:,} queries in {seconds:.1f} s")
        watch.settle(options.settle)
    report = {
        "objects": sender.sent,
        "queries": sender.queries_sent,
        "seconds": seconds,
        "behind_seconds": sender.behind,
        "late": _late(objects, queries, reached),
        "rejected": {kind: each.count for kind, each in refused.items()},
        "unknown": unknown,
        "rows": watch.latencies.rows,
        "latency_ms": watch.latencies.percentiles(),
    }
    _print(report, options.now)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))
    return 0


def _with_areas(options: argparse.Namespace, queries: Path) -> Path:
    """The file of queries with the polygons of the areas that it names, of ``--areas`` or of the stream."""
    from spatialstream.records.area_files import areas_of_file
    from spatialstream.records.area_lines import with_areas

    def areas() -> AreaTable:
        if options.areas is not None:
            return areas_of_file(options.areas, options.area_id, options.space, shared.term_rule(options))
        return areas_of(options).table()

    return with_areas(queries, cache(areas), shared.temporary())


def _tell_refused(options: argparse.Namespace, refused: Mapping[str, Refused], usable: Mapping[str, int]) -> None:
    """Tell what of the files is rejected, and why if it is more than a tenth.

    Raises:
        AllRejected: everything of a kind is.
    """
    nothing = [kind for kind, each in refused.items() if each.count and not usable[kind]]
    if nothing:
        reasons = [told for kind in nothing for told in told_reasons(refused[kind].reasons)]
        raise AllRejected("\n  ".join([f"{all_rejected(nothing)}, and nothing is sent", *reasons]))
    for kind, refusals in refused.items():
        if refusals.count:
            total = refusals.count + usable[kind]
            much = 10 * refusals.count > total
            reasons = told_reasons(refusals.reasons) if much else []
            live.say(
                options, "\n  ".join([f"{refusals.count:,} of {total:,} {kind} are rejected, and not sent", *reasons])
            )


def _look(options: argparse.Namespace, connection: Connection, objects: ObjectBatch) -> int | None:
    """Return the stream's clock in ms, and warn if longitude and latitude of the objects look exchanged.

    None with ``--now``, or if the stream cannot be read.
    """
    from spatialstream.client.topic_ends import latest_objects, look_exchanged, reached

    try:
        given = options.objects is not None and options.space.geographic
        if given and look_exchanged(objects, latest_objects(connection, options.stream, options.space)):
            told = "all objects lie outside the box of the stream's latest objects, and would lie inside if swapped"
            live.say(options, f"warning: longitude and latitude look exchanged: {told}; see --columns lon=...,lat=...")
        return None if options.now else reached(connection, options.stream)
    except (StateError, Unavailable) as error:
        live.say(options, f"late records cannot be counted: {error}")
        return None


def _late(objects: ObjectBatch, queries: QueryBatch, reached: int | None) -> dict[str, int]:
    """Count the records that are not later than the stream's clock was before they were sent; ``watermark`` is that."""
    if reached is None:
        return {}
    late = {"objects": int((objects.t <= reached).sum()), "queries": int((queries.t <= reached).sum())}
    return late | {"watermark": reached} if any(late.values()) else {}


def own_rows(queries: QueryBatch) -> Callable[[str, str], bool]:
    """Return a predicate on query id and type that selects the rows of these queries, and of their repeats (``ID#N``).

    Without queries it selects the rows of all continuous queries, which the objects sent may cause; a row of a snapshot
    query belongs to another client.
    """
    ids = frozenset(queries.ids.to_pylist())
    if not ids:
        continuous = {kind.type for kind in KINDS if kind.continuous}
        return lambda name, kind: kind in continuous
    return lambda name, kind: name in ids or name.rpartition("#")[0] in ids


def _generated(options: argparse.Namespace) -> tuple[ObjectBatch, QueryBatch]:
    """Generate objects, to be sent repeatedly, and queries around them."""
    from spatialstream.generate import GenerateSettings, object_batches, query_batch

    snapshots = {kind.type: 200 for kind in KINDS if not kind.continuous and options.snapshots}
    settings = GenerateSettings(
        kind=options.kind,
        objects=200_000,
        space=options.space,
        seed=options.seed,
        queries={"CRQ": options.continuous, **snapshots},
        duration=60_000,
        properties=shared.term_rule(options).properties,
    )
    return ObjectBatch.concat(list(object_batches(settings))), query_batch(settings)


def _print(report: dict[str, Any], now: bool) -> None:
    rows = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report["rows"].items())) or "none"
    print(f"objects   {report['objects']:,} in {report['seconds']:.1f} s")
    print(f"queries   {report['queries']:,}")
    print(f"results   {rows}")
    if any(report["rejected"].values()):
        print("rejected  " + ", ".join(f"{count:,} {kind}" for kind, count in report["rejected"].items() if count))
    if late := report["late"]:
        at = datetime.fromtimestamp(late["watermark"] / 1000, UTC).isoformat(timespec="milliseconds")
        print(f"late      {late['objects']:,} objects and {late['queries']:,} queries: the stream's clock was at {at}.")
        print("          Late records count from their arrival: a late object matches continuous queries registered by")
        print("          then whose lifetime includes the object's time; earlier result rows are not changed")
    if report["behind_seconds"] > 0.5:
        print(f"behind    the sender was up to {report['behind_seconds']:.1f} s behind its rate")
    if now:
        for kind, each in report["latency_ms"].items():
            print(f"latency   {kind}: p50 {each['p50']:.0f} ms, p95 {each['p95']:.0f} ms, p99 {each['p99']:.0f} ms")
