"""Queries to a live stream, and their answers.

Queries go to the topic of queries while the topics of results and of dead letters are read from their ends on. What
comes is compared with what is pending: a snapshot query waits for its one row, a continuous one for more until its time
is over, and is then cancelled by whoever asked. A query that was rejected waits for nothing.

A query that was asked before, word for word and for the same time, is passed over by the stream and told nowhere: it
has its answer. Two *probes* find that out, where times are given: when the row of the first is there, the stream has
come to all that was sent before it; with that of the second, sent only then, all that was answered then is out.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition

from spatialstream.client.record_writer import probe_of
from spatialstream.client.results import Results, answering, bounds
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.program import program
from spatialstream.model.errors import RecordError, SettingError, Unavailable
from spatialstream.model.queries import Cancellation, Query, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import ANY_WORDS, TermRule

__all__ = ["PendingQueries", "QuerySession", "check_queries", "checked_query"]

_PLAIN = re.compile(r"[A-Za-z0-9_.:-]+")
"""Ids that JSON writes as they are."""
_MOST_LOOKS = 16
_ASKED_BEFORE = (
    "it was asked before just so, and answered then: {} results --query shows it; for an answer of now give another id"
)


def check_queries(
    records: Iterable[tuple[str, object]], space: Space, rule: TermRule = ANY_WORDS
) -> list[dict[str, Any]]:
    """The records, each with an id; one without a time is asked when it is sent.

    Args:
        records: how to call the place that each comes from, and the record.
        space: of the stream.
        rule: of the stream's terms; default: one that takes any number of words, for the stream will say.

    Raises:
        SettingError: one of them is no query of this stream; names its place, the field, and what would be right.
    """
    checked: list[dict[str, Any]] = []
    known: set[str] = set()
    for place, given in records:
        record, query = checked_query(place, given, space, rule)
        if isinstance(query, Query):
            if query.id in known:
                raise SettingError(place, f"another query has the id {query.id!r} too")
            known.add(query.id)
        checked.append(record)
    return checked


def checked_query(
    place: str, given: object, space: Space, rule: TermRule
) -> tuple[dict[str, Any], Query | Cancellation]:
    """One record of :func:`check_queries`, and what it says; without a time its time is 0."""
    if not isinstance(given, dict):
        raise SettingError(place, "is not a JSON object")
    record = {name: value for name, value in given.items() if name != "t" or value is not None}
    if record.get("id") is None and record.get("type") != "CANCEL":
        record["id"] = f"q-{uuid.uuid4().hex[:12]}"
    try:
        query = parse_query({"t": 0, **record}, space, rule)
        query.id.encode()
        record["id"] = query.id
    except RecordError as error:
        raise SettingError(place, str(error)) from None
    except UnicodeEncodeError:
        raise SettingError(place, "id: holds half of a surrogate pair; give Unicode text") from None
    return record, query


@dataclass(slots=True)
class PendingQueries:
    """What has been asked and may still be answered: decisions alone. Times are in ms since 1970 UTC.

    Attributes:
        snapshots: the snapshot queries without an answer, by id.
        standing: the continuous queries that may give more rows, by id.
        by_clock: ids of the queries whose times are those of the clock. The others are of a stream of another time.
        refused: reasons of queries that were rejected, by id.
        latest: the latest time of a row, by id.
        rows: rows that have come.
        failed: how many of them say why there is no answer.
    """

    snapshots: dict[str, Query] = field(default_factory=dict)
    standing: dict[str, Query] = field(default_factory=dict)
    by_clock: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    failed: int = 0

    @classmethod
    def of(cls, asked: Iterable[Query | Cancellation], by_clock: Iterable[str] = ()) -> PendingQueries:
        """What is pending after these have been sent."""
        queries = [query for query in asked if isinstance(query, Query)]
        return cls(
            {query.id: query for query in queries if not query.lifetime.continuous},
            {query.id: query for query in queries if query.lifetime.continuous},
            frozenset(by_clock),
        )

    @property
    def done(self) -> bool:
        """Whether nothing is pending."""
        return not self.snapshots and not self.standing

    @property
    def timed(self) -> list[Query]:
        """The snapshot queries without an answer that have said their time: such a one may have been asked before."""
        return [query for query in self.snapshots.values() if query.id not in self.by_clock]

    def may_concern(self, line: bytes) -> bool:
        """Whether a row, not parsed yet, may be an answer: a quick look, since most rows are other people's."""
        names = [*self.snapshots, *self.standing]
        return len(names) > _MOST_LOOKS or any(not _PLAIN.fullmatch(name) or name.encode() in line for name in names)

    def take(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is an answer; then it is not pending any more."""
        name, t = row["query"], row["t"]
        if (query := self.snapshots.get(name)) is not None:
            if (row["type"], t) != (query.type.value, query.t):
                return False
            del self.snapshots[name]
        elif (query := self.standing.get(name)) is None or row["type"] != query.type.value or t < query.t:
            return False
        self.latest[name] = max(t, self.latest.get(name, t))
        self.rows += 1
        self.failed += "error" in row
        return True

    def refuse(self, name: str, reason: str) -> None:
        """A query was rejected."""
        self.snapshots.pop(name, None)
        self.standing.pop(name, None)
        self.refused[name] = reason

    def expire(self, now: int, grace: int) -> None:
        """Queries give no more rows whose time has been over for ``grace`` ms, if all that stand do so by the clock."""
        if self.by_clock.issuperset(self.standing):
            for query in list(self.standing.values()):
                if query.t + query.lifetime.duration + grace <= now:
                    del self.standing[query.id]

    def cancellations(self, now: int) -> list[Cancellation]:
        """What ends the queries that stand.

        It is now, for queries by the clock. Others end with their latest row: the clock of a stream of another time is
        not to be moved to now.
        """
        return [
            Cancellation(name, max(query.t, now if name in self.by_clock else self.latest.get(name, query.t)))
            for name, query in self.standing.items()
        ]


@dataclass(slots=True)
class _Probes:
    """How far it is known that a stream has come.

    Attributes:
        t: the time of the probes; None: there are none.
        sent: the ids of those that were sent.
        ends: for each partition of the results the offset behind all that answers what was sent before the first.
    """

    t: int | None = None
    sent: list[bytes] = field(default_factory=list)
    ends: dict[int, int] | None = None


class QuerySession:
    """Asks a live stream, and reads what it answers from now on; one :meth:`ask` is followed at a time.

    Args:
        connection: how to reach the broker.
        stream: its name.
        space: of the stream.
        report: is told what a person should know.
        refused: is told the ids of queries that the stream has rejected, and why.

    Raises:
        Unavailable: the broker does not answer, or has no such stream.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        space: Space = WGS84,
        report: Callable[[str], None] = lambda text: None,
        refused: Callable[[str, str], None] = lambda name, reason: None,
    ) -> None:
        topics = connection.topics(stream)
        self._topic, self._answers, self._space, self._refused = topics.queries, topics.results, space, refused
        self._sent: dict[str, str] = {}
        self._failed: list[str] = []
        self._known = False
        self._probes = _Probes()
        with answering(connection), ExitStack() as opened:
            self._results = opened.enter_context(closing(Results(connection, stream, newest=True, report=report)))
            self._letters = opened.enter_context(closing(connection.consumer(f"{stream}-query")))
            self._producer = connection.producer()
            ends = {i: end for i, (_, end) in bounds(self._letters, topics.rejected).items()}
            self._letters.assign([TopicPartition(topics.rejected, i, end) for i, end in ends.items()])
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def ask(self, records: Iterable[Mapping[str, Any]]) -> PendingQueries:
        """Send queries and cancellations; those without a time are asked now.

        Args:
            records: as :func:`check_queries` gives them.

        Returns:
            What is pending then.

        Raises:
            Unavailable: the broker does not take them.
            SettingError: one is too long to be sent.
        """
        given, now = list(records), _now()
        sent = [{"t": now, **record} for record in given]
        queries = [parse_query(record, self._space, ANY_WORDS) for record in sent]
        self._send(sent)
        pending = PendingQueries.of(queries, [record["id"] for record in given if "t" not in record])
        self._probes = _Probes(max((query.t for query in pending.timed), default=None))
        self._probe()
        return pending

    def _probe(self) -> None:
        if (t := self._probes.t) is not None:
            record = probe_of(t, self._space)
            self._probes.sent.append(record["id"].encode())
            self._send([record])

    def _heed_probe(self, line: bytes) -> None:
        """A row has come: go on with probes, if it is that of one."""
        probes = self._probes
        if probes.sent and probes.ends is None and probes.sent[-1] in line:
            if len(probes.sent) == 1:
                self._probe()
            else:
                probes.ends = {i: end for i, (_, end) in bounds(self._letters, self._answers).items()}

    def _refuse(self, pending: PendingQueries, name: str, reason: str) -> None:
        self._refused(name, reason)
        pending.refuse(name, reason)

    def rows(
        self,
        pending: PendingQueries,
        timeout: float,
        patience: float | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[dict[str, Any]]:
        """The rows that answer, as they come, until nothing is pending any more.

        Args:
            pending: what :meth:`ask` has given; it is kept up to date.
            timeout: seconds for the answers of snapshot queries; those without one then are left in what is pending.
            patience: seconds without a row after which it ends; None: never.
            stop: whether to end, is asked several times a second.
        """
        heard = began = time.monotonic()

        def over() -> bool:
            for name, reason in self._refusals():
                self._refuse(pending, name, reason)
            if self._probes.ends is not None and self._results.has_read(self._probes.ends):
                for query in pending.timed:
                    self._refuse(pending, query.id, _ASKED_BEFORE.format(program()))
            pending.expire(_now(), int(timeout * 1000))
            now = time.monotonic()
            late = bool(pending.snapshots) and now - began > timeout
            impatient = patience is not None and now - heard > patience
            return stop() or pending.done or late or impatient

        for value in self._results.messages(over):
            for line in value.split(b"\n"):
                self._heed_probe(line)
                if pending.may_concern(line) and pending.take(row := json.loads(line)):
                    heard = time.monotonic()
                    yield row

    def cancel(self, pending: PendingQueries) -> None:
        """End the queries that still stand; errors as in :meth:`ask`."""
        self._send(each.to_record() for each in pending.cancellations(_now()))

    def _send(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send records, one a message, and wait until the broker has them."""
        for record in records:
            value = json.dumps(record, ensure_ascii=False).encode()
            try:
                self._producer.produce(self._topic, value, on_delivery=self._noted(str(record["id"])))
            except KafkaException as error:
                raise SettingError("query", f"{len(value)} bytes cannot be sent: {error.args[0].str()}") from None
            if not self._known:  # see spatialstream.connectors.kafka_clients: the first message goes alone
                self._known = self._producer.flush(30.0) == 0
        left = self._producer.flush(30.0)
        if left or self._failed:
            raise Unavailable(f"the broker did not take the queries: {(self._failed or ['no answer'])[0]}")

    def _noted(self, name: str) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._failed.append(error.str())
            else:
                self._sent[f"queries/{message.partition()}@{message.offset()}"] = name

        return delivered

    def _refusals(self) -> Iterator[tuple[str, str]]:
        """Ids and reasons of what was sent and has been rejected since the last time."""
        while (message := self._letters.poll(0.0)) is not None:
            value = message.value()
            if message.error() is not None or value is None:
                continue
            letter = json.loads(value)
            name = self._sent.pop(f"{letter['source']}@{letter['offset']}", None)
            if name is not None:
                yield name, letter["reason"]


def _now() -> int:
    """The day's clock, ms."""
    return time.time_ns() // 1_000_000
