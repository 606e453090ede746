"""One ZooKeeper and one broker for all tests; each test has a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.zookeeper import ZooKeeperServer
from tests.cluster.stream import Servers


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder: Path = tmp_path_factory.mktemp("servers")
    with ZooKeeperServer(folder / "zookeeper") as zookeeper, KafkaServer(folder / "kafka") as kafka:
        yield Servers(zookeeper, kafka)
