"""Queries sent through a live stream, and their answers.

Queries are sent to the topic of queries while the topics of results and of dead letters are read from their ends on.
Arriving rows are matched with the pending queries: a snapshot query is pending until its one row arrives, a continuous
query until its lifetime is over or the caller cancels it, and a rejected query is no longer pending.

A query that repeats an earlier one, with the same content and the same time, is ignored by the stream without any
message: it was answered then. Where times are given, two *probes* detect this: once the row of the first probe arrives,
the stream has processed everything sent before it; once the row of the second, sent only then, arrives, all rows
answered up to the first have been sent.
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
"""Ids that JSON writes unescaped."""
_MOST_LOOKS = 16
_ASKED_BEFORE = (
    "the same query was sent before, and answered then: {} results --query shows the answer; for a new answer give "
    "another id"
)


def check_queries(
    records: Iterable[tuple[str, object]], space: Space, rule: TermRule = ANY_WORDS
) -> list[dict[str, Any]]:
    """Check records of queries, and give an id to those without one; a record without a time gets it when it is sent.

    Args:
        records: how to call the place that each comes from, and the record.
        space: of the stream.
        rule: of the stream's terms; default: one that takes any number of words, for the stream will say.

    Raises:
        SettingError: a record is not a valid query of this stream; names its origin, the field, and what would be
            right.
    """
    checked: list[dict[str, Any]] = []
    known: set[str] = set()
    for place, given in records:
        record, query = checked_query(place, given, space, rule)
        if isinstance(query, Query):
            if query.id in known:
                raise SettingError(place, f"another query has the same id {query.id!r}")
            known.add(query.id)
        checked.append(record)
    return checked


def checked_query(
    place: str, given: object, space: Space, rule: TermRule
) -> tuple[dict[str, Any], Query | Cancellation]:
    """Check one record for :func:`check_queries`, and parse it; a query without a time gets time 0."""
    if not isinstance(given, dict):
        raise SettingError(place, "is not a JSON object")
    record = {name: value for name, value in given.items() if name != "t" or value is not None}
    if record.get("id") is None and record.get("type") != "CANCEL":
        record["id"] = f"q-{uuid.uuid4().hex[:12]}"
    try:
        query = parse_query(record, space, rule, timed=False)
        query.id.encode()
        record["id"] = query.id
    except RecordError as error:
        raise SettingError(place, str(error)) from None
    except UnicodeEncodeError:
        raise SettingError(place, "id: holds half of a surrogate pair; give Unicode text") from None
    return record, query


@dataclass(slots=True)
class PendingQueries:
    """Queries that have been sent and may still give rows; logic without I/O. Times are in ms since 1970 UTC.

    Attributes:
        snapshots: the snapshot queries without an answer, by id.
        continuous: the continuous queries that may give more rows, by id.
        by_clock: ids of the queries that got the current time. The times of the others may be far from the clock's.
        refused: reasons of rejected queries, by id.
        latest: the latest timestamp of a row, by id.
        rows: number of rows received.
        failed: number of these rows that hold an error instead of an answer.
    """

    snapshots: dict[str, Query] = field(default_factory=dict)
    continuous: dict[str, Query] = field(default_factory=dict)
    by_clock: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    failed: int = 0

    @classmethod
    def of(cls, asked: Iterable[Query | Cancellation], by_clock: Iterable[str] = ()) -> PendingQueries:
        """Return the state after these have been sent."""
        queries = [query for query in asked if isinstance(query, Query)]
        return cls(
            {query.id: query for query in queries if not query.lifetime.continuous},
            {query.id: query for query in queries if query.lifetime.continuous},
            frozenset(by_clock),
        )

    @property
    def done(self) -> bool:
        """Whether nothing is pending."""
        return not self.snapshots and not self.continuous

    @property
    def timed(self) -> list[Query]:
        """The unanswered snapshot queries that gave their own time: such a query may repeat an earlier one."""
        return [query for query in self.snapshots.values() if query.id not in self.by_clock]

    def may_concern(self, line: bytes) -> bool:
        """Whether an unparsed row may be an answer: a quick filter, since most rows belong to other clients."""
        names = [*self.snapshots, *self.continuous]
        return len(names) > _MOST_LOOKS or any(not _PLAIN.fullmatch(name) or name.encode() in line for name in names)

    def take(self, row: Mapping[str, Any]) -> bool:
        """Record a row; return whether it answers one of the queries. A snapshot query is then no longer pending."""
        name, t = row["query"], row["t"]
        if (query := self.snapshots.get(name)) is not None:
            if (row["type"], t) != (query.type, query.t):
                return False
            del self.snapshots[name]
        elif (query := self.continuous.get(name)) is None or row["type"] != query.type or t < query.t:
            return False
        self.latest[name] = max(t, self.latest.get(name, t))
        self.rows += 1
        self.failed += "error" in row
        return True

    def refuse(self, name: str, reason: str) -> None:
        """Record that a query was rejected."""
        self.snapshots.pop(name, None)
        self.continuous.pop(name, None)
        self.refused[name] = reason

    def expire(self, now: int, grace: int) -> None:
        """Drop continuous queries that expired more than ``grace`` ms ago, if all of them got the current time."""
        if self.by_clock.issuperset(self.continuous):
            for query in list(self.continuous.values()):
                if query.t + query.lifetime.duration + grace <= now:
                    del self.continuous[query.id]

    def cancellations(self, now: int) -> list[Cancellation]:
        """Return the cancellations of the continuous queries.

        Queries that got the current time are cancelled now. Others are cancelled at their latest row, since a
        cancellation of now would move the clock of a stream of other times to now.
        """
        return [
            Cancellation(name, max(query.t, now if name in self.by_clock else self.latest.get(name, query.t)))
            for name, query in self.continuous.items()
        ]


@dataclass(slots=True)
class _Probes:
    """The progress of the probes.

    Attributes:
        t: the time of the probes; None: there are none.
        sent: ids of the probes sent.
        ends: for each partition of the results the offset after all answers to what was sent before the first probe.
    """

    t: int | None = None
    sent: list[bytes] = field(default_factory=list)
    ends: dict[int, int] | None = None


class QuerySession:
    """Sends queries through a live stream and reads the answers; one :meth:`ask` is followed at a time.

    Args:
        connection: how to reach the broker.
        stream: the stream's name.
        space: the stream's space.
        report: called with messages for the user.
        refused: called with the id of each rejected query, and the reason.

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
        """Send queries and cancellations; those without a time get the current one.

        Args:
            records: as returned by :func:`check_queries`.

        Returns:
            The pending queries.

        Raises:
            Unavailable: the broker does not accept them.
            SettingError: one is too long to be sent, or about a time that is still to come.
        """
        given, now = list(records), _now()
        sent = [{"t": now, **record} for record in given]
        queries = [self._parsed(record) for record in sent]
        self._send(sent)
        pending = PendingQueries.of(queries, [record["id"] for record in given if "t" not in record])
        self._probes = _Probes(max((query.t for query in pending.timed), default=None))
        self._probe()
        return pending

    def _parsed(self, record: Mapping[str, Any]) -> Query | Cancellation:
        try:
            return parse_query(record, self._space, ANY_WORDS)
        except RecordError as error:
            raise SettingError(str(record["id"]), str(error)) from None

    def _probe(self) -> None:
        if (t := self._probes.t) is not None:
            record = probe_of(t, self._space)
            self._probes.sent.append(record["id"].encode())
            self._send([record])

    def _heed_probe(self, line: bytes) -> None:
        """If an arriving row is that of a probe, take the next step of probing."""
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
        """Yield the rows that answer, as they arrive, until no query is pending.

        Args:
            pending: the result of :meth:`ask`, which is updated.
            timeout: seconds to wait for the answers to snapshot queries; unanswered ones stay in ``pending``.
            patience: seconds without a row after which the iteration ends; None: never.
            stop: says whether to end; called several times a second.
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
        """Cancel the continuous queries that are still pending; errors as in :meth:`ask`."""
        self._send(each.to_record() for each in pending.cancellations(_now()))

    def _send(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Send records, one per message, and wait until the broker has acknowledged them."""
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
        """Yield ids and reasons of sent records that have been rejected since the last call."""
        while (message := self._letters.poll(0.0)) is not None:
            value = message.value()
            if message.error() is not None or value is None:
                continue
            letter = json.loads(value)
            name = self._sent.pop(f"{letter['source']}@{letter['offset']}", None)
            if name is not None:
                yield name, letter["reason"]


def _now() -> int:
    """The current time, ms."""
    return time.time_ns() // 1_000_000
