"""``spatialstream query``: send queries to a live stream, and print the answers.

Queries are read from JSON or from options, and checked before anything is sent. Snapshot queries are answered as of the
stream's newest round (:mod:`spatialstream.client.snapshot_client`), unless ``--through-stream`` is given; queries that
go through the stream are sent and awaited by :mod:`spatialstream.client.query_session`. Continuous queries are
cancelled at the end, unless ``--keep`` is given.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import kubernetes, live, stored_settings
from spatialstream.cli import options as shared
from spatialstream.cli.areas import areas_of
from spatialstream.cli.results import print_row
from spatialstream.connectors.program import program
from spatialstream.model.areas import asked_area, with_area
from spatialstream.model.errors import RecordError, RunError, SettingError
from spatialstream.model.kinds import kind_of, listed
from spatialstream.model.ranking.asked import WEIGHTINGS
from spatialstream.model.space import WGS84, Space

if TYPE_CHECKING:
    from spatialstream.client import Areas

__all__ = ["add_parser", "from_options", "read"]

_WIDE = Space.planar(-1e15, -1e15, 1e15, 1e15)
"""A space that contains all coordinates."""

_SOMEWHERE = {"box": [0, 0, 0, 0]}
"""In place of an area, where a query is checked before that is looked up."""

_FIELDS = (
    *("type", "box", "circle", "polygon", "area", "point", "keywords", "any", "none", "where"),
    *("k", "duration", "window", "step", "time", "id"),
    *("words", "radius", "half_life", "between", "weights", "expansions", "weighting"),
)


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "query",
        help="query a live stream, and print the answers",
        description="Sends queries to a live stream and prints the answers as JSON Lines. A snapshot query is answered "
        "at once, as of the stream's newest round (as_of). With --through-stream, or if any of the queries is "
        "continuous, they go through the stream and take effect at their time in it. The rows of a continuous query "
        "are printed as they arrive, until interrupted or until --count or --patience ends it; then it is cancelled.",
    )
    parser.add_argument("query", nargs="?", metavar="JSON", help='such as {"type": "SRQ", "region": {...}, ...}')
    live.add_broker(parser)
    live.add_store(parser)
    shared.add_space(parser)
    parser.set_defaults(space=None)  # on Kubernetes the default is the SpatialStream's
    kubernetes.add_cluster(parser)
    parser.add_argument("--file", metavar="FILE", help="queries to send, as JSON Lines; - is standard input")
    _add_fields(parser)
    add = parser.add_argument
    text = "how long to wait for the answer to a snapshot query (default 1m)"
    add("--timeout", type=shared.duration, default=60_000, metavar="TIME", help=text)
    text = "wait until the stream's watermark has reached this time: milliseconds, ISO 8601, or now"
    add("--at-least", metavar="TIME", help=text)
    text = "send snapshot queries through the stream, to be answered at their time in it"
    add("--through-stream", action="store_true", help=text)
    add("--count", type=shared.count, metavar="N", help="end after N rows")
    add("--patience", type=shared.duration, metavar="TIME", help="end when no row has arrived for this long")
    add("--keep", action="store_true", help="do not cancel continuous queries at the end")
    add("--quiet", action="store_true", help="print only rows and errors")
    parser.set_defaults(function=_query)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    """Add options for the fields of a query."""
    add = parser.add_argument_group("a query without JSON").add_argument
    add("--type", metavar="TYPE", help=f"{listed(lambda kind: True)}; CANCEL with --id ends a query sent with --keep")
    for name, form in (("box", "W S E N"), ("circle", "LON LAT METRES"), ("point", "LON LAT")):
        add(f"--{name}", nargs="+", metavar="N", help=f"{form}, separated by spaces or commas")
    add("--polygon", metavar="FILE", help="a GeoJSON file of a Polygon, a MultiPolygon, or one Feature")
    add("--area", metavar="NAME", help=f"an area of the stream, see {program()} areas")
    add("--keywords", action="append", metavar="A,B", help="an object's text must have all of these terms")
    add("--any", action="append", metavar="'A B'", help="it must have all terms of this --any, or of another --any")
    add("--none", action="append", metavar="A,B", help="it must have none of these terms")
    add("--where", metavar="CQL2", help="a condition on its properties, such as \"country = 'de' AND priority >= 3\"")
    text = "which of the fields that the stream keeps rows show of an object: text,priority; '' for none (default: all)"
    add("--fields", type=shared.names, metavar="NAME,...", help=text)
    add("--k", type=shared.count, metavar="K", help="number of nearest objects, or of top terms")
    add(
        "--duration",
        metavar="TIME",
        help="how far a snapshot query looks back, or how long a continuous query runs",
    )
    add("--window", metavar="TIME", help=f"window of a {listed(lambda kind: 'window' in kind.fields)}")
    add("--step", metavar="TIME", help=f"step of a {listed(lambda kind: 'step' in kind.fields)}")
    ranked = listed(lambda kind: kind.is_ranked)
    add("--words", action="append", metavar="'A B'", help=f"{ranked}: words to rank by, of which an object has one")
    add("--radius", type=float, metavar="METRES", help=f"{ranked}: radius of the search disk")
    add("--half-life", metavar="TIME", help=f"{ranked}: time in which the words come to matter half as much")
    once = listed(lambda kind: "between" in kind.fields)
    add("--between", nargs=2, metavar="TIME", help=f"{once}: first and last time of the objects, for --half-life")
    add("--weights", metavar="S[,T,W]", help=f"{ranked}: weight of space, and with --between of time and of words")
    text = f"{once}: multiples of the radius up to which the disk grows until it has k objects"
    add("--expansions", type=shared.count, metavar="C", help=text)
    add("--weighting", choices=WEIGHTINGS, help=f"{once}: whether all words of an object weigh alike (static)")
    add("--time", metavar="TIME", help="timestamp of the query: milliseconds or ISO 8601 (default: now)")
    add("--id", metavar="ID", help="the query's id (default: a new one)")


def _query(options: argparse.Namespace) -> int:
    from spatialstream.client import check_queries

    records_read = read(options)
    at_once = not options.through_stream and all(_is_snapshot(record) for _, record in records_read)
    if not at_once and options.at_least is not None:
        raise SettingError("at-least", "works only for snapshot queries without --through-stream")
    remote = kubernetes.asked(options)
    checked = _without_areas(records_read)
    if at_once and not remote:
        _check_anywhere(checked, options.space)
        return _ask_at_once(options, records_read)
    if remote:
        found = kubernetes.resource(kubernetes.Kubectl.of(options), options.stream)
        space, rule = kubernetes.space_and_rule(found["spec"], options.space)
    else:
        space, rule = stored_settings.settings(options)
    records = check_queries(checked, space, rule)
    if not remote:
        if checked != records_read:
            records = check_queries(_with_areas(records_read, areas_of(options, space)), space, rule)
        return _ask(options, records, space)
    for record, (_, given) in zip(records, records_read, strict=True):
        record |= {"region": given["region"]} if "region" in record else {}
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    more = kubernetes.again(options, "timeout", "count", "patience", "keep", "at_least", "through_stream")
    return kubernetes.run_in_pod(options, ["--file", "-", f"--space={space}", *more], lines.encode())


def _without_areas(records: Sequence[Place]) -> list[Place]:
    """Queries as they are checked before their areas are looked up.

    Raises:
        SettingError: what names an area is no name.
    """
    try:
        return [
            (place, record if asked_area(record) is None else {**record, "region": _SOMEWHERE})
            for place, record in records
        ]
    except RecordError as error:
        raise SettingError("query", str(error)) from None


def _with_areas(records: Sequence[Place], areas: Areas) -> list[Place]:
    """Queries with the polygons of the areas that they name.

    Raises:
        SettingError: the stream does not know one.
    """
    found = list[Place]()
    for place, record in records:
        try:
            found.append((place, with_area(record, areas.table)))
        except RecordError as error:
            raise SettingError(place, str(error)) from None
    return found


def _check_anywhere(records: Sequence[Place], space: Space | None) -> None:
    """Refuse queries that are invalid in any space, before the stream is asked, which checks them in its own."""
    from spatialstream.client import check_queries

    try:
        check_queries(records, space or WGS84)
    except SettingError:
        if space is not None:
            raise
        try:
            check_queries(records, _WIDE)
        except SettingError:
            check_queries(records, WGS84)  # its error message fits most users


def _is_snapshot(record: Any) -> bool:
    kind = kind_of(record.get("type")) if isinstance(record, dict) else None
    return kind is not None and not kind.continuous


# ------------------------------------------------------------------------------------------------------------- queries

Place = tuple[str, Any]
"""The name of a record's origin, for error messages, and the record."""


