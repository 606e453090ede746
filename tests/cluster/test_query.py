"""``spatialstream query``, ``status`` and ``tree`` with a real broker, ZooKeeper and both jobs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.cli import main
from spatialstream.client import CLOCK, connect
from spatialstream.index.version import build
from spatialstream.model.errors import SettingError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE
from spatialstream.servers.job import JobServer
from spatialstream.servers.process import await_condition
from spatialstream.store.zookeeper import ZooKeeperStore
from tests.cluster.stream import PARTITIONS, PATIENCE, LiveStream, Servers

PLANE = Space.planar(0.0, 0.0, 100.0, 100.0)
EVERYWHERE = ["--box", "0,0,100,100"]


class Asked(LiveStream):
    """A stream whose router does not wait for watermarks, as most have it."""

    def __init__(self, servers: Servers, name: str, folder: Path, slots: int = 3, *more: str) -> None:
        super().__init__(servers, name, folder, PLANE, slots, *more)
        arguments = [
            *("--stream", self.name, "--bootstrap", servers.kafka.bootstrap, "--zookeeper", servers.zookeeper.hosts),
            *("--checkpoint", str(self.checkpoint), "--slots", str(self.slots), f"--space={PLANE}"),
        ]
        arguments += ["--leaves", "16", "--object-partitions", str(PARTITIONS), *more]
        self.router = JobServer(folder / "router", "router", arguments)

    def put(self, x: float, text: str) -> dict[str, Any]:
        """Send an object of now."""
        record = {"id": f"o{x:g}", "t": time.time_ns() // 1_000_000, "x": x, "y": 50.0, "text": text}
        producer = self.connection.producer()
        producer.produce(self.connection.topics(self.name).objects, json.dumps(record).encode())
        assert producer.flush(30.0) == 0
        return record

    def queries(self) -> list[dict[str, Any]]:
        """All records of the topic of queries."""
        messages = self.messages(self.connection.topics(self.name).queries)
        return [json.loads(line) for key, value in messages if key != CLOCK for line in value.splitlines()]


@pytest.fixture(scope="module")
def stream(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with Asked(servers, "query", tmp_path_factory.mktemp("query")) as made:
        for x, text in ((10.0, "flood in town"), (20.0, "Flood warning"), (30.0, "fire")):
            made.put(x, text)
        yield made


def ask(stream: Asked, *words: str) -> int:
    """Ask through the stream."""
    where = ["--stream", stream.name, "--bootstrap", stream.servers.kafka.bootstrap, f"--space={PLANE}"]
    patient = [] if "--timeout" in words else ["--timeout", "4m"]  # a first round takes long on a busy machine
    return main(["query", "--through-stream", *where, *words, *patient])


def ask_at_once(stream: Asked, *words: str, timeout: str = "4m") -> int:
    where = ["--stream", stream.name, "--zookeeper", stream.servers.zookeeper.hosts]
    return main(["query", *where, *words, "--timeout", timeout])


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.timeout(1200)
def test_snapshot_queries_are_answered(stream: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(stream, "--type", "SRQ", *EVERYWHERE, "--keywords", "FLOOD", "--duration", "1h") == 0
    (row,) = rows(capsys)
    assert [each["id"] for each in row["objects"]] == ["o10", "o20"]

    file = tmp_path / "queries.jsonl"
    near = {"id": "near", "type": "SKQ", "at": [29, 50], "k": 2, "duration": "1h"}
    terms = {"id": "terms", "type": "STQ", "region": {"box": [0, 0, 100, 100]}, "k": 1, "duration": "1h"}
    file.write_text(json.dumps(near) + "\n" + json.dumps(terms) + "\n")
    assert ask(stream, "--file", str(file)) == 0
    found = {row["query"]: row for row in rows(capsys)}
    assert [each["id"] for each in found["near"]["objects"]] == ["o30", "o20"]
    assert found["terms"]["terms"] == [{"term": "flood", "count": 2}]


@pytest.mark.gate
@pytest.mark.timeout(1200)
def test_snapshot_queries_are_answered_at_once_as_of_the_newest_round(
    stream: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    latest = stream.put(31.0, "flood again")["t"]
    words = ["--type", "SRQ", *EVERYWHERE, "--keywords", "flood", "--duration", "1h", "--id", "now"]
    assert ask_at_once(stream, *words, "--at-least", str(latest)) == 0
    (row,) = rows(capsys)
    assert [each["id"] for each in row["objects"]] == ["o10", "o20", "o31"]
    assert row["as_of"]["clock"] >= latest

    with connect(stream.name, stream.servers.zookeeper.hosts) as opened:
        near = {"id": "near", "type": "SKQ", "at": [29, 50], "k": 2, "duration": "1h"}
        terms = {"id": "terms", "type": "STQ", "region": {"box": [0, 0, 100, 100]}, "k": 1, "duration": "1h"}
        nearest, top = opened.ask([near, terms])
        assert nearest["as_of"] == top["as_of"]
        assert [each["id"] for each in nearest["objects"]] == ["o30", "o31"]
        assert top["terms"] == [{"term": "flood", "count": 3}]
        with pytest.raises(SettingError, match="is later than the stream's clock"):
            opened.ask(near | {"t": latest + 10**9})
    assert not [each for each in stream.queries() if each["id"] == "now"]


@pytest.mark.timeout(1200)
def test_a_stream_that_was_started_again_answers_before_anything_comes(
    stream: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    latest = stream.put(60.0, "drought")["t"]
    words = ["--type", "SRQ", *EVERYWHERE, "--keywords", "flood", "--duration", "1h", "--id", "again"]
    assert ask_at_once(stream, *words, "--at-least", str(latest)) == 0
    stream.worker.kill()
    assert ask_at_once(stream, *words, timeout="2s") == 2
    stream.worker.start(timeout=PATIENCE)
    assert ask_at_once(stream, *words) == 0

    before, after = rows(capsys)
    for row in (before, after):  # a round for the checkpoint may have come in between
        del row["as_of"]["round"]
    assert before == after


@pytest.mark.gate
@pytest.mark.timeout(1200)
def test_a_continuous_query_prints_rows_as_they_come_and_is_cancelled(
    stream: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    def send() -> None:
        assert await_condition(lambda: any(each["id"] == "storms" for each in stream.queries()), PATIENCE)
        for x in (41.0, 42.0):
            stream.put(x, "storm")

    sending = threading.Thread(target=send)
    sending.start()
    words = ["--type", "CRQ", *EVERYWHERE, "--keywords", "storm", "--duration", "1h", "--id", "storms"]
    assert ask(stream, *words, "--count", "2") == 0
    sending.join()

    assert [row["object"]["id"] for row in rows(capsys)] == ["o41", "o42"]
    assert [each["type"] for each in stream.queries() if each["id"] == "storms"] == ["CRQ", "CANCEL"]


@pytest.mark.timeout(1200)
def test_a_query_that_is_kept_is_registered_until_it_is_cancelled(
    stream: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--type", "CRQ", *EVERYWHERE, "--keywords", "quake", "--duration", "1h", "--id", "kept"]
    assert ask(stream, *words, "--keep", "--patience", "5s") == 0

    # the id is in use, which the worker tells, and this command says with its status
    assert ask(stream, *words) == 2
    assert "rejected: query 'kept': id: " in capsys.readouterr().err

    assert ask(stream, "--type", "CANCEL", "--id", "kept") == 0
    assert ask(stream, *words, "--patience", "5s") == 0
    assert rows(capsys) == []


@pytest.mark.timeout(1200)
def test_what_was_asked_before_just_so_is_told(stream: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    t = stream.put(70.0, "drought")["t"]
    words = ["--type", "SRQ", *EVERYWHERE, "--keywords", "drought", "--duration", "1h", "--id", "twice"]
    words += ["--time", str(t)]
    assert ask(stream, *words) == 0
    assert len(rows(capsys)) == 1
    assert ask(stream, *words) == 2
    assert "'twice': the same query was sent before" in capsys.readouterr().err


@pytest.mark.timeout(1200)
def test_no_answer_in_time_is_told(stream: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    stream.worker.stop(60.0)
    try:
        assert ask(stream, "--type", "SRQ", *EVERYWHERE, "--duration", "1h", "--id", "lost", "--timeout", "2s") == 3
        assert "no answer to lost in time" in capsys.readouterr().err
    finally:
        stream.worker.start(timeout=PATIENCE)


@pytest.mark.gate
@pytest.mark.timeout(1200)
def test_status_and_tree_of_a_running_stream(stream: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--zookeeper", stream.servers.zookeeper.hosts]
    assert main(["status", stream.name, *where]) == 0
    assert f"{stream.name}, {stream.slots} slots" in capsys.readouterr().out

    assert main(["status", "nosuch", *where]) == 2
    told = capsys.readouterr().err
    assert "there is no stream 'nosuch' in the routing store; there is " in told
    assert stream.name in told

    picture = tmp_path / "tree.svg"
    assert main(["tree", "--stream", stream.name, *where, "--svg", str(picture)]) == 0
    assert f"16 leaves, on {stream.slots} slots" in capsys.readouterr().out
    assert picture.read_text().startswith("<svg")


@pytest.mark.timeout(1200)
def test_the_same_load_can_be_sent_again(stream: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(stream.rejected())
    where = ["--stream", stream.name, "--bootstrap", stream.servers.kafka.bootstrap, f"--space={PLANE}"]
    for _ in range(2):
        words = ["--now", "--rate", "200", "--seconds", "2", "--snapshots", "5", "--continuous", "50", "--settle", "1"]
        assert main(["load", *where, *words]) == 0

    assert ask(stream, "--type", "SRQ", *EVERYWHERE, "--duration", "1h") == 0  # all that was sent before is decided

    sent = [record["id"] for record in stream.queries() if "@" in record["id"]]
    assert len(sent) == len(set(sent)) >= 2 * 50
    letters = stream.rejected()[before:]  # a slow machine may be late
    assert not [each for each in letters if "in use" in each["reason"]]


def test_a_stream_that_is_not_there_is_told(servers: Servers, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--stream", "nowhere", "--bootstrap", servers.kafka.bootstrap, "--type", "SRQ", "--box=0,0,1,1"]

    assert main(["query", *words, "--duration", "1h", "--through-stream"]) == 2

    assert "no topic nowhere.results" in capsys.readouterr().err


@pytest.mark.timeout(1200)
def test_a_new_stream_over_the_same_topics_gives_the_same_answers(
    stream: Asked, servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["SRQ", *EVERYWHERE, "--id", "all"], ["SKQ", "--point", "0", "50", "--k", "2", "--id", "two"]):
        assert ask(stream, "--duration", "1h", "--type", *words) == 0
    assert [len(row["objects"]) >= 2 for row in rows(capsys)] == [True, True]
    known = {"all", "two", "near", "terms", "storms"}
    # who asked has had its answers; who reads all rows may be behind
    assert await_condition(lambda: known <= {row["query"] for row in stream.rows()}, PATIENCE)
    before = [row for row in stream.rows() if row["query"] in known]
    stream.worker.stop(60.0)
    stream.router.stop(60.0)

    topics = [f"--topic={kind}={stream.name}.{kind}" for kind in ("objects", "queries")]
    with Asked(servers, "again", tmp_path, 2, *topics) as again:
        after: list[dict[str, Any]] = []

        def answered() -> bool:
            after[:] = [row for row in again.rows() if row["query"] in known]
            return len(after) >= len(before)

        assert await_condition(answered, PATIENCE), f"{len(after)} of {len(before)} rows came"

    assert sorted(after, key=json.dumps) == sorted(before, key=json.dumps)


def test_an_interrupt_ends_a_query_that_nobody_answers(servers: Servers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ZooKeeperStore(servers.zookeeper.hosts, "silent") as store:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        store.create(build(PLANE, ObjectBatch.of([]), QueryBatch.of([]), 1, 2))
        QueryEndpoint.of({"address": address, "secret": "s", "certificate": None}, PLANE, DEFAULT_RULE).save(store)
        words = ["--stream", "silent", "--zookeeper", servers.zookeeper.hosts, "--type", "SRQ", "--duration", "1h"]
        command = [sys.executable, "-m", "spatialstream", "query", *words, *EVERYWHERE]
        silent.settimeout(PATIENCE)
        for how in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(command) as asking, silent.accept()[0]:
                time.sleep(0.5)  # it waits for an answer now
                asking.send_signal(how)
                try:
                    assert asking.wait(PATIENCE) == -how
                finally:
                    asking.kill()
