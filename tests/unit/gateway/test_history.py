"""What has come, over HTTP: pages, counts, who may have them, and what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from spatialstream.client.history import Log
from spatialstream.gateway import streams
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.streams import ServedStream
from spatialstream.servers.process import await_condition
from tests.unit.client.log import MemoryLog
from tests.unit.gateway.http import Client, served, serving
from tests.unit.gateway.results import messages, row

WATCHER, ASKER, OTHER = "may-only-watch-0123", "may-only-ask-0123", "another-one-0123456"
PAST, COUNTS = "/streams/s/results/past", "/streams/s/results/counts"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    made = MemoryLog()
    for number in range(10):
        made.add(1_000 * number, messages([row("a b", number), row("y", number)], 2, number))
    monkeypatch.setattr(ServedStream, "log", lambda _: made)
    return made


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    rights = {"watch": WATCHER, "ask": ASKER}
    tokens = [{"name": each, "token": token, "rights": [each], "streams": ["s"]} for each, token in rights.items()]
    tokens.append({"name": "other", "token": OTHER, "rights": ["watch"], "streams": ["s"]})
    (tmp_path / "tokens").write_text("\n".join(map(json.dumps, tokens)))
    with serving(Gateway([served("s")], Access(tmp_path / "tokens"))) as nobody:
        yield Client(nobody.port, WATCHER)


def test_pages_lead_to_each_other(client: Client, log: MemoryLog) -> None:
    path, found = f"{PAST}?query=a%20b&since=2000&until=1970-01-01T00:00:08Z&limit=4", list[int]()
    for expected in (4, 2):
        page = client("GET", path)
        assert (page.status, len(page.json["rows"])) == (200, expected), page
        assert (page.json["query"], page.json["since"], page.json["until"]) == ("a b", 2_000, 8_000)
        assert all(each["row"] == json.loads(row("a b", each["at"] // 1_000)) for each in page.json["rows"])
        found += [each["at"] for each in page.json["rows"]]
        path = page.json.get("next", "")
    assert path == ""
    assert found == [2_000, 3_000, 4_000, 5_000, 6_000, 7_000]


def test_counts_say_when_each_part_begins_and_how_far_back_rows_are_kept(client: Client, log: MemoryLog) -> None:
    log.first = 1
    told = client("GET", f"{COUNTS}?query=y&since=0&until=10000&parts=5").json
    expected = [{"since": 2_000 * i, "rows": 2 - (i == 0), "exact": True} for i in range(5)]
    assert told == {"query": "y", "since": 0, "until": 10_000, "kept_since": 1_000, "counts": expected}
    hour = client("GET", f"{COUNTS}?query=y").json
    assert hour["until"] - hour["since"] == 3_600_000
    assert len(hour["counts"]) == 60
    assert len(client("GET", f"{COUNTS}?query=y&parts=1000000").json["counts"]) == 240


def test_what_is_refused(client: Client, log: MemoryLog) -> None:
    for path in (PAST, COUNTS):
        for asked, parameter in (
            ("", "query"),
            ("query=a&query=b", "query"),
            ("query=a&since=yesterday", "since"),
            ("query=a&until=1e9", "until"),
            ("query=a&since=5&until=5", "since"),
            ("query=a&x=1", "x"),
        ):
            answer = client("GET", f"{path}?{asked}")
            assert (answer.status, answer.errors[0]["parameter"]) == (400, parameter), asked
        assert Client(client.port)("GET", f"{path}?query=a").status == 401
        assert Client(client.port, ASKER)("GET", f"{path}?query=a").status == 403
    for asked, parameter in (("limit=0", "limit"), ("position=x", "position")):
        assert client("GET", f"{PAST}?query=a&{asked}").errors[0]["parameter"] == parameter
    assert client("GET", f"{PAST}?query=a&position=-0-0").status == 410
    assert client("GET", f"{COUNTS}?query=a&parts=0").errors[0]["parameter"] == "parts"


def test_without_a_broker_it_is_told_to_come_again(client: Client) -> None:
    answer = client("GET", f"{PAST}?query=a")
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_who_reads_what_has_been_is_bounded_and_holds_up_nobody_else(
    client: Client, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, reading = threading.Event(), threading.Semaphore(0)

    def slow(_: ServedStream) -> Log:
        reading.release()
        assert go.wait(60.0)
        return log

    monkeypatch.setattr(ServedStream, "log", slow)
    path = f"{PAST}?query=y&since=0"
    connections = [client.connection() for _ in range(streams.MOST_READING)]
    try:
        for each in connections:
            each.request("GET", path, headers=client.headers({}))
        assert all(reading.acquire(timeout=60.0) for _ in range(streams.SHARE_OF_READERS))
        assert await_condition(lambda: client("GET", f"{COUNTS}?query=y").status == 429, 60.0), "it has its share"
        assert not reading.acquire(blocking=False)
        assert client("GET", "/live").status == 200
        other = threading.Thread(target=Client(client.port, OTHER), args=("GET", path))
        other.start()
        assert reading.acquire(timeout=60.0), "another one is not held up"
    finally:
        go.set()
    other.join()
    statuses = [each.getresponse().status for each in connections]
    assert statuses.count(200) == streams.MOST_READING // 2
    assert set(statuses) == {200, 429}
    for each in connections:
        each.close()
    assert client("GET", f"{COUNTS}?query=y").status == 200
