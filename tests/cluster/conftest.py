"""One ZooKeeper and one broker for all tests; each test has a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.zookeeper import ZooKeeperServer
from tests.cluster.stream import Servers
from tests.objects import ObjectServer


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder: Path = tmp_path_factory.mktemp("servers")
    with ZooKeeperServer(folder / "zookeeper") as zookeeper, KafkaServer(folder / "kafka") as kafka:
        yield Servers(zookeeper, kafka)


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    server = ObjectServer(tmp_path_factory.mktemp("objects")).start()
    yield server
    server.kill()  # it takes its time to end in order, and nobody reads its data again
