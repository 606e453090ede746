"""A continuous query from the side of who watches it: registered once, every row once, and an end with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from spatialstream.client import subscription
from spatialstream.client.record_writer import Sent
from spatialstream.client.stream import RegisteredQueries
from spatialstream.client.subscription import Subscription
from spatialstream.connectors.delivery import Place
from spatialstream.model.errors import Gone, SettingError, Unavailable
from spatialstream.model.space import WGS84
from spatialstream.model.terms import DEFAULT_RULE
from tests.unit.client.broker import Broker, Topic

CRQ = {"id": "q", "type": "CRQ", "region": {"circle": [13.4, 52.5, 1_000]}, "duration": "1h"}


@dataclass
class Stream:
    """Takes in what it is sent, with a round each; stands for its store, its actors and its topics."""

    results: Topic = field(default_factory=Topic)
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: list[dict[str, Any]] = field(default_factory=list)
    round: int = 0
    away: int = 0
    goes_on: bool = True
    meanwhile: Callable[[], object] = lambda: None
    space, rule = WGS84, DEFAULT_RULE

    def as_of(self) -> dict[str, int]:
        return {"round": self.round, "clock": 1_000 * self.round}

    def query(self, name: str) -> RegisteredQueries:
        if self.away:
            self.away -= 1
            raise Unavailable("its worker is away")
        found = [self.queries[name]] if name in self.queries else []
        return RegisteredQueries(found, None, self.as_of(), [{"rows": 0, "last_row": None} for _ in found])

    def rows(self, name: str, *numbers: int, t: int | None = None) -> None:
        """A round with these rows of a query, an object each."""
        self.round += 1
        now = 1_000 * self.round if t is None else t
        lines = [
            json.dumps({"query": name, "type": "CRQ", "t": now, "object": {"id": f"o{i}", "lon": 13.4, "lat": 52.5}})
            for i in numbers
        ]
        self.results.messages.append((Place(self.round, 0, 0, "a").key, "\n".join(lines).encode()))

    def take(self, *records: dict[str, Any]) -> Sent:
        refused = dict[int, str]()
        self.meanwhile()
        for line, record in enumerate(records, 1):
            self.sent.append(record)
            if record["type"] == "CANCEL":
                self.queries.pop(record["id"], None)
                self.round += 1
            elif record["type"] == "SRQ" and self.goes_on:
                self.round += 1
                row = json.dumps({"query": record["id"], "type": "SRQ", "t": record["t"], "objects": []})
                self.results.messages.append((Place(self.round, 0, 0, "a").key, row.encode()))
            elif record["id"] in self.queries:
                refused[line] = f"id: {record['id']!r} is in use"
            else:
                self.queries[record["id"]] = record
        return Sent("queries/0", len(self.sent), {}, refused)

    def watch(self, query: Any, after: str | None = None, **more: Any) -> Subscription:
        given = {"cancel": False, "patience": None, "timeout": 60.0} | more
        return Subscription(self, Broker(self.results), "s", query, after, **given)  # type: ignore[arg-type]


class RecordWriter:
    def __init__(self, broker: Any, name: str) -> None:
        self.queries = broker.stream.take

    def poll(self, sent: Sent) -> None:
        pass


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(Broker, "stream", made, raising=False)
    monkeypatch.setattr(subscription, "RecordWriter", RecordWriter)
    monkeypatch.setattr(subscription, "_LOOK_SECONDS", 0.0)
    return made


def ids(rows: Any) -> list[str]:
    return [row["object"]["id"] for row in rows]


def taken(rows: Subscription, count: int) -> list[str]:
    return ids(next(rows) for _ in range(count))


def test_a_query_is_registered_and_its_rows_come_once(stream: Stream) -> None:
    stream.rows("q", 0)  # of a query that had the id before
    with stream.watch(CRQ) as rows:
        assert stream.queries["q"]["t"] == 1_000
        stream.rows("q", 1, 2)
        stream.rows("other", 3)
        stream.results.messages.append(stream.results.messages[-2])  # a round that is done again
        stream.rows("q", 9, t=500)  # late, and of the query before
        stream.rows("q", 4)
        assert taken(rows, 3) == ["o1", "o2", "o4"]
    assert "q" in stream.queries, "it stays registered"
    assert list(rows) == [], "and is closed"


def test_a_registered_query_is_not_registered_again(stream: Stream) -> None:
    stream.watch(CRQ).close()
    sent = len(stream.sent)
    stream.queries["q"]["by"] = "somebody else"
    for given in (CRQ, CRQ | {"t": 0}, "q"):
        with stream.watch(given) as rows:
            assert rows.query["id"] == "q"
    assert len(stream.sent) == sent
    with pytest.raises(SettingError, match="'q' is the id of another registered query"):
        stream.watch(CRQ | {"duration": "2h"})
    with pytest.raises(SettingError, match="'q' is the id of another registered query"):
        stream.watch(CRQ | {"t": 5})


def test_whoever_was_first_has_registered_it(stream: Stream) -> None:
    def another() -> None:
        stream.queries.setdefault("q", stream.queries.get("q") or {**CRQ, "t": 0, "duration": 3_600_000})

    stream.meanwhile = another
    with stream.watch(CRQ) as rows:
        assert rows.query["t"] == 0
    stream.queries.clear()
    stream.meanwhile = lambda: stream.queries.setdefault("q", {**CRQ, "t": 0, "duration": 1})
    with pytest.raises(SettingError, match="another registered query"):
        stream.watch(CRQ)


def test_it_ends_with_the_query_after_its_last_row(stream: Stream) -> None:
    rows = stream.watch(CRQ)
    stream.rows("q", 1)
    assert taken(rows, 1) == ["o1"]
    stream.away = 2  # the worker is away for a while
    rows.cancel()
    stream.rows("q", 2)
    assert ids(rows) == ["o2"]
    assert list(rows) == []
    rows.close()


def test_a_worker_that_goes_back_has_not_ended_it(stream: Stream) -> None:
    with stream.watch(CRQ, patience=0.0) as rows:
        stream.round -= 1  # a round from before the query
        gone = stream.queries.pop("q")
        assert list(rows) == []
        stream.round, stream.queries["q"] = stream.round + 1, gone
        stream.rows("q", 1)
        assert taken(rows, 1) == ["o1"]


def test_it_is_cancelled_at_the_end_where_that_is_wished(stream: Stream) -> None:
    with stream.watch(CRQ, cancel=True):
        assert "q" in stream.queries
    assert "q" not in stream.queries
    before = len(stream.sent)
    with stream.watch(CRQ, cancel=True) as rows:
        rows.cancel()
        assert list(rows) == []
    assert len(stream.sent) == before + 3, "a query, its probe, and one cancellation"


def test_a_position_says_where_to_go_on(stream: Stream) -> None:
    rows = stream.watch(CRQ)
    stream.rows("q", 1, 2, 3)
    stream.rows("q", 4)
    assert taken(rows, 2) == ["o1", "o2"]
    position = rows.position
    rows.close()
    for given in (CRQ, "q"):
        with stream.watch(given, position) as rows:
            assert taken(rows, 2) == ["o3", "o4"]
    del stream.queries["q"]
    assert ids(stream.watch("q", position)) == ["o3", "o4"], "also of one that has ended since"
    assert ids(stream.watch("q", "oldest")) == ["o1", "o2", "o3", "o4"]
    stream.results.id = "another"
    with pytest.raises(Gone):
        stream.watch("q", position)


def test_an_interrupted_loop_and_a_cancelled_task_lose_no_row(stream: Stream) -> None:
    async def watched() -> list[str]:
        async with stream.watch(CRQ) as rows:
            stream.rows("q", 1)
            found = [(await anext(rows))["object"]["id"]]
            for number in range(2, 7):
                waiting = asyncio.create_task(anext(rows))
                await asyncio.sleep(0.0)  # it waits in the thread
                waiting.cancel()
                stream.rows("q", number)
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                found.append((await anext(rows))["object"]["id"])
            stream.queries.clear()
            return found + [row["object"]["id"] async for row in rows]

    assert asyncio.run(watched()) == [f"o{i}" for i in range(1, 7)]


def test_what_is_no_continuous_query_is_refused(stream: Stream) -> None:
    with pytest.raises(SettingError, match="no query with the id 'q' is registered"):
        stream.watch("q")
    with pytest.raises(SettingError, match="SRQ is not a continuous query"):
        stream.watch(CRQ | {"type": "SRQ"})
    with pytest.raises(SettingError, match="region"):
        stream.watch(CRQ | {"region": {"circle": [13.4, 99, 1]}})
    with pytest.raises(SettingError, match="give the id too"):
        stream.watch({**CRQ, "id": None}, "oldest")
    with pytest.raises(SettingError, match="position"):
        stream.watch("q", "nowhere")
    stream.goes_on = False
    with pytest.raises(Unavailable, match="has not registered"):
        stream.watch(CRQ, timeout=0.0)


def test_a_notebook_shows_the_latest_rows(stream: Stream) -> None:
    with stream.watch(CRQ) as rows:
        assert "no rows yet" in rows._repr_html_()
        stream.rows("q", 1, 2)
        row = next(rows)
        next(rows)
        assert rows._repr_html_().count("<circle ") == 2
        assert row._repr_html_().count("<circle ") == 1
