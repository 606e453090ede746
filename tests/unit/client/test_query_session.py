"""Asking a stream: what is refused before it is sent, what is waited for, and how that ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.client.query_session import PendingQueries, QuerySession, check_queries
from spatialstream.model.kinds import TYPES
from spatialstream.model.queries import Cancellation, Query, parse_query
from spatialstream.model.space import WGS84
from tests.streams import Stream, query_record, streams
from tests.unit.client.broker import Broker, Topic

SRQ = {"type": "SRQ", "region": {"box": [-2, -2, 2, 2]}, "duration": "1h"}
CRQ = SRQ | {"type": "CRQ"}


@given(drawn=streams(types=TYPES), stamped=st.booleans())
def test_what_is_checked_is_sent_as_it_was_written(drawn: Stream, stamped: bool) -> None:
    written = {}
    for query in drawn.queries:
        record = query_record(query)
        kept = stamped or "between" in record  # an interval is one before the query's time
        written[record["id"]] = record if kept else {name: record[name] for name in record if name != "t"}

    sent = check_queries([("line", record) for record in written.values()], drawn.space)

    assert sent == list(written.values())


def test_a_query_without_an_id_gets_one_of_its_own() -> None:
    sent = check_queries([("one", SRQ), ("two", SRQ)], WGS84)

    assert len({record["id"] for record in sent}) == 2
    assert all(record | {"id": ""} == SRQ | {"id": ""} for record in sent)


def query(name: str, kind: str, t: int = 100, duration: int = 50) -> Query:
    record = {"id": name, "type": kind, "t": t, "duration": duration, "k": 1, "at": [0, 0], "window": 5, "step": 5}
    wanted = {"S": ["at", "k"], "C": ["region", "k", "window", "step"]}[kind[0]] if kind[1] == "T" else []
    fields = {"SKQ": ["at", "k"], "CKQ": ["at", "k"], "SRQ": ["region"], "CRQ": ["region"]}.get(kind, wanted)
    chosen = {name: record[name] for name in ["id", "type", "t", "duration", *fields] if name in record}
    parsed = parse_query(chosen | ({"region": {"box": [0, 0, 1, 1]}} if "region" in fields else {}), WGS84)
    assert isinstance(parsed, Query)
    return parsed


def test_a_snapshot_query_waits_for_its_one_row() -> None:
    pending = PendingQueries.of([query("a", "SRQ")])

    assert not pending.take({"query": "b", "type": "SRQ", "t": 100})
    assert not pending.take({"query": "a", "type": "SRQ", "t": 99})  # of an earlier query of this id
    assert not pending.take({"query": "a", "type": "CRQ", "t": 100})
    assert not pending.done
    assert pending.take({"query": "a", "type": "SRQ", "t": 100})
    assert pending.done
    assert not pending.take({"query": "a", "type": "SRQ", "t": 100})
    assert pending.failed == 0


def test_a_row_that_is_too_long_is_an_answer_too() -> None:
    pending = PendingQueries.of([query("a", "SRQ")])
    assert pending.take({"query": "a", "type": "SRQ", "t": 100, "error": "the row would have 9 bytes"})
    assert pending.done
    assert pending.failed == 1
    assert pending.cancellations(500) == []


def test_a_continuous_query_waits_for_more_and_is_cancelled() -> None:
    pending = PendingQueries.of([query("a", "CRQ"), query("b", "CKQ"), Cancellation("c", 5)], ["a", "b"])

    assert not pending.take({"query": "a", "type": "CRQ", "t": 99})
    assert pending.take({"query": "a", "type": "CRQ", "t": 120})
    assert pending.take({"query": "a", "type": "CRQ", "t": 110})
    assert not pending.done
    assert pending.cancellations(130) == [Cancellation("a", 130), Cancellation("b", 130)]
    assert pending.cancellations(50) == [Cancellation("a", 100), Cancellation("b", 100)]
    pending.by_clock = frozenset("b")
    assert pending.cancellations(130) == [Cancellation("a", 120), Cancellation("b", 130)]


def test_a_continuous_query_whose_time_is_over_is_not_waited_for_nor_cancelled() -> None:
    pending = PendingQueries.of([query("a", "CRQ"), query("b", "CRQ", duration=1_000)], ["a", "b"])

    pending.expire(159, grace=10)
    assert set(pending.continuous) == {"a", "b"}
    pending.expire(160, grace=10)
    assert pending.cancellations(160) == [Cancellation("b", 160)]


def test_a_rejected_query_is_not_waited_for_nor_cancelled() -> None:
    pending = PendingQueries.of([query("a", "CRQ"), query("b", "SRQ")])

    pending.refuse("a", "its id is in use")
    pending.refuse("b", "k: 0")

    assert pending.done
    assert pending.refused == {"a": "its id is in use", "b": "k: 0"}
    assert pending.cancellations(500) == []


NAMES = st.one_of(st.sampled_from(["a", "q-1", 'say "a"', "Zürich", "\\", ""]), st.text(max_size=4))


@given(names=st.lists(NAMES, min_size=1, max_size=20, unique=True), other=NAMES, plain=st.booleans())
def test_a_quick_look_never_misses_an_answer(names: list[str], other: str, plain: bool) -> None:
    pending = PendingQueries.of([query(name, "CRQ") for name in names if name.isprintable()])

    for name in [*names, other]:
        row = {"query": name, "type": "CRQ", "t": 100}
        line = json.dumps(row, ensure_ascii=plain).encode(errors="surrogatepass")
        assert pending.may_concern(line) or not pending.take(row)


def test_rows_of_other_queries_are_not_even_parsed() -> None:
    pending = PendingQueries.of([query("q-1f", "CRQ")])

    assert not pending.may_concern(b'{"query": "crq480", "type": "CRQ", "t": 100}')


# --------------------------------------------------------------------------------------------------- with a broker


class Answering(Broker):
    """A broker behind which a stream answers each query at once with so many rows, or rejects it; and each probe."""

    def __init__(self, answers: dict[str, int]) -> None:
        super().__init__(
            Topic([(b"0 0 0 a", json.dumps({"query": "a", "type": "SRQ", "t": 1}).encode())]), hear=self._hear
        )
        self._answers = answers
        self._rows = 0
        self._probes = set[str]()

    def _hear(self, record: dict[str, Any], offset: int) -> None:
        count = self._answers.pop(record["id"], 0)
        if record["id"].startswith("probe-") and record["id"] not in self._probes:
            self._probes.add(record["id"])
            count = 1
        if count < 0:
            letter = {"source": "queries/0", "offset": offset, "reason": "id: is in use"}
            self.letters.messages.append((None, json.dumps(letter).encode()))
        for _ in range(count):
            row = {"query": record["id"], "type": record["type"], "t": record["t"]}
            self.topic.messages.append((b"1 0 %d a" % self._rows, json.dumps(row).encode()))
            self._rows += 1


def session(broker: Broker, **more: Any) -> QuerySession:
    return QuerySession(broker, "s", **more)  # type: ignore[arg-type]


def test_answers_are_given_and_registered_queries_are_cancelled() -> None:
    broker = Answering({"a": 1, "b": 2})
    with session(broker) as asking:
        pending = asking.ask(check_queries([("one", SRQ | {"id": "a"}), ("two", CRQ | {"id": "b", "t": 5})], WGS84))
        found = [row["query"] for row in asking.rows(pending, 60.0, stop=lambda: pending.rows == 3)]
        assert found == ["a", "b", "b"]
        assert not pending.snapshots
        asking.cancel(pending)
    cancelled = broker.sent[-1]
    assert (cancelled["id"], cancelled["type"], cancelled["t"]) == ("b", "CANCEL", 5), "not by the clock"


def test_what_is_rejected_is_told_and_not_waited_for() -> None:
    told: list[tuple[str, str]] = []
    with session(Answering({"a": -1, "b": 1}), refused=lambda *why: told.append(why)) as asking:
        pending = asking.ask(check_queries([("one", SRQ | {"id": "a"}), ("two", SRQ | {"id": "b"})], WGS84))
        assert [row["query"] for row in asking.rows(pending, 60.0)] == ["b"]
    assert told == [("a", "id: is in use")]
    assert pending.refused == {"a": "id: is in use"}


def test_what_was_asked_before_just_so_is_told_and_not_waited_for() -> None:
    told: list[tuple[str, str]] = []
    broker = Answering({"a": 0, "b": 1, "c": 0})
    asked = [("one", SRQ | {"id": "a", "t": 5}), ("two", SRQ | {"id": "b", "t": 7}), ("three", SRQ | {"id": "c"})]
    with session(broker, refused=lambda *why: told.append(why)) as asking:
        pending = asking.ask(check_queries(asked, WGS84))
        rows = asking.rows(pending, 600.0, stop=lambda: "a" in pending.refused)
        assert [row["query"] for row in rows] == ["b"]
    assert [name for name, _ in told] == ["a"]
    assert "the same query was sent before" in told[0][1]
    assert list(pending.snapshots) == ["c"], "which is of now"
    probes = [record for record in broker.sent if record["id"].startswith("probe-")]
    assert [record["t"] for record in probes] == [7, 7]


@pytest.mark.parametrize("ended", ["timeout", "stop"])
def test_an_answer_that_does_not_come_is_not_waited_for_in_vain(ended: str) -> None:
    with session(Answering({})) as asking:
        pending = asking.ask(check_queries([("one", SRQ | {"id": "a"})], WGS84))
        assert list(asking.rows(pending, 0.0 if ended == "timeout" else 60.0, stop=lambda: ended == "stop")) == []
    assert list(pending.snapshots) == ["a"]
