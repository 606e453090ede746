"""Results of a live stream as a consumer has them: whole, from where it was, and across a stream's lives."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spatialstream.cli import main
from spatialstream.client import CLOCK, watermark
from spatialstream.model.space import Space
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PARTITIONS, PATIENCE, LiveStream, Servers
from tests.lengths import AT_LENGTH

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
END = 1_000
LONG, SMALL = 24, 300


def send(stream: LiveStream) -> None:
    """A row with all objects whose ids have 900 kB, and a row for each of the many small ones."""
    region = {"box": [0, 0, 1, 1]}
    asked = [
        {"id": "each", "type": "CRQ", "t": 1, "keywords": ["small"], "duration": END, "region": region},
        {"id": "all", "type": "SRQ", "t": END, "keywords": ["long"], "duration": END, "region": region},
    ]
    objects: list[dict[str, Any]] = [
        {"id": f"{i:02d}" + "x" * 900_000, "t": 2, "x": 0.5, "y": 0.5, "text": "long"} for i in range(LONG)
    ]
    objects += [{"id": f"o{i}", "t": 3 + i, "x": 0.5, "y": 0.5, "text": "small"} for i in range(SMALL)]
    topics, producer = stream.connection.topics(stream.name), stream.connection.producer()
    for query in asked:
        producer.produce(topics.queries, json.dumps(query).encode())
    for each in objects:
        producer.produce(topics.objects, json.dumps(each).encode(), partition=0)
    for partition in range(PARTITIONS):
        producer.produce(topics.objects, watermark(END + 1), CLOCK, partition)
    producer.produce(topics.queries, watermark(END + 1), CLOCK)
    assert producer.flush(60.0) == 0


def words_of(stream: LiveStream, position: Path, *more: str) -> list[str]:
    """The command."""
    where = ["--stream", stream.name, "--bootstrap", stream.servers.kafka.bootstrap, "--position", str(position)]
    return [sys.executable, "-m", "spatialstream", "results", *where, "--type", "CRQ", "--patience", "10s", *more]


def interrupted(stream: LiveStream, position: Path, after: int) -> list[str]:
    """Ids of the objects in the rows of one use that is interrupted after some of them."""
    with subprocess.Popen(words_of(stream, position), stdout=subprocess.PIPE, bufsize=0) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(after)]
        running.send_signal(signal.SIGINT)
        lines += running.communicate(timeout=PATIENCE)[0].splitlines()
    assert running.returncode == 0
    return [json.loads(line)["object"]["id"] for line in lines]


def printed(stream: LiveStream, position: Path, *more: str, into: str = "") -> tuple[list[str], str]:
    """(ids of the objects in the rows that one use of the command prints, what it says)."""
    words = words_of(stream, position, *more)
    command = ["sh", "-c", f'"$@" | {into}', "sh", *words] if into else words
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["object"]["id"] for line in done.stdout.splitlines()], done.stderr


@pytest.mark.timeout(1800)
def test_rows_are_whole_once_and_of_their_incarnation(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [f"o{i}" for i in range(SMALL)]
    with LiveStream(servers, "lives", tmp_path, PLANE) as stream:
        send(stream)
        stream.await_rows(SMALL + 1)
        (row,) = (row for row in stream.rows() if row["query"] == "all")
        assert [each["id"][:2] for each in row["objects"]] == [f"{i:02d}" for i in range(LONG)]
        assert len(json.dumps(row)) > 16 << 20

        position = tmp_path / "position"
        found = printed(stream, position, "--count", "10")[0]
        assert found == expected[:10]
        found += interrupted(stream, position, 5)
        assert 15 <= len(found) < SMALL
        found += printed(stream, position, into="cat")[0]
        assert found == expected
        few, said = printed(stream, tmp_path / "another", into="head -n 3")
        assert few == expected[:3]
        assert "Error" not in said
        assert printed(stream, tmp_path / "another", "--count", "5")[0] == expected[3:8]
        if AT_LENGTH:  # with every change test_query.py begins a stream anew
            _begins_anew(stream, position, expected, capsys)


def _begins_anew(stream: LiveStream, position: Path, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reads on is told, and has the rows of the new incarnation."""
    servers = stream.servers
    stream.worker.stop(60.0)
    stream.router.stop(60.0)
    first = json.loads((stream.checkpoint / "stream.json").read_bytes())["incarnation"]
    shutil.rmtree(stream.checkpoint)
    where = ["--bootstrap", servers.kafka.bootstrap, "--zookeeper", servers.zookeeper.hosts]
    options = [*where, "--checkpoint", str(stream.checkpoint), "--slots", str(stream.slots), f"--space={PLANE}"]
    for job in ("router", "worker"):
        assert main([job, "--stream", stream.name, *options]) == 2
        assert f"another incarnation of lives ({first})" in capsys.readouterr().err
    stream.store.erase()
    stream.router.start(timeout=PATIENCE)
    stream.worker.start(timeout=PATIENCE)
    assert await_condition(lambda: len(stream.lines) >= 2 * (SMALL + 1), PATIENCE)
    again, said = printed(stream, position)
    assert again == expected
    assert "the stream was recreated" in said
