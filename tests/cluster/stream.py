"""A live stream of real processes, for tests: jobs that are started, killed and started again, a sender, a consumer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import TopicPartition

from spatialstream.client import Connection, Results, Sender
from spatialstream.client.results import bounds
from spatialstream.connectors.kafka import Topics
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.oracle import answers, check
from spatialstream.servers.job import JobServer
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.process import await_condition
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.zookeeper import ZooKeeperStore
from tests.cluster.quorum import KafkaQuorum, ZooKeeperQuorum

PARTITIONS = 2

PATIENCE = 240.0
"""Seconds within which comes what comes at all, on a slow machine that does much else."""

TICK = 0.2
"""Seconds between two sendings: each gives an epoch and a round, some 40 ms of processor time however many objects."""


@dataclass(frozen=True)
class Servers:
    """What all streams share."""

    zookeeper: ZooKeeperServer | ZooKeeperQuorum
    kafka: KafkaServer | KafkaQuorum
    streams: set[str] = field(default_factory=set)  # the names that are taken: each test's stream is its own


class LiveStream:
    """A stream with its two jobs."""

    def __init__(
        self,
        servers: Servers,
        name: str,
        folder: Path,
        space: Space,
        slots: int = 3,
        *more: str,
        idle: str = "10m",
        environment: dict[str, str] | None = None,
    ) -> None:
        assert name not in servers.streams, f"another test has a stream {name!r} on these servers"
        servers.streams.add(name)
        self.servers, self.name, self.space, self.slots = servers, name, space, slots
        self.connection = Connection(servers.kafka.bootstrap, servers.kafka.security)
        self.checkpoint = folder / "checkpoint"
        common = [
            *("--stream", name, "--bootstrap", servers.kafka.bootstrap, "--zookeeper", servers.zookeeper.hosts),
            *("--checkpoint", str(self.checkpoint), "--slots", str(slots), f"--space={space}", *more),
        ]
        # by default records wait as long as it takes for the watermarks of other partitions: so answers are a function
        # of the input
        router = [*common, "--idle", idle, "--leaves", "16", "--object-partitions", str(PARTITIONS), "--epoch", "2000"]
        self.router = JobServer(folder / "router", "router", router, environment=environment)
        self.worker = JobServer(folder / "worker", "worker", common, environment=environment)
        self.store = ZooKeeperStore(servers.zookeeper.hosts, name, tls=servers.zookeeper.tls)
        self.lines: list[bytes] = []
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self.router.start(timeout=PATIENCE)
        self.worker.start(timeout=PATIENCE)
        self.results = Results(self.connection, self.name)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._reader.join(60.0)
        self.router.interrupt()  # both end at the same time
        self.worker.stop(60.0)
        self.router.stop(60.0)
        self.store.close()
        self.results.close()

    def _read(self) -> None:
        for value in self.results.messages(self._ended.is_set):
            self.lines += value.split(b"\n")

    def sender(self, rate: float, tick: float = TICK) -> Sender:
        return Sender(self.connection, self.name, self.space, rate, objects_per_message=20, tick=tick)

    def send(
        self,
        objects: Sequence[SpatialObject],
        queries: Sequence[Query | Cancellation],
        rate: float,
        *,
        lasting: bool = False,
        tick: float = TICK,
    ) -> threading.Thread:
        """Begin to send a stream, in time order, in a thread of its own.

        Args:
            objects: of the stream.
            queries: of the stream.
            rate: objects a second; it may be changed while they are sent.
            lasting: send what is left ever more slowly, until the rate is set to 0: there is more of the stream for as
                long as the machine takes for what is done to it.
            tick: seconds between two sendings; the shorter, the more of the time is that of a turn.
        """
        self.sending = sender = self.sender(rate, tick)
        batches = ObjectBatch.of(list(objects)), QueryBatch.of(list(queries))

        def slow_down() -> bool:
            if lasting and sender.rate:
                sender.rate = rate * (1 - sender.sent / len(objects))
            return False

        thread = threading.Thread(target=sender.replay, args=(*batches, slow_down), daemon=True)
        thread.start()
        return thread

    def await_rows(self, count: int, timeout: float = PATIENCE) -> None:
        """Wait until as many rows have come."""
        assert await_condition(lambda: len(self.lines) >= count, timeout), f"{len(self.lines)} of {count} rows came"

    def await_progress(self) -> None:
        """Wait until more rows come."""
        before = len(self.lines)
        assert await_condition(lambda: len(self.lines) > before, PATIENCE), f"no row within {PATIENCE} s"

    def rows(self) -> list[dict[str, Any]]:
        """The rows that have come."""
        return [json.loads(line) for line in self.lines]

    def rejected(self) -> list[dict[str, Any]]:
        """All dead letters, each once."""
        values = dict.fromkeys(value for _, value in self.messages(Topics(self.name).rejected))
        return [json.loads(value) for value in values]

    def messages(self, topic: str) -> list[tuple[bytes | None, bytes]]:
        """Key and value of every message of a topic of one partition."""
        consumer = self.connection.consumer(f"{self.name}-test")
        _, end = bounds(consumer, topic)[0]
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = list[tuple[bytes | None, bytes]]()
        while len(found) < end:
            message = consumer.poll(60.0)
            assert message is not None
            if message.error() is None:
                found.append((message.key(), message.value() or b""))
        consumer.close()
        return found


def differences(
    stream: LiveStream,
    objects: Sequence[SpatialObject],
    queries: Sequence[Query | Cancellation],
    timeout: float = PATIENCE,
    done: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Wait for all results, and compare them with the oracle's."""
    expected, _ = answers(list(objects), list(queries), stream.space)
    stream.await_rows(len(expected), timeout)
    assert await_condition(done, timeout)
    return [str(each) for each in check(stream.rows(), expected, 5)]
