"""The suites of source, channel and sink over a real broker (``tests/contracts`` has those that need no server)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from confluent_kafka import TopicPartition

from spatialstream.connectors import kafka_clients
from spatialstream.connectors.contracts import Channel, Sink
from spatialstream.connectors.kafka import Connection, Topics
from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink, KafkaSource
from spatialstream.connectors.memory import Message
from tests.cluster.stream import Servers
from tests.contracts.harness import Channels, Sinks, Sources
from tests.contracts.test_channel import TestChannel
from tests.contracts.test_sink import TestSink
from tests.contracts.test_source import TestSource

pytestmark = pytest.mark.gate

__all__ = ["TestChannel", "TestSink", "TestSource"]


class OnBroker:
    """A stream's topics, which nobody else uses."""

    def __init__(self, servers: Servers) -> None:
        self.connection = Connection(servers.kafka.bootstrap, servers.kafka.security)
        self.stream = f"contract-{uuid.uuid4().hex[:8]}"
        self.topics = Topics(self.stream)
        self.topics.ensure(self.connection, slots=2, objects=2)
        self._producer = self.connection.producer()

    def produce(self, topic: str, partition: int, *messages: Message, abort: bool = False) -> None:
        if abort:
            producer = self.connection.producer(**{"transactional.id": self.stream})
            producer.init_transactions(240.0)
            producer.begin_transaction()
        else:
            producer = self._producer
        for key, value in messages:
            producer.produce(topic, value, key, partition)
        assert producer.flush(240.0) == 0
        if abort:
            producer.abort_transaction(240.0)

    def delete(self, topic: str, partition: int, before: int) -> None:
        admin, at = self.connection.admin(), TopicPartition(topic, partition, before)
        admin.delete_records([at])[at].result(240.0)

    def all(self, topic: str) -> list[Message]:
        begins, ends = kafka_clients.offsets(self.connection).bounds({topic: 1})
        ranges = kafka_clients.read(self.connection, topic, 0, begins[topic][0], ends[topic][0])
        return [(each.key(), each.value()) for messages in ranges for each in messages]


class KafkaSources(OnBroker):
    @property
    def source(self) -> KafkaSource:
        return KafkaSource(self.connection, self.stream)

    def append(self, partition: str, messages: Sequence[Message], *, abort: bool = False) -> None:
        kind, _, number = partition.partition("/")
        self.produce(f"{self.stream}.{kind}", int(number), *messages, abort=abort)

    def remove(self, partition: str, before: int) -> None:
        kind, _, number = partition.partition("/")
        self.delete(f"{self.stream}.{kind}", int(number), before)


class KafkaChannels(OnBroker):
    def of(self, incarnation: str) -> Channel:
        return KafkaChannel(self.connection, self.stream, 2, incarnation)

    def write(self, slot: int, key: bytes | None, value: bytes | None) -> None:
        self.produce(self.topics.blocks, slot, (key, value))

    def write_announcement(self, value: bytes | None) -> None:
        self.produce(self.topics.epochs, 0, (None, value))

    def remove(self, slot: int, before: int) -> None:
        self.delete(self.topics.blocks, slot, before)

    def remove_announcements(self, before: int) -> None:
        self.delete(self.topics.epochs, 0, before)


class KafkaSinks(OnBroker):
    def of(self, incarnation: str) -> Sink:
        return KafkaSink(self.connection, self.stream, 3, incarnation)

    def results(self) -> list[tuple[bytes, bytes]]:
        return [(key or b"", value or b"") for key, value in self.all(self.topics.results)]

    def letters(self) -> list[str]:
        return [(value or b"").decode() for _, value in self.all(self.topics.rejected)]


@pytest.fixture
def sources(servers: Servers) -> Sources:
    return KafkaSources(servers)


@pytest.fixture
def channels(servers: Servers) -> Channels:
    return KafkaChannels(servers)


@pytest.fixture
def sinks(servers: Servers) -> Sinks:
    return KafkaSinks(servers)


def test_nothing_is_lost_of_what_is_first_sent_to_a_new_topic(servers: Servers) -> None:
    """A new partition refuses its first batch at times, while it takes the second one, which is under way already."""
    connection, value = Connection(servers.kafka.bootstrap, servers.kafka.security), bytes(12 << 20)
    for _ in range(15):
        topics = Topics(f"contract-{uuid.uuid4().hex[:8]}")
        made: dict[str, str] = {}
        topics.ensure(connection, slots=1, objects=1, made=made.update)
        kafka_clients.send(connection, ((topics.blocks, 0, str(i).encode(), value) for i in range(3)))
        ends = kafka_clients.offsets(connection).latest({topics.blocks: 1})[topics.blocks]
        given = kafka_clients.read(connection, topics.blocks, 0, 0, ends[0])
        assert [each.key() for messages in given for each in messages] == [b"0", b"1", b"2"]
        assert set(topics.remove(connection, made)) == set(topics.names.values())
