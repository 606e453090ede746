"""``spatialstream query``: asks a live stream, and prints the answers.

Three steps. What is asked is read from JSON or from options, and checked before anything is sent (:func:`check`). It
goes to the topic of queries while the topics of results and of dead letters are read from their ends on. And what comes
is compared with what is awaited (:mod:`spatialstream.cli.awaited`), until there is nothing left to wait for. Continuous
queries are cancelled at the end, unless they are to be kept.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import kubernetes, live
from spatialstream.cli import options as shared
from spatialstream.cli.awaited import Awaited
from spatialstream.cli.results import broker_errors, print_row
from spatialstream.model.errors import RecordError, RunError, SettingError, Unavailable
from spatialstream.model.queries import Cancellation, Query, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule, extract_terms

if TYPE_CHECKING:
    from spatialstream.sources.kafka import Connection

__all__ = ["add_parser", "check", "from_options", "read"]

_FIELDS = ("type", "box", "circle", "point", "keywords", "k", "duration", "window", "step", "time", "id")


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "query",
        help="ask a live stream, and print the answers",
        description="Sends queries to a live stream and prints their result rows as JSON Lines: of a snapshot query "
        "its one row, of a continuous one each row as it comes, until interrupted or as told; then it is cancelled.",
    )
    parser.add_argument("query", nargs="?", metavar="JSON", help='such as {"type": "SRQ", "region": {...}, ...}')
    live.add_broker(parser)
    shared.add_space(parser)
    parser.set_defaults(space=None)  # on Kubernetes it is the SpatialStream's
    kubernetes.add_cluster(parser)
    parser.add_argument("--file", metavar="FILE", help="queries to send, as JSON Lines; - is standard input")
    _add_fields(parser)
    add = parser.add_argument
    add("--timeout", type=shared.duration, default=60_000, metavar="TIME", help="for a snapshot's answer (1m)")
    add("--count", type=shared.count, metavar="N", help="end after so many rows")
    add("--patience", type=shared.duration, metavar="TIME", help="end when no row has come for so long")
    add("--keep", action="store_true", help="do not cancel continuous queries at the end")
    add("--quiet", action="store_true", help="say nothing but errors")
    parser.set_defaults(function=_query)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    """A query's fields as options."""
    add = parser.add_argument_group("a query without JSON").add_argument
    add("--type", metavar="TYPE", help="SRQ, SKQ, STQ, CRQ, CKQ or CTQ; CANCEL with --id ends a query that was kept")
    for name, form in (("box", "W S E N"), ("circle", "LON LAT METRES"), ("point", "LON LAT")):
        add(f"--{name}", nargs="+", metavar="N", help=f"{form}, with spaces or commas between them")
    add("--keywords", action="append", metavar="A,B", help="all of them have to be in an object's text")
    add("--k", type=shared.count, metavar="K", help="how many")
    add("--duration", metavar="TIME", help="how far a snapshot looks back, or how long a continuous query lives")
    add("--window", metavar="TIME", help="of a CTQ or a CKQ")
    add("--step", metavar="TIME", help="of a CTQ")
    add("--time", metavar="TIME", help="when it is asked: milliseconds or ISO 8601 (default: now)")
    add("--id", metavar="ID", help="the query's id (default: a new one)")


def _query(options: argparse.Namespace) -> int:
    remote = kubernetes.asked(options)
    space, rule = options.space or WGS84, DEFAULT_RULE
    if remote:
        found = kubernetes.resource(kubernetes.Kubectl.of(options), options.stream)
        space, rule = _stream_of(found["spec"], options.space)
    records = check(read(options), space, rule)
    if not remote:
        return _ask(options, records, space)
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    arguments = ["--file", "-", f"--space={space}", "--timeout", str(options.timeout)]
    arguments += [] if options.count is None else ["--count", str(options.count)]
    arguments += [] if options.patience is None else ["--patience", str(options.patience)]
    return kubernetes.run_in_pod(options, arguments + (["--keep"] if options.keep else []), lines.encode())


def _stream_of(spec: Mapping[str, Any], space: Space | None) -> tuple[Space, TermRule]:
    """The space of a SpatialStream, unless another is given, and its rule for terms."""
    terms = spec.get("terms", {})
    words = frozenset(term for word in terms.get("stopWords", ()) for term in extract_terms(word))
    return space or Space.parse(spec.get("space", "wgs84")), TermRule(words, terms.get("minLength", 1))


# ------------------------------------------------------------------------------------------------------- what is asked

