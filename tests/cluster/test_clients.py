"""Clients of the broker that stay connected: over its restarts, in forks, and where nobody answers."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spatialstream.model.errors import Unavailable
from spatialstream.servers.kafka import KafkaServer
from spatialstream.sources import kafka_clients
from spatialstream.sources.kafka import Connection, Topics
from spatialstream.sources.kafka_stream import KafkaChannel
from spatialstream.sources.keys import block_key
from tests.cluster.stream import Servers


def block(number: int, size: int = 1000) -> tuple[int, bytes, pa.Buffer]:
    return 0, block_key(0, 0, number, "objects"), pa.py_buffer(b"%d" % number * size)


def numbers(channel: KafkaChannel, start: int = 0) -> list[bytes]:
    return [key for key, _ in channel.blocks(0, start, channel.ends()[0])]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path / "kafka", login=("someone", "quite secret")) as server:
        yield server


@pytest.mark.timeout(180)
def test_a_broker_that_dies_and_comes_back(kafka: KafkaServer) -> None:
    connection = Connection(kafka.bootstrap, kafka.security)
    Topics("s").ensure(connection, slots=1)
    channel, sent = KafkaChannel(connection, "s", 1), 0
    channel.send([block(-1)])
    restart = threading.Thread(target=lambda: (time.sleep(0.3), kafka.kill(), kafka.start(100.0)))
    restart.start()
    while restart.is_alive():  # each is made while the broker is there, is dying, is away, or is coming back
        channel.send(block(number) for number in range(sent, sent + 3))
        sent += 3
        assert list(dict.fromkeys(numbers(channel)))[1:] == [block(number)[1] for number in range(sent)]
    restart.join()
    channel.send([block(sent)])
    assert numbers(channel)[-1] == block(sent)[1]


@pytest.mark.timeout(120)
def test_a_process_that_is_forked_makes_its_own_clients(servers: Servers) -> None:
    connection = Connection(servers.kafka.bootstrap)
    Topics("forks").ensure(connection, slots=1)
    channel = KafkaChannel(connection, "forks", 1)
    channel.send([block(0)])
    assert len(numbers(channel)) == 1

    def again() -> None:
        copy = pickle.loads(pickle.dumps(channel))
        copy.send([block(1)])
        assert len(numbers(copy)) == 2

    fork = multiprocessing.get_context("fork").Process(target=again)
    fork.start()
    fork.join(60.0)
    assert fork.exitcode == 0
    assert numbers(channel) == [block(0)[1], block(1)[1]]


@pytest.mark.timeout(120)
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "PATIENCE", 2.0)
    monkeypatch.setattr(kafka_clients, "_END_PATIENCE", 0.1)
    channel = KafkaChannel(Connection("127.0.0.1:1"), "s", 1)
    with pytest.raises(Unavailable):
        channel.send([block(0)])
    with pytest.raises(Unavailable):
        list(channel.blocks(0, 0, 1))


@pytest.mark.timeout(120)
def test_more_than_the_queue_holds(servers: Servers) -> None:
    connection = Connection(servers.kafka.bootstrap)
    Topics("many").ensure(connection, slots=1)
    channel = KafkaChannel(connection, "many", 1)
    channel.send(block(number, 1) for number in range(120_000))  # librdkafka queues 100,000 messages
    assert len(numbers(channel)) == 120_000
    channel.send(block(number, 8_000_000) for number in range(1, 30))  # and here 128 MB
    assert numbers(channel, 120_000) == [block(number)[1] for number in range(1, 30)]