def read(options: argparse.Namespace) -> list[Place]:
    """Read the queries of the command line, from its JSON, its file or its options, each with its origin.

    Raises:
        SettingError: none or several of these are given, or the text is not JSON.
    """
    chosen = [name for name in _FIELDS if getattr(options, name) is not None]
    ways = (options.query is not None) + (options.file is not None) + bool(chosen)
    if ways != 1:
        raise SettingError("query", "give one of: a query as JSON, --file with queries, or --type with its fields")
    if chosen:
        return [("query", from_options(options))]
    if options.query is not None:
        return [("query", _json("query", options.query))]
    name, text = _text("file", options.file)
    lines = [(f"{name} line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise SettingError("file", f"{name} contains no query")
    return [(place, _json(place, line)) for place, line in lines]


def _text(setting: str, file: str) -> tuple[str, str]:
    if file == "-":
        return "standard input", sys.stdin.read()
    try:
        return file, Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(setting, f"{file} cannot be read: {error}") from None


def _json(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SettingError(place, f"is not JSON: {error}") from None


def from_options(options: argparse.Namespace) -> dict[str, Any]:
    """Build the record of a query from options. The values are checked later, as for any record.

    Raises:
        SettingError: several regions are given, a coordinate or a weight is not a number, or a file is not GeoJSON.
    """
    given: dict[str, Any] = {
        name: _numbers(name, texts) for name in ("box", "circle", "point") if (texts := getattr(options, name))
    }
    at = given.pop("point", None)
    if options.polygon is not None:
        given["polygon"] = _geometry(options.polygon)
    if options.area is not None:
        given["area"] = options.area
    if len(given) > 1:
        raise SettingError([*given][-1], "give a box, a circle, a polygon or an area, not several of them")
    record = {"id": options.id, "type": options.type, "t": options.time, "region": given or None}
    record |= {"at": at, "keywords": _words(options.keywords), "none": _words(options.none), "k": options.k}
    record["where"] = options.where
    record["fields"] = None if options.fields is None else [*options.fields]
    record["any"] = options.any and [text.replace(",", " ").split() for text in options.any]
    record |= {name: _number_or_text(getattr(options, name)) for name in ("duration", "window", "step")}
    record |= {name: getattr(options, name) for name in ("radius", "expansions", "weighting")}
    record |= {"words": options.words, "halfLife": _number_or_text(options.half_life)}
    record["between"] = options.between and [_number_or_text(each) for each in options.between]
    record["weights"] = options.weights and dict(
        zip(("space", "time", "text"), _numbers("weights", [options.weights]), strict=False)
    )
    return {name: value for name, value in record.items() if value is not None}


def _geometry(file: str) -> Any:
    """The GeoJSON of a file; of a collection its only feature."""
    name, text = _text("polygon", file)
    value = _json(name, text)
    if isinstance(value, dict) and value.get("type") == "FeatureCollection":
        features = value.get("features")
        if not isinstance(features, list) or len(features) != 1:
            many = len(features) if isinstance(features, list) else "no"
            raise SettingError("polygon", f"{name} has {many} features; give a file with one")
        return features[0]
    return value


def _words(texts: Sequence[str] | None) -> list[str] | None:
    return None if texts is None else [word for text in texts for word in map(str.strip, text.split(",")) if word]


def _numbers(name: str, texts: Iterable[str]) -> list[float]:
    words = [word for text in texts for word in text.replace(",", " ").split()]
    try:
        return [int(word) if re.fullmatch(r"-?[0-9]{1,9}", word) else float(word) for word in words]
    except ValueError:
        raise SettingError(name, f"{' '.join(texts)!r} are not numbers") from None


def _number_or_text(text: str | None) -> int | str | None:
    return text if text is None or not re.fullmatch(r"-?[0-9]+", text) else int(text)


# ------------------------------------------------------------------------------------------------------------- answers


def _ask_at_once(options: argparse.Namespace, records: Sequence[Place]) -> int:
    """Answer snapshot queries as of the newest round, and print the answers."""
    from spatialstream.client import Areas, Stream

    at_least = options.at_least
    if at_least == "now":
        at_least = time.time_ns() // 1_000_000
    # there is nothing to clean up at the end, and a Python handler would run only after the call in progress returns
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        with live.store(options) as store, Stream(store) as stream:
            if any(asked_area(record) is not None for _, record in records):
                records = _with_areas(
                    records, Areas(live.connection(options), options.stream, stream.space, stream.rule)
                )
            for number, line in enumerate(stream.snapshots.lines(records, at_least, options.timeout / 1000), 1):
                print(line, flush=True)
                if number == options.count:
                    break
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return 0


def _ask(options: argparse.Namespace, records: Sequence[dict[str, Any]], space: Space) -> int:
    """Send queries through the stream, print their rows, and cancel continuous queries."""
    from spatialstream.client import QuerySession

    def tell(text: str) -> None:
        print(f"spatialstream: {text}", file=sys.stderr, flush=True)

    session = QuerySession(
        live.connection(options),
        options.stream,
        space,
        report=lambda text: live.say(options, text),
        refused=lambda name, reason: tell(f"rejected: query {name!r}: {reason}"),
    )
    with session, live.stopping(options) as stop:
        pending = session.ask(records)
        patience = None if options.patience is None else options.patience / 1000
        try:
            for row in session.rows(pending, options.timeout / 1000, patience, stop):
                print_row(row)
                if "error" in row:
                    tell(f"query {row['query']!r}: {row['error']}")
                if pending.rows == options.count:
                    break
        finally:
            if not options.keep:
                session.cancel(pending)
        stopped = stop()
    if pending.refused or pending.failed:
        return 2
    if pending.snapshots and not stopped and pending.rows != options.count:
        names = ", ".join(pending.snapshots)
        raise RunError(f"no answer to {names} in time; check with {program()} status whether the stream runs")
    return 130 if pending.snapshots and stopped else 0