Place = tuple[str, Any]
"""A record, and how to call the place that it comes from."""


def read(options: argparse.Namespace) -> list[Place]:
    """What the command line asks, from its JSON, its file or its options, each with its place.

    Raises:
        SettingError: there is nothing, more than one of these, or what is no JSON.
    """
    chosen = [name for name in _FIELDS if getattr(options, name) is not None]
    ways = (options.query is not None) + (options.file is not None) + bool(chosen)
    if ways != 1:
        raise SettingError("query", "give one of: a query as JSON, --file with queries, or --type with its fields")
    if chosen:
        return [("query", from_options(options))]
    if options.query is not None:
        return [("query", _json("query", options.query))]
    name, text = _text(options.file)
    lines = [(f"{name} line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise SettingError("file", f"{name} has no query")
    return [(place, _json(place, line)) for place, line in lines]


def _text(file: str) -> tuple[str, str]:
    if file == "-":
        return "standard input", sys.stdin.read()
    try:
        return file, Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("file", f"{file} cannot be read: {error}") from None


def _json(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SettingError(place, f"is not JSON: {error}") from None


def from_options(options: argparse.Namespace) -> dict[str, Any]:
    """The record of a query whose fields are options. What they hold is checked later, as in any record.

    Raises:
        SettingError: both a box and a circle, or what is no number.
    """
    record: dict[str, Any] = {"id": options.id, "type": options.type, "t": _number_or_text(options.time)}
    shapes = {name: _numbers(name, getattr(options, name)) for name in ("box", "circle") if getattr(options, name)}
    if len(shapes) == 2:
        raise SettingError("circle", "give a box or a circle, not both")
    if shapes:
        record["region"] = shapes
    if options.point:
        record["at"] = _numbers("point", options.point)
    if options.keywords:
        record["keywords"] = [word for text in options.keywords for each in text.split(",") if (word := each.strip())]
    record |= {"k": options.k}
    record |= {name: _number_or_text(getattr(options, name)) for name in ("duration", "window", "step")}
    return {name: value for name, value in record.items() if value is not None}


def _numbers(name: str, texts: Iterable[str]) -> list[float]:
    words = [word for text in texts for word in text.replace(",", " ").split()]
    try:
        return [int(word) if re.fullmatch(r"-?[0-9]{1,9}", word) else float(word) for word in words]
    except ValueError:
        raise SettingError(name, f"{' '.join(texts)!r} are not numbers") from None


def _number_or_text(text: str | None) -> int | str | None:
    return text if text is None or not re.fullmatch(r"-?[0-9]+", text) else int(text)


def check(places: Sequence[Place], space: Space, rule: TermRule = DEFAULT_RULE) -> list[dict[str, Any]]:
    """The records, each with an id; one without a time is asked when it is sent.

    Args:
        places: the records and their places.
        space: of the stream.
        rule: of the stream's terms.

    Raises:
        SettingError: one of them is no query of this stream; names its place, the field, and what would be right.
    """
    records: list[dict[str, Any]] = []
    known: set[str] = set()
    for place, given in places:
        if not isinstance(given, dict):
            raise SettingError(place, "is not a JSON object")
        record = {name: value for name, value in given.items() if name != "t" or value is not None}
        if record.get("id") is None and record.get("type") != "CANCEL":
            record["id"] = f"q-{uuid.uuid4().hex[:12]}"
        query = _parse(place, record, space, rule)
        if isinstance(query, Query):
            if query.id in known:
                raise SettingError(place, f"another query has the id {query.id!r} too")
            known.add(query.id)
        records.append(record)
    return records


def _parse(place: str, record: Mapping[str, Any], space: Space, rule: TermRule) -> Query | Cancellation:
    try:
        query = parse_query({"t": 0, **record}, space, rule)
        query.id.encode()
    except RecordError as error:
        raise SettingError(place, str(error)) from None
    except UnicodeEncodeError:
        raise SettingError(place, "id: holds half of a surrogate pair; give Unicode text") from None
    return query


# -------------------------------------------------------------------------------------------------- asking and waiting


class _Post:
    """Sends to the topic of queries, and reads the dead letters about what was sent."""

    def __init__(self, connection: Connection, stream: str) -> None:
        from confluent_kafka import TopicPartition

        topics = connection.topics(stream)
        self._topic = topics.queries
        self._sent: dict[str, str] = {}
        self._failed: list[str] = []
        self._producer = connection.producer()
        self._letters = connection.consumer(f"{stream}-query")
        metadata = self._letters.list_topics(topics.rejected, timeout=30).topics[topics.rejected]
        places = [TopicPartition(topics.rejected, partition) for partition in metadata.partitions]
        for place in places:
            place.offset = self._letters.get_watermark_offsets(place, timeout=30)[1]
        self._letters.assign(places)

    def send(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send records, one a message, and wait until the broker has them.

        Raises:
            Unavailable: it does not take them.
            SettingError: one is too long to be sent.
        """
        from confluent_kafka import KafkaException

        for record in records:
            value = json.dumps(record, ensure_ascii=False).encode()
            try:
                self._producer.produce(self._topic, value, on_delivery=self._noted(str(record["id"])))
            except KafkaException as error:
                raise SettingError("query", f"{len(value)} bytes cannot be sent: {error.args[0].str()}") from None
        left = self._producer.flush(30.0)
        if left or self._failed:
            raise Unavailable(
                f"the broker did not take the queries: {self._failed[0] if self._failed else 'no answer'}"
            )

    def _noted(self, name: str) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failed.append(error.str())
            else:
                self._sent[f"queries/{message.partition()}@{message.offset()}"] = name

        return delivered

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Ids and reasons of what was sent and has been rejected since the last time."""
        while (message := self._letters.poll(0.0)) is not None:
            value = message.value()
            if message.error() is not None or value is None:
                continue
            letter = json.loads(value)
            name = self._sent.pop(f"{letter['source']}@{letter['offset']}", None)
            if name is not None:
                yield name, letter["reason"]

    def close(self) -> None:
        """Let go of the broker."""
        self._letters.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _ask(options: argparse.Namespace, records: Sequence[dict[str, Any]], space: Space) -> int:
    """Send, print what comes, cancel."""
    from spatialstream.client.results import Results

    connection = live.connection(options)
    stop: list[bool] = []
    with broker_errors(options):
        results = Results(connection, options.stream, newest=True, report=lambda text: live.say(options, text))
        post = _Post(connection, options.stream)
    try:
        with live.stopping(options, lambda: stop.append(True)):
            stamped = {record["id"] for record in records if "t" not in record}
            sent = [{"t": _now(), **record} for record in records]
            awaited = Awaited.of(_parse("query", record, space, DEFAULT_RULE) for record in sent)
            post.send(sent)
            try:
                _follow(options, results, post, awaited, stamped, stop)
            finally:
                if not options.keep:
                    post.send(each.to_record() for each in _cancellations(awaited, stamped))
    finally:
        post.close()
        results.close()
    return _outcome(options, awaited, bool(stop))


def _cancellations(awaited: Awaited, stamped: set[str]) -> list[Cancellation]:
    by_clock, by_rows = (awaited.cancellations(_now(), each) for each in (True, False))
    return [one if one.id in stamped else other for one, other in zip(by_clock, by_rows, strict=True)]


def _follow(
    options: argparse.Namespace, results: Any, post: _Post, awaited: Awaited, stamped: set[str], stop: list[bool]
) -> None:
    """Print rows until nothing is awaited any more, or as the options say."""
    heard = began = time.monotonic()

    def over() -> bool:
        for name, reason in post.refusals():
            print(f"spatialstream: rejected: query {name!r}: {reason}", file=sys.stderr, flush=True)
            awaited.refuse(name, reason)
        now = time.monotonic()
        if stamped.issuperset(awaited.standing):
            awaited.expire(_now(), options.timeout)
        late = bool(awaited.snapshots) and (now - began) * 1000 > options.timeout
        impatient = options.patience is not None and (now - heard) * 1000 > options.patience
        return bool(stop) or awaited.done or late or impatient

    for value in results.messages(over):
        for line in value.split(b"\n"):
            if awaited.may_concern(line) and awaited.take(row := json.loads(line)):
                heard = time.monotonic()
                print_row(row)
                if "error" in row:
                    print(f"spatialstream: query {row['query']!r}: {row['error']}", file=sys.stderr, flush=True)
                if awaited.rows == options.count:
                    return


def _outcome(options: argparse.Namespace, awaited: Awaited, stopped: bool) -> int:
    """The exit status, when no more rows are waited for."""
    if awaited.refused or awaited.failed:
        return 2
    if awaited.snapshots and not stopped and awaited.rows != options.count:
        names = ", ".join(awaited.snapshots)
        raise RunError(f"no answer to {names} in time; does the stream run? spatialstream status shows it")
    return 130 if awaited.snapshots and stopped else 0
